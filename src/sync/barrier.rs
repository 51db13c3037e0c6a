//! A place that a number of parties pass together: who is here, and who is still to come. How they wait is not its business: tasks of a
//! simulation wait in [`SimBarrier`](crate::sim::SimBarrier), threads in [`Party`](super::Party).
//!
//! Whoever arrives waits until all have; then the generation is over and the next begins. A party that goes for good is no longer waited
//! for; one that is lost breaks the barrier for everybody, as a collective operation does whose peer has died.

/// What an arrival leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Others are still to come; this is the generation that is waited for.
    Waits(u64),
    /// All are here: this generation is over.
    Opens(u64),
    /// A party is lost.
    Broken,
}

/// A barrier.
#[derive(Debug)]
pub(crate) struct Barrier {
    parties: u32,
    arrived: u32,
    generation: u64,
    broken: bool,
}

impl Barrier {
    pub(crate) fn new(parties: u32) -> Barrier {
        Barrier { parties: parties.max(1), arrived: 0, generation: 0, broken: false }
    }

    /// How many parties are here, and of how many.
    pub(crate) fn here(&self) -> (u32, u32) {
        (self.arrived, self.parties)
    }

    /// A party arrives.
    pub(crate) fn arrive(&mut self) -> Arrival {
        if self.broken {
            return Arrival::Broken;
        }
        self.arrived += 1;
        let generation = self.generation;
        if self.open() { Arrival::Opens(generation) } else { Arrival::Waits(generation) }
    }

    /// Begins a new generation when all are here, whether it did.
    fn open(&mut self) -> bool {
        let open = self.arrived >= self.parties && self.arrived > 0;
        if open {
            self.arrived = 0;
            self.generation += 1;
        }
        open
    }

    /// A party that had arrived does not wait any more; it may arrive again.
    pub(crate) fn withdraw(&mut self) {
        debug_assert!(self.arrived > 0, "nobody had arrived");
        self.arrived -= 1;
    }

    /// A party that had not arrived goes for good; whether those who are here may now pass.
    pub(crate) fn leave(&mut self) -> bool {
        self.parties = self.parties.saturating_sub(1);
        !self.broken && self.open()
    }

    /// A party is lost: nobody passes any more.
    pub(crate) fn lose(&mut self) {
        self.broken = true;
    }

    /// Whether this generation is over; `None` when it will never be.
    pub(crate) fn is_over(&self, generation: u64) -> Option<bool> {
        let over = self.generation > generation;
        (over || !self.broken).then_some(over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_come_opens_it_for_all_and_the_next_generation_begins() {
        let mut barrier = Barrier::new(3);
        for generation in 0..3 {
            assert_eq!([0; 2].map(|_| barrier.arrive()), [Arrival::Waits(generation); 2]);
            assert_eq!(barrier.is_over(generation), Some(false));
            assert_eq!(barrier.arrive(), Arrival::Opens(generation));
            assert_eq!(barrier.is_over(generation), Some(true));
        }
    }

    #[test]
    fn who_goes_is_not_waited_for_and_who_withdraws_is() {
        let mut barrier = Barrier::new(3);
        assert_eq!(barrier.arrive(), Arrival::Waits(0));
        barrier.withdraw();
        assert_eq!([0; 2].map(|_| barrier.arrive()), [Arrival::Waits(0); 2]);
        assert!(barrier.leave());
        assert_eq!(barrier.is_over(0), Some(true));
        assert_eq!([0; 2].map(|_| barrier.arrive()), [Arrival::Waits(1), Arrival::Opens(1)]);
        assert!(!barrier.leave() && !barrier.leave(), "nobody is here to pass");
    }

    #[test]
    fn a_lost_party_breaks_what_is_waited_for_but_not_what_is_over() {
        let mut barrier = Barrier::new(2);
        barrier.arrive();
        barrier.arrive();
        assert_eq!(barrier.arrive(), Arrival::Waits(1));
        barrier.lose();
        assert_eq!((barrier.is_over(0), barrier.is_over(1)), (Some(true), None));
        assert_eq!(barrier.arrive(), Arrival::Broken);
        assert!(!barrier.leave());
    }
}
