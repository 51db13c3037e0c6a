//! What must hold between two runs of one case.

use std::{collections::BTreeSet, fmt::Write};

use super::{
    case::Case,
    design::Got,
    invariant::{Broken, of_rank},
    run::{Compared, Finding, From, NO_PANIC, Run},
};
use crate::{
    document::Trouble,
    failure::FailureKind,
    loader::{Error, Order},
    sim::Chooser,
    trace::Event,
};

/// The same case is the same run, event for event, and delivers the same. Broken by what a seed does not determine: a clock, a hash map's order, an address.
pub const SAME_RUN: &str = "same_run_again";
/// In plan order batches are a function of the plan and of the samples that failed: one lane and one thread, first come first served,
/// deliver the same. Broken by content that depends on who was faster.
pub const SAME_ORDER: &str = "same_order_any_schedule";
/// A run that goes on from the state after any batch delivers what the uninterrupted run would have. Broken by a state that counts what
/// was prefetched, and by one that forgets what failed.
pub const RESUME_EXACT: &str = "resume_exact";

/// Another seed is another order of a shuffled dataset. Broken by a generator that begins in a fixed state, whatever it is told.
pub const SEEDS_DIFFER: &str = "seeds_differ";

/// Samples from which on two orders are compared: two random orders of so many agree once in 10¹⁸.
const LEAST: usize = super::invariant::EpochsDiffer::LEAST;

/// Runs the case with the next seed, and compares the first samples of a shuffled order.
pub(super) fn other_seed(others: &mut Compared<'_>, case: &Case, first: &Run) -> Result<Option<Finding>, Trouble> {
    if first.plans.iter().any(|plan| plan.settings.order != Order::Plan || plan.settings.shuffle.is_none()) {
        return Ok(None);
    }
    let mut other = case.clone();
    other.scenario.seed = case.scenario.seed.wrapping_add(1);
    let second = others.run(&other, None)?;
    for rank in 0..first.plans.len() as u16 {
        let samples = |run: &Run| -> Vec<u64> {
            run.got_by(rank).flat_map(|got| &got.items).filter(|item| item.epoch == 0).map(|item| item.sample).collect()
        };
        let (a, b) = (samples(first), samples(&second));
        let both = a.len().min(b.len());
        if both >= LEAST && a[..both] == b[..both] {
            let why = format!(
                "the first {both} samples came in the same order under seeds {} and {}",
                case.scenario.seed, other.scenario.seed
            );
            let broken = Broken { rank: Some(rank), ..Broken::new(of_rank(rank, first.plans.len(), why)).at(first.end) };
            return Ok(Some(Finding { invariant: SEEDS_DIFFER, broken }));
        }
    }
    Ok(None)
}

/// Runs the case again and compares event by event.
pub(super) fn same_run(others: &mut Compared<'_>, case: &Case, first: &Run) -> Result<Option<Finding>, Trouble> {
    let second = others.run(case, None)?;
    Ok(difference(first, &second).map(|broken| Finding { invariant: SAME_RUN, broken }))
}

/// Where two runs part: the first event in which they differ, as both have it; where all events are the same, the first batch.
fn difference(first: &Run, second: &Run) -> Option<Broken> {
    if let Some(range) = first.checkpoints.part(&second.checkpoints) {
        let number = range.clone().find(|k| event(first, *k) != event(second, *k)).unwrap_or(range.end);
        let (a, b) = (event(first, number), event(second, number));
        let why = format!(
            "the same case ran differently from event {number} of {} on: first {}; then {}",
            first.events.len().max(second.events.len()),
            words(a, b),
            words(b, a)
        );
        let broken = Broken::new(why);
        return Some(match (a, b) {
            (Some(event), _) | (None, Some(event)) => Broken { rank: Some(event.rank), ..broken.at(event.time) },
            (None, None) => broken,
        });
    }
    if first.panic != second.panic {
        let panicked =
            |run: &Run| run.panic.as_ref().map_or("it did not panic".to_owned(), |words| format!("it panicked: {words}"));
        return Some(Broken::new(format!(
            "the same case ended differently: first {}; then {}",
            panicked(first),
            panicked(second)
        )));
    }
    if first.content_hash() == second.content_hash() {
        return None;
    }
    let batches = first.got.len().max(second.got.len());
    let same =
        |a: &Got, b: &Got| (a.rank, a.index, a.epoch, &a.items, &a.draws) == (b.rank, b.index, b.epoch, &b.items, &b.draws);
    let number = (0..batches).find(|k| !first.got.get(*k).zip(second.got.get(*k)).is_some_and(|(a, b)| same(a, b)))?;
    let (a, b) = (first.got.get(number), second.got.get(number));
    let told = |got: Option<&Got>| match got {
        None => "nothing more".to_owned(),
        Some(got) => format!("batch {} of rank {} with {}, drawn {:?}", got.index, got.rank, list(got), got.draws),
    };
    let why = format!("the same events delivered other batches from the {number}th on: first {}; then {}", told(a), told(b));
    let broken = Broken::new(why);
    Some(a.or(b).map_or(broken.clone(), |got| broken.at(got.at).by_batch(got.rank, got.index)))
}

fn event(run: &Run, number: u64) -> Option<&Event> {
    run.events.get(usize::try_from(number).ok()?)
}

/// An event of one run, with all in which that of the other differs.
fn words(event: Option<&Event>, other: Option<&Event>) -> String {
    let Some(e) = event else { return "nothing more".to_owned() };
    let stage = e.stage.name().map_or(format!("stage {}", e.stage.0), |name| format!("stage {name}"));
    let kind = format!("{:?}", e.kind).to_lowercase();
    let mut words = format!("{kind} of {} in {stage} at {}", e.sample, e.time);
    let Some(other) = other else { return words };
    if e.epoch != other.epoch {
        _ = write!(words, ", epoch {}", e.epoch);
    }
    if e.rank != other.rank {
        _ = write!(words, ", rank {}", e.rank);
    }
    if e.since != other.since {
        _ = write!(words, ", since {}", e.since);
    }
    if e.bytes != other.bytes {
        _ = write!(words, ", {} B", e.bytes);
    }
    words
}

/// Runs the case with one lane and one thread, and compares what was delivered. Where other samples failed, it says nothing.
pub(super) fn same_order(others: &mut Compared<'_>, case: &Case, whole: &Run) -> Result<Option<Finding>, Trouble> {
    if whole.plans.iter().any(|plan| plan.settings.order != Order::Plan) {
        return Ok(None);
    }
    let mut alone = Case { chooser: Chooser::Fifo, ..case.clone() };
    alone.scenario.loader.lanes = Some(1);
    alone.scenario.loader.threads = Some(1);
    alone.scenario.loader.fetch_limit = None;
    alone.scenario.loader.decode_limit = None;
    let sequential = others.run(&alone, None)?;
    if failed(whole) != failed(&sequential) || sequential.stall.is_some() {
        return Ok(None);
    }
    for rank in 0..whole.plans.len() as u16 {
        let pairs = whole.got_by(rank).zip(sequential.got_by(rank));
        for (got, expected) in pairs {
            if (got.epoch, &got.items, &got.draws) != (expected.epoch, &expected.items, &expected.draws) {
                let why = match got.items == expected.items {
                    false => format!("batch {} held {}, and with one lane {}", got.index, list(got), list(expected)),
                    true => format!("the samples of batch {} were augmented by other numbers than with one lane", got.index),
                };
                let broken = Broken::new(of_rank(rank, whole.plans.len(), why)).at(got.at).by_batch(rank, got.index);
                return Ok(Some(Finding { invariant: SAME_ORDER, broken }));
            }
        }
    }
    Ok(None)
}

fn list(got: &Got) -> String {
    let samples: Vec<String> = got.items.iter().map(|item| item.sample.to_string()).collect();
    format!("samples {}", samples.join(", "))
}

/// Samples that a run's consumers were told of as failed.
pub(super) fn failed(run: &Run) -> BTreeSet<(u16, u32, u64)> {
    let mut failed: BTreeSet<_> =
        run.got.iter().flat_map(|got| got.skipped.iter().map(|s| (got.rank, s.item.epoch, s.item.position))).collect();
    for end in &run.ends {
        if let Some(Error::Sample { item, .. } | Error::TooManySkipped { item, .. }) = &end.error {
            failed.insert((end.rank, item.epoch, item.position));
        }
        let unreported = end.outcome.iter().flat_map(|outcome| &outcome.unreported);
        failed.extend(unreported.map(|s| (end.rank, s.item.epoch, s.item.position)));
    }
    failed
}

/// Goes on from the state after batch `k` of every rank, and compares with the rest. Where a rank has no such batch, or samples or
/// copies failed that time decides about, it says nothing.
pub(super) fn resume(others: &mut Compared<'_>, case: &Case, whole: &Run, k: u64) -> Result<Option<Finding>, Trouble> {
    let of_rank_k = |rank: u16| whole.got_by(rank).nth(usize::try_from(k).unwrap_or(usize::MAX));
    let ranks = || 0..whole.plans.len() as u16;
    let states = ranks().map(|rank| of_rank_k(rank).and_then(|got| got.state.clone())).collect::<Option<_>>();
    let saved = || ranks().map(|rank| of_rank_k(rank).and_then(|got| got.saved.clone())).collect::<Option<_>>();
    let from = states.map(From::States).or_else(|| Some(From::Saved(saved()?, k + 1)));
    let finished = ranks().all(|rank| whole.ended().finished(rank));
    let (Some(from), true) = (from, finished) else { return Ok(None) };
    let mut on = Case { resume_after: None, ..case.clone() };
    on.scenario.consumer.leave_after = None;
    let rest = others.run(&on, Some(&from))?;
    // What the others count on is a plan that begins where the run does, and the design's own state does not say where that is.
    let whole_plan = [NO_PANIC, "progress", "clean_stop"];
    let judged = match from {
        From::States(_) => rest.judge(&on, None),
        From::Saved(..) => whole_plan.iter().find_map(|name| rest.judge(&on, Some(name))),
    };
    if let Some(Finding { invariant, broken }) = judged {
        let why = format!("going on after batch {k}, {invariant} is broken: {}", broken.why);
        let invariant = if invariant == NO_PANIC { NO_PANIC } else { RESUME_EXACT };
        return Ok(Some(Finding { invariant, broken: Broken { why, ..broken } }));
    }
    let told_before: BTreeSet<_> = whole
        .got
        .iter()
        .filter(|got| got.index <= states_index(whole, got.rank, k))
        .flat_map(|got| got.skipped.iter().map(|s| (got.rank, s.item.epoch, s.item.position)))
        .collect();
    let expected_failures: BTreeSet<_> = failed(whole).difference(&told_before).copied().collect();
    let broken = |rank: u16, why: String| {
        let broken = Broken { rank: Some(rank), ..Broken::new(of_rank(rank, whole.plans.len(), why)).at(rest.end) };
        Ok(Some(Finding { invariant: RESUME_EXACT, broken }))
    };
    // Which batches are copied, and so may fail, depends on where they lie in the ring; which jobs are late, on what else there is to do.
    let by_time =
        |error: &Error| matches!(error, Error::Fatal(failure) if matches!(failure.kind, FailureKind::Device | FailureKind::Lost));
    let ended_otherwise = rest.ends.iter().filter_map(|end| end.error.as_ref()).any(by_time);
    if ended_otherwise || failed(&rest) != expected_failures {
        return Ok(None);
    }
    for rank in 0..whole.plans.len() as u16 {
        let expected: Vec<&Got> = whole.got_by(rank).skip(k as usize + 1).collect();
        let got: Vec<&Got> = rest.got_by(rank).collect();
        if whole.plans[usize::from(rank)].settings.order == Order::Plan {
            for (got, expected) in got.iter().zip(&expected) {
                if (got.index, got.epoch, &got.items) != (expected.index, expected.epoch, &expected.items) {
                    let why = format!(
                        "going on after batch {k}, batch {} held {}; the uninterrupted run's batch {} held {}",
                        got.index,
                        list(got),
                        expected.index,
                        list(expected)
                    );
                    return broken(rank, why);
                }
            }
            if got.len() != expected.len() {
                let why = format!("going on after batch {k}, {} batches came and not {}", got.len(), expected.len());
                return broken(rank, why);
            }
        } else if !whole.plans[usize::from(rank)].settings.drop_last {
            let positions = |batches: &[&Got]| -> BTreeSet<(u32, u64)> {
                batches.iter().flat_map(|got| got.items.iter().map(|item| (item.epoch, item.position))).collect()
            };
            let (got, expected) = (positions(&got), positions(&expected));
            if let Some(position) = got.symmetric_difference(&expected).next() {
                let which = if got.contains(position) { "came a second time" } else { "never came" };
                let why = format!("going on after batch {k}, position {} of epoch {} {which}", position.1, position.0);
                return broken(rank, why);
            }
        }
    }
    Ok(None)
}

/// Index of a rank's batch number `k` of the run.
fn states_index(whole: &Run, rank: u16, k: u64) -> u64 {
    whole.got_by(rank).nth(k as usize).map_or(0, |got| got.index)
}
