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
//!           └─ by a thread ─────────────► core ─────────────────────────────────────────┘
//! ```
//!
//! Where there is a lock, a job may need it for the first part of its time on a core; its thread then stands in line for it in between.
//! A leaf keeps the places it has taken (thread, connection, engine) until its end. Every step that takes no time is left out, not
//! passed through. At its end a leaf runs its body, is recorded, gives its places to whoever waits for them, and goes to the
//! scheduler, which hands it to its task.
//!
//! The run loop asks for the time of the [next](World::next) event, [collects](World::collect) all that are due then, and fires them in
//! the order that the chooser wants.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use super::{
    Config, CopyBy, Reader,
    config::scaled,
    executor::{Tasks, Waiter},
    leaf::{Body, Holds, LeafId, Leaves, Phase},
    resource::{Account, Bucket, Cpu, Direction, Disk, Gate, Gpu, Link, Lock, NAME_MAX, NEVER, Pcie, Rouse, Scheduler},
    timers::{Alarm, AlarmId, Timers},
};
use crate::{
    failure::FailureKind,
    fault::{self, Fault, Leaf as LeafKind},
    machine::{Op, Time},
    trace::{Event, Kind, Recorder},
};

/// The scheduler's thread, as a user of the cores.
const SCHEDULER: u32 = NAME_MAX;

/// Something that is due now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// A thread is done with its core.
    Core(u32),
    /// A transfer is done.
    Link(LeafId),
    /// A copy is done.
    Bus(u32),
    /// A train step is done.
    Step(u64),
    /// An alarm goes off.
    Alarm(AlarmId),
}

/// What a leaf asks for.
pub(super) struct Request<'a> {
    pub(super) op: &'a Op,
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
    pub(super) cpu: Cpu,
    pub(super) pool: Gate,
    pub(super) lock: Option<Box<Lock>>,
    pub(super) connections: Option<Gate>,
    pub(super) link: Option<Link>,
    pub(super) engines: Option<Gate>,
    pub(super) pcie: Option<Box<Pcie>>,
    pub(super) gpu: Option<Box<Gpu>>,
    pub(super) scheduler: Scheduler,
    pub(super) host: Account,
    pub(super) device: Account,
    pub(super) recorder: Recorder,
    pub(super) fired: u64,
    /// A body has run since somebody last looked.
    pub(super) bodies_ran: bool,
    bucket: Option<Bucket>,
    disk: Option<Disk>,
    /// When whoever holds the lock has to give way.
    switch: AlarmId,
    reader: Reader,
    connection_bytes_per_s: Option<u64>,
    copy_by: CopyBy,
    wakeup_ns: u64,
    /// Who waits for the end of its train step.
    steps: BTreeMap<u64, Waiter>,
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
        World {
            now: 0,
            timers: Timers::default(),
            leaves: Leaves::default(),
            cpu: Cpu::new(&config.cpu),
            pool: Gate::new(config.pool_threads),
            lock: config.lock.as_ref().map(|lock| Box::new(Lock::new(lock))),
            connections: store.connections.map(Gate::new),
            link: store.link_bytes_per_s.map(|rate| Link::new(rate, store.connection_bytes_per_s)),
            engines: match config.copy.by {
                CopyBy::Engines(engines) => Some(Gate::new(engines)),
                CopyBy::Pool | CopyBy::Thread | CopyBy::Pcie(_) => None,
            },
            pcie: match &config.copy.by {
                CopyBy::Pcie(spec) => Some(Box::new(Pcie::new(spec))),
                CopyBy::Pool | CopyBy::Thread | CopyBy::Engines(_) => None,
            },
            gpu: Gpu::new(&config.gpu, config.cpu.cores).map(Box::new),
            scheduler: Scheduler::new(config.scheduler, config.wakeup_ns),
            host: Account::new(config.memory_bytes),
            device: Account::new(None),
            recorder,
            fired: 0,
            bodies_ran: false,
            bucket: store.requests.map(Bucket::new),
            disk: store.disk.as_ref().map(Disk::new),
            switch: AlarmId::default(),
            reader: store.reader,
            connection_bytes_per_s: store.connection_bytes_per_s,
            copy_by: config.copy.by,
            wakeup_ns: config.wakeup_ns,
            steps: BTreeMap::new(),
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
        let link = self.link.as_ref().map_or(NEVER, Link::next);
        let bus = self.pcie.as_ref().map_or(NEVER, |pcie| pcie.next());
        let (now, busy) = (self.now, self.cpu.runnable());
        let step = self.gpu.as_mut().map_or(NEVER, |gpu| gpu.next(now, busy));
        self.timers.next().min(self.cpu.next()).min(link).min(bus).min(step)
    }

    /// Moves the clock to the time of the next event and appends all that is due then.
    pub(super) fn collect(&mut self, now: u64, due: &mut VecDeque<Due>) {
        self.now = now;
        if self.cpu.next() <= now {
            self.cpu.done(now, |user| due.push_back(Due::Core(user)));
        }
        if let Some(link) = &mut self.link
            && link.next() <= now
        {
            link.done(now, |slot| self.transfers.push(slot));
            for slot in self.transfers.drain(..) {
                let generation = self.leaves.at(slot).generation;
                due.push_back(Due::Link(LeafId { slot, generation }));
            }
        }
        if let Some(pcie) = &mut self.pcie
            && pcie.next() <= now
        {
            pcie.done(now, |slot| due.push_back(Due::Bus(slot)));
        }
        if let Some(gpu) = &mut self.gpu {
            gpu.done(now, |step| due.push_back(Due::Step(step)));
        }
        self.timers.due(now, |alarm| due.push_back(Due::Alarm(alarm)));
    }

    /// Lets a thing that is due happen.
    #[inline]
    pub(super) fn fire(&mut self, due: Due, tasks: &mut Tasks) {
        self.fired += 1;
        match due {
            Due::Core(SCHEDULER) => self.handled(tasks),
            Due::Core(slot) if self.lock.as_ref().is_some_and(|lock| lock.holder() == Some(slot)) => self.unlock(slot, tasks),
            Due::Core(slot) | Due::Bus(slot) => self.end(slot, tasks),
            Due::Link(id) => {
                // A read given up at the very instant at which its last byte came is gone.
                if self.leaves.get(id).is_some() {
                    self.process(id.slot, tasks);
                }
            }
            Due::Step(step) => tasks.notify(self.steps.remove(&step).unwrap_or_default()),
            Due::Alarm(id) => match self.timers.take(id) {
                Some(Alarm::Wake(waiter)) => tasks.notify(waiter),
                Some(Alarm::Leaf(slot)) => match self.leaves.at(slot).phase {
                    Phase::Waking => self.on_thread(slot, tasks),
                    Phase::FirstByte => self.arrived(slot, tasks),
                    Phase::Submitting => self.on_bus(slot),
                    _ => self.end(slot, tasks),
                },
                Some(Alarm::LockSwitch) => self.switch(),
                Some(Alarm::SchedulerAwake) => self.scheduler_awake(),
                Some(Alarm::SchedulerAge) if self.scheduler.aged() => self.rouse(Rouse::Now),
                Some(Alarm::SchedulerAge) | None => {}
            },
        }
    }

    // ---- a leaf's way

    /// A leaf sets out. Who waits for it says so when it [polls](World::poll).
    pub(super) fn submit(&mut self, request: &mut Request<'_>, tasks: &mut Tasks) -> LeafId {
        let (op, bytes) = (request.op, request.bytes);
        let phase = match request.kind {
            LeafKind::Read if self.reader == Reader::Own => Phase::ForConnection,
            LeafKind::Copy if self.copy_by != CopyBy::Pool => Phase::ForEngine,
            _ => Phase::ForThread,
        };
        let id = self.leaves.insert(request, phase, self.now);
        if request.locked_ns > 0
            && let Some(lock) = &mut self.lock
        {
            lock.owes(id.slot, Cpu::work(request.locked_ns));
        }
        self.record(op, Kind::Queued, self.now, bytes);
        match phase {
            Phase::ForConnection => self.connect(id.slot, tasks),
            Phase::ForEngine => self.seek_engine(id.slot, tasks),
            _ => {
                if self.pool.enter(id.slot) {
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
        }
    }

    /// A read wants a connection.
    fn connect(&mut self, slot: u32, tasks: &mut Tasks) {
        match &mut self.connections {
            None => self.ask(slot, tasks),
            Some(_) if self.leaves.at(slot).holds.has(Holds::CACHED) => self.ask(slot, tasks),
            Some(connections) => {
                self.leaves.at(slot).phase = Phase::ForConnection;
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
                let bytes = self.disk.as_ref().map_or(leaf.bytes, |disk| disk.handed_out(leaf.bytes));
                if cached {
                    wait_ns = 0;
                } else if self.link.is_none() {
                    wait_ns = wait_ns.saturating_add(transfer_ns(self.connection_bytes_per_s, bytes));
                }
                if let Some(Fault::Slow { times }) = fault {
                    wait_ns = wait_ns.saturating_mul(u64::from(times));
                }
                if let Some(disk) = &mut self.disk
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
        match &mut self.link {
            Some(link) if leaf.bytes > 0 && !leaf.holds.has(Holds::CACHED) => {
                let times = match leaf.fault {
                    Some(Fault::Slow { times }) => u64::from(times),
                    _ => 1,
                };
                leaf.phase = Phase::OnLink;
                let bytes = self.disk.as_ref().map_or(leaf.bytes, |disk| disk.handed_out(leaf.bytes));
                link.start(self.now, slot, bytes.saturating_mul(times).min(Link::BYTES_MAX));
            }
            _ => self.process(slot, tasks),
        }
    }

    /// The engines that copy this way for a rank; `None` where threads copy.
    fn engines_of(&mut self, rank: u16, way: Direction) -> Option<&mut Gate> {
        match &mut self.pcie {
            Some(pcie) => Some(pcie.engines(rank, way)),
            None => self.engines.as_mut(),
        }
    }

    /// A copy wants an engine.
    fn seek_engine(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        let (rank, way) = (leaf.op.rank, leaf.holds.way());
        match self.engines_of(rank, way) {
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
        leaf.phase = if self.pcie.is_some() { Phase::Submitting } else { Phase::OnEngine };
        if leaf.busy_ns > 0 {
            leaf.alarm = self.timers.set(self.now.saturating_add(leaf.busy_ns), Alarm::Leaf(slot));
        } else if self.pcie.is_some() {
            self.on_bus(slot);
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
        let pcie = self.pcie.as_mut().expect("only its engines are told to send bytes");
        pcie.start(self.now, slot, rank, way, bytes);
    }

    /// Its thread wants the lock.
    fn lock(&mut self, slot: u32) {
        let lock = self.lock.as_mut().expect("something is to be done under it");
        if lock.enter(slot) {
            self.locked();
        } else {
            let first = lock.waiting() == 1;
            self.leaves.at(slot).phase = Phase::ForLock;
            if first {
                self.watch();
            }
        }
    }

    /// Somebody has got the lock, and wants a core.
    fn locked(&mut self) {
        let lock = self.lock.as_ref().expect("somebody has it");
        if let Some(slot) = lock.holder() {
            let work = lock.work(slot);
            self.leaves.at(slot).phase = Phase::OnCore;
            self.cpu.go_on(self.now, slot, work);
        }
        self.watch();
    }

    /// The lock has changed hands, or somebody waits for it where nobody did: from now on they wait an interval.
    fn watch(&mut self) {
        self.timers.cancel(self.switch);
        let lock = self.lock.as_ref().expect("it has just been taken");
        if lock.waiting() > 0 && lock.interval_ns() < NEVER {
            self.switch = self.timers.set(self.now.saturating_add(lock.interval_ns()), Alarm::LockSwitch);
        }
    }

    /// Whoever holds the lock has to give way.
    fn switch(&mut self) {
        let lock = self.lock.as_mut().expect("somebody waits for it");
        // One that is done at this very instant leaves by itself.
        if let Some(left) = lock.holder().and_then(|holder| self.cpu.suspend(self.now, holder)) {
            if let Some(holder) = lock.holder() {
                self.leaves.at(holder).phase = Phase::ForLock;
            }
            lock.give_way(left);
            self.locked();
        }
    }

    /// A leaf has done what it had to do under the lock.
    fn unlock(&mut self, slot: u32, tasks: &mut Tasks) {
        self.lock.as_mut().expect("it has it").leave();
        self.locked();
        self.process(slot, tasks);
    }

    /// It wants a core, and before it the lock if it has to do something under that.
    #[inline]
    fn process(&mut self, slot: u32, tasks: &mut Tasks) {
        if self.lock.as_ref().is_some_and(|lock| lock.is_owed(slot)) {
            return self.lock(slot);
        }
        let leaf = self.leaves.at(slot);
        if leaf.busy_ns > 0 {
            leaf.phase = Phase::OnCore;
            self.cpu.start(self.now, slot, leaf.busy_ns);
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

    /// It ends.
    fn end(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        if let Some(body) = &leaf.body
            && leaf.failed.is_none()
        {
            leaf.failed = body.run(leaf.fault);
            self.bodies_ran = true;
        }
        let (op, since, holds, given_up) = (leaf.op, leaf.since, leaf.holds, leaf.given_up);
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
        self.release(holds, op.rank, tasks);
        if !given_up {
            self.completed(slot, tasks);
        }
    }

    /// Gives its places to those who wait for them.
    fn release(&mut self, holds: Holds, rank: u16, tasks: &mut Tasks) {
        if holds.has(Holds::THREAD)
            && let Some(next) = self.pool.leave()
        {
            self.hired(next, 0, tasks);
        }
        if holds.has(Holds::CONNECTION)
            && let Some(next) = self.connections.as_mut().and_then(Gate::leave)
        {
            self.connected(next, tasks);
        }
        if holds.has(Holds::ENGINE)
            && let Some(next) = self.engines_of(rank, holds.way()).and_then(Gate::leave)
        {
            self.on_engine(next, tasks);
        }
    }

    // ---- the scheduler

    #[inline]
    fn completed(&mut self, slot: u32, tasks: &mut Tasks) {
        if self.scheduler.is_free() {
            self.deliver(slot, tasks);
        } else {
            let rouse = self.scheduler.completed(slot, self.pool.waiting());
            self.rouse(rouse);
        }
    }

    fn rouse(&mut self, rouse: Rouse) {
        match rouse {
            Rouse::No => {}
            Rouse::Now if self.wakeup_ns == 0 => self.scheduler_awake(),
            Rouse::Now => {
                self.timers.set_steady(self.now + self.wakeup_ns, Alarm::SchedulerAwake);
            }
            Rouse::Within(ns) => {
                self.timers.set(self.now.saturating_add(ns), Alarm::SchedulerAge);
            }
        }
    }

    fn scheduler_awake(&mut self) {
        let ns = self.scheduler.awake();
        self.cpu.start(self.now, SCHEDULER, ns);
    }

    /// The scheduler has handled a burst.
    fn handled(&mut self, tasks: &mut Tasks) {
        let burst = self.scheduler.handled();
        for slot in &burst {
            self.deliver(*slot, tasks);
        }
        if let Some(ns) = self.scheduler.again(burst) {
            self.cpu.start(self.now, SCHEDULER, ns);
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

    /// A train step begins, of so long on an idle host (ns), on a device that a busy host slows down.
    pub(super) fn begin_step(&mut self, ns: u64, waiter: Waiter) -> u64 {
        let step = self.gpu.as_mut().expect("a step that nothing slows down is a sleep").start(self.now, ns);
        self.steps.insert(step, waiter);
        step
    }

    /// Who waits for the end of a step that is under way.
    pub(super) fn stepper(&mut self, step: u64) -> Option<&mut Waiter> {
        self.steps.get_mut(&step)
    }

    /// Who waits for the end of any step.
    pub(super) fn steppers(&self) -> impl Iterator<Item = &Waiter> + '_ {
        self.steps.values()
    }

    /// A step that nobody waits for any more; nothing if it is over.
    pub(super) fn break_off_step(&mut self, step: u64) -> Option<Waiter> {
        let waiter = self.steps.remove(&step)?;
        self.gpu.as_mut().expect("it has begun one").stop(self.now, step);
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
        let (op, since, phase, holds) = (leaf.op, leaf.since, leaf.phase, leaf.holds);
        let waiter = std::mem::take(&mut leaf.waiter);
        match phase {
            Phase::Delivered => {}
            Phase::Ended => {
                leaf.given_up = true;
                return (waiter, None);
            }
            Phase::ForLock | Phase::OnCore | Phase::OnEngine | Phase::Submitting | Phase::OnBus => {
                leaf.given_up = true;
                self.running_alone += 1;
                self.record(&op, Kind::Abandon, since, 0);
                return (waiter, None);
            }
            Phase::ForThread => self.pool.give_up(id.slot),
            Phase::ForConnection => self.connections.as_mut().expect("it waits for one").give_up(id.slot),
            Phase::ForEngine => self.engines_of(op.rank, holds.way()).expect("it waits for one").give_up(id.slot),
            Phase::Waking | Phase::FirstByte => {
                self.timers.cancel(leaf.alarm);
            }
            Phase::OnLink => self.link.as_mut().expect("it is on it").stop(now, id.slot),
            Phase::Stalled => {}
        }
        if let Some(lock) = &mut self.lock {
            lock.settle(id.slot);
        }
        let body = self.leaves.at(id.slot).body.take();
        self.leaves.remove(id.slot);
        if phase != Phase::Delivered {
            self.record(&op, Kind::Abandon, since, 0);
            self.release(holds, op.rank, tasks);
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
