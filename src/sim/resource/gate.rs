//! So many at a time, the others in a queue: threads of the pool, connections, copy engines.

use std::collections::VecDeque;

/// A number of places, and those who wait for one in the order in which they came.
pub(in crate::sim) struct Gate {
    places: u32,
    free: u32,
    queue: VecDeque<u32>,
}

impl Gate {
    pub(in crate::sim) fn new(places: u32) -> Gate {
        let places = places.max(1);
        Gate { places, free: places, queue: VecDeque::new() }
    }

    /// Takes a free place, or stands in line; whether it got one.
    #[inline]
    pub(in crate::sim) fn enter(&mut self, user: u32) -> bool {
        if self.free > 0 {
            self.free -= 1;
            true
        } else {
            self.queue.push_back(user);
            false
        }
    }

    /// Gives a place back; whoever is first in line has it at once.
    #[inline]
    pub(in crate::sim) fn leave(&mut self) -> Option<u32> {
        let next = self.queue.pop_front();
        if next.is_none() {
            self.free += 1;
            debug_assert!(self.free <= self.places, "more places given back than taken");
        }
        next
    }

    /// Leaves the line.
    pub(in crate::sim) fn give_up(&mut self, user: u32) {
        if let Some(k) = self.queue.iter().position(|waiting| *waiting == user) {
            self.queue.remove(k);
        }
    }

    /// How many wait.
    #[inline]
    pub(in crate::sim) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// How many places are taken.
    pub(in crate::sim) fn taken(&self) -> u32 {
        self.places - self.free
    }

    /// How many places there are.
    pub(in crate::sim) fn places(&self) -> u32 {
        self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_to_those_who_wait_in_the_order_in_which_they_came() {
        let mut gate = Gate::new(2);
        assert_eq!([0, 1, 2, 3, 4].map(|user| gate.enter(user)), [true, true, false, false, false]);
        gate.give_up(3);
        assert_eq!(gate.leave(), Some(2));
        assert_eq!(gate.leave(), Some(4));
        assert_eq!((gate.leave(), gate.leave()), (None, None));
        assert_eq!((gate.taken(), gate.waiting()), (0, 0));
    }
}
