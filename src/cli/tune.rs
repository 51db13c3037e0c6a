//! `towtank tune`: the cheapest settings that meet a goal.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    path::{self, Path},
    sync::Mutex,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use towtank::{
    document::{Diagnostic, printable},
    scenario::{self, Scenario, TUNED},
    tune::{self, Asked, Cost, Goal, Progress, Question, Tuned, expected, goals, tune},
    units::{Count, counted},
};

use super::{
    Ending,
    args::TuneArgs,
    new_file::{Kind, NewFile},
    output::{PAGE, print, say},
    sim::{note_the_reference, samples},
};

const SCENARIO: Kind = Kind { flag: "--out", what: "tuned scenario", start: TUNED };

pub(crate) fn run(args: &TuneArgs) -> Result<(), Ending> {
    let typed = &args.scenario;
    let scenario = scenario::load(&typed.scenario, &typed.overrides())?;
    let question = Question {
        cheapest: Cost::parse(&args.cheapest)?,
        space: Asked::parse(&args.space)?,
        samples: args.samples.map(|n| n.0),
        seeds: args.seeds,
        simulations: usize::try_from(args.simulations.0).unwrap_or(usize::MAX),
        ..Question::new(wanted(args, &scenario)?)
    };
    let machine = scenario.machine_model()?;
    note_the_reference(&scenario);
    let samples = samples(None, &scenario)?;
    let files = Files::open(args)?;
    let bar = Bar::start();
    let tuned = tune(&scenario, &machine, &samples, &question, &|progress| bar.tell(progress));
    bar.end();
    let tuned = tuned?;
    if tuned.samples < tuned.samples_of {
        let (part, all) = (Count(tuned.samples), Count(tuned.samples_of));
        say(&format!("note: searched with the first {part} of {all} samples, and verified with all; `--samples` sets how many"));
    }
    let told = print(&tuned, typed.json, || printable(&tuned.terminal()).into_owned());
    // Whoever has closed standard output may still want the files.
    files.close(args, &tuned)?;
    told?;
    if tuned.winner.is_none() { Err(Ending::Failed(tuned.why_not())) } else { Ok(()) }
}

/// The goals that were typed, or else those that the scenario expects.
fn wanted(args: &TuneArgs, scenario: &Scenario) -> Result<Vec<Goal>, Ending> {
    let typed = goals(&args.goals)?;
    if !typed.is_empty() {
        return Ok(typed);
    }
    let expected = expected(scenario);
    if expected.is_empty() {
        let wrong = Diagnostic::new(format!("nothing says what `{}` has to meet", scenario.name));
        return Err(wrong.hint("say it with `--for \"AU >= 95 %\"`, or as an expectation of the scenario").into());
    }
    let list: Vec<String> = expected.iter().map(Goal::to_string).collect();
    say(&format!("note: without `--for` the goal is what the scenario expects: {}", list.join(" and ")));
    Ok(expected)
}

/// What is written beside standard output; opened before anything is simulated.
struct Files {
    scenario: Option<(NewFile, File)>,
    page: Option<(NewFile, File)>,
}

impl Files {
    fn open(args: &TuneArgs) -> Result<Files, Ending> {
        let absolute = |path: &Path| path::absolute(path).ok();
        if let (Some(out), Some(page)) = (&args.out, &args.html)
            && absolute(out) == absolute(page)
        {
            let wrong = Diagnostic::new(format!("the scenario and the page cannot both be `{}`", page.display()));
            return Err(wrong.hint("give `--out` and `--html` a file each").into());
        }
        let open = |path: &Option<_>, kind| path.as_deref().map(|path| NewFile::open(path, kind)).transpose();
        Ok(Files { scenario: open(&args.out, &SCENARIO)?, page: open(&args.html, &PAGE)? })
    }

    fn close(self, args: &TuneArgs, tuned: &Tuned) -> Result<(), Ending> {
        if let Some((new, file)) = self.page {
            let path = put(new, file, &tuned.page())?;
            say(&format!("page written to `{path}`; open it in a browser"));
        }
        // Without a winner there is no scenario to write, and what was there stays.
        if let (Some((new, file)), Some(_)) = (self.scenario, &tuned.winner) {
            let typed = &args.scenario;
            let goals: Vec<String> = tuned.goals.iter().map(Goal::to_string).collect();
            let costs: Vec<&str> = tuned.cheapest.iter().map(|cost| cost.name()).collect();
            let note = format!("the cheapest in {} with {}", costs.join(", then "), goals.join(" and "));
            let expectations: Vec<String> =
                tuned.goals.iter().map(|g| g.expectation()).map(|(path, value)| format!("{path}={value}")).collect();
            let text = scenario::edited(&typed.scenario, &typed.overrides(), &tuned.sets(), &expectations, &note)?;
            let path = put(new, file, &text)?;
            say(&format!(
                "scenario written to `{path}`, which expects the goal instead of other figures; `towtank sim {path}` holds it"
            ));
        }
        Ok(())
    }
}

fn put(new: NewFile, mut file: File, text: &str) -> Result<String, Ending> {
    let path = new.path().display().to_string();
    let written = file.write_all(text.as_bytes()).and_then(|()| new.finish());
    written.map_err(|e| Ending::Output(io::Error::new(e.kind(), format!("`{path}`: {e}"))))?;
    Ok(path)
}

/// Simulations done, and how many a second; only on a terminal.
struct Bar {
    bar: ProgressBar,
    searched: Mutex<Duration>,
}

impl Bar {
    fn start() -> Bar {
        let bar = if io::stderr().is_terminal() { ProgressBar::new(tune::SIMULATIONS as u64) } else { ProgressBar::hidden() };
        let style = "{spinner} {bar:40} {pos} of at most {len} simulations, {per_sec}  {msg}";
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(100));
        Bar { bar, searched: Mutex::new(Duration::ZERO) }
    }

    fn tell(&self, progress: Progress) {
        match progress {
            Progress::Searching { most, .. } => {
                self.bar.set_length(most as u64);
                self.bar.reset_elapsed();
            }
            Progress::Simulated => {
                self.bar.inc(1);
                *self.searched.lock().expect("nobody panics with it") = self.bar.elapsed();
            }
            Progress::Verifying => self.bar.set_message("verifying the whole scenario"),
        }
    }

    fn end(&self) {
        let (n, took) = (self.bar.position(), self.searched.lock().expect("nobody panics with it").as_secs_f64());
        self.bar.finish_and_clear();
        if n > 0 && took > 0.0 {
            let simulations = counted(n, "simulation", "simulations");
            say(&format!("{simulations} in {took:.1} s, {:.0} a second", n as f64 / took));
        }
    }
}
