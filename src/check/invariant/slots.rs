//! Slots are not reused early, as far as a trace can show it.

use std::collections::{BTreeMap, BTreeSet};

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
    taken: u64,
    /// Samples in batches that are sealed, and not yet with somebody who gives them back.
    sealed: BTreeMap<u64, u64>,
    /// Batches of which something was copied.
    copied: BTreeSet<u64>,
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
        let free = |rank: &mut Rank, slots: u64| rank.taken = rank.taken.saturating_sub(slots);
        match event.kind {
            Kind::Launch => {
                rank.taken += 1;
                let (taken, ring) = (rank.taken, resolved.ring);
                if taken > ring as u64 {
                    let item = Item { epoch: event.epoch, position: 0, sample: event.sample };
                    let why =
                        format!("sample {} was launched while all {ring} slots of the ring were taken by others", event.sample);
                    let why = of_rank(event.rank, self.asked.ranks.len(), why);
                    return Err(Broken::new(why).at(event.time).by(event.rank, item));
                }
            }
            Kind::Skipped | Kind::Dropped => free(rank, 1),
            Kind::Sealed => {
                rank.sealed.insert(event.sample, event.bytes);
            }
            Kind::End if event.stage == StageId::TRANSFER => {
                rank.copied.insert(event.sample);
                free(rank, event.bytes / resolved.settings.slot_bytes as u64);
            }
            Kind::Returned => {
                let samples = rank.sealed.remove(&event.sample).unwrap_or(0);
                if !rank.copied.remove(&event.sample) {
                    free(rank, samples);
                }
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
        let copied = Event { bytes: 20, ..event(3, StageId::TRANSFER, 0, Kind::End) };
        assert_eq!(judged(&[copied]), Ok(()), "the copy is the last reader");
        assert_eq!(judged(&[event(4, StageId::CONSUMER, 0, Kind::Returned)]), Ok(()), "the consumer is");
        let early = Err("sample 2 was launched while all 2 slots of the ring were taken by others".to_owned());
        assert_eq!(judged(&[]), early);
        assert_eq!(judged(&[of_loader(4, 0, Kind::Refund, 5)]), early);
        let both = [copied, event(4, StageId::CONSUMER, 0, Kind::Returned)];
        let third = event(6, StageId::LOADER, 4, Kind::Launch);
        let ranks = resolved(Settings { ring: Some(2), ..Settings::new(8, 2, 10) });
        let launch = |ms, sample| event(ms, StageId::LOADER, sample, Kind::Launch);
        let sealed = Event { bytes: 2, ..event(2, StageId::BATCH, 0, Kind::Sealed) };
        let events = [&[launch(0, 0), launch(0, 1), sealed], &both[..], &[launch(5, 2), launch(5, 3), third]].concat();
        let twice = judge(&mut SlotsNotReusedEarly::new(asked(&ranks)), &events, &[]);
        assert!(twice.is_err(), "slots of a batch that was copied come back once");
    }
}
