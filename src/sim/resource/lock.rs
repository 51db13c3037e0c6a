//! A lock that one thread has at a time and that goes from hand to hand: an interpreter's, such as Python's GIL.
//!
//! ```text
//!            enter                                     its part under the lock is done
//!   (outside) ────► in line ── first, and it is free ──► holds it ───────────────────► (outside)
//!                     ▲                                     │
//!                     └── the switch interval is over ──────┘
//! ```
//!
//! Those who want it stand in line in the order in which they came. Whoever holds it needs a core like everybody, and gives it to the
//! first in line when it is done with it. While nobody waits it keeps it; but when somebody has waited for a switch interval since the
//! lock last changed hands, or since the line was last empty, it gives the lock up and stands at the end of the line with what it
//! has left. So jobs that are longer than the interval take turns, and short ones go first come first served.
//!
//! The timer of the interval is with whoever owns the lock, and so are the cores. Left out: a new holder that takes time to wake up,
//! and that a holder may not be asked in the middle of a call into native code; such a call either gives the lock up by itself, which is
//! time outside of it, or is one long stretch that `interval_ns` should then not cut.

use std::collections::{BTreeMap, VecDeque};

use crate::sim::LockSpec;

/// The lock.
pub(in crate::sim) struct Lock {
    interval_ns: u64,
    holder: Option<u32>,
    line: VecDeque<u32>,
    /// What everybody who is to have it, or has it, has to do under it, in the cores' units of work.
    rest: BTreeMap<u32, u64>,
}

impl Lock {
    pub(in crate::sim) fn new(spec: &LockSpec) -> Lock {
        Lock { interval_ns: spec.interval_ns.max(1), holder: None, line: VecDeque::new(), rest: BTreeMap::new() }
    }

    /// Somebody will have so much to do under it.
    pub(in crate::sim) fn owes(&mut self, user: u32, work: u64) {
        self.rest.insert(user, work);
    }

    /// Whether somebody has something left to do under it.
    pub(in crate::sim) fn is_owed(&self, user: u32) -> bool {
        self.rest.contains_key(&user)
    }

    /// Somebody's work under it is done, or never will be.
    pub(in crate::sim) fn settle(&mut self, user: u32) {
        self.rest.remove(&user);
    }

    /// Takes the lock, or stands in line; whether it got it.
    pub(in crate::sim) fn enter(&mut self, user: u32) -> bool {
        let free = self.holder.is_none();
        if free {
            self.holder = Some(user);
        } else {
            self.line.push_back(user);
        }
        free
    }

    /// Who has it.
    #[inline]
    pub(in crate::sim) fn holder(&self) -> Option<u32> {
        self.holder
    }

    /// What the holder has to do (units).
    pub(in crate::sim) fn work(&self, user: u32) -> u64 {
        self.rest.get(&user).copied().unwrap_or(0)
    }

    /// The holder is done; who has it now.
    pub(in crate::sim) fn leave(&mut self) -> Option<u32> {
        if let Some(holder) = self.holder.take() {
            self.settle(holder);
        }
        self.holder = self.line.pop_front();
        self.holder
    }

    /// The holder gives it up with so much left (units), and stands at the end of the line; who has it now.
    pub(in crate::sim) fn give_way(&mut self, left: u64) -> Option<u32> {
        let holder = self.holder.take()?;
        self.rest.insert(holder, left);
        self.line.push_back(holder);
        self.holder = self.line.pop_front();
        self.holder
    }

    /// How many wait.
    pub(in crate::sim) fn waiting(&self) -> usize {
        self.line.len()
    }

    /// How long the first in line waits until the holder has to give way (ns).
    pub(in crate::sim) fn interval_ns(&self) -> u64 {
        self.interval_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_from_hand_to_hand_and_back_to_who_gave_way() {
        let mut lock = Lock::new(&LockSpec { interval_ns: 5, held: Vec::new() });
        (1..4).for_each(|user| lock.owes(user, u64::from(user) * 100));
        assert_eq!([1, 2, 3].map(|user| lock.enter(user)), [true, false, false]);
        assert_eq!((lock.holder(), lock.work(1), lock.waiting()), (Some(1), 100, 2));
        assert_eq!(lock.give_way(40), Some(2));
        assert_eq!(lock.leave(), Some(3));
        assert!(!lock.is_owed(2) && lock.is_owed(1));
        assert_eq!((lock.leave(), lock.work(1)), (Some(1), 40));
        assert_eq!((lock.leave(), lock.waiting(), lock.is_owed(1)), (None, 0, false));
        assert!(lock.enter(9));
    }
}
