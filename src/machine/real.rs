//! The real machine: threads, files, a device, and the clock on the wall.
//!
//! One thread schedules: a current-thread tokio runtime with every task of the loader on it, and nothing else. Leaves run elsewhere,
//! on the threads of two pools: one with a thread for each core, for CPU jobs, cached reads, host copies and stages on the device, which
//! they only start where it computes by itself; one that grows as needed, for reads that wait for a disk. Reads that wait for a network
//! are tasks on the runtime of their source instead.
//!
//! ```text
//!             submit                 begin ─ run ─ answer
//!  scheduler ────────► queue ──────► thread of a pool ─────┐
//!      ▲                                                    │ news
//!      └──────────── drain ◄───────── handoff ◄─────────────┘
//! ```
//!
//! A leaf is one allocation: a [`Leaf`](crate::sync::Leaf) that holds its job, then its answer. The scheduler keeps a table of the
//! leaves that are out; news of an end is a small record with the leaf's number in that table and its time stamps, from which the
//! scheduler writes the trace. How news wakes the scheduler is what decides the cost of a sample; see [`crate::sync::handoff`].
//!
//! # Giving up
//!
//! A leaf whose future is dropped is taken out of its job if it has not begun: the job is dropped at once, and the empty leaf is passed
//! over when its turn comes. One that has begun runs to its end; what it owns is dropped there. Only a read on its source's runtime is
//! aborted wherever it stands, and its connection closed. [`Machine::quiesce`] waits for
//! those, but not for ever: a thread stuck in a system call is left behind and counted in [`Outcome::detached`].

use std::{
    cell::{Cell as Counter, RefCell},
    future::Future,
    marker::PhantomData,
    rc::Rc,
    sync::Arc,
    task::Waker,
    time::Duration,
};

use super::{Bytes, Copied, Encoded, Machine, Op, Payload, Phantom, Pixels, Slot, Tags, Time, Unit, Work};
use crate::{
    device::{Device, HostDevice},
    failure::Failure,
    fault::{self, Fault, Faults},
    machine::Clock,
    trace::{Event, Recorder, StageId},
};

mod clock;
mod cold;
mod config;
mod home;
mod jobs;
mod launch;
mod leaf;
mod leaves;
mod pool;
mod reactor;
mod remote;
mod task;
pub mod usage;

pub use clock::WallClock;
pub use config::{Config, Reads, StoreDelay, Wakes};
pub use launch::{Handle, JoinError, LaunchError, Outcome, launch};
pub use leaves::LeafCpu;
pub use task::Task;

use self::{home::Home, leaves::Leaves, task::Tasks};

/// A payload that real reads can deliver.
pub trait FromStore: Payload {
    /// Wraps the bytes of a sample.
    fn from_store(sample: u64, encoded: Encoded) -> Self::Bytes;
}

impl FromStore for Pixels {
    fn from_store(_sample: u64, encoded: Encoded) -> Encoded {
        encoded
    }
}

impl FromStore for Tags {
    fn from_store(sample: u64, encoded: Encoded) -> Phantom {
        Phantom { sample, bytes: encoded.data.len() as u64, pixels: encoded.pixels }
    }
}

/// The real machine, as its scheduler's thread sees it. [`launch`] makes one.
pub struct RealMachine<P, D = HostDevice> {
    inner: Rc<Inner>,
    device: Arc<D>,
    flows: PhantomData<P>,
}

struct Inner {
    home: Arc<Home>,
    seed: u64,
    reads: Reads,
    faults: Option<Faults>,
    stuck_after: Duration,
    leaves: RefCell<Leaves>,
    tasks: Rc<Tasks>,
    recorder: RefCell<Recorder>,
    /// The reactor, while it has no timer to wake it.
    dozing: RefCell<Option<Waker>>,
    drains: Counter<u64>,
}

impl<P, D> Clone for RealMachine<P, D> {
    fn clone(&self) -> Self {
        self.on_device(self.device.clone())
    }
}

impl<P, D> RealMachine<P, D> {
    /// The same machine, with another device: that of another rank. All else, the scheduler's thread, pools, source and trace, is shared.
    pub fn on_device<E>(&self, device: Arc<E>) -> RealMachine<P, E> {
        RealMachine { inner: self.inner.clone(), device, flows: PhantomData }
    }
}

impl<P, D> Machine for RealMachine<P, D>
where
    P: FromStore,
    D: Device<P::Unit>,
{
    type Payload = P;
    type DeviceBatch = D::Batch;
    type Task = Task;
    type Clock = WallClock;

    fn now(&self) -> Time {
        self.inner.home.clock.now()
    }

    fn clock(&self) -> WallClock {
        self.inner.home.clock
    }

    fn seed(&self) -> u64 {
        self.inner.seed
    }

    /// The timer's resolution is a millisecond, rounded up.
    #[expect(clippy::disallowed_methods, reason = "this is the sleep that everything else asks for")]
    async fn sleep(&self, d: Duration) {
        tokio::time::sleep(d).await;
    }

    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) -> Task {
        self.inner.tasks.spawn(name, task)
    }

    fn bytes_bound(&self, sample: u64) -> Option<u64> {
        self.inner.home.source.bytes_bound(sample)
    }

    async fn read(&self, op: Op) -> Result<Bytes<Self>, Failure> {
        let inner = &*self.inner;
        let fault = inner.verdict(&op, fault::Leaf::Read);
        if fault == Some(Fault::Stall) {
            return leaf::stalled(inner, op).await;
        }
        let sample = op.item.sample;
        let delayed = inner.home.store_delay.is_some();
        let slow = matches!(fault, Some(Fault::Slow { .. }));
        // What is made slow on purpose waits on a thread of its own, whatever the source.
        if !slow && !delayed && inner.home.source.io().is_some() {
            // Boxed, so that lanes are no larger for it where sources are local.
            return Box::pin(remote::read::<P>(inner, op, fault)).await;
        }
        let cold = inner.reads == Reads::Auto && inner.home.cold.skips_the_pool();
        let on_io = inner.reads == Reads::Blocking || slow || delayed || cold;
        let read = jobs::Read::<P> { op, fault, may_wait: on_io || inner.reads == Reads::Pool, flows: PhantomData };
        let bytes = inner.home.source.bytes_bound(sample).unwrap_or(0);
        leaf::leaf(inner, op, bytes, read, |inner, job| {
            let home = &inner.home;
            if on_io { home.io.submit_and_grow(home, job).is_ok() } else { home.cpu.submit(job).is_ok() }
        })
        .await
    }

    async fn cpu<R, F>(&self, op: Op, work: Work, job: F) -> Result<R, Failure>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let fault = self.inner.verdict(&op, fault::Leaf::Cpu);
        let job = jobs::Cpu { job, bytes: work.bytes, fault };
        leaf::leaf(&self.inner, op, work.bytes, job, |inner, job| inner.home.cpu.submit(job).is_ok()).await
    }

    async fn copy(&self, op: Op, src: Vec<Slot<Unit<Self>>>, dst: D::Batch, at: usize) -> Result<Copied<Self>, Failure> {
        let fault = self.inner.verdict(&op, fault::Leaf::Copy);
        let bytes = src.iter().map(|slot| size_of_val(slot.get()) as u64).sum();
        let copy = jobs::Copy { device: self.device.clone(), src, dst, at, fault };
        let (src, dst) = leaf::leaf(&self.inner, op, bytes, copy, |inner, job| inner.home.cpu.submit(job).is_ok()).await?;
        Ok(Copied { src, dst })
    }

    async fn kernel<F>(&self, op: Op, work: Work, batch: D::Batch, job: F) -> Result<D::Batch, Failure>
    where
        F: FnOnce(&mut D::Batch) -> Result<(), Failure> + Send + 'static,
    {
        let fault = self.inner.verdict(&op, fault::Leaf::Kernel);
        let kernel = jobs::Kernel { device: self.device.clone(), batch, job, bytes: work.bytes, fault, cells: PhantomData };
        leaf::leaf(&self.inner, op, work.bytes, kernel, |inner, job| inner.home.cpu.submit(job).is_ok()).await
    }

    fn lends_slots(&self) -> bool {
        self.device.lends_slots()
    }

    fn slots(&self, count: usize, slot_bytes: usize) -> Result<Vec<Slot<Unit<Self>>>, Failure> {
        self.device.slots(count, P::units(slot_bytes))
    }

    fn device_batch(&self, samples: usize, slot_bytes: usize) -> Result<D::Batch, Failure> {
        self.device.batch(samples, P::units(slot_bytes))
    }

    fn record(&self, event: Event) {
        self.inner.recorder.borrow_mut().record(event);
    }

    fn name_stage(&self, stage: StageId, name: &'static str) {
        self.inner.recorder.borrow_mut().name_stage(stage, name);
    }

    /// It gives up after [`Config::stuck_after`]; leaves that still run then are counted in [`Outcome::detached`].
    async fn quiesce(&self) {
        self.inner.quiesce().await;
    }
}

impl Inner {
    /// What is to go wrong with a leaf.
    #[inline]
    fn verdict(&self, op: &Op, leaf: fault::Leaf) -> Option<Fault> {
        self.faults.as_ref()?.verdict(self.seed, op, leaf)
    }
}

#[cfg(test)]
mod tests;
