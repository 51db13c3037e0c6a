//! Schedules in abstract time: as many as there are, and what only they find.

use std::{cell::RefCell, rc::Rc};

use towtank::{
    check,
    check::{Checked, Design, Job, Schedule, Schedules, TWICE_EVERY},
    machine::{Item, Machine, Op, Tags, Work},
    scenario::{self, Overrides, Scenario},
    sim::{Chooser, SimMachine, Timing},
    trace::StageId,
};

/// So many samples, all alike, so many lanes, and a ring that has room for all and is lent to the consumer, so that nothing is copied.
fn text(samples: u64, lanes: u64) -> String {
    format!(
        "title = \"small\"\nmachine = \"reference-2core\"\nseed = 3\n[dataset]\ncount = {samples}\nbytes = \"100 kB\"\n\
         [store]\nkind = \"page-cache\"\n[loader]\nbatch = 2\nlanes = {lanes}\nthreads = 2\nring = 32\nprefetch = 2\nbudget = \"1 GiB\"\n\
         order = \"plan\"\n[consumer]\nstep = \"0 ms\"\n"
    )
}

fn parsed(text: &str) -> Scenario {
    scenario::parse("small.toml", text, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn exhaustive(text: &str, design: Option<&dyn Design>, most: u64) -> Checked {
    let scenario = parsed(text);
    let check = check(&scenario).schedule(Schedule::Exhaustive).seeds(most);
    match design {
        Some(design) => check.design(design).run(),
        None => check.run(),
    }
    .unwrap_or_else(|e| panic!("{e}"))
}

/// How the consumer of the model takes batches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taker {
    /// One after the other, once all are there.
    AtTheEnd,
    /// Each as soon as it can: it sleeps at its beginning, and after every batch.
    OnTheWay,
}

/// A loader as a picture of what is outstanding, without a line of the simulator's: lanes, each of which fetches a sample and decodes it, and
/// takes the next; batches of two in the order of the plan.
#[derive(Clone)]
struct Model {
    samples: usize,
    next: usize,
    /// What each lane has: its sample, and whether it is fetched.
    lanes: Vec<Option<(usize, bool)>>,
    decoded: Vec<bool>,
    taker: Taker,
    sleeps: bool,
    taken: usize,
}

impl Model {
    fn new(samples: usize, lanes: usize, taker: Taker) -> Model {
        let sleeps = taker == Taker::OnTheWay;
        let lanes = vec![None; lanes];
        let mut model = Model { samples, next: 0, lanes, decoded: vec![false; samples], taker, sleeps, taken: 0 };
        (0..model.lanes.len()).for_each(|lane| model.launch(lane));
        model
    }

    fn launch(&mut self, lane: usize) {
        self.lanes[lane] = (self.next < self.samples).then_some((self.next, false));
        self.next += usize::from(self.lanes[lane].is_some());
    }

    /// In how many orders all that is outstanding, and what follows from it, can end.
    fn orders(&self) -> u64 {
        let mut orders = 0;
        for lane in 0..self.lanes.len() {
            let Some((sample, fetched)) = self.lanes[lane] else { continue };
            let mut after = self.clone();
            match fetched {
                false => after.lanes[lane] = Some((sample, true)),
                true => {
                    after.decoded[sample] = true;
                    after.launch(lane);
                }
            }
            orders += after.settled().orders();
        }
        if self.sleeps {
            orders += Model { sleeps: false, ..self.clone() }.settled().orders();
        }
        orders.max(u64::from(orders == 0))
    }

    /// The consumer takes a batch if it waits for one that is there, and sleeps.
    fn settled(mut self) -> Model {
        let first = 2 * self.taken;
        let rest = &self.decoded[first.min(self.samples)..self.samples.min(first + 2)];
        if self.taker == Taker::OnTheWay && !self.sleeps && !rest.is_empty() && rest.iter().all(|decoded| *decoded) {
            (self.taken, self.sleeps) = (self.taken + 1, true);
        }
        self
    }
}

/// Lanes that load everything, and batches of it all afterwards.
async fn all_then_batches(machine: SimMachine<Tags>, mut job: Job) {
    let mut cursor = job.plan().cursor();
    let items: Vec<Item> = std::iter::from_fn(|| cursor.take()).map(|(_, item)| item).collect();
    let queue = Rc::new(RefCell::new(items.clone().into_iter()));
    let left = Rc::new(tokio::sync::Notify::new());
    let lanes = job.settings().lanes;
    let _lanes: Vec<_> = (0..lanes)
        .map(|_| {
            let (machine, queue, left) = (machine.clone(), queue.clone(), left.clone());
            machine.clone().spawn("lane", async move {
                loop {
                    let Some(item) = queue.borrow_mut().next() else { break };
                    _ = load(&machine, item).await;
                }
                left.notify_one();
                std::future::pending::<()>().await;
            })
        })
        .collect();
    for _ in 0..lanes {
        left.notified().await;
    }
    for batch in items.chunks(job.settings().batch) {
        job.deliver(batch.to_vec(), vec![], vec![]).await;
    }
}

async fn load(machine: &SimMachine<Tags>, item: Item) -> Result<(), towtank::failure::Failure> {
    let op = |stage| Op { stage, rank: 0, attempt: 0, item };
    let bytes = machine.read(op(StageId::FETCH)).await?;
    let work = Work { kind: "decode", bytes: bytes.bytes, pixels: bytes.pixels };
    machine.cpu(op(StageId::DECODE), work, || ()).await
}

#[test]
fn there_are_as_many_schedules_as_orders_in_which_lanes_can_go_on() {
    for (samples, lanes, known) in [(1, 1, Some(1)), (4, 1, Some(1)), (2, 2, Some(6)), (3, 2, None), (4, 2, None)] {
        let schedules = Model::new(samples, lanes, Taker::AtTheEnd).orders();
        assert!(known.is_none_or(|known| known == schedules), "C(4, 2) = 6 for two lanes with a sample each, not {schedules}");
        let found = exhaustive(&text(samples as u64, lanes as u64), Some(&all_then_batches), 100_000);
        assert_eq!(found.schedules, Some(Schedules { seen: schedules, all: true }), "{samples} samples, {lanes} lanes");
        assert_eq!(found.runs, schedules + schedules / TWICE_EVERY, "some are run twice");
    }
}

#[test]
fn the_crates_own_loader_has_as_many_schedules_as_the_model_and_breaks_nothing_in_any() {
    for (samples, lanes) in [(1, 1), (2, 1), (2, 2), (3, 2), (4, 2)] {
        let schedules = Model::new(samples, lanes, Taker::OnTheWay).orders();
        let found = exhaustive(&text(samples as u64, lanes as u64), None, 100_000);
        assert!(found.failures.is_empty(), "{}", found.failures[0].story());
        assert_eq!(found.schedules, Some(Schedules { seen: schedules, all: true }), "{samples} samples, {lanes} lanes");
    }
}

#[test]
fn what_was_not_gone_through_is_said() {
    let found = exhaustive(&text(4, 2), Some(&all_then_batches), 20);
    assert_eq!(found.schedules, Some(Schedules { seen: 20, all: false }));
    let scenario = parsed(&text(4, 2));
    let refused = check(&scenario).schedule(Schedule::Exhaustive).shard(0, 2).run();
    assert!(refused.is_err_and(|e| e.to_string().contains("no shard")));
}

/// Two workers, and a place for one sample that comes too early: a second such overwrites it. Where samples take about the same time that
/// never happens, since one worker would have to load two while the other loads one.
async fn one_place_for_early_samples(machine: SimMachine<Tags>, mut job: Job) {
    let mut cursor = job.plan().cursor();
    let items: Vec<Item> = std::iter::from_fn(|| cursor.take()).map(|(_, item)| item).collect();
    let queue = Rc::new(RefCell::new(items.clone().into_iter().enumerate()));
    let (ordered, next, early) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(0)), Rc::new(RefCell::new(None)));
    let left = Rc::new(tokio::sync::Notify::new());
    let lanes = job.settings().lanes.min(2);
    let _workers: Vec<_> = (0..lanes)
        .map(|_| {
            let (machine, queue, left) = (machine.clone(), queue.clone(), left.clone());
            let (ordered, next, early) = (ordered.clone(), next.clone(), early.clone());
            machine.clone().spawn("worker", async move {
                loop {
                    let Some((number, item)) = queue.borrow_mut().next() else { break };
                    _ = load(&machine, item).await;
                    if number != *next.borrow() {
                        *early.borrow_mut() = Some((number, item));
                        continue;
                    }
                    ordered.borrow_mut().push(item);
                    *next.borrow_mut() += 1;
                    let kept = early.borrow_mut().take_if(|(number, _)| *number == *next.borrow());
                    if let Some((_, item)) = kept {
                        ordered.borrow_mut().push(item);
                        *next.borrow_mut() += 1;
                    }
                }
                left.notify_one();
                std::future::pending::<()>().await;
            })
        })
        .collect();
    for _ in 0..lanes {
        left.notified().await;
    }
    for batch in ordered.take().chunks(job.settings().batch) {
        job.deliver(batch.to_vec(), vec![], vec![]).await;
    }
}

#[test]
fn a_rare_order_is_found_in_abstract_time_and_repeated_from_its_file() {
    let text = text(8, 2);
    let scenario = parsed(&text);
    let design = one_place_for_early_samples;
    let checked = |schedule, seeds| {
        check(&scenario).design(&design).schedule(schedule).seeds(seeds).jobs(1).run().unwrap_or_else(|e| panic!("{e}"))
    };
    let by_chance = checked(Schedule::Random, 300);
    assert!(by_chance.failures.is_empty(), "costs make it rarer than that: {}", by_chance.failures[0].story());
    for schedule in [Schedule::Pct { depth: 1 }, Schedule::Pct { depth: 3 }, Schedule::Exhaustive] {
        let found = checked(schedule, 200_000);
        let failure = found.failures.first().unwrap_or_else(|| panic!("{schedule:?} finds it"));
        assert!(found.seeds < 40, "{schedule:?} needed {} seeds", found.seeds);
        let (case, finding, run) = (&failure.shrunk.case, &failure.shrunk.finding, &failure.shrunk.run);
        assert_eq!((finding.invariant, case.timing), ("exactly_once", Timing::Abstract), "{}", failure.story());
        assert!(matches!(&case.chooser, Chooser::Replay(tape) if tape.len() <= 4), "{}", failure.story());
        assert!(case.scenario.dataset.count() <= Some(4), "two that come before one: {}", failure.story());
        assert!(failure.story().contains("in abstract time"), "{}", failure.story());
        let written = check::written("small.toml", &text, &Overrides::default(), case, finding, run).unwrap();
        assert!(written.contains("abstract_time = true"), "{written}");
        assert!(check::replays("found.toml", &written, &design, finding).unwrap(), "{written}");
    }
}

#[test]
fn faults_are_choices_and_a_schedule_that_was_not_shrunk_is_repeated_too() {
    let text = text(2, 2).replace("order =", "errors = \"skip\"\nretries = 1\nretry_pause = \"1 ms\"\norder =")
        + "[faults]\ntransient = \"1 %\"\nundecodable = \"1 %\"\n";
    let found = exhaustive(&text, None, 3000);
    assert!(found.failures.is_empty(), "{}", found.failures[0].story());
    let reached: Vec<&str> =
        check::Mark::ALL.iter().filter(|mark| found.coverage.of(**mark) > 0).map(|mark| mark.words()).collect();
    assert!(reached.contains(&"a read was retried"), "{reached:?}");
    let scenario = parsed(&text);
    let lost = |machine: SimMachine<Tags>, job: Job| async move {
        // A sample that cannot be had is forgotten, and the batch with it.
        let (mut cursor, mut job) = (job.plan().cursor(), job);
        while let Some((_, item)) = cursor.take() {
            if load(&machine, item).await.is_ok() {
                job.deliver(vec![item], vec![], vec![]).await;
            }
        }
    };
    let found = check(&scenario).design(&lost).schedule(Schedule::Pct { depth: 2 }).seeds(2000).jobs(1).shrinks(false).run();
    let found = found.unwrap_or_else(|e| panic!("{e}"));
    let shrunk = &found.failures.first().expect("one in fifty samples fails").shrunk;
    assert!(matches!(shrunk.case.chooser, Chooser::Pct { depth: 2, .. }));
    let (case, finding, run) = (&shrunk.case, &shrunk.finding, &shrunk.run);
    let written = check::written("small.toml", &text, &Overrides::default(), case, finding, run).unwrap();
    assert!(written.contains("pct = ["), "{written}");
    assert!(check::replays("found.toml", &written, &lost, finding).unwrap(), "{written}");
}

#[test]
fn the_crates_own_loader_breaks_nothing_whatever_ends_first() {
    for name in ["flaky-store", "tiny-memory"] {
        let scenario = scenario::load(name, &Overrides::default()).unwrap();
        let check = check(&scenario).seeds(60).jobs(2).swarm(true).schedule(Schedule::Pct { depth: 3 });
        let checked = check.run().unwrap_or_else(|e| panic!("{e}"));
        assert!(checked.failures.is_empty(), "{}", checked.failures[0].story());
    }
}
