//! A data loader as one would write it in an afternoon: workers read and decode samples, and batches leave in the order of the plan.
//!
//! It is generic over [`Machine`]: it spawns, reads, computes and sleeps through that trait alone, so the same code runs on threads and
//! under the simulated clock of `towtank::check`, which `tests/check.rs` does.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use tokio::sync::Notify;
use towtank::{
    failure::Failure,
    loader::{Plan, Settings, Skipped, stage::Permits},
    machine::{Item, Machine, Op, Payload, Work},
    trace::StageId,
};

/// What the consumer gets.
pub struct Batch {
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
pub async fn load<M: Machine>(
    machine: M,
    plan: &Plan,
    settings: &Settings,
    takes_first: TakesFirst,
    mut deliver: impl AsyncFnMut(Batch) -> bool,
) {
    let mut cursor = plan.cursor();
    let items: Rc<Vec<Item>> = Rc::new(std::iter::from_fn(|| cursor.take()).map(|(_, item)| item).collect());
    let size = 2 * settings.batch;
    let window = Rc::new(Window { size, delivered: Cell::new(0), done: RefCell::default(), news: Notify::new() });
    // Watched: when nothing moves any more, the report says who has a permit and who waits for one.
    let decoding = Permits::watched(&machine, "decoding", 2);
    let next = Rc::new(Cell::new(0));
    let workers: Vec<M::Task> = (0..settings.lanes)
        .map(|_| {
            let (machine, items, next) = (machine.clone(), items.clone(), next.clone());
            let (window, decoding) = (window.clone(), decoding.clone());
            machine.clone().spawn("worker", async move {
                while let Some(item) = items.get(next.get()) {
                    let number = next.replace(next.get() + 1);
                    let result = one(&machine, *item, number, &window, &decoding, takes_first).await;
                    window.done.borrow_mut().insert(number, result);
                    window.news.notify_waiters();
                }
            })
        })
        .collect();
    let mut batch = Batch { items: Vec::new(), skipped: Vec::new() };
    for (number, item) in items.iter().enumerate() {
        match window.next(number).await {
            Ok(()) => batch.items.push(*item),
            Err(failure) => batch.skipped.push(Skipped { item: *item, failure }),
        }
        let ends = items.get(number + 1).is_none_or(|after| after.epoch != item.epoch);
        if batch.items.len() == settings.batch || ends {
            let full = std::mem::replace(&mut batch, Batch { items: Vec::new(), skipped: Vec::new() });
            if !deliver(full).await {
                break;
            }
        }
    }
    // Dropping a task stops it; what it had begun ends on its own, and is waited for.
    drop(workers);
    machine.quiesce().await;
}

/// Reads and decodes one sample.
async fn one<M: Machine>(
    machine: &M,
    item: Item,
    number: usize,
    window: &Window,
    decoding: &Permits,
    takes_first: TakesFirst,
) -> Result<(), Failure> {
    let op = |stage| Op { stage, item, ..Op::default() };
    let bytes = machine.read(op(StageId::FETCH)).await?;
    if takes_first == TakesFirst::Room {
        window.room(number).await;
    }
    let _permit = decoding.acquire().await;
    window.room(number).await;
    let work = Work { kind: "decode", bytes: M::Payload::bytes(&bytes), pixels: 0 };
    machine.cpu(op(StageId::DECODE), work, move || drop(bytes)).await
}
