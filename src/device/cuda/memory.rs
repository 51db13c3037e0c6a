//! Memory on the GPU, and page-locked memory of the host.

use std::{fmt, ptr::NonNull, sync::Arc};

use cudarc::driver::{result, sys};

use super::{
    context::Context,
    error::{Called, CudaError},
};

/// Memory on a GPU.
pub struct DeviceMemory {
    context: Arc<Context>,
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    /// `bytes` bytes of undefined content.
    ///
    /// # Errors
    ///
    /// When the GPU has no such memory left.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<DeviceMemory, CudaError> {
        context.bind()?;
        // SAFETY: nobody reads it before it is written.
        let address = unsafe { result::malloc_sync(bytes.max(1)) }.called("cuMemAlloc")?;
        Ok(DeviceMemory { context: context.clone(), address, bytes })
    }

    /// Where it is on the GPU.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How large it is \[B\].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Copies its first bytes to the host, and waits for that; for tests and examples, since nothing overlaps with it.
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    ///
    /// # Panics
    ///
    /// If `into` is longer than the memory.
    pub fn read(&self, into: &mut [u8]) -> Result<(), CudaError> {
        assert!(into.len() <= self.bytes, "{} bytes of {}", into.len(), self.bytes);
        if into.is_empty() {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: the memory is that large, and the call returns when it has been copied.
        unsafe { result::memcpy_dtoh_sync(into, self.address) }.called("cuMemcpyDtoH")
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let (context, address) = (self.context.clone(), self.address);
        self.context.attendant().carry_out(move || {
            // A driver that refuses is gone, and the memory with it.
            let _ = context.bind();
            // SAFETY: it was allocated in `new`, and nobody has it any more.
            let _ = unsafe { result::free_sync(address) };
        });
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceMemory({:?}, {} B at {:#x})", self.context, self.bytes, self.address)
    }
}

/// Page-locked memory of the host, which a GPU copies from by itself. It is cached as any other, so that the host may read it too.
pub struct Pinned {
    context: Arc<Context>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is memory, and this its only owner.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

/// For every context of the process.
const PORTABLE: u32 = 1;

impl Pinned {
    /// `bytes` bytes of zeros, at least one.
    ///
    /// # Errors
    ///
    /// When so much cannot be locked.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Pinned, CudaError> {
        context.bind()?;
        let bytes = bytes.max(1);
        // SAFETY: it is written before anybody reads it.
        let start = unsafe { result::malloc_host(bytes, PORTABLE) }.called("cuMemHostAlloc")?;
        let null = CudaError::Call { call: "cuMemHostAlloc", code: 0, name: "a null pointer".to_owned(), what: String::new() };
        let start = NonNull::new(start.cast::<u8>()).ok_or(null)?;
        // SAFETY: the driver has just given so many bytes, and nobody else has them.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Pinned { context: context.clone(), start, bytes })
    }

    /// Its first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How large it is \[B\].
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        struct Start(NonNull<u8>);
        // SAFETY: it is memory, and this its only owner.
        unsafe impl Send for Start {}
        let (context, start) = (self.context.clone(), Start(self.start));
        self.context.attendant().carry_out(move || {
            let Start(start) = { start };
            // A driver that refuses is gone; the memory stays until the process ends.
            let _ = context.bind();
            // SAFETY: it was allocated in `new`, and nobody has it any more.
            let _ = unsafe { result::free_host(start.as_ptr().cast()) };
        });
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({:?}, {} B)", self.context, self.bytes)
    }
}
