//! Abstract time: what has begun may end at any moment.
//!
//! A leaf takes its places as ever, so no more jobs run at a time than the pool has threads, and no more reads than the store has
//! connections. But once it has started it costs nothing: it is *outstanding*. When no task is ready, the chooser takes one of
//!
//! - the outstanding leaves, in the order in which they started: it ends, and the clock moves on by 1 ns;
//! - the earliest timer, behind them: the clock jumps to it, or by 1 ns where it has passed its time;
//! - the ways in which an outstanding leaf may fail by the scenario's rates, behind both.
//!
//! Then tasks are polled, first come, first served, until none is ready, and the next choice follows. So a schedule is an order in
//! which leaves end and timers go off, whatever anything costs. A read that stalls is one that does not end while timers do, and a slow
//! leaf one that ends late: neither is an alternative of its own. What hits named samples is no choice either, it always hits.
//!
//! # Why this is enough
//!
//! Orders within an instant, in which leaves end before anybody has looked or tasks are polled in another order, are not explored. They
//! need not be: tasks share state only on the one scheduler's thread, and each completion gets an instant of its own, so whatever a second
//! leaf that ends at the same instant could do to the tasks, it does at the next instant in one of the schedules. Two schedules that differ
//! only in who is polled first of those that one completion wakes are told apart in ordinary time, by
//! [`Chooser::Random`](super::Chooser::Random).

use std::collections::BTreeMap;

use super::{
    Config, CopySpec, Cost, GpuSpec, SchedulerSpec, StoreSpec,
    chooser::{Decider, Mishap, SLEEPS},
    executor::{Tasks, Waiter},
    leaf::{Leaf, LeafId, Phase},
    resource::NEVER,
    timers::Alarm,
    world::{Due, World},
};
use crate::{
    failure::FailureKind,
    fault::{Fault, Faults, Hits, Leaf as LeafKind, kept},
    trace::StageId,
};

/// Leaves that may end at any moment, and what is known of samples.
pub(super) struct Outstanding {
    /// In the order in which they started.
    leaves: Vec<LeafId>,
    /// Whose rates are choices.
    faults: Faults,
    /// Whether decoders find out by themselves what is wrong with bytes.
    has_bytes: bool,
    /// What turned out to be wrong with samples that were read, for good.
    lasting: BTreeMap<u64, Option<Fault>>,
    /// Whether decoding samples panics.
    panics: BTreeMap<u64, bool>,
    /// Scratch.
    mishaps: Vec<Mishap<Fault>>,
}

/// What came of a choice.
pub(super) enum Advance {
    /// The clock is to show this time (ns).
    To(u64),
    /// Nothing can happen.
    Stuck,
    /// It would happen after the limit.
    TooLate,
}

impl Config {
    /// The same machine, on which nothing takes time and only named samples are hit.
    pub(super) fn without_time(self) -> Config {
        Config {
            wakeup_ns: 0,
            scheduler: SchedulerSpec::default(),
            costs: self.costs.made_free(),
            lock: None,
            store: StoreSpec { reader: self.store.reader, connections: self.store.connections, ..StoreSpec::default() },
            copy: CopySpec { by: self.copy.by, cost: Cost::FREE },
            gpu: GpuSpec::default(),
            kernels: self.kernels.made_free(),
            faults: self.faults.of_named(),
            replay: None,
            ..self
        }
    }
}

impl Outstanding {
    pub(super) fn new(faults: Faults, has_bytes: bool) -> Outstanding {
        let (leaves, mishaps) = (Vec::new(), Vec::new());
        Outstanding { leaves, faults, has_bytes, lasting: BTreeMap::new(), panics: BTreeMap::new(), mishaps }
    }

    /// What went wrong for good: samples by name, those that the scenario names and those that choices hit.
    pub(super) fn hit(&self) -> Faults {
        let mut hit = self.faults.of_named();
        for (sample, fault) in &self.lasting {
            match fault {
                Some(Fault::Fail(_)) => hit.missing.samples.push(*sample),
                Some(Fault::Truncate { .. }) => hit.truncated.samples.push(*sample),
                Some(_) => hit.undecodable.samples.push(*sample),
                None => {}
            }
        }
        hit.panicking.samples.extend(self.panics.iter().filter(|(_, panics)| **panics).map(|(sample, _)| *sample));
        hit
    }

    /// A leaf has started.
    pub(super) fn begin(&mut self, id: LeafId, leaf: &mut Leaf) {
        leaf.phase = Phase::Outstanding;
        self.leaves.push(id);
        self.strike_by_what_is_known(leaf);
    }

    /// What was found wrong with a sample is so for every leaf of it, also for one that had begun before.
    fn strike_by_what_is_known(&self, leaf: &mut Leaf) {
        if leaf.fault.is_some() || leaf.failed.is_some() {
            return;
        }
        let sample = leaf.op.item.sample;
        let lasting = self.lasting.get(&sample).copied().flatten();
        match (leaf.kind, lasting) {
            (LeafKind::Read, Some(fault)) => strike(leaf, fault),
            (LeafKind::Cpu, Some(fault)) if leaf.op.stage == StageId::DECODE && !self.has_bytes => strike(leaf, fault),
            (LeafKind::Cpu, _) if leaf.op.stage == StageId::DECODE && self.panics.get(&sample) == Some(&true) => {
                strike(leaf, Fault::Panic);
            }
            _ => {}
        }
    }

    /// A read was given up.
    pub(super) fn give_up(&mut self, id: LeafId) {
        self.leaves.retain(|leaf| *leaf != id);
    }

    /// The ways in which a leaf may fail.
    fn mishaps_of(&mut self, of: usize, leaf: &Leaf) {
        if leaf.fault.is_some() || leaf.failed.is_some() || leaf.given_up {
            return;
        }
        let Outstanding { faults, mishaps, .. } = self;
        let mut may = |hits: &Hits, fault| {
            if hits.ppm > 0 {
                mishaps.push(Mishap { of, ppm: hits.ppm, fault });
            }
        };
        let sample = leaf.op.item.sample;
        match leaf.kind {
            LeafKind::Read => {
                if !self.lasting.contains_key(&sample) {
                    may(&faults.missing, Fault::Fail(FailureKind::NotFound));
                    may(&faults.truncated, Fault::Truncate { keep_ppm: faults.truncated_keep_ppm });
                    may(&faults.undecodable, Fault::Garble);
                }
                may(&faults.transient, Fault::Fail(FailureKind::Transient));
                may(&faults.throttled, Fault::Fail(FailureKind::Throttled));
            }
            LeafKind::Cpu if leaf.op.stage == StageId::DECODE && !self.panics.contains_key(&sample) => {
                may(&faults.panicking, Fault::Panic);
            }
            LeafKind::Cpu => {}
            LeafKind::Copy => may(&faults.failed_copies, Fault::Fail(FailureKind::Device)),
            LeafKind::Kernel => may(&faults.failed_kernels, Fault::Fail(FailureKind::Device)),
        }
    }

    /// A leaf ends, and fails in this way if it does: what that says of its sample is so from now on.
    fn settle(&mut self, leaf: &mut Leaf, fault: Option<Fault>) {
        let sample = leaf.op.item.sample;
        match (leaf.kind, fault) {
            _ if leaf.fault.is_some() || leaf.failed.is_some() => {}
            (LeafKind::Read, Some(Fault::Fail(FailureKind::Transient | FailureKind::Throttled))) => {}
            (LeafKind::Read, found) => {
                self.lasting.entry(sample).or_insert(found);
            }
            (LeafKind::Cpu, found) if leaf.op.stage == StageId::DECODE => {
                self.panics.entry(sample).or_insert(found == Some(Fault::Panic));
            }
            (LeafKind::Cpu | LeafKind::Copy | LeafKind::Kernel, _) => {}
        }
        match fault {
            Some(fault) => strike(leaf, fault),
            None => self.strike_by_what_is_known(leaf),
        }
    }
}

/// A fault hits a leaf.
fn strike(leaf: &mut Leaf, fault: Fault) {
    match (leaf.kind, fault) {
        (LeafKind::Read, Fault::Fail(kind)) => {
            leaf.failed = Some(kind);
            leaf.bytes = 0;
        }
        (LeafKind::Read, Fault::Truncate { keep_ppm }) => {
            leaf.fault = Some(fault);
            leaf.bytes = kept(leaf.bytes, keep_ppm);
        }
        _ => leaf.fault = Some(fault),
    }
}

impl World {
    /// Lets the chooser decide what happens next, and lets it happen; nothing happens without abstract time.
    pub(super) fn advance(&mut self, tasks: &mut Tasks, decider: &mut Decider, time_most_ns: u64) -> Advance {
        let first = self.timers.first();
        let Some(outstanding) = &mut self.outstanding else { return Advance::Stuck };
        let begun = outstanding.leaves.len();
        let n = begun + usize::from(first.is_some());
        if n == 0 {
            return Advance::Stuck;
        }
        outstanding.mishaps.clear();
        for k in 0..begun {
            let leaf = self.leaves.peek(outstanding.leaves[k].slot);
            outstanding.mishaps_of(k, leaf);
        }
        let (leaves, timers) = (&self.leaves, &self.timers);
        let chosen = decider.choose_event(n, &outstanding.mishaps, |k| match outstanding.leaves.get(k) {
            Some(id) => leaf_entity(leaves.peek(id.slot)),
            None => first.and_then(|(_, id)| timers.get(id)).map_or(SLEEPS, alarm_entity) | SLEEPS,
        });
        let mishap = chosen.checked_sub(n).map(|k| outstanding.mishaps[k]);
        let chosen = mishap.map_or(chosen, |mishap| mishap.of);
        let soon = self.now.saturating_add(1);
        if chosen < begun {
            let LeafId { slot, .. } = outstanding.leaves.remove(chosen);
            outstanding.settle(self.leaves.at(slot), mishap.map(|mishap| mishap.fault));
            self.now = soon;
            self.fired += 1;
            self.end(slot, tasks);
            return Advance::To(soon);
        }
        let at = first.map_or(NEVER, |(at, _)| at).max(soon);
        if at > time_most_ns {
            return Advance::TooLate;
        }
        self.now = at;
        if let Some(alarm) = self.timers.take_first() {
            self.fire(Due::Alarm(alarm), tasks);
        }
        Advance::To(at)
    }

    /// Of which entity a thing is that is due, for [priorities](super::Chooser::Pct).
    pub(super) fn entity(&self, due: Due) -> u64 {
        match due {
            Due::Core(slot) | Due::Bus(slot) => leaf_entity(self.leaves.peek(slot)),
            Due::Link(id) => leaf_entity(self.leaves.peek(id.slot)),
            Due::Scheduler(node) => NOBODY | u64::from(node) | 1 << 32,
            Due::Step(node, _) => NOBODY | u64::from(node) | 1 << 33,
            Due::Alarm(id) => match self.timers.get(id) {
                Some(Alarm::Leaf(slot)) => leaf_entity(self.leaves.peek(*slot)),
                alarm => alarm.map_or(SLEEPS, alarm_entity),
            },
        }
    }
}

/// Of an entity that is no task.
const NOBODY: u64 = 1 << 41;

fn leaf_entity(leaf: &Leaf) -> u64 {
    match &leaf.waiter {
        Waiter::Task(id) => u64::from(id.slot),
        Waiter::Foreign(_) | Waiter::Nobody => NOBODY | u64::from(leaf.op.rank) << 8 | u64::from(leaf.op.stage.0),
    }
}

fn alarm_entity(alarm: &Alarm) -> u64 {
    match alarm {
        Alarm::Wake(Waiter::Task(id)) => SLEEPS | u64::from(id.slot),
        Alarm::Wake(_) => SLEEPS | NOBODY,
        _ => SLEEPS | NOBODY | 1,
    }
}
