//! `towtank replay`: a failure again, from the file that `towtank check` wrote.

use std::io::{self, Write};

use serde_json::json;
use towtank::{
    check::{self, OwnLoader},
    document::{Diagnostic, printable},
    scenario::{self, Overrides},
};

use super::{Ending, args::ReplayArgs, check::Quiet, output::say};

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Ending> {
    let scenario = scenario::load(&args.file, &Overrides::default())?;
    if let Some(design) = scenario.replay.as_ref().and_then(|replay| replay.design.as_ref()) {
        let why =
            format!("`{}` was found in a loader of somebody's own, `{design}`, which this program does not have", scenario.name);
        let wrong = Diagnostic::new(why).at(scenario.places.of("replay.design"));
        return Err(wrong.hint("repeat it by `towtank::check::replay` in the tests of that loader").into());
    }
    let quiet = Quiet::start();
    let replayed = check::replay(&scenario, &OwnLoader);
    drop(quiet);
    let replayed = replayed?;
    let hash = format!("{:016x}", replayed.run.hash);
    let mut out = io::stdout().lock();
    if args.json {
        let finding = replayed.finding.as_ref();
        let report = json!({
            "scenario": scenario.name,
            "fails": finding.is_some(),
            "invariant": finding.map(|finding| finding.invariant),
            "why": finding.map(|finding| &finding.broken.why),
            "trace_hash": hash,
            "same_trace": replayed.same_trace,
        });
        serde_json::to_writer_pretty(&mut out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        match &replayed.finding {
            Some(finding) => {
                let story = check::story(&scenario.name, &replayed.case, finding, &replayed.run);
                write!(out, "{}", printable(&story))?;
            }
            None => {
                let invariant = scenario.replay.as_ref().map_or("", |replay| &replay.invariant);
                writeln!(out, "`{}` does not fail any more: {invariant} holds, trace hash {hash}", printable(&scenario.name))?;
            }
        }
    }
    out.flush()?;
    if replayed.same_trace == Some(false) {
        say("note: the trace is not the one that was written down, so the loader or its model has changed since");
    }
    match &replayed.finding {
        Some(finding) => Err(Ending::Broken(finding.invariant.to_owned())),
        None => Ok(()),
    }
}
