//! Work that the outgoing side hands to a fixed number of tasks: each takes the next piece in line, does it, and reports.

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::poll_fn,
    task::{Poll, Waker},
};

/// Pieces of work that wait, and answers to those that are done.
pub(super) struct Line<J, A> {
    inner: RefCell<Inner<J, A>>,
}

struct Inner<J, A> {
    waiting: VecDeque<J>,
    idle: VecDeque<Waker>,
    done: VecDeque<(u64, A)>,
}

impl<J, A> Line<J, A> {
    /// Nothing to do.
    pub(super) fn new() -> Line<J, A> {
        Line { inner: RefCell::new(Inner { waiting: VecDeque::new(), idle: VecDeque::new(), done: VecDeque::new() }) }
    }

    /// Puts a piece in line.
    pub(super) fn submit(&self, piece: J) {
        let mut inner = self.inner.borrow_mut();
        inner.waiting.push_back(piece);
        if let Some(waker) = inner.idle.pop_front() {
            waker.wake();
        }
    }

    /// A piece is done that belongs to this departure.
    pub(super) fn finish(&self, departure: u64, answer: A) {
        self.inner.borrow_mut().done.push_back((departure, answer));
    }

    /// An answer, and the departure that it belongs to.
    pub(super) fn done(&self) -> Option<(u64, A)> {
        self.inner.borrow_mut().done.pop_front()
    }

    /// Takes pieces that no task has begun.
    pub(super) fn withdraw(&self) -> VecDeque<J> {
        std::mem::take(&mut self.inner.borrow_mut().waiting)
    }

    /// The next piece in line, once there is one.
    pub(super) async fn next(&self) -> J {
        poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            match inner.waiting.pop_front() {
                Some(piece) => Poll::Ready(piece),
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
