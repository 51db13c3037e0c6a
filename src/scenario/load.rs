//! Finding and reading scenario files.

use std::path::Path;

use super::{Scenario, resolve, typed::File};
use crate::{
    document::{Diagnostic, Document, Errors, Section, Source, Trouble, whole},
    model::{looks_like_a_path, read_file},
    units::nearest,
};

macro_rules! embedded {
    ($($name:literal),+ $(,)?) => {
        /// The scenarios that are part of the program.
        pub const NAMES: &[&str] = &[$($name),+];

        fn embedded(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(include_str!(concat!("../../scenarios/", $name, ".toml"))),)+
                _ => None,
            }
        }
    };
}

embedded!(
    "quickstart",
    "imagenet-local",
    "imagenet-s3",
    "imagenet-p4d",
    "cluster-64",
    "cluster-1000",
    "mlperf-resnet50",
    "mlperf-unet3d",
    "mlperf-cosmoflow",
    "constant-rates",
    "worker-processes",
    "slow-consumer",
    "slow-store",
    "tiny-memory",
    "flaky-store"
);

/// What is set over a file from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `path.to.field=value`, as `--set` takes it; later ones win.
    pub sets: Vec<String>,
    /// The seed, as `--seed` takes it; it wins over all.
    pub seed: Option<u64>,
}

impl Overrides {
    /// Sets these fields.
    pub fn set<S: Into<String>>(sets: impl IntoIterator<Item = S>) -> Overrides {
        Overrides { sets: sets.into_iter().map(Into::into).collect(), seed: None }
    }

    fn sources(&self) -> impl Iterator<Item = std::sync::Arc<Source>> + '_ {
        let sets = self.sets.iter().map(|set| Source::flag("--set", set));
        sets.chain(self.seed.map(|seed| Source::flag("--seed", format!("seed={seed}"))))
    }
}

/// The scenario of this name, or in this file, with fields set over it. What ends in `.toml` or contains a separator is a file; a name
/// is one of [`NAMES`].
///
/// # Errors
///
/// When there is no such scenario, or something is wrong with it: everything that is, each with its place.
pub fn load(path_or_name: &str, overrides: &Overrides) -> Result<Scenario, Trouble> {
    let (name, text) = text(path_or_name)?;
    parse(&name, &text, overrides)
}

/// What errors call the scenario of this name, or in this file, and its text.
///
/// # Errors
///
/// When there is no such scenario.
pub fn text(path_or_name: &str) -> Result<(String, String), Trouble> {
    match embedded(path_or_name) {
        Some(text) => Ok((format!("scenarios/{path_or_name}.toml"), text.to_owned())),
        None if looks_like_a_path(path_or_name) => {
            let text = read_file(Path::new(path_or_name), "the scenario").map_err(|d| with_a_name(d, path_or_name))?;
            Ok((path_or_name.to_owned(), text))
        }
        None => {
            let hint = match nearest(path_or_name, NAMES.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("{} are part of the program; a file needs its ending: `{path_or_name}.toml`", list(NAMES)),
            };
            Err(Diagnostic::new(format!("there is no scenario `{path_or_name}`")).hint(hint).into())
        }
    }
}

/// A file of one of our scenarios' names that is not there is likely to be meant as the one in the program.
fn with_a_name(wrong: Diagnostic, path: &str) -> Diagnostic {
    let stem = Path::new(path).file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    match NAMES.contains(&stem) {
        true => wrong.hint(format!("`{stem}` without a path is the scenario that is part of the program")),
        false => wrong,
    }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}

/// The JSON Schema of a scenario's file, for editors.
pub fn schema() -> serde_json::Value {
    let description = "A machine, a dataset, a loader, a consumer, what goes wrong, and what is expected of it all.";
    whole("A scenario for Towtank", description, Section::sketch(File::read))
}

/// Reads a scenario; `name` is what errors call the text.
///
/// # Errors
///
/// Everything that is wrong with it, each with its place.
pub fn parse(name: &str, text: &str, overrides: &Overrides) -> Result<Scenario, Trouble> {
    let mut document = Document::parse(&Source::file(name, text))?;
    let errors = Errors::default();
    for flag in overrides.sources() {
        errors.keep(document.set(&flag));
    }
    let file = File::read(Section::root(&document.root, &errors));
    let stem = Path::new(name).file_stem().and_then(|s| s.to_str()).unwrap_or(name);
    let scenario = resolve::resolve(stem, file, &errors);
    match errors.into_trouble() {
        None => Ok(scenario),
        Some(trouble) => Err(trouble),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::MachineChoice;

    #[test]
    fn every_scenario_of_the_program_is_whole() {
        for name in NAMES {
            let scenario = load(name, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(scenario.name, *name);
            // What this computer's model is like is no matter of the scenario's.
            if scenario.machine != MachineChoice::This {
                scenario.machine_model().unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }

    #[test]
    fn fields_are_set_over_the_file_and_the_seed_over_all() {
        let overrides =
            Overrides { sets: vec!["loader.batch=8".into(), "seed=3".into(), "consumer.step=7 ms".into()], seed: Some(9) };
        let scenario = load("quickstart", &overrides).unwrap();
        assert_eq!((scenario.loader.batch, scenario.seed, scenario.consumer.step.as_ns()), (8, 9, 7_000_000));
    }

    #[test]
    fn a_scenario_that_is_not_there_is_missed_by_name() {
        let error = |name: &str| load(name, &Overrides::default()).unwrap_err().to_string();
        insta::assert_snapshot!(error("quikstart"), @"
        error: there is no scenario `quikstart`
        hint: did you mean `quickstart`?
        ");
        let missing = error("scenarios/no/quickstart.toml");
        assert!(missing.contains("`quickstart` without a path is the scenario that is part of the program"), "{missing}");
    }
}
