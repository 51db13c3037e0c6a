//! Who decides what happens next when more than one thing may.
//!
//! At any instant the things that may happen are, in this order: what is due (a leaf that ends, a timer), by its place in the
//! order of time and registration; then the tasks that are ready, by the order in which they were woken. A choice is made
//! only when there are two or more; choices are numbered from 0. The default, alternative 0, is what [`Chooser::Fifo`] always
//! takes, so that a run is fully described by the choices that differ from it: its [`Tape`].
//!
//! In [abstract time](super::Timing::Abstract) a choice is instead among what may happen at all: see [`outstanding`](super::outstanding).

use std::collections::{BTreeMap, BTreeSet};

use super::enumeration::Journal;
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
    /// By priorities: probabilistic concurrency testing (Burckhardt et al., A Randomized Scheduler with Probabilistic Guarantees of
    /// Finding Bugs, 2010). Every entity gets a priority by chance, and of what may happen next, that of the entity with the highest
    /// happens. At `depth` - 1 choices, drawn from the first `length`, the entity that would go falls below all others instead. A bug that
    /// takes `depth` things to happen in one order is found by a run with a probability of at least `1 / (entities · lengthᵈᵉᵖᵗʰ⁻¹)`,
    /// however many schedules there are.
    ///
    /// An entity is a task: it goes when it is polled, and when a leaf ends that it waits for. Its sleep is another entity, and so are the
    /// leaves that nobody waits for any more, by rank and stage. One whose sleeps end [`FAIR`] times in a row, while leaves are outstanding,
    /// falls below all others too, since a task that looks at the clock again and again would go on for ever. Whether a leaf fails that
    /// may is drawn by its rate.
    Pct {
        /// Of all that is drawn.
        seed: u64,
        /// Things that have to happen in one order; at least one.
        depth: u32,
        /// Choices that a run is expected to have.
        length: u64,
    },
}

/// Sleeps of one task that may end in a row under [`Chooser::Pct`] while leaves are outstanding.
pub const FAIR: u32 = 64;

/// Which draws of a choice are which: the seed's other choices are drawn with occurrence 0.
const PRIORITY: u64 = 1;
const CHANGE: u64 = 2;
const MISHAP: u64 = 3;

/// A way to fail, as an alternative beside all that happens well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mishap<F> {
    /// Which of those that may happen.
    pub(super) of: usize,
    /// Its rate in millionths, for choosers that draw.
    pub(super) ppm: u32,
    pub(super) fault: F,
}

/// Priorities under [`Chooser::Pct`].
struct Priorities {
    seed: u64,
    /// Numbers of the choices at which somebody falls.
    changes: BTreeSet<u64>,
    /// How far those have fallen that have: the later, the lower.
    fallen: BTreeMap<u64, u64>,
    /// Whose sleep ended last, and how often in a row.
    sleeper: (u64, u32),
}

impl Priorities {
    fn new(seed: u64, depth: u32, length: u64) -> Priorities {
        let change = |k| below(draw(seed, Purpose::CHOICE, k, CHANGE).word(0), length.max(1));
        let changes = (1..u64::from(depth)).map(change).collect();
        Priorities { seed, changes, fallen: BTreeMap::new(), sleeper: (0, 0) }
    }

    /// The first of those that are ahead of all others.
    fn highest(&self, n: usize, who: &impl Fn(usize) -> u64) -> (usize, u64) {
        let rank = |entity: u64| match self.fallen.get(&entity) {
            // Who fell later is behind.
            Some(fell) => (0, u64::MAX - fell),
            None => (1, draw(self.seed, Purpose::CHOICE, entity, PRIORITY).word(0)),
        };
        let mut best = (0, who(0));
        let mut highest = rank(best.1);
        for k in 1..n {
            let entity = who(k);
            let its = rank(entity);
            if its > highest {
                (best, highest) = ((k, entity), its);
            }
        }
        best
    }

    fn choose(&mut self, number: u64, n: usize, who: &impl Fn(usize) -> u64) -> usize {
        let (mut chosen, mut entity) = self.highest(n, who);
        let sleeps = entity & SLEEPS != 0;
        self.sleeper = match sleeps && self.sleeper.0 == entity {
            true => (entity, self.sleeper.1 + 1),
            false => (if sleeps { entity } else { 0 }, 1),
        };
        if self.changes.contains(&number) || sleeps && self.sleeper.1 > FAIR {
            let falls = self.fallen.values().max().map_or(0, |last| last + 1);
            self.fallen.insert(entity, falls);
            (chosen, entity) = self.highest(n, who);
            self.sleeper = (entity, 1);
        }
        chosen
    }
}

/// The bit of an entity that is a task's sleep.
pub(super) const SLEEPS: u64 = 1 << 40;

/// A chooser at work: it counts the choices and, where wanted, writes the tape.
pub(super) struct Decider {
    chooser: Chooser,
    number: u64,
    tape: Option<Tape>,
    journal: Option<Journal>,
    block: Option<(u64, Block)>,
    priorities: Option<Priorities>,
    /// What is ready is taken in its order: choices are only among what may happen.
    in_order: bool,
}

impl Decider {
    pub(super) fn new(chooser: Chooser, keep_tape: bool) -> Decider {
        let priorities = match &chooser {
            Chooser::Pct { seed, depth, length } => Some(Priorities::new(*seed, *depth, *length)),
            _ => None,
        };
        let tape = keep_tape.then(Tape::new);
        Decider { chooser, number: 0, tape, journal: None, block: None, priorities, in_order: false }
    }

    /// The same, and every choice is entered there.
    pub(super) fn journal(self, journal: Option<Journal>) -> Decider {
        Decider { journal, ..self }
    }

    /// The same, but what is ready is taken in its order, and that is no choice.
    pub(super) fn in_order(self, in_order: bool) -> Decider {
        Decider { in_order, ..self }
    }

    /// Which of `n` things happens next; `who` says of which entity each is.
    #[inline]
    pub(super) fn choose(&mut self, n: usize, who: impl Fn(usize) -> u64) -> usize {
        if n < 2 || self.in_order {
            return 0;
        }
        let number = self.number;
        self.number += 1;
        let last = u32::try_from(n - 1).unwrap_or(u32::MAX);
        let alternative = match &self.chooser {
            Chooser::Fifo => return 0,
            Chooser::Replay(tape) => tape.get(number).min(last),
            Chooser::Random(seed) => random(*seed, &mut self.block, number, u64::from(last) + 1),
            Chooser::Pct { .. } => self.priorities.as_mut().map_or(0, |p| p.choose(number, n, &who)) as u32,
        };
        self.keep(number, alternative, last);
        alternative as usize
    }

    /// Which of `n` things that may happen does, or which of the mishaps: `n` and more. Choosers that draw decide first which thing, and
    /// then, by the rates, whether it fails.
    pub(super) fn choose_event<F>(&mut self, n: usize, mishaps: &[Mishap<F>], who: impl Fn(usize) -> u64) -> usize {
        if n + mishaps.len() < 2 {
            return 0;
        }
        let number = self.number;
        self.number += 1;
        let last = u32::try_from(n + mishaps.len() - 1).unwrap_or(u32::MAX);
        let drawn = |seed: u64, chosen: usize| {
            let mut left = below(draw(seed, Purpose::CHOICE, number, MISHAP).word(0), 1_000_000);
            let fails = mishaps.iter().position(|mishap| {
                let ppm = if mishap.of == chosen { u64::from(mishap.ppm) } else { 0 };
                let hit = left < ppm;
                left = left.saturating_sub(ppm);
                hit
            });
            fails.map_or(chosen, |k| n + k) as u32
        };
        let alternative = match &self.chooser {
            Chooser::Fifo => 0,
            Chooser::Replay(tape) => tape.get(number).min(last),
            Chooser::Random(seed) => drawn(*seed, random(*seed, &mut self.block, number, n as u64) as usize),
            Chooser::Pct { seed, .. } => {
                drawn(*seed, self.priorities.as_mut().map_or(0, |priorities| priorities.choose(number, n, &who)))
            }
        };
        self.keep(number, alternative, last);
        alternative as usize
    }

    #[inline]
    fn keep(&mut self, number: u64, alternative: u32, last: u32) {
        if let Some(tape) = &mut self.tape {
            tape.set(number, alternative);
        }
        if let Some(journal) = &self.journal {
            journal.enter(alternative, last);
        }
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

/// One of `n`, for this choice of the seed.
#[inline]
fn random(seed: u64, lately: &mut Option<(u64, Block)>, number: u64, n: u64) -> u32 {
    let (place, word) = (number / Block::WORDS as u64, (number % Block::WORDS as u64) as usize);
    let block = match *lately {
        Some((at, block)) if at == place => block,
        _ => draw(seed, Purpose::CHOICE, place, 0),
    };
    *lately = Some((place, block));
    below(block.word(word), n) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(chooser: Chooser, sizes: &[usize]) -> (Vec<usize>, Tape) {
        let mut decider = Decider::new(chooser, true);
        let chosen = sizes.iter().map(|n| decider.choose(*n, |k| k as u64)).collect();
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

    /// Runs of `entities` that each have `steps` things to do; the order in which they go.
    fn interleaved(chooser: Chooser, entities: u64, steps: u32) -> Vec<u64> {
        let mut decider = Decider::new(chooser, false);
        let mut left: Vec<(u64, u32)> = (0..entities).map(|entity| (entity, steps)).collect();
        let mut order = Vec::new();
        while !left.is_empty() {
            let k = decider.choose(left.len(), |k| left[k].0);
            order.push(left[k].0);
            left[k].1 -= 1;
            left.retain(|(_, steps)| *steps > 0);
        }
        order
    }

    #[test]
    fn priorities_change_where_and_as_often_as_they_were_drawn() {
        let turns = |depth, seed| {
            let order = interleaved(Chooser::Pct { seed, depth, length: 30 }, 4, 10);
            order.windows(2).filter(|pair| pair[0] != pair[1]).count()
        };
        for seed in 0..50 {
            assert_eq!(turns(1, seed), 3, "one after the other");
            assert!((3..=5).contains(&turns(3, seed)), "two changes make at most two turns more");
        }
        assert!((0..50).any(|seed| turns(3, seed) == 5));
        let firsts: BTreeSet<u64> =
            (0..50).map(|seed| interleaved(Chooser::Pct { seed, depth: 1, length: 1 }, 4, 1)[0]).collect();
        assert_eq!(firsts.len(), 4, "anybody may be the first");
    }

    #[test]
    fn what_fails_by_a_rate_fails_that_often() {
        let mishaps = [Mishap { of: 1, ppm: 250_000, fault: () }, Mishap { of: 1, ppm: 500_000, fault: () }];
        for seed_of in [Chooser::Random, |seed| Chooser::Pct { seed, depth: 1, length: 1 }] {
            let chosen = |seed| Decider::new(seed_of(seed), false).choose_event(2, &mishaps, |k| k as u64);
            let mut counts = [0; 4];
            (0..4000).for_each(|seed| counts[chosen(seed)] += 1);
            for (count, expected) in counts.iter().zip([2000, 500, 500, 1000]) {
                assert!((expected - 130..expected + 130).contains(count), "{counts:?}");
            }
        }
    }
}
