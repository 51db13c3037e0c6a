//! A scenario on the simulated machine, from beginning to end.

use std::{cell::RefCell, collections::VecDeque, rc::Rc, sync::Arc};

use super::{
    Consumer, Deliveries, Found, Ranks, Samples, Scenario, Verdict,
    deliveries::Findings,
    ended::Ended,
    expect::{name_the_rank, only_so_far},
};
use crate::{
    designs::{WorkerProcesses, worker_processes::DataLoader},
    document::Trouble,
    loader::{self, Batch, Batches, Outcome, Resolved, Settings, SettingsError, all_ranks, stage},
    machine::{Machine, Tags, Unit},
    model::MachineModel,
    report::{Expectation, Facts, Metrics, Report},
    sim::{self, SimBarrier, SimMachine, Stall},
    trace::{LeafTimes, Recorder, StageId},
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
    /// The error that the consumer got, when it got one: that of the first rank that did.
    pub error: Option<loader::Error>,
    /// The rank whose consumer got it, where there are several.
    pub failed_rank: Option<u16>,
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
    /// The loader ended before its plan did, where only a whole run says anything.
    #[error("the loader ended early: {0}")]
    Ended(Box<loader::Error>),
}

/// Batches of a loader that can be in its stage on the device at once: never more than there are.
fn in_stage(resolved: &Resolved) -> u32 {
    resolved.settings.device_stage.map_or(0, |stage| count(stage.limit.min(resolved.device_batches)))
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
        self.simulate_on(self.to_sim(machine, samples)?, machine, samples, recorder)
    }

    /// The same simulation fed with what the leaves of a run [took](super::Measured::leaf_times), so that what is left of the error of
    /// the prediction is the simulation's own: its *structure*.
    ///
    /// What is fed is **CPU time**, and for reads that do not run on the pool the time that they waited beside. A leaf's time on the
    /// wall would not do: it includes waiting for a core, which the simulation's cores do by themselves, so that it would count
    /// twice. CPU time in turn holds already what neighbours on the same core or cache cost, so the simulated cores run at full speed
    /// however many are busy. Bytes take no time of their own, since the wait has it. What control and copies cost, and leaves that
    /// did not run, is the model's. So cores that other processes took meanwhile count as an error of structure.
    ///
    /// # Errors
    ///
    /// As [`Scenario::simulate`].
    pub fn replay(
        &self,
        machine: &MachineModel,
        samples: &Samples,
        leaf_times: Arc<LeafTimes>,
        recorder: Recorder,
    ) -> Result<Simulated, SimulateError> {
        let mut config = self.to_sim(machine, samples)?;
        config.cpu.speed_ppm.clear();
        config.store.link_bytes_per_s = None;
        config.store.connection_bytes_per_s = None;
        config.store.disk = None;
        config.replay = Some(leaf_times);
        self.simulate_on(config, machine, samples, recorder)
    }

    fn simulate_on(
        &self,
        config: sim::Config,
        machine: &MachineModel,
        samples: &Samples,
        recorder: Recorder,
    ) -> Result<Simulated, SimulateError> {
        let settings = self.settings(self.threads(machine), samples)?;
        let resolved = settings.resolve().expect("`Scenario::settings` has resolved them");
        let workers = self.worker_processes(machine);
        let facts = match &workers {
            None => self.facts(machine, &config, &resolved),
            Some(workers) => self.facts_of_workers(workers, machine, &config),
        };
        let threads = workers.as_ref().map_or(config.pool_threads, |workers| workers.workers.max(1));
        let servers = [u64::from(config.cpu.cores), u64::from(threads), u64::from(facts.lanes)];
        let servers = servers.into_iter().chain(self.loader.decode_limit).min().unwrap_or(1);
        let recorder = recorder.preparation_servers(u32::try_from(servers).unwrap_or(u32::MAX));
        let consumer = self.consumer.clone();
        let plans = self.of_ranks(&resolved)?;
        let (ranks, barrier) = (self.ranks, barrier_of(&self.ranks));
        let run = move |machine: SimMachine<Tags>| {
            let barrier = barrier.map(|barrier| barrier.watched(&machine, "the ranks' barrier"));
            let rank = |resolved: Resolved| {
                let node = machine.on_node(ranks.node_of(resolved.settings.rank));
                Ended::of_rank(node, resolved, workers.clone(), consumer.clone(), barrier.clone())
            };
            let all = plans.into_iter().map(rank).collect();
            all_ranks(machine, all)
        };
        let ended = sim::run(config, recorder, run).map_err(SimulateError::Stall)?;
        let peaks: Vec<u64> = ended.value.iter().map(Ended::peak_bytes).collect();
        let (Ended { outcome, findings, error }, failed_rank) = Ended::of_ranks(ended.value);
        let facts = Facts { cpu_s: Some(ended.cpu_ns as f64 / 1e9), ..facts };
        let mut metrics = Metrics::of(&ended.recorder, &facts);
        metrics.tell_peaks(&peaks);
        let mut verdicts = self.expect.check(&Found::of(&metrics, &findings));
        name_the_rank(&mut verdicts, &metrics.ranks);
        if error.is_some() {
            only_so_far(&mut verdicts);
        }
        let steps = ended.tally.polls + ended.tally.fired;
        Ok(Simulated { metrics, outcome, verdicts, error, failed_rank, steps, recorder: ended.recorder })
    }

    /// What each rank's loader is told; `first` is what the first is.
    pub(crate) fn of_ranks(&self, first: &Resolved) -> Result<Vec<Resolved>, Trouble> {
        let settings = |rank| Settings { rank, ..first.settings.clone() };
        let wrong = |error: SettingsError| Trouble::from(self.explain(&error, 0, 0));
        let rest = (1..self.ranks.count).map(|rank| settings(rank).resolve().map_err(wrong));
        std::iter::once(Ok(first.clone())).chain(rest).collect()
    }

    /// What a report says of the run beside its figures.
    fn facts(&self, machine: &MachineModel, config: &sim::Config, resolved: &Resolved) -> Facts {
        let nodes = u32::from(self.ranks.nodes());
        // Reads that the page cache answers are bounded by nothing that the disk can do.
        let all_from_store = config.store.disk.is_none_or(|disk| disk.cached_ppm == 0);
        let waiting = config.store.disk.and_then(|disk| disk.requests_per_s).map(|per_s| per_s.saturating_mul(u64::from(nodes)));
        let requests = config.store.requests.map(|r| r.per_s).into_iter().chain(waiting).min();
        let loaders = self.facts_of_loaders(resolved);
        let mut limits = loaders.limits.clone();
        let connections = config.store.connections.filter(|_| all_from_store);
        limits.extend(connections.map(|n| (StageId::FETCH, n.saturating_mul(nodes))));
        Facts {
            machine: machine.title.clone(),
            device: machine.device.kind.to_string(),
            cores: config.cpu.cores.saturating_mul(nodes),
            threads: config.pool_threads.saturating_mul(nodes),
            copies: copies_of(&config.copy.by, count(resolved.settings.copies), &self.ranks),
            kernels: self.kernels_of(config, resolved),
            limits,
            reads_on_pool: config.store.reader == sim::Reader::Pool,
            store_bytes_per_s: config.store.link_bytes_per_s.filter(|_| all_from_store).map(|n| n as f64 * f64::from(nodes)),
            store_requests_per_s: requests.filter(|_| all_from_store).map(|n| n as f64),
            repeatable: true,
            ..loaders
        }
    }

    /// Batches that can be in the stage on the device at once: as many as loaders let in and have, and no more than there are places.
    fn kernels_of(&self, config: &sim::Config, resolved: &Resolved) -> u32 {
        let (count, nodes) = (u32::from(self.ranks.count), u32::from(self.ranks.nodes()));
        let devices = match &config.copy.by {
            sim::CopyBy::Pcie(spec) => spec.devices.saturating_mul(nodes).min(count),
            sim::CopyBy::Engines(_) | sim::CopyBy::Pool | sim::CopyBy::Thread => count,
        };
        in_stage(resolved).saturating_mul(count).min(config.kernels.at_once.max(1).saturating_mul(devices))
    }

    /// What a report says of the loaders of all ranks, on whatever machine they run.
    pub(super) fn facts_of_loaders(&self, resolved: &Resolved) -> Facts {
        let settings = &resolved.settings;
        let ranks = u32::from(self.ranks.count);
        let all = |bytes: u64| bytes.saturating_mul(u64::from(ranks));
        let mut limits = Vec::new();
        limits.extend(settings.fetch_limit.map(|n| (StageId::FETCH, count(n).saturating_mul(ranks))));
        limits.extend(settings.decode_limit.map(|n| (StageId::DECODE, count(n).saturating_mul(ranks))));
        Facts {
            lanes: count(settings.lanes),
            ring_slots: resolved.ring as u64,
            prefetch_batches: settings.prefetch as u64,
            ranks,
            world: u32::from(settings.world),
            copies: count(settings.copies).saturating_mul(ranks),
            kernels: in_stage(resolved).saturating_mul(ranks),
            limits,
            ledger_bytes: Some(all(resolved.ledger_bytes)),
            budget_bytes: Some(all(settings.budget_bytes)),
            fixed_bytes: all(resolved.fixed_bytes),
            ..Facts::default()
        }
    }
}

impl Scenario {
    /// What a report says of worker processes beside their figures. A worker is a thread of a pool that reads, too.
    fn facts_of_workers(&self, workers: &WorkerProcesses, machine: &MachineModel, config: &sim::Config) -> Facts {
        let (ranks, nodes) = (u32::from(self.ranks.count), u32::from(self.ranks.nodes()));
        let each = workers.workers.max(1);
        let all_from_store = config.store.disk.is_none_or(|disk| disk.cached_ppm == 0);
        let connections = config.store.connections.filter(|_| all_from_store);
        Facts {
            machine: machine.title.clone(),
            device: machine.device.kind.to_string(),
            cores: config.cpu.cores.saturating_mul(nodes),
            threads: each.saturating_mul(ranks),
            lanes: each,
            prefetch_batches: u64::from(workers.workers) * u64::from(workers.prefetch_factor),
            ranks,
            world: u32::from(self.loader.world),
            // The main process does them one after the other.
            copies: ranks,
            limits: connections.map(|n| (StageId::FETCH, n.saturating_mul(nodes))).into_iter().collect(),
            reads_on_pool: true,
            store_bytes_per_s: config.store.link_bytes_per_s.filter(|_| all_from_store).map(|n| n as f64 * f64::from(nodes)),
            repeatable: true,
            ..Facts::default()
        }
    }
}

/// A count, as reports have it.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

type TagBatches = Batches<<SimMachine<Tags> as Machine>::DeviceBatch, Unit<SimMachine<Tags>>>;
type TagBatch = Batch<<SimMachine<Tags> as Machine>::DeviceBatch, Unit<SimMachine<Tags>>>;

/// Copies to devices that can be under way at once: as many as loaders ask for, and no more than there are engines.
fn copies_of(by: &sim::CopyBy, of_a_rank: u32, ranks: &Ranks) -> u32 {
    let (count, nodes) = (u32::from(ranks.count), u32::from(ranks.nodes()));
    let asked = of_a_rank.saturating_mul(count);
    match by {
        sim::CopyBy::Pcie(spec) => asked.min(spec.engines.saturating_mul(spec.devices.saturating_mul(nodes).min(count))),
        sim::CopyBy::Engines(engines) => asked.min(engines.saturating_mul(nodes)),
        sim::CopyBy::Pool | sim::CopyBy::Thread => asked,
    }
}

impl Ended {
    /// One rank, to its end.
    async fn of_rank(
        machine: SimMachine<Tags>,
        resolved: Resolved,
        workers: Option<WorkerProcesses>,
        consumer: Consumer,
        barrier: Option<SimBarrier>,
    ) -> Ended {
        if let Some(workers) = workers {
            let loader = DataLoader::new(&machine, &resolved, workers);
            return consume_of_workers(&machine, loader, Deliveries::new(&resolved), &consumer, barrier.as_ref()).await;
        }
        let mut deliveries = Deliveries::new(&resolved);
        let (outcome, error) = {
            let look = |when: Look, batch: &TagBatch| {
                if when == Look::Got {
                    deliveries.take(batch);
                }
            };
            run_rank(machine, resolved, consumer, barrier, look).await
        };
        let findings = deliveries.finish(&outcome);
        Ended { outcome, findings, error }
    }
}

/// The barrier that ranks meet at after every step, when they do.
pub(crate) fn barrier_of(ranks: &Ranks) -> Option<SimBarrier> {
    (ranks.barrier && ranks.count > 1).then(|| SimBarrier::new(u32::from(ranks.count)))
}

/// When a consumer looks at a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// When it gets it.
    Got,
    /// When it has worked on it.
    Worked,
    /// When it gives it back.
    GivesBack,
}

/// One rank's loader and consumer, from its first sample to its books; `look` sees every batch whenever the consumer looks at it.
pub(crate) async fn run_rank(
    machine: SimMachine<Tags>,
    resolved: Resolved,
    consumer: Consumer,
    barrier: Option<SimBarrier>,
    look: impl FnMut(Look, &TagBatch),
) -> (Outcome, Option<loader::Error>) {
    let (sender, batches) = loader::channel(machine.clock());
    let stages = stage::fetch(&resolved.settings);
    let on_device = resolved.settings.device_stage.map(|stage| {
        let slot_bytes = resolved.settings.slot_bytes as u64;
        let priced = stage::Priced { kind: stage::NORMALIZE, slot_bytes, result_bytes: stage.result_bytes };
        Arc::new(priced) as Arc<dyn stage::BatchStage<_>>
    });
    let books = Rc::new(RefCell::new(None));
    let loader = machine.spawn("loader", {
        let (machine, books) = (machine.clone(), books.clone());
        async move {
            let outcome = loader::run_staged(machine, resolved, stages, stage::Tag, on_device, sender).await;
            *books.borrow_mut() = Some(outcome);
        }
    });
    let error = consume(&machine, batches, look, &consumer, barrier.as_ref()).await;
    drop(loader);
    let outcome = books.take().expect("the loader has reported before its batches were closed");
    (outcome, error)
}

/// The train step: takes a batch, works on it, gives back the oldest it holds, asks for the next.
async fn consume(
    machine: &SimMachine<Tags>,
    mut batches: TagBatches,
    mut look: impl FnMut(Look, &TagBatch),
    consumer: &Consumer,
    barrier: Option<&SimBarrier>,
) -> Option<loader::Error> {
    machine.sleep(consumer.start_up.to_std()).await;
    let mut held = VecDeque::new();
    let mut taken = 0;
    let mut error = None;
    while consumer.leave_after.is_none_or(|most| taken < most) {
        match batches.recv().await {
            Some(Ok(batch)) => {
                taken += 1;
                look(Look::Got, &batch);
                machine.step(consumer.step_duration()).await;
                look(Look::Worked, &batch);
                held.push_back(batch);
                if let Some(barrier) = barrier {
                    batches.step_over();
                    // Nobody loses a rank here: a rank that ends early leaves.
                    if barrier.wait().await.is_err() {
                        break;
                    }
                }
                while held.len() as u64 >= consumer.hold
                    && let Some(oldest) = held.pop_front()
                {
                    look(Look::GivesBack, &oldest);
                }
            }
            Some(Err(e)) => error = Some(e),
            None => break,
        }
    }
    for batch in held {
        look(Look::GivesBack, &batch);
    }
    if let Some(barrier) = barrier {
        barrier.leave();
    }
    batches.closed().await;
    error
}

/// The same train step in the main process of worker processes, which start when it first asks.
async fn consume_of_workers(
    machine: &SimMachine<Tags>,
    mut loader: DataLoader,
    mut deliveries: Deliveries,
    consumer: &Consumer,
    barrier: Option<&SimBarrier>,
) -> Ended {
    machine.sleep(consumer.start_up.to_std()).await;
    let mut held = VecDeque::new();
    let mut taken = 0;
    let mut error = None;
    while consumer.leave_after.is_none_or(|most| taken < most) {
        match loader.next().await {
            Some(Ok(batch)) => {
                taken += 1;
                deliveries.take_items(&batch.items, None);
                held.push_back(batch);
                machine.step(consumer.step_duration()).await;
                if let Some(barrier) = barrier {
                    loader.step_over();
                    if barrier.wait().await.is_err() {
                        break;
                    }
                }
                while held.len() as u64 >= consumer.hold {
                    let Some(oldest) = held.pop_front() else { break };
                    loader.give_back(oldest);
                }
            }
            Some(Err(e)) => error = Some(e),
            None => break,
        }
    }
    held.into_iter().for_each(|batch| loader.give_back(batch));
    if let Some(barrier) = barrier {
        barrier.leave();
    }
    let outcome = loader.close().await;
    let findings = deliveries.finish(&outcome);
    Ended { outcome, findings, error }
}

impl Found {
    /// What the figures of a run, and what its consumer got, say to expectations.
    pub fn of(metrics: &Metrics, findings: &Findings) -> Found {
        Found {
            samples_per_s: (metrics.delivered > 0).then_some(metrics.samples_per_s),
            accelerator_utilization: metrics.accelerator_utilization,
            time_to_first_batch_s: metrics.time_to_first_batch_s,
            cpu_s: metrics.cpu_s,
            peak_bytes_in_flight: metrics.peak_bytes_of_a_rank(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        machine::{Item, Op},
        model,
        scenario::{Overrides, parse},
        trace::{Event, Kind, LeafTime},
    };

    /// One decoding thread on two cores, so that nothing waits for a core, and a consumer that takes no time.
    const SCENARIO: &str = "title = \"replayed\"\nmachine = \"reference-2core\"\n[dataset]\nkind = \"synthetic\"\ncount = 200\n\
                            [loader]\nbatch = 20\nthreads = 1\n[consumer]\nstep = \"0 ms\"\n";

    fn scenario() -> (Scenario, MachineModel, Samples) {
        let scenario = parse("replayed.toml", SCENARIO, &Overrides::default()).unwrap();
        let machine = model::load("reference-2core").unwrap();
        let samples = scenario.samples().unwrap().unwrap();
        (scenario, machine, samples)
    }

    fn leaf(event: &Event) -> Op {
        let item = Item { epoch: event.epoch, sample: event.sample, position: 0 };
        Op { stage: event.stage, rank: event.rank, attempt: 0, item }
    }

    #[test]
    fn a_replay_of_what_was_simulated_is_what_was_simulated() {
        let (scenario, mut machine, samples) = scenario();
        machine.cpu.speed.clear();
        let simulated = scenario.simulate(&machine, &samples, Recorder::new().keep_events()).unwrap();
        let ends = simulated.recorder.events().iter().filter(|e| e.kind == Kind::End && e.stage <= StageId::DECODE);
        let took = |e: &Event| LeafTime { cpu_ns: e.time.since(e.since), wall_ns: e.time.since(e.since) };
        let times = LeafTimes::new(ends.map(|e| (leaf(e), took(e))));
        assert_eq!(times.len(), 400, "a read and a decode of each");
        machine.costs.get_mut("decode").unwrap().fixed = None;
        let replayed = scenario.replay(&machine, &samples, Arc::new(times), Recorder::new()).unwrap();
        let (told, again) = (simulated.metrics.samples_per_s, replayed.metrics.samples_per_s);
        assert!((again / told - 1.0).abs() < 0.005, "{told} simulated, {again} replayed");
    }

    #[test]
    fn a_hard_disk_reads_as_its_arm_and_platter_allow() {
        let text = SCENARIO.replace("[loader]", "[store]\nkind = \"hdd\"\n[loader]").replace("count = 200", "count = 1000");
        let scenario = parse("hdd.toml", &text, &Overrides::default()).unwrap();
        let (mut machine, samples) = (model::load("laptop").unwrap(), scenario.samples().unwrap().unwrap());
        let per_s = |machine: &MachineModel| scenario.simulate(machine, &samples, Recorder::new()).unwrap().metrics.samples_per_s;
        // A seek, half a turn, and 114660 bytes and half a block at 180 MB/s.
        let expected = 1e3 / (8.5 + 8.33 / 2.0 + 0.648);
        let found = per_s(&machine);
        assert!((found / expected - 1.0).abs() < 0.03, "{found} samples/s, expected {expected}");
        // Where the page cache has three of four, four times as many come.
        machine.stores.get_mut("hdd").unwrap().cached =
            Some(crate::model::Measured::plain(crate::units::Fraction::new(75.0, "%")));
        let cached = per_s(&machine);
        assert!((cached / expected / 4.0 - 1.0).abs() < 0.1, "{cached} samples/s, expected four times {expected}");
    }

    /// A scenario whose stage on the device takes so long for each batch of 20, on a machine that does two of them at once.
    fn staged(ms: f64, limit: u64, step: &str) -> (Metrics, Vec<Event>) {
        staged_on(2, ms, 4, limit, step)
    }

    /// The same with so many batches ahead, on a machine that does so many at once.
    fn staged_on(places: u64, ms: f64, prefetch: u64, limit: u64, step: &str) -> (Metrics, Vec<Event>) {
        let stage = format!("threads = 2\nprefetch = {prefetch}\ndevice_stage = \"normalize\"\ndevice_stage_limit = {limit}");
        let text = SCENARIO.replace("threads = 1", &stage).replace("step = \"0 ms\"", step);
        let scenario = parse("staged.toml", &text, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
        let (mut machine, samples) = (model::load("ideal").unwrap(), scenario.samples().unwrap().unwrap());
        let cost =
            model::KernelCost { fixed: Some(model::Measured::plain(crate::units::Duration::new(ms, "ms"))), per_byte: None };
        machine.kernels.insert("normalize".to_owned(), cost);
        machine.device.kernels_at_once = Some(model::Measured::plain(crate::units::Count(places)));
        let mut simulated = scenario.simulate(&machine, &samples, Recorder::new().keep_events()).unwrap();
        assert_eq!(simulated.error, None);
        (simulated.metrics, simulated.recorder.take_events())
    }

    #[test]
    fn a_stage_on_the_device_is_the_bottleneck_when_it_is_and_what_relieves_it_does() {
        let (one, events) = staged(50.0, 1, "step = \"0 ms\"");
        assert_eq!(one.bottleneck.name, "device");
        // Ten batches one after the other, and all else is free.
        assert!((one.samples_per_s / (20.0 / 0.05) - 1.0).abs() < 1e-9, "{} samples/s", one.samples_per_s);
        assert_eq!(events.iter().filter(|e| e.stage == StageId::DEVICE && e.kind == Kind::End).count(), 10);
        let stage = one.stages.iter().find(|stage| stage.name == "device").expect("it has a row");
        assert!(stage.mean_service_s.is_some_and(|mean| (mean - 0.05).abs() < 1e-12), "{stage:?}");
        assert!(one.bottleneck.why.contains("Device is busy 100.0 % of the time"), "{}", one.bottleneck.why);
        // Two at once do twice as much, and as quick as they may be the consumer is what limits.
        let (two, _) = staged(50.0, 2, "step = \"0 ms\"");
        assert!((two.samples_per_s / one.samples_per_s - 2.0).abs() < 1e-9, "{} samples/s", two.samples_per_s);
        let (quick, _) = staged(0.001, 1, "step = \"1 ms\"");
        assert_eq!(quick.bottleneck.name, "consumer");
    }

    #[test]
    fn more_batches_in_the_stage_than_there_are_count_for_nothing() {
        let (metrics, _) = staged_on(1_000_000, 50.0, 1, 1_000_000, "step = \"0 ms\"");
        // One that is made ready and one that the consumer may hold: ten batches, two at a time.
        assert!((metrics.samples_per_s / 800.0 - 1.0).abs() < 1e-9, "{} samples/s", metrics.samples_per_s);
        assert_eq!(metrics.bounds.samples_per_s(), Some(metrics.samples_per_s));
        assert_eq!(metrics.bottleneck.name, "device");
    }

    #[test]
    fn a_machine_that_does_not_know_the_stage_says_so() {
        let scenario =
            parse("staged.toml", &SCENARIO.replace("[loader]", "[loader]\ndevice_stage = \"normalize\""), &Overrides::default());
        let (scenario, machine) = (scenario.unwrap(), model::load("reference-2core").unwrap());
        let samples = scenario.samples().unwrap().unwrap();
        let error = scenario.simulate(&machine, &samples, Recorder::new()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("does not say what `normalize` costs on its device"), "{error}");
    }

    #[test]
    fn ranks_on_nodes_of_their_own_do_as_one_does_alone() {
        let base = SCENARIO.replace("[consumer]", "tail = \"drop\"\n[consumer]");
        let found = |count: u64, ranks: &str| {
            let text =
                base.replace("count = 200", &format!("count = {count}")).replace("[loader]", &format!("{ranks}\n[loader]"));
            let scenario = parse("nodes.toml", &text, &Overrides::default()).unwrap();
            let (machine, samples) = (model::load("reference-2core").unwrap(), scenario.samples().unwrap().unwrap());
            scenario.simulate(&machine, &samples, Recorder::new()).unwrap().metrics
        };
        let alone = found(400, "").samples_per_s;
        let [nodes, one_node] = ["[ranks]\ncount = 4\nper_node = 1", "[ranks]\ncount = 4"].map(|ranks| found(1600, ranks));
        assert!((nodes.samples_per_s / alone / 4.0 - 1.0).abs() < 0.1, "{} samples/s, {alone} alone", nodes.samples_per_s);
        assert!(one_node.samples_per_s < 1.5 * alone, "{} samples/s of four ranks on one thread", one_node.samples_per_s);
        assert_eq!((nodes.cores, nodes.threads, one_node.threads), (8, 4, 1));
        // Three ranks on two nodes.
        assert_eq!(found(600, "[ranks]\ncount = 3\nper_node = 2").cores, 4);
    }

    /// Step times by the rules of MosaicML's streaming simulator (`simulation/core/main.py`), in ns: a node downloads at a constant rate
    /// all the time, as far ahead as it may; a step takes its computing time and before it the time until its bytes are there.
    fn steps_by_rule(batches: u64, batch_bytes: f64, bytes_per_s: f64, step_s: f64, ahead_batches: f64) -> Vec<f64> {
        let mut there = 0.0;
        (0..batches)
            .map(|k| {
                let needed = (k + 1) as f64 * batch_bytes;
                let wait_s = f64::max(0.0, needed - there) / bytes_per_s;
                there = f64::max(there, needed);
                let most = f64::min(needed + ahead_batches * batch_bytes, batches as f64 * batch_bytes);
                there = f64::min(there + step_s * bytes_per_s, most);
                (wait_s + step_s) * 1e9
            })
            .collect()
    }

    #[test]
    fn step_times_at_constant_rates_are_those_of_the_streaming_simulator() {
        // Bytes a second, milliseconds a step, ranks, ranks on a node.
        for (rate, step_ms, ranks, per_node) in
            [(64, 20, 1, 1), (320, 20, 1, 1), (160, 20, 1, 1), (64, 20, 3, 1), (64, 70, 2, 2), (100, 70, 4, 2)]
        {
            let sets = [
                format!("store.bandwidth={rate} MB/s"),
                format!("consumer.step={step_ms} ms"),
                format!("ranks.count={ranks}"),
                format!("ranks.per_node={per_node}"),
                format!("dataset.count={}", 32 * 40 * ranks),
            ];
            let scenario = crate::scenario::load("constant-rates", &Overrides::set(sets)).unwrap();
            let (machine, samples) = (scenario.machine_model().unwrap(), scenario.samples().unwrap().unwrap());
            let simulated = scenario.simulate(&machine, &samples, Recorder::new().keep_events()).unwrap();
            let ends =
                simulated.recorder.events().iter().filter(|e| e.kind == Kind::Step && e.rank == 0).map(|e| e.time.0 as f64);
            let node_bytes = 32.0 * 100e3 * f64::from(per_node);
            let rule = steps_by_rule(40, node_bytes, f64::from(rate) * 1e6, f64::from(step_ms) / 1e3, 2.0);
            let mut before = 0.0;
            for (k, (end, expected)) in ends.zip(&rule).enumerate() {
                let took = end - before;
                assert!(
                    (took - expected).abs() < 2e3,
                    "step {k} took {took} ns, by the rule {expected} ({rate} MB/s, {step_ms} ms)"
                );
                before = end;
            }
            assert!(before > 0.0);
        }
    }

    #[test]
    fn replayed_leaves_take_what_they_took_and_not_what_they_cost() {
        let (scenario, machine, samples) = scenario();
        let op = |stage, sample| Op { stage, item: Item { epoch: 0, sample, position: 0 }, ..Op::default() };
        // Ten milliseconds of computing, within a wall time that held as much waiting for a core.
        let decode = LeafTime { cpu_ns: 10_000_000, wall_ns: 20_000_000 };
        let read = LeafTime { cpu_ns: 0, wall_ns: 5_000_000 };
        let leaves = (0..200).flat_map(|s| [(op(StageId::DECODE, s), decode), (op(StageId::FETCH, s), read)]);
        let replayed = scenario.replay(&machine, &samples, Arc::new(LeafTimes::new(leaves)), Recorder::new()).unwrap();
        let per_s = replayed.metrics.samples_per_s;
        assert!((per_s / 100.0 - 1.0).abs() < 0.01, "{per_s} samples/s of one thread that decodes for 10 ms each");
    }
}
