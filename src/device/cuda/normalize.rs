//! Images as networks want them, made on the GPU: a stage of whole batches.

use std::sync::Arc;

use super::{
    context::Context,
    error::CudaError,
    gpu::CudaBatch,
    kernel::{Kernels, Normalize},
};
use crate::{
    failure::{Failure, FailureKind},
    loader::stage::{BatchStage, NORMALIZE},
    machine::Work,
};

/// Turns a batch of bytes, `[batch, height, width, 3] u8`, into half floats by channel, `[batch, 3, height, width] f16`, centred and scaled:
/// `(value / 255 − mean) / deviation`. They are the batch's [result](CudaBatch::result), of twice its bytes; the bytes stay as they are.
///
/// ```no_run
/// use towtank::{device::cuda::{CudaDevice, NormalizeStage}, loader::Loader};
///
/// let gpu = CudaDevice::open(0)?;
/// let stage = NormalizeStage::imagenet(gpu.context(), 224, 224)?;
/// for batch in Loader::images("data/train")?.batch(64).device_stage(1, stage).start_on(gpu)? {
///     let batch = batch?;
///     let halves = batch.device().and_then(|memory| memory.result()); // [64, 3, 224, 224] f16, for a kernel of yours
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct NormalizeStage {
    kernels: Kernels,
    pixels: usize,
    scale: [f32; 3],
    offset: [f32; 3],
}

impl NormalizeStage {
    /// For images of so many pixels, with the mean and the standard deviation of each channel over the training set, from 0 to 1.
    ///
    /// # Errors
    ///
    /// When the driver does not take the kernel.
    pub fn new(context: &Arc<Context>, pixels: usize, mean: [f32; 3], deviation: [f32; 3]) -> Result<NormalizeStage, CudaError> {
        let scale = deviation.map(|deviation| 1.0 / (255.0 * deviation));
        let offset = std::array::from_fn(|channel| -mean[channel] / deviation[channel]);
        Ok(NormalizeStage { kernels: Kernels::new(context)?, pixels, scale, offset })
    }

    /// With the means and deviations of ImageNet, which most published weights were trained with.
    ///
    /// # Errors
    ///
    /// As [`new`](NormalizeStage::new).
    pub fn imagenet(context: &Arc<Context>, width: usize, height: usize) -> Result<NormalizeStage, CudaError> {
        NormalizeStage::new(context, width.saturating_mul(height), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    }
}

impl BatchStage<CudaBatch> for NormalizeStage {
    fn name(&self) -> &'static str {
        NORMALIZE
    }

    fn work(&self, samples: usize) -> Work {
        let bytes = samples.saturating_mul(self.pixels).saturating_mul(3);
        Work { kind: NORMALIZE, bytes: bytes as u64, pixels: 0 }
    }

    fn result_bytes(&self) -> usize {
        self.pixels.saturating_mul(6)
    }

    fn run(&self, batch: &mut CudaBatch, samples: usize) -> Result<(), Failure> {
        let (needed, room) = (self.work(samples).bytes, batch.memory().bytes());
        if needed > room as u64 {
            let wrong = format!("{samples} images of {} pixels are {needed} bytes, and the batch has {room}", self.pixels);
            return Err(Failure::new(FailureKind::Device, wrong));
        }
        // Room for a whole batch, since the same memory comes again.
        let stream = batch.stage_stream().clone();
        batch.make(room.saturating_mul(2)).map_err(|error| error.failure())?;
        let Some(result) = batch.result() else { return Ok(()) };
        let work = Normalize { images: samples, pixels: self.pixels, scale: self.scale, offset: self.offset };
        self.kernels.normalize(&stream, batch.memory(), result, work).map_err(|error| error.failure())
    }
}
