//! A slot on its way through code that may fail, panic or be dropped.

use std::sync::Arc;

use crate::{
    machine::Slot,
    sync::{Mutex, lock},
};

/// Where slots end up whose holder was dropped: jobs that were taken out of a queue, jobs whose answer nobody waited for, tickets of
/// lanes that were stopped.
#[derive(Debug)]
pub(super) struct Found<U>(Mutex<Vec<Slot<U>>>);

impl<U> Found<U> {
    pub(super) fn new() -> Arc<Found<U>> {
        Arc::new(Found(Mutex::new(Vec::new())))
    }

    /// The slot at `place`, if it was found.
    pub(super) fn take(&self, place: usize) -> Option<Slot<U>> {
        let mut slots = lock(&self.0);
        let at = slots.iter().position(|slot| slot.index() == place)?;
        Some(slots.swap_remove(at))
    }

    /// All slots found.
    pub(super) fn take_all(&self) -> Vec<Slot<U>> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// A slot that cannot get lost: dropped, it can be [found](Found) again.
#[derive(Debug)]
pub(super) struct Parcel<U> {
    /// Until it is opened.
    inside: Option<(Slot<U>, Arc<Found<U>>)>,
}

const SEALED: &str = "a parcel holds its slot until it is opened";

impl<U> Parcel<U> {
    pub(super) fn new(slot: Slot<U>, found: Arc<Found<U>>) -> Parcel<U> {
        Parcel { inside: Some((slot, found)) }
    }

    /// Place of the slot in the ring.
    pub(super) fn place(&self) -> usize {
        self.inside.as_ref().expect(SEALED).0.index()
    }

    /// The slot's cells, to be written.
    pub(super) fn cells(&mut self) -> &mut [U] {
        self.inside.as_mut().expect(SEALED).0.get_mut()
    }

    /// The slot, and what is left of the wrapping.
    pub(super) fn open(mut self) -> (Slot<U>, Arc<Found<U>>) {
        self.inside.take().expect(SEALED)
    }
}

impl<U> Drop for Parcel<U> {
    fn drop(&mut self) {
        if let Some((slot, found)) = self.inside.take() {
            lock(&found.0).push(slot);
        }
    }
}
