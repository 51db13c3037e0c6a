//! How a task is woken.
//!
//! A [`Waker`](std::task::Waker) may be sent anywhere, so ours is an ordinary `Arc` without `unsafe`: it names the run and the task. Waking from the
//! thread of the run, which is what nearly always happens, pushes the name on that thread's list; no lock, no atomic. Waking from
//! another thread, or from inside another run, goes to the run's inbox, a list under a mutex. The executor empties both before
//! it looks for the next ready task. A name is a slot and a generation, so a waker that outlives its task wakes nobody.
//!
//! A wake from another thread arrives when it arrives: a run that depends on one is not deterministic, and one that waits for
//! nothing else ends in a stall report.

use std::{
    cell::{Cell, RefCell},
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Wake,
};

/// The name of a task: a slot, and how often that slot was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// Wakes that came from elsewhere than the run's own thread.
#[derive(Default)]
pub(super) struct Inbox {
    any: AtomicBool,
    woken: Mutex<Vec<TaskId>>,
}

impl Inbox {
    fn push(&self, task: TaskId) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        self.any.store(true, Ordering::Release);
    }

    #[cold]
    fn take(&self) -> Vec<TaskId> {
        self.any.store(false, Ordering::Relaxed);
        mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the waker of a task points to.
pub(super) struct TaskWaker {
    pub(super) task: TaskId,
    pub(super) run: u64,
    pub(super) inbox: Arc<Inbox>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // `Err` while the thread's locals are being destroyed.
        let here = RUN.get() == self.run && WOKEN.try_with(|woken| woken.borrow_mut().push(self.task)).is_ok();
        if here {
            ANY.set(true);
        } else {
            self.inbox.push(self.task);
        }
    }
}

thread_local! {
    /// The run under way on this thread, 0 for none.
    static RUN: Cell<u64> = const { Cell::new(0) };
    /// Whether there is anything in [`WOKEN`], which is dearer to look at.
    static ANY: Cell<bool> = const { Cell::new(false) };
    static WOKEN: RefCell<Vec<TaskId>> = const { RefCell::new(Vec::new()) };
}

/// A number that no other run of this process has; never 0.
pub(super) fn new_run() -> u64 {
    static RUNS: AtomicU64 = AtomicU64::new(1);
    RUNS.fetch_add(1, Ordering::Relaxed)
}

/// While it lives, this thread's wakes are those of one run. Runs nest.
pub(super) struct Entered {
    outer: u64,
    outer_woken: Vec<TaskId>,
}

impl Entered {
    pub(super) fn new(run: u64) -> Entered {
        ANY.set(false);
        Entered { outer: RUN.replace(run), outer_woken: WOKEN.take() }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        RUN.set(self.outer);
        ANY.set(!self.outer_woken.is_empty());
        WOKEN.set(mem::take(&mut self.outer_woken));
    }
}

/// Hands over all wakes of the run under way, in the order in which they came; those from elsewhere come last.
#[inline]
pub(super) fn drain(inbox: &Inbox, mut wake: impl FnMut(TaskId)) {
    if ANY.replace(false) {
        WOKEN.with_borrow_mut(|woken| woken.drain(..).for_each(&mut wake));
    }
    if inbox.any.load(Ordering::Relaxed) {
        inbox.take().into_iter().for_each(wake);
    }
}
