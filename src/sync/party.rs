//! Where the threads of several ranks wait for each other.
//!
//! It is the barrier of data-parallel training with one difference to [`std::sync::Barrier`]: a party that is dropped, because its rank has
//! no more steps, has failed, or its thread panics, is no longer waited for. So whatever becomes of one rank, the others go on.

use std::sync::{Arc, PoisonError};

use super::{
    Condvar, Mutex,
    barrier::{Arrival, Barrier},
    lock,
};

/// One of several threads that [meet](Party::meet) again and again. Dropping it takes it out for good.
///
/// ```
/// use std::thread;
/// use towtank::sync::Party;
///
/// let mut threads = Vec::new();
/// for (rank, mut party) in Party::of(3).into_iter().enumerate() {
///     // Rank 0 has one step less, and leaves the others to theirs.
///     threads.push(thread::spawn(move || (0..rank.max(1)).map(|_| party.meet()).collect::<Vec<_>>()));
/// }
/// let met: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
/// assert_eq!(met, [vec![0], vec![0], vec![0, 1]]);
/// ```
#[derive(Debug)]
pub struct Party {
    place: Arc<Place>,
}

#[derive(Debug)]
struct Place {
    barrier: Mutex<Barrier>,
    opened: Condvar,
}

impl Party {
    /// So many parties that meet each other.
    pub fn of(count: u32) -> Vec<Party> {
        let place = Arc::new(Place { barrier: Mutex::new(Barrier::new(count)), opened: Condvar::new() });
        (0..count).map(|_| Party { place: place.clone() }).collect()
    }

    /// Waits until every other party waits too or is gone; gives how many times they have met before.
    pub fn meet(&mut self) -> u64 {
        let mut barrier = lock(&self.place.barrier);
        let generation = match barrier.arrive() {
            Arrival::Waits(generation) => generation,
            Arrival::Opens(generation) => {
                drop(barrier);
                self.place.opened.notify_all();
                return generation;
            }
            Arrival::Broken => unreachable!("no party is ever lost without being dropped"),
        };
        while barrier.is_over(generation) == Some(false) {
            barrier = self.place.opened.wait(barrier).unwrap_or_else(PoisonError::into_inner);
        }
        generation
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        let opened = lock(&self.place.barrier).leave();
        if opened {
            self.place.opened.notify_all();
        }
    }
}

#[cfg(all(test, not(towtank_loom)))]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{
            atomic::{AtomicU64, Ordering},
            mpsc,
        },
        thread,
    };

    use super::*;

    #[test]
    fn nobody_is_a_step_ahead_of_anybody() {
        const STEPS: u64 = 200;
        let steps: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            for (rank, mut party) in Party::of(4).into_iter().enumerate() {
                let steps = &steps;
                scope.spawn(move || {
                    for step in 0..STEPS {
                        steps[rank].store(step + 1, Ordering::SeqCst);
                        assert_eq!(party.meet(), step);
                        assert!(steps.iter().all(|other| other.load(Ordering::SeqCst) > step), "all have done step {step}");
                    }
                });
            }
        });
    }

    #[test]
    fn a_party_that_goes_early_lets_those_pass_who_wait_for_it() {
        let mut parties = Party::of(3);
        let (gone, (tell, told)) = (parties.pop(), mpsc::channel());
        thread::scope(|scope| {
            for mut party in parties {
                let tell = tell.clone();
                scope.spawn(move || {
                    tell.send(party.meet()).expect("the test listens");
                    tell.send(party.meet()).expect("the test listens");
                });
            }
            assert!(told.try_recv().is_err(), "the third is still to come");
            drop(gone);
            let mut met: Vec<u64> = told.iter().take(4).collect();
            met.sort_unstable();
            assert_eq!(met, [0, 0, 1, 1]);
        });
    }

    #[test]
    fn a_party_whose_thread_panics_is_not_waited_for() {
        let mut parties = Party::of(2);
        let lost = parties.pop();
        thread::scope(|scope| {
            let mut party = parties.pop().expect("there are two");
            let waits = scope.spawn(move || (party.meet(), party.meet()));
            let panicked = catch_unwind(AssertUnwindSafe(move || {
                lost.expect("there are two").meet();
                std::panic::resume_unwind(Box::new("a step went wrong"));
            }));
            assert!(panicked.is_err());
            assert_eq!(waits.join().expect("it met twice"), (0, 1));
        });
    }

    #[test]
    fn one_alone_waits_for_nobody() {
        let mut alone = Party::of(1).pop().expect("there is one");
        assert_eq!((alone.meet(), alone.meet()), (0, 1));
        assert!(Party::of(0).is_empty());
    }
}
