//! What `towtank run` takes.

use std::path::PathBuf;

use clap::Args;

use super::{DeviceArgs, OutputArgs, RanksArg, ScenarioArgs};

/// `towtank run`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    #[command(flatten)]
    pub(crate) ranks: RanksArg,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// A folder of JPEG or PNG images, searched recursively, or a URL of an object store, instead of the scenario's
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) data: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  towtank run quickstart
      on images made once and kept in your cache folder
  towtank run quickstart --data ~/photos
      on your own, JPEG or PNG, searched recursively
  towtank run quickstart --data s3://bucket/photos
      in an object store; `http://host:9000/bucket` for one of your own
  towtank run quickstart --set loader.threads=1 --trace run.json
  towtank run quickstart --ranks 4
      four ranks at one barrier, in one process, as the simulation has them

The environment says who asks a store: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP, \
and AWS_SKIP_SIGNATURE=true for a public bucket. The train step is emulated by its duration, `consumer.step`.

Under torchrun, which sets RANK and WORLD_SIZE, each process is one rank; they meet after every step at MASTER_ADDR and \
MASTER_PORT, where these are set, and each steps by itself where they are not, or with `--set ranks.barrier=false`. Each \
writes files of its own: rank 3 writes `--trace run.json` to run.rank3.json. A process that is killed ends the others, and is \
named.";
