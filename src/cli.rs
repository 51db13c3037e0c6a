//! Verbs: one file each. Standard output is data, standard error is talk.
//!
//! | exit code | means |
//! | --- | --- |
//! | 0 | every expectation holds |
//! | 1 | one does not, an invariant is broken, the loader failed, or no settings meet a goal |
//! | 2 | the input is wrong |

use std::{env, io, process::ExitCode};

use towtank::scenario::Torchrun;

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
    note_the_other_processes(&args.verb);
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

/// Says that a verb which is no part of a job of several processes does not become one by its environment. What makes no sense there is no
/// matter of it.
fn note_the_other_processes(verb: &Verb) {
    let does = match verb {
        // It is a part, or says so itself.
        Verb::Run(_) | Verb::Compare(_) => return,
        Verb::Import(_) | Verb::Schema(_) | Verb::Merge(_) | Verb::Replay(_) => return,
        Verb::Sim(_) | Verb::Explain(_) | Verb::Tune(_) => "this process simulates all ranks, `--set ranks.count=N`",
        Verb::Check(_) => "this process checks every seed; `--shard I/N` has each check a part",
        Verb::Calibrate(_) => "this process measures the whole computer, and no other should at once",
        Verb::Synth(_) => "this process makes all images",
    };
    if let Ok(Some(Torchrun { rank, world, .. })) = Torchrun::read(|name| env::var(name).ok()) {
        output::say(&format!("note: rank {rank} of {world} in the environment changes nothing here: {does}"));
    }
}
