//! `towtank check --trace`: what a recorded trace of another loader shows.

use std::{
    fs::File,
    io::{self, BufReader, Write},
    path::{Path, PathBuf},
};

use serde_json::json;
use towtank::{
    check::recorded::{Judged, TraceCheck, Verdict},
    document::Diagnostic,
    scenario::Scenario,
    units::Count,
};

use super::{Ending, sim::samples};

pub(super) fn run(scenario: &Scenario, files: &[PathBuf], as_json: bool) -> Result<(), Ending> {
    let mut check = TraceCheck::new(scenario, samples(None, scenario)?.count())?;
    for path in files {
        check.read(&path.display().to_string(), open(path)?)?;
    }
    let judged = check.finish()?;
    let told = match as_json {
        true => tell_json(scenario, files, &judged),
        false => tell(scenario, files, &judged),
    };
    if judged.holds() { Ok(told?) } else { Err(Ending::Broken) }
}

fn open(path: &Path) -> Result<BufReader<File>, Ending> {
    let opened = File::open(path).map_err(|error| {
        let hint = "`docs/record.py` records a trace, `docs/trace-format.md` says what it looks like";
        Diagnostic::new(format!("cannot read `{}`: {error}", path.display())).hint(hint)
    })?;
    Ok(BufReader::with_capacity(1 << 16, opened))
}

fn tell(scenario: &Scenario, files: &[PathBuf], judged: &Judged) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (path, trace) in files.iter().zip(&judged.traces) {
        let loader = if trace.header.loader.is_empty() { String::new() } else { format!(" of {}", trace.header.loader) };
        let (batches, samples) = (Count(trace.batches), Count(trace.samples));
        writeln!(
            out,
            "checked `{}` against `{}`: {samples} samples in {batches} batches{loader}",
            path.display(),
            scenario.name
        )?;
    }
    let mut before = "";
    for (name, verdict) in &judged.verdicts {
        let (heading, words) = match verdict {
            Verdict::Held(words) => ("holds", words.clone()),
            Verdict::Broken { why, file, line, more } => {
                let more = if *more > 0 { format!(" (and {} more)", Count(*more)) } else { String::new() };
                ("broken", format!("{file}:{line}: {why}{more}"))
            }
            Verdict::NotJudged(why) => ("not judged", why.clone()),
        };
        let shown = if heading == before { "" } else { heading };
        before = heading;
        writeln!(out, "  {shown:<10}  {name:<29}  {words}")?;
    }
    writeln!(out, "  {}", if judged.holds() { "nothing is broken" } else { "broken" })?;
    out.flush()
}

fn tell_json(scenario: &Scenario, files: &[PathBuf], judged: &Judged) -> io::Result<()> {
    let traces = files.iter().zip(&judged.traces).map(|(path, trace)| {
        json!({
            "file": path.to_string_lossy(),
            "loader": trace.header.loader,
            "batches": trace.batches,
            "samples": trace.samples,
            "ended": trace.ended,
        })
    });
    let invariants = judged.verdicts.iter().map(|(name, verdict)| match verdict {
        Verdict::Held(words) => json!({ "invariant": name, "verdict": "holds", "why": words }),
        Verdict::NotJudged(why) => json!({ "invariant": name, "verdict": "not judged", "why": why }),
        Verdict::Broken { why, file, line, more } => {
            json!({ "invariant": name, "verdict": "broken", "why": why, "file": file, "line": line, "more": more })
        }
    });
    let (traces, invariants): (Vec<_>, Vec<_>) = (traces.collect(), invariants.collect());
    let report = json!({ "scenario": scenario.name, "epochs": judged.epochs, "traces": traces, "invariants": invariants });
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &report)?;
    writeln!(out)?;
    out.flush()
}
