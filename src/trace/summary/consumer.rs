//! What the consumer of one rank did: how long it computed, how long it waited, and for what.

use crate::{
    machine::Time,
    trace::{Event, Histogram},
};

/// Waiting of a consumer, split by what would have shortened it.
///
/// The split answers DS-Analyzer's question (Mohan et al., VLDB 2021): *how much of the waiting would be left if fetching cost
/// nothing?* That part is the **preparation stall**, the rest the **fetch stall**. DS-Analyzer answers it by running again from
/// memory; here every batch is asked on its own, from one trace. Batch b became ready g after its forerunner. Its samples and the
/// ones skipped meanwhile needed d of CPU time; between its last sample and its being ready lay x (waiting for and making the
/// copy). With c servers for preparation and free fetching it would have taken no longer than p = max(d/c, x), and so have been
/// ready g − p earlier. Of the time w that the consumer waited for it, max(0, w − max(0, g − p)) would have remained.
///
/// In a steady state bound by the loader, g = step + w, and the preparation stall becomes max(0, p − step): exactly what a run
/// with free fetching would show. The latency of preparing one sample that its successors overlap is not preparation stall, nor
/// is it in DS-Analyzer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    /// Waiting that free fetching would have removed \[ns\].
    pub fetch_ns: u64,
    /// Waiting that would have remained \[ns\].
    pub preparation_ns: u64,
}

/// What is known of a batch on its way to the consumer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Production {
    /// CPU time of its samples and of those skipped meanwhile \[ns\].
    pub(super) cpu_ns: u64,
    /// From the forerunner's readiness to its own \[ns\].
    pub(super) gap_ns: u64,
    /// From sealed to ready \[ns\].
    pub(super) transfer_ns: u64,
}

impl Production {
    fn split(&self, wait_ns: u64, servers: u32) -> Stall {
        let preparing_ns = (self.cpu_ns / u64::from(servers.max(1))).max(self.transfer_ns);
        let saved_ns = self.gap_ns.saturating_sub(preparing_ns);
        let preparation_ns = wait_ns.saturating_sub(saved_ns);
        Stall { fetch_ns: wait_ns - preparation_ns, preparation_ns }
    }
}

/// One epoch as one consumer saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochSummary {
    /// Which.
    pub epoch: u32,
    /// When its first batch was taken.
    pub first_taken: Time,
    /// When its last batch was taken.
    pub last_taken: Time,
    /// Batches taken.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FirstTaken {
    at: Time,
    samples: u64,
    wait_ns: u64,
    stall: Stall,
}

/// The consumer of one rank. See [`Stall`] for how its waiting is split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerSummary {
    rank: u16,
    taken: u64,
    taken_samples: u64,
    first_taken: Option<FirstTaken>,
    last_taken: Time,
    wait: Histogram,
    stall: Stall,
    steps: u64,
    step_ns: u64,
    /// End and duration of the step that ended first.
    first_step: Option<(Time, u64)>,
    last_step_end: Time,
    epochs: Vec<EpochSummary>,
}

/// More epochs than this are not told apart.
const EPOCHS_MAX: usize = 1 << 16;

impl ConsumerSummary {
    pub(super) fn new(rank: u16) -> ConsumerSummary {
        ConsumerSummary { rank, ..ConsumerSummary::default() }
    }

    pub(super) fn taken_batch(&mut self, event: &Event, production: Production, servers: Option<u32>) {
        let wait_ns = event.time.since(event.since);
        let stall = servers.map(|c| production.split(wait_ns, c)).unwrap_or_default();
        self.taken += 1;
        self.taken_samples = self.taken_samples.saturating_add(event.bytes);
        self.wait.add(wait_ns);
        self.stall.fetch_ns = self.stall.fetch_ns.saturating_add(stall.fetch_ns);
        self.stall.preparation_ns = self.stall.preparation_ns.saturating_add(stall.preparation_ns);
        if self.first_taken.is_none_or(|first| event.time < first.at) {
            self.first_taken = Some(FirstTaken { at: event.time, samples: event.bytes, wait_ns, stall });
        }
        self.last_taken = self.last_taken.max(event.time);
        self.epoch(event);
    }

    fn epoch(&mut self, event: &Event) {
        let at = match self.epochs.iter().rposition(|e| e.epoch <= event.epoch) {
            Some(at) if self.epochs[at].epoch == event.epoch => at,
            before => {
                let at = before.map_or(0, |at| at + 1);
                if self.epochs.len() >= EPOCHS_MAX {
                    return;
                }
                let (epoch, first_taken, last_taken) = (event.epoch, event.time, event.time);
                self.epochs.insert(at, EpochSummary { epoch, first_taken, last_taken, batches: 0, samples: 0 });
                at
            }
        };
        let epoch = &mut self.epochs[at];
        epoch.first_taken = epoch.first_taken.min(event.time);
        epoch.last_taken = epoch.last_taken.max(event.time);
        epoch.batches += 1;
        epoch.samples = epoch.samples.saturating_add(event.bytes);
    }

    pub(super) fn step(&mut self, event: &Event) {
        let step_ns = event.time.since(event.since);
        self.steps += 1;
        self.step_ns = self.step_ns.saturating_add(step_ns);
        if self.first_step.is_none_or(|(end, _)| event.time < end) {
            self.first_step = Some((event.time, step_ns));
        }
        self.last_step_end = self.last_step_end.max(event.time);
    }

    /// Which rank.
    pub fn rank(&self) -> u16 {
        self.rank
    }

    /// Batches taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Samples in the batches taken.
    pub fn taken_samples(&self) -> u64 {
        self.taken_samples
    }

    /// When the first batch was taken, counted from the machine's start.
    pub fn time_to_first_batch(&self) -> Option<Time> {
        self.first_taken.map(|first| first.at)
    }

    /// When the last batch was taken.
    pub fn last_taken(&self) -> Option<Time> {
        (self.taken > 0).then_some(self.last_taken)
    }

    /// How long the consumer waited, per batch, the first included.
    pub fn wait(&self) -> &Histogram {
        &self.wait
    }

    /// Steps done.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Time in steps, the first included \[ns\].
    pub fn step_ns(&self) -> u64 {
        self.step_ns
    }

    /// When the last step ended.
    pub fn last_step_end(&self) -> Option<Time> {
        (self.steps > 0).then_some(self.last_step_end)
    }

    /// Time in steps without the first one, and time from the end of the first step to the end of the last \[ns\].
    ///
    /// Their ratio is accelerator utilization as MLPerf Storage measures it: compute time over total time, with the first step
    /// excluded from both, so that the wait for the first batch does not count, and the last step counted in full in both.
    pub fn compute_and_total_ns(&self) -> (u64, u64) {
        let Some((first_end, first_ns)) = self.first_step else { return (0, 0) };
        (self.step_ns - first_ns, self.last_step_end.since(first_end))
    }

    /// Accelerator utilization, 0 to 1; `None` with fewer than two steps. See
    /// [`compute_and_total_ns`](ConsumerSummary::compute_and_total_ns).
    pub fn accelerator_utilization(&self) -> Option<f64> {
        let (compute_ns, total_ns) = self.compute_and_total_ns();
        (total_ns > 0).then(|| compute_ns as f64 / total_ns as f64)
    }

    /// Time waited for every batch but the first, whose wait is [`time_to_first_batch`](ConsumerSummary::time_to_first_batch)
    /// \[ns\].
    pub fn stalled_ns(&self) -> u64 {
        self.wait.sum().saturating_sub(self.first_taken.map_or(0, |first| first.wait_ns))
    }

    /// [`stalled_ns`](ConsumerSummary::stalled_ns) split into its causes; all zero when nobody told how many servers prepare.
    pub fn stall(&self) -> Stall {
        let first = self.first_taken.map(|first| first.stall).unwrap_or_default();
        Stall {
            fetch_ns: self.stall.fetch_ns.saturating_sub(first.fetch_ns),
            preparation_ns: self.stall.preparation_ns.saturating_sub(first.preparation_ns),
        }
    }

    /// Samples per second from the machine's start to the end of the last step, or to the last batch taken where nobody told of steps;
    /// `None` before the first batch.
    pub fn samples_per_s(&self) -> Option<f64> {
        let end = self.last_step_end().max(self.last_taken())?;
        (end > Time::ZERO).then(|| self.taken_samples as f64 / end.as_secs_f64())
    }

    /// Samples per second from the first batch taken to the last, the first batch's not counted: start-up left out. `None` with
    /// fewer than two batches.
    pub fn steady_samples_per_s(&self) -> Option<f64> {
        let first = self.first_taken?;
        let span_ns = self.last_taken.since(first.at);
        (span_ns > 0).then(|| (self.taken_samples - first.samples) as f64 * 1e9 / span_ns as f64)
    }

    /// The epochs, in order.
    pub fn epochs(&self) -> &[EpochSummary] {
        &self.epochs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_batch_bound_by_decoding_stalls_preparation() {
        // 64 samples of 10 ms on 4 servers: 160 ms, and it took 160 ms; the step hid 60 of them.
        let batch = Production { cpu_ns: 640 * MS, gap_ns: 160 * MS, transfer_ns: 0 };
        assert_eq!(batch.split(100 * MS, 4), Stall { fetch_ns: 0, preparation_ns: 100 * MS });
    }

    #[test]
    fn a_batch_bound_by_the_store_stalls_fetch() {
        // Decoding needs 20 of the 160 ms that the batch took: without fetching the step of 60 ms would hide it.
        let batch = Production { cpu_ns: 80 * MS, gap_ns: 160 * MS, transfer_ns: 0 };
        assert_eq!(batch.split(100 * MS, 4), Stall { fetch_ns: 100 * MS, preparation_ns: 0 });
    }

    #[test]
    fn a_batch_bound_by_both_is_shared() {
        // Without fetching it would take 100 ms, 40 more than the step.
        let batch = Production { cpu_ns: 400 * MS, gap_ns: 160 * MS, transfer_ns: 0 };
        assert_eq!(batch.split(100 * MS, 4), Stall { fetch_ns: 60 * MS, preparation_ns: 40 * MS });
    }

    #[test]
    fn a_slow_copy_is_preparation() {
        let batch = Production { cpu_ns: 8 * MS, gap_ns: 160 * MS, transfer_ns: 160 * MS };
        assert_eq!(batch.split(100 * MS, 4), Stall { fetch_ns: 0, preparation_ns: 100 * MS });
    }
}
