//! What happens to one sample before its slot: typed steps, composed statically.
//!
//! A [`Stage`] turns an `In` into an `Out` by any mixture of leaves and control; [`Fill`] is the last step, which writes the sample
//! into its slot on a core; a [`BatchStage`] does something to whole batches on the device. Stages are values, the same on every machine: [`Fetch`] reads, [`Cpu`] runs a function on a core, [`Then`]
//! chains two, and [`Limit`], [`Deadline`] and [`Retry`] wrap another. [`fetch`] is the reading that [`Settings`] describe.
//!
//! ```
//! use towtank::{failure::Failure, loader::stage::{Cpu, Stage, Then, fetch}, loader::Settings, machine::{Item, Machine, Work}};
//! use towtank::{machine::{Bytes, Encoded, Payload, Pixels}, trace::StageId};
//!
//! /// Read, then count the words on a core; the same on the simulated and on the real machine.
//! fn words<M: Machine<Payload = Pixels>>(settings: &Settings) -> impl Stage<M, (), Out = usize> {
//!     let cost = |_: Item, text: &Encoded| Work { kind: "words", bytes: Pixels::bytes(text), pixels: 0 };
//!     let count = |_: Item, text: Encoded| Ok(text.data.split(|byte| *byte == b' ').count());
//!     Then(fetch(settings), Cpu::new(StageId::user(0), "words", cost, count))
//! }
//! ```

use std::{cell::Cell, future::Future};

use super::{ledger::Hold, settings::Settings};
use crate::{
    failure::Failure,
    machine::{Bytes, Item, Machine, Op, Payload, Phantom, Tags, Work},
    trace::{Event, Kind, StageId},
};

mod batch;
mod cpu;
mod deadline;
mod limit;
mod retry;

pub use batch::{BatchStage, NORMALIZE, Priced};
pub use cpu::Cpu;
pub use deadline::Deadline;
pub use limit::{Acquire, Limit, Permit, Permits};
pub use retry::Retry;

/// A step of a sample before its slot: `In` to `Out`. Static, unboxed, on the scheduler's thread.
///
/// The future is dropped when the loader stops, and by a [`Deadline`] around it: whatever it awaits must bear that, as leaves do.
pub trait Stage<M: Machine, In> {
    /// What it makes of a sample.
    type Out;

    /// Called once, before the first sample: the place to [name](Machine::name_stage) user stages.
    fn enter(&self, machine: &M) {
        let _ = machine;
    }

    /// Handles one sample. Many may be under way at once.
    ///
    /// # Errors
    ///
    /// Why the sample failed. The loader's error policy decides what that means; a failure of a
    /// [fatal kind](crate::failure::FailureKind::is_fatal) ends the loader.
    fn run(&self, cx: &Context<'_, M>, input: In) -> impl Future<Output = Result<Self::Out, Failure>>;
}

/// The last step: writes a sample into its slot. It runs on a core, and a panic in it fails the sample.
pub trait Fill<P: Payload, In>: Send + Sync + 'static {
    /// What filling will cost, as the simulated machine prices it.
    fn work(&self, item: Item, input: &In) -> Work;

    /// Writes the sample. The slot may hold anything before; on an error its content does not matter.
    ///
    /// # Errors
    ///
    /// Why the sample cannot be had.
    fn fill(&self, item: Item, input: In, out: &mut [P::Unit]) -> Result<(), Failure>;
}

/// What a stage knows of the sample it handles.
pub struct Context<'a, M: Machine> {
    machine: &'a M,
    item: Item,
    rank: u16,
    attempt: u16,
    hold: &'a Hold,
    jobs: &'a Cell<u32>,
    retries: &'a Cell<u64>,
}

impl<M: Machine> Clone for Context<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Context<'_, M> {}

impl<'a, M: Machine> Context<'a, M> {
    pub(super) fn new(
        machine: &'a M,
        item: Item,
        rank: u16,
        hold: &'a Hold,
        jobs: &'a Cell<u32>,
        retries: &'a Cell<u64>,
    ) -> Context<'a, M> {
        Context { machine, item, rank, attempt: 0, hold, jobs, retries }
    }

    /// The machine.
    pub fn machine(&self) -> &'a M {
        self.machine
    }

    /// The sample and its place in the plan.
    pub fn item(&self) -> Item {
        self.item
    }

    /// Which try it is, from 0.
    pub fn attempt(&self) -> u16 {
        self.attempt
    }

    /// The label for a leaf of `stage`.
    pub fn op(&self, stage: StageId) -> Op {
        Op { stage, rank: self.rank, attempt: self.attempt, item: self.item }
    }

    /// Says how many encoded bytes the sample really holds; what was reserved beyond that is given back at once. A stage that
    /// reads by itself calls it, as [`Fetch`] does.
    pub fn settle(&self, bytes: u64) {
        let refunded = self.hold.correct(bytes);
        if refunded > 0 {
            self.record(StageId::LOADER, Kind::Refund, None, refunded);
        }
    }

    /// While it lives, a job is submitted: a deadline that passes then is fatal.
    fn job(&self) -> Job<'a> {
        self.jobs.set(self.jobs.get() + 1);
        Job(self.jobs)
    }

    fn record(&self, stage: StageId, kind: Kind, since: Option<crate::machine::Time>, bytes: u64) {
        let time = self.machine.now();
        let (sample, epoch) = (self.item.sample, self.item.epoch);
        self.machine.record(Event { time, since: since.unwrap_or(time), sample, bytes, epoch, rank: self.rank, stage, kind });
    }
}

struct Job<'a>(&'a Cell<u32>);

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Reads the sample's encoded bytes from the machine's store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fetch;

impl<M: Machine> Stage<M, ()> for Fetch {
    type Out = Bytes<M>;

    async fn run(&self, cx: &Context<'_, M>, (): ()) -> Result<Bytes<M>, Failure> {
        let bytes = cx.machine.read(cx.op(StageId::FETCH)).await?;
        cx.settle(M::Payload::bytes(&bytes));
        Ok(bytes)
    }
}

/// [`Fetch`] with the limit, the deadline and the retries of [`Settings`].
pub type Fetching = Retry<Limit<Deadline<Fetch>>>;

/// Reading as `settings` describe it: each try for itself under the deadline, and no place among the reads while it waits for the
/// next try.
pub fn fetch(settings: &Settings) -> Fetching {
    let once = Deadline::maybe(settings.fetch_deadline, Fetch);
    Retry::new(StageId::FETCH, settings.retries, Limit::maybe(settings.fetch_limit, once).named("fetch"))
}

/// One stage, then another.
#[derive(Clone, Copy, Debug)]
pub struct Then<A, B>(
    /// The first.
    pub A,
    /// The second.
    pub B,
);

impl<M: Machine, In, A: Stage<M, In>, B: Stage<M, A::Out>> Stage<M, In> for Then<A, B> {
    type Out = B::Out;

    fn enter(&self, machine: &M) {
        self.0.enter(machine);
        self.1.enter(machine);
    }

    async fn run(&self, cx: &Context<'_, M>, input: In) -> Result<B::Out, Failure> {
        let between = self.0.run(cx, input).await?;
        self.1.run(cx, between).await
    }
}

/// Fills the slot of a sample that exists only as numbers with its tag, its index in the dataset.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tag;

impl Fill<Tags, Phantom> for Tag {
    fn work(&self, _: Item, phantom: &Phantom) -> Work {
        Work { kind: "decode", bytes: phantom.bytes, pixels: phantom.pixels }
    }

    fn fill(&self, _: Item, phantom: Phantom, out: &mut [u64]) -> Result<(), Failure> {
        out.fill(phantom.sample);
        Ok(())
    }
}
