//! A scenario on the simulated machine, from beginning to end.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use super::{Consumer, Deliveries, Found, Samples, Scenario, Verdict, deliveries::Findings};
use crate::{
    document::{Diagnostic, Trouble},
    loader::{self, Batches, Outcome, Resolved, Settings, SettingsError, stage},
    machine::{Machine, Tags, Unit},
    model::MachineModel,
    report::{Expectation, Facts, Metrics, Report},
    sim::{self, SimBarrier, SimMachine, Stall},
    trace::{Recorder, StageId},
};

/// What a simulated scenario came to.
#[derive(Debug)]
pub struct Simulated {
    /// The figures.
    pub metrics: Metrics,
    /// The loader's books.
    pub outcome: Outcome,
    /// Whether what was expected holds.
    pub verdicts: Vec<Verdict>,
    /// The error that the consumer got, when it got one.
    pub error: Option<loader::Error>,
    /// Simulated steps: polls and events.
    pub steps: u64,
    /// The trace, and whatever its recorder was told to do with it.
    pub recorder: Recorder,
}

/// Why a scenario could not be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The scenario does not fit the machine, or itself.
    #[error(transparent)]
    Input(#[from] Trouble),
    /// Nothing could happen any more and work was left, or a limit was reached.
    #[error("the simulation did not come to its end\n{0}")]
    Stall(Box<Stall>),
}

impl Scenario {
    /// Runs the loader on the simulated machine, with a consumer that does what `[consumer]` says. `recorder` is where the events go:
    /// [`Recorder::new`] where nobody wants to see them.
    ///
    /// # Errors
    ///
    /// When scenario and machine do not fit together, or the simulation gets stuck. An error that the loader ends with is no error
    /// here: it is what the simulation found.
    pub fn simulate(&self, machine: &MachineModel, samples: &Samples, recorder: Recorder) -> Result<Simulated, SimulateError> {
        let config = self.to_sim(machine, samples)?;
        let threads = self.threads(machine);
        let settings = self.settings(threads, samples)?;
        let resolved = settings.resolve().expect("`Scenario::settings` has resolved them");
        let facts = self.facts(machine, &config, &resolved);
        let servers = [u64::from(config.cpu.cores), u64::from(config.pool_threads), resolved.settings.lanes as u64];
        let servers = servers.into_iter().chain(self.loader.decode_limit).min().unwrap_or(1);
        let recorder = recorder.preparation_servers(u32::try_from(servers).unwrap_or(u32::MAX));
        let consumer = self.consumer.clone();
        let plans = self.of_ranks(&resolved)?;
        let barrier = (self.ranks.barrier && plans.len() > 1).then(|| SimBarrier::new(u32::from(self.ranks.count)));
        let run = move |machine: SimMachine<Tags>| run(machine, plans, consumer, barrier);
        let ended = sim::run(config, recorder, run).map_err(SimulateError::Stall)?;
        let Ended { outcome, findings, error } = Ended::of_ranks(ended.value);
        let facts = Facts { cpu_s: Some(ended.cpu_ns as f64 / 1e9), ..facts };
        let metrics = Metrics::of(&ended.recorder, &facts);
        let verdicts = self.expect.check(&Found::of(&metrics, &findings));
        let steps = ended.tally.polls + ended.tally.fired;
        Ok(Simulated { metrics, outcome, verdicts, error, steps, recorder: ended.recorder })
    }

    /// What each rank's loader is told; `first` is what the first is.
    fn of_ranks(&self, first: &Resolved) -> Result<Vec<Resolved>, Trouble> {
        let settings = |rank| Settings { rank, ..first.settings.clone() };
        let wrong = |error: SettingsError| Trouble::from(Diagnostic::new(error.to_string()).at(self.places.of("ranks.count")));
        let rest = (1..self.ranks.count).map(|rank| settings(rank).resolve().map_err(wrong));
        std::iter::once(Ok(first.clone())).chain(rest).collect()
    }

    /// What a report says of the run beside its figures.
    fn facts(&self, machine: &MachineModel, config: &sim::Config, resolved: &Resolved) -> Facts {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let settings = &resolved.settings;
        let ranks = u32::from(self.ranks.count);
        let all = |bytes: u64| bytes.saturating_mul(u64::from(ranks));
        let mut limits = Vec::new();
        limits.extend(config.store.connections.map(|n| (StageId::FETCH, n)));
        limits.extend(settings.fetch_limit.map(|n| (StageId::FETCH, count(n).saturating_mul(ranks))));
        limits.extend(settings.decode_limit.map(|n| (StageId::DECODE, count(n).saturating_mul(ranks))));
        Facts {
            machine: machine.title.clone(),
            device: machine.device.kind.to_string(),
            cores: config.cpu.cores,
            threads: config.pool_threads,
            lanes: count(settings.lanes),
            ring_slots: resolved.ring as u64,
            prefetch_batches: settings.prefetch as u64,
            copies: count(settings.copies).saturating_mul(ranks),
            limits,
            reads_on_pool: config.store.reader == sim::Reader::Pool,
            store_bytes_per_s: config.store.link_bytes_per_s.map(|n| n as f64),
            store_requests_per_s: config.store.requests.map(|r| r.per_s as f64),
            ledger_bytes: Some(all(resolved.ledger_bytes)),
            budget_bytes: Some(all(settings.budget_bytes)),
            fixed_bytes: all(resolved.fixed_bytes),
            repeatable: true,
            ..Facts::default()
        }
    }
}

type TagBatches = Batches<<SimMachine<Tags> as Machine>::DeviceBatch, Unit<SimMachine<Tags>>>;

/// What came of one rank, or of all together.
struct Ended {
    outcome: Outcome,
    findings: Findings,
    error: Option<loader::Error>,
}

impl Ended {
    /// All ranks as one: the books of the first that failed, else of the first, with everybody's accounts in it; the first finding
    /// of each kind.
    fn of_ranks(ranks: Vec<Ended>) -> Ended {
        let failed = ranks.iter().position(|rank| rank.error.is_some()).unwrap_or(0);
        let mut accounts = loader::Accounts::default();
        let (mut exactly_once, mut order_kept) = (Ok(()), Ok(()));
        let several = ranks.len() > 1;
        for (number, rank) in ranks.iter().enumerate() {
            accounts = accounts.plus(&rank.outcome.accounts);
            let named = |why: String| if several { format!("rank {number}: {why}") } else { why };
            exactly_once = exactly_once.and(rank.findings.exactly_once.clone().map_err(named));
            order_kept = order_kept.and(rank.findings.order_kept.clone().map_err(named));
        }
        let mut one = ranks.into_iter().nth(failed).expect("there is at least one rank");
        one.outcome.accounts = accounts;
        one.findings = Findings { exactly_once, order_kept };
        one
    }
}

/// All ranks on one machine, to the end of each.
async fn run(machine: SimMachine<Tags>, plans: Vec<Resolved>, consumer: Consumer, barrier: Option<SimBarrier>) -> Vec<Ended> {
    if plans.len() == 1 {
        let alone = plans.into_iter().next().expect("there is one");
        return vec![run_rank(machine, alone, consumer, None).await];
    }
    let ranks: Vec<_> = plans
        .into_iter()
        .map(|resolved| {
            let (tell, told) = tokio::sync::oneshot::channel();
            let rank = run_rank(machine.clone(), resolved, consumer.clone(), barrier.clone());
            let task = machine.spawn("rank", async move {
                let heard = tell.send(rank.await);
                debug_assert!(heard.is_ok(), "all ranks are waited for");
            });
            (task, told)
        })
        .collect();
    let mut ended = Vec::with_capacity(ranks.len());
    for (_task, told) in ranks {
        ended.push(told.await.expect("a rank tells how it ended"));
    }
    ended
}

/// One rank, from its first sample to its books.
async fn run_rank(machine: SimMachine<Tags>, resolved: Resolved, consumer: Consumer, barrier: Option<SimBarrier>) -> Ended {
    let (sender, batches) = loader::channel(machine.clock());
    let deliveries = Deliveries::new(&resolved);
    let stages = stage::fetch(&resolved.settings);
    let books = Rc::new(RefCell::new(None));
    let loader = machine.spawn("loader", {
        let (machine, books) = (machine.clone(), books.clone());
        async move {
            let outcome = loader::run(machine, resolved, stages, stage::Tag, sender).await;
            *books.borrow_mut() = Some(outcome);
        }
    });
    let (deliveries, error) = consume(&machine, batches, deliveries, &consumer, barrier.as_ref()).await;
    drop(loader);
    let outcome = books.take().expect("the loader has reported before its batches were closed");
    let findings = deliveries.finish(&outcome);
    Ended { outcome, findings, error }
}

/// The train step: takes a batch, works on it, gives back the oldest it holds, asks for the next.
async fn consume(
    machine: &SimMachine<Tags>,
    mut batches: TagBatches,
    mut deliveries: Deliveries,
    consumer: &Consumer,
    barrier: Option<&SimBarrier>,
) -> (Deliveries, Option<loader::Error>) {
    machine.sleep(consumer.start_up.to_std()).await;
    let mut held = VecDeque::new();
    let mut taken = 0;
    let mut error = None;
    while consumer.leave_after.is_none_or(|most| taken < most) {
        match batches.recv().await {
            Some(Ok(batch)) => {
                taken += 1;
                deliveries.take(&batch);
                held.push_back(batch);
                machine.sleep(consumer.step_duration()).await;
                if let Some(barrier) = barrier {
                    batches.step_over();
                    // Nobody loses a rank here: a rank that ends early leaves.
                    if barrier.wait().await.is_err() {
                        break;
                    }
                }
                while held.len() as u64 >= consumer.hold {
                    held.pop_front();
                }
            }
            Some(Err(e)) => error = Some(e),
            None => break,
        }
    }
    drop(held);
    if let Some(barrier) = barrier {
        barrier.leave();
    }
    batches.closed().await;
    (deliveries, error)
}

impl Found {
    /// What the figures of a run, and what its consumer got, say to expectations.
    pub fn of(metrics: &Metrics, findings: &Findings) -> Found {
        Found {
            samples_per_s: (metrics.delivered > 0).then_some(metrics.samples_per_s),
            accelerator_utilization: metrics.accelerator_utilization,
            time_to_first_batch_s: metrics.time_to_first_batch_s,
            cpu_s: metrics.cpu_s,
            peak_bytes_in_flight: metrics.peak_bytes_in_flight,
            skipped: metrics.skipped,
            exactly_once: findings.exactly_once.clone(),
            order_kept: findings.order_kept.clone(),
            bottleneck: Some(metrics.bottleneck.name.clone()),
        }
    }
}

impl Simulated {
    /// The report of this run alone.
    pub fn report(&self, scenario: &Scenario) -> Report {
        let mut report = Report::new(scenario.name.clone(), scenario.seed, Some(self.metrics.clone()), None);
        report.expectations = self.verdicts.iter().map(Expectation::from).collect();
        report
    }
}

impl From<&Verdict> for Expectation {
    fn from(verdict: &Verdict) -> Expectation {
        let Verdict { name, held, wanted, found, .. } = verdict.clone();
        Expectation { name, held, wanted, found }
    }
}
