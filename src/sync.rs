//! What passes between threads, and the primitives it is made of.
//!
//! Control logic lives on one thread and needs none of this. Between threads there are five structures, all of them a mutex around a
//! few fields, and all of them checked by loom in `tests/loom.rs`:
//!
//! - [`JobQueue`]: jobs, from the scheduler to the threads that run them;
//! - [`Leaf`]: one job and its answer, owned by whoever may touch it next;
//! - [`Handoff`]: answers of leaves, from many threads to the scheduler, which it wakes lazily;
//! - [`mailbox()`]: batches and their memory, between the scheduler and the consumer's thread;
//! - [`Party`]: where the consumers of several ranks meet after every step.
//!
//! Mutexes and condition variables come from `std` or, under `--cfg towtank_loom`, from loom. Nothing that can panic runs under one
//! of these locks, so a poisoned lock is taken as it is.

pub(crate) mod barrier;
pub mod handoff;
pub mod jobs;
pub mod leaf;
pub mod mailbox;
pub mod party;

pub use handoff::Handoff;
pub use jobs::JobQueue;
pub use leaf::{GivenUp, Leaf};
pub use mailbox::{Closed, Receiver, Sender, TryRecvError, TrySendError, mailbox};
pub use party::Party;

pub(crate) use std::sync::atomic::Ordering::Relaxed;

#[cfg(not(towtank_loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicUsize};

#[cfg(towtank_loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicUsize};

/// Takes a lock, poisoned or not.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
