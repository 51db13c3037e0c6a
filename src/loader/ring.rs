//! The ring of slots: where samples live between decoding and the consumer.
//!
//! # Sequence numbers and slots
//!
//! Every sample that gets a slot gets a **sequence number**, and number `s` lives in slot `s mod R`, so that the samples of a batch are
//! neighbours. Numbers are drawn in order, and the next number can be drawn only when its slot is at home:
//!
//! ```text
//!        base                       tail = next number to draw
//!         │ oldest not yet drained   │
//!   ──────┼──────────────────────────┼──────▶ sequence numbers
//!   drained│ ✓   ✓   …   ✗   ✓   …   │ free
//!          └── resolved in any order ┘
//! ```
//!
//! | a slot is | whose token is |
//! | --- | --- |
//! | at home | here |
//! | claimed | with the lane, then with the decode job that writes it |
//! | filled | here again, as an [`Entry`], until its number is drained |
//! | in a batch | with the batch under assembly, the copy, or the consumer it is lent to |
//!
//! Since the token is the only way to the slot's memory, a slot cannot be written before its last reader has given it back.
//!
//! # Order
//!
//! Entries are **drained** in sequence order, whatever order they resolved in. A failed sample is a hole: an entry without a slot,
//! whose slot went home at once. A batch is the next `B` successes; so what it holds depends on which samples failed and on who drew
//! which number, on nothing else. In plan order the number is drawn at launch, and numbers follow the plan. In completion order
//! it is drawn when decoding starts.
//!
//! # Why it does not stop
//!
//! The next number waits for the slot of number `tail − R`. That one is undrained, then its sample resolves some day; or in a batch on
//! its way to the consumer; or in a batch that the consumer holds; or in the batch under assembly.
//!
//! In the last case the ring waits for itself: holes have used up numbers, and the unfinished batch needs more of them. Then what there is of
//! the batch is **flushed**: moved to the device in part, so that its slots come home. With that a ring of one batch is enough.
//!
//! A batch that the consumer holds in its slots comes back when the consumer likes, usually long before the ring comes round. Where
//! the consumer keeps it and waits for more, the ring **passes over** the slots that are away, and number `s` lives in the next slot
//! at home instead. What a batch holds does not change by that, only where it lies. Only when no slot is left does the consumer wait for
//! itself.

use std::collections::VecDeque;

use super::outcome::Skipped;
use crate::{
    failure::Failure,
    machine::{Item, Slot, Time, Who},
};

/// A sample whose sequence number has resolved.
#[derive(Debug)]
pub(super) struct Entry<U> {
    pub(super) item: Item,
    /// Its index in the rank's share of its epoch.
    pub(super) index: u64,
    pub(super) launched: Time,
    /// Its slot and when it was filled, or why it is a hole.
    pub(super) result: Result<(Slot<U>, Time), Failure>,
}

/// The ring. It knows no time and wakes nobody.
#[derive(Debug)]
pub(super) struct Ring<U> {
    slots: Vec<Option<Slot<U>>>,
    at_home: usize,
    /// Place of the next number's slot.
    turn: usize,
    /// The oldest number not drained.
    base: u64,
    /// Numbers from `base` to the next one to draw.
    entries: VecDeque<Number<U>>,
}

/// What has become of a number that was drawn.
#[derive(Debug)]
enum Number<U> {
    /// It is not resolved; who drew it, and the slot that it lives in.
    Open(Who, usize),
    Resolved(Entry<U>),
}

impl<U> Ring<U> {
    pub(super) fn new(slots: Vec<Slot<U>>) -> Ring<U> {
        let at_home = slots.len();
        let mut places: Vec<Option<Slot<U>>> = (0..at_home).map(|_| None).collect();
        for slot in slots {
            let place = slot.index();
            places[place] = Some(slot);
        }
        Ring { slots: places, at_home, turn: 0, base: 0, entries: VecDeque::with_capacity(at_home) }
    }

    /// Slots at home.
    pub(super) fn at_home(&self) -> usize {
        self.at_home
    }

    /// Whether the next number can be drawn.
    pub(super) fn can_claim(&self) -> bool {
        self.slots[self.turn].is_some()
    }

    /// Place of the slot that the next number waits for.
    pub(super) fn turn(&self) -> usize {
        self.turn
    }

    /// Lets the next number live in the next slot that is at home; returns whether there is one.
    pub(super) fn pass_over(&mut self) -> bool {
        let (before, after) = self.slots.split_at(self.turn);
        let ahead = after.iter().chain(before).position(Option::is_some);
        if let Some(steps) = ahead {
            self.turn = (self.turn + steps) % self.slots.len();
        }
        ahead.is_some()
    }

    /// Lets the next number live where batches of `batch` samples begin, if the ring holds two or more of them and nothing else. After an
    /// epoch's short last batch the following ones would otherwise lie across the ring's end, every so many of them in two pieces, to be
    /// gathered by a copy.
    pub(super) fn align(&mut self, batch: usize) {
        let slots = self.slots.len();
        if slots > batch && slots.is_multiple_of(batch) {
            self.turn = self.turn.next_multiple_of(batch) % slots;
        }
    }

    /// Draws the next number with its slot.
    pub(super) fn claim(&mut self, who: Who) -> Option<(u64, Slot<U>)> {
        let place = self.turn;
        let slot = self.slots[place].take()?;
        self.at_home -= 1;
        self.turn = if self.turn + 1 == self.slots.len() { 0 } else { self.turn + 1 };
        self.entries.push_back(Number::Open(who, place));
        Some((self.base + self.entries.len() as u64 - 1, slot))
    }

    /// The number has resolved.
    pub(super) fn put(&mut self, number: u64, entry: Entry<U>) {
        let place = &mut self.entries[(number - self.base) as usize];
        assert!(matches!(place, Number::Open(..)), "number {number} resolves once");
        *place = Number::Resolved(entry);
    }

    /// Drains the oldest number if it has resolved.
    pub(super) fn drain(&mut self) -> Option<Entry<U>> {
        if matches!(self.entries.front()?, Number::Open(..)) {
            return None;
        }
        let Some(Number::Resolved(entry)) = self.entries.pop_front() else { return None };
        self.base += 1;
        Some(entry)
    }

    /// Whether every number drawn has been drained.
    pub(super) fn is_drained(&self) -> bool {
        self.entries.is_empty()
    }

    /// The slot is free again.
    pub(super) fn come_home(&mut self, slot: Slot<U>) {
        let place = slot.index();
        assert!(self.slots[place].is_none(), "slot {place} has one token");
        self.slots[place] = Some(slot);
        self.at_home += 1;
    }

    /// Filled samples that are not drained.
    pub(super) fn filled(&self) -> u64 {
        let filled = |number: &&Number<U>| matches!(number, Number::Resolved(entry) if entry.result.is_ok());
        self.entries.iter().filter(filled).count() as u64
    }

    /// Who has the slot that the next number waits for, and what they do with it; `None` where it is at home, or with a batch.
    pub(super) fn holder(&self) -> Option<(Who, String)> {
        let place = self.turn;
        let is_there = |number: &Number<U>| match number {
            Number::Open(_, at) => *at == place,
            Number::Resolved(entry) => entry.result.as_ref().is_ok_and(|(slot, _)| slot.index() == place),
        };
        match (self.entries.iter().find(|number| is_there(number))?, self.entries.front()?) {
            (Number::Open(who, _), _) => Some((*who, "has it".to_owned())),
            (_, Number::Open(who, _)) => Some((*who, "has the oldest sample, behind which the one in it waits".to_owned())),
            _ => None,
        }
    }

    /// Who drew the oldest number that has not resolved, when it is that which everything drawn later waits for.
    pub(super) fn oldest(&self) -> Option<Who> {
        match self.entries.front()? {
            Number::Open(who, _) => Some(*who),
            Number::Resolved(_) => None,
        }
    }

    /// Gives up what is not drained: its slots are free again. Returns what had failed.
    pub(super) fn give_up(&mut self) -> Vec<Skipped> {
        let mut skipped = Vec::new();
        for number in std::mem::take(&mut self.entries) {
            let Number::Resolved(Entry { item, result, .. }) = number else { continue };
            match result {
                Ok((slot, _)) => self.come_home(slot),
                Err(failure) => skipped.push(Skipped { item, failure }),
            }
        }
        skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{failure::FailureKind, machine::slab};

    fn nobody() -> Who {
        Who::of(std::task::Waker::noop())
    }

    fn entry(sample: u64, slot: Option<Slot<u8>>) -> Entry<u8> {
        let result = slot.map(|slot| (slot, Time::ZERO)).ok_or(Failure::new(FailureKind::Corrupt, "bad"));
        Entry { item: Item { sample, ..Item::default() }, index: sample, launched: Time::ZERO, result }
    }

    #[test]
    fn numbers_are_drained_in_order_and_wait_for_their_own_slot() {
        let mut ring = Ring::new(slab::<u8>(3, 1).expect("three bytes"));
        let mut claimed: Vec<_> = std::iter::from_fn(|| ring.claim(nobody())).collect();
        assert_eq!(claimed.iter().map(|(n, slot)| (*n, slot.index())).collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 2)]);
        let (number, second) = claimed.remove(1);
        ring.put(number, entry(1, Some(second)));
        assert!(ring.drain().is_none(), "number 0 has not resolved");
        let (number, first) = claimed.remove(0);
        ring.come_home(first);
        ring.put(number, entry(0, None));
        assert!(ring.drain().expect("a hole").result.is_err());
        let (slot, _) = ring.drain().expect("number 1").result.expect("filled");
        assert!(ring.can_claim(), "number 3 lives in slot 0, which is at home");
        let (three, _) = ring.claim(nobody()).expect("slot 0");
        assert_eq!(three, 3);
        assert!(!ring.can_claim(), "number 4 lives in slot 1");
        ring.come_home(slot);
        assert!(ring.can_claim());
    }

    #[test]
    fn after_a_short_batch_the_next_one_lies_in_one_piece() {
        let aligned = |slots: usize, drawn: usize, batch: usize| {
            let mut ring = Ring::new(slab::<u8>(slots, 1).expect("a few bytes"));
            (0..drawn).for_each(|_| drop(ring.claim(nobody())));
            ring.align(batch);
            ring.turn()
        };
        assert_eq!(aligned(12, 5, 4), 8);
        assert_eq!(aligned(12, 8, 4), 8, "it ended whole");
        assert_eq!(aligned(12, 9, 4), 0, "round the ring's end");
        assert_eq!(aligned(4, 2, 4), 2, "a ring of one batch has no other place");
        assert_eq!(aligned(10, 5, 4), 5, "batches lie anywhere in a ring that is no multiple of them");
    }

    #[test]
    fn a_slot_that_is_kept_away_is_passed_over() {
        let mut ring = Ring::new(slab::<u8>(4, 1).expect("four bytes"));
        let mut slots: Vec<_> = std::iter::from_fn(|| ring.claim(nobody())).map(|(_, slot)| slot).collect();
        assert!(!ring.pass_over(), "none is at home");
        ring.come_home(slots.remove(2));
        assert!(!ring.can_claim() && ring.pass_over());
        let (number, slot) = ring.claim(nobody()).expect("the slot at home");
        assert_eq!((number, slot.index(), ring.turn()), (4, 2, 3));
        ring.come_home(slots.remove(0));
        assert!(ring.pass_over());
        assert_eq!(ring.turn(), 0);
    }
}
