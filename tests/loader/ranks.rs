//! Loaders of several ranks on one real machine.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use towtank::{
    check::{
        Got, RankEnd,
        invariant::{self, Asked, Ended},
    },
    device::HostDevice,
    failure::FailureKind,
    fault::Faults,
    loader::{self, End, Error, RankLoader, Resolved, RunningRanks, Settings, Tail, stage},
    machine::{Clock, Item, Pixels, Time, real::Config},
    measure::{self, Consumer, HostBatch, Meeting, Rank, Run},
    sim::Left,
    sync::Party,
    trace::Recorder,
};

use crate::{
    real::{Store, alone, threads},
    scenario::on_device,
    world::{DecodeBytes, SLOT_BYTES, World},
};

/// Nothing goes wrong.
const CALM: World = World { seed: 1, fetch_ms: 1, decode_ms: 1, bad_reads: 0, bad_decodes: 0 };

fn settings(samples: u64, world: u16) -> Settings {
    let budget_bytes = 64 * SLOT_BYTES as u64 + 800;
    let small = Settings {
        lanes: 6,
        prefetch: 2,
        sample_bytes: 8,
        budget_bytes,
        shuffle: Some(3),
        epochs: 2,
        ..Settings::new(samples, 4, SLOT_BYTES)
    };
    Settings { world, tail: Tail::Pad, ..small }
}

fn plans(settings: &Settings) -> Vec<Resolved> {
    let of = |rank| Settings { rank, ..settings.clone() }.resolve().expect("settings that fit together");
    (0..settings.world).map(of).collect()
}

fn config(samples: u64, world: World) -> Config {
    Config { threads: 2, ..Config::new(Arc::new(Store(samples, world))) }
}

/// What each rank's consumer got, how ranks ended, and the trace.
struct Seen {
    got: Vec<Got>,
    ends: Vec<RankEnd>,
    recorder: Recorder,
}

/// Runs all ranks, each with a consumer that meets the others after every step, and a device of its own where there are some.
fn run(plans: &[Resolved], world: World, devices: &[Arc<HostDevice>]) -> Seen {
    let loaders = plans.iter().enumerate().map(|(rank, resolved)| RankLoader {
        resolved: resolved.clone(),
        device: devices.get(rank).cloned(),
        stages: stage::fetch,
        fill: DecodeBytes(world),
        on_device: on_device::<Pixels, _>(&resolved.settings),
    });
    let config = config(plans[0].settings.samples, world);
    let recorder = Recorder::new().keep_events();
    let RunningRanks { batches, clock, machine } = loader::launch_ranks(config, loaders.collect(), recorder).expect("threads");
    let got = Mutex::new(Vec::new());
    let mut errors = Vec::new();
    thread::scope(|scope| {
        let mut consumers = Vec::new();
        for ((rank, mut batches), mut party) in (0..).zip(batches).zip(Party::of(plans.len() as u32)) {
            let got = &got;
            consumers.push(scope.spawn(move || {
                let mut error = None;
                while let Some(answer) = batches.next() {
                    match answer {
                        Ok(batch) => got.lock().expect("no consumer panics").push(Got {
                            rank,
                            at: clock.now(),
                            index: batch.index(),
                            epoch: batch.epoch(),
                            items: batch.items().to_vec(),
                            skipped: batch.skipped().to_vec(),
                            draws: Vec::new(),
                            content: Vec::new(),
                            saved: None,
                            state: Some(batch.state().clone()),
                        }),
                        Err(e) => error = Some(e),
                    }
                    batches.step_over();
                    party.meet();
                }
                error
            }));
        }
        errors.extend(consumers.into_iter().map(|consumer| consumer.join().expect("no consumer panics")));
    });
    let done = machine.join().expect("no task panics");
    let ends = (0..).zip(done.value.0).zip(errors);
    let ends = ends.map(|((rank, outcome), error)| RankEnd { rank, error, outcome: Some(outcome) }).collect();
    let mut got = got.into_inner().expect("no consumer panics");
    got.sort_by_key(|got| (got.rank, got.index));
    Seen { got, ends, recorder: done.recorder }
}

/// What must hold of every run, but for what holds only where control takes no time: that work is conserved to the instant.
fn judge(plans: &[Resolved], seen: &mut Seen) {
    let mut events = seen.recorder.take_events();
    // Steps are recorded when the scheduler hears of them.
    events.sort_by_key(|event| event.time);
    let faults = Faults::default();
    let ended = Ended {
        got: &seen.got,
        ends: &seen.ends,
        stall: None,
        left: Left::default(),
        held_bytes_peak: 0,
        at: Time(u64::MAX),
        leaves: false,
    };
    let asked = Asked { ranks: plans, faults: &faults, seed: 0 };
    for mut invariant in invariant::all(asked) {
        if invariant.name() == "work_conservation" {
            continue;
        }
        let found = invariant::fold(&mut *invariant, &events, &ended);
        assert_eq!(found, Ok(()), "{}", invariant.name());
    }
}

#[test]
fn ranks_share_each_epoch_and_do_equal_steps() {
    let _alone = alone();
    for (count, samples) in [(2, 37), (4, 64), (8, 101)] {
        let plans = plans(&settings(samples, count));
        let mut seen = run(&plans, CALM, &[]);
        for end in &seen.ends {
            let outcome = end.outcome.as_ref().expect("books");
            assert_eq!((&outcome.end, &end.error), (&End::Finished, &None), "rank {} of {count}", end.rank);
            assert!(outcome.accounts.balanced());
        }
        for epoch in 0..2 {
            let steps = |rank| seen.got.iter().filter(|got| (got.rank, got.epoch) == (rank, epoch)).count();
            assert!((1..count).all(|rank| steps(rank) == steps(0)), "{count} ranks do equal steps");
            let of = seen.got.iter().filter(|got| got.epoch == epoch).flat_map(|got| &got.items);
            let own: Vec<u64> = of.filter(|item| item.position < samples).map(|item| item.sample).collect();
            assert_eq!(own.len() as u64, samples, "no sample goes to two ranks");
            assert_eq!(own.into_iter().collect::<BTreeSet<_>>(), (0..samples).collect(), "together they are the epoch");
        }
        judge(&plans, &mut seen);
        assert!(threads().is_empty(), "{:?}", threads());
    }
}

#[test]
fn each_rank_keeps_within_its_budget_and_all_within_theirs() {
    let _alone = alone();
    let plans = plans(&settings(200, 4));
    let mut seen = run(&plans, CALM, &[]);
    judge(&plans, &mut seen);
    for (plan, end) in plans.iter().zip(&seen.ends) {
        let memory = end.outcome.as_ref().expect("books").memory;
        assert!(memory.fixed_bytes + memory.peak_reserved_bytes <= plan.settings.budget_bytes, "{memory:?}");
        assert_eq!((memory.reserved_bytes, memory.overruns), (0, 0));
    }
    let all: u64 = plans.iter().map(|plan| plan.settings.budget_bytes).sum();
    let fixed: u64 = plans.iter().map(|plan| plan.fixed_bytes).sum();
    assert!(fixed + seen.recorder.summary().peak_reserved_bytes() <= all);
}

#[test]
fn each_rank_can_have_a_device_of_its_own() {
    let _alone = alone();
    let plans = plans(&Settings { tail: Tail::Drop, ..settings(64, 2) });
    // The second one's consumer reads copies, the first one's reads where they lie.
    let devices = [Arc::new(HostDevice::new()), Arc::new(HostDevice::copying())];
    let mut seen = run(&plans, CALM, &devices);
    let lent: Vec<u64> = seen.ends.iter().filter_map(|end| Some(end.outcome.as_ref()?.lent_batches)).collect();
    assert!(lent[0] > 0 && lent[1] == 0, "{lent:?}");
    judge(&plans, &mut seen);
}

/// Ranks that meet after every step; of each, how many batches it got.
fn measured(plans: Vec<Resolved>, world: World, consumer: impl Fn(u16) -> Consumer) -> (Run, Vec<usize>) {
    let samples = plans[0].settings.samples;
    let taken: Vec<AtomicUsize> = plans.iter().map(|_| AtomicUsize::new(0)).collect();
    let parties = Party::of(plans.len() as u32).into_iter().map(|party| Some(Box::new(party) as Box<dyn Meeting>));
    let ranks = plans.into_iter().zip(parties).zip(&taken).map(|((resolved, meeting), taken)| Rank {
        consumer: consumer(resolved.settings.rank),
        resolved,
        device: None,
        fill: DecodeBytes(world),
        on_device: None,
        train: None,
        meeting,
        look: |_: &HostBatch| {
            taken.fetch_add(1, Ordering::SeqCst);
        },
    });
    let run = measure::measure_ranks(config(samples, world), ranks.collect(), Recorder::new()).expect("threads");
    (run, taken.into_iter().map(AtomicUsize::into_inner).collect())
}

#[test]
fn a_rank_that_leaves_early_leaves_the_others_to_their_steps() {
    let _alone = alone();
    let leaves = |rank| Consumer { leave_after: (rank == 1).then_some(2), ..Consumer::EAGER };
    let (run, taken) = measured(plans(&settings(96, 3)), CALM, leaves);
    assert_eq!(taken, [16, 2, 16]);
    assert_eq!((&run.outcome.end, &run.end), (&End::Finished, &Ok(())));
    let ends: Vec<_> = run.others.iter().map(|rank| (&rank.outcome.end, &rank.end)).collect();
    assert_eq!(ends, [(&End::Left, &Ok(())), (&End::Finished, &Ok(()))]);
    assert!(run.others.iter().all(|rank| rank.outcome.accounts.balanced() && rank.outcome.slots.lent == 0));
    assert!(threads().is_empty(), "{:?}", threads());
}

#[test]
fn a_rank_that_fails_is_told_of_and_the_others_go_on() {
    let _alone = alone();
    // One sample or two are not there, and end their ranks.
    let bad = |world: &World| (0..64).filter(|sample| world.bad_read(Item { sample: *sample, ..Item::default() })).count();
    let world = (0..).map(|seed| World { seed, bad_reads: 20, ..CALM }).find(|world| (1..3).contains(&bad(world)));
    let world = world.expect("a seed under which one or two are bad");
    let settings = Settings { epochs: 1, ..settings(64, 4) };
    let (run, taken) = measured(plans(&settings), world, |_| Consumer::EAGER);
    let mut ends = vec![(run.outcome.end, run.end)];
    ends.extend(run.others.into_iter().map(|rank| (rank.outcome.end, rank.end)));
    let failed = |end: &(End, Result<(), Error>)| match end {
        (End::Failed(_), Err(Error::Sample { failure, .. })) => failure.kind == FailureKind::NotFound,
        (End::Finished, Ok(())) => false,
        other => panic!("{other:?}"),
    };
    let failed: Vec<bool> = ends.iter().map(failed).collect();
    assert!(failed.contains(&true) && failed.contains(&false), "{failed:?}");
    for (failed, taken) in failed.iter().zip(&taken) {
        assert_eq!(*failed, *taken < 4, "a rank that does not fail has all of its steps: {taken}");
    }
    assert!(threads().is_empty(), "{:?}", threads());
}

#[test]
fn a_consumer_that_panics_is_not_waited_for() {
    let _alone = alone();
    let plans = plans(&settings(64, 3));
    let others = AtomicUsize::new(0);
    let parties = Party::of(3).into_iter().map(|party| Some(Box::new(party) as Box<dyn Meeting>));
    let ranks = plans.into_iter().zip(parties).map(|(resolved, meeting)| {
        let (rank, others) = (resolved.settings.rank, &others);
        let look = move |batch: &HostBatch| {
            if rank == 2 && batch.index() == 1 {
                std::panic::resume_unwind(Box::new("a step went wrong"));
            }
            others.fetch_add(1, Ordering::SeqCst);
        };
        Rank {
            resolved,
            device: None,
            fill: DecodeBytes(CALM),
            on_device: None,
            consumer: Consumer::EAGER,
            train: None,
            meeting,
            look,
        }
    });
    let config = config(64, CALM);
    let panicked =
        catch_unwind(AssertUnwindSafe(|| measure::measure_ranks(config, ranks.collect(), Recorder::new()).map(|_| ())));
    assert!(panicked.is_err());
    assert_eq!(others.into_inner(), 12 + 12 + 1, "the others have done all their steps");
    assert!(threads().is_empty(), "{:?}", threads());
}

#[test]
fn what_nobody_consumes_ends_when_it_is_dropped() {
    let _alone = alone();
    let loader = |resolved| RankLoader { resolved, device: None, stages: stage::fetch, fill: DecodeBytes(CALM), on_device: None };
    let loaders = || plans(&settings(64, 4)).into_iter().map(loader).collect();
    drop(loader::launch_ranks(config(64, CALM), loaders(), Recorder::new()).expect("threads"));
    assert!(threads().is_empty(), "{:?}", threads());
    // Consumers that leave one after the other, each after some batches.
    let running = loader::launch_ranks(config(64, CALM), loaders(), Recorder::new()).expect("threads");
    for (rank, mut batches) in running.batches.into_iter().enumerate() {
        (0..rank).for_each(|_| drop(batches.next()));
    }
    let (outcomes, _) = running.machine.join().expect("no task panics").value;
    assert!(outcomes.iter().all(|outcome| outcome.end == End::Left && outcome.accounts.balanced()), "{outcomes:?}");
    assert!(threads().is_empty(), "{:?}", threads());
}

#[test]
fn no_consumer_is_a_step_ahead_of_another() {
    let _alone = alone();
    let settings = Settings { epochs: 1, ..settings(96, 3) };
    let taken: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
    let parties = Party::of(3).into_iter().map(|party| Some(Box::new(party) as Box<dyn Meeting>));
    let ranks = plans(&settings).into_iter().zip(parties).map(|(resolved, meeting)| {
        let (rank, taken) = (usize::from(resolved.settings.rank), &taken);
        let look = move |batch: &HostBatch| {
            taken[rank].store(batch.index() + 1, Ordering::SeqCst);
            let done = taken.iter().map(|taken| taken.load(Ordering::SeqCst));
            assert!(done.min() >= Some(batch.index()), "rank {rank} got batch {} before all had done theirs", batch.index());
        };
        let consumer = Consumer { step: Duration::from_micros(700 * rank as u64), ..Consumer::EAGER };
        Rank { resolved, device: None, fill: DecodeBytes(CALM), on_device: None, consumer, train: None, meeting, look }
    });
    let run = measure::measure_ranks(config(96, CALM), ranks.collect(), Recorder::new()).expect("threads");
    assert_eq!(run.end, Ok(()));
    assert!(taken.into_iter().all(|taken| taken.into_inner() == 8));
}
