//! How answers of leaves come home: many threads push, the scheduler drains, and it is woken as rarely as can be.
//!
//! Putting the scheduler to sleep and waking it costs more than all else it does for a sample. Where the pool still has a row of
//! jobs before it, nobody is kept waiting when an answer lies for a moment, so a push wakes the scheduler only when
//!
//! 1. a **burst** is waiting,
//! 2. the pool is about to run **dry**: few jobs are queued, so that the scheduler is needed to supply more, or
//! 3. the oldest answer has waited for the **age** limit.
//!
//! # States
//!
//! Everything is under one mutex: the answers that wait, when the oldest of them came, and the scheduler's waker.
//!
//! | waiting | waker | what it means | next |
//! | --- | --- | --- | --- |
//! | none | there | the scheduler sleeps, or is about to | a push |
//! | some | there | lazy: below every limit | a push that reaches a limit, or the scheduler's own tick |
//! | some | none | it has been woken for them, and will drain | more pushes, which find no waker; a drain |
//! | none | none | never slept yet | a drain |
//!
//! A push that reaches a limit *takes* the waker, so there is at most one wake between two drains, however many threads push. A drain
//! takes all answers and leaves a waker under the same hold of the lock, so no push can fall between "nothing is there" and
//! "I may be woken".
//!
//! # Why nothing waits for ever
//!
//! Limits 1 and 3 are looked at only when something is pushed. That leaves the answers below them when nothing more is pushed.
//!
//! - *No job is left to end.* The last push of all finds the queue dry, since no job is queued any more, and wakes. This holds only
//!   because **the queue is looked at under the lock**. Were it looked at before, a thread could see one job queued and be overtaken
//!   by the thread that ran that job: the overtaken push would then be the last one, with an old view of the queue, and would wake
//!   nobody. Under the lock, every job that ended before this push has been seen to leave the queue.
//! - *Jobs are queued or running, but take long*, or nobody wants them any more, so that they will never push. Then the scheduler's
//!   tick helps: while any leaf is out it drains once per age limit of its own accord. The tick is a timer of the scheduler's, moved
//!   on by every drain; it costs a wake only where nothing else woke the scheduler for that long.
//!
//! So an answer is noticed after the age limit plus the resolution of the timer at the latest. `tests/loom.rs` checks the protocol
//! under every interleaving of its small models; taking the look at the queue out of the lock is one of the mutants it catches.

use std::{
    mem,
    task::{Context, Waker},
};

use super::{Mutex, lock};

/// Answers on their way to one scheduler. See the [module documentation](self) for the protocol.
pub struct Handoff<T> {
    state: Mutex<State<T>>,
    burst: usize,
    age_ns: u64,
}

struct State<T> {
    waiting: Vec<T>,
    /// When the first of `waiting` was pushed \[ns\].
    oldest_ns: u64,
    waker: Option<Waker>,
    /// Whether every push wakes.
    eager: bool,
}

impl<T> Handoff<T> {
    /// A handoff that wakes when `burst` answers wait, or when one has waited for `age_ns`.
    pub fn new(burst: usize, age_ns: u64) -> Handoff<T> {
        let state = State { waiting: Vec::new(), oldest_ns: 0, waker: None, eager: false };
        Handoff { state: Mutex::new(state), burst, age_ns }
    }

    /// Hands an answer over at time `now_ns`. `dry` tells whether the pool is about to run dry; it is asked under the lock, so it must
    /// be short, and it must see every job that has left the queue. Returns whether this push woke the scheduler.
    pub fn push(&self, answer: T, now_ns: u64, dry: impl FnOnce() -> bool) -> bool {
        let mut state = lock(&self.state);
        if state.waiting.is_empty() {
            state.oldest_ns = now_ns;
        }
        state.waiting.push(answer);
        let due =
            state.eager || state.waiting.len() >= self.burst || now_ns.saturating_sub(state.oldest_ns) >= self.age_ns || dry();
        let waker = if due { state.waker.take() } else { None };
        drop(state);
        let wakes = waker.is_some();
        if let Some(waker) = waker {
            waker.wake();
        }
        wakes
    }

    /// Takes all answers into `into`, which must be empty, and has the task of `cx` woken when the next ones are due.
    pub fn drain(&self, cx: &Context<'_>, into: &mut Vec<T>) {
        debug_assert!(into.is_empty(), "answers that were not looked at would be lost");
        let mut state = lock(&self.state);
        mem::swap(&mut state.waiting, into);
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    /// Makes every push wake the scheduler, or lets them be lazy again. Turned on, it wakes it for what waits already.
    pub fn set_eager(&self, eager: bool) {
        let mut state = lock(&self.state);
        state.eager = eager;
        let waker = if eager && !state.waiting.is_empty() { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
