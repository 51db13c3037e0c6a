//! What a consumer looks at is what it was given.

use std::collections::{BTreeMap, BTreeSet};

use super::{Asked, Broken, Invariant, name, of_rank};
use crate::{
    check::design::Got,
    trace::{Event, Kind, StageId},
};

/// The memory of a batch holds its samples whenever the consumer looks, until it gives the batch back. It is broken by a buffer that is
/// filled again before the copy from it has ended, by a slice of one of which only a part was waited for, by a batch gathered in pieces of
/// which one lies in another's place, by memory that a consumer still holds when the loader takes it for another batch, and by a batch that is made
/// ready before the stage on the device has done with it.
///
/// It looks at the crate's own loader, whose samples are tags here, and at designs that [show](crate::check::Delivery::content) their memory; at
/// stages on the device, at loaders that have any.
pub struct ContentIntact<'a> {
    asked: Asked<'a>,
    stages: BTreeMap<u16, Stages>,
}

/// What of a rank's batches has been through its stage on the device.
#[derive(Default)]
struct Stages {
    /// Whether any batch has come to it.
    any: bool,
    /// Batches that it has done with and that are not ready.
    done: BTreeSet<u64>,
    /// Batches that were made ready without it, since none had come to it.
    without: BTreeSet<u64>,
}

impl<'a> ContentIntact<'a> {
    /// Before a run.
    pub fn new(asked: Asked<'a>) -> ContentIntact<'a> {
        ContentIntact { asked, stages: BTreeMap::new() }
    }
}

impl Stages {
    /// Takes the next event of a batch; whether the batch was ready too early.
    fn event(&mut self, event: &Event) -> bool {
        match (event.stage, event.kind) {
            (StageId::DEVICE, Kind::Queued) => {
                self.any = true;
                return self.without.contains(&event.sample);
            }
            (StageId::DEVICE, Kind::End) => _ = self.done.insert(event.sample),
            // A batch without samples passes it by.
            (StageId::TRANSFER, Kind::Ready) if event.bytes > 0 && !self.done.remove(&event.sample) => {
                self.without.insert(event.sample);
                return self.any;
            }
            _ => {}
        }
        false
    }
}

impl Invariant for ContentIntact<'_> {
    fn name(&self) -> &'static str {
        "content_intact"
    }

    fn event(&mut self, event: &Event) -> Result<(), Broken> {
        let staged =
            |rank: u16| self.asked.ranks.get(usize::from(rank)).is_some_and(|asked| asked.settings.device_stage.is_some());
        if !matches!(event.stage, StageId::DEVICE | StageId::TRANSFER) || !staged(event.rank) {
            return Ok(());
        }
        if !self.stages.entry(event.rank).or_default().event(event) {
            return Ok(());
        }
        let why = format!("batch {} was ready before the stage on the device had done with it", event.sample);
        let broken = Broken::new(of_rank(event.rank, self.asked.ranks.len(), why)).at(event.time);
        Err(broken.by_batch(event.rank, event.sample))
    }

    fn batch(&mut self, got: &Got) -> Result<(), Broken> {
        for (look, tags) in got.content.iter().enumerate() {
            let when = ["got it", "had worked on it", "gave it back"].get(look).unwrap_or(&"held it");
            let wrong = match tags.len() == got.items.len() {
                false => Some(format!("batch {} has {} samples and {} in its memory", got.index, got.items.len(), tags.len())),
                true => got.items.iter().zip(tags).find(|(item, tag)| item.sample != **tag).map(|(item, tag)| {
                    format!("when the consumer {when}, the memory of batch {} held {tag} in place of {}", got.index, name(item))
                }),
            };
            if let Some(why) = wrong {
                let broken = Broken::new(of_rank(got.rank, self.asked.ranks.len(), why)).at(got.at);
                return Err(broken.by_batch(got.rank, got.index));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::example::{asked, event, got, judge, resolved},
        *,
    };
    use crate::loader::{DeviceStage, Settings};

    #[test]
    fn a_batch_that_is_ready_before_the_stage_has_done_with_it_breaks_it() {
        let of = |device_stage| resolved(Settings { device_stage, ..Settings::new(8, 2, 1) });
        let staged = of(Some(DeviceStage { limit: 1, result_bytes: 0 }));
        let judged = |ranks: &[_], events: &[Event]| judge(&mut ContentIntact::new(asked(ranks)), events, &[]);
        let stage = |ms, batch, kind| event(ms, StageId::DEVICE, batch, kind);
        let ready = |ms, batch| Event { bytes: 2, ..event(ms, StageId::TRANSFER, batch, Kind::Ready) };
        let first = [stage(1, 0, Kind::Queued), stage(2, 0, Kind::Start), stage(3, 0, Kind::End), ready(3, 0)];
        let without_samples = Event { bytes: 0, ..ready(4, 1) };
        assert_eq!(judged(&staged, &[&first[..], &[without_samples]].concat()), Ok(()));
        let early = |batch| Err(format!("batch {batch} was ready before the stage on the device had done with it"));
        assert_eq!(judged(&staged, &[&first[..2], &[ready(2, 0)]].concat()), early(0), "it is in it");
        assert_eq!(judged(&staged, &[ready(0, 0), first[0]]), early(0), "it comes to it later");
        assert_eq!(judged(&staged, &[&first[..], &[ready(4, 1)]].concat()), early(1), "it has passed it by");
        let failed = [stage(4, 1, Kind::Queued), stage(4, 1, Kind::Start), stage(5, 1, Kind::Fail), ready(6, 1)];
        assert_eq!(judged(&staged, &[&first[..], &failed].concat()), early(1), "it has failed there");
        // Loaders that have no stages need none.
        assert_eq!(judged(&staged, &[ready(0, 0), ready(1, 1)]), Ok(()));
        assert_eq!(judged(&of(None), &[ready(0, 0)]), Ok(()));
    }

    #[test]
    fn memory_that_changes_while_it_is_held_breaks_it() {
        let ranks = resolved(Settings::new(4, 2, 1));
        let judged = |content: &[[u64; 2]]| {
            let batch = Got { content: content.iter().map(|tags| tags.to_vec()).collect(), ..got(0, 0, &[0, 1]) };
            judge(&mut ContentIntact::new(asked(&ranks)), &[], &[batch])
        };
        assert_eq!(judged(&[[0, 1], [0, 1], [0, 1]]), Ok(()));
        let expected =
            "when the consumer had worked on it, the memory of batch 0 held 3 in place of sample 1 (epoch 0, position 1)";
        assert_eq!(judged(&[[0, 1], [0, 3]]), Err(expected.to_owned()));
    }
}
