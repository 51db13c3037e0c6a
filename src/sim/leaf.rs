//! Leaves under way.

use std::{cell::RefCell, rc::Rc};

use super::{
    executor::Waiter,
    resource::{Direction, NAME_MAX},
    timers::AlarmId,
    world::Request,
};
use crate::{
    failure::{Failure, FailureKind},
    fault::{Fault, Leaf as LeafKind},
    machine::Op,
};

/// Where a leaf is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// In line for a thread of the pool.
    ForThread,
    /// In line for a connection.
    ForConnection,
    /// Its thread is in line for the lock.
    ForLock,
    /// In line for a copy engine.
    ForEngine,
    /// In line for a place among the kernels of its device.
    ForKernel,
    /// Its thread is waking up.
    Waking,
    /// Waiting for the store's first byte, or for all bytes where no link is shared.
    FirstByte,
    /// Its bytes are on the shared link.
    OnLink,
    /// On the run queue of the cores.
    OnCore,
    /// On a copy engine.
    OnEngine,
    /// A kernel on its device.
    OnDevice,
    /// On a copy engine that is still being told what to do.
    Submitting,
    /// On a copy engine, its bytes on the links to the devices.
    OnBus,
    /// The store never answers.
    Stalled,
    /// Under way in abstract time: it ends when the chooser says so.
    Outstanding,
    /// Ended; the scheduler has not seen it yet.
    Ended,
    /// Ended; whoever waits may have the answer.
    Delivered,
}

/// Places that a leaf holds, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holds(pub(super) u8);

impl Holds {
    pub(super) const THREAD: u8 = 1;
    pub(super) const CONNECTION: u8 = 2;
    pub(super) const ENGINE: u8 = 4;
    /// No place, but a copy's direction: to the host.
    pub(super) const TO_HOST: u8 = 8;
    /// No place either: a read that the page cache answers.
    pub(super) const CACHED: u8 = 16;
    /// Nor this: it runs on the thread that waits for it.
    pub(super) const OWN_THREAD: u8 = 32;
    /// A place among the kernels of its device.
    pub(super) const KERNEL: u8 = 64;

    #[inline]
    pub(super) fn has(self, place: u8) -> bool {
        self.0 & place != 0
    }

    /// Which way a copy goes.
    #[inline]
    pub(super) fn way(self) -> Direction {
        if self.has(Holds::TO_HOST) { Direction::Out } else { Direction::In }
    }
}

/// What runs at the instant at which a leaf ends.
pub trait Body {
    /// Runs it, once, under a fault, catching its panics; the kind of its failure, if it failed.
    fn run(&self, fault: Option<Fault>) -> Option<FailureKind>;
}

enum Job<F, R> {
    Due(F),
    Done(Result<R, Failure>),
    Gone,
}

/// A closure and, after it has run, its result: shared between the leaf that runs it and the future that wants the result.
pub(super) struct JobCell<F, R>(RefCell<Job<F, R>>);

impl<R, F: FnOnce(Option<Fault>) -> Result<R, Failure>> JobCell<F, R> {
    pub(super) fn new(job: F) -> Rc<JobCell<F, R>> {
        Rc::new(JobCell(RefCell::new(Job::Due(job))))
    }

    /// The result, once the job has run; once.
    pub(super) fn result(&self) -> Option<Result<R, Failure>> {
        match self.0.replace(Job::Gone) {
            Job::Done(result) => Some(result),
            Job::Due(_) | Job::Gone => None,
        }
    }
}

impl<R, F: FnOnce(Option<Fault>) -> Result<R, Failure>> Body for JobCell<F, R> {
    fn run(&self, fault: Option<Fault>) -> Option<FailureKind> {
        let Job::Due(job) = self.0.replace(Job::Gone) else { return None };
        let result = job(fault);
        let failed = result.as_ref().err().map(|failure| failure.kind);
        self.0.replace(Job::Done(result));
        failed
    }
}

/// A leaf under way.
pub(super) struct Leaf {
    pub(super) generation: u32,
    pub(super) phase: Phase,
    pub(super) kind: LeafKind,
    pub(super) holds: Holds,
    /// The node that it is on.
    pub(super) node: u16,
    /// Nobody waits for it any more, but it has to run to its end.
    pub(super) given_up: bool,
    pub(super) op: Op,
    /// When its present phase of the trace began: submission, then its start (ns).
    pub(super) since: u64,
    /// Bytes of the work, or that a read delivers (B).
    pub(super) bytes: u64,
    /// Time until the store's first byte (ns).
    pub(super) wait_ns: u64,
    /// Time on a core, or on an engine (ns).
    pub(super) busy_ns: u64,
    pub(super) fault: Option<Fault>,
    pub(super) failed: Option<FailureKind>,
    pub(super) alarm: AlarmId,
    pub(super) waiter: Waiter,
    pub(super) body: Option<Rc<dyn Body>>,
}

/// The name of a leaf: a slot, and how often that slot was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeafId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// All leaves under way.
#[derive(Default)]
pub(super) struct Leaves {
    slots: Vec<Leaf>,
    vacant: Vec<u32>,
}

impl Leaves {
    /// Adds a leaf that is submitted at `now`. It is written where it stays: that is faster than a move.
    #[inline]
    pub(super) fn insert(&mut self, request: &mut Request<'_>, phase: Phase, now: u64) -> LeafId {
        let Request { op, node, kind, bytes, wait_ns, busy_ns, locked_ns, way, cached, own_thread, fault, .. } = *request;
        let slot = self.vacant.pop().unwrap_or_else(|| self.grow());
        let leaf = self.at(slot);
        leaf.phase = phase;
        leaf.kind = kind;
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        leaf.holds =
            Holds(bit(way == Direction::Out, Holds::TO_HOST) | bit(cached, Holds::CACHED) | bit(own_thread, Holds::OWN_THREAD));
        leaf.given_up = false;
        leaf.op = *op;
        leaf.node = node;
        leaf.since = now;
        leaf.bytes = bytes;
        leaf.wait_ns = wait_ns;
        leaf.busy_ns = busy_ns - locked_ns;
        leaf.fault = fault;
        leaf.failed = None;
        leaf.body = request.body.take();
        LeafId { slot, generation: leaf.generation }
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let slot = self.slots.len() as u32;
        assert!(slot < NAME_MAX, "more than 16 million leaves at a time");
        self.slots.push(Leaf {
            generation: 0,
            phase: Phase::ForThread,
            kind: LeafKind::Cpu,
            holds: Holds::default(),
            node: 0,
            given_up: false,
            op: Op::default(),
            since: 0,
            bytes: 0,
            wait_ns: 0,
            busy_ns: 0,
            fault: None,
            failed: None,
            alarm: AlarmId::default(),
            waiter: Waiter::Nobody,
            body: None,
        });
        slot
    }

    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> &mut Leaf {
        &mut self.slots[slot as usize]
    }

    /// The leaf in a slot.
    #[inline]
    pub(super) fn peek(&self, slot: u32) -> &Leaf {
        &self.slots[slot as usize]
    }

    /// The leaf of this name, while it is under way.
    #[inline]
    pub(super) fn get(&mut self, id: LeafId) -> Option<&mut Leaf> {
        self.slots.get_mut(id.slot as usize).filter(|leaf| leaf.generation == id.generation)
    }

    /// Forgets a leaf.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        let leaf = &mut self.slots[slot as usize];
        leaf.generation = leaf.generation.wrapping_add(1);
        self.vacant.push(slot);
    }

    /// All leaves under way, with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Leaf)> + '_ {
        // A slot is vacant when its leaf was removed, and only then is it on the list.
        let mut vacant = vec![false; self.slots.len()];
        for slot in &self.vacant {
            vacant[*slot as usize] = true;
        }
        (0..).zip(&self.slots).zip(vacant).filter(|(_, vacant)| !vacant).map(|(leaf, _)| leaf)
    }

    /// Takes every body out, for the end of the run.
    pub(super) fn take_bodies(&mut self) -> Vec<Rc<dyn Body>> {
        self.slots.iter_mut().filter_map(|leaf| leaf.body.take()).collect()
    }
}
