//! What happened: one stream of events, whichever machine they come from.
//!
//! Only the scheduler writes. Leaves that ran elsewhere bring their stamps home and are recorded when their answer arrives, so on
//! the real machine events come in the order of arrival, not of [`Event::time`]; on the simulated one the two are the same.
//! Whoever reads a trace is a **streaming fold** that needs no order finer than "a phase's event comes after the phase began":
//! every event that ends a phase carries, in [`Event::since`], when that phase began.
//!
//! # Order
//!
//! What may be relied upon, in full:
//!
//! 1. Events that the scheduler stamps itself come in order of time among themselves: all that the table of [`Kind`] says the
//!    loader writes, and `Queued`. On the real machine one poll of its tasks may put them out of order by its own length.
//! 2. A leaf's `Queued`, `Start` and `End`, `Fail` or `Abandon` come in this order, after its sample's `Launch` and before the
//!    sample's `Filled` or `Skipped`, or before the batch's `Ready`.
//! 3. A batch's `Taken`, `Idle` and `Delivered` come after its `Ready` and before its `Returned`, its `Step` after its `Taken`.
//!
//! Anything else may be late by any amount: a `Start` of long ago behind younger events, or the news of a consumer that keeps a
//! batch.

use crate::machine::Time;

mod checkpoints;
mod gauge;
mod hash;
mod histogram;
mod leaf_times;
#[cfg(test)]
pub(crate) mod oracle;
pub mod recorded;
mod recorder;
mod sink;
pub mod summary;
mod table;
mod timeline;

pub use checkpoints::Checkpoints;
pub use gauge::Gauge;
pub use hash::TraceHash;
pub use histogram::Histogram;
pub use leaf_times::{LeafTime, LeafTimes};
pub use recorder::Recorder;
pub use sink::Sink;
pub use summary::{Accounts, ConsumerSummary, EpochSummary, LoaderSummary, StageSummary, Stall, Summary};
pub use timeline::{Timeline, Track};

/// A stage of a loader, as traces number it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageId(pub u8);

impl StageId {
    /// The loader as a whole.
    pub const LOADER: StageId = StageId(0);
    /// Reading encoded bytes from the store.
    pub const FETCH: StageId = StageId(1);
    /// Decoding into a slot: the last CPU job of a sample.
    pub const DECODE: StageId = StageId(2);
    /// Assembling a batch. Events of this stage count batches: [`Event::sample`] is the batch's index.
    pub const BATCH: StageId = StageId(3);
    /// Copying a batch to the device. Events of this stage count batches too.
    pub const TRANSFER: StageId = StageId(4);
    /// The consumer. Events of this stage count batches too.
    pub const CONSUMER: StageId = StageId(5);
    /// A user's stage on the device, on a whole batch between its copy and the consumer. Events of this stage count batches too.
    pub const DEVICE: StageId = StageId(6);
    /// Stages from here on are the user's.
    pub const USER_FIRST: StageId = StageId(8);

    /// The user's stage number `k`, from 0.
    ///
    /// # Panics
    ///
    /// If `k` is 56 or more: a loader has at most 64 stages.
    pub fn user(k: u8) -> StageId {
        assert!(k < 56, "a loader has at most 56 stages of the user's, not {k}");
        StageId(StageId::USER_FIRST.0 + k)
    }

    /// The name of a built-in stage; `None` for a user's.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            StageId::LOADER => "loader",
            StageId::FETCH => "fetch",
            StageId::DECODE => "decode",
            StageId::BATCH => "batch",
            StageId::TRANSFER => "transfer",
            StageId::CONSUMER => "consumer",
            StageId::DEVICE => "device",
            _ => return None,
        })
    }
}

/// What an event says.
///
/// | kind | written by | `stage` | `sample` | `time` | `since` | `bytes` |
/// | --- | --- | --- | --- | --- | --- | --- |
/// | `Launch` | loader | `LOADER` | sample | its ticket was drawn | when its lane began to wait for a slot | 0 |
/// | `Reserve` | loader | `LOADER` | sample | the ledger let it in | when it asked | reserved bytes |
/// | `Refund` | loader | `LOADER` | sample | now | – | bytes given back |
/// | `Queued` | machine | the leaf's | sample or batch | submitted | – | bytes of the work |
/// | `Start` | machine | the leaf's | sample or batch | it got its core, link or thread | submitted | 0 |
/// | `End` | machine | the leaf's | sample or batch | it ended | its start | bytes moved, or of the work |
/// | `Fail` | machine | the leaf's | sample or batch | it failed | its start | code of the [`FailureKind`](crate::failure::FailureKind) |
/// | `Abandon` | machine | the leaf's | sample or batch | nobody waits for it any more | its start, or submission when still queued | 0 |
/// | `Retry` | loader | the leaf's | sample | a further try is due | when the last one failed | number of the try, from 1 |
/// | `Filled` | loader | `BATCH` | sample | its slot is filled | its launch | 0 |
/// | `Skipped` | loader | `BATCH` | sample | it is given up | its launch | code of the failure |
/// | `Dropped` | loader | `BATCH` | sample | it falls to `drop_last` or to a rank's tail | its fill | 0 |
/// | `Sealed` | loader | `BATCH` | batch | its last sample is known | when its first sample was filled | samples in it |
/// | `Ready` | loader | `TRANSFER` | batch | the consumer may have it | sealed | bytes on the device |
/// | `Taken` | consumer | `CONSUMER` | batch | the consumer got it | when the consumer asked | samples in it |
/// | `Idle` | consumer | `CONSUMER` | batch | the consumer got it | when it was ready | 0 |
/// | `Delivered` | consumer | `CONSUMER` | sample | as `Taken` | its launch | 0 |
/// | `Step` | consumer | `CONSUMER` | batch | the consumer asked for the next | when it got this one | 0 |
/// | `Returned` | loader | `CONSUMER` | batch | its memory is free again | taken | 0 |
/// | `Stop` | loader | `LOADER` | 0 | it stopped | 0 | 0 for the end of the plan, 1 for a consumer that left, 2 for an error |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the table above says it better")]
pub enum Kind {
    Launch,
    Reserve,
    Refund,
    Queued,
    Start,
    End,
    Fail,
    Abandon,
    Retry,
    Filled,
    Skipped,
    Dropped,
    Sealed,
    Ready,
    Taken,
    Idle,
    Delivered,
    Step,
    Returned,
    Stop,
}

impl Kind {
    /// All kinds, in order.
    pub const ALL: [Kind; 20] = {
        use Kind::*;
        [
            Launch, Reserve, Refund, Queued, Start, End, Fail, Abandon, Retry, Filled, Skipped, Dropped, Sealed, Ready, Taken,
            Idle, Delivered, Step, Returned, Stop,
        ]
    };
}

/// One thing that happened. 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When \[ns since the machine started\].
    pub time: Time,
    /// When the phase that this event ends had begun; equal to `time` where the table of [`Kind`] has none.
    pub since: Time,
    /// Index of the sample in the dataset, or of the batch in the run.
    pub sample: u64,
    /// As the table of [`Kind`] says.
    pub bytes: u64,
    /// Epoch of the sample or batch.
    pub epoch: u32,
    /// Rank.
    pub rank: u16,
    /// Stage.
    pub stage: StageId,
    /// What happened.
    pub kind: Kind,
}
