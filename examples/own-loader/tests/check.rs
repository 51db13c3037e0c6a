//! The loader under many schedules, costs, faults and settings, and under every failure that was once found.

use std::{fs, path::Path};

use own_loader::{Batch, TakesFirst, load};
use towtank::{
    check,
    check::{Check, Delivery, Failure, Job},
    machine::Tags,
    scenario::{self, Overrides, Scenario},
    sim::SimMachine,
};

/// Forty samples twice over from an object store, of which some cannot be decoded and some reads are slow.
const SCENARIO: &str = r#"
title = "Checked"
machine = "reference-2core"
[dataset]
count = 40
[store]
kind = "object"
[loader]
batch = 4
lanes = 12
epochs = 2
errors = "skip"
budget = "1 GiB"
[faults]
undecodable = "5 %"
slow_reads = "10 %"
"#;

fn parsed(name: &str, text: &str) -> Scenario {
    scenario::parse(name, text, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// The loader as the check runs it: what it delivers goes to the consumer that the scenario describes, and so does the error that ends it.
async fn run(takes_first: TakesFirst, machine: SimMachine<Tags>, mut job: Job) {
    let (plan, settings) = (job.plan().clone(), job.settings().clone());
    let deliver = async |Batch { epoch, items, skipped }| job.give(Delivery::of(items).epoch(epoch).skipped(skipped)).await;
    if let Err(error) = load(machine, &plan, &settings, takes_first, deliver).await {
        job.fail(error);
    }
}

async fn sound(machine: SimMachine<Tags>, job: Job) {
    run(TakesFirst::Room, machine, job).await;
}

async fn defective(machine: SimMachine<Tags>, job: Job) {
    run(TakesFirst::Permit, machine, job).await;
}

/// A failure as the scenario that repeats it, choice by choice: what to keep in `regressions/`.
fn file_of(failure: &Failure) -> String {
    let shrunk = &failure.shrunk;
    check::written("checked.toml", SCENARIO, &Overrides::default(), &shrunk.case, &shrunk.finding, &shrunk.run)
        .unwrap_or_else(|e| panic!("{e}"))
}

fn holds(check: Check<'_>) {
    let checked = check.run().unwrap_or_else(|e| panic!("{e}"));
    if let Some(failure) = checked.failures.first() {
        panic!("{}\n{}", failure.story(), file_of(failure));
    }
}

#[test]
fn it_is_right_under_a_thousand_seeds() {
    holds(check(&parsed("checked.toml", SCENARIO)).design(&sound).seeds(1_000));
}

#[test]
fn it_is_right_under_other_settings_and_faults_too() {
    holds(check(&parsed("checked.toml", SCENARIO)).design(&sound).seeds(500).swarm(true));
}

#[test]
fn permits_taken_in_the_wrong_order_are_found_and_told() {
    let checked = check(&parsed("checked.toml", SCENARIO)).design(&defective).seeds(1_000).run();
    let checked = checked.unwrap_or_else(|e| panic!("{e}"));
    let failure = checked.failures.first().expect("it deadlocks when reads overtake each other");
    let (story, file) = (failure.story(), file_of(failure));
    // What a failure looks like: `cargo test -- --nocapture` shows it.
    println!("{story}\n{file}");
    assert_eq!(failure.shrunk.finding.invariant, "progress");
    assert!(story.contains("waits for a permit of `decoding`, of which 2 of 2 are out: worker #"), "{story}");
    let again = check::replays("failure.toml", &file, &defective, &failure.shrunk.finding);
    assert!(again.unwrap_or_else(|e| panic!("{e}")), "what was found is found again");
}

#[test]
fn what_was_once_found_stays_mended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut files = 0;
    for entry in fs::read_dir(folder).expect("a folder of failures") {
        let path = entry.expect("a file").path();
        let name = path.display().to_string();
        let failure = parsed(&name, &fs::read_to_string(&path).expect("a failure"));
        let mended = check::replay(&failure, &sound).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(mended.finding, None, "{name}");
        // A schedule fits the loader that it was found in; one that breaks nothing any more even there would show nothing.
        let broken = check::replay(&failure, &defective).unwrap_or_else(|e| panic!("{e}"));
        assert!(broken.finding.is_some(), "{name} breaks the defective loader no longer: find the failure anew");
        files += 1;
    }
    assert!(files > 0, "there is no failure to repeat");
}
