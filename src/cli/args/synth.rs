//! What `towtank synth` takes.

use std::path::PathBuf;

use clap::Args;
use towtank::units::Count;

use super::at_least_one;

/// `towtank synth`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SynthArgs {
    /// Where to make them; in the user's cache folder when left out
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,

    /// How many
    #[arg(long, value_name = "N", default_value = "400", value_parser = at_least_one)]
    pub(crate) count: Count,

    /// Seed of their content: the same seed makes the same images, bit for bit
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Print what was made as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  towtank synth
      400 images in the cache folder
  towtank synth images --count 5_000 --seed 7
      others, in a folder of your own
  towtank run quickstart --data images               and the loader on them";
