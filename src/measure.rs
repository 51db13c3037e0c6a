//! Running a loader for real, with a consumer whose train step is emulated by its duration.
//!
//! [`measure`] is what `towtank run`, `compare` and calibration have in common: the loader on threads of its own, the consumer on the
//! caller's, and what the process used meanwhile.

use std::{collections::VecDeque, time::Duration};

use crate::{
    loader::{self, Batch, Fill, Resolved, Running, stage},
    machine::{
        Clock, Encoded, Machine, Pixels,
        real::{self, RealMachine, usage},
    },
    trace::{LeafTimes, Recorder},
};

/// What the consumer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// How long it is busy with itself before it asks for the first batch.
    pub start_up: Duration,
    /// How long it works on a batch.
    pub step: Duration,
    /// Batches it works on at once: it gives back the oldest when it has so many.
    pub hold: usize,
    /// Batches after which it leaves; `None` for all.
    pub leave_after: Option<u64>,
}

impl Consumer {
    /// One that takes batches as fast as they come.
    pub const EAGER: Consumer = Consumer { start_up: Duration::ZERO, step: Duration::ZERO, hold: 1, leave_after: None };
}

/// What came of a run.
pub struct Run {
    /// The trace.
    pub recorder: Recorder,
    /// The loader's books.
    pub outcome: loader::Outcome,
    /// What the consumer was told at last: `Ok` at the end of the plan, or when it left by itself.
    pub end: Result<(), loader::Error>,
    /// From the start of the machine to its end \[ns\].
    pub wall_ns: u64,
    /// CPU time of the process meanwhile, user and system \[ns\].
    pub cpu_ns: u64,
    /// CPU time of the scheduler's thread \[ns\].
    pub scheduler_cpu_ns: u64,
    /// What every leaf took; empty unless [`real::Config::leaf_cpu`] asks for it.
    pub leaf_times: LeafTimes,
    /// How often the scheduler took news of leaves.
    pub drains: u64,
    /// What the processors of the computer did meanwhile; `None` where the system does not tell, and for runs of a moment.
    pub shares: Option<usage::Shares>,
    /// Peak resident memory of the process \[B\], and whether it is that of the run alone; `None` where the system does not tell.
    pub peak_rss_bytes: Option<(u64, bool)>,
}

/// Why a run came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A thread could not be started.
    #[error(transparent)]
    Launch(#[from] real::LaunchError),
    /// The machine ended without telling what became of the loader.
    #[error(transparent)]
    Join(#[from] real::JoinError),
}

/// A batch on the host.
pub type HostBatch = Batch<<RealMachine<Pixels> as Machine>::DeviceBatch, u8>;

/// Runs the loader on the real machine and consumes it on this thread; `look` sees every batch before its step.
///
/// # Errors
///
/// When threads cannot be started, or the scheduler's thread is lost. An error of the loader is [`Run::end`].
pub fn measure<F: Fill<Pixels, Encoded>>(
    config: real::Config,
    resolved: Resolved,
    fill: F,
    consumer: Consumer,
    recorder: Recorder,
    mut look: impl FnMut(&HostBatch),
) -> Result<Run, MeasureError> {
    let rss = usage::PeakRss::mark();
    let neighbours = usage::Neighbours::mark();
    let cpu_ns = usage::process_cpu_ns();
    let Running { mut batches, clock, machine } = loader::launch(config, resolved, stage::fetch, fill, recorder)?;

    let mut end = Ok(());
    work(&clock, consumer.start_up);
    let mut held = VecDeque::new();
    let mut taken = 0;
    while consumer.leave_after.is_none_or(|most| taken < most) {
        match batches.next() {
            Some(Ok(batch)) => {
                look(&batch);
                held.push_back(batch);
                taken += 1;
                work(&clock, consumer.step);
                while held.len() >= consumer.hold.max(1) {
                    held.pop_front();
                }
            }
            Some(Err(error)) => end = Err(error),
            None => break,
        }
    }
    drop(held);
    drop(batches);
    let done = machine.join()?;
    let (outcome, ended) = done.value;
    Ok(Run {
        recorder: done.recorder,
        outcome,
        end,
        wall_ns: ended.0,
        cpu_ns: usage::process_cpu_ns() - cpu_ns,
        scheduler_cpu_ns: done.scheduler_cpu_ns,
        leaf_times: done.leaf_times,
        drains: done.drains,
        shares: neighbours.and_then(usage::Neighbours::shares),
        peak_rss_bytes: rss.bytes().ok().map(|bytes| (bytes, rss.is_since_mark())),
    })
}

/// The time below which a sleep cannot be trusted to end.
const SPIN: Duration = Duration::from_micros(200);

/// Passes the time of a train step: asleep, as a host is while the device computes, and awake for the last moment, since a sleep ends
/// late by a tenth of a millisecond.
#[expect(clippy::disallowed_methods, reason = "the consumer's thread is not the scheduler's")]
fn work(clock: &impl Clock, step: Duration) {
    let end = clock.now() + step;
    if let Some(asleep) = step.checked_sub(SPIN).filter(|d| !d.is_zero()) {
        std::thread::sleep(asleep);
    }
    while clock.now() < end {
        std::hint::spin_loop();
    }
}
