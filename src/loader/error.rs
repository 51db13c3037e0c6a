//! What ends a loader early.

use super::outcome::Skipped;
use crate::{failure::Failure, machine::Item};

/// Why a loader ended before its plan did. The consumer gets it once, after every batch before it; after it the loader is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A sample failed and the policy is to fail.
    #[error("sample {} (epoch {}, position {}): {failure}", .item.sample, .item.epoch, .item.position)]
    Sample {
        /// Which one.
        item: Item,
        /// Why.
        failure: Failure,
    },
    /// More samples of an epoch failed than the policy allows.
    #[error(
        "more than {allowed} samples of epoch {} failed; the last was sample {} (position {}): {failure}",
        .item.epoch, .item.sample, .item.position
    )]
    TooManySkipped {
        /// How many may fail.
        allowed: u64,
        /// The one that was too many.
        item: Item,
        /// Why it failed.
        failure: Failure,
    },
    /// The consumer asked for a batch while it held the memory that the batch needs. Drop or copy batches before asking, or set
    /// `held` to how many are kept at once.
    #[error(
        "the consumer holds {batches} batches, the oldest of them batch {oldest}, and asks for another, but there is no memory left \
         for one; drop batches before asking, or raise `held`"
    )]
    Held {
        /// How many batches the consumer holds.
        batches: usize,
        /// Index in the run of the oldest of them.
        oldest: u64,
    },
    /// A part of the machine the loader cannot do without: the device, a worker, a slot.
    #[error("the loader cannot go on: {0}")]
    Fatal(Failure),
    /// The loader ended without a word: its task was dropped or its thread panicked.
    #[error("the loader is gone: its task was dropped or its thread panicked")]
    Lost,
}

impl Error {
    /// The failed sample that it tells of, when it tells of one.
    pub(super) fn sample(&self) -> Option<Skipped> {
        match self {
            Error::Sample { item, failure } | Error::TooManySkipped { item, failure, .. } => {
                Some(Skipped { item: *item, failure: failure.clone() })
            }
            Error::Held { .. } | Error::Fatal(_) | Error::Lost => None,
        }
    }
}
