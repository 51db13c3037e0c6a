//! Once more, after a pause.

use std::time::Duration;

use super::{Context, Stage};
use crate::{
    draw::{Purpose, draw, unit},
    failure::Failure,
    loader::settings::Retries,
    machine::{Item, Machine},
    trace::{Kind, StageId},
};

/// Tries a sample again whose failure [may pass](crate::failure::FailureKind::is_transient).
///
/// The pause doubles from try to try, up to a cap, and is drawn from the upper half of that: a store that failed for many is not
/// asked by all of them at the same instant again. The draw is keyed by sample, epoch and try, so it is the same in every run.
#[derive(Clone, Copy, Debug)]
pub struct Retry<S> {
    id: StageId,
    retries: Retries,
    stage: S,
}

impl<S> Retry<S> {
    /// Retries `stage`, whose leaves are recorded as `id`.
    pub fn new(id: StageId, retries: Retries, stage: S) -> Retry<S> {
        Retry { id, retries, stage }
    }
}

impl<M: Machine, In: Clone, S: Stage<M, In>> Stage<M, In> for Retry<S> {
    type Out = S::Out;

    fn enter(&self, machine: &M) {
        self.stage.enter(machine);
    }

    async fn run(&self, cx: &Context<'_, M>, input: In) -> Result<S::Out, Failure> {
        // Copied only for a second try.
        let mut later: Option<Context<'_, M>> = None;
        loop {
            let cx = later.as_ref().unwrap_or(cx);
            match self.stage.run(cx, input.clone()).await {
                Err(failure) if failure.kind.is_transient() && cx.attempt < self.retries.at_most => {}
                result => return result,
            }
            let failed = cx.machine.now();
            cx.machine.sleep(pause(self.retries, cx.machine.seed(), cx.item, cx.attempt)).await;
            let next = Context { attempt: cx.attempt + 1, ..*cx };
            next.retries.set(next.retries.get() + 1);
            next.record(self.id, Kind::Retry, Some(failed), u64::from(next.attempt));
            later = Some(next);
        }
    }
}

/// How long to wait after try number `attempt`, from 0, has failed.
fn pause(retries: Retries, seed: u64, item: Item, attempt: u16) -> Duration {
    let doubled = retries.base.saturating_mul(1u32.checked_shl(u32::from(attempt)).unwrap_or(u32::MAX));
    let occurrence = u64::from(item.epoch) << 16 | u64::from(attempt);
    let jitter = unit(draw(seed, Purpose::RETRY_JITTER, item.sample, occurrence).word(0));
    doubled.min(retries.cap).mul_f64(0.5 + 0.5 * jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_and_differ_between_samples() {
        let retries = Retries { at_most: 60, base: Duration::from_millis(10), cap: Duration::from_secs(1) };
        for attempt in 0..40 {
            let nominal = Duration::from_millis(10).saturating_mul(1 << attempt.min(20)).min(Duration::from_secs(1));
            let of = |sample| pause(retries, 1, Item { sample, ..Item::default() }, attempt);
            assert!((nominal / 2..=nominal).contains(&of(0)), "try {attempt}: {:?}", of(0));
            assert_ne!(of(0), of(1));
            assert_eq!(of(2), of(2));
        }
    }
}
