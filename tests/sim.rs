//! The simulated machine, from outside: tasks, leaves, choices, stalls, and the exact results of queueing theory.

#[path = "sim/abstract_time.rs"]
mod abstract_time;
#[path = "sim/choices.rs"]
mod choices;
#[path = "sim/deadlocks.rs"]
mod deadlocks;
#[path = "sim/leaves.rs"]
mod leaves;
#[path = "sim/ranks.rs"]
mod ranks;
#[path = "sim/references.rs"]
mod references;
#[path = "sim/stalls.rs"]
mod stalls;
#[path = "sim/tasks.rs"]
mod tasks;

use towtank::{
    machine::{Item, Op, Work},
    trace::StageId,
};

/// The operation of `stage` on `sample`.
fn op(stage: StageId, sample: u64) -> Op {
    Op { stage, rank: 0, attempt: 0, item: Item { epoch: 0, position: sample, sample } }
}

/// A job of no size.
const JOB: Work = Work { kind: "job", bytes: 0, pixels: 0 };
