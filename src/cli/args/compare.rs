//! What `towtank compare` takes.

use std::path::PathBuf;

use clap::Args;

use super::{DeviceArgs, OutputArgs};

/// `towtank compare`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompareArgs {
    /// A scenario file, or the name of a scenario that is part of the program
    #[arg(required_unless_present = "frozen", conflicts_with = "frozen")]
    pub(crate) scenario: Option<String>,

    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Seed of every draw, instead of the scenario's
    #[arg(long, value_name = "N", conflicts_with = "frozen")]
    pub(crate) seed: Option<u64>,

    /// Set a field of the scenario, such as `loader.batch=64` or `consumer.step=50 ms`; may be given again
    #[arg(long = "set", value_name = "PATH=VALUE", conflicts_with = "frozen")]
    pub(crate) sets: Vec<String>,

    /// Ranks that load and train side by side; short for `--set ranks.count=N`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), conflicts_with = "frozen")]
    pub(crate) ranks: Option<u16>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// A folder of JPEG or PNG images, searched recursively, or a URL of an object store, instead of the scenario's
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) data: Option<PathBuf>,

    /// Draw the machine N times from its model's uncertainties, and report where the figures lie; 0 for not at all
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub(crate) intervals: u64,

    /// Judge a prediction that `towtank sim --freeze FILE` wrote earlier
    #[arg(long, value_name = "FILE", conflicts_with = "recalibrate")]
    pub(crate) frozen: Option<PathBuf>,

    /// Judge what another loader did, by the trace that its training loop recorded (docs/trace-format.md), instead of running;
    /// `--data` then only tells the sizes of the images
    #[arg(long, value_name = "FILE")]
    pub(crate) measured: Option<PathBuf>,

    /// Measure this computer anew, also when an earlier calibration was kept
    #[arg(long)]
    pub(crate) recalibrate: bool,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

const EXAMPLES: &str = "\
Examples:
  towtank compare quickstart
  towtank compare quickstart --set loader.threads=1 --set \"consumer.step=20 ms\"
  towtank compare quickstart --data ~/photos --json
  towtank compare quickstart --ranks 4
      the same of four ranks on this computer

  towtank sim quickstart --freeze before.json
  towtank compare --frozen before.json
      the prediction of another day, which nobody can change afterwards
  towtank compare quickstart --measured trace.jsonl
      what PyTorch's loader did, or anyone's: see docs/record.py

The first time it calibrates this computer, in a few seconds, on images of its own, and keeps what it found. Before each run \
it sees how fast the computer is at that moment.

It runs all ranks in this process, `--ranks N`, and refuses to be one of several that RANK and WORLD_SIZE make: that is \
`towtank run`.";
