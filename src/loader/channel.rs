//! Between the loader and its consumer, which may live on another thread.
//!
//! One mutex guards a few fields: batches that are ready go one way; memory that comes home, and what the consumer did and when, go the
//! other. Nothing here bounds how many batches wait: the loader makes no more than it has memory for, so that taking a batch
//! need not wake anybody. The scheduler is woken when
//!
//! - memory comes home,
//! - the consumer leaves, or has seen the end,
//! - the consumer waits for a batch while it holds others, since then it may wait for itself.
//!
//! The consumer is woken when it waits and there is a batch, or the end. Each side checks under the lock before it sleeps and registers
//! under the same lock, so no wake is lost; wakers are called, and memory is freed, outside it.
//!
//! Control goes by ownership. Dropping [`Batches`] tells the loader to stop; dropping [`Sender`] tells the consumer that nothing
//! more comes, and is an error unless the loader said why before. A batch that outlives the loader frees its memory itself.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    sync::{Arc, PoisonError},
    task::{Context, Poll, Waker},
};

use super::{
    batch::{Batch, Content, Memory},
    error::Error,
    outcome::{Outcome, Skipped},
};
use crate::{
    machine::{Clock, Item, Shared as Watched, Standing, Time, Wait, Who},
    sync::{Condvar, Mutex, MutexGuard, lock},
};

#[cfg(all(test, towtank_loom))]
mod checked;

/// A channel between a loader and its consumer, whose stamps are read off `clock`.
///
/// `D` is the machine's [`DeviceBatch`](crate::machine::Machine::DeviceBatch), `U` its [`Unit`](crate::machine::Unit).
pub fn channel<D: Send + 'static, U: Send + 'static>(clock: impl Clock) -> (Sender<D, U>, Batches<D, U>) {
    let shared = Shared { inner: Mutex::new(Inner::default()), changed: Condvar::new(), now: Box::new(move || clock.now()) };
    let home = Home(Arc::new(shared));
    (Sender { home: home.clone() }, Batches { home, last: None, asked: None, over: false })
}

struct Shared<D, U> {
    inner: Mutex<Inner<D, U>>,
    /// Tells a blocked consumer of a batch or the end.
    changed: Condvar,
    now: Box<dyn Fn() -> Time + Send + Sync>,
}

struct Inner<D, U> {
    ready: VecDeque<Content<D, U>>,
    /// Set once nothing more comes after `ready`. The error is taken by the consumer.
    end: Option<Result<(), Error>>,
    /// The loader's task is gone; nobody takes memory back.
    sender_gone: bool,
    outcome: Option<Outcome>,

    /// The consumer left.
    left: bool,
    seen_end: bool,
    /// The consumer waits for a batch.
    asking: bool,
    consumer: Option<Waker>,
    /// Indices of the batches that the consumer holds, in the order in which it took them.
    held: Vec<u64>,
    /// What the consumer did, for the scheduler.
    notes: Vec<Note<D, U>>,
    scheduler: Option<Waker>,
}

impl<D, U> Default for Inner<D, U> {
    fn default() -> Self {
        Inner {
            ready: VecDeque::new(),
            end: None,
            sender_gone: false,
            outcome: None,
            left: false,
            seen_end: false,
            asking: false,
            consumer: None,
            held: Vec::new(),
            notes: Vec::new(),
            scheduler: None,
        }
    }
}

/// What the consumer did.
pub(super) enum Note<D, U> {
    Taken { index: u64, asked: Time, ready: Time, taken: Time },
    Step { index: u64, epoch: u32, taken: Time, asked: Time },
    Returned { index: u64, epoch: u32, taken: Time, at: Time, memory: Memory<D, U>, items: Vec<Item>, skipped: Vec<Skipped> },
}

/// The way home of a batch's memory.
pub(super) struct Home<D, U>(Arc<Shared<D, U>>);

impl<D, U> Clone for Home<D, U> {
    fn clone(&self) -> Self {
        Home(self.0.clone())
    }
}

impl<D, U> Home<D, U> {
    fn lock(&self) -> MutexGuard<'_, Inner<D, U>> {
        lock(&self.0.inner)
    }

    fn now(&self) -> Time {
        (self.0.now)()
    }

    /// Takes the content out of a batch that is dropped.
    pub(super) fn give_back(&self, content: &mut Content<D, U>, taken: Time) {
        let Content { index, epoch, .. } = *content;
        let memory = std::mem::replace(&mut content.memory, Memory::Empty);
        let (items, skipped) = (std::mem::take(&mut content.items), std::mem::take(&mut content.skipped));
        let note = Note::Returned { index, epoch, taken, at: self.now(), memory, items, skipped };
        let mut inner = self.lock();
        inner.held.retain(|held| *held != index);
        if inner.sender_gone {
            drop(inner);
            drop(note);
            return;
        }
        inner.notes.push(note);
        wake_after(inner, |inner| inner.scheduler.take());
    }
}

/// Calls a waker once the lock is free.
fn wake_after<D, U>(mut inner: MutexGuard<'_, Inner<D, U>>, waker: impl FnOnce(&mut Inner<D, U>) -> Option<Waker>) {
    let waker = waker(&mut inner);
    drop(inner);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The loader's end of the channel. It belongs to [`run`](super::run).
pub struct Sender<D: Send + 'static, U: Send + 'static> {
    home: Home<D, U>,
}

/// What the scheduler learns of the consumer at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Status {
    pub(super) left: bool,
    pub(super) seen_end: bool,
    /// The consumer waits for a batch, none is ready, and it holds others: how many, and the oldest one's index.
    pub(super) waits_holding: Option<(usize, u64)>,
}

impl<D: Send + 'static, U: Send + 'static> Sender<D, U> {
    /// Moves what the consumer did to the end of `notes` and registers `waker` for what it does next. Once the consumer has left,
    /// batches that it never took go to `untaken`.
    pub(super) fn exchange(&self, waker: &Waker, notes: &mut Vec<Note<D, U>>, untaken: &mut Vec<Content<D, U>>) -> Status {
        let mut inner = self.home.lock();
        notes.append(&mut inner.notes);
        if inner.left {
            untaken.extend(inner.ready.drain(..));
        }
        if !inner.scheduler.as_ref().is_some_and(|known| known.will_wake(waker)) {
            inner.scheduler = Some(waker.clone());
        }
        let waits = inner.asking && inner.ready.is_empty() && inner.end.is_none();
        let oldest = inner.held.first().copied().filter(|_| waits);
        Status { left: inner.left, seen_end: inner.seen_end, waits_holding: oldest.map(|oldest| (inner.held.len(), oldest)) }
    }

    /// What can tell who waits for a batch.
    pub(super) fn standing(&self) -> Rc<dyn Watched> {
        Rc::new(self.home.clone())
    }

    /// Makes a batch ready. The loader never has more of them than it has memory for.
    pub(super) fn push(&self, content: Content<D, U>) {
        let mut inner = self.home.lock();
        inner.ready.push_back(content);
        self.tell(inner);
    }

    /// Nothing more comes after what is ready.
    pub(super) fn end(&self, end: Result<(), Error>) {
        let mut inner = self.home.lock();
        inner.end = Some(end);
        self.tell(inner);
    }

    /// Leaves the books for [`Batches::close`].
    pub(super) fn report(&self, outcome: Outcome) {
        self.home.lock().outcome = Some(outcome);
    }

    fn tell(&self, inner: MutexGuard<'_, Inner<D, U>>) {
        wake_after(inner, |inner| inner.consumer.take());
        self.home.0.changed.notify_all();
    }
}

impl<D, U> Watched for Home<D, U> {
    /// The consumer waits for the loader.
    fn standing(&self) -> Standing {
        let inner = self.lock();
        let loader = inner.scheduler.as_ref().map(|waker| (Who::of(waker), "makes it".to_owned()));
        let wait = |consumer: &Waker| {
            let who = Who::of(consumer);
            let on = loader.clone().into_iter().filter(|(loader, _)| *loader != who).collect();
            Wait { who, what: "waits for the next batch".to_owned(), on }
        };
        Standing { waits: inner.consumer.iter().filter(|_| inner.asking).map(wait).collect(), and_alike: false }
    }
}

impl<D: Send + 'static, U: Send + 'static> Drop for Sender<D, U> {
    fn drop(&mut self) {
        let mut inner = self.home.lock();
        inner.sender_gone = true;
        inner.scheduler = None;
        if inner.end.is_none() {
            inner.end = Some(Err(Error::Lost));
        }
        let unread = std::mem::take(&mut inner.notes);
        self.tell(inner);
        drop(unread);
    }
}

/// The consumer's end of a loader: its batches, in order.
///
/// It is a blocking [`Iterator`], and an async stream: [`recv`](Batches::recv), or [`futures_core::Stream`]. After the last batch, or
/// after an error, there is nothing more. Dropping it tells the loader to stop and does not wait; [`close`](Batches::close)
/// does. On a simulated machine, whose consumer shares the scheduler's thread, use the async ways only.
pub struct Batches<D: Send + 'static, U: Send + 'static> {
    home: Home<D, U>,
    /// The batch taken last, until the consumer asks for the next.
    last: Option<(u64, u32, Time)>,
    /// When the consumer asked, while it waits.
    asked: Option<Time>,
    over: bool,
}

/// What a request for a batch comes to.
type Answer<D, U> = Option<Result<Batch<D, U>, Error>>;

impl<D: Send + 'static, U: Send + 'static> Batches<D, U> {
    /// The next batch; `None` after the last one and after an error.
    ///
    /// Cancel safe: a batch is taken or not.
    pub async fn recv(&mut self) -> Option<Result<Batch<D, U>, Error>> {
        let asking = Asking(self);
        poll_fn(|cx| asking.0.poll(cx)).await
    }

    /// Polls for the next batch, as [`recv`](Batches::recv) does.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Batch<D, U>, Error>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let asked = self.ask();
        let home = self.home.clone();
        let mut inner = home.lock();
        if let Some(answer) = self.answer(&mut inner, asked) {
            self.finish(inner);
            return Poll::Ready(answer);
        }
        if !inner.consumer.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            inner.consumer = Some(cx.waker().clone());
        }
        wait(inner);
        Poll::Pending
    }

    /// Tells the loader to stop, waits until nothing of it is left, and returns its books; `None` when it was lost.
    ///
    /// It blocks this thread. On a simulated machine use [`closed`](Batches::closed).
    pub fn close(mut self) -> Option<Outcome> {
        self.leave();
        let mut inner = self.home.lock();
        while !inner.sender_gone {
            inner = self.home.0.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        inner.outcome.take()
    }

    /// As [`close`](Batches::close), without blocking the thread.
    pub async fn closed(mut self) -> Option<Outcome> {
        self.leave();
        poll_fn(|cx| {
            let mut inner = self.home.lock();
            if inner.sender_gone {
                return Poll::Ready(inner.outcome.take());
            }
            inner.consumer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Says that the step with the last batch is over and the next one is wanted, before anybody waits for it. What passes between this
    /// and the next batch, such as a barrier that ranks meet at, counts as waiting and not as the step.
    pub fn step_over(&mut self) {
        if !self.over {
            self.ask();
        }
    }

    /// Notes when the consumer asked, and that its step with the last batch is over.
    fn ask(&mut self) -> Time {
        if let Some(asked) = self.asked {
            return asked;
        }
        let asked = self.home.now();
        self.asked = Some(asked);
        if let Some((index, epoch, taken)) = self.last.take() {
            let mut inner = self.home.lock();
            if !inner.sender_gone {
                inner.notes.push(Note::Step { index, epoch, taken, asked });
            }
        }
        asked
    }

    /// What there is for the consumer right now.
    fn answer(&mut self, inner: &mut Inner<D, U>, asked: Time) -> Option<Answer<D, U>> {
        let answer = match inner.ready.pop_front() {
            Some(content) => {
                let taken = self.home.now();
                let index = content.index;
                inner.held.push(index);
                if !inner.sender_gone {
                    inner.notes.push(Note::Taken { index, asked, ready: content.ready, taken });
                }
                self.last = Some((index, content.epoch, taken));
                Some(Ok(Batch::new(content, taken, self.home.clone())))
            }
            None => {
                let error = inner.end.as_mut()?.as_mut().err().cloned();
                inner.seen_end = true;
                self.over = true;
                error.map(Err)
            }
        };
        inner.asking = false;
        inner.consumer = None;
        self.asked = None;
        Some(answer)
    }

    /// Lets the loader go once the consumer has seen the end.
    fn finish(&self, inner: MutexGuard<'_, Inner<D, U>>) {
        wake_after(inner, |inner| if inner.seen_end { inner.scheduler.take() } else { None });
    }

    fn leave(&mut self) {
        self.over = true;
        let mut inner = self.home.lock();
        inner.left = true;
        inner.asking = false;
        // With nobody to take them home, batches never taken are freed here, outside the lock.
        let untaken = if inner.sender_gone { std::mem::take(&mut inner.ready) } else { VecDeque::new() };
        wake_after(inner, |inner| inner.scheduler.take());
        drop(untaken);
    }
}

/// Marks the consumer as waiting. A consumer that holds batches while it waits may be waiting for itself: the scheduler looks.
fn wait<D, U>(mut inner: MutexGuard<'_, Inner<D, U>>) {
    let began = !std::mem::replace(&mut inner.asking, true);
    wake_after(inner, |inner| if began && !inner.held.is_empty() { inner.scheduler.take() } else { None });
}

/// A request that ends when its future does.
struct Asking<'a, D: Send + 'static, U: Send + 'static>(&'a mut Batches<D, U>);

impl<D: Send + 'static, U: Send + 'static> Drop for Asking<'_, D, U> {
    fn drop(&mut self) {
        if self.0.asked.take().is_some() {
            let mut inner = self.0.home.lock();
            inner.asking = false;
            inner.consumer = None;
        }
    }
}

impl<D: Send + 'static, U: Send + 'static> Iterator for Batches<D, U> {
    type Item = Result<Batch<D, U>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let asked = self.ask();
        let home = self.home.clone();
        let mut inner = home.lock();
        loop {
            if let Some(answer) = self.answer(&mut inner, asked) {
                self.finish(inner);
                return answer;
            }
            // The lock is given up to wake the scheduler, so look once more before sleeping.
            if !inner.asking && !inner.held.is_empty() {
                wait(inner);
                inner = home.lock();
            } else {
                inner.asking = true;
                inner = home.0.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl<D: Send + 'static, U: Send + 'static> futures_core::Stream for Batches<D, U> {
    type Item = Result<Batch<D, U>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(cx)
    }
}

impl<D: Send + 'static, U: Send + 'static> Drop for Batches<D, U> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<D: Send + 'static, U: Send + 'static> fmt::Debug for Batches<D, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.home.lock();
        write!(f, "Batches: {} ready, {} held", inner.ready.len(), inner.held.len())
    }
}
