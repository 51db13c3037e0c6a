//! How large the samples of a simulated dataset are.

use std::sync::Arc;

use super::Distribution;

/// How large one sample is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size {
    /// Encoded bytes (B).
    pub bytes: u64,
    /// Pixels of the full-size image (px).
    pub pixels: u64,
}

/// The sizes of all samples: a pure function of the seed and the sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dataset {
    /// Sizes drawn for each sample.
    Drawn {
        /// Number of samples.
        count: u64,
        /// Encoded bytes of a sample (B).
        bytes: Distribution,
        /// Its pixels.
        pixels: PixelCount,
    },
    /// Sizes that were measured, sample by sample.
    Listed(Arc<[Size]>),
}

/// Where the number of pixels of a drawn sample comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PixelCount {
    /// Drawn for itself, independent of the bytes (px).
    Drawn(Distribution),
    /// Proportional to the encoded bytes (millionths of a pixel per byte).
    PerByte {
        /// Millionths of a pixel per byte.
        ppm: u64,
    },
}

impl Dataset {
    /// `count` samples of the same size.
    pub fn uniform(count: u64, size: Size) -> Dataset {
        Dataset::Drawn {
            count,
            bytes: Distribution::Constant(size.bytes),
            pixels: PixelCount::Drawn(Distribution::Constant(size.pixels)),
        }
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        match self {
            Dataset::Drawn { count, .. } => *count,
            Dataset::Listed(sizes) => sizes.len() as u64,
        }
    }
}
