//! What no trace knows.

use serde::Serialize;

use crate::trace::{StageId, Summary};

/// What a run was made of, as far as its trace does not tell. Everything has a default that claims nothing.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The machine, in words.
    pub machine: String,
    /// The device, in words.
    pub device: String,
    /// The codec that decoded; `None` when nothing was decoded.
    pub codec: Option<String>,
    /// Cores of the machine, or of all nodes.
    pub cores: u32,
    /// Threads of the pool that runs CPU jobs, of all nodes; 0 when not known.
    pub threads: u32,
    /// Ranks that load side by side; 0 when not known.
    pub ranks: u32,
    /// Ranks of the whole job, of which these are a part; 0 when not known.
    pub world: u32,
    /// Lanes per rank; 0 when not known.
    pub lanes: u32,
    /// Slots of the ring per rank; 0 when not known.
    pub ring_slots: u64,
    /// Batches made ready ahead of the consumer; 0 when not known.
    pub prefetch_batches: u64,
    /// Copies to the device in flight at once; 0 when not known.
    pub copies: u32,
    /// Batches in the stage on the device at once; 0 when not known, or where there is none.
    pub kernels: u32,
    /// How many leaves of a stage may run at once, where that is limited beyond the pool: a stage's own limit, the connections of
    /// a store.
    pub limits: Vec<(StageId, u32)>,
    /// Whether reads occupy the pool's threads, as those of page-cached files do.
    pub reads_on_pool: bool,
    /// The most bytes per second that the store delivers, all reads together; `None` when not known.
    pub store_bytes_per_s: Option<f64>,
    /// The most requests per second that the store takes; `None` when not known.
    pub store_requests_per_s: Option<f64>,
    /// The most encoded bytes that may be reserved at once \[B\]; `None` when not known.
    pub ledger_bytes: Option<u64>,
    /// All memory the loader may use \[B\].
    pub budget_bytes: Option<u64>,
    /// Memory the loader holds from beginning to end: ring and device batches \[B\].
    pub fixed_bytes: u64,
    /// CPU time of the run, of all threads \[s\].
    pub cpu_s: Option<f64>,
    /// Peak resident memory of the process \[B\].
    pub peak_rss_bytes: Option<u64>,
    /// Part of the computer's processor time that others used, where this process and they together used most of it: then they took it
    /// from each other.
    pub taken_by_others: Option<f64>,
    /// Loads measured elsewhere: a link's, the scheduler thread's.
    pub loads: Vec<Load>,
    /// Whether the same seed gives the same trace, so that its hash is worth telling: on a simulated machine.
    pub repeatable: bool,
    /// Whether the trace tells no more than a consumer can see of its loader: what the loader did, held and left out is then not
    /// known.
    pub consumer_only: bool,
}

/// What a store's bandwidth and its rate of requests are called.
pub(super) const STORE: [&str; 2] = ["store bandwidth", "store requests"];

/// How busy something was that can be at its limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// What kind of thing.
    pub resource: Resource,
    /// What it is called: a stage, `"store link"`.
    pub name: String,
    /// Part of its capacity in use while the run was under way; for the consumer, part of the time it computed. From 0 to 1.
    pub share: f64,
}

/// What can limit a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// The train step.
    Consumer,
    /// The store and the way to it.
    Fetch,
    /// CPU jobs on the pool's threads: decoding and users' stages.
    Decode,
    /// Copies to the device.
    Transfer,
    /// A user's stage on the device.
    Device,
    /// The scheduler's own thread.
    Scheduler,
    /// The budget: bytes reserved, or slots.
    Memory,
    /// Samples under way at once.
    Lanes,
}

impl Resource {
    /// Its name, as reports and expectations spell it.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Consumer => "consumer",
            Resource::Fetch => "fetch",
            Resource::Decode => "decode",
            Resource::Transfer => "transfer",
            Resource::Device => "device",
            Resource::Scheduler => "scheduler",
            Resource::Memory => "memory",
            Resource::Lanes => "lanes",
        }
    }
}

impl Facts {
    /// Ranks: as told, else those that got anything.
    pub(super) fn ranks(&self, summary: &Summary) -> u32 {
        match self.ranks {
            0 => u32::try_from(summary.consumers().count()).unwrap_or(u32::MAX).max(1),
            told => told,
        }
    }

    /// Whether leaves of `stage` occupy the pool's threads.
    pub(super) fn on_pool(&self, stage: StageId) -> bool {
        match stage {
            StageId::FETCH => self.reads_on_pool,
            _ => !matches!(stage, StageId::TRANSFER | StageId::DEVICE),
        }
    }

    /// Which resource the leaves of `stage` need.
    pub(super) fn resource_of(stage: StageId) -> Resource {
        match stage {
            StageId::FETCH => Resource::Fetch,
            StageId::TRANSFER => Resource::Transfer,
            StageId::DEVICE => Resource::Device,
            _ => Resource::Decode,
        }
    }

    /// How much the store did of what it can do at most, as name, amount and limit per second of what is known.
    pub(super) fn store(&self, summary: &Summary) -> Vec<(&'static str, f64, f64)> {
        let Some(fetch) = summary.stage(StageId::FETCH) else { return Vec::new() };
        let bandwidth = self.store_bytes_per_s.map(|most| (STORE[0], fetch.bytes() as f64, most));
        let requests = self.store_requests_per_s.map(|most| (STORE[1], fetch.started() as f64, most));
        [bandwidth, requests].into_iter().flatten().filter(|(_, _, most)| *most > 0.0).collect()
    }

    /// How many leaves of `stage` can run at once; `None` when nothing known limits it.
    pub fn servers(&self, stage: StageId) -> Option<u32> {
        let limit = self.limits.iter().filter(|(s, _)| *s == stage).map(|(_, n)| *n).min();
        let own = match stage {
            StageId::FETCH if !self.reads_on_pool => None,
            StageId::TRANSFER => (self.copies > 0).then_some(self.copies),
            StageId::DEVICE => (self.kernels > 0).then_some(self.kernels),
            _ => (self.threads > 0).then_some(self.threads),
        };
        match (limit, own) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
