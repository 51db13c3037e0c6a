//! The simulated machine: virtual time, modelled resources, the loader's own code.
//!
//! A [`Simulation`] runs a root task, and whatever it spawns, on a [`SimMachine`] described by a [`Config`]: whole numbers with their
//! units, from a file of `models/` or made up by a test. The clock is a count of nanoseconds that moves only when no task can
//! run, straight to the next thing that happens; so an hour of loading takes as long as its events take to count, and the same
//! configuration gives the same trace, bit for bit, on any computer and in any build.
//!
//! ```
//! use towtank::{
//!     machine::{Item, Machine, Op, Work},
//!     sim::{Config, Cost, Costs, CpuSpec, Dataset, Size, run},
//!     trace::{Recorder, StageId},
//! };
//!
//! // Two cores, two threads, and a job that takes 3 ms.
//! let config = Config {
//!     cpu: CpuSpec { cores: 2, speed_ppm: vec![] },
//!     pool_threads: 2,
//!     costs: Costs::new().with("decode", Cost::fixed(3_000_000)),
//!     dataset: Dataset::uniform(100, Size { bytes: 114_660, pixels: 181_503 }),
//!     ..Config::default()
//! };
//! let outcome = run(config, Recorder::new(), |machine| async move {
//!     let op = |stage| Op { stage, item: Item { sample: 7, ..Item::default() }, ..Op::default() };
//!     let bytes = machine.read(op(StageId::FETCH)).await?;
//!     let work = Work { kind: "decode", bytes: bytes.bytes, pixels: bytes.pixels };
//!     machine.cpu(op(StageId::DECODE), work, move || bytes.sample).await
//! })
//! .expect("everything ends");
//! assert_eq!(outcome.value, Ok(7));
//! assert_eq!((outcome.end.0, outcome.cpu_ns), (3_000_000, 3_000_000));
//! ```
//!
//! # What is modelled
//!
//! | part | how | where |
//! | --- | --- | --- |
//! | cores | one run queue for every thread that can run, shared equally; slower when more cores are busy | [`CpuSpec`], [`Smt`] |
//! | pool | so many threads, first come first served; an idle one takes time to wake up | [`Config::pool_threads`] |
//! | scheduler | a thread that sleeps, is woken lazily, and handles completions in bursts | [`SchedulerSpec`] |
//! | store | request rate, connections, first byte, shared link, CPU time | [`StoreSpec`] |
//! | disk | queue depth, blocks, requests that wait, a turning platter, files in the page cache | [`DiskSpec`] |
//! | a lock | held for parts of jobs, by one at a time, in turns: a GIL | [`LockSpec`] |
//! | copies | engines of the device, or threads; links that devices share | [`CopySpec`], [`PcieSpec`] |
//! | kernels | stages on a batch on the device: so many at a time on each, `a + b·bytes`; train steps do not feel them | [`KernelSpec`] |
//! | train steps | slowed down while threads of the host are busy | [`GpuSpec`] |
//! | processes | started one after the other, each a thread of its own; messages that cost both ends | [`SimPipe`], [`ProcessSpec`] |
//! | ranks | a barrier that all of them pass together | [`SimBarrier`] |
//! | sizes and costs | tables of quantiles; `a + b·bytes + c·pixels` and a residual | [`Dataset`], [`Cost`] |
//! | what goes wrong | failures, stalls, slowness, panics | [`Faults`](crate::fault::Faults) |
//!
//! Each is held against an exact result of queueing theory, see `tests/sim/references.rs`.
//!
//! # Order
//!
//! When more than one thing may happen at the same instant, a [`Chooser`] decides: first come first served, or by chance, or as a
//! [`Tape`] says. Whatever chance does can be written to a tape and is then the same run again.
//!
//! In [abstract time](Timing::Abstract) nothing takes any, and the chooser decides which of all that is under way ends next: by
//! [priorities](Chooser::Pct), or all orders one after the other, with an [`Enumeration`].
//!
//! # When it does not end
//!
//! A simulation in which nothing can happen any more, or which reaches one of its [`Limits`], ends in a [`Stall`]: who was waiting for
//! what, and what every resource was doing.

mod chooser;
mod config;
mod dataset;
mod distribution;
mod enumeration;
mod executor;
mod leaf;
mod machine;
mod node;
mod outstanding;
mod payload;
mod price;
mod process;
mod rendezvous;
mod resource;
mod run;
mod stall;
mod timers;
mod wake;
mod world;

pub use chooser::{Chooser, FAIR, Tape};
pub use config::{
    Config, CopyBy, CopySpec, Cost, Costs, CpuSpec, DiskSpec, GpuSpec, KernelCost, KernelSpec, LaneSpec, Limits, LockSpec,
    PcieSpec, Reader, RequestRate, SchedulerSpec, Slowed, Smt, StoreSpec, Timing,
};
pub use dataset::{Dataset, PixelCount, Size};
pub use distribution::{Distribution, Quantiles};
pub use enumeration::{Enumeration, Journal};
pub use machine::{SimBatch, SimClock, SimMachine, SimTask};
pub use payload::{Content, SimPayload};
pub use price::first_byte_ns;
pub use process::{PipeSpec, ProcessSpec, SimPipe};
pub use rendezvous::{PartyLost, SimBarrier};
pub use run::{Left, Outcome, Simulation, Tally, run};
pub use stall::{Balance, Depth, On, Stall, StallReason, Waiting, WaitsFor};
