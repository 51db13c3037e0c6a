//! What work is done by: cores, threads, the store's link, copy engines, memory.
//!
//! A resource knows numbers, not leaves: whoever uses it is a number too, and it says when its next user is done. What a leaf does
//! with several of them, one after the other, is in [`world`](super::world).
//!
//! | resource | who waits for what | held against |
//! | --- | --- | --- |
//! | `cpu` | threads share the cores | M/M/c, M/G/1, closed networks |
//! | `smt` | two hardware threads share a core | a birth-death process, exact cases |
//! | `gate`, `kernels` | so many at a time: pool, connections, engines, kernels on each device | M/M/c, M/M/1/K |
//! | `link`, `tree`, `pcie` | bytes share a link, or links in a row | M/G/1 processor sharing, a max-min solver |
//! | `rate` | requests beyond a rate are refused | exact cases |
//! | `disk` | requests beyond a rate wait, bytes come in blocks, a platter turns | M/G/1, M/D/1, M/M/c, a closed network, exact cases |
//! | `lock` | one at a time, hand to hand, in turns of an interval | M/G/1, processor sharing, exact cases |
//! | `gpu` | train steps progress by how busy the host is | the time that M/M/1 is idle, exact cases |
//! | `barrier` | ranks wait for the last | exact cases |
//! | `memory` | bytes charged and given back | exact cases |
//! | `process` | messages between processes wait in a pipe | a tandem queue with blocking, exact cases |
//! | `scheduler` | completions wait for a thread that handles them | exact cases |

mod cpu;
mod disk;
mod gate;
mod gpu;
mod kernels;
mod link;
mod lock;
mod memory;
mod pcie;
mod process;
mod rate;
mod scheduler;
mod share;
mod smt;
mod tree;

pub(super) use cpu::Cpu;
pub(super) use disk::Disk;
pub(super) use gate::Gate;
pub(super) use gpu::Gpu;
pub(super) use kernels::Kernels;
pub(super) use link::Link;
pub(super) use lock::Lock;
pub(super) use memory::{Account, Charge};
pub(super) use pcie::{Direction, Pcie};
pub(super) use process::Pipe;
pub(super) use rate::Bucket;
pub(super) use scheduler::{Rouse, Scheduler};
pub(super) use share::NAME_MAX;

/// The time of something that does not happen.
pub(super) const NEVER: u64 = u64::MAX;
