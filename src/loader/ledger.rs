//! The account of encoded bytes in flight.
//!
//! # The protocol
//!
//! A launch is *open* from its ticket to its resolution. It **reserves** before it reads, an upper bound where it does not know better;
//! once the read has told the truth, what was too much is given back at once; the rest when the sample is decoded and its encoded
//! bytes are gone.
//!
//! ```text
//!   budget of the ledger
//!   ├── general ─────────────────────────────┤── reserve ──┤
//!   any launch that is first in line, if it     only the oldest open launch (the head), which
//!   fits; in order of launch                    never waits; as large as one sample may be
//! ```
//!
//! Waiters stand in order of launch and only the first may enter, so that a large sample is not overtaken for ever by small ones.
//!
//! # Why nothing stops
//!
//! The ring hands out its slots in order, so all progress hangs on the oldest open launch: until it resolves, its batch cannot be
//! sealed and its slot does not come home. If the launches behind it could take all bytes, it would wait for them and they, sooner
//! or later, for it. So the head never waits here: it takes from the general part what is free and otherwise from a reserve that
//! nobody else touches. At most one hold is on the reserve: a launch takes it only as the head, stays the head until it
//! resolves, and gives back before it resolves. And since the reserve is as large as a sample may be, the budget holds all the same. It is
//! exceeded only by a sample that is larger than its bound, and then that is counted.
//!
//! # Who is woken
//!
//! Who is first in line and fits, whenever bytes come back, somebody ahead enters or gives up, or the head resolves. A waiter that
//! fits is never left waiting; with a wake missing everything would still end, only slowly, so tests check it.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use super::waiters::Waiters;
use crate::machine::{Holders, Shared, Standing, Wait, Who};

/// The account. All on one thread.
#[derive(Debug)]
pub(super) struct Ledger {
    inner: RefCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    general_limit: u64,
    reserve_limit: u64,
    general: u64,
    reserve: u64,
    /// The launch whose hold is on the reserve.
    on_reserve: Option<u64>,
    peak: u64,
    overruns: u64,
    /// Launches from `first` on: whether they have resolved. The front, if there is one, has not.
    open: VecDeque<bool>,
    first: u64,
    unresolved: usize,
    waiters: Waiters<u64>,
    /// Which launch each hold is of, and how much it is.
    holders: Holders<(u64, u64)>,
}

/// What a ledger says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Balance {
    pub(super) reserved_bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) overruns: u64,
}

impl Ledger {
    /// An account of `budget_bytes`, in which one sample has at most `sample_bytes`.
    ///
    /// # Panics
    ///
    /// If the budget does not hold one sample.
    pub(super) fn new(budget_bytes: u64, sample_bytes: u64) -> Rc<Ledger> {
        assert!(sample_bytes <= budget_bytes, "settings with a smaller budget are refused");
        let inner = Inner {
            general_limit: budget_bytes - sample_bytes,
            reserve_limit: sample_bytes,
            general: 0,
            reserve: 0,
            on_reserve: None,
            peak: 0,
            overruns: 0,
            open: VecDeque::new(),
            first: 0,
            unresolved: 0,
            waiters: Waiters::default(),
            holders: Holders::default(),
        };
        Rc::new(Ledger { inner: RefCell::new(inner) })
    }

    /// A new launch, the youngest.
    #[inline]
    pub(super) fn open(&self) -> u64 {
        let inner = &mut *self.inner.borrow_mut();
        inner.open.push_back(false);
        inner.unresolved += 1;
        inner.first + inner.open.len() as u64 - 1
    }

    /// The launch has resolved. It holds nothing any more.
    #[inline]
    pub(super) fn close(&self, launch: u64) {
        let inner = &mut *self.inner.borrow_mut();
        let was = std::mem::replace(&mut inner.open[(launch - inner.first) as usize], true);
        assert!(!was, "launch {launch} resolves once");
        inner.unresolved -= 1;
        let head = inner.first;
        while inner.open.front() == Some(&true) {
            inner.open.pop_front();
            inner.first += 1;
        }
        if inner.first != head {
            inner.wake();
        }
    }

    /// Waits until `bytes` may be held by `launch`. Cancel safe.
    #[inline]
    pub(super) fn reserve(self: &Rc<Ledger>, launch: u64, bytes: u64) -> Reserving<'_> {
        Reserving { ledger: self, launch, bytes, waits: false }
    }

    /// The launches that have not resolved.
    pub(super) fn unresolved(&self) -> usize {
        self.inner.borrow().unresolved
    }

    /// The launches that wait for bytes, none of which fits; `None` while somebody is about to enter.
    pub(super) fn blocked(&self) -> Option<usize> {
        let inner = self.inner.borrow();
        let fits = inner.waiters.first().is_some_and(|(launch, bytes)| inner.admits(launch, bytes).is_some());
        (!fits).then_some(inner.waiters.len())
    }

    pub(super) fn balance(&self) -> Balance {
        let inner = self.inner.borrow();
        Balance { reserved_bytes: inner.general + inner.reserve, peak_bytes: inner.peak, overruns: inner.overruns }
    }
}

impl Inner {
    /// Whether a launch that is first in line may enter now, and if so, whether from the reserve.
    #[inline]
    fn admits(&self, launch: u64, bytes: u64) -> Option<bool> {
        if self.general.checked_add(bytes).is_some_and(|sum| sum <= self.general_limit) {
            Some(false)
        } else {
            (launch == self.first).then_some(true)
        }
    }

    /// The part that the launch's hold is on.
    #[inline]
    fn part(&mut self, launch: u64) -> &mut u64 {
        if self.on_reserve == Some(launch) { &mut self.reserve } else { &mut self.general }
    }

    #[inline]
    fn add(&mut self, launch: u64, bytes: u64) {
        let part = self.part(launch);
        *part = part.saturating_add(bytes);
        let sum = self.general.saturating_add(self.reserve);
        self.peak = self.peak.max(sum);
        self.overruns += u64::from(sum > self.general_limit + self.reserve_limit);
    }

    #[inline]
    fn wake(&self) {
        if let Some((launch, bytes)) = self.waiters.first()
            && self.admits(launch, bytes).is_some()
        {
            self.waiters.wake_first();
        }
    }
}

impl Shared for Ledger {
    /// The first in line waits for those who hold bytes, and to be the head; the others for the first.
    fn standing(&self) -> Standing {
        let inner = self.inner.borrow();
        let free = inner.general_limit.saturating_sub(inner.general);
        let holds = |(who, (launch, bytes)): (Who, &(u64, u64))| {
            let oldest = if *launch == inner.first { ", for the oldest sample" } else { "" };
            (who, format!("holds {bytes} B of them{oldest}"))
        };
        let first = inner.waiters.iter().next().map(|(_, who, _)| who);
        let waits = inner.waiters.iter().map(|(_, who, bytes)| {
            let on = match first {
                Some(first) if first != who => vec![(first, "stands before it in line".to_owned())],
                _ => inner.holders.iter().map(holds).collect(),
            };
            Wait { who, what: format!("waits for {bytes} B for encoded samples, of which {free} B are free"), on }
        });
        Standing { waits: waits.collect(), and_alike: false }
    }
}

/// Waits for bytes.
pub(super) struct Reserving<'a> {
    ledger: &'a Rc<Ledger>,
    launch: u64,
    bytes: u64,
    waits: bool,
}

impl Future for Reserving<'_> {
    type Output = Hold;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Hold> {
        let Reserving { ledger, launch, bytes, .. } = *self;
        let inner = &mut *ledger.inner.borrow_mut();
        let admitted = if inner.waiters.is_turn(Some(launch)) { inner.admits(launch, bytes) } else { None };
        let Some(from_reserve) = admitted else {
            inner.waiters.join_as(launch, cx.waker(), bytes);
            self.waits = true;
            return Poll::Pending;
        };
        if from_reserve {
            inner.on_reserve = Some(launch);
        }
        inner.add(launch, bytes);
        let place = inner.holders.enter(Who::of(cx.waker()), (launch, bytes));
        if std::mem::take(&mut self.waits) {
            inner.waiters.leave(launch);
            inner.wake();
        }
        Poll::Ready(Hold { ledger: ledger.clone(), launch, place, bytes: Cell::new(bytes) })
    }
}

impl Drop for Reserving<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.waits {
            let inner = &mut *self.ledger.inner.borrow_mut();
            inner.waiters.leave(self.launch);
            inner.wake();
        }
    }
}

/// Bytes that are reserved for a launch, which has one hold. They go back when it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    ledger: Rc<Ledger>,
    launch: u64,
    /// Its place among the holders.
    place: u32,
    bytes: Cell<u64>,
}

impl Hold {
    /// What it holds \[B\].
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// The sample has `bytes` bytes: gives back what is too much and returns it, or adds what is missing and returns 0.
    #[inline]
    pub(super) fn correct(&self, bytes: u64) -> u64 {
        let held = self.bytes.replace(bytes);
        let inner = &mut *self.ledger.inner.borrow_mut();
        if let Some((_, noted)) = inner.holders.get_mut(self.place) {
            *noted = bytes;
        }
        if bytes > held {
            inner.add(self.launch, bytes - held);
        } else if bytes < held {
            *inner.part(self.launch) -= held - bytes;
            inner.wake();
        }
        held.saturating_sub(bytes)
    }
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        let inner = &mut *self.ledger.inner.borrow_mut();
        *inner.part(self.launch) -= self.bytes.get();
        inner.holders.leave(self.place);
        if inner.on_reserve == Some(self.launch) {
            inner.on_reserve = None;
        }
        inner.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn poll(future: &mut Reserving<'_>) -> Option<Hold> {
        match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(hold) => Some(hold),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_head_enters_although_the_others_hold_everything() {
        let ledger = Ledger::new(30, 10);
        let launches: Vec<u64> = (0..4).map(|_| ledger.open()).collect();
        let _second = poll(&mut ledger.reserve(launches[1], 10)).expect("fits");
        let _third = poll(&mut ledger.reserve(launches[2], 10)).expect("fits");
        let mut fourth = ledger.reserve(launches[3], 1);
        assert!(poll(&mut fourth).is_none());
        let head = poll(&mut ledger.reserve(launches[0], 10)).expect("the head never waits");
        assert_eq!(ledger.balance().reserved_bytes, 30);
        drop(head);
        assert!(poll(&mut fourth).is_none(), "the reserve is the head's alone");
        ledger.close(launches[0]);
        assert_eq!(ledger.balance(), Balance { reserved_bytes: 20, peak_bytes: 30, overruns: 0 });
    }

    #[test]
    fn a_large_sample_is_not_overtaken() {
        let ledger = Ledger::new(40, 10);
        let launches: Vec<u64> = (0..4).map(|_| ledger.open()).collect();
        let head = poll(&mut ledger.reserve(launches[0], 5)).expect("fits");
        let first = poll(&mut ledger.reserve(launches[1], 20)).expect("fits");
        let mut large = ledger.reserve(launches[2], 10);
        assert!(poll(&mut large).is_none());
        let mut small = ledger.reserve(launches[3], 1);
        assert!(poll(&mut small).is_none(), "it would fit, but is not first");
        assert_eq!(ledger.blocked(), Some(2));
        drop(first);
        assert_eq!(ledger.blocked(), None);
        assert!(poll(&mut small).is_none());
        let large = poll(&mut large).expect("fits now");
        let small = poll(&mut small).expect("first now");
        drop((head, large, small));
        assert_eq!(ledger.balance().reserved_bytes, 0);
    }

    #[test]
    fn a_reservation_is_corrected_both_ways() {
        let ledger = Ledger::new(20, 10);
        let launch = ledger.open();
        let hold = poll(&mut ledger.reserve(launch, 10)).expect("fits");
        assert_eq!((hold.correct(4), ledger.balance().reserved_bytes), (6, 4));
        assert_eq!((hold.correct(25), ledger.balance().reserved_bytes), (0, 25));
        drop(hold);
        assert_eq!(ledger.balance(), Balance { reserved_bytes: 0, peak_bytes: 25, overruns: 1 });
    }

    #[test]
    fn a_waiter_that_gives_up_lets_the_next_one_in() {
        let ledger = Ledger::new(20, 10);
        let launches: Vec<u64> = (0..4).map(|_| ledger.open()).collect();
        let _held = poll(&mut ledger.reserve(launches[1], 8)).expect("fits");
        let mut large = ledger.reserve(launches[2], 5);
        let mut small = ledger.reserve(launches[3], 2);
        assert!(poll(&mut large).is_none() && poll(&mut small).is_none());
        drop(large);
        assert!(poll(&mut small).is_some());
    }
}
