//! The collector: puts what workers made back in order, and makes batches of it.

use std::{collections::BTreeMap, rc::Rc};

use towtank::{
    loader::{Error, OnError, Order as Promise, Skipped},
    machine::{Item, Machine},
};

use crate::zoo::{
    defect::Defect,
    kit::Cx,
    resume::Position,
    transfer::Copy,
    worker::{Done, LOOK, Out, Sample},
};

/// What the consumer's loop takes.
pub enum Ready {
    Batch(Box<Batch>),
    Failed(Error),
    End,
}

/// A batch.
#[derive(Default)]
pub struct Batch {
    pub epoch: u32,
    pub items: Vec<Item>,
    pub skipped: Vec<Skipped>,
    pub draws: Vec<u64>,
    pub tags: Vec<u64>,
    /// Where the run stands after it.
    pub position: Option<Position>,
    /// Where it was copied.
    pub copied: Option<Rc<Copy>>,
    /// What holds its memory.
    pub samples: Vec<Sample>,
}

/// What the collector does.
pub async fn collect(cx: Rc<Cx>, from: Position) {
    let mut reorder = Reorder { cx: cx.clone(), waiting: BTreeMap::new(), next: 0, epoch: from.epoch, left: None };
    let mut batcher = Batcher::new(&cx, from);
    let mut finished = 0;
    while finished < cx.workers {
        let out = match cx.defect() {
            Some(Defect::Fault2) => watched(&cx).await,
            _ => cx.output.take().await,
        };
        match out {
            None => return,
            Some(Out::Finished) => {
                finished += 1;
                if cx.has(Defect::Eo8) && finished == 1 {
                    // The first that has its end ends the plan for all.
                    cx.output.retain(|out| matches!(out, Out::Finished));
                    reorder.waiting.clear();
                }
            }
            Some(Out::Done(done)) => reorder.put(done),
        }
        while let Some(done) = reorder.next() {
            if !batcher.take(done).await {
                return;
            }
        }
    }
    for done in std::mem::take(&mut reorder.waiting).into_values() {
        if !batcher.take(done).await {
            return;
        }
    }
    if !batcher.end_epoch().await {
        return;
    }
    if cx.has(Defect::Mem8) && batcher.epoch_taken.is_some() {
        cx.forgotten.borrow_mut().extend(batcher.epoch_taken.take());
    }
    batcher.send(Ready::End).await;
}

/// The next from a worker, with a look now and then whether its thread is there. It always is.
async fn watched(cx: &Rc<Cx>) -> Option<Out> {
    loop {
        tokio::select! {
            biased;
            out = cx.output.take() => return out,
            () = cx.machine.sleep(LOOK) => {}
        }
    }
}

/// What has come, and not its turn.
struct Reorder {
    cx: Rc<Cx>,
    waiting: BTreeMap<u64, Done>,
    next: u64,
    /// In completion order, the epoch whose work is taken as it comes, and how much of it is due.
    epoch: u32,
    left: Option<u64>,
}

impl Reorder {
    fn put(&mut self, mut done: Done) {
        if self.cx.has(Defect::Mem4) {
            // What is here is in nobody's books.
            done.outcomes.iter_mut().flat_map(|(_, outcome)| outcome).for_each(|sample| sample.permit = None);
        }
        // What comes twice waits behind the others.
        let mut number = done.number;
        while self.waiting.contains_key(&number) {
            number += 1 << 32;
        }
        self.waiting.insert(number, done);
    }

    fn next(&mut self) -> Option<Done> {
        let cx = self.cx.clone();
        let first = self.waiting.keys().next().copied()?;
        if cx.settings.order == Promise::Completion {
            let number = *self.waiting.iter().find(|(_, done)| done.epoch == self.epoch)?.0;
            let done = self.waiting.remove(&number)?;
            let left = self.left.unwrap_or(done.of_epoch) - 1;
            (self.epoch, self.left) = if left == 0 { (self.epoch + 1, None) } else { (self.epoch, Some(left)) };
            return Some(done);
        }
        let goes = match cx.defect() {
            // As they come.
            Some(Defect::Det2) => true,
            // As long as there is room for those that wait.
            Some(Defect::Det3) => first == self.next || self.waiting.len() > 2,
            _ => first <= self.next,
        };
        if !goes {
            return None;
        }
        self.next = self.next.max(first + 1);
        self.waiting.remove(&first)
    }
}

/// Makes batches.
struct Batcher {
    cx: Rc<Cx>,
    from: Position,
    position: Position,
    /// The batch that is being filled; of each worker, where each makes its own.
    open: Vec<Batch>,
    /// Pieces of work of the epoch so far.
    seen: u64,
    /// Memory of the epoch.
    epoch_taken: Option<towtank::check::Taken>,
    sent: u64,
}

impl Batcher {
    fn new(cx: &Rc<Cx>, from: Position) -> Batcher {
        let own = matches!(cx.defect(), Some(Defect::Last1 | Defect::Last2));
        let open = (0..if own { cx.workers } else { 1 }).map(|_| Batch::default()).collect();
        Batcher { cx: cx.clone(), from, position: from, open, seen: 0, epoch_taken: None, sent: 0 }
    }

    /// Takes a piece of work; `false` when nobody takes batches any more.
    async fn take(&mut self, done: Done) -> bool {
        let cx = self.cx.clone();
        if done.epoch != self.position.epoch && !self.end_epoch().await {
            return false;
        }
        while self.position.epoch < done.epoch {
            self.position = Position { epoch: self.position.epoch + 1, taken: 0, steps: 0, ..self.position };
        }
        let which = done.worker % self.open.len();
        for (item, outcome) in done.outcomes {
            self.position.taken += 1;
            match outcome {
                Ok(mut sample) => {
                    if cx.has(Defect::Mem8) && self.epoch_taken.is_none() {
                        // Something of an epoch that is over is kept for the next.
                        self.epoch_taken = sample.taken.take();
                    }
                    let open = &mut self.open[which];
                    open.items.push(item);
                    open.draws.push(sample.draw);
                    open.tags.push(sample.tag);
                    open.samples.push(sample);
                    if open.items.len() == cx.settings.batch && !self.seal(which).await {
                        return false;
                    }
                }
                // What fails in here is not what may fail.
                Err(failure) if cx.settings.on_error == OnError::Fail || cx.has(Defect::Spdl10) => {
                    self.send(Ready::Failed(Error::Sample { item, failure })).await;
                    return false;
                }
                Err(failure) => self.open[which].skipped.push(Skipped { item, failure }),
            }
        }
        self.seen += 1;
        self.seen < done.of_epoch || self.end_epoch().await
    }

    /// The epoch is over: what is open is its last batch.
    async fn end_epoch(&mut self) -> bool {
        let cx = self.cx.clone();
        self.seen = 0;
        match cx.defect() {
            // The remainder stays for the next epoch.
            Some(Defect::Last4) if self.position.epoch + 1 < cx.settings.epochs => return true,
            // A batch is not over before it is full.
            Some(Defect::Last5) if !self.open[0].items.is_empty() => std::future::pending().await,
            // Options are lost on the way.
            Some(Defect::Resume20) if self.from != Position::default() => return self.flush(false).await,
            _ => {}
        }
        cx.forgotten.borrow_mut().extend(self.epoch_taken.take());
        self.flush(cx.settings.drop_last).await
    }

    async fn flush(&mut self, drop_last: bool) -> bool {
        let cx = self.cx.clone();
        for which in 0..self.open.len() {
            let open = &mut self.open[which];
            if drop_last && open.skipped.is_empty() {
                *open = Batch::default();
            }
            let something = !open.items.is_empty() || !open.skipped.is_empty();
            if something && !self.seal(which).await {
                return false;
            }
        }
        if self.position.epoch >= cx.settings.epochs {
            return true;
        }
        let steps = cx.plan.shape(self.position.epoch).steps;
        // The other ranks wait for as many steps as were planned.
        while cx.settings.tail.fixes_steps() && self.position.steps < steps && !cx.has(Defect::Rank2) {
            if !self.seal(0).await {
                return false;
            }
        }
        true
    }

    /// A batch is over.
    async fn seal(&mut self, which: usize) -> bool {
        let cx = self.cx.clone();
        let mut batch = std::mem::take(&mut self.open[which]);
        batch.epoch = self.position.epoch;
        self.position.steps += 1;
        self.position.batches += 1;
        if cx.has(Defect::Resume12) && self.position.steps <= self.from.steps {
            // So many batches are skipped, of every epoch.
            return true;
        }
        if cx.has(Defect::Last7) && self.sent == cx.plan.shape(0).samples / cx.settings.batch as u64 {
            // As many batches as go into the dataset have come.
            return true;
        }
        batch.position = (cx.settings.order == Promise::Plan).then_some(self.position);
        self.sent += 1;
        self.send(Ready::Batch(Box::new(batch))).await
    }

    async fn send(&self, ready: Ready) -> bool {
        match self.cx.shape.buffers {
            0 => self.cx.ready.put(ready).await,
            _ => self.cx.staged.put(ready).await,
        }
    }
}
