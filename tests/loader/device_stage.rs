//! A stage on the device, between the copy of a batch and its consumer.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use towtank::{
    check::{
        Got, RankEnd,
        invariant::{self, Asked, Ended},
    },
    device::HostDevice,
    failure::{Failure, FailureKind},
    fault::{Faults, Hits},
    loader::{
        Accounts, Builder, DeviceStage, End, Error, FillWith, Loader, Order, Read, Resolved, RunError, Settings, SettingsError,
        stage::BatchStage,
    },
    machine::{Encoded, Item, Pixels, Tags, Time, Work},
    sim::{Chooser, CopyBy, CopySpec, Cost, Costs, Dataset, KernelCost, KernelSpec, Left, PcieSpec, Simulation, Size},
    source::Memory,
    trace::{Event, Kind, Recorder, StageId},
};

use crate::{
    content::{clean, machine},
    paused,
    real::{alone, threads},
    scenario::{Consumer, consume, load, load_world},
    simulated::twin,
    world::{Decode, SLOT_BYTES, Source, World},
};

const SOUND: World = World { seed: 1, fetch_ms: 20, decode_ms: 20, bad_reads: 0, bad_decodes: 0 };

fn staged(limit: usize) -> Settings {
    Settings { device_stage: Some(DeviceStage { limit, result_bytes: 0 }), ..Settings::new(100, 4, SLOT_BYTES) }
}

#[test]
fn a_stage_that_fails_ends_it_after_the_batches_before_it() {
    for (limit, order) in [(1, Order::Plan), (3, Order::Plan), (3, Order::Completion)] {
        let settings = Settings { prefetch: 4, order, ..staged(limit) };
        let config = paused::Config { failing_stage: Some(5), kernels: 3, stage_ms: 7, ..machine(1) };
        let run = paused::run::<Tags, _, _>(config, |machine| load_world(machine, settings.clone(), SOUND, Consumer::EAGER));
        let (seen, outcome) = run.value;
        assert_eq!((seen.batches.len(), seen.staged), (5, 5));
        assert_eq!(seen.error, Some(Error::Fatal(Failure::new(FailureKind::Device, "the stage fails"))));
        // Slots had come home with the copy.
        assert_eq!((outcome.slots.given_up, outcome.slots.home), (0, outcome.slots.ring));
        clean(&settings, &outcome);
        assert_eq!(run.left, (0, 0));
    }
}

/// Time on the simulated machine for `batches` batches in a stage of 100 ms beside which nothing takes long, and its trace.
fn simulated(settings: Settings, kernels: KernelSpec, faults: Faults) -> (Time, Vec<Event>, Option<Error>) {
    let config = towtank::sim::Config {
        costs: Costs::all(Cost::FREE),
        kernels,
        faults,
        dataset: Dataset::uniform(1 << 20, Size { bytes: 100, pixels: 0 }),
        ..twin(machine(4), Chooser::Fifo)
    };
    let world = World { fetch_ms: 1, decode_ms: 1, ..SOUND };
    let simulation = Simulation::new(config).recorder(Recorder::new().keep_events());
    let run = simulation.run(move |machine| {
        let (source, fill) = (Source(world), Decode(world));
        load(machine, settings, source, fill, |machine, batches| consume(machine, batches, Consumer::EAGER))
    });
    let mut run = run.unwrap_or_else(|stall| panic!("{stall}"));
    let (seen, outcome) = run.value;
    assert!(outcome.accounts.balanced());
    assert_eq!((run.left.leaves, run.left.threads), (0, 0));
    (seen.end, run.recorder.take_events(), seen.error)
}

const STAGE_NS: u64 = 100_000_000;

#[test]
fn a_pipeline_that_its_stage_limits_passes_as_many_batches_as_are_in_it_in_its_time() {
    let of = |limit, at_once, prefetch| {
        let kernels = KernelSpec { at_once, other: Some(KernelCost::fixed(STAGE_NS)), ..KernelSpec::default() };
        // 25 batches; the first is read, and everything else passes meanwhile.
        let settings = Settings { prefetch, lanes: 64, ..staged(limit) };
        let (end, events, error) = simulated(settings, kernels, Faults::default());
        assert_eq!(error, None);
        let first = events.iter().find(|event| event.stage == StageId::DEVICE).expect("a batch goes through it").time;
        end - first
    };
    let rounds = |n: u64| Duration::from_nanos(n * STAGE_NS);
    assert_eq!(of(1, 1, 3), rounds(25), "one after the other");
    assert_eq!(of(2, 2, 4), rounds(13), "two at a time");
    assert_eq!(of(5, 5, 9), rounds(5), "five at a time");
    assert_eq!(of(5, 2, 9), rounds(13), "the device does two at a time");
    assert_eq!(of(2, 5, 9), rounds(13), "and the loader lets in two");
}

#[test]
fn a_stage_costs_its_bytes_and_takes_none_of_the_processor() {
    let cost = KernelCost { fixed_ns: 1_000, fs_per_byte: 50_000_000 };
    let kernels = KernelSpec { at_once: 1, costs: [("flip".to_owned(), cost)].into(), other: None };
    let (_, events, error) = simulated(staged(1), kernels.clone(), Faults::default());
    assert_eq!(error, None);
    let ends = events.iter().filter(|event| event.stage == StageId::DEVICE && event.kind == Kind::End);
    let took: Vec<_> = ends.map(|event| (event.time - event.since, event.bytes)).collect();
    assert_eq!(took, [(Duration::from_nanos(1_000 + 4 * SLOT_BYTES as u64 * 50), 4 * SLOT_BYTES as u64); 25]);

    let unknown = KernelSpec { costs: [("blur".to_owned(), cost)].into(), ..kernels };
    let (_, _, error) = simulated(staged(1), unknown, Faults::default());
    let Some(Error::Fatal(failure)) = error else { panic!("{error:?}") };
    assert_eq!((failure.kind, &*failure.message), (FailureKind::Lost, "nobody knows what a kernel of the kind `flip` costs"));
}

#[test]
fn kernels_that_fail_or_are_slow_are_injected_by_batch() {
    let kernels = KernelSpec { other: Some(KernelCost::fixed(1_000)), ..KernelSpec::default() };
    let faults =
        Faults { slow_kernels: Hits::samples([3]), failed_kernels: Hits::samples([7]), slow_times: 50, ..Faults::default() };
    let (_, events, error) = simulated(staged(2), kernels, faults);
    assert_eq!(error, Some(Error::Fatal(Failure::new(FailureKind::Device, "injected"))));
    let of = |kind| events.iter().filter(move |event| event.stage == StageId::DEVICE && event.kind == kind);
    let slow: Vec<u64> =
        of(Kind::End).filter(|event| event.time - event.since == Duration::from_micros(50)).map(|e| e.sample).collect();
    assert_eq!(slow, [3]);
    assert_eq!(of(Kind::Fail).map(|event| event.sample).collect::<Vec<_>>(), [7]);
    let ready = events.iter().filter(|event| event.kind == Kind::Ready).map(|event| event.sample);
    assert!(ready.eq(0..7), "those before it are had");
}

#[test]
fn ranks_that_share_a_device_share_its_places_and_others_do_not() {
    use towtank::machine::{Machine, Op};
    let end = |devices: u32| {
        let spec = PcieSpec::new(devices, towtank::sim::LaneSpec::both(1_000_000_000));
        let config = towtank::sim::Config {
            copy: CopySpec { by: CopyBy::Pcie(spec), cost: Cost::FREE },
            kernels: KernelSpec { other: Some(KernelCost::fixed(STAGE_NS)), ..KernelSpec::default() },
            ..towtank::sim::Config::default()
        };
        let outcome = towtank::sim::run(config, Recorder::new(), |machine| async move {
            let tasks: Vec<_> = (0..4_u16)
                .map(|rank| {
                    let inner = machine.clone();
                    machine.spawn("rank", async move {
                        let op = Op { stage: StageId::DEVICE, rank, ..Op::default() };
                        let work = Work { kind: "any", bytes: 0, pixels: 0 };
                        let batch = inner.device_batch(1, 1).expect("memory");
                        drop(inner.kernel(op, work, batch, |_| Ok(())).await.expect("it ends"));
                    })
                })
                .collect();
            machine.sleep(Duration::from_millis(1)).await;
            // Two of four that share places are given up while they wait, and the last while it runs.
            let mut tasks = tasks.into_iter();
            let _kept = [tasks.next(), tasks.next()];
            drop(tasks);
            machine.quiesce().await;
            machine.sleep(Duration::from_millis(250)).await;
        });
        let outcome = outcome.unwrap_or_else(|stall| panic!("{stall}"));
        let stage = outcome.recorder.summary().stage(StageId::DEVICE).expect("there were some").clone();
        (stage.started(), stage.ended(), stage.abandoned())
    };
    assert_eq!(end(1), (2, 2, 2), "those that wait are gone at once");
    assert_eq!(end(4), (4, 2, 2), "those that run are given up");
}

/// A stage of a test's own on the host: what it does to a batch, and how many are in it.
struct Own<F> {
    run: F,
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl<F: Fn(&mut Vec<u8>, usize) -> Result<(), Failure> + Send + Sync + 'static> BatchStage<Vec<u8>> for Own<F> {
    fn name(&self) -> &'static str {
        "own"
    }
    fn work(&self, samples: usize) -> Work {
        Work { kind: "own", bytes: samples as u64, pixels: 0 }
    }
    fn run(&self, batch: &mut Vec<u8>, samples: usize) -> Result<(), Failure> {
        let inside = self.inside.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(inside, SeqCst);
        let done = (self.run)(batch, samples);
        self.inside.fetch_sub(1, SeqCst);
        done
    }
}

fn own<F>(run: F) -> Own<F> {
    Own { run, inside: Arc::default(), most: Arc::default() }
}

type Write = fn(Item, Encoded, &mut [u8]) -> Result<(), Failure>;

fn bytes() -> Builder<Read, FillWith<Write>> {
    let write: Write = |_, bytes, out| {
        out.copy_from_slice(&bytes.data);
        Ok(())
    };
    Loader::from_source(Memory::new((0..40_u8).map(|k| vec![k]).collect())).fill(1, write).batch(4).workers(3)
}

#[test]
fn a_stage_on_the_host_is_left_behind_by_every_batch_and_stops_after_any() {
    let _alone = alone();
    let double = |batch: &mut Vec<u8>, samples: usize| {
        batch[..samples].iter_mut().for_each(|cell| *cell *= 2);
        Ok(())
    };
    for device in [HostDevice::new(), HostDevice::copying()] {
        for k in 0..=10 {
            let mut loader = bytes().device_stage(2, own(double)).start_on(device.clone()).expect("it starts");
            let got: Vec<u8> =
                loader.by_ref().take(k).flat_map(|batch| batch.expect("nothing fails").pixels().to_vec()).collect();
            assert!(got.iter().copied().eq((0..4 * k as u8).map(|sample| 2 * sample)), "{got:?}");
            let books = loader.close().expect("it stops");
            // A copy that is under way keeps its slots.
            assert_eq!(books.slots.home + books.slots.given_up, books.slots.ring);
            assert_eq!(books.lent_batches, 0, "with a stage nothing is lent");
            assert_eq!(books.accounts.batches, k as u64);
            assert_eq!(threads(), [""; 0], "after {k} batches");
        }
    }
}

#[test]
fn a_stage_that_fails_or_panics_on_the_host_is_the_loaders_error() {
    let _alone = alone();
    let fails = |batch: &mut Vec<u8>, _: usize| match batch[0] {
        8 => Err(Failure::new(FailureKind::Device, "no")),
        _ => Ok(()),
    };
    let panics = |batch: &mut Vec<u8>, _: usize| match batch[0] {
        // Not `panic!`, which would print.
        8 => std::panic::resume_unwind(Box::new("oh no")),
        _ => Ok(()),
    };
    let run = |mut loader: Loader| {
        let got: Vec<_> = loader.by_ref().collect();
        let books = loader.close().expect("it ends");
        assert_eq!((books.slots.home, books.slots.given_up), (books.slots.ring, 0));
        let Some(Err(RunError::Loader(Error::Fatal(failure)))) = got.last() else { panic!("{:?}", got.last()) };
        assert_eq!(books.end, End::Failed(Error::Fatal(failure.clone())));
        (got.len(), failure.kind, failure.message.to_string())
    };
    let failed = run(bytes().device_stage(1, own(fails)).start().expect("it starts"));
    assert_eq!(failed, (3, FailureKind::Device, "no".to_owned()));
    let panicked = run(bytes().device_stage(1, own(panics)).start().expect("it starts"));
    assert_eq!(panicked, (3, FailureKind::Panicked, "oh no".to_owned()));
    assert_eq!(threads(), [""; 0]);
}

#[test]
fn as_many_batches_are_in_the_stage_as_may_and_no_more() {
    let _alone = alone();
    for limit in [1, 2] {
        // Each waits until as many are inside as may be, but for the last, which nobody follows.
        let gate = Arc::new((Mutex::new(0_usize), Condvar::new()));
        let entered = gate.clone();
        let meet = move |_: &mut Vec<u8>, _: usize| {
            let (count, came) = &*entered;
            let mut count = count.lock().expect("no panic");
            *count += 1;
            came.notify_all();
            let goal = count.next_multiple_of(limit);
            drop(came.wait_while(count, |count| *count < goal).expect("no panic"));
            Ok(())
        };
        let stage = own(meet);
        let most = stage.most.clone();
        let loader = bytes().prefetch(5).device_stage(limit, stage).start().expect("it starts");
        assert_eq!(loader.map(|batch| batch.expect("nothing fails").len()).sum::<usize>(), 40);
        assert_eq!(most.load(SeqCst), limit);
    }
    assert_eq!(threads(), [""; 0]);
}

#[test]
fn the_budget_pays_for_what_the_stage_makes() {
    let settings = Settings { ring: Some(8), budget_bytes: 0, ..Settings::new(100, 4, 100) };
    let least = |settings: &Settings| match settings.clone().resolve() {
        Err(SettingsError::Budget { minimum_bytes, .. }) => minimum_bytes,
        other => panic!("{other:?}"),
    };
    let with = |limit, result_bytes| Settings { device_stage: Some(DeviceStage { limit, result_bytes }), ..settings.clone() };
    // Three batches of four.
    assert_eq!(least(&with(1, 200)) - least(&settings), 3 * 4 * 200);
    assert_eq!(least(&with(1, 0)), least(&settings));
    let message = with(1, 200).resolve().map(drop).expect_err("no budget").to_string();
    assert!(message.contains("on the device as many results of 200"), "{message}");
    assert_eq!(with(0, 0).resolve().map(drop), Err(SettingsError::Zero { field: "device_stage_limit" }));
    let resolved = Settings { budget_bytes: 1 << 30, ..with(1, 0) }.resolve().expect("enough");
    assert!(!resolved.lends(true), "a stage works on copies");
}

/// Batches handed out by a loader that does not wait for its stage, and what an invariant says of them.
#[test]
fn a_loader_that_hands_out_a_batch_early_is_found_out() {
    let kernels = KernelSpec { other: Some(KernelCost::fixed(STAGE_NS)), ..KernelSpec::default() };
    let (end, mut events, _) = simulated(staged(2), kernels, Faults::default());
    let judged = |events: &[Event]| {
        let ranks: [Resolved; 1] = [staged(2).resolve().expect("settings")];
        let faults = Faults::default();
        let asked = Asked { ranks: &ranks, faults: &faults, seed: 0 };
        let ended = Ended {
            got: &Vec::<Got>::new(),
            ends: &Vec::<RankEnd>::new(),
            stall: None,
            left: Left::default(),
            held_bytes_peak: 0,
            at: end,
            leaves: true,
        };
        let mut intact = invariant::ContentIntact::new(asked);
        invariant::fold(&mut intact, events, &ended).map_err(|broken| broken.why)
    };
    assert_eq!(judged(&events), Ok(()));
    // The same trace of a loader that tells the consumer of batch 3 when it is copied.
    let ready = events.iter().position(|event| event.kind == Kind::Ready && event.sample == 3).expect("it is ready");
    let queued = events.iter().position(|event| event.stage == StageId::DEVICE && event.sample == 3).expect("it goes through");
    let early = events.remove(ready);
    events.insert(queued + 1, Event { time: events[queued].time, ..early });
    assert_eq!(judged(&events), Err("batch 3 was ready before the stage on the device had done with it".to_owned()));
}

#[test]
fn what_is_given_up_in_the_stage_is_accounted_for() {
    // A consumer that leaves while batches wait for the stage, are in it, and are behind it.
    for leaves_after in 0..8 {
        let settings = Settings { prefetch: 6, ..staged(2) };
        let config = paused::Config { kernels: 1, stage_ms: 1000, ..machine(1) };
        let consumer = Consumer { leaves_after, step_ms: 100 };
        let run = paused::run::<Pixels, _, _>(config, |machine| load_world(machine, settings.clone(), SOUND, consumer));
        let (seen, outcome) = run.value;
        assert_eq!((seen.batches.len(), seen.staged), (leaves_after, leaves_after));
        assert_eq!((outcome.slots.home, outcome.slots.given_up), (outcome.slots.ring, 0));
        let Accounts { planned, delivered, in_flight, .. } = outcome.accounts;
        assert_eq!((delivered, planned), (4 * leaves_after as u64, delivered + in_flight));
        assert_eq!(run.left, (0, 0));
    }
}

#[test]
fn a_kernel_that_is_made_to_fail_ends_the_real_loader_at_its_batch() {
    use towtank::{
        loader::{RankLoader, RunningRanks, launch_ranks},
        machine::real::Config,
    };
    let _alone = alone();
    let settings = Settings { sample_bytes: 8, ..staged(2) };
    let faults =
        Faults { failed_kernels: Hits::samples([3]), slow_kernels: Hits::samples([1]), slow_times: 2, ..Faults::default() };
    let config = Config { threads: 2, faults, ..Config::new(Arc::new(crate::real::Store(100, SOUND))) };
    let rank = RankLoader {
        on_device: crate::scenario::on_device::<Pixels, _>(&settings),
        resolved: settings.resolve().expect("settings"),
        device: None,
        stages: towtank::loader::stage::fetch,
        fill: crate::world::DecodeBytes(SOUND),
    };
    let RunningRanks { mut batches, machine, .. } = launch_ranks(config, vec![rank], Recorder::new()).expect("threads");
    let got: Vec<_> = batches.pop().expect("one rank").map(|batch| batch.map(|batch| batch.index())).collect();
    let injected = Error::Fatal(Failure::new(FailureKind::Device, "injected"));
    assert_eq!(got, [Ok(0), Ok(1), Ok(2), Err(injected)]);
    let done = machine.join().expect("it ends");
    assert_eq!(done.recorder.summary().stage(StageId::DEVICE).expect("it was there").failed(), 1);
}

#[test]
fn a_simulation_that_ends_in_the_stage_says_so() {
    use towtank::{
        machine::{Machine, Op},
        sim::Limits,
    };
    let config = towtank::sim::Config {
        kernels: KernelSpec { other: Some(KernelCost::fixed(10 * STAGE_NS)), ..KernelSpec::default() },
        limits: Limits { time_ns: STAGE_NS, ..Limits::default() },
        ..towtank::sim::Config::default()
    };
    let run = towtank::sim::run(config, Recorder::new(), |machine| async move {
        let op = Op { stage: StageId::DEVICE, item: Item { sample: 7, ..Item::default() }, ..Op::default() };
        let batch = machine.device_batch(1, 1).expect("memory");
        drop(machine.kernel(op, Work { kind: "any", bytes: 0, pixels: 0 }, batch, |_| Ok(())).await);
    });
    let report = run.map(|_| ()).expect_err("it takes longer").to_string();
    assert!(report.contains("the stage on the device of batch 7") && report.contains("on the device"), "{report}");
}
