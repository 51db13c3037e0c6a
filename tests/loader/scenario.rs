//! Running a loader in a test: the loader in one task, its consumer in another, on any machine.

use std::{cell::RefCell, collections::BTreeSet, future::Future, rc::Rc, sync::Arc, time::Duration};

use towtank::{
    failure::FailureKind,
    loader::{self, Batch, Batches, Error, Fill, Outcome, Settings, Stage, State, stage::BatchStage},
    machine::{Item, Machine, Time, Unit},
};

use crate::world::{Decode, Expected, Flip, Source, TestPayload, World};

/// What a consumer does.
#[derive(Clone, Copy, Debug)]
pub struct Consumer {
    /// Leaves after so many batches.
    pub leaves_after: usize,
    /// Works so long on each [ms].
    pub step_ms: u64,
}

impl Consumer {
    pub const EAGER: Consumer = Consumer { leaves_after: usize::MAX, step_ms: 0 };
}

/// What a consumer saw.
#[derive(Debug, Default)]
pub struct Seen {
    pub batches: Vec<Expected>,
    pub indices: Vec<u64>,
    pub skipped: Vec<(Item, FailureKind)>,
    pub states: Vec<State>,
    pub error: Option<Error>,
    /// When the last batch, or the end, came.
    pub end: Time,
    pub lent: usize,
    /// Batches that the stage on the device has been at.
    pub staged: usize,
}

impl Seen {
    pub fn note<P: TestPayload, D: AsRef<[P::Unit]> + Send>(&mut self, batch: &Batch<D, P::Unit>) {
        assert_eq!(batch.len() * batch.units_per_sample(), batch.cells().len());
        let mut cells = batch.cells().to_vec();
        let staged = batch.samples().next().is_some_and(|first| !P::holds(first, batch.sample(0)));
        if staged {
            P::flip(&mut cells);
        }
        let places = cells.chunks(batch.units_per_sample());
        for ((k, sample), cells) in batch.samples().enumerate().zip(places) {
            assert!(P::holds(sample, cells), "{batch:?}: place {k} does not hold sample {sample}");
        }
        self.staged += usize::from(staged);
        self.lent += usize::from(batch.is_lent());
        self.indices.push(batch.index());
        let positions = batch.items().iter().map(|item| item.position).collect();
        self.batches.push(Expected { epoch: batch.epoch(), positions });
        self.skipped.extend(batch.skipped().iter().map(|skipped| (skipped.item, skipped.failure.kind)));
        self.states.push(batch.state().clone());
    }

    /// All positions delivered, by epoch.
    pub fn positions(&self) -> BTreeSet<(u32, u64)> {
        let all: Vec<_> = self.batches.iter().flat_map(|b| b.positions.iter().map(|p| (b.epoch, *p))).collect();
        let set: BTreeSet<_> = all.iter().copied().collect();
        assert_eq!(set.len(), all.len(), "nothing twice");
        set
    }
}

/// The stage on the device that the settings tell of.
pub fn on_device<P: TestPayload, B: AsMut<[P::Unit]>>(settings: &Settings) -> Option<Arc<dyn BatchStage<B>>> {
    settings.device_stage.map(|stage| Arc::new(Flip::<P>::new(stage.result_bytes)) as Arc<dyn BatchStage<B>>)
}

/// Runs a loader and a consumer of its batches.
pub async fn load<M, S, F, C, T>(
    machine: M,
    settings: Settings,
    stages: S,
    fill: F,
    consume: impl FnOnce(M, Batches<M::DeviceBatch, Unit<M>>) -> C,
) -> (T, Outcome)
where
    M: Machine,
    M::Payload: TestPayload,
    M::DeviceBatch: AsMut<[Unit<M>]>,
    S: Stage<M, ()> + 'static,
    S::Out: Send + 'static,
    F: Fill<M::Payload, S::Out>,
    C: Future<Output = (T, Option<Outcome>)>,
{
    let on_device = on_device::<M::Payload, _>(&settings);
    let resolved = settings.resolve().expect("settings that fit together");
    let (sender, batches) = loader::channel(machine.clock());
    let outcome = Rc::new(RefCell::new(None));
    let (put, running) = (outcome.clone(), machine.clone());
    let _loader = machine.spawn("loader", async move {
        let closed = loader::run_staged(running, resolved, stages, fill, on_device, sender).await;
        *put.borrow_mut() = Some(closed);
    });
    let (value, reported) = consume(machine.clone(), batches).await;
    let reported = reported.expect("the loader leaves its books");
    machine.sleep(Duration::from_millis(1)).await;
    assert_eq!(outcome.take().expect("the loader has ended"), reported);
    (value, reported)
}

/// Loads the world, as a consumer of this kind.
pub async fn load_world<M>(machine: M, settings: Settings, world: World, consumer: Consumer) -> (Seen, Outcome)
where
    M: Machine,
    M::Payload: TestPayload,
    M::DeviceBatch: AsRef<[Unit<M>]> + AsMut<[Unit<M>]>,
{
    load(machine, settings, Source(world), Decode(world), |machine, batches| consume(machine, batches, consumer)).await
}

/// Takes batches until the end, or until it leaves; then waits for the books.
pub async fn consume<M>(machine: M, mut batches: Batches<M::DeviceBatch, Unit<M>>, consumer: Consumer) -> (Seen, Option<Outcome>)
where
    M: Machine,
    M::Payload: TestPayload,
    M::DeviceBatch: AsRef<[Unit<M>]>,
{
    let mut seen = Seen::default();
    while seen.batches.len() < consumer.leaves_after
        && let Some(batch) = batches.recv().await
    {
        match batch {
            Ok(batch) => {
                seen.note::<M::Payload, _>(&batch);
                machine.sleep(Duration::from_millis(consumer.step_ms)).await;
            }
            Err(error) => assert_eq!(seen.error.replace(error), None, "an error comes once"),
        }
    }
    seen.end = machine.now();
    (seen, batches.closed().await)
}
