//! Where finished batches go: memory of a device, the copies that fill it, and what stages do to it there.

use crate::{failure::Failure, machine::Slot};

pub mod cuda;
mod done;
mod host;
mod link;
pub mod numa;

pub use done::{CopyDone, KernelDone};
pub use host::HostDevice;

/// What a stage does to a batch on a device: on one that computes by itself it only starts that.
pub type KernelJob<B> = Box<dyn FnOnce(&mut B) -> Result<(), Failure> + Send>;

/// A device whose batches are made of cells `U`.
///
/// The machine calls it from several threads. No method may block for long: a device that copies by itself starts the copy and
/// reports its end later, from whatever thread it likes.
pub trait Device<U>: Send + Sync + 'static {
    /// Memory for one batch.
    type Batch: Send + 'static;

    /// What reports call it.
    fn name(&self) -> String;

    /// Whether the consumer reads slots where they are, so that a contiguous batch needs no copy.
    fn lends_slots(&self) -> bool;

    /// A slab of `count` slots of `units_per_slot` cells each, page-locked where the device wants that. The failure is of kind
    /// [`TooLarge`](crate::failure::FailureKind::TooLarge) or [`Device`](crate::failure::FailureKind::Device) when the memory
    /// cannot be had.
    fn slots(&self, count: usize, units_per_slot: usize) -> Result<Vec<Slot<U>>, Failure>;

    /// Memory for `samples` samples of `units_per_slot` cells each; fails as [`slots`](Device::slots) does.
    fn batch(&self, samples: usize, units_per_slot: usize) -> Result<Self::Batch, Failure>;

    /// Copies the slots one behind the other to `dst`, from cell `at_unit` on, and calls `done` once nobody reads `src` or writes
    /// `dst` any more. It runs on a thread of the machine's pool; a host device copies right here, another one only starts the copy.
    fn copy(&self, src: Vec<Slot<U>>, dst: Self::Batch, at_unit: usize, done: CopyDone<U, Self::Batch>);

    /// Runs `job` on a batch that has been copied, on a thread of the machine's pool, and calls `done` once all that it began is over. A
    /// device that computes by itself waits for that elsewhere; on any other it is over when the job returns.
    fn kernel(&self, mut batch: Self::Batch, job: KernelJob<Self::Batch>, done: KernelDone<Self::Batch>) {
        match job(&mut batch) {
            Ok(()) => done.complete(batch),
            Err(failure) => done.fail(failure),
        }
    }
}
