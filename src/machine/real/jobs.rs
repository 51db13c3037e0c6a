//! The bodies of leaves, as the pools' threads run them.

use std::{
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::{
    FromStore,
    home::{Begun, Home},
    pool::Run,
};
use crate::{
    device::{CopyDone, Device, KernelDone},
    failure::{Failure, FailureKind},
    fault::{self, Fault},
    machine::{Encoded, Op, Slot},
    sync::Leaf,
};

/// A leaf on the pools' side: its number in the scheduler's table, its job and its answer.
pub(super) struct Cell<J, R> {
    pub(super) key: u32,
    pub(super) leaf: Leaf<J, Result<R, Failure>>,
}

impl<J, R> Cell<J, R> {
    pub(super) fn new(key: u32, job: J) -> Arc<Cell<J, R>> {
        Arc::new(Cell { key, leaf: Leaf::new(job) })
    }
}

/// Any CPU job.
pub(super) struct Cpu<F> {
    pub(super) job: F,
    pub(super) bytes: u64,
    pub(super) fault: Option<Fault>,
}

impl<R, F> Run for Cell<Cpu<F>, R>
where
    R: Send + 'static,
    F: FnOnce() -> R + Send + 'static,
{
    fn run(self: Arc<Self>, home: &Arc<Home>) {
        let Some((cpu, begun)) = home.begin(self.key, &self.leaf) else { return };
        let answer = fault::inside(cpu.fault, cpu.job);
        if let Some(Fault::Slow { times }) = cpu.fault {
            home.stretch(begun.start, times, &|| true);
        }
        home.finish(begun, &self.leaf, answer, cpu.bytes);
    }
}

/// A read, which may move on from the pool to a thread that may wait.
pub(super) struct Read<P> {
    pub(super) op: Op,
    pub(super) fault: Option<Fault>,
    /// Whether this thread may wait for a device.
    pub(super) may_wait: bool,
    pub(super) flows: PhantomData<fn() -> P>,
}

impl<P: FromStore> Run for Cell<Read<P>, P::Bytes> {
    fn run(self: Arc<Self>, home: &Arc<Home>) {
        let Some((read, begun)) = home.begin(self.key, &self.leaf) else { return };
        let attempt = catch_unwind(AssertUnwindSafe(|| read.attempt(home, &|| self.leaf.is_wanted())));
        let answer = match attempt {
            Ok(Ok(Some(encoded))) => Ok(encoded),
            Ok(Ok(None)) => return self.move_on(home, read, begun),
            Ok(Err(failure)) => Err(failure),
            Err(payload) => Err(Failure::panicked(&*payload)),
        };
        if let Some(Fault::Slow { times }) = read.fault {
            home.stretch(begun.start, times, &|| self.leaf.is_wanted());
        }
        let bytes = answer.as_ref().map_or(0, |encoded| encoded.data.len() as u64);
        home.finish(begun, &self.leaf, answer.map(|encoded| P::from_store(read.op.item.sample, encoded)), bytes);
    }
}

impl<P: FromStore> Read<P> {
    /// The sample's bytes; `None` when they cannot be had without waiting, which this thread must not do.
    fn attempt(&self, home: &Home, wanted: &dyn Fn() -> bool) -> Result<Option<Encoded>, Failure> {
        if let Some(fault @ Fault::Fail(_)) = self.fault {
            return Err(fault.failure().expect("a fault that fails its leaf has a failure"));
        }
        let sample = self.op.item.sample;
        let mut encoded = home.recycler.take_used();
        if let Some(delay) = &home.store_delay {
            home.wait(delay.first_byte(&self.op), wanted);
            home.source.read(sample, &mut encoded.data, wanted)?;
            home.wait(delay.transfer(encoded.data.len() as u64), wanted);
        } else if self.may_wait {
            home.source.read(sample, &mut encoded.data, wanted)?;
        } else {
            let cached = home.source.try_read(sample, &mut encoded.data)?;
            home.cold.note(cached);
            if !cached {
                return Ok(None);
            }
        }
        if let Some(fault) = self.fault {
            fault.spoil(&mut encoded.data);
        }
        Ok(Some(encoded))
    }
}

impl<P: FromStore> Cell<Read<P>, P::Bytes> {
    /// Puts the read back into its leaf and hands that to a thread that may wait.
    fn move_on(self: Arc<Self>, home: &Arc<Home>, mut read: Read<P>, begun: Begun) {
        read.may_wait = true;
        if self.leaf.put_back(read).is_some() {
            return home.tell(begun, None, 0);
        }
        if let Err(back) = home.io.submit_and_grow(home, self) {
            // No thread may wait for it, so this one does.
            back.run(home);
        }
    }
}

/// A copy to the device.
pub(super) struct Copy<U, D: Device<U>> {
    pub(super) device: Arc<D>,
    pub(super) src: Vec<Slot<U>>,
    pub(super) dst: D::Batch,
    pub(super) at: usize,
    pub(super) fault: Option<Fault>,
}

impl<U: Send + Sync + 'static, D: Device<U>> Run for Cell<Copy<U, D>, (Vec<Slot<U>>, D::Batch)> {
    fn run(self: Arc<Self>, home: &Arc<Home>) {
        let Some((copy, begun)) = home.begin(self.key, &self.leaf) else { return };
        if let Some(failure) = copy.fault.and_then(Fault::failure) {
            return home.finish(begun, &self.leaf, Err(failure), 0);
        }
        let Copy { device, src, dst, at, fault } = copy;
        let units_per_slot = src.first().map_or(0, |slot| slot.get().len());
        let bytes = (src.len() * units_per_slot * size_of::<U>()) as u64;
        let cell = self.clone();
        let shared = home.clone();
        let done = CopyDone::new(move |answer| {
            if let Some(Fault::Slow { times }) = fault {
                shared.stretch(begun.start, times, &|| true);
            }
            shared.finish(begun.elsewhere(), &cell.leaf, answer, bytes);
        });
        let Some(at_unit) = at.checked_mul(units_per_slot) else {
            return done.fail(Failure::new(FailureKind::Device, format!("no batch has a sample {at}")));
        };
        // Unwinding drops `done`, which reports the memory as lost.
        let _ = catch_unwind(AssertUnwindSafe(|| device.copy(src, dst, at_unit, done)));
    }
}

/// What a stage does to a batch on the device.
pub(super) struct Kernel<U, D: Device<U>, F> {
    pub(super) device: Arc<D>,
    pub(super) batch: D::Batch,
    pub(super) job: F,
    pub(super) bytes: u64,
    pub(super) fault: Option<Fault>,
    pub(super) cells: PhantomData<fn() -> U>,
}

impl<U, D, F> Run for Cell<Kernel<U, D, F>, D::Batch>
where
    U: Send + Sync + 'static,
    D: Device<U>,
    F: FnOnce(&mut D::Batch) -> Result<(), Failure> + Send + 'static,
{
    fn run(self: Arc<Self>, home: &Arc<Home>) {
        let Some((kernel, begun)) = home.begin(self.key, &self.leaf) else { return };
        if let Some(failure) = kernel.fault.and_then(Fault::failure) {
            return home.finish(begun, &self.leaf, Err(failure), 0);
        }
        let Kernel { device, batch, job, bytes, fault, .. } = kernel;
        let cell = self.clone();
        let shared = home.clone();
        let done = KernelDone::new(move |answer| {
            if let Some(Fault::Slow { times }) = fault {
                shared.stretch(begun.start, times, &|| true);
            }
            shared.finish(begun.elsewhere(), &cell.leaf, answer, bytes);
        });
        let job = Box::new(move |batch: &mut D::Batch| fault::inside(None, || job(batch)).and_then(|done| done));
        // Unwinding drops `done`, which reports the batch as lost.
        let _ = catch_unwind(AssertUnwindSafe(|| device.kernel(batch, job, done)));
    }
}
