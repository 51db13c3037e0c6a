//! Durations by size: quantiles within six percent, in a fixed amount of memory.

/// Sub-buckets of an octave, as a power of two: a bucket is at most 1/16 wider than where it begins.
const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

/// A histogram of durations \[ns\] with buckets that grow with the value, and their exact count, sum and extremes.
///
/// Values below 16 have a bucket each; every octave above is cut into 16 equal buckets. A [quantile](Histogram::quantile) is
/// therefore off by at most 1/32 of its value. Adding is a handful of instructions, and only the first allocates: most histograms of a
/// short run stay empty, and thousands of short runs would pay for them.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    /// None before the first duration.
    counts: Box<[u64]>,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Histogram {
    /// An empty histogram: 8 KiB from the first duration on.
    pub fn new() -> Histogram {
        Histogram { counts: Box::default(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Adds one duration \[ns\].
    #[inline]
    pub fn add(&mut self, ns: u64) {
        match self.counts.get_mut(bucket(ns)) {
            Some(count) => *count += 1,
            None => self.begin(ns),
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Counts the first duration.
    #[cold]
    fn begin(&mut self, ns: u64) {
        self.counts = vec![0; BUCKETS].into_boxed_slice();
        self.counts[bucket(ns)] = 1;
    }

    /// How many durations there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum \[ns\], exact below 584 years.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The shortest \[ns\]; `None` without any.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The longest \[ns\]; `None` without any.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The mean \[ns\]; `None` without any.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The duration \[ns\] that a share `q` in 0..=1 of all durations does not exceed, off by at most 1/32 of its value;
    /// `None` without any.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(middle(at).clamp(self.min, self.max));
            }
        }
        Some(self.max)
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new()
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("sum", &self.sum)
            .field("min", &self.min())
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}

#[inline]
fn bucket(ns: u64) -> usize {
    // Below 2 · SUB the buckets are one wide, so the formula needs no branch there.
    let octave = (u64::BITS - (ns | (SUB as u64)).leading_zeros()) - (SUB_BITS + 1);
    ((octave as usize) << SUB_BITS) + (ns >> octave) as usize
}

fn middle(bucket: usize) -> u64 {
    if bucket < 2 * SUB {
        return bucket as u64;
    }
    let octave = (bucket >> SUB_BITS) - 1;
    let low = ((bucket - (octave << SUB_BITS)) as u64) << octave;
    low + (1 << octave) / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_one_with_durations_takes_memory() {
        let mut histogram = Histogram::new();
        assert!(histogram.counts.is_empty() && histogram.clone().counts.is_empty());
        assert_eq!(histogram.quantile(0.5), None);
        histogram.add(u64::MAX);
        histogram.add(3);
        assert_eq!((histogram.counts.len(), histogram.count(), histogram.quantile(0.5)), (BUCKETS, 2, Some(3)));
    }

    #[test]
    fn buckets_cover_every_duration_in_order() {
        let mut last = 0;
        for ns in (0..100_000).chain((0..60).map(|s| 1 << s)) {
            let at = bucket(ns);
            assert!(at >= last || ns < 100_000, "{ns} falls back");
            last = at;
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn without_durations_there_is_no_mean() {
        let h = Histogram::new();
        assert_eq!((h.mean(), h.quantile(0.5), h.min(), h.max()), (None, None, None, None));
    }

    proptest! {
        #[test]
        fn the_middle_of_a_bucket_is_within_a_thirty_second(ns in 0u64..u64::MAX >> 1) {
            let at = bucket(ns);
            prop_assert_eq!(bucket(middle(at)), at);
            prop_assert!(middle(at).abs_diff(ns) <= ns / 32 + 1);
        }

        #[test]
        fn quantiles_follow_the_sorted_durations(mut all in prop::collection::vec(0u64..10_000_000_000, 1..200), q in 0.0..=1.0f64) {
            let mut h = Histogram::new();
            all.iter().for_each(|ns| h.add(*ns));
            all.sort_unstable();
            let rank = ((q * all.len() as f64).ceil() as usize).max(1);
            let exact = all[rank - 1];
            let found = h.quantile(q).expect("not empty");
            prop_assert!(found.abs_diff(exact) <= exact / 16 + 1, "{} for {}", found, exact);
            prop_assert_eq!(h.sum(), all.iter().sum::<u64>());
            prop_assert_eq!(h.min(), all.first().copied());
            prop_assert_eq!(h.max(), all.last().copied());
        }
    }
}
