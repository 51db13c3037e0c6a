//! `towtank run`: what a scenario's loader does on this computer.

use towtank::{
    report::{Expectation, Report},
    scenario::{self, MeasuringError},
};

use super::{
    Ending,
    args::RunArgs,
    images::images,
    output::{Spinner, TraceFile, tell},
};

pub(crate) fn run(args: &RunArgs) -> Result<(), Ending> {
    let typed = &args.scenario;
    let scenario = scenario::load(&typed.scenario, &typed.overrides())?;
    let images = images(&scenario, args.data.as_deref())?;
    let (trace, recorder) = TraceFile::open(typed.trace.as_deref())?;
    let spinner = Spinner::start(format!("running `{}`", scenario.name));
    let measured = scenario.measure(images.folder, &images.samples, recorder);
    drop(spinner);
    let mut measured = measured.map_err(failed)?;
    trace.close(&mut measured.recorder)?;
    let mut report = Report::new(scenario.name.clone(), scenario.seed, None, Some(measured.metrics.clone()));
    report.expectations = measured.verdicts.iter().map(Expectation::from).collect();
    let told = tell(&report, &measured.verdicts, typed.json);
    match &measured.error {
        Some(error) => Err(Ending::Failed(format!("the loader ended early: {error}"))),
        None => told,
    }
}

/// A run that came to nothing.
pub(super) fn failed(error: MeasuringError) -> Ending {
    match error {
        MeasuringError::Input(trouble) => Ending::Input(trouble),
        MeasuringError::Machine(error) => Ending::Failed(error.to_string()),
    }
}
