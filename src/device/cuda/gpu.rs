//! The device of a loader: its slots, its batches and its copies.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::driver::result;

use super::{
    context::{self, Context},
    error::{Called, CudaError},
    memory::{DeviceMemory, Pinned},
    stream::{Event, Stream},
    underway::{Ending, Underway},
};
use crate::{
    device::{
        CopyDone, Device, KernelDone, KernelJob,
        numa::{local_processors, run_near},
    },
    failure::{Failure, FailureKind},
    machine::{Slot, slab, slab_from},
};

/// What slots are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostMemory {
    /// Page-locked: the GPU fetches it by itself, while everybody goes on.
    #[default]
    Pinned,
    /// Ordinary memory: the driver copies it through a page-locked buffer of its own, on the thread that asks.
    Pageable,
}

/// How a GPU is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which GPU, from 0.
    pub ordinal: usize,
    /// What slots are made of.
    pub host: HostMemory,
}

/// A GPU as a loader's device. Cloning it gives the same device, with the same streams for copies and for stages.
#[derive(Clone)]
pub struct CudaDevice {
    context: Arc<Context>,
    copies: Arc<Underway>,
    stages: Arc<Underway>,
    host: HostMemory,
    /// Processors that are near the GPU; `None` where all are as near.
    near: Option<Arc<[usize]>>,
}

impl CudaDevice {
    /// GPU number `ordinal`, with slots in page-locked memory.
    ///
    /// # Errors
    ///
    /// When there is no driver or no such GPU, or the driver refuses.
    pub fn open(ordinal: usize) -> Result<CudaDevice, CudaError> {
        CudaDevice::with(Options { ordinal, ..Options::default() })
    }

    /// A GPU, used as `options` say.
    ///
    /// # Errors
    ///
    /// As [`open`](CudaDevice::open).
    pub fn with(options: Options) -> Result<CudaDevice, CudaError> {
        let context = Context::open(options.ordinal)?;
        let (copies, stages) = (Underway::new(&context, "a copy")?, Underway::new(&context, "a stage")?);
        let near = context.pci_bus_id().ok().and_then(|place| local_processors(&place)).map(Arc::from);
        Ok(CudaDevice { context, copies, stages, host: options.host, near })
    }

    /// How many GPUs there are.
    ///
    /// # Errors
    ///
    /// When there is no driver.
    pub fn count() -> Result<usize, CudaError> {
        context::count()
    }

    /// Its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The stream that its copies are on.
    pub fn copy_stream(&self) -> &Arc<Stream> {
        self.copies.stream()
    }

    /// The stream that stages on whole batches are on.
    pub fn stage_stream(&self) -> &Arc<Stream> {
        self.stages.stream()
    }

    /// The processors that are nearest to the GPU; `None` where all are as near, or the system does not tell.
    pub fn near(&self) -> Option<&[usize]> {
        self.near.as_deref()
    }

    fn pinned<U: Copy + Default + Send + Sync + 'static>(&self, count: usize, units: usize) -> Result<Vec<Slot<U>>, Failure> {
        let too_large = || Failure::new(FailureKind::TooLarge, format!("no memory for {count} slots of {units} cells"));
        let cells = count.checked_mul(units).ok_or_else(too_large)?;
        let bytes = cells.checked_mul(size_of::<U>()).filter(|bytes| isize::try_from(*bytes).is_ok()).ok_or_else(too_large)?;
        if bytes == 0 {
            return slab(count, units);
        }
        let locked = run_near(self.near(), || Pinned::new(&self.context, bytes)).map_err(|error| {
            let failure = error.failure();
            Failure::new(failure.kind, format!("cannot lock {bytes} bytes of memory for slots: {}", failure.message))
        })?;
        let base = locked.start().cast::<U>();
        debug_assert!(base.is_aligned(), "the driver gives whole pages");
        for cell in 0..cells {
            // SAFETY: there are `cells` cells, and nobody else has them.
            unsafe { base.add(cell).write(U::default()) };
        }
        // SAFETY: the cells are initialised, `locked` keeps them until the last slot is gone, and only this knows of them.
        unsafe { slab_from(base, count, units, Box::new(locked)) }
    }

    /// Puts the copy of each run of slots on the copy stream.
    fn enqueue<U: Copy>(&self, src: &[Slot<U>], dst: &CudaBatch, at_unit: usize) -> Result<(), CudaError> {
        let stream = self.copies.stream();
        dst.wait_for_readers(stream)?;
        self.context.bind()?;
        let (mut rest, mut at) = (src, (at_unit * size_of::<U>()) as u64);
        while !rest.is_empty() {
            let run = Slot::run(rest);
            if !run.is_empty() {
                // SAFETY: the run stays until the copy is over, since its slots do, and the batch is large enough: `copy` has seen to it.
                let put = unsafe { result::memcpy_htod_async(dst.memory.address() + at, run, stream.raw()) };
                put.called("cuMemcpyHtoDAsync")?;
            }
            at += size_of_val(run) as u64;
            rest = &rest[Slot::run_len(rest)..];
        }
        dst.copied.record(stream)
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDevice").field("context", &self.context).field("host", &self.host).finish_non_exhaustive()
    }
}

impl<U: Copy + Default + Send + Sync + 'static> Device<U> for CudaDevice {
    type Batch = CudaBatch;

    fn name(&self) -> String {
        format!("cuda:{}", self.context.ordinal())
    }

    fn lends_slots(&self) -> bool {
        false
    }

    fn slots(&self, count: usize, units_per_slot: usize) -> Result<Vec<Slot<U>>, Failure> {
        match self.host {
            HostMemory::Pinned => self.pinned(count, units_per_slot),
            HostMemory::Pageable => slab(count, units_per_slot),
        }
    }

    fn batch(&self, samples: usize, units_per_slot: usize) -> Result<CudaBatch, Failure> {
        let bytes = samples.checked_mul(units_per_slot).and_then(|units| units.checked_mul(size_of::<U>()));
        let cannot = |why: &str| format!("no memory on the GPU for a batch of {samples} × {units_per_slot} cells{why}");
        let bytes = bytes.ok_or_else(|| Failure::new(FailureKind::TooLarge, cannot("")))?;
        let made = || {
            let (memory, copied) = (DeviceMemory::new(&self.context, bytes)?, Event::new(&self.context)?);
            Ok(CudaBatch::new(memory, copied, self.stages.stream().clone()))
        };
        made().map_err(|error: CudaError| Failure::new(error.failure().kind, cannot(&format!(": {error}"))))
    }

    fn copy(&self, src: Vec<Slot<U>>, dst: CudaBatch, at_unit: usize, done: CopyDone<U, CudaBatch>) {
        let units = src.iter().map(|slot| slot.get().len()).sum::<usize>();
        let end = at_unit.checked_add(units).and_then(|end| end.checked_mul(size_of::<U>()));
        if end.is_none_or(|end| end > dst.memory.bytes()) {
            let message = format!("{units} cells do not fit at cell {at_unit} of a batch of {} bytes", dst.memory.bytes());
            return done.fail(Failure::new(FailureKind::Device, message));
        }
        let enqueued = self.enqueue(&src, &dst, at_unit).map_err(|error| error.failure());
        self.copies.end_after(enqueued, Box::new(Flying { src, dst, done }));
    }

    fn kernel(&self, mut batch: CudaBatch, job: KernelJob<CudaBatch>, done: KernelDone<CudaBatch>) {
        let begun = batch.enter_stage().map_err(|error| error.failure());
        let launched = begun.and_then(|()| job(&mut batch)).and_then(|()| batch.leave_stage().map_err(|error| error.failure()));
        self.stages.end_after(launched, Box::new(Staged { batch, done }));
    }
}

/// What a copy owns.
struct Flying<U> {
    src: Vec<Slot<U>>,
    dst: CudaBatch,
    done: CopyDone<U, CudaBatch>,
}

impl<U: Send + Sync> Ending for Flying<U> {
    fn complete(self: Box<Self>) {
        let Flying { src, dst, done } = *self;
        done.complete(src, dst);
    }

    fn fail(self: Box<Self>, failure: Failure) {
        self.done.fail(failure);
    }
}

/// What a stage has while its kernels run.
struct Staged {
    batch: CudaBatch,
    done: KernelDone<CudaBatch>,
}

impl Ending for Staged {
    fn complete(self: Box<Self>) {
        let Staged { batch, done } = *self;
        done.complete(batch);
    }

    fn fail(self: Box<Self>, failure: Failure) {
        self.done.fail(failure);
    }
}

/// A batch on a GPU.
///
/// Whoever reads it on a stream of their own says so twice: [`wait_on`](CudaBatch::wait_on) before, so that the stream waits for the copy,
/// and [`release_on`](CudaBatch::release_on) behind the last kernel that reads it, so that the next copy into this memory waits for that.
/// Without the second the next copy waits for everything that is on the stream by then, which is right and slower.
pub struct CudaBatch {
    memory: Arc<DeviceMemory>,
    /// Recorded behind the last copy into it.
    copied: Event,
    /// Where stages put their kernels.
    stage: Arc<Stream>,
    /// Recorded behind the last kernel of a stage; `None` until one has been at it.
    staged: Option<Event>,
    /// What a stage has made of it.
    result: Option<Arc<DeviceMemory>>,
    readers: Mutex<Vec<Reader>>,
}

/// A stream that reads a batch.
struct Reader {
    stream: Arc<Stream>,
    /// Recorded behind the last of its reads.
    read: Event,
    state: Reading,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Not since the last copy.
    No,
    /// It waits for the copy, or reads.
    Now,
    /// `read` is recorded.
    Released,
}

impl CudaBatch {
    fn new(memory: DeviceMemory, copied: Event, stage: Arc<Stream>) -> CudaBatch {
        CudaBatch { memory: Arc::new(memory), copied, stage, staged: None, result: None, readers: Mutex::default() }
    }

    /// Has the stage's stream wait for the copy, and so for all who read what was here, or was made of it, before.
    fn enter_stage(&mut self) -> Result<(), CudaError> {
        if self.staged.is_none() {
            self.staged = Some(Event::new(self.stage.context())?);
        }
        self.stage.wait(&self.copied)
    }

    /// All kernels of the stage are on its stream.
    fn leave_stage(&self) -> Result<(), CudaError> {
        self.staged.as_ref().map_or(Ok(()), |staged| staged.record(&self.stage))
    }

    /// Where a [stage](crate::loader::stage::BatchStage) puts what it does to this batch.
    pub fn stage_stream(&self) -> &Arc<Stream> {
        &self.stage
    }

    /// For a stage: memory of `bytes` bytes for what it makes of the batch, allocated at its first use and kept with the batch. It holds
    /// anything when the stage comes to it, and nobody reads it then who was told of it by [`wait_on`](CudaBatch::wait_on).
    ///
    /// # Errors
    ///
    /// When the GPU has no such memory left.
    pub fn make(&mut self, bytes: usize) -> Result<&DeviceMemory, CudaError> {
        let large = self.result.take().filter(|result| result.bytes() >= bytes);
        let result = match large {
            Some(result) => result,
            None => Arc::new(DeviceMemory::new(self.stage.context(), bytes)?),
        };
        Ok(self.result.insert(result))
    }

    /// What a stage has made of the batch; `None` where none makes anything beside it. Who reads it says so as with the batch itself.
    pub fn result(&self) -> Option<&DeviceMemory> {
        self.result.as_deref()
    }

    /// Its memory; how much of that is samples, the loader's batch tells.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Makes what is put on `stream` from now on wait until the batch is there and a stage has done with it, and has the next copy into this
    /// memory wait for it.
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    pub fn wait_on(&self, stream: &Arc<Stream>) -> Result<(), CudaError> {
        self.set(stream, Reading::Now)?;
        stream.wait(&self.copied)?;
        self.staged.as_ref().map_or(Ok(()), |staged| stream.wait(staged))
    }

    /// Says that what is on `stream` by now is all that reads the batch there.
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    pub fn release_on(&self, stream: &Arc<Stream>) -> Result<(), CudaError> {
        self.set(stream, Reading::Released)
    }

    fn set(&self, stream: &Arc<Stream>, state: Reading) -> Result<(), CudaError> {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = readers.iter().position(|reader| Arc::ptr_eq(&reader.stream, stream));
        let at = match known {
            Some(at) => at,
            None => {
                readers.push(Reader { stream: stream.clone(), read: Event::new(stream.context())?, state: Reading::No });
                readers.len() - 1
            }
        };
        let reader = &mut readers[at];
        if state == Reading::Released {
            reader.read.record(stream)?;
        }
        reader.state = state;
        Ok(())
    }

    /// Makes `stream` wait for all who read what was in the batch before.
    fn wait_for_readers(&self, stream: &Stream) -> Result<(), CudaError> {
        for reader in self.readers.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            if reader.state == Reading::Now {
                reader.read.record(&reader.stream)?;
            }
            if reader.state != Reading::No {
                stream.wait(&reader.read)?;
            }
            reader.state = Reading::No;
        }
        Ok(())
    }
}

impl Drop for CudaBatch {
    /// The memory is freed when nobody reads it any more.
    fn drop(&mut self) {
        let mut readers = std::mem::take(self.readers.get_mut().unwrap_or_else(PoisonError::into_inner));
        readers.retain(|reader| reader.state != Reading::No);
        if readers.is_empty() {
            return;
        }
        let memory = (self.memory.clone(), self.result.clone());
        self.memory.context().attendant().carry_out(move || {
            for reader in &readers {
                let recorded = if reader.state == Reading::Now { reader.read.record(&reader.stream) } else { Ok(()) };
                // A stream that has failed reads no more.
                let _ = recorded.and_then(|()| reader.read.synchronize());
            }
            drop(memory);
        });
    }
}

impl fmt::Debug for CudaBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaBatch").field("memory", &self.memory).finish_non_exhaustive()
    }
}
