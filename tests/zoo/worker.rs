//! A worker: reads and decodes what it is given.

use std::{cell::Cell, rc::Rc, time::Duration};

use towtank::{
    check::Taken,
    draw::{Purpose, draw},
    failure::{Failure, FailureKind},
    machine::{Item, Machine, Tags, Work as Cost},
    sim::SimMachine,
    trace::{Kind, StageId},
};

use crate::zoo::{
    defect::Defect,
    feeder::{Message, Work, works},
    kit::{Cx, Feed},
    order::Order,
    permits::Permit,
};

/// What workers tell the collector.
pub enum Out {
    Done(Done),
    /// A worker has come to its end.
    Finished,
}

/// What came of a piece of work.
pub struct Done {
    pub number: u64,
    pub epoch: u32,
    pub of_epoch: u64,
    pub worker: usize,
    pub outcomes: Vec<(Item, Result<Sample, Failure>)>,
}

/// A sample that is decoded.
pub struct Sample {
    pub tag: u64,
    /// What its augmentation began with.
    pub draw: u64,
    pub taken: Option<Taken>,
    pub permit: Option<Rc<Permit>>,
}

/// A worker's own things.
struct Worker {
    cx: Rc<Cx>,
    number: usize,
    /// Draws of this worker.
    drawn: Cell<u64>,
    /// The file of its present sample.
    file: Cell<Option<Taken>>,
}

/// What one worker does.
pub async fn work(cx: Rc<Cx>, number: usize, order: Rc<Order>) {
    let worker = Worker { cx: cx.clone(), number, drawn: Cell::new(0), file: Cell::new(None) };
    let went_on = match cx.shape.feed {
        Feed::Own => worker.walk(&order).await,
        Feed::Shared | Feed::Each => worker.serve().await,
    };
    match worker.file.take() {
        // Files are deleted when the next one is there.
        Some(file) if cx.has(Defect::Mem10) => cx.forgotten.borrow_mut().push(file),
        file => drop(file),
    }
    if went_on {
        cx.output.put(Out::Finished).await;
    }
}

impl Worker {
    /// Takes work from the queue until its end; whether the worker can still say so.
    async fn serve(&self) -> bool {
        let cx = &self.cx;
        let input = &cx.inputs[self.number % cx.inputs.len()];
        loop {
            match input.take().await {
                None => return false,
                // It goes on, and may take the marker of another.
                Some(Message::End) if cx.has(Defect::Eo1) => _ = cx.output.put(Out::Finished).await,
                Some(Message::End) => return true,
                Some(Message::Work(work)) => {
                    if !self.one(work).await {
                        return false;
                    }
                }
            }
        }
    }

    /// Walks its own part of the order.
    async fn walk(&self, order: &Order) -> bool {
        let cx = &self.cx;
        let (mut first, mut any) = (0, false);
        for epoch in order.epochs() {
            // The epoch is counted by the main process, of which the worker has a copy.
            let told = if cx.has(Defect::Epoch2) { 0 } else { epoch };
            let mut items = order.epoch(told);
            items.iter_mut().for_each(|item| item.epoch = epoch);
            for work in works(cx, epoch, &items, first) {
                first += 1;
                // Every worker has the whole order, and nobody has told them to share it.
                let own = work.number % cx.workers as u64 == self.number as u64 || cx.has(Defect::Eo2);
                if own {
                    any = true;
                    if !self.one(work).await {
                        return false;
                    }
                }
            }
        }
        // One that never had a shard never says that it is done.
        any || !cx.has(Defect::Rank4)
    }

    /// Does a piece of work; `false` when the worker is at its end.
    async fn one(&self, mut work: Work) -> bool {
        let cx = &self.cx;
        if cx.has(Defect::Live8) {
            self.enter_epoch(work.epoch).await;
        }
        if cx.has(Defect::Mem2) {
            // What is with a worker is no longer in a queue.
            work.permit = None;
        }
        let mut outcomes = Vec::new();
        let (mut turn, mut next) = (0, 0);
        while let Some(item) =
            work.items.get((next + turn) % work.items.len().max(1)).copied().filter(|_| next < work.items.len())
        {
            next += 1;
            let outcome = self.sample(item, &work.permit).await;
            let failed = outcome.as_ref().err().map(|failure| failure.kind);
            match (cx.defect(), failed) {
                // The second attempt yields less, and its end is the end.
                (Some(Defect::Eo9), Some(FailureKind::Transient)) => break,
                // The second attempt yields as many, from threads that come in another order.
                (Some(Defect::Det8), Some(FailureKind::Transient)) => {
                    (turn, next) = (turn + 1, next - 1);
                    continue;
                }
                // A worker that dies says nothing.
                (Some(Defect::Fault1), Some(FailureKind::Panicked)) => return false,
                (Some(Defect::Fault3), Some(FailureKind::Panicked)) => std::mem::forget(work.permit.clone()),
                // It goes into the log.
                (Some(Defect::Fault5), Some(_)) => continue,
                // The handler catches what the stream raises, and the stream is over.
                (Some(Defect::Fault9), Some(_)) => break,
                _ => {}
            }
            outcomes.push((item, outcome));
        }
        let dead =
            cx.has(Defect::Fault7) && outcomes.iter().any(|(_, o)| o.as_ref().is_err_and(|f| f.kind == FailureKind::Panicked));
        let done = Done { number: work.number, epoch: work.epoch, of_epoch: work.of_epoch, worker: self.number, outcomes };
        cx.output.put(Out::Done(done)).await && !dead
    }

    /// Waits for the other workers before an epoch.
    async fn enter_epoch(&self, epoch: u32) {
        let cx = &self.cx;
        let seen = self.drawn.get() as u32;
        if epoch + 1 > seen {
            self.drawn.set(u64::from(epoch) + 1);
            cx.arrived.borrow_mut()[epoch as usize] += 1;
            cx.news.notify_waiters();
        }
        while (cx.arrived.borrow()[epoch as usize] as usize) < cx.workers {
            cx.news.notified().await;
        }
    }

    /// Loads one sample.
    async fn sample(&self, item: Item, permit: &Option<Rc<Permit>>) -> Result<Sample, Failure> {
        let cx = &self.cx;
        let began = cx.machine.now();
        if cx.shape.launches {
            cx.record(StageId::LOADER, item, Kind::Launch, began, 0);
        }
        let loaded = self.load(item, permit).await;
        match &loaded {
            Ok(_) if cx.shape.launches => cx.record(StageId::BATCH, item, Kind::Filled, began, 0),
            Ok(_) => {}
            // The chunk is tried again.
            Err(failure) if cx.has(Defect::Det8) && failure.kind == FailureKind::Transient => {}
            Err(failure) => cx.record(StageId::BATCH, item, Kind::Skipped, began, failure.kind.code()),
        }
        loaded
    }

    async fn load(&self, item: Item, permit: &Option<Rc<Permit>>) -> Result<Sample, Failure> {
        let cx = &self.cx;
        let bytes = cx.machine.bytes_bound(item.sample).unwrap_or(0);
        if cx.shape.files {
            self.file.set(None);
            self.file.set(Some(cx.memory.take(item, bytes)));
        }
        if cx.shape.cached {
            cx.cache.open(cx, item).await;
        }
        let taken = cx.memory.take(item, bytes);
        let thread = cx.pool.take(1).await;
        let read = self.read(item).await;
        let cached = !cx.shape.cached || cx.cache.has(item);
        // Decoding takes a thread of its own, while that of the reader waits.
        let decoder = match cx.defect() {
            Some(Defect::Live5) => cx.pool.take(1).await,
            _ => thread,
        };
        let decoded = match read {
            Ok(_) if !cached => Err(Failure::new(FailureKind::NotFound, "the file is gone")),
            Ok(phantom) => {
                let cost = Cost { kind: "decode", bytes: phantom.bytes, pixels: phantom.pixels };
                let decoding = cx.machine.cpu(cx.op(StageId::DECODE, item, 0), cost, move || phantom.sample);
                decoding.await
            }
            Err(failure) => Err(failure),
        };
        drop(decoder);
        if cx.shape.cached {
            cx.cache.close(cx, item).await;
        }
        Ok(Sample { tag: decoded?, draw: self.draw(item), taken: Some(taken), permit: permit.clone() })
    }

    /// What the augmentation of a sample begins with.
    fn draw(&self, item: Item) -> u64 {
        thread_local!(static EVER: Cell<u64> = const { Cell::new(0) });
        let cx = &self.cx;
        let count = |counter: &Cell<u64>| {
            counter.set(counter.get() + 1);
            counter.get()
        };
        let (entity, occurrence) = match cx.defect() {
            // Every worker begins with a copy of one generator.
            Some(Defect::Rng1) => (count(&self.drawn), 0),
            // One generator for all, in the order in which they come.
            Some(Defect::Det7) => (count(&cx.drawn), 0),
            // One of the generators is not seeded.
            Some(Defect::Rng2) => (EVER.with(count), 1),
            // Seeds are fixed when the pipeline is built.
            Some(Defect::Epoch9) => (item.sample, 0),
            _ => (item.sample, u64::from(item.epoch)),
        };
        draw(cx.seed(), Purpose::AUGMENT, entity, occurrence).word(0)
    }

    /// Reads a sample, and tries again what may pass.
    async fn read(&self, item: Item) -> Result<towtank::machine::Phantom, Failure> {
        let cx = &self.cx;
        let once = matches!(cx.defect(), Some(Defect::Eo9 | Defect::Det8));
        let tries = if once { 0 } else { cx.settings.retries.at_most };
        let mut attempt = if once { cx.drawn.replace(cx.drawn.get() + 1) as u16 } else { 0 };
        let last = attempt + tries;
        loop {
            let failure = match read_once(&cx.machine, cx, item, attempt).await {
                Ok(phantom) => return Ok(phantom),
                Err(failure) => failure,
            };
            let may_pass = matches!(failure.kind, FailureKind::Transient | FailureKind::Throttled | FailureKind::Deadline);
            if !may_pass || attempt == last {
                return Err(failure);
            }
            cx.machine.sleep(cx.settings.retries.base).await;
            attempt += 1;
        }
    }
}

async fn read_once(machine: &SimMachine<Tags>, cx: &Cx, item: Item, attempt: u16) -> Result<towtank::machine::Phantom, Failure> {
    let read = machine.read(cx.op(StageId::FETCH, item, attempt));
    let deadline = match cx.defect() {
        // Reads take as long as they take.
        Some(Defect::Fault8 | Defect::Fault2) => None,
        _ => cx.settings.fetch_deadline,
    };
    let Some(deadline) = deadline else { return read.await };
    tokio::select! {
        biased;
        read = read => read,
        () = machine.sleep(deadline) => Err(Failure::new(FailureKind::Deadline, "no answer")),
    }
}

/// How often somebody looks whether workers are alive.
pub const LOOK: Duration = Duration::from_secs(60);
