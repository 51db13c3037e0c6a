//! Running a loader for real, with a consumer whose train step is emulated by its duration.
//!
//! [`measure`] is what calibration and a run of one rank are made of: the loader on threads of its own, the consumer on the caller's, and
//! what the process used meanwhile. [`measure_ranks`] is the same for several ranks on one machine, as `towtank run` and `compare` run them; [`processes`] is where ranks meet
//! that are processes of their own.

use std::{collections::VecDeque, io, sync::Arc, thread, time::Duration};

use crate::{
    device::{
        Device,
        cuda::{CudaBatch, TrainStep},
    },
    failure::{Failure, FailureKind},
    loader::{
        self, Batch, Batches, Fill, RankLoader, Resolved, RunningRanks,
        stage::{self, BatchStage},
    },
    machine::{
        Clock, Encoded, Machine, Pixels,
        real::{self, RealMachine, usage},
    },
    sync::Party,
    trace::{LeafTimes, Recorder},
};

pub mod processes;

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
    /// The loader's books; of several ranks the first one's.
    pub outcome: loader::Outcome,
    /// What the consumer was told at last: `Ok` at the end of the plan, or when it left by itself; of several ranks the first one.
    pub end: Result<(), loader::Error>,
    /// How the ranks after the first ended, in order.
    pub others: Vec<RankEnd>,
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

/// How one rank ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankEnd {
    /// Its loader's books.
    pub outcome: loader::Outcome,
    /// What its consumer was told at last, as [`Run::end`].
    pub end: Result<(), loader::Error>,
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

/// Where the consumers of ranks wait for each other after every step, as those of data-parallel training do. Dropping it takes the rank
/// out: nobody waits for it any more, and the others go on.
pub trait Meeting: Send {
    /// Waits until every other rank has come here too, or has left.
    ///
    /// # Errors
    ///
    /// When a rank was lost, and so the ranks that are left cannot go on.
    fn meet(&mut self) -> Result<(), Lost>;
}

/// A rank that is a process of its own and went without a word.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {rank} is lost: {why}")]
pub struct Lost {
    /// Which one.
    pub rank: u16,
    /// What is known of it.
    pub why: String,
}

impl Meeting for Party {
    fn meet(&mut self) -> Result<(), Lost> {
        Party::meet(self);
        Ok(())
    }
}

/// A train step that the device of the batches does itself.
pub trait Train<B: Send + 'static>: Send {
    /// Works on `batch` for `time`, and returns when that is done.
    ///
    /// # Errors
    ///
    /// When the device fails. The consumer then leaves.
    fn step(&mut self, batch: &Batch<B, u8>, time: Duration) -> Result<(), Failure>;
}

impl Train<CudaBatch> for TrainStep {
    fn step(&mut self, batch: &Batch<CudaBatch, u8>, time: Duration) -> Result<(), Failure> {
        // A batch without samples has no memory, and nothing to train on.
        let Some(memory) = batch.device() else { return Ok(()) };
        TrainStep::step(self, memory, batch.len() * batch.units_per_sample(), time).map(drop).map_err(|error| error.failure())
    }
}

/// One rank of a run.
pub struct Rank<D: Device<u8>, F, L> {
    /// What its loader is told.
    pub resolved: Resolved,
    /// Where its batches go; `None` for the machine's own device.
    pub device: Option<Arc<D>>,
    /// What fills its slots.
    pub fill: F,
    /// The stage on the device, where the settings tell of one.
    pub on_device: Option<Arc<dyn BatchStage<D::Batch>>>,
    /// What its consumer does.
    pub consumer: Consumer,
    /// What does its train step; `None` for the host, which lets the time pass.
    pub train: Option<Box<dyn Train<D::Batch>>>,
    /// Where it waits for other ranks after every step; `None` when it does not.
    pub meeting: Option<Box<dyn Meeting>>,
    /// Sees every batch before its step.
    pub look: L,
}

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
    look: impl FnMut(&HostBatch) + Send,
) -> Result<Run, MeasureError> {
    let alone = Rank { resolved, device: None, fill, on_device: None, consumer, train: None, meeting: None, look };
    measure_ranks(config, vec![alone], recorder)
}

/// Runs the loaders of several ranks on one real machine, as [`loader::launch_ranks`] does, each with a consumer of its own: the first on
/// this thread, every other on one that is started for it.
///
/// A rank whose loader fails, or whose consumer leaves, ends; the others go on without it.
///
/// # Errors
///
/// As [`measure`].
///
/// # Panics
///
/// When there is no rank, or a `look` panics; every other rank has come to its end then.
pub fn measure_ranks<D, F, L>(config: real::Config<D>, ranks: Vec<Rank<D, F, L>>, recorder: Recorder) -> Result<Run, MeasureError>
where
    D: Device<u8>,
    F: Fill<Pixels, Encoded>,
    L: FnMut(&Batch<D::Batch, u8>) + Send,
{
    let rss = usage::PeakRss::mark();
    let neighbours = usage::Neighbours::mark();
    let cpu_ns = usage::process_cpu_ns();
    // Of several consumers that stay awake for the last moment of their step, all together stay awake as long as one would.
    let awake = SPIN / u32::try_from(ranks.len()).unwrap_or(u32::MAX).max(1);
    let (loaders, mut consumers): (Vec<_>, VecDeque<_>) = ranks
        .into_iter()
        .map(|Rank { resolved, device, fill, on_device, consumer, train, meeting, look }| {
            (RankLoader { resolved, device, stages: stage::fetch, fill, on_device }, (consumer, train, meeting, look))
        })
        .unzip();
    let RunningRanks { batches, clock, mut machine } = loader::launch_ranks(config, loaders, recorder)?;
    let mut batches = batches.into_iter();
    let (first, (consumer, train, meeting, look)) =
        batches.next().zip(consumers.pop_front()).expect("there is at least one rank");
    let ends = thread::scope(|scope| {
        let start = |(rank, (batches, (consumer, train, meeting, look))): (usize, (_, _))| {
            let work = move || consume(&clock, batches, consumer, awake, train, meeting, look);
            thread::Builder::new().name(format!("towtank rank {rank}")).spawn_scoped(scope, work)
        };
        let others: Result<Vec<_>, io::Error> = (1..).zip(batches.zip(consumers)).map(start).collect();
        // Ranks that have begun shall not go on when not all could.
        let others = others.inspect_err(|_| machine.stop())?;
        let mut ends = vec![consume(&clock, first, consumer, awake, train, meeting, look)];
        ends.extend(others.into_iter().map(|rank| rank.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))));
        Ok::<_, io::Error>(ends)
    })
    .map_err(real::LaunchError::from)?;
    let done = machine.join()?;
    let (outcomes, ended) = done.value;
    let mut ends = outcomes.into_iter().zip(ends).map(|(outcome, end)| RankEnd { outcome, end });
    let RankEnd { outcome, end } = ends.next().expect("there is at least one rank");
    Ok(Run {
        recorder: done.recorder,
        outcome,
        end,
        others: ends.collect(),
        wall_ns: ended.0,
        cpu_ns: usage::process_cpu_ns() - cpu_ns,
        scheduler_cpu_ns: done.scheduler_cpu_ns,
        leaf_times: done.leaf_times,
        drains: done.drains,
        shares: neighbours.and_then(usage::Neighbours::shares),
        peak_rss_bytes: rss.bytes().ok().map(|bytes| (bytes, rss.is_since_mark())),
    })
}

/// One rank's train step: takes a batch, works on it, meets the others, gives back the oldest it holds, asks for the next.
fn consume<D: Send + 'static>(
    clock: &impl Clock,
    mut batches: Batches<D, u8>,
    consumer: Consumer,
    awake: Duration,
    mut train: Option<Box<dyn Train<D>>>,
    mut meeting: Option<Box<dyn Meeting>>,
    mut look: impl FnMut(&Batch<D, u8>),
) -> Result<(), loader::Error> {
    let mut end = Ok(());
    work(clock, consumer.start_up, awake);
    let mut held = VecDeque::new();
    let mut taken = 0;
    while consumer.leave_after.is_none_or(|most| taken < most) {
        match batches.next() {
            Some(Ok(batch)) => {
                look(&batch);
                taken += 1;
                match &mut train {
                    None => work(clock, consumer.step, awake),
                    Some(train) => {
                        if let Err(failure) = train.step(&batch, consumer.step) {
                            end = Err(loader::Error::Fatal(failure));
                            break;
                        }
                    }
                }
                held.push_back(batch);
                if let Some(meeting) = &mut meeting {
                    // Waiting for others is not the step.
                    batches.step_over();
                    if let Err(lost) = meeting.meet() {
                        end = Err(loader::Error::Fatal(Failure::new(FailureKind::Lost, lost.to_string())));
                        break;
                    }
                }
                while held.len() >= consumer.hold.max(1) {
                    held.pop_front();
                }
            }
            Some(Err(error)) => end = Err(error),
            None => break,
        }
    }
    drop(held);
    // The loader ends meanwhile, where others still meet here.
    drop(batches);
    drop(meeting);
    end
}

/// The time below which a sleep cannot be trusted to end.
const SPIN: Duration = Duration::from_micros(200);

/// Passes the time of a train step: asleep, as a host is while the device computes, and `awake` for the last moment, since a sleep ends
/// late by a tenth of a millisecond.
#[expect(clippy::disallowed_methods, reason = "the consumer's thread is not the scheduler's")]
fn work(clock: &impl Clock, step: Duration, awake: Duration) {
    let end = clock.now() + step;
    if let Some(asleep) = step.checked_sub(awake).filter(|d| !d.is_zero()) {
        std::thread::sleep(asleep);
    }
    while clock.now() < end {
        std::hint::spin_loop();
    }
}
