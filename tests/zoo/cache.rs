//! Chunks of four samples, fetched once and deleted when all four are done.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use tokio::sync::Notify;
use towtank::{
    check::Taken,
    machine::{Item, Machine},
    trace::StageId,
};

use crate::zoo::{defect::Defect, kit::Cx};

/// Samples in a chunk.
const CHUNK: u64 = 4;

/// The chunks that are there.
#[derive(Default)]
pub struct Cache {
    chunks: RefCell<BTreeMap<(u32, u64), Chunk>>,
    changed: Notify,
}

struct Chunk {
    /// Samples of it that are not done.
    due: u64,
    fetched: bool,
    taken: Taken,
}

impl Cache {
    /// Fetches the chunk of a sample, or waits for whoever does.
    pub async fn open(&self, cx: &Rc<Cx>, item: Item) {
        let key = key(item);
        let is_there = |fetched: bool| self.chunks.borrow().get(&key).is_some_and(|chunk| chunk.fetched || !fetched);
        if is_there(false) {
            while !is_there(true) && is_there(false) {
                self.changed.notified().await;
            }
            return;
        }
        let due = CHUNK.min(cx.settings.samples - key.1 * CHUNK);
        let taken = cx.memory.take(item, CHUNK);
        self.chunks.borrow_mut().insert(key, Chunk { due, fetched: false, taken });
        _ = cx.machine.read(cx.op(StageId::user(3), item, 0)).await;
        if let Some(chunk) = self.chunks.borrow_mut().get_mut(&key) {
            chunk.fetched = true;
        }
        self.changed.notify_waiters();
    }

    /// Whether the chunk of a sample is still there.
    pub fn has(&self, item: Item) -> bool {
        self.chunks.borrow().contains_key(&key(item))
    }

    /// A sample is done.
    pub async fn close(&self, cx: &Rc<Cx>, item: Item) {
        let key = key(item);
        let Some(mut due) = self.chunks.borrow().get(&key).map(|chunk| chunk.due) else { return };
        match cx.defect() {
            // Whoever is done first deletes it.
            Some(Defect::Cache1) => due = 1,
            // The count is read, and written later.
            Some(Defect::Cache2) => cx.pause().await,
            _ => {}
        }
        let mut chunks = self.chunks.borrow_mut();
        match due {
            1 => drop(chunks.remove(&key)),
            _ => {
                if let Some(chunk) = chunks.get_mut(&key) {
                    chunk.due = due - 1;
                }
            }
        }
        drop(chunks);
        self.changed.notify_waiters();
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // Files stay where they are.
        std::mem::take(&mut *self.chunks.borrow_mut()).into_values().for_each(|chunk| chunk.taken.leave());
    }
}

fn key(item: Item) -> (u32, u64) {
    (item.epoch, item.position / CHUNK)
}
