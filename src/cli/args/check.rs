//! What `towtank check` takes.

use std::path::PathBuf;

use clap::Args;
use towtank::{check::Schedule, units::Count};

use super::{ScenarioArgs, at_least_one};

/// `towtank check`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,

    /// Seeds to look at, from the scenario's own, or `--seed`, on
    #[arg(long, value_name = "N", default_value = "1000")]
    pub(crate) seeds: Count,

    /// Threads; one for each core when left out
    #[arg(long, value_name = "J", value_parser = at_least_one)]
    pub(crate) jobs: Option<Count>,

    /// Who decides what happens next: `random` or `fifo` between things that happen at the same instant, or `pct:D` and `exhaustive` in
    /// abstract time, in which costs do not count and any leaf that has begun may end next. `pct:D` draws priorities that change D - 1
    /// times, for bugs that take D things in one order; `exhaustive` goes through all schedules of one seed, at most `--seeds` of them
    #[arg(long, value_name = "random|fifo|pct:D|exhaustive", value_parser = chooser, default_value = "random")]
    pub(crate) chooser: Schedule,

    /// Draw small settings and some kinds of faults for each seed too
    #[arg(long)]
    pub(crate) swarm: bool,

    /// Run one of every N seeds twice: both runs must be the same, event for event. 1 is every seed
    #[arg(long, value_name = "N", default_value = "16", value_parser = at_least_one)]
    pub(crate) twice_every: Count,

    /// Look at every N-th seed only, from the I-th on, counted from 0
    #[arg(long, value_name = "I/N")]
    pub(crate) shard: Option<String>,

    /// Samples that the dataset is cut to
    #[arg(long, value_name = "N", default_value = "64", value_parser = at_least_one)]
    pub(crate) samples: Count,

    /// Go on after a failure, and report every seed that fails
    #[arg(long)]
    pub(crate) all: bool,

    /// Judge what another loader did, by the trace that its training loop recorded (docs/trace-format.md), instead of running
    /// anything; given again for each further rank
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["seeds", "jobs", "chooser", "swarm", "twice_every", "shard", "samples", "all", "out"]
    )]
    pub(crate) trace: Vec<PathBuf>,

    /// Folder for the scenarios of failures; `failures` when left out
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  towtank check flaky-store
      a thousand seeds, each with its own schedule and costs
  towtank check flaky-store --seeds 100_000 --swarm
      each also with its own small settings and kinds of faults
  towtank check my.toml --swarm --shard 0/4 --json
      a quarter of the seeds, on one of four computers
  towtank check my.toml --seed 4711 --seeds 1        one seed again
  towtank check my.toml --trace theirs.jsonl
      what another loader delivered, by its recorded trace

What must hold of every run: each sample comes once and in order, errors surface, memory stays within its budget, slots are \
not reused early, nobody who could go on waits, it ends, leaves nothing behind wherever it is stopped, and goes on exactly \
from the state after any batch. A dataset is cut to `--samples`.

A failure is shrunk and written to failures/NAME-SEED.toml; `towtank replay` repeats it, `towtank sim` with `--trace` shows \
it.
Exit code 1: an invariant is broken.";

/// Who decides what happens next.
fn chooser(typed: &str) -> Result<Schedule, String> {
    match typed.split_once(':') {
        None if typed == "fifo" => Ok(Schedule::Fifo),
        None if typed == "random" => Ok(Schedule::Random),
        None if typed == "exhaustive" => Ok(Schedule::Exhaustive),
        Some(("pct", depth)) => match depth.parse() {
            Ok(depth @ 1..=100) => Ok(Schedule::Pct { depth }),
            _ => Err(format!("the depth of `{typed}` is a whole number from 1 to 100, such as `pct:3`")),
        },
        _ => Err("expected `random`, `fifo`, `exhaustive`, or `pct:D` with a depth, such as `pct:3`".to_owned()),
    }
}

/// How [`chooser`] is typed.
pub(crate) fn chooser_name(schedule: Schedule) -> String {
    match schedule {
        Schedule::Fifo => "fifo".to_owned(),
        Schedule::Random => "random".to_owned(),
        Schedule::Exhaustive => "exhaustive".to_owned(),
        Schedule::Pct { depth } => format!("pct:{depth}"),
    }
}
