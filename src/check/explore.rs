//! Many seeds, on all cores.

use std::{
    num::NonZero,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use super::{
    case::{Base, Case, SAMPLES},
    design::{Design, OwnLoader},
    look::{Looked, judge, look},
    marks::Coverage,
    plan,
    run::{Finding, Run, run_into},
    shrink::{Shrunk, Size, shrink},
    swarm::{self, Compare, Schedule},
};
use crate::{
    document::{Diagnostic, Trouble},
    scenario::Scenario,
    sim::{Chooser, Enumeration},
};

/// Failures that are kept when all are wanted.
pub const FAILURES_MOST: usize = 32;

/// Checks a scenario's loader, or another of one's own, under many seeds. See the [module documentation](super).
pub struct Check<'a> {
    scenario: Scenario,
    design: &'a dyn Design,
    seeds: u64,
    jobs: usize,
    samples: u64,
    schedule: Schedule,
    swarm: bool,
    twice_every: u64,
    shard: (u64, u64),
    all: bool,
    shrinks: bool,
}

/// A check of this scenario with its defaults: a thousand seeds from the scenario's own on, random schedules, all cores, up to its first
/// failure.
///
/// ```
/// use towtank::{check, scenario::{self, Overrides}};
///
/// let scenario = scenario::load("flaky-store", &Overrides::default())?;
/// let checked = check(&scenario).seeds(20).swarm(true).run()?;
/// assert!(checked.failures.is_empty(), "{}", checked.failures[0].story());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(scenario: &Scenario) -> Check<'static> {
    Check {
        scenario: scenario.clone(),
        design: &OwnLoader,
        seeds: 1000,
        jobs: thread::available_parallelism().map_or(1, NonZero::get),
        samples: SAMPLES,
        schedule: Schedule::default(),
        swarm: false,
        twice_every: swarm::TWICE_EVERY,
        shard: (0, 1),
        all: false,
        shrinks: true,
    }
}

impl<'a> Check<'a> {
    /// Checks another loader than the crate's own.
    #[must_use]
    pub fn design<'b>(self, design: &'b dyn Design) -> Check<'b>
    where
        'a: 'b,
    {
        Check { design, ..self }
    }

    /// How many seeds, from the scenario's own on; of [all schedules](Schedule::Exhaustive) of one seed, at most how many.
    #[must_use]
    pub fn seeds(self, seeds: u64) -> Check<'a> {
        Check { seeds, ..self }
    }

    /// On how many threads; at least one.
    #[must_use]
    pub fn jobs(self, jobs: usize) -> Check<'a> {
        Check { jobs: jobs.max(1), ..self }
    }

    /// Samples that the dataset is cut to.
    #[must_use]
    pub fn samples(self, samples: u64) -> Check<'a> {
        Check { samples, ..self }
    }

    /// Who decides what happens next.
    #[must_use]
    pub fn schedule(self, schedule: Schedule) -> Check<'a> {
        Check { schedule, ..self }
    }

    /// Whether each seed also draws small settings, faults and spreads.
    #[must_use]
    pub fn swarm(self, swarm: bool) -> Check<'a> {
        Check { swarm, ..self }
    }

    /// Every so many seeds, or schedules of one, one is run twice, and both runs must be the same, event for event; at least 1, which is
    /// every one.
    #[must_use]
    pub fn twice_every(self, seeds: u64) -> Check<'a> {
        Check { twice_every: seeds.max(1), ..self }
    }

    /// Only every `of`-th seed, from the `index`-th on.
    #[must_use]
    pub fn shard(self, index: u64, of: u64) -> Check<'a> {
        Check { shard: (index, of.max(1)), ..self }
    }

    /// Whether to go on after a failure.
    #[must_use]
    pub fn all(self, all: bool) -> Check<'a> {
        Check { all, ..self }
    }

    /// Whether failures are made smaller.
    #[must_use]
    pub fn shrinks(self, shrinks: bool) -> Check<'a> {
        Check { shrinks, ..self }
    }

    /// Explores.
    ///
    /// # Errors
    ///
    /// When the scenario does not fit its machine or itself, or has the images of a folder, or when [all schedules](Schedule::Exhaustive)
    /// of one seed are to be a shard of many.
    pub fn run(self) -> Result<Checked, Trouble> {
        self.run_watched(&|_| {})
    }

    /// Explores, and tells on the way how far it is.
    ///
    /// # Errors
    ///
    /// As [`run`](Check::run).
    pub fn run_watched(self, watch: &(dyn Fn(Step) + Sync)) -> Result<Checked, Trouble> {
        let base = Base::new(&self.scenario, self.samples)?;
        if self.schedule == Schedule::Exhaustive && self.shard != (0, 1) {
            let wrong = Diagnostic::new("all schedules of one seed are no shard of many seeds");
            return Err(wrong.hint("leave `--shard` out, or take `--chooser pct:3`").into());
        }
        let mut schedules = None;
        let planned = base.plan_case();
        let (broken_plan, run) = plan::look(&base, &planned)?;
        let broken_plan = broken_plan.map(|finding| Found { number: 0, case: planned, finding, run });
        let seeds = if broken_plan.is_some() && !self.all { 0 } else { self.seeds };
        let shared = Shared { next: AtomicU64::new(0), least_failed: AtomicU64::new(u64::MAX), trouble: Mutex::default() };
        let parts: Vec<Part> = match self.schedule {
            _ if seeds == 0 => Vec::new(),
            Schedule::Exhaustive => {
                let (part, looked) = self.enumerate(&base, watch)?;
                schedules = Some(looked);
                vec![part]
            }
            _ => thread::scope(|scope| {
                let works: Vec<_> = (0..self.jobs).map(|_| scope.spawn(|| self.work(&base, &shared, watch))).collect();
                works.into_iter().map(|work| work.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
            }),
        };
        if let Some(trouble) = shared.trouble.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(trouble);
        }
        let mut checked = Checked {
            scenario: self.scenario.name.clone(),
            samples: base.samples(),
            batch: base.batch(),
            whole: base.whole,
            seeds: 0,
            schedules,
            runs: 0,
            events: 0,
            simulated_ns: 0,
            coverage: Coverage::new(),
            failures: Vec::new(),
            more_failures: 0,
        };
        let mut found: Vec<Found> = broken_plan.into_iter().collect();
        for part in parts {
            checked.seeds += part.seeds;
            checked.runs += part.runs;
            checked.events += part.events;
            checked.simulated_ns += part.simulated_ns;
            checked.coverage.join(&part.coverage);
            checked.more_failures += part.more;
            found.extend(part.found);
        }
        found.sort_by_key(|found| found.number);
        let keep = if self.all { FAILURES_MOST } else { 1 };
        checked.more_failures = if self.all { checked.more_failures + found.len().saturating_sub(keep) as u64 } else { 0 };
        found.truncate(keep);
        checked.failures = found
            .into_iter()
            .map(|found| {
                let seed = found.case.scenario.seed;
                watch(Step::Shrinking { seed });
                let Found { case, finding, run, .. } = found;
                let shrunk = match self.shrinks {
                    true => shrink(&base, self.design, case, finding, run),
                    false => {
                        let from = Size::of(&case, &run);
                        Shrunk { case, finding, run, looks: 0, from }
                    }
                };
                Failure { seed, scenario: self.scenario.name.clone(), shrunk }
            })
            .collect();
        Ok(checked)
    }

    /// All schedules of the scenario's own seed, one after the other, each judged by the invariants.
    fn enumerate(&self, base: &Base, watch: &(dyn Fn(Step) + Sync)) -> Result<(Part, Schedules), Trouble> {
        let first = swarm::case(base, self.scenario.seed, self.schedule, self.swarm);
        let (mut part, mut schedules) = (Part { seeds: 1, ..Part::new() }, Enumeration::new());
        while schedules.seen() < self.seeds.max(1)
            && let Some(tape) = schedules.next()
        {
            let case = Case { chooser: Chooser::Replay(tape), ..first.clone() };
            let run = run_into(base, &case, self.design, None, schedules.journal())?;
            let twice = schedules.seen().is_multiple_of(self.twice_every);
            let compare = if twice { Compare::Again } else { Compare::Nothing };
            let looked = judge(base, case, self.design, compare, None, run)?;
            part.count(&looked, watch);
            if let Some(finding) = looked.finding {
                match part.found.is_empty() {
                    true => part.found.push(Found { number: 0, case: looked.case, finding, run: looked.run }),
                    false => part.more += 1,
                }
                if !self.all {
                    break;
                }
            }
        }
        let seen = Schedules { seen: schedules.seen(), all: schedules.is_over() };
        Ok((part, seen))
    }

    /// What one thread does: the next seed, until there is none.
    fn work(&self, base: &Base, shared: &Shared, watch: &(dyn Fn(Step) + Sync)) -> Part {
        let mut part = Part::new();
        let (index, of) = self.shard;
        loop {
            // Numbers are given out in order, so that whoever stops at the first failure stops at the least seed that fails.
            let number = index + of * shared.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.seeds || !self.all && number > shared.least_failed.load(Ordering::Relaxed) {
                return part;
            }
            let seed = self.scenario.seed.wrapping_add(number);
            let case = swarm::case(base, seed, self.schedule, self.swarm);
            let compare = swarm::compare(number, self.twice_every, self.swarm);
            let looked = match look(base, case, self.design, compare, None) {
                Ok(looked) => looked,
                Err(trouble) => {
                    shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(trouble);
                    shared.least_failed.store(0, Ordering::Relaxed);
                    return part;
                }
            };
            part.seeds += 1;
            part.count(&looked, watch);
            if let Some(finding) = looked.finding {
                shared.least_failed.fetch_min(number, Ordering::Relaxed);
                match part.found.len() < FAILURES_MOST {
                    true => part.found.push(Found { number, case: looked.case, finding, run: looked.run }),
                    false => part.more += 1,
                }
            }
        }
    }
}

/// How many schedules of a case were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedules {
    /// So many, each another.
    pub seen: u64,
    /// Whether there are no others.
    pub all: bool,
}

/// What threads share.
struct Shared {
    next: AtomicU64,
    least_failed: AtomicU64,
    trouble: Mutex<Option<Trouble>>,
}

/// What one thread found.
struct Part {
    seeds: u64,
    runs: u64,
    events: u64,
    simulated_ns: u128,
    coverage: Coverage,
    found: Vec<Found>,
    /// Failures that were not kept.
    more: u64,
}

impl Part {
    fn new() -> Part {
        Part { seeds: 0, runs: 0, events: 0, simulated_ns: 0, coverage: Coverage::new(), found: Vec::new(), more: 0 }
    }

    fn count(&mut self, looked: &Looked, watch: &(dyn Fn(Step) + Sync)) {
        self.runs += looked.runs;
        self.events += looked.run.events.len() as u64;
        self.simulated_ns += u128::from(looked.run.end.0);
        self.coverage.add(looked.reached);
        watch(Step::Seed { simulated_ns: looked.run.end.0 });
    }
}

struct Found {
    number: u64,
    case: Case,
    finding: Finding,
    run: Run,
}

/// How far an exploration is.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// One more seed was looked at, in which so much time was simulated.
    Seed {
        /// Simulated time (ns).
        simulated_ns: u64,
    },
    /// A failure is being made smaller.
    Shrinking {
        /// Its seed.
        seed: u64,
    },
}

/// What an exploration found.
pub struct Checked {
    /// Name of the scenario.
    pub scenario: String,
    /// Samples that its dataset was cut to.
    pub samples: u64,
    /// Samples in a batch.
    pub batch: u64,
    /// Samples that it has.
    pub whole: u64,
    /// Seeds that were looked at.
    pub seeds: u64,
    /// How many schedules of the one seed, where [all](Schedule::Exhaustive) were wanted.
    pub schedules: Option<Schedules>,
    /// Runs that it took, those that were compared with included.
    pub runs: u64,
    /// Events of the seeds' own runs.
    pub events: u64,
    /// Time that they simulated (ns).
    pub simulated_ns: u128,
    /// What they reached.
    pub coverage: Coverage,
    /// What failed: the first, or the first [`FAILURES_MOST`] where all are wanted.
    pub failures: Vec<Failure>,
    /// How many more failed.
    pub more_failures: u64,
}

/// A seed that failed.
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Name of the scenario.
    pub scenario: String,
    /// The smallest case that fails in the same way.
    pub shrunk: Shrunk,
}
