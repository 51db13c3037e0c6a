//! What `towtank sim` takes.

use std::path::PathBuf;

use clap::Args;

use super::{OutputArgs, RanksArg, ScenarioArgs};

/// `towtank sim`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,

    #[command(flatten)]
    pub(crate) ranks: RanksArg,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Take the sizes of the images in this folder, searched recursively, or at this URL, instead of the scenario's dataset
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) data: Option<PathBuf>,

    /// Draw the machine N times from its model's uncertainties, and report where the figures lie
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "40",
          value_parser = clap::value_parser!(u64).range(2..=100_000))]
    pub(crate) intervals: Option<u64>,

    /// Write the prediction, with all it was made from and a hash, for `towtank compare --frozen FILE` to judge
    #[arg(long, value_name = "FILE")]
    pub(crate) freeze: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  towtank sim quickstart
      on this computer, if calibrated
  towtank sim flaky-store --set store.connections=17
  towtank sim flaky-store --set \"store.first_byte=42.5 ms\"
  towtank sim imagenet-s3 --set machine=my-machine.toml
  towtank sim quickstart --ranks 4
      four ranks on one node, at a barrier after every step
  towtank sim flaky-store --trace flaky.json
      then open it in ui.perfetto.dev
  towtank sim imagenet-p4d --set dataset.count=65536 --intervals
      how sure the model's numbers make it
  towtank sim quickstart --freeze before.json
      a prediction that nobody can change afterwards

All ranks are simulated by this process: RANK and WORLD_SIZE, as torchrun sets them, change nothing.";
