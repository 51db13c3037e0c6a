//! `towtank compare`: what was predicted, what was measured, and how far they differ.

use std::{fs, path::Path, sync::Arc, time::Duration};

use towtank::{
    codec::Decoder,
    model::{
        self, MachineModel,
        calibrate::{self, CalibrateError, calibrate},
    },
    report::{Expectation, Html, Report},
    scenario::{self, MachineChoice, Scenario, Verdict},
    trace::Recorder,
};

use super::{
    Ending,
    args::CompareArgs,
    images::{bar, cache_folder, images},
    output::{Files, Spinner, say, tell},
    run::{ended_early, failed, refuse_endless},
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

/// The model of this computer: kept from an earlier calibration for the same decoder and size, or measured now and kept.
fn this_computer(scenario: &Scenario, again: bool) -> Result<MachineModel, Ending> {
    let decoder = scenario.decoder()?;
    let file = model::cache_file();
    if let Some((path, kept)) = file.as_deref().filter(|_| !again).and_then(|path| Some((path, kept(path, &decoder)?))) {
        let age = fs::metadata(path).and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        let age = age.map_or_else(String::new, |age| format!(", {} ago", ago(age)));
        say(&format!("note: this computer as calibrated{age}; `--recalibrate` measures it anew"));
        return Ok(kept);
    }
    let corpus = cache_folder()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = calibrate::Options { corpus: &corpus, decoder: &decoder, threads, passes: 5 };
    let bar = bar(1, "calibrating this computer");
    let measured = calibrate(&options, |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let machine = measured.map_err(|error: CalibrateError| Ending::Failed(error.to_string()))?;
    if let Some(path) = file {
        let unfinished = path.with_extension(format!("{}.unfinished", std::process::id()));
        let keep = fs::write(&unfinished, machine.to_toml()).and_then(|()| fs::rename(&unfinished, &path));
        match keep {
            Ok(()) => say(&format!("this computer is calibrated; its model is kept in `{}`", path.display())),
            Err(error) => say(&format!("note: the model of this computer cannot be kept in `{}`: {error}", path.display())),
        }
    }
    Ok(machine)
}

/// The kept model, when it is for this decoder and size.
fn kept(path: &Path, decoder: &Decoder) -> Option<MachineModel> {
    let text = fs::read_to_string(path).ok()?;
    match model::parse(&path.display().to_string(), &text) {
        Ok(machine) if machine.title == calibrate::title(decoder) => Some(machine),
        Ok(_) => None,
        Err(trouble) => {
            say(&format!("note: the kept model of this computer cannot be read, so it is calibrated anew\n{trouble}"));
            None
        }
    }
}

fn ago(age: Duration) -> String {
    match age.as_secs() {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}
