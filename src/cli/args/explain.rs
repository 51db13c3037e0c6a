//! What `towtank explain` takes.

use clap::Args;

use super::{OutputArgs, ScenarioArgs};

/// `towtank explain`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,

    /// Seeds under which every change is compared
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  towtank explain slow-store
  towtank explain imagenet-s3 --set loader.threads=16 --seeds 8 --json

It simulates the scenario again with each resource raised by 10 %, and doubled, under the same seeds.";
