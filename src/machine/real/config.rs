//! What a real machine is made of.

use std::{num::NonZeroUsize, sync::Arc, thread, time::Duration};

use crate::{device::HostDevice, fault::Faults, machine::Op, source::Source};

/// Where reads run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// On the pool when the sample is in the page cache; on a thread that may wait when it is not, or when the last ones were not.
    #[default]
    Auto,
    /// Always on the pool: the cheapest way when all data are in memory, the worst when they are not.
    Pool,
    /// Always on threads that may wait.
    Blocking,
}

/// When finished leaves wake the scheduler. Waking and sleeping is what scheduling costs, so it is put off while the pool has enough
/// to do; nothing waits longer than [`age`](Wakes::age).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakes {
    /// This many finished leaves wake it at once; 1 wakes it for each.
    pub burst: usize,
    /// Fewer queued jobs than this for each thread of the pool wake it at once: the pool is about to run dry.
    pub dry_per_thread: usize,
    /// The longest that a finished leaf waits to be noticed.
    pub age: Duration,
}

impl Wakes {
    /// Waits for a burst of 16, for at most two milliseconds.
    pub const LAZY: Wakes = Wakes { burst: 16, dry_per_thread: 2, age: Duration::from_millis(2) };
    /// Every finished leaf wakes the scheduler.
    pub const EAGER: Wakes = Wakes { burst: 1, ..Wakes::LAZY };
}

impl Default for Wakes {
    fn default() -> Wakes {
        Wakes::LAZY
    }
}

/// What a store would take beyond what reading from where the samples are takes: an object store, emulated around local files.
pub trait StoreDelay: Send + Sync {
    /// From the request to its first byte.
    fn first_byte(&self, op: &Op) -> Duration;

    /// From the first byte to the last of so many.
    fn transfer(&self, bytes: u64) -> Duration;
}

/// What a real machine is made of. `D` is the device that its batches go to.
#[derive(Clone)]
pub struct Config<D = HostDevice> {
    /// Where samples come from.
    pub source: Arc<dyn Source>,
    /// Where batches go.
    pub device: Arc<D>,
    /// Threads of the pool that runs CPU jobs and cached reads; at least 1.
    pub threads: usize,
    /// The most threads that wait for devices at once: the depth of the queue that a cold disk sees; at least 1.
    pub blocking_threads: usize,
    /// The most reads at once of a source that waits [on a runtime](Source::io); `None` for as many as are asked for.
    pub connections: Option<usize>,
    /// Where reads run.
    pub reads: Reads,
    /// What every read waits for beside its own time; all reads then run on threads that may wait.
    pub store_delay: Option<Arc<dyn StoreDelay>>,
    /// When finished leaves wake the scheduler.
    pub wakes: Wakes,
    /// What is to go wrong.
    pub faults: Faults,
    /// Seed of the run, see [`Machine::seed`](crate::machine::Machine::seed).
    pub seed: u64,
    /// Capacity of idle read buffers that is kept for later reads \[B\].
    pub idle_bytes: usize,
    /// How long a leaf that was given up may still run before [`quiesce`](crate::machine::Machine::quiesce) stops waiting for it and
    /// counts it as detached.
    pub stuck_after: Duration,
    /// Processors that the pools' threads run on, such as those near the device; `None` for all.
    pub near: Option<Arc<[usize]>>,
    /// Measures the CPU time of every leaf too, and keeps it. It costs two system calls and 48 bytes a leaf, so it is for calibration
    /// and comparison.
    pub leaf_cpu: bool,
}

impl Config<HostDevice> {
    /// Threads that may wait, unless somebody says otherwise.
    pub const BLOCKING_THREADS: usize = 32;

    /// A machine with a thread for every core of this computer and the host as its device.
    pub fn new(source: Arc<dyn Source>) -> Config {
        Config {
            source,
            device: Arc::new(HostDevice::new()),
            threads: thread::available_parallelism().map_or(1, NonZeroUsize::get),
            blocking_threads: Config::BLOCKING_THREADS,
            connections: None,
            reads: Reads::default(),
            store_delay: None,
            wakes: Wakes::default(),
            faults: Faults::default(),
            seed: 0,
            idle_bytes: 256 << 20,
            stuck_after: Duration::from_secs(10),
            near: None,
            leaf_cpu: false,
        }
    }
}

impl<D> Config<D> {
    /// The same machine with another device.
    pub fn with_device<E>(self, device: E) -> Config<E> {
        let Config {
            source,
            device: _,
            threads,
            blocking_threads,
            connections,
            reads,
            store_delay,
            wakes,
            faults,
            seed,
            idle_bytes,
            stuck_after,
            near,
            leaf_cpu,
        } = self;
        let device = Arc::new(device);
        Config {
            source,
            device,
            threads,
            blocking_threads,
            connections,
            reads,
            store_delay,
            wakes,
            faults,
            seed,
            idle_bytes,
            stuck_after,
            near,
            leaf_cpu,
        }
    }
}
