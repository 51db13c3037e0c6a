//! Tasks on the scheduler's thread, and what becomes of those that are stopped or panic.
//!
//! tokio's `abort` only asks: the future is dropped in a later turn. So stopped tasks are counted until they are gone.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    rc::Rc,
    task::{Poll, Waker},
};

use tokio::task::AbortHandle;

use crate::failure::Failure;

/// A running task. Dropping it stops the task.
pub struct Task {
    abort: AbortHandle,
    life: Rc<Life>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Stopping,
    Gone,
}

/// One task's life, shared by its handle and its future.
struct Life {
    phase: Cell<Phase>,
    all: Rc<Tasks>,
}

/// What is known of all tasks.
#[derive(Default)]
pub(super) struct Tasks {
    /// Tasks that were stopped and are not gone yet.
    stopping: Cell<usize>,
    /// The first panic of a task: its name, and what it said.
    panic: RefCell<Option<(&'static str, Failure)>>,
    /// Who is to be told of changes.
    watching: RefCell<Vec<Waker>>,
}

impl Tasks {
    /// Starts a task on this thread's runtime.
    #[expect(clippy::disallowed_methods, reason = "this is the spawn that everything else asks for")]
    pub(super) fn spawn(self: &Rc<Self>, name: &'static str, task: impl Future<Output = ()> + 'static) -> Task {
        let life = Rc::new(Life { phase: Cell::new(Phase::Running), all: self.clone() });
        let end = End(life.clone());
        let body = async move {
            let end = end;
            let mut task = pin!(task);
            let caught = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(())) => Poll::Ready(None),
                Err(payload) => Poll::Ready(Some(Failure::panicked(&*payload))),
            })
            .await;
            if let Some(failure) = caught {
                end.0.all.panicked(name, failure);
            }
        };
        Task { abort: tokio::task::spawn_local(body).abort_handle(), life }
    }

    /// Stopped tasks that are not gone yet.
    pub(super) fn stopping(&self) -> usize {
        self.stopping.get()
    }

    /// The panic of a task, once.
    pub(super) fn take_panic(&self) -> Option<(&'static str, Failure)> {
        self.panic.borrow_mut().take()
    }

    /// Has `waker` called at the next change of what there is to know.
    pub(super) fn watch(&self, waker: &Waker) {
        let mut watching = self.watching.borrow_mut();
        if !watching.iter().any(|known| known.will_wake(waker)) {
            watching.push(waker.clone());
        }
    }

    fn panicked(&self, name: &'static str, failure: Failure) {
        self.panic.borrow_mut().get_or_insert((name, failure));
        self.changed();
    }

    /// Tells whoever watches.
    pub(super) fn changed(&self) {
        let watching = self.watching.take();
        watching.into_iter().for_each(Waker::wake);
    }
}

/// Goes with a task's future, to tell when that is gone.
struct End(Rc<Life>);

impl Drop for End {
    fn drop(&mut self) {
        let all = &self.0.all;
        if self.0.phase.replace(Phase::Gone) == Phase::Stopping {
            all.stopping.set(all.stopping.get() - 1);
            all.changed();
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.life.phase.get() == Phase::Running {
            self.life.phase.set(Phase::Stopping);
            let all = &self.life.all;
            all.stopping.set(all.stopping.get() + 1);
            self.abort.abort();
        }
    }
}
