//! What the loader did with samples, memory and batches.

use super::stage::{FAILURE_KINDS, failure_index};
use crate::{
    failure::FailureKind,
    trace::{Event, Gauge, Histogram, Kind},
};

/// Samples, memory and batches, as the loader's own events tell them. All ranks together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoaderSummary {
    pub(super) launched: u64,
    pub(super) filled: u64,
    pub(super) skipped: [u64; FAILURE_KINDS],
    pub(super) dropped: u64,
    pub(super) delivered: u64,
    pub(super) sealed: u64,
    pub(super) sealed_samples: u64,
    pub(super) ready: u64,
    pub(super) ready_bytes: u64,
    pub(super) returned: u64,
    pub(super) reserved_bytes: u64,
    pub(super) slot_wait: Histogram,
    pub(super) ledger_wait: Histogram,
    pub(super) residence: Histogram,
    pub(super) latency: Histogram,
    pub(super) held_ns: u64,
    pub(super) idle_ns: u64,
    pub(super) in_lanes: Gauge,
    pub(super) in_ring: Gauge,
    pub(super) in_batches: Gauge,
    pub(super) ledger: Gauge,
    pub(super) ready_batches: Gauge,
    pub(super) stop: Option<u64>,
}

impl LoaderSummary {
    #[inline(always)]
    pub(super) fn take(&mut self, event: &Event) {
        let (at, phase_ns) = (event.time, event.time.since(event.since));
        match event.kind {
            Kind::Launch => {
                self.launched += 1;
                self.slot_wait.add(phase_ns);
                self.in_lanes.add(at, 1);
            }
            Kind::Reserve => {
                self.reserved_bytes = self.reserved_bytes.saturating_add(event.bytes);
                self.ledger_wait.add(phase_ns);
                self.ledger.add(at, amount(event.bytes));
            }
            Kind::Refund => self.ledger.add(at, -amount(event.bytes)),
            Kind::Filled => {
                self.filled += 1;
                self.residence.add(phase_ns);
                self.in_lanes.add(at, -1);
                self.in_ring.add(at, 1);
            }
            Kind::Skipped => {
                self.skipped[failure_index(event.bytes)] += 1;
                self.in_lanes.add(at, -1);
            }
            Kind::Dropped => {
                self.dropped += 1;
                self.in_ring.add(at, -1);
            }
            Kind::Sealed => {
                self.sealed += 1;
                self.sealed_samples = self.sealed_samples.saturating_add(event.bytes);
                self.in_ring.add(at, -amount(event.bytes));
                self.in_batches.add(at, amount(event.bytes));
            }
            Kind::Ready => {
                self.ready += 1;
                self.ready_bytes = self.ready_bytes.saturating_add(event.bytes);
                self.ready_batches.add(at, 1);
            }
            Kind::Taken => self.ready_batches.add(at, -1),
            Kind::Idle => self.idle_ns = self.idle_ns.saturating_add(phase_ns),
            Kind::Delivered => {
                self.delivered += 1;
                self.latency.add(phase_ns);
                self.in_batches.add(at, -1);
            }
            Kind::Returned => {
                self.returned += 1;
                self.held_ns = self.held_ns.saturating_add(phase_ns);
            }
            Kind::Stop => self.stop = Some(event.bytes),
            _ => {}
        }
    }

    /// Samples whose ticket was drawn.
    pub fn launched(&self) -> u64 {
        self.launched
    }

    /// Samples that reached their slot.
    pub fn filled(&self) -> u64 {
        self.filled
    }

    /// Samples that reached the consumer.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Samples given up on.
    pub fn skipped(&self) -> u64 {
        self.skipped.iter().sum()
    }

    /// Samples given up on for this reason.
    pub fn skipped_as(&self, kind: FailureKind) -> u64 {
        self.skipped[failure_index(kind.code())]
    }

    /// Samples that fell to `drop_last` or to a rank's tail.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Batches whose last sample is known.
    pub fn sealed(&self) -> u64 {
        self.sealed
    }

    /// Samples in them.
    pub fn sealed_samples(&self) -> u64 {
        self.sealed_samples
    }

    /// Batches that the consumer could have.
    pub fn ready(&self) -> u64 {
        self.ready
    }

    /// Bytes of those batches on the device \[B\].
    pub fn ready_bytes(&self) -> u64 {
        self.ready_bytes
    }

    /// Batches whose memory came back.
    pub fn returned(&self) -> u64 {
        self.returned
    }

    /// Encoded bytes ever reserved \[B\].
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// How long lanes waited for a slot, per launch.
    pub fn slot_wait(&self) -> &Histogram {
        &self.slot_wait
    }

    /// How long launched samples waited for the ledger.
    pub fn ledger_wait(&self) -> &Histogram {
        &self.ledger_wait
    }

    /// From launch to filled slot, per sample.
    pub fn residence(&self) -> &Histogram {
        &self.residence
    }

    /// From launch to the consumer, per sample.
    pub fn latency(&self) -> &Histogram {
        &self.latency
    }

    /// Time that batches spent ready and unasked for, summed \[ns\].
    pub fn idle_ns(&self) -> u64 {
        self.idle_ns
    }

    /// Time that the consumer kept batches' memory, summed \[ns\].
    pub fn held_ns(&self) -> u64 {
        self.held_ns
    }

    /// Samples between launch and filled slot.
    pub fn in_lanes(&self) -> &Gauge {
        &self.in_lanes
    }

    /// Filled slots whose batch is not sealed.
    pub fn in_ring(&self) -> &Gauge {
        &self.in_ring
    }

    /// Samples in sealed batches that the consumer has not got, as far as it has told.
    pub fn in_batches(&self) -> &Gauge {
        &self.in_batches
    }

    /// Encoded bytes reserved \[B\].
    pub fn ledger(&self) -> &Gauge {
        &self.ledger
    }

    /// Batches ready and not taken. Its mean is exact; its peak, on the real machine, an upper bound, since the consumer's news
    /// come late.
    pub fn ready_batches(&self) -> &Gauge {
        &self.ready_batches
    }

    /// How the loader stopped, as [`Kind`]'s table numbers it; `None` while it runs.
    pub fn stop(&self) -> Option<u64> {
        self.stop
    }
}

#[inline]
fn amount(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
