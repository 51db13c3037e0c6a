//! One GPU as this process sees it.

use std::{
    ffi::{CStr, c_char, c_int},
    fmt,
    sync::Arc,
};

use cudarc::driver::{result, sys};

use super::{
    attendant::Attendant,
    error::{Called, CudaError},
};

/// The primary context of a GPU, which it shares with every other library of the process, and the thread that looks after it.
pub struct Context {
    ordinal: usize,
    device: sys::CUdevice,
    raw: sys::CUcontext,
    attendant: Attendant,
}

// SAFETY: a context may be used from any thread that has bound it; the driver locks what it must.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Wakes the driver up; how many GPUs it knows.
///
/// # Errors
///
/// When there is no driver, or it has no GPU to offer.
pub(super) fn count() -> Result<usize, CudaError> {
    // SAFETY: opening the driver's library runs its initialisers, as every program does that uses CUDA.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoDriver);
    }
    result::init().called("cuInit")?;
    result::device::get_count().called("cuDeviceGetCount").map(|count| count.max(0) as usize)
}

impl Context {
    /// The context of GPU number `ordinal`, from 0.
    ///
    /// # Errors
    ///
    /// When there is no driver or no such GPU, or the driver refuses.
    pub fn open(ordinal: usize) -> Result<Arc<Context>, CudaError> {
        let count = count()?;
        let none = CudaError::NoDevice { ordinal, count };
        let number = c_int::try_from(ordinal).ok().filter(|_| ordinal < count).ok_or(none)?;
        let device = result::device::get(number).called("cuDeviceGet")?;
        let attendant = Attendant::start(ordinal)?;
        // SAFETY: the device comes from `cuDeviceGet`.
        let raw = unsafe { result::primary_ctx::retain(device) }.called("cuDevicePrimaryCtxRetain")?;
        let context = Arc::new(Context { ordinal, device, raw, attendant });
        context.bind()?;
        Ok(context)
    }

    /// Which GPU, from 0.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// What the driver calls the GPU.
    ///
    /// # Errors
    ///
    /// When the driver does not tell.
    pub fn name(&self) -> Result<String, CudaError> {
        result::device::get_name(self.device).called("cuDeviceGetName")
    }

    /// Streaming multiprocessors.
    ///
    /// # Errors
    ///
    /// When the driver does not tell.
    pub fn multiprocessors(&self) -> Result<u32, CudaError> {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        // SAFETY: the device comes from `cuDeviceGet`.
        let count = unsafe { result::device::get_attribute(self.device, attribute) }.called("cuDeviceGetAttribute")?;
        Ok(count.max(1) as u32)
    }

    /// Where the GPU is on the PCI bus, as `0000:3b:00.0`.
    ///
    /// # Errors
    ///
    /// When the driver does not tell.
    pub fn pci_bus_id(&self) -> Result<String, CudaError> {
        let mut name = [0 as c_char; 32];
        // SAFETY: the driver writes at most so many characters, the closing zero among them.
        unsafe { sys::cuDeviceGetPCIBusId(name.as_mut_ptr(), name.len() as c_int, self.device) }.called("cuDeviceGetPCIBusId")?;
        name[name.len() - 1] = 0;
        // SAFETY: the array ends with a zero.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().to_ascii_lowercase())
    }

    /// Makes it the context of this thread, as most calls want.
    pub(super) fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context is retained.
        unsafe { result::ctx::set_current(self.raw) }.called("cuCtxSetCurrent")
    }

    pub(super) fn attendant(&self) -> &Attendant {
        &self.attendant
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let device = self.device;
        // What is left to be freed keeps the context alive, so there is nothing left. The last of it may go in a host function.
        self.attendant.carry_out(move || {
            // SAFETY: it was retained in `open`, once. A driver that is shutting down refuses, and has freed it.
            let _ = unsafe { result::primary_ctx::release(device) };
        });
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{}", self.ordinal)
    }
}
