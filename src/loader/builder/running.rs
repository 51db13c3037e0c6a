//! A loader that runs on threads of its own.

use std::{
    pin::Pin,
    sync::{Arc, mpsc},
    task::{Context, Poll},
};

use crate::{
    device::{Device, HostDevice},
    loader::{self, Batch, Batches, Error, Fill, Outcome, Resolved, Settings, Stage, State, stage::BatchStage},
    machine::{
        Machine, Pixels, Time,
        real::{self, Handle, JoinError, LaunchError, RealMachine, WallClock},
    },
    trace::Recorder,
};

/// Memory of a batch on a device `D`.
type Memory<D> = <D as Device<u8>>::Batch;

/// Both ends of a loader on the real machine whose batches go to a device `D`.
pub struct Running<D: Device<u8> = HostDevice> {
    /// The consumer's end.
    pub batches: Batches<Memory<D>, u8>,
    /// The machine's clock.
    pub clock: WallClock,
    /// The machine, which ends with the loader's books and when they were closed.
    pub machine: Handle<(Outcome, Time)>,
}

/// Starts a loader on the real machine. `stages` makes the steps before the slot, on the scheduler's thread.
///
/// # Errors
///
/// When a thread cannot be started.
///
/// # Panics
///
/// When `stages` panics.
pub fn launch<D, S, F>(
    config: real::Config<D>,
    resolved: Resolved,
    stages: impl FnOnce(&Settings) -> S + Send + 'static,
    fill: F,
    recorder: Recorder,
) -> Result<Running<D>, LaunchError>
where
    D: Device<u8>,
    S: Stage<RealMachine<Pixels, D>, ()> + 'static,
    S::Out: Send + 'static,
    F: Fill<Pixels, S::Out>,
{
    launch_alone(config, RankLoader { resolved, device: None, stages, fill, on_device: None }, recorder)
}

/// Starts the loader of one rank alone.
pub(super) fn launch_alone<D, G, S, F>(
    config: real::Config<D>,
    alone: RankLoader<D, G, F>,
    recorder: Recorder,
) -> Result<Running<D>, LaunchError>
where
    D: Device<u8>,
    G: FnOnce(&Settings) -> S + Send + 'static,
    S: Stage<RealMachine<Pixels, D>, ()> + 'static,
    S::Out: Send + 'static,
    F: Fill<Pixels, S::Out>,
{
    let only = |mut books: Vec<Outcome>| books.pop().expect("one rank has been run");
    let (mut batches, clock, machine) = start(config, vec![alone], recorder, only)?;
    Ok(Running { batches: batches.pop().expect("one rank has been started"), clock, machine })
}

/// The loader of one rank, before it runs.
pub struct RankLoader<D: Device<u8>, G, F> {
    /// What it is told. Its rank is what events carry.
    pub resolved: Resolved,
    /// Where its batches go; `None` for the machine's own device.
    pub device: Option<Arc<D>>,
    /// Makes the steps before the slot, on the scheduler's thread.
    pub stages: G,
    /// The last step.
    pub fill: F,
    /// The stage on the device, where the settings tell of one.
    pub on_device: Option<Arc<dyn BatchStage<D::Batch>>>,
}

/// Both ends of the loaders of several ranks on one real machine.
pub struct RunningRanks<D: Device<u8> = HostDevice> {
    /// The consumers' ends, rank after rank.
    pub batches: Vec<Batches<D::Batch, u8>>,
    /// The machine's clock.
    pub clock: WallClock,
    /// The machine, which ends with the loaders' books, rank after rank, and when the last were closed.
    pub machine: Handle<(Vec<Outcome>, Time)>,
}

/// Starts the loaders of several ranks on one real machine: one scheduler's thread, one pool, one source and one trace, and for each rank
/// a loader, a ring and a budget of its own, as ranks of one node share the simulated machine. A rank that ends, in whichever way, leaves
/// the others to theirs.
///
/// # Errors
///
/// When a thread cannot be started.
///
/// # Panics
///
/// When the stages of a rank panic.
pub fn launch_ranks<D, G, S, F>(
    config: real::Config<D>,
    ranks: Vec<RankLoader<D, G, F>>,
    recorder: Recorder,
) -> Result<RunningRanks<D>, LaunchError>
where
    D: Device<u8>,
    G: FnOnce(&Settings) -> S + Send + 'static,
    S: Stage<RealMachine<Pixels, D>, ()> + 'static,
    S::Out: Send + 'static,
    F: Fill<Pixels, S::Out>,
{
    let (batches, clock, machine) = start(config, ranks, recorder, |books| books)?;
    Ok(RunningRanks { batches, clock, machine })
}

/// Starts them, and makes of their books what is wanted.
#[expect(clippy::type_complexity, reason = "it is taken apart at once")]
fn start<D, G, S, F, T>(
    config: real::Config<D>,
    ranks: Vec<RankLoader<D, G, F>>,
    recorder: Recorder,
    books: impl FnOnce(Vec<Outcome>) -> T + Send + 'static,
) -> Result<(Vec<Batches<D::Batch, u8>>, WallClock, Handle<(T, Time)>), LaunchError>
where
    D: Device<u8>,
    G: FnOnce(&Settings) -> S + Send + 'static,
    S: Stage<RealMachine<Pixels, D>, ()> + 'static,
    S::Out: Send + 'static,
    F: Fill<Pixels, S::Out>,
    T: Send + 'static,
{
    let (give, get) = mpsc::channel();
    let machine = real::launch(config, recorder, move |machine: RealMachine<Pixels, D>| async move {
        let rank = |rank: RankLoader<D, G, F>| {
            let machine = rank.device.map_or_else(|| machine.clone(), |device| machine.on_device(device));
            let (sender, batches) = loader::channel(machine.clock());
            let stages = (rank.stages)(&rank.resolved.settings);
            (batches, loader::run_staged(machine, rank.resolved, stages, rank.fill, rank.on_device, sender))
        };
        let (batches, ranks): (Vec<_>, Vec<_>) = ranks.into_iter().map(rank).unzip();
        // When nobody takes the consumers' ends they are dropped here, and the loaders end at once.
        drop(give.send((batches, machine.clock())));
        let ended = loader::all_ranks(machine.clone(), ranks).await;
        (books(ended), machine.now())
    })?;
    match get.recv() {
        Ok((batches, clock)) => Ok((batches, clock, machine)),
        Err(mpsc::RecvError) => panic!("the scheduler's thread ended before the loader began: {:?}", machine.join().err()),
    }
}

/// What ends a [`Loader`] early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The loader says why.
    #[error(transparent)]
    Loader(#[from] Error),
    /// Its scheduler's thread is lost.
    #[error(transparent)]
    Machine(#[from] JoinError),
}

/// A running loader: batches, in order, from a blocking iterator, from [`recv`](Loader::recv), or as an async stream.
///
/// `D` is the device that batches go to.
///
/// After the last batch, or after an error, there is nothing more. Dropping it stops everything and does not wait;
/// [`close`](Loader::close) does, and returns the books.
pub struct Loader<D: Device<u8> = HostDevice> {
    batches: Option<Batches<Memory<D>, u8>>,
    machine: Option<Handle<(Outcome, Time)>>,
    state: Option<State>,
}

impl<D: Device<u8>> Loader<D> {
    pub(super) fn new(running: Running<D>) -> Loader<D> {
        Loader { batches: Some(running.batches), machine: Some(running.machine), state: None }
    }

    /// The next batch; `None` after the last one and after an error. Cancel safe: a batch is taken or not.
    pub async fn recv(&mut self) -> Option<Result<Batch<Memory<D>, u8>, RunError>> {
        let answer = self.batches.as_mut()?.recv().await;
        self.note(answer)
    }

    /// Where the run stands after the batch that was taken last; `None` before the first. Given to
    /// [`Builder::resume`](super::Builder::resume), the next run goes on from there.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Stops it, waits until nothing of it is left, and returns its books.
    ///
    /// # Errors
    ///
    /// When its thread is lost.
    pub fn close(mut self) -> Result<Outcome, JoinError> {
        self.batches = None;
        self.machine.take().map_or(Err(JoinError::Stopped), |machine| machine.join().map(|done| done.value.0))
    }

    fn note(&mut self, answer: Option<Result<Batch<Memory<D>, u8>, Error>>) -> Option<Result<Batch<Memory<D>, u8>, RunError>> {
        Some(match answer? {
            Ok(batch) => {
                self.state = Some(batch.state().clone());
                Ok(batch)
            }
            // The thread knows better than the loader why it is gone.
            Err(Error::Lost) => Err(self
                .machine
                .take()
                .and_then(|machine| machine.join().err())
                .map_or(RunError::Loader(Error::Lost), RunError::Machine)),
            Err(error) => Err(RunError::Loader(error)),
        })
    }
}

impl<D: Device<u8>> Iterator for Loader<D> {
    type Item = Result<Batch<Memory<D>, u8>, RunError>;

    fn next(&mut self) -> Option<Self::Item> {
        let answer = self.batches.as_mut()?.next();
        self.note(answer)
    }
}

impl<D: Device<u8>> futures_core::Stream for Loader<D> {
    type Item = Result<Batch<Memory<D>, u8>, RunError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(batches) = self.batches.as_mut() else { return Poll::Ready(None) };
        match batches.poll(cx) {
            Poll::Ready(answer) => Poll::Ready(self.note(answer)),
            Poll::Pending => Poll::Pending,
        }
    }
}
