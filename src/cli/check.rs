//! `towtank check`: whether a scenario's loader is right, under many schedules, costs and faults.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use sha2::{Digest, Sha256};
use towtank::{
    check::{self, Checked, Failure, Mark, OwnLoader, Schedules, Step},
    document::{Diagnostic, printable, shell_word},
    fault::Hits,
    scenario::{self, MachineChoice, REFERENCE, Scenario},
    units::{Count, counted},
};

use super::{
    Ending,
    args::{CheckArgs, chooser_name},
    new_file::{Kind, NewFile},
    output::say,
};

/// What a failure is written as.
const FAILURE: Kind = Kind { flag: "--out", what: "failure of a check", start: check::FAILURE };

/// Where failures are written to, unless told otherwise.
pub(super) const FOLDER: &str = "failures";

pub(crate) fn run(args: &CheckArgs) -> Result<(), Ending> {
    let typed = &args.scenario;
    let scenario = scenario::load(&typed.scenario, &typed.overrides())?;
    if !args.trace.is_empty() {
        return super::check_trace::run(&scenario, &args.trace, typed.json);
    }
    let (index, of) = shard(args.shard.as_deref())?;
    if args.seeds.0 <= index {
        let wrong = Diagnostic::new(format!("`--seeds {}` leaves nothing to check", args.seeds));
        return Err(wrong.hint("a check looks at one seed at least, and each of N shards at one in N").into());
    }
    if scenario.machine == MachineChoice::This {
        say(&format!("note: checked on `{REFERENCE}`, so that what is found is found again anywhere"));
    }
    if scenario.faults.stalled != Hits::NONE && scenario.loader.fetch_deadline.is_none() {
        say("note: reads that are never answered (`faults.stalled`) hang any loader without `loader.fetch_deadline`");
    }
    let folder = args.out.clone().unwrap_or_else(|| PathBuf::from(FOLDER));
    can_be_written(&folder)?;
    let mut check = towtank::check(&scenario)
        .seeds(args.seeds.0)
        .samples(args.samples.0)
        .schedule(args.chooser)
        .swarm(args.swarm)
        .twice_every(args.twice_every.0)
        .shard(index, of)
        .all(args.all);
    if let Some(jobs) = args.jobs {
        check = check.jobs(usize::try_from(jobs.0).unwrap_or(usize::MAX).min(1024));
    }
    let (progress, begun) = (Progress::start(args.seeds.0.div_ceil(of)), now());
    let quiet = Quiet::start();
    let checked = check.run_watched(&|step| progress.step(step));
    drop(quiet);
    drop(progress);
    let (checked, took) = (checked?, begun.elapsed());
    let mut files = Vec::new();
    for failure in &checked.failures {
        files.push(write(args, &folder, failure)?);
    }
    let told = match typed.json {
        true => tell_json(&checked, &files, took, (search(args, &scenario)?, index, of)),
        false => tell(&checked, args, took),
    };
    for (failure, file) in checked.failures.iter().zip(&files) {
        say(&failure.story());
        let file = file.to_string_lossy();
        say(&format!("written to `{}`; `towtank replay {}` repeats it", printable(&file), shell_word(&file)));
    }
    if checked.more_failures > 0 {
        say(&format!("and {} more", counted(checked.more_failures, "seed", "seeds")));
    }
    match broken(&checked) {
        words if words.is_empty() => Ok(told?),
        words => Err(Ending::Broken(words)),
    }
}

/// More shards than that no seeds are dealt to.
const SHARDS_MOST: u64 = 1 << 32;

/// `2/8` is the third of eight.
fn shard(typed: Option<&str>) -> Result<(u64, u64), Ending> {
    let Some(typed) = typed else { return Ok((0, 1)) };
    let parts = typed.split_once('/').and_then(|(index, of)| Some((index.trim().parse().ok()?, of.trim().parse().ok()?)));
    match parts {
        Some((index, of)) if index < of && of <= SHARDS_MOST => Ok((index, of)),
        _ => {
            let wrong = Diagnostic::new(format!("`--shard` is `{typed}`"));
            Err(wrong.expected("its number, from 0, and how many there are, 4_294_967_296 at most, such as `0/4`").into())
        }
    }
}

fn no_folder(folder: &Path, why: &io::Error) -> Diagnostic {
    let wrong = Diagnostic::new(format!("failures cannot be written to the folder `{}`: {why}", folder.display()));
    wrong.hint("`--out` takes a folder that can be written, or made")
}

/// Sees before anything is checked that a failure could be written to the folder, which is made only for one.
fn can_be_written(folder: &Path) -> Result<(), Ending> {
    let there = folder.ancestors().find_map(|at| {
        // A relative path begins in the folder that the program runs in.
        let at = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        fs::metadata(at).ok().map(|metadata| (at, metadata))
    });
    let Some((at, metadata)) = there else { return Ok(()) };
    if !metadata.is_dir() {
        let why = io::Error::new(io::ErrorKind::NotADirectory, format!("`{}` is no folder", at.display()));
        return Err(no_folder(folder, &why).into());
    }
    let access = rustix::fs::access(at, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    access.map_err(|error| no_folder(folder, &error.into()).into())
}

#[expect(clippy::disallowed_methods, reason = "how long a check takes is no part of it")]
fn now() -> Instant {
    Instant::now()
}

/// Writes the failure as a scenario's file, and sees whether that repeats it.
fn write(args: &CheckArgs, folder: &Path, failure: &Failure) -> Result<PathBuf, Ending> {
    fs::create_dir_all(folder).map_err(|e| no_folder(folder, &e))?;
    let path = folder.join(format!("{}-{}.toml", failure.scenario, failure.seed));
    let (name, text) = scenario::text(&args.scenario.scenario)?;
    let (case, finding, run) = (&failure.shrunk.case, &failure.shrunk.finding, &failure.shrunk.run);
    let text = check::written(&name, &text, &args.scenario.overrides(), case, finding, run)?;
    let (new, mut file) = NewFile::open(&path, &FAILURE)?;
    file.write_all(text.as_bytes())?;
    new.finish()?;
    let quiet = Quiet::start();
    let again = check::replays(&path.to_string_lossy(), &text, &OwnLoader, finding)?;
    drop(quiet);
    if !again {
        say(&format!("note: `{}` does not fail when it is repeated, as it should", path.display()));
    }
    Ok(path)
}

fn tell(checked: &Checked, args: &CheckArgs, took: Duration) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let cut = match checked.whole > checked.samples {
        true => format!(
            ", cut to {} of {} samples in batches of {}",
            Count(checked.samples),
            Count(checked.whole),
            Count(checked.batch)
        ),
        false => String::new(),
    };
    writeln!(out, "checked `{}`{cut}", printable(&checked.scenario))?;
    let from = args.scenario.seed.map_or("the scenario's own".to_owned(), |seed| seed.to_string());
    let (looked, number, unit) = match checked.schedules {
        None => (format!("{} from {from}", counted(checked.seeds, "seed", "seeds")), checked.seeds, "seeds"),
        Some(Schedules { seen, all }) => {
            let words = match (all, seen) {
                (true, 1) => "the only schedule",
                (true, _) => "all {N} schedules",
                (false, _) => "the first {N} of more schedules",
            };
            let of = args.scenario.seed.map_or("the scenario's own seed".to_owned(), |seed| format!("seed {seed}"));
            (format!("{} of {of}", words.replace("{N}", &Count(seen).to_string())), seen, "schedules")
        }
    };
    let per_s = number as f64 / took.as_secs_f64().max(1e-9);
    writeln!(
        out,
        "  {looked}{}, {}, {}, {:.1} s simulated, in {:.2} s: {:.0} {unit}/s",
        if args.swarm { ", swarming" } else { "" },
        counted(checked.runs, "run", "runs"),
        counted(checked.events, "event", "events"),
        checked.simulated_ns as f64 / 1e9,
        took.as_secs_f64(),
        per_s
    )?;
    let reached: Vec<&Mark> = Mark::ALL.iter().filter(|mark| checked.coverage.of(**mark) > 0).collect();
    writeln!(out, "  reached:")?;
    for mark in reached {
        writeln!(out, "    {:>9}  {}", Count(checked.coverage.of(*mark)), mark.words())?;
    }
    let never: Vec<&str> = checked.coverage.never().map(Mark::words).collect();
    if !never.is_empty() {
        writeln!(out, "  never reached, so nothing is known of it:")?;
        never.iter().try_for_each(|words| writeln!(out, "               {words}"))?;
    }
    match broken(checked) {
        words if words.is_empty() => writeln!(out, "  nothing is broken")?,
        words => writeln!(out, "  broken: {words}")?,
    }
    out.flush()
}

/// Which invariants are broken, and under which seeds; empty for none.
fn broken(checked: &Checked) -> String {
    let mut seeds: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for failure in &checked.failures {
        seeds.entry(failure.shrunk.finding.invariant).or_default().push(failure.seed);
    }
    let named = seeds.iter().map(|(invariant, seeds)| match seeds.as_slice() {
        [seed] => format!("{invariant} under seed {seed}"),
        [first, ..] => format!("{invariant} under {} seeds, {first} among them", seeds.len()),
        [] => (*invariant).to_owned(),
    });
    named.collect::<Vec<_>>().join(", ")
}

/// Where a report says what all shards of a search have in common.
pub(super) const SEARCH: &str = "search";
/// Where it says which shard it is of.
pub(super) const SHARD: &str = "shard";

/// What shards of one search have in common: what is checked, as a hash, and how.
fn search(args: &CheckArgs, scenario: &Scenario) -> Result<serde_json::Value, Ending> {
    let (_, text) = scenario::text(&args.scenario.scenario)?;
    let machine = match &scenario.machine {
        MachineChoice::This => String::new(),
        MachineChoice::Named(_) => scenario.machine_model()?.to_toml(),
    };
    // The model of a dataset is a file of its own too.
    let checked = [text, args.scenario.sets.join("\n"), machine, format!("{:?}", scenario.dataset)].join("\0");
    let fingerprint = Sha256::digest(checked).iter().take(8).fold(String::new(), |hash, byte| format!("{hash}{byte:02x}"));
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "fingerprint": fingerprint,
        "seed": scenario.seed,
        "seeds": args.seeds.0,
        "chooser": chooser_name(args.chooser),
        "swarm": args.swarm,
        "twice_every": args.twice_every.0,
        "all": args.all,
    }))
}

fn tell_json(
    checked: &Checked,
    files: &[PathBuf],
    took: Duration,
    (search, index, of): (serde_json::Value, u64, u64),
) -> io::Result<()> {
    let failures: Vec<_> = checked.failures.iter().zip(files).map(|(failure, file)| one(failure, file)).collect();
    let coverage: serde_json::Map<String, serde_json::Value> =
        Mark::ALL.iter().map(|mark| (mark.words().to_owned(), json!(checked.coverage.of(*mark)))).collect();
    let report = json!({
        "scenario": checked.scenario,
        SEARCH: search,
        SHARD: { "index": index, "of": of },
        "samples": checked.samples,
        "batch": checked.batch,
        "samples_of_the_scenario": checked.whole,
        "seeds": checked.seeds,
        "schedules": checked.schedules.map(|schedules| json!({ "seen": schedules.seen, "all": schedules.all })),
        "runs": checked.runs,
        "events": checked.events,
        "simulated_s": checked.simulated_ns as f64 / 1e9,
        "took_s": took.as_secs_f64(),
        "coverage": coverage,
        "failures": failures,
        "more_failures": checked.more_failures,
    });
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &report)?;
    writeln!(out)?;
    out.flush()
}

fn one(failure: &Failure, file: &Path) -> serde_json::Value {
    let shrunk = &failure.shrunk;
    json!({
        "seed": failure.seed,
        "invariant": shrunk.finding.invariant,
        "why": shrunk.finding.broken.why,
        "samples": shrunk.case.scenario.dataset.count(),
        "choices": shrunk.run.tape.len(),
        "events": shrunk.run.events.len(),
        "before": {
            "samples": shrunk.from.samples,
            "epochs": shrunk.from.epochs,
            "lanes": shrunk.from.lanes,
            "choices": shrunk.from.choices,
            "events": shrunk.from.events,
        },
        "looks": shrunk.looks,
        "trace_hash": format!("{:016x}", shrunk.run.hash),
        "file": file.to_string_lossy(),
    })
}

/// While it lives, panics of the loader under test are not printed: they are findings, and told as such.
pub(super) struct Quiet;

impl Quiet {
    pub(super) fn start() -> Quiet {
        std::panic::set_hook(Box::new(|_| {}));
        Quiet
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // The hook may not be changed by a thread that panics.
        if !std::thread::panicking() {
            _ = std::panic::take_hook();
        }
    }
}

/// A bar of seeds with their rate and the time they simulated; only on a terminal.
struct Progress {
    bar: ProgressBar,
    seeds: AtomicU64,
    simulated_ms: AtomicU64,
}

impl Progress {
    /// Seeds between two looks at the bar.
    const EVERY: u64 = 64;

    fn start(seeds: u64) -> Progress {
        let bar = if io::stderr().is_terminal() { ProgressBar::new(seeds) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{bar:30} {human_pos} of {human_len} seeds, {per_sec}, {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Progress { bar, seeds: AtomicU64::new(0), simulated_ms: AtomicU64::new(0) }
    }

    fn step(&self, step: Step) {
        match step {
            Step::Seed { simulated_ns } => {
                let ms = self.simulated_ms.fetch_add(simulated_ns / 1_000_000, Ordering::Relaxed);
                let seeds = self.seeds.fetch_add(1, Ordering::Relaxed) + 1;
                if seeds.is_multiple_of(Progress::EVERY) {
                    self.bar.set_position(seeds);
                    self.bar.set_message(format!("{:.0} s simulated", ms as f64 / 1e3));
                }
            }
            Step::Shrinking { seed } => self.bar.set_message(format!("seed {seed} fails; looking for a smaller case")),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
