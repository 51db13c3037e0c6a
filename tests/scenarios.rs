//! Every file in `scenarios/` is a test of its own name: simulated on the machine it names, with all that it expects.
//!
//! A scenario that is meant for this computer is simulated on the reference, so that a test does not depend on who runs it. Without
//! optimisation a dataset of more than 100 000 samples is cut short.
//!
//! Every file in `scenarios/regressions/` is a failure that `towtank check` once found: it is repeated, and must not fail any more.

use std::{
    fs,
    path::{Path, PathBuf},
};

use libtest_mimic::{Arguments, Failed, Trial};
use towtank::{
    check::{self, OwnLoader},
    loader::End,
    model,
    scenario::{self, MachineChoice, Overrides, REFERENCE},
    trace::Recorder,
};

const LARGE: u64 = 100_000;
const CUT_TO: u64 = 65_536;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let holding = files(&folder).into_iter().map(|file| Trial::test(name(&file), move || holds(&file)));
    let regressions = files(&folder.join("regressions"));
    let mended = regressions.into_iter().map(|file| Trial::test(format!("regression_{}", name(&file)), move || is_mended(&file)));
    libtest_mimic::run(&Arguments::from_args(), holding.chain(mended).collect()).exit();
}

/// The scenarios of a folder, in the order of their names; none when there is no such folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "toml"));
    files.sort();
    files
}

fn name(file: &Path) -> String {
    file.file_stem().expect("a name").to_string_lossy().into_owned()
}

fn is_mended(file: &Path) -> Result<(), Failed> {
    let scenario = scenario::load(&file.to_string_lossy(), &Overrides::default())?;
    let replayed = check::replay(&scenario, &OwnLoader)?;
    match replayed.finding {
        None => Ok(()),
        Some(finding) => Err(check::story(&scenario.name, &replayed.case, &finding, &replayed.run).into()),
    }
}

fn holds(file: &Path) -> Result<(), Failed> {
    let path = file.to_string_lossy();
    let mut scenario = scenario::load(&path, &Overrides::default())?;
    if cfg!(debug_assertions) && scenario.dataset.count().is_some_and(|n| n > LARGE) {
        scenario = scenario::load(&path, &Overrides::set([format!("dataset.count={CUT_TO}")]))?;
    }
    let machine = match scenario.machine {
        MachineChoice::This => model::load(REFERENCE)?,
        MachineChoice::Named(_) => scenario.machine_model()?,
    };
    let samples = scenario.samples()?.ok_or("a folder cannot be simulated without its files")?;
    let simulated = scenario.simulate(&machine, &samples, Recorder::new())?;

    let mut wrong: Vec<String> = Vec::new();
    if !scenario::NAMES.contains(&scenario.name.as_str()) {
        wrong.push(format!("`{}` is not among the scenarios of the program", scenario.name));
    }
    if simulated.verdicts.is_empty() {
        wrong.push("it expects nothing".to_owned());
    }
    wrong.extend(simulated.verdicts.iter().filter(|v| !v.held).map(|v| v.diagnostic().to_string()));
    let books = &simulated.outcome;
    if books.end != End::Finished || !books.accounts.balanced() || books.accounts.in_flight > 0 {
        wrong.push(format!("it ended with {:?}: {}", books.end, books.accounts));
    }
    let budget = scenario.loader.budget.as_bytes() * u64::from(scenario.ranks.count);
    let peak = simulated.metrics.peak_bytes_in_flight.expect("the simulated loader tells what it holds");
    if peak > budget {
        wrong.push(format!("{peak} bytes were held, the budget is {budget}"));
    }
    let bound = simulated.metrics.bounds.samples_per_s().unwrap_or(f64::INFINITY);
    if simulated.metrics.samples_per_s > bound * (1.0 + 1e-9) {
        wrong.push(format!("{} samples/s, the laws allow {bound}", simulated.metrics.samples_per_s));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let report = simulated.report(&scenario).terminal(towtank::report::Style::Plain);
    Err(format!("{}\n\n{report}", wrong.join("\n\n")).into())
}
