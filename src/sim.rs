//! The simulated machine: virtual time, modelled resources, the loader's own code.

mod chooser;
mod config;
mod dataset;
mod distribution;

pub use chooser::{Chooser, Tape};
pub use config::{Config, CopyBy, CopySpec, Cost, Costs, CpuSpec, Limits, Reader, RequestRate, SchedulerSpec, StoreSpec};
pub use dataset::{Dataset, PixelCount, Size};
pub use distribution::{Distribution, Quantiles};
