//! `towtank run`: what a scenario's loader does on this computer.

use towtank::{
    document::Diagnostic,
    fault::Hits,
    loader::Error,
    report::{Expectation, Html, Metrics, Report},
    scenario::{MeasuringError, Scenario},
    source::Source,
};

use super::{
    Ending,
    args::RunArgs,
    images::{Look, images, settle},
    output::{Files, Spinner, say, tell},
    store,
};

pub(crate) fn run(args: &RunArgs) -> Result<(), Ending> {
    let typed = &args.scenario;
    let (scenario, _) = store::load(&typed.scenario, &typed.overrides(), args.data.as_deref())?;
    refuse_endless(&scenario)?;
    let images = images(&scenario, args.data.as_deref(), Look::Bytes)?;
    let (files, recorder) = Files::open(&args.output)?;
    settle(&scenario, &images);
    let spinner = Spinner::start(format!("running `{}`", scenario.name));
    let measured = scenario.measure(images.source.clone(), &images.samples, recorder);
    drop(spinner);
    let mut measured = measured.map_err(failed)?;
    note_the_neighbours(&measured.metrics);
    let mut report = Report::new(scenario.name.clone(), scenario.seed, None, Some(measured.metrics.clone()));
    report.expectations = measured.verdicts.iter().map(Expectation::from).collect();
    let early = measured.error.as_ref().map(|error| ended_early("loader", error, &*images.source));
    report.error.clone_from(&early);
    let told = tell(&report, &measured.verdicts, typed.json);
    let closed = files.close(&mut measured.recorder, |traced| Html::new(&report).measured(traced.timeline()).render());
    match early {
        Some(why) => Err(Ending::Failed(why)),
        None => told.and(closed),
    }
}

/// Why a loader ended before its plan did, with the file's name and a way out.
pub(super) fn ended_early(which: &str, error: &Error, source: &dyn Source) -> String {
    match error {
        Error::Sample { item, .. } => format!(
            "the {which} ended early: `{}`: {error}\nhint: `loader.errors = \"skip\"` leaves out what fails, and counts it",
            source.name(item.sample)
        ),
        Error::TooManySkipped { item, .. } => {
            format!("the {which} ended early: `{}`: {error}\nhint: raise `loader.skip_at_most`", source.name(item.sample))
        }
        _ => format!("the {which} ended early: {error}"),
    }
}

/// Refuses what can only be simulated: other designs, several ranks, and reads that never end and that nothing gives up on, since a real
/// run would never end either.
pub(super) fn refuse_endless(scenario: &Scenario) -> Result<(), Ending> {
    scenario.only_ours("can be simulated, and not run")?;
    if scenario.ranks.count > 1 {
        let wrong = Diagnostic::new("several ranks in one process can be simulated, and not yet run");
        let world = scenario.ranks.count;
        let hint = format!("run one of them: `--set ranks.count=1 --set loader.world={world} --set loader.rank=0`");
        return Err(wrong.at(scenario.places.of("ranks.count")).hint(hint).into());
    }
    if scenario.faults.stalled == Hits::NONE || scenario.loader.fetch_deadline.is_some() {
        return Ok(());
    }
    let wrong = Diagnostic::new("reads that stall never end, so a real run would not either");
    Err(wrong.at(scenario.places.of("faults.stalled")).hint("set `loader.fetch_deadline`, such as \"2 s\"").into())
}

/// Says that others used the processors too, when they had none to spare.
pub(super) fn note_the_neighbours(metrics: &Metrics) {
    if let Some(share) = metrics.taken_by_others {
        let percent = share * 100.0;
        say(&format!(
            "note: others used {percent:.0} % of the processors meanwhile, and none were to spare: what was measured is of them too"
        ));
    }
}

/// A run that came to nothing.
pub(super) fn failed(error: MeasuringError) -> Ending {
    match error {
        MeasuringError::Input(trouble) => Ending::Input(trouble),
        MeasuringError::Machine(error) => Ending::Failed(error.to_string()),
    }
}
