//! Choosers: what chance finds, and that it is found again.

use std::{cell::Cell, collections::BTreeSet, rc::Rc, time::Duration};

use towtank::{
    machine::{Machine, Tags, Work},
    sim::{
        Chooser, Config, Cost, Costs, CpuSpec, Dataset, Distribution, Outcome, Quantiles, SchedulerSpec, SimMachine, Simulation,
        Size, StoreSpec, Tape,
    },
    trace::{Event, Kind, Recorder, StageId},
};

use crate::op;

/// Six lanes that read and decode 40 samples, all with equal times, so that everything is due at once.
fn lanes(config: Config) -> Outcome<()> {
    Simulation::<Tags>::new(config)
        .recorder(Recorder::new().keep_events())
        .run(|m| async move {
            let (next, finished) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let lanes: Vec<_> = (0..6)
                .map(|_| {
                    let (inner, next, finished) = (m.clone(), next.clone(), finished.clone());
                    m.spawn("lane", async move {
                        while next.get() < 40 {
                            let sample = next.replace(next.get() + 1);
                            one(&inner, sample).await;
                        }
                        finished.set(finished.get() + 1);
                    })
                })
                .collect();
            while finished.get() < 6 {
                m.sleep(Duration::from_micros(1)).await;
            }
            drop(lanes);
            m.quiesce().await;
        })
        .expect("lanes end")
}

async fn one(m: &SimMachine<Tags>, sample: u64) {
    let bytes = m.read(op(StageId::FETCH, sample)).await.expect("a read");
    let work = Work { kind: "decode", bytes: bytes.bytes, pixels: bytes.pixels };
    m.cpu(op(StageId::DECODE, sample), work, || ()).await.expect("a job");
}

fn equal_times(chooser: Chooser) -> Config {
    Config {
        chooser,
        keep_tape: true,
        cpu: CpuSpec { cores: 3, speed_ppm: Vec::new() },
        pool_threads: 3,
        costs: Costs::new().with("decode", Cost::fixed(100)),
        store: StoreSpec { first_byte_ns: Distribution::Constant(100), ..StoreSpec::default() },
        dataset: Dataset::uniform(40, Size::default()),
        ..Config::default()
    }
}

/// The same with costs that vary, a scheduler that costs, and threads that wake up.
fn varied(chooser: Chooser) -> Config {
    let spread = Distribution::Table(Quantiles::lognormal(1_000_000, 0.5));
    Config {
        wakeup_ns: 5,
        scheduler: SchedulerSpec { per_wake_ns: 10, per_completion_ns: 3, burst: 4, queued_low: 1, age_ns: 50 },
        costs: Costs::new().with("decode", Cost { residual_ppm: spread, ..Cost::fixed(100) }),
        store: StoreSpec {
            first_byte_ns: Distribution::Exponential { mean: 100 },
            link_bytes_per_s: Some(1_000_000_000),
            ..StoreSpec::default()
        },
        dataset: Dataset::uniform(40, Size { bytes: 100, pixels: 0 }),
        ..equal_times(chooser)
    }
}

fn events<T>(outcome: &Outcome<T>) -> Vec<Event> {
    outcome.recorder.events().to_vec()
}

#[test]
fn the_same_seed_is_the_same_run() {
    for chooser in [Chooser::Fifo, Chooser::Random(1)] {
        for config in [equal_times(chooser.clone()), varied(chooser.clone())] {
            let (a, b) = (lanes(config.clone()), lanes(config));
            assert_eq!(a.recorder.hash(), b.recorder.hash());
            assert_eq!((events(&a), a.end, a.tally, a.tape), (events(&b), b.end, b.tally, b.tape));
        }
    }
}

#[test]
fn another_seed_of_the_machine_is_other_luck() {
    let hashes: BTreeSet<u64> = (0..20).map(|seed| lanes(Config { seed, ..varied(Chooser::Fifo) }).recorder.hash()).collect();
    assert_eq!(hashes.len(), 20);
}

#[test]
fn chance_explores_distinct_orders_when_everything_is_due_at_once() {
    let traces: BTreeSet<u64> = (0..100).map(|seed| lanes(equal_times(Chooser::Random(seed))).recorder.hash()).collect();
    assert_eq!(traces.len(), 100);
}

#[test]
fn what_chance_found_is_replayed_from_its_tape() {
    for seed in 0..20 {
        for config in [equal_times(Chooser::Random(seed)), varied(Chooser::Random(seed))] {
            let found = lanes(config.clone());
            let tape = found.tape.clone().expect("kept");
            assert!(!tape.is_empty());
            let again = lanes(Config { chooser: Chooser::Replay(tape), ..config });
            assert_eq!((events(&again), again.end, again.tape), (events(&found), found.end, found.tape));
        }
    }
}

#[test]
fn an_empty_tape_is_first_come_first_served() {
    let fifo = lanes(equal_times(Chooser::Fifo));
    let replay = lanes(equal_times(Chooser::Replay(Tape::new())));
    assert_eq!((events(&fifo), fifo.tally), (events(&replay), replay.tally));
}

#[test]
fn one_choice_changed_is_another_order_of_the_same_work() {
    let fifo = lanes(equal_times(Chooser::Fifo));
    // Choices 0 to 4 are between lanes that are all alike; the next is between the ends of six reads.
    let other = lanes(equal_times(Chooser::Replay([(5, 1)].into_iter().collect())));
    assert!(events(&fifo) != events(&other));
    let ended = |outcome: &Outcome<()>| {
        let ends = events(outcome).into_iter().filter(|e| e.kind == Kind::End && e.stage == StageId::DECODE);
        let mut samples: Vec<u64> = ends.map(|e| e.sample).collect();
        samples.sort_unstable();
        samples
    };
    assert_eq!(ended(&fifo), ended(&other));
    assert_eq!(ended(&fifo), (0..40).collect::<Vec<_>>());
}

#[test]
fn stopping_anywhere_leaves_nothing() {
    for config in [equal_times(Chooser::Random(1)), varied(Chooser::Fifo), varied(Chooser::Random(2))] {
        for stop_at in 0..60 {
            let outcome = Simulation::<Tags>::new(config.clone())
                .run(|m| async move {
                    let next = Rc::new(Cell::new(0));
                    let lanes: Vec<_> = (0..6)
                        .map(|_| {
                            let (inner, next) = (m.clone(), next.clone());
                            m.spawn("lane", async move {
                                while next.get() < 40 {
                                    let sample = next.replace(next.get() + 1);
                                    one(&inner, sample).await;
                                }
                            })
                        })
                        .collect();
                    m.sleep(Duration::from_nanos(17 * stop_at)).await;
                    drop(lanes);
                    m.quiesce().await;
                    // A leaf that had ended may still be on its way through the scheduler; its answer goes to nobody.
                    m.sleep(Duration::from_nanos(1000)).await;
                })
                .expect("it stops");
            assert_eq!(outcome.left, Default::default(), "stopped at {} ns", 17 * stop_at);
        }
    }
}
