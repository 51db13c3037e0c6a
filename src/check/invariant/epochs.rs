//! Epochs differ.

use std::collections::BTreeMap;

use super::{Asked, Broken, Ended, Invariant};
use crate::{check::design::Got, loader::Order};

/// Samples of a shuffled dataset come in another order in every epoch. It is broken by a shuffle that forgets the epoch: a sampler to
/// which nobody tells it, or a seed that is set again.
///
/// Two epochs of fewer than [`LEAST`](EpochsDiffer::LEAST) samples are alike by chance too often, and are not compared.
pub struct EpochsDiffer<'a> {
    asked: Asked<'a>,
    orders: BTreeMap<(u16, u32), Vec<u64>>,
}

impl<'a> EpochsDiffer<'a> {
    /// Samples of an epoch from which on it is compared: two random orders of so many agree once in 10¹⁸.
    pub const LEAST: usize = 20;

    /// Before a run.
    pub fn new(asked: Asked<'a>) -> EpochsDiffer<'a> {
        EpochsDiffer { asked, orders: BTreeMap::new() }
    }

    fn promised(&self) -> bool {
        let settings = self.asked.ranks.first().map(|rank| &rank.settings);
        settings.is_some_and(|s| s.shuffle.is_some() && s.epochs > 1 && s.order == Order::Plan)
    }
}

impl Invariant for EpochsDiffer<'_> {
    fn name(&self) -> &'static str {
        "epochs_differ"
    }

    fn batch(&mut self, got: &Got) -> Result<(), Broken> {
        if self.promised() {
            self.orders.entry((got.rank, got.epoch)).or_default().extend(got.items.iter().map(|item| item.sample));
        }
        Ok(())
    }

    fn end(&mut self, ended: &Ended<'_>) -> Result<(), Broken> {
        for ((rank, epoch), order) in &self.orders {
            let before = epoch.checked_sub(1).and_then(|before| self.orders.get(&(*rank, before)));
            if order.len() >= EpochsDiffer::LEAST && before == Some(order) {
                let why = format!("the {} samples of epoch {epoch} came in the order of the epoch before", order.len());
                return Err(Broken { rank: Some(*rank), ..Broken::new(why).at(ended.at) });
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
    fn a_shuffle_that_forgets_the_epoch_breaks_it() {
        let ranks = resolved(Settings { shuffle: Some(1), epochs: 2, ..Settings::new(24, 24, 1) });
        let order: Vec<u64> = (0..24).map(|k| k * 5 % 24).collect();
        let epoch = |epoch: u32, order: &[u64]| Got { epoch, ..got(0, u64::from(epoch), order) };
        let judged = |second: &[u64]| judge(&mut EpochsDiffer::new(asked(&ranks)), &[], &[epoch(0, &order), epoch(1, second)]);
        let other: Vec<u64> = (0..24).map(|k| k * 7 % 24).collect();
        assert_eq!(judged(&other), Ok(()));
        assert_eq!(judged(&order), Err("the 24 samples of epoch 1 came in the order of the epoch before".to_owned()));
    }
}
