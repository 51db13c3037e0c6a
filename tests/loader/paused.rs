//! A small machine on tokio's paused clock: the outside check of the simulator.
//!
//! Its clock ticks in milliseconds, it is first come, first served everywhere, and it shares no code with the simulator.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    time::Duration,
};

use tokio::{sync::Semaphore, task::JoinHandle, time::Instant};
use towtank::{
    failure::{Failure, FailureKind},
    machine::{Bytes, Clock, Copied, Machine, Op, Payload, Slot, Time, Unit, Work, gather, slab},
    trace::{Event, Recorder, StageId},
};

use crate::world::{TestPayload, World};

/// What the machine is made of.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub seed: u64,
    pub cores: usize,
    /// Copies at once, and what each sample in one takes [ms].
    pub engines: usize,
    pub copy_ms: u64,
    pub lends_slots: bool,
    /// The index of the batch whose copy fails.
    pub failing_copy: Option<u64>,
    /// Batches in a stage on the device at once, what each takes [ms], and the one that fails there.
    pub kernels: usize,
    pub stage_ms: u64,
    pub failing_stage: Option<u64>,
    /// The world whose bad reads fail in the machine's own store.
    pub missing: Option<World>,
    /// Samples that may be in slots and device batches together.
    pub memory_samples: usize,
}

#[derive(Clone, Copy)]
pub struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_nanos()).expect("a short test"))
    }
}

struct Inner {
    config: Config,
    clock: PausedClock,
    recorder: RefCell<Recorder>,
    cores: Rc<Semaphore>,
    engines: Rc<Semaphore>,
    kernels: Rc<Semaphore>,
    tasks: Rc<Cell<usize>>,
    stopping: Rc<Cell<usize>>,
    leaves: Rc<Cell<usize>>,
    samples_left: Cell<usize>,
}

/// The machine.
pub struct Paused<P> {
    inner: Rc<Inner>,
    _payload: std::marker::PhantomData<P>,
}

impl<P> Clone for Paused<P> {
    fn clone(&self) -> Self {
        Paused { inner: self.inner.clone(), _payload: std::marker::PhantomData }
    }
}

/// What came of a run.
pub struct Run<T> {
    pub value: T,
    pub end: Time,
    /// Tasks and leaves left.
    pub left: (usize, usize),
}

/// Runs `root` on a machine.
pub fn run<P: TestPayload, T, F: Future<Output = T>>(config: Config, root: impl FnOnce(Paused<P>) -> F) -> Run<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(async {
        let inner = Rc::new(Inner {
            config,
            clock: PausedClock(Instant::now()),
            recorder: RefCell::new(Recorder::new().keep_events()),
            cores: Rc::new(Semaphore::new(config.cores)),
            engines: Rc::new(Semaphore::new(config.engines)),
            kernels: Rc::new(Semaphore::new(config.kernels)),
            tasks: Rc::default(),
            stopping: Rc::default(),
            leaves: Rc::default(),
            samples_left: Cell::new(config.memory_samples),
        });
        // With nothing else to wait for, the clock jumps here: the run is stalled.
        let stalled = Duration::from_secs(3600 * 24 * 365);
        let value =
            tokio::time::timeout(stalled, root(Paused { inner: inner.clone(), _payload: std::marker::PhantomData })).await;
        let Ok(value) = value else {
            let events = inner.recorder.take();
            let last = events.events().iter().rev().take(20).map(|event| format!("\n{event:?}")).collect::<String>();
            panic!("nothing can happen any more, and the loader has not ended; last, newest first: {last}");
        };
        Run { value, end: inner.clock.now(), left: (inner.tasks.get(), inner.leaves.get()) }
    }))
}

#[expect(clippy::disallowed_methods, reason = "the machine's own sleep")]
async fn sleep_ms(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

/// Counts as long as it lives, and takes another count along.
struct Counted(Rc<Cell<usize>>, RefCell<Option<Box<Counted>>>);

impl Counted {
    fn new(count: &Rc<Cell<usize>>) -> Box<Counted> {
        count.set(count.get() + 1);
        Box::new(Counted(count.clone(), RefCell::new(None)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A task that ends when it is dropped. tokio drops its future in a later turn, so until then it counts as stopping.
pub struct Task {
    handle: JoinHandle<()>,
    alive: std::rc::Weak<Counted>,
    stopping: Rc<Cell<usize>>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
        if let Some(alive) = self.alive.upgrade() {
            alive.1.replace(Some(Counted::new(&self.stopping)));
        }
    }
}

/// A leaf in its own task: taken out of the queue when given up, left alone once it has begun.
struct Leaf {
    task: JoinHandle<()>,
    begun: Rc<Cell<bool>>,
}

impl Drop for Leaf {
    fn drop(&mut self) {
        if !self.begun.get() {
            self.task.abort();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the machine's own spawn")]
fn spawn(task: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    tokio::task::spawn_local(task)
}

impl<P: Payload> Paused<P> {
    /// Occupies one of the servers for so long, then runs `body`.
    async fn serve<R: 'static>(&self, servers: &Rc<Semaphore>, ms: u64, body: impl FnOnce() -> R + 'static) -> R {
        let (send, receive) = tokio::sync::oneshot::channel();
        let (servers, begun, counted) = (servers.clone(), Rc::new(Cell::new(false)), Counted::new(&self.inner.leaves));
        let began = begun.clone();
        let task = spawn(async move {
            let _counted = counted;
            let _server = servers.acquire().await.expect("never closed");
            began.set(true);
            sleep_ms(ms).await;
            let _ = send.send(body());
        });
        let _leaf = Leaf { task, begun };
        receive.await.expect("the leaf runs to its end")
    }
}

impl<P: TestPayload> Machine for Paused<P> {
    type Payload = P;
    type DeviceBatch = Vec<P::Unit>;
    type Task = Task;
    type Clock = PausedClock;

    fn now(&self) -> Time {
        self.inner.clock.now()
    }

    fn clock(&self) -> PausedClock {
        self.inner.clock
    }

    fn seed(&self) -> u64 {
        self.inner.config.seed
    }

    async fn sleep(&self, d: Duration) {
        // This clock ticks in milliseconds, and nothing ends too early.
        sleep_ms(u64::try_from(d.as_nanos().div_ceil(1_000_000)).expect("a short test")).await;
    }

    fn spawn(&self, _: &'static str, task: impl Future<Output = ()> + 'static) -> Task {
        let alive: Rc<Counted> = Counted::new(&self.inner.tasks).into();
        let (weak, stopping) = (Rc::downgrade(&alive), self.inner.stopping.clone());
        let handle = spawn(async move {
            let _alive = alive;
            task.await;
        });
        Task { handle, alive: weak, stopping }
    }

    fn bytes_bound(&self, _: u64) -> Option<u64> {
        None
    }

    async fn read(&self, op: Op) -> Result<Bytes<Self>, Failure> {
        sleep_ms(1).await;
        match self.inner.config.missing {
            Some(world) if world.bad_read(op.item) => Err(Failure::new(FailureKind::NotFound, "no such sample")),
            _ => Ok(P::encoded(op.item.sample)),
        }
    }

    async fn cpu<R, F>(&self, _: Op, work: Work, job: F) -> Result<R, Failure>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let body = move || catch_unwind(AssertUnwindSafe(job)).map_err(|panic| Failure::panicked(&*panic));
        self.serve(&self.inner.cores, work.bytes, body).await
    }

    async fn copy(
        &self,
        op: Op,
        src: Vec<Slot<Unit<Self>>>,
        mut dst: Self::DeviceBatch,
        at: usize,
    ) -> Result<Copied<Self>, Failure> {
        let ms = src.len() as u64 * self.inner.config.copy_ms;
        let fails = self.inner.config.failing_copy == Some(op.item.sample);
        self.serve(&self.inner.engines, ms, move || {
            if fails {
                return Err(Failure::new(FailureKind::Device, "the copy fails"));
            }
            let units = src.first().map_or(0, |slot| slot.get().len());
            gather(&src, &mut dst[at * units..]);
            Ok(Copied { src, dst })
        })
        .await
    }

    async fn kernel<F>(&self, op: Op, _: Work, mut batch: Self::DeviceBatch, job: F) -> Result<Self::DeviceBatch, Failure>
    where
        F: FnOnce(&mut Self::DeviceBatch) -> Result<(), Failure> + Send + 'static,
    {
        let fails = self.inner.config.failing_stage == Some(op.item.sample);
        self.serve(&self.inner.kernels, self.inner.config.stage_ms, move || {
            if fails {
                return Err(Failure::new(FailureKind::Device, "the stage fails"));
            }
            let done = catch_unwind(AssertUnwindSafe(|| job(&mut batch))).map_err(|panic| Failure::panicked(&*panic));
            done?.map(|()| batch)
        })
        .await
    }

    fn lends_slots(&self) -> bool {
        self.inner.config.lends_slots
    }

    fn slots(&self, count: usize, slot_bytes: usize) -> Result<Vec<Slot<Unit<Self>>>, Failure> {
        self.charge(count)?;
        slab(count, P::units(slot_bytes))
    }

    fn device_batch(&self, samples: usize, slot_bytes: usize) -> Result<Self::DeviceBatch, Failure> {
        self.charge(samples)?;
        Ok(vec![P::Unit::default(); samples * P::units(slot_bytes)])
    }

    fn record(&self, event: Event) {
        self.inner.recorder.borrow_mut().record(event);
    }

    fn name_stage(&self, stage: StageId, name: &'static str) {
        self.inner.recorder.borrow_mut().name_stage(stage, name);
    }

    async fn quiesce(&self) {
        let mut pause = 1;
        while self.inner.stopping.get() > 0 || self.inner.leaves.get() > 0 {
            sleep_ms(pause).await;
            pause *= 2;
        }
    }
}

impl<P: Payload> Paused<P> {
    fn charge(&self, samples: usize) -> Result<(), Failure> {
        let left = self.inner.samples_left.get().checked_sub(samples);
        let left = left.ok_or(Failure::new(FailureKind::TooLarge, "no memory left"))?;
        self.inner.samples_left.set(left);
        Ok(())
    }
}
