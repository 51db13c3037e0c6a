//! The loader under a thousand schedules, costs and faults.

use own_loader::{TakesFirst, load};
use towtank::{
    check,
    check::{Checked, Delivery, Job},
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

fn scenario() -> Scenario {
    scenario::parse("checked.toml", SCENARIO, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// The loader as the check runs it: what it delivers goes to the consumer that the scenario describes.
async fn design(takes_first: TakesFirst, machine: SimMachine<Tags>, mut job: Job) {
    let (plan, settings) = (job.plan().clone(), job.settings().clone());
    let deliver = async |batch: own_loader::Batch| job.give(Delivery::of(batch.items).skipped(batch.skipped)).await;
    load(machine, &plan, &settings, takes_first, deliver).await;
}

fn checked(takes_first: TakesFirst) -> Checked {
    let design = move |machine, job| design(takes_first, machine, job);
    check(&scenario()).design(&design).seeds(1_000).run().unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn it_is_right_under_a_thousand_seeds() {
    let checked = checked(TakesFirst::Room);
    assert!(checked.failures.is_empty(), "{}", checked.failures[0].story());
    assert_eq!(checked.seeds, 1_000);
}

#[test]
fn permits_taken_in_the_wrong_order_are_found_and_told() {
    let checked = checked(TakesFirst::Permit);
    let failure = checked.failures.first().expect("it deadlocks when reads overtake each other");
    let story = failure.story();
    // What a failure looks like: `cargo test -- --nocapture` shows it.
    println!("{story}");
    assert_eq!(failure.shrunk.finding.invariant, "progress");
    assert!(story.contains("waits for a permit of `decoding`, of which 2 of 2 are out: worker #"), "{story}");

    // The smallest case that fails, as a scenario; `check::replays` repeats it choice by choice.
    let shrunk = &failure.shrunk;
    let overrides = Overrides::default();
    let file = check::written("checked.toml", SCENARIO, &overrides, &shrunk.case, &shrunk.finding, &shrunk.run);
    let file = file.unwrap_or_else(|e| panic!("{e}"));
    println!("{file}");
    let again = |takes_first| {
        let design = move |machine, job| design(takes_first, machine, job);
        check::replays("failure.toml", &file, &design, &shrunk.finding).unwrap_or_else(|e| panic!("{e}"))
    };
    assert!(again(TakesFirst::Permit), "what was found is found again");
    assert!(!again(TakesFirst::Room), "and not once it is mended");
}
