//! A state says what its consumer has had.

use std::collections::BTreeMap;

use super::{Asked, Broken, Ended, Invariant, of_rank};
use crate::{
    check::design::Got,
    loader::{Order, State},
};

/// The state of a batch counts what its consumer has had when it takes that batch: so many batches, so many samples of the epoch, so many
/// of them failed. What comes after it is no earlier than it says, and the books of a loader that has ended close with the state of the last
/// batch taken, or with the one that it began from. And a state is small: in plan order what was had has no gaps, and in completion
/// order none beyond the window. It is broken by a state that counts what was made ready and not taken, by failures that
/// are carried over into the next epoch, and by an epoch that a state takes for over.
///
/// It looks at loaders that have states of this crate's.
pub struct StateKept<'a> {
    asked: Asked<'a>,
    ranks: BTreeMap<u16, Rank>,
}

/// A rank so far.
struct Rank {
    /// Samples that came or failed, by epoch, and how many of them failed.
    had: BTreeMap<u32, (u64, u64)>,
    /// Batches of the present epoch.
    step: u64,
    epoch: u32,
    last: State,
    /// How far its marks may span.
    span_most: u64,
}

impl<'a> StateKept<'a> {
    /// Before a run.
    pub fn new(asked: Asked<'a>) -> StateKept<'a> {
        let began = |plan: &crate::loader::Resolved| {
            let start = plan.plan.start().clone();
            let had = BTreeMap::from([(start.epoch(), (start.taken().len(), start.skipped()))]);
            let span_most = if plan.settings.order == Order::Plan { 0 } else { plan.window };
            Rank { had, step: start.step(), epoch: start.epoch(), last: start, span_most }
        };
        StateKept { asked, ranks: (0..).zip(asked.ranks.iter().map(began)).collect() }
    }
}

impl Rank {
    /// Takes a batch; what its state says wrongly.
    fn take(&mut self, got: &Got, state: &State) -> Result<(), String> {
        if got.epoch < self.last.epoch() {
            return Err(format!("batch {} is of epoch {}, which the state before it says is over", got.index, got.epoch));
        }
        if got.epoch != self.epoch {
            (self.epoch, self.step) = (got.epoch, 0);
        }
        self.step += 1;
        for item in &got.items {
            self.had.entry(item.epoch).or_default().0 += 1;
        }
        for skipped in &got.skipped {
            let (had, failed) = self.had.entry(skipped.item.epoch).or_default();
            (*had, *failed) = (*had + 1, *failed + 1);
        }
        self.last = state.clone();
        let over = state.epoch() == got.epoch + 1;
        if state.epoch() != got.epoch && !over {
            return Err(format!("its state is of epoch {}, and the batch of epoch {}", state.epoch(), got.epoch));
        }
        if state.taken().span() > self.span_most {
            let span = state.taken().span();
            return Err(format!("its state spans {span} samples from the first that is missing, and {} at most", self.span_most));
        }
        let (had, failed) = self.had.get(&state.epoch()).copied().unwrap_or_default();
        let step = if over { 0 } else { self.step };
        let all = [
            ("batches", state.batches(), got.index + 1),
            ("batches of the epoch", state.step(), step),
            ("samples of the epoch", state.taken().len(), had),
            ("failed samples of the epoch", state.skipped(), failed),
        ];
        let wrong = all.into_iter().find(|(_, says, is)| says != is);
        wrong.map_or(Ok(()), |(what, says, is)| Err(format!("its state counts {says} {what}, and its consumer has had {is}")))
    }
}

impl Invariant for StateKept<'_> {
    fn name(&self) -> &'static str {
        "state_kept"
    }

    fn batch(&mut self, got: &Got) -> Result<(), Broken> {
        let (Some(state), Some(rank)) = (&got.state, self.ranks.get_mut(&got.rank)) else { return Ok(()) };
        rank.take(got, state).map_err(|why| {
            let why = format!("batch {}: {why}", got.index);
            Broken::new(of_rank(got.rank, self.asked.ranks.len(), why)).at(got.at).by_batch(got.rank, got.index)
        })
    }

    fn end(&mut self, ended: &Ended<'_>) -> Result<(), Broken> {
        for end in ended.ends {
            let (Some(outcome), Some(rank)) = (&end.outcome, self.ranks.get(&end.rank)) else { continue };
            if outcome.state != rank.last {
                let words =
                    |state: &State| format!("{} batches, and {} of epoch {}", state.batches(), state.step(), state.epoch());
                let why = format!(
                    "the loader closes with a state of {}; the last batch taken says {}",
                    words(&outcome.state),
                    words(&rank.last)
                );
                let broken = Broken::new(of_rank(end.rank, self.asked.ranks.len(), why)).at(ended.at);
                return Err(Broken { rank: Some(end.rank), ..broken });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            example::{asked, got, resolved},
            fold,
        },
        *,
    };
    use crate::{
        check::design::{OwnLoader, RankEnd},
        loader::Settings,
        machine::Time,
        scenario::{Overrides, load},
        sim::Left,
    };

    /// Batches of a run of the crate's own loader, and how it ended.
    fn of_a_run() -> (Vec<crate::loader::Resolved>, Vec<Got>, RankEnd) {
        let sets = ["machine=reference-2core", "dataset.count=12", "loader.batch=4", "loader.epochs=2"];
        let scenario = load("quickstart", &Overrides::set(sets)).expect("a scenario");
        let base = crate::check::Base::new(&scenario, 12).expect("it fits");
        let case = crate::check::Case {
            scenario: base.scenario.clone(),
            chooser: crate::sim::Chooser::Fifo,
            timing: crate::sim::Timing::Modelled,
            resume_after: None,
        };
        let run = crate::check::run::run(&base, &case, &OwnLoader, None).expect("it runs");
        (run.plans, run.got, run.ends.into_iter().next().expect("it ended"))
    }

    fn judged(ranks: &[crate::loader::Resolved], got: &[Got], ends: &[RankEnd]) -> Result<(), String> {
        let ended = Ended { got, ends, stall: None, left: Left::default(), held_bytes_peak: 0, at: Time(0), leaves: false };
        fold(&mut StateKept::new(asked(ranks)), &[], &ended).map_err(|broken| broken.why)
    }

    #[test]
    fn books_that_close_with_another_state_than_that_of_the_last_batch_break_it() {
        let (ranks, got, end) = of_a_run();
        assert_eq!(got.len(), 6);
        assert_eq!(judged(&ranks, &got, std::slice::from_ref(&end)), Ok(()));
        let why = judged(&ranks, &got[..4], &[end]).expect_err("two batches were never taken");
        assert!(why.starts_with("the loader closes with a state of 6 batches"), "{why}");
    }

    #[test]
    fn a_state_that_counts_what_was_not_taken_breaks_it() {
        let (ranks, mut got, _) = of_a_run();
        got[1].state = got[2].state.clone();
        let why = judged(&ranks, &got[..2], &[]).expect_err("the state is of a later batch");
        assert_eq!(why, "batch 1: its state counts 3 batches, and its consumer has had 2");
    }

    #[test]
    fn an_epoch_that_goes_on_after_a_state_says_it_is_over_breaks_it() {
        let (ranks, mut all, _) = of_a_run();
        all[3].epoch = 0;
        let why = judged(&ranks, &all[..4], &[]).expect_err("the third batch was the last of its epoch");
        assert_eq!(why, "batch 3: batch 3 is of epoch 0, which the state before it says is over");
    }

    #[test]
    fn loaders_without_states_are_not_looked_at() {
        let ranks = resolved(Settings::new(4, 2, 1));
        assert_eq!(judged(&ranks, &[got(0, 0, &[0, 1])], &[]), Ok(()));
    }
}
