//! Planted deadlocks: what a stall report says of each, who holds what and who waits for whom.

use std::{cell::Cell, mem, rc::Rc, time::Duration};

use towtank::{
    failure::Failure,
    loader::{
        self, Settings, Stage,
        stage::{Context, Fetch, Limit, Permits, Tag},
    },
    machine::{Machine, Phantom, Tags},
    sim::{
        Config, Cost, Costs, CpuSpec, Dataset, Limits, LockSpec, SimBarrier, SimMachine, Simulation, Size, Stall, StallReason,
    },
    trace::StageId,
};

use crate::{JOB, op};

/// The report without what is no part of it: where something is spawned, and resources of which nobody waits for any.
fn told(stall: &Stall) -> String {
    let text = stall.to_string();
    let lines = text.lines().take_while(|line| !line.starts_with("memory:"));
    let told = lines.filter(|line| !line.contains("spawned at") && !line.ends_with(", 0 waiting"));
    told.collect::<Vec<_>>().join("\n")
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn stalled<F: Future<Output = ()> + 'static>(root: impl FnOnce(SimMachine<Tags>) -> F) -> Box<Stall> {
    Simulation::<Tags>::new(Config::default()).run(root).expect_err("they wait for each other")
}

#[test]
fn two_locks_that_are_taken_in_two_orders() {
    let stall = stalled(|m| async move {
        let (index, cache) = (Permits::watched(&m, "index", 1), Permits::watched(&m, "cache", 1));
        let both = |m: SimMachine<Tags>, first: Rc<Permits>, second: Rc<Permits>| async move {
            let _first = first.acquire().await;
            m.sleep(ms(1)).await;
            let _second = second.acquire().await;
        };
        let _reader = m.spawn("reader", both(m.clone(), index.clone(), cache.clone()));
        let _writer = m.spawn("writer", both(m.clone(), cache.clone(), index.clone()));
        m.sleep(ms(2)).await;
        let _third = index.acquire().await;
    });
    assert_eq!((stall.reason, &stall.circle[..]), (StallReason::Stuck, &[1, 2][..]));
    insta::assert_snapshot!(told(&stall), @r"
    stalled at 2ms: nothing can happen any more, and the root task has not finished
    in a circle:
      reader #1 waits for a permit of `cache`, of which 1 of 1 is out: writer #2 has one
      writer #2 waits for a permit of `index`, of which 1 of 1 is out: reader #1 has one
    tasks:
      root #0 waits for a permit of `index`, of which 1 of 1 is out: writer #2 stands before it in line
      reader #1 waits for a permit of `cache`, of which 1 of 1 is out: writer #2 has one
      writer #2 waits for a permit of `index`, of which 1 of 1 is out: reader #1 has one
    resources:
    ");
}

#[test]
fn permits_that_each_takes_two_of() {
    let stall = stalled(|m| async move {
        let decode = Permits::watched(&m, "decode", 2);
        let two = |m: SimMachine<Tags>, decode: Rc<Permits>| async move {
            let _one = decode.acquire().await;
            m.sleep(ms(1)).await;
            let _other = decode.acquire().await;
        };
        let _lanes = [0, 1].map(|_| m.spawn("lane", two(m.clone(), decode.clone())));
        m.sleep(ms(5)).await;
        let _third = decode.acquire().await;
    });
    insta::assert_snapshot!(told(&stall), @r"
    stalled at 5ms: nothing can happen any more, and the root task has not finished
    in a circle:
      lane #1 waits for a permit of `decode`, of which 2 of 2 are out: lane #2 has one
      lane #2 waits for a permit of `decode`, of which 2 of 2 are out: lane #1 stands before it in line
    tasks:
      root #0 waits for a permit of `decode`, of which 2 of 2 are out: lane #1 stands before it in line
      lane #1 waits for a permit of `decode`, of which 2 of 2 are out: lane #1 has one, lane #2 has one
      lane #2 waits for a permit of `decode`, of which 2 of 2 are out: lane #1 stands before it in line
    resources:
    ");
}

/// Two ranks that meet after each step. One of them forgets to give a lock back before it waits, in the step of this number.
fn kept_in(step_of_it: u64) -> Box<Stall> {
    stalled(move |m| async move {
        let (step, state) = (SimBarrier::new(2).watched(&m, "step"), Permits::watched(&m, "state", 1));
        let rank = move |m: SimMachine<Tags>, number: u64, barrier: SimBarrier, state: Rc<Permits>| async move {
            for round in 0..3_u64 {
                m.sleep(ms(1 + number)).await;
                let mine = state.acquire().await;
                let keeps = number == 0 && round == step_of_it;
                let kept = keeps.then_some(mine);
                barrier.wait().await.expect("nobody is lost");
                drop(kept);
            }
        };
        let ranks = [0, 1].map(|number| m.spawn("rank", rank(m.clone(), number, step.clone(), state.clone())));
        m.sleep(ms(100)).await;
        let _end = state.acquire().await;
        drop(ranks);
    })
}

#[test]
fn a_barrier_that_is_reached_with_a_lock_in_hand() {
    insta::assert_snapshot!(told(&kept_in(1)), @r"
    stalled at 100ms: nothing can happen any more, and the root task has not finished
    in a circle:
      rank #1 waits at `step`, where 1 of 2 are: rank #2 is not here
      rank #2 waits for a permit of `state`, of which 1 of 1 is out: rank #1 has one
    tasks:
      root #0 waits for a permit of `state`, of which 1 of 1 is out: rank #2 stands before it in line
      rank #1 waits at `step`, where 1 of 2 are: rank #2 is not here
      rank #2 waits for a permit of `state`, of which 1 of 1 is out: rank #1 has one
    resources:
    ");
    assert_eq!(told(&kept_in(0)), told(&kept_in(1)), "also where nobody has ever met");
}

/// A stage with a lock around a part of it that the samples with odd numbers never give back.
struct Forgetful {
    lock: Rc<Permits>,
    forgot: Cell<bool>,
}

impl Stage<SimMachine<Tags>, ()> for Forgetful {
    type Out = Phantom;

    async fn run(&self, cx: &Context<'_, SimMachine<Tags>>, (): ()) -> Result<Phantom, Failure> {
        let odd = cx.item().sample % 2 == 1;
        if !odd {
            cx.machine().sleep(ms(10)).await;
        }
        let permit = self.lock.acquire().await;
        if odd && !self.forgot.replace(true) {
            mem::forget(permit);
        }
        Fetch.run(cx, ()).await
    }
}

/// Loads with this stage, on two lanes, to a consumer that waits for ever.
fn forgetful(ring: usize, ledger_bytes: u64) -> Box<Stall> {
    let dataset = Dataset::uniform(20, Size { bytes: 10, pixels: 0 });
    let config = Config { dataset, ..Config::default() };
    Simulation::<Tags>::new(config)
        .run(move |m| async move {
            let settings = Settings {
                ring: Some(ring),
                lanes: 2,
                prefetch: 1,
                sample_bytes: 10,
                budget_bytes: (ring as u64 + 2) * 8 + ledger_bytes,
                ..Settings::new(20, 1, 8)
            };
            let (sender, mut batches) = loader::channel(m.clock());
            let stages = Forgetful { lock: Permits::watched(&m, "index", 1), forgot: Cell::new(false) };
            let resolved = settings.resolve().expect("settings");
            let _loader = m.spawn("loader", {
                let m = m.clone();
                async move { drop(loader::run(m, resolved, stages, Tag, sender).await) }
            });
            while let Some(batch) = batches.recv().await {
                drop(batch.expect("nothing fails"));
            }
        })
        .expect_err("a lock is never given back")
}

#[test]
fn a_slot_of_the_ring_whose_sample_waits_for_the_lane_that_waits_for_the_slot() {
    insta::assert_snapshot!(told(&forgetful(2, 1000)), @r"
    stalled at 10ms: nothing can happen any more, and the root task has not finished
    in a circle:
      lane #4 waits for a permit of `index`, of which 1 of 1 is out: lane #5 has one
      lane #5 waits for slot 0 of the ring: lane #4 has it
    tasks:
      root #0 waits for the next batch: loader #1 makes it
      loader #1 waits for the oldest sample that is launched: lane #4 has it
      copy (2 alike) waits for something that is no leaf: a channel, a lock, another task
      lane #4 waits for a permit of `index`, of which 1 of 1 is out: lane #5 has one
      lane #5 waits for slot 0 of the ring: lane #4 has it
    resources:
    ");
}

#[test]
fn bytes_of_the_ledger_whose_sample_waits_for_the_lane_that_waits_for_bytes() {
    insta::assert_snapshot!(told(&forgetful(8, 20)), @r"
    stalled at 20ms: nothing can happen any more, and the root task has not finished
    in a circle:
      lane #4 waits for a permit of `index`, of which 1 of 1 is out: lane #5 has one
      lane #5 waits for 10 B for encoded samples, of which 0 B are free: lane #4 holds 10 B of them, for the oldest sample
    tasks:
      root #0 waits for the next batch: loader #1 makes it
      loader #1 waits for the oldest sample that is launched: lane #4 has it
      copy (2 alike) waits for something that is no leaf: a channel, a lock, another task
      lane #4 waits for a permit of `index`, of which 1 of 1 is out: lane #5 has one
      lane #5 waits for 10 B for encoded samples, of which 0 B are free: lane #4 holds 10 B of them, for the oldest sample
    resources:
    ");
}

#[test]
fn a_limit_around_a_stage_is_told_by_its_name() {
    let stall = Simulation::<Tags>::new(Config { dataset: Dataset::uniform(9, Size::default()), ..Config::default() })
        .run(|m| async move {
            let settings = Settings { lanes: 2, ..Settings::new(9, 1, 8) };
            let (sender, mut batches) = loader::channel(m.clock());
            let inner = Forgetful { lock: Permits::watched(&m, "index", 1), forgot: Cell::new(false) };
            let stages = Limit::new(1, inner).named("lookup");
            let resolved = settings.resolve().expect("settings");
            let _loader = m.spawn("loader", {
                let m = m.clone();
                async move { drop(loader::run(m, resolved, stages, Tag, sender).await) }
            });
            while batches.recv().await.is_some() {}
        })
        .expect_err("a lock is never given back");
    let text = told(&stall);
    assert!(text.contains("waits for a permit of `lookup`, of which 1 of 1 is out: lane"), "{text}");
}

#[test]
fn the_lock_of_an_interpreter_names_the_job_that_has_it() {
    let config = Config {
        cpu: CpuSpec { cores: 4, speed_ppm: Vec::new() },
        pool_threads: 4,
        lock: Some(LockSpec { interval_ns: u64::MAX, held: vec![("job".to_owned(), 1_000_000)] }),
        costs: Costs::all(Cost::fixed(1_000_000_000)),
        limits: Limits { time_ns: 500_000_000, ..Limits::default() },
        ..Config::default()
    };
    let stall = Simulation::<Tags>::new(config)
        .run(|m| async move {
            let job = |m: SimMachine<Tags>, sample| async move {
                m.cpu(op(StageId::DECODE, sample), JOB, || ()).await.expect("a job");
            };
            let _lanes = [7, 8].map(|sample| m.spawn("lane", job(m.clone(), sample)));
            std::future::pending::<()>().await;
        })
        .expect_err("the job takes longer than that");
    insta::assert_snapshot!(told(&stall), @r"
    stalled at 0ns: the limit of 500ms of simulated time is reached
    tasks:
      root waits for something that is no leaf: a channel, a lock, another task
      lane #1 waits for a job on sample 7, stage decode: on the processor, since 0ns
      lane waits for a job on sample 8, stage decode: in line for the lock, since 0ns
    resources:
      lock: 1 of 1 taken, 1 waiting, held by a job on sample 7, of lane #1
    ");
}

#[test]
fn whoever_is_gone_with_a_permit_is_said_to_be() {
    let stall = stalled(|m| async move {
        let index = Permits::watched(&m, "index", 1);
        let gone = m.spawn("gone", {
            let index = index.clone();
            async move { mem::forget(index.acquire().await) }
        });
        m.sleep(ms(1)).await;
        drop(gone);
        let _mine = index.acquire().await;
    });
    insta::assert_snapshot!(told(&stall), @r"
    stalled at 1ms: nothing can happen any more, and the root task has not finished
    tasks:
      root #0 waits for a permit of `index`, of which 1 of 1 is out: somebody who is gone has one
    resources:
    ");
}

#[test]
fn everybody_is_told_of_where_there_are_many() {
    let stall = stalled(|m| async move {
        let index = Permits::watched(&m, "index", 1);
        let barrier = SimBarrier::new(2001).watched(&m, "step");
        let _tasks: Vec<_> = (0..2000)
            .map(|k| {
                let (index, barrier) = (index.clone(), barrier.clone());
                m.spawn("rank", async move {
                    match k % 2 {
                        0 => mem::forget(index.acquire().await),
                        _ => drop(barrier.wait().await),
                    }
                })
            })
            .collect();
        std::future::pending::<()>().await;
    });
    assert_eq!(stall.waiting.len(), 2000, "one has got its permit and ended");
    assert!(told(&stall).contains("waits at `step`, where 1000 of 2001 are"));
}
