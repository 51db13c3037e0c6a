//! `towtank sim`: what a scenario's loader will do.

use std::{
    fs::File,
    io::Write,
    path::{self, Path},
    time::SystemTime,
};

use towtank::{
    document::Diagnostic,
    model,
    report::Html,
    scenario::{self, Frozen, MachineChoice, REFERENCE, Samples, Scenario},
    units::counted,
};

use super::{
    Ending,
    args::SimArgs,
    images::{Look, images},
    new_file::{Kind, NewFile},
    output::{Files, Spinner, say, tell},
    run::of_rank,
    store,
    this_computer::this_computer,
};

pub(crate) fn run(args: &SimArgs) -> Result<(), Ending> {
    let typed = &args.scenario;
    let (scenario, overrides) = store::load(&typed.scenario, &typed.overrides_of(args.ranks), args.data.as_deref())?;
    refuse_one_file_for_two(args)?;
    let frozen = args.freeze.as_deref().map(|path| NewFile::open(path, &FROZEN)).transpose()?;
    // What is to be judged by a run is of the images and the computer of that run.
    let (machine, samples) = match (&frozen, &scenario.machine) {
        (Some(_), MachineChoice::This) => {
            (this_computer(&scenario, false)?, images(&scenario, args.data.as_deref(), Look::Pixels)?.samples)
        }
        (Some(_), MachineChoice::Named(_)) => {
            (scenario.machine_model()?, images(&scenario, args.data.as_deref(), Look::Pixels)?.samples)
        }
        (None, _) => {
            let machine = scenario.machine_model()?;
            note_the_reference(&scenario);
            (machine, samples(args.data.as_deref(), &scenario)?)
        }
    };
    let (files, recorder) = Files::open(&args.output)?;
    let spinner = Spinner::start(format!(
        "simulating {}",
        counted(samples.count().saturating_mul(u64::from(scenario.loader.epochs)), "sample", "samples")
    ));
    let simulated = scenario.simulate(&machine, &samples, recorder);
    drop(spinner);
    let mut simulated = simulated?;
    let mut report = simulated.report(&scenario);
    if let Some(draws) = args.intervals.or(frozen.as_ref().map(|_| DRAWS)) {
        let spinner = Spinner::start(format!("simulating {draws} times on what the machine may be"));
        report.intervals = Some(scenario.intervals(&machine, &samples, draws)?);
        drop(spinner);
    }
    let early =
        simulated.error.as_ref().map(|error| format!("the loader{} ended early: {error}", of_rank(simulated.failed_rank)));
    report.error.clone_from(&early);
    let told = tell(&report, &simulated.verdicts, typed.json);
    if let (Some((file, out)), Some(intervals), None) = (frozen, &report.intervals, &early) {
        let text = scenario::text(&typed.scenario)?;
        freeze(file, out, &Frozen::new(text, &overrides, &machine, &samples, &simulated, intervals, now_unix_s()))?;
    }
    let closed = files.close(&mut simulated.recorder, |traced| Html::new(&report).simulated(traced.timeline()).render());
    match early {
        Some(why) => Err(Ending::Failed(why)),
        None => told.and(closed),
    }
}

/// Refuses to write a prediction and something else into one file.
fn refuse_one_file_for_two(args: &SimArgs) -> Result<(), Ending> {
    let absolute = |path: &Path| path::absolute(path).ok();
    let Some(frozen) = &args.freeze else { return Ok(()) };
    let others = [("--trace", &args.output.trace), ("--html", &args.output.html)];
    let Some((flag, _)) = others.into_iter().find(|(_, path)| path.as_deref().and_then(absolute) == absolute(frozen)) else {
        return Ok(());
    };
    let wrong = Diagnostic::new(format!("the frozen prediction and what `{flag}` writes cannot both be `{}`", frozen.display()));
    Err(wrong.hint(format!("give `--freeze` and `{flag}` a file each")).into())
}

/// Draws of the machine for a prediction that is frozen.
const DRAWS: u64 = 40;

const FROZEN: Kind = Kind { flag: "--freeze", what: "frozen prediction", start: Frozen::START };

fn freeze(file: NewFile, mut out: File, frozen: &Frozen) -> Result<(), Ending> {
    let path = file.path().to_owned();
    out.write_all(frozen.write().as_bytes()).and_then(|()| file.finish())?;
    let (path, hash) = (path.display(), frozen.sha256());
    say(&format!("prediction frozen in `{path}`, SHA-256 {hash}; `towtank compare --frozen {path}` judges it"));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "when a prediction was made is no part of it")]
fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The samples: those of a folder's images, or as the scenario knows them.
pub(super) fn samples(data: Option<&Path>, scenario: &Scenario) -> Result<Samples, Ending> {
    match (data, scenario.samples()?) {
        (None, Some(samples)) => Ok(samples),
        _ => Ok(images(scenario, data, Look::Pixels)?.samples),
    }
}

/// Says that the machine is not this one.
pub(super) fn note_the_reference(scenario: &Scenario) {
    let calibrated = || model::cache_file().is_some_and(|file| file.exists());
    if scenario.machine == MachineChoice::This && !calibrated() {
        say(&format!("note: this computer has not been calibrated, so `{REFERENCE}` is simulated; `towtank compare` calibrates"));
    }
}
