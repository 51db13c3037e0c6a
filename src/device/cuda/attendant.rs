//! The thread that looks after a GPU.
//!
//! It does what nobody else may or would: it frees memory whose last owner goes in a host function of the driver, where no call into the
//! driver is allowed; and it looks from time to time whether copies wait that the driver will never tell of.

use std::{
    cell::Cell,
    sync::{Weak, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::error::CudaError;

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(250);

/// Something that it looks at every quarter of a second.
pub(super) trait Watched: Send + Sync {
    fn look(&self);
}

enum Errand {
    Watch(Weak<dyn Watched>),
    Do(Box<dyn FnOnce() + Send>),
}

pub(super) struct Attendant {
    /// `None` only while it is dropped.
    errands: Option<mpsc::Sender<Errand>>,
    thread: Option<JoinHandle<()>>,
}

thread_local! {
    /// Whether this thread is in a host function of the driver.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` as the body of a host function.
pub(super) fn in_host_function(f: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    // It must not unwind into the driver. What panicked has dropped what it had, and that tells of the loss.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    IN_HOST_FUNCTION.set(false);
}

impl Attendant {
    pub(super) fn start(ordinal: usize) -> Result<Attendant, CudaError> {
        let (errands, taken) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(format!("towtank cuda:{ordinal}"))
            .spawn(move || attend(&taken))
            .map_err(|error| CudaError::Thread(error.to_string()))?;
        Ok(Attendant { errands: Some(errands), thread: Some(thread) })
    }

    /// Looks at `watched` from now on, as long as it lives.
    pub(super) fn watch(&self, watched: Weak<dyn Watched>) {
        self.send(Errand::Watch(watched));
    }

    /// Runs `errand`: here, or on the attendant's thread if this is a host function.
    pub(super) fn carry_out(&self, errand: impl FnOnce() + Send + 'static) {
        if IN_HOST_FUNCTION.get() { self.send(Errand::Do(Box::new(errand))) } else { errand() }
    }

    fn send(&self, errand: Errand) {
        // The thread ends only after the last sender; one that has panicked has nothing to do any more.
        let _ = self.errands.as_ref().map(|errands| errands.send(errand));
    }
}

#[expect(clippy::disallowed_methods, reason = "a thread of the real machine looks at real time")]
fn attend(taken: &mpsc::Receiver<Errand>) {
    let mut watched: Vec<Weak<dyn Watched>> = Vec::new();
    let mut looked = Instant::now();
    loop {
        // However many errands there are, they do not keep it from looking.
        match taken.recv_timeout(PERIOD.saturating_sub(looked.elapsed())) {
            Ok(Errand::Watch(one)) => watched.push(one),
            Ok(Errand::Do(errand)) => errand(),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
        if looked.elapsed() >= PERIOD {
            watched.retain(|one| one.upgrade().inspect(|one| one.look()).is_some());
            looked = Instant::now();
        }
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.errands.take();
        // Its last errand may be what drops it. A host function waits for nobody: the driver may wait for that.
        let waits = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id() && !IN_HOST_FUNCTION.get();
        if let Some(thread) = self.thread.take().filter(waits) {
            // A panic in it was one of an errand, and has been printed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use super::*;

    struct Seen(AtomicBool);

    impl Watched for Seen {
        fn look(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "errands come in real time")]
    fn it_looks_however_many_errands_there_are() {
        let (seen, attendant) = (Arc::new(Seen(AtomicBool::new(false))), Attendant::start(0).expect("a thread"));
        let watched: Weak<dyn Watched> = Arc::<Seen>::downgrade(&seen);
        attendant.watch(watched);
        // Ten seconds of errands, one after the other, as host functions have them.
        for _ in 0..1000 {
            if seen.0.load(Ordering::SeqCst) {
                return;
            }
            let (tell, told) = mpsc::channel::<()>();
            in_host_function(|| attendant.carry_out(move || drop(tell)));
            assert!(told.recv().is_err(), "the errand is done");
            thread::sleep(Duration::from_millis(10));
        }
        panic!("it never looked");
    }
}
