//! What a trace amounts to: a streaming fold, always on.
//!
//! A [`Summary`] takes each event once, keeps a fixed amount of memory and never asks for an order finer than the one
//! [`trace`](crate::trace#order) promises. How it does without:
//!
//! - A phase's length is in the event that ends it, so sums and histograms of waits and services need no pairing.
//! - Mean occupancies follow from those sums by Little's law, L = Σ time / T, or from Σ Δ·t ([`Gauge`](super::Gauge)).
//! - First and last are running minima and maxima of time, not of arrival.
//! - Only the stall's split looks things up: the CPU time of each sample in flight, and what is known of each batch on its way.
//!   Both live in small tables that the resolution of the sample or batch empties again.
//!
//! Peaks are taken from gauges whose every change the scheduler stamps, and are therefore exact, but for what one poll of its
//! tasks may put out of order.

use super::{
    Event, Kind, StageId,
    table::{Key, Table},
};
use crate::machine::Time;

mod consumer;
mod loader;
mod stage;

pub use consumer::{ConsumerSummary, EpochSummary, Stall};
pub use loader::LoaderSummary;
pub use stage::StageSummary;

use consumer::Production;

/// What a trace amounts to. See the [module documentation](self).
#[derive(Clone)]
pub struct Summary {
    events: u64,
    end: Time,
    first_launch: Time,
    last_ready: Time,
    last_leaf_end: Time,
    preparation_servers: Option<u32>,
    stages: Vec<StageSummary>,
    loader: LoaderSummary,
    ranks: Vec<Rank>,
    cpu: Table<u64>,
    batches: Table<Production>,
}

#[derive(Clone)]
struct Rank {
    rank: u16,
    consumer: ConsumerSummary,
    /// CPU time of the samples resolved since the last batch was sealed \[ns\].
    group_cpu_ns: u64,
    last_ready: Time,
}

/// Where every launched sample is. At every instant of a sound trace [`difference`](Accounts::difference) is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounts {
    /// Samples whose ticket was drawn.
    pub planned: u64,
    /// Samples the consumer got.
    pub delivered: u64,
    /// Samples given up on, for whatever reason.
    pub skipped: u64,
    /// Samples that fell to `drop_last` or to a rank's tail.
    pub dropped: u64,
    /// Samples between launch and filled slot. Negative only in a broken trace, as the next two.
    pub in_lanes: i64,
    /// Filled slots whose batch is not sealed.
    pub in_ring: i64,
    /// Samples in sealed batches that the consumer has not got, as far as it has told.
    pub in_batches: i64,
}

impl Accounts {
    /// Samples between launch and consumer, as the three places count them.
    pub fn in_flight(&self) -> u64 {
        let places = [self.in_lanes, self.in_ring, self.in_batches];
        places.iter().fold(0, |sum: u64, n| sum.saturating_add(n.max(&0).unsigned_abs()))
    }

    /// planned − (delivered + skipped + dropped + in flight).
    ///
    /// 0 as long as every sample is in one place: a sample filled, skipped or delivered more often than launched, or a batch
    /// sealed with more samples than were filled, makes a place negative and the difference with it.
    pub fn difference(&self) -> i128 {
        let settled = i128::from(self.delivered) + i128::from(self.skipped) + i128::from(self.dropped);
        i128::from(self.planned) - settled - i128::from(self.in_flight())
    }
}

impl Summary {
    /// The summary of no events.
    pub fn new() -> Summary {
        Summary {
            events: 0,
            end: Time::ZERO,
            first_launch: Time(u64::MAX),
            last_ready: Time::ZERO,
            last_leaf_end: Time::ZERO,
            preparation_servers: None,
            stages: vec![StageSummary::default(); usize::from(StageId::USER_FIRST.0)],
            loader: LoaderSummary::default(),
            ranks: vec![Rank::new(0)],
            cpu: Table::new(),
            batches: Table::new(),
        }
    }

    /// Tells how many samples can be prepared at the same time: the least of cores, lanes and the limit of the decode stage.
    /// Without it the stall is not split. To be called before the first event.
    pub fn with_preparation_servers(mut self, servers: u32) -> Summary {
        self.preparation_servers = Some(servers);
        self
    }

    /// The summary of `events`.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Summary {
        let mut summary = Summary::new();
        events.into_iter().for_each(|event| summary.update(event));
        summary
    }

    /// Takes one event.
    #[inline(always)]
    pub fn update(&mut self, event: &Event) {
        self.events += 1;
        self.end = self.end.max(event.time);
        match event.kind {
            Kind::Queued | Kind::Start => self.stage_mut(event.stage).leaf(event),
            Kind::End | Kind::Fail => {
                self.last_leaf_end = self.last_leaf_end.max(event.time);
                self.stage_mut(event.stage).leaf(event);
                if is_preparation(event.stage)
                    && let Some(cpu_ns) = self.cpu.entry(Key::sample(event))
                {
                    *cpu_ns = cpu_ns.saturating_add(event.time.since(event.since));
                }
            }
            Kind::Abandon | Kind::Retry => self.stage_mut(event.stage).leaf(event),
            Kind::Launch => {
                self.first_launch = self.first_launch.min(event.time);
                self.loader.take(event);
            }
            Kind::Filled | Kind::Skipped => {
                self.loader.take(event);
                let cpu_ns = self.cpu.take(Key::sample(event)).unwrap_or(0);
                let rank = self.rank_mut(event.rank);
                rank.group_cpu_ns = rank.group_cpu_ns.saturating_add(cpu_ns);
            }
            Kind::Sealed => {
                self.loader.take(event);
                let cpu_ns = std::mem::take(&mut self.rank_mut(event.rank).group_cpu_ns);
                if let Some(batch) = self.batches.entry(Key::batch(event)) {
                    batch.cpu_ns = cpu_ns;
                }
            }
            Kind::Ready => {
                self.loader.take(event);
                self.last_ready = self.last_ready.max(event.time);
                let rank = self.rank_mut(event.rank);
                let gap_ns = event.time.since(rank.last_ready);
                rank.last_ready = event.time;
                if let Some(batch) = self.batches.entry(Key::batch(event)) {
                    batch.gap_ns = gap_ns;
                    batch.transfer_ns = event.time.since(event.since);
                }
            }
            Kind::Taken => {
                self.loader.take(event);
                let production = self.batches.take(Key::batch(event)).unwrap_or_default();
                let servers = self.preparation_servers;
                self.rank_mut(event.rank).consumer.taken_batch(event, production, servers);
            }
            Kind::Step => self.rank_mut(event.rank).consumer.step(event),
            Kind::Reserve | Kind::Refund | Kind::Dropped | Kind::Idle | Kind::Delivered | Kind::Returned | Kind::Stop => {
                self.loader.take(event);
            }
        }
    }

    #[inline]
    fn stage_mut(&mut self, stage: StageId) -> &mut StageSummary {
        let at = usize::from(stage.0);
        if at >= self.stages.len() {
            self.more_stages(at);
        }
        &mut self.stages[at]
    }

    #[cold]
    fn more_stages(&mut self, at: usize) {
        self.stages.resize_with(at + 1, StageSummary::default);
    }

    #[inline]
    fn rank_mut(&mut self, rank: u16) -> &mut Rank {
        let at = if self.ranks[0].rank == rank { 0 } else { self.find_rank(rank) };
        &mut self.ranks[at]
    }

    #[cold]
    fn find_rank(&mut self, rank: u16) -> usize {
        self.ranks.binary_search_by_key(&rank, |r| r.rank).unwrap_or_else(|at| {
            self.ranks.insert(at, Rank::new(rank));
            at
        })
    }

    /// Events taken.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The latest time of any event: the end of the run.
    pub fn end(&self) -> Time {
        self.end
    }

    /// From the first launch to the last batch that became ready, or to the last leaf's end where a run is cut short: while the loader
    /// worked \[ns\].
    pub fn production_ns(&self) -> u64 {
        self.last_ready.max(self.last_leaf_end).since(self.first_launch)
    }

    /// The longer of [`production_ns`](Summary::production_ns) and the longest total time of a consumer without its first step:
    /// the time over which utilizations are taken \[ns\]. A loader that works ahead and then rests, since all its samples fit in
    /// its queues, was not busy while it rested.
    pub fn working_ns(&self) -> u64 {
        let consuming = self.consumers().map(|c| c.compute_and_total_ns().1).max().unwrap_or(0);
        self.production_ns().max(consuming)
    }

    /// How many samples can be prepared at the same time, if told.
    pub fn preparation_servers(&self) -> Option<u32> {
        self.preparation_servers
    }

    /// What the leaves of `stage` did; `None` when there were none.
    pub fn stage(&self, stage: StageId) -> Option<&StageSummary> {
        self.stages.get(usize::from(stage.0)).filter(|s| s.queued + s.started + s.ended() + s.failed() + s.abandoned > 0)
    }

    /// The stages that had leaves, in order.
    pub fn stages(&self) -> impl Iterator<Item = (StageId, &StageSummary)> {
        (0..=u8::MAX).map(StageId).filter_map(|id| Some((id, self.stage(id)?)))
    }

    /// What the loader did.
    pub fn loader(&self) -> &LoaderSummary {
        &self.loader
    }

    /// The consumers, one per rank that took a batch or made a step.
    pub fn consumers(&self) -> impl Iterator<Item = &ConsumerSummary> {
        self.ranks.iter().map(|r| &r.consumer).filter(|c| c.taken() + c.steps() > 0)
    }

    /// Where every launched sample is.
    pub fn accounts(&self) -> Accounts {
        let l = &self.loader;
        Accounts {
            planned: l.launched,
            delivered: l.delivered,
            skipped: l.skipped(),
            dropped: l.dropped,
            in_lanes: l.in_lanes.now(),
            in_ring: l.in_ring.now(),
            in_batches: l.in_batches.now(),
        }
    }

    /// Compute time over total time of all consumers, the first step of each excluded, 0 to 1; `None` when none made two steps.
    /// See [`ConsumerSummary::compute_and_total_ns`].
    pub fn accelerator_utilization(&self) -> Option<f64> {
        let (mut compute, mut total) = (0.0, 0.0);
        for (c, t) in self.consumers().map(ConsumerSummary::compute_and_total_ns) {
            compute += c as f64;
            total += t as f64;
        }
        (total > 0.0).then(|| compute / total)
    }

    /// When the last consumer to get a first batch got it: from then on all ranks compute.
    pub fn time_to_first_batch(&self) -> Option<Time> {
        self.consumers().filter_map(ConsumerSummary::time_to_first_batch).max()
    }

    /// The stalls of all consumers together; `None` when nobody told how many servers prepare.
    pub fn stall(&self) -> Option<Stall> {
        self.preparation_servers?;
        let sum = |a: Stall, b: Stall| Stall {
            fetch_ns: a.fetch_ns.saturating_add(b.fetch_ns),
            preparation_ns: a.preparation_ns.saturating_add(b.preparation_ns),
        };
        Some(self.consumers().map(ConsumerSummary::stall).fold(Stall::default(), sum))
    }

    /// Samples delivered per second from the machine's start to the end of the last step, or to the last batch taken where nobody
    /// told of steps; `None` before the first batch.
    pub fn samples_per_s(&self) -> Option<f64> {
        let end = self.consumers().filter_map(|c| c.last_step_end().max(c.last_taken())).max()?;
        (end > Time::ZERO).then(|| self.loader.delivered as f64 / end.as_secs_f64())
    }

    /// Samples per second without start-up, all ranks together: see [`ConsumerSummary::steady_samples_per_s`].
    pub fn steady_samples_per_s(&self) -> Option<f64> {
        self.consumers().filter_map(ConsumerSummary::steady_samples_per_s).reduce(|a, b| a + b)
    }

    /// The most encoded bytes ever reserved at once \[B\].
    pub fn peak_reserved_bytes(&self) -> u64 {
        self.loader.ledger.peak().unsigned_abs()
    }
}

impl Default for Summary {
    fn default() -> Self {
        Summary::new()
    }
}

impl Rank {
    fn new(rank: u16) -> Rank {
        Rank { rank, consumer: ConsumerSummary::new(rank), group_cpu_ns: 0, last_ready: Time::ZERO }
    }
}

/// Whether leaves of `stage` prepare a sample: CPU work of its own, between fetching and the batch.
#[inline]
fn is_preparation(stage: StageId) -> bool {
    stage == StageId::DECODE || stage >= StageId::USER_FIRST
}
