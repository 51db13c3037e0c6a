//! What passes between threads, and the primitives it is made of.
//!
//! Control logic lives on one thread and needs none of this. Between threads there are a few structures, all of them a mutex around a
//! few fields, and all of them checked by loom in `tests/loom.rs`:
//!
//! - [`mailbox`]: batches and their memory, between the scheduler and the consumer's thread.
//!
//! Mutexes and condition variables come from `std` or, under `--cfg towtank_loom`, from loom. Nothing that can panic runs under one
//! of these locks, so a poisoned lock is taken as it is.

mod mailbox;

pub use mailbox::{Closed, Receiver, Sender, TryRecvError, TrySendError, mailbox};

#[cfg(not(towtank_loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(towtank_loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

/// Takes a lock, poisoned or not.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
