//! Who holds what, and who waits for whom: what a stall report asks of things that tasks share.
//!
//! A machine knows its own leaves and sleeps. A ring of slots, an account of bytes or a limit are the loader's, and a task that waits for
//! one looks to the machine like any that sleeps for no reason. So whoever makes such a thing lets the machine
//! [watch](super::Machine::watch) it; when nothing moves any more it is asked for its [`Standing`], and never before: all that it costs
//! until then is to note [who](Who) came.

use std::task::Waker;

/// A task, known by the waker that it is polled with. It means somebody only while that task lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Who(usize);

impl Who {
    /// Whoever is polled with this waker.
    #[inline]
    pub fn of(waker: &Waker) -> Who {
        Who(waker.data().addr())
    }
}

/// Something that tasks hold and wait for.
pub trait Shared {
    /// Who waits for it now, and for whom.
    fn standing(&self) -> Standing;
}

/// Who waits for a thing that is shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Everybody who waits, in the order of their turns.
    pub waits: Vec<Wait>,
    /// Some who are waited for are not known: those that were spawned in the same place as who waits, and do not wait, are taken to be
    /// they.
    pub and_alike: bool,
}

/// Somebody who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Who.
    pub who: Who,
    /// For what, as the rest of a sentence: `waits for a permit of "decode", of which 2 of 2 are out`.
    pub what: String,
    /// Those of whom at least one has to do something before the wait is over, and what they have, as the rest of a sentence:
    /// `has one`. Nobody where that is not known.
    pub on: Vec<(Who, String)>,
}

/// Those who hold something, each in a place of its own that is used again.
#[derive(Debug)]
pub(crate) struct Holders<T> {
    places: Vec<Option<(Who, T)>>,
    vacant: Vec<u32>,
}

impl<T> Default for Holders<T> {
    fn default() -> Holders<T> {
        Holders { places: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Holders<T> {
    /// Somebody holds something from now on; in which place.
    #[inline]
    pub(crate) fn enter(&mut self, who: Who, what: T) -> u32 {
        match self.vacant.pop() {
            Some(place) => {
                self.places[place as usize] = Some((who, what));
                place
            }
            None => {
                self.places.push(Some((who, what)));
                u32::try_from(self.places.len() - 1).expect("fewer than 2^32 hold something at a time")
            }
        }
    }

    /// What is held in a place.
    #[inline]
    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.places[place as usize].as_mut().map(|(_, what)| what)
    }

    /// It is held no longer.
    #[inline]
    pub(crate) fn leave(&mut self, place: u32) {
        self.places[place as usize] = None;
        self.vacant.push(place);
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Who, &T)> + '_ {
        self.places.iter().flatten().map(|(who, what)| (*who, what))
    }
}
