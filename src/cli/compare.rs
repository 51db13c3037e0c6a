//! `towtank compare`: what was predicted, what was measured, and how far they differ.

use std::{
    env,
    fmt::Display,
    fs::{self, File},
    io::BufReader,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use towtank::{
    document::Diagnostic,
    model::{DeviceKind, MachineModel},
    report::{Expectation, Html, Report},
    scenario::{Frozen, MachineChoice, OBJECT, Overrides, Scenario, Torchrun, Verdict, Way},
    trace::Recorder,
};

use super::{
    Ending,
    args::{CompareArgs, RanksArg},
    device::DeviceChoice,
    images::{Look, images, settle},
    output::{Files, Spinner, say, tell},
    run::{ended_early, failed, note_the_neighbours, of_rank, refuse_endless},
    sim::samples,
    store,
    this_computer::{ago, this_computer, with_gpus},
};

/// What is compared: a scenario, the machine that it is predicted for, and the prediction that was frozen, when it was.
struct Subject {
    scenario: Scenario,
    machine: Option<MachineModel>,
    frozen: Option<Frozen>,
}

pub(crate) fn run(args: &CompareArgs) -> Result<(), Ending> {
    if args.measured.is_none() {
        refuse_one_of_several()?;
    }
    let subject = subject(args)?;
    if let Some(path) = &args.measured {
        return judge_recorded(args, subject, path);
    }
    let Subject { scenario, machine, frozen } = subject;
    refuse_endless(&scenario)?;
    note_the_gpu(args, frozen.as_ref().and(machine.as_ref()));
    let gpus = args.device.open()?;
    let (files, recorder) = Files::open(&args.output)?;
    let images = images(&scenario, args.data.as_deref(), Look::Pixels)?;
    if let Some(frozen) = &frozen {
        frozen.is_for(&images.samples).map_err(|error| wrong(args, &error))?;
    }
    let machine = match machine {
        Some(machine) => machine,
        None => with_gpus(this_computer(&scenario, args.recalibrate)?, gpus.as_ref())?,
    };
    knows_the_store(&scenario, &machine)?;

    let spinner = Spinner::start(format!("simulating `{}`", scenario.name));
    let simulated = scenario.simulate(&machine, &images.samples, files.watch(Recorder::new()))?;
    drop(spinner);
    if let Some(frozen) = &frozen {
        frozen.is_repeated_by(&simulated).map_err(|error| wrong(args, &error))?;
    }
    settle(&scenario, &images);
    let spinner = Spinner::start(format!("running `{}`", scenario.name));
    let way = Way { leaf_cpu: true, gpus, ..Way::default() };
    let measured = scenario.measure_as(images.source.clone(), &images.samples, recorder, way);
    drop(spinner);
    let mut measured = measured.map_err(failed)?;
    note_the_neighbours(&measured.metrics);
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
    if args.intervals > 0 {
        let spinner = Spinner::start("simulating on what the machine may be".to_owned());
        report.intervals = Some(scenario.intervals(&machine, &images.samples, args.intervals)?);
        drop(spinner);
    }
    let both = simulated.verdicts.iter().map(|v| named(v, "simulated"));
    let verdicts: Vec<Verdict> = both.chain(measured.verdicts.iter().map(|v| named(v, "measured"))).collect();
    report.expectations = verdicts.iter().map(Expectation::from).collect();
    let ends = [
        ("simulated loader", simulated.failed_rank, &simulated.error),
        ("measured loader", measured.failed_rank, &measured.error),
    ];
    let early =
        ends.into_iter().find_map(|(which, rank, error)| Some(ended_early(which, rank, error.as_ref()?, &*images.source)));
    report.error.clone_from(&early);
    let told = tell(&report, &verdicts, args.json);
    let closed = files.close(&mut measured.recorder, |traced| {
        Html::new(&report).simulated(simulated.recorder.timeline()).measured(traced.timeline()).render()
    });
    match early {
        Some(why) => Err(Ending::Failed(why)),
        None => told.and(closed),
    }
}

/// Refuses to run as one of several processes, each of which would run all ranks, and take the processors that the others measure with.
fn refuse_one_of_several() -> Result<(), Ending> {
    let Some(process) = Torchrun::read(|name| env::var(name).ok())? else { return Ok(()) };
    let Torchrun { rank, world, .. } = process;
    let wrong = Diagnostic::new(format!(
        "this process is rank {rank} of {world}, as `RANK` and `WORLD_SIZE` in the environment say, and `compare` runs all ranks by itself"
    ));
    let hint = format!(
        "`unset RANK WORLD_SIZE` and `--ranks {world}` compares {world} ranks in one process; `towtank run` is one of several"
    );
    Err(wrong.hint(hint).into())
}

/// Compares with what a training loop recorded of its own loader. Nothing is run.
fn judge_recorded(args: &CompareArgs, subject: Subject, path: &Path) -> Result<(), Ending> {
    let Subject { scenario, machine, frozen } = subject;
    let name = path.display().to_string();
    let trace = File::open(path).map_err(|error| {
        let hint = "`docs/record.py` records a trace, `docs/trace-format.md` says what it looks like";
        Diagnostic::new(format!("cannot read `{name}`: {error}")).hint(hint)
    })?;
    // What is predicted for this computer, or was frozen, is of images that are there.
    let samples = match (&machine, &frozen) {
        (Some(_), None) => samples(args.data.as_deref(), &scenario)?,
        _ => images(&scenario, args.data.as_deref(), Look::Pixels)?.samples,
    };
    if let Some(frozen) = &frozen {
        frozen.is_for(&samples).map_err(|error| wrong(args, &error))?;
    }
    let (files, recorder) = Files::open(&args.output)?;
    let spinner = Spinner::start(format!("reading `{name}`"));
    let watched = scenario.read_recorded(&name, BufReader::with_capacity(1 << 16, trace), &samples, recorder)?;
    drop(spinner);
    let machine = match machine {
        Some(machine) => machine,
        None => this_computer(&scenario, args.recalibrate)?,
    };
    let spinner = Spinner::start(format!("simulating `{}`", scenario.name));
    let simulated = scenario.simulate(&machine, &samples, files.watch(Recorder::new()))?;
    drop(spinner);
    if let Some(frozen) = &frozen {
        frozen.is_repeated_by(&simulated).map_err(|error| wrong(args, &error))?;
    }
    let mut judged = scenario.judge_recorded(watched, &simulated);
    judged.differences.iter().for_each(|difference| say(&format!("note: {difference}")));
    if !judged.untold.is_empty() {
        say(&format!(
            "note: the trace tells nothing about {}, so only the simulated side is held to it",
            judged.untold.join(", ")
        ));
    }

    let (predicted, found) = (Some(simulated.metrics.clone()), Some(judged.metrics.clone()));
    let mut report = Report::new(scenario.name.clone(), scenario.seed, predicted, found);
    if args.intervals > 0 {
        let spinner = Spinner::start("simulating on what the machine may be".to_owned());
        report.intervals = Some(scenario.intervals(&machine, &samples, args.intervals)?);
        drop(spinner);
    }
    let both = simulated.verdicts.iter().map(|v| named(v, "simulated"));
    let verdicts: Vec<Verdict> = both.chain(judged.verdicts.iter().map(|v| named(v, "measured"))).collect();
    report.expectations = verdicts.iter().map(Expectation::from).collect();
    let early = simulated
        .error
        .as_ref()
        .map(|error| format!("the simulated loader{} ended early: {error}", of_rank(simulated.failed_rank)));
    report.error.clone_from(&early);
    let told = tell(&report, &verdicts, args.json);
    let closed = files.close(&mut judged.recorded.recorder, |traced| {
        Html::new(&report).simulated(simulated.recorder.timeline()).measured(traced.timeline()).render()
    });
    match early {
        Some(why) => Err(Ending::Failed(why)),
        None => told.and(closed),
    }
}

/// The scenario that was named, or the one of a frozen prediction.
fn subject(args: &CompareArgs) -> Result<Subject, Ending> {
    if let Some(path) = &args.frozen {
        let text = fs::read_to_string(path).map_err(|error| wrong(args, &error))?;
        let frozen = Frozen::read(&text).map_err(|error| wrong(args, &error))?;
        say(&format!("note: judging a prediction frozen {} ago, SHA-256 {}", age(&frozen), frozen.sha256()));
        return Ok(Subject { scenario: frozen.scenario()?, machine: Some(frozen.machine()?), frozen: Some(frozen) });
    }
    let name = args.scenario.as_deref().unwrap_or_default();
    let (scenario, _) = store::load(
        name,
        &Overrides { sets: RanksArg { ranks: args.ranks }.set_over(&args.sets), seed: args.seed },
        args.data.as_deref(),
    )?;
    let machine = match &scenario.machine {
        MachineChoice::This => None,
        MachineChoice::Named(name) => {
            say(&format!("note: the prediction is for the machine `{name}` that the scenario names, not for this computer"));
            Some(scenario.machine_model()?)
        }
    };
    Ok(Subject { scenario, machine, frozen: None })
}

/// Says so when a prediction that was frozen for a GPU is judged on the host, or the other way round.
fn note_the_gpu(args: &CompareArgs, frozen: Option<&MachineModel>) {
    let Some(machine) = frozen else { return };
    match (machine.device.kind, args.device.device) {
        (DeviceKind::Cuda, DeviceChoice::Host) => {
            say("note: the prediction was frozen for a GPU, and this run goes to the host; `--device cuda:0` has a GPU train");
        }
        (DeviceKind::Host, DeviceChoice::Cuda { .. }) => {
            say("note: the prediction was frozen for the host, and this run goes to a GPU; it is judged all the same");
        }
        _ => {}
    }
}

/// Says how an object store is measured, when the prediction is to be for one that is not.
fn knows_the_store(scenario: &Scenario, machine: &MachineModel) -> Result<(), Ending> {
    if scenario.store.kind != OBJECT || machine.stores.contains_key(OBJECT) {
        return Ok(());
    }
    let wrong =
        Diagnostic::new(format!("the machine \"{}\" has no object store, so nothing can be predicted of one", machine.title));
    Err(wrong.at(scenario.places.of("store.kind")).hint("`towtank calibrate --store URL` measures it").into())
}

/// A frozen prediction that cannot be judged.
fn wrong(args: &CompareArgs, error: &dyn Display) -> Ending {
    let path = args.frozen.as_deref().unwrap_or(Path::new(""));
    let diagnostic = Diagnostic::new(format!("cannot judge `{}`: {error}", path.display()));
    diagnostic.hint("`--frozen` takes what `towtank sim SCENARIO --freeze FILE` wrote").into()
}

#[expect(clippy::disallowed_methods, reason = "when a prediction was made is told, and changes nothing")]
fn age(frozen: &Frozen) -> String {
    let made = SystemTime::UNIX_EPOCH + Duration::from_secs(frozen.made_unix_s);
    SystemTime::now().duration_since(made).map_or_else(|_| "0 s".to_owned(), ago)
}

fn named(verdict: &Verdict, which: &str) -> Verdict {
    Verdict { name: format!("{} ({which})", verdict.name), ..verdict.clone() }
}
