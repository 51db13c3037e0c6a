//! The simulated machine, as a loader sees it.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    panic::Location,
    pin::Pin,
    rc::{Rc, Weak},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use super::{
    executor::Tasks,
    leaf::{Body, JobCell, LeafId},
    node::Node,
    payload::SimPayload,
    price::Prices,
    resource::{Account, Charge, Cpu, Direction, Link},
    timers::{Alarm, AlarmId},
    wake::TaskId,
    world::{Ended, Request, World, slowed},
};
use crate::{
    failure::{Failure, FailureKind},
    fault::{self, Fault, Leaf as LeafKind},
    machine::{Bytes, Clock, Copied, Machine, Op, Payload, Shared, Slot, Standing, Time, Unit, Work, gather, slab},
    trace::{Event, Kind, StageId},
};

/// The clock of a simulation, for other threads.
#[derive(Clone, Debug)]
pub struct SimClock(pub(super) Arc<AtomicU64>);

impl Clock for SimClock {
    #[inline]
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }
}

/// All that changes in a run, behind one cell.
pub(super) struct Core {
    pub(super) tasks: Tasks,
    pub(super) world: World,
}

pub(super) struct Inner<P: SimPayload> {
    pub(super) core: RefCell<Core>,
    pub(super) clock: SimClock,
    pub(super) prices: Prices,
    pub(super) content: P::Content,
    pub(super) seed: u64,
    pub(super) count: u64,
    pub(super) lends_slots: bool,
    /// Charges of the slabs handed out, in bytes of the real machine's.
    pub(super) slabs: RefCell<Vec<Charge>>,
    /// What tasks share, to be asked when nothing moves any more.
    pub(super) watched: RefCell<Vec<Weak<dyn Shared>>>,
}

impl<P: SimPayload> Inner<P> {
    /// Who waits for what of all that is watched and still there.
    pub(super) fn standings(&self) -> Vec<Standing> {
        let watched = self.watched.take();
        watched.iter().filter_map(Weak::upgrade).map(|shared| shared.standing()).collect()
    }
}

/// The simulated machine, on which `P` flows. See [`Simulation`](super::Simulation) for how to run a loader on it.
///
/// It is one node of the simulation; where there are [several](super::Config::nodes), [`on_node`](SimMachine::on_node) gives the others.
pub struct SimMachine<P: SimPayload> {
    pub(super) inner: Rc<Inner<P>>,
    /// From 0.
    pub(super) node: u16,
    /// Leaves run on the thread that waits for them.
    pub(super) own_thread: bool,
}

impl<P: SimPayload> Clone for SimMachine<P> {
    fn clone(&self) -> SimMachine<P> {
        SimMachine { inner: self.inner.clone(), node: self.node, own_thread: self.own_thread }
    }
}

/// A running task of a simulation. Dropping it stops the task.
pub struct SimTask<P: SimPayload> {
    machine: SimMachine<P>,
    id: TaskId,
}

impl<P: SimPayload> Drop for SimTask<P> {
    fn drop(&mut self) {
        let stopped = self.machine.inner.core.borrow_mut().tasks.stop(self.id);
        // Outside of the cell: the task's own values may stop tasks and give up leaves when they go.
        drop(stopped);
    }
}

/// A batch on a simulated device.
#[derive(Debug)]
pub struct SimBatch<U> {
    cells: Vec<U>,
    units_per_slot: usize,
    slot_bytes: usize,
    _charge: Charge,
}

impl<U> AsRef<[U]> for SimBatch<U> {
    fn as_ref(&self) -> &[U] {
        &self.cells
    }
}

impl<U> AsMut<[U]> for SimBatch<U> {
    fn as_mut(&mut self) -> &mut [U] {
        &mut self.cells
    }
}

impl<U> SimBatch<U> {
    /// The cells of all samples, one after the other, those never written included.
    pub fn cells(&self) -> &[U] {
        &self.cells
    }

    /// The cells of the sample in place `at`.
    ///
    /// # Panics
    ///
    /// If the batch has no such place.
    pub fn sample(&self, at: usize) -> &[U] {
        &self.cells[at * self.units_per_slot..][..self.units_per_slot]
    }
}

/// A sleep, from its first poll on.
struct Sleep<'a, P: SimPayload> {
    machine: &'a SimMachine<P>,
    ns: u64,
    alarm: Option<AlarmId>,
}

impl<P: SimPayload> Future for Sleep<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let core = &mut *self.machine.inner.core.borrow_mut();
        let waiter = core.tasks.waiter(cx.waker());
        match self.alarm {
            None => {
                let at = core.world.now.saturating_add(self.ns);
                self.alarm = Some(core.world.timers.set(at, Alarm::Wake(waiter)));
                Poll::Pending
            }
            Some(alarm) => match core.world.timers.get_mut(alarm) {
                Some(pending) => {
                    *pending = Alarm::Wake(waiter);
                    Poll::Pending
                }
                None => Poll::Ready(()),
            },
        }
    }
}

impl<P: SimPayload> Drop for Sleep<'_, P> {
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm {
            let cancelled = self.machine.inner.core.borrow_mut().world.timers.cancel(alarm);
            drop(cancelled);
        }
    }
}

/// A train step on a device that a busy host slows down, from its first poll on.
struct Step<'a, P: SimPayload> {
    machine: &'a SimMachine<P>,
    ns: u64,
    step: Option<u64>,
}

impl<P: SimPayload> Future for Step<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let core = &mut *self.machine.inner.core.borrow_mut();
        let waiter = core.tasks.waiter(cx.waker());
        match self.step {
            None => {
                self.step = Some(core.world.begin_step(self.machine.node, self.ns, waiter));
                Poll::Pending
            }
            Some(step) => match core.world.stepper(self.machine.node, step) {
                Some(waiting) => {
                    *waiting = waiter;
                    Poll::Pending
                }
                None => Poll::Ready(()),
            },
        }
    }
}

impl<P: SimPayload> Drop for Step<'_, P> {
    fn drop(&mut self) {
        if let Some(step) = self.step {
            let waiter = self.machine.inner.core.borrow_mut().world.break_off_step(self.machine.node, step);
            drop(waiter);
        }
    }
}

/// A leaf that was submitted: given up when dropped before its end.
pub(super) struct Leaf<'a, P: SimPayload> {
    machine: &'a SimMachine<P>,
    /// Until its end.
    id: Option<LeafId>,
}

impl<P: SimPayload> Future for Leaf<'_, P> {
    type Output = Ended;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let mut core = self.machine.inner.core.borrow_mut();
        let Core { tasks, world } = &mut *core;
        let id = self.id.expect("not polled after it was ready");
        match world.poll(id, || tasks.waiter(cx.waker())) {
            Ok(ended) => {
                drop(core);
                self.id = None;
                Poll::Ready(ended)
            }
            Err(replaced) => {
                drop(core);
                drop(replaced);
                Poll::Pending
            }
        }
    }
}

impl<P: SimPayload> Drop for Leaf<'_, P> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let Core { tasks, world } = &mut *self.machine.inner.core.borrow_mut();
            let litter = world.give_up(id, tasks);
            drop(litter);
        }
    }
}

impl<P: SimPayload> SimMachine<P> {
    /// The same simulation as a node sees it: what is done on this machine uses the cores, the pool, the links and the memory of that
    /// node. The first is 0.
    ///
    /// # Panics
    ///
    /// If the simulation has no such [node](super::Config::nodes).
    #[must_use]
    pub fn on_node(&self, node: u16) -> SimMachine<P> {
        let nodes = self.inner.core.borrow().world.nodes.len();
        assert!(usize::from(node) < nodes, "there is no node {node}: there are {nodes}, counted from 0");
        SimMachine { inner: self.inner.clone(), node, own_thread: self.own_thread }
    }

    /// Starts a task that was spawned at this place.
    pub(super) fn spawn_at(
        &self,
        name: &'static str,
        place: &'static Location<'static>,
        task: impl Future<Output = ()> + 'static,
    ) -> SimTask<P> {
        let future = Box::pin(task);
        let (id, refused) = self.inner.core.borrow_mut().tasks.spawn(name, place, future);
        drop(refused);
        SimTask { machine: self.clone(), id }
    }

    /// A train step on the device that takes so long on an idle host, and longer where the host is busy and
    /// [`Config::gpu`](super::Config::gpu) says so; else it is a sleep. A step given up has not happened.
    pub async fn step(&self, d: Duration) {
        let slowed = self.inner.core.borrow().world.nodes[0].gpu.is_some();
        if slowed {
            Step { machine: self, ns: u64::try_from(d.as_nanos()).unwrap_or(u64::MAX), step: None }.await;
        } else {
            self.sleep(d).await;
        }
    }

    /// Copies so many bytes from the device of the operation's rank to the host, as a copy of [`Machine::copy`] goes the other way:
    /// with the same engines, or those of this direction where the machine has [links](super::CopyBy::Pcie).
    pub async fn copy_back(&self, op: Op, bytes: u64) -> Result<(), Failure> {
        self.copy_bytes(op, bytes, Direction::Out).await
    }

    /// Copies so many bytes to the device of the operation's rank, as [`Machine::copy`] does with slots.
    pub async fn copy_in(&self, op: Op, bytes: u64) -> Result<(), Failure> {
        self.copy_bytes(op, bytes, Direction::In).await
    }

    async fn copy_bytes(&self, op: Op, bytes: u64, way: Direction) -> Result<(), Failure> {
        let busy_ns = self.inner.prices.copy_ns(&op, bytes);
        let kind = LeafKind::Copy;
        let (fault, busy_ns) = self.fate(&op, kind, bytes, busy_ns)?;
        let cell = JobCell::new(|fault: Option<Fault>| match fault.and_then(Fault::failure) {
            Some(failure) => Err(failure),
            None => Ok(()),
        });
        let body: Option<Rc<dyn Body>> = Some(cell.clone());
        self.submit(&mut Request { way, body, ..self.request(&op, kind, bytes, busy_ns, fault) }).await;
        cell.result().expect("the job of a leaf that ended has run")
    }

    /// What a leaf of this machine asks for: nothing but a core or an engine for `busy_ns`, on its way in, with no body.
    #[inline]
    pub(super) fn request<'a>(&self, op: &'a Op, kind: LeafKind, bytes: u64, busy_ns: u64, fault: Option<Fault>) -> Request<'a> {
        Request {
            op,
            node: self.node,
            own_thread: self.own_thread,
            kind,
            bytes,
            wait_ns: 0,
            busy_ns,
            locked_ns: 0,
            way: Direction::In,
            cached: false,
            fault,
            body: None,
        }
    }

    /// Sends a leaf out. Called when the future that wants it is first polled.
    #[inline]
    pub(super) fn submit(&self, request: &mut Request<'_>) -> Leaf<'_, P> {
        let Core { tasks, world } = &mut *self.inner.core.borrow_mut();
        Leaf { machine: self, id: Some(world.submit(request, tasks)) }
    }

    /// A leaf that the machine cannot carry out: recorded as submitted, started and failed.
    fn refuse(&self, op: &Op, bytes: u64, failure: Failure) -> Failure {
        let now = self.now();
        for (kind, bytes) in [(Kind::Queued, bytes), (Kind::Start, 0), (Kind::Fail, failure.kind.code())] {
            self.record(Event {
                time: now,
                since: now,
                sample: op.item.sample,
                bytes,
                epoch: op.item.epoch,
                rank: op.rank,
                stage: op.stage,
                kind,
            });
        }
        failure
    }

    /// What hits a leaf that would keep a core or an engine for `busy_ns`, and for how long it does then (ns).
    fn fate(&self, op: &Op, kind: LeafKind, bytes: u64, busy_ns: u64) -> Result<(Option<Fault>, u64), Failure> {
        let fault = self.inner.prices.fault(op, kind, P::HAS_BYTES);
        let busy_ns = slowed(busy_ns, fault);
        if busy_ns > Cpu::JOB_NS_MAX || bytes > Link::BYTES_MAX {
            let words = format!("a leaf of {busy_ns} ns and {bytes} bytes is beyond what can be simulated");
            return Err(self.refuse(op, bytes, Failure::new(FailureKind::Lost, words)));
        }
        Ok((fault, busy_ns))
    }

    fn charge(&self, account: impl FnOnce(&Node) -> &Account, bytes: u64, what: &str) -> Result<Charge, Failure> {
        account(&self.inner.core.borrow().world.nodes[usize::from(self.node)]).charge(bytes).map_err(|left| {
            Failure::new(FailureKind::TooLarge, format!("{what} of {bytes} bytes do not fit into the {left} bytes that are left"))
        })
    }
}

impl<P: SimPayload> Machine for SimMachine<P> {
    type Payload = P;
    type DeviceBatch = SimBatch<P::Unit>;
    type Task = SimTask<P>;
    type Clock = SimClock;

    #[inline]
    fn now(&self) -> Time {
        self.inner.clock.now()
    }

    fn clock(&self) -> SimClock {
        self.inner.clock.clone()
    }

    fn seed(&self) -> u64 {
        self.inner.seed
    }

    fn sleep(&self, d: Duration) -> impl Future<Output = ()> {
        let ns = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        Sleep { machine: self, ns, alarm: None }
    }

    #[track_caller]
    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) -> SimTask<P> {
        self.spawn_at(name, Location::caller(), task)
    }

    fn bytes_bound(&self, sample: u64) -> Option<u64> {
        Some(self.inner.prices.size(sample).bytes)
    }

    #[expect(clippy::manual_async_fn, reason = "an async function moves its arguments once more when it is first polled")]
    fn read(&self, op: Op) -> impl Future<Output = Result<Bytes<Self>, Failure>> {
        async move {
            let sample = op.item.sample;
            let size = self.inner.prices.size(sample);
            let (wait_ns, busy_ns) = self.inner.prices.read_ns(&op, size.bytes);
            let (turn_ns, cached) = self.inner.prices.disk(&op);
            let wait_ns = wait_ns.saturating_add(turn_ns);
            if sample >= self.inner.count {
                let words = format!("the dataset has {} samples, there is no sample {sample}", self.inner.count);
                return Err(self.refuse(&op, 0, Failure::new(FailureKind::NotFound, words)));
            }
            let (kind, bytes) = (LeafKind::Read, size.bytes);
            let (fault, busy_ns) = self.fate(&op, kind, bytes, busy_ns)?;
            let mut request = Request { wait_ns, cached, ..self.request(&op, kind, bytes, busy_ns, fault) };
            let request = &mut request;
            P::read(&self.inner.content, sample, size, |body| async move {
                request.body = body;
                let ended = self.submit(request).await;
                match ended.failed {
                    None => Ok(ended.bytes),
                    Some(kind) => Err(Failure::new(kind, "injected")),
                }
            })
            .await
        }
    }

    #[expect(clippy::manual_async_fn, reason = "an async function moves its arguments once more when it is first polled")]
    fn cpu<R, F>(&self, op: Op, work: Work, job: F) -> impl Future<Output = Result<R, Failure>>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        async move {
            let Some(busy_ns) = self.inner.prices.cpu_ns(&op, &work) else {
                let words = format!("nobody knows what work of the kind `{}` costs", work.kind);
                return Err(self.refuse(&op, work.bytes, Failure::new(FailureKind::Lost, words)));
            };
            let cell = JobCell::new(move |fault| fault::inside(fault, job));
            let (kind, bytes, body) = (LeafKind::Cpu, work.bytes, Some(cell.clone() as Rc<dyn Body>));
            let (fault, busy_ns) = self.fate(&op, kind, bytes, busy_ns)?;
            let locked_ns = if self.own_thread { 0 } else { self.inner.prices.locked_ns(work.kind, busy_ns) };
            self.submit(&mut Request { locked_ns, body, ..self.request(&op, kind, bytes, busy_ns, fault) }).await;
            cell.result().expect("the job of a leaf that ended has run")
        }
    }

    async fn copy(
        &self,
        op: Op,
        src: Vec<Slot<Unit<Self>>>,
        mut dst: Self::DeviceBatch,
        at: usize,
    ) -> Result<Copied<Self>, Failure> {
        let bytes = src.len() as u64 * dst.slot_bytes as u64;
        let busy_ns = self.inner.prices.copy_ns(&op, bytes);
        let cell = JobCell::new(move |fault| {
            fault::inside(None, || {
                if let Some(failure) = fault.and_then(Fault::failure) {
                    return Err(failure);
                }
                gather(&src, &mut dst.cells[at * dst.units_per_slot..]);
                Ok(Copied { src, dst })
            })
            .and_then(|copied| copied)
        });
        let (kind, body) = (LeafKind::Copy, Some(cell.clone() as Rc<dyn Body>));
        let (fault, busy_ns) = self.fate(&op, kind, bytes, busy_ns)?;
        self.submit(&mut Request { body, ..self.request(&op, kind, bytes, busy_ns, fault) }).await;
        cell.result().expect("the job of a leaf that ended has run")
    }

    async fn kernel<F>(&self, op: Op, work: Work, mut batch: Self::DeviceBatch, job: F) -> Result<Self::DeviceBatch, Failure>
    where
        F: FnOnce(&mut Self::DeviceBatch) -> Result<(), Failure> + Send + 'static,
    {
        let Some(busy_ns) = self.inner.prices.kernel_ns(&work) else {
            let words = format!("nobody knows what a kernel of the kind `{}` costs", work.kind);
            return Err(self.refuse(&op, work.bytes, Failure::new(FailureKind::Lost, words)));
        };
        let cell = JobCell::new(move |fault| {
            fault::inside(None, || {
                if let Some(failure) = fault.and_then(Fault::failure) {
                    return Err(failure);
                }
                job(&mut batch).map(|()| batch)
            })
            .and_then(|done| done)
        });
        let (kind, bytes, body) = (LeafKind::Kernel, work.bytes, Some(cell.clone() as Rc<dyn Body>));
        let (fault, busy_ns) = self.fate(&op, kind, bytes, busy_ns)?;
        self.submit(&mut Request { body, ..self.request(&op, kind, bytes, busy_ns, fault) }).await;
        cell.result().expect("the job of a leaf that ended has run")
    }

    fn lends_slots(&self) -> bool {
        self.inner.lends_slots
    }

    fn slots(&self, count: usize, slot_bytes: usize) -> Result<Vec<Slot<Unit<Self>>>, Failure> {
        let charge = self.charge(|node| &node.host, count as u64 * slot_bytes as u64, "slots")?;
        self.inner.slabs.borrow_mut().push(charge);
        slab(count, P::units(slot_bytes))
    }

    fn device_batch(&self, samples: usize, slot_bytes: usize) -> Result<Self::DeviceBatch, Failure> {
        let charge = self.charge(|node| &node.device, samples as u64 * slot_bytes as u64, "a batch on the device")?;
        let units_per_slot = <P as Payload>::units(slot_bytes);
        Ok(SimBatch { cells: vec![P::Unit::default(); samples * units_per_slot], units_per_slot, slot_bytes, _charge: charge })
    }

    #[inline(always)]
    fn record(&self, event: Event) {
        self.inner.core.borrow_mut().world.recorder.record(event);
    }

    fn name_stage(&self, stage: StageId, name: &'static str) {
        self.inner.core.borrow_mut().world.recorder.name_stage(stage, name);
    }

    fn watch(&self, shared: Rc<dyn Shared>) {
        let watched = &mut *self.inner.watched.borrow_mut();
        // Whoever makes such things by the thousand drops them too.
        if watched.len() == watched.capacity() {
            watched.retain(|shared| shared.strong_count() > 0);
        }
        watched.push(Rc::downgrade(&shared));
    }

    async fn quiesce(&self) {
        poll_fn(|cx| {
            let Core { tasks, world } = &mut *self.inner.core.borrow_mut();
            match world.quiet(|| tasks.waiter(cx.waker())) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}
