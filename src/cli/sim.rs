//! `towtank sim`: what a scenario's loader will do.

use std::path::Path;

use towtank::{
    model,
    report::Html,
    scenario::{self, MachineChoice, REFERENCE, Samples, Scenario},
    units::Count,
};

use super::{
    Ending,
    args::SimArgs,
    images::images,
    output::{Files, Spinner, say, tell},
};

pub(crate) fn run(args: &SimArgs) -> Result<(), Ending> {
    let typed = &args.scenario;
    let scenario = scenario::load(&typed.scenario, &typed.overrides())?;
    let machine = scenario.machine_model()?;
    note_the_reference(&scenario);
    let samples = samples(args.data.as_deref(), &scenario)?;
    let (files, recorder) = Files::open(&args.output)?;
    let spinner = Spinner::start(format!("simulating {} samples", Count(samples.count() * u64::from(scenario.loader.epochs))));
    let simulated = scenario.simulate(&machine, &samples, recorder);
    drop(spinner);
    let mut simulated = simulated?;
    let mut report = simulated.report(&scenario);
    let early = simulated.error.as_ref().map(|error| format!("the loader ended early: {error}"));
    report.error.clone_from(&early);
    let told = tell(&report, &simulated.verdicts, typed.json);
    let closed = files.close(&mut simulated.recorder, |traced| Html::new(&report).simulated(traced.timeline()).render());
    match early {
        Some(why) => Err(Ending::Failed(why)),
        None => told.and(closed),
    }
}

/// The samples: those of a folder's images, or as the scenario knows them.
pub(super) fn samples(data: Option<&Path>, scenario: &Scenario) -> Result<Samples, Ending> {
    match (data, scenario.samples()?) {
        (None, Some(samples)) => Ok(samples),
        _ => Ok(images(scenario, data)?.samples),
    }
}

/// Says that the machine is not this one.
pub(super) fn note_the_reference(scenario: &Scenario) {
    let calibrated = || model::cache_file().is_some_and(|file| file.exists());
    if scenario.machine == MachineChoice::This && !calibrated() {
        say(&format!("note: this computer has not been calibrated, so `{REFERENCE}` is simulated; `towtank compare` calibrates"));
    }
}
