//! The executor: which tasks there are, and which of them may run.
//!
//! # Why our own
//!
//! A simulated loader needs at once a nanosecond clock, an order of tasks that a seed decides and a tape replays, and a report of
//! who waits for what when nothing moves. Nothing at hand gives all three: tokio's paused clock ticks in milliseconds and is
//! first come first served, and the tools that do explore orders have no time.
//!
//! # A task's life
//!
//! ```text
//!            spawn                pick                  Pending
//!   (vacant) ─────► ready ───────────────► running ──────────────► waiting
//!      ▲              ▲                       │                       │
//!      │              └──────── woken ────────┼───────────────────────┘
//!      │                                      │ Ready, or stopped meanwhile
//!      └──────────────────────────────────────┘
//! ```
//!
//! Tasks live in slots. A slot is used again, with its generation counted up, and a task is always named by both, so neither a
//! stale waker nor a stale handle can reach its successor. A ready task is in the ready queue exactly once: waking it again
//! does nothing. A task woken while it runs is ready again when it has returned.
//!
//! # Stopping
//!
//! Dropping a task's handle stops it. A task that is not running loses its future on the spot. A running one, which
//! dropped its own handle or something that held it, is *doomed*: its future cannot be dropped from within and goes as soon as its
//! poll returns, before anything else runs.
//!
//! # Why no borrow is ever met twice
//!
//! All state is in one `RefCell`. User code runs in three places: when a future is polled, when one is dropped, when a foreign
//! waker is called. In each the executor has first moved the future or waker out and let go of the cell. That is why [`Tasks`] hands
//! bodies out and takes them back instead of polling them itself.

use std::{
    collections::VecDeque,
    future::Future,
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{RawWakerVTable, Waker},
};

use super::wake::{self, Inbox, TaskId, TaskWaker};
use crate::machine::Who;

/// What a task does.
pub(super) type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// What a task consists of.
pub(super) struct Body {
    pub(super) future: TaskFuture,
    pub(super) waker: Waker,
}

struct TaskSlot {
    generation: u32,
    /// There is a task in this slot.
    live: bool,
    /// It is in the ready queue.
    queued: bool,
    /// Its handle was dropped while it ran.
    doomed: bool,
    /// Its future; none while it runs.
    body: Option<Body>,
    /// By which its waker is known.
    waker: WakerName,
    who: Who,
    name: &'static str,
    place: &'static Location<'static>,
}

/// Whom to wake.
#[derive(Debug, Default)]
pub(super) enum Waiter {
    /// Nobody.
    #[default]
    Nobody,
    /// A task of this run, directly.
    Task(TaskId),
    /// Somebody else, such as a combinator that brings its own wakers.
    Foreign(Waker),
}

/// What tells a waker from others.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WakerName(*const (), *const RawWakerVTable);

impl WakerName {
    #[inline]
    fn of(waker: &Waker) -> WakerName {
        WakerName(waker.data(), waker.vtable())
    }
}

/// A task, as a stall report shows it.
pub(super) struct TaskView {
    pub(super) id: TaskId,
    pub(super) name: &'static str,
    pub(super) place: &'static Location<'static>,
    pub(super) ready: bool,
    /// By which those who hold something for it know it.
    pub(super) who: Who,
}

/// All tasks of a run.
pub(super) struct Tasks {
    slots: Vec<TaskSlot>,
    vacant: Vec<u32>,
    ready: VecDeque<u32>,
    /// The task that is running.
    current: Option<TaskId>,
    run: u64,
    inbox: Arc<Inbox>,
    closed: bool,
    polls: u64,
    /// Foreign wakers to call once the cell is free.
    calls: Vec<Waker>,
}

impl Tasks {
    pub(super) fn new(run: u64) -> Tasks {
        Tasks {
            slots: Vec::new(),
            vacant: Vec::new(),
            ready: VecDeque::new(),
            current: None,
            run,
            inbox: Arc::default(),
            closed: false,
            polls: 0,
            calls: Vec::new(),
        }
    }

    /// Adds a task, ready to run. Gives the future back when the run is over; the name then means nobody.
    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        place: &'static Location<'static>,
        future: TaskFuture,
    ) -> (TaskId, Option<TaskFuture>) {
        if self.closed {
            return (TaskId { slot: u32::MAX, generation: 0 }, Some(future));
        }
        let slot = self.vacant.pop().unwrap_or_else(|| {
            let waker = WakerName::of(Waker::noop());
            let who = Who::of(Waker::noop());
            let vacant =
                TaskSlot { generation: 0, live: false, queued: false, doomed: false, body: None, waker, who, name, place };
            self.slots.push(vacant);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 tasks at a time")
        });
        let task = &mut self.slots[slot as usize];
        let id = TaskId { slot, generation: task.generation };
        let waker = Waker::from(Arc::new(TaskWaker { task: id, run: self.run, inbox: self.inbox.clone() }));
        (task.live, task.queued, task.name, task.place) = (true, true, name, place);
        (task.waker, task.who) = (WakerName::of(&waker), Who::of(&waker));
        task.body = Some(Body { future, waker });
        self.ready.push_back(slot);
        (id, None)
    }

    /// Makes a task ready; nothing if it is already, or gone.
    #[inline]
    pub(super) fn wake(&mut self, id: TaskId) {
        wake_up(&mut self.slots, &mut self.ready, id);
    }

    /// Wakes whoever waits; foreign wakers only once the executor lets go of its cell.
    #[inline]
    pub(super) fn notify(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::Task(id) => self.wake(id),
            Waiter::Foreign(waker) => self.calls.push(waker),
            Waiter::Nobody => {}
        }
    }

    /// Foreign wakers that are to be called now, outside of the cell.
    #[inline]
    pub(super) fn take_call(&mut self) -> Option<Waker> {
        self.calls.pop()
    }

    /// Whether there are foreign wakers to call.
    #[inline]
    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Takes note of all wakes that came through wakers.
    #[inline]
    pub(super) fn drain_wakes(&mut self) {
        let Tasks { slots, ready, inbox, .. } = self;
        wake::drain(inbox, |id| wake_up(slots, ready, id));
    }

    /// Who polls with this waker.
    #[inline]
    pub(super) fn waiter(&self, waker: &Waker) -> Waiter {
        match self.current {
            Some(task) if self.slots[task.slot as usize].waker == WakerName::of(waker) => Waiter::Task(task),
            _ => Waiter::Foreign(waker.clone()),
        }
    }

    /// Number of ready tasks.
    #[inline]
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// The `k`-th ready task, for [priorities](super::Chooser::Pct).
    pub(super) fn entity(&self, k: usize) -> u64 {
        self.ready.get(k).map_or(0, |slot| u64::from(*slot))
    }

    /// Takes the `k`-th ready task out to be polled.
    #[inline]
    pub(super) fn begin(&mut self, k: usize) -> (u32, Body) {
        let slot = match k {
            0 => self.ready.pop_front(),
            _ => self.ready.remove(k),
        };
        let slot = slot.expect("the chooser chose one of the ready tasks");
        let task = &mut self.slots[slot as usize];
        task.queued = false;
        let body = task.body.take().expect("a ready task has its future");
        self.current = Some(TaskId { slot, generation: task.generation });
        self.polls += 1;
        (slot, body)
    }

    /// Takes back a task that was polled. What it returns is to be dropped outside of the cell.
    #[inline]
    pub(super) fn end(&mut self, slot: u32, body: Body, finished: bool) -> Option<Body> {
        self.current = None;
        let task = &mut self.slots[slot as usize];
        if finished || task.doomed {
            self.vacate(slot);
            return Some(body);
        }
        task.body = Some(body);
        None
    }

    /// Stops a task. What it returns is to be dropped outside of the cell.
    pub(super) fn stop(&mut self, id: TaskId) -> Option<Body> {
        let task = self.slots.get_mut(id.slot as usize)?;
        if !task.live || task.generation != id.generation {
            return None;
        }
        match task.body.take() {
            Some(body) => {
                self.vacate(id.slot);
                Some(body)
            }
            None => {
                task.doomed = true;
                None
            }
        }
    }

    fn vacate(&mut self, slot: u32) {
        let task = &mut self.slots[slot as usize];
        if task.queued {
            self.ready.retain(|s| *s != slot);
        }
        (task.live, task.queued, task.doomed) = (false, false, false);
        task.generation = task.generation.wrapping_add(1);
        self.vacant.push(slot);
    }

    /// Ends the run: no task is taken on any more. Called until it returns nothing, each body dropped outside of the cell; in the
    /// order of their slots.
    pub(super) fn close(&mut self) -> Option<Body> {
        self.closed = true;
        let slot = self.slots.iter().position(|task| task.body.is_some())?;
        let body = self.slots[slot].body.take();
        self.vacate(slot as u32);
        body
    }

    /// Tasks that have neither finished nor been stopped.
    pub(super) fn live(&self) -> usize {
        self.slots.iter().filter(|task| task.live).count()
    }

    /// Polls so far.
    #[inline]
    pub(super) fn polls(&self) -> u64 {
        self.polls
    }

    /// Slots of tasks, those that are vacant included.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// All tasks, by slot.
    pub(super) fn views(&self) -> impl Iterator<Item = TaskView> + '_ {
        self.slots.iter().enumerate().filter(|(_, task)| task.live).map(|(slot, task)| TaskView {
            id: TaskId { slot: slot as u32, generation: task.generation },
            name: task.name,
            place: task.place,
            ready: task.queued,
            who: task.who,
        })
    }
}

#[inline]
fn wake_up(slots: &mut [TaskSlot], ready: &mut VecDeque<u32>, id: TaskId) {
    if let Some(task) = slots.get_mut(id.slot as usize)
        && task.generation == id.generation
        && task.live
        && !task.queued
    {
        task.queued = true;
        ready.push_back(id.slot);
    }
}
