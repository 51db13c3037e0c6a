//! What is written where.

use std::{
    fs::File,
    io::{self, IsTerminal, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use towtank::{
    document::Diagnostic,
    report::{Html, Perfetto, Report, Style},
    scenario::Verdict,
    trace::Recorder,
};

use super::Ending;

/// The report on standard output, and every expectation that does not hold, with its place, on standard error.
///
/// What was found decides how it ends, whoever reads the report or does not.
pub(crate) fn tell(report: &Report, verdicts: &[Verdict], json: bool) -> Result<(), Ending> {
    let written = write(report, json);
    let unmet: Vec<&Verdict> = verdicts.iter().filter(|v| !v.held).collect();
    for verdict in &unmet {
        say(&verdict.diagnostic().to_string());
    }
    if unmet.is_empty() { Ok(written?) } else { Err(Ending::Unmet) }
}

fn write(report: &Report, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", report.terminal(Style::for_stdout()))?;
    }
    out.flush()
}

/// A line on standard error; one that nobody reads is no failure.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// A trace file being written, and the recorder that writes it.
pub(crate) struct TraceFile(Option<PathBuf>);

impl TraceFile {
    /// A recorder that writes to `path`, when there is one.
    pub(crate) fn open(path: Option<&Path>) -> Result<(TraceFile, Recorder), Ending> {
        let Some(path) = path else { return Ok((TraceFile(None), Recorder::new())) };
        refuse_to_overwrite(path, "--trace", "trace", b"{[")?;
        let file = File::create(path).map_err(|e| {
            let wrong = Diagnostic::new(format!("cannot write the trace to `{}`: {e}", path.display()));
            wrong.hint("`--trace` takes a file in a folder that can be written")
        })?;
        Ok((TraceFile(Some(path.to_owned())), Recorder::new().stream_to(Perfetto::new(file))))
    }

    /// Writes what is left, and says where the trace is.
    pub(crate) fn close(self, recorder: &mut Recorder) -> Result<(), Ending> {
        let Some(path) = self.0 else { return Ok(()) };
        recorder.finish().map_err(|e| named(&path, e))?;
        say(&format!("trace written to `{}`; open it in ui.perfetto.dev", path.display()));
        Ok(())
    }
}

/// A file of ours may take the place of one of its kind, known by how it starts; anything else that is there was probably not meant.
fn refuse_to_overwrite(path: &Path, flag: &str, what: &str, starts: &[u8]) -> Result<(), Ending> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    let mut start = [0; 1];
    let ours = !metadata.is_file()
        || metadata.len() == 0
        || File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && starts.contains(&start[0]);
    match ours {
        true => Ok(()),
        false => {
            let wrong = Diagnostic::new(format!("`{}` exists and is no {what}: it is left as it is", path.display()));
            Err(wrong.hint(format!("`{flag}` takes the name of a new file, or of a {what} to write over")).into())
        }
    }
}

/// The page that the report is to be written to.
pub(crate) struct PageFile(Option<(PathBuf, File)>);

impl PageFile {
    /// Opened before anything runs, so that a wrong path costs nothing.
    pub(crate) fn open(path: Option<&Path>) -> Result<PageFile, Ending> {
        let Some(path) = path else { return Ok(PageFile(None)) };
        refuse_to_overwrite(path, "--html", "page", b"<")?;
        let file = File::create(path).map_err(|e| {
            let wrong = Diagnostic::new(format!("cannot write the page to `{}`: {e}", path.display()));
            wrong.hint("`--html` takes a file in a folder that can be written")
        })?;
        Ok(PageFile(Some((path.to_owned(), file))))
    }

    /// `recorder`, keeping what the page needs, when there is one.
    pub(crate) fn watch(&self, recorder: Recorder) -> Recorder {
        if self.0.is_some() { recorder.keep_timeline() } else { recorder }
    }

    /// Writes the page, when there is one, and says where it is.
    pub(crate) fn write(self, page: &Html<'_>) -> Result<(), Ending> {
        let Some((path, mut file)) = self.0 else { return Ok(()) };
        file.write_all(page.render().as_bytes()).map_err(|e| named(&path, e))?;
        say(&format!("page written to `{}`; open it in a browser", path.display()));
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
        bar.set_message(doing);
        bar.enable_steady_tick(Duration::from_millis(100));
        Spinner(bar)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
