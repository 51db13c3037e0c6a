//! What must hold of every run, whatever the schedule and whatever goes wrong.
//!
//! An [`Invariant`] is a streaming fold: it sees the trace event by event and the batches as the consumer got them, in order of time, and
//! then how the run ended. It knows what was [asked](Asked) for and nothing of who made the trace. Invariants that hold between two runs,
//! such as that a resumed run goes on exactly, are [relations](super::relation).

use std::fmt;

use super::design::{Got, RankEnd};
use crate::{
    fault::Faults,
    loader::Resolved,
    machine::{Item, Time},
    sim::{Left, Stall},
    trace::Event,
};

mod batches;
mod clean_stop;
mod content;
mod deliveries;
mod epochs;
mod errors;
mod justified;
mod memory;
mod places;
mod progress;
mod ranks;
mod retries;
mod slots;
mod state;
mod streams;
mod work;

pub use batches::BatchesWhole;
pub use clean_stop::CleanStop;
pub use content::ContentIntact;
pub use deliveries::{ExactlyOnce, OrderKept};
pub use epochs::EpochsDiffer;
pub use errors::ErrorsSurfaced;
pub use justified::ErrorsJustified;
pub use memory::BytesWithinBudget;
pub use progress::Progress;
pub use ranks::RanksShare;
pub use retries::RetriesJustified;
pub use slots::SlotsNotReusedEarly;
pub use state::StateKept;
pub use streams::StreamsDistinct;
pub use work::WorkConservation;

/// Something that must hold.
pub trait Invariant {
    /// What it is called in reports and in the files of failures.
    fn name(&self) -> &'static str;

    /// Takes the next event of the trace.
    ///
    /// # Errors
    ///
    /// What is broken by it.
    fn event(&mut self, event: &Event) -> Result<(), Broken> {
        let _ = event;
        Ok(())
    }

    /// Takes the next events of the trace, as many as there are before the next batch: for each its own loop, which for those that do not
    /// look at events is none.
    ///
    /// # Errors
    ///
    /// What is broken by the first that breaks it.
    fn events(&mut self, events: &[Event]) -> Result<(), Broken> {
        events.iter().try_for_each(|event| self.event(event))
    }

    /// Takes the next batch that a consumer got.
    ///
    /// # Errors
    ///
    /// What is broken by it.
    fn batch(&mut self, got: &Got) -> Result<(), Broken> {
        let _ = got;
        Ok(())
    }

    /// Looks at the end.
    ///
    /// # Errors
    ///
    /// What is broken once all is known.
    fn end(&mut self, ended: &Ended<'_>) -> Result<(), Broken> {
        let _ = ended;
        Ok(())
    }
}

/// What a run was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What each rank was to load, and within what.
    pub ranks: &'a [Resolved],
    /// What went wrong.
    pub faults: &'a Faults,
    /// The seed of what went wrong.
    pub seed: u64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// What each rank's consumer got, rank after rank, each in order.
    pub got: &'a [Got],
    /// How ranks ended that did.
    pub ends: &'a [RankEnd],
    /// The report on a run that came to nothing.
    pub stall: Option<&'a Stall>,
    /// What was left when the last rank had ended.
    pub left: Left,
    /// The most bytes in slots on a node, and in batches on its devices.
    pub held_bytes_peak: u64,
    /// When it ended.
    pub at: Time,
    /// Whether consumers were to leave before the end of the plan.
    pub leaves: bool,
}

impl Ended<'_> {
    /// Whether this rank has had every batch of its plan.
    pub fn finished(&self, rank: u16) -> bool {
        use crate::loader::End;
        let end = self.ends.iter().find(|end| end.rank == rank);
        self.stall.is_none()
            && match end {
                Some(RankEnd { outcome: Some(outcome), .. }) => outcome.end == End::Finished,
                Some(RankEnd { error, .. }) => error.is_none() && !self.leaves,
                None => !self.leaves,
            }
    }
}

/// What is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// In words.
    pub why: String,
    /// When it was noticed.
    pub at: Option<Time>,
    /// Of which rank.
    pub rank: Option<u16>,
    /// By which sample.
    pub item: Option<Item>,
    /// By which batch of its rank.
    pub batch: Option<u64>,
}

impl Broken {
    /// Nothing but words.
    pub fn new(why: impl Into<String>) -> Broken {
        Broken { why: why.into(), at: None, rank: None, item: None, batch: None }
    }

    /// Noticed then.
    #[must_use]
    pub fn at(self, at: Time) -> Broken {
        Broken { at: Some(at), ..self }
    }

    /// Broken by this sample.
    #[must_use]
    pub fn by(self, rank: u16, item: Item) -> Broken {
        Broken { rank: Some(rank), item: Some(item), ..self }
    }

    /// Broken by this batch.
    #[must_use]
    pub fn by_batch(self, rank: u16, batch: u64) -> Broken {
        Broken { rank: Some(rank), batch: Some(batch), ..self }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// All that can be said of one run.
pub fn all<'a>(asked: Asked<'a>) -> Vec<Box<dyn Invariant + 'a>> {
    vec![
        Box::new(Progress),
        Box::new(ExactlyOnce::new(asked)),
        Box::new(OrderKept::new(asked)),
        Box::new(RanksShare::new(asked)),
        Box::new(BatchesWhole::new(asked)),
        Box::new(ContentIntact::new(asked)),
        Box::new(ErrorsSurfaced::new(asked)),
        Box::new(ErrorsJustified::new(asked)),
        Box::new(StateKept::new(asked)),
        Box::new(RetriesJustified::new(asked)),
        Box::new(BytesWithinBudget::new(asked)),
        Box::new(SlotsNotReusedEarly::new(asked)),
        Box::new(WorkConservation::new(asked)),
        Box::new(CleanStop::new(asked)),
        Box::new(StreamsDistinct::default()),
        Box::new(EpochsDiffer::new(asked)),
    ]
}

/// A sample and its place, in words.
pub(super) fn name(item: &Item) -> String {
    format!("sample {} (epoch {}, position {})", item.sample, item.epoch, item.position)
}

/// A rank before what is said of it, where there are several.
pub(super) fn of_rank(rank: u16, world: usize, why: impl fmt::Display) -> String {
    if world > 1 { format!("rank {rank}: {why}") } else { why.to_string() }
}

/// What happened, in order of time, for one invariant after the other.
pub(super) struct Account<'a> {
    events: &'a [Event],
    /// Batches in order of time, each behind so many events.
    batches: Vec<(usize, &'a Got)>,
    ended: &'a Ended<'a>,
}

impl<'a> Account<'a> {
    /// Of a run with these events that ended so.
    pub(super) fn new(events: &'a [Event], ended: &'a Ended<'a>) -> Account<'a> {
        let mut batches: Vec<(usize, &Got)> = ended.got.iter().map(|got| (0, got)).collect();
        batches.sort_by_key(|(_, got)| got.at);
        let mut behind = 0;
        for (place, got) in &mut batches {
            behind += events[behind..].iter().take_while(|event| event.time <= got.at).count();
            *place = behind;
        }
        Account { events, batches, ended }
    }

    /// Runs an invariant over it.
    ///
    /// # Errors
    ///
    /// What is broken.
    pub(super) fn judge(&self, invariant: &mut dyn Invariant) -> Result<(), Broken> {
        let mut told = 0;
        for (behind, got) in &self.batches {
            invariant.events(&self.events[told..*behind])?;
            invariant.batch(got)?;
            told = *behind;
        }
        invariant.events(&self.events[told..])?;
        invariant.end(self.ended)
    }
}

/// Runs one invariant over what happened.
///
/// # Errors
///
/// What is broken.
pub fn fold(invariant: &mut dyn Invariant, events: &[Event], ended: &Ended<'_>) -> Result<(), Broken> {
    Account::new(events, ended).judge(invariant)
}

#[cfg(test)]
pub(super) mod example {
    //! What tests of invariants are made of: events and batches written by hand.

    use super::*;
    use crate::{
        loader::Settings,
        trace::{Kind, StageId},
    };

    /// An event of rank 0 in epoch 0, `ms` milliseconds after the start.
    pub(crate) fn event(ms: u64, stage: StageId, sample: u64, kind: Kind) -> Event {
        let time = Time(ms * 1_000_000);
        Event { time, since: time, sample, bytes: 0, epoch: 0, rank: 0, stage, kind }
    }

    /// An event of the loader's, with bytes.
    pub(crate) fn of_loader(ms: u64, sample: u64, kind: Kind, bytes: u64) -> Event {
        Event { bytes, ..event(ms, StageId::LOADER, sample, kind) }
    }

    pub(crate) fn item(epoch: u32, position: u64) -> Item {
        Item { epoch, position, sample: position }
    }

    /// A batch of these positions of epoch 0.
    pub(crate) fn got(rank: u16, index: u64, positions: &[u64]) -> Got {
        let items = positions.iter().map(|p| item(0, *p)).collect();
        Got {
            rank,
            at: Time(index),
            index,
            epoch: 0,
            items,
            skipped: Vec::new(),
            draws: Vec::new(),
            content: Vec::new(),
            saved: None,
            state: None,
        }
    }

    pub(crate) fn resolved(settings: Settings) -> Vec<Resolved> {
        let of = |rank| Settings { rank, ..settings.clone() }.resolve().expect("settings");
        (0..settings.world).map(of).collect()
    }

    /// The invariant over a run without faults that finished.
    pub(crate) fn judge(invariant: &mut dyn Invariant, events: &[Event], batches: &[Got]) -> Result<(), String> {
        let ended =
            Ended { got: batches, ends: &[], stall: None, left: Left::default(), held_bytes_peak: 0, at: Time(0), leaves: false };
        fold(invariant, events, &ended).map_err(|broken| broken.why)
    }

    pub(crate) static NO_FAULTS: std::sync::LazyLock<Faults> = std::sync::LazyLock::new(Faults::default);

    pub(crate) fn asked(ranks: &[Resolved]) -> Asked<'_> {
        Asked { ranks, faults: &NO_FAULTS, seed: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        example::{event, got, judge},
        *,
    };
    use crate::trace::{Kind, StageId};

    /// Notes what it is told, and finds broken what has this number.
    struct Notes(Vec<String>, u64);

    impl Notes {
        fn note(&mut self, what: &str, number: u64) -> Result<(), Broken> {
            self.0.push(format!("{what} {number}"));
            if number == self.1 { Err(Broken::new(format!("{what} {number} is broken"))) } else { Ok(()) }
        }
    }

    impl Invariant for Notes {
        fn name(&self) -> &'static str {
            "notes"
        }

        fn event(&mut self, event: &Event) -> Result<(), Broken> {
            self.note("event", event.sample)
        }

        fn batch(&mut self, got: &Got) -> Result<(), Broken> {
            self.note("batch", got.index)
        }

        fn end(&mut self, _ended: &Ended<'_>) -> Result<(), Broken> {
            self.note("end", 0)
        }
    }

    /// Four events, the second and third at 2 ms, a batch of each of two ranks at that time and one after all.
    fn told(broken: u64) -> (Result<(), String>, Vec<String>) {
        let events: Vec<Event> =
            [1, 2, 2, 3].into_iter().zip(1..).map(|(ms, n)| event(ms, StageId::FETCH, n, Kind::End)).collect();
        let batch = |rank, index, ms: u64| Got { at: Time(ms * 1_000_000), ..got(rank, index, &[]) };
        let batches = [batch(0, 11, 2), batch(0, 13, 5), batch(1, 12, 2)];
        let mut notes = Notes(Vec::new(), broken);
        (judge(&mut notes, &events, &batches), notes.0)
    }

    #[test]
    fn a_batch_is_told_after_the_events_of_its_instant_and_before_later_ones() {
        let order = ["event 1", "event 2", "event 3", "batch 11", "batch 12", "event 4", "batch 13", "end 0"];
        assert_eq!(told(99), (Ok(()), order.map(str::to_owned).to_vec()));
    }

    #[test]
    fn nothing_is_told_after_what_is_broken() {
        for (broken, what, last) in [(2, "event", 2), (12, "batch", 5), (4, "event", 6), (0, "end", 8)] {
            let (ended, notes) = told(broken);
            assert_eq!(ended, Err(format!("{what} {broken} is broken")));
            assert_eq!(notes.len(), last, "{notes:?}");
        }
    }
}
