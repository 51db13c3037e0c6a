//! What a simulated machine is made of: whole numbers with their units, nothing to be parsed.

use std::{collections::BTreeMap, sync::Arc};

use super::{Chooser, Dataset, Distribution, Size};
use crate::{fault::Faults, trace::LeafTimes};

/// A simulated machine.
///
/// [`Config::default`] is a machine of one core and one pool thread on which everything is free and instantaneous: the place to
/// start for a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Seed of every draw: sizes, costs, faults.
    pub seed: u64,
    /// Who decides between things that may happen at the same instant, or in abstract time at any.
    pub chooser: Chooser,
    /// Whether things take the time that is said below.
    pub timing: Timing,
    /// Whether to keep the tape of the choices made, for [`Outcome::tape`](super::Outcome::tape). 16 bytes a choice.
    pub keep_tape: bool,
    /// When to give up.
    pub limits: Limits,
    /// How many machines of this kind there are, each with all that is said below for itself, but for the store's
    /// [requests](StoreSpec::requests), which they share; at least one.
    pub nodes: u16,
    /// The cores.
    pub cpu: CpuSpec,
    /// Threads of the pool that runs CPU jobs; at least one.
    pub pool_threads: u32,
    /// From the moment a sleeping thread (of the pool, or the scheduler) has work until it wants a core (ns).
    pub wakeup_ns: u64,
    /// What control itself costs.
    pub scheduler: SchedulerSpec,
    /// What CPU jobs cost, by [`Work::kind`](crate::machine::Work::kind).
    pub costs: Costs,
    /// A lock that jobs hold for a part of their time, such as an interpreter's; `None` where there is none.
    pub lock: Option<LockSpec>,
    /// The store.
    pub store: StoreSpec,
    /// The way to the device.
    pub copy: CopySpec,
    /// The device at its train steps.
    pub gpu: GpuSpec,
    /// The device at stages on whole batches.
    pub kernels: KernelSpec,
    /// Whether the consumer reads slots where they are, see [`Machine::lends_slots`](crate::machine::Machine::lends_slots).
    pub lends_slots: bool,
    /// The host's memory, out of which slots are allocated; `None` is without bound (B).
    pub memory_bytes: Option<u64>,
    /// The samples.
    pub dataset: Dataset,
    /// What goes wrong.
    pub faults: Faults,
    /// What leaves took elsewhere, instead of what their costs say: see [`LeafTimes`]. One that is not in it costs what it costs.
    pub replay: Option<Arc<LeafTimes>>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            seed: 0,
            chooser: Chooser::Fifo,
            timing: Timing::Modelled,
            keep_tape: false,
            limits: Limits::default(),
            nodes: 1,
            cpu: CpuSpec { cores: 1, speed_ppm: Vec::new() },
            pool_threads: 1,
            wakeup_ns: 0,
            scheduler: SchedulerSpec::default(),
            costs: Costs::free(),
            lock: None,
            store: StoreSpec::default(),
            copy: CopySpec::default(),
            gpu: GpuSpec::default(),
            kernels: KernelSpec::default(),
            lends_slots: false,
            memory_bytes: None,
            dataset: Dataset::uniform(0, Size::default()),
            faults: Faults::default(),
            replay: None,
        }
    }
}

/// Whether things take time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// As much as their costs say.
    #[default]
    Modelled,
    /// Abstract: a leaf that has its places may end at any moment, and the [`Chooser`] decides which does next, or whether the earliest
    /// timer goes off. Costs, rates and shares of time do not count; how many threads, connections and engines there are does. Where a
    /// leaf may fail by the rates of [`Config::faults`], whether it does is a choice too, and by default it does not; the samples that are
    /// named there are hit as ever. With [`Enumeration`](super::Enumeration), every order in which things may end can be gone through.
    ///
    /// Each choice is worked off until nothing is ready, before the next: tasks share state only on the one scheduler's thread, and every
    /// completion gets its own instant, so orders within an instant need not be explored.
    Abstract,
}

/// When to give up. A run that hits a limit ends in a [`Stall`](super::Stall) report, never in a hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Polls of tasks without the clock moving: more is a livelock.
    pub polls_per_instant: u64,
    /// Polls of tasks in all: what sleeps again and again and does nothing else is a livelock too.
    pub polls: u64,
    /// Events recorded in all.
    pub events: u64,
    /// Simulated time (ns).
    pub time_ns: u64,
}

impl Default for Limits {
    /// Ten million polls an instant, no bound on all polls and on events, a year.
    fn default() -> Limits {
        Limits { polls_per_instant: 10_000_000, polls: u64::MAX, events: u64::MAX, time_ns: 365 * 24 * 3600 * 1_000_000_000 }
    }
}

/// The cores. Every thread that can run stands in one run queue and gets an equal share of them, at most one core each:
/// `n` threads on `c` cores run at `min(1, c/n)` times the speed of a busy core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSpec {
    /// Number of cores (hardware threads); at least one.
    pub cores: u32,
    /// Speed of each busy core when `k` are busy, as `speed_ppm[k - 1]`, in millionths of a core that is busy alone. The last
    /// entry holds for all more; an empty table is full speed always.
    pub speed_ppm: Vec<u32>,
}

/// Cores of two hardware threads each, of which nobody has measured how fast they are by how many are busy: [`Smt::cpu`] says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smt {
    /// Cores; at least one. There are twice as many hardware threads.
    pub cores: u32,
    /// Speed of each hardware thread while its sibling is busy too, in millionths of one that has its core to itself.
    pub sibling_ppm: u32,
}

/// What the scheduler's thread costs. It sleeps; completed leaves wake it; it then handles all that have completed, burst by burst,
/// until none is left. It is a thread like the others and needs a core.
///
/// It wakes lazily, as the real one does: when `burst` completions wait, when the pool has fewer than `queued_low` jobs waiting,
/// or when the oldest completion has waited for `age_ns`. With all costs zero, and a [`Config::wakeup_ns`] of zero, it takes no
/// time at all and completions are delivered at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerSpec {
    /// CPU time of going to sleep and waking up (ns).
    pub per_wake_ns: u64,
    /// CPU time of handling one completion: the answer, the tasks polled, the next leaf submitted (ns).
    pub per_completion_ns: u64,
    /// Completions that wake it at once; 0 and 1 mean every one does.
    pub burst: u32,
    /// Jobs waiting for the pool below which every completion wakes it at once.
    pub queued_low: u32,
    /// The longest that a completion waits before it wakes the scheduler (ns).
    pub age_ns: u64,
}

impl Default for SchedulerSpec {
    fn default() -> SchedulerSpec {
        SchedulerSpec { per_wake_ns: 0, per_completion_ns: 0, burst: 1, queued_low: 0, age_ns: 0 }
    }
}

/// What a piece of work costs: `(a + b·bytes + c·pixels) · residual`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// a: the same for every piece (ns).
    pub fixed_ns: u64,
    /// b (ps/B); 1000 is a nanosecond per byte.
    pub ps_per_byte: u64,
    /// c (ps/px).
    pub ps_per_pixel: u64,
    /// What the formula leaves open, as a factor in millionths.
    pub residual_ppm: Distribution,
}

impl Cost {
    /// A residual of one: the formula is exact.
    pub const EXACT: Distribution = Distribution::Constant(1_000_000);

    /// No cost.
    pub const FREE: Cost = Cost::fixed(0);

    /// The same for every piece of work (ns).
    pub const fn fixed(ns: u64) -> Cost {
        Cost { fixed_ns: ns, ps_per_byte: 0, ps_per_pixel: 0, residual_ppm: Cost::EXACT }
    }

    /// Distributed exponentially with this mean (ns), whatever the size.
    pub const fn exponential(mean_ns: u64) -> Cost {
        Cost { fixed_ns: mean_ns, ps_per_byte: 0, ps_per_pixel: 0, residual_ppm: Distribution::Exponential { mean: 1_000_000 } }
    }

    /// Time for work of this size, where `word` draws the residual (ns). Rounded to the nearest before and down after the residual.
    #[inline]
    pub fn ns(&self, bytes: u64, pixels: u64, word: u64) -> u64 {
        let by_size_ps = u128::from(self.ps_per_byte) * u128::from(bytes) + u128::from(self.ps_per_pixel) * u128::from(pixels);
        let by_size_ns = match u64::try_from(by_size_ps) {
            Ok(ps) => ps / 1000 + u64::from(ps % 1000 >= 500),
            Err(_) => u64::try_from(by_size_ps / 1000).unwrap_or(u64::MAX),
        };
        scaled(self.fixed_ns.saturating_add(by_size_ns), self.residual_ppm.at(word))
    }

    /// The mean time for work of this size (ns).
    pub fn mean_ns(&self, bytes: f64, pixels: f64) -> f64 {
        let formula = self.fixed_ns as f64 + (self.ps_per_byte as f64 * bytes + self.ps_per_pixel as f64 * pixels) / 1000.0;
        formula * self.residual_ppm.mean() / 1e6
    }

    /// Whether the work never takes any time.
    pub fn is_free(&self) -> bool {
        self.fixed_ns == 0 && self.ps_per_byte == 0 && self.ps_per_pixel == 0
    }
}

/// `ns · ppm / 10⁶`, rounded down; the largest number when that is too large.
#[inline]
pub(super) fn scaled(ns: u64, ppm: u64) -> u64 {
    const MILLION: u64 = 1_000_000;
    if ppm == MILLION {
        return ns;
    }
    match ns.checked_mul(ppm) {
        Some(product) => product / MILLION,
        None => u64::try_from(u128::from(ns) * u128::from(ppm) / u128::from(MILLION)).unwrap_or(u64::MAX),
    }
}

/// What CPU jobs cost, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    kinds: Vec<(String, Cost)>,
    other: Option<Cost>,
}

impl Costs {
    /// Only kinds that are [named](Costs::with) have a cost. Work of another kind fails with
    /// [`FailureKind::Lost`](crate::failure::FailureKind::Lost), since a simulation that leaves a cost out predicts nothing.
    pub fn new() -> Costs {
        Costs { kinds: Vec::new(), other: None }
    }

    /// Kinds that are not named are free.
    pub fn free() -> Costs {
        Costs::all(Cost::FREE)
    }

    /// Kinds that are not named cost this.
    pub fn all(cost: Cost) -> Costs {
        Costs { kinds: Vec::new(), other: Some(cost) }
    }

    /// The same with a cost for `kind`.
    #[must_use]
    pub fn with(mut self, kind: impl Into<String>, cost: Cost) -> Costs {
        let kind = kind.into();
        self.kinds.retain(|(name, _)| *name != kind);
        self.kinds.push((kind, cost));
        self
    }

    /// The same kinds, all free.
    pub(super) fn made_free(self) -> Costs {
        let free = |(kind, _)| (kind, Cost::FREE);
        Costs { kinds: self.kinds.into_iter().map(free).collect(), other: self.other.map(|_| Cost::FREE) }
    }

    /// The cost of `kind`.
    pub fn get(&self, kind: &str) -> Option<&Cost> {
        self.kinds.iter().find(|(name, _)| name == kind).map(|(_, cost)| cost).or(self.other.as_ref())
    }
}

impl Default for Costs {
    fn default() -> Costs {
        Costs::new()
    }
}

/// A lock that one thread of the pool has at a time, such as an interpreter's. A job holds it at its beginning, for a part of its time,
/// and needs a core meanwhile; the rest of its time it does without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSpec {
    /// How long somebody waits before the holder has to give it up; at least 1 ns. `u64::MAX` is never (ns).
    pub interval_ns: u64,
    /// The part of their time that jobs hold it, by kind, in millionths; jobs of other kinds do not.
    pub held: Vec<(String, u32)>,
}

/// The store. A read waits for a thread or a connection, then for its first byte, then for its bytes, which come at the rate of
/// its connection or its share of the link, whichever is slower, and ends with what the processor has to do for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSpec {
    /// Which threads read.
    pub reader: Reader,
    /// From the request to the first byte (ns).
    pub first_byte_ns: Distribution,
    /// The most that one read gets; `None` is without bound (B/s).
    pub connection_bytes_per_s: Option<u64>,
    /// What all reads share; `None` is without bound (B/s).
    pub link_bytes_per_s: Option<u64>,
    /// The most reads at a time, beside what `reader` allows; `None` is without bound.
    pub connections: Option<u32>,
    /// The most requests a second, of all nodes together; beyond, a read fails with [`FailureKind::Throttled`](crate::failure::FailureKind::Throttled).
    pub requests: Option<RequestRate>,
    /// What is more to say where it is a local disk.
    pub disk: Option<DiskSpec>,
    /// CPU time of a read, from its bytes: system calls, copying, checksums, decryption. `ps_per_pixel` has no meaning here.
    pub cost: Cost,
}

impl Default for StoreSpec {
    /// Free, instantaneous, without bound.
    fn default() -> StoreSpec {
        StoreSpec {
            reader: Reader::Own,
            first_byte_ns: Distribution::Constant(0),
            connection_bytes_per_s: None,
            link_bytes_per_s: None,
            connections: None,
            requests: None,
            disk: None,
            cost: Cost::FREE,
        }
    }
}

/// What is to be said of a local disk beside what every store has: its queue depth is [`StoreSpec::connections`], its latency or its seeks
/// are [`StoreSpec::first_byte_ns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpec {
    /// Reads take a multiple of this from the disk; at least one (B).
    pub block_bytes: u64,
    /// The most requests a second. Beyond, a read waits, while it keeps its place in the queue; `None` is without bound.
    pub requests_per_s: Option<u64>,
    /// The most that one request reads: a longer read counts as several; `None` is without bound (B).
    pub request_bytes: Option<u64>,
    /// A whole turn of the platter, of which a read waits for any part beside its first byte; 0 where nothing turns (ns).
    pub rotation_ns: u64,
    /// The part of all reads that the page cache answers instead of the disk, in millionths. Which ones is drawn for each read.
    pub cached_ppm: u32,
}

impl Default for DiskSpec {
    /// One that adds nothing to what the store says.
    fn default() -> DiskSpec {
        DiskSpec { block_bytes: 1, requests_per_s: None, request_bytes: None, rotation_ns: 0, cached_ppm: 0 }
    }
}

/// Which threads read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The threads of the pool: local files in the page cache. A read holds its thread from beginning to end.
    Pool,
    /// Threads of their own, as many as there are reads: local files on a disk, connections of a remote store.
    Own,
}

/// A bucket of requests: `burst` at once, refilled at `per_s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    /// Requests a second; at least one.
    pub per_s: u64,
    /// Requests that an idle store takes at once; at least one.
    pub burst: u64,
}

/// The way to the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySpec {
    /// Who copies.
    pub by: CopyBy,
    /// Time of a copy from its bytes. `ps_per_pixel` has no meaning here.
    pub cost: Cost,
}

impl Default for CopySpec {
    /// A free copy by one engine.
    fn default() -> CopySpec {
        CopySpec { by: CopyBy::Engines(1), cost: Cost::FREE }
    }
}

/// Who copies to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyBy {
    /// So many copy engines of the device, each one copy at a time, none of the processor's time.
    Engines(u32),
    /// A job on a thread of the pool.
    Pool,
    /// A thread of its own per copy: it takes a core, but none of the pool's threads.
    Thread,
    /// Copy engines, one set for each rank's device, over links that devices share. A copy takes [`CopySpec::cost`], which is then the
    /// part that is the same for every size, and after that its bytes flow.
    Pcie(PcieSpec),
}

/// Links between the host and its devices. Rank `r` copies to device `r mod devices`; each device has its link, and so many devices
/// in a row share a switch's uplink to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcieSpec {
    /// Devices; at least one.
    pub devices: u32,
    /// Devices that share an uplink; at least one.
    pub devices_per_uplink: u32,
    /// Copies that one device does at a time, in each direction; at least one.
    pub engines: u32,
    /// A device's link towards the device.
    pub to_device: LaneSpec,
    /// A device's link towards the host.
    pub to_host: LaneSpec,
    /// An uplink, in each direction.
    pub uplink: LaneSpec,
    /// The most that one copy gets, where the host's memory is pageable; `None` is without bound, for pinned memory (B/s).
    pub copy_bytes_per_s: Option<u64>,
}

impl PcieSpec {
    /// So many devices, each with such a link and an uplink of its own, one engine for each direction, and pinned memory.
    pub const fn new(devices: u32, link: LaneSpec) -> PcieSpec {
        PcieSpec {
            devices,
            devices_per_uplink: 1,
            engines: 1,
            to_device: link,
            to_host: link,
            uplink: link,
            copy_bytes_per_s: None,
        }
    }
}

/// The device at its train steps, [`SimMachine::step`](super::SimMachine::step). By default the host does not slow it down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuSpec {
    /// By how much steps take longer while hardware threads of the host are busy, in rising order of their number, with straight lines
    /// between; the first begins at an idle host that slows nothing down, and the last point holds for all more.
    pub slowed: Vec<Slowed>,
}

/// By how much a step takes longer while so many hardware threads of the host are busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slowed {
    /// Busy hardware threads.
    pub busy: u32,
    /// By how much, in millionths of the step.
    pub by_ppm: u32,
}

impl GpuSpec {
    /// By how much a step takes longer while `busy` hardware threads are busy, in millionths of the step, rounded down.
    pub fn slowed_ppm(&self, busy: u32) -> u32 {
        let after = self.slowed.partition_point(|point| point.busy < busy);
        let before = after.checked_sub(1).map_or(Slowed { busy: 0, by_ppm: 0 }, |k| self.slowed[k]);
        let Some(after) = self.slowed.get(after) else { return before.by_ppm };
        let (run, along) = (i64::from(after.busy - before.busy).max(1), i64::from(busy - before.busy));
        let rise = i64::from(after.by_ppm) - i64::from(before.by_ppm);
        (i64::from(before.by_ppm) + (rise * along).div_euclid(run)) as u32
    }
}

/// The device at stages on whole batches, [`Machine::kernel`](crate::machine::Machine::kernel): each rank's device does so many at a time,
/// and needs no processor for it. Devices are those of [`PcieSpec`], or one for each rank.
///
/// Train steps and kernels do not slow each other down here: a kernel of a loader is short beside a step, and how a GPU shares its
/// multiprocessors among streams nobody has measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSpec {
    /// Kernels at a time on a device; at least one.
    pub at_once: u32,
    /// What they cost, by [`Work::kind`](crate::machine::Work::kind).
    pub costs: BTreeMap<String, KernelCost>,
    /// What those cost that are not named; `None` where they fail with [`FailureKind::Lost`](crate::failure::FailureKind::Lost), as jobs
    /// of an unknown kind do.
    pub other: Option<KernelCost>,
}

impl Default for KernelSpec {
    /// One at a time, for nothing.
    fn default() -> KernelSpec {
        KernelSpec { at_once: 1, costs: BTreeMap::new(), other: Some(KernelCost::FREE) }
    }
}

impl KernelSpec {
    /// The cost of `kind`.
    pub fn cost(&self, kind: &str) -> Option<&KernelCost> {
        self.costs.get(kind).or(self.other.as_ref())
    }

    /// The same kinds, all free.
    pub(super) fn made_free(self) -> KernelSpec {
        let costs = self.costs.into_keys().map(|kind| (kind, KernelCost::FREE)).collect();
        KernelSpec { costs, other: self.other.map(|_| KernelCost::FREE), ..self }
    }
}

/// What a kernel costs: `a + b·bytes`, where a GPU takes less than a picosecond for a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCost {
    /// a: the same for every batch (ns).
    pub fixed_ns: u64,
    /// b (fs/B); a million is a nanosecond per byte.
    pub fs_per_byte: u64,
}

impl KernelCost {
    /// No cost.
    pub const FREE: KernelCost = KernelCost::fixed(0);

    /// The same for every batch (ns).
    pub const fn fixed(ns: u64) -> KernelCost {
        KernelCost { fixed_ns: ns, fs_per_byte: 0 }
    }

    /// Time for so many bytes, rounded to the nearest (ns).
    pub fn ns(&self, bytes: u64) -> u64 {
        let by_size = (u128::from(self.fs_per_byte) * u128::from(bytes) + 500_000) / 1_000_000;
        self.fixed_ns.saturating_add(u64::try_from(by_size).unwrap_or(u64::MAX))
    }
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSpec {
    /// While nothing comes the other way (B/s).
    pub bytes_per_s: u64,
    /// While something does (B/s).
    pub against_bytes_per_s: u64,
}

impl LaneSpec {
    /// The same rate, whatever comes the other way (B/s).
    pub const fn both(bytes_per_s: u64) -> LaneSpec {
        LaneSpec { bytes_per_s, against_bytes_per_s: bytes_per_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_counts_bytes_pixels_and_its_residual() {
        let cost = Cost { fixed_ns: 100, ps_per_byte: 1500, ps_per_pixel: 250, residual_ppm: Distribution::Constant(2_000_000) };
        assert_eq!(cost.ns(10, 100, 0), 2 * (100 + 15 + 25));
        assert_eq!(cost.ns(1, 0, 0), 2 * (100 + 2));
        assert_eq!(cost.mean_ns(10.0, 100.0), 280.0);
    }

    #[test]
    fn a_kernel_costs_femtoseconds_a_byte() {
        let cost = KernelCost { fixed_ns: 5_000, fs_per_byte: 2_270 };
        assert_eq!((cost.ns(0), cost.ns(220), cost.ns(64 * 150_528)), (5_000, 5_000, 5_000 + 21_869));
        assert_eq!(KernelCost { fixed_ns: 1, fs_per_byte: u64::MAX }.ns(u64::MAX), u64::MAX);
        let spec = KernelSpec { other: None, ..KernelSpec::default() };
        assert_eq!(spec.cost("normalize"), None);
    }

    #[test]
    fn a_cost_too_large_for_the_clock_is_the_largest_there_is() {
        let cost = Cost { ps_per_byte: u64::MAX, ..Cost::fixed(1) };
        assert_eq!(cost.ns(u64::MAX, 0, 0), u64::MAX);
        assert_eq!(scaled(u64::MAX, 500_000), u64::MAX / 2);
    }

    #[test]
    fn a_kind_has_its_own_cost_or_the_one_of_all_others() {
        let costs = Costs::all(Cost::fixed(1)).with("decode", Cost::fixed(2)).with("decode", Cost::fixed(3));
        assert_eq!(costs.get("decode"), Some(&Cost::fixed(3)));
        assert_eq!(costs.get("augment"), Some(&Cost::fixed(1)));
        assert_eq!(Costs::new().get("augment"), None);
    }
}
