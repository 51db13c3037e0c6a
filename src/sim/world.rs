//! What happens on the machine: leaves on their way through its resources.
//!
//! ```text
//!           ┌─ reader = pool ─► thread ─┐
//!  read ────┤                           ├─► connection ─► first byte ─► link ─► core ──┐
//!           └─ reader = own ────────────┘                                             │
//!  job  ─────────────────────► thread ─► core ──────────────────────────────────────────┼─► end ─► scheduler ─► its task
//!           ┌─ by engines ───► engine ─────────────────────────────────────────────────┤
//!  copy ────┼─ by pcie ──────► engine of its device ─► links ───────────────────────────┤
//!           ├─ by the pool ──► thread ─► core ──────────────────────────────────────────┤
//!           └─ by a thread ─────────────► core ─────────────────────────────────────────┤
//!  kernel ──────────────► place on its device ─────────────────────────────────────────┘
//! ```
//!
//! Where there is a lock, a job may need it for the first part of its time on a core; its thread then stands in line for it in between.
//!
//! A [process](super::SimMachine::process) has one thread, which is the one that waits for its leaves. They need none of the pool and no
//! scheduler: a read goes straight to its connection, a job to a core.
//!
//! A world is one [`Node`], or many alike: each leaf stays on the node that it was submitted on, with that node's cores, pool, links and
//! devices. All nodes share the clock and the store's count of requests. The run loop must not look at each node whenever the clock
//! moves; so [`Nearest`] knows when something next happens on which, and only nodes on which something has [changed](World::touch)
//! since are asked again.
//!
//! A leaf keeps the places it has taken (thread, connection, engine, place on its device) until its end. Every step that takes no time is left out, not
//! passed through. At its end a leaf runs its body, is recorded, gives its places to whoever waits for them, and goes to the
//! scheduler, which hands it to its task.
//!
//! The run loop asks for the time of the [next](World::next) event, [collects](World::collect) all that are due then, and fires them in
//! the order that the chooser wants.

use std::{collections::VecDeque, rc::Rc};

use super::{
    Config, CopyBy, Reader,
    config::scaled,
    executor::{Tasks, Waiter},
    leaf::{Body, LeafId, Leaves, Phase},
    node::{Nearest, Node},
    outstanding::Outstanding,
    resource::{Bucket, Direction, NAME_MAX, NEVER, Rouse},
    timers::{Alarm, AlarmId, Timers},
};
use crate::{
    failure::FailureKind,
    fault::{Fault, Leaf as LeafKind},
    machine::{Op, Time},
    trace::{Event, Kind, Recorder, StageId},
};

mod waiters;
mod way;

/// The scheduler's thread, as a user of the cores.
const SCHEDULER: u32 = NAME_MAX;

/// The stage of leaves that traces do not tell of.
pub(super) const UNSEEN: StageId = StageId(u8::MAX);

/// Something that is due now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// A leaf's thread is done with its core.
    Core(u32),
    /// The scheduler of a node is done with its core.
    Scheduler(u16),
    /// A transfer is done.
    Link(LeafId),
    /// A copy is done.
    Bus(u32),
    /// A train step on a node is done.
    Step(u16, u64),
    /// An alarm goes off.
    Alarm(AlarmId),
}

/// What a leaf asks for.
pub(super) struct Request<'a> {
    pub(super) op: &'a Op,
    /// Where, from 0.
    pub(super) node: u16,
    /// Whether it runs on the thread that waits for it, and not on one of the pool.
    pub(super) own_thread: bool,
    pub(super) kind: LeafKind,
    /// Bytes of the work, or of the sample (B).
    pub(super) bytes: u64,
    /// Time until the store's first byte (ns).
    pub(super) wait_ns: u64,
    /// Time on a core, or on an engine, at full speed (ns).
    pub(super) busy_ns: u64,
    /// Which way a copy goes.
    pub(super) way: Direction,
    /// Time of that on a core for which it holds the lock, at its beginning (ns).
    pub(super) locked_ns: u64,
    /// Whether the page cache answers a read.
    pub(super) cached: bool,
    pub(super) fault: Option<Fault>,
    pub(super) body: Option<Rc<dyn Body>>,
}

/// How a leaf ended.
pub(super) struct Ended {
    pub(super) bytes: u64,
    pub(super) failed: Option<FailureKind>,
}

/// Resources and leaves of a run.
pub(super) struct World {
    pub(super) now: u64,
    pub(super) timers: Timers,
    pub(super) leaves: Leaves,
    /// At least one.
    pub(super) nodes: Vec<Node>,
    pub(super) recorder: Recorder,
    pub(super) fired: u64,
    /// A body has run since somebody last looked.
    pub(super) bodies_ran: bool,
    /// In abstract time, the leaves that may end.
    pub(super) outstanding: Option<Box<Outstanding>>,
    /// When something next happens on which node, where there are several.
    nearest: Option<Nearest>,
    bucket: Option<Bucket>,
    reader: Reader,
    connection_bytes_per_s: Option<u64>,
    copy_by: CopyBy,
    wakeup_ns: u64,
    /// Leaves given up that still run.
    running_alone: usize,
    quiet: Vec<Waiter>,
    /// What is to be dropped outside of the cell.
    litter: Vec<Rc<dyn Body>>,
    /// Scratch of [`collect`](World::collect).
    transfers: Vec<u32>,
}

impl World {
    pub(super) fn new(config: &Config, recorder: Recorder) -> World {
        let store = &config.store;
        let nodes = config.nodes.max(1);
        World {
            now: 0,
            timers: Timers::default(),
            leaves: Leaves::default(),
            nodes: (0..nodes).map(|_| Node::new(config)).collect(),
            nearest: (nodes > 1).then(|| Nearest::new(nodes)),
            recorder,
            fired: 0,
            bodies_ran: false,
            outstanding: None,
            bucket: store.requests.map(Bucket::new),
            reader: store.reader,
            connection_bytes_per_s: store.connection_bytes_per_s,
            copy_by: config.copy.by,
            wakeup_ns: config.wakeup_ns,
            running_alone: 0,
            quiet: Vec::new(),
            litter: Vec::new(),
            transfers: Vec::new(),
        }
    }

    /// When the next thing happens.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        let on_nodes = match &mut self.nearest {
            None => self.nodes[0].next(self.now),
            Some(nearest) => {
                while let Some(changed) = nearest.take_changed() {
                    let next = self.nodes[usize::from(changed)].next(self.now);
                    nearest.set(changed, next);
                }
                nearest.first().0
            }
        };
        self.timers.next().min(on_nodes)
    }

    /// Something is about to change on a node: what happens next there is to be asked again.
    #[inline]
    fn touch(&mut self, node: u16) {
        if let Some(nearest) = &mut self.nearest {
            nearest.change(node);
        }
    }

    #[inline]
    fn touch_node_of(&mut self, slot: u32) {
        if let Some(nearest) = &mut self.nearest {
            nearest.change(self.leaves.at(slot).node);
        }
    }

    #[inline]
    fn node(&mut self, node: u16) -> &mut Node {
        &mut self.nodes[usize::from(node)]
    }

    /// The node of a leaf.
    #[inline]
    fn node_of(&mut self, slot: u32) -> &mut Node {
        let node = self.leaves.at(slot).node;
        self.node(node)
    }

    /// Moves the clock to the time of the next event and appends all that is due then: node by node, and alarms last.
    pub(super) fn collect(&mut self, now: u64, due: &mut VecDeque<Due>) {
        self.now = now;
        if self.nearest.is_none() {
            self.collect_on(0, due);
        }
        while let Some((next, node)) = self.nearest.as_ref().map(Nearest::first)
            && next <= now
        {
            self.collect_on(node, due);
            if let Some(nearest) = &mut self.nearest {
                nearest.set(node, NEVER);
                nearest.change(node);
            }
        }
        self.timers.due(now, |alarm| due.push_back(Due::Alarm(alarm)));
    }

    #[inline]
    fn collect_on(&mut self, at: u16, due: &mut VecDeque<Due>) {
        let now = self.now;
        let node = &mut self.nodes[usize::from(at)];
        if node.cpu.next() <= now {
            node.cpu.done(now, |user| {
                due.push_back(match user {
                    SCHEDULER => Due::Scheduler(at),
                    slot => Due::Core(slot),
                });
            });
        }
        if let Some(link) = &mut node.link
            && link.next() <= now
        {
            link.done(now, |slot| self.transfers.push(slot));
            for slot in self.transfers.drain(..) {
                let generation = self.leaves.at(slot).generation;
                due.push_back(Due::Link(LeafId { slot, generation }));
            }
        }
        if let Some(pcie) = &mut node.pcie
            && pcie.next() <= now
        {
            pcie.done(now, |slot| due.push_back(Due::Bus(slot)));
        }
        if let Some(gpu) = &mut node.gpu {
            gpu.done(now, |step| due.push_back(Due::Step(at, step)));
        }
    }

    /// Lets a thing that is due happen.
    #[inline]
    pub(super) fn fire(&mut self, due: Due, tasks: &mut Tasks) {
        self.fired += 1;
        match due {
            Due::Scheduler(node) => self.handled(node, tasks),
            Due::Core(slot) if self.node_of(slot).lock.as_ref().is_some_and(|lock| lock.holder() == Some(slot)) => {
                self.touch_node_of(slot);
                self.unlock(slot, tasks);
            }
            Due::Core(slot) | Due::Bus(slot) => {
                self.touch_node_of(slot);
                self.end(slot, tasks);
            }
            Due::Link(id) => {
                // A read given up at the very instant at which its last byte came is gone.
                if self.leaves.get(id).is_some() {
                    self.touch_node_of(id.slot);
                    self.process(id.slot, tasks);
                }
            }
            Due::Step(node, step) => tasks.notify(self.node(node).steps.remove(&step).unwrap_or_default()),
            Due::Alarm(id) => match self.timers.take(id) {
                Some(Alarm::Wake(waiter)) => tasks.notify(waiter),
                Some(Alarm::Leaf(slot)) => {
                    self.touch_node_of(slot);
                    match self.leaves.at(slot).phase {
                        Phase::Waking => self.on_thread(slot, tasks),
                        Phase::FirstByte => self.arrived(slot, tasks),
                        Phase::Submitting => self.on_bus(slot),
                        _ => self.end(slot, tasks),
                    }
                }
                Some(Alarm::LockSwitch(node)) => self.switch(node),
                Some(Alarm::SchedulerAwake(node)) => self.scheduler_awake(node),
                Some(Alarm::SchedulerAge(node)) if self.node(node).scheduler.aged() => self.rouse(node, Rouse::Now),
                Some(Alarm::SchedulerAge(_)) | None => {}
            },
        }
    }

    /// Leaves under way. One that has ended and was given up waits only for the scheduler to look away.
    pub(super) fn under_way(&self) -> usize {
        self.leaves.iter().filter(|(_, leaf)| !(leaf.given_up && leaf.phase == Phase::Ended)).count()
    }

    /// Leaves given up that still run.
    pub(super) fn running_alone(&self) -> usize {
        self.running_alone
    }

    /// Whether there is something to be dropped outside of the cell.
    #[inline]
    pub(super) fn has_litter(&self) -> bool {
        !self.litter.is_empty()
    }

    /// One piece of it.
    pub(super) fn take_litter(&mut self) -> Option<Rc<dyn Body>> {
        self.litter.pop()
    }

    #[inline(always)]
    fn record(&mut self, op: &Op, kind: Kind, since: u64, bytes: u64) {
        if op.stage == UNSEEN {
            return;
        }
        self.recorder.record(Event {
            time: Time(self.now),
            since: Time(since),
            sample: op.item.sample,
            bytes,
            epoch: op.item.epoch,
            rank: op.rank,
            stage: op.stage,
            kind,
        });
    }
}

/// The time a leaf takes under a fault that slows it down.
pub(super) fn slowed(ns: u64, fault: Option<Fault>) -> u64 {
    match fault {
        Some(Fault::Slow { times }) => scaled(ns, u64::from(times).saturating_mul(1_000_000)),
        _ => ns,
    }
}
