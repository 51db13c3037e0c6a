//! One job and its answer, and whose turn it is to touch them.
//!
//! | state | the job | the answer | left by |
//! | --- | --- | --- | --- |
//! | `Queued` | here | – | a thread that [begins](Leaf::begin) it, or the scheduler that [gives it up](Leaf::give_up) |
//! | `Running` | with its thread | – | the thread's [answer](Leaf::answer), or [putting it back](Leaf::put_back) for another pool |
//! | `Unwanted` | with its thread | – | the end of the run, which leaves nothing behind |
//! | `Answered` | gone | here | the scheduler that [takes](Leaf::take) it or gives it up |
//! | `Gone` | gone | gone | nobody |
//!
//! Every step is one short hold of the leaf's own mutex, which is free except when the scheduler gives up a leaf at the very
//! moment its thread touches it. Jobs and answers are moved out before they are run or dropped, so no foreign code runs under it.

use super::{Mutex, lock};

/// A job `J` with its answer `R`.
pub struct Leaf<J, R>(Mutex<State<J, R>>);

enum State<J, R> {
    Queued(J),
    Running { since_ns: u64 },
    Unwanted,
    Answered(R),
    Gone,
}

/// What giving up a leaf came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// It had not begun and never will. Its job has been dropped.
    Removed,
    /// It has begun, at this time \[ns\], and will run to its end.
    Running(u64),
    /// It had ended. Its answer, if nobody took it, has been dropped.
    Ended,
}

impl<J, R> Leaf<J, R> {
    /// A leaf that waits to be begun.
    pub fn new(job: J) -> Leaf<J, R> {
        Leaf(Mutex::new(State::Queued(job)))
    }

    /// Begins the leaf at time `now_ns` and hands out its job; `None` when it was given up.
    pub fn begin(&self, now_ns: u64) -> Option<J> {
        let mut state = lock(&self.0);
        match std::mem::replace(&mut *state, State::Running { since_ns: now_ns }) {
            State::Queued(job) => Some(job),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Whether somebody waits for the answer.
    pub fn is_wanted(&self) -> bool {
        !matches!(*lock(&self.0), State::Unwanted | State::Gone)
    }

    /// Puts a begun job back, for another thread to begin. An unwanted one comes back to be dropped: the leaf has ended.
    pub fn put_back(&self, job: J) -> Option<J> {
        let mut state = lock(&self.0);
        if let State::Running { .. } = *state {
            *state = State::Queued(job);
            return None;
        }
        *state = State::Gone;
        Some(job)
    }

    /// Ends the leaf with its answer. An unwanted one comes back to be dropped.
    pub fn answer(&self, answer: R) -> Option<R> {
        let mut state = lock(&self.0);
        if let State::Running { .. } = *state {
            *state = State::Answered(answer);
            return None;
        }
        *state = State::Gone;
        Some(answer)
    }

    /// Takes the answer out, if it is there.
    pub fn take(&self) -> Option<R> {
        let mut state = lock(&self.0);
        match std::mem::replace(&mut *state, State::Gone) {
            State::Answered(answer) => Some(answer),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Gives the leaf up: nobody wants its answer any more.
    pub fn give_up(&self) -> GivenUp {
        let mut state = lock(&self.0);
        let next = if let State::Running { .. } = *state { State::Unwanted } else { State::Gone };
        let was = std::mem::replace(&mut *state, next);
        drop(state);
        match was {
            State::Queued(_job) => GivenUp::Removed,
            State::Running { since_ns } => GivenUp::Running(since_ns),
            State::Unwanted | State::Answered(_) | State::Gone => GivenUp::Ended,
        }
    }
}
