//! One run of a case, and what invariants say of it.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use super::{
    case::{Base, Case},
    design::{Design, Got, Job, OwnLoader, RankEnd, Seen},
    invariant::{self, Account, Asked, Broken, Ended},
};
use crate::{
    document::Trouble,
    failure::Failure,
    fault::Faults,
    loader::{Resolved, State},
    machine::Time,
    scenario::{all_ranks, barrier_of},
    sim::{self, Journal, Left, Limits, Simulation, Stall, Tape},
    trace::{Checkpoints, Event, Recorder, TraceHash},
};

/// When a run of a small scenario is given up. Nobody waits for its clock, so that may pass through many of the longest steps and pauses that
/// a scenario can have.
const LIMITS: Limits =
    Limits { polls_per_instant: 200_000, polls: 20_000_000, events: 2_000_000, time_ns: 200 * 365 * 24 * 3600 * 1_000_000_000 };

/// The name under which a panic of the loader is reported.
pub(super) const NO_PANIC: &str = "no_panic";

/// What came of a run.
#[derive(Debug, Default)]
pub struct Run {
    /// Hash of its trace.
    pub hash: u64,
    /// Its trace.
    pub events: Vec<Event>,
    /// Hashes on its way.
    pub checkpoints: Checkpoints,
    /// Name of the loader, where it is not this crate's.
    pub design: Option<String>,
    /// What consumers got, rank after rank, each in order.
    pub got: Vec<Got>,
    /// How ranks ended that did.
    pub ends: Vec<RankEnd>,
    /// The report, when it came to nothing.
    pub stall: Option<Box<Stall>>,
    /// What the loader panicked with, when it did; there is no trace then.
    pub panic: Option<String>,
    /// The choices that differed from the default.
    pub tape: Tape,
    /// In abstract time, what went wrong with samples for good.
    pub hit: Option<Faults>,
    /// What was left at the end.
    pub left: Left,
    /// The most bytes in slots and in batches on the device, on a node.
    pub held_bytes_peak: u64,
    /// When it ended.
    pub end: Time,
    /// What each rank was to load.
    pub plans: Vec<Resolved>,
    /// Whether consumers were to leave early.
    pub leaves: bool,
}

/// What is broken, and in which way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the invariant or the relation.
    pub invariant: &'static str,
    /// How it is broken.
    pub broken: Broken,
}

/// What the ranks of a run go on from.
#[derive(Clone, Debug)]
pub(super) enum From {
    /// States of this crate's, with which settings and plans are made.
    States(Vec<State>),
    /// States of the design's own after so many batches, which only the design can read.
    Saved(Vec<Vec<u8>>, u64),
}

/// Runs cases that a run is compared with, and counts them.
pub(super) struct Compared<'a> {
    pub(super) base: &'a Base,
    pub(super) design: &'a dyn Design,
    pub(super) runs: u64,
}

impl<'a> Compared<'a> {
    pub(super) fn new(base: &'a Base, design: &'a dyn Design) -> Compared<'a> {
        Compared { base, design, runs: 0 }
    }

    /// Runs a case, from these states where there are any.
    ///
    /// # Errors
    ///
    /// As [`run`].
    pub(super) fn run(&mut self, case: &Case, from: Option<&From>) -> Result<Run, Trouble> {
        self.runs += 1;
        run(self.base, case, self.design, from)
    }
}

/// Runs a case. `from` are the states that its ranks go on from, when they do.
///
/// # Errors
///
/// When the scenario does not fit the machine or itself.
pub(super) fn run(base: &Base, case: &Case, design: &dyn Design, from: Option<&From>) -> Result<Run, Trouble> {
    run_into(base, case, design, from, &Journal::new())
}

/// Runs a case, and enters its choices in the journal. `from` are the states that its ranks go on from, when they do.
///
/// # Errors
///
/// When the scenario does not fit the machine or itself.
pub(super) fn run_into(
    base: &Base,
    case: &Case,
    design: &dyn Design,
    from: Option<&From>,
    journal: &Journal,
) -> Result<Run, Trouble> {
    let mut config = base.config(&case.scenario)?;
    config.limits = LIMITS;
    config.chooser = case.chooser.clone();
    config.timing = case.timing;
    let mut plans = base.plans(&case.scenario)?;
    if let Some(From::States(states)) = from {
        for (plan, state) in plans.iter_mut().zip(states) {
            let settings = crate::loader::Settings { resume: Some(state.clone()), ..plan.settings.clone() };
            *plan = settings.resolve().map_err(|error| Trouble::from(case.scenario.explain(&error, 0, 0)))?;
        }
    }
    let saved = match from {
        Some(From::Saved(saved, batches)) => Some((saved.as_slice(), *batches)),
        Some(From::States(_)) | None => None,
    };
    Ok(simulate(config, plans, case, design, saved, journal))
}

fn simulate(
    config: sim::Config,
    plans: Vec<Resolved>,
    case: &Case,
    design: &dyn Design,
    saved: Option<(&[Vec<u8>], u64)>,
    journal: &Journal,
) -> Run {
    let seen = Rc::new(RefCell::new(Seen::default()));
    let (consumer, ranks) = (&case.scenario.consumer, case.scenario.ranks);
    let barrier = barrier_of(&ranks);
    let first = plans.first().map_or(0, |plan| plan.settings.rank);
    let root = |machine: sim::SimMachine<crate::machine::Tags>| {
        let barrier = barrier.map(|barrier| barrier.watched(&machine, "the ranks' barrier"));
        let load = |resolved: &Resolved| {
            let node = machine.on_node(ranks.node_of(resolved.settings.rank - first));
            let job = Job::new(node.clone(), resolved.clone(), consumer.clone(), barrier.clone(), seen.clone());
            let saved = saved.and_then(|(of_ranks, batches)| {
                of_ranks.get(usize::from(resolved.settings.rank - first)).map(|saved| (saved.clone(), batches))
            });
            let job = match saved {
                Some((saved, batches)) => job.resuming(saved, batches),
                None => job,
            };
            design.load(node, job)
        };
        let loads = plans.iter().map(load).collect();
        all_ranks(machine, loads)
    };
    let simulation =
        Simulation::new(config).recorder(Recorder::new().without_summary().keep_events().keep_checkpoints()).journal(journal);
    let ended = catch_unwind(AssertUnwindSafe(|| simulation.run(root)));
    let mut run = match ended {
        Ok(Ok(mut outcome)) => Run {
            hash: outcome.recorder.hash(),
            checkpoints: outcome.recorder.checkpoints().cloned().unwrap_or_default(),
            events: outcome.recorder.take_events(),
            hit: outcome.hit.take(),
            left: outcome.left,
            held_bytes_peak: outcome.slots_bytes_peak.saturating_add(outcome.device_bytes_peak),
            end: outcome.end,
            ..Run::default()
        },
        Ok(Err(mut stall)) => Run {
            hash: stall.recorder.hash(),
            checkpoints: stall.recorder.checkpoints().cloned().unwrap_or_default(),
            events: stall.recorder.take_events(),
            end: stall.at,
            hit: stall.hit.take(),
            stall: Some(stall),
            ..Run::default()
        },
        Err(payload) => Run { panic: Some(Failure::panicked(&*payload).message.to_string()), ..Run::default() },
    };
    Seen { got: run.got, ends: run.ends } = std::mem::take(&mut *seen.borrow_mut());
    run.design = Some(design.name()).filter(|name| *name != OwnLoader::NAME).map(str::to_owned);
    run.tape = journal.tape();
    run.got.sort_by_key(|got| got.rank);
    run.leaves = consumer.leave_after.is_some();
    run.plans = plans;
    run.count_ranks_from(first);
    run
}

impl Run {
    /// Counts ranks from the first that was simulated, so that their numbers are those of the plans.
    fn count_ranks_from(&mut self, first: u16) {
        if first == 0 {
            return;
        }
        self.events.iter_mut().for_each(|event| event.rank -= first);
        self.got.iter_mut().for_each(|got| got.rank -= first);
        self.ends.iter_mut().for_each(|end| end.rank -= first);
    }

    /// How it ended, for invariants.
    pub fn ended(&self) -> Ended<'_> {
        Ended {
            got: &self.got,
            ends: &self.ends,
            stall: self.stall.as_deref(),
            left: self.left,
            held_bytes_peak: self.held_bytes_peak,
            at: self.end,
            leaves: self.leaves,
        }
    }

    /// What it breaks, invariant after invariant; only the one of this name, when there is one.
    pub fn judge(&self, case: &Case, only: Option<&str>) -> Option<Finding> {
        let wanted = |name: &str| only.is_none_or(|only| only == name);
        if let Some(words) = &self.panic {
            let finding = Finding { invariant: NO_PANIC, broken: Broken::new(format!("the loader panicked: {words}")) };
            return wanted(NO_PANIC).then_some(finding);
        }
        // What may fail by a rate in abstract time need not: what did is known.
        let faults = self.hit.as_ref().unwrap_or(&case.scenario.faults);
        let asked = Asked { ranks: &self.plans, faults, seed: case.scenario.seed };
        let ended = self.ended();
        let account = Account::new(&self.events, &ended);
        invariant::all(asked).into_iter().filter(|invariant| wanted(invariant.name())).find_map(|mut invariant| {
            let broken = account.judge(&mut *invariant).err()?;
            Some(Finding { invariant: invariant.name(), broken })
        })
    }

    /// Batches of a rank, in order.
    pub fn got_by(&self, rank: u16) -> impl Iterator<Item = &Got> {
        self.got.iter().filter(move |got| got.rank == rank)
    }

    /// Hash of all that consumers got, batch by batch, without times.
    pub fn content_hash(&self) -> u64 {
        let mut hash = TraceHash::EMPTY;
        let mut word = |a: u64, b: u64, c: u32, rank: u16| {
            hash.update(&Event { sample: a, bytes: b, epoch: c, rank, ..NOTHING });
        };
        for got in &self.got {
            word(got.index, got.items.len() as u64, got.epoch, got.rank);
            got.items.iter().for_each(|item| word(item.sample, item.position, item.epoch, got.rank));
            got.draws.iter().for_each(|draw| word(*draw, 0, got.epoch, got.rank));
        }
        hash.get()
    }
}

/// An event that says nothing.
const NOTHING: Event = Event {
    time: Time::ZERO,
    since: Time::ZERO,
    sample: 0,
    bytes: 0,
    epoch: 0,
    rank: 0,
    stage: crate::trace::StageId::LOADER,
    kind: crate::trace::Kind::Launch,
};
