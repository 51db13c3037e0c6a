//! Abstract time: every order in which leaves may end, and no other.

use std::{cell::RefCell, collections::BTreeSet, future::Future, rc::Rc, time::Duration};

use towtank::{
    failure::FailureKind,
    fault::{Faults, Hits},
    machine::{Item, Machine, Op, Tags, Time, Work},
    sim::{Chooser, Config, Cost, Costs, Dataset, Enumeration, Outcome, SimMachine, Simulation, Size, Tape, Timing},
    trace::StageId,
};

fn config() -> Config {
    Config {
        timing: Timing::Abstract,
        dataset: Dataset::uniform(9, Size { bytes: 100, pixels: 100 }),
        costs: Costs::new().with("decode", Cost::fixed(5_000_000)),
        ..Config::default()
    }
}

fn op(stage: StageId, sample: u64, attempt: u16) -> Op {
    Op { stage, attempt, item: Item { sample, ..Item::default() }, ..Op::default() }
}

/// What each schedule came to, in the order of the enumeration.
fn all<T, F, R>(config: &Config, root: R) -> Vec<Outcome<T>>
where
    T: 'static,
    F: Future<Output = T> + 'static,
    R: Fn(SimMachine<Tags>) -> F,
{
    let (mut schedules, mut outcomes) = (Enumeration::new(), Vec::new());
    while let Some(tape) = schedules.next() {
        let config = Config { chooser: Chooser::Replay(tape), ..config.clone() };
        let simulation = Simulation::new(config).journal(schedules.journal());
        outcomes.push(simulation.run(&root).expect("everything ends"));
    }
    assert!(schedules.is_over() && schedules.seen() == outcomes.len() as u64);
    outcomes
}

/// Three jobs at once; the order in which they end.
async fn three_jobs(machine: SimMachine<Tags>) -> Vec<u64> {
    let order = Rc::new(RefCell::new(Vec::new()));
    let job = |sample: u64| {
        let (machine, order) = (machine.clone(), order.clone());
        async move {
            let work = Work { kind: "decode", bytes: 1, pixels: 1 };
            machine.cpu(op(StageId::DECODE, sample, 0), work, || ()).await.expect("nothing fails");
            order.borrow_mut().push(sample);
        }
    };
    tokio::join!(job(0), job(1), job(2));
    order.take()
}

#[test]
fn no_more_jobs_run_at_a_time_than_there_are_threads() {
    for (threads, schedules) in [(1, 1), (2, 4), (3, 6)] {
        let outcomes = all(&Config { pool_threads: threads, ..config() }, three_jobs);
        let orders: BTreeSet<Vec<u64>> = outcomes.iter().map(|outcome| outcome.value.clone()).collect();
        assert_eq!((outcomes.len(), orders.len()), (schedules, schedules), "{threads} threads: {orders:?}");
        assert_eq!(outcomes[0].value, [0, 1, 2], "the default is the order in which they began");
        assert!(outcomes.iter().all(|outcome| outcome.end == Time(3)), "a nanosecond each");
        let hashes: BTreeSet<u64> = outcomes.iter().map(|outcome| outcome.recorder.hash()).collect();
        assert_eq!(hashes.len(), schedules, "each is another trace");
    }
}

#[test]
fn a_timer_may_go_off_before_a_leaf_ends_and_the_clock_shows_it() {
    let late = |machine: SimMachine<Tags>| async move {
        tokio::select! {
            biased;
            read = machine.read(op(StageId::FETCH, 1, 0)) => read.map(|_| machine.now()).ok(),
            () = machine.sleep(Duration::from_secs(3)) => {
                assert_eq!(machine.now(), Time(3_000_000_000));
                None
            }
        }
    };
    let outcomes = all(&config(), late);
    let ends: Vec<Option<Time>> = outcomes.iter().map(|outcome| outcome.value).collect();
    assert_eq!(ends, [Some(Time(1)), None]);
    assert!(outcomes.iter().all(|outcome| outcome.left.leaves == 0), "a read that is given up is gone");
}

#[test]
fn a_job_given_up_still_ends_and_may_do_so_at_any_time() {
    let outcomes = all(&Config { pool_threads: 2, ..config() }, |machine| async move {
        let work = Work { kind: "decode", bytes: 1, pixels: 1 };
        let left = tokio::select! {
            biased;
            _ = machine.cpu(op(StageId::DECODE, 1, 0), work, || ()) => false,
            () = machine.sleep(Duration::from_millis(1)) => true,
        };
        machine.quiesce().await;
        left
    });
    assert_eq!(outcomes.iter().map(|outcome| outcome.value).collect::<Vec<_>>(), [false, true]);
    assert!(outcomes.iter().all(|outcome| outcome.left.leaves == 0));
}

/// What two reads of a sample come to.
async fn reads(machine: SimMachine<Tags>) -> Vec<Option<FailureKind>> {
    let mut found = Vec::new();
    for attempt in 0..2 {
        let read = machine.read(op(StageId::FETCH, 0, attempt)).await;
        found.push(read.err().map(|failure| failure.kind));
    }
    found
}

#[test]
fn whether_a_leaf_fails_by_its_rate_is_a_choice() {
    let faults = Faults { transient: Hits::share(1), ..Faults::default() };
    let outcomes = all(&Config { faults, ..config() }, reads);
    let found: Vec<_> = outcomes.into_iter().map(|outcome| outcome.value).collect();
    let transient = Some(FailureKind::Transient);
    assert_eq!(found, [[None, None], [None, transient], [transient, None], [transient, transient]]);
}

#[test]
fn what_is_wrong_with_a_sample_is_so_at_every_try_and_named_samples_are_hit_without_a_choice() {
    let faults = Faults { missing: Hits::share(1), ..Faults::default() };
    let outcomes = all(&Config { faults, ..config() }, reads);
    let found: Vec<_> = outcomes.into_iter().map(|outcome| outcome.value).collect();
    let missing = Some(FailureKind::NotFound);
    assert_eq!(found, [[None, None], [missing, missing]]);
    let faults = Faults { missing: Hits::samples([0]), ..Faults::default() };
    let outcomes = all(&Config { faults, ..config() }, reads);
    assert_eq!(outcomes.into_iter().map(|outcome| outcome.value).collect::<Vec<_>>(), [[missing, missing]]);
    let faults = Faults { undecodable: Hits::share(1), ..Faults::default() };
    let outcomes = all(&Config { faults, ..config() }, |machine| async move {
        let read = machine.read(op(StageId::FETCH, 0, 0)).await.map(|bytes| bytes.bytes);
        let work = Work { kind: "decode", bytes: 1, pixels: 1 };
        (read, machine.cpu(op(StageId::DECODE, 0, 0), work, || ()).await.map_err(|failure| failure.kind))
    });
    let found: Vec<_> = outcomes.into_iter().map(|outcome| outcome.value).collect();
    assert_eq!(found, [(Ok(100), Ok(())), (Ok(100), Err(FailureKind::Corrupt))]);
}

#[test]
fn whatever_chooses_its_tape_is_the_same_run() {
    let faults = Faults { transient: Hits::share(300_000), ..Faults::default() };
    let config = Config { pool_threads: 2, keep_tape: true, faults, ..config() };
    let mut orders = BTreeSet::new();
    for seed in 0..20 {
        for chooser in [Chooser::Random(seed), Chooser::Pct { seed, depth: 2, length: 5 }] {
            let run = |chooser| {
                let root = |machine: SimMachine<Tags>| async move { (reads(machine.clone()).await, three_jobs(machine).await) };
                Simulation::new(Config { chooser, ..config.clone() }).run(root).expect("everything ends")
            };
            let first = run(chooser);
            let tape = first.tape.expect("it was kept");
            let again = run(Chooser::Replay(tape.clone()));
            assert_eq!((first.recorder.hash(), &first.value), (again.recorder.hash(), &again.value));
            assert_eq!(again.tape, Some(tape));
            orders.insert(first.value);
        }
    }
    assert!(orders.len() > 6, "{orders:?}");
    let default = Simulation::new(config).run(three_jobs).expect("everything ends");
    assert_eq!((default.value, default.tape), (vec![0, 1, 2], Some(Tape::new())));
}

#[test]
fn a_task_that_looks_at_the_clock_again_and_again_starves_nobody() {
    for seed in 0..20 {
        let config = Config { chooser: Chooser::Pct { seed, depth: 1, length: 1 }, ..config() };
        let outcome = Simulation::new(config).run(|machine| async move {
            let done = Rc::new(RefCell::new(false));
            let _reader = machine.spawn("reader", {
                let (machine, done) = (machine.clone(), done.clone());
                async move {
                    let read = machine.read(op(StageId::FETCH, 0, 0)).await;
                    *done.borrow_mut() = read.is_ok();
                }
            });
            while !*done.borrow() {
                machine.sleep(Duration::from_millis(1)).await;
            }
        });
        assert!(outcome.expect("the read ends").end <= Time(100_000_000));
    }
}
