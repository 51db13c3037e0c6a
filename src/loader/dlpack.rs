//! Batches for other libraries, by DLPack: NumPy, PyTorch, JAX and CuPy read them where they lie.
//!
//! A [`Tensor`] owns its batch. Whoever takes it over calls its deleter when nobody reads it any more, on any thread; only then do the
//! batch's slots, or its memory on the device, go back to the loader. So a consumer that keeps tensors keeps batches: see
//! [`held`](super::Settings::held).
//!
//! The structures are those of DLPack 0.x, which every library takes: <https://dmlc.github.io/dlpack/latest/c_api.html>.

use std::{
    ffi::c_void,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
};

use super::batch::Batch;
use crate::device::cuda::{CudaBatch, DeviceMemory};

/// Where a tensor is: `kDLCPU` is 1, `kDLCUDA` is 2.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// What kind of device.
    pub kind: i32,
    /// Which one of them, from 0.
    pub number: i32,
}

impl Device {
    /// The host.
    pub const HOST: Device = Device { kind: 1, number: 0 };

    /// A GPU of NVIDIA's.
    pub fn cuda(ordinal: usize) -> Device {
        Device { kind: 2, number: i32::try_from(ordinal).unwrap_or(i32::MAX) }
    }
}

/// What a tensor's cells are: `kDLInt` is 0, `kDLUInt` 1, `kDLFloat` 2.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType {
    /// What kind of number.
    pub code: u8,
    /// Its width.
    pub bits: u8,
    /// 1.
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct Plain {
    /// The first cell; null when there is none.
    pub data: *mut c_void,
    /// Where it is.
    pub device: Device,
    /// Dimensions.
    pub dimensions: i32,
    /// What the cells are.
    pub data_type: DataType,
    /// Length of each dimension.
    pub shape: *mut i64,
    /// Cells from one index to the next in each dimension.
    pub strides: *mut i64,
    /// 0.
    pub byte_offset: u64,
}

/// `DLManagedTensor`, which PyTorch and NumPy take in a capsule named `dltensor`.
#[repr(C)]
#[derive(Debug)]
pub struct Managed {
    /// The tensor.
    pub tensor: Plain,
    /// What keeps it.
    pub context: *mut c_void,
    /// Gives it back; called once.
    pub deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

impl DataType {
    /// Half floats, IEEE binary16.
    pub const F16: DataType = DataType { code: 2, bits: 16, lanes: 1 };
}

/// A cell that DLPack has a name for.
pub trait Cell: Copy + Send + Sync + 'static {
    /// Its name.
    const TYPE: DataType;
}

macro_rules! cells {
    ($($cell:ty: $code:literal),*) => {
        $(impl Cell for $cell {
            const TYPE: DataType = DataType { code: $code, bits: 8 * size_of::<$cell>() as u8, lanes: 1 };
        })*
    };
}

cells!(i8: 0, i16: 0, i32: 0, i64: 0, u8: 1, u16: 1, u32: 1, u64: 1, f32: 2, f64: 2);

/// Memory of a device whose address others may know.
pub trait Addressed {
    /// Its first cell, and where that is.
    fn address(&self) -> (*mut c_void, Device);
}

impl<U> Addressed for Vec<U> {
    fn address(&self) -> (*mut c_void, Device) {
        (self.as_ptr().cast_mut().cast(), Device::HOST)
    }
}

impl Addressed for CudaBatch {
    fn address(&self) -> (*mut c_void, Device) {
        address_of(self.memory())
    }
}

fn address_of(memory: &DeviceMemory) -> (*mut c_void, Device) {
    (memory.address() as *mut c_void, Device::cuda(memory.context().ordinal()))
}

/// Why a batch is no tensor of a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// A sample has another number of cells.
    #[error("a sample has {cells} cells, and a shape of {shape:?} needs another number")]
    Cells {
        /// How many.
        cells: usize,
        /// What was asked for.
        shape: Vec<usize>,
    },
    /// A stage has made less of the batch.
    #[error("{samples} samples of shape {shape:?} are more than the {bytes} bytes that a stage has made of the batch")]
    Result {
        /// Samples of the batch.
        samples: usize,
        /// What was asked for.
        shape: Vec<usize>,
        /// Bytes; 0 where no stage has made anything beside it.
        bytes: usize,
    },
}

/// A batch as a tensor. Dropped, it gives the batch back.
pub struct Tensor(NonNull<Managed>);

// SAFETY: it owns a batch, which is `Send`; whoever has it is the only one.
unsafe impl Send for Tensor {}

/// What a tensor's context points to.
struct Kept<B> {
    managed: Managed,
    shape: Vec<i64>,
    strides: Vec<i64>,
    batch: B,
}

impl<D: Addressed + Send + 'static, U: Cell> Batch<D, U> {
    /// The batch as a tensor of shape `[samples, sample…]`, such as `[64, 224, 224, 3]` for `[224, 224, 3]`. Nothing is copied.
    ///
    /// A batch on a GPU is there when it is handed over. A consumer that reads it on a stream says so before
    /// ([`CudaBatch::wait_on`]), so that the next copy into its memory waits for what is on that stream when the tensor is given back.
    ///
    /// # Errors
    ///
    /// When a sample has another number of cells.
    pub fn into_dlpack(self, sample: &[usize]) -> Result<Tensor, ShapeError> {
        let cells = sample.iter().try_fold(1_usize, |all, length| all.checked_mul(*length));
        if cells != Some(self.units_per_sample()) {
            return Err(ShapeError::Cells { cells: self.units_per_sample(), shape: sample.to_vec() });
        }
        let (data, device) = match self.lent_cells() {
            Some(cells) => (cells.as_ptr().cast_mut().cast(), Device::HOST),
            None => self.device().map_or((std::ptr::null_mut(), Device::HOST), Addressed::address),
        };
        Ok(self.into_tensor(data, device, U::TYPE, sample))
    }
}

impl<U: Send + 'static> Batch<CudaBatch, U> {
    /// What a [stage](super::stage::BatchStage) on the GPU has [made](CudaBatch::result) of the batch as a tensor of shape
    /// `[samples, sample…]`, such as `[64, 3, 224, 224]` half floats for `[3, 224, 224]`. Nothing is copied; all else is as with
    /// [`into_dlpack`](Batch::into_dlpack), and the batch goes back with the tensor.
    ///
    /// # Errors
    ///
    /// When no stage has made so much.
    pub fn result_into_dlpack(self, data_type: DataType, sample: &[usize]) -> Result<Tensor, ShapeError> {
        let result = self.device().and_then(CudaBatch::result);
        let bytes = result.map_or(0, DeviceMemory::bytes);
        let bits = usize::from(data_type.bits).checked_mul(usize::from(data_type.lanes));
        let all = sample.iter().fold(bits, |all, length| all.and_then(|all| all.checked_mul(*length)));
        let needed = all.and_then(|bits| bits.checked_mul(self.len())).map(|bits| bits.div_ceil(8));
        let (data, device) = match result {
            Some(result) if needed.is_some_and(|needed| needed <= bytes) => address_of(result),
            None if self.is_empty() => (std::ptr::null_mut(), Device::HOST),
            _ => return Err(ShapeError::Result { samples: self.len(), shape: sample.to_vec(), bytes }),
        };
        Ok(self.into_tensor(data, device, data_type, sample))
    }
}

impl<D: Send + 'static, U: Send + 'static> Batch<D, U> {
    /// A tensor over memory that lasts as long as the batch.
    fn into_tensor(self, data: *mut c_void, device: Device, data_type: DataType, sample: &[usize]) -> Tensor {
        let shape: Vec<i64> = std::iter::once(self.len()).chain(sample.iter().copied()).map(|length| length as i64).collect();
        let mut strides = vec![1; shape.len()];
        for at in (1..shape.len()).rev() {
            strides[at - 1] = strides[at] * shape[at];
        }
        let tensor = Plain {
            data,
            device,
            dimensions: shape.len() as i32,
            data_type,
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let managed = Managed { tensor, context: std::ptr::null_mut(), deleter: Some(give_back::<Batch<D, U>>) };
        let kept = Box::into_raw(Box::new(Kept { managed, shape, strides, batch: self }));
        // SAFETY: it was just made, and nobody else has it.
        unsafe {
            (*kept).managed.context = kept.cast();
            (*kept).managed.tensor.shape = (*kept).shape.as_mut_ptr();
            (*kept).managed.tensor.strides = (*kept).strides.as_mut_ptr();
            Tensor(NonNull::new_unchecked(&raw mut (*kept).managed))
        }
    }
}

/// The deleter of a tensor that keeps a `B`.
unsafe extern "C" fn give_back<B>(managed: *mut Managed) {
    if managed.is_null() {
        return;
    }
    // SAFETY: the context is what `into_dlpack` made of a box, and a deleter is called once.
    let kept = unsafe { Box::from_raw((*managed).context.cast::<Kept<B>>()) };
    // It must not unwind into another language; a batch that cannot go back is lost, and the loader says so.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let Kept { batch, .. } = *kept;
        drop(batch);
    }));
}

impl Tensor {
    /// Hands it over: the deleter must be called, once.
    pub fn into_raw(self) -> *mut Managed {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }

    /// Takes it back.
    ///
    /// # Safety
    ///
    /// `raw` came from [`into_raw`](Tensor::into_raw), or is some other library's, and its deleter has not been called.
    pub unsafe fn from_raw(raw: NonNull<Managed>) -> Tensor {
        Tensor(raw)
    }

    /// What it is.
    pub fn plain(&self) -> &Plain {
        // SAFETY: it is alive as long as this.
        unsafe { &self.0.as_ref().tensor }
    }

    /// Length of each dimension.
    pub fn shape(&self) -> &[i64] {
        let plain = self.plain();
        // SAFETY: there are so many lengths.
        unsafe { std::slice::from_raw_parts(plain.shape, usize::try_from(plain.dimensions).unwrap_or(0)) }
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: nobody else has it, and nobody has called its deleter.
        unsafe {
            if let Some(deleter) = self.0.as_ref().deleter {
                deleter(self.0.as_ptr());
            }
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor").field("shape", &self.shape()).field("device", &self.plain().device).finish_non_exhaustive()
    }
}
