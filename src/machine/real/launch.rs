//! From a configuration to a running scheduler thread, and back to what came of it.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
};

use tokio::{runtime::Builder, sync::Semaphore};

use super::{
    Config, FromStore, Inner, LeafCpu, RealMachine, home::Home, leaves::Leaves, pool::Pool, reactor::react, task::Tasks, usage,
};
use crate::{
    device::Device,
    failure::Failure,
    machine::{Clock, Recycler},
    sync::{self, Receiver, Sender},
    trace::{LeafTimes, Recorder},
};

/// Why a machine could not be launched.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a thread of the machine: {0}")]
pub struct LaunchError(#[from] io::Error);

/// Why a machine ended without a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// A task on the scheduler's thread panicked, which stops all of them: a bug in control logic. Panics of jobs are failures of
    /// their leaves instead.
    #[error("task `{task}` panicked: {message}")]
    Panicked {
        /// Name of the task; `main` is the future given to [`launch`].
        task: &'static str,
        /// What the panic said.
        message: String,
    },
    /// It was [stopped](Handle::stop) first.
    #[error("the machine was stopped")]
    Stopped,
    /// The scheduler's runtime could not be built.
    #[error("cannot build the runtime: {0}")]
    Runtime(String),
}

/// What came of a run.
pub struct Outcome<T> {
    /// What the main future returned.
    pub value: T,
    /// The trace.
    pub recorder: Recorder,
    /// Leaves that were given up and did not end in time; their threads were left behind.
    pub detached: usize,
    /// How often the scheduler took news of leaves: each is at most one wake.
    pub drains: u64,
    /// CPU time of the scheduler's thread \[ns\].
    pub scheduler_cpu_ns: u64,
    /// CPU time of leaves by stage; empty unless [`Config::leaf_cpu`] asks for it.
    pub leaf_cpu: Vec<LeafCpu>,
    /// What every leaf took; empty unless [`Config::leaf_cpu`] asks for it. Copies are not among them: they end on threads whose CPU
    /// time says nothing.
    pub leaf_times: LeafTimes,
}

/// A running machine. Dropping it asks the machine to stop and does not wait.
pub struct Handle<T> {
    thread: JoinHandle<Result<Outcome<T>, JoinError>>,
    wanted: Option<Receiver<Infallible>>,
}

/// Starts a machine on threads of its own and runs `main` on its scheduler's thread until it returns, is stopped, or some task panics.
///
/// The closure moves to that thread; the future it makes stays there, so it need not be `Send`. When it has returned, every task that is
/// left is stopped, and leaves that still run are waited for as in [`quiesce`](crate::machine::Machine::quiesce).
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use towtank::{machine::{Machine, Pixels, Op, real::{self, Config, RealMachine}}, source::Memory, trace::Recorder};
///
/// let config = Config::new(Arc::new(Memory::new(vec![b"encoded".to_vec()])));
/// let handle = real::launch(config, Recorder::new(), |machine: RealMachine<Pixels>| async move {
///     machine.read(Op::default()).await.map(|encoded| encoded.data.len())
/// })?;
/// assert_eq!(handle.join()?.value, Ok(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// When a thread cannot be started.
pub fn launch<P, D, T, F, Fut>(config: Config<D>, recorder: Recorder, main: F) -> Result<Handle<T>, LaunchError>
where
    P: FromStore,
    D: Device<P::Unit>,
    T: Send + 'static,
    F: FnOnce(RealMachine<P, D>) -> Fut + Send + 'static,
    Fut: Future<Output = T>,
{
    let threads = config.threads.max(1);
    let mut home = Home::new(
        config.source.clone(),
        Recycler::new(config.idle_bytes),
        Pool::new("cpu", threads, config.near.clone()),
        Pool::new("io", config.blocking_threads, config.near.clone()),
        config.wakes,
        threads,
        config.leaf_cpu,
    );
    home.store_delay = config.store_delay.clone();
    home.connections = config.connections.map(|most| Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
    let home = Arc::new(home);
    let closer = home.clone();
    let (running, wanted) = sync::mailbox(1);
    let started = home.cpu.start(&home, threads).and_then(|()| {
        let schedule = move || schedule(config, home, recorder, &running, main);
        thread::Builder::new().name("towtank scheduler".to_owned()).spawn(schedule)
    });
    match started {
        Ok(thread) => Ok(Handle { thread, wanted: Some(wanted) }),
        Err(error) => {
            let soon = closer.clock.now() + std::time::Duration::from_secs(1);
            closer.cpu.close(&closer.clock, soon);
            Err(error.into())
        }
    }
}

impl<T> Handle<T> {
    /// Asks the machine to stop: its main future is dropped where it awaits. Nothing happens when it has returned already.
    pub fn stop(&mut self) {
        self.wanted = None;
    }

    /// Whether the machine has ended, so that [`join`](Handle::join) would not wait.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the machine to end.
    ///
    /// # Errors
    ///
    /// When it ended without a value: see [`JoinError`].
    pub fn join(self) -> Result<Outcome<T>, JoinError> {
        let Handle { thread, wanted } = self;
        let ended = thread.join();
        drop(wanted);
        ended.unwrap_or_else(|payload| Err(panicked("scheduler", &Failure::panicked(&*payload))))
    }
}

fn panicked(task: &'static str, failure: &Failure) -> JoinError {
    JoinError::Panicked { task, message: failure.message.clone().into_owned() }
}

/// The scheduler thread's whole life.
fn schedule<P, D, T, F, Fut>(
    config: Config<D>,
    home: Arc<Home>,
    recorder: Recorder,
    running: &Sender<Infallible>,
    main: F,
) -> Result<Outcome<T>, JoinError>
where
    P: FromStore,
    D: Device<P::Unit>,
    F: FnOnce(RealMachine<P, D>) -> Fut,
    Fut: Future<Output = T>,
{
    let Config { device, seed, reads, wakes, faults, stuck_after, .. } = config;
    let inner = Rc::new(Inner {
        home: home.clone(),
        seed,
        reads,
        faults: (!faults.is_empty()).then_some(faults),
        stuck_after,
        leaves: RefCell::new(Leaves::default()),
        tasks: Rc::new(Tasks::default()),
        recorder: RefCell::new(recorder),
        dozing: RefCell::new(None),
        drains: Cell::new(0),
    });
    let built = Builder::new_current_thread().enable_time().build_local(tokio::runtime::LocalOptions::default());
    let ended = built.map_err(|error| JoinError::Runtime(error.to_string())).and_then(|runtime| {
        runtime.block_on(async {
            let reactor = inner.tasks.spawn("reactor", react(inner.clone(), wakes.age));
            let ended = run(&inner, device, running, main).await;
            inner.quiesce().await;
            drop(reactor);
            ended
        })
        // The runtime goes here, and with it every task that is left.
    });
    let deadline = home.clock.now() + if inner.leaves.borrow().given_up() == 0 { stuck_after } else { std::time::Duration::ZERO };
    home.cpu.close(&home.clock, deadline);
    home.io.close(&home.clock, deadline);
    inner.take_news(&Context::from_waker(Waker::noop()), &mut Vec::new());
    let mut leaves = inner.leaves.borrow_mut();
    ended.map(|value| Outcome {
        value,
        recorder: inner.recorder.take(),
        detached: leaves.given_up(),
        drains: inner.drains.get(),
        scheduler_cpu_ns: usage::thread_cpu_ns(),
        leaf_cpu: leaves.cpu().to_vec(),
        leaf_times: LeafTimes::new(leaves.take_times()),
    })
}

/// Runs the main future until it returns, is stopped, or some task panics. It is dropped before this returns.
async fn run<P, D, T, F, Fut>(inner: &Rc<Inner>, device: Arc<D>, running: &Sender<Infallible>, main: F) -> Result<T, JoinError>
where
    F: FnOnce(RealMachine<P, D>) -> Fut,
    Fut: Future<Output = T>,
{
    let machine = RealMachine { inner: inner.clone(), device, flows: PhantomData };
    let main = match catch_unwind(AssertUnwindSafe(|| main(machine))) {
        Ok(main) => main,
        Err(payload) => return Err(panicked("main", &Failure::panicked(&*payload))),
    };
    let (mut main, mut stopped) = (pin!(main), pin!(running.closed()));
    poll_fn(|cx| {
        inner.tasks.watch(cx.waker());
        if stopped.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(JoinError::Stopped));
        }
        let polled = catch_unwind(AssertUnwindSafe(|| main.as_mut().poll(cx)));
        if let Some((task, failure)) = inner.tasks.take_panic() {
            return Poll::Ready(Err(panicked(task, &failure)));
        }
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(payload) => Poll::Ready(Err(panicked("main", &Failure::panicked(&*payload)))),
        }
    })
    .await
}
