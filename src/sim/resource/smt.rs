//! Cores of two hardware threads each.
//!
//! The operating system gives a thread a core to itself while there is one. Of `k` busy hardware threads on `c` cores, `k ≤ c` are all
//! alone; beyond, `k − c` cores have both of theirs busy, which then run at the speed `s` of a thread whose sibling is busy. Together they do
//!
//! ```text
//!   k                        k ≤ c
//!   (2c − k) + 2 (k − c) s   c < k ≤ 2c      a straight line from c to 2c·s
//!   2c · s                   more, and then threads take turns
//! ```
//!
//! and since the system moves threads about, each gets an equal share of that over time. So SMT is no more than a table of
//! [speeds](crate::sim::CpuSpec::speed_ppm) by busy threads, to which a measured one is a better answer: what was measured holds as far as
//! it goes, and is carried on from its end by the law's own course.

use crate::sim::{CpuSpec, Smt};

const MILLION: u64 = 1_000_000;

impl Smt {
    /// What so many busy hardware threads do together, in millionths of what one does that has its core to itself.
    pub fn together_ppm(&self, busy: u64) -> u64 {
        let (cores, sibling) = (u64::from(self.cores), u64::from(self.sibling_ppm));
        let busy = busy.min(2 * cores);
        let both = busy.saturating_sub(cores);
        (busy - 2 * both) * MILLION + 2 * both * sibling
    }

    /// Speed of each of so many busy hardware threads, at least one, in millionths of one that has its core to itself; of more threads than
    /// there are, that of all.
    pub fn each_ppm(&self, busy: u64) -> u32 {
        let busy = busy.clamp(1, 2 * u64::from(self.cores.max(1)));
        ((self.together_ppm(busy) + busy / 2) / busy) as u32
    }

    /// All hardware threads of the cores, with the speed of each by how many are busy.
    pub fn cpu(&self) -> CpuSpec {
        let cores = self.cores.saturating_mul(2).max(1);
        CpuSpec { cores, speed_ppm: (1..=u64::from(cores)).map(|busy| self.each_ppm(busy)).collect() }
    }

    /// Carries a speed measured with `measured` busy threads on to `busy`, which are more.
    pub fn carried_on(&self, speed: f64, measured: u64, busy: u64) -> f64 {
        let each = |busy: u64| self.together_ppm(busy) as f64 / busy.clamp(1, 2 * u64::from(self.cores.max(1))) as f64;
        speed * each(busy) / each(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const XEON: Smt = Smt { cores: 48, sibling_ppm: 650_000 };

    #[test]
    fn a_second_thread_on_a_core_adds_what_both_do_more_than_one() {
        assert_eq!(
            [1, 48, 49, 72, 96, 200].map(|busy| XEON.together_ppm(busy)),
            [1_000_000, 48_000_000, 48_300_000, 55_200_000, 62_400_000, 62_400_000]
        );
        assert_eq!([1, 48, 72, 96, 200].map(|busy| XEON.each_ppm(busy)), [1_000_000, 1_000_000, 766_667, 650_000, 650_000]);
        let cpu = XEON.cpu();
        assert_eq!((cpu.cores, cpu.speed_ppm.len(), cpu.speed_ppm[71]), (96, 96, 766_667));
    }

    #[test]
    fn what_was_measured_is_carried_on_from_where_it_ends() {
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
        // Boost has fallen to 88 % with a thread on every core.
        close(XEON.carried_on(0.88, 48, 96), 0.88 * 0.65);
        close(XEON.carried_on(0.9, 24, 40), 0.9);
        // Measured in the middle of the second threads.
        close(XEON.carried_on(0.7, 72, 96), 0.7 * 62.4 / 96.0 * 72.0 / 55.2);
        close(XEON.carried_on(0.6, 96, 192), 0.6);
    }
}
