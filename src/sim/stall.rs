//! The report on a simulation that came to nothing.

use std::{collections::BTreeSet, fmt, panic::Location};

use super::{Tape, machine::Core, node::Node};
use crate::{
    fault,
    machine::{Item, Standing, Time},
    trace::{Recorder, StageId},
};

mod circle;
mod waits;

/// Why a simulation ended before its root task did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StallReason {
    /// Nothing can happen any more: no task is ready, no leaf is under way that will end, no alarm is set.
    Stuck,
    /// Tasks were polled so often without the clock moving: a livelock.
    PollsPerInstant(u64),
    /// Tasks were polled so often in all.
    Polls(u64),
    /// So many events were recorded.
    Events(u64),
    /// The clock would have passed this time.
    Time(Time),
}

/// What a task waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// Nothing: it is ready to run.
    Turn,
    /// An instant.
    Sleep {
        /// When.
        until: Time,
    },
    /// A leaf.
    Leaf {
        /// Of which kind.
        kind: fault::Leaf,
        /// Of which stage.
        stage: StageId,
        /// For which sample or batch.
        item: Item,
        /// Which try, from 0.
        attempt: u16,
        /// What has become of it.
        state: &'static str,
        /// Since when it is in that state, or was submitted.
        since: Time,
    },
    /// The end of a train step.
    Step,
    /// Something that tasks share and that the machine [watches](crate::machine::Machine::watch).
    Shared {
        /// What, as the rest of a sentence: see [`Wait::what`](crate::machine::Wait::what).
        what: String,
        /// Those of whom at least one has to do something first; empty where that is not known.
        on: Vec<On>,
    },
    /// Something that the machine knows nothing of: a channel, a lock, another task.
    Unknown,
}

/// Who is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct On {
    /// [Number](Waiting::number) of the task; `None` when it has ended, or is no task of the simulation.
    pub task: Option<u32>,
    /// What it has or has not done, as the rest of a sentence.
    pub what: String,
}

/// A task that had not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// By which it is told from others of its name: no two tasks that live at the same time have the same. The root task is 0.
    pub number: u32,
    /// Its name.
    pub task: &'static str,
    /// Where it was spawned.
    pub spawned_at: &'static Location<'static>,
    /// What it waits for.
    pub on: WaitsFor,
}

/// A resource, and who is there: on all nodes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depth {
    /// What it is called.
    pub resource: &'static str,
    /// Leaves it is working on.
    pub busy: usize,
    /// Leaves it can work on at a time; `None` is without bound.
    pub places: Option<usize>,
    /// Leaves that wait for it.
    pub waiting: usize,
    /// Where some wait, those that have a place: the [number](Waiting::number) of the task that waits for the leaf, `None` when it was
    /// given up, and what the leaf is.
    pub holders: Vec<(Option<u32>, String)>,
}

/// A memory account, of all nodes together; its peak is then the sum of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// Which.
    pub account: &'static str,
    /// Charged now (B).
    pub used_bytes: u64,
    /// Charged at most (B).
    pub peak_bytes: u64,
}

impl Depth {
    /// The same resources of two nodes, or of more, as one.
    fn all_of(mut all: Vec<Depth>, of_another: Vec<Depth>) -> Vec<Depth> {
        for one in of_another {
            // Of devices that nobody has used nothing is told.
            let Some(sum) = all.iter_mut().find(|sum| sum.resource == one.resource) else {
                all.push(one);
                continue;
            };
            sum.busy += one.busy;
            sum.places = sum.places.zip(one.places).map(|(all, more)| all + more);
            sum.waiting += one.waiting;
        }
        all
    }
}

impl Balance {
    /// The same accounts of two nodes, or of more, as one.
    fn all_of(mut all: Vec<Balance>, of_another: Vec<Balance>) -> Vec<Balance> {
        for (sum, one) in all.iter_mut().zip(of_another) {
            sum.used_bytes += one.used_bytes;
            sum.peak_bytes += one.peak_bytes;
        }
        all
    }
}

/// A simulation that ended before its root task did: why, when, and who was waiting for what.
#[derive(thiserror::Error)]
pub struct Stall {
    /// Why.
    pub reason: StallReason,
    /// When.
    pub at: Time,
    /// Every task that had not finished, in the order of their numbers.
    pub waiting: Vec<Waiting>,
    /// [Numbers](Waiting::number) of tasks that wait for each other in a circle: each for the next, the last for the first. Empty where
    /// none is known.
    pub circle: Vec<u32>,
    /// Every resource.
    pub depths: Vec<Depth>,
    /// Leaves given up that were still running.
    pub running_alone: usize,
    /// Every memory account.
    pub accounts: Vec<Balance>,
    /// The trace until then.
    pub recorder: Recorder,
    /// The choices made, where [`Config::keep_tape`](super::Config::keep_tape) says so.
    pub tape: Option<Tape>,
    /// In abstract time, what went wrong with samples for good: see [`Outcome::hit`](super::Outcome::hit).
    pub hit: Option<fault::Faults>,
}

impl Stall {
    /// Looks at a run that does not go on. The recorder goes with the report.
    pub(super) fn of(core: &mut Core, reason: StallReason, standings: Vec<Standing>) -> Box<Stall> {
        let waiting = waits::all(core, standings);
        let circle = circle::find(&waiting);
        let world = &core.world;
        let mut depths = world.nodes.iter().map(Node::depths).reduce(Depth::all_of).unwrap_or_default();
        let waits::Places { threads, connections, engines, kernels, lock } = waits::Places::of(world);
        let places =
            [("pool", threads), ("connections", connections), ("copy engines", engines), ("kernels", kernels), ("lock", lock)];
        for (resource, holders) in places {
            if let Some(depth) = depths.iter_mut().find(|depth| depth.resource == resource && depth.waiting > 0) {
                depth.holders = holders;
            }
        }
        let accounts = world.nodes.iter().map(Node::balances).reduce(Balance::all_of).unwrap_or_default();
        Box::new(Stall {
            reason,
            at: Time(world.now),
            waiting,
            circle,
            depths,
            running_alone: world.running_alone(),
            accounts,
            hit: world.outstanding.as_ref().map(|outstanding| outstanding.hit()),
            recorder: std::mem::take(&mut core.world.recorder),
            tape: None,
        })
    }
}

impl fmt::Display for StallReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StallReason::Stuck => write!(f, "nothing can happen any more, and the root task has not finished"),
            StallReason::PollsPerInstant(polls) => write!(f, "tasks were polled {polls} times without the clock moving"),
            StallReason::Polls(polls) => write!(f, "the limit of {polls} polls of tasks is reached"),
            StallReason::Events(events) => write!(f, "the limit of {events} events is reached"),
            StallReason::Time(limit) => write!(f, "the limit of {limit} of simulated time is reached"),
        }
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitsFor::Turn => write!(f, "ready to run"),
            WaitsFor::Sleep { until } => write!(f, "sleeps until {until}"),
            WaitsFor::Step => write!(f, "waits for the end of its train step"),
            WaitsFor::Shared { what, .. } => write!(f, "{what}"),
            WaitsFor::Unknown => write!(f, "waits for something that is no leaf: a channel, a lock, another task"),
            WaitsFor::Leaf { kind, stage, item, attempt, state, since } => {
                write!(f, "waits for {}", waits::words(*kind, item.sample))?;
                match stage.name() {
                    Some(name) => write!(f, ", stage {name}")?,
                    None => write!(f, ", stage {}", stage.0)?,
                }
                if item.epoch > 0 {
                    write!(f, ", epoch {}", item.epoch)?;
                }
                if *attempt > 0 {
                    write!(f, ", retry {attempt}")?;
                }
                write!(f, ": {state}, since {since}")
            }
        }
    }
}

/// Those who are named where many are waited for.
const NAMED: usize = 4;

impl Stall {
    /// A task as a sentence names it.
    fn name(&self, number: u32) -> String {
        let known = self.waiting.binary_search_by_key(&number, |task| task.number);
        format!("{} #{number}", known.map_or("a task", |k| self.waiting[k].task))
    }

    /// Who is waited for, and why.
    fn because(&self, on: &[On]) -> String {
        let words = on.iter().take(NAMED).map(|on| match on.task {
            Some(number) => format!("{} {}", self.name(number), on.what),
            None => format!("somebody who is gone {}", on.what),
        });
        let words = words.collect::<Vec<_>>().join(", ");
        let colon = if on.is_empty() { "" } else { ": " };
        let more = on.len().saturating_sub(NAMED);
        if more > 0 { format!("{colon}{words}, and {more} more") } else { format!("{colon}{words}") }
    }

    /// What one of the circle waits for, of the next.
    fn link(&self, from: u32, to: u32) -> String {
        let known = self.waiting.binary_search_by_key(&from, |task| task.number);
        let Some(WaitsFor::Shared { what, on }) = known.ok().map(|k| &self.waiting[k].on) else { return self.name(from) };
        let on: Vec<On> = on.iter().find(|on| on.task == Some(to)).cloned().into_iter().collect();
        format!("{} {what}{}", self.name(from), self.because(&on))
    }

    /// The tasks that a report tells apart by their numbers.
    fn numbered(&self) -> BTreeSet<u32> {
        let mut numbered: BTreeSet<u32> =
            self.depths.iter().flat_map(|depth| &depth.holders).filter_map(|(task, _)| *task).collect();
        for waiting in &self.waiting {
            if let WaitsFor::Shared { on, .. } = &waiting.on {
                numbered.insert(waiting.number);
                numbered.extend(on.iter().filter_map(|on| on.task));
            }
        }
        numbered
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "stalled at {}: {}", self.at, self.reason)?;
        if !self.circle.is_empty() {
            writeln!(f, "in a circle:")?;
            let next = self.circle.iter().cycle().skip(1);
            self.circle.iter().zip(next).try_for_each(|(from, to)| writeln!(f, "  {}", self.link(*from, *to)))?;
        }
        let numbered = self.numbered();
        let mut tasks: Vec<(&Waiting, usize)> = Vec::new();
        for waiting in &self.waiting {
            let alike = |last: &Waiting| {
                let told = [last.number, waiting.number].iter().any(|number| numbered.contains(number));
                !told && (last.task, last.spawned_at, &last.on) == (waiting.task, waiting.spawned_at, &waiting.on)
            };
            match tasks.last_mut() {
                Some((last, times)) if alike(last) => *times += 1,
                _ => tasks.push((waiting, 1)),
            }
        }
        writeln!(f, "tasks:")?;
        for (Waiting { number, task, spawned_at, on }, times) in tasks {
            let times = if times > 1 { format!(" ({times} alike)") } else { String::new() };
            let name = if numbered.contains(number) { self.name(*number) } else { (*task).to_owned() };
            let because = if let WaitsFor::Shared { on, .. } = on { self.because(on) } else { String::new() };
            writeln!(f, "  {name}{times} {on}{because}")?;
            writeln!(f, "    spawned at {}:{}", spawned_at.file(), spawned_at.line())?;
        }
        writeln!(f, "resources:")?;
        for Depth { resource, busy, places, waiting, holders } in &self.depths {
            let by = holders.iter().take(NAMED).map(|(task, leaf)| match task {
                Some(number) => format!("{leaf}, of {}", self.name(*number)),
                None => format!("{leaf}, which was given up"),
            });
            let by = by.collect::<Vec<_>>().join("; ");
            let more = holders.len().saturating_sub(NAMED);
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            let by = if holders.is_empty() { String::new() } else { format!(", held by {by}{more}") };
            match places {
                Some(places) => writeln!(f, "  {resource}: {busy} of {places} taken, {waiting} waiting{by}")?,
                None => writeln!(f, "  {resource}: {busy} active, {waiting} waiting{by}")?,
            }
        }
        if self.running_alone > 0 {
            writeln!(f, "  {} leaves that were given up still run", self.running_alone)?;
        }
        writeln!(f, "memory:")?;
        for Balance { account, used_bytes, peak_bytes } in &self.accounts {
            writeln!(f, "  {account}: {used_bytes} B, at most {peak_bytes} B")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Stall {
    /// The report itself: what a failed `unwrap` in a test should print.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
