//! What `towtank schema` takes.

use clap::{Args, ValueEnum};

/// `towtank schema`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SchemaArgs {
    /// Kind of file
    #[arg(value_enum, default_value = "scenario")]
    pub(crate) format: Format,
}

const EXAMPLES: &str = "\
Examples:
  towtank schema > scenario.json
      then `#:schema ./scenario.json` as a scenario's first line
  towtank schema machine > machine.json

Taplo, and Even Better TOML in VS Code, read that line; they complete fields and words, show what each field means with its \
units, and mark what is wrong. What two fields must have in common only `towtank` itself says.";

/// A kind of file.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    /// What is loaded, how, by which consumer, and what must come out
    Scenario,
    /// What things cost on a machine
    Machine,
    /// How many samples a dataset has, and how large
    Dataset,
}
