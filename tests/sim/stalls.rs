//! Stall reports.

use std::{future::pending, time::Duration};

use towtank::{
    fault::{Faults, Hits},
    machine::{Machine, Tags},
    sim::{Config, CpuSpec, Dataset, SimMachine, Simulation, Size, Stall, StallReason, StoreSpec, WaitsFor},
    trace::StageId,
};

use crate::{JOB, op};

fn stalled() -> Box<Stall> {
    let config = Config {
        cpu: CpuSpec { cores: 2, speed_ppm: Vec::new() },
        pool_threads: 2,
        store: StoreSpec { connections: Some(2), ..StoreSpec::default() },
        dataset: Dataset::uniform(100, Size { bytes: 10, pixels: 0 }),
        faults: Faults { stalled: Hits::samples([12, 13]), ..Faults::default() },
        ..Config::default()
    };
    Simulation::<Tags>::new(config)
        .run(|m| async move {
            let _slots = m.slots(4, 1000).expect("memory");
            m.sleep(Duration::from_millis(3)).await;
            let read = |m: SimMachine<Tags>, sample| async move {
                drop(m.read(op(StageId::FETCH, sample)).await);
            };
            let _lanes = [12, 13, 14].map(|sample| m.spawn("lane", read(m.clone(), sample)));
            let _idle = [0, 1].map(|_| m.spawn("idle", pending()));
            m.cpu(op(StageId::DECODE, 1), JOB, || ()).await.expect("a job");
            pending::<()>().await;
        })
        .expect_err("nothing ever answers")
}

#[test]
fn a_stall_names_who_waits_for_what() {
    // Which line something is spawned at is not the point, that it is this file is.
    let report: Vec<String> = stalled()
        .to_string()
        .replace(std::path::MAIN_SEPARATOR, "/")
        .lines()
        .map(|line| match line.split_once(".rs:") {
            Some((place, _)) => format!("{place}.rs:LINE"),
            None => line.to_owned(),
        })
        .collect();
    insta::assert_snapshot!(report.join("\n"), @r"
    stalled at 3ms: nothing can happen any more, and the root task has not finished
    tasks:
      root waits for something that is no leaf: a channel, a lock, another task
        spawned at tests/sim/stalls.rs:LINE
      lane #1 waits for the read of sample 12, stage fetch: the store never answers, since 3ms
        spawned at tests/sim/stalls.rs:LINE
      lane #2 waits for the read of sample 13, stage fetch: the store never answers, since 3ms
        spawned at tests/sim/stalls.rs:LINE
      lane waits for the read of sample 14, stage fetch: in line for a connection, since 3ms
        spawned at tests/sim/stalls.rs:LINE
      idle (2 alike) waits for something that is no leaf: a channel, a lock, another task
        spawned at tests/sim/stalls.rs:LINE
    resources:
      cores: 0 active, 0 waiting
      pool: 0 of 2 taken, 0 waiting
      connections: 2 of 2 taken, 1 waiting, held by the read of sample 12, of lane #1; the read of sample 13, of lane #2
      copy engines: 0 of 1 taken, 0 waiting
    memory:
      slots: 4000 B, at most 4000 B
      device: 0 B, at most 0 B
    ");
}

#[test]
fn a_stall_is_data_too() {
    let stall = stalled();
    assert_eq!(stall.reason, StallReason::Stuck);
    let reads: Vec<_> = stall
        .waiting
        .iter()
        .filter_map(|w| match &w.on {
            WaitsFor::Leaf { item, .. } => Some((w.task, item.sample)),
            _ => None,
        })
        .collect();
    assert_eq!(reads, [("lane", 12), ("lane", 13), ("lane", 14)]);
    assert_eq!(stall.depths.iter().find(|d| d.resource == "connections").map(|d| (d.busy, d.waiting)), Some((2, 1)));
    assert_eq!(stall.recorder.count(), 3 + 2 + 2 + 1);
}

#[test]
fn a_sleeper_is_seen_asleep_when_a_limit_ends_the_run() {
    let limits = towtank::sim::Limits { time_ns: 5, ..Default::default() };
    let stall = Simulation::<Tags>::new(Config { limits, ..Config::default() })
        .run(|m| async move { m.sleep(Duration::from_nanos(8)).await })
        .expect_err("too long");
    assert_eq!(stall.waiting.iter().map(|w| w.on.to_string()).collect::<Vec<_>>(), ["sleeps until 8ns"]);
}
