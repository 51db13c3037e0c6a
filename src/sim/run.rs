//! Running a simulation: time moves when nobody can.
//!
//! ```text
//!   ┌─► something is due, or a task is ready? ── yes ─► the chooser takes one: fire it, or poll it ─┐
//!   │            │ no                                                                               │
//!   │            ▼                                                                                  │
//!   │   the clock moves to the next event; all that is due then is laid out                         │
//!   └────────────┴──────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! It ends when the root task has finished, or when nothing is left to happen: then in a [`Stall`].

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt,
    future::Future,
    panic::Location,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Context,
};

use super::{
    Config, Content, Journal, Limits, SimMachine, SimPayload, Stall, StallReason, Tape, Timing,
    chooser::Decider,
    executor::{Body, Tasks},
    machine::{Core, Inner, SimClock},
    outstanding::{Advance, Outstanding},
    payload::carried::Carried,
    price::Prices,
    resource::NEVER,
    wake::{self, Entered},
    world::{Due, World},
};
use crate::{
    fault::Faults,
    machine::{Pixels, Tags, Time},
    trace::Recorder,
};

/// A simulation to be run.
///
/// ```
/// use std::time::Duration;
/// use towtank::{
///     machine::{Machine, Tags, Time},
///     sim::{Config, Simulation},
/// };
///
/// let outcome = Simulation::<Tags>::new(Config::default())
///     .run(|machine| async move {
///         machine.sleep(Duration::from_millis(5)).await;
///         machine.now()
///     })
///     .expect("a sleep ends");
/// assert_eq!(outcome.value, Time(5_000_000));
/// ```
pub struct Simulation<P: SimPayload> {
    config: Config,
    content: <P as Carried>::Content,
    recorder: Recorder,
    journal: Option<Journal>,
}

impl Simulation<Tags> {
    /// A simulation in which only sizes flow.
    pub fn new(config: Config) -> Simulation<Tags> {
        Simulation { config, content: (), recorder: Recorder::new(), journal: None }
    }
}

impl Simulation<Pixels> {
    /// A simulation in which real bytes flow. Their sizes, and with them the time they take, are still those of
    /// [`Config::dataset`].
    pub fn with_content(config: Config, content: Content) -> Simulation<Pixels> {
        Simulation { config, content, recorder: Recorder::new(), journal: None }
    }
}

impl<P: SimPayload> Simulation<P> {
    /// Where the events go; by default a recorder that keeps a hash and a summary.
    #[must_use]
    pub fn recorder(mut self, recorder: Recorder) -> Simulation<P> {
        self.recorder = recorder;
        self
    }

    /// Where every choice is entered as it is made; not those of [`Chooser::Fifo`](super::Chooser::Fifo) in modelled time.
    #[must_use]
    pub fn journal(mut self, journal: &Journal) -> Simulation<P> {
        self.journal = Some(journal.clone());
        self
    }

    /// Runs the root task until it finishes. Tasks that are left then are dropped, in the order of their slots.
    ///
    /// # Errors
    ///
    /// A [`Stall`] when nothing can happen and the root task has not finished, or a limit is reached.
    ///
    /// # Panics
    ///
    /// When a task panics; a job that panics only fails its leaf.
    #[track_caller]
    pub fn run<T, F, R>(self, root: R) -> Result<Outcome<T>, Box<Stall>>
    where
        T: 'static,
        F: Future<Output = T> + 'static,
        R: FnOnce(SimMachine<P>) -> F,
    {
        self.run_at(Location::caller(), root)
    }

    fn run_at<T, F, R>(self, place: &'static Location<'static>, root: R) -> Result<Outcome<T>, Box<Stall>>
    where
        T: 'static,
        F: Future<Output = T> + 'static,
        R: FnOnce(SimMachine<P>) -> F,
    {
        let Simulation { mut config, content, recorder, journal } = self;
        let run = wake::new_run();
        let is_abstract = config.timing == Timing::Abstract;
        let faults = config.faults.clone();
        if is_abstract {
            config = config.without_time();
        }
        let mut world = World::new(&config, recorder);
        world.outstanding = is_abstract.then(|| Box::new(Outstanding::new(faults, P::HAS_BYTES)));
        let inner = Rc::new(Inner {
            core: RefCell::new(Core { tasks: Tasks::new(run), world }),
            clock: SimClock(Arc::new(AtomicU64::new(0))),
            prices: Prices::new(&config),
            content,
            seed: config.seed,
            count: config.dataset.count(),
            lends_slots: config.lends_slots,
            slabs: RefCell::default(),
            watched: RefCell::default(),
        });
        let machine = SimMachine { inner: inner.clone(), node: 0, own_thread: false };
        let _entered = Entered::new(run);
        let teardown = Teardown(inner.clone());
        let value = Rc::new(RefCell::new(None));
        let task = {
            let (value, root) = (value.clone(), root(machine.clone()));
            machine.spawn_at("root", place, async move {
                let result = root.await;
                *value.borrow_mut() = Some(result);
            })
        };
        let mut decider = Decider::new(config.chooser, config.keep_tape).journal(journal).in_order(is_abstract);
        let stalled = drive(&inner, &mut decider, &config.limits);
        let outcome = conclude(&inner, decider, stalled)?;
        drop(task);
        drop(teardown);
        let value = value.take().expect("the root task has finished");
        Ok(outcome.with(value))
    }
}

/// Runs tag simulations in one call: [`Simulation::new`], [`recorder`](Simulation::recorder) and [`run`](Simulation::run).
///
/// # Errors
///
/// As [`Simulation::run`].
#[track_caller]
pub fn run<T, F, R>(config: Config, recorder: Recorder, root: R) -> Result<Outcome<T>, Box<Stall>>
where
    T: 'static,
    F: Future<Output = T> + 'static,
    R: FnOnce(SimMachine<Tags>) -> F,
{
    Simulation::new(config).recorder(recorder).run_at(Location::caller(), root)
}

/// What came of a simulation.
pub struct Outcome<T> {
    /// What the root task returned.
    pub value: T,
    /// When it did.
    pub end: Time,
    /// The trace.
    pub recorder: Recorder,
    /// The choices made, where [`Config::keep_tape`] says so: a run with [`Chooser::Replay`](super::Chooser::Replay) of it is the same
    /// run.
    pub tape: Option<Tape>,
    /// In abstract time, what went wrong with samples for good: those that the faults name, and those that choices hit.
    pub hit: Option<Faults>,
    /// What was left when the root task finished: all zero after a clean stop.
    pub left: Left,
    /// What the simulation itself did.
    pub tally: Tally,
    /// Time that cores were busy, summed over the cores of all nodes (ns).
    pub cpu_ns: u64,
    /// The most bytes in slots on a node.
    pub slots_bytes_peak: u64,
    /// The most bytes in batches on the devices of a node.
    pub device_bytes_peak: u64,
}

/// What was left of a run when its root task finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Tasks that had neither finished nor been stopped.
    pub tasks: usize,
    /// Leaves under way, those given up that still ran included.
    pub leaves: usize,
    /// Threads of the pool that were busy.
    pub threads: usize,
    /// Threads of any kind that could run.
    pub runnable: usize,
}

/// What it took to simulate a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Polls of tasks.
    pub polls: u64,
    /// Things that were due and happened: ends of leaves and their parts, timers.
    pub fired: u64,
    /// Choices between two or more things.
    pub choices: u64,
    /// How often the scheduler's thread woke up.
    pub scheduler_wakes: u64,
}

impl<T: fmt::Debug> fmt::Debug for Outcome<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome")
            .field("value", &self.value)
            .field("end", &self.end)
            .field("left", &self.left)
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}

impl Outcome<()> {
    fn with<T>(self, value: T) -> Outcome<T> {
        let Outcome { value: (), end, recorder, tape, hit, left, tally, cpu_ns, slots_bytes_peak, device_bytes_peak } = self;
        Outcome { value, end, recorder, tape, hit, left, tally, cpu_ns, slots_bytes_peak, device_bytes_peak }
    }
}

/// What is found when a run has ended.
fn conclude<P: SimPayload>(inner: &Inner<P>, decider: Decider, stalled: Option<StallReason>) -> Result<Outcome<()>, Box<Stall>> {
    // Asked outside of the cell: they are foreign code.
    let standings = if stalled.is_some() { inner.standings() } else { Vec::new() };
    let core = &mut *inner.core.borrow_mut();
    if let Some(reason) = stalled {
        let mut stall = Stall::of(core, reason, standings);
        stall.tape = decider.into_tape();
        return Err(stall);
    }
    let Core { tasks, world } = core;
    let hit = world.outstanding.as_ref().map(|outstanding| outstanding.hit());
    let now = world.now;
    let nodes = || world.nodes.iter();
    Ok(Outcome {
        value: (),
        end: Time(now),
        hit,
        left: Left {
            tasks: tasks.live(),
            leaves: world.under_way(),
            threads: nodes().map(|node| node.pool.taken() as usize).sum(),
            runnable: nodes().map(|node| node.cpu.runnable()).sum(),
        },
        tally: Tally {
            polls: tasks.polls(),
            fired: world.fired,
            choices: decider.choices(),
            scheduler_wakes: nodes().map(|node| node.scheduler.wakes()).sum(),
        },
        cpu_ns: nodes().map(|node| node.cpu.busy_ns(now)).sum(),
        slots_bytes_peak: nodes().map(|node| node.host.peak()).max().unwrap_or(0),
        device_bytes_peak: nodes().map(|node| node.device.peak()).max().unwrap_or(0),
        recorder: std::mem::take(&mut world.recorder),
        tape: decider.into_tape(),
    })
}

/// The root task: the first to be spawned, in the first slot.
const ROOT: u32 = 0;

/// What the run loop has to do outside of the cell.
enum Step {
    /// Poll a task.
    Poll(u32, Body),
    /// Call foreign wakers and drop what is left over.
    Sweep,
    /// Give up.
    Stall(StallReason),
}

/// Runs until the root task has finished, or gives the reason why it will not.
fn drive<P: SimPayload>(inner: &Inner<P>, decider: &mut Decider, limits: &Limits) -> Option<StallReason> {
    let mut due = VecDeque::new();
    // Polls when the clock last moved.
    let mut before = 0;
    loop {
        let step = next_step(inner, decider, limits, &mut due, &mut before);
        match step {
            Step::Poll(slot, mut body) => {
                // The waker is moved beside the future, so that polling needs no access to the cell.
                let finished = body.future.as_mut().poll(&mut Context::from_waker(&body.waker)).is_ready();
                let over = inner.core.borrow_mut().tasks.end(slot, body, finished);
                drop(over);
                if finished && slot == ROOT {
                    return None;
                }
            }
            Step::Sweep => loop {
                let (call, litter) = {
                    let Core { tasks, world } = &mut *inner.core.borrow_mut();
                    (tasks.take_call(), world.take_litter())
                };
                if call.is_none() && litter.is_none() {
                    break;
                }
                drop(litter);
                if let Some(waker) = call {
                    waker.wake();
                }
            },
            Step::Stall(reason) => return Some(reason),
        }
    }
}

fn next_step<P: SimPayload>(
    inner: &Inner<P>,
    decider: &mut Decider,
    limits: &Limits,
    due: &mut VecDeque<Due>,
    before: &mut u64,
) -> Step {
    let Core { tasks, world } = &mut *inner.core.borrow_mut();
    tasks.drain_wakes();
    loop {
        if tasks.has_calls() || world.has_litter() {
            return Step::Sweep;
        }
        let n = due.len() + tasks.ready();
        if n == 0 {
            // The jobs that ran just now may have woken somebody too.
            if std::mem::take(&mut world.bodies_ran) {
                tasks.drain_wakes();
                continue;
            }
            let next = match &world.outstanding {
                None => world.next(),
                Some(_) if world.recorder.count() >= limits.events => 0,
                Some(_) => match world.advance(tasks, decider, limits.time_ns) {
                    Advance::To(now) => {
                        *before = tasks.polls();
                        inner.clock.0.store(now, Ordering::Relaxed);
                        continue;
                    }
                    Advance::Stuck => NEVER,
                    Advance::TooLate => NEVER - 1,
                },
            };
            if next == NEVER {
                // Only somebody outside of the run can have woken a task since.
                tasks.drain_wakes();
                if tasks.ready() > 0 {
                    continue;
                }
                return Step::Stall(StallReason::Stuck);
            }
            if next > limits.time_ns {
                return Step::Stall(StallReason::Time(Time(limits.time_ns)));
            }
            if world.recorder.count() >= limits.events {
                return Step::Stall(StallReason::Events(limits.events));
            }
            if next > world.now {
                *before = tasks.polls();
                inner.clock.0.store(next, Ordering::Relaxed);
            }
            world.collect(next, due);
            continue;
        }
        let chosen = decider.choose(n, |k| match due.get(k) {
            Some(due) => world.entity(*due),
            None => tasks.entity(k - due.len()),
        });
        match chosen.checked_sub(due.len()) {
            None => {
                let due = match chosen {
                    0 => due.pop_front(),
                    _ => due.remove(chosen),
                };
                world.fire(due.expect("the chooser chose one of those that are due"), tasks);
            }
            Some(_) if tasks.polls() - *before >= limits.polls_per_instant => {
                return Step::Stall(StallReason::PollsPerInstant(limits.polls_per_instant));
            }
            Some(_) if tasks.polls() >= limits.polls => return Step::Stall(StallReason::Polls(limits.polls)),
            Some(k) => {
                let (slot, body) = tasks.begin(k);
                return Step::Poll(slot, body);
            }
        }
    }
}

/// Drops what is left of a run when it is over, however it ended: tasks hold the machine and the machine holds them.
struct Teardown<P: SimPayload>(Rc<Inner<P>>);

impl<P: SimPayload> Drop for Teardown<P> {
    fn drop(&mut self) {
        loop {
            let task = self.0.core.borrow_mut().tasks.close();
            if task.is_none() {
                break;
            }
            drop(task);
        }
        let bodies = self.0.core.borrow_mut().world.leaves.take_bodies();
        drop(bodies);
    }
}
