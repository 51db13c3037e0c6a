//! An error has its reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Asked, Broken, Ended, Invariant, name, of_rank, places::Places};
use crate::{
    check::design::{Got, RankEnd},
    failure::FailureKind,
    loader::{End, Error, OnError, Order, Resolved},
    machine::{Item, Time},
    trace::{Event, Kind, StageId},
};

/// An error that ends a loader has its reason in what happened. A failed sample ends it where none may fail, and as many as its error says
/// where some may; a failed copy, or stage on the device, ends it where one failed, and a stuck job where one took as long as that; and a consumer holds too much where it holds as many batches as there may be.
/// And no loader goes on that has had more failures in an epoch than it may. It is broken by an allowance that is not counted anew in each
/// epoch, by failures that are counted twice or in the wrong epoch, and by a loader that takes its own waiting for its consumer's.
///
/// It looks at loaders that keep books.
pub struct ErrorsJustified<'a> {
    asked: Asked<'a>,
    /// Samples of which consumers were told that they failed, by rank and epoch: their positions.
    told: BTreeMap<(u16, u32), BTreeSet<u64>>,
    /// Samples that the trace says were given up, with the reason.
    given_up: BTreeSet<(u16, u32, u64, u64)>,
    /// Ranks of which a copy, or a stage on the device, failed.
    copy_failed: BTreeSet<u16>,
    /// Decode jobs that are submitted and have not ended, with when.
    jobs: Places<Time>,
    /// The longest that a job of each rank took.
    longest: BTreeMap<u16, Duration>,
}

impl<'a> ErrorsJustified<'a> {
    /// Before a run.
    pub fn new(asked: Asked<'a>) -> ErrorsJustified<'a> {
        ErrorsJustified {
            asked,
            told: BTreeMap::new(),
            given_up: BTreeSet::new(),
            copy_failed: BTreeSet::new(),
            jobs: Places::new(),
            longest: BTreeMap::new(),
        }
    }

    /// Failures of a rank in an epoch before the run, and those that its consumer was told of, at most at this position in plan order.
    fn failed(&self, rank: u16, resolved: &Resolved, epoch: u32, until: Option<u64>) -> u64 {
        let start = resolved.plan.start();
        let before = if start.epoch() == epoch { start.skipped() } else { 0 };
        let told = self.told.get(&(rank, epoch)).into_iter().flatten();
        before + told.filter(|position| until.is_none_or(|until| **position <= until)).count() as u64
    }

    /// What is wrong with the error that ended a rank.
    fn wrong(&self, end: &RankEnd, resolved: &Resolved, error: &Error) -> Option<String> {
        let known = |item: &Item, kind: FailureKind| {
            let key = (end.rank, item.epoch, item.sample, kind.code());
            (!self.given_up.contains(&key))
                .then(|| format!("an error says that {} failed ({}), which it did not", name(item), kind.name()))
        };
        match error {
            Error::Sample { item, failure } => match resolved.settings.on_error {
                OnError::Fail => known(item, failure.kind),
                OnError::Skip { .. } => Some(format!("{} ended the loader, and failed samples are to be left out", name(item))),
            },
            Error::TooManySkipped { allowed, item, failure } => {
                let OnError::Skip { at_most } = resolved.settings.on_error else {
                    return Some("the loader says that too many samples failed, and none may".to_owned());
                };
                let may = at_most.of(resolved.plan.shape(item.epoch).samples);
                // In plan order what failed behind it is no part of the count.
                let until = (resolved.settings.order == Order::Plan).then_some(item.position);
                let failed = self.failed(end.rank, resolved, item.epoch, until);
                if *allowed != may {
                    return Some(format!("an error says that {allowed} samples of epoch {} may fail, and {may} may", item.epoch));
                }
                let few = (failed <= may).then(|| {
                    format!("the loader ended because more than {may} samples of epoch {} failed, and {failed} did", item.epoch)
                });
                few.or_else(|| known(item, failure.kind))
            }
            Error::Held { batches, .. } if *batches < resolved.device_batches => Some(format!(
                "the loader says that its consumer holds too much, and it holds {batches} of {} batches",
                resolved.device_batches
            )),
            Error::Fatal(failure) if failure.kind == FailureKind::Device && !self.copy_failed.contains(&end.rank) => {
                Some(format!("the loader says that it cannot go on, and no copy failed: {failure}"))
            }
            Error::Fatal(failure) if failure.kind == FailureKind::Lost => {
                let took = self.longest.get(&end.rank).copied().unwrap_or_default();
                let late = resolved.settings.decode_deadline.is_some_and(|within| took >= within);
                (!late).then(|| format!("the loader says that it cannot go on, and no job took longer than {took:?}: {failure}"))
            }
            _ => None,
        }
    }

    /// A job has ended.
    fn job(&mut self, key: (u16, u32, u64), now: Time) {
        if let Some(submitted) = self.jobs.remove(key) {
            self.took(key.0, now - submitted);
        }
    }

    fn took(&mut self, rank: u16, time: Duration) {
        let longest = self.longest.entry(rank).or_default();
        *longest = (*longest).max(time);
    }
}

impl Invariant for ErrorsJustified<'_> {
    fn name(&self) -> &'static str {
        "errors_justified"
    }

    fn event(&mut self, event: &Event) -> Result<(), Broken> {
        match event.kind {
            Kind::Skipped => _ = self.given_up.insert((event.rank, event.epoch, event.sample, event.bytes)),
            Kind::Queued if event.stage == StageId::DECODE => {
                _ = self.jobs.insert((event.rank, event.epoch, event.sample), event.time);
            }
            Kind::End | Kind::Fail | Kind::Abandon if event.stage == StageId::DECODE => {
                self.job((event.rank, event.epoch, event.sample), event.time);
            }
            Kind::Fail if matches!(event.stage, StageId::TRANSFER | StageId::DEVICE) => _ = self.copy_failed.insert(event.rank),
            _ => {}
        }
        Ok(())
    }

    fn batch(&mut self, got: &Got) -> Result<(), Broken> {
        for skipped in &got.skipped {
            self.told.entry((got.rank, skipped.item.epoch)).or_default().insert(skipped.item.position);
        }
        Ok(())
    }

    fn end(&mut self, ended: &Ended<'_>) -> Result<(), Broken> {
        let jobs = std::mem::replace(&mut self.jobs, Places::new());
        jobs.iter().for_each(|(rank, submitted)| self.took(rank, ended.at - *submitted));
        for end in ended.ends {
            let (Some(_), Some(resolved)) = (&end.outcome, self.asked.ranks.get(usize::from(end.rank))) else { continue };
            let broken = |why: String| {
                let broken = Broken::new(of_rank(end.rank, self.asked.ranks.len(), why)).at(ended.at);
                Err(Broken { rank: Some(end.rank), ..broken })
            };
            // What consumers were told in batches is all that the loader has gone on after.
            for ((rank, epoch), positions) in &self.told {
                let may = match resolved.settings.on_error {
                    OnError::Fail => 0,
                    OnError::Skip { at_most } => at_most.of(resolved.plan.shape(*epoch).samples),
                };
                let failed = self.failed(*rank, resolved, *epoch, None);
                if *rank == end.rank && failed > may && !positions.is_empty() {
                    return broken(format!("{failed} samples of epoch {epoch} failed, {may} may, and the loader went on"));
                }
            }
        }
        for end in ended.ends {
            let Some(outcome) = &end.outcome else { continue };
            let unreported = outcome.unreported.iter().map(|skipped| skipped.item);
            let of_error = end.error.iter().chain(match &outcome.end {
                End::Failed(error) => Some(error),
                End::Finished | End::Left => None,
            });
            let items = of_error.filter_map(|error| match error {
                Error::Sample { item, .. } | Error::TooManySkipped { item, .. } => Some(*item),
                _ => None,
            });
            for item in unreported.chain(items) {
                self.told.entry((end.rank, item.epoch)).or_default().insert(item.position);
            }
        }
        for end in ended.ends {
            let (Some(_), Some(resolved)) = (&end.outcome, self.asked.ranks.get(usize::from(end.rank))) else { continue };
            if let Some(error) = &end.error
                && let Some(why) = self.wrong(end, resolved, error)
            {
                let broken = Broken::new(of_rank(end.rank, self.asked.ranks.len(), why)).at(ended.at);
                return Err(match error {
                    Error::Sample { item, .. } | Error::TooManySkipped { item, .. } => broken.by(end.rank, *item),
                    _ => Broken { rank: Some(end.rank), ..broken },
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            example::{asked, event, got, item, resolved},
            fold,
        },
        *,
    };
    use crate::{
        failure::Failure,
        loader::{Accounts, Allowance, Memory, Outcome, Settings, Skipped, Slots},
        sim::Left,
    };

    fn skipped(position: u64) -> Skipped {
        Skipped { item: item(0, position), failure: Failure::new(FailureKind::NotFound, "no such file") }
    }

    /// What is said of a loader that ended with an error, after batches in which these samples were left out.
    fn judged(on_error: OnError, told: &[u64], error: Option<Error>) -> Result<(), String> {
        let ranks = resolved(Settings { on_error, ..Settings::new(10, 2, 1) });
        let batch = Got { skipped: told.iter().map(|p| skipped(*p)).collect(), ..got(0, 0, &[7, 8]) };
        let end = error.clone().map_or(End::Finished, End::Failed);
        let outcome = Outcome {
            end,
            accounts: Accounts::default(),
            memory: Memory::default(),
            slots: Slots::default(),
            state: ranks[0].plan.start().clone(),
            unreported: Vec::new(),
            flushes: 0,
            lent_batches: 0,
            retries: 0,
        };
        let ends = [RankEnd { rank: 0, error, outcome: Some(outcome) }];
        let failed = |sample| Event { bytes: FailureKind::NotFound.code(), ..event(1, StageId::BATCH, sample, Kind::Skipped) };
        let events: Vec<Event> = (0..7).map(failed).collect();
        let ended = Ended {
            got: &[batch],
            ends: &ends,
            stall: None,
            left: Left::default(),
            held_bytes_peak: 0,
            at: Time(9),
            leaves: false,
        };
        fold(&mut ErrorsJustified::new(asked(&ranks)), &events, &ended).map_err(|broken| broken.why)
    }

    fn too_many(allowed: u64, position: u64) -> Option<Error> {
        let Skipped { item, failure } = skipped(position);
        Some(Error::TooManySkipped { allowed, item, failure })
    }

    #[test]
    fn too_many_failures_are_as_many_as_the_error_says() {
        let two = OnError::Skip { at_most: Allowance::Count(2) };
        assert_eq!(judged(two, &[1, 3], too_many(2, 5)), Ok(()));
        let early = judged(two, &[1], too_many(2, 5));
        assert_eq!(early, Err("the loader ended because more than 2 samples of epoch 0 failed, and 2 did".to_owned()));
        let other = judged(two, &[1, 3], too_many(1, 5));
        assert_eq!(other, Err("an error says that 1 samples of epoch 0 may fail, and 2 may".to_owned()));
        let on = judged(two, &[1, 3, 5], None);
        assert_eq!(on, Err("3 samples of epoch 0 failed, 2 may, and the loader went on".to_owned()));
        assert!(judged(OnError::Fail, &[1], None).is_err(), "none may");
    }

    #[test]
    fn a_sample_that_did_not_fail_ends_nothing() {
        let error = |position| {
            let Skipped { item, failure } = skipped(position);
            Some(Error::Sample { item, failure })
        };
        assert_eq!(judged(OnError::Fail, &[], error(6)), Ok(()));
        let why = judged(OnError::Fail, &[], error(9)).expect_err("sample 9 did not fail");
        assert!(why.starts_with("an error says that sample 9"), "{why}");
        assert!(judged(OnError::Skip { at_most: Allowance::ANY }, &[], error(6)).is_err(), "it is to be left out");
    }

    #[test]
    fn a_device_that_did_not_fail_and_a_consumer_that_holds_little_end_nothing() {
        let device = Error::Fatal(Failure::new(FailureKind::Device, "the copy failed"));
        assert!(judged(OnError::Fail, &[], Some(device)).is_err());
        let stuck = Error::Fatal(Failure::new(FailureKind::Lost, "a decode job did not end"));
        assert!(judged(OnError::Fail, &[], Some(stuck)).is_err());
        // Two batches are prefetched and one is held.
        assert!(judged(OnError::Fail, &[], Some(Error::Held { batches: 2, oldest: 0 })).is_err());
        assert_eq!(judged(OnError::Fail, &[], Some(Error::Held { batches: 3, oldest: 0 })), Ok(()));
    }
}
