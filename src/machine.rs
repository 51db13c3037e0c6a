//! The seam: what a loader runs on.
//!
//! Everything that differs between the simulated and the real machine is in [`Machine`], and nothing else is. Loader code
//! never reads a clock, sleeps, spawns, draws a random number, opens a file or touches a device except through it; so the same
//! loader runs, without a line changed, under virtual time and on threads.
//!
//! Work that takes time is a **leaf**: a [read](Machine::read), a [CPU job](Machine::cpu), a [copy](Machine::copy) to the device, a
//! [kernel](Machine::kernel) on a batch there.
//! A leaf has a cost, a body and an outcome. [`Work`] prices it in the simulation; the closure runs on both machines, in the
//! simulation at the instant the leaf ends; a panic inside is caught inside the leaf on both and is its [`Failure`].
//!
//! # The contract of a leaf
//!
//! - It starts when its future is first polled.
//! - Dropping the future gives up the answer. A read is aborted; a job still queued is removed; a job, copy or kernel that has begun runs
//!   to its end and keeps what it owns (its core, its slots, its batch) until then.
//! - Retries, deadlines and hedging are the loader's own logic, never hidden inside a leaf.
//! - The machine records the leaf's life as [events](crate::trace::Event): `Queued` when submitted, `Start`, then `End`, `Fail` or
//!   `Abandon`.
//!
//! What kind of bytes flow is a second, separate trait, [`Payload`]. `Sim<Tags>` (sizes only, fast), `Sim<Pixels>` (virtual time,
//! real bytes) and `Real<Pixels>` all exist, and tests hold them against each other.

use std::{
    fmt,
    future::Future,
    ops::{Add, Sub},
    rc::Rc,
    time::Duration,
};

use crate::{
    failure::Failure,
    trace::{Event, StageId},
};

mod payload;
pub mod real;
mod slot;
mod standing;

pub use payload::{Encoded, Payload, Phantom, Pixels, Recycler, Tags};
pub use slot::{Slot, gather, slab, slab_from};
pub(crate) use standing::Holders;
pub use standing::{Shared, Standing, Wait, Who};

/// Nanoseconds since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The instant the machine started.
    pub const ZERO: Time = Time(0);

    /// Nanoseconds since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Seconds since the machine started.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        let ns = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(ns))
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.since(earlier))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// One planned piece of work: which sample, and its place in the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// Epoch, from 0.
    pub epoch: u32,
    /// Position in the epoch's global order, from 0; with several ranks, every rank sees only its own positions.
    pub position: u64,
    /// Index of the sample in the dataset.
    pub sample: u64,
}

/// Who asks for a leaf: the label under which the machine records, prices and fails it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Op {
    /// The stage the leaf belongs to.
    pub stage: StageId,
    /// The rank it works for.
    pub rank: u16,
    /// 0 for the first try, 1 for the first retry, and so on.
    pub attempt: u16,
    /// The sample; for a copy or a kernel, the batch: its index in the run stands for position and sample.
    pub item: Item,
}

/// What a CPU job or a kernel costs, in things one can count. The simulator prices a job as `a + b·bytes + c·pixels` of its `kind`, and a
/// kernel as `a + b·bytes`; the real machine takes what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Name of the cost in the machine's model, such as `"decode"`.
    pub kind: &'static str,
    /// Encoded bytes read; of a kernel, bytes of the batch \[B\].
    pub bytes: u64,
    /// Pixels of the full-size image; 0 when nobody has looked \[px\].
    pub pixels: u64,
}

/// A clock that may be read from any thread. The consumer's side of a loader stamps with it.
pub trait Clock: Clone + Send + Sync + 'static {
    /// Time since the machine started.
    fn now(&self) -> Time;
}

/// What the store hands out on machine `M`.
pub type Bytes<M> = <<M as Machine>::Payload as Payload>::Bytes;
/// The cell a slot is made of on machine `M`.
pub type Unit<M> = <<M as Machine>::Payload as Payload>::Unit;

/// What comes back from a copy: the slots, in the order they were given, and the device batch.
pub struct Copied<M: Machine> {
    /// The slots that were read. Nobody reads them any more.
    pub src: Vec<Slot<Unit<M>>>,
    /// The batch that was written.
    pub dst: M::DeviceBatch,
}

/// What a loader runs on. See the [module documentation](self) for the contract of leaves.
///
/// A machine is a handle: cloning it is cheap and gives the same machine. It lives on one thread, the scheduler's.
pub trait Machine: Clone + 'static {
    /// What flows.
    type Payload: Payload;
    /// Memory for one batch on the device.
    type DeviceBatch: Send + 'static;
    /// A running task. Dropping it stops the task: its future is dropped before anything else of the loader runs, or at the latest
    /// before [`quiesce`](Machine::quiesce) returns.
    type Task: 'static;
    /// The machine's clock for other threads.
    type Clock: Clock;

    /// Time since the machine started.
    fn now(&self) -> Time;

    /// The same clock, for the consumer's thread.
    fn clock(&self) -> Self::Clock;

    /// The seed of the run: every draw is keyed by it, see [`draw`](crate::draw).
    fn seed(&self) -> u64;

    /// Completes `d` from the first poll on. Cancel safe: a sleep that is dropped moves no clock.
    fn sleep(&self, d: Duration) -> impl Future<Output = ()>;

    /// Starts a task on the scheduler's thread. `name` is what stall reports call it.
    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) -> Self::Task;

    /// The most encoded bytes that a read of this sample can deliver, when known; else `None`, and the loader reserves its own bound.
    fn bytes_bound(&self, sample: u64) -> Option<u64>;

    /// Reads the encoded bytes of `op.item.sample` from the store.
    fn read(&self, op: Op) -> impl Future<Output = Result<Bytes<Self>, Failure>>;

    /// Runs `job` on a core.
    fn cpu<R, F>(&self, op: Op, work: Work, job: F) -> impl Future<Output = Result<R, Failure>>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static;

    /// Copies the slots, in this order, to `dst` from sample `at` on. Slots and batch come back when nobody reads or writes them
    /// any more; given up, they stay with the copy until its end and are then lost to the loader.
    fn copy(
        &self,
        op: Op,
        src: Vec<Slot<Unit<Self>>>,
        dst: Self::DeviceBatch,
        at: usize,
    ) -> impl Future<Output = Result<Copied<Self>, Failure>>;

    /// Runs `job` on a batch on the device, with the device's own concurrency and none of the processor's: it starts what is to be done
    /// there, and the leaf ends when that is done. The batch comes back when nobody works on it any more; where the job fails, it is lost
    /// to the loader, and given up it stays with the leaf until its end.
    fn kernel<F>(
        &self,
        op: Op,
        work: Work,
        batch: Self::DeviceBatch,
        job: F,
    ) -> impl Future<Output = Result<Self::DeviceBatch, Failure>>
    where
        F: FnOnce(&mut Self::DeviceBatch) -> Result<(), Failure> + Send + 'static;

    /// Whether the consumer reads slots where they are (a consumer on the host), so that a contiguous batch needs no copy.
    fn lends_slots(&self) -> bool;

    /// A slab of `count` slots of `slot_bytes` bytes each, page-locked where the device wants that.
    fn slots(&self, count: usize, slot_bytes: usize) -> Result<Vec<Slot<Unit<Self>>>, Failure>;

    /// Memory for a batch of `samples` samples of `slot_bytes` bytes each on the device.
    fn device_batch(&self, samples: usize, slot_bytes: usize) -> Result<Self::DeviceBatch, Failure>;

    /// Adds an event to the trace. Only the scheduler's thread calls it.
    fn record(&self, event: Event);

    /// Tells what a user's stage is called in traces and reports.
    fn name_stage(&self, stage: StageId, name: &'static str);

    /// Lets the machine ask `shared` who holds it and who waits for it, while it lives, when nothing moves any more. A machine that tells
    /// nobody of that, as the real one, has nothing to do.
    fn watch(&self, shared: Rc<dyn Shared>) {
        let _ = shared;
    }

    /// Completes when every leaf given up on has ended and every stopped task is gone.
    fn quiesce(&self) -> impl Future<Output = ()>;
}
