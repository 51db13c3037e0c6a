//! Where ranks wait for each other.

use std::{
    cell::RefCell,
    fmt,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use super::resource::{Arrival, Barrier};

/// A barrier between tasks of one simulation: each train step of data-parallel training ends in one. It takes no time; a step's
/// communication is a sleep after it.
///
/// Clones are the same barrier.
#[derive(Clone)]
pub struct SimBarrier {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    barrier: Barrier,
    waiting: Vec<Waker>,
}

/// A party of a [`SimBarrier`] was [lost](SimBarrier::lose): the others wait for it no longer, and cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartyLost;

impl fmt::Display for PartyLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "another rank was lost")
    }
}

impl std::error::Error for PartyLost {}

impl SimBarrier {
    /// A barrier for so many parties, at least one.
    pub fn new(parties: u32) -> SimBarrier {
        SimBarrier { inner: Rc::new(RefCell::new(Inner { barrier: Barrier::new(parties), waiting: Vec::new() })) }
    }

    /// Waits until every party waits; gives how many times they have all met before. A party that gives its wait up has not arrived.
    ///
    /// # Errors
    ///
    /// [`PartyLost`] when a party is lost before all have arrived.
    pub fn wait(&self) -> impl Future<Output = Result<u64, PartyLost>> + use<> {
        Wait { barrier: self.clone(), generation: None }
    }

    /// A party that does not wait here goes for good, as a rank does that has no more steps. Nobody waits for it from now on.
    pub fn leave(&self) {
        let opened = self.inner.borrow_mut().barrier.leave();
        if opened {
            self.wake();
        }
    }

    /// A party is lost without a word. Everybody who waits, now or later, gets [`PartyLost`].
    pub fn lose(&self) {
        self.inner.borrow_mut().barrier.lose();
        self.wake();
    }

    fn wake(&self) {
        // Outside of the cell: a waker is foreign code.
        let waiting = std::mem::take(&mut self.inner.borrow_mut().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }
}

struct Wait {
    barrier: SimBarrier,
    /// The generation it waits for, once it has arrived and until it has passed.
    generation: Option<u64>,
}

impl Future for Wait {
    type Output = Result<u64, PartyLost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let wait = &mut *self;
        let generation = match wait.generation {
            Some(generation) => generation,
            None => {
                let arrival = wait.barrier.inner.borrow_mut().barrier.arrive();
                match arrival {
                    Arrival::Broken => return Poll::Ready(Err(PartyLost)),
                    Arrival::Opens(generation) => {
                        wait.barrier.wake();
                        return Poll::Ready(Ok(generation));
                    }
                    Arrival::Waits(generation) => *wait.generation.insert(generation),
                }
            }
        };
        let over = wait.barrier.inner.borrow().barrier.is_over(generation);
        match over {
            Some(false) => {
                wait.barrier.inner.borrow_mut().waiting.push(cx.waker().clone());
                Poll::Pending
            }
            ended => {
                wait.generation = None;
                Poll::Ready(if ended.is_some() { Ok(generation) } else { Err(PartyLost) })
            }
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let barrier = &mut self.barrier.inner.borrow_mut().barrier;
        if let Some(generation) = self.generation
            && barrier.is_over(generation) == Some(false)
        {
            barrier.withdraw();
        }
    }
}
