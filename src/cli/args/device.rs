//! On which device a run trains.

use clap::Args;

use crate::cli::device::DeviceChoice;

/// Where batches go.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Where batches go and what trains on them: `host`, one GPU as `cuda:0`, `cuda` for short, or all as `cuda:all`, a rank on each
    /// in turn; `cuda:0,pageable` copies out of memory that is not page-locked
    #[arg(long, value_name = "DEVICE", default_value = "host")]
    pub(crate) device: DeviceChoice,

    /// How much of a GPU's multiprocessors a train step occupies, in percent; 100 when left out
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) gpu_share: Option<u8>,
}
