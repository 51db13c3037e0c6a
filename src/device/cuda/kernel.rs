//! Kernels that the project brings: a train step that keeps a GPU busy, and a step of preparation that belongs there.

use std::{
    ffi::{CString, c_void},
    fmt,
    sync::Arc,
    time::Duration,
};

use cudarc::driver::{
    result::{self, module},
    sys,
};

use super::{
    context::Context,
    error::{Called, CudaError},
    gpu::CudaBatch,
    memory::DeviceMemory,
    stream::{Event, Handle, Stream},
};

const PTX: &str = include_str!("kernels.ptx");

/// The kernels, as the driver has translated them for a GPU.
pub struct Kernels {
    context: Arc<Context>,
    module: sys::CUmodule,
    spin: sys::CUfunction,
    normalize: sys::CUfunction,
    multiprocessors: u32,
}

// SAFETY: the driver's functions on modules may be called from any thread.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

/// Threads of a block that spins: two such blocks fill a multiprocessor.
const SPINNING: u32 = 1024;
const BLOCKS_PER_MULTIPROCESSOR: u32 = 2;
/// Threads of a block that normalizes.
const NORMALIZING: u32 = 256;

impl Kernels {
    /// Translates them.
    ///
    /// # Errors
    ///
    /// When the driver does not take them.
    pub fn new(context: &Arc<Context>) -> Result<Kernels, CudaError> {
        let multiprocessors = context.multiprocessors()?;
        context.bind()?;
        let text = CString::new(PTX).expect("PTX is text without zeros");
        // SAFETY: the text ends with a zero.
        let module = unsafe { module::load_data(text.as_ptr().cast()) }.called("cuModuleLoadData")?;
        let mut kernels = Kernels {
            context: context.clone(),
            module,
            spin: std::ptr::null_mut(),
            normalize: std::ptr::null_mut(),
            multiprocessors,
        };
        // SAFETY: the module is loaded.
        let named = |name: &str| unsafe { module::get_function(module, CString::new(name).expect("a name")) };
        kernels.spin = named("towtank_spin").called("cuModuleGetFunction")?;
        kernels.normalize = named("towtank_normalize").called("cuModuleGetFunction")?;
        Ok(kernels)
    }

    /// Keeps `share` of the multiprocessors busy for `time`, as a train step that reads the first `bytes` bytes of `memory`.
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    pub fn spin(
        &self,
        stream: &Stream,
        memory: &DeviceMemory,
        bytes: usize,
        time: Duration,
        share: f64,
    ) -> Result<(), CudaError> {
        let all = self.multiprocessors * BLOCKS_PER_MULTIPROCESSOR;
        let blocks = ((f64::from(all) * share).round() as u32).clamp(1, all);
        let mut address = memory.address();
        let mut bytes = bytes.min(memory.bytes()) as u64;
        let mut nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut parameters = [address_of(&mut address), address_of(&mut bytes), address_of(&mut nanoseconds)];
        self.context.bind()?;
        let (grid, block) = ((blocks, 1, 1), (SPINNING, 1, 1));
        // SAFETY: these are the kernel's parameters, which the driver copies before the call returns.
        unsafe { result::launch_kernel(self.spin, grid, block, 0, stream.raw(), &mut parameters) }.called("cuLaunchKernel")
    }

    /// Turns images of bytes, `[images, pixels, 3]`, into half floats by channel, `[images, 3, pixels]`: `value · scale + offset`.
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    ///
    /// # Panics
    ///
    /// If one of the memories is too small.
    pub fn normalize(&self, stream: &Stream, from: &DeviceMemory, to: &DeviceMemory, work: Normalize) -> Result<(), CudaError> {
        let cells = work.images.checked_mul(work.pixels).and_then(|pixels| pixels.checked_mul(3)).expect("it fits into memory");
        assert!(cells <= from.bytes() && cells.checked_mul(2).is_some_and(|bytes| bytes <= to.bytes()), "{work:?}");
        if cells == 0 {
            return Ok(());
        }
        let (mut from, mut to) = (from.address(), to.address());
        let (mut pixels, mut images) = (work.pixels as u64, work.images as u64);
        let Normalize { mut scale, mut offset, .. } = work;
        let [scale, offset] = [scale.each_mut(), offset.each_mut()];
        let mut parameters = vec![address_of(&mut from), address_of(&mut to), address_of(&mut pixels), address_of(&mut images)];
        parameters.extend(scale.into_iter().chain(offset).map(address_of));
        let blocks =
            u32::try_from(((cells / 3) as u64).div_ceil(u64::from(NORMALIZING))).expect("a batch of less than 2⁴⁰ pixels");
        self.context.bind()?;
        let (grid, block) = ((blocks, 1, 1), (NORMALIZING, 1, 1));
        // SAFETY: these are the kernel's parameters, and both memories are large enough. They must stay until the stream has come to it, as
        // with every kernel: the caller waits, or frees them through the driver, which does.
        unsafe { result::launch_kernel(self.normalize, grid, block, 0, stream.raw(), &mut parameters) }.called("cuLaunchKernel")
    }
}

fn address_of<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

/// What [`Kernels::normalize`] does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalize {
    /// How many images.
    pub images: usize,
    /// Pixels of each.
    pub pixels: usize,
    /// Factor of each channel.
    pub scale: [f32; 3],
    /// Added to each channel.
    pub offset: [f32; 3],
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let (context, module) = (self.context.clone(), Handle(self.module));
        // The last of a stage may go in a host function, with what that stage was doing when its loader was dropped.
        self.context.attendant().carry_out(move || {
            let Handle(module) = { module };
            // A driver that refuses is gone, and the module with it.
            let _ = context.bind();
            // SAFETY: it was loaded in `new`, and nobody has it any more.
            let _ = unsafe { module::unload(module) };
        });
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernels({:?})", self.context)
    }
}

/// A train step that occupies a GPU for its duration, and reads its batch.
#[derive(Debug)]
pub struct TrainStep {
    stream: Arc<Stream>,
    kernels: Kernels,
    began: Event,
    done: Event,
    share: f64,
}

impl TrainStep {
    /// A step on `share` of the multiprocessors, from 0 to 1.
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    pub fn new(context: &Arc<Context>, share: f64) -> Result<TrainStep, CudaError> {
        let stream = Stream::new(context)?;
        Ok(TrainStep {
            stream,
            kernels: Kernels::new(context)?,
            began: Event::timed(context)?,
            done: Event::timed(context)?,
            share,
        })
    }

    /// Trains on the first `bytes` bytes of a batch, or of what a stage has made of it, for `time`, and returns when that is done; how long the GPU was busy with it \[s\].
    ///
    /// # Errors
    ///
    /// When something on the GPU has failed.
    pub fn step(&self, batch: &CudaBatch, bytes: usize, time: Duration) -> Result<f64, CudaError> {
        batch.wait_on(&self.stream)?;
        self.began.record(&self.stream)?;
        let memory = batch.result().unwrap_or(batch.memory());
        self.kernels.spin(&self.stream, memory, bytes, time, self.share)?;
        batch.release_on(&self.stream)?;
        self.done.record(&self.stream)?;
        self.done.synchronize()?;
        self.done.seconds_since(&self.began)
    }

    /// The stream that it is on.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }
}
