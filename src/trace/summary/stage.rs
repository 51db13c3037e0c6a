//! What one stage did.

use crate::{
    failure::FailureKind,
    machine::Time,
    trace::{Event, Histogram, Kind},
};

/// Failures of a kind that this version does not know are counted behind the known ones.
pub(super) const FAILURE_KINDS: usize = FailureKind::ALL.len() + 1;

/// What the leaves of one stage did: how many, how long they waited, how long they ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageSummary {
    pub(super) queued: u64,
    pub(super) started: u64,
    pub(super) abandoned: u64,
    pub(super) abandoned_ns: u64,
    pub(super) retries: u64,
    pub(super) backoff_ns: u64,
    pub(super) bytes: u64,
    pub(super) failures: [u64; FAILURE_KINDS],
    pub(super) failed_ns: u64,
    pub(super) wait: Histogram,
    pub(super) service: Histogram,
}

impl StageSummary {
    #[inline(always)]
    pub(super) fn leaf(&mut self, event: &Event) {
        let phase_ns = event.time.since(event.since);
        match event.kind {
            Kind::Queued => self.queued += 1,
            Kind::Start => {
                self.started += 1;
                self.wait.add(phase_ns);
            }
            Kind::End => {
                self.service.add(phase_ns);
                self.bytes = self.bytes.saturating_add(event.bytes);
            }
            Kind::Fail => {
                self.failures[failure_index(event.bytes)] += 1;
                self.failed_ns = self.failed_ns.saturating_add(phase_ns);
            }
            Kind::Abandon => {
                self.abandoned += 1;
                self.abandoned_ns = self.abandoned_ns.saturating_add(phase_ns);
            }
            Kind::Retry => {
                self.retries += 1;
                self.backoff_ns = self.backoff_ns.saturating_add(phase_ns);
            }
            _ => {}
        }
    }

    /// Leaves submitted.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// Leaves that got their core, link or thread.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Leaves that ended well.
    pub fn ended(&self) -> u64 {
        self.service.count()
    }

    /// Leaves that failed.
    pub fn failed(&self) -> u64 {
        self.failures.iter().sum()
    }

    /// Leaves that failed in this way.
    pub fn failed_as(&self, kind: FailureKind) -> u64 {
        self.failures[failure_index(kind.code())]
    }

    /// Leaves given up on before an answer.
    pub fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// Further tries after a failure.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Time between a failure and the next try, summed \[ns\].
    pub fn backoff_ns(&self) -> u64 {
        self.backoff_ns
    }

    /// Bytes moved or worked on by leaves that ended well \[B\].
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// From submission to start, of every leaf that started.
    pub fn wait(&self) -> &Histogram {
        &self.wait
    }

    /// From start to end, of every leaf that ended well.
    pub fn service(&self) -> &Histogram {
        &self.service
    }

    /// Time spent by all leaves between start and end or failure \[ns\]. Leaves given up on are not in it: what a trace tells of
    /// them does not say whether they had begun.
    pub fn busy_ns(&self) -> u64 {
        self.service.sum().saturating_add(self.failed_ns)
    }

    /// Time spent waiting between submission and start \[ns\].
    pub fn waiting_ns(&self) -> u64 {
        self.wait.sum()
    }

    /// Mean number of leaves between start and end from the machine's start to `end`, by Little's law.
    pub fn mean_running(&self, end: Time) -> f64 {
        ratio(self.busy_ns(), end.0)
    }

    /// Mean number of leaves between submission and start from the machine's start to `end`, by Little's law.
    pub fn mean_waiting(&self, end: Time) -> f64 {
        ratio(self.waiting_ns(), end.0)
    }

    /// Share of `servers` that was busy from the machine's start to `end`: U = X·D / servers.
    pub fn utilization(&self, servers: u32, end: Time) -> f64 {
        self.mean_running(end) / f64::from(servers.max(1))
    }
}

pub(super) fn failure_index(code: u64) -> usize {
    usize::try_from(code).unwrap_or(usize::MAX).min(FAILURE_KINDS - 1)
}

fn ratio(part_ns: u64, whole_ns: u64) -> f64 {
    if whole_ns == 0 { 0.0 } else { part_ns as f64 / whole_ns as f64 }
}
