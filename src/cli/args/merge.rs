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
    /// Add up the shards that are here, where others are missing
    #[arg(long)]
    pub(crate) partial: bool,
}

const EXAMPLES: &str = "\
Examples:
  towtank check my.toml --swarm --shard 0/2 --json > 0.json
  towtank check my.toml --swarm --shard 1/2 --json > 1.json
  towtank merge 0.json 1.json

The report is JSON, as that of `check --json` is.
Exit codes: 1 a shard found something broken, 2 a shard is missing, or is of another search.";
