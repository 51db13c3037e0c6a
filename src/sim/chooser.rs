//! Who decides what happens next when more than one thing may.
//!
//! At any instant the things that may happen are, in this order: what is due (a leaf that ends, a timer), by its place in the
//! order of time and registration; then the tasks that are ready, by the order in which they were woken. A choice is made
//! only when there are two or more; choices are numbered from 0. The default, alternative 0, is what [`Chooser::Fifo`] always
//! takes, so that a run is fully described by the choices that differ from it: its [`Tape`].

use std::collections::BTreeMap;

use crate::draw::{Block, Purpose, below, draw};

/// The choices of a run that differ from the default: number of the choice → alternative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tape {
    overrides: BTreeMap<u64, u32>,
}

impl Tape {
    /// The tape of a run in which nothing differs from the default.
    pub fn new() -> Tape {
        Tape::default()
    }

    /// Takes `alternative` at choice `number`, counted from 0. Where fewer alternatives exist, the last one is taken.
    pub fn set(&mut self, number: u64, alternative: u32) {
        match alternative {
            0 => self.overrides.remove(&number),
            _ => self.overrides.insert(number, alternative),
        };
    }

    /// The alternative at choice `number`.
    pub fn get(&self, number: u64) -> u32 {
        self.overrides.get(&number).copied().unwrap_or(0)
    }

    /// Number of choices that differ from the default.
    pub fn len(&self) -> usize {
        self.overrides.len()
    }

    /// Whether the tape is the default.
    pub fn is_empty(&self) -> bool {
        self.overrides.is_empty()
    }

    /// The choices that differ, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.overrides.iter().map(|(number, alternative)| (*number, *alternative))
    }
}

impl FromIterator<(u64, u32)> for Tape {
    fn from_iter<I: IntoIterator<Item = (u64, u32)>>(choices: I) -> Tape {
        let mut tape = Tape::new();
        for (number, alternative) in choices {
            tape.set(number, alternative);
        }
        tape
    }
}

/// Decides what happens next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Chooser {
    /// First come, first served.
    #[default]
    Fifo,
    /// Every alternative with the same probability, by this seed.
    Random(u64),
    /// As the tape says, and first come, first served where it says nothing.
    Replay(Tape),
}

/// A chooser at work: it counts the choices and, where wanted, writes the tape.
pub(super) struct Decider {
    chooser: Chooser,
    number: u64,
    tape: Option<Tape>,
    block: Option<(u64, Block)>,
}

impl Decider {
    pub(super) fn new(chooser: Chooser, keep_tape: bool) -> Decider {
        Decider { chooser, number: 0, tape: keep_tape.then(Tape::new), block: None }
    }

    /// Which of `n` things happens next.
    #[inline]
    pub(super) fn choose(&mut self, n: usize) -> usize {
        if n < 2 {
            return 0;
        }
        let number = self.number;
        self.number += 1;
        let last = u32::try_from(n - 1).unwrap_or(u32::MAX);
        let alternative = match &self.chooser {
            Chooser::Fifo => return 0,
            Chooser::Replay(tape) => tape.get(number).min(last),
            Chooser::Random(seed) => {
                let (place, word) = (number / Block::WORDS as u64, (number % Block::WORDS as u64) as usize);
                let block = match self.block {
                    Some((at, block)) if at == place => block,
                    _ => draw(*seed, Purpose::CHOICE, place, 0),
                };
                self.block = Some((place, block));
                below(block.word(word), u64::from(last) + 1) as u32
            }
        };
        if let Some(tape) = &mut self.tape {
            tape.set(number, alternative);
        }
        alternative as usize
    }

    /// How many choices were made.
    pub(super) fn choices(&self) -> u64 {
        self.number
    }

    /// The choices that differed from the default, if they were to be kept.
    pub(super) fn into_tape(self) -> Option<Tape> {
        self.tape
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(chooser: Chooser, sizes: &[usize]) -> (Vec<usize>, Tape) {
        let mut decider = Decider::new(chooser, true);
        let chosen = sizes.iter().map(|n| decider.choose(*n)).collect();
        (chosen, decider.into_tape().expect("kept"))
    }

    #[test]
    fn the_default_is_first_come_first_served_and_an_empty_tape() {
        assert_eq!(choices(Chooser::Fifo, &[1, 2, 9]), (vec![0, 0, 0], Tape::new()));
        assert_eq!(choices(Chooser::Replay(Tape::new()), &[1, 2, 9]), (vec![0, 0, 0], Tape::new()));
    }

    #[test]
    fn a_tape_counts_only_where_there_was_a_choice() {
        let tape: Tape = [(0, 1), (2, 7)].into_iter().collect();
        let (chosen, again) = choices(Chooser::Replay(tape), &[1, 2, 1, 3, 4]);
        assert_eq!(chosen, [0, 1, 0, 0, 3], "the last choice is cut to what there was");
        assert_eq!(again.iter().collect::<Vec<_>>(), [(0, 1), (2, 3)]);
    }

    #[test]
    fn what_chance_chose_is_replayed() {
        let sizes: Vec<usize> = (0..1000).map(|k| k % 7 + 1).collect();
        let (chosen, tape) = choices(Chooser::Random(3), &sizes);
        assert_eq!(choices(Chooser::Replay(tape.clone()), &sizes), (chosen.clone(), tape));
        assert_ne!(choices(Chooser::Random(4), &sizes).0, chosen);
        let firsts = sizes.iter().zip(&chosen).filter(|(n, k)| **n == 2 && **k == 0).count();
        assert!((50..95).contains(&firsts), "{firsts} of 143 times the first of two");
    }
}
