//! A lane: one sample after the other, from its ticket to its slot.
//!
//! The lanes are the loader's unit of control. There is a fixed number of them, each a task of the machine, and each handles one
//! sample at a time; what is under way is bounded by that. What a sample acquires, it acquires in one order: slot, bytes, a permit of
//! the stage. Since nobody waits for an earlier one while it holds a later one, and since the oldest sample in flight never waits for
//! bytes, lanes cannot wait for each other in a circle.

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use super::{
    control::{Control, Resolution, Ticket},
    errand::Errand,
    stage::{Context, Fill, Permits, Stage},
};
use crate::{
    failure::{Failure, FailureKind},
    machine::{Machine, Op, Time, Unit},
    trace::StageId,
};

/// The way of a sample, shared by all lanes.
pub(super) struct Way<M: Machine, S, F> {
    pub(super) control: Rc<Control<M>>,
    pub(super) stages: S,
    pub(super) fill: Arc<F>,
    pub(super) decode_permits: Option<Rc<Permits>>,
    /// What is reserved for a sample of which the machine knows no bound \[B\].
    pub(super) sample_bytes: u64,
    /// The most that can be reserved for a sample \[B\].
    pub(super) ledger_bytes: u64,
    /// For each lane, since when its decode job is submitted. Empty without a deadline.
    pub(super) submitted: Vec<Cell<Option<Time>>>,
}

/// The errand of a lane, while no job has it.
type Own<M, S, F> = Option<Box<Errand<Unit<M>, <S as Stage<M, ()>>::Out, F>>>;

impl<M, S, F> Way<M, S, F>
where
    M: Machine,
    S: Stage<M, ()>,
    S::Out: Send + 'static,
    F: Fill<M::Payload, S::Out>,
{
    /// Runs lane number `lane` to the end of the plan.
    pub(super) async fn lane(self: Rc<Self>, lane: usize) {
        let _guard = PanicGuard(&self.control);
        let (mut ticket, mut errand) = (Ticket::blank(), None);
        while self.control.launch(&mut ticket).await {
            self.handle(&mut ticket, lane, &mut errand).await;
        }
    }

    async fn handle(&self, ticket: &mut Ticket<Unit<M>>, lane: usize, own: &mut Own<M, S, F>) {
        let control = &*self.control;
        let item = ticket.item;
        let bound = control.machine.bytes_bound(item.sample).unwrap_or(self.sample_bytes);
        if bound > self.ledger_bytes {
            let why = format!("it may have {bound} bytes, and the budget leaves {} for encoded samples", self.ledger_bytes);
            return self.failed(ticket, Failure::new(FailureKind::TooLarge, why));
        }
        let hold = control.reserve(ticket, bound).await;
        let jobs = Cell::new(0);
        let cx = Context::new(&control.machine, item, control.rank, &hold, &jobs, &control.retries);
        let input = match self.stages.run(&cx, ()).await {
            Ok(input) => input,
            Err(failure) => {
                control.refund(item, hold);
                return self.failed(ticket, failure);
            }
        };
        control.claim(ticket).await;
        let permit = match &self.decode_permits {
            Some(permits) => Some(permits.acquire().await),
            None => None,
        };
        let work = self.fill.work(item, &input);
        let (number, parcel) = ticket.place.take().expect("a claimed ticket has its slot");
        let place = parcel.place();
        let mut errand = own.take().unwrap_or_else(|| Errand::new(self.fill.clone()));
        errand.prepare(item, input, parcel);
        let job = move || {
            errand.run::<M::Payload>();
            errand
        };
        let op = Op { stage: StageId::DECODE, rank: control.rank, attempt: 0, item };
        let submitted = self.submitted.get(lane);
        submitted.inspect(|since| since.set(Some(control.machine.now())));
        let done = control.machine.cpu(op, work, job).await;
        submitted.inspect(|since| since.set(None));
        drop(permit);
        control.refund(item, hold);
        let resolution = match done {
            Ok(mut errand) => {
                let (parcel, result) = errand.finish();
                *own = Some(errand);
                let slot = control.open(parcel);
                match result {
                    Ok(()) => Resolution::Filled(number, slot),
                    Err(failure) => Resolution::Failed(Some((number, slot)), failure),
                }
            }
            Err(failure) => match control.found.take(place) {
                Some(slot) => Resolution::Failed(Some((number, slot)), failure),
                None => Resolution::Lost(Failure::new(FailureKind::Lost, format!("a slot was lost in a job ({failure})"))),
            },
        };
        control.resolve(ticket, resolution);
    }

    /// The sample failed before it was decoded.
    fn failed(&self, ticket: &mut Ticket<Unit<M>>, failure: Failure) {
        let place = ticket.place.take().map(|(number, parcel)| (number, self.control.open(parcel)));
        self.control.resolve(ticket, Resolution::Failed(place, failure));
    }

    /// Ends the loader when a decode job takes longer than `within`. Never returns.
    ///
    /// It looks in every eighth part of that, so a stuck job is noticed after `within` and at most an eighth more. One task for all
    /// lanes costs a sample nothing but a stamp, where a timer for each would cost two queue operations.
    pub(super) async fn watch_jobs(self: Rc<Self>, within: Duration) {
        let machine = &self.control.machine;
        loop {
            machine.sleep(within / 8).await;
            let now = machine.now();
            if self.submitted.iter().any(|since| since.get().is_some_and(|since| now - since >= within)) {
                let why = format!("a decode job did not end within {within:?}");
                self.control.fatal(Failure::new(FailureKind::Lost, why));
                return;
            }
        }
    }
}

/// Ends the loader when a task of its own panics. A machine that catches the panic would otherwise leave the consumer waiting.
pub(super) struct PanicGuard<'a, M: Machine>(pub(super) &'a Control<M>);

impl<M: Machine> Drop for PanicGuard<'_, M> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fatal(Failure::new(FailureKind::Lost, "a stage panicked on the scheduler's thread"));
        }
    }
}
