//! Ranks share an epoch.

use super::{Asked, Broken, Ended, Invariant, name, places::Places};
use crate::{
    check::design::Got,
    loader::{Resolved, Tail},
    machine::Item,
};

/// Ranks share each epoch: no sample goes to two of them, together they have all, and where the tail says so they deliver the same number
/// of batches. Only a tail that pads has ranks repeat samples. It is broken by a sample that two ranks got, by one that is repeated as padding where ranks may be uneven, by one that no rank was given, and by a rank with a step more than another, at
/// which data-parallel training hangs.
pub struct RanksShare<'a> {
    asked: Asked<'a>,
    /// Who got a position, by epoch.
    owners: Places<u16>,
    /// Who got a sample, by epoch: a loader that shuffles by itself may give one sample to two ranks at positions that differ.
    of_samples: Places<u16>,
    batches: Vec<u64>,
}

/// What stands for the rank where a table is of all of them.
const ALL: u16 = 0;

impl<'a> RanksShare<'a> {
    /// Before a run.
    pub fn new(asked: Asked<'a>) -> RanksShare<'a> {
        RanksShare { asked, owners: Places::new(), of_samples: Places::new(), batches: vec![0; asked.ranks.len()] }
    }

    fn is_whole(&self) -> bool {
        let world = self.asked.ranks.first().map_or(0, |rank| usize::from(rank.settings.world));
        self.asked.ranks.len() > 1 && self.asked.ranks.len() == world
    }

    fn give(&mut self, rank: u16, item: &Item) -> Result<(), Broken> {
        let broken =
            |other: u16| Err(Broken::new(format!("{} went to rank {other} and to rank {rank}", name(item))).by(rank, *item));
        match self.owners.insert((ALL, item.epoch, item.position), rank) {
            Some(other) if other != rank => return broken(other),
            _ => {}
        }
        // Padding repeats samples.
        let padding = self.asked.ranks.first().is_some_and(|first| item.position >= first.settings.samples);
        if padding && self.asked.ranks.first().is_some_and(|first| first.settings.tail != Tail::Pad) {
            let why = format!("rank {rank} repeats {} as padding, and the tail asks for none", name(item));
            return Err(Broken::new(why).by(rank, *item));
        }
        match self.of_samples.get((ALL, item.epoch, item.sample)) {
            _ if padding => Ok(()),
            Some(other) if *other != rank => broken(*other),
            Some(_) => Ok(()),
            None => {
                self.of_samples.insert((ALL, item.epoch, item.sample), rank);
                Ok(())
            }
        }
    }
}

impl Invariant for RanksShare<'_> {
    fn name(&self) -> &'static str {
        "ranks_disjoint_complete_equal"
    }

    fn batch(&mut self, got: &Got) -> Result<(), Broken> {
        if self.is_whole() {
            self.batches[usize::from(got.rank)] += 1;
            let skipped = got.skipped.iter().map(|s| &s.item);
            let given = got.items.iter().chain(skipped).try_for_each(|item| self.give(got.rank, item));
            given.map_err(|broken| broken.at(got.at))?;
        }
        Ok(())
    }

    fn end(&mut self, ended: &Ended<'_>) -> Result<(), Broken> {
        let ranks = self.asked.ranks;
        if !self.is_whole() || (0..ranks.len()).any(|rank| !ended.finished(rank as u16)) {
            return Ok(());
        }
        let settings = &ranks[0].settings;
        let fixed = settings.tail.fixes_steps();
        let (least, most) = (self.batches.iter().min(), self.batches.iter().max());
        if fixed && least != most {
            let counts: Vec<String> = self.batches.iter().map(u64::to_string).collect();
            return Err(Broken::new(format!("ranks delivered {} batches, not all the same number", counts.join(", "))));
        }
        // What is left out at the end of an epoch is no rank's.
        if settings.drop_last || settings.tail == Tail::Drop || fixed && settings.batch > 1 && self.failed(ended) {
            return Ok(());
        }
        // A rank that goes on has had a part of its epoch, and may be an epoch ahead of another.
        let whole = |rank: &Resolved| rank.plan.start().epoch() + u32::from(rank.plan.start().batches() > 0);
        for epoch in ranks.iter().map(whole).max().unwrap_or(0)..settings.epochs {
            for position in 0..settings.samples {
                if self.owners.get((ALL, epoch, position)).is_none() && !unreported(ended, epoch, position) {
                    let why = format!("no rank was given position {position} of epoch {epoch}");
                    return Err(Broken::new(why));
                }
            }
        }
        Ok(())
    }
}

impl RanksShare<'_> {
    fn failed(&self, ended: &Ended<'_>) -> bool {
        ended.ends.iter().any(|end| end.outcome.as_ref().is_some_and(|outcome| outcome.accounts.skipped > 0))
    }
}

/// Whether a loader's books say that the sample failed after the last batch.
fn unreported(ended: &Ended<'_>, epoch: u32, position: u64) -> bool {
    let books = ended.ends.iter().filter_map(|end| end.outcome.as_ref());
    let mut told = books.flat_map(|outcome| &outcome.unreported);
    told.any(|skipped| (skipped.item.epoch, skipped.item.position) == (epoch, position))
}

#[cfg(test)]
mod tests {
    use super::{
        super::example::{asked, got, judge, resolved},
        *,
    };
    use crate::loader::Settings;

    fn judged(tail: Tail, batches: &[Got]) -> Result<(), String> {
        let ranks = resolved(Settings { world: 2, tail, ..Settings::new(6, 2, 1) });
        judge(&mut RanksShare::new(asked(&ranks)), &[], batches)
    }

    #[test]
    fn a_sample_of_two_ranks_breaks_it_and_so_does_one_of_none() {
        let share = |second: &[u64]| [got(0, 0, &[0, 2]), got(0, 1, &[4]), got(1, 0, &[1, 3]), got(1, 1, second)];
        assert_eq!(judged(Tail::Uneven, &share(&[5])), Ok(()));
        let both = judged(Tail::Uneven, &share(&[4]));
        assert_eq!(both, Err("sample 4 (epoch 0, position 4) went to rank 0 and to rank 1".to_owned()));
        assert_eq!(judged(Tail::Uneven, &share(&[])), Err("no rank was given position 5 of epoch 0".to_owned()));
    }

    #[test]
    fn padding_where_ranks_may_be_uneven_breaks_it() {
        let mut last = got(1, 1, &[5, 7]);
        last.items[1].sample = 1;
        let all = [got(0, 0, &[0, 2]), got(0, 1, &[4]), got(1, 0, &[1, 3]), last];
        assert_eq!(judged(Tail::Pad, &all), Ok(()));
        let why = judged(Tail::Uneven, &all);
        assert_eq!(why, Err("rank 1 repeats sample 1 (epoch 0, position 7) as padding, and the tail asks for none".to_owned()));
    }

    #[test]
    fn a_rank_with_a_step_more_breaks_it_where_steps_are_fixed() {
        let batches = [got(0, 0, &[0, 2]), got(0, 1, &[4]), got(1, 0, &[1, 3])];
        assert_eq!(judged(Tail::Pad, &batches), Err("ranks delivered 2, 1 batches, not all the same number".to_owned()));
    }
}
