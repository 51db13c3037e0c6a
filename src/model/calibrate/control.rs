//! What control costs: the scheduler's thread, a leaf's way to the pool and back, and waking a pool that sleeps.

use std::sync::Arc;

use super::{
    CalibrateError,
    corpus::{Corpus, Pass},
    median,
};
use crate::{
    failure::Failure,
    loader::{Fill, Settings},
    machine::{
        Encoded, Item, Pixels, Work,
        real::{self, Reads, Wakes},
    },
    measure::{Consumer, Run, measure},
    source::Memory,
    trace::{Kind, Recorder, StageId},
};

/// Samples of a pass with no-op stages.
const NO_OPS: u64 = 20_000;

/// Does nothing with a sample.
struct NoOp;

impl Fill<Pixels, Encoded> for NoOp {
    fn work(&self, _: Item, _: &Encoded) -> Work {
        Work { kind: "nothing", bytes: 0, pixels: 0 }
    }

    fn fill(&self, _: Item, _: Encoded, out: &mut [u8]) -> Result<(), Failure> {
        out.fill(1);
        Ok(())
    }
}

/// The loader with stages that do nothing, so that control is all there is.
pub(super) fn no_ops(threads: usize, wakes: Wakes) -> Result<Run, CalibrateError> {
    let source = Memory::from_fn(NO_OPS, |_, into| {
        into.clear();
        into.push(0);
        Ok(())
    });
    let config = real::Config { threads, wakes, reads: Reads::Pool, ..real::Config::new(Arc::new(source.with_bytes_bound(1))) };
    let mut settings = Settings::new(NO_OPS, 64, 64);
    settings.lanes = 32 * threads;
    settings.sample_bytes = 1;
    let run = measure(config, settings.resolve()?, NoOp, Consumer::EAGER, Recorder::new(), |_| ())?;
    match run.end {
        Ok(()) => Ok(run),
        Err(error) => Err(CalibrateError::Loader(error)),
    }
}

/// What the scheduler's thread costs.
pub(super) struct Control {
    pub(super) per_wake_ns: f64,
    pub(super) per_completion_ns: f64,
}

impl Control {
    /// Two runs that completed the same leaves, one with many wakes and one with few.
    pub(super) fn solve(eager: &Run, lazy: &Run) -> Control {
        let leaves = 2.0 * NO_OPS as f64;
        let (cpu_e, cpu_l) = (eager.scheduler_cpu_ns as f64, lazy.scheduler_cpu_ns as f64);
        let (wakes_e, wakes_l) = (eager.drains as f64, lazy.drains as f64);
        let apart = wakes_e - wakes_l;
        let per_wake_ns = if apart > leaves / 50.0 { ((cpu_e - cpu_l) / apart).clamp(0.0, 50_000.0) } else { 0.0 };
        Control { per_wake_ns, per_completion_ns: ((cpu_l - wakes_l * per_wake_ns) / leaves).max(0.0) }
    }
}

/// What the process uses beyond decoding, reading and scheduling, per leaf \[ns\].
pub(super) fn overhead<'a>(passes: impl Iterator<Item = &'a Pass>) -> f64 {
    let per_leaf = passes.map(|pass| beyond_ns(pass).max(0.0) / (2.0 * pass.decode_ns.len() as f64));
    median(per_leaf.collect())
}

/// What a read uses beyond reading when it waits on a thread of its own \[ns\]: going to sleep, waking up, and the way there and back.
/// `of_a_job_ns` is what a job of the pool uses beyond its work.
pub(super) fn waiting_overhead(pass: &Pass, of_a_job_ns: f64) -> f64 {
    (beyond_ns(pass) / (f64::from(pass.epochs) * pass.read_ns.len() as f64) - of_a_job_ns).max(0.0)
}

/// What the process uses beyond decoding, reading and scheduling \[ns\].
fn beyond_ns(pass: &Pass) -> f64 {
    let work: f64 = pass.decode_ns.iter().chain(&pass.read_ns).sum();
    pass.run.cpu_ns as f64 - work * f64::from(pass.epochs) - pass.run.scheduler_cpu_ns as f64
}

/// From a job's submission to its start when the pool sleeps \[ns\].
pub(super) fn wake_up(threads: usize, corpus: &Corpus) -> Result<f64, CalibrateError> {
    let pass = corpus.observed(threads, 1, Recorder::new().keep_events())?;
    let events = pass.run.recorder.events();
    let starts = events.iter().filter(|e| e.kind == Kind::Start && e.stage == StageId::DECODE);
    Ok(median(starts.map(|e| e.time.since(e.since) as f64).collect()))
}
