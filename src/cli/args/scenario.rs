//! Which scenario, and what is set over it.

use clap::Args;
use towtank::scenario::Overrides;

/// What every verb that takes a scenario takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScenarioArgs {
    /// A scenario file, or the name of a scenario that is part of the program
    pub(crate) scenario: String,

    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Seed of every draw, instead of the scenario's
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Set a field of the scenario, such as `loader.batch=64` or `consumer.step=50 ms`; may be given again
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(crate) sets: Vec<String>,
}

impl ScenarioArgs {
    /// What is set over the scenario's file.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides { sets: self.sets.clone(), seed: self.seed }
    }

    /// The same for so many ranks.
    pub(crate) fn overrides_of(&self, ranks: RanksArg) -> Overrides {
        Overrides { sets: ranks.set_over(&self.sets), seed: self.seed }
    }
}

/// What every verb that runs ranks side by side takes.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RanksArg {
    /// Ranks that load and train side by side; short for `--set ranks.count=N`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) ranks: Option<u16>,
}

impl RanksArg {
    /// These fields, and after them the number of ranks.
    pub(crate) fn set_over(self, sets: &[String]) -> Vec<String> {
        sets.iter().cloned().chain(self.ranks.map(|count| format!("ranks.count={count}"))).collect()
    }
}
