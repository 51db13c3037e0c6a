//! Scenarios: a machine, a dataset, a loader, a consumer, what goes wrong, and what is expected of it all.
//!
//! A scenario is a TOML file. It is read in two steps, *as typed* and *as meant*: the typed form has every field optional and knows
//! where it stands; the [`Scenario`] has every value with its default and is what programs use. Any field can be
//! [set](load) over the file's from outside. Errors say where, what was expected, and what was probably meant; a file with
//! three mistakes gets three.
//!
//! ```toml
//! title = "Two cores, a small budget"
//! machine = "reference-2core"
//!
//! [dataset]
//! kind = "synthetic"
//! count = 600
//!
//! [loader]
//! batch = 32
//! budget = "64 MiB"
//!
//! [consumer]
//! step = "25 ms"
//!
//! [expect.throughput]
//! within = { of = "1280 samples/s", tol = "10 %", source = "32 samples in 25 ms" }
//!
//! [expect.exactly_once]
//! ```
//!
//! A scenario becomes numbers for a simulation with [`Scenario::to_sim`], and settings for a loader on any machine with
//! [`Scenario::settings`].

use std::{collections::BTreeMap, path::PathBuf, time::Duration as StdDuration};

use crate::{
    document::Place,
    fault::Faults,
    model::{DatasetModel, Latency},
    units::{ByteRate, Duration, RequestRate, Size},
};

mod deliveries;
mod dlio;
mod edit;
mod emulated;
mod ended;
mod expect;
mod frozen;
mod intervals;
mod load;
mod measured;
mod recorded;
mod replay;
mod resolve;
mod simulate;
mod to_sim;
mod torchrun;
mod typed;
mod words;

pub(crate) use crate::loader::all_ranks;
pub use deliveries::{Deliveries, Findings};
pub use dlio::{IMPORTED, Imported, LeftOut, import_dlio, parse_dlio};
pub(crate) use edit::rewritten;
pub use edit::{TUNED, edited};
pub use emulated::{EMULATED, OBJECT};
pub use expect::{BOTTLENECKS, Bound, Expectations, Figure, Found, Is, Named, Verdict, Within};
pub use frozen::{Fingerprint, Frozen, FrozenError};
pub use load::{NAMES, Overrides, load, parse, schema, text};
pub use measured::{Gpus, Measured, MeasuringError, Way};
pub use recorded::{Judged, Watched};
pub use replay::Replay;
pub(crate) use simulate::{Look, barrier_of, run_rank};
pub use simulate::{SimulateError, Simulated};
pub use to_sim::Samples;
pub use torchrun::Torchrun;
pub use words::{Allowed, Codec, DatasetKind, Design, DeviceStage, ImageSize, OnErrors, Order, Resize, Tail};

/// A scenario as meant: every value is there. See the [module documentation](self).
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file's name without its ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Why, at more length.
    pub description: Option<String>,
    /// Seed of every draw.
    pub seed: u64,
    /// The machine it is simulated on.
    pub machine: MachineChoice,
    /// The samples.
    pub dataset: Dataset,
    /// Where they lie.
    pub store: Store,
    /// The loader.
    pub loader: Loader,
    /// How many ranks load and train side by side.
    pub ranks: Ranks,
    /// The train step.
    pub consumer: Consumer,
    /// What goes wrong.
    pub faults: Faults,
    /// The schedule that it is simulated under, where a check has found one that fails.
    pub replay: Option<Replay>,
    /// What is expected.
    pub expect: Expectations,
    /// Where each value stands that somebody wrote.
    pub places: Places,
}

/// Which machine a scenario is simulated on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineChoice {
    /// This computer: as calibrated, or [`REFERENCE`] when it never was.
    This,
    /// The model of this name or in this file.
    Named(String),
}

/// The machine that stands for a computer that was never calibrated.
pub const REFERENCE: &str = "reference-2core";

/// The samples.
#[derive(Clone, Debug, PartialEq)]
pub enum Dataset {
    /// Images that Towtank makes up.
    Synthetic {
        /// How many.
        count: u64,
        /// Seed of their content.
        seed: u64,
    },
    /// Sizes drawn from a model.
    Drawn(Box<DatasetModel>),
    /// The images of a folder.
    Folder(PathBuf),
}

/// Where samples lie, and what the scenario says of the store that the machine's model does not.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// The store's name in the machine's model: `page-cache`, `disk`, `object` or another.
    pub kind: String,
    /// Instead of the model's.
    pub first_byte: Option<Latency>,
    /// Instead of the model's.
    pub per_connection: Option<ByteRate>,
    /// Instead of the model's.
    pub bandwidth: Option<ByteRate>,
    /// Instead of the model's.
    pub connections: Option<u64>,
    /// Instead of the model's.
    pub requests: Option<RequestRate>,
    /// Instead of the model's.
    pub burst: Option<u64>,
}

impl Store {
    /// A store of which the scenario says nothing but its kind.
    pub fn plain(kind: impl Into<String>) -> Store {
        Store {
            kind: kind.into(),
            first_byte: None,
            per_connection: None,
            bandwidth: None,
            connections: None,
            requests: None,
            burst: None,
        }
    }
}

/// The loader.
#[derive(Clone, Debug, PartialEq)]
pub struct Loader {
    /// Whose it is.
    pub design: Design,
    /// Samples in a batch.
    pub batch: u64,
    /// Threads of the pool; `None` for the machine's default.
    pub threads: Option<u64>,
    /// Samples under way at once; `None` for [`Loader::lanes_for`].
    pub lanes: Option<u64>,
    /// Slots in the ring; `None` for as many as are of use.
    pub ring: Option<u64>,
    /// All memory of the loader.
    pub budget: Size,
    /// Batches made ready ahead of the consumer.
    pub prefetch: u64,
    /// Copies to the device in flight at once.
    pub copies: u64,
    /// The stage on the device; `None` where there is none.
    pub device_stage: Option<DeviceStage>,
    /// Batches in it at once.
    pub device_stage_limit: u64,
    /// Which order batches come in.
    pub order: Order,
    /// Whether samples are shuffled, by the scenario's seed.
    pub shuffle: bool,
    /// Leaves out an epoch's last batch when it is not full.
    pub drop_last: bool,
    /// Passes over the dataset.
    pub epochs: u32,
    /// This rank.
    pub rank: u16,
    /// Number of ranks.
    pub world: u16,
    /// What ranks do when samples do not divide evenly.
    pub tail: Tail,
    /// What a failed sample means.
    pub errors: OnErrors,
    /// How many samples may fail under [`OnErrors::Skip`]; `None` for any number.
    pub skip_at_most: Option<Allowed>,
    /// Tries of a read after the first.
    pub retries: u16,
    /// Pause before the first retry; it doubles with each.
    pub retry_pause: Duration,
    /// The longest pause.
    pub retry_pause_most: Duration,
    /// Reads at once.
    pub fetch_limit: Option<u64>,
    /// The longest a read may take.
    pub fetch_deadline: Option<Duration>,
    /// Decode jobs at once.
    pub decode_limit: Option<u64>,
    /// The longest a decode job may take.
    pub decode_deadline: Option<Duration>,
    /// In completion order: how far launches may be ahead of the oldest sample that is not done.
    pub window: Option<u64>,
    /// What every image is brought to.
    pub size: ImageSize,
    /// How images of other shapes are.
    pub resize: Resize,
    /// The JPEG decoder of a real run.
    pub codec: Codec,
    /// Of [`Design::WorkerProcesses`]: how many; `None` for as many as the machine's pool has threads.
    pub workers: Option<u64>,
    /// Of [`Design::WorkerProcesses`]: batches that each has outstanding.
    pub prefetch_factor: u64,
    /// Of [`Design::WorkerProcesses`]: how long it takes to start one; `None` for what the machine's model says.
    pub worker_start: Option<Duration>,
}

/// Ranks side by side: each has a loader, a ring, a budget and a device of its own; those of one node share cores, pool, store, network and
/// the links to the devices. Simulated they may be on many nodes; run, they are all on this computer, in one process.
///
/// Nodes are machines of the scenario's kind, all alike, and each has all that the machine's model says for itself: a local disk and
/// its page cache are those of the node, and the bandwidth of an object store is that of the node's network. What nodes share is the
/// clock, the barrier, and the store's count of requests. The bandwidth of the object store itself is left out, and so is the network
/// between nodes: a step of data-parallel training holds its own communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// How many; at least one.
    pub count: u16,
    /// How many of them run on one node, at least one; `None` where all do. The last node has what is left.
    pub per_node: Option<u16>,
    /// Whether they wait for each other after every step, as data-parallel training does.
    pub barrier: bool,
}

impl Ranks {
    /// Nodes that they run on.
    pub fn nodes(&self) -> u16 {
        self.per_node.map_or(1, |of_a_node| self.count.div_ceil(of_a_node.max(1)))
    }

    /// The node of a rank, from 0.
    pub fn node_of(&self, rank: u16) -> u16 {
        self.per_node.map_or(0, |of_a_node| rank / of_a_node.max(1))
    }
}

/// The train step.
#[derive(Clone, Debug, PartialEq)]
pub struct Consumer {
    /// How long it works on a batch.
    pub step: Duration,
    /// The link to the device that it works on, emulated: every batch is copied over it, one at a time. `None` for what the machine has.
    pub link: Option<ByteRate>,
    /// How long it is busy with itself before it asks for the first batch.
    pub start_up: Duration,
    /// Batches it works on at once: it gives back the oldest when it has so many.
    pub hold: u64,
    /// Batches after which it leaves; `None` for all.
    pub leave_after: Option<u64>,
}

impl Consumer {
    /// How long it works on a batch.
    pub fn step_duration(&self) -> StdDuration {
        self.step.to_std()
    }
}

/// Where each value of a scenario stands, by its path.
#[derive(Clone, Debug, Default)]
pub struct Places(BTreeMap<String, Place>);

impl Places {
    pub(crate) fn note(&mut self, path: &str, place: &Place) {
        self.0.insert(path.to_owned(), place.clone());
    }

    /// Where the field `path`, such as `loader.batch`, stands; `None` when it was left at its default.
    pub fn of(&self, path: &str) -> Option<&Place> {
        self.0.get(path)
    }
}

impl Dataset {
    /// How many samples; `None` for a folder that nobody has looked into.
    pub fn count(&self) -> Option<u64> {
        match self {
            Dataset::Synthetic { count, .. } => Some(*count),
            Dataset::Drawn(model) => Some(model.count.value.0),
            Dataset::Folder(_) => None,
        }
    }
}

impl Loader {
    /// Lanes when the scenario does not say: four for each thread where reads take none, eight where they wait for a disk, and at
    /// least 64 where they wait for a network.
    pub fn lanes_for(&self, threads: u64, store: &str) -> u64 {
        self.lanes.unwrap_or(match store {
            "page-cache" => 4 * threads,
            "disk" => 8 * threads,
            _ => (8 * threads).max(64),
        })
    }
}
