//! What things cost on this machine, and how large samples are: pure functions of the seed and the leaf.

use std::cell::Cell;

use super::{Config, Cost, Costs, Dataset, Distribution, PixelCount, Size, config::scaled};
use crate::{
    draw::{Purpose, draw},
    fault::{Fault, Faults, Leaf as LeafKind},
    machine::{Op, Work},
    trace::StageId,
};

/// The tables of a machine.
pub(super) struct Prices {
    seed: u64,
    costs: Costs,
    first_byte_ns: Distribution,
    connection_bytes_per_s: Option<u64>,
    read: Cost,
    copy: Cost,
    dataset: Dataset,
    faults: Option<Faults>,
    /// Sizes drawn last, by the low bits of the sample: a size is asked for twice, before the read and by it.
    sizes: Box<[Cell<(u64, Size)>; SIZES]>,
}

/// More than there are samples between the two questions, usually.
const SIZES: usize = 256;

impl Prices {
    pub(super) fn new(config: &Config) -> Prices {
        Prices {
            seed: config.seed,
            costs: config.costs.clone(),
            first_byte_ns: config.store.first_byte_ns.clone(),
            connection_bytes_per_s: config.store.connection_bytes_per_s,
            read: config.store.cost.clone(),
            copy: config.copy.cost.clone(),
            dataset: config.dataset.clone(),
            faults: (!config.faults.is_empty()).then(|| config.faults.clone()),
            sizes: Box::new([const { Cell::new((u64::MAX, Size { bytes: 0, pixels: 0 })) }; SIZES]),
        }
    }

    /// How large a sample is.
    #[inline]
    pub(super) fn size(&self, sample: u64) -> Size {
        let kept = &self.sizes[sample as usize % SIZES];
        match kept.get() {
            (known, size) if known == sample => size,
            _ => {
                let size = self.dataset.size(self.seed, sample);
                kept.set((sample, size));
                size
            }
        }
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

    /// Time that the connection of a read takes for so many bytes, rounded up (ns).
    #[inline]
    pub(super) fn transfer_ns(&self, bytes: u64) -> u64 {
        const NS_PER_S: u64 = 1_000_000_000;
        match self.connection_bytes_per_s {
            None => 0,
            Some(rate) => match bytes.checked_mul(NS_PER_S) {
                Some(product) => product.div_ceil(rate.max(1)),
                None => u64::try_from((u128::from(bytes) * u128::from(NS_PER_S)).div_ceil(u128::from(rate.max(1))))
                    .unwrap_or(u64::MAX),
            },
        }
    }

    /// Time until the first byte of a read of so many bytes, and CPU time of the read (ns).
    #[inline]
    pub(super) fn read_ns(&self, op: &Op, bytes: u64) -> (u64, u64) {
        let random = self.first_byte_ns.is_random() || self.read.residual_ppm.is_random();
        let [first, residual] = self.words(random, Purpose::FIRST_BYTE, op);
        (self.first_byte_ns.at(first), self.read.ns(bytes, 0, residual))
    }

    /// CPU time of a job (ns); `None` for a kind of work whose cost nobody knows.
    #[inline]
    pub(super) fn cpu_ns(&self, op: &Op, work: &Work) -> Option<u64> {
        let cost = self.costs.get(work.kind)?;
        let [residual, _] = self.words(cost.residual_ppm.is_random(), Purpose::CPU_RESIDUAL, op);
        Some(cost.ns(work.bytes, work.pixels, residual))
    }

    /// Time of a copy (ns).
    pub(super) fn copy_ns(&self, op: &Op, bytes: u64) -> u64 {
        let [residual, _] = self.words(self.copy.residual_ppm.is_random(), Purpose::COPY_RESIDUAL, op);
        self.copy.ns(bytes, 0, residual)
    }

    /// Two words for this leaf; zeros when nobody looks at them.
    #[inline]
    fn words(&self, random: bool, purpose: Purpose, op: &Op) -> [u64; 2] {
        if !random {
            return [0; 2];
        }
        let occurrence = u64::from(op.stage.0) << 48 | u64::from(op.item.epoch) << 16 | u64::from(op.attempt);
        let block = draw(self.seed, purpose, op.item.sample, occurrence);
        [block.word(0), block.word(1)]
    }
}

impl Dataset {
    /// How large a sample is, in a run with this seed; a sample that a [list](Dataset::Listed) does not have is empty.
    #[inline]
    pub fn size(&self, seed: u64, sample: u64) -> Size {
        match self {
            Dataset::Listed(sizes) => usize::try_from(sample).ok().and_then(|k| sizes.get(k)).copied().unwrap_or_default(),
            Dataset::Drawn { bytes, pixels, .. } => {
                let random = bytes.is_random() || matches!(pixels, PixelCount::Drawn(law) if law.is_random());
                let words = match random {
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
