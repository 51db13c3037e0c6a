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
//! `v` wraps around. Two marks are compared by their distance, which is right as long as no two users are further apart than
//! 2⁶³ units: the owner bounds the work of one user by [`WORK_MAX`].

use std::{cmp::Ordering, collections::BinaryHeap};

use super::NEVER;

/// The most work one user may bring, in units.
pub(super) const WORK_MAX: u64 = (1 << 63) - (1 << 40);

/// Users of a resource that all progress at the same rate.
#[derive(Default)]
pub(super) struct Share {
    /// Work done so far for a user present from the beginning, modulo 2⁶⁴.
    v: u64,
    /// When `v` was brought up to date (ns).
    at: u64,
    arrivals: u64,
    heap: BinaryHeap<User>,
}

struct User {
    mark: u64,
    /// When it came, as a number, above [`NAME_BITS`] bits of its name.
    arrival: u64,
}

/// Bits of a name.
const NAME_BITS: u32 = 24;

/// The largest name of a user.
pub(in crate::sim) const NAME_MAX: u32 = (1 << NAME_BITS) - 1;

impl User {
    #[inline]
    fn name(&self) -> u32 {
        self.arrival as u32 & NAME_MAX
    }
}

impl Ord for User {
    /// The greatest is the one to leave first: the nearest mark, and of equal ones the earliest arrival.
    #[inline]
    fn cmp(&self, other: &User) -> Ordering {
        let distance = other.mark.wrapping_sub(self.mark) as i64;
        if distance != 0 { distance.cmp(&0) } else { other.arrival.cmp(&self.arrival) }
    }
}
impl PartialOrd for User {
    #[inline]
    fn partial_cmp(&self, other: &User) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for User {
    fn eq(&self, other: &User) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for User {}

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
        if !self.heap.is_empty() {
            self.v = self.v.wrapping_add(elapsed.wrapping_mul(rate));
        }
        self.at = now;
        elapsed
    }

    /// A user comes, with work that is at most [`WORK_MAX`].
    #[inline]
    pub(super) fn push(&mut self, name: u32, work: u64) {
        debug_assert!(work <= WORK_MAX, "work of {work} units cannot be told from work already done");
        debug_assert!(name <= NAME_MAX, "no room for the name {name}");
        self.arrivals += 1;
        self.heap.push(User { mark: self.v.wrapping_add(work), arrival: self.arrivals << NAME_BITS | u64::from(name) });
    }

    /// When the next user is done if the rate (units/ns) stays as it is (ns).
    #[inline]
    pub(super) fn next(&self, rate: u64) -> u64 {
        match self.heap.peek() {
            None => NEVER,
            Some(user) => {
                let left = user.mark.wrapping_sub(self.v);
                if left as i64 <= 0 { self.at } else { self.at.saturating_add((left + rate / 2) / rate) }
            }
        }
    }

    /// The next user that is done by now, at this rate (units/ns).
    #[inline]
    pub(super) fn pop_done(&mut self, rate: u64) -> Option<u32> {
        // Those for whom `next` rounds down to no time at all.
        let nearly = (rate - rate / 2) as i64;
        let done = self.heap.peek().is_some_and(|user| (user.mark.wrapping_sub(self.v) as i64) < nearly);
        if done { self.heap.pop().map(|user| user.name()) } else { None }
    }

    /// A user leaves before it is done. In O(n): it is rare.
    pub(super) fn remove(&mut self, name: u32) {
        self.heap.retain(|user| user.name() != name);
    }
}
