//! Going on from a saved state.

use std::collections::BTreeSet;

use towtank::{
    loader::{End, Order, Outcome, Settings, SettingsError, State, StateError, Tail},
    machine::Tags,
};

use crate::{
    content::{Case, case, machine},
    paused,
    scenario::{Consumer, Seen, load_world},
    world::{World, oracle, share},
};

fn run(seed: u64, settings: &Settings, world: World, consumer: Consumer) -> (Seen, Outcome) {
    paused::run::<Tags, _, _>(machine(seed), |machine| load_world(machine, settings.clone(), world, consumer)).value
}

/// As it would be after a restart.
fn saved(state: &State) -> State {
    serde_json::from_str(&serde_json::to_string(state).expect("a state is plain data")).expect("what was written")
}

fn from(state: &State, settings: &Settings) -> Settings {
    Settings { resume: Some(saved(state)), ..settings.clone() }
}

/// In plan order the rest must be what it was. In completion order the two parts must be the whole.
fn check_rest(settings: &Settings, whole: &Seen, k: usize, rest: &Seen, outcome: &Outcome) {
    assert_eq!(outcome.end, End::Finished);
    let first = whole.indices[k] + 1;
    assert_eq!(rest.indices, (first..first + rest.indices.len() as u64).collect::<Vec<_>>(), "numbers of batches go on");
    match settings.order {
        Order::Plan => assert_eq!(rest.batches, whole.batches[k + 1..]),
        Order::Completion => {
            let before = Seen { batches: whole.batches[..=k].to_vec(), ..Seen::default() };
            let (before, after) = (before.positions(), rest.positions());
            assert!(before.is_disjoint(&after), "nothing twice");
            if !settings.drop_last {
                let both: BTreeSet<_> = before.union(&after).copied().collect();
                assert_eq!(both, whole.positions());
            }
        }
    }
}

#[test]
fn a_run_goes_on_from_every_batch_and_from_every_batch_of_that() {
    let (mut cases, mut runs) = (0, 0);
    for seed in 2000..2120 {
        let _case = Case(seed);
        let Some((settings, world)) = case(seed) else { continue };
        let (whole, _) = run(seed, &settings, world, Consumer::EAGER);
        // Every state of short runs, some of long ones.
        let stride = whole.batches.len() / 25 + 1;
        for k in (0..whole.batches.len()).step_by(stride) {
            let window = settings.clone().resolve().expect("settings").window;
            match settings.order {
                Order::Plan => assert_eq!(whole.states[k].taken().span(), 0, "a prefix"),
                Order::Completion => assert!(whole.states[k].taken().span() <= window),
            }
            let resumed = from(&whole.states[k], &settings);
            let (rest, outcome) = run(seed + k as u64, &resumed, world, Consumer::EAGER);
            check_rest(&settings, &whole, k, &rest, &outcome);
            runs += 1;
            if let Some(j) = rest.states.len().checked_sub(1 + (k + seed as usize) % 7) {
                let (end, outcome) = run(seed, &from(&rest.states[j], &settings), world, Consumer::EAGER);
                check_rest(&settings, &rest, j, &end, &outcome);
                runs += 1;
            }
        }
        cases += 1;
    }
    assert!(cases > 80 && runs > 1000, "{cases} cases, {runs} runs");
}

#[test]
fn a_run_goes_on_in_a_world_of_another_size() {
    let mut merged_runs = 0;
    for seed in 3000..3040 {
        let _case = Case(seed);
        let Some((mut settings, world)) = case(seed) else { continue };
        settings.drop_last = false;
        if settings.tail == Tail::Drop {
            settings.tail = Tail::Uneven;
        }
        let (old, new) = (1 + (seed % 3) as u16, 1 + (seed / 3 % 4) as u16);
        let of = |rank, world| Settings { rank, world, resume: None, ..settings.clone() };
        let wholes: Vec<_> = (0..old).map(|rank| run(seed, &of(rank, old), world, Consumer::EAGER).0).collect();
        let fewest = wholes.iter().map(|whole| whole.batches.len()).min().expect("at least one rank");
        for k in 0..fewest {
            let states: Vec<State> = wholes.iter().map(|whole| saved(&whole.states[k])).collect();
            let Ok(merged) = State::merge(&states) else {
                // With failures, ranks that deliver uneven numbers of batches come to be in different epochs.
                assert!(
                    settings.tail == Tail::Uneven && world.bad_reads + world.bad_decodes > 0 || old > 1 && settings.epochs > 1
                );
                continue;
            };
            let epoch = merged.epoch();
            let mut positions: Vec<(u32, u64)> = Vec::new();
            for whole in &wholes {
                let until = &whole.batches[..=k];
                positions.extend(until.iter().flat_map(|b| b.positions.iter().map(|p| (b.epoch, *p))));
            }
            for rank in 0..new {
                let resumed = Settings { resume: Some(saved(&merged)), ..of(rank, new) };
                let (rest, outcome) = run(seed, &resumed, world, Consumer::EAGER);
                assert_eq!(outcome.end, End::Finished);
                positions.extend(rest.batches.iter().flat_map(|b| b.positions.iter().map(|p| (b.epoch, *p))));
            }
            positions.retain(|(e, p)| *e == epoch && *p < settings.samples);
            positions.sort_unstable();
            let everything = share(&Settings { rank: 0, world: 1, ..settings.clone() }, epoch.min(settings.epochs - 1));
            let mut expected: Vec<(u32, u64)> =
                everything.iter().filter(|item| !world.bad(**item)).map(|item| (item.epoch, item.position)).collect();
            expected.sort_unstable();
            if epoch < settings.epochs {
                assert_eq!(positions, expected, "every sample of the epoch once, k = {k}, {old} ranks, then {new}");
            }
            merged_runs += 1;
        }
    }
    assert!(merged_runs > 150, "{merged_runs}");
}

#[test]
fn a_state_of_another_run_is_refused_by_name() {
    let settings = Settings { shuffle: Some(1), dataset: 7, ..Settings::new(50, 4, crate::world::SLOT_BYTES) };
    let world = World { seed: 1, fetch_ms: 5, decode_ms: 5, bad_reads: 0, bad_decodes: 0 };
    let (seen, _) = run(1, &settings, world, Consumer::EAGER);
    let state = &seen.states[3];
    let refused = |change: fn(&mut Settings)| {
        let mut settings = from(state, &settings);
        change(&mut settings);
        match settings.resolve() {
            Err(SettingsError::Resume(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(|s| s.shuffle = Some(2)), "the state was saved with `shuffle` Some(1), and it is now Some(2)");
    assert_eq!(refused(|s| s.samples = 51), "the state was saved with `samples` 50, and it is now 51");
    assert_eq!(refused(|s| s.dataset = 8), "the state was saved with `dataset` 7, and it is now 8");
    assert_eq!(refused(|s| s.batch = 5), "the state was saved with `batch` 4, and it is now 5");
    assert_eq!(refused(|s| s.order = Order::Completion), "the state was saved with `order` Plan, and it is now Completion");
    assert!(refused(|s| s.world = 2).contains("merge the states of all ranks"));
    let mut json = serde_json::to_value(state).expect("plain data");
    json["version"] = 9.into();
    let other: State = serde_json::from_value(json).expect("a state");
    let error = from(&other, &settings).resolve().map(drop);
    assert_eq!(error, Err(SettingsError::Resume(StateError::Version { saved: 9, known: 1 })));
    assert_eq!(State::merge(&[state.clone(), state.clone()]), Err(StateError::Incomplete { rank: 0, found: 2 }));
}

#[test]
fn more_epochs_may_follow_a_run_that_was_over() {
    let settings = Settings { shuffle: Some(1), ..Settings::new(50, 4, crate::world::SLOT_BYTES) };
    let world = World { seed: 1, fetch_ms: 5, decode_ms: 5, bad_reads: 0, bad_decodes: 0 };
    let (seen, _) = run(1, &settings, world, Consumer::EAGER);
    let over = seen.states.last().expect("batches");
    let (nothing, outcome) = run(1, &from(over, &settings), world, Consumer::EAGER);
    assert_eq!((nothing.batches.len(), outcome.end), (0, End::Finished));
    let longer = Settings { epochs: 2, ..from(over, &settings) };
    let (second, _) = run(1, &longer, world, Consumer::EAGER);
    let both = oracle(&Settings { epochs: 2, ..settings }, &world);
    assert_eq!(second.batches, both.batches[seen.batches.len()..]);
}
