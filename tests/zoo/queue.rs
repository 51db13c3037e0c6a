//! A bounded queue between two stages of the kit.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

use tokio::sync::Notify;

/// A bounded queue on one thread. Between a look at it and the wait that follows there is nothing that could let another task in, so that
/// no wake is lost.
pub struct Queue<T> {
    items: RefCell<VecDeque<T>>,
    most: usize,
    closed: Cell<bool>,
    changed: Notify,
}

impl<T> Queue<T> {
    /// An empty one for so many.
    pub fn new(most: usize) -> Queue<T> {
        Queue { items: RefCell::default(), most, closed: Cell::new(false), changed: Notify::new() }
    }

    /// Puts an item in once there is room; `false` when the queue is closed.
    pub async fn put(&self, item: T) -> bool {
        while !self.closed.get() && self.items.borrow().len() >= self.most {
            self.changed.notified().await;
        }
        self.put_now(item)
    }

    /// Puts an item in, whether there is room or not; `false` when the queue is closed.
    pub fn put_now(&self, item: T) -> bool {
        if !self.closed.get() {
            self.items.borrow_mut().push_back(item);
            self.changed.notify_waiters();
        }
        !self.closed.get()
    }

    /// Whether there is no room.
    pub fn is_full(&self) -> bool {
        self.items.borrow().len() >= self.most
    }

    /// The next item; `None` when the queue is closed.
    pub async fn take(&self) -> Option<T> {
        loop {
            if self.closed.get() {
                return None;
            }
            if let Some(item) = self.take_now() {
                return Some(item);
            }
            self.changed.notified().await;
        }
    }

    /// The next item, where there is one.
    pub fn take_now(&self) -> Option<T> {
        let item = self.items.borrow_mut().pop_front();
        if item.is_some() {
            self.changed.notify_waiters();
        }
        item
    }

    /// Nobody takes what is in it any more, nobody waits for it, and nothing more goes in.
    pub fn close(&self) {
        self.closed.set(true);
        let left = std::mem::take(&mut *self.items.borrow_mut());
        drop(left);
        self.changed.notify_waiters();
    }

    /// Throws away all but these.
    pub fn retain(&self, keep: impl FnMut(&T) -> bool) {
        let (kept, thrown) = std::mem::take(&mut *self.items.borrow_mut()).into_iter().partition(keep);
        let thrown: VecDeque<T> = thrown;
        *self.items.borrow_mut() = kept;
        drop(thrown);
        self.changed.notify_waiters();
    }
}
