//! The zoo: a loader with the defects that loaders really had, each behind a switch. The check must find every one of them by the
//! invariant that forbids it, and nothing in the same loader without it, under schedules by chance and under those by priorities.
//!
//! `TOWTANK_ZOO=table cargo test --test zoo -- --nocapture` looks at all of them from 20 starting points and writes
//! `docs/zoo.md`; `TOWTANK_ZOO=shrunk` prints how small the failure of each gets.

#![expect(unreachable_pub, reason = "one crate, whose parts see each other")]

use libtest_mimic::{Arguments, Trial};

mod zoo {
    pub mod cache;
    pub mod collector;
    pub mod defect;
    pub mod entry;
    pub mod feeder;
    pub mod kit;
    pub mod motions;
    pub mod order;
    pub mod permits;
    pub mod queue;
    pub mod resume;
    pub mod sequences;
    pub mod table;
    pub mod transfer;
    pub mod worker;
}

use zoo::{
    defect::Defect,
    entry::{Entry, entries},
    table,
};

fn main() {
    let mut arguments = Arguments::from_args();
    let trial = |entry: &'static Entry| {
        Trial::test(entry.defect.id(), move || {
            let found = table::found(entry, 0)?;
            table::sound(entry, table::RANDOM, 0, table::SOUND.max(found))?;
            let found = table::found_by_priorities(entry, 0)?;
            Ok(table::sound(entry, table::PCT, 0, table::SOUND.max(found))?)
        })
    };
    let mut trials: Vec<Trial> = entries().map(trial).collect();
    trials.push(Trial::test("every_defect_has_one_entry", || {
        let mut entries: Vec<Defect> = entries().map(|entry| entry.defect).collect();
        entries.sort_unstable();
        if entries == Defect::ALL { Ok(()) } else { Err("the table and the defects differ".into()) }
    }));
    if let Some(wish) = std::env::var_os("TOWTANK_ZOO") {
        let work = match wish.to_str() {
            Some("table") => table::written,
            Some("shrunk") => table::shrunk,
            _ => panic!("TOWTANK_ZOO is {wish:?}, which is neither `table` nor `shrunk`"),
        };
        trials = vec![Trial::test("wish", move || Ok(work()?))];
        arguments.test_threads = Some(1);
    }
    libtest_mimic::run(&arguments, trials).exit();
}
