//! What work is done by: cores, threads, the store's link, copy engines, memory.
//!
//! A resource knows numbers, not leaves: whoever uses it is a `u32`, and it says when its next user is done. What a leaf does
//! with several of them, one after the other, is in [`world`](super::world).

mod barrier;
mod cpu;
mod gate;
mod link;
mod memory;
mod pcie;
mod rate;
mod scheduler;
mod share;
mod tree;

pub(super) use barrier::{Arrival, Barrier};
pub(super) use cpu::Cpu;
pub(super) use gate::Gate;
pub(super) use link::Link;
pub(super) use memory::{Account, Charge};
pub(super) use pcie::{Direction, Pcie};
pub(super) use rate::Bucket;
pub(super) use scheduler::{Rouse, Scheduler};
pub(super) use share::NAME_MAX;

/// The time of something that does not happen.
pub(super) const NEVER: u64 = u64::MAX;
