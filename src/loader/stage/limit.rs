//! At most so many at once.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context as Cx, Poll},
};

use super::{Context, Stage};
use crate::{
    failure::Failure,
    loader::waiters::Waiters,
    machine::{Holders, Machine, Shared, Standing, Wait, Who},
};

/// Lets at most so many samples into the stage at once, first come, first served.
#[derive(Debug)]
pub struct Limit<S> {
    permits: Option<Rc<Permits>>,
    stage: S,
}

impl<S> Limit<S> {
    /// At most `most` samples inside `stage`.
    ///
    /// # Panics
    ///
    /// If `most` is 0, since nothing would ever get in.
    pub fn new(most: usize, stage: S) -> Limit<S> {
        Limit { permits: Some(Rc::new(Permits::new("a stage", most))), stage }
    }

    /// With a limit or without.
    ///
    /// # Panics
    ///
    /// If the limit is 0.
    pub fn maybe(most: Option<usize>, stage: S) -> Limit<S> {
        Limit { permits: most.map(|most| Rc::new(Permits::new("a stage", most))), stage }
    }

    /// What stall reports call it; `a stage` where nobody says.
    #[must_use]
    pub fn named(self, name: &'static str) -> Limit<S> {
        let permits = self.permits.map(|permits| Rc::new(Permits::new(name, permits.most)));
        Limit { permits, stage: self.stage }
    }
}

impl<M: Machine, In, S: Stage<M, In>> Stage<M, In> for Limit<S> {
    type Out = S::Out;

    fn enter(&self, machine: &M) {
        if let Some(permits) = &self.permits {
            machine.watch(permits.clone());
        }
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

/// Permits, handed out in the order in which they are asked for: at most so many are out at a time, one of a lock. All on one thread.
///
/// A task that waits for one is told of in stall reports, with those who have them, where a machine [watches](Permits::watched) them.
///
/// ```
/// use towtank::{
///     loader::stage::Permits,
///     sim::{Config, Simulation},
/// };
///
/// let stall = Simulation::new(Config::default()).run(|machine| async move {
///     let index = Permits::watched(&machine, "index", 1);
///     let _first = index.acquire().await;
///     let _second = index.acquire().await;
/// });
/// let report = stall.expect_err("the task waits for itself").to_string();
/// assert!(report.contains("root #0 waits for a permit of `index`, of which 1 of 1 is out: root #0 has one"), "{report}");
/// ```
#[derive(Debug)]
pub struct Permits {
    name: &'static str,
    most: usize,
    free: Cell<usize>,
    waiters: RefCell<Waiters>,
    holders: RefCell<Holders<()>>,
}

impl Permits {
    /// So many.
    ///
    /// # Panics
    ///
    /// If there is none, since nothing would ever get one.
    pub fn new(name: &'static str, most: usize) -> Permits {
        assert!(most > 0, "a limit of 0 lets nothing through");
        Permits { name, most, free: Cell::new(most), waiters: RefCell::default(), holders: RefCell::default() }
    }

    /// So many, of which the machine's stall reports tell.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn watched<M: Machine>(machine: &M, name: &'static str, most: usize) -> Rc<Permits> {
        let permits = Rc::new(Permits::new(name, most));
        machine.watch(permits.clone());
        permits
    }

    /// Waits for one. Cancel safe: whoever gives up leaves the line.
    pub fn acquire(&self) -> Acquire<'_> {
        Acquire { permits: self, key: None }
    }

    fn pass_on(&self) {
        if self.free.get() > 0 {
            self.waiters.borrow().wake_first();
        }
    }
}

impl Shared for Permits {
    /// The first in line waits for those who have a permit, the others for the first.
    fn standing(&self) -> Standing {
        let (holders, waiters) = (self.holders.borrow(), self.waiters.borrow());
        let first = waiters.iter().next().map(|(_, who, ())| who);
        let out = self.most - self.free.get();
        let are = if out == 1 { "is" } else { "are" };
        let waits = waiters.iter().enumerate().map(|(turn, (_, who, ()))| {
            let on = match first {
                Some(first) if turn > 0 => vec![(first, "stands before it in line".to_owned())],
                _ => holders.iter().map(|(who, ())| (who, "has one".to_owned())).collect(),
            };
            Wait { who, what: format!("waits for a permit of `{}`, of which {out} of {} {are} out", self.name, self.most), on }
        });
        Standing { waits: waits.collect(), and_alike: false }
    }
}

/// Waits for a permit.
#[derive(Debug)]
pub struct Acquire<'a> {
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
            let place = permits.holders.borrow_mut().enter(Who::of(cx.waker()), ());
            return Poll::Ready(Permit { permits, place });
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
#[derive(Debug)]
pub struct Permit<'a> {
    permits: &'a Permits,
    /// Its place among the holders.
    place: u32,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.permits.holders.borrow_mut().leave(self.place);
        self.permits.free.set(self.permits.free.get() + 1);
        self.permits.pass_on();
    }
}
