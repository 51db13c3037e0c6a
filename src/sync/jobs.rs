//! Jobs on their way from the scheduler to the threads of a pool.
//!
//! One queue, first in, first out, under one mutex; threads without a job sleep on one condition variable. Work stealing would buy
//! nothing here: all jobs come from one thread, and each is long against the few dozen nanoseconds that it holds the lock. rayon's
//! pool, measured in this place, costs the same with lazy wakes and twice as much without, and one more allocation a job.
//!
//! Waking a thread is a system call, so each sleeper is woken once: `sleeping` counts those that no push has woken yet, not those
//! that still sleep. A thread adds itself right before it waits, under the same hold of the lock, and a push that takes one off
//! wakes one. A thread that wakes for no reason counts twice until a push takes one off in vain, which costs a system call; the count
//! is never too low, so no job lies there with a thread asleep for it.

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
    /// At least the number of threads that sleep and have not been woken.
    sleeping: usize,
    /// Threads that have been woken and have not looked yet.
    rising: usize,
    closed: bool,
}

impl<J> JobQueue<J> {
    /// An empty queue.
    pub fn new() -> JobQueue<J> {
        let state = State { jobs: VecDeque::new(), sleeping: 0, rising: 0, closed: false };
        JobQueue { state: Mutex::new(state), arrived: Condvar::new(), queued: AtomicUsize::new(0) }
    }

    /// Adds a job, and wakes a thread for it if one sleeps. Returns for how many jobs that now wait no thread has been woken; a closed
    /// queue gives the job back.
    pub fn push(&self, job: J) -> Result<usize, J> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(job);
        }
        state.jobs.push_back(job);
        self.queued.store(state.jobs.len(), Relaxed);
        let wakes = state.sleeping > 0;
        if wakes {
            state.sleeping -= 1;
            state.rising += 1;
        }
        let waiting = state.jobs.len().saturating_sub(state.rising);
        drop(state);
        if wakes {
            self.arrived.notify_one();
        }
        Ok(waiting)
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
            state.rising = state.rising.saturating_sub(1);
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
