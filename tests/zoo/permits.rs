//! Permits: for memory, for threads of a pool, for buffers.

use std::{cell::Cell, rc::Rc};

use tokio::sync::Notify;

/// So many permits, which come back when what holds them is dropped.
pub struct Permits {
    free: Cell<u64>,
    all: u64,
    changed: Notify,
}

/// Permits that somebody holds.
pub struct Permit {
    home: Rc<Permits>,
    count: u64,
}

impl Permits {
    /// So many, all free.
    pub fn new(all: u64) -> Rc<Permits> {
        Rc::new(Permits { free: Cell::new(all), all, changed: Notify::new() })
    }

    /// Takes permits once they are free. Whoever wants more than there are takes all of them, once nobody else has any: otherwise it would
    /// wait for ever.
    pub async fn take(self: &Rc<Permits>, count: u64) -> Permit {
        self.take_exactly(count.min(self.all)).await
    }

    /// Takes permits once they are free, however many there are.
    pub async fn take_exactly(self: &Rc<Permits>, count: u64) -> Permit {
        while self.free.get() < count {
            self.changed.notified().await;
        }
        self.free.set(self.free.get() - count);
        Permit { home: self.clone(), count }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.home.free.set(self.home.free.get() + self.count);
        self.home.changed.notify_waiters();
    }
}
