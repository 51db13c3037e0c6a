//! What runs have reached: an exploration that never saw a retry says nothing about retries.

use super::run::Run;
use crate::{
    failure::FailureKind,
    loader::{End, Error},
    trace::{Event, Kind, StageId},
};

macro_rules! marks {
    ($($name:ident = $words:literal,)+) => {
        /// Something that should happen in some run, so that checking says anything about it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "their words say it")]
        pub enum Mark { $($name,)+ }

        impl Mark {
            /// All, in the order in which they are reported.
            pub const ALL: &'static [Mark] = &[$(Mark::$name,)+];

            /// In words.
            pub fn words(self) -> &'static str {
                match self { $(Mark::$name => $words,)+ }
            }
        }
    };
}

marks! {
    Retry = "a read was retried",
    Throttled = "the store throttled a read",
    Deadline = "a read was given up at its deadline",
    Skipped = "a sample was skipped",
    Hole = "a batch had a hole",
    Panicked = "a job panicked",
    OutOfOrder = "a sample was filled before an older one",
    LedgerWait = "the ledger made somebody wait",
    Reserve = "the oldest sample took from the reserve",
    RingFull = "the ring was full",
    Flush = "a batch was flushed in part",
    TwoEpochs = "two epochs were in flight at once",
    ShortBatch = "a batch was short",
    EmptyBatch = "a batch was empty",
    Dropped = "a sample fell to the tail",
    Copied = "a batch was copied",
    Lent = "a batch was lent in its slots",
    Staged = "a batch went through a stage on the device",
    Starved = "the consumer waited for a batch",
    Idle = "a batch waited for the consumer",
    LeftEarly = "the consumer left early",
    Failed = "an error ended the loader",
    TooManySkipped = "more samples failed than were allowed",
    DeviceFailed = "a copy, or a stage on the device, failed",
    Choice = "a choice differed from first come, first served",
    Resumed = "a run went on from a state",
    Redealt = "other ranks went on from the states of all",
    Sequential = "a run was compared with one lane",
    Again = "a run was repeated",
    OtherSeed = "a run was compared with another seed",
    PlanDrawn = "a plan of another size was looked at",
}

/// Which marks were reached, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    runs: Vec<u64>,
}

impl Coverage {
    /// None was.
    pub fn new() -> Coverage {
        Coverage { runs: vec![0; Mark::ALL.len()] }
    }

    /// Seeds that reached a mark.
    pub fn of(&self, mark: Mark) -> u64 {
        self.runs.get(mark as usize).copied().unwrap_or(0)
    }

    /// Marks that no seed reached.
    pub fn never(&self) -> impl Iterator<Item = Mark> + '_ {
        Mark::ALL.iter().copied().filter(|mark| self.of(*mark) == 0)
    }

    /// Takes one more seed.
    pub(super) fn add(&mut self, reached: Reached) {
        for mark in Mark::ALL {
            self.runs[*mark as usize] += u64::from(reached.has(*mark));
        }
    }

    /// Takes what another exploration reached.
    pub fn join(&mut self, other: &Coverage) {
        for mark in Mark::ALL {
            self.runs[*mark as usize] += other.of(*mark);
        }
    }
}

/// The marks of one seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached(u64);

impl Reached {
    pub(super) fn mark(&mut self, mark: Mark) {
        self.0 |= 1 << mark as u64;
    }

    fn mark_if(&mut self, reached: bool, mark: Mark) {
        self.0 |= u64::from(reached) << mark as u64;
    }

    pub(super) fn has(self, mark: Mark) -> bool {
        self.0 & 1 << mark as u64 != 0
    }

    /// What a run reached.
    pub(super) fn of(run: &Run) -> Reached {
        let mut reached = Reached::default();
        let mut ranks: Vec<Rank> = run.plans.iter().map(|_| Rank::default()).collect();
        for event in &run.events {
            if let Some(rank) = ranks.get_mut(usize::from(event.rank)) {
                let plan = &run.plans[usize::from(event.rank)];
                let general = plan.ledger_bytes.saturating_sub(plan.settings.sample_bytes);
                reached.event(rank, event, general, plan.settings.batch as u64);
            }
        }
        reached.mark_if(!run.tape.is_empty(), Mark::Choice);
        reached.mark_if(run.got.iter().any(|got| !got.skipped.is_empty()), Mark::Hole);
        for end in &run.ends {
            reached.mark_if(matches!(end.error, Some(Error::TooManySkipped { .. })), Mark::TooManySkipped);
            if let Some(outcome) = &end.outcome {
                reached.mark_if(outcome.flushes > 0, Mark::Flush);
                reached.mark_if(outcome.lent_batches > 0, Mark::Lent);
                reached.mark_if(outcome.end == End::Left, Mark::LeftEarly);
                // At an early stop reads are given up too.
                let gave_up = ranks.get(usize::from(end.rank)).is_some_and(|rank| rank.gave_up);
                reached.mark_if(gave_up && outcome.end == End::Finished, Mark::Deadline);
            }
        }
        reached
    }

    fn event(&mut self, rank: &mut Rank, event: &Event, general: u64, batch: u64) {
        let failed = |kind: FailureKind| event.bytes == kind.code();
        match event.kind {
            Kind::Launch => {
                self.mark_if(event.since < event.time, Mark::RingFull);
                self.mark_if(rank.open.iter().any(|(epoch, _)| *epoch != event.epoch), Mark::TwoEpochs);
                rank.open.push((event.epoch, event.sample));
            }
            Kind::Filled | Kind::Skipped => {
                self.mark_if(event.kind == Kind::Skipped, Mark::Skipped);
                self.mark_if(event.kind == Kind::Skipped && failed(FailureKind::Panicked), Mark::Panicked);
                let place = rank.open.iter().position(|open| *open == (event.epoch, event.sample));
                self.mark_if(place.is_some_and(|place| place > 0), Mark::OutOfOrder);
                place.map(|place| rank.open.remove(place));
            }
            Kind::Reserve => {
                rank.reserved += event.bytes;
                self.mark_if(event.since < event.time, Mark::LedgerWait);
                self.mark_if(rank.reserved > general, Mark::Reserve);
            }
            Kind::Refund => rank.reserved = rank.reserved.saturating_sub(event.bytes),
            Kind::Retry => self.mark(Mark::Retry),
            Kind::Fail => {
                self.mark_if(failed(FailureKind::Throttled), Mark::Throttled);
                self.mark_if(matches!(event.stage, StageId::TRANSFER | StageId::DEVICE), Mark::DeviceFailed);
            }
            Kind::Abandon => rank.gave_up |= event.stage == StageId::FETCH,
            Kind::Dropped => self.mark(Mark::Dropped),
            Kind::End if event.stage == StageId::TRANSFER => self.mark(Mark::Copied),
            Kind::End if event.stage == StageId::DEVICE => self.mark(Mark::Staged),
            Kind::Sealed => {
                self.mark_if(event.bytes < batch, Mark::ShortBatch);
                self.mark_if(event.bytes == 0, Mark::EmptyBatch);
            }
            Kind::Taken => self.mark_if(event.since < event.time, Mark::Starved),
            Kind::Idle => self.mark_if(event.since < event.time, Mark::Idle),
            Kind::Stop => self.mark_if(event.bytes == 2, Mark::Failed),
            _ => {}
        }
    }
}

/// A rank on the way.
#[derive(Default)]
struct Rank {
    /// Launches that have not resolved, in order.
    open: Vec<(u32, u64)>,
    reserved: u64,
    /// A read was given up.
    gave_up: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_fit_a_word_and_coverage_counts_seeds() {
        assert!(Mark::ALL.len() <= 64);
        let mut reached = Reached::default();
        reached.mark(Mark::Retry);
        let mut coverage = Coverage::new();
        coverage.add(reached);
        coverage.add(reached);
        assert_eq!((coverage.of(Mark::Retry), coverage.of(Mark::Again)), (2, 0));
        assert_eq!(coverage.never().count(), Mark::ALL.len() - 1);
    }
}
