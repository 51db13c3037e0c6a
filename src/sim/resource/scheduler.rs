//! The scheduler's thread: it sleeps, is woken by completions, and handles them in bursts.
//!
//! ```text
//!   asleep ── a completion that rouses it ──► waking ── latency ──► handling a burst ─┐
//!     ▲                                                                  ▲            │
//!     │                                                                  └── more ────┤
//!     └─────────────────────────────── nothing waits ────────────────────────────────┘
//! ```
//!
//! What completes while it handles a burst waits for the next one. Handling takes CPU time like anything else, so on a busy
//! machine completions wait longer and come in larger bursts.

use crate::sim::SchedulerSpec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asleep,
    Waking,
    Handling,
}

/// What is to be done about a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Rouse {
    /// Nothing: it will be seen in time.
    No,
    /// Wake the thread.
    Now,
    /// Wake it if it still sleeps after so long (ns).
    Within(u64),
}

/// The scheduler's thread.
pub(in crate::sim) struct Scheduler {
    spec: SchedulerSpec,
    /// Control takes no time at all.
    free: bool,
    state: State,
    aging: bool,
    waiting: Vec<u32>,
    handled: Vec<u32>,
    wakes: u64,
}

impl Scheduler {
    pub(in crate::sim) fn new(spec: SchedulerSpec, wakeup_ns: u64) -> Scheduler {
        let free = spec.per_wake_ns == 0 && spec.per_completion_ns == 0 && wakeup_ns == 0;
        Scheduler { spec, free, state: State::Asleep, aging: false, waiting: Vec::new(), handled: Vec::new(), wakes: 0 }
    }

    /// Whether completions are delivered at once, without this thread.
    #[inline]
    pub(in crate::sim) fn is_free(&self) -> bool {
        self.free
    }

    /// A leaf has completed, while so many jobs wait for the pool.
    #[inline]
    pub(in crate::sim) fn completed(&mut self, leaf: u32, jobs_waiting: usize) -> Rouse {
        self.waiting.push(leaf);
        if self.state != State::Asleep {
            return Rouse::No;
        }
        let due = self.waiting.len() >= self.spec.burst as usize || jobs_waiting < self.spec.queued_low as usize;
        if due || self.spec.age_ns == 0 {
            self.state = State::Waking;
            Rouse::Now
        } else if self.aging {
            Rouse::No
        } else {
            self.aging = true;
            Rouse::Within(self.spec.age_ns)
        }
    }

    /// The oldest completion has waited long enough; whether to wake the thread now.
    pub(in crate::sim) fn aged(&mut self) -> bool {
        self.aging = false;
        let rouse = self.state == State::Asleep && !self.waiting.is_empty();
        if rouse {
            self.state = State::Waking;
        }
        rouse
    }

    /// It has woken up: CPU time of the first burst (ns).
    pub(in crate::sim) fn awake(&mut self) -> u64 {
        self.wakes += 1;
        self.spec.per_wake_ns + self.begin()
    }

    fn begin(&mut self) -> u64 {
        self.state = State::Handling;
        std::mem::swap(&mut self.waiting, &mut self.handled);
        self.spec.per_completion_ns * self.handled.len() as u64
    }

    /// A burst is handled: the leaves in it, in the order in which they completed. Give the list back with
    /// [`again`](Scheduler::again).
    pub(in crate::sim) fn handled(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.handled)
    }

    /// CPU time of the next burst (ns); `None` when the thread goes to sleep.
    pub(in crate::sim) fn again(&mut self, mut handled: Vec<u32>) -> Option<u64> {
        handled.clear();
        self.handled = handled;
        if self.waiting.is_empty() {
            self.state = State::Asleep;
            None
        } else {
            Some(self.begin())
        }
    }

    /// How often it has woken up.
    pub(in crate::sim) fn wakes(&self) -> u64 {
        self.wakes
    }

    /// Completions it has not handled.
    pub(in crate::sim) fn backlog(&self) -> usize {
        self.waiting.len() + self.handled.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_completes_during_a_burst_is_the_next_burst() {
        let spec = SchedulerSpec { per_wake_ns: 100, per_completion_ns: 10, ..SchedulerSpec::default() };
        let mut scheduler = Scheduler::new(spec, 0);
        assert_eq!(scheduler.completed(1, 0), Rouse::Now);
        assert_eq!(scheduler.completed(2, 0), Rouse::No);
        assert_eq!(scheduler.awake(), 120);
        assert_eq!(scheduler.completed(3, 0), Rouse::No);
        let burst = scheduler.handled();
        assert_eq!(burst, [1, 2]);
        assert_eq!(scheduler.again(burst), Some(10));
        let burst = scheduler.handled();
        assert_eq!(burst, [3]);
        assert_eq!(scheduler.again(burst), None);
        assert_eq!((scheduler.wakes(), scheduler.backlog()), (1, 0));
    }

    #[test]
    fn a_lazy_scheduler_waits_for_a_burst_an_idle_pool_or_age() {
        let spec = SchedulerSpec { per_wake_ns: 100, burst: 3, queued_low: 2, age_ns: 1000, ..SchedulerSpec::default() };
        let mut scheduler = Scheduler::new(spec, 0);
        assert_eq!(scheduler.completed(1, 5), Rouse::Within(1000));
        assert_eq!(scheduler.completed(2, 5), Rouse::No);
        assert_eq!(scheduler.completed(3, 5), Rouse::Now);
        assert!(!scheduler.aged(), "it is awake already");
        scheduler.awake();
        let burst = scheduler.handled();
        assert_eq!(scheduler.again(burst), None);
        assert_eq!(scheduler.completed(4, 1), Rouse::Now);
        let burst = scheduler.handled();
        assert!(burst.is_empty(), "it has not begun");
    }
}
