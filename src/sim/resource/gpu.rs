//! The device at its train steps, which a busy host slows down.
//!
//! A step is launched and fed by threads of the host: kernels are queued, batches handed over, ranks synchronized. Where other threads keep
//! the host busy that comes late, and the step takes longer: by so much more for so many busy hardware threads, from a table with
//! straight lines between its points. A step makes `1 / (1 + slowed)` of its progress while it lasts, and its rate changes at the very
//! instant at which the number of busy threads does.
//!
//! Progress is counted in units of 2⁻⁶⁴ ns, so that a step under a load that does not change ends at the whole nanosecond nearest to
//! `step · (1 + slowed)`, and one under changing loads at the one nearest to the sum of its parts. All steps under way, one of each
//! rank, progress alike; so one count serves all, as in [`Share`](super::share::Share).

use std::collections::BTreeSet;

use super::NEVER;
use crate::sim::GpuSpec;

/// Units in a nanosecond, as a power of two.
const SHIFT: u32 = 64;

const MILLION: u128 = 1_000_000;

/// The device at its steps.
pub(in crate::sim) struct Gpu {
    /// Progress of a step by busy threads of the host, from none (units/ns).
    rates: Vec<u128>,
    busy: usize,
    rate: u128,
    /// Progress of a step that was there when the first of those under way began (units).
    done: u128,
    /// When that was brought up to date (ns).
    at: u64,
    next: u64,
    /// (progress at which it ends, name), of those under way.
    steps: BTreeSet<(u128, u64)>,
    names: u64,
}

impl Gpu {
    /// A device beside a host of so many hardware threads; `None` where the host does not slow it down.
    pub(in crate::sim) fn new(spec: &GpuSpec, threads: u32) -> Option<Gpu> {
        if spec.slowed.is_empty() {
            return None;
        }
        let rate = |busy| (MILLION << SHIFT) / (MILLION + u128::from(spec.slowed_ppm(busy)));
        let rates: Vec<u128> = (0..=threads).map(rate).collect();
        Some(Gpu { rate: rates[0], rates, busy: 0, done: 0, at: 0, next: NEVER, steps: BTreeSet::new(), names: 0 })
    }

    fn advance(&mut self, now: u64) {
        self.done += u128::from(now - self.at) * self.rate;
        self.at = now;
    }

    fn changed(&mut self) {
        self.next = match self.steps.first() {
            None => NEVER,
            Some((end, _)) => {
                let ns = (end.saturating_sub(self.done) + self.rate / 2) / self.rate;
                self.at.saturating_add(u64::try_from(ns).unwrap_or(NEVER))
            }
        };
    }

    /// A step begins that takes so long on an idle host (ns). Gives its name.
    pub(in crate::sim) fn start(&mut self, now: u64, ns: u64) -> u64 {
        if self.steps.is_empty() {
            (self.done, self.at) = (0, now);
        } else {
            self.advance(now);
        }
        let name = self.names;
        self.names += 1;
        self.steps.insert((self.done.saturating_add(u128::from(ns) << SHIFT), name));
        self.changed();
        name
    }

    /// A step is broken off.
    pub(in crate::sim) fn stop(&mut self, now: u64, name: u64) {
        self.advance(now);
        self.steps.retain(|(_, step)| *step != name);
        self.changed();
    }

    /// When the next step ends (ns), if so many threads of the host are busy from `now` on. To be asked whenever the clock is about to
    /// move: it is here that the device feels the host.
    #[inline]
    pub(in crate::sim) fn next(&mut self, now: u64, busy: usize) -> u64 {
        if self.busy != busy && !self.steps.is_empty() {
            self.advance(now);
            self.busy = busy;
            self.rate = self.rates[busy.min(self.rates.len() - 1)];
            self.changed();
        }
        self.next
    }

    /// Tells which steps end at `now`, in the order in which they began where they end together.
    pub(in crate::sim) fn done(&mut self, now: u64, mut tell: impl FnMut(u64)) {
        if self.next > now {
            return;
        }
        self.advance(now);
        // As `next` rounds.
        let nearly = self.done.saturating_add(self.rate - self.rate / 2);
        while let Some((end, name)) = self.steps.first().copied()
            && end < nearly
        {
            self.steps.pop_first();
            tell(name);
        }
        self.changed();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sim::Slowed;

    fn gpu(slowed: &[(u32, u32)]) -> Gpu {
        let slowed = slowed.iter().map(|&(busy, by_ppm)| Slowed { busy, by_ppm }).collect();
        Gpu::new(&GpuSpec { slowed }, 96).expect("it is slowed")
    }

    /// When a step that begins at once ends, under (from, busy) loads.
    fn end(gpu: &mut Gpu, ns: u64, loads: &[(u64, usize)]) -> u64 {
        gpu.start(0, ns);
        let mut ends = Vec::new();
        for (k, (from, busy)) in loads.iter().enumerate() {
            let next = gpu.next(*from, *busy);
            if loads.get(k + 1).is_none_or(|(until, _)| next < *until) {
                gpu.done(next, |_| ends.push(next));
                break;
            }
        }
        ends[0]
    }

    #[test]
    fn a_step_under_a_load_that_stays_takes_so_much_longer() {
        let of = |busy| end(&mut gpu(&[(48, 0), (72, 110_000), (95, 410_000)]), 435_000_001, &[(0, busy)]);
        assert_eq!([0, 24, 48].map(of), [435_000_001; 3]);
        assert_eq!((of(72), of(60)), (482_850_001, 458_925_001));
        assert_eq!((of(95), of(96), of(1000)), (613_350_001, 613_350_001, 613_350_001));
        // Below the first point the line begins at an idle host.
        assert_eq!(end(&mut gpu(&[(50, 100_000)]), 1_000_000, &[(0, 25)]), 1_050_000);
    }

    #[test]
    fn a_load_that_changes_half_way_counts_for_its_half() {
        // 500 done after 750, and the other 500 take twice as long.
        let mut one = gpu(&[(1, 500_000), (2, 1_000_000)]);
        assert_eq!(end(&mut one, 1000, &[(0, 1), (750, 2)]), 1750);
        // A host that falls idle.
        let mut two = gpu(&[(1, 500_000), (2, 1_000_000)]);
        assert_eq!(end(&mut two, 1000, &[(0, 2), (1000, 0)]), 1500);
    }

    #[test]
    fn steps_of_several_ranks_do_not_feel_each_other_and_one_may_be_broken_off() {
        let mut gpu = gpu(&[(1, 1_000_000)]);
        let names = [gpu.start(5, 100), gpu.start(5, 100), gpu.start(5, 300)];
        assert_eq!(gpu.next(5, 1), 205);
        let mut ended = Vec::new();
        gpu.done(205, |name| ended.push(name));
        assert_eq!(ended, names[..2]);
        assert_eq!(gpu.next(205, 0), 405);
        gpu.stop(305, names[2]);
        assert_eq!(gpu.next(305, 0), NEVER);
    }

    #[test]
    fn a_device_without_a_table_is_none() {
        assert!(Gpu::new(&GpuSpec::default(), 96).is_none());
    }

    proptest! {
        /// However often the load changes, the end is the nearest nanosecond to the sum of the parts.
        #[test]
        fn parts_add_up(
            ns in 1u64..2_000_000_000,
            changes in prop::collection::vec((1u64..50_000_000, 0usize..96), 1..30),
        ) {
            let mut gpu = gpu(&[(24, 10_000), (48, 123_457), (95, 777_777)]);
            let rate = |busy: usize| 1e6 / (1e6 + f64::from(GpuSpec { slowed: vec![
                Slowed { busy: 24, by_ppm: 10_000 }, Slowed { busy: 48, by_ppm: 123_457 }, Slowed { busy: 95, by_ppm: 777_777 },
            ] }.slowed_ppm(busy as u32)));
            let (mut at, mut left, mut loads) = (0, ns as f64, Vec::new());
            let mut expected = None;
            for (k, (long, busy)) in changes.iter().enumerate() {
                loads.push((at, *busy));
                let needs = left / rate(*busy);
                if k + 1 == changes.len() || needs < *long as f64 {
                    expected = Some(at as f64 + needs);
                    break;
                }
                left -= *long as f64 * rate(*busy);
                at += long;
            }
            let (found, expected) = (end(&mut gpu, ns, &loads), expected.expect("the last load holds for ever"));
            prop_assert!((found as f64 - expected).abs() <= 0.5 + 1e-5, "{} instead of {}", found, expected);
        }
    }
}
