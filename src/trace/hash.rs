//! The rolling hash of a trace.

use super::Event;

/// Hash of a sequence of events: 64 bits, the same on every platform, and different for another order.
///
/// It tells two runs of one scenario apart; it is no defence against somebody who wants two traces to collide.
///
/// An event is five words. Each is multiplied by an odd constant of its own, folded upon itself, rotated and added to the digest
/// of the event; the digest is mixed into the state and the state is multiplied and folded. Every one of these steps can be
/// undone when all else is known, so **changing any one word of any one event always changes the hash**; several changes at once
/// cancel with a chance of about 2⁻⁶⁴. The five multiplications do not wait for one another, so an event costs little more than
/// the one of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash(u64);

const START: u64 = 0x9e37_79b9_7f4a_7c15;
const STATE: u64 = 0xd6e8_feb8_6659_fd93;
const WORDS: [u64; 5] =
    [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3, 0x1d8e_4e27_c47d_124f];

impl TraceHash {
    /// The hash of no events.
    pub const EMPTY: TraceHash = TraceHash(START);

    /// Takes the next event.
    #[inline]
    pub fn update(&mut self, event: &Event) {
        let place = u64::from(event.epoch) << 32
            | u64::from(event.rank) << 16
            | u64::from(event.stage.0) << 8
            | u64::from(event.kind as u8);
        let digest = word(event.time.0, WORDS[0])
            .wrapping_add(word(event.since.0, WORDS[1]).rotate_left(13))
            .wrapping_add(word(event.sample, WORDS[2]).rotate_left(26))
            .wrapping_add(word(event.bytes, WORDS[3]).rotate_left(39))
            .wrapping_add(word(place, WORDS[4]).rotate_left(52));
        let state = (self.0.rotate_left(29) ^ digest).wrapping_mul(STATE);
        self.0 = state ^ (state >> 32);
    }

    /// The hash of the events so far.
    #[inline]
    pub fn get(self) -> u64 {
        self.0
    }
}

#[inline]
fn word(value: u64, odd: u64) -> u64 {
    let product = value.wrapping_mul(odd);
    product ^ (product >> 32)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        machine::Time,
        trace::{Kind, StageId},
    };

    fn event() -> Event {
        Event {
            time: Time(1_000),
            since: Time(900),
            sample: 7,
            bytes: 114_660,
            epoch: 2,
            rank: 1,
            stage: StageId::DECODE,
            kind: Kind::End,
        }
    }

    fn hash(events: &[Event]) -> u64 {
        let mut h = TraceHash::EMPTY;
        events.iter().for_each(|e| h.update(e));
        h.get()
    }

    #[test]
    fn the_value_is_pinned() {
        assert_eq!(format!("{:016x}", hash(&[])), "9e3779b97f4a7c15");
        assert_eq!(format!("{:016x}", hash(&[event()])), "aaa737d0ad33386d");
        assert_eq!(format!("{:016x}", hash(&[event(); 3])), "711d74f2d1a5da31");
    }

    #[test]
    fn every_bit_of_every_field_counts() {
        let mut seen = BTreeSet::from([hash(&[event()])]);
        let mut changed = 1;
        let mut add = |e: Event| {
            changed += 1;
            seen.insert(hash(&[e]));
        };
        for bit in 0..64 {
            add(Event { time: Time(event().time.0 ^ 1 << bit), ..event() });
            add(Event { since: Time(event().since.0 ^ 1 << bit), ..event() });
            add(Event { sample: event().sample ^ 1 << bit, ..event() });
            add(Event { bytes: event().bytes ^ 1 << bit, ..event() });
        }
        (0..32).for_each(|bit| add(Event { epoch: event().epoch ^ 1 << bit, ..event() }));
        (0..16).for_each(|bit| add(Event { rank: event().rank ^ 1 << bit, ..event() }));
        (0..8).for_each(|bit| add(Event { stage: StageId(event().stage.0 ^ 1 << bit), ..event() }));
        Kind::ALL.into_iter().filter(|k| *k != event().kind).for_each(|kind| add(Event { kind, ..event() }));
        assert_eq!(seen.len(), changed);
    }

    #[test]
    fn order_counts() {
        let (a, b) = (event(), Event { sample: 8, ..event() });
        assert_ne!(hash(&[a, b]), hash(&[b, a]));
        assert_ne!(hash(&[a, a, b]), hash(&[a, b, a]));
        assert_ne!(hash(&[a]), hash(&[a, a]));
    }

    #[test]
    fn moving_time_between_two_events_does_not_cancel() {
        let mut seen = BTreeSet::new();
        for shift in 0..1000 {
            let a = Event { time: Time(1_000 + shift), ..event() };
            let b = Event { time: Time(2_000 - shift), ..event() };
            seen.insert(hash(&[a, b]));
        }
        assert_eq!(seen.len(), 1000);
    }
}
