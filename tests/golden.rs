//! The trace of a pinned scenario on a pinned machine, event for event: its hash is the same in debug and release, in every process, and on
//! every computer. A change of a hash is a change of behaviour, to be explained in the commit that makes it.

use std::{fmt::Write, process::Command};

use towtank::{
    model,
    scenario::{self, Overrides, REFERENCE},
    trace::Recorder,
};

const PINNED: [&str; 4] = ["quickstart", "slow-store", "tiny-memory", "flaky-store"];

fn simulated(name: &str, seed: Option<u64>) -> (String, u64, f64) {
    let overrides = Overrides { seed, ..Overrides::default() };
    let scenario = scenario::load(name, &overrides).expect("a scenario of the program");
    let machine = model::load(REFERENCE).expect("a machine of the program");
    let samples = scenario.samples().expect("a dataset").expect("no folder");
    let simulated = scenario.simulate(&machine, &samples, Recorder::new()).expect("it ends");
    let metrics = simulated.metrics;
    (metrics.trace_hash.expect("simulations repeat"), metrics.events, metrics.duration_s)
}

#[test]
fn pinned_traces_stay_as_they_are() {
    let mut out = String::new();
    for name in PINNED {
        let (hash, events, end_s) = simulated(name, None);
        writeln!(out, "{name}: {hash}, {events} events, ends after {end_s:.9} s").unwrap();
    }
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(out) });
}

#[test]
fn another_process_hashes_alike() {
    for name in PINNED {
        let machine = format!("machine={REFERENCE}");
        let told = Command::new(env!("CARGO_BIN_EXE_towtank"))
            .args(["sim", name, "--json", "--set", &machine])
            .output()
            .expect("the program runs");
        let errors = String::from_utf8_lossy(&told.stderr);
        assert!(told.status.success(), "{errors}");
        let report: serde_json::Value = serde_json::from_slice(&told.stdout).expect("a report in JSON");
        assert_eq!(report["simulated"]["trace_hash"], simulated(name, None).0, "{name}");
    }
}

#[test]
fn the_same_seed_repeats_and_another_differs() {
    let hash = |seed| simulated("flaky-store", Some(seed)).0;
    assert_eq!(hash(11), hash(11));
    assert_ne!(hash(11), hash(12));
}
