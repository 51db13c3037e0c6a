//! What `towtank replay` takes.

use clap::Args;

/// `towtank replay`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// The scenario that `check` wrote
    pub(crate) file: String,

    /// Print what came of it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  towtank replay failures/flaky-store-4711.toml
  towtank sim failures/flaky-store-4711.toml --trace failure.json

A failure of a loader of one's own is repeated by `towtank::check::replay` in the tests of that loader.
Exit code 1: it still fails; 0: it does not.";
