//! The same comparison on traces of the real loader, on a simulated machine.

use std::sync::{Arc, mpsc};

use proptest::prelude::*;

use super::{figures, same, told};
use crate::{
    failure::Failure,
    fault::{Faults, Hits},
    loader::{
        self, Allowance, OnError, Order, Retries, Settings,
        stage::{self, Fill},
    },
    machine::{
        Encoded, Item, Machine, Pixels, Tags, Work,
        real::{self, RealMachine},
    },
    report::{Bounds, Facts},
    sim::{self, Chooser, Config, CopySpec, Cost, Costs, CpuSpec, Dataset, Distribution, SimMachine, Size, StoreSpec},
    source::Memory,
    trace::{Event, Recorder, StageId, Summary},
};

#[derive(Clone, Debug)]
struct Case {
    config: Config,
    settings: Settings,
    step_ns: u64,
}

fn any_case() -> impl Strategy<Value = Case> {
    let loader = (8u64..120, 1usize..9, 1usize..12, 1usize..4, 0usize..3, any::<bool>(), any::<bool>());
    let machine = (any::<u64>(), 1u32..5, 0u64..3_000_000, 0u64..3_000_000, 0u64..3_000_000);
    let rest = (0u64..4_000_000, prop_oneof![Just(0u32), 1u32..300_000], 1u32..3, 1u64..4);
    (loader, machine, rest).prop_map(
        |(
            (samples, batch, lanes, copies, prefetch, drop_last, completion),
            (seed, threads, read, decode, copy),
            (step, ppm, epochs, tight),
        )| {
            let sample_bytes = 300_000;
            let settings = Settings {
                shuffle: Some(seed),
                epochs,
                drop_last,
                order: if completion { Order::Completion } else { Order::Plan },
                on_error: OnError::Skip { at_most: Allowance::ANY },
                sample_bytes,
                ring: Some(batch * 2),
                lanes,
                prefetch,
                copies,
                retries: Retries { at_most: 1, ..Retries::default() },
                ..Settings::new(samples, batch, 1000)
            };
            // Room for a few samples at a time, so that the ledger has to make lanes wait.
            let least = settings.clone().resolve().expect("a plain case").minimum_bytes;
            let settings = Settings { budget_bytes: least + tight * sample_bytes, ..settings };
            let faults = Faults { undecodable: Hits::share(ppm / 4), transient: Hits::share(ppm), ..Faults::default() };
            let config = Config {
                seed,
                chooser: Chooser::Random(seed),
                cpu: CpuSpec { cores: threads, speed_ppm: Vec::new() },
                pool_threads: threads,
                costs: Costs::all(Cost::exponential(decode)),
                store: StoreSpec { first_byte_ns: Distribution::Exponential { mean: read }, ..StoreSpec::default() },
                copy: CopySpec { cost: Cost::fixed(copy), ..CopySpec::default() },
                dataset: Dataset::uniform(samples, Size { bytes: 200_000, pixels: 0 }),
                faults,
                ..Config::default()
            };
            Case { config, settings, step_ns: step }
        },
    )
}

fn run(case: &Case) -> (Recorder, loader::Outcome) {
    let Case { config, settings, step_ns } = case.clone();
    let servers = config.pool_threads.min(settings.lanes as u32);
    let recorder = Recorder::new().preparation_servers(servers).keep_events();
    let resolved = settings.resolve().expect("a plain case");
    let outcome = sim::run(config, recorder, move |machine: SimMachine<Tags>| async move {
        let (sender, mut batches) = loader::channel(machine.clock());
        let books = std::rc::Rc::new(std::cell::RefCell::new(None));
        let _loader = machine.spawn("loader", {
            let (machine, books) = (machine.clone(), books.clone());
            async move {
                let stages = stage::fetch(&resolved.settings);
                *books.borrow_mut() = Some(loader::run(machine, resolved, stages, stage::Tag, sender).await);
            }
        });
        while let Some(batch) = batches.recv().await {
            let _batch = batch.expect("failures are skipped");
            machine.sleep(std::time::Duration::from_nanos(step_ns)).await;
        }
        while books.borrow().is_none() {
            machine.sleep(std::time::Duration::from_nanos(1)).await;
        }
        books.take().expect("just seen")
    });
    let outcome = outcome.expect("it does not get stuck");
    (outcome.recorder, outcome.value)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_loaders_trace_is_summed_up_as_the_slow_way_does(case in any_case()) {
        let (recorder, outcome) = run(&case);
        let summary = recorder.summary();
        let mut events: Vec<Event> = recorder.events().to_vec();
        events.sort_by_key(|e| e.time);
        if summary.consumers().next().is_some() {
            same(&told(summary), &figures(&events, summary.preparation_servers().expect("told")))?;
        }

        let mut prefix = Summary::new();
        for event in recorder.events() {
            prefix.update(event);
            prop_assert_eq!(prefix.accounts().difference(), 0);
        }
        let (accounts, books) = (summary.accounts(), &outcome.accounts);
        prop_assert_eq!(accounts.difference(), 0);
        prop_assert_eq!((accounts.delivered, accounts.skipped, accounts.dropped), (books.delivered, books.skipped, books.dropped));
        prop_assert_eq!(accounts.in_flight(), 0, "{:?}", accounts);
        prop_assert_eq!(summary.peak_reserved_bytes(), outcome.memory.peak_reserved_bytes);
        prop_assert_eq!(summary.loader().ledger().now(), 0);

        let threads = case.config.pool_threads;
        if let Some(decode) = summary.stage(StageId::DECODE) {
            prop_assert!(decode.utilization(threads, summary.end()) <= 1.0 + 1e-9);
        }
        let lanes = case.settings.lanes as u32;
        let facts = Facts { threads, lanes, copies: 1, ..Facts::default() };
        for bound in Bounds::of(summary, &facts, |_| String::new()).limits {
            // Over the whole run: a last sample may fail long after the last batch was worked on.
            let rate = accounts.delivered as f64 / summary.end().as_secs_f64();
            prop_assert!(rate <= bound.samples_per_s * (1.0 + 1e-9), "{} samples/s against {:?}", rate, bound);
        }
    }
}

/// DS-Analyzer's own way to tell the stalls apart: once more, with a store that costs nothing.
#[test]
fn the_preparation_stall_is_what_a_run_with_free_fetching_still_waits() {
    let ms = 1_000_000;
    for (read_ms, decode_ms, step_ms) in [(20, 1, 2), (20, 1, 6), (1, 1, 2), (6, 2, 3), (12, 3, 12), (40, 2, 3)] {
        let stall = |read_ns| {
            let settings = Settings { lanes: 16, budget_bytes: 1 << 30, ..Settings::new(3200, 8, 1000) };
            let config = Config {
                cpu: CpuSpec { cores: 2, speed_ppm: Vec::new() },
                pool_threads: 2,
                costs: Costs::all(Cost::fixed(decode_ms * ms)),
                store: StoreSpec { first_byte_ns: Distribution::Constant(read_ns), ..StoreSpec::default() },
                dataset: Dataset::uniform(3200, Size { bytes: 1000, pixels: 0 }),
                ..Config::default()
            };
            let (recorder, _) = run(&Case { config, settings, step_ns: step_ms * ms });
            recorder.summary().stall().expect("servers are told")
        };
        let (split, free) = (stall(read_ms * ms), stall(0));
        let total = (split.fetch_ns + split.preparation_ns).max(1) as f64;
        let off = (split.preparation_ns as f64 - (free.fetch_ns + free.preparation_ns) as f64) / total;
        assert!(off.abs() < 0.03, "read {read_ms}, decode {decode_ms}, step {step_ms} ms: {split:?}, free {free:?}");
    }
}

/// Writes a sample's first byte all over its slot, slowly enough to be late now and then.
struct Spread;

impl Fill<Pixels, Encoded> for Spread {
    fn work(&self, _: Item, input: &Encoded) -> Work {
        Work { kind: "decode", bytes: input.data.len() as u64, pixels: 0 }
    }

    fn fill(&self, item: Item, input: Encoded, out: &mut [u8]) -> Result<(), Failure> {
        (0..1 + item.sample % 7).for_each(|_| out.fill(input.data[0]));
        Ok(())
    }
}

#[test]
fn a_real_trace_is_summed_up_as_the_slow_way_does_though_its_events_come_late() {
    let settings = Settings { epochs: 3, lanes: 8, shuffle: Some(4), ..Settings::new(500, 16, 40_000) };
    let resolved = settings.resolve().expect("plain settings");
    let source = Memory::from_fn(500, |sample, into| {
        into.extend_from_slice(&[sample as u8; 100]);
        Ok(())
    });
    let config = real::Config { threads: 2, ..real::Config::new(Arc::new(source.with_bytes_bound(100))) };
    let (hand_over, batches) = mpsc::channel();
    let recorder = Recorder::new().preparation_servers(2).keep_events();
    let handle = real::launch(config, recorder, move |machine: RealMachine<Pixels>| async move {
        let (sender, batches) = loader::channel(machine.clock());
        hand_over.send(batches).expect("the consumer waits for them");
        let stages = stage::fetch(&resolved.settings);
        loader::run(machine, resolved, stages, Spread, sender).await
    });
    let handle = handle.expect("threads");
    let delivered: usize = batches.recv().expect("batches").map(|batch| batch.expect("no failure").len()).sum();
    let ended = handle.join().expect("a clean end");

    let recorder = ended.recorder;
    let summary = recorder.summary();
    let mut prefix = Summary::new();
    for event in recorder.events() {
        prefix.update(event);
        assert_eq!(prefix.accounts().difference(), 0, "after {event:?}");
    }
    assert_eq!(summary.accounts().delivered as usize, delivered);
    assert_eq!(summary.accounts().in_flight(), 0, "{:?}", summary.accounts());
    assert_eq!(summary.peak_reserved_bytes(), ended.value.memory.peak_reserved_bytes);

    // What hangs on the order of the scheduler's own events may be off by the length of one poll.
    let mut events: Vec<Event> = recorder.events().to_vec();
    events.sort_by_key(|e| e.time);
    let exact = |all: Vec<(String, f64)>| -> Vec<(String, f64)> {
        all.into_iter().filter(|(name, _)| !name.starts_with("peak") && !name.ends_with(" stall")).collect()
    };
    same(&exact(told(summary)), &exact(figures(&events, 2))).expect("the same");
}
