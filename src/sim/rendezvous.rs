//! Where ranks wait for each other.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use super::{SimMachine, SimPayload};
use crate::{
    machine::{Machine, Shared, Standing, Wait as Waits, Who},
    sync::barrier::{Arrival, Barrier},
};

/// A barrier between tasks of one simulation: each train step of data-parallel training ends in one. It takes no time; a step's
/// communication is a sleep after it.
///
/// Clones are the same barrier.
#[derive(Clone)]
pub struct SimBarrier {
    inner: Rc<Inner>,
}

struct Inner {
    name: Cell<&'static str>,
    parties: u32,
    state: RefCell<State>,
}

struct State {
    barrier: Barrier,
    waiting: Vec<Waker>,
    /// Everybody who was ever here, so that those who are not can be named; no more than there are parties.
    known: BTreeMap<Who, Waker>,
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
        let state = State { barrier: Barrier::new(parties), waiting: Vec::new(), known: BTreeMap::new() };
        SimBarrier { inner: Rc::new(Inner { name: Cell::new("a barrier"), parties, state: RefCell::new(state) }) }
    }

    /// Lets the machine's stall reports tell who waits here, and for whom, under this name.
    #[must_use]
    pub fn watched<P: SimPayload>(self, machine: &SimMachine<P>, name: &'static str) -> SimBarrier {
        self.inner.name.set(name);
        machine.watch(self.inner.clone());
        self
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
        let opened = self.inner.state.borrow_mut().barrier.leave();
        if opened {
            self.wake();
        }
    }

    /// A party is lost without a word. Everybody who waits, now or later, gets [`PartyLost`].
    pub fn lose(&self) {
        self.inner.state.borrow_mut().barrier.lose();
        self.wake();
    }

    fn wake(&self) {
        // Outside of the cell: a waker is foreign code.
        let waiting = std::mem::take(&mut self.inner.state.borrow_mut().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Parties that everybody but the first tells of as missing.
const TOLD: usize = 8;

impl Shared for Inner {
    /// Everybody here waits for those who were here before and are not now.
    fn standing(&self) -> Standing {
        let state = self.state.borrow();
        let mut here: Vec<Who> = state.waiting.iter().map(Who::of).collect();
        here.sort_unstable();
        here.dedup();
        let missing: Vec<Who> = state.known.keys().copied().filter(|who| here.binary_search(who).is_err()).collect();
        let (arrived, parties) = state.barrier.here();
        let wait = |(k, who): (usize, Who)| {
            // One tells them all; a thousand that each told of a thousand would be a million.
            let told = if k == 0 { missing.len() } else { missing.len().min(TOLD) };
            let on = missing[..told].iter().map(|who| (*who, "is not here".to_owned())).collect();
            Waits { who, what: format!("waits at `{}`, where {arrived} of {parties} are", self.name.get()), on }
        };
        let and_alike = state.known.len() < self.parties as usize;
        Standing { waits: here.into_iter().enumerate().map(wait).collect(), and_alike }
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
                let arrival = {
                    let state = &mut *wait.barrier.inner.state.borrow_mut();
                    if state.known.len() < wait.barrier.inner.parties as usize {
                        state.known.entry(Who::of(cx.waker())).or_insert_with(|| cx.waker().clone());
                    }
                    state.barrier.arrive()
                };
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
        let over = wait.barrier.inner.state.borrow().barrier.is_over(generation);
        match over {
            Some(false) => {
                wait.barrier.inner.state.borrow_mut().waiting.push(cx.waker().clone());
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
        let barrier = &mut self.barrier.inner.state.borrow_mut().barrier;
        if let Some(generation) = self.generation
            && barrier.is_over(generation) == Some(false)
        {
            barrier.withdraw();
        }
    }
}
