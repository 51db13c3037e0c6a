//! How a verb ends when not well.

use std::{fmt, io, process::ExitCode};

use towtank::{
    document::{Diagnostic, Trouble},
    scenario::SimulateError,
};

/// Why a verb ended early, or what it found.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The input is wrong.
    Input(Trouble),
    /// Expectations that do not hold, already told.
    Unmet,
    /// An invariant that does not hold, already told; which, in few words.
    Broken(String),
    /// The loader, or the simulation of it, failed.
    Failed(String),
    /// What was to be written could not be.
    Output(io::Error),
}

impl Ending {
    /// The code it exits with.
    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Ending::Unmet | Ending::Broken(_) | Ending::Failed(_) | Ending::Output(_) => ExitCode::from(1),
            Ending::Input(_) => ExitCode::from(2),
        }
    }
}

impl From<Trouble> for Ending {
    fn from(trouble: Trouble) -> Ending {
        Ending::Input(trouble)
    }
}

impl From<Diagnostic> for Ending {
    fn from(diagnostic: Diagnostic) -> Ending {
        Ending::Input(diagnostic.into())
    }
}

impl From<SimulateError> for Ending {
    fn from(error: SimulateError) -> Ending {
        match error {
            SimulateError::Input(trouble) => Ending::Input(trouble),
            other => Ending::Failed(other.to_string()),
        }
    }
}

impl From<io::Error> for Ending {
    fn from(error: io::Error) -> Ending {
        Ending::Output(error)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Input(trouble) => trouble.fmt(f),
            Ending::Unmet => f.write_str("error: not every expectation holds"),
            Ending::Broken(which) => write!(f, "error: an invariant is broken: {which}"),
            Ending::Failed(why) => write!(f, "error: {why}"),
            Ending::Output(error) => write!(f, "error: cannot write the output: {error}"),
        }
    }
}
