//! Images in an object store, named by a URL where a folder may stand.

use std::{path::Path, sync::Arc};

use towtank::{
    document::{Diagnostic, Trouble},
    scenario::{self, Dataset, EMULATED, OBJECT, Overrides, Samples, Scenario},
    source::Source,
};

use super::images::Look;

/// The URL that stands where a path may stand.
pub(super) fn url(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.contains("://"))
}

/// The scenario, reading from an object store when its images lie in one.
pub(super) fn load(path_or_name: &str, overrides: &Overrides, data: Option<&Path>) -> Result<(Scenario, Overrides), Trouble> {
    let scenario = scenario::load(path_or_name, overrides)?;
    let path = match (data, &scenario.dataset) {
        (None, Dataset::Folder(path)) => Some(path.as_path()),
        (data, _) => data,
    };
    let local = ["page-cache", "disk", EMULATED].contains(&scenario.store.kind.as_str());
    let said = overrides.sets.iter().any(|set| set.trim_start().starts_with("store.kind"));
    if path.and_then(url).is_none() || !local || said {
        return Ok((scenario, overrides.clone()));
    }
    let mut overrides = overrides.clone();
    overrides.sets.push(format!("store.kind={OBJECT}"));
    Ok((scenario::load(path_or_name, &overrides)?, overrides))
}

/// The images under a URL.
#[cfg(feature = "remote")]
pub(super) fn images(url: &str, look: Look) -> Result<(Arc<dyn Source>, Samples), Diagnostic> {
    use super::{images::bar, output::Spinner};

    let spinner = Spinner::start(format!("listing `{url}`"));
    let remote = open(url)?;
    drop(spinner);
    let samples = match look {
        Look::Bytes => Samples::of_listing(&*remote),
        Look::Pixels => {
            let bar = bar(remote.len(), "looking at the images");
            let samples = Samples::of_remote(&remote, |done| bar.set_position(done));
            bar.finish_and_clear();
            samples
        }
    };
    Ok((remote, samples))
}

/// The store's images, listed.
#[cfg(feature = "remote")]
pub(super) fn open(url: &str) -> Result<Arc<towtank::source::Remote>, Diagnostic> {
    match towtank::source::Remote::images(url) {
        Ok(remote) => Ok(Arc::new(remote)),
        Err(error) => Err(Diagnostic::new(error.to_string()).hint(error.hint())),
    }
}

/// What a program without stores says.
#[cfg(not(feature = "remote"))]
pub(super) fn images(url: &str, _look: Look) -> Result<(Arc<dyn Source>, Samples), Diagnostic> {
    Err(without(url))
}

#[cfg(not(feature = "remote"))]
pub(super) fn without(url: &str) -> Diagnostic {
    Diagnostic::new(format!("this program was built without object stores, so it cannot read `{url}`"))
        .hint("build it with the feature `remote`: `cargo install --path . --features remote`")
}
