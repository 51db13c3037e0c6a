//! A loader that does not repeat itself is found, and the first event in which two runs differ is named as both have it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use towtank::{
    check,
    check::{Job, Schedule, relation},
    machine::{Item, Machine, Op, Tags, Work},
    scenario::{self, Overrides},
    sim::SimMachine,
    trace::StageId,
};

/// What depends on how often the loader ran before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depends {
    Nothing,
    /// How long a wait before the read of sample 2 takes.
    Time,
    /// How many bytes the job on sample 2 says it works on.
    Bytes,
    /// What the augmentation of every sample begins with, and nothing that the machine sees.
    Draws,
    /// Whether it goes on after sample 2.
    Length,
}

async fn load(depends: Depends, runs: Arc<AtomicU64>, machine: SimMachine<Tags>, mut job: Job) {
    let run = runs.fetch_add(1, Ordering::Relaxed);
    let mut cursor = job.plan().cursor();
    let mut batch: Vec<Item> = Vec::new();
    while let Some((_, item)) = cursor.take() {
        let is = |what: Depends| depends == what && item.sample == 2;
        if is(Depends::Time) {
            machine.sleep(Duration::from_nanos(run)).await;
        }
        let op = |stage| Op { stage, item, ..Op::default() };
        drop(machine.read(op(StageId::FETCH)).await);
        let work = Work { kind: "decode", bytes: if is(Depends::Bytes) { run } else { 0 }, pixels: 0 };
        drop(machine.cpu(op(StageId::DECODE), work, || ()).await);
        if is(Depends::Length) && run % 2 == 1 {
            std::future::pending::<()>().await;
        }
        batch.push(item);
        if batch.len() == job.settings().batch || cursor.peek().is_none() {
            let draws = batch.iter().map(|item| item.sample + if depends == Depends::Draws { 1000 * run } else { 0 }).collect();
            if !job.deliver(std::mem::take(&mut batch), vec![], draws).await {
                return;
            }
        }
    }
}

/// What is found with every seed run twice, or every schedule of one; the first runs of a case come in the order of its seeds.
fn found(depends: Depends, schedule: Schedule) -> Option<(&'static str, String)> {
    let text = "title = \"twice\"\nmachine = \"ideal\"\n[dataset]\ncount = 4\n[loader]\nbatch = 2\nshuffle = false\nbudget = \"1 GiB\"\n";
    let scenario = scenario::parse("twice.toml", text, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    let runs = Arc::new(AtomicU64::new(0));
    let design = move |machine, job| load(depends, runs.clone(), machine, job);
    let check = check(&scenario).design(&design).seeds(4).jobs(1).schedule(schedule).twice_every(1).shrinks(false);
    let checked = check.run().unwrap_or_else(|e| panic!("{e}"));
    let failure = checked.failures.into_iter().next()?;
    Some((failure.shrunk.finding.invariant, failure.shrunk.finding.broken.why))
}

#[test]
fn the_first_event_that_differs_is_named_as_both_runs_have_it() {
    assert_eq!(found(Depends::Nothing, Schedule::Random), None);
    for schedule in [Schedule::Random, Schedule::Fifo, Schedule::Exhaustive] {
        let told = |depends| {
            let (invariant, why) = found(depends, schedule).expect("it is not repeated");
            assert_eq!(invariant, relation::SAME_RUN);
            why
        };
        if schedule != Schedule::Exhaustive {
            let why = told(Depends::Time);
            assert!(why.contains("from event ") && why.contains(": first queued of 2 in stage fetch at "), "{why}");
            assert!(why.contains("; then queued of 2 in stage fetch at "), "{why}");
        }
        let why = told(Depends::Bytes);
        assert!(why.contains("first queued of 2 in stage decode at ") && why.contains(", 0 B; then queued of 2 "), "{why}");
        assert!(why.ends_with(", 1 B"), "{why}");
    }
}

#[test]
fn batches_that_differ_behind_the_same_events_are_named_too() {
    let (invariant, why) = found(Depends::Draws, Schedule::Random).expect("it is not repeated");
    assert_eq!(invariant, relation::SAME_RUN);
    assert!(
        why.contains("other batches from the 0th on: first batch 0 of rank 0 with samples 0, 1, drawn [0, 1]; then"),
        "{why}"
    );
}

#[test]
fn a_run_that_stops_short_is_told_by_what_it_does_not_have() {
    let (invariant, why) = found(Depends::Length, Schedule::Random).expect("it is not repeated");
    assert_eq!(invariant, relation::SAME_RUN);
    assert!(why.contains("; then nothing more"), "{why}");
}
