//! What kind of bytes flow through a loader, orthogonal to whose clock runs.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// What flows: real pixels, or tags that stand for them.
pub trait Payload: 'static {
    /// What the store hands out for one sample.
    type Bytes: Send + 'static;
    /// The cell a slot is made of: `u8` for pixels, one `u64` tag for a phantom sample.
    type Unit: Copy + Default + Send + Sync + PartialEq + fmt::Debug + 'static;

    /// Encoded bytes \[B\].
    fn bytes(encoded: &Self::Bytes) -> u64;
    /// Pixels of the full-size image, 0 when nobody has looked \[px\].
    fn pixels(encoded: &Self::Bytes) -> u64;
    /// Cells needed for a slot that stands for `slot_bytes` bytes.
    fn units(slot_bytes: usize) -> usize;
}

/// Real bytes.
pub struct Pixels;

/// Sizes only: a sample is one tag, its index in the dataset.
pub struct Tags;

/// The encoded bytes of a sample that exists only as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phantom {
    /// Index of the sample in the dataset: the tag written into its slot.
    pub sample: u64,
    /// Encoded bytes \[B\].
    pub bytes: u64,
    /// Pixels of the full-size image \[px\].
    pub pixels: u64,
}

impl Payload for Pixels {
    type Bytes = Encoded;
    type Unit = u8;

    fn bytes(encoded: &Encoded) -> u64 {
        encoded.data.len() as u64
    }
    fn pixels(encoded: &Encoded) -> u64 {
        encoded.pixels
    }
    fn units(slot_bytes: usize) -> usize {
        slot_bytes
    }
}

impl Payload for Tags {
    type Bytes = Phantom;
    type Unit = u64;

    fn bytes(encoded: &Phantom) -> u64 {
        encoded.bytes
    }
    fn pixels(encoded: &Phantom) -> u64 {
        encoded.pixels
    }
    fn units(_slot_bytes: usize) -> usize {
        1
    }
}

/// The encoded bytes of one sample, in a buffer that goes back to its [`Recycler`] when dropped.
pub struct Encoded {
    /// The bytes as the store holds them.
    pub data: Vec<u8>,
    /// Pixels of the full-size image, 0 when nobody has looked \[px\].
    pub pixels: u64,
    home: Option<Recycler>,
}

impl Encoded {
    /// Bytes that belong to no recycler.
    pub fn new(data: Vec<u8>) -> Encoded {
        Encoded { data, pixels: 0, home: None }
    }
}

impl Drop for Encoded {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.give_back(std::mem::take(&mut self.data));
        }
    }
}

/// Buffers for encoded bytes that are used again, so that reading a sample allocates nothing once the buffers have grown.
///
/// It keeps at most `keep_bytes` of idle capacity; what would go beyond is freed.
#[derive(Clone)]
pub struct Recycler {
    inner: Arc<Mutex<Idle>>,
    keep_bytes: usize,
}

#[derive(Default)]
struct Idle {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Recycler {
    /// A recycler without buffers that keeps at most `keep_bytes` idle \[B\].
    pub fn new(keep_bytes: usize) -> Recycler {
        Recycler { inner: Arc::default(), keep_bytes }
    }

    /// An empty buffer, with the capacity its last user left.
    pub fn take(&self) -> Encoded {
        let mut encoded = self.take_used();
        encoded.data.clear();
        encoded
    }

    /// A buffer with whatever its last user left in it, for a reader that overwrites it and need not clear it first.
    pub fn take_used(&self) -> Encoded {
        let mut idle = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let data = idle.buffers.pop().unwrap_or_default();
        idle.bytes -= data.capacity();
        Encoded { data, pixels: 0, home: Some(self.clone()) }
    }

    /// Capacity of the idle buffers \[B\].
    pub fn idle_bytes(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    fn give_back(&self, data: Vec<u8>) {
        let mut idle = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.bytes + data.capacity() <= self.keep_bytes {
            idle.bytes += data.capacity();
            idle.buffers.push(data);
        }
    }
}
