//! Equal sharing in virtual time.
//!
//! `n` users of one resource all progress at the same rate, which changes whenever one comes or goes. Instead of updating all of
//! them each time, one number is kept: the work `v` that a user present from the beginning would have got by now. A user that
//! comes with work `w` is done when `v` has grown by `w`; so users leave in the order of their `v at arrival + w`, and a heap gives
//! the next in O(log n), whatever the rates.
//!
//! All is in whole numbers. The owner chooses the unit of work so that a rate is a whole number of units per nanosecond; between two
//! changes of the rate `v` grows by exactly rate × time, so nothing drifts; a user is done at the whole nanosecond nearest to the instant
//! at which `v` reaches its mark, halves rounded up. Where the work is a multiple of the rate, that instant is exact.
//!
//! `v` would outgrow its 64 bits within minutes of simulated time, so when it gets large it is subtracted from every mark and starts
//! anew; the owner bounds the work of one user by [`WORK_MAX`]. A mark and its user are one number, so that the heap compares without
//! branching.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::NEVER;

/// The most work one user may bring, in units.
pub(super) const WORK_MAX: u64 = 1 << 62;

/// Beyond this `v` starts anew.
const V_MAX: u64 = 1 << 61;

/// Bits of a name.
const NAME_BITS: u32 = 24;

/// The largest name of a user.
pub(in crate::sim) const NAME_MAX: u32 = (1 << NAME_BITS) - 1;

/// A user: the work at which it is done, then the order in which it came, then its name.
#[derive(Clone, Copy)]
struct User(u128);

impl User {
    #[inline]
    fn new(mark: u64, arrival: u64, name: u32) -> User {
        User(u128::from(mark) << 64 | u128::from(arrival << NAME_BITS | u64::from(name)))
    }

    #[inline]
    fn mark(self) -> u64 {
        (self.0 >> 64) as u64
    }

    #[inline]
    fn name(self) -> u32 {
        self.0 as u32 & NAME_MAX
    }
}

/// Users of a resource that all progress at the same rate.
#[derive(Default)]
pub(super) struct Share {
    /// Work done for a user present since `v` started anew.
    v: u64,
    /// When `v` was brought up to date (ns).
    at: u64,
    arrivals: u64,
    /// [`User`]s, the first to be done on top.
    heap: BinaryHeap<Reverse<u128>>,
}

impl Share {
    /// Number of users.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// When the work done was last brought up to date (ns).
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Brings the work done up to date, at the rate (units/ns) that held until now. Call it before every change. Gives the time since
    /// the last call (ns).
    #[inline]
    pub(super) fn advance(&mut self, now: u64, rate: u64) -> u64 {
        let elapsed = now - self.at;
        self.at = now;
        if self.heap.is_empty() {
            self.v = 0;
        } else {
            self.v += elapsed * rate;
            if self.v > V_MAX {
                self.start_anew();
            }
        }
        elapsed
    }

    #[cold]
    fn start_anew(&mut self) {
        let done = u128::from(self.v) << 64;
        // A mark that was just passed, and not yet taken note of, becomes 0.
        self.heap = self.heap.drain().map(|Reverse(user)| Reverse(user - done.min(user >> 64 << 64))).collect();
        self.v = 0;
    }

    /// A user comes, with work that is at most [`WORK_MAX`].
    #[inline]
    pub(super) fn push(&mut self, name: u32, work: u64) {
        debug_assert!(work <= WORK_MAX, "work of {work} units is too much for one user");
        debug_assert!(name <= NAME_MAX, "no room for the name {name}");
        self.arrivals += 1;
        self.heap.push(Reverse(User::new(self.v + work, self.arrivals, name).0));
    }

    /// When the next user is done if the rate (units/ns) stays as it is (ns).
    #[inline]
    pub(super) fn next(&self, rate: u64) -> u64 {
        match self.heap.peek() {
            None => NEVER,
            Some(Reverse(user)) => {
                let left = User(*user).mark().saturating_sub(self.v);
                self.at + (left + rate / 2) / rate
            }
        }
    }

    /// The next user that is done by now, at this rate (units/ns).
    #[inline]
    pub(super) fn pop_done(&mut self, rate: u64) -> Option<u32> {
        // Those for whom `next` rounds down to no time at all are done too.
        let nearly = self.v + (rate - rate / 2);
        let Reverse(user) = self.heap.peek()?;
        let user = User(*user);
        if user.mark() >= nearly {
            return None;
        }
        self.heap.pop();
        Some(user.name())
    }

    /// A user leaves before it is done. In O(n): it is rare. Gives the work it had left; `None` when it is not here.
    pub(super) fn remove(&mut self, name: u32) -> Option<u64> {
        let mut left = None;
        let v = self.v;
        self.heap.retain(|Reverse(user)| {
            let user = User(*user);
            if user.name() == name {
                left = Some(user.mark().saturating_sub(v));
            }
            user.name() != name
        });
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starting_anew_moves_nobody() {
        let rate = 1 << 22;
        let mut share = Share::default();
        let mut now = 0;
        share.push(7, WORK_MAX);
        // A thousand short ones come and go while the long one stays.
        for k in 0..1000 {
            share.advance(now, rate);
            share.push(8, (1 << 52) + k * rate);
            now = share.next(rate);
            share.advance(now, rate);
            assert_eq!(share.pop_done(rate), Some(8));
        }
        assert!(share.v < V_MAX);
        assert_eq!(share.next(rate), WORK_MAX / rate);
    }
}
