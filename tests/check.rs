//! The check finds what is wrong in loaders that are wrong, and nothing in the crate's own.

#[path = "check/schedules.rs"]
mod schedules;
#[path = "check/twice.rs"]
mod twice;

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use towtank::{
    check,
    check::{Checked, Job, Mark, Schedule, relation},
    draw::{Purpose, draw},
    loader::Skipped,
    machine::{Item, Machine, Op, Tags, Work},
    scenario::{self, Overrides, Scenario},
    sim::{Chooser, SimMachine},
    trace::StageId,
};

/// What may be wrong with the loader below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    /// Nothing.
    None,
    /// Batches hold samples in the order in which they are decoded.
    FirstDecodedFirst,
    /// A sample that failed is delivered all the same.
    FailureSwallowed,
    /// A sample that failed is left out and nobody is told.
    FailureForgotten,
    /// Workers rely on the first being polled before the others.
    PollOrder,
    /// The last worker waits for a message that nobody sends.
    Deadlock,
    /// The plan forgets the epoch.
    SameEpoch,
    /// Augmentation draws forget the epoch.
    SameDraws,
    /// A read is begun ahead and nobody gives it up.
    TaskLeft,
    /// It panics after a few samples.
    Panic,
    /// What it does depends on how often it ran.
    Unrepeatable,
}

/// A loader as one would write it in an afternoon: some workers that take samples off a list, and a task that makes batches of them.
async fn load(defect: Defect, machine: SimMachine<Tags>, mut job: Job) {
    thread_local!(static RUNS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    let settings = job.settings().clone();
    let rank = settings.rank;
    let mut cursor = job.plan().cursor();
    let mut items: Vec<Item> = std::iter::from_fn(|| cursor.take()).map(|(_, item)| item).collect();
    if defect == Defect::SameEpoch {
        let first: BTreeMap<u64, u64> = items.iter().filter(|i| i.epoch == 0).map(|i| (i.position, i.sample)).collect();
        items.iter_mut().for_each(|item| item.sample = first[&item.position]);
    }
    if defect == Defect::Unrepeatable {
        RUNS.set(RUNS.get() + 1);
        machine.sleep(Duration::from_nanos(RUNS.get())).await;
    }
    let total = items.len();
    let (queue, done) = (Rc::new(RefCell::new(items.clone().into_iter().enumerate())), Rc::new(RefCell::new(Vec::new())));
    let news = Rc::new(tokio::sync::Notify::new());
    let set_up = Rc::new(std::cell::Cell::new(defect != Defect::PollOrder));
    let workers: Vec<_> = (0..settings.lanes.min(8))
        .map(|worker| {
            let (machine, queue, done, news) = (machine.clone(), queue.clone(), done.clone(), news.clone());
            let set_up = set_up.clone();
            machine.clone().spawn("worker", async move {
                set_up.set(set_up.get() || worker == 0);
                if !set_up.get() {
                    // Its first sample goes where nobody looks.
                    _ = queue.borrow_mut().next();
                }
                loop {
                    let next = queue.borrow_mut().next();
                    let Some((number, item)) = next else { break };
                    if defect == Defect::Panic && number == 7 {
                        panic!("the eighth sample");
                    }
                    if defect == Defect::Deadlock && number + 1 == total {
                        std::future::pending::<()>().await;
                    }
                    let op = |stage| Op { stage, rank, attempt: 0, item };
                    let result = match machine.read(op(StageId::FETCH)).await {
                        Ok(bytes) => {
                            let work = Work { kind: "decode", bytes: bytes.bytes, pixels: bytes.pixels };
                            machine.cpu(op(StageId::DECODE), work, || ()).await
                        }
                        Err(failure) => Err(failure),
                    };
                    done.borrow_mut().push((number, item, result.err()));
                    news.notify_one();
                }
                news.notify_one();
            })
        })
        .collect();
    let _left = (defect == Defect::TaskLeft).then(|| std::mem::ManuallyDrop::new(workers_left(&machine)));
    let (mut next, mut taken, mut batch, mut skipped) = (0, 0, Vec::new(), Vec::new());
    while next < total {
        let found = {
            let done = done.borrow();
            let first = defect == Defect::FirstDecodedFirst;
            let place = if first { (taken < done.len()).then_some(taken) } else { done.iter().position(|(n, ..)| *n == next) };
            place.map(|place| done[place].clone())
        };
        let Some((_, item, failure)) = found else {
            news.notified().await;
            continue;
        };
        (next, taken) = (next + 1, taken + 1);
        match failure {
            Some(_) if defect == Defect::FailureForgotten => {}
            Some(failure) if defect != Defect::FailureSwallowed => skipped.push(Skipped { item, failure }),
            _ => batch.push(item),
        }
        let ends = items.get(next).is_none_or(|after| after.epoch != item.epoch);
        if batch.len() == settings.batch || ends {
            let occurrence = |item: &Item| if defect == Defect::SameDraws { 0 } else { u64::from(item.epoch) };
            let draws = batch.iter().map(|i| draw(1, Purpose::AUGMENT, i.sample, occurrence(i)).word(0)).collect();
            let (batch, skipped) = (std::mem::take(&mut batch), std::mem::take(&mut skipped));
            let nothing = batch.is_empty() && skipped.is_empty();
            if !nothing && !job.deliver(batch, skipped, draws).await {
                break;
            }
        }
    }
    drop(workers);
    if defect != Defect::TaskLeft {
        machine.quiesce().await;
    }
}

/// A task that reads one more sample, and that nobody stops.
fn workers_left(machine: &SimMachine<Tags>) -> impl Sized + use<> {
    let machine = machine.clone();
    machine.clone().spawn("ahead", async move {
        let read = machine.read(Op { stage: StageId::FETCH, ..Op::default() }).await;
        drop(read);
        std::future::pending::<()>().await;
    })
}

/// Two epochs of 40 samples of which some cannot be had.
fn broken_store() -> Scenario {
    let text = "title = \"checked\"\nmachine = \"reference-2core\"\nseed = 5\n[dataset]\ncount = 40\n[store]\nkind = \"object\"\n\
                [loader]\nbatch = 4\nlanes = 8\nthreads = 2\nepochs = 2\nerrors = \"skip\"\nbudget = \"1 GiB\"\n\
                [faults]\nundecodable = \"10 %\"\nmissing = \"5 %\"\n";
    scenario::parse("checked.toml", text, &Overrides::default()).unwrap()
}

fn checked(defect: Defect, seeds: u64, swarm: bool) -> Checked {
    let design = move |machine, job| load(defect, machine, job);
    check(&broken_store()).design(&design).seeds(seeds).jobs(1).swarm(swarm).run().unwrap_or_else(|e| panic!("{e}"))
}

/// The first failure, told.
fn found(defect: Defect) -> (&'static str, String, u64) {
    let checked = checked(defect, 200, false);
    let failure = checked.failures.first().unwrap_or_else(|| panic!("{defect:?} was not found"));
    (failure.shrunk.finding.invariant, failure.story(), failure.shrunk.case.scenario.dataset.count().unwrap_or(0))
}

#[test]
fn the_guide_names_every_invariant_and_relation() {
    let guide = include_str!("../docs/checks.md");
    for name in check::NAMES {
        assert!(guide.contains(&format!("\n| `{name}` |")), "docs/checks.md has no row for {name}");
    }
}

#[test]
fn a_loader_without_defects_breaks_nothing() {
    let checked = checked(Defect::None, 100, false);
    assert!(checked.failures.is_empty(), "{}", checked.failures[0].story());
    assert_eq!(checked.seeds, 100);
}

#[test]
fn what_had_nothing_to_be_compared_with_is_not_counted_as_compared() {
    let checked = checked(Defect::None, 300, false);
    assert!(checked.coverage.of(Mark::Again) > 0 && checked.coverage.of(Mark::Sequential) > 0);
    // It has no states, so no run and no ranks went on from any.
    assert_eq!([Mark::Resumed, Mark::Redealt].map(|mark| checked.coverage.of(mark)), [0, 0]);
    let compared = [Mark::Again, Mark::Sequential, Mark::OtherSeed].map(|mark| checked.coverage.of(mark)).iter().sum::<u64>();
    assert_eq!(checked.runs, checked.seeds + compared);
}

#[test]
fn every_defect_breaks_the_invariant_that_forbids_it() {
    for (defect, invariant) in [
        (Defect::FirstDecodedFirst, "order_kept"),
        (Defect::FailureSwallowed, "errors_surfaced_or_counted"),
        (Defect::FailureForgotten, "exactly_once"),
        (Defect::Deadlock, "progress"),
        (Defect::SameEpoch, "epochs_differ"),
        (Defect::SameDraws, "streams_distinct"),
        (Defect::TaskLeft, "clean_stop"),
        (Defect::Panic, "no_panic"),
        (Defect::Unrepeatable, relation::SAME_RUN),
    ] {
        let (broken, story, _) = found(defect);
        assert_eq!(broken, invariant, "{defect:?}: {story}");
    }
}

#[test]
fn a_failure_is_shrunk_to_what_it_takes() {
    let (invariant, story, samples) = found(Defect::FirstDecodedFirst);
    assert_eq!(invariant, "order_kept");
    assert!(samples <= 3, "{samples} samples: {story}");
    let (_, story, samples) = found(Defect::FailureSwallowed);
    assert_eq!(samples, 1, "{story}");
    let (_, story, samples) = found(Defect::Deadlock);
    assert_eq!(samples, 1, "{story}");
    assert!(story.contains("stalled at") && story.contains("worker"), "who waited: {story}");
    assert!(story.contains("`check::replay` repeats that, in the tests of `check::checked::"), "{story}");
}

#[test]
fn a_story_tells_the_settings_that_are_not_as_usual() {
    let drops = Overrides::set(["loader.drop_last=true", "loader.errors=skip", "ranks.count=2", "loader.tail=drop"]);
    let scenario = scenario::load("slow-consumer", &drops).unwrap();
    // Nothing is loaded at all.
    let design = |_, job: Job| async move { drop(job) };
    let checked = check(&scenario).design(&design).seeds(1).shrinks(false).run().unwrap();
    let story = checked.failures[0].story();
    assert!(story.contains("ranks = 2, tail = \"drop\", drop_last = true, errors = \"skip\""), "{story}");
}

#[test]
fn a_dataset_that_is_cut_to_less_than_a_sample_for_each_rank_says_what_to_do() {
    let scenario = scenario::load("cluster-1000", &Overrides::default()).unwrap();
    let wrong = check(&scenario).seeds(1).run().err().expect("64 samples for 1000 ranks").to_string();
    assert!(wrong.contains("`--samples 4000`"), "{wrong}");
    assert!(check(&scenario).samples(4000).seeds(1).run().unwrap().failures.is_empty());
}

#[test]
fn a_schedule_is_shrunk_to_the_choices_that_matter() {
    let checked = checked(Defect::PollOrder, 50, false);
    let shrunk = &checked.failures[0].shrunk;
    assert_eq!(shrunk.finding.invariant, "progress");
    let Chooser::Replay(tape) = &shrunk.case.chooser else { panic!("it takes another order: {}", checked.failures[0].story()) };
    assert_eq!(tape.len(), 1, "{tape:?}");
    let fifo = {
        let design = |machine, job| load(Defect::PollOrder, machine, job);
        check(&broken_store()).design(&design).seeds(50).schedule(Schedule::Fifo).run().unwrap()
    };
    assert!(fifo.failures.is_empty(), "first come, first served is the order that it relies on");
}

#[test]
fn the_first_failure_is_the_same_on_any_number_of_threads() {
    let design = |machine, job| load(Defect::FirstDecodedFirst, machine, job);
    let seed = |jobs| {
        let checked = check(&broken_store()).design(&design).seeds(64).jobs(jobs).shrinks(false).run().unwrap();
        checked.failures[0].seed
    };
    assert_eq!(seed(1), seed(3));
}

#[test]
fn the_crates_own_loader_breaks_nothing() {
    for (name, set) in [
        ("flaky-store", "loader.order=plan"),
        ("flaky-store", "loader.order=completion"),
        ("tiny-memory", "ranks.count=3"),
        ("imagenet-p4d", "ranks.count=8"),
    ] {
        let scenario = scenario::load(name, &Overrides::set([set])).unwrap();
        let checked = check(&scenario).seeds(150).jobs(2).swarm(true).run().unwrap_or_else(|e| panic!("{e}"));
        assert!(checked.failures.is_empty(), "{}", checked.failures[0].story());
    }
}

#[test]
fn steps_and_pauses_as_long_as_a_scenario_can_have_them_break_nothing() {
    for set in ["consumer.step=8760 h", "loader.retry_pause=8760 h"] {
        let scenario = scenario::load("flaky-store", &Overrides::set([set, "loader.retry_pause_most=8760 h"])).unwrap();
        let checked = check(&scenario).seeds(20).run().unwrap_or_else(|e| panic!("{e}"));
        assert!(checked.failures.is_empty(), "{}", checked.failures[0].story());
    }
}
