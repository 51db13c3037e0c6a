//! What may be typed.

use std::path::PathBuf;

use super::device::DeviceChoice;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use towtank::{check::Schedule, scenario::Overrides, units::Count};

/// Tests, predicts and measures data loaders for machine learning: one loader, on a simulated machine and on this one.
#[derive(Debug, Parser)]
#[command(name = "towtank", version, max_term_width = 100, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  towtank compare quickstart
      predict, run, and show the error
  towtank sim imagenet-local --json
      an epoch of ImageNet on 96 cores, in seconds
  towtank sim my.toml --set loader.threads=8
      the same with another number of threads
  towtank run quickstart --data ~/photos
      the loader on your own images
  towtank tune imagenet-local --for \"AU >= 95 %\"
      how many workers and how much memory that takes
  towtank check flaky-store --swarm
      whether the loader is right, whatever happens

A scenario is a TOML file, or the name of one that is part of the program:
  quickstart, imagenet-local, imagenet-s3, imagenet-p4d, cluster-64,
  cluster-1000, mlperf-resnet50, mlperf-unet3d, mlperf-cosmoflow,
  constant-rates, worker-processes, slow-consumer, slow-store, tiny-memory,
  flaky-store

Exit codes: 0 every expectation holds, 1 one does not, 2 the input is wrong.";

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Simulate a scenario and report what it predicts
    #[command(after_help = SIM_EXAMPLES)]
    Sim(SimArgs),
    /// Run a scenario's loader on this computer and report what it does
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Predict, run, and report how far the prediction was off
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Measure this computer, and keep what was found as its model
    #[command(after_help = CALIBRATE_EXAMPLES)]
    Calibrate(CalibrateArgs),
    /// Say what limits a scenario's loader, and what more of each resource would bring
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Find the cheapest settings that meet a goal: how many workers, lanes, how much memory it takes
    #[command(after_help = TUNE_EXAMPLES)]
    Tune(TuneArgs),
    /// Check a scenario's loader under many schedules, costs and faults, and shrink what fails
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Repeat a failure that `check` found, choice by choice
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
    /// Add up what the shards of a check found
    #[command(after_help = MERGE_EXAMPLES)]
    Merge(MergeArgs),
    /// Make a folder of photo-like JPEGs
    #[command(after_help = SYNTH_EXAMPLES)]
    Synth(SynthArgs),
    /// Write a scenario from another benchmark's file
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Print the JSON Schema of a kind of file, with which editors complete and check it
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema(SchemaArgs),
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  towtank import dlio unet3d_h100.yaml --out unet3d.toml
  towtank sim unet3d.toml --set \"store.bandwidth=8 GB/s\"

What has no counterpart in a scenario is said, field by field.";

const RUN_EXAMPLES: &str = "\
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

const COMPARE_EXAMPLES: &str = "\
Examples:
  towtank compare quickstart
  towtank compare quickstart --set loader.threads=1 --set \"consumer.step=20 ms\"
  towtank compare quickstart --data ~/photos --json
  towtank compare quickstart --ranks 4
      the same of four ranks on this computer

  towtank sim quickstart --freeze before.json
  towtank compare --frozen before.json
      the prediction of another day, which nobody can change afterwards
  towtank compare quickstart --measured trace.jsonl
      what PyTorch's loader did, or anyone's: see docs/record.py

The first time it calibrates this computer, in a few seconds, on images of its own, and keeps what it found. Before each run \
it sees how fast the computer is at that moment.

It runs all ranks in this process, `--ranks N`, and refuses to be one of several that RANK and WORLD_SIZE make: that is \
`towtank run`.";

const CALIBRATE_EXAMPLES: &str = "\
Examples:
  towtank calibrate
      in less than a minute, for `towtank sim` and `compare`
  towtank calibrate --store s3://bucket/photos
      what an object store gives this computer
  towtank calibrate --quick --json
      in seconds, as `compare` does by itself
  towtank calibrate --data ~/photos --out node.toml
      on your own images, as a file to take elsewhere
  towtank sim imagenet-local --set machine=node.toml

It measures what decoding, reading, copying, waking and scheduling cost on this computer, and says how sure that is. A model \
holds for one decoder and one size of images: those of SCENARIO.";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  towtank explain slow-store
  towtank explain imagenet-s3 --set loader.threads=16 --seeds 8 --json

It simulates the scenario again with each resource raised by 10 %, and doubled, under the same seeds.";

const TUNE_EXAMPLES: &str = "\
Examples:
  towtank tune imagenet-local --for \"AU >= 95 %\" --out tuned.toml
  towtank tune imagenet-local --for \"AU >= 95 %\" --cheapest memory,cores
  towtank tune slow-store --for \"throughput >= 300 samples/s\" --json
  towtank tune imagenet-p4d --space threads=32..96,lanes=16..64

Figures: throughput, accelerator utilization (AU), time to first batch, cpu, peak bytes in flight, skipped.

The winner is the cheapest point of the space in the order of `--cheapest`: memory is the budget that has to be provided, of \
all ranks, cores are the pool's threads, lanes those of all ranks. Equal ones are told apart by the costs that were not named, \
then by fewer threads, lanes, slots and prefetched batches.

It searches the epoch's first samples and verifies the winner on the whole scenario under every seed.
Exit code 1: no settings meet the goal.";

const CHECK_EXAMPLES: &str = "\
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

const REPLAY_EXAMPLES: &str = "\
Examples:
  towtank replay failures/flaky-store-4711.toml
  towtank sim failures/flaky-store-4711.toml --trace failure.json

A file that is kept in scenarios/regressions/ is repeated by `cargo test`.
Exit code 1: it still fails; 0: it does not.";

const MERGE_EXAMPLES: &str = "\
Examples:
  towtank check my.toml --swarm --shard 0/2 --json > 0.json
  towtank check my.toml --swarm --shard 1/2 --json > 1.json
  towtank merge 0.json 1.json

Exit code 1: a shard found something broken.";

const SYNTH_EXAMPLES: &str = "\
Examples:
  towtank synth
      400 images in the cache folder
  towtank synth images --count 5_000 --seed 7
      others, in a folder of your own
  towtank run quickstart --data images               and the loader on them";

const SCHEMA_EXAMPLES: &str = "\
Examples:
  towtank schema > scenario.json
      then `#:schema ./scenario.json` as a scenario's first line
  towtank schema machine > machine.json

Taplo, and Even Better TOML in VS Code, read that line; they complete fields and words, show what each field means with its \
units, and mark what is wrong. What two fields must have in common only `towtank` itself says.";

const SIM_EXAMPLES: &str = "\
Examples:
  towtank sim quickstart
      on this computer, if calibrated
  towtank sim slow-store --set store.connections=17
  towtank sim slow-store --set \"store.first_byte=42.5 ms\"
  towtank sim imagenet-s3 --set machine=my-machine.toml
  towtank sim quickstart --ranks 4
      four ranks on one node, at a barrier after every step
  towtank sim flaky-store --trace flaky.json
      then open it in ui.perfetto.dev
  towtank sim imagenet-p4d --set dataset.count=65536 --intervals
      how sure the model's numbers make it
  towtank sim quickstart --freeze before.json
      a prediction that nobody can change afterwards

All ranks are simulated by this process: RANK and WORLD_SIZE, as torchrun sets them, change nothing.";

/// What every verb that takes a scenario takes.
#[derive(Clone, Debug, ClapArgs)]
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
#[derive(Clone, Copy, Debug, ClapArgs)]
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

/// Where a run is written to beside standard output.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct OutputArgs {
    /// Write the trace to a file for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Write the report as one self-contained page for a browser
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

impl OutputArgs {
    /// Those of one of several processes, which all have the same command line: `run.json` is `run.rank3.json`.
    pub(crate) fn of_rank(&self, rank: u16) -> OutputArgs {
        let named = |path: &PathBuf| {
            let ending = path.extension().map_or_else(String::new, |ending| format!(".{}", ending.to_string_lossy()));
            path.with_extension(format!("rank{rank}{ending}"))
        };
        OutputArgs { trace: self.trace.as_ref().map(named), html: self.html.as_ref().map(named) }
    }
}

/// `towtank sim`
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct SimArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,

    #[command(flatten)]
    pub(crate) ranks: RanksArg,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Take the sizes of the images in this folder, searched recursively, or at this URL, instead of the scenario's dataset
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) data: Option<PathBuf>,

    /// Draw the machine N times from its model's uncertainties, and report where the figures lie
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "40",
          value_parser = clap::value_parser!(u64).range(2..=100_000))]
    pub(crate) intervals: Option<u64>,

    /// Write the prediction, with all it was made from and a hash, for `towtank compare --frozen FILE` to judge
    #[arg(long, value_name = "FILE")]
    pub(crate) freeze: Option<PathBuf>,
}

/// `towtank calibrate`
#[derive(Clone, Debug, ClapArgs)]
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

/// `towtank import`
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    pub(crate) format: ImportFormat,
}

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

/// `towtank explain`
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,

    /// Seeds under which every change is compared
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `towtank tune`
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,

    /// What must be met, such as `AU >= 95 %`; may be given again; the scenario's own expectations when left out
    #[arg(long = "for", value_name = "FIGURE OP VALUE")]
    pub(crate) goals: Vec<String>,

    /// What is to be cheap, the most important first: memory, cores, lanes
    #[arg(long, value_name = "COSTS", default_value = "memory,cores")]
    pub(crate) cheapest: String,

    /// Values to search, such as `threads=1..16,lanes=8|32,budget=64 MiB..2 GiB`; also ring, prefetch, ranks; may be given again
    #[arg(long, value_name = "SETTING=VALUES,…")]
    pub(crate) space: Vec<String>,

    /// Samples after which a simulation of the search is cut; 20 000, or 32 batches a rank, when left out
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) samples: Option<Count>,

    /// Seeds under which the winner must keep what it promises
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,

    /// Simulations after which the search ends; what it leaves open it tells
    #[arg(long, value_name = "N", default_value = "2000", value_parser = at_least_one)]
    pub(crate) simulations: Count,

    /// Write the winner as a scenario file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Write costs, figures and the front as one self-contained page for a browser
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// `towtank check`
#[derive(Clone, Debug, ClapArgs)]
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

/// A number of which there must be one at least.
fn at_least_one(typed: &str) -> Result<Count, String> {
    match typed.parse::<Count>() {
        Ok(Count(0)) => Err("expected at least 1".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// `towtank replay`
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ReplayArgs {
    /// The scenario that `check` wrote
    pub(crate) file: String,

    /// Print what came of it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `towtank merge`
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct MergeArgs {
    /// Reports of `towtank check --json`, of the same scenario
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// `towtank schema`
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct SchemaArgs {
    /// Kind of file
    #[arg(value_enum, default_value = "scenario")]
    pub(crate) format: Format,
}

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

/// `towtank synth`
#[derive(Clone, Debug, ClapArgs)]
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

/// Where batches go.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct DeviceArgs {
    /// Where batches go and what trains on them: `host`, one GPU as `cuda:0`, `cuda` for short, or all as `cuda:all`, a rank on each
    /// in turn; `cuda:0,pageable` copies out of memory that is not page-locked
    #[arg(long, value_name = "DEVICE", default_value = "host")]
    pub(crate) device: DeviceChoice,

    /// How much of a GPU's multiprocessors a train step occupies, in percent; 100 when left out
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) gpu_share: Option<u8>,
}

/// `towtank run`
#[derive(Clone, Debug, ClapArgs)]
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

/// `towtank compare`
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct CompareArgs {
    /// A scenario file, or the name of a scenario that is part of the program
    #[arg(required_unless_present = "frozen", conflicts_with = "frozen")]
    pub(crate) scenario: Option<String>,

    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Seed of every draw, instead of the scenario's
    #[arg(long, value_name = "N", conflicts_with = "frozen")]
    pub(crate) seed: Option<u64>,

    /// Set a field of the scenario, such as `loader.batch=64` or `consumer.step=50 ms`; may be given again
    #[arg(long = "set", value_name = "PATH=VALUE", conflicts_with = "frozen")]
    pub(crate) sets: Vec<String>,

    /// Ranks that load and train side by side; short for `--set ranks.count=N`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), conflicts_with = "frozen")]
    pub(crate) ranks: Option<u16>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// A folder of JPEG or PNG images, searched recursively, or a URL of an object store, instead of the scenario's
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) data: Option<PathBuf>,

    /// Draw the machine N times from its model's uncertainties, and report where the figures lie; 0 for not at all
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub(crate) intervals: u64,

    /// Judge a prediction that `towtank sim --freeze FILE` wrote earlier
    #[arg(long, value_name = "FILE", conflicts_with = "recalibrate")]
    pub(crate) frozen: Option<PathBuf>,

    /// Judge what another loader did, by the trace that its training loop recorded (docs/trace-format.md), instead of running;
    /// `--data` then only tells the sizes of the images
    #[arg(long, value_name = "FILE")]
    pub(crate) measured: Option<PathBuf>,

    /// Measure this computer anew, also when an earlier calibration was kept
    #[arg(long)]
    pub(crate) recalibrate: bool,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// Parses the command line; prints help, or what is wrong with it, and exits.
pub(crate) fn parse() -> Args {
    Args::parse()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_wraps_once_in_any_window() {
        let program = Args::command();
        let verbs =
            program.get_subcommands().filter_map(|verb| Some((verb.get_name().to_owned(), verb.get_after_help()?.to_string())));
        let all: Vec<_> = verbs.chain([("towtank".to_owned(), program.get_after_help().unwrap().to_string())]).collect();
        assert!(all.len() > 10, "most verbs have examples");
        for (verb, help) in all {
            let lines: Vec<&str> = help.lines().collect();
            for pair in lines.windows(2) {
                // The window wraps paragraphs, each of which is one line; examples must fit into the narrowest.
                let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.starts_with("Exit code");
                assert!(!(is_text(pair[0]) && is_text(pair[1])), "{verb}: a paragraph in two lines: {pair:?}");
            }
            let long = lines.iter().find(|line| line.starts_with(' ') && line.chars().count() > 80);
            assert_eq!(long, None, "{verb}: wider than 80 columns");
        }
    }

    #[test]
    fn files_of_a_rank_are_told_apart_before_their_endings() {
        let named = |path: &str| {
            let output = OutputArgs { trace: Some(PathBuf::from(path)), html: None };
            output.of_rank(3).trace.unwrap().to_string_lossy().into_owned()
        };
        assert_eq!(named("run.json"), "run.rank3.json");
        assert_eq!(named("out/run.of.today.json"), "out/run.of.today.rank3.json");
        assert_eq!(named("run"), "run.rank3");
    }
}
