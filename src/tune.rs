//! How many workers, lanes and how much memory a loader needs: [`tune()`] finds the cheapest settings that meet a goal.
//!
//! ```text
//!  goals, costs, space ─▶ points, the cheapest first ─▶ search ⇄ simulations of a cut scenario, on all cores
//!                          │ impossible ones dropped      │
//!                          └ ceilings: which cannot       ▼
//!                            meet the goal             winner ─▶ verified: whole scenario, several seeds ─▶ Tuned
//!                                                         ▲             │ fails: the next
//!                                                         └─────────────┘
//! ```
//!
//! - A [`Goal`] is a figure that scenarios know and the value it must reach; a [`Cost`] is what a user must provide, known before
//!   anything runs: memory is the *budget* (what is set aside, not what happens to be used), cores are the pool's threads.
//! - The **winner** is the cheapest point that meets all goals: the least of the first cost; of those, the least of the second; and so on,
//!   then the least of the costs that nobody named, then the fewest threads, lanes, slots, prefetched batches, in this order.
//! - The **front** is over the named costs and the figure of the first goal, in steps of [half a percent](GRADES): every point of
//!   which no other costs no more and is as good.
//! - What the [search] excludes, it excludes exactly, and it tells what it only [presumed](search::Proof).
//!
//! Long epochs are cut to their first samples, for a figure of a steady state needs no million of them; throughput is then that without
//! start-up. What a cut promises, the verification has to keep. Where it does not, the cut overstates: from then on a point must meet the
//! goal by as much more as the worst of the rejected ones fell short of its promise, and the next winner is verified.

use std::{convert::Infallible, sync::Mutex};

use rayon::prelude::*;

use crate::{
    advise,
    model::MachineModel,
    report::Metrics,
    scenario::{Samples, Scenario, SimulateError},
    units::Size,
};

mod ceiling;
mod cost;
mod goal;
mod page;
pub mod search;
mod space;
mod tuned;

use ceiling::Ceiling;
pub use cost::Cost;
pub use goal::{Figure, Goal, expected, goals};
use search::{AXES, Found, Point, Search};
pub use space::{Asked, Axis, Field, POINTS_MAX, Settings, Space};
pub use tuned::{Choice, Limit, OnFront, Told, Tuned};

/// Steps of the front between nothing and the best that a figure can be, or the goal where that is not known.
pub const GRADES: f64 = 200.0;
/// Samples after which an epoch is cut, unless that leaves a rank fewer than [`BATCHES_LEAST`] batches.
pub const SAMPLES_MOST: u64 = 20_000;
/// Batches of a rank that are simulated at least.
pub const BATCHES_LEAST: u64 = 32;
/// Simulations after which the search ends.
pub const SIMULATIONS: usize = 2000;
/// Winners that may fail on the whole scenario before the search gives up.
const REJECTED_MOST: usize = 20;
/// The grade of a run without the figure.
const NO_GRADE: i64 = -(1 << 40);

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// What must be met; at least one goal. The first one's figure is the front's.
    pub goals: Vec<Goal>,
    /// What is to be cheap, the most important first; at least one cost.
    pub cheapest: Vec<Cost>,
    /// Values of settings; others are as [`Space::new`] has them.
    pub space: Asked,
    /// Samples of a simulation that only serves the search; `None` for [`SAMPLES_MOST`] and [`BATCHES_LEAST`].
    pub samples: Option<u64>,
    /// Seeds under which a winner must keep what it promises, from the scenario's on; at least one.
    pub seeds: u64,
    /// Simulations after which the search ends, whatever is still open.
    pub simulations: usize,
}

impl Question {
    /// These goals, the cheapest memory and then the fewest cores, three seeds, [`SIMULATIONS`].
    pub fn new(goals: Vec<Goal>) -> Question {
        Question {
            goals,
            cheapest: vec![Cost::Memory, Cost::Cores],
            space: Asked::default(),
            samples: None,
            seeds: 3,
            simulations: SIMULATIONS,
        }
    }
}

/// What tuning is at, for whoever waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many points may be the winner; at most so many are simulated.
    Searching {
        /// Points that can run.
        points: u64,
        /// Simulations at most.
        most: usize,
    },
    /// One more was simulated.
    Simulated,
    /// A winner is simulated as a whole.
    Verifying,
}

/// As much memory as nothing needs.
fn enough() -> Size {
    Size::new((1u64 << 20) as f64, "TiB")
}

/// A run of the search: the scenario cut, and how much of the whole it is.
struct Cut {
    samples: Samples,
    part: f64,
}

impl Cut {
    fn of(scenario: &Scenario, samples: &Samples, ranks: u64, asked: Option<u64>) -> Cut {
        let (batch, epochs) = (scenario.loader.batch, u64::from(scenario.loader.epochs));
        let round = batch.saturating_mul(ranks.max(u64::from(scenario.loader.world)));
        let all = samples.count().saturating_mul(epochs);
        let taken = scenario.consumer.leave_after.map_or(u64::MAX, |batches| batches.saturating_mul(round));
        let whole = all.min(taken);
        let most = asked.unwrap_or(SAMPLES_MOST.max(BATCHES_LEAST.saturating_mul(round)));
        // Whole batches for every rank, so that all are as busy as in the middle of an epoch.
        let kept = (most / epochs / round).max(2).saturating_mul(round);
        if whole <= most || kept >= samples.count() {
            return Cut { samples: samples.clone(), part: 1.0 };
        }
        let simulated = kept.saturating_mul(epochs).min(taken);
        Cut { samples: samples.first(kept), part: simulated as f64 / whole as f64 }
    }

    fn is_whole(&self) -> bool {
        self.part >= 1.0
    }
}

/// What is known of a combination of everything but the budget.
struct Combination {
    levels: [u16; AXES],
    /// The least budget it can do with \[B\].
    minimum_bytes: u64,
    /// What each rank holds from beginning to end \[B\].
    fixed_bytes: u64,
    /// For each goal, the best that its figure can be.
    ceilings: Vec<Option<f64>>,
}

/// Finds the cheapest settings of `scenario` on `machine` that meet the goals. See the [module documentation](self).
///
/// # Errors
///
/// When the scenario cannot be simulated as it is, or the space cannot be. That no point meets the goals is no error: it is in the
/// result, with the best that was reached.
pub fn tune(
    scenario: &Scenario,
    machine: &MachineModel,
    samples: &Samples,
    question: &Question,
    watch: &(dyn Fn(Progress) + Sync),
) -> Result<Tuned, SimulateError> {
    scenario.only_ours("cannot be tuned")?;
    let now = Settings::of(scenario, machine, samples)?;
    let ranks_asked = question.space.of(Field::Ranks).map_or_else(|| vec![now.ranks], <[u64]>::to_vec);
    let cut = Cut::of(scenario, samples, ranks_asked.iter().copied().max().unwrap_or(1), question.samples);
    let tuning = Tuning { scenario, machine, samples, cut, question };
    let as_it_is = tuning.whole(&now, false)?;
    let mut combinations = Vec::new();
    let least = |axes: &[Axis]| {
        combinations = tuning.combinations(axes, &[]);
        combinations.iter().map(|c| c.minimum_bytes).min()
    };
    let space = Space::new(&question.space, &now, scenario.loader.batch, machine, least)?;
    let ceilings = tuning.ceilings(&space)?;
    let combinations = tuning.combinations(&space.axes, &ceilings);
    let points = tuning.points(&space, &combinations);
    let (possible, hopeless) = (points.len(), points.iter().filter(|p| !p.may_meet).count());
    watch(Progress::Searching { points: possible as u64, most: question.simulations.min(possible) });

    let figures: Vec<Mutex<Option<Vec<Option<f64>>>>> = points.iter().map(|_| Mutex::new(None)).collect();
    let figures_at = |at: usize| figures[at].lock().expect("nobody panics with it").clone();
    let levels: Vec<[u16; AXES]> = points.iter().map(|p| p.levels).collect();
    let mut search = Search::new(points, question.simulations);
    let mut rejected: Vec<usize> = Vec::new();
    let mut kept = vec![1.0; question.goals.len()];
    let winner = loop {
        let Ok(()) = search.run(|at| -> Result<Found, Infallible> {
            let told = tuning.cut_run(&space.at(&levels[at])).ok();
            let values: Vec<Option<f64>> =
                question.goals.iter().map(|g| told.as_ref().and_then(|m| g.figure.of(m, tuning.cut.part))).collect();
            let found = tuning.judged(&values, &kept);
            *figures[at].lock().expect("nobody panics with it") = Some(values);
            watch(Progress::Simulated);
            Ok(found)
        });
        let Some(at) = search.winner() else { break None };
        watch(Progress::Verifying);
        let promised = figures_at(at).unwrap_or_default();
        match tuning.whole(&space.at(&levels[at]), true) {
            Ok(choice) if choice.meets => break Some(choice),
            Ok(choice) => {
                for (goal, told) in choice.figures.iter().enumerate().filter(|(_, told)| !told.met) {
                    if let (Some(promised), Some(came)) = (promised[goal], told.worst) {
                        let part = if promised > 0.0 { came / promised } else { 1.0 };
                        kept[goal] = if told.figure.more_is_better() { part.min(kept[goal]) } else { part.max(kept[goal]) };
                    }
                }
            }
            // One that does not come to its end says nothing about others.
            Err(_) => {}
        }
        rejected.push(at);
        if rejected.len() >= REJECTED_MOST {
            break None;
        }
        search
            .reconsider(|at| !rejected.contains(&at) && figures_at(at).is_some_and(|values| tuning.judged(&values, &kept).meets));
    };
    let end = winner.as_ref().and(search.winner()).unwrap_or(levels.len());
    let promised = |at: &usize| figures_at(*at).is_some_and(|values| tuning.judged(&values, &vec![1.0; kept.len()]).meets);
    let put_off = (0..end).filter(|at| !rejected.contains(at)).filter(promised).count();
    let figure = |at: usize| figures_at(at).and_then(|values| values[0]);
    let on_front = |at: usize| {
        let settings = space.at(&levels[at]);
        let meets = search.found(at).is_some_and(|f| f.meets);
        Some(OnFront { settings, costs: tuning.costs(&settings), figure: figure(at)?, meets })
    };
    let front: Vec<OnFront> = search.front().into_iter().filter_map(on_front).collect();
    let simulated: Vec<OnFront> = (0..levels.len()).filter(|at| search.found(*at).is_some()).filter_map(on_front).collect();
    let limit = if winner.is_none() { tuning.limit(&search, &space, &levels, &combinations) } else { None };
    Ok(Tuned {
        scenario: scenario.name.clone(),
        machine: machine.title.clone(),
        goals: question.goals.clone(),
        cheapest: question.cheapest.clone(),
        seeds: tuning.seeds(),
        samples: tuning.cut.samples.count(),
        samples_of: samples.count(),
        points: space.points(),
        impossible: space.points() - possible as u64,
        hopeless: hopeless as u64,
        ceilings: !ceilings.iter().all(|(_, c)| c.is_none()),
        simulated: search.evaluated() as u64,
        proof: search.proof(),
        as_it_is,
        winner,
        rejected: rejected.iter().map(|at| space.at(&levels[*at])).collect(),
        put_off: put_off as u64,
        limit,
        front,
        all: simulated,
        space,
    })
}

/// Everything that stays the same while it searches.
struct Tuning<'a> {
    scenario: &'a Scenario,
    machine: &'a MachineModel,
    samples: &'a Samples,
    cut: Cut,
    question: &'a Question,
}

impl Tuning<'_> {
    fn seeds(&self) -> Vec<u64> {
        (0..self.question.seeds.max(1)).map(|n| self.scenario.seed.wrapping_add(n)).collect()
    }

    /// The figures of a cut run.
    fn cut_run(&self, settings: &Settings) -> Result<Metrics, SimulateError> {
        advise::figures(&settings.on(self.scenario), self.machine, &self.cut.samples)
    }

    /// The whole scenario under all seeds: the worst of each figure counts. One that has to meet the goals is simulated under the first
    /// seed alone when it fails there.
    fn whole(&self, settings: &Settings, must_meet: bool) -> Result<Choice, SimulateError> {
        let one = |seed: &u64| {
            let scenario = Scenario { seed: *seed, ..settings.on(self.scenario) };
            advise::figures(&scenario, self.machine, self.samples)
        };
        let seeds = self.seeds();
        let first = if must_meet { 1 } else { seeds.len() };
        let mut runs: Vec<Metrics> = seeds[..first].par_iter().map(one).collect::<Result<_, _>>()?;
        if self.question.goals.iter().all(|goal| runs.iter().all(|m| goal.met_by(goal.figure.of(m, 1.0)))) {
            runs.extend(seeds[first..].par_iter().map(one).collect::<Result<Vec<_>, _>>()?);
        }
        let told = |goal: &Goal| {
            let values: Option<Vec<f64>> = runs.iter().map(|m| goal.figure.of(m, 1.0)).collect();
            let worst = values.as_deref().map(|v| {
                let worse = |a: f64, b: f64| if goal.figure.more_is_better() { a.min(b) } else { a.max(b) };
                v.iter().copied().reduce(worse).expect("there is a seed")
            });
            Told { figure: goal.figure, worst, met: goal.met_by(worst) }
        };
        let figures: Vec<Told> = self.question.goals.iter().map(told).collect();
        Ok(Choice {
            settings: *settings,
            costs: self.costs(settings),
            meets: figures.iter().all(|t| t.met),
            figures,
            peak_bytes_in_flight: runs.iter().filter_map(|m| m.peak_bytes_in_flight).max().unwrap_or(0),
            bottleneck: runs[0].bottleneck.name.clone(),
        })
    }

    /// The named costs, in their order.
    fn costs(&self, settings: &Settings) -> Vec<u64> {
        self.question.cheapest.iter().map(|cost| cost.of(settings)).collect()
    }

    /// The limits by number of ranks.
    fn ceilings(&self, space: &Space) -> Result<Vec<(u64, Option<Ceiling>)>, SimulateError> {
        let ranks = &space.axes[5].values;
        let ceiling = |ranks: &u64| {
            let settings = Settings { ranks: *ranks, ..Settings::of(self.scenario, self.machine, self.samples)? };
            let ceiling = match Ceiling::of(&settings.on(self.scenario), self.machine, &self.cut.samples) {
                // A number of ranks that cannot be is no point of the space, and not this one's fault.
                Err(SimulateError::Input(_)) => None,
                other => other?,
            };
            Ok((*ranks, ceiling))
        };
        ranks.iter().map(ceiling).collect()
    }

    /// All combinations of everything but the budget that can run with a budget that is large enough.
    fn combinations(&self, axes: &[Axis], ceilings: &[(u64, Option<Ceiling>)]) -> Vec<Combination> {
        let len = |axis: usize| axes[axis].values.len();
        let [threads, lanes, ring, prefetch, ranks] = [0, 1, 2, 3, 5].map(len);
        let combination = |n: usize| {
            let n = (n, n / threads, n / threads / lanes, n / threads / lanes / ring, n / threads / lanes / ring / prefetch);
            let levels = [n.0 % threads, n.1 % lanes, n.2 % ring, n.3 % prefetch, 0, n.4 % ranks].map(|level| level as u16);
            let value = |axis: usize| axes[axis].values[usize::from(levels[axis])];
            let settings = Settings {
                threads: value(0),
                lanes: value(1),
                ring: value(2),
                prefetch: value(3),
                budget_bytes: enough().as_bytes(),
                ranks: value(5),
            };
            let scenario = settings.on(self.scenario);
            let resolved = scenario.settings(settings.threads, &self.cut.samples).ok()?.resolve().ok()?;
            let ceiling = ceilings.iter().find(|(ranks, _)| *ranks == settings.ranks).and_then(|(_, c)| c.as_ref());
            let best = |goal: &Goal| ceiling?.of_figure(goal.figure, &settings, self.cut.is_whole());
            Some(Combination {
                levels,
                minimum_bytes: resolved.minimum_bytes,
                fixed_bytes: resolved.fixed_bytes,
                ceilings: self.question.goals.iter().map(best).collect(),
            })
        };
        (0..threads * lanes * ring * prefetch * ranks).into_par_iter().filter_map(combination).collect()
    }

    /// All points that can run, the cheapest first.
    fn points(&self, space: &Space, combinations: &[Combination]) -> Vec<Point> {
        let goals = &self.question.goals;
        let mut keyed: Vec<(Vec<u64>, Point)> = combinations
            .par_iter()
            .flat_map_iter(|combination| {
                let ceiling = |goal: usize| match goals[goal].figure {
                    // What is held from beginning to end is the least that is ever held.
                    Figure::PeakBytesInFlight => Some(combination.fixed_bytes as f64),
                    // A hair above, for figures are sums in another order.
                    _ => combination.ceilings[goal].map(|most| most * (1.0 + 1e-9)),
                };
                let may_meet = (0..goals.len()).all(|g| ceiling(g).is_none_or(|most| goals[g].met_by(Some(most))));
                let grade_most = self.grade_most(ceiling(0));
                let budgets = space.axes[4].values.iter().enumerate();
                budgets.filter(|(_, bytes)| **bytes >= combination.minimum_bytes).map(move |(level, _)| {
                    let mut levels = combination.levels;
                    levels[4] = level as u16;
                    let settings = space.at(&levels);
                    let named = self.question.cheapest.iter();
                    let others = Cost::ALL.iter().filter(|cost| !self.question.cheapest.contains(cost));
                    let key: Vec<u64> = named.chain(others).map(|cost| cost.of(&settings)).collect();
                    let mut costs = [0; search::COSTS];
                    let named = self.question.cheapest.len();
                    costs[..named].copy_from_slice(&key[..named]);
                    (key, Point { levels, costs, grade_most, may_meet })
                })
            })
            .collect();
        keyed.par_sort_by(|(a, p), (b, q)| a.cmp(b).then(p.levels.cmp(&q.levels)));
        keyed.into_iter().map(|(_, point)| point).collect()
    }

    /// The step between two grades of the first goal's figure.
    fn unit(&self) -> f64 {
        let goal = &self.question.goals[0];
        let loader = &self.scenario.loader;
        let step_s = self.scenario.consumer.step.as_secs_f64();
        let best = match goal.figure {
            Figure::AcceleratorUtilization => 1.0,
            Figure::Throughput if step_s > 0.0 => loader.batch as f64 * f64::from(self.scenario.ranks.count) / step_s,
            _ => goal.value,
        };
        if best > 0.0 { best / GRADES } else { 1.0 }
    }

    fn grade(&self, value: Option<f64>) -> i64 {
        let Some(value) = value else { return NO_GRADE };
        let steps = (value / self.unit()).round().clamp(0.0, (1u64 << 39) as f64) as i64;
        if self.question.goals[0].figure.more_is_better() { steps } else { -steps }
    }

    /// The best grade that there can be.
    fn grade_most(&self, ceiling: Option<f64>) -> i64 {
        match (self.question.goals[0].figure, ceiling) {
            (_, Some(most)) => self.grade(Some(most)),
            (Figure::AcceleratorUtilization, None) => self.grade(Some(1.0)),
            (Figure::Throughput, None) => i64::MAX,
            (_, None) => 0,
        }
    }

    /// What values of the goals' figures say, when only the part `kept` of each can be counted on.
    fn judged(&self, values: &[Option<f64>], kept: &[f64]) -> Found {
        let goals = self.question.goals.iter().zip(values.iter().zip(kept));
        let unmet = || goals.clone().filter(|(goal, (value, kept))| !goal.met_by(value.map(|v| v * *kept)));
        let by_more = |figure| matches!(figure, Figure::Throughput | Figure::AcceleratorUtilization | Figure::TimeToFirstBatch);
        Found {
            grade: self.grade(values[0]),
            meets: unmet().next().is_none(),
            lacks: unmet().any(|(goal, _)| by_more(goal.figure)),
        }
    }

    /// What stands in the way where no point meets the goals: the best that was reached, and what limits it.
    fn limit(&self, search: &Search, space: &Space, levels: &[[u16; AXES]], combinations: &[Combination]) -> Option<Limit> {
        let known = (0..levels.len()).filter_map(|at| Some((at, search.found(at)?)));
        let (at, _) = known.max_by_key(|(at, found)| (found.meets, found.grade, std::cmp::Reverse(*at)))?;
        let settings = space.at(&levels[at]);
        let metrics = self.cut_run(&settings).ok()?;
        let goals = &self.question.goals;
        let told = |goal: &Goal| {
            let worst = goal.figure.of(&metrics, self.cut.part);
            Told { figure: goal.figure, worst, met: goal.met_by(worst) }
        };
        let best = |goal: usize| {
            let all: Option<Vec<f64>> = combinations.iter().map(|c| c.ceilings[goal]).collect();
            all.and_then(|all| all.into_iter().reduce(f64::max))
        };
        Some(Limit {
            settings,
            costs: self.costs(&settings),
            figures: goals.iter().map(told).collect(),
            ceilings: (0..goals.len()).map(best).collect(),
            bound: metrics.bounds.limits.first().cloned(),
            bottleneck: metrics.bottleneck,
        })
    }
}

#[cfg(test)]
mod tests;
