//! What `towtank import` takes.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `towtank import`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    pub(crate) format: ImportFormat,
}

const EXAMPLES: &str = "\
Examples:
  towtank import dlio unet3d_h100.yaml --out unet3d.toml
  towtank sim unet3d.toml --set \"store.bandwidth=8 GB/s\"

What has no counterpart in a scenario is said, field by field.";

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ImportFormat {
    /// A workload of DLIO, with which MLPerf Storage is made
    Dlio {
        /// The workload's YAML file
        file: PathBuf,

        /// Write the scenario to a file, instead of to standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}
