//! Every sample once, and in order: what [`Deliveries`] found, rank by rank.

use super::{Asked, Broken, Ended, Invariant, name, of_rank, places::Places};
use crate::{
    check::design::Got,
    scenario::{Deliveries, Findings},
};

/// Every planned sample comes once: delivered, or skipped with a reason, or dropped by a tail that was asked for. It is broken by a sample
/// that comes twice, by one that never comes, by one that the plan does not have, and by books that say something else.
///
/// A sample is known by its place in the plan, and by its number too: a loader that shuffles by itself may give one sample two places.
pub struct ExactlyOnce {
    ranks: Ranks,
    /// Samples of the dataset, of which those at later places are padding.
    samples: u64,
    came: Places<()>,
}

/// Samples come as planned: epoch after epoch, and in [plan order](crate::loader::Order::Plan) each epoch in its order. It is broken by a
/// batch that overtakes another and by a sample that stands in the wrong place.
pub struct OrderKept(Ranks);

impl ExactlyOnce {
    /// Before a run.
    pub fn new(asked: Asked<'_>) -> ExactlyOnce {
        let samples = asked.ranks.first().map_or(0, |rank| rank.settings.samples);
        ExactlyOnce { ranks: Ranks::new(asked), samples, came: Places::new() }
    }
}

impl OrderKept {
    /// Before a run.
    pub fn new(asked: Asked<'_>) -> OrderKept {
        OrderKept(Ranks::new(asked))
    }
}

impl Invariant for ExactlyOnce {
    fn name(&self) -> &'static str {
        "exactly_once"
    }

    fn batch(&mut self, got: &Got) -> Result<(), Broken> {
        let found = self.ranks.take(got);
        found.map_or(Ok(()), |found| found.exactly_once.map_err(|why| self.ranks.broken(got, why)))?;
        let items = got.items.iter().chain(got.skipped.iter().map(|skipped| &skipped.item));
        for item in items.filter(|item| item.position < self.samples) {
            if self.came.insert((got.rank, item.epoch, item.sample), ()).is_some() {
                return Err(self.ranks.broken(got, format!("{} came before at another position of the epoch", name(item))));
            }
        }
        Ok(())
    }

    fn end(&mut self, ended: &Ended<'_>) -> Result<(), Broken> {
        self.ranks.finish(ended, |findings| findings.exactly_once)
    }
}

impl Invariant for OrderKept {
    fn name(&self) -> &'static str {
        "order_kept"
    }

    fn batch(&mut self, got: &Got) -> Result<(), Broken> {
        let found = self.0.take(got);
        found.map_or(Ok(()), |found| found.order_kept.map_err(|why| self.0.broken(got, why)))
    }
}

/// The deliveries of all ranks.
struct Ranks(Vec<Deliveries>);

impl Ranks {
    fn new(asked: Asked<'_>) -> Ranks {
        Ranks(asked.ranks.iter().map(Deliveries::new).collect())
    }

    /// Takes a batch; what is wrong with it, when anything is.
    fn take(&mut self, got: &Got) -> Option<Findings> {
        let deliveries = self.0.get_mut(usize::from(got.rank))?;
        deliveries.take_items(&got.items, got.skipped.iter().map(|s| s.item));
        deliveries.so_far()
    }

    fn broken(&self, got: &Got, why: String) -> Broken {
        Broken::new(of_rank(got.rank, self.0.len(), why)).at(got.at).by_batch(got.rank, got.index)
    }

    fn finish(&mut self, ended: &Ended<'_>, one: impl Fn(Findings) -> Result<(), String>) -> Result<(), Broken> {
        let world = self.0.len();
        for (rank, deliveries) in self.0.drain(..).enumerate() {
            let rank = rank as u16;
            let end = ended.ends.iter().find(|end| end.rank == rank);
            let findings = match end.and_then(|end| end.outcome.as_ref()) {
                Some(outcome) => deliveries.finish(outcome),
                None if ended.finished(rank) => deliveries.finish_without_books(),
                None => continue,
            };
            let broken = |why| Broken { rank: Some(rank), ..Broken::new(of_rank(rank, world, why)).at(ended.at) };
            one(findings).map_err(broken)?;
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
    use crate::loader::{Order, Settings};

    #[test]
    fn a_sample_that_comes_twice_or_never_breaks_exactly_once() {
        let ranks = resolved(Settings::new(6, 2, 1));
        let judged = |batches: &[Got]| judge(&mut ExactlyOnce::new(asked(&ranks)), &[], batches);
        assert_eq!(judged(&[got(0, 0, &[0, 1]), got(0, 1, &[2, 3]), got(0, 2, &[4, 5])]), Ok(()));
        let twice = judged(&[got(0, 0, &[0, 1]), got(0, 1, &[2, 1])]);
        assert_eq!(twice, Err("sample 1 (epoch 0, position 1) was delivered a second time".to_owned()));
        let mut again = got(0, 1, &[2, 3]);
        again.items[1].sample = 0;
        let elsewhere = judged(&[got(0, 0, &[0, 1]), again]);
        assert_eq!(elsewhere, Err("sample 0 (epoch 0, position 3) came before at another position of the epoch".to_owned()));
        let never = judged(&[got(0, 0, &[0, 1]), got(0, 1, &[2, 3])]);
        assert_eq!(never, Err("4 delivered + 0 skipped is not the 6 planned".to_owned()));
    }

    #[test]
    fn a_batch_that_overtakes_another_breaks_order_kept() {
        let batches = [got(0, 0, &[2, 3]), got(0, 1, &[0, 1])];
        let ranks = resolved(Settings::new(4, 2, 1));
        let judged = judge(&mut OrderKept::new(asked(&ranks)), &[], &batches);
        assert_eq!(judged, Err("sample 0 (epoch 0, position 0) came after position 3 of epoch 0".to_owned()));
        let ranks = resolved(Settings { order: Order::Completion, ..Settings::new(4, 2, 1) });
        assert_eq!(judge(&mut OrderKept::new(asked(&ranks)), &[], &batches), Ok(()), "completion order promises no more");
    }
}
