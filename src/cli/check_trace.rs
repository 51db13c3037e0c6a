//! `towtank check --trace`: what a recorded trace of another loader shows.

use std::{
    fs::File,
    io::{self, BufReader, Write},
    path::{Path, PathBuf},
};

use serde_json::json;
use towtank::{
    check::recorded::{Judged, TraceCheck, Verdict},
    document::{Diagnostic, printable},
    scenario::Scenario,
    units::{Count, counted},
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
    match broken(&judged) {
        names if names.is_empty() => Ok(told?),
        names => Err(Ending::Broken(names)),
    }
}

/// The names of the invariants that are broken; empty for none.
fn broken(judged: &Judged) -> String {
    let broken = judged.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Broken { .. }));
    broken.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
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
        let loader = printable(&trace.header.loader);
        let loader = if loader.is_empty() { String::new() } else { format!(" of {loader}") };
        let (batches, samples) = (counted(trace.batches, "batch", "batches"), counted(trace.samples, "sample", "samples"));
        writeln!(
            out,
            "checked `{}` against `{}`: {samples} in {batches}{loader}",
            printable(&path.to_string_lossy()),
            printable(&scenario.name)
        )?;
    }
    let mut before = "";
    // What is broken comes last, where it is seen.
    let mut verdicts: Vec<_> = judged.verdicts.iter().collect();
    verdicts.sort_by_key(|(_, verdict)| match verdict {
        Verdict::NotJudged(_) => 0,
        Verdict::Held(_) => 1,
        Verdict::Broken { .. } => 2,
    });
    for (name, verdict) in verdicts {
        let (heading, words) = match verdict {
            Verdict::Held(words) => ("holds", words.clone()),
            Verdict::Broken { why, file, line, more } => {
                let more = if *more > 0 { format!(" (and {} more)", Count(*more)) } else { String::new() };
                ("broken", format!("{}:{line}: {why}{more}", printable(file)))
            }
            Verdict::NotJudged(why) => ("not judged", why.clone()),
        };
        let shown = if heading == before { "" } else { heading };
        before = heading;
        writeln!(out, "  {shown:<10}  {name:<29}  {words}")?;
    }
    match broken(judged) {
        names if names.is_empty() => writeln!(out, "  nothing is broken")?,
        names => writeln!(out, "  broken: {names}")?,
    }
    for difference in &judged.differences {
        writeln!(out, "  note: {}", printable(difference))?;
    }
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
    let report = json!({ "scenario": scenario.name, "epochs": judged.epochs, "traces": traces, "invariants": invariants, "differences": judged.differences });
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &report)?;
    writeln!(out)?;
    out.flush()
}
