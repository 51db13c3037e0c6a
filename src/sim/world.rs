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
    leaf::{Body, Holds, LeafId, Leaves, Phase},
    node::{Nearest, Node},
    outstanding::Outstanding,
    resource::{Bucket, Cpu, Direction, Gate, Link, NAME_MAX, NEVER, Rouse},
    timers::{Alarm, AlarmId, Timers},
};
use crate::{
    failure::FailureKind,
    fault::{self, Fault, Leaf as LeafKind},
    machine::{Op, Time},
    trace::{Event, Kind, Recorder, StageId},
};

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

    // ---- time

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

    // ---- a leaf's way

    /// A leaf sets out. Who waits for it says so when it [polls](World::poll).
    pub(super) fn submit(&mut self, request: &mut Request<'_>, tasks: &mut Tasks) -> LeafId {
        let (op, bytes) = (request.op, request.bytes);
        self.touch(request.node);
        let phase = match request.kind {
            LeafKind::Read if self.reader == Reader::Own || request.own_thread => Phase::ForConnection,
            LeafKind::Copy if self.copy_by != CopyBy::Pool => Phase::ForEngine,
            LeafKind::Kernel => Phase::ForKernel,
            _ if request.own_thread => Phase::OnCore,
            _ => Phase::ForThread,
        };
        let id = self.leaves.insert(request, phase, self.now);
        if request.locked_ns > 0
            && let Some(lock) = &mut self.node(request.node).lock
        {
            lock.owes(id.slot, Cpu::work(request.locked_ns));
        }
        self.record(op, Kind::Queued, self.now, bytes);
        match phase {
            Phase::ForConnection => self.connect(id.slot, tasks),
            Phase::ForEngine => self.seek_engine(id.slot, tasks),
            Phase::ForKernel => self.seek_device(id.slot, tasks),
            Phase::OnCore => self.on_thread(id.slot, tasks),
            _ => {
                if self.node(request.node).pool.enter(id.slot) {
                    self.hired(id.slot, self.wakeup_ns, tasks);
                }
            }
        }
        id
    }

    /// It has a thread of the pool, which needs so long to wake up.
    #[inline]
    fn hired(&mut self, slot: u32, wakeup_ns: u64, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        leaf.holds.0 |= Holds::THREAD;
        if wakeup_ns > 0 {
            leaf.phase = Phase::Waking;
            leaf.alarm = self.timers.set_steady(self.now + wakeup_ns, Alarm::Leaf(slot));
        } else {
            self.on_thread(slot, tasks);
        }
    }

    /// Its thread is awake.
    fn on_thread(&mut self, slot: u32, tasks: &mut Tasks) {
        match self.leaves.at(slot).kind {
            LeafKind::Read => self.connect(slot, tasks),
            LeafKind::Cpu | LeafKind::Copy => {
                self.start(slot);
                self.process(slot, tasks);
            }
            LeafKind::Kernel => unreachable!("a kernel has no thread"),
        }
    }

    /// A read wants a connection.
    fn connect(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        match &mut self.nodes[usize::from(leaf.node)].connections {
            None => self.ask(slot, tasks),
            Some(_) if leaf.holds.has(Holds::CACHED) => self.ask(slot, tasks),
            Some(connections) => {
                leaf.phase = Phase::ForConnection;
                if connections.enter(slot) {
                    self.connected(slot, tasks);
                }
            }
        }
    }

    fn connected(&mut self, slot: u32, tasks: &mut Tasks) {
        self.leaves.at(slot).holds.0 |= Holds::CONNECTION;
        self.ask(slot, tasks);
    }

    /// A read asks the store.
    fn ask(&mut self, slot: u32, tasks: &mut Tasks) {
        self.start(slot);
        let now = self.now;
        let cached = self.leaves.at(slot).holds.has(Holds::CACHED);
        let refused = !cached && self.bucket.as_mut().is_some_and(|bucket| !bucket.admit(now));
        let leaf = self.leaves.at(slot);
        let node = &mut self.nodes[usize::from(leaf.node)];
        if refused {
            leaf.fault = Some(Fault::Fail(FailureKind::Throttled));
        }
        let mut wait_ns = leaf.wait_ns;
        match leaf.fault {
            Some(Fault::Stall) => {
                leaf.phase = Phase::Stalled;
                return;
            }
            Some(Fault::Fail(kind)) => {
                leaf.failed = Some(kind);
                leaf.bytes = 0;
            }
            fault => {
                if let Some(Fault::Truncate { keep_ppm }) = fault {
                    leaf.bytes = fault::kept(leaf.bytes, keep_ppm);
                }
                let bytes = node.disk.as_ref().map_or(leaf.bytes, |disk| disk.handed_out(leaf.bytes));
                if cached {
                    wait_ns = 0;
                } else if node.link.is_none() {
                    wait_ns = wait_ns.saturating_add(transfer_ns(self.connection_bytes_per_s, bytes));
                }
                if let Some(Fault::Slow { times }) = fault {
                    wait_ns = wait_ns.saturating_mul(u64::from(times));
                }
                if let Some(disk) = &mut node.disk
                    && !cached
                {
                    wait_ns = wait_ns.saturating_add(disk.queued_ns(now, bytes));
                }
            }
        }
        leaf.phase = Phase::FirstByte;
        if wait_ns > 0 {
            leaf.alarm = self.timers.set(now.saturating_add(wait_ns), Alarm::Leaf(slot));
        } else {
            self.arrived(slot, tasks);
        }
    }

    /// A read's first byte is there, or all of them where no link is shared.
    fn arrived(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        if leaf.failed.is_some() {
            return self.end(slot, tasks);
        }
        let node = &mut self.nodes[usize::from(leaf.node)];
        match &mut node.link {
            Some(link) if leaf.bytes > 0 && !leaf.holds.has(Holds::CACHED) => {
                let times = match leaf.fault {
                    Some(Fault::Slow { times }) => u64::from(times),
                    _ => 1,
                };
                leaf.phase = Phase::OnLink;
                let bytes = node.disk.as_ref().map_or(leaf.bytes, |disk| disk.handed_out(leaf.bytes));
                link.start(self.now, slot, bytes.saturating_mul(times).min(Link::BYTES_MAX));
            }
            _ => self.process(slot, tasks),
        }
    }

    /// A copy wants an engine.
    fn seek_engine(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        let (rank, way) = (leaf.op.rank, leaf.holds.way());
        let node = &mut self.nodes[usize::from(leaf.node)];
        match node.engines_of(rank, way) {
            Some(engines) => {
                if engines.enter(slot) {
                    self.on_engine(slot, tasks);
                }
            }
            None => {
                self.start(slot);
                self.process(slot, tasks);
            }
        }
    }

    fn on_engine(&mut self, slot: u32, tasks: &mut Tasks) {
        self.start(slot);
        let leaf = self.leaves.at(slot);
        leaf.holds.0 |= Holds::ENGINE;
        let by_pcie = self.nodes[usize::from(leaf.node)].pcie.is_some() && self.outstanding.is_none();
        leaf.phase = if by_pcie { Phase::Submitting } else { Phase::OnEngine };
        if leaf.busy_ns > 0 {
            leaf.alarm = self.timers.set(self.now.saturating_add(leaf.busy_ns), Alarm::Leaf(slot));
        } else if by_pcie {
            self.on_bus(slot);
        } else {
            self.end(slot, tasks);
        }
    }

    /// A kernel wants a place on its rank's device.
    fn seek_device(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        if self.nodes[usize::from(leaf.node)].kernels.of(leaf.op.rank).enter(slot) {
            self.on_device(slot, tasks);
        }
    }

    fn on_device(&mut self, slot: u32, tasks: &mut Tasks) {
        self.start(slot);
        let leaf = self.leaves.at(slot);
        leaf.holds.0 |= Holds::KERNEL;
        leaf.phase = Phase::OnDevice;
        if leaf.busy_ns > 0 {
            leaf.alarm = self.timers.set(self.now.saturating_add(leaf.busy_ns), Alarm::Leaf(slot));
        } else {
            self.end(slot, tasks);
        }
    }

    /// The bytes of a copy set out.
    fn on_bus(&mut self, slot: u32) {
        let leaf = self.leaves.at(slot);
        leaf.phase = Phase::OnBus;
        let (rank, way) = (leaf.op.rank, leaf.holds.way());
        let bytes = leaf.bytes;
        let now = self.now;
        let pcie = self.node_of(slot).pcie.as_mut().expect("only its engines are told to send bytes");
        pcie.start(now, slot, rank, way, bytes);
    }

    /// Its thread wants the lock.
    fn lock(&mut self, slot: u32) {
        let leaf = self.leaves.at(slot);
        let node = leaf.node;
        let lock = self.nodes[usize::from(node)].lock.as_mut().expect("something is to be done under it");
        if lock.enter(slot) {
            self.locked(node);
        } else {
            leaf.phase = Phase::ForLock;
            if lock.waiting() == 1 {
                self.watch(node);
            }
        }
    }

    /// Somebody has got the lock of a node, and wants a core.
    fn locked(&mut self, node: u16) {
        let Node { lock, cpu, .. } = &mut self.nodes[usize::from(node)];
        let lock = lock.as_ref().expect("somebody has it");
        if let Some(slot) = lock.holder() {
            self.leaves.at(slot).phase = Phase::OnCore;
            cpu.go_on(self.now, slot, lock.work(slot));
        }
        self.watch(node);
    }

    /// The lock has changed hands, or somebody waits for it where nobody did: from now on they wait an interval.
    fn watch(&mut self, at: u16) {
        let node = &mut self.nodes[usize::from(at)];
        self.timers.cancel(node.switch);
        let lock = node.lock.as_ref().expect("it has just been taken");
        if lock.waiting() > 0 && lock.interval_ns() < NEVER {
            node.switch = self.timers.set(self.now.saturating_add(lock.interval_ns()), Alarm::LockSwitch(at));
        }
    }

    /// Whoever holds the lock of a node has to give way.
    fn switch(&mut self, node: u16) {
        self.touch(node);
        let Node { lock, cpu, .. } = &mut self.nodes[usize::from(node)];
        let lock = lock.as_mut().expect("somebody waits for it");
        // One that is done at this very instant leaves by itself.
        if let Some(left) = lock.holder().and_then(|holder| cpu.suspend(self.now, holder)) {
            if let Some(holder) = lock.holder() {
                self.leaves.at(holder).phase = Phase::ForLock;
            }
            lock.give_way(left);
            self.locked(node);
        }
    }

    /// A leaf has done what it had to do under the lock.
    fn unlock(&mut self, slot: u32, tasks: &mut Tasks) {
        let node = self.leaves.at(slot).node;
        self.node(node).lock.as_mut().expect("it has it").leave();
        self.locked(node);
        self.process(slot, tasks);
    }

    /// It wants a core, and before it the lock if it has to do something under that.
    #[inline]
    fn process(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        let node = &mut self.nodes[usize::from(leaf.node)];
        if node.lock.as_ref().is_some_and(|lock| lock.is_owed(slot)) {
            return self.lock(slot);
        }
        if leaf.busy_ns > 0 {
            leaf.phase = Phase::OnCore;
            node.cpu.start(self.now, slot, leaf.busy_ns);
        } else {
            self.end(slot, tasks);
        }
    }

    /// It begins, as traces have it.
    #[inline]
    fn start(&mut self, slot: u32) {
        let now = self.now;
        let leaf = self.leaves.at(slot);
        let (op, since) = (leaf.op, std::mem::replace(&mut leaf.since, now));
        self.record(&op, Kind::Start, since, 0);
    }

    /// It ends, in abstract time once the chooser has said so.
    pub(super) fn end(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        if let Some(outstanding) = &mut self.outstanding
            && leaf.phase != Phase::Outstanding
        {
            let id = LeafId { slot, generation: leaf.generation };
            return outstanding.begin(id, leaf);
        }
        if let Some(body) = &leaf.body
            && leaf.failed.is_none()
        {
            leaf.failed = body.run(leaf.fault);
            self.bodies_ran = true;
        }
        let (op, node, since, holds, given_up) = (leaf.op, leaf.node, leaf.since, leaf.holds, leaf.given_up);
        leaf.holds = Holds::default();
        leaf.phase = Phase::Ended;
        if given_up {
            self.litter.extend(leaf.body.take());
            self.leaves.remove(slot);
            self.ended_alone(tasks);
        } else {
            match leaf.failed {
                None => {
                    let bytes = leaf.bytes;
                    self.record(&op, Kind::End, since, bytes);
                }
                Some(kind) => self.record(&op, Kind::Fail, since, kind.code()),
            }
        }
        self.release(holds, node, op.rank, tasks);
        if given_up {
            return;
        }
        match holds.has(Holds::OWN_THREAD) {
            true => self.deliver(slot, tasks),
            false => self.completed(slot, tasks),
        }
    }

    /// Gives its places to those who wait for them.
    fn release(&mut self, holds: Holds, node: u16, rank: u16, tasks: &mut Tasks) {
        if holds.has(Holds::THREAD)
            && let Some(next) = self.node(node).pool.leave()
        {
            self.hired(next, 0, tasks);
        }
        if holds.has(Holds::CONNECTION)
            && let Some(next) = self.node(node).connections.as_mut().and_then(Gate::leave)
        {
            self.connected(next, tasks);
        }
        if holds.has(Holds::ENGINE)
            && let Some(next) = self.node(node).engines_of(rank, holds.way()).and_then(Gate::leave)
        {
            self.on_engine(next, tasks);
        }
        if holds.has(Holds::KERNEL)
            && let Some(next) = self.node(node).kernels.of(rank).leave()
        {
            self.on_device(next, tasks);
        }
    }

    // ---- the scheduler

    #[inline]
    fn completed(&mut self, slot: u32, tasks: &mut Tasks) {
        let node = self.leaves.at(slot).node;
        let Node { scheduler, pool, .. } = self.node(node);
        if scheduler.is_free() {
            self.deliver(slot, tasks);
        } else {
            let rouse = scheduler.completed(slot, pool.waiting());
            self.rouse(node, rouse);
        }
    }

    fn rouse(&mut self, node: u16, rouse: Rouse) {
        match rouse {
            Rouse::No => {}
            Rouse::Now if self.wakeup_ns == 0 => self.scheduler_awake(node),
            Rouse::Now => {
                self.timers.set_steady(self.now + self.wakeup_ns, Alarm::SchedulerAwake(node));
            }
            Rouse::Within(ns) => {
                self.timers.set(self.now.saturating_add(ns), Alarm::SchedulerAge(node));
            }
        }
    }

    fn scheduler_awake(&mut self, node: u16) {
        self.touch(node);
        let now = self.now;
        let Node { scheduler, cpu, .. } = self.node(node);
        cpu.start(now, SCHEDULER, scheduler.awake());
    }

    /// The scheduler of a node has handled a burst.
    fn handled(&mut self, node: u16, tasks: &mut Tasks) {
        self.touch(node);
        let burst = self.node(node).scheduler.handled();
        for slot in &burst {
            self.deliver(*slot, tasks);
        }
        let now = self.now;
        let Node { scheduler, cpu, .. } = self.node(node);
        if let Some(ns) = scheduler.again(burst) {
            cpu.start(now, SCHEDULER, ns);
        }
    }

    #[inline]
    fn deliver(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        if leaf.given_up {
            self.litter.extend(leaf.body.take());
            self.leaves.remove(slot);
        } else {
            leaf.phase = Phase::Delivered;
            tasks.notify(std::mem::take(&mut leaf.waiter));
        }
    }

    // ---- train steps

    /// A train step begins on a node, of so long on an idle host (ns), on a device that a busy host slows down.
    pub(super) fn begin_step(&mut self, node: u16, ns: u64, waiter: Waiter) -> u64 {
        self.touch(node);
        let now = self.now;
        let Node { gpu, steps, .. } = self.node(node);
        let step = gpu.as_mut().expect("a step that nothing slows down is a sleep").start(now, ns);
        steps.insert(step, waiter);
        step
    }

    /// Who waits for the end of a step that is under way on a node.
    pub(super) fn stepper(&mut self, node: u16, step: u64) -> Option<&mut Waiter> {
        self.node(node).steps.get_mut(&step)
    }

    /// Who waits for the end of any step.
    pub(super) fn steppers(&self) -> impl Iterator<Item = &Waiter> + '_ {
        self.nodes.iter().flat_map(|node| node.steps.values())
    }

    /// A step that nobody waits for any more; nothing if it is over.
    pub(super) fn break_off_step(&mut self, node: u16, step: u64) -> Option<Waiter> {
        self.touch(node);
        let now = self.now;
        let Node { gpu, steps, .. } = self.node(node);
        let waiter = steps.remove(&step)?;
        gpu.as_mut().expect("it has begun one").stop(now, step);
        Some(waiter)
    }

    // ---- its future

    /// The answer, if it is there; else whoever polls is woken when it is.
    #[inline]
    pub(super) fn poll(&mut self, id: LeafId, waiter: impl FnOnce() -> Waiter) -> Result<Ended, Waiter> {
        let leaf = self.leaves.at(id.slot);
        debug_assert_eq!(leaf.generation, id.generation, "a leaf stays until its future has its answer or is dropped");
        if leaf.phase != Phase::Delivered {
            return Err(std::mem::replace(&mut leaf.waiter, waiter()));
        }
        let ended = Ended { bytes: leaf.bytes, failed: leaf.failed };
        leaf.body = None;
        self.leaves.remove(id.slot);
        Ok(ended)
    }

    /// Nobody wants the answer any more. Gives what is to be dropped outside of the cell.
    pub(super) fn give_up(&mut self, id: LeafId, tasks: &mut Tasks) -> (Waiter, Option<Rc<dyn Body>>) {
        let now = self.now;
        let leaf = self.leaves.at(id.slot);
        debug_assert_eq!(leaf.generation, id.generation, "a leaf stays until its future has its answer or is dropped");
        let (op, at, since, phase, holds) = (leaf.op, leaf.node, leaf.since, leaf.phase, leaf.holds);
        let waiter = std::mem::take(&mut leaf.waiter);
        if let Some(nearest) = &mut self.nearest {
            nearest.change(at);
        }
        let node = &mut self.nodes[usize::from(at)];
        match phase {
            Phase::Delivered => {}
            Phase::Ended => {
                leaf.given_up = true;
                return (waiter, None);
            }
            Phase::ForLock | Phase::OnCore | Phase::OnEngine | Phase::OnDevice | Phase::Submitting | Phase::OnBus => {
                leaf.given_up = true;
                self.running_alone += 1;
                self.record(&op, Kind::Abandon, since, 0);
                return (waiter, None);
            }
            Phase::ForThread => node.pool.give_up(id.slot),
            Phase::ForConnection => node.connections.as_mut().expect("it waits for one").give_up(id.slot),
            Phase::ForEngine => node.engines_of(op.rank, holds.way()).expect("it waits for one").give_up(id.slot),
            Phase::ForKernel => node.kernels.of(op.rank).give_up(id.slot),
            Phase::Waking | Phase::FirstByte => {
                self.timers.cancel(leaf.alarm);
            }
            Phase::Outstanding if leaf.kind == LeafKind::Read => {
                self.outstanding.iter_mut().for_each(|outstanding| outstanding.give_up(id));
            }
            Phase::Outstanding => {
                leaf.given_up = true;
                self.running_alone += 1;
                self.record(&op, Kind::Abandon, since, 0);
                return (waiter, None);
            }
            Phase::OnLink => node.link.as_mut().expect("it is on it").stop(now, id.slot),
            Phase::Stalled => {}
        }
        if let Some(lock) = &mut node.lock {
            lock.settle(id.slot);
        }
        let body = self.leaves.at(id.slot).body.take();
        self.leaves.remove(id.slot);
        if phase != Phase::Delivered {
            self.record(&op, Kind::Abandon, since, 0);
            self.release(holds, at, op.rank, tasks);
        }
        (waiter, body)
    }

    fn ended_alone(&mut self, tasks: &mut Tasks) {
        self.running_alone -= 1;
        if self.running_alone == 0 {
            for waiter in self.quiet.drain(..) {
                tasks.notify(waiter);
            }
        }
    }

    /// Whether no leaf that was given up still runs; else whoever asks is woken when that is so.
    pub(super) fn quiet(&mut self, waiter: impl FnOnce() -> Waiter) -> bool {
        if self.running_alone > 0 {
            self.quiet.push(waiter());
        }
        self.running_alone == 0
    }

    // ---- odds and ends

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

/// Time that a connection of this rate takes for so many bytes, rounded up (ns).
fn transfer_ns(bytes_per_s: Option<u64>, bytes: u64) -> u64 {
    const NS_PER_S: u64 = 1_000_000_000;
    let Some(rate) = bytes_per_s.map(|rate| rate.max(1)) else { return 0 };
    match bytes.checked_mul(NS_PER_S) {
        Some(product) => product.div_ceil(rate),
        None => u64::try_from((u128::from(bytes) * u128::from(NS_PER_S)).div_ceil(u128::from(rate))).unwrap_or(u64::MAX),
    }
}

/// The time a leaf takes under a fault that slows it down.
pub(super) fn slowed(ns: u64, fault: Option<Fault>) -> u64 {
    match fault {
        Some(Fault::Slow { times }) => scaled(ns, u64::from(times).saturating_mul(1_000_000)),
        _ => ns,
    }
}
