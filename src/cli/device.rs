//! `--device`: where batches go.

use std::str::FromStr;

use towtank::{
    device::cuda::{CudaDevice, CudaError, HostMemory, Options},
    document::Diagnostic,
    scenario::Gpus,
};

use super::{Ending, args::DeviceArgs};

/// What was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// The host.
    Host,
    /// GPUs; all of them without a number.
    Cuda { ordinal: Option<usize>, memory: HostMemory },
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        let wrong = || format!("`{text}` is no device: `host`, `cuda:0`, `cuda:all`, or one of the latter with `,pageable`");
        if text == "host" {
            return Ok(DeviceChoice::Host);
        }
        let (which, memory) = match text.split_once(',') {
            None => (text, HostMemory::Pinned),
            Some((which, "pinned")) => (which, HostMemory::Pinned),
            Some((which, "pageable")) => (which, HostMemory::Pageable),
            Some(_) => return Err(wrong()),
        };
        match which.strip_prefix("cuda") {
            Some("") => Ok(DeviceChoice::Cuda { ordinal: Some(0), memory }),
            Some(":all") => Ok(DeviceChoice::Cuda { ordinal: None, memory }),
            Some(number) => {
                let ordinal = number.strip_prefix(':').and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
                Ok(DeviceChoice::Cuda { ordinal: Some(ordinal), memory })
            }
            None => Err(wrong()),
        }
    }
}

impl DeviceChoice {
    /// The GPUs; `None` for the host.
    pub(super) fn open(self) -> Result<Option<Vec<CudaDevice>>, Ending> {
        let DeviceChoice::Cuda { ordinal, memory } = self else { return Ok(None) };
        let open = || {
            let which = match ordinal {
                Some(ordinal) => ordinal..ordinal.saturating_add(1),
                None => 0..CudaDevice::count()?.max(1),
            };
            which.map(|ordinal| CudaDevice::with(Options { ordinal, host: memory })).collect::<Result<Vec<_>, CudaError>>()
        };
        open().map(Some).map_err(|error| {
            let hint = match &error {
                CudaError::NoDriver => "the driver of NVIDIA's GPUs brings it; `--device host` needs none",
                CudaError::NoDevice { .. } => "`--device cuda:all` takes all that there are",
                CudaError::Call { name, .. } if is_out_of_memory(name) => OUT_OF_MEMORY,
                _ => "`nvidia-smi` says whether the driver is well; `--device host` needs none",
            };
            Diagnostic::new(format!("`--device`: {error}")).hint(hint).into()
        })
    }
}

/// What helps where a GPU's memory is full.
pub(super) const OUT_OF_MEMORY: &str = "a smaller `loader.batch`, `loader.prefetch` or `loader.size` takes less of a GPU's memory; `nvidia-smi` \
                                        names other processes that have some of it";

/// Whether these words are of a GPU, or of memory for it, that is full.
pub(super) fn is_out_of_memory(words: &str) -> bool {
    words.contains("CUDA_ERROR_OUT_OF_MEMORY")
}

impl DeviceArgs {
    /// What ranks train on; `None` for the host.
    pub(super) fn open(&self) -> Result<Option<Gpus>, Ending> {
        if let (DeviceChoice::Host, Some(share)) = (self.device, self.gpu_share) {
            let wrong =
                Diagnostic::new(format!("`--gpu-share {share}` has no meaning on the host, where a train step is a wait"));
            return Err(wrong.hint("`--device cuda:0` has a GPU train; leave `--gpu-share` out without one").into());
        }
        let share = f64::from(self.gpu_share.unwrap_or(100)) / 100.0;
        Ok(self.device.open()?.map(|devices| Gpus { devices, share }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_everywhere() {
        let cuda = |ordinal, memory| Ok(DeviceChoice::Cuda { ordinal, memory });
        assert_eq!("host".parse(), Ok(DeviceChoice::Host));
        assert_eq!("cuda".parse(), cuda(Some(0), HostMemory::Pinned));
        assert_eq!("cuda:3".parse(), cuda(Some(3), HostMemory::Pinned));
        assert_eq!("cuda:all,pageable".parse(), cuda(None, HostMemory::Pageable));
        assert_eq!("cuda:1,pinned".parse(), cuda(Some(1), HostMemory::Pinned));
        for wrong in
            ["", "gpu", "cuda:", "cuda:x", "cuda3", "cuda:-1", "cuda:0,fast", "host,pageable", "cuda:99999999999999999999"]
        {
            let error = wrong.parse::<DeviceChoice>().expect_err(wrong);
            assert!(error.contains("`cuda:all`"), "{error}");
        }
    }
}
