//! What became of everything: the accounts a loader closes with.

use std::fmt;

use super::{error::Error, state::State};
use crate::{
    failure::{Failure, FailureKind},
    machine::Item,
};

/// A sample that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Which one.
    pub item: Item,
    /// Why.
    pub failure: Failure,
}

/// Why a loader ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The consumer has had every batch of the plan.
    Finished,
    /// The consumer left before.
    Left,
    /// An error ended it.
    Failed(Error),
}

impl End {
    /// The number that stands for it in the trace's `Stop` event.
    pub(crate) fn code(&self) -> u64 {
        match self {
            End::Finished => 0,
            End::Left => 1,
            End::Failed(_) => 2,
        }
    }
}

/// Where every sample went: `planned = delivered + skipped + dropped + in_flight`, at every instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Samples launched.
    pub planned: u64,
    /// Samples in batches that the consumer took.
    pub delivered: u64,
    /// Samples that failed and were left out, the one that ended the loader included.
    pub skipped: u64,
    /// Samples that fell to `drop_last` or to the tail of a rank.
    pub dropped: u64,
    /// Samples between launch and one of the three; when the loader has ended, those it gave up.
    pub in_flight: u64,
    /// Batches that the consumer took.
    pub batches: u64,
    /// Failed samples by [code](FailureKind::code) of the reason.
    pub reasons: [u64; FailureKind::ALL.len()],
}

impl Accounts {
    /// Whether nothing is missing and nothing is counted twice.
    pub fn balanced(&self) -> bool {
        self.planned == self.delivered + self.skipped + self.dropped + self.in_flight
            && self.skipped == self.reasons.iter().sum::<u64>()
    }

    /// The accounts of two loaders as those of one.
    pub fn plus(&self, other: &Accounts) -> Accounts {
        Accounts {
            planned: self.planned + other.planned,
            delivered: self.delivered + other.delivered,
            skipped: self.skipped + other.skipped,
            dropped: self.dropped + other.dropped,
            in_flight: self.in_flight + other.in_flight,
            batches: self.batches + other.batches,
            reasons: std::array::from_fn(|code| self.reasons[code] + other.reasons[code]),
        }
    }

    pub(crate) fn count_skipped(&mut self, kind: FailureKind) {
        self.skipped += 1;
        self.reasons[kind.code() as usize] += 1;
    }
}

impl fmt::Display for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Accounts { planned, delivered, skipped, dropped, in_flight, .. } = self;
        write!(f, "{planned} planned = {delivered} delivered + {skipped} skipped + {dropped} dropped + {in_flight} in flight")
    }
}

/// Memory of a loader \[B\].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Ring, device batches and scratch.
    pub fixed_bytes: u64,
    /// The most encoded bytes that were reserved at once.
    pub peak_reserved_bytes: u64,
    /// Encoded bytes still reserved; 0 once the loader has ended.
    pub reserved_bytes: u64,
    /// How often a sample was larger than its bound, so that the ledger had to go beyond what it may reserve.
    pub overruns: u64,
}

/// Slots of a loader that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Slots in the ring.
    pub ring: usize,
    /// Back home.
    pub home: usize,
    /// In batches that the consumer still holds.
    pub lent: usize,
    /// Gone with a copy that failed or was given up, or with a job that is stuck.
    pub given_up: usize,
}

/// The books of a loader that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// Where every sample went.
    pub accounts: Accounts,
    /// Its memory.
    pub memory: Memory,
    /// Its slots.
    pub slots: Slots,
    /// The state after the last batch that the consumer took.
    pub state: State,
    /// Samples that failed and came with no batch that the consumer took, but for the one whose error it was told.
    pub unreported: Vec<Skipped>,
    /// Unfinished batches that were moved to the device to make room in the ring.
    pub flushes: u64,
    /// Batches that the consumer read in their slots, without a copy.
    pub lent_batches: u64,
    /// Retries of failed reads.
    pub retries: u64,
}
