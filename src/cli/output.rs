//! What is written where.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    path::{self, Path},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use towtank::{
    document::{Diagnostic, printable},
    report::{Html, Perfetto, Report, Style},
    scenario::Verdict,
    trace::Recorder,
};

use super::{
    Ending,
    args::OutputArgs,
    new_file::{Kind, NewFile},
};

/// The report on standard output, and every expectation that does not hold, with its place, on standard error.
///
/// What was found decides how it ends, whoever reads the report or does not.
pub(crate) fn tell(report: &Report, verdicts: &[Verdict], json: bool) -> Result<(), Ending> {
    let written = print(report, json, || report.terminal(Style::for_stdout()));
    let unmet: Vec<&Verdict> = verdicts.iter().filter(|v| !v.held).collect();
    for verdict in &unmet {
        say(&verdict.diagnostic().to_string());
    }
    if unmet.is_empty() { Ok(written?) } else { Err(Ending::Unmet) }
}

/// What was found, on standard output: as JSON, or in words.
pub(super) fn print(found: &impl Serialize, json: bool, words: impl FnOnce() -> String) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, found)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", words())?;
    }
    out.flush()
}

/// A line on standard error, in which no name of a file can do anything to a terminal; one that nobody reads is no failure.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(line));
}

const TRACE: Kind = Kind { flag: "--trace", what: "trace", start: Perfetto::START };
pub(super) const PAGE: Kind = Kind { flag: "--html", what: "page", start: Html::START };

/// Where a run is written to beside standard output.
pub(crate) struct Files {
    trace: Option<NewFile>,
    page: Option<(NewFile, File)>,
}

impl Files {
    /// The files that were asked for, and a recorder for the run that is traced.
    pub(crate) fn open(args: &OutputArgs) -> Result<(Files, Recorder), Ending> {
        if let (Some(trace), Some(page)) = (&args.trace, &args.html)
            && path::absolute(trace).ok() == path::absolute(page).ok()
        {
            let wrong = Diagnostic::new(format!("the trace and the page cannot both be `{}`", page.display()));
            return Err(wrong.hint("give `--trace` and `--html` a file each").into());
        }
        let page = args.html.as_deref().map(|path| NewFile::open(path, &PAGE)).transpose()?;
        let mut files = Files { trace: None, page };
        let mut recorder = files.watch(Recorder::new());
        if let Some(path) = &args.trace {
            let (trace, file) = NewFile::open(path, &TRACE)?;
            recorder = recorder.stream_to(Perfetto::new(file));
            files.trace = Some(trace);
        }
        Ok((files, recorder))
    }

    /// Whether anything is to be written beside standard output.
    pub(crate) fn are_wanted(&self) -> bool {
        self.trace.is_some() || self.page.is_some()
    }

    /// `recorder`, keeping what a page needs, when there is one.
    pub(crate) fn watch(&self, recorder: Recorder) -> Recorder {
        if self.page.is_some() { recorder.keep_timeline() } else { recorder }
    }

    /// Writes what is left, and says where it is. `traced` is the recorder that [`open`](Files::open) gave.
    pub(crate) fn close(self, traced: &mut Recorder, page: impl FnOnce(&Recorder) -> String) -> Result<(), Ending> {
        if let Some(trace) = self.trace {
            let path = trace.path().to_owned();
            traced.finish().and_then(|()| trace.finish()).map_err(|e| named(&path, e))?;
            say(&format!("trace written to `{}`; open it in ui.perfetto.dev", path.display()));
        }
        if let Some((new, mut file)) = self.page {
            let path = new.path().to_owned();
            file.write_all(page(traced).as_bytes()).and_then(|()| new.finish()).map_err(|e| named(&path, e))?;
            say(&format!("page written to `{}`; open it in a browser", path.display()));
        }
        Ok(())
    }
}

fn named(path: &Path, error: io::Error) -> Ending {
    Ending::Output(io::Error::new(error.kind(), format!("`{}`: {error}", path.display())))
}

/// A line that says what is going on until it is dropped; only on a terminal.
pub(crate) struct Spinner(ProgressBar);

impl Spinner {
    pub(crate) fn start(doing: String) -> Spinner {
        let bar = if io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.set_style(ProgressStyle::default_spinner());
        bar.set_message(printable(&doing).into_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Spinner(bar)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
