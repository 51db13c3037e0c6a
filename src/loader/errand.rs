//! What a decode job takes along and brings back.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::{parcel::Parcel, stage::Fill};
use crate::{
    failure::Failure,
    fault,
    machine::{Item, Payload},
};

/// A sample on its way to a core and back: what is known of it, its slot, and the code that fills the slot.
///
/// A lane has one, which travels with every job and comes back with its answer. So a job and its answer are one word, however often
/// they are handed on, and the filling is shared once a lane: sharing it anew would cost two atomic operations a sample.
pub(super) struct Errand<U, In, F> {
    fill: Arc<F>,
    item: Item,
    /// Until it is filled.
    input: Option<In>,
    /// From [`prepare`](Errand::prepare) to [`finish`](Errand::finish). Should the job never run, it is found again.
    parcel: Option<Parcel<U>>,
    result: Result<(), Failure>,
}

const SET_OUT: &str = "an errand that is run was prepared";

impl<U, In, F> Errand<U, In, F> {
    pub(super) fn new(fill: Arc<F>) -> Box<Errand<U, In, F>> {
        Box::new(Errand { fill, item: Item::default(), input: None, parcel: None, result: Ok(()) })
    }

    /// Takes a sample along.
    pub(super) fn prepare(&mut self, item: Item, input: In, parcel: Parcel<U>) {
        self.item = item;
        self.input = Some(input);
        self.parcel = Some(parcel);
    }

    /// Fills the slot. The parcel outlives a panic of the user's code.
    pub(super) fn run<P: Payload<Unit = U>>(&mut self)
    where
        F: Fill<P, In>,
    {
        let Errand { fill, item, input, parcel, .. } = self;
        let (input, parcel) = (input.take().expect(SET_OUT), parcel.as_mut().expect(SET_OUT));
        let filled = catch_unwind(AssertUnwindSafe(|| fault::strike().and_then(|()| fill.fill(*item, input, parcel.cells()))));
        self.result = filled.unwrap_or_else(|panic| Err(Failure::panicked(&*panic)));
    }

    /// Hands over the slot, and whether it was filled.
    pub(super) fn finish(&mut self) -> (Parcel<U>, Result<(), Failure>) {
        (self.parcel.take().expect(SET_OUT), std::mem::replace(&mut self.result, Ok(())))
    }
}
