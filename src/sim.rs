//! The simulated machine: virtual time, modelled resources, the loader's own code.

mod chooser;
mod config;
mod dataset;
mod distribution;
mod executor;
mod leaf;
mod machine;
mod payload;
mod price;
mod resource;
mod run;
mod stall;
mod timers;
mod wake;
mod world;

pub use chooser::{Chooser, Tape};
pub use config::{Config, CopyBy, CopySpec, Cost, Costs, CpuSpec, Limits, Reader, RequestRate, SchedulerSpec, StoreSpec};
pub use dataset::{Dataset, PixelCount, Size};
pub use distribution::{Distribution, Quantiles};
pub use machine::{SimBatch, SimClock, SimMachine, SimTask};
pub use payload::{Content, SimPayload};
pub use run::{Left, Outcome, Simulation, Tally, run};
pub use stall::{Balance, Depth, Stall, StallReason, Waiting, WaitsFor};
