//! Models of machines: what things cost, and how sure that is.
//!
//! A [`MachineModel`] is a machine as numbers: its cores, what its scheduler, its stores and its device do, and what CPU jobs cost
//! as `(a + b·bytes + c·pixels) · residual`. Every number is a [`Measured`]: a value with its unit, where it comes from and how far it
//! may be off. Models are TOML files; two are part of the program ([`NAMES`]), calibration writes others.
//!
//! ```
//! use towtank::model;
//!
//! let machine = model::load("reference-2core")?;
//! let decode = &machine.costs["decode"];
//! assert!(decode.mean_ns(114_660.0, 181_503.0) > 500_000.0);
//! let written = machine.to_toml();
//! assert_eq!(model::parse("written.toml", &written)?, machine);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod calibrate;
mod cost;
mod dataset;
mod drawn;
pub mod fit;
mod load;
mod lock;
mod machine;
mod measured;
mod process;
mod simulate;
mod store;
mod write;

pub use cost::{Cost, KernelCost, Residual};
pub use dataset::{DatasetModel, PixelModel, Ratio};
pub use load::{DATASETS, NAMES, cache_file, dataset_schema, load, load_dataset, parse, schema};
pub(crate) use load::{looks_like_a_path, read_file};
pub use lock::Lock;
pub use machine::{CopiedBy, Cpu, Device, DeviceKind, Links, MachineModel, Scheduler, Slowed, Speed};
pub use measured::Measured;
pub use process::Process;
pub use store::{Latency, QuantilePoint, Reader, Store};
