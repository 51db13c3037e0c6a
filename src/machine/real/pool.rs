//! Threads that run leaves.

use std::{
    io, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::home::Home;
use crate::{
    device::numa::run_near,
    machine::{Clock, Time},
    sync::JobQueue,
};

/// Something for a pool to run. It brings its own answer home, and must not panic.
pub(super) trait Run: Send + Sync {
    fn run(self: Arc<Self>, home: &Arc<Home>);
}

/// Threads and the queue before them.
pub(super) struct Pool {
    name: &'static str,
    queue: Arc<JobQueue<Arc<dyn Run>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    threads_max: usize,
    near: Option<Arc<[usize]>>,
}

impl Pool {
    /// A pool without threads yet, and with at most `threads_max`, at least one, ever; on these processors, where some are given.
    pub(super) fn new(name: &'static str, threads_max: usize, near: Option<Arc<[usize]>>) -> Pool {
        Pool { name, queue: Arc::default(), threads: Mutex::default(), threads_max: threads_max.max(1), near }
    }

    /// Starts threads until there are `count`.
    pub(super) fn start(&self, home: &Arc<Home>, count: usize) -> io::Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        while threads.len() < count.min(self.threads_max) {
            let (home, queue, near) = (home.clone(), self.queue.clone(), self.near.clone());
            let name = format!("towtank {} {}", self.name, threads.len());
            threads.push(thread::Builder::new().name(name).spawn(move || run_near(near.as_deref(), || work(&home, &queue)))?);
        }
        Ok(())
    }

    /// Queues a job for the threads that are there; a closed pool gives it back.
    pub(super) fn submit(&self, job: Arc<dyn Run>) -> Result<(), Arc<dyn Run>> {
        self.queue.push(job).map(|_| ())
    }

    /// Queues a job, and starts one thread more when none is free for it. An error gives the job back: the pool is closed, or it has
    /// no thread and gets none.
    pub(super) fn submit_and_grow(&self, home: &Arc<Home>, job: Arc<dyn Run>) -> Result<(), Arc<dyn Run>> {
        let threads = self.threads();
        if threads == 0 && self.start(home, 1).is_err() {
            return Err(job);
        }
        let waiting = self.queue.push(job)?;
        if waiting > 0 && threads > 0 {
            // Where the system allows no further thread, the job waits for one of those that are there.
            let _ = self.start(home, threads + 1);
        }
        Ok(())
    }

    /// Jobs that no thread has taken yet.
    #[inline]
    pub(super) fn queued(&self) -> usize {
        self.queue.queued()
    }

    /// Threads that have been started.
    pub(super) fn threads(&self) -> usize {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Ends the pool: jobs that nobody took are dropped, and threads end with the job they have. Waits for them until `deadline`, and
    /// returns how many it left behind.
    #[expect(clippy::disallowed_methods, reason = "it waits for threads of the real machine, on one")]
    pub(super) fn close(&self, clock: &impl Clock, deadline: Time) -> usize {
        drop(self.queue.close());
        let threads = mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let mut left = 0;
        for thread in threads {
            while !thread.is_finished() && clock.now() < deadline {
                thread::sleep(Duration::from_micros(50));
            }
            // A thread catches every panic, so a finished one has nothing to tell.
            if !thread.is_finished() || thread.join().is_err() {
                left += 1;
            }
        }
        left
    }
}

fn work(home: &Arc<Home>, queue: &JobQueue<Arc<dyn Run>>) {
    while let Some(job) = queue.pop() {
        // What is caught here came from the drop of something foreign. The leaf's guard has brought its answer home.
        let _ = catch_unwind(AssertUnwindSafe(|| job.run(home)));
    }
}
