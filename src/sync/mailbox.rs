//! A bounded queue between two threads, either of which may block or await.
//!
//! One mutex guards the items, whether each side is still there, and who waits. The rule that loses no wake: whoever waits looks and
//! registers under one hold of the lock, and whoever changes something takes the registrations under the hold in which it changes
//! it. Wakers are called after the lock is released, since they may run foreign code.

use std::{collections::VecDeque, fmt, future::poll_fn, sync::Arc, task::Context, task::Poll, task::Waker};

use super::{Condvar, Mutex, lock};

/// A queue that holds at most `capacity` items, at least one.
///
/// Both ends may be shared by reference. Dropping one closes the queue: a sender then gets its item back, a receiver still gets what
/// was sent before. Items that nobody will receive are dropped with the receiver.
///
/// ```
/// let (sender, receiver) = towtank::sync::mailbox(2);
/// sender.try_send("batch").unwrap();
/// drop(sender);
/// assert_eq!(receiver.recv(), Some("batch"));
/// assert_eq!(receiver.recv(), None);
/// ```
pub fn mailbox<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let state = State {
        items: VecDeque::new(),
        sender_left: false,
        receiver_left: false,
        blocked: 0,
        for_items: Waiters::default(),
        for_space: Waiters::default(),
    };
    let shared = Arc::new(Shared { state: Mutex::new(state), arrived: Condvar::new(), capacity: capacity.max(1) });
    (Sender(shared.clone()), Receiver(shared))
}

struct Shared<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
    capacity: usize,
}

struct State<T> {
    items: VecDeque<T>,
    sender_left: bool,
    receiver_left: bool,
    /// Receivers that block on `arrived`.
    blocked: usize,
    /// Receivers that await an item.
    for_items: Waiters,
    /// Senders that await space, or the receiver's leaving.
    for_space: Waiters,
}

/// Tasks to be woken, each at most once. A task that gave up stays until the next wake, which it ignores.
#[derive(Default)]
struct Waiters(Vec<Waker>);

impl Waiters {
    fn register(&mut self, cx: &Context<'_>) {
        if !self.0.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.0.push(cx.waker().clone());
        }
    }

    fn take(&mut self) -> Waiters {
        std::mem::take(self)
    }

    fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

/// The end that sends.
pub struct Sender<T>(Arc<Shared<T>>);

/// The end that receives.
pub struct Receiver<T>(Arc<Shared<T>>);

/// The other end is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other end is gone")]
pub struct Closed;

/// Why an item was not sent; it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The queue is full.
    Full(T),
    /// Nobody will receive it.
    Closed(T),
}

/// Why there is no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryRecvError {
    /// Nothing is there yet.
    #[error("nothing is there yet")]
    Empty,
    /// Nothing is there, and nothing will come.
    #[error("nothing will come any more")]
    Closed,
}

impl<T> Sender<T> {
    /// Sends without waiting.
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        let mut state = lock(&self.0.state);
        if state.receiver_left {
            return Err(TrySendError::Closed(item));
        }
        if state.items.len() >= self.0.capacity {
            return Err(TrySendError::Full(item));
        }
        state.items.push_back(item);
        let waiters = state.for_items.take();
        let blocked = state.blocked > 0;
        drop(state);
        if blocked {
            self.0.arrived.notify_one();
        }
        waiters.wake();
        Ok(())
    }

    /// Ready when [`try_send`](Sender::try_send) would not find the queue full; an error when the receiver is gone.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let mut state = lock(&self.0.state);
        if state.receiver_left {
            return Poll::Ready(Err(Closed));
        }
        if state.items.len() < self.0.capacity {
            return Poll::Ready(Ok(()));
        }
        state.for_space.register(cx);
        Poll::Pending
    }

    /// Waits for space and sends. An error gives the item back. Not cancel safe: a future that is dropped drops its item.
    pub async fn send(&self, item: T) -> Result<(), TrySendError<T>> {
        let mut item = item;
        loop {
            match self.try_send(item) {
                Err(TrySendError::Full(back)) => item = back,
                sent => return sent,
            }
            // A receiver that left is noticed by the next try, which gives the item back.
            let _ = poll_fn(|cx| self.poll_ready(cx)).await;
        }
    }

    /// Completes when the receiver is gone. Cancel safe.
    pub async fn closed(&self) {
        poll_fn(|cx| {
            let mut state = lock(&self.0.state);
            if state.receiver_left {
                return Poll::Ready(());
            }
            state.for_space.register(cx);
            Poll::Pending
        })
        .await;
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        lock(&self.0.state).receiver_left
    }

    /// Items sent and not yet received.
    pub fn len(&self) -> usize {
        lock(&self.0.state).items.len()
    }

    /// Whether every item sent has been received.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.sender_left = true;
        let waiters = state.for_items.take();
        drop(state);
        self.0.arrived.notify_all();
        waiters.wake();
    }
}

impl<T> Receiver<T> {
    /// Blocks this thread until an item is there; `None` when nothing will come any more.
    ///
    /// It must not be called on the scheduler's thread, whose tasks would stop with it.
    pub fn recv(&self) -> Option<T> {
        let mut state = lock(&self.0.state);
        loop {
            match self.take_or_left(state) {
                Ok(answer) => return answer,
                Err(empty) => state = empty,
            }
            state.blocked += 1;
            state = self.0.arrived.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
            state.blocked -= 1;
        }
    }

    /// The next item, if one is there.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        match self.take_or_left(lock(&self.0.state)) {
            Ok(answer) => answer.ok_or(TryRecvError::Closed),
            Err(_empty) => Err(TryRecvError::Empty),
        }
    }

    /// The next item; `None` when nothing will come any more. The task is woken when either is so.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match self.take_or_left(lock(&self.0.state)) {
            Ok(answer) => Poll::Ready(answer),
            Err(mut empty) => {
                empty.for_items.register(cx);
                Poll::Pending
            }
        }
    }

    /// Awaits the next item; `None` when nothing will come any more. Cancel safe: a future that is dropped took no item.
    pub async fn recv_async(&self) -> Option<T> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Items that wait to be received.
    pub fn len(&self) -> usize {
        lock(&self.0.state).items.len()
    }

    /// Whether no item waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next item, or that none will come; the lock itself when neither can be said yet.
    fn take_or_left<'a>(&self, mut state: super::MutexGuard<'a, State<T>>) -> Result<Option<T>, super::MutexGuard<'a, State<T>>> {
        if let Some(item) = state.items.pop_front() {
            let waiters = state.for_space.take();
            drop(state);
            waiters.wake();
            return Ok(Some(item));
        }
        if state.sender_left { Ok(None) } else { Err(state) }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.receiver_left = true;
        let unread = std::mem::take(&mut state.items);
        let waiters = state.for_space.take();
        drop(state);
        // An item's own drop may run anything, so it runs without the lock.
        drop(unread);
        waiters.wake();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({} of {})", self.len(), self.0.capacity)
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({} of {})", self.len(), self.0.capacity)
    }
}

#[cfg(all(test, not(towtank_loom)))]
mod tests {
    use std::{pin::pin, sync::atomic::AtomicUsize, sync::atomic::Ordering::SeqCst, task::Wake, thread};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn a_full_queue_gives_the_item_back_and_wakes_when_there_is_space() {
        let (sender, receiver) = mailbox(1);
        let (count, mut send) = (Arc::new(Count::default()), pin!(sender.send(2)));
        let waker = Waker::from(count.clone());
        sender.try_send(1).expect("it is empty");
        assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)));
        assert_eq!(send.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
        assert_eq!((receiver.try_recv(), count.0.load(SeqCst)), (Ok(1), 1));
        assert_eq!(send.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(())));
        assert_eq!(receiver.try_recv(), Ok(2));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    }

    #[test]
    fn a_receiver_that_leaves_drops_what_it_did_not_read_and_tells_the_sender() {
        let (sender, receiver) = mailbox(4);
        let (item, count) = (Arc::new(()), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let mut closed = pin!(sender.closed());
        sender.try_send(item.clone()).expect("there is space");
        assert_eq!(closed.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
        drop(receiver);
        assert_eq!((Arc::strong_count(&item), count.0.load(SeqCst)), (1, 1));
        assert_eq!(closed.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(()));
        assert_eq!(sender.try_send(item.clone()), Err(TrySendError::Closed(item)));
    }

    #[test]
    fn a_blocked_receiver_gets_everything_in_order_and_then_the_end() {
        let (sender, receiver) = mailbox(3);
        let consumer = thread::Builder::new().spawn(move || std::iter::from_fn(|| receiver.recv()).collect::<Vec<_>>());
        for item in 0..1000 {
            let mut item = item;
            while let Err(TrySendError::Full(back)) = sender.try_send(item) {
                item = back;
                thread::yield_now();
            }
        }
        drop(sender);
        assert_eq!(consumer.expect("a thread").join().expect("no panic"), (0..1000).collect::<Vec<_>>());
    }
}
