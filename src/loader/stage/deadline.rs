//! No longer than so long.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use super::{Context, Stage};
use crate::{
    failure::{Failure, FailureKind},
    machine::Machine,
};

/// Gives a sample up that stays longer than so long in the stage. Its failure is of kind [`FailureKind::Deadline`], worth a retry.
///
/// A job that has begun cannot be taken back: it keeps its core, and what it would have written may still be written. So a deadline
/// that passes while a CPU job of the stage is submitted ends the loader, with [`FailureKind::Lost`]. It counts from submission, so
/// leave room for a full queue.
#[derive(Clone, Copy, Debug)]
pub struct Deadline<S> {
    within: Option<Duration>,
    stage: S,
}

impl<S> Deadline<S> {
    /// No longer than `within` in `stage`.
    pub fn new(within: Duration, stage: S) -> Deadline<S> {
        Deadline { within: Some(within), stage }
    }

    /// With a deadline or without.
    pub fn maybe(within: Option<Duration>, stage: S) -> Deadline<S> {
        Deadline { within, stage }
    }
}

impl<M: Machine, In, S: Stage<M, In>> Stage<M, In> for Deadline<S> {
    type Out = S::Out;

    fn enter(&self, machine: &M) {
        self.stage.enter(machine);
    }

    async fn run(&self, cx: &Context<'_, M>, input: In) -> Result<S::Out, Failure> {
        let before = cx.jobs.get();
        let mut run = pin!(self.stage.run(cx, input));
        let mut late = pin!(self.within.map(|within| cx.machine.sleep(within)));
        // The stage is awaited in one place, deadline or not, so that it becomes part of the lane's code.
        poll_fn(|task| {
            if let Poll::Ready(result) = run.as_mut().poll(task) {
                return Poll::Ready(result);
            }
            if late.as_mut().as_pin_mut().is_none_or(|late| late.poll(task).is_pending()) {
                return Poll::Pending;
            }
            let within = self.within.unwrap_or_default();
            // Asked before the stage is dropped, and its job with it.
            Poll::Ready(Err(if cx.jobs.get() > before {
                Failure::new(FailureKind::Lost, format!("a CPU job did not end within {within:?}"))
            } else {
                Failure::new(FailureKind::Deadline, format!("not done within {within:?}"))
            }))
        })
        .await
    }
}
