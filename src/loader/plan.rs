//! The plan: which sample comes when, as a pure function of seed, epoch and the dataset's size.
//!
//! An epoch's order is a permutation of the dataset, looked up position by position in constant memory. Ranks stride it: rank `r` of
//! `W` has positions `r`, `r + W`, `r + 2W` and so on; it calls them *indices* 0, 1, 2 of its *share*. Rank, world size and the number
//! of lanes change who handles a position and when, never what the position holds. Where an epoch was begun by another world,
//! the same is done with the positions that are left.

use std::sync::Arc;

use super::{
    marks::{Marks, Missing},
    permutation::Permutation,
    settings::{Settings, SettingsError, Tail},
    state::State,
};
use crate::machine::Item;

/// Which sample comes when.
#[derive(Clone, Debug)]
pub struct Plan {
    samples: u64,
    shuffle: Option<u64>,
    epochs: u32,
    batch: u64,
    drop_last: bool,
    tail: Tail,
    rank: u64,
    world: u64,
    start: State,
}

/// How large a rank's share of an epoch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Samples planned for this rank.
    pub samples: u64,
    /// Batches this rank delivers when no sample fails.
    pub steps: u64,
}

impl Plan {
    /// The plan that `settings` describe, from where they resume.
    ///
    /// # Errors
    ///
    /// [`SettingsError::NoBatch`] when an epoch would hold no batch for this rank, [`SettingsError::Resume`] when the state to
    /// resume from belongs to another plan.
    pub fn new(settings: &Settings) -> Result<Plan, SettingsError> {
        let mut plan = Plan::bare(settings);
        let shape = plan.shape_of(settings.samples);
        // A rank without samples ends at once where ranks may be uneven; anywhere else nothing to do is a mistake.
        if shape.steps == 0 && (plan.tail != Tail::Uneven || plan.drop_last) {
            return Err(SettingsError::NoBatch {
                rank: settings.rank,
                world: settings.world,
                mine: shape.samples,
                samples: settings.samples,
                batch: settings.batch,
                drop_last: settings.drop_last,
                tail: settings.tail,
            });
        }
        if let Some(state) = &settings.resume {
            plan.start = state.enter(settings)?;
        }
        Ok(plan)
    }

    /// The plan without checks, from the beginning.
    pub(super) fn bare(settings: &Settings) -> Plan {
        Plan {
            samples: settings.samples,
            shuffle: settings.shuffle,
            epochs: settings.epochs,
            batch: settings.batch as u64,
            drop_last: settings.drop_last,
            tail: settings.tail,
            rank: u64::from(settings.rank),
            world: u64::from(settings.world),
            start: State::start(settings),
        }
    }

    /// Passes over the dataset.
    pub fn epochs(&self) -> u32 {
        self.epochs
    }

    /// Where the plan begins: a fresh state, or the one it resumes from.
    pub fn start(&self) -> &State {
        &self.start
    }

    /// How large this rank's share of `epoch` is.
    pub fn shape(&self, epoch: u32) -> Shape {
        self.shape_of(self.samples - self.before(epoch).len())
    }

    /// Batches still to come when no sample fails.
    pub fn batches(&self) -> u64 {
        if self.start.epoch >= self.epochs {
            return 0;
        }
        let later = u64::from(self.epochs - self.start.epoch - 1) * self.shape_of(self.samples).steps;
        self.shape(self.start.epoch).steps.saturating_sub(self.start.step) + later
    }

    /// This rank's share of `epoch`.
    pub fn epoch(&self, epoch: u32) -> EpochPlan {
        self.deal(epoch, self.before(epoch))
    }

    /// This rank's share of what is left of `epoch` when the positions in `before` are gone.
    pub(super) fn deal(&self, epoch: u32, before: &Marks) -> EpochPlan {
        let left = self.samples - before.len();
        EpochPlan {
            epoch,
            samples: self.samples,
            left,
            planned: self.shape_of(left).samples,
            rank: self.rank,
            world: self.world,
            missing: before.missing(),
            permutation: self.shuffle.map(|seed| Permutation::new(self.samples, seed, epoch)),
        }
    }

    /// The plan's items in order, from where it begins.
    pub fn cursor(&self) -> Cursor {
        let share = self.epoch(self.start.epoch);
        let mut cursor = Cursor { plan: self.clone(), share, next: self.start.taken.low(), ahead: Vec::new(), ahead_from: 0 };
        cursor.settle();
        cursor
    }

    pub(super) fn batch(&self) -> u64 {
        self.batch
    }

    pub(super) fn drop_last(&self) -> bool {
        self.drop_last
    }

    pub(super) fn tail(&self) -> Tail {
        self.tail
    }

    fn before(&self, epoch: u32) -> &Arc<Marks> {
        static NOTHING: std::sync::LazyLock<Arc<Marks>> = std::sync::LazyLock::new(Arc::default);
        if epoch == self.start.epoch { &self.start.before } else { &NOTHING }
    }

    fn shape_of(&self, left: u64) -> Shape {
        let samples = match self.tail {
            Tail::Uneven => left.saturating_sub(self.rank).div_ceil(self.world),
            Tail::Pad => left.div_ceil(self.world),
            Tail::Drop => left / self.world,
        };
        let steps = if self.drop_last { samples / self.batch } else { samples.div_ceil(self.batch) };
        Shape { samples, steps }
    }
}

/// A rank's share of one epoch.
#[derive(Clone, Debug)]
pub struct EpochPlan {
    epoch: u32,
    samples: u64,
    /// Positions that were left when the epoch was dealt out.
    left: u64,
    planned: u64,
    rank: u64,
    world: u64,
    missing: Missing,
    permutation: Option<Permutation>,
}

impl EpochPlan {
    /// Samples in the share.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// The share's item number `index`. One that repeats a sample as padding has a position beyond the dataset's last.
    ///
    /// # Panics
    ///
    /// If the share has no such item.
    pub fn item(&self, index: u64) -> Item {
        let Place { place, position } = self.place(index);
        let sample = self.permutation.as_ref().map_or(place, |permutation| permutation.at(place));
        Item { epoch: self.epoch, position, sample }
    }

    /// Appends the items from `index` on, [`AHEAD`] of them or up to the end of the share.
    fn items(&self, index: u64, items: &mut Vec<Item>) {
        let end = self.planned.min(index + AHEAD);
        // Past the end the last one is worked out again, and left out.
        let places: [Place; AHEAD as usize] = std::array::from_fn(|k| self.place((index + k as u64).min(end - 1)));
        let mut samples = places.map(|place| place.place);
        if let Some(permutation) = &self.permutation {
            permutation.at_each(&mut samples);
        }
        let all = places.iter().zip(samples).take((end - index) as usize);
        items.extend(all.map(|(&Place { position, .. }, sample)| Item { epoch: self.epoch, position, sample }));
    }

    /// Where the share's item number `index` stands.
    fn place(&self, index: u64) -> Place {
        assert!(index < self.planned, "the share has {} items, not {index}", self.planned);
        let dealt = self.rank + index * self.world;
        let place = self.missing.nth(if dealt < self.left { dealt } else { dealt % self.left });
        let position = if dealt < self.left { place } else { self.samples + (dealt - self.left) };
        Place { place, position }
    }
}

/// Where an item stands.
#[derive(Clone, Copy)]
struct Place {
    /// In the order of the dataset.
    place: u64,
    /// As the item says it: beyond the dataset's last for padding.
    position: u64,
}

/// How many items a [`Cursor`] works out at a time, since [several](Permutation::at_each) take little longer than one.
const AHEAD: u64 = 8;

/// Walks a plan, epoch after epoch.
#[derive(Clone, Debug)]
pub struct Cursor {
    plan: Plan,
    share: EpochPlan,
    next: u64,
    /// Items of the share from `ahead_from` on.
    ahead: Vec<Item>,
    ahead_from: u64,
}

impl Cursor {
    /// Epoch and index of the next item; `None` at the end of the plan.
    #[inline]
    pub fn peek(&self) -> Option<(u32, u64)> {
        (self.share.epoch < self.plan.epochs).then_some((self.share.epoch, self.next))
    }

    /// Takes the next item and its index in the rank's share of its epoch.
    #[inline]
    pub fn take(&mut self) -> Option<(u64, Item)> {
        let (_, index) = self.peek()?;
        let item = self.item(index);
        self.next += 1;
        self.settle();
        Some((index, item))
    }

    /// The share's item number `index`, not below any that was asked for before.
    #[inline]
    fn item(&mut self, index: u64) -> Item {
        if let Some(item) = self.ahead.get((index - self.ahead_from) as usize) {
            return *item;
        }
        self.look_ahead(index)
    }

    fn look_ahead(&mut self, index: u64) -> Item {
        self.ahead_from = index;
        self.ahead.clear();
        self.share.items(index, &mut self.ahead);
        self.ahead[0]
    }

    /// Moves past what was consumed before, and past the ends of epochs.
    fn settle(&mut self) {
        while self.share.epoch < self.plan.epochs {
            let start = &self.plan.start;
            while self.share.epoch == start.epoch && self.next < start.taken.end() && start.taken.contains(self.next) {
                self.next += 1;
            }
            if self.next < self.share.planned {
                return;
            }
            // Past the last epoch there is nothing to deal out.
            match self.share.epoch + 1 {
                epoch if epoch < self.plan.epochs => self.share = self.plan.epoch(epoch),
                epoch => self.share.epoch = epoch,
            }
            self.next = 0;
            self.ahead_from = 0;
            self.ahead.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn settings(samples: u64, batch: usize, rank: u16, world: u16, tail: Tail) -> Settings {
        Settings { rank, world, tail, shuffle: Some(3), epochs: 2, ..Settings::new(samples, batch, 1) }
    }

    fn items(plan: &Plan) -> Vec<Item> {
        let mut cursor = plan.cursor();
        std::iter::from_fn(|| cursor.take()).map(|(_, item)| item).collect()
    }

    proptest! {
        #[test]
        fn ranks_are_disjoint_complete_and_equal(samples in 1u64..60, world in 1u16..6, batch in 1usize..9) {
            for tail in [Tail::Uneven, Tail::Pad, Tail::Drop] {
                let plans: Vec<_> = (0..world).filter_map(|r| Plan::new(&settings(samples, batch, r, world, tail)).ok()).collect();
                if plans.is_empty() {
                    prop_assert!(tail == Tail::Drop && samples < u64::from(world));
                    continue;
                }
                for epoch in 0..2 {
                    let mut all: Vec<Item> = plans.iter().flat_map(items).filter(|item| item.epoch == epoch).collect();
                    all.sort();
                    let positions: BTreeSet<u64> = all.iter().map(|item| item.position).collect();
                    prop_assert_eq!(positions.len(), all.len(), "no position twice");
                    let real: BTreeSet<u64> = all.iter().filter(|i| i.position < samples).map(|i| i.sample).collect();
                    let counts: BTreeSet<u64> = plans.iter().map(|plan| plan.shape(epoch).samples).collect();
                    match tail {
                        Tail::Drop => prop_assert_eq!(real.len() as u64, samples - samples % u64::from(world)),
                        _ => prop_assert_eq!(real.len() as u64, samples),
                    }
                    prop_assert!(counts.len() == 1 || tail == Tail::Uneven && counts.last().unwrap() - counts.first().unwrap() == 1);
                    prop_assert!(all.iter().all(|item| item.sample < samples));
                }
            }
        }

        #[test]
        fn what_ranks_left_is_dealt_out_anew_exactly_once(
            samples in 1u64..80, old in 1u16..5, new in 1u16..5, taken in proptest::collection::vec(0u64..90, 5),
        ) {
            let mut consumed = BTreeSet::new();
            let states: Vec<_> = (0..old).map(|rank| {
                let plan = Plan::new(&settings(samples, 1, rank, old, Tail::Uneven)).expect("uneven ranks always fit");
                let share = plan.epoch(0);
                let taken = taken[usize::from(rank)].min(share.planned());
                consumed.extend((0..taken).map(|index| share.item(index).position));
                State { taken: Marks::below(taken), ..plan.start().clone() }
            }).collect();
            let merged = State::merge(&states).expect("one state of each rank");
            let mut rest: Vec<u64> = (0..new).flat_map(|rank| {
                let resumed = Settings { resume: Some(merged.clone()), ..settings(samples, 1, rank, new, Tail::Uneven) };
                items(&Plan::new(&resumed).expect("a merged state fits any world"))
            }).filter(|item| item.epoch == 0).map(|item| item.position).collect();
            rest.sort();
            let expected: Vec<u64> = (0..samples).filter(|p| !consumed.contains(p)).collect();
            prop_assert_eq!(rest, expected);
        }
    }

    #[test]
    fn what_is_worked_out_ahead_is_what_comes() {
        for (samples, tail) in [(21, Tail::Uneven), (21, Tail::Pad), (21, Tail::Drop), (40_000, Tail::Pad)] {
            let fresh = settings(samples, 4, 1, 2, tail);
            // Some of the first epoch was taken before, in no good order.
            let mut state = Plan::new(&fresh).expect("a plan").start().clone();
            state.taken.extend([0, 1, 2, 5, 8]);
            let plan = Plan::new(&Settings { resume: Some(state), ..fresh }).expect("a plan");
            let shares = [plan.epoch(0), plan.epoch(1)];
            let mut cursor = plan.cursor();
            let mut count = 0;
            while let Some((index, item)) = cursor.take() {
                assert_eq!(item, shares[item.epoch as usize].item(index), "index {index} of {samples} samples, {tail:?}");
                count += 1;
            }
            assert_eq!(count, 2 * shares[1].planned() - 5);
        }
    }

    #[test]
    fn epochs_differ_and_repeat_with_the_seed() {
        let plan = Plan::new(&settings(100, 4, 0, 1, Tail::Uneven)).expect("a plan");
        let (first, second): (Vec<_>, Vec<_>) = items(&plan).into_iter().partition(|item| item.epoch == 0);
        assert_ne!(
            first.iter().map(|item| item.sample).collect::<Vec<_>>(),
            second.iter().map(|item| item.sample).collect::<Vec<_>>()
        );
        assert_eq!(items(&plan), items(&plan.clone()));
    }

    #[test]
    fn batches_to_come_are_those_of_all_epochs() {
        let of = |epochs| Plan::new(&Settings { epochs, ..settings(10, 4, 0, 1, Tail::Uneven) }).expect("a plan").batches();
        assert_eq!([1, 2, 5].map(of), [3, 6, 15]);
    }

    #[test]
    fn a_rank_at_the_end_of_an_epoch_dealt_out_anew_is_joined_with_one_that_is_in_it() {
        let of = |rank| settings(12, 1, rank, 2, Tail::Uneven);
        let states = [0, 1].map(|rank| State { taken: Marks::below(2), ..Plan::new(&of(rank)).expect("a plan").start().clone() });
        let merged = State::merge(&states).expect("one state of each rank");
        let [behind, done] =
            [0, 1].map(|rank| Plan::new(&Settings { resume: Some(merged.clone()), ..of(rank) }).expect("the same world"));
        let ahead = State { epoch: 1, before: Arc::new(Marks::new()), ..done.start().clone() };
        let share = behind.epoch(0);
        let behind = State { taken: Marks::below(1), ..behind.start().clone() };
        let mut expected: Vec<u64> = (1..share.planned()).map(|index| share.item(index).position).collect();
        expected.sort();
        for states in [[behind.clone(), ahead.clone()], [ahead, behind]] {
            let joined = State::merge(&states).expect("one is at the start of the next epoch");
            let resumed = Settings { resume: Some(joined), world: 1, ..of(0) };
            let first = items(&Plan::new(&resumed).expect("any world")).into_iter().filter(|item| item.epoch == 0);
            let mut rest: Vec<u64> = first.map(|item| item.position).collect();
            rest.sort();
            assert_eq!(rest, expected, "what is left of the share of the rank behind");
        }
    }

    #[test]
    fn padding_repeats_the_start_of_the_epoch() {
        let of = |rank| items(&Plan::new(&settings(10, 4, rank, 4, Tail::Pad)).expect("a plan"));
        let last: Vec<Item> = [2, 3].map(|rank| of(rank)[2]).into();
        assert_eq!(last.iter().map(|item| item.position).collect::<Vec<_>>(), [10, 11]);
        assert_eq!(last.iter().map(|item| item.sample).collect::<Vec<_>>(), [of(0)[0].sample, of(1)[0].sample]);
    }

    #[test]
    fn dropping_the_last_batch_of_everything_is_refused() {
        let all = Settings { drop_last: true, ..Settings::new(10, 16, 1) };
        assert!(matches!(Plan::new(&all), Err(SettingsError::NoBatch { mine: 10, .. })));
        let none = Settings { tail: Tail::Drop, world: 11, ..Settings::new(10, 1, 1) };
        assert!(matches!(Plan::new(&none), Err(SettingsError::NoBatch { mine: 0, .. })));
    }
}
