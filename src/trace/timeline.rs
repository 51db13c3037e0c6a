//! A run over time, in a fixed amount of memory: what ran, what was filled, when the consumer computed and when it waited.
//!
//! Time is cut into [`BUCKETS`] buckets of equal width. When an event lies beyond the last one, neighbours are merged and the width
//! doubles, so that a run of any length ends with between half and all of the buckets in use and costs the same memory.
//!
//! A curve is kept as its changes: in each bucket Σ Δ and Σ Δ·(t − start of the bucket). Both can be added in any order and merged
//! without loss, and give the exact mean of every bucket. A span is two changes, however long it is.

use super::{Event, Kind, StageId};
use crate::machine::Time;

/// Into how many buckets a run is cut at most.
const BUCKETS: usize = 512;

/// The first width of a bucket, as a power of two \[ns\].
const FIRST_SHIFT: u32 = 10;

/// A quantity that rises and falls.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Curve(Box<[Changes]>);

/// The changes in one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Changes {
    delta: i64,
    moment: i128,
}

impl Curve {
    fn new() -> Curve {
        Curve(vec![Changes::default(); BUCKETS].into())
    }

    #[inline]
    fn add(&mut self, at: u64, shift: u32, delta: i64) {
        let bucket = &mut self.0[(at >> shift) as usize];
        // A trace is input: absurd numbers may give absurd sums, but must not end the program.
        bucket.delta = bucket.delta.saturating_add(delta);
        bucket.moment = bucket.moment.wrapping_add(i128::from(delta).wrapping_mul(i128::from(at & ((1 << shift) - 1))));
    }

    /// Merges neighbours; `width` is the width before.
    fn halve(&mut self, width: i128) {
        for i in 0..BUCKETS / 2 {
            let (a, b) = (self.0[2 * i], self.0[2 * i + 1]);
            let moved = i128::from(b.delta).wrapping_mul(width);
            let moment = a.moment.wrapping_add(b.moment).wrapping_add(moved);
            self.0[i] = Changes { delta: a.delta.saturating_add(b.delta), moment };
        }
        self.0[BUCKETS / 2..].fill(Changes::default());
    }

    /// The mean of every bucket that began before `end`; of the last only the part up to `end` counts.
    fn means(&self, shift: u32, end: u64) -> Vec<f64> {
        let used = if end == 0 { 0 } else { ((end - 1) >> shift) as usize + 1 };
        let mut level = 0i128;
        let mean = |i: usize| {
            let from = (i as u64) << shift;
            let width = i128::from((end - from).min(1 << shift));
            let Changes { delta, moment } = self.0[i];
            let area = (level + i128::from(delta)).wrapping_mul(width).wrapping_sub(moment);
            level += i128::from(delta);
            (area as f64 / width as f64).max(0.0)
        };
        (0..used.min(BUCKETS)).map(mean).collect()
    }
}

/// What a [`Timeline`] can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// Leaves of a stage that run.
    Running(StageId),
    /// Consumers that compute.
    Computing,
    /// Consumers that wait for a batch, the wait for the first one included.
    Waiting,
    /// Samples between launch and filled slot.
    InLanes,
    /// Filled slots whose batch is not sealed.
    FilledSlots,
    /// Batches that the consumer may have.
    ReadyBatches,
    /// Encoded bytes reserved \[B\].
    EncodedBytes,
}

/// A streaming fold over events: means over buckets of equal width, exact and in bounded memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    shift: u32,
    end: u64,
    curves: Vec<(Track, Curve)>,
    stages: Vec<StageId>,
    /// In order.
    ranks: Vec<u16>,
    names: Vec<(StageId, &'static str)>,
}

impl Timeline {
    /// The timeline of no events.
    pub fn new() -> Timeline {
        use Track::*;
        let tracks = [Computing, Waiting, InLanes, FilledSlots, ReadyBatches, EncodedBytes];
        let curves = tracks.into_iter().map(|track| (track, Curve::new())).collect();
        Timeline { shift: FIRST_SHIFT, end: 0, curves, stages: Vec::new(), ranks: Vec::new(), names: Vec::new() }
    }

    /// Takes one event.
    pub fn update(&mut self, event: &Event) {
        let (at, since) = (event.time.0, event.since.0.min(event.time.0));
        self.end = self.end.max(at);
        while at >> self.shift >= BUCKETS as u64 {
            let width = 1i128 << self.shift;
            self.curves.iter_mut().for_each(|(_, curve)| curve.halve(width));
            self.shift += 1;
        }
        let amount = i64::try_from(event.bytes).unwrap_or(i64::MAX);
        match event.kind {
            // Of a leaf given up on it is not known whether it had started, so it is left out.
            Kind::End | Kind::Fail => {
                let place = self.stage(event.stage);
                self.span(place, since, at);
            }
            Kind::Step => self.span(0, since, at),
            Kind::Taken => {
                self.span(1, since, at);
                self.change(4, at, -1);
                if let Err(at) = self.ranks.binary_search(&event.rank) {
                    self.ranks.insert(at, event.rank);
                }
            }
            Kind::Launch => self.change(2, at, 1),
            Kind::Filled => {
                self.change(2, at, -1);
                self.change(3, at, 1);
            }
            Kind::Skipped => self.change(2, at, -1),
            Kind::Dropped => self.change(3, at, -1),
            Kind::Sealed => self.change(3, at, -amount),
            Kind::Ready => self.change(4, at, 1),
            Kind::Reserve => self.change(5, at, amount),
            Kind::Refund => self.change(5, at, -amount),
            _ => {}
        }
    }

    /// The curve of a stage, behind the six that every timeline has.
    fn stage(&mut self, stage: StageId) -> usize {
        const FIXED: usize = 6;
        FIXED
            + self.stages.iter().position(|known| *known == stage).unwrap_or_else(|| {
                self.stages.push(stage);
                self.curves.push((Track::Running(stage), Curve::new()));
                self.stages.len() - 1
            })
    }

    fn change(&mut self, curve: usize, at: u64, delta: i64) {
        self.curves[curve].1.add(at, self.shift, delta);
    }

    fn span(&mut self, curve: usize, from: u64, to: u64) {
        self.change(curve, from, 1);
        self.change(curve, to, -1);
    }

    /// The latest time of any event.
    pub fn end(&self) -> Time {
        Time(self.end)
    }

    /// How wide a bucket is \[ns\].
    pub fn bucket_ns(&self) -> u64 {
        1 << self.shift
    }

    /// The ranks whose consumers took a batch.
    pub fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// The stages that had leaves, in the order of their first end.
    pub fn stages(&self) -> &[StageId] {
        &self.stages
    }

    /// Names a user's stage.
    pub fn name_stage(&mut self, stage: StageId, name: &'static str) {
        self.names.retain(|(known, _)| *known != stage);
        self.names.push((stage, name));
    }

    /// What `stage` is called: the built-in name, the one given to [`name_stage`](Timeline::name_stage), or `"stage"`.
    pub fn name_of(&self, stage: StageId) -> &'static str {
        let given = || self.names.iter().find(|(known, _)| *known == stage).map(|(_, name)| *name);
        stage.name().or_else(given).unwrap_or("stage")
    }

    /// The mean of `track` in every bucket up to the end of the run, all ranks together.
    pub fn means(&self, track: Track) -> Vec<f64> {
        let curve = self.curves.iter().find(|(known, _)| *known == track);
        curve.map_or_else(Vec::new, |(_, curve)| curve.means(self.shift, self.end))
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: Kind, since: u64, time: u64, bytes: u64) -> Event {
        let stage = StageId::DECODE;
        Event { time: Time(time), since: Time(since), sample: 0, bytes, epoch: 0, rank: 0, stage, kind }
    }

    #[test]
    fn the_means_are_exact_whatever_the_width_became() {
        // One leaf runs for the middle half of a run that is 4096 times as long as the first buckets together.
        let end = (BUCKETS as u64) << FIRST_SHIFT << 12;
        let mut timeline = Timeline::new();
        timeline.update(&event(Kind::Launch, 3, 3, 0));
        timeline.update(&event(Kind::End, end / 4, end / 4 * 3, 0));
        timeline.update(&event(Kind::Filled, 3, end, 0));
        let running = timeline.means(Track::Running(StageId::DECODE));
        let n = running.len();
        assert!((BUCKETS / 2..=BUCKETS).contains(&n), "{n}");
        let total: f64 = running.iter().map(|mean| mean * timeline.bucket_ns() as f64).sum();
        assert_eq!(total, end as f64 / 2.0);
        assert_eq!((running[0], running[n / 2], running[n - 1]), (0.0, 1.0, 0.0));
        assert_eq!(timeline.means(Track::InLanes)[1], 1.0);
    }

    #[test]
    fn the_order_of_telling_does_not_matter() {
        let events: Vec<Event> = (1..400).map(|i| event(Kind::End, i * 7_000, i * 9_000 + 50, 0)).collect();
        let of = |events: &mut dyn Iterator<Item = &Event>| {
            let mut timeline = Timeline::new();
            events.for_each(|e| timeline.update(e));
            timeline
        };
        assert_eq!(of(&mut events.iter()), of(&mut events.iter().rev()));
    }

    #[test]
    fn absurd_times_are_told_of_like_any_other() {
        let mut timeline = Timeline::new();
        for kind in Kind::ALL {
            timeline.update(&event(kind, u64::MAX, 5, u64::MAX));
            timeline.update(&event(kind, 0, u64::MAX, u64::MAX));
        }
        assert!(timeline.means(Track::EncodedBytes).iter().all(|mean| mean.is_finite()));
        assert!(timeline.means(Track::Waiting).len() <= BUCKETS);
    }
}
