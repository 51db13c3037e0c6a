//! Batches are full.

use std::collections::BTreeMap;

use super::{Asked, Broken, Ended, Invariant, of_rank};
use crate::check::design::Got;

/// Batches hold as many samples as was asked for, but for the end of an epoch: of one epoch each, never more than a batch, none short in
/// the middle, and as many as the plan says where nothing failed. It is broken by workers that make batches of their own shares, by a
/// remainder that is carried over into the next epoch, and by a tail that comes although it was to be dropped.
pub struct BatchesWhole<'a> {
    asked: Asked<'a>,
    epochs: BTreeMap<(u16, u32), Epoch>,
}

/// A rank's batches of an epoch.
#[derive(Clone, Copy, Default)]
struct Epoch {
    batches: u64,
    /// The size of the first short one.
    short: Option<usize>,
    failed: bool,
}

impl<'a> BatchesWhole<'a> {
    /// Before a run.
    pub fn new(asked: Asked<'a>) -> BatchesWhole<'a> {
        BatchesWhole { asked, epochs: BTreeMap::new() }
    }
}

impl Invariant for BatchesWhole<'_> {
    fn name(&self) -> &'static str {
        "batches_whole"
    }

    fn batch(&mut self, got: &Got) -> Result<(), Broken> {
        let Some(resolved) = self.asked.ranks.get(usize::from(got.rank)) else { return Ok(()) };
        let (size, most) = (got.items.len(), resolved.settings.batch);
        let epoch = self.epochs.entry((got.rank, got.epoch)).or_default();
        epoch.batches += 1;
        epoch.failed |= !got.skipped.is_empty();
        let other = got.items.iter().find(|item| item.epoch != got.epoch);
        let why = if size > most {
            format!("batch {} holds {size} samples, a batch has {most}", got.index)
        } else if let Some(other) = other {
            format!("batch {} holds samples of epochs {} and {}", got.index, got.epoch, other.epoch)
        } else if let Some(short) = epoch.short.filter(|_| size > 0) {
            format!("a batch of {short} samples came before batch {} of the same epoch", got.index)
        } else {
            if size < most {
                epoch.short = Some(size);
            }
            return Ok(());
        };
        Err(Broken::new(of_rank(got.rank, self.asked.ranks.len(), why)).at(got.at).by_batch(got.rank, got.index))
    }

    fn end(&mut self, ended: &Ended<'_>) -> Result<(), Broken> {
        for ((rank, epoch), found) in &self.epochs {
            let Some(resolved) = self.asked.ranks.get(usize::from(*rank)) else { continue };
            // What failed behind the last batch is in the books alone.
            let unreported = ended.ends.iter().filter_map(|end| end.outcome.as_ref()).any(|books| books.accounts.skipped > 0);
            let resumed = resolved.plan.start();
            if !ended.finished(*rank) || found.failed || unreported || resumed.batches() > 0 && resumed.epoch() == *epoch {
                continue;
            }
            let steps = resolved.plan.shape(*epoch).steps;
            if found.batches != steps {
                let why = format!("epoch {epoch} had {} batches, its plan {steps}", found.batches);
                let broken = Broken::new(of_rank(*rank, self.asked.ranks.len(), why)).at(ended.at);
                return Err(Broken { rank: Some(*rank), ..broken });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::example::{asked, got, judge, resolved},
        *,
    };
    use crate::loader::Settings;

    #[test]
    fn batches_that_are_short_in_the_middle_or_mixed_or_too_many_break_it() {
        let judged = |drop_last: bool, batches: &[Got]| {
            let ranks = resolved(Settings { drop_last, epochs: 2, ..Settings::new(5, 2, 1) });
            judge(&mut BatchesWhole::new(asked(&ranks)), &[], batches)
        };
        let [first, second, tail] = [got(0, 0, &[0, 1]), got(0, 1, &[2, 3]), got(0, 2, &[4])];
        assert_eq!(judged(false, &[first.clone(), second.clone(), tail.clone()]), Ok(()));
        let dropped = judged(true, &[first.clone(), second.clone(), tail.clone()]);
        assert_eq!(dropped, Err("epoch 0 had 3 batches, its plan 2".to_owned()));
        let early = judged(false, &[got(0, 0, &[0]), got(0, 1, &[1, 2])]);
        assert_eq!(early, Err("a batch of 1 samples came before batch 1 of the same epoch".to_owned()));
        let large = judged(false, &[got(0, 0, &[0, 1, 2])]);
        assert_eq!(large, Err("batch 0 holds 3 samples, a batch has 2".to_owned()));
        let mut mixed = tail;
        mixed.items.push(crate::machine::Item { epoch: 1, ..first.items[0] });
        assert_eq!(judged(false, &[first, second, mixed]), Err("batch 2 holds samples of epochs 0 and 1".to_owned()));
    }
}
