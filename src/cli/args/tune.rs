//! What `towtank tune` takes.

use std::path::PathBuf;

use clap::Args;
use towtank::units::Count;

use super::{ScenarioArgs, at_least_one};

/// `towtank tune`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,

    /// What must be met, such as `AU >= 95 %`; may be given again; the scenario's own expectations when left out
    #[arg(long = "for", value_name = "FIGURE OP VALUE")]
    pub(crate) goals: Vec<String>,

    /// What is to be cheap, the most important first: memory, cores, lanes
    #[arg(long, value_name = "COSTS", default_value = "memory,cores")]
    pub(crate) cheapest: String,

    /// Values to search, such as `threads=1..16,lanes=8|32,budget=64 MiB..2 GiB`; also ring, prefetch, ranks; may be given again
    #[arg(long, value_name = "SETTING=VALUES,…")]
    pub(crate) space: Vec<String>,

    /// Samples after which a simulation of the search is cut; 20 000, or 32 batches a rank, when left out
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) samples: Option<Count>,

    /// Seeds under which the winner must keep what it promises
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,

    /// Simulations after which the search ends; what it leaves open it tells
    #[arg(long, value_name = "N", default_value = "2000", value_parser = at_least_one)]
    pub(crate) simulations: Count,

    /// Write the winner as a scenario file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Write costs, figures and the front as one self-contained page for a browser
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  towtank tune imagenet-local --for \"AU >= 95 %\" --out tuned.toml
  towtank tune imagenet-local --for \"AU >= 95 %\" --cheapest memory,cores
  towtank tune slow-store --for \"throughput >= 300 samples/s\" --json
  towtank tune imagenet-p4d --space threads=32..96,lanes=16..64

Figures: throughput, accelerator utilization (AU), time to first batch, cpu, peak bytes in flight, skipped.

The winner is the cheapest point of the space in the order of `--cheapest`: memory is the budget that has to be provided, of \
all ranks, cores are the pool's threads, lanes those of all ranks. Equal ones are told apart by the costs that were not named, \
then by fewer threads, lanes, slots and prefetched batches.

It searches the epoch's first samples and verifies the winner on the whole scenario under every seed.
Exit code 1: no settings meet the goal.";
