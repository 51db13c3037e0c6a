//! A read is tried again only where that may help.

use super::{Asked, Broken, Invariant, of_rank, places::Places};
use crate::{
    failure::FailureKind,
    machine::{Item, Time},
    trace::{Event, Kind, StageId},
};

/// A read is tried again only after a failure that may pass, at most as often as was asked for, and not before the least pause. It is broken
/// by a loader that asks again for what is not there, by one that counts tries wrongly, and by one that storms a store which throttles it.
///
/// It looks at loaders that record their retries.
pub struct RetriesJustified<'a> {
    asked: Asked<'a>,
    /// The last read of each sample that is being read.
    reads: Places<Read>,
}

/// A read, and how it ended.
#[derive(Clone, Copy)]
struct Read {
    queued: Time,
    /// The number of the failure that it ended with, if any; `None` while it goes on, or where it was given up.
    ended: Option<Option<u64>>,
}

impl<'a> RetriesJustified<'a> {
    /// Before a run.
    pub fn new(asked: Asked<'a>) -> RetriesJustified<'a> {
        RetriesJustified { asked, reads: Places::new() }
    }

    /// What is wrong with this retry.
    fn wrong(&self, retry: &Event) -> Option<String> {
        let settings = &self.asked.ranks.get(usize::from(retry.rank))?.settings;
        let (retries, attempt) = (settings.retries, retry.bytes);
        let which = format!("sample {} of epoch {}", retry.sample, retry.epoch);
        if attempt > u64::from(retries.at_most) {
            return Some(format!("{which} was tried again {attempt} times, and {} are allowed", retries.at_most));
        }
        // Half of the pause is by chance; a nanosecond for its rounding.
        let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        let pause = retries.base.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(retries.cap);
        let paused = retry.time - retry.since;
        if paused + std::time::Duration::from_nanos(1) < pause / 2 {
            return Some(format!("{which} was tried again after {paused:?}, and its pause is {:?} at least", pause / 2));
        }
        let read = self.reads.get((retry.rank, retry.epoch, retry.sample))?;
        let code = read.ended?;
        // The loader may hear of its end only after the deadline, if it is busy.
        let late = settings.fetch_deadline.is_some_and(|within| retry.since - read.queued >= within);
        let kind = code.and_then(FailureKind::from_code);
        match kind {
            _ if late => None,
            Some(kind) if kind.is_transient() => None,
            Some(kind) => Some(format!("{which} was tried again, although it failed for good: {}", kind.name())),
            None => Some(format!("{which} was tried again, although it had been read")),
        }
    }
}

impl Invariant for RetriesJustified<'_> {
    fn name(&self) -> &'static str {
        "retries_justified"
    }

    fn event(&mut self, event: &Event) -> Result<(), Broken> {
        if event.stage != StageId::FETCH {
            return Ok(());
        }
        let key = (event.rank, event.epoch, event.sample);
        match event.kind {
            Kind::Queued => _ = self.reads.insert(key, Read { queued: event.time, ended: None }),
            Kind::End => {
                if let Some(read) = self.reads.get_mut(key) {
                    read.ended = Some(None);
                }
            }
            Kind::Fail => {
                if let Some(read) = self.reads.get_mut(key) {
                    read.ended = Some(Some(event.bytes));
                }
            }
            Kind::Retry => {
                if let Some(why) = self.wrong(event) {
                    let item = Item { epoch: event.epoch, position: 0, sample: event.sample };
                    let broken = Broken::new(of_rank(event.rank, self.asked.ranks.len(), why)).at(event.time);
                    return Err(broken.by(event.rank, item));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::example::{asked, event, judge, resolved},
        *,
    };
    use crate::loader::{Retries, Settings};

    /// A read of sample 3 that ends with this event, and is tried again for the `attempt`th time after so many milliseconds.
    fn judged(ended: Event, attempt: u64, pause_ms: u64) -> Result<(), String> {
        let retries = Retries { at_most: 2, base: Duration::from_millis(10), cap: Duration::from_millis(15) };
        let ranks = resolved(Settings { retries, fetch_deadline: Some(Duration::from_millis(50)), ..Settings::new(8, 2, 1) });
        let queued = Event { time: Time(0), ..event(0, StageId::FETCH, 3, Kind::Queued) };
        let again = event(ended.time.0 / 1_000_000 + pause_ms, StageId::FETCH, 3, Kind::Retry);
        let again = Event { since: ended.time, bytes: attempt, ..again };
        judge(&mut RetriesJustified::new(asked(&ranks)), &[queued, ended, again], &[])
    }

    fn failed(ms: u64, kind: FailureKind) -> Event {
        Event { bytes: kind.code(), ..event(ms, StageId::FETCH, 3, Kind::Fail) }
    }

    #[test]
    fn what_fails_for_good_is_not_tried_again() {
        assert_eq!(judged(failed(4, FailureKind::Transient), 1, 5), Ok(()));
        assert_eq!(judged(event(4, StageId::FETCH, 3, Kind::Abandon), 1, 5), Ok(()), "it was given up at its deadline");
        assert_eq!(judged(failed(50, FailureKind::NotFound), 1, 5), Ok(()), "it was too late as well");
        let lasting = judged(failed(4, FailureKind::NotFound), 1, 5);
        assert!(lasting.is_err_and(|why| why.starts_with("sample 3 of epoch 0 was tried again, although it failed for good")));
        let read = judged(event(4, StageId::FETCH, 3, Kind::End), 1, 5);
        assert_eq!(read, Err("sample 3 of epoch 0 was tried again, although it had been read".to_owned()));
    }

    #[test]
    fn tries_are_as_many_and_as_far_apart_as_was_asked_for() {
        let transient = failed(4, FailureKind::Transient);
        let early = judged(transient, 1, 4);
        assert_eq!(early, Err("sample 3 of epoch 0 was tried again after 4ms, and its pause is 5ms at least".to_owned()));
        assert!(judged(transient, 2, 7).is_err(), "it doubles, up to 15 ms");
        assert_eq!(judged(transient, 2, 8), Ok(()));
        let often = judged(transient, 3, 20);
        assert_eq!(often, Err("sample 3 of epoch 0 was tried again 3 times, and 2 are allowed".to_owned()));
    }
}
