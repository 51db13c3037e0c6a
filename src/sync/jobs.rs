//! Jobs on their way from the scheduler to the threads of a pool.
//!
//! One queue, first in, first out, under one mutex; threads without a job sleep on one condition variable. A push wakes a sleeper
//! only when there is one, so a burst of jobs for a pool that is awake costs no system call. Work stealing would buy nothing here:
//! all jobs come from one thread, and each is long against the few dozen nanoseconds that it holds the lock.

use std::collections::VecDeque;

use super::{AtomicUsize, Condvar, Mutex, Relaxed, lock};

/// A queue of jobs for several threads.
pub struct JobQueue<J> {
    state: Mutex<State<J>>,
    arrived: Condvar,
    queued: AtomicUsize,
}

struct State<J> {
    jobs: VecDeque<J>,
    sleeping: usize,
    closed: bool,
}

impl<J> JobQueue<J> {
    /// An empty queue.
    pub fn new() -> JobQueue<J> {
        let state = State { jobs: VecDeque::new(), sleeping: 0, closed: false };
        JobQueue { state: Mutex::new(state), arrived: Condvar::new(), queued: AtomicUsize::new(0) }
    }

    /// Adds a job, and wakes a thread for it if one sleeps. Returns how many jobs now wait without a sleeping thread for them; a
    /// closed queue gives the job back.
    pub fn push(&self, job: J) -> Result<usize, J> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(job);
        }
        state.jobs.push_back(job);
        self.queued.store(state.jobs.len(), Relaxed);
        let (waiting, sleeping) = (state.jobs.len(), state.sleeping);
        drop(state);
        if sleeping > 0 {
            self.arrived.notify_one();
        }
        Ok(waiting.saturating_sub(sleeping))
    }

    /// The next job; blocks until there is one, and is `None` once the queue is closed.
    pub fn pop(&self) -> Option<J> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                self.queued.store(state.jobs.len(), Relaxed);
                return Some(job);
            }
            state.sleeping += 1;
            state = self.arrived.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
            state.sleeping -= 1;
        }
    }

    /// Jobs that no thread has taken yet. A thread that has seen a job's effects has seen it leave.
    pub fn queued(&self) -> usize {
        self.queued.load(Relaxed)
    }

    /// Ends the queue: threads get no more jobs. Returns those that nobody took.
    pub fn close(&self) -> VecDeque<J> {
        let mut state = lock(&self.state);
        state.closed = true;
        let left = std::mem::take(&mut state.jobs);
        self.queued.store(0, Relaxed);
        drop(state);
        self.arrived.notify_all();
        left
    }
}

impl<J> Default for JobQueue<J> {
    fn default() -> JobQueue<J> {
        JobQueue::new()
    }
}
