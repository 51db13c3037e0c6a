//! The report on a simulation that came to nothing.

use std::{fmt, panic::Location};

use super::{
    Tape,
    executor::{TaskView, Waiter},
    leaf::Phase,
    machine::Core,
    node::Node,
    timers::Alarm,
    wake::TaskId,
};
use crate::{
    fault,
    machine::{Item, Time},
    trace::{Recorder, StageId},
};

/// Why a simulation ended before its root task did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StallReason {
    /// Nothing can happen any more: no task is ready, no leaf is under way that will end, no alarm is set.
    Stuck,
    /// Tasks were polled so often without the clock moving: a livelock.
    PollsPerInstant(u64),
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
    /// Something that the machine knows nothing of: a channel, a lock, another task.
    Unknown,
}

/// A task that had not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
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
        for (sum, one) in all.iter_mut().zip(of_another) {
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
    /// Every task that had not finished, in the order of their slots.
    pub waiting: Vec<Waiting>,
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
    pub(super) fn of(core: &mut Core, reason: StallReason) -> Box<Stall> {
        let waiting = core
            .tasks
            .views()
            .map(|task| Waiting { task: task.name, spawned_at: task.place, on: waits_for(core, &task) })
            .collect();
        let world = &core.world;
        let depths = world.nodes.iter().map(Node::depths).reduce(Depth::all_of).unwrap_or_default();
        let accounts = world.nodes.iter().map(Node::balances).reduce(Balance::all_of).unwrap_or_default();
        Box::new(Stall {
            reason,
            at: Time(world.now),
            waiting,
            depths,
            running_alone: world.running_alone(),
            accounts,
            hit: world.outstanding.as_ref().map(|outstanding| outstanding.hit()),
            recorder: std::mem::take(&mut core.world.recorder),
            tape: None,
        })
    }
}

fn waits_for(core: &Core, task: &TaskView) -> WaitsFor {
    if task.ready {
        return WaitsFor::Turn;
    }
    let is_task = |waiter: &Waiter| matches!(waiter, Waiter::Task(TaskId { slot, generation }) if *slot == task.id.slot && *generation == task.id.generation);
    let leaf = core.world.leaves.iter().find(|leaf| is_task(&leaf.waiter));
    if let Some(leaf) = leaf {
        return WaitsFor::Leaf {
            kind: leaf.kind,
            stage: leaf.op.stage,
            item: leaf.op.item,
            attempt: leaf.op.attempt,
            state: state(leaf.phase),
            since: Time(leaf.since),
        };
    }
    if core.world.steppers().any(is_task) {
        return WaitsFor::Step;
    }
    let sleep = core.world.timers.iter().find(|(_, alarm)| matches!(alarm, Alarm::Wake(waiter) if is_task(waiter)));
    match sleep {
        Some((until, _)) => WaitsFor::Sleep { until: Time(until) },
        None => WaitsFor::Unknown,
    }
}

fn state(phase: Phase) -> &'static str {
    match phase {
        Phase::ForThread => "in line for a thread of the pool",
        Phase::ForConnection => "in line for a connection",
        Phase::ForLock => "in line for the lock",
        Phase::ForEngine => "in line for a copy engine",
        Phase::Waking => "its thread is waking up",
        Phase::FirstByte => "waiting for the store",
        Phase::OnLink => "its bytes are on the link",
        Phase::OnCore => "on the processor",
        Phase::OnEngine | Phase::Submitting => "on a copy engine",
        Phase::OnBus => "its bytes are on the links to the devices",
        Phase::Outstanding => "under way, in abstract time",
        Phase::Stalled => "the store never answers",
        Phase::Ended | Phase::Delivered => "it has ended, the scheduler has not seen it",
    }
}

impl fmt::Display for StallReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StallReason::Stuck => write!(f, "nothing can happen any more, and the root task has not finished"),
            StallReason::PollsPerInstant(polls) => write!(f, "tasks were polled {polls} times without the clock moving"),
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
            WaitsFor::Unknown => write!(f, "waits for something that is no leaf: a channel, a lock, another task"),
            WaitsFor::Leaf { kind, stage, item, attempt, state, since } => {
                match kind {
                    fault::Leaf::Read => write!(f, "waits for the read of sample {}", item.sample)?,
                    fault::Leaf::Cpu => write!(f, "waits for a job on sample {}", item.sample)?,
                    fault::Leaf::Copy => write!(f, "waits for the copy of the batch that begins with sample {}", item.sample)?,
                }
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

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "stalled at {}: {}", self.at, self.reason)?;
        let mut tasks: Vec<(&Waiting, usize)> = Vec::new();
        for waiting in &self.waiting {
            match tasks.last_mut() {
                Some((last, times)) if *last == waiting => *times += 1,
                _ => tasks.push((waiting, 1)),
            }
        }
        writeln!(f, "tasks:")?;
        for (Waiting { task, spawned_at, on }, times) in tasks {
            let times = if times > 1 { format!(" ({times} alike)") } else { String::new() };
            writeln!(f, "  {task}{times} {on}")?;
            writeln!(f, "    spawned at {}:{}", spawned_at.file(), spawned_at.line())?;
        }
        writeln!(f, "resources:")?;
        for Depth { resource, busy, places, waiting } in &self.depths {
            match places {
                Some(places) => writeln!(f, "  {resource}: {busy} of {places} taken, {waiting} waiting")?,
                None => writeln!(f, "  {resource}: {busy} active, {waiting} waiting")?,
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
