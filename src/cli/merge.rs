//! `towtank merge`: the reports of a check's shards as one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    path::Path,
};

use serde_json::{Map, Value, json};
use towtank::{document::Diagnostic, units::Count};

use super::{
    Ending,
    args::MergeArgs,
    check::{SEARCH, SHARD},
    output::say,
};

/// Whole numbers that are added up.
const COUNTS: [&str; 4] = ["seeds", "runs", "events", "more_failures"];
/// Times that are added up (s).
const TIMES: [&str; 2] = ["simulated_s", "took_s"];
/// What must be the same in all, beside the search.
const SAME: [&str; 4] = ["scenario", "samples", "batch", "samples_of_the_scenario"];
/// Shards that a message names.
const NAMED: usize = 8;

/// One shard's report, and the file that it is in.
struct Shard {
    file: String,
    report: Value,
    index: u64,
    of: u64,
}

pub(crate) fn run(args: &MergeArgs) -> Result<(), Ending> {
    let shards: Vec<Shard> = args.files.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
    let missing = missing(&shards)?;
    let merged = merge(&shards, &missing)?;
    if !missing.is_empty() {
        let of = shards.first().map_or(0, |shard| shard.of);
        let rest = missing.len().saturating_sub(NAMED);
        let more = if rest > 0 { format!(" and {} more", Count(rest as u64)) } else { String::new() };
        let named: Vec<String> = missing[..missing.len() - rest].iter().map(|index| format!("`{index}/{of}`")).collect();
        let why = format!(
            "of {of} shards {} not here, so their seeds were not looked at: {}{more}",
            is_are(&missing),
            named.join(", ")
        );
        if !args.partial {
            return Err(Diagnostic::new(why).hint("`--partial` adds up those that are here").into());
        }
        say(&format!("note: {why}"));
    }
    let broken = merged["failures"].as_array().map_or(0, Vec::len) as u64 + merged["more_failures"].as_u64().unwrap_or(0);
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &merged).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    if broken > 0 { Err(Ending::Broken(format!("{} of {}", failures(broken), merged["scenario"]))) } else { Ok(()) }
}

fn is_are(missing: &[u64]) -> String {
    format!("{} {}", missing.len(), if missing.len() == 1 { "is" } else { "are" })
}

fn failures(n: u64) -> String {
    format!("{} failure{}", Count(n), if n == 1 { "" } else { "s" })
}

fn wrong(file: &str, why: &str) -> Ending {
    Diagnostic::new(format!("`{file}` {why}")).hint("`towtank check --shard I/N --json` writes what is merged").into()
}

fn read(path: &Path) -> Result<Shard, Ending> {
    let file = path.display().to_string();
    if path.is_dir() {
        return Err(wrong(&file, "is a folder"));
    }
    let text = fs::read_to_string(path).map_err(|e| wrong(&file, &format!("cannot be read: {e}")))?;
    let report: Value = serde_json::from_str(&text).map_err(|e| wrong(&file, &format!("is not JSON: {e}")))?;
    let count = |value: &Value| value.is_u64();
    let time = |value: &Value| value.as_f64().is_some_and(|s| s >= 0.0 && s.is_finite());
    let whole = COUNTS.iter().all(|key| count(&report[*key]))
        && TIMES.iter().all(|key| time(&report[*key]))
        && report["scenario"].is_string()
        && report["coverage"].as_object().is_some_and(|marks| marks.values().all(count))
        && report["failures"].as_array().is_some_and(|failures| failures.iter().all(|failure| count(&failure["seed"])));
    if !whole {
        return Err(wrong(&file, "is no report of a check"));
    }
    if report["shards"].is_object() {
        return Err(wrong(&file, "is merged already"));
    }
    let (index, of) = (report[SHARD]["index"].as_u64(), report[SHARD]["of"].as_u64());
    match (index.zip(of), report[SEARCH].is_object()) {
        (Some((index, of)), true) if index < of => Ok(Shard { file, report, index, of }),
        _ => Err(wrong(&file, "does not say which seeds it looked at, and how: it is of an earlier version")),
    }
}

/// Refuses what is not of one search, or counts twice; gives the shards that are not here.
fn missing(shards: &[Shard]) -> Result<Vec<u64>, Ending> {
    let Some(first) = shards.first() else { return Ok(Vec::new()) };
    let mut here: BTreeMap<u64, &str> = BTreeMap::new();
    for shard in shards {
        for (key, of) in SAME.iter().map(|key| (*key, None)).chain(settings(first, shard)) {
            let value = |shard: &Shard| of.map_or(&shard.report[key], |of: &str| &shard.report[of][key]).clone();
            if value(shard) != value(first) {
                let why = format!("has `{key}` {}, and `{}` has {}", value(shard), first.file, value(first));
                return Err(wrong(&shard.file, &format!("is of another search: it {why}")));
            }
        }
        if shard.of != first.of {
            let why = format!("is one of {} shards, and `{}` one of {}", shard.of, first.file, first.of);
            return Err(wrong(&shard.file, &why));
        }
        if let Some(twin) = here.insert(shard.index, &shard.file) {
            let why = format!("is shard {}/{}, as `{twin}` is, and would count twice", shard.index, shard.of);
            return Err(wrong(&shard.file, &why));
        }
    }
    // A shard beyond the last seed has none. No more than fit into a list that people read or programs hold.
    let seeds = first.report[SEARCH]["seeds"].as_u64().unwrap_or(u64::MAX);
    Ok((0..first.of.min(seeds)).filter(|index| !here.contains_key(index)).take(1 << 20).collect())
}

/// What either says of its search.
fn settings<'a>(one: &'a Shard, other: &'a Shard) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
    let names: BTreeSet<&String> =
        [one, other].into_iter().filter_map(|s| s.report[SEARCH].as_object()).flat_map(Map::keys).collect();
    names.into_iter().map(|name| (name.as_str(), Some(SEARCH)))
}

/// Counts of several reports together.
fn added(mut counts: impl Iterator<Item = u64>, shards: &[Shard]) -> Result<u64, Ending> {
    let last = shards.last().map_or("", |shard| &shard.file);
    counts.try_fold(0_u64, u64::checked_add).ok_or_else(|| wrong(last, "counts more than a check can"))
}

fn merge(shards: &[Shard], missing: &[u64]) -> Result<Value, Ending> {
    let Some(first) = shards.first() else { return Ok(json!({})) };
    let mut merged = Map::new();
    for key in SAME.into_iter().chain([SEARCH]) {
        merged.insert(key.to_owned(), first.report[key].clone());
    }
    let here: BTreeSet<u64> = shards.iter().map(|shard| shard.index).collect();
    merged.insert("shards".to_owned(), json!({ "of": first.of, "here": here, "missing": missing }));
    for key in COUNTS {
        let counts = shards.iter().filter_map(|shard| shard.report[key].as_u64());
        merged.insert(key.to_owned(), json!(added(counts, shards)?));
    }
    for key in TIMES {
        let sum: f64 = shards.iter().filter_map(|shard| shard.report[key].as_f64()).sum();
        merged.insert(key.to_owned(), json!(sum));
    }
    let marks: BTreeSet<&String> = shards.iter().filter_map(|s| s.report["coverage"].as_object()).flat_map(Map::keys).collect();
    let mut coverage = Map::new();
    for mark in marks {
        let reached = shards.iter().filter_map(|shard| shard.report["coverage"][mark].as_u64());
        coverage.insert(mark.clone(), json!(added(reached, shards)?));
    }
    merged.insert("coverage".to_owned(), coverage.into());
    let mut failures: Vec<&Value> = shards.iter().filter_map(|s| s.report["failures"].as_array()).flatten().collect();
    failures.sort_by_key(|failure| failure["seed"].as_u64());
    merged.insert("failures".to_owned(), json!(failures));
    Ok(merged.into())
}
