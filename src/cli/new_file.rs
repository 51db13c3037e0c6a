//! A file that takes its place only when it is whole.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    process,
};

use towtank::document::Diagnostic;

use super::Ending;

/// What kind of file a flag writes.
pub(crate) struct Kind {
    pub(crate) flag: &'static str,
    pub(crate) what: &'static str,
    /// How one begins.
    pub(crate) start: &'static str,
}

/// A file being written beside the place that it will take. Dropped before its end, it is gone, and what was there before is as it was. What
/// a process that was killed left goes when the next one writes a file of that name.
pub(crate) struct NewFile {
    path: PathBuf,
    /// Where it is written; `None` for what is no ordinary file, such as a pipe, which is written to directly.
    unfinished: Option<PathBuf>,
}

impl NewFile {
    /// Opened before anything runs, so that a wrong path costs nothing. It may take the place of a file of its own kind; anything else
    /// that is there was probably not meant.
    pub(crate) fn open(path: &Path, kind: &Kind) -> Result<(NewFile, File), Ending> {
        let there = fs::metadata(path).ok();
        if there.as_ref().is_some_and(|m| m.is_file() && m.len() > 0) && !begins_with(path, kind.start) {
            let wrong = Diagnostic::new(format!("`{}` exists and is no {}: it is left as it is", path.display(), kind.what));
            return Err(wrong
                .hint(format!("`{}` takes the name of a new file, or of a {} to write over", kind.flag, kind.what))
                .into());
        }
        let unfinished = there.is_none_or(|m| m.is_file()).then(|| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!("{UNFINISHED}{}-{}", host(), process::id()));
            PathBuf::from(name)
        });
        if unfinished.is_some() {
            sweep(path, kind);
        }
        let file = File::create(unfinished.as_deref().unwrap_or(path)).map_err(|e| {
            let wrong = Diagnostic::new(format!("cannot write the {} to `{}`: {e}", kind.what, path.display()));
            wrong.hint(format!("`{}` takes a file in a folder that can be written", kind.flag))
        })?;
        Ok((NewFile { path: path.to_owned(), unfinished }, file))
    }

    /// Where it will be.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// It is whole, and takes its place.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        match self.unfinished.take() {
            Some(unfinished) => fs::rename(&unfinished, &self.path),
            None => Ok(()),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // It may be gone already, and nobody needs it.
            let _ = fs::remove_file(unfinished);
        }
    }
}

/// What comes between a file's name and who writes it: computer and process.
const UNFINISHED: &str = ".unfinished-";

/// What this computer is called; folders may be shared with others, on which the same number is another process.
fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '.').collect()
}

/// Removes what earlier processes of this computer began to write in place of `path` and were ended before they could: files of this name that
/// begin as one of the kind does, of processes that are no more. What cannot be removed is in nobody's way.
fn sweep(path: &Path, kind: &Kind) {
    let (Some(name), Some(folder)) = (path.file_name().and_then(|name| name.to_str()), path.parent()) else { return };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = fs::read_dir(folder) else { return };
    let (begin, host) = (format!("{name}{UNFINISHED}"), host());
    for entry in entries.flatten() {
        let file = entry.file_name();
        let of = file.to_str().and_then(|file| file.strip_prefix(&begin)).and_then(|of| of.rsplit_once('-'));
        let Some(process) = of.filter(|(at, _)| *at == host).and_then(|(_, process)| process.parse().ok()) else { continue };
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && is_gone(process) && is_begun(&entry.path(), kind.start) {
            // Another may have done it.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether no process has this number.
fn is_gone(process: i32) -> bool {
    use rustix::{
        io::Errno,
        process::{Pid, test_kill_process},
    };
    Pid::from_raw(process).is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH))
}

/// Whether the file has the beginning of its kind, as far as it was written.
fn is_begun(path: &Path, start: &str) -> bool {
    let mut begin = Vec::new();
    let read = File::open(path).and_then(|file| file.take(start.len() as u64).read_to_end(&mut begin));
    read.is_ok() && start.as_bytes().starts_with(&begin)
}

fn begins_with(path: &Path, start: &str) -> bool {
    let mut begin = vec![0; start.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == start.as_bytes()
}
