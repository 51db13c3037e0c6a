//! Copies to the device, from buffers on the host that are used again.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use tokio::sync::Notify;
use towtank::machine::Machine;

use crate::zoo::{collector::Ready, defect::Defect, kit::Cx, queue::Queue};

/// Time that a copy takes for a sample.
const PER_SAMPLE: Duration = Duration::from_millis(5);
/// Parts in which a batch is copied.
const PARTS: usize = 4;

/// The buffers on the host.
pub struct Buffers {
    buffers: Vec<Rc<RefCell<Vec<u64>>>>,
    free: Queue<usize>,
}

/// A copy under way, or over.
pub struct Copy {
    cx: Rc<Cx>,
    buffers: Rc<Buffers>,
    buffer: usize,
    device: RefCell<Vec<u64>>,
    /// Parts that have not ended.
    due: Cell<usize>,
    ended: Notify,
}

impl Buffers {
    /// Starts the task that fills them and copies from them.
    pub fn start(cx: &Rc<Cx>) {
        let count = cx.shape.buffers;
        let buffers = Buffers { buffers: (0..count).map(|_| Rc::default()).collect(), free: Queue::new(count) };
        (0..count).for_each(|buffer| _ = buffers.free.put_now(buffer));
        let task = stage(cx.clone(), Rc::new(buffers));
        match cx.has(Defect::Stop2) {
            true => cx.spawn_unseen("copier", task),
            false => cx.spawn("copier", task),
        }
    }
}

async fn stage(cx: Rc<Cx>, buffers: Rc<Buffers>) {
    loop {
        let message = match cx.staged.take().await {
            Some(message) => message,
            // Whoever sends batches lives as long as whoever copies them.
            None if cx.has(Defect::Stop5) => panic!("a batch was to come"),
            None => return,
        };
        let message = match message {
            Ready::Batch(mut batch) => {
                let buffer = match cx.defect() {
                    // The one buffer is there for every step.
                    Some(Defect::Xfer6) => 0,
                    _ => match buffers.free.take().await {
                        Some(buffer) => buffer,
                        None => return,
                    },
                };
                *buffers.buffers[buffer].borrow_mut() = batch.tags.clone();
                let samples = batch.tags.len();
                let device = RefCell::new(vec![u64::MAX; samples]);
                let due = Cell::new(PARTS);
                let copy = Copy { cx: cx.clone(), buffers: buffers.clone(), buffer, device, due, ended: Notify::new() };
                let copy = Rc::new(copy);
                for part in 0..PARTS {
                    cx.spawn("copy", copy.clone().part(part, samples));
                }
                if cx.has(Defect::Xfer4) {
                    // The copy has been called.
                    copy.free();
                }
                batch.copied = Some(copy);
                Ready::Batch(batch)
            }
            other => other,
        };
        let ends = matches!(message, Ready::End);
        if !cx.ready.put(message).await || ends {
            return;
        }
    }
}

impl Copy {
    /// Copies every fourth sample, from this one on.
    async fn part(self: Rc<Copy>, part: usize, samples: usize) {
        for place in (part..samples).step_by(PARTS) {
            self.cx.machine.sleep(PER_SAMPLE * (part as u32 + 1)).await;
            let read = self.buffers.buffers[self.buffer].borrow().get(place).copied();
            self.device.borrow_mut()[place] = read.unwrap_or(u64::MAX);
        }
        self.due.set(self.due.get() - 1);
        let over = match self.cx.defect() {
            // What is waited for is found by the address of the buffer, which is that of its first part.
            Some(Defect::Xfer1) => part == 0,
            Some(Defect::Xfer4 | Defect::Xfer5) => false,
            _ => self.due.get() == 0,
        };
        if over {
            self.free();
        }
        self.ended.notify_waiters();
    }

    /// The buffer may be filled again.
    fn free(&self) {
        self.buffers.free.put_now(self.buffer);
    }

    /// Waits for its end.
    pub async fn wait(&self) {
        while self.due.get() > 0 {
            self.ended.notified().await;
        }
    }

    /// The consumer's step with the batch is over.
    pub fn step_over(&self) {
        if self.cx.has(Defect::Xfer5) {
            self.free();
        }
    }

    /// What the consumer sees.
    pub fn content(&self) -> Vec<u64> {
        match self.cx.defect() {
            // The device's array is the host's.
            Some(Defect::Xfer5) => self.buffers.buffers[self.buffer].borrow().clone(),
            _ => self.device.borrow().clone(),
        }
    }
}
