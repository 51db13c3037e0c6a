//! The cores and their one run queue.
//!
//! Every thread that can run stands here: threads of the pool, reading threads, copying threads, the scheduler. `n` of them on
//! `c` cores share by processor sharing: each runs at `min(1, c/n)` of a core, and a core's own speed depends on how many are busy. That
//! is what an operating system's fair scheduler does on the scale of milliseconds, and it is exact where nobody has to share.

use super::{
    NEVER,
    share::{Share, WORK_MAX},
};
use crate::sim::CpuSpec;

/// Units of work in a nanosecond of a core at full speed, as a power of two: enough that a rounded rate is off by at most 10⁻⁶.
const SHIFT: u32 = 22;

/// The cores.
pub(in crate::sim) struct Cpu {
    share: Share,
    cores: u64,
    /// Rate of a thread when `n` can run and all have a core, by `n` from 0 (units/ns).
    rates: Vec<u64>,
    /// What all cores do together when all are busy (units/ns).
    full: u64,
    rate: u64,
    next: u64,
    busy_ns: u64,
}

impl Cpu {
    /// The longest job (ns): 36 minutes on a core.
    pub(in crate::sim) const JOB_NS_MAX: u64 = WORK_MAX >> SHIFT;

    pub(in crate::sim) fn new(spec: &CpuSpec) -> Cpu {
        let cores = u64::from(spec.cores.max(1));
        let speed = |busy: u64| match spec.speed_ppm.len() as u64 {
            0 => 1_000_000,
            known => u64::from(spec.speed_ppm[(busy.min(known) - 1) as usize].max(1)),
        };
        let rates: Vec<u64> = (0..=cores).map(|busy| (speed(busy.max(1)) << SHIFT) / 1_000_000).collect();
        let full = cores * rates[cores as usize];
        Cpu { share: Share::default(), cores, rate: rates[0], rates, full, next: NEVER, busy_ns: 0 }
    }

    #[inline]
    fn advance(&mut self, now: u64) {
        let busy = (self.share.len() as u64).min(self.cores);
        self.busy_ns += self.share.advance(now, self.rate) * busy;
    }

    #[inline]
    fn changed(&mut self) {
        let n = self.share.len();
        self.rate = match self.rates.get(n) {
            Some(rate) => *rate,
            None => (self.full / n as u64).max(1),
        };
        self.next = self.share.next(self.rate);
    }

    /// A thread can run, for so much time on a core at full speed, at most [`JOB_NS_MAX`](Cpu::JOB_NS_MAX).
    #[inline]
    pub(in crate::sim) fn start(&mut self, now: u64, user: u32, ns: u64) {
        self.advance(now);
        self.share.push(user, ns << SHIFT);
        self.changed();
    }

    /// A thread that could run cannot any more; the work it had left, for [`go_on`](Cpu::go_on). `None` when it is done, or was not here.
    pub(in crate::sim) fn suspend(&mut self, now: u64, user: u32) -> Option<u64> {
        self.advance(now);
        let left = self.share.remove(user);
        self.changed();
        left
    }

    /// The work of so much time on a core at full speed, at most [`JOB_NS_MAX`](Cpu::JOB_NS_MAX).
    pub(in crate::sim) fn work(ns: u64) -> u64 {
        ns << SHIFT
    }

    /// A thread can run that has so much [work](Cpu::work) left.
    pub(in crate::sim) fn go_on(&mut self, now: u64, user: u32, work: u64) {
        self.advance(now);
        self.share.push(user, work);
        self.changed();
    }

    /// When the next thread is done (ns).
    #[inline]
    pub(in crate::sim) fn next(&self) -> u64 {
        self.next
    }

    /// Tells who is done at `now`, which is [`next`](Cpu::next).
    #[inline]
    pub(in crate::sim) fn done(&mut self, now: u64, mut tell: impl FnMut(u32)) {
        self.advance(now);
        while let Some(user) = self.share.pop_done(self.rate) {
            tell(user);
        }
        self.changed();
    }

    /// Threads that can run.
    pub(in crate::sim) fn runnable(&self) -> usize {
        self.share.len()
    }

    /// Time that cores have been busy, summed over the cores (ns).
    pub(in crate::sim) fn busy_ns(&self, now: u64) -> u64 {
        self.busy_ns + (now - self.share.at()) * (self.share.len() as u64).min(self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(cores: u32, speed_ppm: &[u32]) -> Cpu {
        Cpu::new(&CpuSpec { cores, speed_ppm: speed_ppm.to_vec() })
    }

    /// Runs all to the end; (time, user) of each end.
    fn run(cpu: &mut Cpu) -> Vec<(u64, u32)> {
        let mut ends = Vec::new();
        while cpu.next() != NEVER {
            let now = cpu.next();
            cpu.done(now, |user| ends.push((now, user)));
        }
        ends
    }

    #[test]
    fn a_thread_with_a_core_to_itself_takes_its_time_to_the_nanosecond() {
        let mut cpu = cpu(4, &[]);
        for (user, at, ns) in [(0, 5, 1_234_567), (1, 6, 1), (2, 6, 0)] {
            cpu.start(at, user, ns);
        }
        assert_eq!(run(&mut cpu), [(6, 2), (7, 1), (1_234_572, 0)]);
        assert_eq!(cpu.busy_ns(1_234_572), 1_234_567 + 1);
    }

    #[test]
    fn three_threads_on_two_cores_run_at_two_thirds() {
        let mut cpu = cpu(2, &[]);
        for user in 0..3 {
            cpu.start(0, user, 200);
        }
        assert_eq!(run(&mut cpu), [(300, 0), (300, 1), (300, 2)]);
        assert_eq!(cpu.busy_ns(300), 600);
    }

    #[test]
    fn a_latecomer_slows_those_before_it_from_then_on() {
        let mut cpu = cpu(1, &[]);
        cpu.start(0, 0, 100);
        cpu.start(50, 1, 100);
        // 50 alone, then shared: the first has 50 left and needs 100, the second has 50 left then and needs them alone.
        assert_eq!(run(&mut cpu), [(150, 0), (200, 1)]);
    }

    #[test]
    fn busy_neighbours_slow_a_core_down() {
        let mut cpu = cpu(2, &[1_000_000, 500_000]);
        cpu.start(0, 0, 100);
        cpu.start(0, 1, 200);
        // Half speed each until the first is done at 200; then 100 are left at full speed.
        assert_eq!(run(&mut cpu), [(200, 0), (300, 1)]);
        assert_eq!(cpu.busy_ns(300), 500);
    }

    #[test]
    fn the_longest_job_is_told_from_one_that_is_done() {
        let mut cpu = cpu(2, &[]);
        cpu.start(0, 0, Cpu::JOB_NS_MAX);
        cpu.start(0, 1, 1);
        assert_eq!(run(&mut cpu), [(1, 1), (Cpu::JOB_NS_MAX, 0)]);
    }

    #[test]
    fn time_long_after_the_beginning_is_as_exact_as_at_the_beginning() {
        let mut cpu = cpu(1, &[]);
        let mut now = 0;
        for round in 0..100 {
            let user = round;
            cpu.start(now, user, Cpu::JOB_NS_MAX / 2);
            now += Cpu::JOB_NS_MAX / 2;
            assert_eq!(run(&mut cpu), [(now, user)]);
        }
    }
}
