//! The feeder: hands out samples, chunk by chunk, once there is memory for them.

use std::rc::Rc;

use towtank::{
    machine::{Item, Machine},
    trace::StageId,
};

use crate::zoo::{
    defect::Defect,
    kit::{Cx, Feed},
    order::Order,
    permits::Permit,
};

/// What workers take from their queue.
pub enum Message {
    Work(Work),
    End,
}

/// Samples to be loaded by one worker.
pub struct Work {
    /// Counted over all epochs.
    pub number: u64,
    pub epoch: u32,
    pub items: Vec<Item>,
    /// Pieces of work that the epoch has.
    pub of_epoch: u64,
    /// For the bytes of its samples.
    pub permit: Option<Rc<Permit>>,
}

/// The work of an epoch.
pub fn works(cx: &Cx, epoch: u32, items: &[Item], first: u64) -> Vec<Work> {
    let chunks: Vec<&[Item]> = if items.is_empty() { vec![items] } else { items.chunks(cx.shape.chunk).collect() };
    let of_epoch = chunks.len() as u64;
    let work = |(number, items): (u64, &&[Item])| Work { number, epoch, items: items.to_vec(), of_epoch, permit: None };
    (first..).zip(&chunks).map(work).collect()
}

/// Waits for the seed on which all ranks agree.
pub async fn agree(cx: Rc<Cx>, order: Rc<Order>) {
    _ = cx.machine.read(cx.op(StageId::user(1), Item::default(), 0)).await;
    order.agreed();
    cx.agreed.set(true);
    cx.news.notify_waiters();
}

/// Hands out all samples, and then the end.
pub async fn feed(cx: Rc<Cx>, order: Rc<Order>) {
    if cx.shape.agree {
        // The dataset is opened.
        _ = cx.machine.read(cx.op(StageId::user(2), Item { sample: 1, ..Item::default() }, 0)).await;
        while !cx.agreed.get() && !matches!(cx.defect(), Some(Defect::Eo6 | Defect::Resume13)) {
            cx.news.notified().await;
        }
    }
    let (mut number, mut poisoned) = (0, false);
    for epoch in order.epochs() {
        let mut items = order.epoch(epoch);
        if cx.has(Defect::Spdl3) && poisoned {
            items.clear();
        }
        let before = cx.plan.shape(epoch).samples.saturating_sub(items.len() as u64);
        if cx.has(Defect::Stop8) {
            // Each epoch has its own prefetcher, which keeps what it needs to go on.
            let kept = cx.clone();
            cx.spawn_unseen("prefetcher", async move {
                std::future::pending::<()>().await;
                drop(kept);
            });
        }
        let mut works = works(&cx, epoch, &items, number);
        number += works.len() as u64;
        works.reverse();
        let mut again = cx.has(Defect::Eo15);
        while let Some(work) = works.pop() {
            let last = work.items.last().copied();
            if cx.shape.looks && look(&cx, &work).await.is_err() {
                match cx.defect() {
                    // An iterator that raises counts as one that has ended.
                    Some(Defect::Spdl2) => return end(&cx).await,
                    Some(Defect::Spdl3) => poisoned = true,
                    // Whatever fails, the iterator is made anew.
                    Some(Defect::Eo15) if std::mem::take(&mut again) => {
                        let next = works.last().map_or(number, |work| work.number);
                        works = self::works(&cx, epoch, &items, next);
                        number = next + works.len() as u64;
                        works.reverse();
                        continue;
                    }
                    _ => {}
                }
            }
            if !hand_out(&cx, work).await {
                return;
            }
            if let Some(item) = last {
                let place = items.iter().position(|other| other.position == item.position).unwrap_or(0);
                cx.handed_out.set((epoch, before + place as u64 + 1));
            }
        }
    }
    end(&cx).await;
}

/// Looks at the header of each sample.
async fn look(cx: &Cx, work: &Work) -> Result<(), towtank::failure::Failure> {
    for item in &work.items {
        cx.machine.read(cx.op(StageId::user(0), *item, 0)).await?;
    }
    Ok(())
}

/// Hands out work once there is memory for it; `false` when nobody takes any.
async fn hand_out(cx: &Rc<Cx>, mut work: Work) -> bool {
    let bytes = work.items.iter().map(|item| cx.machine.bytes_bound(item.sample).unwrap_or(0)).sum::<u64>();
    if cx.shape.limit > 0 {
        work.permit = match cx.defect() {
            // Whoever makes samples does not know how far behind the consumer is.
            Some(Defect::Mem1) => None,
            // What a sample grows to when it is decoded is not counted.
            Some(Defect::Mem3) => Some(cx.bytes.take(bytes / 8).await),
            // More than there is never becomes free.
            Some(Defect::Live9) => Some(cx.bytes.take_exactly(bytes).await),
            Some(Defect::Live4) => {
                let permit = cx.bytes.take(bytes).await;
                // Another policy counts what is free, and knows of no exception.
                drop(cx.bytes.take_exactly(bytes).await);
                Some(permit)
            }
            _ => Some(cx.bytes.take(bytes).await),
        }
        .map(Rc::new);
    }
    // The source is read by a thread of the pool, until its sample is taken.
    let _thread = match cx.defect() {
        Some(Defect::Live1) => Some(cx.pool.take(1).await),
        _ => None,
    };
    let queue = match cx.defect() {
        _ if cx.shape.feed == Feed::Shared => 0,
        // All shards are the first worker's.
        Some(Defect::Lat10) => 0,
        _ => (work.number % cx.inputs.len() as u64) as usize,
    };
    cx.inputs[queue].put(Message::Work(work)).await
}

/// Tells every worker that there is nothing more.
async fn end(cx: &Rc<Cx>) {
    for number in 0..cx.workers {
        let queue = &cx.inputs[number % cx.inputs.len()];
        match cx.defect() {
            // A marker for which there is no room is gone.
            Some(Defect::Stop3) if queue.is_full() => {}
            _ => _ = queue.put(Message::End).await,
        }
    }
}
