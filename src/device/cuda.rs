//! NVIDIA's GPUs, through the driver's interface.
//!
//! The driver's library is opened at run time, so the same program builds and runs where there is none; then [`CudaDevice::open`] says so.
//! [`CudaDevice`] is the [`Device`](super::Device) of a loader: its slots lie in page-locked memory, its batches on the GPU, and its copies
//! go on a stream of their own beside the consumer's kernels.
//!
//! ```text
//!  pool's thread      copy ──► wait for the batch's last readers ─ memcpy of each run ─ event `copied` ─ host function ─┐
//!  copy stream                 ────────────────────────────────────────────────────────────────────►                  │
//!  scheduler          ◄── slots and batch come back ────────────────────────────────────────────────────────────────────┘
//!  consumer's stream  wait for `copied` ─ kernels that read the batch ─ event `read`
//! ```
//!
//! Two things keep a batch whole, and both are waits on the GPU, not on the host: the consumer's stream waits for the copy
//! ([`CudaBatch::wait_on`]), and the copy that fills the batch again waits for those who read it ([`CudaBatch::release_on`], or what the
//! consumer's stream had to do by then). A slot comes back when the driver has called the host function that stands behind its copy.
//!
//! A [stage](crate::loader::stage::BatchStage) on whole batches, such as [`NormalizeStage`], has a stream of its own. It waits there for the
//! batch's copy, a thread of the pool puts its kernels behind that, and a host function tells when they are done:
//!
//! ```text
//!  pool's thread      stage ──► wait for `copied` ─ kernels ─ event `staged` ─ host function ─┐
//!  stage stream                 ────────────────────────────────────────────►               │
//!  scheduler          ◄── batch comes back ────────────────────────────────────────────────────┘
//!  consumer's stream  wait for `copied` and `staged` ─ kernels that read what was made ─ event `read`
//! ```
//!
//! What it [makes](CudaBatch::make) beside the batch stays with it, for the consumer to [read](CudaBatch::result), and is written again only
//! behind the next copy, which waits for those who read.
//!
//! A driver that fails calls no host functions any more, so an attendant looks at both streams from time to time and reports what will
//! never be told of: nothing hangs.

mod attendant;
mod context;
mod error;
mod gpu;
mod kernel;
mod memory;
mod normalize;
mod stream;
mod transfer;
mod underway;

pub use context::Context;
pub use error::CudaError;
pub use gpu::{CudaBatch, CudaDevice, HostMemory, Options};
pub use kernel::{Kernels, Normalize, TrainStep};
pub use memory::{DeviceMemory, Pinned};
pub use normalize::NormalizeStage;
pub use stream::{Event, Stream};
pub use transfer::{Transfer, Way};
