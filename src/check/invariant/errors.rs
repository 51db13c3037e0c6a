//! Errors reach somebody.

use std::collections::{BTreeMap, BTreeSet};

use super::{Asked, Broken, Ended, Invariant, name};
use crate::{
    check::design::Got,
    failure::FailureKind,
    fault::{Fault, Leaf},
    loader::{Allowance, End, Error, OnError},
    machine::{Item, Op},
    trace::{Event, Kind, StageId},
};

/// Errors surface or are counted: a sample that cannot be read or decoded is not delivered as if nothing had happened, a sample that the
/// trace says was given up is told to the consumer or stands in the books, none is given up as missing or damaged that is neither, and who
/// ended early says why. It is broken by a failure that is
/// swallowed, by garbage that is delivered, and by a loader that ends in the middle of its plan without a word.
pub struct ErrorsSurfaced<'a> {
    asked: Asked<'a>,
    /// Samples that the trace says were given up, by rank and epoch, with when.
    given_up: BTreeMap<(u16, u32, u64), crate::machine::Time>,
    told: BTreeSet<(u16, u32, u64)>,
}

impl<'a> ErrorsSurfaced<'a> {
    /// Before a run.
    pub fn new(asked: Asked<'a>) -> ErrorsSurfaced<'a> {
        ErrorsSurfaced { asked, given_up: BTreeMap::new(), told: BTreeSet::new() }
    }

    /// What keeps the sample from being had at every try.
    fn lasting(&self, rank: u16, item: &Item) -> Option<Fault> {
        let faults = self.asked.faults;
        let op = |stage| Op { stage, rank, attempt: 0, item: *item };
        faults.lasting(self.asked.seed, item.sample).or_else(|| {
            let verdict = faults.verdict(self.asked.seed, &op(StageId::DECODE), Leaf::Cpu);
            verdict.filter(|fault| *fault == Fault::Panic)
        })
    }
}

impl ErrorsSurfaced<'_> {
    /// Whether a failure says that a sample is not there, or not what it should be, and the store has it whole.
    fn without_cause(&self, item: &Item, kind: FailureKind) -> bool {
        let of_the_sample = matches!(kind, FailureKind::NotFound | FailureKind::Truncated | FailureKind::Corrupt);
        of_the_sample && self.asked.faults.lasting(self.asked.seed, item.sample).is_none()
    }
}

impl Invariant for ErrorsSurfaced<'_> {
    fn name(&self) -> &'static str {
        "errors_surfaced_or_counted"
    }

    fn event(&mut self, event: &Event) -> Result<(), Broken> {
        if event.kind == Kind::Skipped {
            self.given_up.insert((event.rank, event.epoch, event.sample), event.time);
        }
        Ok(())
    }

    fn batch(&mut self, got: &Got) -> Result<(), Broken> {
        if !self.asked.faults.is_empty() {
            for item in &got.items {
                if let Some(fault) = self.lasting(got.rank, item) {
                    let why = format!("{} was delivered, although it cannot be had: {}", name(item), fault_name(fault));
                    return Err(Broken::new(why).at(got.at).by(got.rank, *item));
                }
            }
        }
        if let Some(skipped) = got.skipped.iter().find(|s| self.without_cause(&s.item, s.failure.kind)) {
            let why = format!("{} was given up ({}), and nothing is wrong with it", name(&skipped.item), skipped.failure);
            return Err(Broken::new(why).at(got.at).by(got.rank, skipped.item));
        }
        self.told.extend(got.skipped.iter().map(|s| (got.rank, s.item.epoch, s.item.sample)));
        Ok(())
    }

    fn end(&mut self, ended: &Ended<'_>) -> Result<(), Broken> {
        for end in ended.ends {
            let key = |item: &Item| (end.rank, item.epoch, item.sample);
            if let Some(Error::Sample { item, .. } | Error::TooManySkipped { item, .. }) = &end.error {
                self.told.insert(key(item));
            }
            let no_limit = |rank: &crate::loader::Resolved| rank.settings.on_error == OnError::Skip { at_most: Allowance::ANY };
            if let (Some(Error::Sample { item, failure }), true) = (&end.error, self.asked.ranks.iter().all(no_limit)) {
                let why = format!("{} ended the loader, which was to skip what fails: {failure}", name(item));
                return Err(Broken::new(why).at(ended.at).by(end.rank, *item));
            }
            let Some(outcome) = &end.outcome else { continue };
            self.told.extend(outcome.unreported.iter().map(|s| key(&s.item)));
            match (&outcome.end, &end.error) {
                // A consumer that leaves at the same time need not hear of it.
                (End::Failed(error), told) if told.as_ref() != Some(error) && !ended.leaves => {
                    let why = format!("the loader ended with an error that its consumer was not told: {error}");
                    return Err(Broken { rank: Some(end.rank), ..Broken::new(why).at(ended.at) });
                }
                (End::Left, _) if !ended.leaves && end.error.is_none() => {
                    let why = "the loader ended early, and neither its consumer left nor was it told of an error";
                    return Err(Broken { rank: Some(end.rank), ..Broken::new(why).at(ended.at) });
                }
                _ => {}
            }
        }
        // What fails behind the error that ends a run has nobody to be told to.
        let silent = |rank: u16| {
            let end = ended.ends.iter().find(|end| end.rank == rank);
            ended.stall.is_none() && ended.finished(rank) && end.is_none_or(|end| end.error.is_none())
        };
        let lost = self.given_up.iter().find(|(key, _)| silent(key.0) && !self.told.contains(key));
        match lost {
            None => Ok(()),
            Some(((rank, epoch, sample), at)) => {
                let item = Item { epoch: *epoch, position: 0, sample: *sample };
                let why = format!("sample {sample} of epoch {epoch} was given up, and nobody was told");
                Err(Broken::new(why).at(*at).by(*rank, item))
            }
        }
    }
}

fn fault_name(fault: Fault) -> String {
    fault.failure().map_or_else(|| format!("{fault:?}"), |failure| failure.to_string())
}

#[cfg(test)]
mod tests {
    use super::{
        super::example::{asked, event, got, judge, resolved},
        *,
    };
    use crate::{
        fault::{Faults, Hits},
        loader::Settings,
    };

    #[test]
    fn garbage_that_is_delivered_breaks_it() {
        let ranks = resolved(Settings::new(4, 2, 1));
        for faults in [
            Faults { undecodable: Hits::samples([3]), ..Faults::default() },
            Faults { panicking: Hits::samples([3]), ..Faults::default() },
        ] {
            let asked = Asked { faults: &faults, ..asked(&ranks) };
            let judged = judge(&mut ErrorsSurfaced::new(asked), &[], &[got(0, 0, &[0, 1]), got(0, 1, &[2, 3])]);
            let why = judged.expect_err("sample 3 cannot be decoded");
            assert!(why.starts_with("sample 3 (epoch 0, position 3) was delivered, although"), "{why}");
        }
    }

    #[test]
    fn a_sample_that_is_given_up_without_a_cause_breaks_it() {
        let ranks = resolved(Settings::new(4, 2, 1));
        let batch = |kind| {
            let skipped = crate::loader::Skipped {
                item: crate::machine::Item { epoch: 0, position: 1, sample: 1 },
                failure: crate::failure::Failure::new(kind, "no such file"),
            };
            Got { skipped: vec![skipped], ..got(0, 0, &[0, 2]) }
        };
        let judged = |kind| judge(&mut ErrorsSurfaced::new(asked(&ranks)), &[], &[batch(kind), got(0, 1, &[3])]);
        assert_eq!(judged(FailureKind::Deadline), Ok(()), "costs may be the cause");
        let why = judged(FailureKind::NotFound).expect_err("the sample is there");
        assert!(why.starts_with("sample 1 (epoch 0, position 1) was given up"), "{why}");
    }

    #[test]
    fn a_failure_that_nobody_is_told_of_breaks_it() {
        let ranks = resolved(Settings::new(4, 2, 1));
        let events = [event(7, StageId::BATCH, 3, Kind::Skipped)];
        let judged = judge(&mut ErrorsSurfaced::new(asked(&ranks)), &events, &[got(0, 0, &[0, 1]), got(0, 1, &[2])]);
        assert_eq!(judged, Err("sample 3 of epoch 0 was given up, and nobody was told".to_owned()));
    }
}
