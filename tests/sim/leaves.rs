//! Leaves: their lives, their events, and what happens when nobody wants them any more.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::select;
use towtank::{
    failure::{Failure, FailureKind},
    fault::{Faults, Hits},
    machine::{Machine, Pixels, Tags, Time},
    sim::{
        Config, CopyBy, CopySpec, Cost, Costs, CpuSpec, Dataset, Distribution, Outcome, Reader, RequestRate, SchedulerSpec,
        SimMachine, Simulation, Size, StoreSpec,
    },
    trace::{Kind, Recorder, StageId},
};

use crate::{JOB, op};

/// A machine with `cores` cores, as many threads, jobs of 100 ns and reads of 50 ns of samples of 1000 bytes.
fn config(cores: u32) -> Config {
    Config {
        cpu: CpuSpec { cores, speed_ppm: Vec::new() },
        pool_threads: cores,
        costs: Costs::all(Cost::fixed(100)),
        store: StoreSpec { first_byte_ns: Distribution::Constant(50), ..StoreSpec::default() },
        dataset: Dataset::uniform(100, Size { bytes: 1000, pixels: 2000 }),
        ..Config::default()
    }
}

fn simulate<T: 'static, F: Future<Output = T> + 'static>(config: Config, root: impl FnOnce(SimMachine<Tags>) -> F) -> Outcome<T> {
    Simulation::<Tags>::new(config).recorder(Recorder::new().keep_events()).run(root).expect("it ends")
}

/// The trace as (kind, sample, time, since, bytes).
fn trace<T>(outcome: &Outcome<T>) -> Vec<(Kind, u64, u64, u64, u64)> {
    outcome.recorder.events().iter().map(|e| (e.kind, e.sample, e.time.0, e.since.0, e.bytes)).collect()
}

#[test]
fn a_read_and_a_job_leave_their_lives_in_the_trace() {
    let outcome = simulate(config(1), |m| async move {
        let bytes = m.read(op(StageId::FETCH, 7)).await.expect("a read");
        assert_eq!((bytes.sample, bytes.bytes, bytes.pixels), (7, 1000, 2000));
        m.cpu(op(StageId::DECODE, 7), JOB, || 42).await.expect("a job")
    });
    assert_eq!(outcome.value, 42);
    assert_eq!(
        trace(&outcome),
        [
            (Kind::Queued, 7, 0, 0, 1000),
            (Kind::Start, 7, 0, 0, 0),
            (Kind::End, 7, 50, 0, 1000),
            (Kind::Queued, 7, 50, 50, 0),
            (Kind::Start, 7, 50, 50, 0),
            (Kind::End, 7, 150, 50, 0),
        ]
    );
    assert_eq!((outcome.end, outcome.cpu_ns), (Time(150), 100));
}

/// Runs jobs 0, 1, 2 at once and gives the times at which they end.
fn three_jobs(config: Config) -> Vec<u64> {
    let outcome = simulate(config, |m| async move {
        let jobs = [0, 1, 2].map(|k| {
            let inner = m.clone();
            m.spawn("job", async move { inner.cpu(op(StageId::DECODE, k), JOB, || ()).await.expect("a job") })
        });
        m.sleep(Duration::from_secs(1)).await;
        drop(jobs);
    });
    trace(&outcome).iter().filter(|e| e.0 == Kind::End).map(|e| e.2).collect()
}

#[test]
fn jobs_wait_for_threads_and_threads_share_cores() {
    assert_eq!(three_jobs(config(1)), [100, 200, 300], "one thread: one after the other");
    assert_eq!(three_jobs(Config { pool_threads: 3, ..config(1) }), [300, 300, 300], "three threads on one core: a third each");
    assert_eq!(three_jobs(config(3)), [100, 100, 100], "three threads on three cores");
}

#[test]
fn a_sleeping_thread_needs_time_to_wake_up_and_a_busy_one_does_not() {
    // The scheduler wakes up too, but what it is told is already in the trace by then.
    assert_eq!(three_jobs(Config { wakeup_ns: 10, ..config(1) }), [110, 210, 310]);
    assert_eq!(three_jobs(Config { wakeup_ns: 10, ..config(2) }), [110, 110, 210]);
}

#[test]
fn scheduling_takes_the_processor_and_comes_in_bursts() {
    let scheduler = SchedulerSpec { per_wake_ns: 30, per_completion_ns: 5, ..SchedulerSpec::default() };
    let outcome = simulate(Config { scheduler, ..config(4) }, |m| async move {
        let times = [0, 1, 2].map(|k| {
            let inner = m.clone();
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let task = m.spawn("job", async move {
                inner.cpu(op(StageId::DECODE, k), JOB, || ()).await.expect("a job");
                sender.send(inner.now().0).expect("awaited");
            });
            (task, receiver)
        });
        let mut seen = Vec::new();
        for (_task, receiver) in times {
            seen.push(receiver.await.expect("sent"));
        }
        seen
    });
    // All end at 100. The first wakes the scheduler, which handles it until 135; the other two are the next burst, until 145.
    assert_eq!(outcome.value, [135, 145, 145]);
    assert_eq!(outcome.cpu_ns, 300 + 30 + 3 * 5);
    assert_eq!(outcome.tally.scheduler_wakes, 1);
}

#[test]
fn the_scheduler_needs_a_core_like_everybody_else() {
    let scheduler = SchedulerSpec { per_wake_ns: 100, ..SchedulerSpec::default() };
    let outcome = simulate(Config { scheduler, ..config(1) }, |m| async move {
        let inner = m.clone();
        let second = m.spawn("second", async move { inner.cpu(op(StageId::DECODE, 1), JOB, || ()).await.expect("a job") });
        m.cpu(op(StageId::DECODE, 0), JOB, || ()).await.expect("a job");
        drop(second);
        m.now()
    });
    // "second" is spawned but first polled after the root has submitted its job; its own then shares the core with the scheduler.
    assert_eq!(outcome.value, Time(300));
}

#[test]
fn a_read_takes_its_first_byte_then_its_share_of_the_link_then_the_processor() {
    let store = StoreSpec {
        link_bytes_per_s: Some(1_000_000_000),
        connection_bytes_per_s: Some(500_000_000),
        cost: Cost::fixed(7),
        ..config(1).store
    };
    let outcome =
        simulate(Config { store, ..config(1) }, |m| async move { m.read(op(StageId::FETCH, 0)).await.map(|b| b.bytes) });
    assert_eq!((outcome.value, outcome.end), (Ok(1000), Time(50 + 2000 + 7)));
    let store = StoreSpec { connection_bytes_per_s: Some(500_000_000), ..config(1).store };
    let outcome =
        simulate(Config { store, ..config(1) }, |m| async move { m.read(op(StageId::FETCH, 0)).await.map(|b| b.bytes) });
    assert_eq!((outcome.value, outcome.end), (Ok(1000), Time(50 + 2000)), "without a shared link");
}

/// Reads samples 0, 1, 2 at once and gives the times at which they end, or why they failed.
fn three_reads(config: Config) -> Vec<Result<u64, FailureKind>> {
    let outcome = simulate(config, |m| async move {
        let reads = [0, 1, 2].map(|k| {
            let inner = m.clone();
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let task = m.spawn("read", async move {
                let result = inner.read(op(StageId::FETCH, k)).await;
                sender.send(result.map(|_| inner.now().0).map_err(|f| f.kind)).expect("awaited");
            });
            (task, receiver)
        });
        let mut ends = Vec::new();
        for (_task, receiver) in reads {
            ends.push(receiver.await.expect("sent"));
        }
        ends
    });
    outcome.value
}

#[test]
fn reads_wait_for_connections_or_for_threads_of_the_pool() {
    let store = config(1).store;
    assert_eq!(three_reads(config(1)), [Ok(50), Ok(50), Ok(50)]);
    let two = StoreSpec { connections: Some(2), ..store.clone() };
    assert_eq!(three_reads(Config { store: two, ..config(1) }), [Ok(50), Ok(50), Ok(100)]);
    let pool = StoreSpec { reader: Reader::Pool, ..store };
    assert_eq!(three_reads(Config { store: pool, ..config(1) }), [Ok(50), Ok(100), Ok(150)]);
}

#[test]
fn a_store_asked_too_often_refuses() {
    let store = StoreSpec { requests: Some(RequestRate { per_s: 10, burst: 2 }), ..config(1).store };
    assert_eq!(three_reads(Config { store, ..config(1) }), [Ok(50), Ok(50), Err(FailureKind::Throttled)]);
}

#[test]
fn a_sample_that_is_not_in_the_dataset_is_not_found() {
    let outcome = simulate(config(1), |m| async move { m.read(op(StageId::FETCH, 100)).await.map(|b| b.bytes) });
    assert_eq!(outcome.value.map_err(|f| f.kind), Err(FailureKind::NotFound));
}

#[test]
fn faults_hit_reads_as_they_say() {
    let faults = Faults {
        missing: Hits::samples([0]),
        truncated: Hits::samples([1]),
        slow_reads: Hits::samples([2]),
        slow_times: 10,
        ..Faults::default()
    };
    assert_eq!(three_reads(Config { faults, ..config(1) }), [Err(FailureKind::NotFound), Ok(50), Ok(500)]);
}

#[test]
fn a_job_that_panics_fails_and_its_thread_goes_on() {
    let outcome = simulate(config(1), |m| async move {
        let failed = m.cpu(op(StageId::DECODE, 0), JOB, || std::panic::resume_unwind(Box::new("bad luck"))).await;
        let next = m.cpu(op(StageId::DECODE, 1), JOB, || 5).await;
        let failed: Result<(), Failure> = failed;
        (failed, next)
    });
    assert_eq!(outcome.value, (Err(Failure::new(FailureKind::Panicked, "bad luck")), Ok(5)));
    let fail = trace(&outcome).into_iter().find(|e| e.0 == Kind::Fail).expect("recorded");
    assert_eq!((fail.2, fail.4), (100, FailureKind::Panicked.code()));
    assert_eq!(outcome.left.threads, 0);
}

#[test]
fn work_of_unknown_cost_is_refused_and_not_free() {
    let outcome = simulate(Config { costs: Costs::new().with("decode", Cost::FREE), ..config(1) }, |m| async move {
        m.cpu(op(StageId::DECODE, 0), JOB, || ()).await
    });
    let failure = outcome.value.expect_err("nobody knows its cost");
    assert_eq!((failure.kind, failure.message.as_ref()), (FailureKind::Lost, "nobody knows what work of the kind `job` costs"));
}

/// Gives up a job, or a read, after `after` ns; what was recorded, and what was left before and after quiescence.
async fn give_up_job(m: &SimMachine<Tags>, sample: u64, after: u64) {
    select! { biased;
        _ = m.cpu(op(StageId::DECODE, sample), JOB, || ()) => panic!("it should not have ended"),
        () = m.sleep(Duration::from_nanos(after)) => {}
    }
}

#[test]
fn a_queued_job_given_up_is_removed_and_a_running_one_runs_to_its_end() {
    let outcome = simulate(config(1), |m| async move {
        let inner = m.clone();
        let running = m.spawn("running", async move { give_up_job(&inner, 0, 30).await });
        let inner = m.clone();
        let queued = m.spawn("queued", async move { give_up_job(&inner, 1, 20).await });
        m.sleep(Duration::from_nanos(40)).await;
        drop((running, queued));
        m.quiesce().await;
        m.now()
    });
    assert_eq!(outcome.value, Time(100), "the running job kept its core until then");
    let abandoned: Vec<_> = trace(&outcome).into_iter().filter(|e| e.0 == Kind::Abandon).collect();
    assert_eq!(abandoned, [(Kind::Abandon, 1, 20, 0, 0), (Kind::Abandon, 0, 30, 0, 0)]);
    assert_eq!(trace(&outcome).iter().filter(|e| e.0 == Kind::End).count(), 0, "nobody saw it end");
    assert_eq!((outcome.left, outcome.cpu_ns), (Default::default(), 100));
}

#[test]
fn a_job_given_up_while_it_ran_still_does_its_work() {
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = done.clone();
    simulate(config(1), |m| async move {
        select! { biased;
            _ = m.cpu(op(StageId::DECODE, 0), JOB, move || done.store(true, std::sync::atomic::Ordering::Relaxed)) => {}
            () = m.sleep(Duration::from_nanos(10)) => {}
        }
        m.quiesce().await;
    });
    assert!(seen.load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn a_read_given_up_is_aborted_wherever_it_is() {
    let link = StoreSpec { link_bytes_per_s: Some(1_000_000_000), ..config(1).store };
    for (store, after) in [(config(1).store, 10), (link, 500), (StoreSpec { connections: Some(1), ..config(1).store }, 20)] {
        let outcome = simulate(Config { store, ..config(1) }, |m| async move {
            let inner = m.clone();
            let other = m.spawn("other", async move { drop(inner.read(op(StageId::FETCH, 1)).await) });
            select! { biased;
                _ = m.read(op(StageId::FETCH, 0)) => panic!("it should not have ended"),
                () = m.sleep(Duration::from_nanos(after)) => {}
            }
            m.quiesce().await;
            let at = m.now();
            m.sleep(Duration::from_secs(1)).await;
            drop(other);
            at
        });
        assert_eq!(outcome.value, Time(after));
        assert_eq!(outcome.left, Default::default());
    }
}

#[test]
fn a_stalled_read_ends_only_by_being_given_up() {
    let faults = Faults { stalled: Hits::samples([0]), ..Faults::default() };
    let outcome = simulate(Config { faults, ..config(1) }, |m| async move {
        let gone = select! { biased;
            _ = m.read(op(StageId::FETCH, 0)) => false,
            () = m.sleep(Duration::from_secs(60)) => true,
        };
        m.quiesce().await;
        (gone, m.now())
    });
    assert_eq!(outcome.value, (true, Time(60_000_000_000)));
    assert_eq!(outcome.left, Default::default());
}

/// Copies three slots to a batch of four, from place 1 on.
fn copy_three(by: CopyBy, faults: Faults) -> Outcome<Result<Vec<u64>, FailureKind>> {
    let copy = CopySpec { by, cost: Cost { ps_per_byte: 1000, ..Cost::fixed(40) } };
    simulate(Config { copy, faults, ..config(1) }, |m| async move {
        let mut slots = m.slots(3, 20).expect("memory");
        for (k, slot) in slots.iter_mut().enumerate() {
            slot.get_mut()[0] = 100 + k as u64;
        }
        let batch = m.device_batch(4, 20).expect("memory");
        let copied = m.copy(op(StageId::TRANSFER, 0), slots, batch, 1).await.map_err(|f| f.kind)?;
        assert_eq!(copied.src.iter().map(|s| s.index()).collect::<Vec<_>>(), [0, 1, 2]);
        Ok(copied.dst.cells().to_vec())
    })
}

#[test]
fn a_copy_is_done_by_an_engine_or_by_a_thread() {
    for (by, cpu_ns) in [(CopyBy::Engines(1), 0), (CopyBy::Pool, 100), (CopyBy::Thread, 100)] {
        let outcome = copy_three(by, Faults::default());
        assert_eq!(outcome.value, Ok(vec![0, 100, 101, 102]), "{by:?}");
        assert_eq!((outcome.end, outcome.cpu_ns), (Time(40 + 60), cpu_ns), "{by:?}");
        assert_eq!((outcome.slots_bytes_peak, outcome.device_bytes_peak), (60, 80));
        assert_eq!(trace(&outcome).last().map(|e| (e.0, e.4)), Some((Kind::End, 60)));
    }
}

#[test]
fn a_device_that_fails_fails_the_copy() {
    let outcome = copy_three(CopyBy::Engines(1), Faults { failed_copies: Hits::samples([0]), ..Faults::default() });
    assert_eq!(outcome.value, Err(FailureKind::Device));
}

#[test]
fn copies_wait_for_an_engine_and_one_given_up_keeps_its_slots_until_its_end() {
    let copy = CopySpec { by: CopyBy::Engines(1), cost: Cost::fixed(100) };
    let outcome = simulate(Config { copy, ..config(1) }, |m| async move {
        let task = |m: SimMachine<Tags>, k: u64| async move {
            let (slots, batch) = (m.slots(1, 8).expect("memory"), m.device_batch(1, 8).expect("memory"));
            drop(m.copy(op(StageId::TRANSFER, k), slots, batch, 0).await);
        };
        let (a, b) = (m.spawn("a", task(m.clone(), 0)), m.spawn("b", task(m.clone(), 1)));
        m.sleep(Duration::from_nanos(10)).await;
        drop(b);
        drop(a);
        m.quiesce().await;
        m.now()
    });
    assert_eq!((outcome.value, outcome.left), (Time(100), Default::default()));
}

#[test]
fn memory_is_refused_beyond_what_the_host_has() {
    let outcome = simulate(Config { memory_bytes: Some(1000), ..config(1) }, |m| async move {
        let fits = m.slots(10, 100);
        let refused = m.slots(1, 1).map(|s| s.len());
        (fits.map(|s| s.len()), refused.map_err(|f| f.kind))
    });
    assert_eq!(outcome.value, (Ok(10), Err(FailureKind::TooLarge)));
}

#[test]
fn pixels_flow_under_virtual_time() {
    let content = Arc::new(|sample: u64| match sample {
        9 => Err(Failure::new(FailureKind::Corrupt, "no such picture")),
        8 => std::panic::resume_unwind(Box::new("bad luck")),
        _ => Ok(vec![sample as u8; 10]),
    });
    let faults = Faults {
        truncated: Hits::samples([2]),
        undecodable: Hits::samples([3]),
        transient: Hits::samples([4]),
        ..Faults::default()
    };
    let outcome = Simulation::<Pixels>::with_content(Config { faults, ..config(1) }, content)
        .recorder(Recorder::new().keep_events())
        .run(|m| async move {
            let mut reads = Vec::new();
            for sample in [1, 2, 3, 4, 8, 9] {
                reads.push(m.read(op(StageId::FETCH, sample)).await.map(|e| (e.data.clone(), e.pixels)).map_err(|f| f.kind));
            }
            reads
        })
        .expect("it ends");
    let expected = [
        Ok((vec![1; 10], 2000)),
        Ok((vec![2; 5], 2000)),
        Ok((vec![0; 10], 2000)),
        Err(FailureKind::Transient),
        Err(FailureKind::Panicked),
        Err(FailureKind::Corrupt),
    ];
    assert_eq!(outcome.value, expected);
    assert_eq!(outcome.end, Time(6 * 50));
    assert_eq!(outcome.recorder.events().iter().filter(|e| e.kind == Kind::Fail).count(), 3);
}
