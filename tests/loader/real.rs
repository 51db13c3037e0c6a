//! The loader on the real machine, with threads and real time.

use std::{
    fs,
    ptr::NonNull,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use towtank::{
    device::{CopyDone, Device, HostDevice},
    failure::{Failure, FailureKind},
    loader::{
        self, Allowance, End, Error, Loader, OnError, Order, Outcome, RunError, Running, Settings, Stage, launch, stage,
        stage::Context,
    },
    machine::{
        Encoded, Machine, Pixels, Slot, gather,
        real::{self, Config, JoinError, RealMachine},
        slab_from,
    },
    sim::{Chooser, Simulation},
    source::{Memory, Source},
    trace::Recorder,
};

use crate::{
    content::{clean, machine},
    paused,
    scenario::{Consumer, Seen, consume, load},
    simulated::twin,
    world::{DecodeBytes, SLOT_BYTES, World, encoded, oracle},
};

/// One real machine at a time, so that its threads can be counted.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads of machines in this process.
///
/// A thread that was joined, or whose loader was dropped, leaves the list a moment later: the system takes it off only after it has
/// told that it ends. So a list that is not empty is looked at again, for five seconds at most.
pub fn threads() -> Vec<String> {
    for _ in 0..5000 {
        if threads_now().is_empty() {
            return Vec::new();
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    threads_now()
}

fn threads_now() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("towtank")).collect()
}

/// A store in which bad samples are missing.
pub struct Store(pub u64, pub World);

impl Source for Store {
    fn len(&self) -> u64 {
        self.0
    }
    fn bytes_bound(&self, _: u64) -> Option<u64> {
        Some(8)
    }
    fn name(&self, sample: u64) -> String {
        format!("sample {sample}")
    }
    fn read(&self, sample: u64, into: &mut Vec<u8>, _: &dyn Fn() -> bool) -> Result<(), Failure> {
        if self.1.bad_read(towtank::machine::Item { sample, ..Default::default() }) {
            return Err(Failure::new(FailureKind::NotFound, "no such sample"));
        }
        into.clear();
        into.extend_from_slice(&encoded(sample));
        Ok(())
    }
}

fn start(settings: &Settings, world: World, lends: bool) -> Running {
    let config = Config { threads: 3, ..Config::new(Arc::new(Store(settings.samples, world))) };
    let device = if lends { HostDevice::new() } else { HostDevice::copying() };
    let resolved = settings.clone().resolve().expect("settings that fit together");
    launch(config.with_device(device), resolved, stage::fetch, DecodeBytes(world), Recorder::new()).expect("threads")
}

/// A host whose slabs and batches are counted as long as they live.
struct Counting {
    lends_slots: bool,
    alive: Arc<AtomicUsize>,
}

/// Something that is counted.
struct Counted<T>(T, Arc<AtomicUsize>);

impl<T> Counted<T> {
    fn new(value: T, alive: &Arc<AtomicUsize>) -> Counted<T> {
        alive.fetch_add(1, Ordering::SeqCst);
        Counted(value, alive.clone())
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AsRef<[u8]> for Counted<Vec<u8>> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Device<u8> for Counting {
    type Batch = Counted<Vec<u8>>;

    fn name(&self) -> String {
        "counting host".to_owned()
    }
    fn lends_slots(&self) -> bool {
        self.lends_slots
    }
    fn slots(&self, count: usize, units_per_slot: usize) -> Result<Vec<Slot<u8>>, Failure> {
        let mut memory = vec![0; count * units_per_slot];
        let base = NonNull::new(memory.as_mut_ptr()).expect("a vector's pointer is never null");
        let owner = Counted::new(memory, &self.alive);
        // SAFETY: the vector holds as many initialised cells, its memory does not move with it, and nobody else uses it.
        unsafe { slab_from(base, count, units_per_slot, Box::new(owner)) }
    }
    fn batch(&self, samples: usize, units_per_slot: usize) -> Result<Counted<Vec<u8>>, Failure> {
        Ok(Counted::new(vec![0; samples * units_per_slot], &self.alive))
    }
    fn copy(&self, src: Vec<Slot<u8>>, mut dst: Counted<Vec<u8>>, at: usize, done: CopyDone<u8, Counted<Vec<u8>>>) {
        gather(&src, &mut dst.0[at..]);
        done.complete(src, dst);
    }
}

/// Takes `k` batches, or all there are, and leaves.
fn take(running: Running, k: usize) -> (Seen, Outcome) {
    let Running { mut batches, machine, .. } = running;
    let mut seen = Seen::default();
    for batch in batches.by_ref().take(k) {
        match batch {
            Ok(batch) => seen.note::<Pixels, _>(&batch),
            Err(error) => seen.error = Some(error),
        }
    }
    let books = batches.close().expect("the loader leaves its books");
    let done = machine.join().expect("the machine ends by itself");
    assert_eq!((&done.value.0, done.detached), (&books, 0));
    (seen, books)
}

fn cases() -> impl Iterator<Item = (Settings, World, bool)> {
    [Order::Plan, Order::Completion].into_iter().flat_map(|order| {
        [(0, 0), (60, 60), (300, 300)].into_iter().flat_map(move |(bad_reads, bad_decodes)| {
            [(true, None), (false, None), (false, Some(16)), (true, Some(17))].into_iter().map(move |(lends, ring)| {
                let settings = Settings {
                    order,
                    ring,
                    shuffle: Some(5),
                    epochs: 2,
                    on_error: OnError::Skip { at_most: Allowance::ANY },
                    sample_bytes: 8,
                    lanes: 12,
                    ..Settings::new(300, 16, SLOT_BYTES)
                };
                (settings, World { seed: 3, fetch_ms: 1, decode_ms: 1, bad_reads, bad_decodes }, lends)
            })
        })
    })
}

#[test]
fn the_same_batches_come_byte_by_byte_from_the_simulator_tokios_clock_and_threads() {
    let _alone = alone();
    for (settings, world, lends) in cases() {
        let (real, books) = take(start(&settings, world, lends), usize::MAX);
        assert_eq!((&books.end, &real.error), (&End::Finished, &None));
        clean(&settings, &books);

        let config = paused::Config { lends_slots: lends, missing: Some(world), ..machine(1) };
        let stages = || stage::fetch(&settings);
        let fill = DecodeBytes(world);
        let (on_tokio, _) = paused::run::<Pixels, _, _>(config, |machine| {
            load(machine, settings.clone(), stages(), fill, |machine, batches| consume(machine, batches, Consumer::EAGER))
        })
        .value;

        let content = Arc::new(move |sample| {
            let item = towtank::machine::Item { sample, ..Default::default() };
            if world.bad_read(item) { Err(Failure::new(FailureKind::NotFound, "no such sample")) } else { Ok(encoded(sample)) }
        });
        let simulation = Simulation::with_content(twin(config, Chooser::Random(7)), content);
        let (given, stages) = (settings.clone(), stages());
        let simulated = simulation.run(move |machine| {
            load(machine, given, stages, fill, |machine, batches| consume(machine, batches, Consumer::EAGER))
        });
        let (simulated, _) = simulated.unwrap_or_else(|stall| panic!("{stall}")).value;

        // `Seen::note` has compared every cell with what its sample must hold.
        match settings.order {
            Order::Plan => {
                let expected = oracle(&settings, &world);
                for seen in [&real, &on_tokio, &simulated] {
                    assert_eq!(seen.batches, expected.batches);
                }
                assert_eq!((&real.skipped, &real.states), (&simulated.skipped, &simulated.states));
                assert_eq!((&real.skipped, &real.states), (&on_tokio.skipped, &on_tokio.states));
            }
            Order::Completion => {
                assert_eq!(real.positions(), simulated.positions());
                assert_eq!(real.positions(), on_tokio.positions());
            }
        }
    }
    assert_eq!(threads(), [""; 0]);
}

#[test]
fn a_loader_stopped_after_any_batch_leaves_nothing_behind() {
    let _alone = alone();
    for (settings, world, lends_slots) in cases().step_by(3) {
        let batches = oracle(&settings, &world).batches;
        for k in 0..=batches.len() {
            let alive = Arc::<AtomicUsize>::default();
            let device = Counting { lends_slots, alive: alive.clone() };
            let config = Config { threads: 3, ..Config::new(Arc::new(Store(settings.samples, world))) }.with_device(device);
            let (given, (give, get)) = (settings.clone(), mpsc::channel());
            let machine = real::launch(config, Recorder::new(), move |machine: RealMachine<Pixels, Counting>| async move {
                let (sender, batches) = loader::channel(machine.clock());
                give.send(batches).expect("the test waits");
                let stages = stage::fetch(&given);
                loader::run(machine, given.resolve().expect("settings"), stages, DecodeBytes(world), sender).await
            });
            let machine = machine.expect("threads");
            let mut loader = get.recv().expect("a loader");
            let mut seen = Seen::default();
            for batch in loader.by_ref().take(k) {
                seen.note::<Pixels, _>(&batch.expect("failures are left out"));
            }
            let books = loader.close().expect("the loader leaves its books");
            let done = machine.join().expect("the machine ends by itself");
            assert_eq!((&done.value, done.detached), (&books, 0));
            assert_eq!(seen.batches.len(), k);
            if settings.order == Order::Plan {
                assert_eq!(seen.batches, batches[..k]);
            }
            clean(&settings, &books);
            assert_eq!(threads(), [""; 0], "after {k} batches");
            assert_eq!(alive.load(Ordering::SeqCst), 0, "slabs and device batches after {k} batches");
        }
    }
}

#[test]
fn a_consumer_that_keeps_every_batch_is_told_so() {
    let _alone = alone();
    for lends in [true, false] {
        let settings = Settings { sample_bytes: 8, prefetch: 3, ..Settings::new(300, 8, SLOT_BYTES) };
        let world = World { seed: 3, fetch_ms: 1, decode_ms: 1, bad_reads: 0, bad_decodes: 0 };
        let Running { batches, machine, .. } = start(&settings, world, lends);
        let kept = batches.map(|batch| batch.map(|batch| (batch.index(), batch))).collect::<Vec<_>>();
        let [kept @ .., Err(error)] = &kept[..] else { panic!("no error") };
        assert_eq!((kept.len(), error), (4, &Error::Held { batches: 4, oldest: 0 }));
        for (k, batch) in kept.iter().enumerate() {
            assert_eq!(batch.as_ref().expect("a batch").0, k as u64);
        }
        let outcome = machine.join().expect("it ends").value.0;
        assert_eq!(outcome.end, End::Failed(error.clone()));
    }
}

#[test]
fn batches_may_outlive_their_loader() {
    let _alone = alone();
    let settings = Settings { sample_bytes: 8, ..Settings::new(64, 8, SLOT_BYTES) };
    let world = World { seed: 3, fetch_ms: 1, decode_ms: 1, bad_reads: 0, bad_decodes: 0 };
    let Running { mut batches, machine, .. } = start(&settings, world, true);
    let kept = batches.next().expect("a batch").expect("nothing fails");
    let books = batches.close().expect("books");
    assert_eq!((books.slots.lent, books.slots.home), (8, books.slots.ring - 8));
    machine.join().expect("it ends");
    let mut seen = Seen::default();
    seen.note::<Pixels, _>(&kept);
    drop(kept);
    assert_eq!(threads(), [""; 0]);
}

fn numbers(samples: u64) -> Memory {
    Memory::new((0..samples).map(encoded).collect())
}

fn first_byte(_: towtank::machine::Item, bytes: Encoded, out: &mut [u8]) -> Result<(), Failure> {
    out[0] = bytes.data[0];
    Ok(())
}

#[test]
fn a_builder_resumes_where_the_consumer_was() {
    let _alone = alone();
    let builder = || Loader::from_source(numbers(100)).fill(1, first_byte).batch(8).shuffle(1).epochs(2).workers(2);
    let all: Vec<Vec<u8>> =
        builder().start().expect("a loader").map(|batch| batch.expect("nothing fails").pixels().to_vec()).collect();
    assert_eq!(all.len(), 26);
    for k in [1, 12, 13, 25] {
        let mut loader = builder().start().expect("a loader");
        loader.by_ref().take(k).for_each(drop);
        let state = loader.state().expect("after a batch").clone();
        let books = loader.close().expect("it stops");
        assert_eq!(books.state, state);
        let rest = builder().resume(state).start().expect("the same loader");
        let rest: Vec<Vec<u8>> = rest.map(|batch| batch.expect("nothing fails").pixels().to_vec()).collect();
        assert_eq!(rest, all[k..]);
    }
}

#[test]
fn a_builder_refuses_the_state_of_another_dataset() {
    let _alone = alone();
    let mut loader = Loader::from_source(numbers(100)).fill(1, first_byte).batch(8).start().expect("a loader");
    loader.next().expect("a batch").expect("nothing fails");
    let state = loader.state().expect("after a batch").clone();
    let other = Loader::from_source(numbers(101)).fill(1, first_byte).batch(8).resume(state).start();
    assert!(other.err().expect("another dataset").to_string().contains("`samples` 100"));
}

#[test]
fn a_loader_is_an_async_stream_too() {
    let _alone = alone();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut loader = Loader::from_source(numbers(50)).fill(1, first_byte).batch(8).start().expect("a loader");
    let samples = runtime.block_on(async {
        let mut samples = Vec::new();
        while let Some(batch) = loader.recv().await {
            samples.extend(batch.expect("nothing fails").samples());
        }
        samples
    });
    assert_eq!(samples, (0..50).collect::<Vec<_>>());
    assert_eq!(loader.close().expect("it stops").end, End::Finished);
}

#[test]
fn a_panic_of_a_job_fails_its_sample_and_one_of_control_ends_the_loader() {
    let _alone = alone();
    let odd = |item: towtank::machine::Item, bytes: Encoded| {
        if item.sample == 7 {
            std::panic::resume_unwind(Box::new("a bug in user code"));
        }
        Ok(bytes)
    };
    let mut loader = Loader::from_source(numbers(50)).stage("odd", odd).fill(1, first_byte).batch(8).start().expect("a loader");
    let Err(RunError::Loader(Error::Sample { item, failure })) = loader.next().expect("an error") else { panic!("no error") };
    assert_eq!((item.sample, failure), (7, Failure::new(FailureKind::Panicked, "a bug in user code")));
    assert!(loader.next().is_none());
    drop(loader);

    struct Broken;
    impl<M: Machine> Stage<M, ()> for Broken {
        type Out = towtank::machine::Bytes<M>;
        async fn run(&self, cx: &Context<'_, M>, (): ()) -> Result<Self::Out, Failure> {
            if cx.item().sample == 20 {
                std::panic::resume_unwind(Box::new("a bug in a stage"));
            }
            cx.machine().read(cx.op(towtank::trace::StageId::FETCH)).await
        }
    }
    let world = World { seed: 3, fetch_ms: 1, decode_ms: 1, bad_reads: 0, bad_decodes: 0 };
    let settings = Settings { sample_bytes: 8, ..Settings::new(64, 8, SLOT_BYTES) };
    let config = Config { threads: 2, ..Config::new(Arc::new(Store(64, world))) };
    let resolved = settings.resolve().expect("settings");
    let Running { batches, machine, .. } =
        launch(config, resolved, |_| Broken, DecodeBytes(world), Recorder::new()).expect("threads");
    let last = batches.last().expect("at least an error").expect_err("the stage panics");
    assert!(matches!(last, Error::Lost | Error::Fatal(_)), "{last}");
    match machine.join() {
        Err(JoinError::Panicked { message, .. }) => assert_eq!(message, "a bug in a stage"),
        other => panic!("{:?}", other.map(|done| done.value)),
    }
    assert_eq!(threads(), [""; 0]);
}

#[test]
fn a_loader_that_is_dropped_in_the_middle_stops_within_a_bound() {
    let _alone = alone();
    let slow = |_: towtank::machine::Item, bytes: Encoded| {
        std::thread::park_timeout(Duration::from_millis(2));
        Ok(bytes)
    };
    let begin = || Loader::from_source(numbers(100_000)).stage("slow", slow).fill(1, first_byte).batch(8).workers(4).start();
    let mut loader = begin().expect("a loader");
    loader.next().expect("a batch").expect("nothing fails");
    drop(loader);
    assert_eq!(threads(), [""; 0]);
}
