//! Verbs: one file each. Standard output is data, standard error is talk.
//!
//! | exit code | means |
//! | --- | --- |
//! | 0 | every expectation holds |
//! | 1 | one does not, an invariant is broken, the loader failed, or no settings meet a goal |
//! | 2 | the input is wrong |

use std::{io, process::ExitCode};

mod args;
mod calibrate;
mod check;
mod check_trace;
mod compare;
mod device;
mod ending;
mod explain;
mod images;
mod import;
mod merge;
mod new_file;
mod output;
mod replay;
mod run;
mod schema;
mod sim;
mod store;
mod synth;
mod this_computer;
mod tune;

pub(crate) use args::{Args, Verb, parse};
pub(crate) use ending::Ending;

/// Runs the verb.
pub(crate) fn run(args: &Args) -> ExitCode {
    let ending = match &args.verb {
        Verb::Sim(sim) => sim::run(sim),
        Verb::Run(run) => run::run(run),
        Verb::Compare(compare) => compare::run(compare),
        Verb::Calibrate(calibrate) => calibrate::run(calibrate),
        Verb::Explain(explain) => explain::run(explain),
        Verb::Tune(tune) => tune::run(tune),
        Verb::Check(check) => check::run(check),
        Verb::Merge(merge) => merge::run(merge),
        Verb::Replay(replay) => replay::run(replay),
        Verb::Synth(synth) => synth::run(synth),
        Verb::Import(import) => import::run(import),
        Verb::Schema(schema) => schema::run(schema),
    };
    match ending {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough: `towtank sim quickstart | head -1` is no failure.
        Err(Ending::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(ending) => {
            output::say(&ending.to_string());
            ending.code()
        }
    }
}
