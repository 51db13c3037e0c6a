//! Going on with another number of ranks.

use std::collections::BTreeSet;

use super::{
    case::Case,
    invariant::{Broken, of_rank},
    relation::failed,
    run::{Compared, Finding, From, NO_PANIC, Run},
    swarm::pick,
};
use crate::{
    document::Trouble,
    loader::{SettingsError, State, StateError, Tail},
};

/// The states of all ranks, joined, are where any number of ranks goes on: what is left of the epoch comes once, and nothing that was had
/// before; and so again, when the ranks of that world are joined and dealt out anew. Broken by a state that forgets what was gone before the
/// present ranks began, and by shares of what is left that overlap.
pub const REDEAL_EXACT: &str = "redeal_exact";

/// Worlds that go on one after the other.
const WORLDS: u64 = 2;
/// Most ranks of one.
const RANKS_MOST: u64 = 4;

/// Joins the states after batch `k` of every rank, has another world go on, and then another one. Where a sample failed, a rank has no
/// such batch, or ranks are in different epochs, it says nothing.
pub(super) fn redeal(others: &mut Compared<'_>, case: &Case, whole: &Run, k: u64) -> Result<Option<Finding>, Trouble> {
    let seed = case.scenario.seed;
    let Some(settings) = whole.plans.first().map(|plan| plan.settings.clone()) else { return Ok(None) };
    // What a tail leaves out is no rank's, and who has it is another question in another world.
    if usize::from(settings.world) != whole.plans.len() || settings.drop_last || settings.tail == Tail::Drop {
        return Ok(None);
    }
    let mut had: BTreeSet<(u32, u64)> = BTreeSet::new();
    let (mut before, mut after): (Option<Run>, u64) = (None, k);
    for world in 0..WORLDS {
        let of = before.as_ref().unwrap_or(whole);
        let Some(states) = states(of, after) else { return Ok(None) };
        had.extend(positions(of, after, settings.samples));
        let told = |why: String| Finding { invariant: REDEAL_EXACT, broken: Broken::new(why).at(of.end) };
        let joined = match State::merge(&states) {
            Ok(joined) => joined,
            Err(StateError::Apart { .. }) => return Ok(None),
            Err(error) => return Ok(Some(told(format!("the states of {} ranks cannot be joined: {error}", states.len())))),
        };
        let epoch = joined.epoch();
        if epoch >= settings.epochs {
            return Ok(None);
        }
        let mut on = Case { resume_after: None, ..case.clone() };
        on.scenario.consumer.leave_after = None;
        on.scenario.ranks.count = 1 + pick(seed, 67 + world, RANKS_MOST) as u16;
        (on.scenario.loader.rank, on.scenario.loader.world) = (0, on.scenario.ranks.count);
        let ranks = usize::from(on.scenario.ranks.count);
        // A world that does not fit together is none, but the state has to fit.
        let Ok(plans) = others.base.plans(&on.scenario) else { return Ok(None) };
        for plan in plans {
            let resumed = crate::loader::Settings { resume: Some(joined.clone()), ..plan.settings };
            if let Err(SettingsError::Resume(error)) = resumed.resolve() {
                return Ok(Some(told(format!("{ranks} ranks cannot go on from the states of {}: {error}", states.len()))));
            }
        }
        let rest = others.run(&on, Some(&From::States(vec![joined; ranks])))?;
        if let Some(Finding { invariant, broken }) = rest.judge(&on, None) {
            let why =
                format!("{ranks} ranks going on after batch {after} of {}, {invariant} is broken: {}", states.len(), broken.why);
            let invariant = if invariant == NO_PANIC { NO_PANIC } else { REDEAL_EXACT };
            return Ok(Some(Finding { invariant, broken: Broken { why, ..broken } }));
        }
        if !failed(&rest).is_empty() || (0..ranks).any(|rank| !rest.ended().finished(rank as u16)) {
            return Ok(None);
        }
        let came = positions(&rest, u64::MAX, settings.samples);
        for position in 0..settings.samples {
            let place = (epoch, position);
            if had.contains(&place) != came.contains(&place) {
                continue;
            }
            let which = if had.contains(&place) { "came a second time" } else { "never came" };
            let why = format!(
                "{ranks} ranks going on after batch {after} of {}: position {position} of epoch {epoch} {which}",
                states.len()
            );
            return Ok(Some(Finding { invariant: REDEAL_EXACT, broken: Broken::new(of_rank(0, 1, why)).at(rest.end) }));
        }
        // The next world goes on within the epoch, where it can.
        let steps = rest.got_by(0).take_while(|got| got.epoch == epoch).count() as u64;
        after = pick(seed, 80 + world, steps.max(1));
        before = Some(rest);
    }
    Ok(None)
}

/// The states after batch `k` of every rank, counted from the first of its run; `None` where a rank has none, or a sample failed.
fn states(of: &Run, k: u64) -> Option<Vec<State>> {
    let k = usize::try_from(k).ok()?;
    let state = |rank: u16| of.got_by(rank).nth(k).and_then(|got| got.state.clone());
    failed(of).is_empty().then(|| (0..of.plans.len() as u16).map(state).collect()).flatten()
}

/// Places that came up to batch `k` of every rank, counted from the first of its run, but for padding.
fn positions(of: &Run, k: u64, samples: u64) -> BTreeSet<(u32, u64)> {
    let most = usize::try_from(k.saturating_add(1)).unwrap_or(usize::MAX);
    let of_rank = |rank: u16| of.got_by(rank).take(most).flat_map(|got| &got.items);
    let items = (0..of.plans.len() as u16).flat_map(of_rank);
    items.filter(|item| item.position < samples).map(|item| (item.epoch, item.position)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        check::{Base, OwnLoader, run::run},
        scenario::{Overrides, load},
        sim::{Chooser, Timing},
    };

    /// A case of three ranks, its run, and what is said of going on after its first batch; `change` is done to the run's batches before.
    fn judged(change: impl FnOnce(&mut Run)) -> Option<Finding> {
        let sets = ["machine=reference-2core", "dataset.count=50", "loader.batch=4", "loader.epochs=2", "ranks.count=3"];
        let scenario = load("quickstart", &Overrides::set(sets)).expect("a scenario");
        let base = Base::new(&scenario, 50).expect("it fits");
        let scenario = base.scenario.clone();
        let case = Case { scenario, chooser: Chooser::Fifo, timing: Timing::Modelled, resume_after: None };
        let mut whole = run(&base, &case, &OwnLoader, None).expect("it runs");
        change(&mut whole);
        redeal(&mut Compared::new(&base, &OwnLoader), &case, &whole, 1).expect("it runs")
    }

    #[test]
    fn other_worlds_go_on_exactly() {
        assert_eq!(judged(|_| {}), None);
    }

    #[test]
    fn a_state_that_forgets_what_was_had_breaks_it() {
        // The state after the first batch for that after the second: four samples are dealt out again.
        let forgetful = judged(|whole| {
            let first = whole.got.iter().find(|got| got.rank == 1).and_then(|got| got.state.clone());
            let second = whole.got.iter_mut().filter(|got| got.rank == 1).nth(1);
            second.expect("it has five batches").state = first;
        });
        let finding = forgetful.expect("samples come twice");
        assert_eq!(finding.invariant, REDEAL_EXACT);
        assert!(finding.broken.why.ends_with("of epoch 0 came a second time"), "{}", finding.broken.why);
    }

    #[test]
    fn states_that_are_not_one_of_each_rank_break_it() {
        let twice = judged(|whole| {
            let of_first = whole.got.iter().filter(|got| got.rank == 0).nth(1).and_then(|got| got.state.clone());
            let of_second = whole.got.iter_mut().filter(|got| got.rank == 1).nth(1);
            of_second.expect("it has five batches").state = of_first;
        });
        let why = twice.expect("rank 1 is missing").broken.why;
        assert!(why.starts_with("the states of 3 ranks cannot be joined"), "{why}");
    }
}
