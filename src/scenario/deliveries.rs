//! Whether every sample came once, and in order: a check that looks at what the consumer got, and trusts nobody.
//!
//! It takes each batch's samples and skipped samples with their places in the plan, on either machine. A sample is *once* when its
//! place was neither delivered nor skipped before, and *all there* when, at the end of a finished plan, delivered, skipped and dropped
//! places add up to the planned ones. Places rise within an epoch, and epochs follow one another, when order is *kept*; in completion
//! order only epochs do.

use std::collections::BTreeMap;

use crate::{
    loader::{Batch, End, Error, Order, Outcome, Resolved, Tail},
    machine::Item,
};

/// What came so far.
#[derive(Clone, Debug)]
pub struct Deliveries {
    planned: u64,
    /// Samples that may be left out at the end of epochs, where no books say how many were.
    droppable: u64,
    /// Whether places rise within an epoch.
    by_plan: bool,
    /// Places that came, one bit each, by epoch.
    came: BTreeMap<u32, Vec<u64>>,
    /// Places that the plan may have, padding included.
    places: u64,
    delivered: u64,
    skipped: u64,
    last: Option<(u32, u64)>,
    twice: Option<String>,
    disorder: Option<String>,
}

/// What the check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// Why not every planned sample came once.
    pub exactly_once: Result<(), String>,
    /// Why the samples did not come as planned.
    pub order_kept: Result<(), String>,
}

impl Deliveries {
    /// Before the first batch of a loader with these settings.
    pub fn new(resolved: &Resolved) -> Deliveries {
        let plan = &resolved.plan;
        let settings = &resolved.settings;
        let start = plan.start();
        // Padding repeats samples at places beyond the dataset's last, at most one for each rank; no other tail has such places.
        let places = settings.samples + if settings.tail == Tail::Pad { u64::from(settings.world) } else { 0 };
        let already = start.taken().len();
        let planned = (start.epoch()..plan.epochs()).map(|epoch| plan.shape(epoch).samples).sum::<u64>() - already;
        let epochs = u64::from(plan.epochs().saturating_sub(start.epoch()));
        Deliveries {
            planned,
            droppable: if settings.drop_last { epochs * (settings.batch as u64 - 1) } else { 0 },
            by_plan: settings.order == Order::Plan,
            came: BTreeMap::new(),
            places,
            delivered: 0,
            skipped: 0,
            last: None,
            twice: None,
            disorder: None,
        }
    }

    /// Takes one batch, in the order in which the consumer got it.
    pub fn take<D: Send + 'static, U: Send + 'static>(&mut self, batch: &Batch<D, U>) {
        self.take_items(batch.items(), batch.skipped().iter().map(|s| s.item));
    }

    /// Takes the samples of one batch, and those that were left out before the last of them.
    pub(crate) fn take_items(&mut self, items: &[Item], skipped: impl IntoIterator<Item = Item>) {
        for item in items {
            self.once(*item, "delivered");
            let place = (item.epoch, item.position);
            if let Some((epoch, position)) = self.last
                && self.disorder.is_none()
                && (item.epoch < epoch || self.by_plan && item.epoch == epoch && item.position <= position)
            {
                self.disorder = Some(format!("{} came after position {position} of epoch {epoch}", name(item)));
            }
            self.last = Some(place);
        }
        self.delivered += items.len() as u64;
        for item in skipped {
            self.once(item, "skipped");
            self.skipped += 1;
        }
    }

    fn once(&mut self, item: Item, how: &str) {
        let places = self.places;
        let came = self.came.entry(item.epoch).or_insert_with(|| vec![0; places.div_ceil(64) as usize]);
        let (word, bit) = ((item.position / 64) as usize, 1 << (item.position % 64));
        match came.get_mut(word) {
            Some(word) if *word & bit == 0 && item.position < places => *word |= bit,
            Some(_) if item.position < places => {
                self.twice.get_or_insert_with(|| format!("{} was {how} a second time", name(&item)));
            }
            _ => {
                self.twice.get_or_insert_with(|| format!("{} was {how}, but the plan has no such place", name(&item)));
            }
        }
    }

    /// What is wrong with what came so far, when anything is.
    pub(crate) fn so_far(&self) -> Option<Findings> {
        let found = |wrong: &Option<String>| wrong.clone().map_or(Ok(()), Err);
        let wrong = self.twice.is_some() || self.disorder.is_some();
        wrong.then(|| Findings { exactly_once: found(&self.twice), order_kept: found(&self.disorder) })
    }

    /// After the last batch of a plan that ended by itself, of a loader that keeps no books.
    pub(crate) fn finish_without_books(self) -> Findings {
        let all = self.delivered + self.skipped;
        let missing = (all > self.planned || all + self.droppable < self.planned)
            .then(|| format!("{} delivered + {} skipped is not the {} planned", self.delivered, self.skipped, self.planned));
        Findings { exactly_once: self.twice.or(missing).map_or(Ok(()), Err), order_kept: self.disorder.map_or(Ok(()), Err) }
    }

    /// After the last batch: what came of it all, given the loader's own books.
    pub fn finish(mut self, outcome: &Outcome) -> Findings {
        self.take_items(&[], outcome.unreported.iter().map(|s| s.item));
        // The consumer was told of the last one by the error itself.
        if let End::Failed(Error::Sample { item, .. } | Error::TooManySkipped { item, .. }) = &outcome.end {
            self.take_items(&[], [*item]);
        }
        let accounts = &outcome.accounts;
        let all = self.delivered + self.skipped + accounts.dropped;
        let missing = match outcome.end {
            End::Finished if all != self.planned => Some(format!(
                "{} delivered + {} skipped + {} dropped is not the {} planned",
                self.delivered, self.skipped, accounts.dropped, self.planned
            )),
            _ if (self.delivered, self.skipped) != (accounts.delivered, accounts.skipped) => Some(format!(
                "the consumer got {} and was told of {} skipped, the loader says {} and {}",
                self.delivered, self.skipped, accounts.delivered, accounts.skipped
            )),
            _ => None,
        };
        Findings { exactly_once: self.twice.or(missing).map_or(Ok(()), Err), order_kept: self.disorder.map_or(Ok(()), Err) }
    }
}

fn name(item: &Item) -> String {
    format!("sample {} (epoch {}, position {})", item.sample, item.epoch, item.position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::{Accounts, Memory, Settings, Slots};

    fn item(epoch: u32, position: u64) -> Item {
        Item { epoch, position, sample: position }
    }

    fn findings(samples: u64, batches: &[&[u64]], skipped: &[u64], dropped: u64) -> Findings {
        let resolved = Settings::new(samples, 2, 1).resolve().expect("settings");
        let mut deliveries = Deliveries::new(&resolved);
        for batch in batches {
            let items: Vec<Item> = batch.iter().map(|p| item(0, *p)).collect();
            deliveries.take_items(&items, []);
        }
        deliveries.take_items(&[], skipped.iter().map(|p| item(0, *p)));
        let delivered = batches.iter().map(|b| b.len() as u64).sum();
        let accounts = Accounts { delivered, skipped: skipped.len() as u64, dropped, ..Accounts::default() };
        let outcome = Outcome {
            end: End::Finished,
            accounts,
            memory: Memory::default(),
            slots: Slots::default(),
            state: resolved.plan.start().clone(),
            unreported: Vec::new(),
            flushes: 0,
            lent_batches: 0,
            retries: 0,
        };
        deliveries.finish(&outcome)
    }

    #[test]
    fn a_plan_delivered_once_and_in_order_is_sound() {
        let found = findings(6, &[&[0, 1], &[3, 4]], &[2], 1);
        assert_eq!(found, Findings { exactly_once: Ok(()), order_kept: Ok(()) });
    }

    #[test]
    fn a_sample_that_comes_twice_is_named() {
        let found = findings(4, &[&[0, 1], &[1, 3]], &[], 0);
        assert_eq!(found.exactly_once, Err("sample 1 (epoch 0, position 1) was delivered a second time".into()));
        assert_eq!(found.order_kept, Err("sample 1 (epoch 0, position 1) came after position 1 of epoch 0".into()));
        let found = findings(4, &[&[0, 1], &[2, 3]], &[3], 0);
        assert_eq!(found.exactly_once, Err("sample 3 (epoch 0, position 3) was skipped a second time".into()));
    }

    #[test]
    fn a_sample_that_never_comes_is_missed() {
        let found = findings(4, &[&[0, 1], &[3]], &[], 0);
        assert_eq!(found.exactly_once, Err("3 delivered + 0 skipped + 0 dropped is not the 4 planned".into()));
        assert_eq!(found.order_kept, Ok(()));
    }

    #[test]
    fn a_sample_out_of_order_is_named() {
        let found = findings(4, &[&[0, 2], &[1, 3]], &[], 0);
        assert_eq!(found.exactly_once, Ok(()));
        assert_eq!(found.order_kept, Err("sample 1 (epoch 0, position 1) came after position 2 of epoch 0".into()));
    }

    #[test]
    fn a_place_that_the_plan_does_not_have_is_named() {
        let found = findings(4, &[&[0, 1], &[2, 400]], &[], 0);
        assert_eq!(
            found.exactly_once,
            Err("sample 400 (epoch 0, position 400) was delivered, but the plan has no such place".into())
        );
        let padded = findings(4, &[&[0, 1], &[2, 4]], &[], 0);
        assert_eq!(
            padded.exactly_once,
            Err("sample 4 (epoch 0, position 4) was delivered, but the plan has no such place".into()),
            "nothing asks for padding"
        );
    }
}
