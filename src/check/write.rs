//! A failure as a scenario's file, and back.

use super::{
    case::{Base, Case, count},
    design::Design,
    look::{compare_for, look},
    plan::PLAN_WHOLE,
    redeal::REDEAL_EXACT,
    relation,
    run::{Finding, NO_PANIC, Run},
    shrink::families,
    story::FAMILIES,
};
use crate::{
    document::{Diagnostic, Trouble},
    fault::Hits,
    scenario::{self, Allowed, MachineChoice, Overrides, Scenario, rewritten},
    sim::{Chooser, Timing},
    units::{Count, Fraction, nearest},
};

/// How the file of a failure begins.
pub const FAILURE: &str = "# Found by towtank check";

/// Names of all invariants and relations.
pub const NAMES: &[&str] = &[
    "progress",
    "exactly_once",
    "order_kept",
    "ranks_disjoint_complete_equal",
    "errors_surfaced_or_counted",
    "errors_justified",
    "state_kept",
    "retries_justified",
    "bytes_within_budget",
    "slots_not_reused_early",
    "work_conservation",
    "clean_stop",
    "streams_distinct",
    "epochs_differ",
    "batches_whole",
    "content_intact",
    PLAN_WHOLE,
    relation::SAME_RUN,
    relation::SAME_ORDER,
    relation::RESUME_EXACT,
    REDEAL_EXACT,
    relation::SEEDS_DIFFER,
    NO_PANIC,
];

/// A failure as a complete scenario: the text of the scenario that was checked, `name` in errors, with `overrides` and what the case
/// changed written into it, and a `[replay]` table.
///
/// # Errors
///
/// When the text is not TOML.
pub fn written(
    name: &str,
    text: &str,
    overrides: &Overrides,
    case: &Case,
    finding: &Finding,
    run: &Run,
) -> Result<String, Trouble> {
    let fields = fields(case, finding, run);
    let body = rewritten(name, text, overrides, &fields)?;
    let body = body.strip_prefix(FAILURE).and_then(|rest| rest.split_once('\n')).map_or(&body[..], |(_, rest)| rest);
    let why = finding.broken.why.replace(['\n', '\r'], " ");
    Ok(format!("{FAILURE}: {} is broken. {why}\n{body}", finding.invariant))
}

/// Every field that a case decides about, and its value where it has one.
fn fields(case: &Case, finding: &Finding, run: &Run) -> Vec<(String, Option<String>)> {
    let Scenario { loader, consumer, ranks, faults, .. } = &case.scenario;
    let mut fields: Vec<(String, Option<String>)> = Vec::new();
    let mut put = |path: &str, value: Option<String>| fields.push((path.to_owned(), value));
    let number = |n: u64| Some(Count(n).to_string());
    let quoted = |value: &dyn std::fmt::Display| Some(format!("\"{value}\""));
    let some = |n: Option<u64>| n.map(|n| Count(n).to_string());
    put("seed", number(case.scenario.seed));
    if let MachineChoice::Named(machine) = &case.scenario.machine {
        put("machine", Some(toml_edit::Value::from(machine.as_str()).to_string()));
    }
    put("dataset.count", number(count(&case.scenario)));
    put("loader.batch", number(loader.batch));
    put("loader.lanes", some(loader.lanes));
    put("loader.threads", some(loader.threads));
    put("loader.ring", some(loader.ring));
    put("loader.budget", quoted(&loader.budget));
    put("loader.prefetch", number(loader.prefetch));
    put("loader.copies", number(loader.copies));
    put("loader.device_stage", loader.device_stage.as_ref().and_then(|stage| quoted(stage)));
    put("loader.device_stage_limit", loader.device_stage.and_then(|_| number(loader.device_stage_limit)));
    put("loader.epochs", number(u64::from(loader.epochs)));
    put("loader.drop_last", Some(loader.drop_last.to_string()));
    put("loader.tail", quoted(&loader.tail));
    put("loader.order", quoted(&loader.order));
    put("loader.window", some(loader.window));
    put("loader.decode_deadline", loader.decode_deadline.as_ref().and_then(|d| quoted(d)));
    put("loader.fetch_limit", some(loader.fetch_limit));
    put("loader.decode_limit", some(loader.decode_limit));
    put("loader.retries", number(u64::from(loader.retries)));
    put("loader.retry_pause", quoted(&loader.retry_pause));
    put("loader.retry_pause_most", quoted(&loader.retry_pause_most));
    put("loader.fetch_deadline", loader.fetch_deadline.as_ref().and_then(|d| quoted(d)));
    put("loader.errors", quoted(&loader.errors));
    put(
        "loader.skip_at_most",
        match loader.skip_at_most {
            None => None,
            Some(Allowed::Count(n)) => number(n.0),
            Some(Allowed::Part(part)) => quoted(&part),
        },
    );
    if ranks.count > 1 {
        put("ranks.count", number(u64::from(ranks.count)));
        put("ranks.barrier", Some(ranks.barrier.to_string()));
        put("loader.world", None);
        put("loader.rank", None);
    } else {
        put("ranks.count", None);
        put("loader.world", number(u64::from(loader.world)));
    }
    put("consumer.step", quoted(&consumer.step));
    put("consumer.rate", None);
    put("consumer.hold", number(consumer.hold));
    put("consumer.leave_after", some(consumer.leave_after));
    for (family, hits) in FAMILIES.iter().zip(families(faults)) {
        put(&format!("faults.{family}"), written_hits(hits));
    }
    let slow = [&faults.slow_reads, &faults.slow_jobs, &faults.slow_kernels].into_iter().any(|hits| *hits != Hits::NONE);
    put("faults.slow_times", slow.then(|| Count(u64::from(faults.slow_times)).to_string()));
    if faults.truncated == Hits::NONE {
        put("faults.truncated_keep", None);
    }
    put("replay.invariant", quoted(&finding.invariant));
    put("replay.design", run.design.as_ref().and_then(|name| quoted(name)));
    match &case.chooser {
        Chooser::Fifo => {}
        Chooser::Random(seed) => put("replay.random", number(*seed)),
        Chooser::Pct { seed, depth, length } => put("replay.pct", Some(format!("[{seed}, {depth}, {length}]"))),
        Chooser::Replay(tape) => {
            let choices: Vec<String> = tape.iter().map(|(number, taken)| format!("[{number}, {taken}]")).collect();
            put("replay.tape", Some(format!("[{}]", choices.join(", "))));
        }
    }
    if case.timing == Timing::Abstract {
        put("replay.abstract_time", Some("true".to_owned()));
    }
    if [relation::RESUME_EXACT, REDEAL_EXACT].contains(&finding.invariant) {
        put("replay.resume_after", some(case.resume_after));
    }
    if run.panic.is_none() {
        put("replay.trace_hash", Some(format!("\"{:016x}\"", run.hash)));
    }
    fields
}

fn written_hits(hits: &Hits) -> Option<String> {
    let share = || format!("\"{}\"", Fraction::new(f64::from(hits.ppm) / 1e4, "%"));
    let list = || format!("[{}]", hits.samples.iter().map(u64::to_string).collect::<Vec<_>>().join(", "));
    match (hits.ppm, hits.samples.is_empty()) {
        (0, true) => None,
        (0, false) => Some(list()),
        (_, true) => Some(share()),
        (_, false) => Some(format!("{{ share = {}, samples = {} }}", share(), list())),
    }
}

/// What came of repeating a failure.
pub struct Replayed {
    /// What is broken still, when anything is.
    pub finding: Option<Finding>,
    /// The case.
    pub case: Case,
    /// Its run.
    pub run: Run,
    /// Whether the trace is the one that was written down; `None` where none was.
    pub same_trace: Option<bool>,
}

/// Repeats the failure that a scenario's `[replay]` describes.
///
/// # Errors
///
/// When it has none, or names an invariant that does not exist, or does not fit its machine.
pub fn replay(scenario: &Scenario, design: &dyn Design) -> Result<Replayed, Trouble> {
    let Some(replay) = &scenario.replay else {
        let wrong = Diagnostic::new(format!("the scenario `{}` has no `[replay]`", scenario.name));
        return Err(wrong.hint("`towtank check` writes one for what it finds; `towtank sim` simulates a scenario").into());
    };
    let Some(invariant) = NAMES.iter().copied().find(|name| *name == replay.invariant) else {
        let hint = nearest(&replay.invariant, NAMES.iter().copied()).map(|near| format!("did you mean `{near}`?"));
        let wrong = Diagnostic::new(format!("there is no invariant `{}`", replay.invariant));
        let wrong = wrong.at(scenario.places.of("replay.invariant")).expected(NAMES.join(", "));
        return Err(wrong.hint(hint.unwrap_or_default()).into());
    };
    let base = Base::new(scenario, u64::MAX)?;
    let case = Case {
        scenario: base.scenario.clone(),
        chooser: replay.chooser.clone(),
        timing: replay.timing,
        resume_after: replay.resume_after,
    };
    let looked = look(&base, case, design, compare_for(invariant), Some(invariant))?;
    let same_trace = replay.trace_hash.map(|hash| hash == looked.run.hash);
    Ok(Replayed { finding: looked.finding, case: looked.case, run: looked.run, same_trace })
}

/// Whether the text of a failure is the failure: it is read as a stranger would, and repeated.
pub fn replays(name: &str, text: &str, design: &dyn Design, finding: &Finding) -> Result<bool, Trouble> {
    let replayed = replay(&scenario::parse(name, text, &Overrides::default())?, design)?;
    let same = replayed.finding.is_some_and(|again| again.invariant == finding.invariant);
    Ok(same && replayed.same_trace != Some(false))
}

#[cfg(test)]
mod tests {
    use super::NAMES;
    use crate::check::invariant::{self, Asked};

    #[test]
    fn what_any_invariant_finds_can_be_written_and_repeated() {
        let faults = crate::fault::Faults::default();
        for invariant in invariant::all(Asked { ranks: &[], faults: &faults, seed: 0 }) {
            assert!(NAMES.contains(&invariant.name()), "{} is not among the names", invariant.name());
        }
    }
}
