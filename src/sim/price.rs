//! What things cost on this machine, and how large samples are: pure functions of the seed and the leaf.

use std::{cell::RefCell, sync::Arc};

use super::{Config, Cost, Costs, Dataset, DiskSpec, Distribution, KernelSpec, PixelCount, Reader, Size, config::scaled};
use crate::{
    draw::{Purpose, draw},
    fault::{Fault, Faults, Leaf as LeafKind},
    machine::{Op, Work},
    trace::{LeafTime, LeafTimes, StageId},
};

/// Sizes kept; a power of two.
const LATELY: usize = 256;

/// The tables of a machine.
pub(super) struct Prices {
    seed: u64,
    costs: Costs,
    first_byte_ns: Distribution,
    disk: Option<DiskSpec>,
    read: Cost,
    copy: Cost,
    kernels: KernelSpec,
    dataset: Dataset,
    /// Sizes drawn lately, by the low bits of the sample: a loader asks for a size when it reserves memory and again when it reads.
    lately: RefCell<Box<[(u64, Size); LATELY]>>,
    faults: Option<Faults>,
    replay: Option<Arc<LeafTimes>>,
    /// The part of their time for which jobs hold the lock, by kind (ppm).
    held: Vec<(String, u32)>,
    reader: Reader,
}

impl Prices {
    pub(super) fn new(config: &Config) -> Prices {
        Prices {
            seed: config.seed,
            costs: config.costs.clone(),
            first_byte_ns: config.store.first_byte_ns.clone(),
            disk: config.store.disk,
            read: config.store.cost.clone(),
            copy: config.copy.cost.clone(),
            kernels: config.kernels.clone(),
            dataset: config.dataset.clone(),
            lately: RefCell::new(Box::new([(u64::MAX, Size::default()); LATELY])),
            replay: config.replay.clone(),
            held: config.lock.as_ref().map_or_else(Vec::new, |lock| lock.held.clone()),
            reader: config.store.reader,
            faults: (!config.faults.is_empty()).then(|| config.faults.clone()),
        }
    }

    /// How large a sample is.
    #[inline]
    pub(super) fn size(&self, sample: u64) -> Size {
        if !self.dataset.is_random() {
            return self.dataset.size(self.seed, sample);
        }
        let lately = &mut self.lately.borrow_mut()[sample as usize % LATELY];
        if lately.0 != sample {
            *lately = (sample, self.dataset.size(self.seed, sample));
        }
        lately.1
    }

    /// What hits a leaf. `has_bytes` says whether the payload has bytes in which a decoder finds out by itself that they are
    /// spoiled.
    #[inline]
    pub(super) fn fault(&self, op: &Op, kind: LeafKind, has_bytes: bool) -> Option<Fault> {
        let faults = self.faults.as_ref()?;
        let spoiled = match kind {
            LeafKind::Cpu if !has_bytes && op.stage == StageId::DECODE => faults.found_by_decoder(self.seed, op),
            _ => None,
        };
        spoiled.or_else(|| faults.verdict(self.seed, op, kind))
    }

    /// Time until the first byte of a read of so many bytes, and CPU time of the read (ns).
    #[inline]
    pub(super) fn read_ns(&self, op: &Op, bytes: u64) -> (u64, u64) {
        if let Some(took) = self.replayed(op) {
            // A thread of the pool that reads what is cached waits for nothing but a core, and the simulation has cores of its own.
            let waited_ns = if self.reader == Reader::Pool { 0 } else { took.waited_ns() };
            return (waited_ns, took.cpu_ns);
        }
        let random = self.first_byte_ns.is_random() || self.read.residual_ppm.is_random();
        let [first, residual] = self.words(random, Purpose::FIRST_BYTE, op);
        (self.first_byte_ns.at(first), self.read.ns(bytes, 0, residual))
    }

    /// How long a read waits for the platter to turn (ns), and whether the page cache answers it instead.
    pub(super) fn disk(&self, op: &Op) -> (u64, bool) {
        match &self.disk {
            Some(disk) if self.replayed(op).is_none() => {
                let block = draw(self.seed, Purpose::FIRST_BYTE, op.item.sample, occurrence(op));
                let part = |word: u64, of: u64| ((u128::from(word) * u128::from(of)) >> 64) as u64;
                let cached = part(block.word(3), 1_000_000) < u64::from(disk.cached_ppm);
                (part(block.word(2), disk.rotation_ns), cached)
            }
            _ => (0, false),
        }
    }

    /// CPU time of a job (ns); `None` for a kind of work whose cost nobody knows.
    #[inline]
    pub(super) fn cpu_ns(&self, op: &Op, work: &Work) -> Option<u64> {
        if let Some(took) = self.replayed(op) {
            return Some(took.cpu_ns);
        }
        let cost = self.costs.get(work.kind)?;
        let [residual, _] = self.words(cost.residual_ppm.is_random(), Purpose::CPU_RESIDUAL, op);
        Some(cost.ns(work.bytes, work.pixels, residual))
    }

    /// For how long of so much time a job of this kind holds the lock (ns).
    #[inline]
    pub(super) fn locked_ns(&self, kind: &str, busy_ns: u64) -> u64 {
        let held = self.held.iter().find(|(name, _)| name == kind);
        held.map_or(0, |(_, ppm)| scaled(busy_ns, u64::from(*ppm).min(1_000_000)))
    }

    /// Time of a copy (ns).
    pub(super) fn copy_ns(&self, op: &Op, bytes: u64) -> u64 {
        let [residual, _] = self.words(self.copy.residual_ppm.is_random(), Purpose::COPY_RESIDUAL, op);
        self.copy.ns(bytes, 0, residual)
    }

    /// Time of a kernel (ns); `None` for a kind whose cost nobody knows.
    pub(super) fn kernel_ns(&self, work: &Work) -> Option<u64> {
        self.kernels.cost(work.kind).map(|cost| cost.ns(work.bytes))
    }

    #[inline]
    fn replayed(&self, op: &Op) -> Option<LeafTime> {
        self.replay.as_ref()?.get(op)
    }

    /// Two words for this leaf; zeros when nobody looks at them.
    #[inline]
    fn words(&self, random: bool, purpose: Purpose, op: &Op) -> [u64; 2] {
        if !random {
            return [0; 2];
        }
        words(self.seed, purpose, op)
    }
}

/// Two words for this leaf.
#[inline]
pub(super) fn words(seed: u64, purpose: Purpose, op: &Op) -> [u64; 2] {
    let block = draw(seed, purpose, op.item.sample, occurrence(op));
    [block.word(0), block.word(1)]
}

/// The time until the first byte that this read of a simulation with this seed meets, from `distribution` \[ns\]: what an emulated store
/// takes too, so that both meet the same luck.
pub fn first_byte_ns(distribution: &Distribution, seed: u64, op: &Op) -> u64 {
    distribution.at(words(seed, Purpose::FIRST_BYTE, op)[0])
}

/// Which draw of a sample's a leaf takes.
#[inline]
fn occurrence(op: &Op) -> u64 {
    u64::from(op.stage.0) << 48 | u64::from(op.item.epoch) << 16 | u64::from(op.attempt)
}

impl Dataset {
    fn is_random(&self) -> bool {
        match self {
            Dataset::Listed(_) => false,
            Dataset::Drawn { bytes, pixels, .. } => {
                bytes.is_random() || matches!(pixels, PixelCount::Drawn(law) if law.is_random())
            }
        }
    }

    /// How large a sample is, in a run with this seed; a sample that a [list](Dataset::Listed) does not have is empty.
    #[inline]
    pub fn size(&self, seed: u64, sample: u64) -> Size {
        match self {
            Dataset::Listed(sizes) => usize::try_from(sample).ok().and_then(|k| sizes.get(k)).copied().unwrap_or_default(),
            Dataset::Drawn { bytes, pixels, .. } => {
                let words = match self.is_random() {
                    true => {
                        let block = draw(seed, Purpose::DATASET, sample, 0);
                        [block.word(0), block.word(1)]
                    }
                    false => [0; 2],
                };
                let bytes = bytes.at(words[0]);
                let pixels = match pixels {
                    PixelCount::Drawn(law) => law.at(words[1]),
                    PixelCount::PerByte { ppm } => scaled(bytes, *ppm),
                };
                Size { bytes, pixels }
            }
        }
    }
}
