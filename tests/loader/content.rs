//! What batches hold.

use towtank::{
    loader::{End, Order, Outcome, Settings, SettingsError},
    machine::{Pixels, Tags},
};

use crate::{
    paused,
    scenario::{Consumer, Seen, load_world},
    world::{Oracle, TestPayload, World, draw_case, oracle},
};

pub fn machine(seed: u64) -> paused::Config {
    paused::Config {
        seed,
        cores: 3,
        engines: 1 + seed as usize % 3,
        copy_ms: seed % 4,
        lends_slots: seed.is_multiple_of(2),
        failing_copy: None,
        kernels: 1 + seed as usize % 2,
        stage_ms: seed % 5,
        failing_stage: None,
        missing: None,
        memory_samples: usize::MAX,
    }
}

/// Holds what came against the oracle.
pub fn check(settings: &Settings, oracle: &Oracle, seen: &Seen, outcome: &Outcome) {
    assert_eq!(outcome.end, End::Finished);
    assert_eq!(seen.error, None);
    match settings.order {
        Order::Plan => assert_eq!(seen.batches, oracle.batches),
        Order::Completion => {
            let shape =
                |batches: &[crate::world::Expected]| -> Vec<_> { batches.iter().map(|b| (b.epoch, b.positions.len())).collect() };
            assert_eq!(shape(&seen.batches), shape(&oracle.batches));
            // What is dropped at the end of an epoch is a matter of timing then.
            let all = oracle.batches.iter().flat_map(|b| b.positions.iter().map(|p| (b.epoch, *p))).collect();
            if oracle.dropped == 0 {
                assert_eq!(seen.positions(), all);
            }
        }
    }
    let with_samples = seen.batches.iter().filter(|batch| !batch.positions.is_empty()).count();
    assert_eq!(seen.staged, if settings.device_stage.is_some() { with_samples } else { 0 });
    let mut skipped: Vec<_> = seen.skipped.iter().map(|(item, _)| *item).collect();
    skipped.extend(outcome.unreported.iter().map(|skipped| skipped.item));
    skipped.sort();
    let mut expected = oracle.skipped.clone();
    expected.sort();
    assert_eq!(skipped, expected);
    let accounts = outcome.accounts;
    assert!(accounts.balanced(), "{accounts}");
    assert_eq!(
        (accounts.planned, accounts.skipped, accounts.dropped, accounts.in_flight),
        (oracle.planned, oracle.skipped.len() as u64, oracle.dropped, 0)
    );
    clean(settings, outcome);
}

/// Nothing is left of a loader whose consumer holds nothing.
pub fn clean(settings: &Settings, outcome: &Outcome) {
    let resolved = settings.clone().resolve().expect("settings that fit together");
    assert!(outcome.accounts.balanced(), "{}", outcome.accounts);
    assert_eq!(outcome.memory.reserved_bytes, 0);
    assert!(outcome.memory.peak_reserved_bytes <= resolved.ledger_bytes, "{:?} of {}", outcome.memory, resolved.ledger_bytes);
    assert_eq!(outcome.memory.overruns, 0);
    assert_eq!(outcome.slots.home + outcome.slots.given_up, outcome.slots.ring);
    assert_eq!(outcome.slots.lent, 0);
}

pub fn case(seed: u64) -> Option<(Settings, World)> {
    let (settings, world) = draw_case(seed);
    match settings.clone().resolve() {
        Ok(_) => Some((settings, world)),
        // Too few samples for one batch.
        Err(SettingsError::NoBatch { .. }) => None,
        Err(error) => panic!("case {seed}: {error}"),
    }
}

/// Says which case it was when a test fails.
pub struct Case(pub u64);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in case {}: {:?}", self.0, draw_case(self.0));
        }
    }
}

fn on_paused_clock<P: TestPayload>(seed: u64) -> bool {
    let _case = Case(seed);
    let Some((settings, world)) = case(seed) else { return false };
    let consumer = Consumer { step_ms: [0, 3, 40_000][seed as usize % 3], ..Consumer::EAGER };
    let run = paused::run::<P, _, _>(machine(seed), |machine| load_world(machine, settings.clone(), world, consumer));
    let (seen, outcome) = run.value;
    let oracle = oracle(&settings, &world);
    check(&settings, &oracle, &seen, &outcome);
    assert_eq!(run.left, (0, 0));
    true
}

#[test]
fn content_is_a_function_of_the_plan_and_of_what_failed() {
    let cases = (0..600).filter(|seed| on_paused_clock::<Tags>(*seed)).count();
    assert!(cases > 400, "{cases}");
}

#[test]
fn every_pixel_arrives_where_it_belongs() {
    for seed in 1000..1100 {
        on_paused_clock::<Pixels>(seed);
    }
}
