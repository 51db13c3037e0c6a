//! Reads that wait on their source's runtime instead of on a thread.
//!
//! Such a read is a task there. It takes its job out of its leaf as a thread of a pool would, and brings its answer home through the
//! same handoff, so the scheduler is woken for it as for any other. Giving it up aborts the task wherever it awaits, which closes its
//! connection; a guard in the task then tells that the leaf has ended, so [`quiesce`](super::Machine::quiesce) waits for exactly that.

use std::{cell::OnceCell, future::poll_fn, marker::PhantomData, sync::Arc, thread};

use tokio::task::AbortHandle;

use super::{
    FromStore, Inner,
    home::{Begun, Home},
    jobs::Cell,
    leaf, usage,
};
use crate::{
    failure::{Failure, FailureKind},
    fault::Fault,
    machine::{Encoded, Op},
};

/// Reads on the runtime of the source, which must have one.
pub(super) async fn read<P: FromStore>(inner: &Inner, op: Op, fault: Option<Fault>) -> Result<P::Bytes, Failure> {
    // Dropped after the leaf, which by then is given up.
    let task = AbortOnDrop(OnceCell::new());
    let bytes = inner.home.source.bytes_bound(op.item.sample).unwrap_or(0);
    let fetch = Fetch::<P> { op, fault, flows: PhantomData };
    leaf::leaf(inner, op, bytes, fetch, |inner, cell| {
        let Some(io) = inner.home.source.io() else { return false };
        let running = io.spawn(run(cell, inner.home.clone()));
        task.0.set(running.abort_handle()).is_ok()
    })
    .await
}

/// A read, on its way to a runtime.
struct Fetch<P> {
    op: Op,
    fault: Option<Fault>,
    flows: PhantomData<fn() -> P>,
}

/// The task of a read.
struct AbortOnDrop(OnceCell<AbortHandle>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = self.0.get() {
            task.abort();
        }
    }
}

/// The task's whole life.
async fn run<P: FromStore>(cell: Arc<Cell<Fetch<P>, P::Bytes>>, home: Arc<Home>) {
    let _connection = match &home.connections {
        // It is never closed.
        Some(connections) => connections.acquire().await.ok(),
        None => None,
    };
    let Some((job, begun)) = home.begin(cell.key, &cell.leaf) else { return };
    let mut end = End { cell: &cell, home: &home, begun: Some(begun), used_ns: 0 };
    let sample = job.op.item.sample;
    let answer = match job.fault.filter(|fault| matches!(fault, Fault::Fail(_))).and_then(Fault::failure) {
        Some(failure) => Err(failure),
        None => {
            let mut encoded = home.recycler.take_used();
            let read = end.during(home.source.fetch(sample, &mut encoded.data)).await;
            read.map(|()| {
                if let Some(fault) = job.fault {
                    fault.spoil(&mut encoded.data);
                }
                encoded
            })
        }
    };
    end.tell(answer.map(|encoded: Encoded| (sample, encoded)));
}

/// Ends the leaf in any case: with its answer, or when its task is aborted or panics.
struct End<'a, P: FromStore> {
    cell: &'a Cell<Fetch<P>, P::Bytes>,
    home: &'a Home,
    begun: Option<Begun>,
    /// CPU time of the polls so far \[ns\]. What the connection's own task uses is not among it.
    used_ns: u64,
}

impl<P: FromStore> End<'_, P> {
    async fn during(&mut self, mut read: crate::source::Fetching<'_>) -> Result<(), Failure> {
        if !self.begun.as_ref().is_some_and(Begun::counts_cpu) {
            return read.await;
        }
        poll_fn(|cx| {
            let before = usage::thread_cpu_ns();
            let polled = read.as_mut().poll(cx);
            self.used_ns += usage::thread_cpu_ns().saturating_sub(before);
            polled
        })
        .await
    }

    fn tell(&mut self, answer: Result<(u64, Encoded), Failure>) {
        let Some(begun) = self.begun.take() else { return };
        let bytes = answer.as_ref().map_or(0, |(_, encoded)| encoded.data.len() as u64);
        let answer = answer.map(|(sample, encoded)| P::from_store(sample, encoded));
        self.home.finish(begun.having_used(self.used_ns), &self.cell.leaf, answer, bytes);
    }
}

impl<P: FromStore> Drop for End<'_, P> {
    fn drop(&mut self) {
        let failure = match thread::panicking() {
            true => Failure::new(FailureKind::Panicked, "a read panicked"),
            false => Failure::new(FailureKind::Closed, "a read was given up"),
        };
        self.tell(Err(failure));
    }
}
