//! One look at a case: a run, what invariants say of it, and what it is compared with.

use super::{
    case::{Base, Case},
    design::Design,
    marks::{Mark, Reached},
    plan::{self, PLAN_WHOLE},
    redeal::{self, REDEAL_EXACT},
    relation,
    run::{Compared, Finding, Run, run},
    swarm::{Compare, plan_case},
};
use crate::document::Trouble;

/// What came of it.
pub(super) struct Looked {
    /// The case; a batch to go on from is in it when it went on.
    pub(super) case: Case,
    pub(super) run: Run,
    pub(super) finding: Option<Finding>,
    pub(super) reached: Reached,
    /// Runs that it took.
    pub(super) runs: u64,
}

/// Looks at a case; with `only`, for what breaks the invariant or relation of this name alone.
pub(super) fn look(
    base: &Base,
    case: Case,
    design: &dyn Design,
    compare: Compare,
    only: Option<&str>,
) -> Result<Looked, Trouble> {
    if only == Some(PLAN_WHOLE) {
        let (finding, run) = plan::look(base, &case)?;
        return Ok(Looked { case, run, finding, reached: Reached::default(), runs: 0 });
    }
    let run = run(base, &case, design, None)?;
    judge(base, case, design, compare, only, run)
}

/// Looks at a case that has run.
pub(super) fn judge(
    base: &Base,
    mut case: Case,
    design: &dyn Design,
    compare: Compare,
    only: Option<&str>,
    mut run: Run,
) -> Result<Looked, Trouble> {
    let mut reached = Reached::of(&run);
    let mut finding = run.judge(&case, only);
    let mut others = Compared::new(base, design);
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    if finding.is_none() && run.panic.is_none() {
        let mut mark = None;
        finding = match compare {
            Compare::Again if wanted(relation::SAME_RUN) => {
                mark = Some(Mark::Again);
                relation::same_run(&mut others, &case, &run)?
            }
            Compare::Sequential if wanted(relation::SAME_ORDER) => {
                mark = Some(Mark::Sequential);
                relation::same_order(&mut others, &case, &run)?
            }
            Compare::Redealt(part) if case.scenario.consumer.leave_after.is_none() && wanted(REDEAL_EXACT) => {
                mark = Some(Mark::Redealt);
                let batches = run.got_by(0).count() as u64;
                let k = case.resume_after.unwrap_or((part * batches) >> 32);
                case.resume_after = Some(k);
                redeal::redeal(&mut others, &case, &run, k)?
            }
            Compare::OtherPlan if wanted(PLAN_WHOLE) => {
                reached.mark(Mark::PlanDrawn);
                let drawn = plan_case(&case.scenario);
                // A world that does not fit together is none.
                match plan::look(base, &drawn) {
                    Ok((Some(finding), planned)) => {
                        (case, run) = (drawn, planned);
                        Some(finding)
                    }
                    Ok((None, _)) | Err(_) => None,
                }
            }
            Compare::OtherSeed if wanted(relation::SEEDS_DIFFER) => {
                mark = Some(Mark::OtherSeed);
                relation::other_seed(&mut others, &case, &run)?
            }
            Compare::Resumed(part) if case.scenario.consumer.leave_after.is_none() && wanted(relation::RESUME_EXACT) => {
                mark = Some(Mark::Resumed);
                let batches = run.plans.first().map_or(0, |_| run.got_by(0).count()) as u64;
                let k = case.resume_after.unwrap_or((part * batches) >> 32);
                match batches {
                    0 => None,
                    _ => {
                        case.resume_after = Some(k);
                        relation::resume(&mut others, &case, &run, k)?
                    }
                }
            }
            _ => None,
        };
        // Where there was nothing to go on from, or no order to keep, nothing ran.
        if let Some(mark) = mark.filter(|_| others.runs > 0) {
            reached.mark(mark);
        }
        if finding.as_ref().is_none_or(|finding| ![relation::RESUME_EXACT, REDEAL_EXACT].contains(&finding.invariant)) {
            case.resume_after = case.resume_after.filter(|_| only.is_some());
        }
    }
    Ok(Looked { case, run, finding, reached, runs: 1 + others.runs })
}

/// What a run must be compared with for this invariant or relation to be looked at.
pub(super) fn compare_for(invariant: &str) -> Compare {
    match invariant {
        relation::SAME_RUN => Compare::Again,
        relation::SAME_ORDER => Compare::Sequential,
        relation::SEEDS_DIFFER => Compare::OtherSeed,
        relation::RESUME_EXACT => Compare::Resumed(0),
        REDEAL_EXACT => Compare::Redealt(0),
        _ => Compare::Nothing,
    }
}
