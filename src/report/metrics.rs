//! The figures of one run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Bottleneck, Bounds, Evidence, Facts, humane};
use crate::{
    failure::FailureKind,
    trace::{ConsumerSummary, Gauge, Histogram, Recorder, StageId, Summary},
};

/// The figures of one run, simulated or measured. See [`Report`](super::Report) for the units.
#[derive(Clone, Debug, Serialize)]
pub struct Metrics {
    /// Samples the consumer got per second, from the machine's start to the end of its last step. 0 when it got none.
    pub samples_per_s: f64,
    /// The same without start-up: from the first batch taken to the last, the first one's samples not counted.
    pub steady_samples_per_s: Option<f64>,
    /// Compute time over total time as in MLPerf Storage: the first step is left out of both, the last is in both in full.
    pub accelerator_utilization: Option<f64>,
    /// From the machine's start to the consumer's first batch.
    pub time_to_first_batch_s: Option<f64>,
    /// Time until the first batch, of all ranks together.
    pub first_batches_s: f64,
    /// Time the consumer waited for batches, the first one's wait left out.
    pub stall_s: f64,
    /// The part of it that free fetching would have removed: see [`Stall`](crate::trace::Stall).
    pub fetch_stall_s: Option<f64>,
    /// The part of it that would have remained.
    pub preparation_stall_s: Option<f64>,
    /// CPU time of all threads.
    pub cpu_s: Option<f64>,
    /// The most memory the loaders of all ranks held together: ring and device batches, and encoded bytes reserved. `null`, as the other
    /// figures of what goes on inside a loader, when only its consumer was watched: see [`Facts::consumer_only`].
    pub peak_bytes_in_flight: Option<u64>,
    /// The most memory of the process that was resident.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rss_bytes: Option<u64>,
    /// Part of the computer's processor time that others used, where this process and they together used most of it: then what was measured
    /// is of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_by_others: Option<f64>,
    /// Samples the loader began.
    pub planned: Option<u64>,
    /// Samples the consumer got.
    pub delivered: u64,
    /// Samples given up on.
    pub skipped: Option<u64>,
    /// The same by reason.
    pub skipped_by_reason: BTreeMap<String, u64>,
    /// Samples that fell to `drop_last` or to a rank's tail.
    pub dropped: Option<u64>,
    /// Samples begun and neither delivered, skipped nor dropped at the end.
    pub in_flight: Option<u64>,
    /// Batches the consumer got.
    pub batches: u64,
    /// From the machine's start to its last event.
    pub duration_s: f64,
    /// Hash of the trace, 16 hexadecimal digits; where the same seed gives the same trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_hash: Option<String>,
    /// Events in the trace.
    pub events: u64,
    /// Each stage that had leaves.
    pub stages: Vec<StageMetrics>,
    /// What filled up between the stages.
    pub queues: Vec<QueueMetrics>,
    /// The consumer's epochs, of all ranks.
    pub epochs: Vec<EpochMetrics>,
    /// Each rank, where there are several, or this one is of several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankMetrics>,
    /// What the operational laws allow at most, the tightest first.
    pub bounds: Bounds,
    /// What limits throughput.
    pub bottleneck: Bottleneck,
    /// The machine, in words.
    pub machine: String,
    /// The device, in words.
    pub device: String,
    /// The codec that decoded.
    pub codec: Option<String>,
    /// Cores of the machine; 0, and left out of JSON, when not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub cores: u32,
    /// Threads of the pool; 0, and left out of JSON, when not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub threads: u32,
    /// All memory the loader might use.
    pub budget_bytes: Option<u64>,
    /// Memory it held from beginning to end.
    pub fixed_bytes: Option<u64>,
}

/// What the leaves of one stage did.
#[derive(Clone, Debug, Serialize)]
pub struct StageMetrics {
    /// The stage.
    pub name: String,
    /// How many of its leaves may run at once; `null` when nothing known limits it.
    pub servers: Option<u32>,
    /// Part of `servers` that was busy while the run was under way: see [`Summary::working_ns`].
    pub utilization: Option<f64>,
    /// Mean number of leaves running in that time.
    pub mean_running: f64,
    /// Mean number of leaves waiting to start in that time.
    pub mean_waiting: f64,
    /// Leaves that started.
    pub started: u64,
    /// Leaves that failed.
    pub failed: u64,
    /// Leaves given up on.
    pub abandoned: u64,
    /// Further tries.
    pub retries: u64,
    /// Bytes moved or worked on.
    pub bytes: u64,
    /// Time between start and end of all leaves.
    pub busy_s: f64,
    /// Mean time from submission to start.
    pub mean_wait_s: Option<f64>,
    /// The time from submission to start that 99 % stay within.
    pub p99_wait_s: Option<f64>,
    /// Mean time from start to end.
    pub mean_service_s: Option<f64>,
    /// The time from start to end that half stay within.
    pub p50_service_s: Option<f64>,
    /// The time from start to end that 99 % stay within.
    pub p99_service_s: Option<f64>,
}

impl StageMetrics {
    /// What the columns of its tables are called.
    pub(super) const COLUMNS: [&str; 10] =
        ["busy", "running", "of", "waiting", "wait, mean", "p99", "service, mean", "p50", "p99", "failed"];

    /// Its [columns](StageMetrics::COLUMNS) for people; `none` stands for a figure that it does not have.
    pub(super) fn cells(&self, none: &str) -> [String; 10] {
        let or_none = |figure: Option<String>| figure.unwrap_or_else(|| none.to_owned());
        let time = |s: Option<f64>| or_none(s.map(humane::seconds));
        [
            or_none(self.utilization.map(humane::percent)),
            humane::number(self.mean_running),
            or_none(self.servers.map(|n| humane::count(u64::from(n)))),
            humane::number(self.mean_waiting),
            time(self.mean_wait_s),
            time(self.p99_wait_s),
            time(self.mean_service_s),
            time(self.p50_service_s),
            time(self.p99_service_s),
            humane::count(self.failed),
        ]
    }
}

/// Something that fills up.
#[derive(Clone, Debug, Serialize)]
pub struct QueueMetrics {
    /// `samples in lanes`, `filled slots`, `ready batches` or `encoded bytes`.
    pub name: String,
    /// Its mean over the whole run.
    pub mean: f64,
    /// The most there was; `null` for ready batches, since the consumer's news of them come late.
    pub peak: Option<u64>,
    /// The most there may be; `null` when not known.
    pub capacity: Option<u64>,
}

/// One epoch as the consumers saw it.
#[derive(Clone, Debug, Serialize)]
pub struct EpochMetrics {
    /// Which.
    pub epoch: u32,
    /// When its first batch was taken.
    pub first_batch_s: f64,
    /// When its last batch was taken.
    pub last_batch_s: f64,
    /// Batches taken.
    pub batches: u64,
    /// Samples taken.
    pub samples: u64,
}

/// One rank, as its consumer saw it.
#[derive(Clone, Debug, Serialize)]
pub struct RankMetrics {
    /// Which.
    pub rank: u16,
    /// Samples that its consumer got.
    pub samples: u64,
    /// Steps that its consumer did.
    pub steps: u64,
    /// Samples per second, from the machine's start to the end of its last step.
    pub samples_per_s: f64,
    /// The same without start-up, as [`Metrics::steady_samples_per_s`].
    pub steady_samples_per_s: Option<f64>,
    /// As [`Metrics::accelerator_utilization`].
    pub accelerator_utilization: Option<f64>,
    /// From the machine's start to its first batch.
    pub time_to_first_batch_s: Option<f64>,
    /// Time that its consumer waited for batches and at the barrier, the first batch's left out.
    pub stall_s: f64,
    /// As [`Metrics::peak_bytes_in_flight`], of this rank's loader alone; `None` when only its consumer was watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes_in_flight: Option<u64>,
}

/// More ranks than this are not listed for people.
const LISTED: usize = 16;

impl RankMetrics {
    /// What the columns of its tables are called.
    pub(super) const COLUMNS: [&str; 6] = ["samples", "steps", "throughput", "without start-up", "AU", "stall"];

    /// Its [columns](RankMetrics::COLUMNS) for people; `none` stands for a figure that it does not have.
    pub(super) fn cells(&self, none: &str) -> [String; 6] {
        let or_none = |figure: Option<String>| figure.unwrap_or_else(|| none.to_owned());
        [
            humane::count(self.samples),
            humane::count(self.steps),
            humane::rate(self.samples_per_s),
            or_none(self.steady_samples_per_s.map(humane::rate)),
            or_none(self.accelerator_utilization.map(humane::percent)),
            humane::seconds(self.stall_s),
        ]
    }

    /// The ranks that people are told of, and what they are called: all, or of many the slowest and the fastest.
    pub(super) fn told(all: &[RankMetrics]) -> Vec<(String, &RankMetrics)> {
        if all.len() <= LISTED {
            return all.iter().map(|rank| (format!("rank {}", rank.rank), rank)).collect();
        }
        let by_rate = |a: &&RankMetrics, b: &&RankMetrics| a.samples_per_s.total_cmp(&b.samples_per_s);
        let ends = [("slowest", all.iter().min_by(by_rate)), ("fastest", all.iter().max_by(by_rate))];
        let named =
            |(which, rank): (&str, Option<_>)| rank.map(|rank: &RankMetrics| (format!("{which}, rank {}", rank.rank), rank));
        ends.into_iter().filter_map(named).collect()
    }
}

impl Metrics {
    /// The figures of the run that `recorder` took.
    pub fn of(recorder: &Recorder, facts: &Facts) -> Metrics {
        let hash = facts.repeatable.then(|| format!("{:016x}", recorder.hash()));
        let name_of = |stage| recorder.name_of(stage).to_owned();
        Metrics { trace_hash: hash, ..Metrics::of_summary(recorder.summary(), facts, name_of) }
    }

    /// The most memory that one rank's loader held, which is what a budget bounds: of several ranks that of the one that held most.
    pub fn peak_bytes_of_a_rank(&self) -> Option<u64> {
        self.ranks.iter().filter_map(|rank| rank.peak_bytes_in_flight).max().or(self.peak_bytes_in_flight)
    }

    /// Tells how much memory each rank's loader held at most, by the ranks' books, in their order.
    pub(crate) fn tell_peaks(&mut self, peaks: &[u64]) {
        for (rank, peak) in self.ranks.iter_mut().zip(peaks) {
            rank.peak_bytes_in_flight = Some(*peak);
        }
    }

    /// The figures that `summary` amounts to, without a hash. `name_of` says what stages are called.
    pub fn of_summary(summary: &Summary, facts: &Facts, name_of: impl Fn(StageId) -> String) -> Metrics {
        let (loader, accounts, stall) = (summary.loader(), summary.accounts(), summary.stall());
        let bounds = Bounds::of(summary, facts, &name_of);
        // What a consumer cannot see is not known, and not 0.
        let inside = |figure: u64| (!facts.consumer_only).then_some(figure);
        let reasons = FailureKind::ALL.into_iter().map(|kind| (kind.name().to_owned(), loader.skipped_as(kind)));
        Metrics {
            samples_per_s: summary.samples_per_s().unwrap_or(0.0),
            steady_samples_per_s: summary.steady_samples_per_s(),
            accelerator_utilization: summary.accelerator_utilization(),
            time_to_first_batch_s: summary.time_to_first_batch().map(|t| t.as_secs_f64()),
            first_batches_s: summary.consumers().filter_map(|c| c.time_to_first_batch()).map(|t| t.as_secs_f64()).sum(),
            stall_s: seconds(summary.consumers().fold(0, |ns: u64, c| ns.saturating_add(c.stalled_ns()))),
            fetch_stall_s: stall.map(|s| seconds(s.fetch_ns)),
            preparation_stall_s: stall.map(|s| seconds(s.preparation_ns)),
            cpu_s: facts.cpu_s,
            peak_bytes_in_flight: inside(facts.fixed_bytes.saturating_add(summary.peak_reserved_bytes())),
            peak_rss_bytes: facts.peak_rss_bytes,
            taken_by_others: facts.taken_by_others,
            planned: inside(accounts.planned),
            delivered: accounts.delivered,
            skipped: inside(accounts.skipped),
            skipped_by_reason: reasons.filter(|(_, n)| *n > 0).collect(),
            dropped: inside(accounts.dropped),
            in_flight: inside(accounts.in_flight()),
            batches: summary.consumers().map(|c| c.taken()).sum(),
            duration_s: summary.end().as_secs_f64(),
            trace_hash: None,
            events: summary.events(),
            stages: stages(summary, facts, &name_of),
            queues: if facts.consumer_only { Vec::new() } else { queues(summary, facts) },
            epochs: epochs(summary),
            ranks: ranks(summary, facts),
            bottleneck: Evidence::of(summary, facts, &name_of).judge(&bounds),
            bounds,
            machine: facts.machine.clone(),
            device: facts.device.clone(),
            codec: facts.codec.clone(),
            cores: facts.cores,
            threads: facts.threads,
            budget_bytes: facts.budget_bytes,
            fixed_bytes: inside(facts.fixed_bytes),
        }
    }
}

fn stages(summary: &Summary, facts: &Facts, name_of: impl Fn(StageId) -> String) -> Vec<StageMetrics> {
    let span_s = seconds(summary.working_ns());
    let over = |ns: u64| if span_s > 0.0 { seconds(ns) / span_s } else { 0.0 };
    let metrics = |(id, stage): (StageId, &crate::trace::StageSummary)| {
        let servers = facts.servers(id);
        let quantile = |h: &Histogram, q| h.quantile(q).map(seconds);
        let mean = |h: &Histogram| h.mean().map(|ns| ns / 1e9);
        StageMetrics {
            name: name_of(id),
            servers,
            utilization: servers.map(|n| over(stage.busy_ns()) / f64::from(n)),
            mean_running: over(stage.busy_ns()),
            mean_waiting: over(stage.waiting_ns()),
            started: stage.started(),
            failed: stage.failed(),
            abandoned: stage.abandoned(),
            retries: stage.retries(),
            bytes: stage.bytes(),
            busy_s: seconds(stage.busy_ns()),
            mean_wait_s: mean(stage.wait()),
            p99_wait_s: quantile(stage.wait(), 0.99),
            mean_service_s: mean(stage.service()),
            p50_service_s: quantile(stage.service(), 0.5),
            p99_service_s: quantile(stage.service(), 0.99),
        }
    };
    // In the order in which a sample passes through them: users' stages lie between fetch and decode.
    let mut all: Vec<_> = summary.stages().collect();
    all.sort_by_key(|(id, _)| match *id {
        StageId::FETCH => 0,
        id if id >= StageId::USER_FIRST => 1 + u32::from(id.0),
        id => 1000 + u32::from(id.0),
    });
    all.into_iter().map(metrics).collect()
}

fn queues(summary: &Summary, facts: &Facts) -> Vec<QueueMetrics> {
    let loader = summary.loader();
    let ranks = u64::from(facts.ranks(summary));
    let known = |n: u64| (n > 0).then_some(n * ranks);
    let queue = |name: &str, gauge: &Gauge, capacity| QueueMetrics {
        name: name.to_owned(),
        mean: gauge.mean(summary.end()),
        peak: Some(gauge.peak().unsigned_abs()),
        capacity,
    };
    vec![
        queue("samples in lanes", loader.in_lanes(), known(u64::from(facts.lanes))),
        queue("filled slots", loader.in_ring(), known(facts.ring_slots)),
        QueueMetrics { peak: None, ..queue("ready batches", loader.ready_batches(), known(facts.prefetch_batches)) },
        queue("encoded bytes", loader.ledger(), facts.ledger_bytes),
    ]
}

fn epochs(summary: &Summary) -> Vec<EpochMetrics> {
    let mut all: BTreeMap<u32, EpochMetrics> = BTreeMap::new();
    for e in summary.consumers().flat_map(|c| c.epochs()) {
        let (first, last) = (e.first_taken.as_secs_f64(), e.last_taken.as_secs_f64());
        let new = EpochMetrics { epoch: e.epoch, first_batch_s: first, last_batch_s: last, batches: 0, samples: 0 };
        let sum = all.entry(e.epoch).or_insert(new);
        sum.first_batch_s = sum.first_batch_s.min(first);
        sum.last_batch_s = sum.last_batch_s.max(last);
        sum.batches += e.batches;
        sum.samples = sum.samples.saturating_add(e.samples);
    }
    all.into_values().collect()
}

fn ranks(summary: &Summary, facts: &Facts) -> Vec<RankMetrics> {
    let told = facts.ranks(summary);
    if told.max(facts.world) <= 1 {
        return Vec::new();
    }
    let of = |consumer: &ConsumerSummary| RankMetrics {
        rank: consumer.rank(),
        samples: consumer.taken_samples(),
        steps: consumer.steps(),
        samples_per_s: consumer.samples_per_s().unwrap_or(0.0),
        steady_samples_per_s: consumer.steady_samples_per_s(),
        accelerator_utilization: consumer.accelerator_utilization(),
        time_to_first_batch_s: consumer.time_to_first_batch().map(|t| t.as_secs_f64()),
        stall_s: seconds(consumer.stalled_ns()),
        peak_bytes_in_flight: None,
    };
    let mut all: BTreeMap<u16, RankMetrics> = summary.consumers().map(|consumer| (consumer.rank(), of(consumer))).collect();
    // A rank that got nothing at all left no trace of its consumer.
    let known = if told > 1 { u16::try_from(told).unwrap_or(u16::MAX) } else { 0 };
    for rank in 0..known {
        all.entry(rank).or_insert_with(|| RankMetrics {
            rank,
            samples: 0,
            steps: 0,
            samples_per_s: 0.0,
            steady_samples_per_s: None,
            accelerator_utilization: None,
            time_to_first_batch_s: None,
            stall_s: 0.0,
            peak_bytes_in_flight: None,
        });
    }
    all.into_values().collect()
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        machine::Time,
        report::{Perfetto, Report, Style},
        trace::{Event, Kind},
    };

    fn any_number() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..5, 0u64..1_000_000_000, Just(u64::MAX), Just(i64::MAX as u64), any::<u64>()]
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let numbers = (any_number(), any_number(), any_number(), any_number());
        let labels = (0u32..4, 0u16..3, prop_oneof![0u8..9, any::<u8>()], prop::sample::select(Kind::ALL.to_vec()));
        (numbers, labels).prop_map(|((time, since, sample, bytes), (epoch, rank, stage, kind))| Event {
            time: Time(time),
            since: Time(since),
            sample,
            bytes,
            epoch,
            rank,
            stage: StageId(stage),
            kind,
        })
    }

    proptest! {
        #[test]
        fn a_broken_trace_is_told_of_like_any_other(events in prop::collection::vec(any_event(), 0..200), servers in 0u32..9) {
            let mut recorder = Recorder::new().preparation_servers(servers).stream_to(Perfetto::new(std::io::sink()));
            events.iter().for_each(|e| recorder.record(*e));
            prop_assert!(recorder.finish().is_ok());
            let facts = Facts { lanes: servers, threads: servers, copies: servers, ..Facts::default() };
            let report = Report::new("broken", 0, Some(Metrics::of(&recorder, &facts)), None);
            prop_assert!(serde_json::to_string(&report).is_ok());
            prop_assert!(report.terminal(Style::Plain).is_ascii());
        }
    }
}
