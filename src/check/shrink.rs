//! From a failure to the smallest case that still fails in the same way.
//!
//! First what is loaded and by how many, then what goes wrong, then the schedule. Numbers go down together as long as they can, since a
//! window of batches is only crossed by fewer samples where batches are smaller too, and then one by one. A smaller case has other choices
//! to make, so each is tried under a few schedules: first come, first served, then the one it had, then others by chance, and under many
//! others once it gets no smaller. In the end the choices that differ from the default are deleted by halves, as in delta debugging (Zeller and
//! Hildebrandt, 2002). The same invariant has to stay broken, and the number of runs is bounded.

use super::{
    case::{Base, Case, count, cut},
    design::Design,
    look::{Looked, compare_for, look},
    run::{Finding, Run},
    swarm::fit_budget,
};
use crate::{
    fault::{Faults, Hits, Leaf},
    machine::{Item, Op},
    sim::{Chooser, Tape},
    trace::StageId,
};

/// Looks that shrinking one failure may take.
pub const LOOKS_MOST: u64 = 4000;

/// Schedules that a smaller case is tried under, beside first come, first served and its own: at first, and when it gets no smaller.
const OTHER_SCHEDULES: [u64; 2] = [3, 40];

/// The smallest case that was found.
pub struct Shrunk {
    /// The case.
    pub case: Case,
    /// How it fails.
    pub finding: Finding,
    /// Its run.
    pub run: Run,
    /// Looks that it took.
    pub looks: u64,
    /// How large the case was that failed first.
    pub from: Size,
}

impl Shrunk {
    /// How large it is.
    pub fn size(&self) -> Size {
        Size::of(&self.case, &self.run)
    }
}

/// How large a case is, and its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Samples of the dataset.
    pub samples: u64,
    /// Epochs.
    pub epochs: u32,
    /// Lanes, where the case says how many.
    pub lanes: Option<u64>,
    /// Families of faults that hit anything.
    pub faults: usize,
    /// Choices that differ from first come, first served.
    pub choices: usize,
    /// Events of the run.
    pub events: usize,
}

impl Size {
    /// Of a case and its run.
    pub(super) fn of(case: &Case, run: &Run) -> Size {
        let Case { scenario, .. } = case;
        let faults = families(&scenario.faults).iter().filter(|hits| !hits.samples.is_empty() || hits.ppm > 0).count();
        Size {
            samples: count(scenario),
            epochs: scenario.loader.epochs,
            lanes: scenario.loader.lanes,
            faults,
            choices: run.tape.len(),
            events: run.events.len(),
        }
    }
}

/// Numbers at most so far above the least are tried one by one.
const EACH_BELOW: u64 = 16;

struct Shrinker<'a> {
    base: &'a Base,
    design: &'a dyn Design,
    best: Shrunk,
    other_schedules: u64,
}

/// Shrinks a case that fails.
pub(super) fn shrink(base: &Base, design: &dyn Design, case: Case, finding: Finding, run: Run) -> Shrunk {
    let from = Size::of(&case, &run);
    let best = Shrunk { case, finding, run, looks: 0, from };
    let mut shrinker = Shrinker { base, design, best, other_schedules: 0 };
    for other_schedules in OTHER_SCHEDULES {
        shrinker.other_schedules = other_schedules;
        loop {
            let before = shrinker.size();
            shrinker.settings();
            shrinker.together();
            shrinker.faults();
            if shrinker.size() >= before || shrinker.is_spent() {
                break;
            }
        }
        // A schedule that everybody has needs no others.
        if shrinker.best.case.chooser == Chooser::Fifo {
            break;
        }
    }
    shrinker.tape();
    shrinker.best
}

/// Reads a number of a case.
type Get = fn(&Case) -> u64;
/// Writes it.
type Set = fn(&mut Case, u64);

impl Shrinker<'_> {
    fn is_spent(&self) -> bool {
        self.best.looks >= LOOKS_MOST
    }

    /// How large the case is, to see whether a round has made it smaller.
    fn size(&self) -> u64 {
        let Case { scenario, resume_after, .. } = &self.best.case;
        let loader = &scenario.loader;
        let faults = families(&scenario.faults)
            .iter()
            .map(|hits| hits.samples.iter().map(|s| 1 + s).sum::<u64>() + u64::from(hits.ppm))
            .sum::<u64>();
        count(scenario) * u64::from(loader.epochs)
            + loader.lanes.unwrap_or(64)
            + loader.threads.unwrap_or(64)
            + loader.batch
            + loader.ring.unwrap_or(64)
            + loader.prefetch
            + loader.copies
            + loader.device_stage.map_or(0, |_| 1 + loader.device_stage_limit)
            + scenario.consumer.hold
            + u64::from(scenario.ranks.count)
            + u64::from(loader.retries)
            + resume_after.unwrap_or(0)
            + faults
    }

    /// Takes the case if it fails in the same way, under one of a few schedules.
    fn take(&mut self, case: Case) -> bool {
        let own = case.chooser.clone();
        let seed = case.scenario.seed;
        let others = (1..=self.other_schedules).map(|k| match own {
            Chooser::Pct { depth, length, .. } => Chooser::Pct { seed: seed.wrapping_add(k), depth, length },
            _ => Chooser::Random(seed.wrapping_add(k)),
        });
        let mut schedules: Vec<Chooser> = vec![Chooser::Fifo];
        if own != Chooser::Fifo {
            schedules.push(own.clone());
            schedules.extend(others);
        }
        schedules.into_iter().any(|chooser| self.take_as_is(Case { chooser, ..case.clone() }))
    }

    fn take_as_is(&mut self, case: Case) -> bool {
        if self.is_spent() {
            return false;
        }
        self.best.looks += 1;
        let invariant = self.best.finding.invariant;
        // A smaller case that does not fit together is none.
        let looked = look(self.base, case, self.design, compare_for(invariant), Some(invariant));
        let Ok(Looked { case, run, finding: Some(finding), .. }) = looked else { return false };
        self.best = Shrunk { case, finding, run, ..self.best };
        true
    }

    fn with(&self, change: impl FnOnce(&mut Case)) -> Case {
        let mut case = self.best.case.clone();
        change(&mut case);
        case
    }

    /// Lowers a number as far as it goes, the least first: small ones by each that is less, since a case may fail with few samples and
    /// with many and not between, others by halves.
    fn lower(&mut self, get: Get, set: Set, least: u64) {
        let mut fails_not = least;
        while get(&self.best.case) > least && !self.is_spent() {
            let now = get(&self.best.case);
            let candidates = match now - least {
                few if few <= EACH_BELOW => (least..now).collect(),
                _ => vec![least, fails_not + (now - fails_not) / 2, now - 1],
            };
            let taken = candidates.into_iter().find(|value| {
                *value < now && {
                    let case = self.with(|case| set(case, *value));
                    self.take(case) || {
                        fails_not = fails_not.max(*value).min(now - 1);
                        false
                    }
                }
            });
            if taken.is_none() {
                break;
            }
        }
    }

    /// Clears a field that need not be there.
    fn clear(&mut self, there: fn(&Case) -> bool, clear: fn(&mut Case)) {
        if there(&self.best.case) {
            let case = self.with(clear);
            self.take(case);
        }
    }

    /// Lowers all numbers at once as far as they go: to a quarter, to half, to three quarters.
    fn together(&mut self) {
        let smaller = |n: u64, quarters: u64, least: u64| (n * quarters / 4).max(least);
        let mut all_at = 1;
        while all_at < 4 && !self.is_spent() {
            let before = self.size();
            let case = self.with(|case| {
                let scale = |n: u64, least: u64| smaller(n, all_at, least);
                let samples = scale(count(&case.scenario), 1);
                cut(&mut case.scenario, samples);
                let loader = &mut case.scenario.loader;
                loader.batch = scale(loader.batch, 1);
                loader.lanes = loader.lanes.map(|n| scale(n, 1));
                loader.threads = loader.threads.map(|n| scale(n, 1));
                loader.ring = loader.ring.map(|n| scale(n, loader.batch));
                loader.prefetch = scale(loader.prefetch, 1);
                let consumer = &mut case.scenario.consumer;
                consumer.hold = scale(consumer.hold, 1);
                consumer.leave_after = consumer.leave_after.map(|n| scale(n, 1));
                case.resume_after = case.resume_after.map(|n| scale(n, 0));
            });
            let taken = self.take(case) && self.size() < before;
            all_at = if taken { all_at } else { all_at + 1 };
        }
    }

    fn settings(&mut self) {
        self.lower(|c| u64::from(c.scenario.loader.epochs), |c, n| c.scenario.loader.epochs = n as u32, 1);
        self.lower(|c| count(&c.scenario), |c, n| cut(&mut c.scenario, n), 1);
        self.lower(
            |c| u64::from(c.scenario.ranks.count),
            |c, n| {
                c.scenario.ranks.count = n as u16;
                c.scenario.loader.world = n as u16;
            },
            1,
        );
        if self.best.case.scenario.loader.lanes.is_none() {
            let lanes = self.best.run.plans.first().map_or(1, |plan| plan.settings.lanes as u64);
            let threads = self.best.run.plans.first().map_or(1, |_| 4);
            let case = self.with(|case| {
                case.scenario.loader.lanes = Some(lanes);
                case.scenario.loader.threads = Some(threads);
            });
            self.take(case);
        }
        self.lower(|c| c.scenario.loader.lanes.unwrap_or(1), |c, n| c.scenario.loader.lanes = Some(n), 1);
        self.lower(|c| c.scenario.loader.threads.unwrap_or(1), |c, n| c.scenario.loader.threads = Some(n), 1);
        self.lower(|c| c.scenario.loader.batch, |c, n| c.scenario.loader.batch = n, 1);
        self.lower(|c| c.scenario.loader.prefetch, |c, n| c.scenario.loader.prefetch = n, 0);
        self.lower(|c| c.scenario.loader.copies, |c, n| c.scenario.loader.copies = n, 1);
        self.clear(|c| c.scenario.loader.device_stage.is_some(), |c| c.scenario.loader.device_stage = None);
        self.lower(|c| c.scenario.loader.device_stage_limit, |c, n| c.scenario.loader.device_stage_limit = n, 1);
        self.lower(|c| c.scenario.consumer.hold, |c, n| c.scenario.consumer.hold = n, 1);
        self.lower(|c| u64::from(c.scenario.loader.retries), |c, n| c.scenario.loader.retries = n as u16, 0);
        self.lower(|c| c.scenario.consumer.leave_after.unwrap_or(1), |c, n| c.scenario.consumer.leave_after = Some(n), 1);
        self.lower(|c| c.resume_after.unwrap_or(0), |c, n| c.resume_after = Some(n), 0);
        self.clear(|c| c.scenario.consumer.leave_after.is_some(), |c| c.scenario.consumer.leave_after = None);
        self.clear(|c| c.scenario.loader.fetch_limit.is_some(), |c| c.scenario.loader.fetch_limit = None);
        self.clear(|c| c.scenario.loader.decode_limit.is_some(), |c| c.scenario.loader.decode_limit = None);
        self.clear(|c| c.scenario.loader.ring.is_some(), |c| c.scenario.loader.ring = None);
        self.lower(|c| c.scenario.loader.ring.unwrap_or(1), |c, n| c.scenario.loader.ring = Some(n), 1);
        self.clear(
            |c| !c.scenario.consumer.step.is_zero(),
            |c| c.scenario.consumer.step = crate::units::Duration::new(0.0, "ms"),
        );
        let fitted = self.with(|case| fit_budget(self.base, &mut case.scenario));
        if fitted.scenario.loader.budget > self.best.case.scenario.loader.budget {
            self.take(fitted);
        }
    }

    fn faults(&mut self) {
        for family in 0..families(&Faults::default()).len() {
            let hits = families(&self.best.case.scenario.faults)[family].clone();
            if hits == Hits::NONE {
                continue;
            }
            let case = self.with(|case| *families_mut(&mut case.scenario.faults)[family] = Hits::NONE);
            if self.take(case) {
                continue;
            }
            // The first sample is left when there are few.
            if hits != Hits::samples([0]) {
                let case = self.with(|case| *families_mut(&mut case.scenario.faults)[family] = Hits::samples([0]));
                if self.take(case) {
                    continue;
                }
            }
            if hits.ppm > 0 {
                let listed = hit_by(&self.best.case, family);
                let case = self.with(|case| *families_mut(&mut case.scenario.faults)[family] = Hits::samples(listed));
                self.take(case);
            }
            let listed = families(&self.best.case.scenario.faults)[family].clone();
            if listed.ppm == 0 {
                self.delete(listed.samples, |case, samples| {
                    *families_mut(&mut case.scenario.faults)[family] = Hits::samples(samples);
                });
            }
        }
    }

    /// The schedule as a tape, with as few choices that differ from the default as it takes.
    fn tape(&mut self) {
        if let Chooser::Random(_) | Chooser::Pct { .. } = self.best.case.chooser {
            let tape = self.best.run.tape.clone();
            let case = self.with(|case| case.chooser = Chooser::Replay(tape));
            self.take_as_is(case);
        }
        if let Chooser::Replay(tape) = &self.best.case.chooser {
            let choices: Vec<(u64, u32)> = tape.iter().collect();
            self.delete(choices, |case, choices| case.chooser = Chooser::Replay(choices.into_iter().collect::<Tape>()));
        }
    }

    /// Deletes as many of `all` as can go, by halves, quarters, and so on.
    fn delete<T: Clone>(&mut self, mut all: Vec<T>, set: impl Fn(&mut Case, Vec<T>)) {
        let mut chunk = all.len();
        while chunk > 0 && !self.is_spent() {
            let mut at = 0;
            while at < all.len() && !self.is_spent() {
                let end = (at + chunk).min(all.len());
                let rest = [&all[..at], &all[end..]].concat();
                let case = self.with(|case| set(case, rest.clone()));
                match self.take_as_is(case) {
                    true => all = rest,
                    false => at = end,
                }
            }
            chunk /= 2;
        }
    }
}

/// The families of faults, in the order of their fields.
pub(super) fn families(faults: &Faults) -> [&Hits; 12] {
    let f = faults;
    [
        &f.missing,
        &f.truncated,
        &f.undecodable,
        &f.panicking,
        &f.transient,
        &f.throttled,
        &f.stalled,
        &f.slow_reads,
        &f.slow_jobs,
        &f.failed_copies,
        &f.failed_kernels,
        &f.slow_kernels,
    ]
}

fn families_mut(faults: &mut Faults) -> [&mut Hits; 12] {
    let f = faults;
    [
        &mut f.missing,
        &mut f.truncated,
        &mut f.undecodable,
        &mut f.panicking,
        &mut f.transient,
        &mut f.throttled,
        &mut f.stalled,
        &mut f.slow_reads,
        &mut f.slow_jobs,
        &mut f.failed_copies,
        &mut f.failed_kernels,
        &mut f.slow_kernels,
    ]
}

/// Samples, or batches, that a family hits at the first try of the first epoch.
fn hit_by(case: &Case, family: usize) -> Vec<u64> {
    let scenario = &case.scenario;
    let mut alone = Faults { slow_times: scenario.faults.slow_times, ..Faults::default() };
    *families_mut(&mut alone)[family] = families(&scenario.faults)[family].clone();
    let hit = |sample: &u64| {
        let item = Item { epoch: 0, position: *sample, sample: *sample };
        let op = |stage| Op { stage, item, ..Op::default() };
        let leaves = [
            (StageId::FETCH, Leaf::Read),
            (StageId::DECODE, Leaf::Cpu),
            (StageId::TRANSFER, Leaf::Copy),
            (StageId::DEVICE, Leaf::Kernel),
        ];
        leaves.into_iter().any(|(stage, leaf)| alone.verdict(scenario.seed, &op(stage), leaf).is_some())
    };
    (0..count(scenario)).filter(hit).collect()
}
