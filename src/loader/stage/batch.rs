//! A step of a whole batch on the device.

use crate::{failure::Failure, machine::Work};

/// The kind of [`Work`] that brings a batch of bytes by pixel to half floats by channel, centred and scaled.
pub const NORMALIZE: &str = "normalize";

/// A step of a whole batch on the device, between its copy and the consumer, on machines whose batches are `B`: a
/// [leaf](crate::machine::Machine::kernel) with the device's concurrency, which takes none of the processor's. Several batches may be in it
/// at once; the consumer gets them in order all the same.
///
/// A stage that fails, or panics, ends the loader, as a copy that fails does: the batch's memory is gone with it.
pub trait BatchStage<B>: Send + Sync + 'static {
    /// What stall reports call it.
    fn name(&self) -> &'static str;

    /// What a batch of so many samples will cost, as the simulated machine prices it.
    fn work(&self, samples: usize) -> Work;

    /// Bytes that it makes of each sample in memory of its own beside the batch, which the loader's budget pays for every batch on the
    /// device; 0 for one that works in place.
    fn result_bytes(&self) -> usize {
        0
    }

    /// Does it to the first `samples` samples of the batch, or starts what does it on the device. The batch is handed on when all of that is
    /// over. What it makes beside the batch it keeps with it: the batch comes again.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    fn run(&self, batch: &mut B, samples: usize) -> Result<(), Failure>;
}

/// A stage that is nothing but its cost, for batches that exist only as numbers.
#[derive(Clone, Copy, Debug)]
pub struct Priced {
    /// Which cost of the machine's model, and what it is called.
    pub kind: &'static str,
    /// Bytes of a sample of the batch.
    pub slot_bytes: u64,
    /// Bytes that it would make of a sample.
    pub result_bytes: usize,
}

impl<B> BatchStage<B> for Priced {
    fn name(&self) -> &'static str {
        self.kind
    }

    fn work(&self, samples: usize) -> Work {
        Work { kind: self.kind, bytes: (samples as u64).saturating_mul(self.slot_bytes), pixels: 0 }
    }

    fn result_bytes(&self) -> usize {
        self.result_bytes
    }

    fn run(&self, _: &mut B, _: usize) -> Result<(), Failure> {
        Ok(())
    }
}
