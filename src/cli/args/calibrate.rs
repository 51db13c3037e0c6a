//! What `towtank calibrate` takes.

use std::path::PathBuf;

use clap::Args;

use crate::cli::device::DeviceChoice;

/// `towtank calibrate`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CalibrateArgs {
    /// The scenario whose codec and size of images count
    #[arg(default_value = "quickstart")]
    pub(crate) scenario: String,

    /// Decode the images of this folder, searched recursively, instead of made ones
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Measure the object store at this URL, instead of this computer, and add it to the model as its store `object`
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub(crate) store: Option<String>,

    /// Measure these GPUs too, and put them into the model as its device: `cuda:0`, `cuda` for short, or `cuda:all`
    #[arg(long, value_name = "DEVICE", default_value = "host", conflicts_with = "store")]
    pub(crate) device: DeviceChoice,

    /// Write the model to a file, instead of keeping it as the model of this computer
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Take seconds instead of most of a minute
    #[arg(long)]
    pub(crate) quick: bool,

    /// Print the model, and how good it is, as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Set a field of the scenario, such as `loader.size=256`; may be given again
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(crate) sets: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  towtank calibrate
      in less than a minute, for `towtank sim` and `compare`
  towtank calibrate --store s3://bucket/photos
      what an object store gives this computer
  towtank calibrate --quick --json
      in seconds, as `compare` does by itself
  towtank calibrate --data ~/photos --out node.toml
      on your own images, as a file to take elsewhere
  towtank explain imagenet-local --set machine=node.toml
      what would limit ImageNet there

It measures what decoding, reading, copying, waking and scheduling cost on this computer, and says how sure that is. A model \
holds for one decoder and one size of images: those of SCENARIO.";
