//! A lock that threads of the pool hold one at a time, such as Python's global interpreter lock.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Cost, Measured, store::above_zero};
use crate::{
    document::{Errors, FromSection, Section, Share, Spanned, documented},
    units::{Duration, Fraction, nearest},
};

documented! {
    /// A lock that jobs hold at their beginning, for a part of their time:
    ///
    /// ```toml
    /// [lock]
    /// interval = "5 ms"
    /// held = { decode = "12 %" }
    /// ```
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct Lock {
        /// How long somebody waits until the holder has to give it up, 5 ms in Python; without it a holder keeps it until it is done.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub interval: Option<Measured<Duration>>,
        /// The part of their time that jobs hold it, by the kinds that [costs](super::MachineModel::costs) name; other kinds do without.
        pub held: BTreeMap<String, Measured<Fraction>>,
    }
}

impl FromSection for Lock {
    const EXPECTED: &'static str = r#"a lock: { interval = "5 ms", held = { decode = "12 %" } }"#;

    fn read(section: &Section<'_>) -> Option<Lock> {
        section.documents(Lock::DOCS);
        let interval = section.plain("interval");
        if !section.has("held") {
            section.missing("held", r#"{ decode = "12 %" }"#);
        }
        let held = section.section("held");
        let part = |kind: &str| {
            let part = held.plain::<Measured<Share>>(kind)?;
            let part = Measured { value: part.value.0, source: part.source, uncertainty: part.uncertainty };
            Some((kind.to_owned(), part))
        };
        let held = held.names().into_iter().filter_map(part).collect();
        Some(Lock { interval: above_zero(interval), held })
    }
}

impl Lock {
    /// Reports kinds of jobs that nobody knows.
    pub(super) fn check(&self, place: &Spanned<Lock>, costs: &BTreeMap<String, Cost>, errors: &Errors) {
        for kind in self.held.keys().filter(|kind| !costs.contains_key(*kind)) {
            let known = || costs.keys().map(String::as_str);
            let list: Vec<String> = known().map(|kind| format!("`{kind}`")).collect();
            let hint = nearest(kind, known()).map(|near| format!("did you mean `{near}`?")).unwrap_or_default();
            let wrong = place.wrong(format!("is held by `{kind}`, which has no cost"));
            errors.push(wrong.expected(format!("kinds of `[costs]`: {}", list.join(", "))).hint(hint));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{model::parse, sim};

    #[test]
    fn a_lock_is_read_written_and_simulated_and_what_is_odd_about_it_is_told() {
        let with = |lock: &str| parse("odd.toml", &format!("{}\n{lock}\n", include_str!("../../models/reference-2core.toml")));
        let machine = with("[lock]\ninterval = \"5 ms\"\nheld = { decode = \"12 %\" }").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(parse("written.toml", &machine.to_toml()).unwrap_or_else(|e| panic!("{e}")), machine);
        let lock = machine.to_config(2, &machine.stores["disk"]).lock;
        assert_eq!(lock, Some(sim::LockSpec { interval_ns: 5_000_000, held: vec![("decode".to_owned(), 120_000)] }));
        for (lock, complaint) in [
            ("[lock]\ninterval = \"5 ms\"", "`lock.held` is missing"),
            ("[lock]\nheld = { decode = \"120 %\" }", "`lock.held.decode` is more than the whole"),
            ("[lock]\nheld = { decoding = \"20 %\" }", "`lock` is held by `decoding`, which has no cost"),
            ("[lock]\nheld = { decod = \"20 %\" }", "did you mean `decode`?"),
            ("[lock]\ninterval = \"0 ms\"\nheld = { decode = \"20 %\" }", "`lock.interval` is zero"),
        ] {
            let error = with(lock).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
