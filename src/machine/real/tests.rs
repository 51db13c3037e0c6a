use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::Poll,
    thread,
};

use super::*;
use crate::{
    failure::FailureKind,
    fault::Hits,
    machine::Item,
    source::{Memory, Source},
    trace::Kind,
};

const DECODE: Work = Work { kind: "decode", bytes: 5, pixels: 0 };

fn config() -> Config {
    let source = Memory::new((0..100).map(|i| vec![i; 10]).collect());
    Config { threads: 2, ..Config::new(Arc::new(source)) }
}

fn op(stage: StageId, sample: u64) -> Op {
    Op { stage, item: Item { sample, ..Item::default() }, ..Op::default() }
}

/// Runs `main` on a machine of pixels, and expects it to return.
fn run<T: Send + 'static, Fut: Future<Output = T>>(
    config: Config,
    main: impl FnOnce(RealMachine<Pixels>) -> Fut + Send + 'static,
) -> Outcome<T> {
    let handle = launch(config, Recorder::new().keep_events(), main).expect("threads");
    handle.join().expect("it returns")
}

/// Polls a future once and lets go of it.
async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Counts its drops.
#[derive(Clone, Default)]
struct Drops(Arc<AtomicUsize>);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Drops {
    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }

    /// One more to be counted.
    fn one(&self) -> Drops {
        Drops(self.0.clone())
    }
}

/// A job that holds its thread until it is let go, and how to see that it has begun.
fn gate() -> (impl FnOnce() + Send + 'static, impl Fn(), mpsc::Sender<()>) {
    let (begun, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel();
    let job = move || {
        begun.send(()).expect("the test waits");
        // A test that failed has dropped the other end, which lets go too.
        let _ = goes.recv();
    };
    (job, move || begins.recv().expect("the job begins"), go)
}

fn kinds(recorder: &Recorder, sample: u64) -> Vec<Kind> {
    recorder.events().iter().filter(|e| e.sample == sample).map(|e| e.kind).collect()
}

#[test]
fn a_leaf_starts_when_it_is_first_polled() {
    let outcome = run(config(), |m| async move {
        let ran = Arc::new(AtomicUsize::new(0));
        let count = ran.clone();
        let leaf = m.cpu(op(StageId::DECODE, 1), DECODE, move || count.fetch_add(1, SeqCst));
        m.sleep(Duration::from_millis(5)).await;
        let before = ran.load(SeqCst);
        leaf.await.expect("it runs");
        (before, ran.load(SeqCst))
    });
    assert_eq!(outcome.value, (0, 1));
    assert_eq!(kinds(&outcome.recorder, 1), [Kind::Queued, Kind::Start, Kind::End]);
}

#[test]
fn events_carry_the_stamps_and_bytes_of_the_leaf() {
    let outcome = run(config(), |m| async move {
        m.read(op(StageId::FETCH, 3)).await.map(|encoded| encoded.data.clone()).expect("it is in memory")
    });
    assert_eq!(outcome.value, [3; 10]);
    let events = outcome.recorder.events();
    let [queued, start, end] = events else { panic!("three events, not {events:?}") };
    assert!(queued.time <= start.time && start.time <= end.time, "{events:?}");
    assert_eq!((start.since, end.since), (queued.time, start.time));
    assert_eq!((queued.bytes, end.bytes), (10, 10));
}

#[test]
fn a_queued_job_that_is_given_up_is_dropped_at_once_and_never_runs() {
    let outcome = run(Config { threads: 1, ..config() }, |m| async move {
        let (busy, begun, go) = gate();
        let (drops, ran) = (Drops::default(), Arc::new(AtomicUsize::new(0)));
        let first = m.spawn("busy", {
            let m = m.clone();
            async move { m.cpu(op(StageId::DECODE, 1), DECODE, busy).await.expect("it is let go") }
        });
        m.sleep(Duration::ZERO).await;
        begun();
        let (held, count) = (drops.one(), ran.clone());
        let job = move || {
            let _held = held;
            count.fetch_add(1, SeqCst);
        };
        assert!(poll_once(m.cpu(op(StageId::DECODE, 2), DECODE, job)).await.is_none(), "the only thread is busy");
        let dropped = drops.count();
        m.quiesce().await;
        go.send(()).expect("the job waits");
        // A later job goes through the same thread, behind the place of the one that is gone.
        m.cpu(op(StageId::DECODE, 3), DECODE, || ()).await.expect("it runs");
        drop(first);
        (dropped, ran.load(SeqCst))
    });
    assert_eq!(outcome.value, (1, 0));
    assert_eq!(kinds(&outcome.recorder, 2), [Kind::Queued, Kind::Abandon]);
}

#[test]
fn a_running_job_that_is_given_up_runs_to_its_end_and_quiesce_waits_for_it() {
    let outcome = run(config(), |m| async move {
        let (busy, begun, go) = gate();
        let drops = Drops::default();
        let held = drops.one();
        let job = move || {
            busy();
            held
        };
        {
            let mut leaf = pin!(m.cpu(op(StageId::DECODE, 1), DECODE, job));
            assert!(poll_once(leaf.as_mut()).await.is_none(), "it waits to be let go");
            begun();
        }
        let quiet_early = poll_once(m.quiesce()).await.is_some();
        let dropped_early = drops.count();
        go.send(()).expect("the job waits");
        m.quiesce().await;
        (quiet_early, dropped_early, drops.count())
    });
    assert_eq!(outcome.value, (false, 0, 1), "it kept what it owned until its end");
    assert_eq!(kinds(&outcome.recorder, 1), [Kind::Queued, Kind::Start, Kind::Abandon]);
    assert_eq!(outcome.detached, 0);
}

#[test]
fn an_answer_that_nobody_took_is_dropped_and_its_leaf_has_ended() {
    let outcome = run(config(), |m| async move {
        let drops = Drops::default();
        let answer = drops.one();
        assert!(poll_once(m.cpu(op(StageId::DECODE, 1), DECODE, move || answer)).await.is_none());
        m.quiesce().await;
        drops.count()
    });
    assert_eq!(outcome.value, 1);
}

#[test]
fn a_copy_that_is_given_up_loses_its_slots_at_its_end() {
    let config = config();
    let (busy, begun, go) = gate();
    let drops = Arc::new(AtomicUsize::new(0));
    let device = Slow { gate: Mutex::new(Some(Box::new(busy))), drops: drops.clone() };
    let main = move |m: RealMachine<Pixels, Slow>| async move {
        let slots = m.slots(2, 4).expect("8 bytes");
        let batch = m.device_batch(2, 4).expect("no bytes");
        {
            let mut copy = pin!(m.copy(op(StageId::TRANSFER, 0), slots, batch, 0));
            assert!(poll_once(copy.as_mut()).await.is_none());
            begun();
        }
        let early = poll_once(m.quiesce()).await.is_some();
        go.send(()).expect("the copy waits");
        m.quiesce().await;
        early
    };
    let handle = launch(config.with_device(device), Recorder::new(), main).expect("threads");
    assert!(!handle.join().expect("it returns").value, "the copy was still running");
    assert_eq!(drops.load(SeqCst), 1, "its batch went with it");
}

/// A device whose copies wait to be let go.
struct Slow {
    gate: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    drops: Arc<AtomicUsize>,
}

impl Device<u8> for Slow {
    type Batch = Drops;

    fn name(&self) -> String {
        "slow".to_owned()
    }
    fn lends_slots(&self) -> bool {
        false
    }
    fn slots(&self, count: usize, units_per_slot: usize) -> Result<Vec<Slot<u8>>, Failure> {
        crate::machine::slab(count, units_per_slot)
    }
    fn batch(&self, _samples: usize, _units_per_slot: usize) -> Result<Drops, Failure> {
        Ok(Drops(self.drops.clone()))
    }
    fn copy(&self, src: Vec<Slot<u8>>, dst: Drops, _at_unit: usize, done: crate::device::CopyDone<u8, Drops>) {
        let gate = self.gate.lock().expect("no panic").take().expect("one copy");
        gate();
        done.complete(src, dst);
    }
}

#[test]
fn slots_land_in_the_batch_in_their_order_and_come_back() {
    let outcome = run(config(), |m| async move {
        let mut slots = m.slots(3, 2).expect("6 bytes");
        for slot in &mut slots {
            let i = slot.index() as u8;
            slot.get_mut().fill(i + 1);
        }
        slots.swap(0, 2);
        let batch = m.device_batch(4, 2).expect("8 bytes");
        let Copied { src, dst } = m.copy(op(StageId::TRANSFER, 0), slots, batch, 1).await.expect("it fits");
        let order = src.iter().map(Slot::index).collect::<Vec<_>>();
        let refused = m.copy(op(StageId::TRANSFER, 0), src, dst.clone(), 3).await.err().expect("it does not fit");
        (dst, order, refused.kind)
    });
    assert_eq!(outcome.value, (vec![0, 0, 3, 3, 2, 2, 1, 1], vec![2, 1, 0], FailureKind::Device));
}

#[test]
fn a_panic_in_a_job_is_its_failure_and_the_thread_goes_on() {
    let outcome = run(Config { threads: 1, ..config() }, |m| async move {
        let failure = m.cpu(op(StageId::DECODE, 1), DECODE, || -> () { std::panic::resume_unwind(Box::new("bad luck")) }).await;
        let failure = failure.expect_err("it panicked");
        let next = m.cpu(op(StageId::DECODE, 2), DECODE, || 7).await;
        (failure.kind, failure.into_message(), next)
    });
    assert_eq!(outcome.value, (FailureKind::Panicked, "bad luck".into(), Ok(7)));
    let last = outcome.recorder.events().iter().find(|e| e.kind == Kind::Fail).expect("the failure is in the trace");
    assert_eq!((last.sample, last.bytes), (1, FailureKind::Panicked.code()));
}

#[test]
fn a_leaf_that_does_not_end_is_left_behind_and_counted() {
    let stuck_after = Duration::from_millis(20);
    let (busy, begun, go) = gate();
    let outcome = run(Config { stuck_after, ..config() }, |m| async move {
        {
            let mut leaf = pin!(m.cpu(op(StageId::DECODE, 1), DECODE, busy));
            assert!(poll_once(leaf.as_mut()).await.is_none());
            begun();
        }
        m.quiesce().await;
        m.now()
    });
    assert!(outcome.value >= Time::ZERO + stuck_after);
    assert_eq!(outcome.detached, 1);
    drop(go);
}

#[test]
fn a_stopped_task_is_gone_before_quiesce_returns() {
    let outcome = run(config(), |m| async move {
        let drops = Drops::default();
        let held = drops.one();
        let task = m.spawn("waits", async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        m.sleep(Duration::from_millis(1)).await;
        let unpolled = drops.one();
        let never = m.spawn("never polled", async move {
            let _held = unpolled;
        });
        drop((task, never));
        m.quiesce().await;
        drops.count()
    });
    assert_eq!(outcome.value, 2);
}

#[test]
fn tasks_left_behind_end_with_the_machine_and_so_do_their_leaves() {
    let drops = Drops::default();
    let (held, waits) = (drops.one(), drops.one());
    let outcome = run(config(), |m| async move {
        let busy = m.clone();
        let task = m.spawn("left behind", async move {
            let _waits = waits;
            busy.cpu(op(StageId::DECODE, 1), DECODE, move || drop(held)).await.expect("it runs");
            std::future::pending::<()>().await;
        });
        m.sleep(Duration::ZERO).await;
        std::mem::forget(task);
    });
    assert_eq!((drops.count(), outcome.detached), (2, 0));
}

#[test]
fn a_panic_of_a_task_ends_the_machine_and_tells_its_name() {
    let handle = launch(config(), Recorder::new(), |m: RealMachine<Pixels>| async move {
        let _task = m.spawn("lane 3", async { std::panic::resume_unwind(Box::new("no ticket")) });
        std::future::pending::<()>().await;
    });
    let error = handle.expect("threads").join().err().expect("a task panicked");
    assert_eq!(error, JoinError::Panicked { task: "lane 3", message: "no ticket".to_owned() });
    let handle = launch(config(), Recorder::new(), |_: RealMachine<Pixels>| async { std::panic::resume_unwind(Box::new("oh")) });
    let error = handle.expect("threads").join().map(|outcome: Outcome<()>| outcome.value).expect_err("it panicked");
    assert_eq!(error, JoinError::Panicked { task: "main", message: "oh".to_owned() });
}

#[test]
fn a_machine_that_is_stopped_or_let_go_drops_its_main_future() {
    let drops = Drops::default();
    let start = |held: Drops| {
        let main = |_: RealMachine<Pixels>| async move {
            let _held = held;
            std::future::pending::<()>().await;
        };
        launch(config(), Recorder::new(), main).expect("threads")
    };
    let mut stopped = start(drops.one());
    stopped.stop();
    assert_eq!(stopped.join().map(|outcome| outcome.value), Err(JoinError::Stopped));
    assert_eq!(drops.count(), 1);
    drop(start(drops.one()));
    while drops.count() < 2 {
        thread::yield_now();
    }
}

/// Tells by which thread it is read, and is cold or not.
struct Named {
    cold: bool,
}

impl Source for Named {
    fn len(&self) -> u64 {
        u64::MAX
    }
    fn bytes_bound(&self, _sample: u64) -> Option<u64> {
        None
    }
    fn name(&self, sample: u64) -> String {
        sample.to_string()
    }
    fn read(&self, _sample: u64, into: &mut Vec<u8>, _wanted: &dyn Fn() -> bool) -> Result<(), Failure> {
        into.clear();
        into.extend_from_slice(thread::current().name().unwrap_or_default().as_bytes());
        Ok(())
    }
    fn try_read(&self, sample: u64, into: &mut Vec<u8>) -> Result<bool, Failure> {
        if self.cold { Ok(false) } else { self.read(sample, into, &|| true).map(|()| true) }
    }
}

#[test]
fn cached_reads_stay_on_the_pool_and_cold_ones_move_to_threads_that_may_wait() {
    for (reads, cold, expected) in [
        (Reads::Auto, false, "towtank cpu"),
        (Reads::Auto, true, "towtank io"),
        (Reads::Pool, true, "towtank cpu"),
        (Reads::Blocking, false, "towtank io"),
    ] {
        let config = Config { source: Arc::new(Named { cold }), reads, blocking_threads: 2, ..config() };
        let outcome = run(config, |m| async move {
            let mut readers = Vec::new();
            for sample in 0..20 {
                readers.push(m.read(op(StageId::FETCH, sample)).await.map(|encoded| encoded.data.clone()).expect("it is read"));
            }
            readers
        });
        for reader in outcome.value {
            let reader = String::from_utf8(reader).expect("our own names");
            assert!(reader.starts_with(expected), "{reads:?}, cold {cold}: read by `{reader}`");
        }
        for sample in 0..20 {
            assert_eq!(kinds(&outcome.recorder, sample), [Kind::Queued, Kind::Start, Kind::End]);
        }
    }
}

/// A store whose first byte takes two milliseconds, and a thousand bytes another.
struct SlowStore;

impl StoreDelay for SlowStore {
    fn first_byte(&self, _: &Op) -> Duration {
        Duration::from_millis(2)
    }

    fn transfer(&self, bytes: u64) -> Duration {
        Duration::from_micros(bytes)
    }
}

#[test]
fn an_emulated_store_has_every_read_wait_on_a_thread_that_may() {
    let config = Config { source: Arc::new(Named { cold: false }), store_delay: Some(Arc::new(SlowStore)), ..config() };
    let outcome = run(config, |m| async move {
        let (_, read) = (m.read(op(StageId::FETCH, 0)).await.expect("it is read"), m.read(op(StageId::FETCH, 1)).await);
        read.map(|encoded| encoded.data.clone()).expect("it is read")
    });
    let reader = String::from_utf8(outcome.value).expect("our own names");
    assert!(reader.starts_with("towtank io"), "read by `{reader}`");
    let ends: Vec<u64> =
        outcome.recorder.events().iter().filter(|e| e.kind == Kind::End).map(|e| e.time.since(e.since)).collect();
    let least = 2_000_000 + 1_000 * reader.len() as u64;
    assert!(ends.len() == 2 && ends.iter().all(|ns| *ns >= least), "{ends:?}, at least {least}");
}

#[test]
fn a_lazy_machine_notices_a_lone_answer_by_its_tick() {
    let never = Wakes { burst: usize::MAX, dry_per_thread: 0, age: Duration::from_millis(2) };
    let outcome = run(Config { wakes: never, ..config() }, |m| async move {
        for sample in 0..5 {
            m.cpu(op(StageId::DECODE, sample), DECODE, || ()).await.expect("it runs");
            m.sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(outcome.drains >= 5);
}

#[test]
fn declared_faults_hit_real_leaves() {
    let faults = Faults {
        missing: Hits::samples([1]),
        truncated: Hits::samples([2]),
        undecodable: Hits::samples([3]),
        stalled: Hits::samples([4]),
        slow_reads: Hits::samples([5]),
        panicking: Hits::samples([6]),
        slow_jobs: Hits::samples([7]),
        failed_copies: Hits::samples([8]),
        slow_times: 3,
        ..Faults::default()
    };
    let outcome = run(Config { faults, ..config() }, |m| async move {
        let read = |sample| {
            let m = m.clone();
            async move { m.read(op(StageId::FETCH, sample)).await.map(|e| e.data.clone()).map_err(|f| f.kind) }
        };
        assert_eq!(read(0).await, Ok(vec![0; 10]));
        assert_eq!(read(1).await, Err(FailureKind::NotFound));
        assert_eq!(read(2).await, Ok(vec![2; 5]));
        assert_eq!(read(3).await, Ok(vec![0; 10]));
        let stalled = tokio::time::timeout(Duration::from_millis(5), read(4)).await;
        assert!(stalled.is_err(), "it never ends");
        assert_eq!(read(5).await, Ok(vec![5; 10]));
        let job = |sample| {
            let m = m.clone();
            async move { m.cpu(op(StageId::DECODE, sample), DECODE, || ()).await.map_err(|f| f.kind) }
        };
        assert_eq!(job(6).await, Err(FailureKind::Panicked));
        assert_eq!(job(7).await, Ok(()));
        let copied = m.copy(op(StageId::TRANSFER, 8), Vec::new(), Vec::new(), 0).await;
        assert_eq!(copied.err().map(|f| f.kind), Some(FailureKind::Device));
        m.quiesce().await;
    });
    assert_eq!(kinds(&outcome.recorder, 4), [Kind::Queued, Kind::Abandon]);
    assert_eq!(outcome.detached, 0);
}

#[test]
fn memory_that_cannot_be_had_is_a_failure() {
    let outcome = run(config(), |m| async move {
        let slots = m.slots(usize::MAX / 2, 4).map(|_| ()).map_err(|f| f.kind);
        let batch = m.device_batch(usize::MAX / 2, 1).map(|_| ()).map_err(|f| f.kind);
        (slots, batch)
    });
    assert_eq!(outcome.value, (Err(FailureKind::TooLarge), Err(FailureKind::TooLarge)));
}

#[test]
fn cpu_time_of_leaves_is_summed_by_stage_when_asked_for() {
    let outcome = run(Config { leaf_cpu: true, ..config() }, |m| async move {
        for sample in 0..3 {
            let job = || {
                let start = usage::thread_cpu_ns();
                while usage::thread_cpu_ns() < start + 1_000_000 {}
            };
            m.cpu(op(StageId::DECODE, sample), DECODE, job).await.expect("it runs");
        }
    });
    let [decode] = outcome.leaf_cpu[..] else { panic!("one stage, not {:?}", outcome.leaf_cpu) };
    assert_eq!((decode.stage, decode.leaves), (StageId::DECODE, 3));
    assert!(decode.cpu_ns >= 3_000_000 && decode.wall_ns >= 3_000_000, "{decode:?}");
}

#[test]
fn many_lanes_on_many_threads_lose_and_double_nothing() {
    const SAMPLES: u64 = 20_000;
    for wakes in [Wakes::LAZY, Wakes::EAGER] {
        let source = Memory::from_fn(SAMPLES, |sample, into| {
            into.extend_from_slice(&sample.to_le_bytes());
            Ok(())
        });
        let config = Config { threads: 8, wakes, ..Config::new(Arc::new(source)) };
        let outcome = run(config, |m| async move {
            let (next, seen) = (Rc::new(Counter::new(0)), Rc::new(RefCell::new(vec![0_u8; SAMPLES as usize])));
            let lanes = (0..37).map(|lane| {
                let (machine, next, seen) = (m.clone(), next.clone(), seen.clone());
                m.spawn("lane", async move {
                    while next.get() < SAMPLES {
                        let sample = next.replace(next.get() + 1);
                        // Every so often a leaf is given up at some point of its life, and asked for again.
                        if (sample + lane) % 13 == 0 {
                            drop(poll_once(machine.read(op(StageId::FETCH, sample))).await);
                        }
                        let bytes = machine.read(op(StageId::FETCH, sample)).await.expect("it is in memory");
                        let job = move || u64::from_le_bytes(bytes.data[..].try_into().expect("8 bytes"));
                        let got = machine.cpu(op(StageId::DECODE, sample), DECODE, job).await.expect("it runs");
                        seen.borrow_mut()[got as usize] += 1;
                    }
                })
            });
            let lanes = lanes.collect::<Vec<_>>();
            while seen.borrow().contains(&0) {
                m.sleep(Duration::from_millis(1)).await;
            }
            m.quiesce().await;
            drop(lanes);
            seen.take()
        });
        assert!(outcome.value.iter().all(|n| *n == 1), "each sample once");
        assert_eq!(outcome.detached, 0);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn threads_of_the_pools_run_on_the_processors_that_are_near() {
    let allowed = || {
        let set = rustix::thread::sched_getaffinity(None).expect("a thread may ask");
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect::<Vec<_>>()
    };
    let last = *allowed().last().expect("it runs somewhere");
    let near = Config { near: Some(Arc::from([last])), ..config() };
    let outcome = run(near, move |machine| async move { machine.cpu(op(StageId::DECODE, 0), DECODE, allowed).await });
    assert_eq!(outcome.value.expect("a job"), [last]);
}
