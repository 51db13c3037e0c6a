//! Memory that a decoding thread keeps from image to image.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{resize::Resizer, turbo};

/// Bytes a thread keeps at most between two images: a frame of 21 Mpx. More is freed at once, so that one huge image does not
/// stay in memory as often as there are threads.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Bytes held by the scratches of all threads, and the most they ever were.
static HELD_BYTES: AtomicU64 = AtomicU64::new(0);
static PEAK_BYTES: AtomicU64 = AtomicU64::new(0);

/// Full-size frame, the small image before it is turned, the resizer's tables and libjpeg-turbo's handle.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) frame: Vec<u8>,
    pub(crate) turned: Vec<u8>,
    pub(crate) resizer: Resizer,
    pub(crate) turbo: Option<turbo::Handle>,
    /// What this scratch has added to `HELD_BYTES`.
    counted: u64,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Scratch {
    /// Runs `work` with this thread's scratch, then counts what it holds and returns that too \[B\].
    pub(crate) fn with<R>(work: impl FnOnce(&mut Scratch) -> R) -> (R, u64) {
        SCRATCH.with_borrow_mut(|scratch| {
            let result = work(scratch);
            let bytes = scratch.bytes();
            scratch.count(bytes);
            if scratch.frame.capacity() > KEPT_BYTES_MAX {
                scratch.frame = Vec::new();
                scratch.count(scratch.bytes());
            }
            (result, bytes)
        })
    }

    fn bytes(&self) -> u64 {
        (self.frame.capacity() + self.turned.capacity() + self.resizer.bytes()) as u64
    }

    fn count(&mut self, bytes: u64) {
        if bytes == self.counted {
            return;
        }
        // Both terms wrap, so that shrinking is an addition too.
        let change = bytes.wrapping_sub(self.counted);
        let held = HELD_BYTES.fetch_add(change, Relaxed).wrapping_add(change);
        PEAK_BYTES.fetch_max(held, Relaxed);
        self.counted = bytes;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.count(0);
    }
}

/// Makes `buffer` at least `bytes` long. Only what is added is set to zero, and it never shrinks.
pub(crate) fn grow(buffer: &mut Vec<u8>, bytes: usize) {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
}

/// Bytes that decoding threads of this process hold as scratch now: `(now, peak)` \[B\].
///
/// What the decoders allocate inside themselves and free after each image is not part of it.
pub fn scratch_bytes() -> (u64, u64) {
    (HELD_BYTES.load(Relaxed), PEAK_BYTES.load(Relaxed))
}
