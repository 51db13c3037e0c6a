//! Loaders under test.

use std::{cell::RefCell, future::Future, pin::Pin, rc::Rc};

use crate::{
    loader::{Error, Outcome, Plan, Resolved, Settings, Skipped, State},
    machine::{Item, Machine, Tags, Time},
    scenario::{Consumer, run_rank},
    sim::{SimBarrier, SimMachine},
};

/// A loader under test: whatever makes batches of a plan on a machine. An async function of a [`SimMachine`] and a [`Job`] is one.
///
/// ```
/// use towtank::{
///     check,
///     check::Job,
///     machine::{Machine, Op, Tags},
///     scenario::{self, Overrides},
///     sim::SimMachine,
///     trace::StageId,
/// };
///
/// /// Reads one sample after the other, and forgets the last batch when it is not full.
/// async fn load(machine: SimMachine<Tags>, mut job: Job) {
///     let (mut cursor, mut batch) = (job.plan().cursor(), Vec::new());
///     while let Some((_, item)) = cursor.take() {
///         let read = machine.read(Op { stage: StageId::FETCH, item, ..Op::default() }).await;
///         batch.push(item);
///         let full = batch.len() == job.settings().batch;
///         if read.is_err() || full && !job.deliver(std::mem::take(&mut batch), vec![], vec![]).await {
///             return;
///         }
///     }
/// }
///
/// let scenario = scenario::load("slow-consumer", &Overrides::set(["dataset.count=50"]))?;
/// let checked = check(&scenario).design(&load).seeds(20).run()?;
/// let failure = &checked.failures[0].shrunk;
/// assert_eq!(failure.finding.invariant, "exactly_once");
/// assert_eq!(failure.case.scenario.dataset.count(), Some(1), "one sample is enough to show it");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Design: Send + Sync {
    /// Runs one rank, from its first sample to its end.
    fn load(&self, machine: SimMachine<Tags>, job: Job) -> Pin<Box<dyn Future<Output = ()>>>;
}

impl<F, R> Design for F
where
    F: Fn(SimMachine<Tags>, Job) -> R + Send + Sync,
    R: Future<Output = ()> + 'static,
{
    fn load(&self, machine: SimMachine<Tags>, job: Job) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(self(machine, job))
    }
}

/// The loader of this crate.
pub struct OwnLoader;

impl Design for OwnLoader {
    fn load(&self, machine: SimMachine<Tags>, job: Job) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let Job { resolved, consumer, mut barrier, seen, .. } = job;
            let rank = resolved.settings.rank;
            let (told, clock) = (seen.clone(), machine.clone());
            // Its consumer leaves the barrier by itself.
            let barrier = barrier.0.take();
            let (outcome, error) = run_rank(machine, resolved, consumer, barrier, move |batch| {
                told.borrow_mut().got.push(Got {
                    rank,
                    at: clock.now(),
                    index: batch.index(),
                    epoch: batch.epoch(),
                    items: batch.items().to_vec(),
                    skipped: batch.skipped().to_vec(),
                    draws: Vec::new(),
                    state: Some(batch.state().clone()),
                });
            })
            .await;
            seen.borrow_mut().ends.push(RankEnd { rank, error, outcome: Some(outcome) });
        })
    }
}

/// A batch as the consumer got it.
#[derive(Clone, Debug)]
pub struct Got {
    /// Of which rank.
    pub rank: u16,
    /// When.
    pub at: Time,
    /// Its number in the run of its rank; one that was resumed goes on counting.
    pub index: u64,
    /// Epoch of its samples.
    pub epoch: u32,
    /// Its samples, in order.
    pub items: Vec<Item>,
    /// What was left out since the batch before.
    pub skipped: Vec<Skipped>,
    /// A number that each sample's augmentation began with, in the order of `items`; empty where nothing is drawn.
    pub draws: Vec<u64>,
    /// The state after it, where the design has one.
    pub state: Option<State>,
}

/// How a rank ended.
#[derive(Clone, Debug)]
pub struct RankEnd {
    /// Which.
    pub rank: u16,
    /// What its consumer was told.
    pub error: Option<Error>,
    /// The loader's books, where it keeps any.
    pub outcome: Option<Outcome>,
}

/// All that consumers saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) got: Vec<Got>,
    pub(super) ends: Vec<RankEnd>,
}

/// What one rank of a design has to load, and its consumer.
///
/// A job that is dropped without an [error](Job::fail) has ended by itself: as the plan, or with its consumer.
pub struct Job {
    machine: SimMachine<Tags>,
    resolved: Resolved,
    consumer: Consumer,
    barrier: Party,
    seen: Rc<RefCell<Seen>>,
    taken: u64,
}

/// A party of the ranks' barrier, where there is one: it leaves when its rank has ended, however it does.
struct Party(Option<SimBarrier>);

impl Drop for Party {
    fn drop(&mut self) {
        if let Some(barrier) = &self.0 {
            barrier.leave();
        }
    }
}

impl Job {
    pub(super) fn new(
        machine: SimMachine<Tags>,
        resolved: Resolved,
        consumer: Consumer,
        barrier: Option<SimBarrier>,
        seen: Rc<RefCell<Seen>>,
    ) -> Job {
        Job { machine, resolved, consumer, barrier: Party(barrier), seen, taken: 0 }
    }

    /// What is to be loaded, and within what.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// The loader's settings.
    pub fn settings(&self) -> &Settings {
        &self.resolved.settings
    }

    /// Which sample comes when.
    pub fn plan(&self) -> &Plan {
        &self.resolved.plan
    }

    /// Gives the consumer its next batch: samples in order, what was left out before the last of them, and what augmentation drew.
    /// Completes when the consumer has worked on it, at a barrier when all ranks have; `false` once it has left.
    pub async fn deliver(&mut self, items: Vec<Item>, skipped: Vec<Skipped>, draws: Vec<u64>) -> bool {
        let index = self.resolved.plan.start().batches() + self.taken;
        let epoch = items.first().or(skipped.first().map(|s| &s.item)).map_or(0, |item| item.epoch);
        let rank = self.resolved.settings.rank;
        let got = Got { rank, at: self.machine.now(), index, epoch, items, skipped, draws, state: None };
        self.seen.borrow_mut().got.push(got);
        self.taken += 1;
        self.machine.step(self.consumer.step_duration()).await;
        if let Some(barrier) = &self.barrier.0
            && barrier.wait().await.is_err()
        {
            return false;
        }
        self.consumer.leave_after.is_none_or(|most| self.taken < most)
    }

    /// Tells the consumer of the error that ends the rank.
    pub fn fail(self, error: Error) {
        let rank = self.resolved.settings.rank;
        self.seen.borrow_mut().ends.push(RankEnd { rank, error: Some(error), outcome: None });
    }
}
