//! Designs of other loaders, simulated beside ours.
//!
//! Towtank's own [loader](crate::loader) is one code on both machines. The designs here are models of loaders that others wrote: what their
//! control does, in which order, and who pays for it, on the same simulated machine, with the same samples, costs and faults. They record
//! the same [events](crate::trace::Kind), so that reports, bounds and expectations mean the same, and their predictions can be judged by
//! what the loader itself did.

pub mod worker_processes;

pub use worker_processes::WorkerProcesses;
