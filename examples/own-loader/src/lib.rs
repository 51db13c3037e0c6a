//! A data loader as one would write it in an afternoon: workers read and decode samples, and batches leave in the order of the plan.
//!
//! It is generic over [`Machine`]: it spawns, reads, computes and sleeps through that trait alone, so the same code runs on threads and
//! under the simulated clock of `towtank::check`, which `tests/check.rs` does.
//!
//! It keeps the plan of its rank, with any tail and `drop_last`, what a failure means, and the deadline of reads. It has no retries, no budget
//! and no state to go on from, and its batches come in the order of the plan where any order would do.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::poll_fn,
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use tokio::sync::Notify;
use towtank::{
    failure::{Failure, FailureKind},
    loader::{Error, OnError, Plan, Settings, Skipped, stage::Permits},
    machine::{Item, Machine, Op, Payload, Work},
    trace::StageId,
};

/// What the consumer gets.
pub struct Batch {
    /// The epoch of its samples.
    pub epoch: u32,
    /// Its samples, in order.
    pub items: Vec<Item>,
    /// Samples that failed since the batch before.
    pub skipped: Vec<Skipped>,
}

/// What a worker takes first: a permit to decode, or room for what it has decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TakesFirst {
    /// Room, and then a permit for as long as it decodes.
    Room,
    /// A permit, which it keeps while it waits for room: wrong, since the workers that wait for room may have all permits, and the oldest
    /// sample, which makes room, needs one.
    Permit,
}

/// Samples that are decoded and not yet delivered.
struct Window {
    /// Samples that fit.
    size: usize,
    delivered: Cell<usize>,
    done: RefCell<BTreeMap<usize, Result<(), Failure>>>,
    news: Notify,
}

impl Window {
    /// Waits until there is room for the sample of this number.
    async fn room(&self, number: usize) {
        while number >= self.delivered.get() + self.size {
            self.news.notified().await;
        }
    }

    /// The sample of this number, once it is done.
    async fn next(&self, number: usize) -> Result<(), Failure> {
        loop {
            if let Some(result) = self.done.borrow_mut().remove(&number) {
                self.delivered.set(number + 1);
                self.news.notify_waiters();
                return result;
            }
            self.news.notified().await;
        }
    }
}

/// Loads what the plan says, batch by batch, until `deliver` says that the consumer has left.
///
/// # Errors
///
/// A sample that failed, where none may, or one more than may.
pub async fn load<M: Machine>(
    machine: M,
    plan: &Plan,
    settings: &Settings,
    takes_first: TakesFirst,
    deliver: impl AsyncFnMut(Batch) -> bool,
) -> Result<(), Error> {
    let mut cursor = plan.cursor();
    let items: Rc<Vec<Item>> = Rc::new(std::iter::from_fn(|| cursor.take()).map(|(_, item)| item).collect());
    let size = 2 * settings.batch;
    let window = Rc::new(Window { size, delivered: Cell::new(0), done: RefCell::default(), news: Notify::new() });
    // Watched: when nothing moves any more, the report says who has a permit and who waits for one.
    let decoding = Permits::watched(&machine, "decoding", 2);
    let next = Rc::new(Cell::new(0));
    let workers: Vec<M::Task> = (0..settings.lanes)
        .map(|_| {
            let (items, next, window) = (items.clone(), next.clone(), window.clone());
            let (rank, deadline) = (settings.rank, settings.fetch_deadline);
            let worker = Worker { machine: machine.clone(), rank, deadline, decoding: decoding.clone(), takes_first };
            machine.spawn("worker", async move {
                while let Some(item) = items.get(next.get()) {
                    let number = next.replace(next.get() + 1);
                    let result = worker.load(*item, number, &window).await;
                    window.done.borrow_mut().insert(number, result);
                    window.news.notify_waiters();
                }
            })
        })
        .collect();
    let end = batches(plan, settings, &items, &window, deliver).await;
    // Dropping a task stops it; what it had begun ends on its own, and is waited for.
    drop(workers);
    machine.quiesce().await;
    end
}

/// Makes batches of samples in order: in every epoch as many as planned, whatever fails, so that ranks stay in step.
async fn batches(
    plan: &Plan,
    settings: &Settings,
    items: &[Item],
    window: &Window,
    mut deliver: impl AsyncFnMut(Batch) -> bool,
) -> Result<(), Error> {
    let mut items = items.iter().copied().enumerate().peekable();
    for epoch in 0..plan.epochs() {
        let (shape, mut failed) = (plan.shape(epoch), 0);
        for _ in 0..shape.steps {
            let mut batch = Batch { epoch, items: Vec::new(), skipped: Vec::new() };
            // Where samples failed, the last batches of the epoch are short, or empty.
            while batch.items.len() < settings.batch
                && let Some((number, item)) = items.next_if(|(_, item)| item.epoch == epoch)
            {
                let Err(failure) = window.next(number).await else {
                    batch.items.push(item);
                    continue;
                };
                failed += 1;
                match settings.on_error {
                    OnError::Fail => return Err(Error::Sample { item, failure }),
                    OnError::Skip { at_most } if failed > at_most.of(shape.samples) => {
                        return Err(Error::TooManySkipped { allowed: at_most.of(shape.samples), item, failure });
                    }
                    OnError::Skip { .. } => batch.skipped.push(Skipped { item, failure }),
                }
            }
            if !deliver(batch).await {
                return Ok(());
            }
        }
        // What is left is to be dropped: with `drop_last`, an epoch's last batch that is not full.
        while let Some((number, _)) = items.next_if(|(_, item)| item.epoch == epoch) {
            _ = window.next(number).await;
        }
    }
    Ok(())
}

struct Worker<M> {
    machine: M,
    rank: u16,
    deadline: Option<Duration>,
    decoding: Rc<Permits>,
    takes_first: TakesFirst,
}

impl<M: Machine> Worker<M> {
    /// Reads and decodes one sample.
    async fn load(&self, item: Item, number: usize, window: &Window) -> Result<(), Failure> {
        let op = |stage| Op { stage, rank: self.rank, item, attempt: 0 };
        let bytes = self.in_time(self.machine.read(op(StageId::FETCH))).await?;
        if self.takes_first == TakesFirst::Room {
            window.room(number).await;
        }
        let _permit = self.decoding.acquire().await;
        window.room(number).await;
        let work = Work { kind: "decode", bytes: M::Payload::bytes(&bytes), pixels: 0 };
        self.machine.cpu(op(StageId::DECODE), work, move || drop(bytes)).await
    }

    /// A read that takes longer than its deadline is given up: one that stalls would hold up all.
    async fn in_time<T>(&self, read: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let Some(deadline) = self.deadline else { return read.await };
        let (mut read, mut late) = (pin!(read), pin!(self.machine.sleep(deadline)));
        poll_fn(|cx| match read.as_mut().poll(cx) {
            Poll::Pending => late.as_mut().poll(cx).map(|()| Err(Failure::new(FailureKind::Deadline, "the read took too long"))),
            done => done,
        })
        .await
    }
}
