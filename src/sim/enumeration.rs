//! All schedules of a run, one after the other.

use std::{cell::RefCell, rc::Rc};

use super::Tape;

/// The choices of a run as they are made: which alternative was taken of how many. It outlives the run, however that ends, in a panic
/// too. Clones are the same journal.
#[derive(Clone, Debug, Default)]
pub struct Journal(Rc<RefCell<Vec<Entry>>>);

/// One choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    taken: u32,
    /// The last alternative.
    last: u32,
}

impl Journal {
    /// One without entries.
    pub fn new() -> Journal {
        Journal::default()
    }

    #[inline]
    pub(super) fn enter(&self, taken: u32, last: u32) {
        self.0.borrow_mut().push(Entry { taken, last });
    }

    /// Number of choices.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Whether there was no choice.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// The choices as a tape.
    pub fn tape(&self) -> Tape {
        self.0.borrow().iter().enumerate().map(|(number, entry)| (number as u64, entry.taken)).collect()
    }
}

/// All schedules of a deterministic run, depth first: a run that takes its choices from the tape and enters them in the journal is run
/// again with every tape, until there is none. Nothing is stored but the choices of the last run: the next tape takes the next alternative
/// at the last choice that has one left, and the default after it (stateless search, as in Godefroid's VeriSoft, 1997).
///
/// Under [abstract time](super::Timing::Abstract) these are all orders in which leaves may end and timers go off, and all faults.
///
/// ```
/// use towtank::{
///     machine::{Item, Machine, Op},
///     sim::{Chooser, Config, Dataset, Enumeration, Simulation, Size, Timing},
/// };
///
/// let mut schedules = Enumeration::new();
/// while let Some(tape) = schedules.next() {
///     let config = Config {
///         timing: Timing::Abstract,
///         chooser: Chooser::Replay(tape),
///         dataset: Dataset::uniform(3, Size { bytes: 1, pixels: 1 }),
///         ..Config::default()
///     };
///     let root = |machine: towtank::sim::SimMachine<_>| async move {
///         let read = |sample| machine.read(Op { item: Item { sample, ..Item::default() }, ..Op::default() });
///         tokio::join!(read(0), read(1), read(2))
///     };
///     Simulation::new(config).journal(schedules.journal()).run(root).expect("reads end");
/// }
/// assert_eq!(schedules.seen(), 6, "three reads end in any order");
/// ```
#[derive(Debug, Default)]
pub struct Enumeration {
    journal: Journal,
    seen: u64,
    over: bool,
}

impl Enumeration {
    /// Before the first.
    pub fn new() -> Enumeration {
        Enumeration::default()
    }

    /// Where the run of the last tape enters its choices.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// How many schedules there were so far.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Whether those that there were are all: known once the last has run.
    pub fn is_over(&self) -> bool {
        self.over || self.seen > 0 && self.turn().is_none()
    }

    /// The number of the last choice of the last run that has an alternative left.
    fn turn(&self) -> Option<usize> {
        self.journal.0.borrow().iter().rposition(|entry| entry.taken < entry.last)
    }
}

impl Iterator for Enumeration {
    type Item = Tape;

    /// The next schedule. The one before has run meanwhile, with [this journal](Enumeration::journal).
    fn next(&mut self) -> Option<Tape> {
        let mut tape = Tape::new();
        if self.seen > 0 {
            let turn = if self.over { None } else { self.turn() };
            let Some(turn) = turn else {
                self.over = true;
                return None;
            };
            let mut entries = std::mem::take(&mut *self.journal.0.borrow_mut());
            entries.truncate(turn + 1);
            entries[turn].taken += 1;
            tape = entries.iter().enumerate().map(|(number, entry)| (number as u64, entry.taken)).collect();
        }
        self.seen += 1;
        Some(tape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that chooses among three, then, if it took the second, among two, and then among two.
    fn run(tape: &Tape, journal: &Journal) -> Vec<u32> {
        let mut taken = Vec::new();
        let mut choose = |last| {
            let alternative = tape.get(taken.len() as u64).min(last);
            journal.enter(alternative, last);
            taken.push(alternative);
            alternative
        };
        if choose(2) == 1 {
            choose(1);
        }
        choose(1);
        taken
    }

    #[test]
    fn every_path_of_a_tree_is_taken_once() {
        let mut all = Enumeration::new();
        let mut paths = Vec::new();
        while let Some(tape) = all.next() {
            paths.push(run(&tape, all.journal()));
            assert_eq!(all.is_over(), paths.len() == 8);
        }
        let expected = [&[0, 0][..], &[0, 1], &[1, 0, 0], &[1, 0, 1], &[1, 1, 0], &[1, 1, 1], &[2, 0], &[2, 1]];
        assert_eq!(paths, expected);
        assert_eq!((all.seen(), all.next()), (8, None));
    }
}
