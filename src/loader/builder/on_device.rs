//! What happens to whole batches on the device.

use std::sync::Arc;

use crate::loader::{DeviceStage, Settings, stage::BatchStage};

/// What happens to a batch `B` between its copy and the consumer: nothing, `()`, or a stage, [`OnDevice`].
pub trait After<B> {
    /// The stage, of which the settings are told.
    fn stage(self, settings: &mut Settings) -> Option<Arc<dyn BatchStage<B>>>;
}

impl<B> After<B> for () {
    fn stage(self, _: &mut Settings) -> Option<Arc<dyn BatchStage<B>>> {
        None
    }
}

/// A stage on the device, and how many batches are in it at once.
#[derive(Clone, Copy, Debug)]
pub struct OnDevice<T> {
    stage: T,
    limit: usize,
}

impl<T> OnDevice<T> {
    pub(super) fn new(stage: T, limit: usize) -> OnDevice<T> {
        OnDevice { stage, limit }
    }
}

impl<B, T: BatchStage<B>> After<B> for OnDevice<T> {
    fn stage(self, settings: &mut Settings) -> Option<Arc<dyn BatchStage<B>>> {
        settings.device_stage = Some(DeviceStage { limit: self.limit, result_bytes: self.stage.result_bytes() });
        Some(Arc::new(self.stage))
    }
}
