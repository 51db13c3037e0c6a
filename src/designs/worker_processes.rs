//! Worker processes that each make whole batches: PyTorch's `DataLoader`.
//!
//! ```text
//!                 indices of whole batches, round robin
//!        ┌──────── pipe ───────► worker 0: read, decode, read, decode, …, collate, send ──┐
//!  main ─┼──────── pipe ───────► worker 1:  …                                             ├─► pipe ─► main: receive, in order ─► step
//!        └──────── pipe ───────► worker 2:  …                                             ┘
//! ```
//!
//! What is modelled, as PyTorch 2 does it with its defaults:
//!
//! - The main process starts the workers of an epoch one after the other and gives out indices when all are started. Their number is what an
//!   epoch, and above all the first batch, waits for. They end with the epoch (`persistent_workers = False`).
//! - Each worker has so many batches outstanding, and gets the next when one of its own is *returned*. It makes them strictly one after the
//!   other, and every sample of one too.
//! - Batches come back through one pipe, by whoever is done first. The main process receives them in that order when it is asked for a
//!   batch, and not while it computes a step, pays for each, and returns them strictly in the order of the plan.
//! - A failed sample fails its batch, of which nothing is delivered, in the batch's place in the order, and the loader ends.
//! - Without workers the main process makes each batch itself when it is asked for it.
//!
//! What a batch costs both ends is the machine's [model](crate::model::Process) of it: collating into fresh pages and a small message where
//! tensors are handed over by shared memory, all bytes through a pipe where they are pickled. Left out are the thread that copies into
//! page-locked memory, and what the interpreter itself costs beside the work that is priced.

#[cfg(test)]
mod published;
#[cfg(test)]
mod tests;

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use crate::{
    failure::Failure,
    loader::{Accounts, End, EpochPlan, Error, Memory, Outcome, Plan, Resolved, Slots},
    machine::{Item, Machine, Op, Tags, Time, Work},
    sim::{Cost, PipeSpec, ProcessSpec, SimMachine, SimPipe, SimTask},
    trace::{Event, Kind, StageId},
};

/// What the design is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerProcesses {
    /// Worker processes; with none the main process does it all.
    pub workers: u32,
    /// Batches that each worker has outstanding; at least one.
    pub prefetch_factor: u32,
    /// What starting a worker costs.
    pub process: ProcessSpec,
    /// What a worker pays to hand over a batch.
    pub send: Cost,
    /// What the main process pays for it.
    pub receive: Cost,
    /// From the end of the one until the other can begin (ns).
    pub latency_ns: u64,
}

/// A batch that the consumer got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Which of the run, from 0.
    pub index: u64,
    /// The epoch of its samples.
    pub epoch: u32,
    /// Its samples with their places in the plan.
    pub items: Vec<Item>,
    taken: Time,
}

/// Whole batches' indices on their way to a worker.
struct Task {
    /// Its place in the epoch.
    step: u64,
    /// Which batch of the run.
    index: u64,
    epoch: u32,
    items: Vec<Item>,
}

/// A batch as a worker has made it.
struct Made {
    task: Task,
    launched: Vec<Time>,
    sealed: Time,
    failed: Option<(Item, Failure)>,
}

/// What every process knows.
struct Shared {
    rank: u16,
    slot_bytes: u64,
    books: RefCell<Books>,
}

#[derive(Default)]
struct Books {
    launched: u64,
    reserved_bytes: u64,
    peak_bytes: u64,
}

/// The workers of an epoch.
struct Epoch {
    number: u32,
    share: EpochPlan,
    steps: u64,
    /// Batches given out, and batches returned.
    given: u64,
    returned: u64,
    /// What has come before its turn, by its place.
    early: BTreeMap<u64, Made>,
    tasks: Vec<SimPipe<Task>>,
    results: SimPipe<Made>,
    _workers: Vec<SimTask<Tags>>,
}

/// The loader, as the main process sees it.
pub struct DataLoader {
    main: SimMachine<Tags>,
    spec: WorkerProcesses,
    plan: Plan,
    batch: u64,
    shared: Rc<Shared>,
    next_epoch: u32,
    next_index: u64,
    epoch: Option<Epoch>,
    /// The batch that the consumer works on: which, of which epoch, since when.
    working: Option<(u64, u32, Time)>,
    accounts: Accounts,
    end: Option<End>,
}

impl DataLoader {
    /// The loader of one rank with this plan. Nothing happens before the first batch is asked for.
    pub fn new(machine: &SimMachine<Tags>, resolved: &Resolved, spec: WorkerProcesses) -> DataLoader {
        let settings = &resolved.settings;
        let shared = Shared { rank: settings.rank, slot_bytes: settings.slot_bytes as u64, books: RefCell::default() };
        DataLoader {
            main: machine.process(),
            spec: WorkerProcesses { prefetch_factor: spec.prefetch_factor.max(1), ..spec },
            plan: resolved.plan.clone(),
            batch: settings.batch as u64,
            shared: Rc::new(shared),
            next_epoch: 0,
            next_index: 0,
            epoch: None,
            working: None,
            accounts: Accounts::default(),
            end: None,
        }
    }

    /// The next batch, on the device; `None` at the end of the plan, and after an error.
    pub async fn next(&mut self) -> Option<Result<Batch, Error>> {
        self.step_over();
        let asked = self.main.now();
        let made = loop {
            if self.end.is_some() {
                return None;
            }
            match &mut self.epoch {
                None if self.next_epoch == self.plan.epochs() => {
                    self.end = Some(End::Finished);
                    return None;
                }
                None => self.begin_epoch().await,
                Some(epoch) if epoch.returned == epoch.steps => {
                    // What is left of the epoch falls to `drop_last`: nobody ever asks for it.
                    let shape = self.plan.shape(epoch.number);
                    self.accounts.dropped += shape.samples - (shape.steps * self.batch).min(shape.samples);
                    self.epoch = None;
                }
                Some(_) => break self.next_made().await,
            }
        };
        self.give_out().await;
        let arrived = match self.arrive(made).await {
            Ok(made) => made,
            Err(error) => {
                self.epoch = None;
                self.end = Some(End::Failed(error.clone()));
                return Some(Err(error));
            }
        };
        Some(Ok(self.taken(asked, arrived)))
    }

    /// The consumer's step ends here, and not when it asks for the next batch.
    pub fn step_over(&mut self) {
        if let Some((index, epoch, taken)) = self.working.take() {
            self.shared.of_batch(&self.main, (index, epoch), StageId::CONSUMER, Kind::Step, taken, 0);
        }
    }

    /// The consumer does not need a batch any more.
    pub fn give_back(&self, batch: Batch) {
        self.shared.of_batch(&self.main, (batch.index, batch.epoch), StageId::CONSUMER, Kind::Returned, batch.taken, 0);
        self.shared.refund(&self.main, &batch.items);
    }

    /// Ends it, wherever it is; the books.
    pub async fn close(mut self) -> Outcome {
        self.step_over();
        self.epoch = None;
        self.main.quiesce().await;
        let end = self.end.take().unwrap_or(End::Left);
        let books = self.shared.books.borrow();
        let mut accounts = self.accounts;
        accounts.in_flight = books.launched - accounts.delivered - accounts.skipped;
        accounts.planned = books.launched + accounts.dropped;
        let time = self.main.now();
        let (rank, bytes) = (self.shared.rank, end.code());
        self.main.record(Event { time, since: time, sample: 0, bytes, epoch: 0, rank, stage: StageId::LOADER, kind: Kind::Stop });
        Outcome {
            end,
            accounts,
            memory: Memory { peak_reserved_bytes: books.peak_bytes, ..Memory::default() },
            slots: Slots::default(),
            // It cannot be resumed anywhere but at the beginning.
            state: self.plan.start().clone(),
            unreported: Vec::new(),
            flushes: 0,
            lent_batches: 0,
            retries: 0,
        }
    }

    /// Starts the workers of the next epoch, and gives out their first batches.
    async fn begin_epoch(&mut self) {
        let WorkerProcesses { workers, prefetch_factor, process, send, receive, latency_ns } = &self.spec;
        let pipe = |send: &Cost, receive: &Cost, capacity: u32| PipeSpec {
            send: send.clone(),
            receive: receive.clone(),
            latency_ns: *latency_ns,
            capacity,
        };
        // No more is ever outstanding, so nobody waits for room. What giving out costs is part of what a batch costs.
        let results = SimPipe::new(pipe(send, receive, workers.saturating_mul(*prefetch_factor)));
        let tasks: Vec<_> = (0..*workers).map(|_| SimPipe::new(pipe(&Cost::FREE, &Cost::FREE, *prefetch_factor))).collect();
        let mut started = Vec::new();
        for tasks in &tasks {
            let (tasks, results, shared) = (tasks.clone(), results.clone(), self.shared.clone());
            let work = move |own| work(own, tasks, results, shared);
            started.push(self.main.start_process("worker", process, work).await);
        }
        let number = self.next_epoch;
        self.next_epoch += 1;
        let (share, steps) = (self.plan.epoch(number), self.plan.shape(number).steps);
        let early = BTreeMap::new();
        self.epoch = Some(Epoch { number, share, steps, given: 0, returned: 0, early, tasks, results, _workers: started });
        for _ in 0..u64::from(self.spec.workers) * u64::from(self.spec.prefetch_factor) {
            self.give_out().await;
        }
    }

    /// Gives the indices of the next batch to the worker whose turn it is, if there are any left and any worker.
    async fn give_out(&mut self) {
        let Some(epoch) = self.epoch.as_mut().filter(|epoch| epoch.given < epoch.steps && !epoch.tasks.is_empty()) else {
            return;
        };
        let turn = (epoch.given % epoch.tasks.len() as u64) as usize;
        let task = next_task(self.batch, epoch, &mut self.next_index);
        let op = self.shared.op(StageId::BATCH, &task);
        epoch.tasks[turn].send(&self.main, op, 0, task).await;
    }

    /// The batch whose turn it is, from the worker that made it. Those that come before their turn are kept.
    async fn next_made(&mut self) -> Made {
        let epoch = self.epoch.as_mut().expect("it is asked for only within an epoch");
        if epoch.tasks.is_empty() {
            let task = next_task(self.batch, epoch, &mut self.next_index);
            epoch.returned += 1;
            return make(&self.main, task, &self.shared).await;
        }
        loop {
            if let Some(made) = epoch.early.remove(&epoch.returned) {
                epoch.returned += 1;
                return made;
            }
            let made = epoch.results.receive(&self.main, |made| self.shared.op(StageId::TRANSFER, &made.task)).await;
            epoch.early.insert(made.task.step, made);
        }
    }

    /// What failed in the worker fails here; all else goes on to the device, if there is a way to go.
    async fn arrive(&mut self, made: Made) -> Result<Made, Error> {
        if let Some((item, failure)) = made.failed {
            self.accounts.count_skipped(failure.kind);
            return Err(Error::Sample { item, failure });
        }
        let (task, bytes) = (&made.task, self.shared.bytes(&made.task.items));
        if !self.main.lends_slots() {
            self.main.copy_in(self.shared.op(StageId::TRANSFER, task), bytes).await.map_err(Error::Fatal)?;
        }
        let batch = (task.index, task.epoch);
        self.shared.of_batch(&self.main, batch, StageId::TRANSFER, Kind::Ready, made.sealed, bytes);
        Ok(made)
    }

    fn taken(&mut self, asked: Time, made: Made) -> Batch {
        let Made { task: Task { index, epoch, items, .. }, launched, .. } = made;
        let (shared, main, now) = (&self.shared, &self.main, self.main.now());
        shared.of_batch(main, (index, epoch), StageId::CONSUMER, Kind::Taken, asked, items.len() as u64);
        shared.of_batch(main, (index, epoch), StageId::CONSUMER, Kind::Idle, now, 0);
        for (item, launched) in items.iter().zip(launched) {
            shared.of_sample(main, item, StageId::CONSUMER, Kind::Delivered, launched, 0);
        }
        self.accounts.delivered += items.len() as u64;
        self.accounts.batches += 1;
        self.working = Some((index, epoch, now));
        Batch { index, epoch, items, taken: now }
    }
}

/// What is to be given out next of an epoch.
fn next_task(batch: u64, epoch: &mut Epoch, next_index: &mut u64) -> Task {
    let (step, index) = (epoch.given, *next_index);
    epoch.given += 1;
    *next_index += 1;
    let first = step * batch;
    let items = (first..(first + batch).min(epoch.share.planned())).map(|k| epoch.share.item(k)).collect();
    Task { step, index, epoch: epoch.number, items }
}

/// A worker: one batch after the other, until it is killed.
async fn work(own: SimMachine<Tags>, tasks: SimPipe<Task>, results: SimPipe<Made>, shared: Rc<Shared>) {
    loop {
        let task = tasks.receive(&own, |task| shared.op(StageId::BATCH, task)).await;
        let made = make(&own, task, &shared).await;
        // What is sent of a batch that failed is the exception.
        let bytes = if made.failed.is_some() { 0 } else { shared.bytes(&made.task.items) };
        results.send(&own, shared.op(StageId::BATCH, &made.task), bytes, made).await;
    }
}

/// Makes a batch, sample by sample, up to the first that fails.
async fn make(own: &SimMachine<Tags>, task: Task, shared: &Shared) -> Made {
    shared.reserve(own, &task.items);
    let mut made = Made { launched: Vec::with_capacity(task.items.len()), task, sealed: Time::ZERO, failed: None };
    let mut first_filled = None;
    for item in &made.task.items {
        let launched = own.now();
        shared.of_sample(own, item, StageId::LOADER, Kind::Launch, launched, 0);
        shared.books.borrow_mut().launched += 1;
        if let Err(failure) = load(own, item, shared.rank).await {
            shared.of_sample(own, item, StageId::BATCH, Kind::Skipped, launched, failure.kind.code());
            made.failed = Some((*item, failure));
            shared.refund(own, &made.task.items);
            return made;
        }
        shared.of_sample(own, item, StageId::BATCH, Kind::Filled, launched, 0);
        made.launched.push(launched);
        first_filled.get_or_insert(own.now());
    }
    made.sealed = own.now();
    let (batch, count) = ((made.task.index, made.task.epoch), made.task.items.len() as u64);
    shared.of_batch(own, batch, StageId::BATCH, Kind::Sealed, first_filled.unwrap_or(made.sealed), count);
    made
}

/// Reads and decodes one sample.
async fn load(own: &SimMachine<Tags>, item: &Item, rank: u16) -> Result<(), Failure> {
    let op = |stage| Op { stage, rank, attempt: 0, item: *item };
    let encoded = own.read(op(StageId::FETCH)).await?;
    let work = Work { kind: "decode", bytes: encoded.bytes, pixels: encoded.pixels };
    own.cpu(op(StageId::DECODE), work, || ()).await
}

impl Shared {
    fn op(&self, stage: StageId, task: &Task) -> Op {
        Op { stage, rank: self.rank, attempt: 0, item: Item { epoch: task.epoch, position: task.index, sample: task.index } }
    }

    /// Bytes of decoded samples.
    fn bytes(&self, items: &[Item]) -> u64 {
        (items.len() as u64).saturating_mul(self.slot_bytes)
    }

    /// From here on a batch takes memory.
    fn reserve(&self, own: &SimMachine<Tags>, items: &[Item]) {
        let bytes = self.bytes(items);
        let mut books = self.books.borrow_mut();
        books.reserved_bytes = books.reserved_bytes.saturating_add(bytes);
        books.peak_bytes = books.peak_bytes.max(books.reserved_bytes);
        drop(books);
        self.of_sample(own, items.first().unwrap_or(&Item::default()), StageId::LOADER, Kind::Reserve, own.now(), bytes);
    }

    /// Its memory is free again.
    fn refund(&self, own: &SimMachine<Tags>, items: &[Item]) {
        let bytes = self.bytes(items);
        let mut books = self.books.borrow_mut();
        books.reserved_bytes = books.reserved_bytes.saturating_sub(bytes);
        drop(books);
        self.of_sample(own, items.first().unwrap_or(&Item::default()), StageId::LOADER, Kind::Refund, own.now(), bytes);
    }

    fn of_sample(&self, own: &SimMachine<Tags>, item: &Item, stage: StageId, kind: Kind, since: Time, bytes: u64) {
        let (time, rank) = (own.now(), self.rank);
        own.record(Event { time, since, sample: item.sample, bytes, epoch: item.epoch, rank, stage, kind });
    }

    fn of_batch(&self, own: &SimMachine<Tags>, batch: (u64, u32), stage: StageId, kind: Kind, since: Time, bytes: u64) {
        let (time, rank, (sample, epoch)) = (own.now(), self.rank, batch);
        own.record(Event { time, since, sample, bytes, epoch, rank, stage, kind });
    }
}
