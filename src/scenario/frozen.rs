//! Predictions that are written down before the run they are of.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Overrides, Samples, Scenario, Simulated, parse};
use crate::{
    document::Trouble,
    model::{self, MachineModel},
    report::Intervals,
};

/// A prediction that is written down before the run it is of, so that nobody can fit it afterwards.
///
/// It holds all that it was made from, scenario, what was set over it and machine, and what came out. It is a text of JSON with the
/// SHA-256 of everything else in it. Since a simulation is repeatable, judging it simulates again, and the same trace must come out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frozen {
    /// Version of this format, and the first thing in the file.
    towtank_prediction: u32,
    /// Version of the program that made it.
    pub program: String,
    /// When it was made: seconds since 1970.
    pub made_unix_s: u64,
    /// What errors call the scenario.
    pub scenario_name: String,
    /// The scenario's text.
    pub scenario: String,
    /// What was set over it, the seed too.
    pub sets: Vec<String>,
    /// The machine's model.
    pub machine: String,
    /// The samples it was made for.
    pub samples: Fingerprint,
    /// Hash of the simulated trace.
    pub trace_hash: String,
    /// What was predicted.
    pub predicted: serde_json::Value,
    /// How far it may be off.
    pub intervals: serde_json::Value,
    /// SHA-256 of the file up to the comma before it.
    #[serde(default, skip_serializing)]
    sha256: String,
}

/// What identifies samples well enough to see that they are others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// How many.
    pub count: u64,
    /// The most encoded bytes that one has.
    pub bytes_most: u64,
    /// The most pixels that one has.
    pub pixels_most: u64,
}

impl Fingerprint {
    /// Of these samples.
    pub fn of(samples: &Samples) -> Fingerprint {
        Fingerprint { count: samples.count(), bytes_most: samples.bytes_most, pixels_most: samples.pixels_most }
    }
}

/// Why a frozen prediction cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum FrozenError {
    /// It is no frozen prediction.
    #[error("this is no frozen prediction: {0}")]
    Format(serde_json::Error),
    /// It is of another version of the format.
    #[error("this prediction has version {0} of its format, and this program knows version {known}", known = VERSION)]
    Version(u32),
    /// Somebody changed it.
    #[error("this prediction was changed after it was frozen: its hash is {found}, and it says {said}")]
    Changed {
        /// The hash it has.
        found: String,
        /// The hash it says.
        said: String,
    },
    /// The images are others.
    #[error(
        "the images are not those that were predicted for: {} with at most {} bytes and {} pixels, and these are {} with at most {} \
         bytes and {} pixels",
        then.count, then.bytes_most, then.pixels_most, now.count, now.bytes_most, now.pixels_most
    )]
    OtherSamples {
        /// Those that were predicted for.
        then: Fingerprint,
        /// Those that are there.
        now: Fingerprint,
    },
    /// The simulation comes out otherwise.
    #[error(
        "this program ({ours}) does not simulate what was frozen ({theirs}): trace {now} instead of {then}; judge it with the program \
         that made it, or predict anew"
    )]
    OtherTrace {
        /// This program's version.
        ours: String,
        /// That of the program that made it.
        theirs: String,
        /// The trace that was frozen.
        then: String,
        /// The trace now.
        now: String,
    },
}

const VERSION: u32 = 1;

impl Frozen {
    /// How a file of one begins.
    pub const START: &'static str = "{\n  \"towtank_prediction\": ";

    /// The prediction `simulated` of `text`, called `name`, with `overrides` set over it, on `machine` for `samples`.
    pub fn new(
        (name, text): (String, String),
        overrides: &Overrides,
        machine: &MachineModel,
        samples: &Samples,
        simulated: &Simulated,
        intervals: &Intervals,
        made_unix_s: u64,
    ) -> Frozen {
        let mut sets = overrides.sets.clone();
        sets.extend(overrides.seed.map(|seed| format!("seed={seed}")));
        let json = |value: Result<serde_json::Value, serde_json::Error>| value.expect("figures are JSON");
        let mut frozen = Frozen {
            towtank_prediction: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            made_unix_s,
            scenario_name: name,
            scenario: text,
            sets,
            machine: machine.to_toml(),
            samples: Fingerprint::of(samples),
            trace_hash: simulated.metrics.trace_hash.clone().unwrap_or_default(),
            predicted: json(serde_json::to_value(&simulated.metrics)),
            intervals: json(serde_json::to_value(intervals)),
            sha256: String::new(),
        };
        frozen.sha256 = hash(&frozen.body());
        frozen
    }

    /// Reads one, and sees that nobody changed it.
    ///
    /// # Errors
    ///
    /// When it is none, or is not what it was.
    pub fn read(text: &str) -> Result<Frozen, FrozenError> {
        let frozen: Frozen = serde_json::from_str(text).map_err(FrozenError::Format)?;
        if frozen.towtank_prediction != VERSION {
            return Err(FrozenError::Version(frozen.towtank_prediction));
        }
        // The text and not what was read from it: numbers may be written in many ways.
        let found = hash(text.rsplit_once(HASH).map_or(text, |(body, _)| body));
        if found != frozen.sha256 {
            return Err(FrozenError::Changed { found, said: frozen.sha256 });
        }
        Ok(frozen)
    }

    /// The text to keep.
    pub fn write(&self) -> String {
        format!("{}{HASH}{}\"\n}}\n", self.body(), self.sha256)
    }

    /// The text without its hash and its end.
    fn body(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("a prediction is JSON");
        text.strip_suffix("\n}").expect("JSON in several lines ends like this").to_owned()
    }

    /// Its SHA-256, in hexadecimal digits.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The scenario that was predicted for.
    ///
    /// # Errors
    ///
    /// When this program does not understand it.
    pub fn scenario(&self) -> Result<Scenario, Trouble> {
        parse(&self.scenario_name, &self.scenario, &Overrides::set(self.sets.iter().cloned()))
    }

    /// The machine that it was predicted for.
    ///
    /// # Errors
    ///
    /// When this program does not understand it.
    pub fn machine(&self) -> Result<MachineModel, Trouble> {
        model::parse("the machine of the frozen prediction", &self.machine)
    }

    /// Sees that the samples at hand are those that were predicted for.
    ///
    /// # Errors
    ///
    /// When they are others.
    pub fn is_for(&self, samples: &Samples) -> Result<(), FrozenError> {
        let now = Fingerprint::of(samples);
        if now == self.samples { Ok(()) } else { Err(FrozenError::OtherSamples { then: self.samples, now }) }
    }

    /// Sees that `simulated`, of the same scenario, machine and samples, is what was frozen.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn is_repeated_by(&self, simulated: &Simulated) -> Result<(), FrozenError> {
        let now = simulated.metrics.trace_hash.clone().unwrap_or_default();
        if now == self.trace_hash {
            return Ok(());
        }
        let ours = env!("CARGO_PKG_VERSION").to_owned();
        Err(FrozenError::OtherTrace { ours, theirs: self.program.clone(), then: self.trace_hash.clone(), now })
    }
}

/// What stands between the text and its hash.
const HASH: &str = ",\n  \"sha256\": \"";

fn hash(text: &str) -> String {
    Sha256::digest(text).iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{scenario, trace::Recorder};

    fn frozen(count: u64) -> Frozen {
        let overrides = Overrides { sets: vec![format!("dataset.count={count}"), "loader.epochs=1".to_owned()], seed: Some(5) };
        let text = scenario::text("quickstart").unwrap();
        let scenario = scenario::load("quickstart", &overrides).unwrap();
        let machine = model::load("reference-2core").unwrap().drawn(1, 1);
        let samples = scenario.samples().unwrap().unwrap();
        let simulated = scenario.simulate(&machine, &samples, Recorder::new()).unwrap();
        let intervals = scenario.intervals(&machine, &samples, 4).unwrap();
        Frozen::new(text, &overrides, &machine, &samples, &simulated, &intervals, 1_700_000_000)
    }

    #[test]
    fn what_was_frozen_is_simulated_again_to_the_same_trace() {
        let kept = frozen(64).write();
        assert!(kept.starts_with(Frozen::START), "{kept}");
        let read = Frozen::read(&kept).unwrap_or_else(|e| panic!("{e}"));
        let (scenario, machine) = (read.scenario().unwrap(), read.machine().unwrap());
        assert_eq!(scenario.seed, 5);
        let samples = scenario.samples().unwrap().unwrap();
        read.is_for(&samples).unwrap();
        let again = scenario.simulate(&machine, &samples, Recorder::new()).unwrap();
        read.is_repeated_by(&again).unwrap_or_else(|e| panic!("{e}"));
    }

    #[test]
    fn what_is_not_as_it_was_is_said_to_be() {
        let kept = frozen(64).write();
        let changed = kept.replace("\"delivered\": 64", "\"delivered\": 65");
        assert_ne!(changed, kept);
        assert!(matches!(Frozen::read(&changed), Err(FrozenError::Changed { .. })));
        assert!(matches!(Frozen::read("{}"), Err(FrozenError::Format(_))));
        let other = Samples::listed(Vec::new());
        assert!(matches!(frozen(64).is_for(&other), Err(FrozenError::OtherSamples { .. })));
        let read = frozen(64);
        let scenario = Scenario { seed: 6, ..read.scenario().unwrap() };
        let samples = scenario.samples().unwrap().unwrap();
        let simulated = scenario.simulate(&read.machine().unwrap(), &samples, Recorder::new()).unwrap();
        assert!(matches!(read.is_repeated_by(&simulated), Err(FrozenError::OtherTrace { .. })));
    }
}
