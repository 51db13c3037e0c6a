//! A quantity that rises and falls, and its mean over time.

use crate::machine::Time;

/// Something counted up and down: samples in lanes, bytes reserved.
///
/// Its mean over time needs no order: the area under the curve is Σ Δ·(T − t) over all changes Δ at times t, in whatever order
/// they are told, so it suffices to keep Σ Δ and Σ Δ·t. Its [peak](Gauge::peak) is the highest value in the order of telling:
/// exact when the changes come in order of time, which holds for whatever the scheduler stamps itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    now: i64,
    peak: i64,
    moment: i128,
}

impl Gauge {
    /// Changes by `delta` at time `at`.
    #[inline]
    pub fn add(&mut self, at: Time, delta: i64) {
        // A trace is input: one with absurd numbers in it may give absurd sums, but must not end the program.
        self.now = self.now.saturating_add(delta);
        self.peak = self.peak.max(self.now);
        self.moment = self.moment.wrapping_add(i128::from(delta).wrapping_mul(i128::from(at.0)));
    }

    /// The value after all changes so far.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// The highest value so far, at least 0.
    pub fn peak(&self) -> i64 {
        self.peak
    }

    /// The mean from the machine's start to `end`, which no change may come after; 0 when `end` is 0.
    pub fn mean(&self, end: Time) -> f64 {
        if end == Time::ZERO {
            return 0.0;
        }
        i128::from(self.now).wrapping_mul(i128::from(end.0)).wrapping_sub(self.moment) as f64 / end.0 as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_the_area_over_the_time_in_any_order() {
        let changes = [(2, 3), (4, -1), (6, -2), (9, 1)];
        // 3 from 2 to 4, 2 from 4 to 6, 0 to 9, 1 to 10.
        let area = 3.0 * 2.0 + 2.0 * 2.0 + 1.0;
        for start in 0..changes.len() {
            let mut gauge = Gauge::default();
            for i in 0..changes.len() {
                let (at, delta) = changes[(start + i) % changes.len()];
                gauge.add(Time(at), delta);
            }
            assert_eq!(gauge.mean(Time(10)), area / 10.0);
            assert_eq!(gauge.now(), 1);
        }
    }

    #[test]
    fn the_peak_is_the_highest_value_in_the_order_told() {
        let mut gauge = Gauge::default();
        [(1, 5), (2, -3), (3, 4), (4, -6)].iter().for_each(|(at, delta)| gauge.add(Time(*at), *delta));
        assert_eq!(gauge.peak(), 6);
    }
}
