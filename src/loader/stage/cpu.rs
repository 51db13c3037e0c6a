//! A function on a core.

use std::sync::Arc;

use super::{Context, Stage};
use crate::{
    failure::Failure,
    machine::{Item, Machine, Work},
    trace::StageId,
};

/// Runs a function on a core: name, cost, code. A panic in it fails the sample.
#[derive(Debug)]
pub struct Cpu<W, F> {
    id: StageId,
    name: &'static str,
    cost: W,
    function: Arc<F>,
}

impl<W, F> Cpu<W, F> {
    /// The user's stage `id`, called `name` in traces and reports. `cost` prices a sample where time is simulated.
    pub fn new<In, Out>(id: StageId, name: &'static str, cost: W, function: F) -> Cpu<W, F>
    where
        W: Fn(Item, &In) -> Work,
        F: Fn(Item, In) -> Result<Out, Failure> + Send + Sync + 'static,
    {
        Cpu { id, name, cost, function: Arc::new(function) }
    }
}

impl<M, In, Out, W, F> Stage<M, In> for Cpu<W, F>
where
    M: Machine,
    In: Send + 'static,
    Out: Send + 'static,
    W: Fn(Item, &In) -> Work,
    F: Fn(Item, In) -> Result<Out, Failure> + Send + Sync + 'static,
{
    type Out = Out;

    fn enter(&self, machine: &M) {
        machine.name_stage(self.id, self.name);
    }

    async fn run(&self, cx: &Context<'_, M>, input: In) -> Result<Out, Failure> {
        let (item, work, function) = (cx.item, (self.cost)(cx.item, &input), self.function.clone());
        let _job = cx.job();
        cx.machine.cpu(cx.op(self.id), work, move || function(item, input)).await?
    }
}
