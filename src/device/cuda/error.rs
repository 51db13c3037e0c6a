//! What the driver refuses.

use std::ffi::CStr;

use cudarc::driver::{result::DriverError, sys};

use crate::failure::{Failure, FailureKind};

/// Why a GPU cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// There is no driver.
    #[error("this computer has no CUDA driver: `libcuda.so` is not where the system looks for libraries")]
    NoDriver,
    /// There are fewer GPUs.
    #[error("there is no GPU number {ordinal}: the driver knows {count}, counted from 0")]
    NoDevice {
        /// Which one was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// A call failed.
    #[error("{call} failed: {name} ({code}){}", if what.is_empty() { String::new() } else { format!(", {what}") })]
    Call {
        /// The driver's function.
        call: &'static str,
        /// `CUresult`.
        code: u32,
        /// Its name, such as `CUDA_ERROR_OUT_OF_MEMORY`.
        name: String,
        /// What the driver says of it.
        what: String,
    },
    /// A thread could not be started.
    #[error("cannot start the thread that looks after a GPU: {0}")]
    Thread(String),
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

impl CudaError {
    pub(super) fn of(call: &'static str, error: DriverError) -> CudaError {
        let words = |text: Result<&CStr, DriverError>| text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
        let (name, what) = (words(error.error_name()), words(error.error_string()));
        CudaError::Call { call, code: error.0 as u32, name, what }
    }

    /// The same as the failure of a leaf: [`TooLarge`](FailureKind::TooLarge) when memory is short, else
    /// [`Device`](FailureKind::Device).
    pub fn failure(&self) -> Failure {
        let kind = match self {
            CudaError::Call { code: OUT_OF_MEMORY, .. } => FailureKind::TooLarge,
            _ => FailureKind::Device,
        };
        Failure::new(kind, self.to_string())
    }
}

/// Names the call that failed.
pub(super) trait Called<T> {
    fn called(self, call: &'static str) -> Result<T, CudaError>;
}

impl<T> Called<T> for Result<T, DriverError> {
    fn called(self, call: &'static str) -> Result<T, CudaError> {
        self.map_err(|error| CudaError::of(call, error))
    }
}

impl Called<()> for sys::CUresult {
    fn called(self, call: &'static str) -> Result<(), CudaError> {
        self.result().called(call)
    }
}
