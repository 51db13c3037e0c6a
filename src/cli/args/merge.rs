//! What `towtank merge` takes.

use std::path::PathBuf;

use clap::Args;

/// `towtank merge`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MergeArgs {
    /// Reports of `towtank check --json`, of the same scenario
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  towtank check my.toml --swarm --shard 0/2 --json > 0.json
  towtank check my.toml --swarm --shard 1/2 --json > 1.json
  towtank merge 0.json 1.json

Exit code 1: a shard found something broken.";
