//! Who decides what happens next when more than one thing may.
//!
//! At any instant the things that may happen are, in this order: what is due (a leaf that ends, a timer), by its place in the
//! order of time and registration; then the tasks that are ready, by the order in which they were woken. A choice is made
//! only when there are two or more; choices are numbered from 0. The default, alternative 0, is what [`Chooser::Fifo`] always
//! takes, so that a run is fully described by the choices that differ from it: its [`Tape`].

use std::collections::BTreeMap;

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
