//! A loader as one writes it by hand, in a few parts, and what its parts share.
//!
//! ```text
//!  order ─▶ feeder ─▶ queues ─▶ workers ─▶ queue ─▶ collector ─▶ [buffers, copies] ─▶ queue ─▶ consumer
//!             │ permits for bytes   read, decode     reorder, batch                             │
//!             ◀──────────────────────── a state after each batch ──────────────────────────────┘
//! ```
//!
//! Its tasks are threads: dropping a handle does not stop them. Whoever stops the kit closes its queues and waits for all of them.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    rc::Rc,
    time::Duration,
};

use tokio::sync::Notify;
use towtank::{
    check::{Delivery, Job, Memory, Taken},
    loader::{Error, Plan, Settings},
    machine::{Item, Machine, Op, Tags, Time},
    sim::{SimMachine, SimTask},
    trace::{Event, Kind, StageId},
};

use crate::zoo::{
    cache::Cache,
    collector::{self, Batch, Ready},
    defect::Defect,
    feeder::{self, Message},
    order::Order,
    permits::Permits,
    queue::Queue,
    resume::Position,
    transfer::Buffers,
    worker::{self, Out},
};

/// Who gives workers their samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// A feeder, through one queue for all workers.
    Shared,
    /// A feeder, through a queue for each worker, in turn.
    Each,
    /// Workers walk the order themselves, each its own part.
    Own,
}

/// The kit's own settings, beside those of the job.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub feed: Feed,
    /// Samples that a worker gets at a time.
    pub chunk: usize,
    /// Room in each queue.
    pub queue: usize,
    /// Samples of the largest size whose bytes may be held at once; 0 for any number.
    pub limit: u64,
    /// Ranks agree on a seed before they begin.
    pub agree: bool,
    /// Samples in the buffer that shuffles; 0 for a shuffle of the whole dataset.
    pub buffer: usize,
    /// Threads of a pool that readers and decoders share; 0 for as many as anybody wants.
    pub pool: u64,
    /// Chunks of four samples are fetched once, and deleted when all four are done.
    pub cached: bool,
    /// Each worker keeps the file of its present sample.
    pub files: bool,
    /// Buffers on the host, from which batches are copied to the device; 0 for none.
    pub buffers: usize,
    /// The trace has launches.
    pub launches: bool,
    /// The feeder looks at each sample before it hands it out.
    pub looks: bool,
    /// Slots are taken from the machine.
    pub slots: bool,
}

impl Shape {
    /// One queue, sample by sample.
    pub const PLAIN: Shape = Shape {
        feed: Feed::Shared,
        chunk: 1,
        queue: 4,
        limit: 0,
        agree: false,
        buffer: 0,
        pool: 0,
        cached: false,
        files: false,
        buffers: 0,
        launches: false,
        looks: false,
        slots: false,
    };
}

/// The kit, with a defect or without.
#[derive(Clone, Copy, Debug)]
pub struct Kit {
    pub shape: Shape,
    pub defect: Option<Defect>,
}

/// What its parts share.
pub struct Cx {
    pub machine: SimMachine<Tags>,
    pub shape: Shape,
    pub settings: Settings,
    pub plan: Plan,
    pub workers: usize,
    pub memory: Memory,
    pub bytes: Rc<Permits>,
    pub pool: Rc<Permits>,
    pub cache: Cache,
    pub inputs: Vec<Queue<Message>>,
    pub output: Queue<Out>,
    pub staged: Queue<Ready>,
    pub ready: Queue<Ready>,
    /// The epoch and the samples of it that were handed out.
    pub handed_out: Cell<(u32, u64)>,
    pub agreed: Cell<bool>,
    pub news: Notify,
    /// Draws so far, of all workers.
    pub drawn: Cell<u64>,
    /// Workers that have come to an epoch.
    pub arrived: RefCell<Vec<u32>>,
    /// Memory that nobody gives back.
    pub forgotten: RefCell<Vec<Taken>>,
    defect: Option<Defect>,
    live: Cell<usize>,
    tasks: RefCell<Vec<SimTask<Tags>>>,
}

impl Cx {
    fn new(kit: Kit, machine: SimMachine<Tags>, job: &Job) -> Rc<Cx> {
        let (mut shape, settings) = (kit.shape, job.settings().clone());
        if matches!(kit.defect, Some(Defect::Lat1 | Defect::Lat10)) {
            // Each worker is given its samples in advance.
            shape = Shape { feed: Feed::Each, queue: 1, ..shape };
        }
        let workers = settings.lanes.min(8);
        let inputs = if shape.feed == Feed::Shared { 1 } else { workers };
        let limit = if shape.limit == 0 { u64::MAX / 2 } else { shape.limit * settings.sample_bytes };
        Rc::new(Cx {
            shape,
            plan: job.plan().clone(),
            workers,
            memory: job.memory(),
            bytes: Permits::new(limit),
            pool: Permits::new(if shape.pool == 0 { u64::MAX / 2 } else { shape.pool }),
            cache: Cache::default(),
            inputs: (0..inputs).map(|_| Queue::new(shape.queue)).collect(),
            output: Queue::new(shape.queue),
            staged: Queue::new(settings.prefetch.max(1)),
            ready: Queue::new(settings.prefetch.max(1)),
            handed_out: Cell::default(),
            agreed: Cell::new(false),
            news: Notify::new(),
            drawn: Cell::new(0),
            arrived: RefCell::new(vec![0; settings.epochs as usize]),
            forgotten: RefCell::default(),
            defect: kit.defect,
            live: Cell::new(0),
            tasks: RefCell::default(),
            settings,
            machine,
        })
    }

    /// What is wrong, if anything.
    pub fn defect(&self) -> Option<Defect> {
        self.defect
    }

    /// Whether this is wrong.
    pub fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// The seed of what is drawn.
    pub fn seed(&self) -> u64 {
        self.machine.seed()
    }

    /// Starts a task that runs to its own end.
    pub fn spawn(self: &Rc<Cx>, name: &'static str, task: impl Future<Output = ()> + 'static) {
        self.live.set(self.live.get() + 1);
        let cx = self.clone();
        self.spawn_unseen(name, async move {
            task.await;
            cx.live.set(cx.live.get() - 1);
            cx.news.notify_waiters();
        });
    }

    /// Starts a task for which nobody waits.
    pub fn spawn_unseen(self: &Rc<Cx>, name: &'static str, task: impl Future<Output = ()> + 'static) {
        let task = self.machine.spawn(name, task);
        self.tasks.borrow_mut().push(task);
    }

    /// Waits until every task has come to its end.
    async fn join(&self) {
        while self.live.get() > 0 {
            self.news.notified().await;
        }
    }

    /// The label of a leaf.
    pub fn op(&self, stage: StageId, item: Item, attempt: u16) -> Op {
        Op { stage, rank: self.settings.rank, attempt, item }
    }

    /// Writes a line of the trace.
    pub fn record(&self, stage: StageId, item: Item, kind: Kind, since: Time, bytes: u64) {
        let (time, Item { epoch, sample, .. }) = (self.machine.now(), item);
        self.machine.record(Event { time, since, sample, bytes, epoch, rank: self.settings.rank, stage, kind });
    }

    /// Lets others run that can.
    pub async fn pause(&self) {
        self.machine.sleep(Duration::ZERO).await;
    }
}

/// Loads what the job says.
pub async fn load(kit: Kit, machine: SimMachine<Tags>, mut job: Job) {
    let cx = Cx::new(kit, machine, &job);
    let slots = cx.shape.slots.then(|| slots(&cx));
    let from = Position::of(&cx, &job);
    let order = Rc::new(Order::new(&cx, from));
    if cx.shape.agree {
        cx.spawn("agreement", feeder::agree(cx.clone(), order.clone()));
    }
    if cx.shape.feed != Feed::Own {
        cx.spawn("feeder", feeder::feed(cx.clone(), order.clone()));
    }
    for number in 0..cx.workers {
        cx.spawn("worker", worker::work(cx.clone(), number, order.clone()));
    }
    cx.spawn("collector", collector::collect(cx.clone(), from));
    if cx.shape.buffers > 0 {
        Buffers::start(&cx);
    }
    let ended = consume(&cx, &mut job).await;
    match ended {
        Ended::Plan => {
            // Whoever is not done by now has nobody who waits for it.
            cx.inputs.iter().for_each(Queue::close);
            cx.output.close();
            cx.join().await;
        }
        Ended::Left => stop(&cx).await,
        // Upstream is not told that nobody takes anything any more.
        Ended::Failed(_) if cx.has(Defect::Live3) => cx.join().await,
        Ended::Failed(_) => stop(&cx).await,
    }
    if !matches!(ended, Ended::Left) || !cx.has(Defect::Stop9) {
        cx.machine.quiesce().await;
    }
    cx.forgotten.take().into_iter().for_each(Taken::leave);
    drop(slots);
    if let Ended::Failed(error) = ended {
        job.fail(error);
    }
}

/// How the consumer's loop ended.
enum Ended {
    Plan,
    Left,
    Failed(Error),
}

async fn consume(cx: &Rc<Cx>, job: &mut Job) -> Ended {
    loop {
        let Some(message) = cx.ready.take().await else { return Ended::Left };
        let batch = match message {
            Ready::Batch(batch) => *batch,
            Ready::Failed(error) => return Ended::Failed(error),
            Ready::End => return Ended::Plan,
        };
        let Batch { epoch, items, skipped, draws, tags, position, copied, samples } = batch;
        let mut delivery = Delivery::of(items).epoch(epoch).skipped(skipped).draws(draws);
        let mut lent = None;
        if let Some(position) = position {
            delivery = delivery.saved(position.save(cx));
        }
        delivery = match copied {
            None => delivery.content(move || tags.clone()),
            Some(copy) => {
                copy.wait().await;
                lent = Some(copy.clone());
                delivery.content(move || copy.content())
            }
        };
        let more = job.give(delivery).await;
        drop(samples);
        if let Some(copy) = lent {
            copy.step_over();
        }
        if !more {
            return Ended::Left;
        }
    }
}

/// Stops everything that runs.
async fn stop(cx: &Rc<Cx>) {
    match cx.defect() {
        // Nobody tells anybody.
        Some(Defect::Stop9) => return,
        // The end travels with the data, behind what nobody reads any more.
        Some(Defect::Stop1) => {
            for queue in (0..cx.workers).map(|number| &cx.inputs[number % cx.inputs.len()]) {
                queue.put(Message::End).await;
            }
            return cx.join().await;
        }
        _ => {}
    }
    cx.ready.close();
    match cx.defect() {
        // Only the outermost can be closed.
        Some(Defect::Stop7) => return,
        // Whoever copies is not told, and not waited for.
        Some(Defect::Stop2) => {}
        _ => cx.staged.close(),
    }
    if !cx.has(Defect::Fault6) {
        cx.output.close();
    }
    cx.inputs.iter().for_each(Queue::close);
    cx.join().await;
}

/// The slots that are planned.
fn slots(cx: &Cx) -> impl Sized + use<> {
    let settings = &cx.settings;
    let ring = settings.ring.unwrap_or(settings.batch);
    let count = match cx.defect() {
        // Every worker has room for all batches ahead.
        Some(Defect::Mem6) => cx.workers * settings.prefetch * settings.batch + ring,
        _ => ring,
    };
    cx.machine.slots(count, settings.slot_bytes).expect("slots")
}
