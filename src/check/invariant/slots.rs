//! Slots are not reused early, as far as a trace can show it.

use std::collections::BTreeMap;

use super::{Asked, Broken, Invariant, of_rank};
use crate::{
    machine::Item,
    trace::{Event, Kind, StageId},
};

/// No more samples have a slot at once than the ring has slots. A sample has one from its launch (in completion order one is kept free
/// for it) until it is given up, or until the last reader of its slot is gone: the copy to the device, or the consumer that the slot was
/// lent to. It is broken by a launch into a slot that somebody still reads.
///
/// A trace does not say which slot a sample is in, so it is their number that is looked at; that one slot has one owner is what its type
/// sees to.
pub struct SlotsNotReusedEarly<'a> {
    asked: Asked<'a>,
    ranks: Vec<Rank>,
}

#[derive(Default)]
struct Rank {
    taken: i64,
    /// Samples in batches that are sealed, and not yet with somebody who gives them back.
    sealed: BTreeMap<u64, i64>,
    /// By epoch and batch, how many of its samples are copied, sealed or not: their slots come back with the copy.
    copied: BTreeMap<(u32, u64), i64>,
}

impl Rank {
    /// A batch is sealed, and so what was copied in earlier epochs for batches that never were has been dropped: those samples gave back
    /// their slots twice, as copied and as dropped.
    fn seal(&mut self, event: &Event) {
        self.sealed.insert(event.sample, event.bytes as i64);
        let own = self.copied.split_off(&(event.epoch, 0));
        let (there, dropped): (BTreeMap<_, _>, _) =
            std::mem::replace(&mut self.copied, own).into_iter().partition(|((_, batch), _)| *batch < event.sample);
        self.copied.extend(there);
        self.taken += dropped.values().sum::<i64>();
    }
}

impl<'a> SlotsNotReusedEarly<'a> {
    /// Before a run.
    pub fn new(asked: Asked<'a>) -> SlotsNotReusedEarly<'a> {
        SlotsNotReusedEarly { asked, ranks: asked.ranks.iter().map(|_| Rank::default()).collect() }
    }
}

impl Invariant for SlotsNotReusedEarly<'_> {
    fn name(&self) -> &'static str {
        "slots_not_reused_early"
    }

    fn event(&mut self, event: &Event) -> Result<(), Broken> {
        let number = usize::from(event.rank);
        let (Some(rank), Some(resolved)) = (self.ranks.get_mut(number), self.asked.ranks.get(number)) else { return Ok(()) };
        let copied = (event.bytes / resolved.settings.slot_bytes as u64) as i64;
        match event.kind {
            Kind::Launch => {
                rank.taken += 1;
                let ring = resolved.ring;
                if rank.taken > ring as i64 {
                    let item = Item { epoch: event.epoch, position: 0, sample: event.sample };
                    let why =
                        format!("sample {} was launched while all {ring} slots of the ring were taken by others", event.sample);
                    let why = of_rank(event.rank, self.asked.ranks.len(), why);
                    return Err(Broken::new(why).at(event.time).by(event.rank, item));
                }
            }
            Kind::Skipped | Kind::Dropped => rank.taken -= 1,
            Kind::Sealed => rank.seal(event),
            Kind::Queued if event.stage == StageId::TRANSFER => {
                *rank.copied.entry((event.epoch, event.sample)).or_default() += copied;
            }
            Kind::End if event.stage == StageId::TRANSFER => rank.taken -= copied,
            Kind::Returned => {
                let samples = rank.sealed.remove(&event.sample).unwrap_or(0);
                let copied = rank.copied.remove(&(event.epoch, event.sample)).unwrap_or(0);
                rank.taken -= samples - copied;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::example::{asked, event, judge, of_loader, resolved},
        *,
    };
    use crate::loader::Settings;

    fn judged(freed: &[Event]) -> Result<(), String> {
        let ranks = resolved(Settings { ring: Some(2), ..Settings::new(8, 2, 10) });
        let launch = |ms, sample| event(ms, StageId::LOADER, sample, Kind::Launch);
        let sealed = Event { bytes: 2, ..event(2, StageId::BATCH, 0, Kind::Sealed) };
        let events = [&[launch(0, 0), launch(0, 1), sealed], freed, &[launch(5, 2), launch(5, 3)]].concat();
        judge(&mut SlotsNotReusedEarly::new(asked(&ranks)), &events, &[])
    }

    #[test]
    fn a_launch_into_a_slot_that_is_still_read_breaks_it() {
        let queued = Event { bytes: 20, ..event(3, StageId::TRANSFER, 0, Kind::Queued) };
        let copied = Event { bytes: 20, ..event(3, StageId::TRANSFER, 0, Kind::End) };
        assert_eq!(judged(&[queued, copied]), Ok(()), "the copy is the last reader");
        assert_eq!(judged(&[event(4, StageId::CONSUMER, 0, Kind::Returned)]), Ok(()), "the consumer is");
        let early = Err("sample 2 was launched while all 2 slots of the ring were taken by others".to_owned());
        assert_eq!(judged(&[]), early);
        assert_eq!(judged(&[of_loader(4, 0, Kind::Refund, 5)]), early);
        let both = [queued, copied, event(4, StageId::CONSUMER, 0, Kind::Returned)];
        let third = event(6, StageId::LOADER, 4, Kind::Launch);
        let ranks = resolved(Settings { ring: Some(2), ..Settings::new(8, 2, 10) });
        let launch = |ms, sample| event(ms, StageId::LOADER, sample, Kind::Launch);
        let sealed = Event { bytes: 2, ..event(2, StageId::BATCH, 0, Kind::Sealed) };
        let events = [&[launch(0, 0), launch(0, 1), sealed], &both[..], &[launch(5, 2), launch(5, 3), third]].concat();
        let twice = judge(&mut SlotsNotReusedEarly::new(asked(&ranks)), &events, &[]);
        assert!(twice.is_err(), "slots of a batch that was copied come back once");
    }

    #[test]
    fn a_part_that_was_copied_and_then_dropped_came_back_with_its_copy() {
        let ranks = resolved(Settings { ring: Some(2), epochs: 2, ..Settings::new(8, 2, 10) });
        let launch = |ms, sample| event(ms, StageId::LOADER, sample, Kind::Launch);
        let part = |ms, kind| Event { bytes: 10, ..event(ms, StageId::TRANSFER, 0, kind) };
        let sealed = Event { bytes: 2, epoch: 1, ..event(6, StageId::BATCH, 0, Kind::Sealed) };
        let returned = Event { epoch: 1, ..event(7, StageId::CONSUMER, 0, Kind::Returned) };
        // The first sample is an epoch's rest, copied to make room; the next batch has the number that it would have had, and is lent.
        let before = [launch(0, 0), part(1, Kind::Queued), part(2, Kind::End), event(3, StageId::BATCH, 0, Kind::Dropped)];
        let judged = |last: &[Event]| {
            let events = [&before[..], &[launch(5, 0), launch(5, 1), sealed], last, &[launch(8, 0), launch(8, 1)]].concat();
            judge(&mut SlotsNotReusedEarly::new(asked(&ranks)), &events, &[])
        };
        assert_eq!(judged(&[returned]), Ok(()));
        assert!(judged(&[]).is_err(), "its slots are lent");
    }

    #[test]
    fn a_surplus_that_is_dropped_before_the_trace_has_the_batch_sealed_gives_back_its_own_slot() {
        let ranks = resolved(Settings { ring: Some(2), ..Settings::new(8, 2, 10) });
        let launch = |ms, sample| event(ms, StageId::LOADER, sample, Kind::Launch);
        let copy = |ms, kind| Event { bytes: 10, ..event(ms, StageId::TRANSFER, 0, kind) };
        let events = [
            launch(0, 0),
            copy(1, Kind::Queued),
            copy(2, Kind::End),
            launch(3, 1),
            launch(3, 2),
            event(4, StageId::BATCH, 2, Kind::Dropped),
            Event { bytes: 2, ..event(4, StageId::BATCH, 0, Kind::Sealed) },
            launch(4, 3),
        ];
        assert_eq!(judge(&mut SlotsNotReusedEarly::new(asked(&ranks)), &events, &[]), Ok(()));
        let next = [&events[..], &[launch(4, 4)]].concat();
        assert!(judge(&mut SlotsNotReusedEarly::new(asked(&ranks)), &next, &[]).is_err());
    }
}
