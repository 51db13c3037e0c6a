//! Loaders under test.

use std::{cell::RefCell, collections::VecDeque, future::Future, pin::Pin, rc::Rc};

use crate::{
    loader::{Error, Outcome, Plan, Resolved, Settings, Skipped, State},
    machine::{Item, Machine, Tags, Time},
    scenario::{Consumer, Look, run_rank},
    sim::{SimBarrier, SimMachine},
    trace::{Event, Kind, StageId},
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

    /// What the file of a failure calls it, so that nobody repeats it with another loader: its type, where it says nothing else.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }
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

impl OwnLoader {
    /// Its name.
    pub const NAME: &str = "towtank";
}

impl Design for OwnLoader {
    fn name(&self) -> &str {
        OwnLoader::NAME
    }

    fn load(&self, machine: SimMachine<Tags>, job: Job) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let Job { resolved, consumer, mut barrier, seen, .. } = job;
            let rank = resolved.settings.rank;
            let (told, clock) = (seen.clone(), machine.clone());
            // Its consumer leaves the barrier by itself.
            let barrier = barrier.0.take();
            let (outcome, error) = run_rank(machine, resolved, consumer, barrier, move |look, batch| {
                // One cell of each sample: a tag, its number in the dataset.
                let tags =
                    batch.cells().chunks(batch.units_per_sample().max(1)).filter_map(|cells| cells.first().copied()).collect();
                let mut told = told.borrow_mut();
                if look != Look::Got {
                    let of_it = |got: &&mut Got| got.rank == rank && got.index == batch.index();
                    if let Some(got) = told.got.iter_mut().rev().find(of_it) {
                        got.content.push(tags);
                    }
                    return;
                }
                told.got.push(Got {
                    rank,
                    at: clock.now(),
                    index: batch.index(),
                    epoch: batch.epoch(),
                    items: batch.items().to_vec(),
                    skipped: batch.skipped().to_vec(),
                    draws: Vec::new(),
                    content: vec![tags],
                    saved: None,
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
    /// What the consumer found in its memory each time it looked, a tag for each of `items`; empty where a design does not show it.
    pub content: Vec<Vec<u64>>,
    /// The design's own state after it, as the design writes it down.
    pub saved: Option<Vec<u8>>,
    /// The state after it, where the design has one of this crate's.
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
    /// The state that it goes on from, and the batches before it.
    resume: Option<(Vec<u8>, u64)>,
    /// Batches that the consumer holds: where they stand among all, and how it looks at them.
    held: VecDeque<(usize, Content)>,
}

/// How a consumer looks at a batch: one tag for each sample.
type Content = Box<dyn Fn() -> Vec<u64>>;

/// A batch on its way to the consumer, and what a design shows of it.
///
/// ```
/// use towtank::{check::Delivery, machine::Item};
///
/// let item = Item { epoch: 0, position: 0, sample: 7 };
/// let memory = vec![7];
/// let delivery = Delivery::of(vec![item]).content(move || memory.clone()).saved(vec![1]);
/// ```
#[derive(Default)]
pub struct Delivery {
    epoch: Option<u32>,
    items: Vec<Item>,
    skipped: Vec<Skipped>,
    draws: Vec<u64>,
    content: Option<Content>,
    saved: Option<Vec<u8>>,
}

impl Delivery {
    /// These samples, in order.
    pub fn of(items: Vec<Item>) -> Delivery {
        Delivery { items, ..Delivery::default() }
    }

    /// Its epoch, where no sample of it says so: a batch may be empty where every rank has to deliver the same number.
    #[must_use]
    pub fn epoch(self, epoch: u32) -> Delivery {
        Delivery { epoch: Some(epoch), ..self }
    }

    /// What was left out before the last of them.
    #[must_use]
    pub fn skipped(self, skipped: Vec<Skipped>) -> Delivery {
        Delivery { skipped, ..self }
    }

    /// What the augmentation of each began with.
    #[must_use]
    pub fn draws(self, draws: Vec<u64>) -> Delivery {
        Delivery { draws, ..self }
    }

    /// How to look at the memory of the batch: the tag of each sample, its number in the dataset, as it stands there when the consumer
    /// looks. It looks when it gets the batch, when its step is over, and when it gives the batch back, which drops `content`.
    #[must_use]
    pub fn content(self, content: impl Fn() -> Vec<u64> + 'static) -> Delivery {
        Delivery { content: Some(Box::new(content)), ..self }
    }

    /// The state after the batch, from which another run of the design [goes on](Job::resumes_from).
    #[must_use]
    pub fn saved(self, saved: Vec<u8>) -> Delivery {
        Delivery { saved: Some(saved), ..self }
    }
}

/// Tells the check of memory that a design takes for encoded bytes. See [`Job::memory`].
#[derive(Clone)]
pub struct Memory {
    machine: SimMachine<Tags>,
    rank: u16,
}

impl Memory {
    /// Bytes that are taken now, for this sample, until what is returned is dropped.
    pub fn take(&self, item: Item, bytes: u64) -> Taken {
        let taken = Taken { memory: self.clone(), item, bytes };
        taken.record(Kind::Reserve);
        taken
    }
}

/// Bytes that are taken until it is dropped.
pub struct Taken {
    memory: Memory,
    item: Item,
    bytes: u64,
}

impl Taken {
    /// The bytes are never given back: what outlives its loader, such as a file in a cache that nobody deletes.
    pub fn leave(mut self) {
        self.bytes = 0;
    }

    fn record(&self, kind: Kind) {
        let (time, Memory { machine, rank }) = (self.memory.machine.now(), &self.memory);
        let Item { epoch, sample, .. } = self.item;
        let stage = StageId::LOADER;
        machine.record(Event { time, since: time, sample, bytes: self.bytes, epoch, rank: *rank, stage, kind });
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.record(Kind::Refund);
        }
    }
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
        let (barrier, held) = (Party(barrier), VecDeque::new());
        Job { machine, resolved, consumer, barrier, seen, taken: 0, resume: None, held }
    }

    /// The same job for a design that goes on from its own state after so many batches.
    pub(super) fn resuming(self, saved: Vec<u8>, batches: u64) -> Job {
        Job { resume: Some((saved, batches)), ..self }
    }

    /// What an earlier run of this design [saved](Delivery::saved) after a batch, when it is to go on behind that batch. The
    /// [plan](Job::plan) is then still the whole one: where to go on is what the state has to say.
    pub fn resumes_from(&self) -> Option<&[u8]> {
        self.resume.as_ref().map(|(saved, _)| saved.as_slice())
    }

    /// Through which a design tells of the memory that it takes for encoded bytes, where it is to be held against the budget: what is
    /// taken at a time must stay within [`Resolved::ledger_bytes`], and at the end all must have come back.
    pub fn memory(&self) -> Memory {
        Memory { machine: self.machine.clone(), rank: self.resolved.settings.rank }
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
        self.give(Delivery::of(items).skipped(skipped).draws(draws)).await
    }

    /// Gives the consumer its next batch, with all that a design shows of it. As [`deliver`](Job::deliver); a consumer that works on
    /// several batches at once (`consumer.hold`) keeps it beyond its step.
    pub async fn give(&mut self, delivery: Delivery) -> bool {
        let Delivery { epoch, items, skipped, draws, content, saved } = delivery;
        let before = self.resume.as_ref().map_or(self.resolved.plan.start().batches(), |(_, batches)| *batches);
        let index = before + self.taken;
        let of_first = || items.first().or(skipped.first().map(|s| &s.item)).map_or(0, |item| item.epoch);
        let epoch = epoch.unwrap_or_else(of_first);
        let rank = self.resolved.settings.rank;
        let (at, first_look) = (self.machine.now(), content.iter().map(|content| content()).collect());
        let got = Got { rank, at, index, epoch, items, skipped, draws, content: first_look, saved, state: None };
        let place = {
            let mut seen = self.seen.borrow_mut();
            seen.got.push(got);
            seen.got.len() - 1
        };
        self.taken += 1;
        self.held.extend(content.map(|content| (place, content)));
        self.machine.step(self.consumer.step_duration()).await;
        if let Some((place, content)) = self.held.back().filter(|(held, _)| *held == place) {
            self.seen.borrow_mut().got[*place].content.push(content());
        }
        while self.held.len() as u64 >= self.consumer.hold.max(1) {
            self.give_back();
        }
        if let Some(barrier) = &self.barrier.0
            && barrier.wait().await.is_err()
        {
            return false;
        }
        self.consumer.leave_after.is_none_or(|most| self.taken < most)
    }

    /// The consumer looks at its oldest batch for the last time, and gives it back.
    fn give_back(&mut self) {
        if let Some((place, content)) = self.held.pop_front() {
            let last_look = content();
            self.seen.borrow_mut().got[place].content.push(last_look);
        }
    }

    /// Tells the consumer of the error that ends the rank.
    pub fn fail(self, error: Error) {
        let rank = self.resolved.settings.rank;
        self.seen.borrow_mut().ends.push(RankEnd { rank, error: Some(error), outcome: None });
    }
}
