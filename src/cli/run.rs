//! `towtank run`: what a scenario's loader does on this computer.

use std::env;

use towtank::{
    document::Diagnostic,
    fault::Hits,
    loader::Error,
    measure::{
        Meeting,
        processes::{self, Member},
    },
    report::{Expectation, Html, Metrics, Report},
    scenario::{MeasuringError, Samples, Scenario, Torchrun, Way},
    source::Source,
};

use super::{
    Ending,
    args::RunArgs,
    device::{OUT_OF_MEMORY, is_out_of_memory},
    images::{Look, images, settle},
    output::{Files, Spinner, say, tell},
    store,
};

pub(crate) fn run(args: &RunArgs) -> Result<(), Ending> {
    let typed = &args.scenario;
    let mut overrides = typed.overrides_of(args.ranks);
    let (mut scenario, _) = store::load(&typed.scenario, &overrides, args.data.as_deref())?;
    let process = Torchrun::read(|name| env::var(name).ok())?;
    if let Some(process) = &process {
        overrides.sets.extend(process.overrides(&scenario)?.sets);
        (scenario, _) = store::load(&typed.scenario, &overrides, args.data.as_deref())?;
    }
    refuse_endless(&scenario)?;
    let gpus = args.device.open()?.map(|gpus| match process.as_ref().and_then(|process| process.local_rank) {
        // Each process of a node trains on a GPU of its own.
        Some(local) => gpus.only(usize::from(local)),
        None => gpus,
    });
    let images = images(&scenario, args.data.as_deref(), Look::Bytes)?;
    let output = match &process {
        Some(process) => args.output.of_rank(process.rank),
        None => args.output.clone(),
    };
    let (files, recorder) = Files::open(&output)?;
    settle(&scenario, &images);
    let meeting = process.map(|process| meeting(&scenario, &images.samples, &process)).transpose()?.flatten();
    let spinner = Spinner::start(format!("running `{}`", scenario.name));
    let way = Way { meeting, gpus, ..Way::default() };
    let measured = scenario.measure_as(images.source.clone(), &images.samples, recorder, way);
    drop(spinner);
    let mut measured = measured.map_err(failed)?;
    note_the_neighbours(&measured.metrics);
    let mut report = Report::new(scenario.name.clone(), scenario.seed, None, Some(measured.metrics.clone()));
    report.expectations = measured.verdicts.iter().map(Expectation::from).collect();
    let early = measured.error.as_ref().map(|error| ended_early("loader", measured.failed_rank, error, &*images.source));
    report.error.clone_from(&early);
    let told = tell(&report, &measured.verdicts, typed.json);
    let closed = files.close(&mut measured.recorder, |traced| Html::new(&report).measured(traced.timeline()).render());
    match early {
        Some(why) => Err(Ending::Failed(why)),
        None => told.and(closed),
    }
}

/// Where this process meets the others of its job, once all of them are there; `None` where each steps by itself. It says which rank it is.
fn meeting(scenario: &Scenario, samples: &Samples, process: &Torchrun) -> Result<Option<Box<dyn Meeting>>, Ending> {
    let Torchrun { rank, world, local_rank, master, .. } = process;
    let local = local_rank.map_or_else(String::new, |local| format!(", local rank {local}"));
    let note = |how: &str| say(&format!("note: rank {rank} of {world}{local}, as the environment says; {how}"));
    match master {
        Some((address, port)) if scenario.ranks.barrier => {
            note(&format!("it meets the others at {address}:{port} after every step"));
            let settings = process.settings(scenario, samples);
            let member = Member { rank: *rank, world: *world, settings: &settings };
            let met = processes::meet(member, (address, *port), processes::PATIENCE, &|words| say(words));
            return met
                .map(Some)
                .map_err(|error| Ending::Failed(format!("the ranks did not meet: {error}\nhint: {}", error.hint())));
        }
        Some(_) => note("it steps by itself, as `ranks.barrier = false` says"),
        None => note("it steps by itself, since `MASTER_ADDR` and `MASTER_PORT` do not say where to meet"),
    }
    Ok(None)
}

/// Why a loader ended before its plan did, with the file's name and a way out; of several ranks, which one's.
pub(super) fn ended_early(which: &str, rank: Option<u16>, error: &Error, source: &dyn Source) -> String {
    let which = format!("the {which}{} ended early", of_rank(rank));
    match error {
        Error::Sample { item, .. } => format!(
            "{which}: `{}`: {error}\nhint: `loader.errors = \"skip\"` leaves out what fails, and counts it",
            source.name(item.sample)
        ),
        Error::TooManySkipped { item, .. } => {
            format!("{which}: `{}`: {error}\nhint: raise `loader.skip_at_most`", source.name(item.sample))
        }
        _ => with_memory_hint(format!("{which}: {error}")),
    }
}

/// With what helps when a GPU's memory was full.
fn with_memory_hint(why: String) -> String {
    if is_out_of_memory(&why) { format!("{why}\nhint: {OUT_OF_MEMORY}") } else { why }
}

/// Which of several ranks.
pub(super) fn of_rank(rank: Option<u16>) -> String {
    rank.map_or_else(String::new, |rank| format!(" of rank {rank}"))
}

/// Refuses what can only be simulated: other designs, ranks on several nodes, and reads that never end and that nothing gives up on, since
/// a real run would never end either.
pub(super) fn refuse_endless(scenario: &Scenario) -> Result<(), Ending> {
    scenario.only_ours("can be simulated, and not run")?;
    scenario.only_here()?;
    scenario.only_so_many_threads()?;
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
        MeasuringError::Machine(error) => Ending::Failed(with_memory_hint(error.to_string())),
        MeasuringError::Gpu(_) => Ending::Failed(with_memory_hint(error.to_string())),
    }
}
