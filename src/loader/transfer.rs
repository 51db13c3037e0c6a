//! Copies of batches to the device, a bounded number of them in flight.
//!
//! Each of a fixed number of tasks takes the next copy in line, makes it, and reports. A batch that goes in pieces has one copy in flight at
//! a time, since a copy owns the batch it writes; different batches are copied at once.

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use super::{control::Control, lane::PanicGuard};
use crate::{
    failure::Failure,
    machine::{Copied, Machine, Op, Slot, Unit},
};

/// A copy to be made.
pub(super) struct Copy<M: Machine> {
    /// Which departure it belongs to.
    pub(super) departure: u64,
    pub(super) op: Op,
    pub(super) src: Vec<Slot<Unit<M>>>,
    pub(super) dst: M::DeviceBatch,
    /// The first sample of the batch to be written.
    pub(super) at: usize,
}

/// Copies that wait, and copies that are done.
pub(super) struct Copies<M: Machine> {
    inner: RefCell<Inner<M>>,
}

struct Inner<M: Machine> {
    waiting: VecDeque<Copy<M>>,
    idle: VecDeque<Waker>,
    done: VecDeque<(u64, Result<Copied<M>, Failure>)>,
}

impl<M: Machine> Copies<M> {
    pub(super) fn new() -> Rc<Copies<M>> {
        let inner = Inner { waiting: VecDeque::new(), idle: VecDeque::new(), done: VecDeque::new() };
        Rc::new(Copies { inner: RefCell::new(inner) })
    }

    /// Puts a copy in line.
    pub(super) fn submit(&self, copy: Copy<M>) {
        let mut inner = self.inner.borrow_mut();
        inner.waiting.push_back(copy);
        if let Some(waker) = inner.idle.pop_front() {
            waker.wake();
        }
    }

    /// A copy that is done.
    pub(super) fn done(&self) -> Option<(u64, Result<Copied<M>, Failure>)> {
        self.inner.borrow_mut().done.pop_front()
    }

    /// Takes copies that no task has begun.
    pub(super) fn withdraw(&self) -> VecDeque<Copy<M>> {
        std::mem::take(&mut self.inner.borrow_mut().waiting)
    }

    /// Makes copies, one after the other. Never returns.
    pub(super) async fn work(self: Rc<Self>, control: Rc<Control<M>>) {
        let _guard = PanicGuard(&control);
        loop {
            let Copy { departure, op, src, dst, at } = self.next().await;
            let copied = control.machine.copy(op, src, dst, at).await;
            self.inner.borrow_mut().done.push_back((departure, copied));
            control.wake_outgoing();
        }
    }

    async fn next(&self) -> Copy<M> {
        poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            match inner.waiting.pop_front() {
                Some(copy) => Poll::Ready(copy),
                None => {
                    // A task has nothing else to wait for here, so its wakers are all alike.
                    if !inner.idle.iter().any(|known| known.will_wake(cx.waker())) {
                        inner.idle.push_back(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }
}
