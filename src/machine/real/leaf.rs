//! The future of a leaf: submits it when first polled, and gives it up when dropped.

use std::{future::poll_fn, sync::Arc};

use super::{Inner, jobs::Cell, leaves::event};
use crate::{
    failure::{Failure, FailureKind},
    machine::{Clock, Op},
    sync::GivenUp,
    trace::Kind,
};

/// Submits a job, and awaits its answer. `submit` tells whether anybody took it.
pub(super) async fn leaf<J, R>(
    machine: &Inner,
    op: Op,
    bytes: u64,
    job: J,
    submit: impl FnOnce(&Inner, Arc<Cell<J, R>>) -> bool,
) -> Result<R, Failure> {
    let now = machine.home.clock.now();
    let key = machine.leaves.borrow_mut().submit(op, now);
    machine.recorder.borrow_mut().record(event(&op, Kind::Queued, now, now, bytes));
    let cell = Cell::new(key, job);
    let awaited = Awaited { machine, key, cell: &cell };
    if !submit(machine, cell.clone()) {
        return Err(Failure::new(FailureKind::Closed, "the machine is going away"));
    }
    machine.keep_ticking();
    poll_fn(|cx| machine.leaves.borrow_mut().poll(key, cx)).await;
    drop(awaited);
    cell.leaf.take().unwrap_or_else(|| Err(Failure::new(FailureKind::Lost, "a leaf came home without its answer")))
}

/// A leaf whose answer somebody awaits; dropped before that, it is given up.
struct Awaited<'a, J, R> {
    machine: &'a Inner,
    key: u32,
    cell: &'a Cell<J, R>,
}

impl<J, R> Drop for Awaited<'_, J, R> {
    fn drop(&mut self) {
        let mut leaves = self.machine.leaves.borrow_mut();
        if leaves.is_home(self.key) {
            return leaves.release(self.key);
        }
        drop(leaves);
        // Dropping the job or the answer may run anything, so nothing is borrowed meanwhile.
        let fate = self.cell.leaf.give_up();
        let now = self.machine.home.clock.now();
        let mut recorder = self.machine.recorder.borrow_mut();
        self.machine.leaves.borrow_mut().give_up(self.key, fate, now, &mut recorder);
    }
}

/// A read that an injected fault lets stall: it delivers nothing and never ends, and occupies no thread.
pub(super) async fn stalled<R>(machine: &Inner, op: Op) -> R {
    struct Stalled<'a>(&'a Inner, u32);
    impl Drop for Stalled<'_> {
        fn drop(&mut self) {
            let now = self.0.home.clock.now();
            self.0.leaves.borrow_mut().give_up(self.1, GivenUp::Removed, now, &mut self.0.recorder.borrow_mut());
        }
    }
    let now = machine.home.clock.now();
    let key = machine.leaves.borrow_mut().submit(op, now);
    machine.recorder.borrow_mut().record(event(&op, Kind::Queued, now, now, 0));
    let _stalled = Stalled(machine, key);
    std::future::pending().await
}
