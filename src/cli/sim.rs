//! `towtank sim`: what a scenario's loader will do.

use std::path::Path;

use towtank::{
    document::Diagnostic,
    model,
    scenario::{self, Dataset, MachineChoice, REFERENCE, Samples, Scenario, SimulateError},
    source::Folder,
    units::Count,
};

use super::{
    Ending,
    args::SimArgs,
    output::{Spinner, TraceFile, say, tell},
};

pub(crate) fn run(args: &SimArgs) -> Result<(), Ending> {
    let typed = &args.scenario;
    let scenario = scenario::load(&typed.scenario, &typed.overrides())?;
    let machine = scenario.machine_model()?;
    note_the_reference(&scenario);
    let samples = match (scenario.samples()?, &scenario.dataset) {
        (Some(samples), _) => samples,
        (None, Dataset::Folder(path)) => look_into(path, &scenario)?,
        (None, _) => unreachable!("only a folder's samples are not known"),
    };
    let (trace, recorder) = TraceFile::open(typed.trace.as_deref())?;
    let spinner = Spinner::start(format!("simulating {} samples", Count(samples.count() * u64::from(scenario.loader.epochs))));
    let simulated = scenario.simulate(&machine, &samples, recorder);
    drop(spinner);
    let mut simulated = simulated.map_err(|e| match e {
        SimulateError::Input(trouble) => Ending::Input(trouble),
        stall @ SimulateError::Stall(_) => Ending::Failed(stall.to_string()),
    })?;
    trace.close(&mut simulated.recorder)?;
    let told = tell(&simulated.report(&scenario), &simulated.verdicts, typed.json);
    match &simulated.error {
        Some(error) => Err(Ending::Failed(format!("the loader ended early: {error}"))),
        None => told,
    }
}

/// Sizes of the images in a folder.
fn look_into(path: &Path, scenario: &Scenario) -> Result<Samples, Ending> {
    let _spinner = Spinner::start(format!("looking at the images in `{}`", path.display()));
    let folder = Folder::images(path).map_err(|e| {
        let wrong = Diagnostic::new(e.to_string()).at(scenario.places.of("dataset.path")).hint(e.hint());
        Ending::Input(wrong.into())
    })?;
    Ok(Samples::of_source(&folder))
}

/// Says that the machine is not this one.
fn note_the_reference(scenario: &Scenario) {
    let calibrated = || model::cache_file().is_some_and(|file| file.exists());
    if scenario.machine == MachineChoice::This && !calibrated() {
        say(&format!("note: this computer has not been calibrated, so `{REFERENCE}` is simulated; `towtank compare` calibrates"));
    }
}
