//! A bucket of requests, refilled at a steady rate.
//!
//! Kept as one number, the time at which the bucket would be full again: a request moves it one interval on, and is refused when it lies
//! further ahead than the bucket is deep. In picoseconds, so that any whole rate has an interval exact to 10⁻⁶ of it or better.

use crate::sim::RequestRate;

const PS_PER_S: u128 = 1_000_000_000_000;

/// A bucket of requests.
pub(in crate::sim) struct Bucket {
    interval_ps: u128,
    depth_ps: u128,
    full_at_ps: u128,
}

impl Bucket {
    pub(in crate::sim) fn new(rate: RequestRate) -> Bucket {
        let interval_ps = PS_PER_S / u128::from(rate.per_s.max(1));
        Bucket { interval_ps, depth_ps: interval_ps * u128::from(rate.burst.max(1)), full_at_ps: 0 }
    }

    /// Whether a request at `now` (ns) is let through.
    pub(in crate::sim) fn admit(&mut self, now: u64) -> bool {
        let now_ps = u128::from(now) * 1000;
        let full_at_ps = self.full_at_ps.max(now_ps) + self.interval_ps;
        let admitted = full_at_ps <= now_ps + self.depth_ps;
        if admitted {
            self.full_at_ps = full_at_ps;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_store_takes_a_burst_and_then_its_rate() {
        let mut bucket = Bucket::new(RequestRate { per_s: 1000, burst: 3 });
        let mut at = |ns: u64| bucket.admit(ns);
        assert_eq!([at(0), at(0), at(0), at(0)], [true, true, true, false]);
        assert_eq!([at(999_999), at(1_000_000), at(1_000_000)], [false, true, false]);
        assert_eq!([at(3_000_000), at(3_000_000), at(3_000_000)], [true, true, false]);
    }
}
