//! What a failure's report tells: what broke, by which sample or batch, what happened to it, and who waited for whom.

use std::fmt::Write;

use super::{
    case::{Case, count},
    explore::Failure,
    run::{Finding, Run},
    shrink::{Shrunk, Size, families},
};
use crate::{
    failure::FailureKind,
    scenario::{OnErrors, Order, Scenario},
    sim::{Chooser, Timing},
    trace::{Event, Kind, StageId},
    units::counted,
};

/// Events that a story tells.
const EVENTS: usize = 16;

impl Failure {
    /// The story of the smallest case, and how large it was before.
    pub fn story(&self) -> String {
        let Shrunk { case, finding, run, looks, from } = &self.shrunk;
        let mut text = story(&self.scenario, case, finding, run);
        if *looks > 0 {
            let lanes = from.lanes.map_or(String::new(), |lanes| format!("{}, ", counted(lanes, "lane", "lanes")));
            let Size { samples, epochs, faults, choices, events, .. } = from;
            let before = format!(
                "{} in {}, {lanes}{}, {}, {}, in {}",
                counted(*samples, "sample", "samples"),
                counted(u64::from(*epochs), "epoch", "epochs"),
                counted(*faults as u64, "kind of faults", "kinds of faults"),
                counted(*choices as u64, "choice", "choices"),
                counted(*events as u64, "event", "events"),
                counted(*looks, "look", "looks")
            );
            tell(&mut text, "  before", &before);
        }
        if let Some(design) = &run.design {
            let again =
                format!("`check::written` makes a file of this, and `check::replay` repeats that, in the tests of `{design}`");
            tell(&mut text, "  again", &again);
        }
        text
    }
}

/// The story of one case that fails.
pub fn story(scenario: &str, case: &Case, finding: &Finding, run: &Run) -> String {
    let mut text = format!("{} is broken by `{scenario}`: {}\n", finding.invariant, finding.broken.why);
    let loader = &case.scenario.loader;
    let number = |n: Option<u64>| n.map_or("as many as usual".to_owned(), |n| n.to_string());
    tell(&mut text, "  seed", &case.scenario.seed.to_string());
    let epochs = counted(u64::from(loader.epochs), "epoch", "epochs");
    let samples = format!("{} in {epochs}, batches of {}", count(&case.scenario), loader.batch);
    tell(&mut text, "  samples", &samples);
    tell(&mut text, "  lanes", &format!("{}, on threads: {}", number(loader.lanes), number(loader.threads)));
    let settings = settings(case);
    if !settings.is_empty() {
        tell(&mut text, "  settings", &settings);
    }
    let faults = faults(case);
    if !faults.is_empty() {
        tell(&mut text, "  faults", &faults);
    }
    let time = if case.timing == Timing::Abstract { "in abstract time " } else { "" };
    tell(&mut text, "  schedule", &format!("{time}{}", schedule(&case.chooser)));
    tell(&mut text, "  trace", &format!("{} events, hash {:016x}", run.events.len(), run.hash));
    let events = that_matter(finding, run);
    if !events.is_empty() {
        text.push_str("what happened:\n");
        events.into_iter().for_each(|event| told(&mut text, event, run.plans.len() > 1));
    }
    if let Some(stall) = &run.stall {
        _ = write!(text, "{stall}");
    }
    text
}

fn tell(text: &mut String, what: &str, value: &str) {
    _ = writeln!(text, "{what:<12} {value}");
}

fn schedule(chooser: &Chooser) -> String {
    match chooser {
        Chooser::Fifo => "first come, first served".to_owned(),
        Chooser::Random(seed) => format!("by chance, of seed {seed}"),
        Chooser::Pct { seed, depth, .. } => {
            format!("by priorities that change {} times, of seed {seed}", depth.saturating_sub(1))
        }
        Chooser::Replay(tape) => {
            let choices: Vec<String> = tape.iter().take(8).map(|(number, taken)| format!("choice {number} is {taken}")).collect();
            let more = if tape.len() > 8 { format!(", and {} more", tape.len() - 8) } else { String::new() };
            format!("first come, first served, but {}{more}", choices.join(", "))
        }
    }
}

/// The names of the families, in the order of their fields.
pub(super) const FAMILIES: [&str; 12] = [
    "missing",
    "truncated",
    "undecodable",
    "panicking",
    "transient",
    "throttled",
    "stalled",
    "slow_reads",
    "slow_jobs",
    "failed_copies",
    "failed_kernels",
    "slow_kernels",
];

/// Settings that change what a loader has to do, where they are not as usual; as a scenario has them.
fn settings(case: &Case) -> String {
    let Scenario { loader, ranks, consumer, .. } = &case.scenario;
    let quoted = |name: &str, value: &dyn std::fmt::Display| format!("{name} = \"{value}\"");
    let mut all = Vec::new();
    if ranks.count > 1 || loader.world > 1 {
        all.push(format!("ranks = {}", ranks.count.max(loader.world)));
        all.push(quoted("tail", &loader.tail));
    }
    if loader.drop_last {
        all.push("drop_last = true".to_owned());
    }
    if loader.order != Order::Plan {
        all.push(quoted("order", &loader.order));
    }
    if loader.errors != OnErrors::Fail {
        all.push(quoted("errors", &loader.errors));
    }
    if loader.retries > 0 {
        all.push(format!("retries = {}", loader.retries));
    }
    let deadlines = [("fetch_deadline", loader.fetch_deadline), ("decode_deadline", loader.decode_deadline)];
    all.extend(deadlines.iter().filter_map(|(name, deadline)| Some(quoted(name, deadline.as_ref()?))));
    if let Some(stage) = &loader.device_stage {
        all.push(quoted("device_stage", stage));
    }
    if let Some(batches) = consumer.leave_after {
        all.push(format!("leave_after = {batches}"));
    }
    if let Some(batch) = case.resume_after {
        all.push(format!("resume_after = {batch}"));
    }
    all.join(", ")
}

fn faults(case: &Case) -> String {
    let all = FAMILIES.iter().zip(families(&case.scenario.faults));
    let some = all.filter(|(_, hits)| hits.ppm > 0 || !hits.samples.is_empty());
    let words = some.map(|(name, hits)| match hits.ppm {
        0 => format!("{name} {:?}", hits.samples),
        ppm => format!("{name} {} %", f64::from(ppm) / 1e4),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The last events of the sample or batch that broke it; of the whole run where none did.
fn that_matter<'a>(finding: &Finding, run: &'a Run) -> Vec<&'a Event> {
    let broken = &finding.broken;
    let until = broken.at.unwrap_or(run.end);
    let members: Vec<(u32, u64)> = match (broken.item, broken.batch) {
        (Some(item), _) => vec![(item.epoch, item.sample)],
        (None, Some(batch)) => {
            let got = run.got.iter().filter(|got| Some(got.rank) == broken.rank && got.index == batch);
            got.flat_map(|got| got.items.iter().map(|item| (item.epoch, item.sample))).collect()
        }
        (None, None) => Vec::new(),
    };
    let of_batches = |stage: StageId| matches!(stage, StageId::TRANSFER | StageId::DEVICE | StageId::CONSUMER);
    let matters = |event: &&Event| {
        let of_rank = broken.rank.is_none_or(|rank| rank == event.rank);
        let counts_batches = of_batches(event.stage) && event.kind != Kind::Delivered || event.kind == Kind::Sealed;
        let about = match counts_batches {
            _ if members.is_empty() && broken.batch.is_none() => true,
            true => broken.batch == Some(event.sample),
            false => members.contains(&(event.epoch, event.sample)),
        };
        of_rank && about && event.time <= until
    };
    let all: Vec<&Event> = run.events.iter().filter(matters).collect();
    all[all.len().saturating_sub(EVENTS)..].to_vec()
}

fn told(text: &mut String, event: &Event, ranks: bool) {
    let of_batch = event.kind == Kind::Sealed
        || matches!(event.stage, StageId::TRANSFER | StageId::DEVICE | StageId::CONSUMER) && event.kind != Kind::Delivered;
    let what = if of_batch { "batch" } else { "sample" };
    let stage = event.stage.name().unwrap_or("stage");
    let time = event.time.to_string();
    let kind = format!("{:?}", event.kind).to_lowercase();
    let rank = if ranks { format!("rank {}  ", event.rank) } else { String::new() };
    let epoch = if event.epoch > 0 { format!(" of epoch {}", event.epoch) } else { String::new() };
    let since = if event.since < event.time { format!(", since {}", event.since) } else { String::new() };
    let more = match event.kind {
        Kind::Fail | Kind::Skipped => {
            FailureKind::from_code(event.bytes).map_or(String::new(), |kind| format!(": {}", kind.name()))
        }
        Kind::Reserve | Kind::Refund => format!(", {} B", event.bytes),
        Kind::Sealed | Kind::Taken => format!(", {} samples", event.bytes),
        _ => String::new(),
    };
    _ = writeln!(text, "  {time:>14}  {rank}{stage:<8} {kind:<9} {what} {}{epoch}{since}{more}", event.sample);
}
