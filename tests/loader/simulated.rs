//! The same cases on the simulator, and the simulator against tokio's paused clock.

use std::{future::Future, sync::Arc};

use towtank::{
    loader::{Allowance, End, Error, OnError, Order, Settings, Tail},
    machine::{Pixels, Tags},
    sim::{
        Chooser, Config, CopyBy, CopySpec, Cost, Costs, CpuSpec, Dataset, KernelCost, KernelSpec, Outcome, SimMachine,
        SimPayload, Simulation, Size,
    },
    trace::{Kind, Recorder},
};

use crate::{
    content::{Case, case, check, clean, machine},
    paused,
    scenario::{Consumer, load_world},
    world::{SLOT_BYTES, TestPayload, World, oracle},
};

/// Payloads that a simulation can be made of.
pub trait Simulated: SimPayload + TestPayload {
    fn simulation(config: Config) -> Simulation<Self>
    where
        Self: Sized;
}

impl Simulated for Tags {
    fn simulation(config: Config) -> Simulation<Tags> {
        Simulation::new(config)
    }
}

impl Simulated for Pixels {
    fn simulation(config: Config) -> Simulation<Pixels> {
        Simulation::with_content(config, Arc::new(|_| Ok(Vec::new())))
    }
}

/// The simulated twin of a paused machine: a millisecond of decoding for each byte of work.
pub fn twin(paused: paused::Config, chooser: Chooser) -> Config {
    let ms = |count: u64| Cost { ps_per_byte: count * 1_000_000_000, ..Cost::FREE };
    Config {
        seed: paused.seed,
        chooser,
        cpu: CpuSpec { cores: paused.cores as u32, speed_ppm: Vec::new() },
        pool_threads: paused.cores as u32,
        costs: Costs::all(ms(1)),
        copy: CopySpec {
            by: CopyBy::Engines(paused.engines as u32),
            cost: Cost { ps_per_byte: paused.copy_ms * 1_000_000_000 / SLOT_BYTES as u64, ..Cost::FREE },
        },
        kernels: KernelSpec {
            at_once: paused.kernels as u32,
            other: Some(KernelCost::fixed(paused.stage_ms * 1_000_000)),
            ..KernelSpec::default()
        },
        lends_slots: paused.lends_slots,
        dataset: Dataset::uniform(1 << 20, Size { bytes: 100, pixels: 0 }),
        ..Config::default()
    }
}

/// Runs on the simulated twin of the paused machine of this number.
pub fn simulate<P: Simulated, T: 'static, F: Future<Output = T> + 'static>(
    seed: u64,
    chooser: Chooser,
    root: impl FnOnce(SimMachine<P>) -> F,
) -> Outcome<T> {
    let simulation = P::simulation(twin(machine(seed), chooser)).recorder(Recorder::new());
    simulation.run(root).unwrap_or_else(|stall| panic!("{stall}"))
}

fn consumer(seed: u64) -> Consumer {
    Consumer { step_ms: [0, 3, 40_000][seed as usize % 3], ..Consumer::EAGER }
}

fn on_simulator<P: Simulated>(seed: u64) -> bool {
    let _case = Case(seed);
    let Some((settings, world)) = case(seed) else { return false };
    let chooser = if seed.is_multiple_of(4) { Chooser::Fifo } else { Chooser::Random(seed) };
    let run = simulate::<P, _, _>(seed, chooser, |machine| load_world(machine, settings.clone(), world, consumer(seed)));
    let (seen, outcome) = run.value;
    check(&settings, &oracle(&settings, &world), &seen, &outcome);
    assert_eq!((run.left.leaves, run.left.threads), (0, 0));
    true
}

#[test]
fn samples_beyond_the_last_batch_are_dropped_as_they_come() {
    // Eleven samples for batches of four: three are left over, one after the other.
    let settings = Settings { tail: Tail::Drop, drop_last: true, lanes: 1, ..Settings::new(11, 4, SLOT_BYTES) };
    let world = World { seed: 1, fetch_ms: 5, decode_ms: 5, bad_reads: 0, bad_decodes: 0 };
    let simulation = Simulation::<Tags>::new(twin(machine(1), Chooser::Fifo)).recorder(Recorder::new().keep_events());
    let run = simulation.run(|machine| load_world(machine, settings, world, Consumer::EAGER)).expect("it ends");
    let times = |kind| -> Vec<_> { run.recorder.events().iter().filter(|e| e.kind == kind).map(|e| e.time).collect() };
    let (filled, dropped) = (times(Kind::Filled), times(Kind::Dropped));
    assert_eq!((filled.len(), dropped.len()), (11, 3));
    assert!(dropped[0] < filled[9] && dropped[1] < filled[10], "filled at {filled:?}, dropped at {dropped:?}");
}

#[test]
fn content_is_the_same_under_thousands_of_schedules() {
    let cases = (0..4000).filter(|seed| on_simulator::<Tags>(*seed)).count();
    assert!(cases > 3000, "{cases}");
}

#[test]
fn every_simulated_pixel_arrives_where_it_belongs() {
    for seed in 10_000..10_300 {
        on_simulator::<Pixels>(seed);
    }
}

#[test]
fn the_simulator_and_tokios_clock_deliver_the_same_batches_at_the_same_times() {
    let mut cases = 0;
    for seed in 20_000..20_400 {
        let _case = Case(seed);
        let Some((settings, world)) = case(seed) else { continue };
        // Where much is due at the same millisecond, who comes first is nobody's promise.
        let world = World { fetch_ms: 1_000_003, decode_ms: 1_000_003, ..world };
        let paused =
            paused::run::<Tags, _, _>(machine(seed), |machine| load_world(machine, settings.clone(), world, consumer(seed)));
        let simulated =
            simulate::<Tags, _, _>(seed, Chooser::Fifo, |machine| load_world(machine, settings.clone(), world, consumer(seed)));
        let ((one, first), (other, second)) = (paused.value, simulated.value);
        assert_eq!(one.batches, other.batches);
        assert_eq!(one.skipped, other.skipped);
        assert_eq!(one.states, other.states);
        assert_eq!(one.end, other.end, "{settings:?}");
        assert_eq!((first.accounts, first.memory, first.slots), (second.accounts, second.memory, second.slots));
        cases += 1;
    }
    assert!(cases > 300, "{cases}");
}

#[test]
fn a_run_repeats_event_by_event() {
    for seed in 30_000..30_060 {
        let _case = Case(seed);
        let Some((settings, world)) = case(seed) else { continue };
        let run = || {
            simulate::<Tags, _, _>(seed, Chooser::Random(seed), |machine| {
                load_world(machine, settings.clone(), world, consumer(seed))
            })
        };
        let (one, other) = (run(), run());
        assert_eq!((one.recorder.hash(), one.end), (other.recorder.hash(), other.end));
    }
}

#[test]
fn a_consumer_may_leave_a_simulation_after_any_batch() {
    for seed in 40_000..40_200 {
        let _case = Case(seed);
        let Some((settings, world)) = case(seed) else { continue };
        let oracle = oracle(&settings, &world);
        let stride = oracle.batches.len() / 8 + 1;
        for k in (0..=oracle.batches.len()).step_by(stride) {
            let consumer = Consumer { leaves_after: k, step_ms: [0, 1, 30_000][k % 3] };
            let run = simulate::<Tags, _, _>(seed, Chooser::Random(seed), |machine| {
                load_world(machine, settings.clone(), world, consumer)
            });
            let (seen, outcome) = run.value;
            assert_eq!(seen.batches.len(), k);
            if settings.order == Order::Plan {
                assert_eq!(seen.batches, oracle.batches[..k]);
            }
            clean(&settings, &outcome);
            assert_eq!((run.left.leaves, run.left.threads), (0, 0));
        }
    }
}

#[test]
fn the_first_failure_comes_in_its_place_under_any_schedule() {
    let mut failed = 0;
    for seed in 50_000..50_400 {
        let _case = Case(seed);
        let Some((mut settings, world)) = case(seed) else { continue };
        settings.on_error = OnError::Fail;
        settings.order = Order::Plan;
        let run = simulate::<Tags, _, _>(seed, Chooser::Random(seed), |machine| {
            load_world(machine, settings.clone(), world, consumer(seed))
        });
        let (seen, outcome) = run.value;
        clean(&settings, &outcome);
        let lasting = Settings { on_error: OnError::Skip { at_most: Allowance::ANY }, ..settings.clone() };
        let first = oracle(&lasting, &world).skipped.first().copied();
        let error = seen.error.map(|error| match error {
            Error::Sample { item, .. } => item,
            other => panic!("{other}"),
        });
        assert_eq!(error, first);
        failed += usize::from(first.is_some());
        if first.is_none() {
            assert_eq!(outcome.end, End::Finished);
        }
    }
    assert!(failed > 100, "{failed}");
}
