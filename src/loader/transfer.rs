//! Copies of batches to the device, a bounded number of them in flight.
//!
//! A batch that goes in pieces has one copy in flight at a time, since a copy owns the batch it writes; different batches are copied at
//! once.

use std::rc::Rc;

use super::{control::Control, lane::PanicGuard, line::Line};
use crate::{
    failure::Failure,
    machine::{Copied, Machine, Op, Slot, Unit},
};

/// A copy to be made.
pub(super) struct Copy<M: Machine> {
    /// Which departure it belongs to.
    pub(super) departure: u64,
    pub(super) op: Op,
    pub(super) src: Vec<Slot<Unit<M>>>,
    pub(super) dst: M::DeviceBatch,
    /// The first sample of the batch to be written.
    pub(super) at: usize,
}

/// Copies that wait, and copies that are done.
pub(super) type Copies<M> = Line<Copy<M>, Result<Copied<M>, Failure>>;

/// Makes copies, one after the other. Never returns.
pub(super) async fn work<M: Machine>(copies: Rc<Copies<M>>, control: Rc<Control<M>>) {
    let _guard = PanicGuard(&control);
    loop {
        let Copy { departure, op, src, dst, at } = copies.next().await;
        let copied = control.machine.copy(op, src, dst, at).await;
        copies.finish(departure, copied);
        control.wake_outgoing();
    }
}
