//! What a [recorded trace](crate::trace::recorded) of any loader shows of the invariants, and which of them it cannot show.
//!
//! A training loop sees batches: when it got them and, where its dataset tells, which samples are in them. Memory, slots, tasks and what a
//! loader does when it is stopped it does not see; [`NOT_SHOWN`] says so of each. Nothing is run: the scenario says what was to be
//! loaded, and the traces, one of each rank, what came.

use std::{collections::BTreeMap, io::BufRead};

use self::epoch::{Came, Epoch};
use crate::{
    document::{Diagnostic, Trouble},
    loader::{self, Plan, Settings, Shape},
    scenario::{OnErrors, Order, Scenario, Tail},
    trace::{
        Recorder,
        recorded::{self, Batch, Recorded},
    },
    units::Count,
};

mod epoch;
#[cfg(test)]
mod tests;

/// Every sample comes once in each epoch, or is told of as left out.
const EXACTLY_ONCE: &str = "exactly_once";
/// Samples rise in each epoch where nothing shuffles.
const ORDER_KEPT: &str = "order_kept";
/// Ranks share the samples, and have as many batches each.
const RANKS_SHARE: &str = "ranks_disjoint_complete_equal";
/// Batches are full but for an epoch's last, and as many as planned.
const BATCHES_WHOLE: &str = "batches_whole";
/// What was left out did not come, and may be left out.
const ERRORS_SURFACED: &str = "errors_surfaced_or_counted";
/// Shuffled epochs differ.
const EPOCHS_DIFFER: &str = "epochs_differ";

/// Invariants that no trace of a training loop can show, with the reason.
pub const NOT_SHOWN: [(&str, &str); 16] = [
    ("progress", "a trace tells what came, and not whether anything still would have: a loader that hangs records no end"),
    ("bytes_within_budget", "a training loop does not see the loader's memory"),
    ("slots_not_reused_early", "a training loop does not see where batches lie"),
    ("content_intact", "a trace has no content"),
    ("work_conservation", "a training loop does not see who waits inside the loader"),
    ("clean_stop", "what is left when a loader is stopped is behind the end of its trace"),
    ("streams_distinct", "a trace has no draws of the augmentation"),
    (super::relation::SAME_RUN, "a run on real threads is not repeated event for event"),
    (super::relation::SAME_ORDER, "that takes a second trace, with one worker"),
    (super::relation::RESUME_EXACT, "a trace has no states to go on from"),
    (super::relation::SEEDS_DIFFER, "that takes a second trace, with another seed"),
    (super::plan::PLAN_WHOLE, "that is of this crate's plans, before anything runs"),
    ("errors_justified", "a trace does not tell of errors that end a loader"),
    ("retries_justified", "a training loop does not see who is asked for a sample, and how often"),
    ("state_kept", "a trace has no states"),
    (super::redeal::REDEAL_EXACT, "a trace has no states to go on from"),
];

/// What a trace says of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds, as far as this was looked at.
    Held(String),
    /// It does not.
    Broken {
        /// How, where that is seen first.
        why: String,
        /// Name of the trace.
        file: String,
        /// The line, from 1.
        line: u64,
        /// In how many other places it is broken too.
        more: u64,
    },
    /// It cannot be judged, for this reason.
    NotJudged(String),
}

/// Traces that were judged.
#[derive(Debug)]
pub struct Judged {
    /// The traces, one of each rank.
    pub traces: Vec<Recorded>,
    /// Epochs in them.
    pub epochs: u64,
    /// Every invariant, those that were judged first.
    pub verdicts: Vec<(&'static str, Verdict)>,
    /// What shows that a trace is of another run than the scenario's, with the way to what it is of.
    pub differences: Vec<String>,
}

impl Judged {
    /// Whether nothing is broken.
    pub fn holds(&self) -> bool {
        !self.verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Broken { .. }))
    }
}

/// What was to be loaded.
struct Asked {
    count: u64,
    batch: u64,
    epochs: u32,
    /// Of each rank's epoch.
    shapes: Vec<Shape>,
    drop_last: bool,
    tail: Tail,
    /// Nothing shuffles, and samples come in the order of the plan.
    ordered: bool,
    shuffled: bool,
    skips: bool,
    leaves: bool,
}

impl Asked {
    /// What a rank gets of an epoch when no sample fails.
    fn due(&self, rank: usize) -> u64 {
        let Shape { samples, steps } = self.shapes[rank];
        samples.min(steps.saturating_mul(self.batch))
    }
}

/// Something that is broken, and where.
struct Found {
    rank: usize,
    line: u64,
    why: String,
    more: u64,
}

/// Judges traces, rank after rank.
pub struct TraceCheck {
    asked: Asked,
    names: Vec<String>,
    traces: Vec<Recorded>,
    /// The first epoch that some trace may not have the whole of, since it has no last line.
    cut: Option<u32>,
    epochs: BTreeMap<u32, Epoch>,
    /// How the epoch before the one that is judged went, rank after rank.
    before: Vec<Came>,
    judged: u64,
    found: BTreeMap<&'static str, Found>,
    has_indices: bool,
    tells_skipped: bool,
}

impl TraceCheck {
    /// Against what this scenario was to load, of a dataset of `count` samples.
    ///
    /// # Errors
    ///
    /// When the scenario has no batch for some rank.
    pub fn new(scenario: &Scenario, count: u64) -> Result<TraceCheck, Trouble> {
        recorded::bounded(count, scenario.places.of("dataset.count"))?;
        let loader = &scenario.loader;
        let ranks = scenario.ranks.count;
        let shape = |rank: u16| {
            let tail = match loader.tail {
                Tail::Uneven => loader::Tail::Uneven,
                Tail::Pad => loader::Tail::Pad,
                Tail::Drop => loader::Tail::Drop,
            };
            let batch = usize::try_from(loader.batch).unwrap_or(usize::MAX);
            let settings = Settings {
                drop_last: loader.drop_last,
                epochs: loader.epochs,
                rank: loader.rank + rank,
                world: loader.world,
                tail,
                ..Settings::new(count, batch, 1)
            };
            Plan::new(&settings).map(|plan| plan.shape(0)).map_err(|error| Trouble::from(scenario.explain(&error, 0, 0)))
        };
        let asked = Asked {
            count,
            batch: loader.batch,
            epochs: loader.epochs,
            shapes: (0..ranks).map(shape).collect::<Result<_, _>>()?,
            drop_last: loader.drop_last,
            tail: loader.tail,
            ordered: !loader.shuffle && loader.order == Order::Plan,
            shuffled: loader.shuffle,
            skips: loader.errors == OnErrors::Skip,
            leaves: scenario.consumer.leave_after.is_some(),
        };
        Ok(TraceCheck {
            asked,
            names: Vec::new(),
            traces: Vec::new(),
            cut: None,
            epochs: BTreeMap::new(),
            before: Vec::new(),
            judged: 0,
            found: BTreeMap::new(),
            has_indices: true,
            tells_skipped: false,
        })
    }

    /// Reads the trace of the next rank in `input`, which errors call `name`: see [`recorded::read`]. The trace of one rank alone is
    /// judged while it is read, epoch by epoch; those of several are kept, at 24 bytes a sample.
    ///
    /// # Errors
    ///
    /// When the trace is not what the format says, or is one too many.
    pub fn read(&mut self, name: &str, input: impl BufRead) -> Result<(), Trouble> {
        let (rank, ranks) = (self.traces.len(), self.asked.shapes.len());
        if rank == ranks {
            let wrong = Diagnostic::new(format!("`{name}` is a trace too many: the scenario has {ranks}, one of each rank"));
            return Err(wrong.hint(format!("`--set ranks.count={}`, when it is of another rank", ranks + 1)).into());
        }
        self.names.push(name.to_owned());
        let mut batches = Batches::default();
        let recorded = recorded::read(name, input, Recorder::new(), |batch| self.batch(rank, batch, &mut batches))?;
        let whole = recorded.ended && !self.asked.leaves;
        self.last_batch(rank, &batches, whole);
        if let Some(skipped) = &recorded.skipped_last {
            let epoch = self.epochs.entry(batches.epoch).or_default();
            let line = batches.line + 1;
            epoch.came.extend(skipped.iter().map(|index| Came { index: *index, rank: rank as u32, line, skipped: true }));
            self.tells_skipped = true;
        }
        if whole && batches.epoch + 1 < self.asked.epochs {
            let why = format!("{} epochs were to come, and {} did", self.asked.epochs, batches.epoch + 1);
            self.broken(EXACTLY_ONCE, rank, batches.line, why);
        }
        if batches.epoch >= self.asked.epochs {
            let why = format!("epoch {} came, counted from 0, and {} were to", batches.epoch, self.asked.epochs);
            self.broken(EXACTLY_ONCE, rank, batches.line, why);
        }
        self.has_indices &= recorded.has_indices;
        if !whole {
            self.cut = Some(self.cut.map_or(batches.epoch, |cut| cut.min(batches.epoch)));
        }
        self.traces.push(recorded);
        Ok(())
    }

    /// What the traces say.
    ///
    /// # Errors
    ///
    /// When there are fewer than ranks.
    pub fn finish(mut self) -> Result<Judged, Trouble> {
        let (traces, ranks) = (self.traces.len(), self.asked.shapes.len());
        if traces < ranks {
            let wrong = Diagnostic::new(format!("the scenario has {ranks} ranks, and there are traces of {traces}"));
            let one = format!("`--set ranks.count={traces}` with `loader.world` as it is judges these alone");
            return Err(wrong.expected("a trace of each rank, in their order").hint(one).into());
        }
        while let Some((number, epoch)) = self.epochs.pop_first() {
            self.judge(number, epoch);
        }
        let mut verdicts: Vec<(&'static str, Verdict)> =
            self.shown().into_iter().map(|(name, held)| (name, self.verdict(name, held))).collect();
        verdicts.sort_by_key(|(_, verdict)| matches!(verdict, Verdict::NotJudged(_)));
        verdicts.extend(NOT_SHOWN.map(|(name, why)| (name, Verdict::NotJudged(why.to_owned()))));
        let differences = self.differences();
        Ok(Judged { traces: self.traces, epochs: self.judged, verdicts, differences })
    }

    /// What shows that a trace is of another run than the scenario's.
    fn differences(&self) -> Vec<String> {
        let ranks = self.traces.iter().zip(&self.asked.shapes);
        ranks.filter_map(|(trace, shape)| trace.other_batch(self.asked.batch, shape.samples)).take(1).collect()
    }

    /// What each invariant comes to where it is not broken: held, in words, or why it is not judged.
    fn shown(&self) -> [(&'static str, Result<String, String>); 6] {
        let Asked { count, batch, shuffled, ordered, skips, .. } = self.asked;
        let no_indices = "its batches do not tell `indices`, which samples they have";
        let indexed = |held: String| if self.has_indices { Ok(held) } else { Err(no_indices.to_owned()) };
        let ranks = self.asked.shapes.len();
        let cut = if self.cut.is_none() { "" } else { ", the last epoch as far as it is recorded" };
        let once = match skips && !self.tells_skipped {
            true => indexed(format!(
                "none of {} samples came twice; it may skip some, and the trace does not tell `skipped`{cut}",
                Count(count)
            )),
            false => indexed(match self.judged {
                1 => format!("each of {} samples in the epoch{cut}", Count(count)),
                epochs => format!("each of {} samples in each of {epochs} epochs{cut}", Count(count)),
            }),
        };
        let order = match () {
            () if shuffled => Err("the scenario shuffles, and every loader shuffles in its own way".to_owned()),
            () if !ordered => Err("the scenario is in completion order".to_owned()),
            () => indexed("samples rise in each epoch".to_owned()),
        };
        let share = match ranks {
            1 => Err("the scenario has one rank".to_owned()),
            _ => indexed(format!("{ranks} ranks share the samples")),
        };
        let told = match self.tells_skipped {
            true => indexed("what was left out is told of, and did not come".to_owned()),
            false => Err("the trace does not tell `skipped`, what was left out".to_owned()),
        };
        let differ = match shuffled {
            false => Err("the scenario does not shuffle".to_owned()),
            true if self.judged < 2 => Err("it takes two epochs".to_owned()),
            true if self.asked.due(0) < super::invariant::EpochsDiffer::LEAST as u64 => {
                Err("so few samples come in the same order by chance".to_owned())
            }
            true => indexed("each epoch is in another order than the one before".to_owned()),
        };
        [
            (EXACTLY_ONCE, once),
            (BATCHES_WHOLE, Ok(format!("{} samples in each but an epoch's last", Count(batch)))),
            (ORDER_KEPT, order),
            (RANKS_SHARE, share),
            (ERRORS_SURFACED, told),
            (EPOCHS_DIFFER, differ),
        ]
    }

    fn verdict(&self, name: &'static str, held: Result<String, String>) -> Verdict {
        match (self.found.get(name), held) {
            (Some(Found { rank, line, why, more }), _) => {
                Verdict::Broken { why: why.clone(), file: self.names[*rank].clone(), line: *line, more: *more }
            }
            (None, Ok(held)) => Verdict::Held(held),
            (None, Err(why)) => Verdict::NotJudged(why),
        }
    }

    fn broken(&mut self, invariant: &'static str, rank: usize, line: u64, why: String) {
        let found = self.found.entry(invariant).and_modify(|found| found.more += 1);
        found.or_insert(Found { rank, line, why, more: 0 });
    }

    /// Takes a batch of a rank.
    fn batch(&mut self, rank: usize, batch: &Batch, batches: &mut Batches) {
        if batches.any && batches.epoch != batch.epoch {
            self.last_batch(rank, batches, true);
            if batch.epoch > batches.epoch + 1 {
                let why = format!("epoch {} comes after epoch {}", batch.epoch, batches.epoch);
                self.broken(EXACTLY_ONCE, rank, batch.line, why);
            }
            *batches = Batches::default();
            // Epochs of one rank alone are complete once the next begins.
            if self.asked.shapes.len() == 1 {
                while let Some(first) = self.epochs.first_entry().filter(|first| *first.key() < batch.epoch) {
                    let (number, epoch) = first.remove_entry();
                    self.judge(number, epoch);
                }
            }
        } else if !batches.any && batch.epoch > 0 {
            let why = format!("the first epoch is {}, and they count from 0", batch.epoch);
            self.broken(EXACTLY_ONCE, rank, batch.line, why);
        }
        if batches.any && batches.samples < self.asked.batch {
            let why = format!(
                "this batch has {} samples of {}, and is not the last of epoch {}",
                batches.samples, self.asked.batch, batches.epoch
            );
            self.broken(BATCHES_WHOLE, rank, batches.line, why);
        }
        if batch.samples > self.asked.batch {
            let why = format!("this batch has {} samples, and {} are a full one", batch.samples, self.asked.batch);
            self.broken(BATCHES_WHOLE, rank, batch.line, why);
        }
        let skipped = batch.skipped.as_deref().unwrap_or_default();
        self.tells_skipped |= batch.skipped.is_some();
        *batches = Batches {
            any: true,
            epoch: batch.epoch,
            line: batch.line,
            samples: batch.samples,
            steps: batches.steps + 1,
            skipped: batches.skipped + skipped.len() as u64,
        };
        let epoch = self.epochs.entry(batch.epoch).or_default();
        let came = |index: &u64, skipped| Came { index: *index, rank: rank as u32, line: batch.line, skipped };
        epoch.came.extend(skipped.iter().map(|index| came(index, true)));
        epoch.came.extend(batch.indices.iter().flatten().map(|index| came(index, false)));
    }

    /// Looks at the last batch of a rank's epoch; at how many there were too, where the epoch is `whole`.
    fn last_batch(&mut self, rank: usize, batches: &Batches, whole: bool) {
        let Batches { epoch, line, samples, steps, skipped, .. } = *batches;
        let Shape { steps: planned, .. } = self.asked.shapes[rank];
        if self.asked.drop_last && samples < self.asked.batch && whole {
            let why = format!("this batch has {samples} samples of {}, and `drop_last` is asked for", self.asked.batch);
            return self.broken(BATCHES_WHOLE, rank, line, why);
        }
        if !whole || skipped > 0 || self.asked.skips {
            return;
        }
        if steps != planned {
            let invariant = if self.asked.shapes.len() > 1 { RANKS_SHARE } else { BATCHES_WHOLE };
            let why = format!("epoch {epoch} has {steps} batches, and {planned} were planned");
            return self.broken(invariant, rank, line, why);
        }
        let last = self.asked.due(rank) - (planned - 1) * self.asked.batch;
        if samples != last && samples <= self.asked.batch {
            let why = format!("the last batch of epoch {epoch} has {samples} samples, and {last} were left for it");
            self.broken(BATCHES_WHOLE, rank, line, why);
        }
    }

    /// Judges an epoch of which everything is known.
    fn judge(&mut self, number: u32, epoch: Epoch) {
        self.judged += 1;
        let last = epoch.came.iter().map(|came| came.line).max().unwrap_or(1);
        // A trace that was cut off, or whose consumer left, says nothing of what would have come.
        let whole = self.cut.is_none_or(|cut| number < cut);
        for (invariant, Came { rank, line, .. }, why) in epoch.judge(number, &self.asked, whole && !self.gap_unknown(), last) {
            self.broken(invariant, rank as usize, line, why);
        }
        let mine: Vec<Came> = epoch.came.into_iter().filter(|came| !came.skipped).collect();
        let order = |came: &[Came]| -> Vec<(u32, u64)> { came.iter().map(|came| (came.rank, came.index)).collect() };
        let least = super::invariant::EpochsDiffer::LEAST;
        if self.asked.shuffled && mine.len() >= least && order(&mine) == order(&self.before) {
            let why = format!("epoch {number} comes in the order of the epoch before");
            self.broken(EPOCHS_DIFFER, 0, mine[0].line, why);
        }
        self.before = mine;
    }

    /// Whether a sample that did not come may have been skipped without a word.
    fn gap_unknown(&self) -> bool {
        self.asked.skips && !self.tells_skipped
    }
}

/// The batches of a rank's epoch so far.
#[derive(Clone, Copy, Debug, Default)]
struct Batches {
    any: bool,
    epoch: u32,
    /// Of the last one.
    line: u64,
    /// In the last one.
    samples: u64,
    steps: u64,
    skipped: u64,
}
