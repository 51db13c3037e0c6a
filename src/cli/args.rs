//! What may be typed: the verbs here, the arguments of each in a file of its own, and those that several verbs take in `scenario`,
//! `output` and `device`.

use clap::{Parser, Subcommand};
use towtank::units::Count;

mod calibrate;
mod check;
mod compare;
mod device;
mod explain;
mod import;
mod merge;
mod output;
mod replay;
mod run;
mod scenario;
mod schema;
mod sim;
mod synth;
mod tune;

pub(crate) use calibrate::CalibrateArgs;
pub(crate) use check::{CheckArgs, chooser_name};
pub(crate) use compare::CompareArgs;
pub(crate) use device::DeviceArgs;
pub(crate) use explain::ExplainArgs;
pub(crate) use import::{ImportArgs, ImportFormat};
pub(crate) use merge::MergeArgs;
pub(crate) use output::OutputArgs;
pub(crate) use replay::ReplayArgs;
pub(crate) use run::RunArgs;
pub(crate) use scenario::{RanksArg, ScenarioArgs};
pub(crate) use schema::{Format, SchemaArgs};
pub(crate) use sim::SimArgs;
pub(crate) use synth::SynthArgs;
pub(crate) use tune::TuneArgs;

/// Tests, predicts and measures data loaders for machine learning: one loader, on a simulated machine and on this one.
#[derive(Debug, Parser)]
#[command(name = "towtank", version, max_term_width = 100, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  towtank compare quickstart
      predict, run, and show the error
  towtank sim imagenet-local --json
      an epoch of ImageNet on 96 cores, in seconds
  towtank sim my.toml --set loader.threads=8
      the same with another number of threads
  towtank run quickstart --data ~/photos
      the loader on your own images
  towtank tune imagenet-local --for \"AU >= 95 %\"
      how many workers and how much memory that takes
  towtank check flaky-store --swarm
      whether the loader is right, whatever happens

A scenario is a TOML file, or the name of one that is part of the program:
  quickstart, imagenet-local, imagenet-s3, imagenet-p4d, cluster-64,
  cluster-1000, mlperf-resnet50, mlperf-unet3d, mlperf-cosmoflow,
  constant-rates, worker-processes, slow-consumer, slow-store, tiny-memory,
  flaky-store

Exit codes: 0 every expectation holds, 1 one does not, 2 the input is wrong.";

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Simulate a scenario and report what it predicts
    Sim(SimArgs),
    /// Run a scenario's loader on this computer and report what it does
    Run(RunArgs),
    /// Predict, run, and report how far the prediction was off
    Compare(CompareArgs),
    /// Measure this computer, and keep what was found as its model
    Calibrate(CalibrateArgs),
    /// Say what limits a scenario's loader, and what more of each resource would bring
    Explain(ExplainArgs),
    /// Find the cheapest settings that meet a goal: how many workers, lanes, how much memory it takes
    Tune(TuneArgs),
    /// Check a scenario's loader under many schedules, costs and faults, and shrink what fails
    Check(CheckArgs),
    /// Repeat a failure that `check` found, choice by choice
    Replay(ReplayArgs),
    /// Add up what the shards of a check found
    Merge(MergeArgs),
    /// Make a folder of photo-like JPEGs
    Synth(SynthArgs),
    /// Write a scenario from another benchmark's file
    Import(ImportArgs),
    /// Print the JSON Schema of a kind of file, with which editors complete and check it
    Schema(SchemaArgs),
}

/// Parses the command line; prints help, or what is wrong with it, and exits.
pub(crate) fn parse() -> Args {
    Args::parse()
}

/// A number of which there must be one at least.
fn at_least_one(typed: &str) -> Result<Count, String> {
    match typed.parse::<Count>() {
        Ok(Count(0)) => Err("expected at least 1".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_wraps_once_in_any_window() {
        let program = Args::command();
        let verbs =
            program.get_subcommands().filter_map(|verb| Some((verb.get_name().to_owned(), verb.get_after_help()?.to_string())));
        let all: Vec<_> = verbs.chain([("towtank".to_owned(), program.get_after_help().unwrap().to_string())]).collect();
        assert!(all.len() > 10, "most verbs have examples");
        for (verb, help) in all {
            let lines: Vec<&str> = help.lines().collect();
            for pair in lines.windows(2) {
                // The window wraps paragraphs, each of which is one line; examples must fit into the narrowest.
                let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.starts_with("Exit code");
                assert!(!(is_text(pair[0]) && is_text(pair[1])), "{verb}: a paragraph in two lines: {pair:?}");
            }
            let long = lines.iter().find(|line| line.starts_with(' ') && line.chars().count() > 80);
            assert_eq!(long, None, "{verb}: wider than 80 columns");
        }
    }
}
