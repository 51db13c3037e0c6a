//! The defects: one for each public report, under its number in the table of `docs/zoo.md`.

macro_rules! defects {
    ($($name:ident)+) => {
        /// What is wrong with the kit. Each is one public report of a loader, see [`entries`](super::entry::entries).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Defect { $($name,)+ }

        impl Defect {
            /// All, class by class.
            pub const ALL: &'static [Defect] = &[$(Defect::$name,)+];
        }
    };
}

defects! {
    Eo1 Eo2 Eo4 Eo5 Eo6 Eo7 Eo8 Eo9 Eo10 Eo13 Eo15
    Last1 Last2 Last4 Last5 Last7
    Det2 Det3 Det5 Det7 Det8
    Rng1 Rng2 Rng4 Rng5
    Epoch1 Epoch2 Epoch4 Epoch6 Epoch7 Epoch9
    Resume1 Resume3 Resume4 Resume5 Resume6 Resume7 Resume9 Resume10 Resume11 Resume12 Resume13 Resume15 Resume16 Resume17 Resume19 Resume20
    Rank1 Rank2 Rank3 Rank4 Rank6
    Live1 Live3 Live4 Live5 Live8 Live9
    Stop1 Stop2 Stop3 Stop5 Stop7 Stop8 Stop9
    Fault1 Fault2 Fault3 Fault5 Fault6 Fault7 Fault8 Fault9
    Mem1 Mem2 Mem3 Mem4 Mem6 Mem8 Mem10
    Cache1 Cache2
    Xfer1 Xfer4 Xfer5 Xfer6
    Lat1 Lat10
    Spdl2 Spdl3 Spdl10
}

impl Defect {
    /// As the table writes it: `EO-1`.
    pub fn id(self) -> String {
        let name = format!("{self:?}");
        let digits = name.find(|c: char| c.is_ascii_digit()).expect("every name ends in its number");
        format!("{}-{}", name[..digits].to_uppercase(), &name[digits..])
    }

    /// Its class: `EO`.
    pub fn class(self) -> String {
        self.id().split('-').next().expect("a class").to_owned()
    }
}
