//! The batch under assembly: cuts the stream of drained samples into batches and epochs.
//!
//! It is fed entries in sequence order and decides by them alone: how many samples fill a batch, where an epoch ends and what
//! becomes of its last samples, which state goes with a batch, when there have been too many failures. Time enters only as stamps. It
//! never waits: what it decides goes to a list of [`Output`]s that the rest of the loader works off, and its memory is that of the ring.

use std::{collections::VecDeque, sync::Arc};

use super::{
    error::Error,
    marks::Marks,
    outcome::Skipped,
    plan::{Plan, Shape},
    ring::Entry,
    settings::OnError,
    state::State,
};
use crate::{
    failure::Failure,
    machine::{Item, Slot, Time},
};

/// What the assembly has decided.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every output is a batch")]
pub(super) enum Output<U> {
    /// Slots of the unfinished batch that must be moved to the device before it can go on.
    Piece { epoch: u32, slots: Vec<Slot<U>> },
    /// The unfinished batch, of which pieces were moved, will never be a batch.
    Discard { epoch: u32 },
    /// A batch whose last sample is known.
    Batch(Sealed<U>),
    /// The error that ends the loader, in its place in the order.
    Fail(Error),
    /// The end of the plan.
    End,
}

/// A batch whose samples are known. What was flushed of it before is not in `slots`.
#[derive(Debug)]
pub(super) struct Sealed<U> {
    pub(super) index: u64,
    pub(super) epoch: u32,
    pub(super) slots: Vec<Slot<U>>,
    pub(super) items: Vec<Item>,
    /// When each of `items` was launched.
    pub(super) launched: Vec<Time>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) state: State,
    pub(super) first_filled: Time,
    pub(super) sealed: Time,
}

/// A sample that falls to `drop_last` or to a rank's tail.
#[derive(Debug)]
pub(super) struct Dropped {
    pub(super) item: Item,
    pub(super) filled: Time,
}

/// Lists to be used again, so that a batch allocates nothing once they have grown.
#[derive(Debug)]
pub(super) struct Spare<U> {
    pub(super) slots: Vec<Vec<Slot<U>>>,
    pub(super) items: Vec<Vec<Item>>,
    pub(super) times: Vec<Vec<Time>>,
    pub(super) skipped: Vec<Vec<Skipped>>,
}

/// See the [module documentation](self).
#[derive(Debug)]
pub(super) struct Assembly<U> {
    plan: Plan,
    batch: usize,
    on_error: OnError,
    /// Everything that a state says, as of now.
    now: State,
    shape: Shape,
    /// Nothing more is decided: the plan has ended or failed.
    over: bool,

    slots: Vec<Slot<U>>,
    items: Vec<Item>,
    launched: Vec<Time>,
    filled: Vec<Time>,
    skipped: Vec<Skipped>,
    /// Whether part of the unfinished batch was flushed.
    flushed: bool,
    /// Failures of samples without a sequence number whose epoch has not begun here.
    later: VecDeque<(u64, Skipped)>,

    pub(super) outputs: VecDeque<Output<U>>,
    pub(super) dropped: Vec<Dropped>,
    /// Slots of dropped samples.
    pub(super) freed: Vec<Slot<U>>,
    pub(super) spare: Spare<U>,
}

impl<U> Assembly<U> {
    pub(super) fn new(plan: Plan, batch: usize, on_error: OnError, now: Time) -> Assembly<U> {
        let start = plan.start().clone();
        let shape = if start.epoch < plan.epochs() { plan.shape(start.epoch) } else { Shape { samples: 0, steps: 0 } };
        let mut assembly = Assembly {
            plan,
            batch,
            on_error,
            now: start,
            shape,
            over: false,
            slots: Vec::new(),
            items: Vec::new(),
            launched: Vec::new(),
            filled: Vec::new(),
            skipped: Vec::new(),
            flushed: false,
            later: VecDeque::new(),
            outputs: VecDeque::new(),
            dropped: Vec::new(),
            freed: Vec::new(),
            spare: Spare { slots: Vec::new(), items: Vec::new(), times: Vec::new(), skipped: Vec::new() },
        };
        assembly.end_epochs(now);
        assembly
    }

    /// The epoch under assembly.
    pub(super) fn epoch(&self) -> u32 {
        self.now.epoch
    }

    /// The lowest index of the epoch that has not come by.
    pub(super) fn low(&self) -> u64 {
        self.now.taken.low()
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Samples of the unfinished batch.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the unfinished batch has the slot at `place`.
    pub(super) fn has_slot(&self, place: usize) -> bool {
        self.slots.iter().any(|slot| slot.index() == place)
    }

    /// Whether the unfinished batch has slots.
    pub(super) fn has_slots(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Takes the next entry in sequence order.
    pub(super) fn take(&mut self, entry: Entry<U>, now: Time) {
        let Entry { item, index, launched, result } = entry;
        debug_assert_eq!(item.epoch, self.now.epoch, "numbers follow the epochs");
        match result {
            Ok((slot, filled)) => {
                self.now.taken.insert(index);
                self.slots.push(slot);
                self.items.push(item);
                self.launched.push(launched);
                self.filled.push(filled);
                if self.is_surplus() {
                    self.drop_rest();
                } else if self.items.len() == self.batch {
                    self.seal(now);
                }
                self.end_epochs(now);
            }
            Err(failure) => self.fail(index, item, failure, now),
        }
    }

    /// A sample failed: one whose number was drained, or one that never got a number.
    pub(super) fn fail(&mut self, index: u64, item: Item, failure: Failure, now: Time) {
        let skipped = Skipped { item, failure };
        if self.over {
            // No batch will report it.
            self.skipped.push(skipped);
            return;
        }
        if item.epoch > self.now.epoch {
            self.later.push_back((index, skipped));
        } else {
            self.skip(index, skipped);
            self.end_epochs(now);
        }
    }

    /// A part of the machine failed that the loader cannot do without.
    pub(super) fn fatal(&mut self, failure: Failure) {
        if !self.over {
            self.over = true;
            self.outputs.push_back(Output::Fail(Error::Fatal(failure)));
        }
    }

    /// Hands over what there is of the unfinished batch.
    pub(super) fn flush(&mut self) {
        let slots = std::mem::replace(&mut self.slots, self.spare.slots.pop().unwrap_or_default());
        self.outputs.push_back(Output::Piece { epoch: self.now.epoch, slots });
        self.flushed = true;
    }

    /// Failed samples that no batch has reported.
    pub(super) fn take_unreported(&mut self) -> Vec<Skipped> {
        let mut skipped = std::mem::take(&mut self.skipped);
        skipped.extend(self.later.drain(..).map(|(_, skipped)| skipped));
        skipped
    }

    /// Slots of the unfinished batch, which is given up.
    pub(super) fn give_up(&mut self) -> Vec<Slot<U>> {
        self.over = true;
        std::mem::take(&mut self.slots)
    }

    fn skip(&mut self, index: u64, skipped: Skipped) {
        self.now.taken.insert(index);
        let error = match self.on_error {
            OnError::Fail => Some(Error::Sample { item: skipped.item, failure: skipped.failure.clone() }),
            OnError::Skip { at_most } => {
                self.now.skipped += 1;
                let allowed = at_most.of(self.shape.samples);
                let Skipped { item, failure } = &skipped;
                (self.now.skipped > allowed).then(|| Error::TooManySkipped { allowed, item: *item, failure: failure.clone() })
            }
        };
        match error {
            None => self.skipped.push(skipped),
            Some(error) => {
                self.over = true;
                self.outputs.push_back(Output::Fail(error));
            }
        }
    }

    /// Whether the epoch has had all batches it may have, so that further samples can only be dropped.
    fn is_surplus(&self) -> bool {
        self.plan.tail().fixes_steps() && self.now.step == self.shape.steps
    }

    /// Ends the epoch if all its samples have come by, and any after it that are empty.
    fn end_epochs(&mut self, now: Time) {
        while !self.over && self.now.epoch < self.plan.epochs() && self.now.taken.len() == self.shape.samples {
            let fixed = self.plan.tail().fixes_steps();
            while fixed && self.now.step < self.shape.steps {
                self.seal(now);
            }
            if self.items.is_empty() || fixed || self.plan.drop_last() {
                self.drop_rest();
            } else {
                self.seal(now);
            }
            self.begin_epoch();
        }
        if !self.over && self.now.epoch >= self.plan.epochs() {
            self.over = true;
            self.outputs.push_back(Output::End);
        }
    }

    fn begin_epoch(&mut self) {
        self.now = self.next_epoch();
        if self.now.epoch < self.plan.epochs() {
            self.shape = self.plan.shape(self.now.epoch);
        }
        for _ in 0..self.later.len() {
            match self.later.pop_front() {
                Some((index, skipped)) if skipped.item.epoch == self.now.epoch && !self.over => self.skip(index, skipped),
                Some(other) => self.later.push_back(other),
                None => break,
            }
        }
    }

    fn drop_rest(&mut self) {
        self.dropped.extend(self.items.drain(..).zip(self.filled.drain(..)).map(|(item, filled)| Dropped { item, filled }));
        self.launched.clear();
        self.freed.append(&mut self.slots);
        if std::mem::take(&mut self.flushed) {
            self.outputs.push_back(Output::Discard { epoch: self.now.epoch });
        }
    }

    fn seal(&mut self, now: Time) {
        self.flushed = false;
        self.now.step += 1;
        let index = self.now.batches;
        self.now.batches += 1;
        let first_filled = self.filled.drain(..).min().unwrap_or(now);
        let Spare { slots, items, times, skipped } = &mut self.spare;
        let sealed = Sealed {
            index,
            epoch: self.now.epoch,
            slots: std::mem::replace(&mut self.slots, slots.pop().unwrap_or_default()),
            items: std::mem::replace(&mut self.items, items.pop().unwrap_or_default()),
            launched: std::mem::replace(&mut self.launched, times.pop().unwrap_or_default()),
            skipped: std::mem::replace(&mut self.skipped, skipped.pop().unwrap_or_default()),
            state: self.state(),
            first_filled,
            sealed: now,
        };
        self.outputs.push_back(Output::Batch(sealed));
    }

    /// The state after the batch just sealed. An epoch that can hold no further batch is over: the state is the start of the next.
    fn state(&self) -> State {
        let rest = self.shape.samples - self.now.taken.len();
        let complete = if self.plan.tail().fixes_steps() {
            self.now.step == self.shape.steps
        } else {
            rest == 0 || self.plan.drop_last() && rest < self.plan.batch()
        };
        if complete { self.next_epoch() } else { self.now.clone() }
    }

    fn next_epoch(&self) -> State {
        State {
            epoch: self.now.epoch + 1,
            step: 0,
            skipped: 0,
            before: Arc::default(),
            taken: Marks::new(),
            version: self.now.version,
            identity: self.now.identity.clone(),
            place: self.now.place,
            batches: self.now.batches,
        }
    }
}
