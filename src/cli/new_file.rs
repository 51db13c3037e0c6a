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

/// A file being written beside the place that it will take. Dropped before its end, it is gone, and what was there before is as it was.
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
            name.push(format!(".unfinished-{}", process::id()));
            PathBuf::from(name)
        });
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

fn begins_with(path: &Path, start: &str) -> bool {
    let mut begin = vec![0; start.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == start.as_bytes()
}
