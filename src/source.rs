//! Where samples come from on the real machine: blocking reads of encoded bytes into buffers that are used again.
//!
//! A source knows nothing of threads. The real machine calls [`Source::try_read`] on a thread of its pool, where a read must not
//! wait for a device, and hands what would have to wait to [`Source::read`] on a thread that may.

//!
//! A source that waits for a network has no thread for each read: it names the runtime on which its reads wait, [`Source::io`], and the
//! machine has [`Source::fetch`] run there.

use std::{future::Future, pin::Pin};

use tokio::runtime::Handle;

use crate::failure::Failure;

mod folder;
mod listing;
mod memory;
#[cfg(feature = "remote")]
mod remote;
mod shared;

pub use folder::Folder;
pub use listing::FolderError;
pub use memory::Memory;
#[cfg(feature = "remote")]
pub use remote::{Remote, RemoteError};

/// A read that is under way on a runtime; see [`Source::fetch`].
pub type Fetching<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// A dataset of encoded samples that any thread may read.
pub trait Source: Send + Sync + 'static {
    /// Number of samples; their indices are `0..len`.
    fn len(&self) -> u64;

    /// Whether there is no sample at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most encoded bytes that a read of this sample delivers, when known \[B\]. A sample that turns out larger is a
    /// [`Truncated`](crate::failure::FailureKind::Truncated) or [`Corrupt`](crate::failure::FailureKind::Corrupt) failure of its
    /// read, never more bytes.
    fn bytes_bound(&self, sample: u64) -> Option<u64>;

    /// What messages call this sample, such as its path.
    fn name(&self, sample: u64) -> String;

    /// Reads the whole sample into `into`, in the place of whatever an earlier use left there; it may wait for a device. After an
    /// error the content of `into` is unspecified.
    ///
    /// `wanted` turns false when nobody waits for the answer any more. A source that reads in pieces asks between them and then
    /// returns early with any failure at all.
    fn read(&self, sample: u64, into: &mut Vec<u8>, wanted: &dyn Fn() -> bool) -> Result<(), Failure>;

    /// Reads the sample if that needs no waiting for a device; `false` says that it would, and that the caller shall
    /// [`read`](Source::read) on a thread that may wait. Sources that never wait leave this as it is.
    fn try_read(&self, sample: u64, into: &mut Vec<u8>) -> Result<bool, Failure> {
        self.read(sample, into, &|| true).map(|()| true)
    }

    /// The runtime on which reads of this source wait, many to a thread. `None`, as here, for a source whose reads each occupy the thread
    /// they wait on.
    fn io(&self) -> Option<&Handle> {
        None
    }

    /// The same as [`read`](Source::read) for a task of [`io`](Source::io)'s runtime. Dropping the future aborts the read.
    fn fetch<'a>(&'a self, sample: u64, into: &'a mut Vec<u8>) -> Fetching<'a> {
        Box::pin(async move { self.read(sample, into, &|| true) })
    }
}
