//! Real images for a scenario: the user's, or made once and kept.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    sync::Arc,
};

use indicatif::{ProgressBar, ProgressStyle};
use towtank::{
    document::{Diagnostic, Trouble},
    model,
    scenario::{Dataset, EMULATED, Samples, Scenario},
    source::{Folder, Source},
    synth,
    units::counted,
};

use super::{
    Ending,
    output::{Spinner, say},
    store,
};

/// Images, and how large each of them is.
pub(crate) struct Images {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) samples: Samples,
    /// The folder they lie in, unless they lie in a store.
    folder: Option<Arc<Folder>>,
}

/// What must be known of images in a store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Their bytes, which the store lists.
    Bytes,
    /// Their pixels too, for which the beginning of each must be read.
    Pixels,
}

/// The images of `--data`, else those the scenario asks for.
pub(crate) fn images(scenario: &Scenario, data: Option<&Path>, look: Look) -> Result<Images, Ending> {
    let path = match (data, &scenario.dataset) {
        (Some(data), _) => data.to_owned(),
        (None, Dataset::Folder(path)) => path.clone(),
        (None, Dataset::Synthetic { count, seed }) => synthetic(*count, *seed)?,
        (None, Dataset::Drawn(model)) => {
            let what = format!("the dataset of `{}`, \"{}\", exists only as a model", scenario.name, model.title);
            let hint = "`--data DIR` reads the images of a folder instead";
            return Err(wrong(Diagnostic::new(what).at(scenario.places.of("dataset.kind")).hint(hint)));
        }
    };
    let place = || if data.is_some() { None } else { scenario.places.of("dataset.path") };
    if let Some(url) = store::url(&path) {
        let (source, samples) = store::images(url, look).map_err(|diagnostic| wrong(diagnostic.at(place())))?;
        return Ok(Images { source, samples, folder: None });
    }
    let _spinner = Spinner::start(format!("looking at the images in `{}`", path.display()));
    let folder =
        Folder::images(&path).map_err(|error| wrong(Diagnostic::new(error.to_string()).at(place()).hint(error.hint())))?;
    let samples = Samples::of_source(&folder);
    let folder = Arc::new(folder);
    Ok(Images { source: folder.clone(), samples, folder: Some(folder) })
}

fn wrong(diagnostic: Diagnostic) -> Ending {
    Ending::Input(Trouble::from(diagnostic))
}

/// The folder in which this program keeps what it can make again.
pub(crate) fn cache_folder() -> Result<PathBuf, Ending> {
    model::cache_file().and_then(|file| file.parent().map(Path::to_owned)).ok_or_else(|| {
        let hint = "set HOME or XDG_CACHE_HOME, or name a folder of images with `--data DIR`";
        wrong(Diagnostic::new("this user has no cache folder to keep images in").hint(hint))
    })
}

/// The folder of synthetic images, made if it is not there.
fn synthetic(count: u64, seed: u64) -> Result<PathBuf, Ending> {
    let folder = synthetic_folder(count, seed)?;
    write(&folder, count, seed)?;
    Ok(folder)
}

/// Where synthetic images are kept.
pub(crate) fn synthetic_folder(count: u64, seed: u64) -> Result<PathBuf, Ending> {
    Ok(cache_folder()?.join(format!("images-{}-{seed}-{count}", synth::VERSION)))
}

/// Writes synthetic images, those that are missing, with a progress bar on a terminal.
pub(crate) fn write(folder: &Path, count: u64, seed: u64) -> Result<synth::Summary, Ending> {
    let bar = bar(count, "making images");
    let summary = synth::write_folder(folder, count, seed, |done| bar.set_position(done));
    bar.finish_and_clear();
    let summary = summary.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::InvalidData => "choose another folder, or remove this one",
            _ => "choose a folder that can be written, or set XDG_CACHE_HOME to one",
        };
        wrong(Diagnostic::new(format!("cannot write images to `{}`: {error}", folder.display())).hint(hint))
    })?;
    if summary.made > 0 {
        say(&format!("{} made in `{}`", counted(summary.made, "image", "images"), folder.display()));
    }
    Ok(summary)
}

/// A progress bar; hidden unless standard error is a terminal.
pub(crate) fn bar(steps: u64, doing: &'static str) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(steps) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}");
    bar.set_style(style.expect("the template is sound"));
    bar.set_message(doing);
    bar
}

/// Makes sure that images are where the scenario says: those that lie on a disk not in the page cache, if that can be.
pub(super) fn settle(scenario: &Scenario, images: &Images) {
    let Some(folder) = images.folder.as_deref() else { return };
    match scenario.store.kind.as_str() {
        "disk" => {
            folder.evict();
            match folder.cached() {
                // Looking has begun to bring them back.
                0 => wait_and_evict(folder),
                some => {
                    wait_and_evict(folder);
                    say(&format!("note: {some} of the images stay in the page cache, so not all reads are of the disk"));
                }
            }
            if scenario.loader.epochs > 1 {
                say("note: only the first epoch reads from the disk; what it read stays in the page cache");
            }
        }
        "page-cache" | EMULATED => {}
        other => say(&format!(
            "note: images are read from where they are, not from a store of kind {other:?}; `--set store.kind={EMULATED}` has reads wait as \
             the scenario says"
        )),
    }
}

/// What is on its way into the page cache cannot be dropped before it is there.
fn wait_and_evict(folder: &Folder) {
    let mut data = Vec::new();
    for sample in 0..folder.len() {
        // What cannot be read is for the loader to tell of.
        let _ = folder.read(sample, &mut data, &|| true);
    }
    folder.evict();
}
