//! A look at the plan by itself, before anything runs: at sizes that no run of a check has.
//!
//! Runs load a few dozen samples, and what is wrong with the order of many shows in none of them. Nothing is simulated here: the plans of
//! all ranks of the world are walked, as the loader walks them, and held against what [`Settings`] ask for. The size is that of the
//! scenario's own dataset, once a check, and in a swarm also sizes that a seed draws, often beside a power of two.

use super::{
    case::{Base, Case, count},
    invariant::Broken,
    run::{Finding, Run},
};
use crate::{
    document::Trouble,
    loader::{Plan, Settings, Tail},
    machine::Item,
};

/// The plans of all ranks are the epoch: every sample at one place of one rank, all of them, and no more than the tail allows. Without a
/// shuffle samples come in the dataset's order; padding repeats the start of the epoch. Broken by an order that gives a sample two places, by
/// ranks that pad where nothing asks for it, and by a share that is a sample short.
pub const PLAN_WHOLE: &str = "plan_whole";

/// The most samples of a dataset: of a larger one, a plan for so many is looked at.
pub(super) const SAMPLES_MOST: u64 = 1 << 21;

/// Places that one look walks at least one epoch for, and then further epochs as long as they fit.
const PLACES_MOST: u64 = 1 << 21;

/// Looks at the plan of a case; nothing runs.
pub(super) fn look(base: &Base, case: &Case) -> Result<(Option<Finding>, Run), Trouble> {
    let samples = count(&case.scenario).min(SAMPLES_MOST);
    let settings = Settings { samples, ..base.settings(&case.scenario)? };
    let broken = judge(&settings);
    let finding = broken.err().map(|broken| Finding { invariant: PLAN_WHOLE, broken });
    Ok((finding, Run { plans: base.plans(&case.scenario)?, ..Run::default() }))
}

/// What is broken in the plans of all ranks that `settings` describe.
pub(super) fn judge(settings: &Settings) -> Result<(), Broken> {
    let ranks = (0..settings.world).map(|rank| Plan::new(&Settings { rank, resume: None, ..settings.clone() }));
    // A world with a rank that has no batch is refused, so it is nobody's plan.
    let Ok(plans) = ranks.collect::<Result<Vec<_>, _>>() else { return Ok(()) };
    let epochs = (PLACES_MOST / settings.samples.max(1)).clamp(1, u64::from(settings.epochs.max(1))) as u32;
    let mut walks: Vec<_> = plans.iter().map(|plan| Walk { cursor: plan.cursor(), ahead: None }).collect();
    for epoch in 0..epochs {
        let mut seen = Seen::new(settings, epoch);
        for (rank, walk) in (0..).zip(&mut walks) {
            walk.epoch(epoch, |item| seen.take(rank, item))?;
        }
        seen.end()?;
        // Whoever asks for one place gets what the walk got.
        for (rank, plan) in (0..).zip(&plans) {
            let share = plan.epoch(epoch);
            let ends = [0, share.planned() / 2, share.planned().saturating_sub(1)];
            for index in ends.into_iter().filter(|index| *index < share.planned()) {
                seen.again(rank, index, &share.item(index))?;
            }
        }
    }
    Ok(())
}

/// A rank's walk through its plan.
struct Walk {
    cursor: crate::loader::Cursor,
    /// The first item of the next epoch.
    ahead: Option<Item>,
}

impl Walk {
    /// All items of an epoch.
    fn epoch(&mut self, epoch: u32, mut take: impl FnMut(&Item) -> Result<(), Broken>) -> Result<(), Broken> {
        while let Some(item) = self.ahead.take().or_else(|| self.cursor.take().map(|(_, item)| item)) {
            if item.epoch != epoch {
                self.ahead = Some(item);
                return Ok(());
            }
            take(&item)?;
        }
        Ok(())
    }
}

/// What came of an epoch.
struct Seen<'a> {
    settings: &'a Settings,
    epoch: u32,
    /// Samples that have come, one bit each.
    came: Vec<u64>,
    /// Samples of each rank so far.
    shares: Vec<u64>,
    /// Samples at the first places, which padding repeats.
    first: Vec<u64>,
    padding: Vec<(u16, Item)>,
    /// A sample of each rank's first, middle and last place, to be asked for again.
    kept: Vec<Vec<(u64, Item)>>,
}

impl<'a> Seen<'a> {
    fn new(settings: &'a Settings, epoch: u32) -> Seen<'a> {
        let world = usize::from(settings.world);
        Seen {
            settings,
            epoch,
            came: vec![0; settings.samples.div_ceil(64) as usize],
            shares: vec![0; world],
            first: vec![u64::MAX; settings.samples.min(u64::from(settings.world)) as usize],
            padding: Vec::new(),
            kept: vec![Vec::new(); world],
        }
    }

    /// Samples that a rank is to have of an epoch.
    fn share(&self, rank: u16) -> u64 {
        let Settings { samples, world, tail, .. } = self.settings;
        let (even, rest) = (samples / u64::from(*world), samples % u64::from(*world));
        even + match tail {
            Tail::Uneven => u64::from(u64::from(rank) < rest),
            Tail::Pad => u64::from(rest > 0),
            Tail::Drop => 0,
        }
    }

    fn take(&mut self, rank: u16, item: &Item) -> Result<(), Broken> {
        let Settings { samples, world, shuffle, .. } = self.settings;
        let nth = self.shares[usize::from(rank)];
        let share = self.share(rank);
        let broken = |why: String| Err(Broken::new(why).by(rank, *item));
        let (position, sample) = (item.position, item.sample);
        let place = format_args!("place {nth} of rank {rank} in epoch {}", self.epoch);
        if nth >= share {
            return broken(format!("rank {rank} has more than its {share} samples of epoch {}", self.epoch));
        }
        if position != u64::from(rank) + nth * u64::from(*world) {
            return broken(format!("{place} has position {position}, which is another's"));
        }
        if sample >= *samples {
            return broken(format!("{place} has sample {sample}, and there are {samples}"));
        }
        if [0, share / 2, share - 1].contains(&nth) {
            self.kept[usize::from(rank)].push((nth, *item));
        }
        self.shares[usize::from(rank)] += 1;
        if position >= *samples {
            self.padding.push((rank, *item));
            return Ok(());
        }
        if shuffle.is_none() && sample != position {
            return broken(format!("{place} has sample {sample}, which is not shuffled and should be {position}"));
        }
        if let Some(first) = self.first.get_mut(position as usize) {
            *first = sample;
        }
        let (word, bit) = (&mut self.came[(sample / 64) as usize], 1 << (sample % 64));
        match *word & bit {
            0 => *word |= bit,
            _ => return broken(format!("{place} has sample {sample}, which came before in the same epoch")),
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Broken> {
        let Settings { samples, tail, .. } = self.settings;
        for (rank, found) in (0..).zip(&self.shares) {
            let share = self.share(rank);
            if *found != share {
                let why = format!("rank {rank} has {found} samples of epoch {}, and its share is {share}", self.epoch);
                return Err(Broken { rank: Some(rank), ..Broken::new(why) });
            }
        }
        for (rank, item) in &self.padding {
            let expected = self.first.get(((item.position - samples) % samples) as usize).copied();
            if expected != Some(item.sample) {
                let why = format!("padding at position {} of epoch {} is not a sample from its start", item.position, self.epoch);
                return Err(Broken::new(why).by(*rank, *item));
            }
        }
        // The shares add up, so where no sample came twice none is missing, but for those that the tail leaves out.
        let missing = (0..*samples).find(|sample| self.came[(sample / 64) as usize] & 1 << (sample % 64) == 0);
        match missing {
            Some(sample) if *tail != Tail::Drop => {
                Err(Broken::new(format!("sample {sample} is in no rank's share of epoch {}", self.epoch)))
            }
            _ => Ok(()),
        }
    }

    fn again(&self, rank: u16, index: u64, item: &Item) -> Result<(), Broken> {
        let kept = self.kept[usize::from(rank)].iter().find(|(nth, _)| *nth == index);
        match kept {
            Some((_, first)) if first != item => {
                let why =
                    format!("place {index} of rank {rank} is sample {}, and by itself sample {}", first.sample, item.sample);
                Err(Broken::new(why).by(rank, *item))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(samples: u64, world: u16, tail: Tail) -> Settings {
        Settings { world, tail, shuffle: Some(7), epochs: 3, ..Settings::new(samples, 1, 1) }
    }

    #[test]
    fn plans_of_any_size_are_whole() {
        for samples in [1, 2, 5, 64, 1000, 32_768, 32_769, 40_007] {
            for (world, tail) in [(1, Tail::Uneven), (3, Tail::Uneven), (3, Tail::Pad), (4, Tail::Drop), (7, Tail::Pad)] {
                for shuffle in [Some(7), None] {
                    let settings = Settings { shuffle, ..settings(samples, world, tail) };
                    assert_eq!(judge(&settings), Ok(()), "{samples} samples, {world} ranks, {tail:?}");
                }
            }
        }
    }

    /// What is said of an epoch of these positions and samples, rank after rank.
    fn judged(samples: u64, tail: Tail, shuffle: Option<u64>, ranks: &[&[(u64, u64)]]) -> Result<(), String> {
        let settings = Settings { shuffle, ..settings(samples, ranks.len() as u16, tail) };
        let mut seen = Seen::new(&settings, 0);
        let mut all = || {
            for (rank, items) in (0..).zip(ranks) {
                items.iter().try_for_each(|(position, sample)| {
                    seen.take(rank, &Item { epoch: 0, position: *position, sample: *sample })
                })?;
            }
            seen.end()
        };
        all().map_err(|broken| broken.why)
    }

    #[test]
    fn a_sample_at_two_places_breaks_it_and_so_does_one_at_none() {
        let order = |last| judged(3, Tail::Uneven, Some(1), &[&[(0, 2), (1, 0), (2, last)]]);
        assert_eq!(order(1), Ok(()));
        assert_eq!(order(0), Err("place 2 of rank 0 in epoch 0 has sample 0, which came before in the same epoch".to_owned()));
        assert_eq!(order(3), Err("place 2 of rank 0 in epoch 0 has sample 3, and there are 3".to_owned()));
        let short = judged(3, Tail::Uneven, Some(1), &[&[(0, 2), (1, 0)]]);
        assert_eq!(short, Err("rank 0 has 2 samples of epoch 0, and its share is 3".to_owned()));
        let plain = judged(2, Tail::Uneven, None, &[&[(0, 1), (1, 0)]]);
        assert!(plain.is_err_and(|why| why.contains("not shuffled")));
    }

    #[test]
    fn padding_where_nothing_asks_for_it_breaks_it_and_so_does_padding_of_the_wrong_sample() {
        let of = |tail, padding| judged(3, tail, Some(1), &[&[(0, 2), (2, 1)], &[(1, 0), (3, padding)]]);
        assert_eq!(of(Tail::Pad, 2), Ok(()));
        assert_eq!(of(Tail::Pad, 1), Err("padding at position 3 of epoch 0 is not a sample from its start".to_owned()));
        assert_eq!(of(Tail::Uneven, 2), Err("rank 1 has more than its 1 samples of epoch 0".to_owned()));
    }
}
