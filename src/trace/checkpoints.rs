//! Where two traces part: hashes on the way, few enough to keep and to search.

use std::ops::Range;

/// The hash of a trace after every so many events. Of two runs it tells between which events they part, by bisection: a
/// [hash](super::TraceHash) that differs differs for ever after.
///
/// The distance doubles when there are too many, so that a trace of any length takes at most 32 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoints {
    every: u64,
    hashes: Vec<u64>,
    events: u64,
    last: u64,
}

impl Default for Checkpoints {
    fn default() -> Checkpoints {
        Checkpoints { every: Checkpoints::EVERY_LEAST, hashes: Vec::new(), events: 0, last: 0 }
    }
}

impl Checkpoints {
    const EVERY_LEAST: u64 = 32;
    const MOST: usize = 4096;

    /// One more event; `hash` is that of the trace with it.
    #[inline]
    pub fn note(&mut self, hash: u64) {
        self.events += 1;
        self.last = hash;
        if self.events.is_multiple_of(self.every) {
            self.hashes.push(hash);
            if self.hashes.len() == Checkpoints::MOST {
                self.double();
            }
        }
    }

    fn double(&mut self) {
        let kept = self.hashes.iter().skip(1).step_by(2).copied().collect();
        (self.hashes, self.every) = (kept, self.every * 2);
    }

    /// Events of the trace.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Numbers of events, from 0, among which is the first in which the two traces differ; `None` when they are the same. Where one is
    /// the beginning of the other, the first that only one has counts as that.
    pub fn part(&self, other: &Checkpoints) -> Option<Range<u64>> {
        if (self.events, self.last) == (other.events, other.last) {
            return None;
        }
        let (mut a, mut b) = (self.clone(), other.clone());
        while a.every < b.every {
            a.double();
        }
        while b.every < a.every {
            b.double();
        }
        let both = a.hashes.len().min(b.hashes.len());
        let pairs: Vec<bool> = a.hashes[..both].iter().zip(&b.hashes[..both]).map(|(a, b)| a == b).collect();
        let alike = pairs.partition_point(|alike| *alike) as u64;
        let end = self.events.max(other.events).min((alike + 1) * a.every);
        Some(alike * a.every..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        machine::Time,
        trace::{Event, Kind, StageId, TraceHash},
    };

    fn trace(samples: impl Iterator<Item = u64>) -> Checkpoints {
        let (mut hash, mut checkpoints) = (TraceHash::EMPTY, Checkpoints::default());
        for sample in samples {
            let (time, stage) = (Time(sample), StageId::DECODE);
            hash.update(&Event { time, since: time, sample, bytes: 0, epoch: 0, rank: 0, stage, kind: Kind::End });
            checkpoints.note(hash.get());
        }
        checkpoints
    }

    #[test]
    fn the_event_in_which_two_traces_part_is_where_they_say() {
        for events in [1, 31, 32, 33, 1000, 300_000] {
            let whole = trace(0..events);
            assert_eq!(whole.part(&whole.clone()), None);
            for changed in [0, events / 3, events - 1] {
                let other = trace((0..events).map(|k| if k == changed { k + 1_000_000 } else { k }));
                let range = whole.part(&other).expect("one event differs");
                assert!(range.contains(&changed), "{changed} of {events} is not in {range:?}");
                assert!(range.end - range.start <= 32.max(events / 1024), "{range:?} of {events}");
            }
        }
    }

    #[test]
    fn a_trace_that_ends_early_parts_where_it_ends() {
        for (short, long) in [(0, 1), (31, 32), (32, 40), (1000, 1001), (140_000, 400_000)] {
            let range = trace(0..long).part(&trace(0..short)).expect("one is longer");
            assert!(range.contains(&short), "{short} of {long} is not in {range:?}");
        }
    }
}
