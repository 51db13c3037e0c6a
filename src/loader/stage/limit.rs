//! At most so many at once.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    task::{Context as Cx, Poll},
};

use super::{Context, Stage};
use crate::{failure::Failure, loader::waiters::Waiters, machine::Machine};

/// Lets at most so many samples into the stage at once, first come, first served.
#[derive(Debug)]
pub struct Limit<S> {
    permits: Option<Permits>,
    stage: S,
}

impl<S> Limit<S> {
    /// At most `most` samples inside `stage`.
    ///
    /// # Panics
    ///
    /// If `most` is 0, since nothing would ever get in.
    pub fn new(most: usize, stage: S) -> Limit<S> {
        Limit { permits: Some(Permits::new(most)), stage }
    }

    /// With a limit or without.
    ///
    /// # Panics
    ///
    /// If the limit is 0.
    pub fn maybe(most: Option<usize>, stage: S) -> Limit<S> {
        Limit { permits: most.map(Permits::new), stage }
    }
}

impl<M: Machine, In, S: Stage<M, In>> Stage<M, In> for Limit<S> {
    type Out = S::Out;

    fn enter(&self, machine: &M) {
        self.stage.enter(machine);
    }

    async fn run(&self, cx: &Context<'_, M>, input: In) -> Result<S::Out, Failure> {
        let _permit = match &self.permits {
            Some(permits) => Some(permits.acquire().await),
            None => None,
        };
        self.stage.run(cx, input).await
    }
}

/// Permits, handed out in the order in which they are asked for. All on one thread.
#[derive(Debug)]
pub(in crate::loader) struct Permits {
    free: Cell<usize>,
    waiters: RefCell<Waiters>,
}

impl Permits {
    pub(in crate::loader) fn new(most: usize) -> Permits {
        assert!(most > 0, "a limit of 0 lets nothing through");
        Permits { free: Cell::new(most), waiters: RefCell::default() }
    }

    pub(in crate::loader) fn acquire(&self) -> Acquire<'_> {
        Acquire { permits: self, key: None }
    }

    fn pass_on(&self) {
        if self.free.get() > 0 {
            self.waiters.borrow().wake_first();
        }
    }
}

pub(in crate::loader) struct Acquire<'a> {
    permits: &'a Permits,
    /// Place in line.
    key: Option<u64>,
}

impl<'a> Future for Acquire<'a> {
    type Output = Permit<'a>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Permit<'a>> {
        let permits = self.permits;
        let mut waiters = permits.waiters.borrow_mut();
        if permits.free.get() > 0 && waiters.is_turn(self.key) {
            permits.free.set(permits.free.get() - 1);
            if let Some(key) = self.key.take() {
                waiters.leave(key);
            }
            drop(waiters);
            permits.pass_on();
            return Poll::Ready(Permit(permits));
        }
        match self.key {
            Some(key) => waiters.renew(key, cx.waker()),
            None => self.key = Some(waiters.join(cx.waker(), ())),
        }
        Poll::Pending
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.permits.waiters.borrow_mut().leave(key);
            self.permits.pass_on();
        }
    }
}

/// A permit; dropping it lets the next one in.
pub(in crate::loader) struct Permit<'a>(&'a Permits);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.free.set(self.0.free.get() + 1);
        self.0.pass_on();
    }
}
