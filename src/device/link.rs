//! A link that is not there: a thread that copies as slowly as one.

use std::{
    fmt, io,
    sync::{Mutex, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Tells that a copy is over.
type Done = Box<dyn FnOnce() + Send>;
/// Copies, and returns what tells it.
type Copy = Box<dyn FnOnce() -> Done + Send>;

/// Copies one after the other, each as long as its bytes take. Dropped, it finishes those that it has taken.
pub(super) struct Link {
    bytes_per_s: u64,
    /// `None` only while it is dropped.
    copies: Mutex<Option<mpsc::Sender<(Duration, Copy)>>>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    pub(super) fn new(bytes_per_s: u64) -> io::Result<Link> {
        let (copies, taken) = mpsc::channel::<(Duration, Copy)>();
        let run = move || carry_out(&taken);
        let thread = thread::Builder::new().name("towtank link".to_owned()).spawn(run)?;
        Ok(Link { bytes_per_s: bytes_per_s.max(1), copies: Mutex::new(Some(copies)), thread: Some(thread) })
    }

    /// Takes a copy of so many bytes. It is over when what `copy` returns is called.
    pub(super) fn carry(&self, bytes: u64, copy: impl FnOnce() -> Done + Send + 'static) {
        let time = Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s)) as u64);
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        // A copy that is not taken is dropped, and that tells that it is lost.
        let _ = copies.as_ref().map(|copies| copies.send((time, Box::new(copy))));
    }
}

/// A copy that begins this soon after the last was to end follows it at once: a sleep ends late by less.
const LATE: Duration = Duration::from_millis(1);

/// Carries out every copy that is taken, until no more can come.
#[expect(clippy::disallowed_methods, reason = "a link that is emulated takes real time")]
fn carry_out(taken: &mpsc::Receiver<(Duration, Copy)>) {
    let mut free = Instant::now();
    for (time, copy) in taken {
        let now = Instant::now();
        free = if now.saturating_duration_since(free) < LATE { free } else { now } + time;
        let done = copy();
        thread::sleep(free.saturating_duration_since(Instant::now()));
        done();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            // What it panicked with, a copy has told.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("bytes_per_s", &self.bytes_per_s).finish_non_exhaustive()
    }
}
