//! `towtank merge`: the reports of a check's shards as one.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    path::Path,
};

use serde_json::{Map, Value, json};
use towtank::document::Diagnostic;

use super::{Ending, args::MergeArgs};

/// What is added up.
const SUMS: [&str; 6] = ["seeds", "runs", "events", "simulated_s", "took_s", "more_failures"];
/// What must be the same in all.
const SAME: [&str; 3] = ["scenario", "samples", "samples_of_the_scenario"];

pub(crate) fn run(args: &MergeArgs) -> Result<(), Ending> {
    let mut reports = Vec::new();
    for file in &args.files {
        reports.push((file.display().to_string(), read(file)?));
    }
    let merged = merge(&reports)?;
    let broken = merged["failures"].as_array().is_some_and(|failures| !failures.is_empty());
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &merged).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    if broken { Err(Ending::Broken) } else { Ok(()) }
}

fn wrong(file: &str, why: &str) -> Ending {
    Diagnostic::new(format!("`{file}` {why}")).hint("`towtank check --shard I/N --json` writes what is merged").into()
}

fn read(file: &Path) -> Result<Value, Ending> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|e| wrong(&name, &format!("cannot be read: {e}")))?;
    let report: Value = serde_json::from_str(&text).map_err(|e| wrong(&name, &format!("is not JSON: {e}")))?;
    let whole = SUMS.iter().all(|key| report[*key].is_number())
        && report["scenario"].is_string()
        && report["coverage"].is_object()
        && report["failures"].is_array();
    if whole { Ok(report) } else { Err(wrong(&name, "is no report of a check")) }
}

/// Counts of several reports together.
fn added(mut counts: impl Iterator<Item = u64>, reports: &[(String, Value)]) -> Result<u64, Ending> {
    let (last, _) = reports.last().expect("there is a report to count in");
    counts.try_fold(0_u64, u64::checked_add).ok_or_else(|| wrong(last, "counts more than a check can"))
}

fn merge(reports: &[(String, Value)]) -> Result<Value, Ending> {
    let Some((first_file, first)) = reports.first() else { return Ok(json!({})) };
    let mut merged = Map::new();
    for (at, (file, report)) in reports.iter().enumerate() {
        if let Some((twin, _)) = reports[..at].iter().find(|(_, earlier)| earlier == report) {
            return Err(wrong(file, &format!("is the same report as `{twin}`, and would count twice")));
        }
    }
    for key in SAME {
        if let Some((other_file, other)) = reports.iter().find(|(_, report)| report[key] != first[key]) {
            let why = format!("has `{key}` {}, and `{first_file}` has {}", other[key], first[key]);
            return Err(wrong(other_file, &why));
        }
        merged.insert(key.to_owned(), first[key].clone());
    }
    for key in SUMS {
        let all = reports.iter().map(|(_, report)| &report[key]);
        let whole: Option<Vec<u64>> = all.clone().map(Value::as_u64).collect();
        let sum = match whole {
            Some(counts) => json!(added(counts.into_iter(), reports)?),
            None => json!(all.filter_map(Value::as_f64).sum::<f64>()),
        };
        merged.insert(key.to_owned(), sum);
    }
    let marks: BTreeSet<&String> = reports.iter().filter_map(|(_, r)| r["coverage"].as_object()).flat_map(Map::keys).collect();
    let mut coverage = Map::new();
    for mark in marks {
        let reached = reports.iter().filter_map(|(_, report)| report["coverage"][mark].as_u64());
        coverage.insert(mark.clone(), json!(added(reached, reports)?));
    }
    merged.insert("coverage".to_owned(), coverage.into());
    let mut failures: Vec<&Value> = reports.iter().filter_map(|(_, r)| r["failures"].as_array()).flatten().collect();
    failures.sort_by_key(|failure| failure["seed"].as_u64());
    merged.insert("failures".to_owned(), json!(failures));
    Ok(merged.into())
}
