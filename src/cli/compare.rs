//! `towtank compare`: what was predicted, what was measured, and how far they differ.

use std::sync::Arc;

use towtank::{
    report::{Expectation, Html, Report},
    scenario::{self, MachineChoice, Verdict},
    trace::Recorder,
};

use super::{
    Ending,
    args::CompareArgs,
    images::{images, settle},
    output::{Files, Spinner, say, tell},
    run::{ended_early, failed, refuse_endless},
    this_computer::this_computer,
};

pub(crate) fn run(args: &CompareArgs) -> Result<(), Ending> {
    let typed = &args.run.scenario;
    let scenario = scenario::load(&typed.scenario, &typed.overrides())?;
    refuse_endless(&scenario)?;
    let (files, recorder) = Files::open(&args.run.output)?;
    let images = images(&scenario, args.run.data.as_deref())?;
    let machine = match &scenario.machine {
        MachineChoice::This => this_computer(&scenario, args.recalibrate)?,
        MachineChoice::Named(name) => {
            say(&format!("note: the prediction is for the machine `{name}` that the scenario names, not for this computer"));
            scenario.machine_model()?
        }
    };

    let spinner = Spinner::start(format!("simulating `{}`", scenario.name));
    let simulated = scenario.simulate(&machine, &images.samples, files.watch(Recorder::new()))?;
    drop(spinner);
    settle(&scenario, &images.folder);
    let spinner = Spinner::start(format!("running `{}`", scenario.name));
    let measured = scenario.measure_leaves(images.folder.clone(), &images.samples, recorder);
    drop(spinner);
    let mut measured = measured.map_err(failed)?;
    let leaf_times = Arc::new(std::mem::take(&mut measured.leaf_times));
    let replayed = match (&simulated.error, &measured.error) {
        (None, None) => Some(scenario.replay(&machine, &images.samples, leaf_times, Recorder::new())?),
        _ => None,
    };

    let (predicted, found) = (Some(simulated.metrics.clone()), Some(measured.metrics.clone()));
    let mut report = Report::new(scenario.name.clone(), scenario.seed, predicted, found);
    if let Some(replayed) = replayed {
        report.set_replayed(replayed.metrics);
    }
    let both = simulated.verdicts.iter().map(|v| named(v, "simulated"));
    let verdicts: Vec<Verdict> = both.chain(measured.verdicts.iter().map(|v| named(v, "measured"))).collect();
    report.expectations = verdicts.iter().map(Expectation::from).collect();
    let ends = [("simulated loader", &simulated.error), ("measured loader", &measured.error)];
    let early = ends.into_iter().find_map(|(which, error)| Some(ended_early(which, error.as_ref()?, &images.folder)));
    report.error.clone_from(&early);
    let told = tell(&report, &verdicts, typed.json);
    let closed = files.close(&mut measured.recorder, |traced| {
        Html::new(&report).simulated(simulated.recorder.timeline()).measured(traced.timeline()).render()
    });
    match early {
        Some(why) => Err(Ending::Failed(why)),
        None => told.and(closed),
    }
}

fn named(verdict: &Verdict, which: &str) -> Verdict {
    Verdict { name: format!("{} ({which})", verdict.name), ..verdict.clone() }
}
