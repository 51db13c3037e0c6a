//! Random streams are distinct.

use std::collections::BTreeMap;

use super::{Broken, Invariant, name};
use crate::{check::design::Got, machine::Item};

/// Augmentation draws differ from sample to sample and from epoch to epoch. It is broken by workers that begin with the same seed, by a
/// generator that every epoch starts anew, and by a draw that depends on a sample's number alone.
#[derive(Default)]
pub struct StreamsDistinct {
    /// Who drew a number first.
    drawn: BTreeMap<u64, (u16, Item)>,
}

impl Invariant for StreamsDistinct {
    fn name(&self) -> &'static str {
        "streams_distinct"
    }

    fn batch(&mut self, got: &Got) -> Result<(), Broken> {
        for (draw, item) in got.draws.iter().zip(&got.items) {
            // Padding repeats samples, and a sample that comes again is no concern of this one.
            let first = self.drawn.entry(*draw).or_insert((got.rank, *item));
            if (first.1.epoch, first.1.sample) != (item.epoch, item.sample) {
                let why = format!("{} and {} were augmented by the same numbers", name(&first.1), name(item));
                return Err(Broken::new(why).at(got.at).by(got.rank, *item));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::example::{got, judge},
        *,
    };
    use crate::draw::{Purpose, draw};

    #[test]
    fn draws_that_forget_the_epoch_break_it() {
        let batch = |epoch: u32, occurrence: u64| {
            let mut batch = Got { epoch, ..got(0, u64::from(epoch), &[0, 1, 2]) };
            batch.items.iter_mut().for_each(|item| item.epoch = epoch);
            batch.draws = batch.items.iter().map(|item| draw(1, Purpose::AUGMENT, item.sample, occurrence).word(0)).collect();
            batch
        };
        assert_eq!(judge(&mut StreamsDistinct::default(), &[], &[batch(0, 0), batch(1, 1)]), Ok(()));
        let judged = judge(&mut StreamsDistinct::default(), &[], &[batch(0, 0), batch(1, 0)]);
        let expected = "sample 0 (epoch 0, position 0) and sample 0 (epoch 1, position 0) were augmented by the same numbers";
        assert_eq!(judged, Err(expected.to_owned()));
    }
}
