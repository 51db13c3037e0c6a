//! Processes of one thread, and pipes between them.
//!
//! A process is a task whose leaves run one after the other on a thread of its own: it [sees](SimMachine::process) a machine on which
//! they take no thread of the pool, hold no lock of another process, and end without the scheduler's help. Its thread competes for the
//! cores with everything else that can run.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    panic::Location,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::{
    Cost, SimMachine, SimPayload, SimTask,
    price::words,
    resource::{Cpu, Pipe},
    world::UNSEEN,
};
use crate::{
    draw::Purpose,
    fault::Leaf as LeafKind,
    machine::{Machine, Op},
};

/// A process that others are started by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSpec {
    /// CPU time of whoever starts one: so long after another do several start (ns).
    pub start_ns: u64,
    /// CPU time of the new one until it does anything of use, beside whoever started it (ns).
    pub boot_ns: u64,
}

/// A pipe between processes. The bytes of a message may go through memory that both share; what that costs is said here all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipeSpec {
    /// CPU time of the sender for a message.
    pub send: Cost,
    /// CPU time of the receiver.
    pub receive: Cost,
    /// From the end of the sender's work until the receiver can begin with its own (ns).
    pub latency_ns: u64,
    /// Messages that are on their way at most, those that nobody has taken yet included; at least one.
    pub capacity: u32,
}

struct Message<T> {
    bytes: u64,
    content: T,
}

struct Inner<T> {
    spec: PipeSpec,
    pipe: RefCell<Pipe<Message<T>>>,
    /// Who waits for a message, or for room.
    waiting: RefCell<Vec<Waker>>,
}

/// A pipe between processes of one simulation. Clones are the same pipe.
pub struct SimPipe<T>(Rc<Inner<T>>);

impl<T> Clone for SimPipe<T> {
    fn clone(&self) -> SimPipe<T> {
        SimPipe(self.0.clone())
    }
}

impl<T> SimPipe<T> {
    /// An empty pipe.
    pub fn new(spec: PipeSpec) -> SimPipe<T> {
        let pipe = RefCell::new(Pipe::new(spec.capacity, spec.latency_ns));
        SimPipe(Rc::new(Inner { spec, pipe, waiting: RefCell::default() }))
    }

    /// Sends a message of so many bytes: first the CPU time of `sender`, recorded as a leaf of `op`, then, where the pipe is full, the
    /// wait for room.
    pub async fn send<P: SimPayload>(&self, sender: &SimMachine<P>, op: Op, bytes: u64, content: T) {
        sender.pay(&self.0.spec.send, op, bytes).await;
        let mut message = Some(Message { bytes, content });
        poll_fn(|cx| {
            let Some(content) = message.take() else { return Poll::Ready(()) };
            match self.0.pipe.borrow_mut().put(sender.now().0, content) {
                Ok(()) => {}
                Err(content) => {
                    message = Some(content);
                    return self.wait(cx);
                }
            }
            self.changed();
            Poll::Ready(())
        })
        .await;
    }

    /// Takes the next message, when it is there, and then the CPU time of `receiver`, recorded as a leaf of the operation that the
    /// message is.
    pub async fn receive<P: SimPayload>(&self, receiver: &SimMachine<P>, op: impl FnOnce(&T) -> Op) -> T {
        let Message { bytes, content } = loop {
            let next = poll_fn(|cx| match self.0.pipe.borrow().next() {
                Some(at) => Poll::Ready(at),
                None => self.wait(cx),
            });
            let at = next.await;
            let taken = self.0.pipe.borrow_mut().take(receiver.now().0);
            match taken {
                Some(message) => break message,
                // Another receiver may have it by then.
                None => receiver.sleep(Duration::from_nanos(at.saturating_sub(receiver.now().0))).await,
            }
        };
        self.changed();
        receiver.pay(&self.0.spec.receive, op(&content), bytes).await;
        content
    }

    fn wait<R>(&self, cx: &mut Context<'_>) -> Poll<R> {
        self.0.waiting.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }

    fn changed(&self) {
        // Outside of the cell: a waker is foreign code.
        let waiting = std::mem::take(&mut *self.0.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl<P: SimPayload> SimMachine<P> {
    /// The same machine as a process of one thread sees it. The process itself has to see to it that its leaves run one after the other:
    /// it awaits each.
    #[must_use]
    pub fn process(&self) -> SimMachine<P> {
        SimMachine { own_thread: true, ..self.clone() }
    }

    /// Starts a process, by this one, which is busy with that for [`ProcessSpec::start_ns`]. The task of the new one is `work`, once it
    /// has been busy for [`ProcessSpec::boot_ns`]; stopping the task kills the process. Neither is seen in traces.
    #[track_caller]
    pub fn start_process<W, F>(&self, name: &'static str, spec: &ProcessSpec, work: W) -> impl Future<Output = SimTask<P>>
    where
        W: FnOnce(SimMachine<P>) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let place = Location::caller();
        let ProcessSpec { start_ns, boot_ns } = *spec;
        let op = Op { stage: UNSEEN, ..Op::default() };
        async move {
            self.busy(op, 0, start_ns).await;
            let child = self.process();
            self.spawn_at(name, place, async move {
                child.busy(op, 0, boot_ns).await;
                work(child).await;
            })
        }
    }

    /// Jobs of this cost.
    async fn pay(&self, cost: &Cost, op: Op, bytes: u64) {
        let residual = match cost.residual_ppm.is_random() {
            true => words(self.inner.seed, Purpose::COPY_RESIDUAL, &op)[0],
            false => 0,
        };
        self.busy(op, bytes, cost.ns(bytes, 0, residual)).await;
    }

    /// A job of so long (ns), or several in a row where that is longer than one can be; none at all where it is no time.
    async fn busy(&self, op: Op, bytes: u64, mut left_ns: u64) {
        while left_ns > 0 {
            let busy_ns = left_ns.min(Cpu::JOB_NS_MAX);
            left_ns -= busy_ns;
            self.submit(&mut self.request(&op, LeafKind::Cpu, bytes, busy_ns, None)).await;
        }
    }
}
