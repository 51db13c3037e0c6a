//! Batches in a user's stage on the device, a bounded number of them at a time.

use std::{rc::Rc, sync::Arc};

use super::{control::Control, lane::PanicGuard, line::Line, stage::BatchStage};
use crate::{
    failure::Failure,
    machine::{Machine, Op},
};

/// A batch for the stage.
pub(super) struct Staged<M: Machine> {
    /// Which departure it belongs to.
    pub(super) departure: u64,
    pub(super) op: Op,
    pub(super) batch: M::DeviceBatch,
    /// Samples in it.
    pub(super) samples: usize,
}

/// The stage, batches that wait for it, and batches that it has done with.
pub(super) struct Staging<M: Machine> {
    stage: Arc<dyn BatchStage<M::DeviceBatch>>,
    pub(super) line: Line<Staged<M>, Result<M::DeviceBatch, Failure>>,
}

impl<M: Machine> Staging<M> {
    pub(super) fn new(stage: Arc<dyn BatchStage<M::DeviceBatch>>) -> Rc<Staging<M>> {
        Rc::new(Staging { stage, line: Line::new() })
    }

    /// Takes batches through the stage, one after the other. Never returns.
    pub(super) async fn work(self: Rc<Self>, control: Rc<Control<M>>) {
        let _guard = PanicGuard(&control);
        loop {
            let Staged { departure, op, batch, samples } = self.line.next().await;
            let (stage, work) = (self.stage.clone(), self.stage.work(samples));
            let staged = control.machine.kernel(op, work, batch, move |batch| stage.run(batch, samples)).await;
            self.line.finish(departure, staged);
            control.wake_outgoing();
        }
    }
}
