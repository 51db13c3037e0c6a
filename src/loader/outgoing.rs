//! From sealed batches to the consumer, and their memory back.
//!
//! A batch that is sealed **departs**: it gets a permit, since no more batches exist at once than `prefetch + held`; then it is lent in its
//! slots where the machine and the ring allow and its slots are neighbours, or copied to the device, in pieces if parts of it had to be
//! flushed; then it goes through the stage on the device, where there is one; then, in order, it is made ready. Several may be copied or be
//! in the stage at once, and they become ready in the order of the plan all the same. Permits, device batches and slots come back with the
//! batch that the consumer drops.
//!
//! All of it is one future without futures inside: each poll hears what the consumer did, collects copies and what the stage has done, and moves every departure as
//! far as it gets.
//!
//! # The consumer that waits for itself
//!
//! A consumer may ask for a batch while it holds the memory that this batch needs. Then nothing would ever happen again, so it gets an
//! error instead. It is certain when the consumer waits, nothing is ready, and
//!
//! - the next batch waits for a permit, and all permits are with batches that the consumer holds; or
//! - no batch is on its way and the ring is stuck: every lane waits for a slot, all that was drawn is drained, and no slot is at home,
//!   since all are in batches that the consumer holds.
//!
//! Both are looked at under what the consumer did last, so a batch dropped before it asked counts as dropped.

use std::{
    collections::VecDeque,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use super::{
    assembly::{Output, Sealed},
    batch::{Content, Memory},
    channel::{Note, Sender, Status},
    control::Control,
    error::Error,
    outcome::{End, Skipped},
    settings::Resolved,
    staging::{Staged, Staging},
    state::State,
    transfer::{Copies, Copy},
};
use crate::{
    failure::Failure,
    machine::{Item, Machine, Op, Payload, Slot, Time, Unit},
    trace::{Event, Kind, StageId},
};

/// A batch on its way to the consumer.
struct Departure<M: Machine> {
    id: u64,
    epoch: u32,
    permit: bool,
    /// Slots still to be copied.
    pieces: VecDeque<Vec<Slot<Unit<M>>>>,
    device: Option<M::DeviceBatch>,
    /// Samples copied.
    copied: usize,
    /// Slots in the copy that is under way.
    copying: usize,
    stage: Stage,
    /// It lies in its slots.
    lent: Option<Vec<Slot<Unit<M>>>>,
    /// Its samples are all known. Only the last departure may not be sealed.
    sealed: Option<Sealed<Unit<M>>>,
    discarded: bool,
    failed: Option<Failure>,
}

/// How far a departure is with the stage on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is to go through.
    Before,
    /// It waits for the stage or is in it, which has its memory.
    In,
    /// It is through, or there is no stage.
    Behind,
}

/// A batch that is ready and not known to be taken.
struct Sent {
    index: u64,
    epoch: u32,
    items: Vec<Item>,
    launched: Vec<Time>,
    state: State,
}

pub(super) struct Outgoing<M: Machine> {
    control: Rc<Control<M>>,
    copies: Rc<Copies<M>>,
    /// The user's stage on the device, when there is one.
    staging: Option<Rc<Staging<M>>>,
    sender: Sender<M::DeviceBatch, Unit<M>>,
    /// Dropped as soon as nothing more is to be launched.
    lanes: Vec<M::Task>,
    batch: usize,
    slot_bytes: usize,
    lends: bool,

    departures: VecDeque<Departure<M>>,
    next_id: u64,
    next_index: u64,
    permits: usize,
    device_batches: Vec<M::DeviceBatch>,
    sent: VecDeque<Sent>,
    /// How it ends once every departure is gone.
    terminal: Option<Result<(), Error>>,
    /// The consumer has been told.
    told: bool,
    notes: Vec<Note<M::DeviceBatch, Unit<M>>>,
    untaken: Vec<Content<M::DeviceBatch, Unit<M>>>,

    /// The state after the last batch taken.
    state: State,
    /// Slots of batches that are ready or with the consumer.
    lent_slots: usize,
    lent_batches: u64,
    /// Slots gone with copies that failed or were given up.
    slots_given_up: usize,
    /// Samples of sealed batches that were given up.
    samples_given_up: u64,
    /// Failed samples that came with batches which nobody took.
    unreported: Vec<Skipped>,
}

/// What is left when all is over.
pub(super) struct Remains {
    pub(super) in_flight: u64,
    pub(super) slots_lent: usize,
    pub(super) slots_given_up: usize,
    pub(super) lent_batches: u64,
    pub(super) unreported: Vec<Skipped>,
    pub(super) state: State,
}

impl<M: Machine> Outgoing<M> {
    pub(super) fn new(
        control: Rc<Control<M>>,
        copies: Rc<Copies<M>>,
        staging: Option<Rc<Staging<M>>>,
        sender: Sender<M::DeviceBatch, Unit<M>>,
        lanes: Vec<M::Task>,
        resolved: &Resolved,
        device_batches: Vec<M::DeviceBatch>,
    ) -> Outgoing<M> {
        let lends = resolved.lends(control.machine.lends_slots());
        let start = resolved.plan.start();
        Outgoing {
            control,
            copies,
            staging,
            sender,
            lanes,
            batch: resolved.settings.batch,
            slot_bytes: resolved.settings.slot_bytes,
            lends,
            departures: VecDeque::new(),
            next_id: 0,
            next_index: start.batches,
            permits: resolved.device_batches,
            device_batches,
            sent: VecDeque::new(),
            terminal: None,
            told: false,
            notes: Vec::new(),
            untaken: Vec::new(),
            state: start.clone(),
            lent_slots: 0,
            lent_batches: 0,
            slots_given_up: 0,
            samples_given_up: 0,
            unreported: Vec::new(),
        }
    }

    /// Moves everything as far as it gets; ready when the loader is at its end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let status = self.hear(cx.waker());
        if status.left {
            return Poll::Ready(self.end());
        }
        self.collect();
        self.accept(cx.waker());
        self.dispatch();
        self.deliver();
        let waits = status.waits_holding.filter(|_| self.sent.is_empty() && !self.told);
        if self.waits_for_consumer(waits.is_some())
            && let Some((batches, oldest)) = waits
        {
            self.terminal = Some(Err(Error::Held { batches, oldest }));
            self.abandon();
            self.deliver();
        }
        if self.departures.is_empty()
            && !self.told
            && let Some(terminal) = &self.terminal
        {
            self.told = true;
            self.sender.end(terminal.clone());
        }
        if self.told && status.seen_end { Poll::Ready(self.end()) } else { Poll::Pending }
    }

    fn end(&self) -> End {
        match &self.terminal {
            Some(Err(error)) if self.told => End::Failed(error.clone()),
            Some(Ok(())) if self.told && self.sent.is_empty() => End::Finished,
            _ => End::Left,
        }
    }

    /// Hears what the consumer did.
    fn hear(&mut self, waker: &Waker) -> Status {
        let status = self.sender.exchange(waker, &mut self.notes, &mut self.untaken);
        let mut notes = std::mem::take(&mut self.notes);
        for note in notes.drain(..) {
            match note {
                Note::Taken { index, asked, ready, taken } => self.taken(index, asked, ready, taken),
                Note::Step { index, epoch, taken, asked } => {
                    self.record(asked, index, epoch, StageId::CONSUMER, Kind::Step, taken, 0)
                }
                Note::Returned { index, epoch, taken, at, memory, items, skipped } => {
                    self.record(at, index, epoch, StageId::CONSUMER, Kind::Returned, taken, 0);
                    self.control.recycle_items(items);
                    self.control.recycle_skipped(skipped);
                    self.permits += 1;
                    match memory {
                        Memory::Device(batch) => self.device_batches.push(batch),
                        Memory::Slots(slots) => {
                            self.lent_slots -= slots.len();
                            self.come_home(slots);
                        }
                        Memory::Empty => {}
                    }
                }
            }
        }
        self.notes = notes;
        status
    }

    fn taken(&mut self, index: u64, asked: Time, ready: Time, taken: Time) {
        let sent = self.sent.pop_front().expect("a batch that is taken was sent");
        assert_eq!(sent.index, index, "batches are taken in order");
        let Sent { epoch, items, launched, state, .. } = sent;
        self.record(taken, index, epoch, StageId::CONSUMER, Kind::Taken, asked, items.len() as u64);
        self.record(taken, index, epoch, StageId::CONSUMER, Kind::Idle, ready, 0);
        for (item, launched) in items.iter().zip(&launched) {
            self.control.record(taken, *item, StageId::CONSUMER, Kind::Delivered, *launched, 0);
        }
        self.control.count_delivered(items.len() as u64);
        self.state = state;
        self.control.recycle_items(items);
        self.control.recycle_times(launched);
    }

    /// Collects copies that are done, and batches that are through the stage.
    fn collect(&mut self) {
        while let Some((id, copied)) = self.copies.done() {
            let departure = self.departures.iter_mut().find(|d| d.id == id).expect("a departure waits for its copy");
            let samples = std::mem::take(&mut departure.copying);
            match copied {
                Ok(copied) => {
                    departure.device = Some(copied.dst);
                    departure.copied += samples;
                    self.come_home(copied.src);
                }
                // Slots and batch are gone with it: whatever the failure is called, it is the end.
                Err(failure) => {
                    self.slots_given_up += samples;
                    departure.failed = Some(failure.clone());
                    self.control.fatal(failure);
                }
            }
        }
        while let Some((id, staged)) = self.staging.as_ref().and_then(|staging| staging.line.done()) {
            let departure = self.departures.iter_mut().find(|d| d.id == id).expect("a departure waits for the stage");
            departure.stage = Stage::Behind;
            match staged {
                Ok(batch) => departure.device = Some(batch),
                // The batch is gone with it, as with a copy; its slots are home.
                Err(failure) => {
                    departure.failed = Some(failure.clone());
                    self.control.fatal(failure);
                }
            }
        }
    }

    /// Accepts what the assembly has decided.
    fn accept(&mut self, waker: &Waker) {
        while let Some(output) = self.control.next_output(waker) {
            match output {
                Output::Piece { epoch, slots } => self.unsealed(epoch).pieces.push_back(slots),
                Output::Discard { epoch } => self.unsealed(epoch).discarded = true,
                Output::Batch(sealed) => {
                    assert_eq!(sealed.index, self.next_index, "batches depart in order");
                    self.next_index += 1;
                    let (index, epoch, count) = (sealed.index, sealed.epoch, sealed.items.len() as u64);
                    self.record(sealed.sealed, index, epoch, StageId::BATCH, Kind::Sealed, sealed.first_filled, count);
                    self.unsealed(epoch).sealed = Some(sealed);
                }
                Output::Fail(error) => {
                    match &self.terminal {
                        Some(_) => self.unreported.extend(error.sample()),
                        None => self.terminal = Some(Err(error)),
                    }
                    // What was flushed of a batch that never came to be.
                    if let Some(last) = self.departures.back_mut()
                        && last.sealed.is_none()
                    {
                        last.discarded = true;
                    }
                    self.lanes.clear();
                }
                Output::End => {
                    self.terminal.get_or_insert(Ok(()));
                }
            }
        }
    }

    /// The departure of the batch under assembly.
    fn unsealed(&mut self, epoch: u32) -> &mut Departure<M> {
        if self.departures.back().is_none_or(|last| last.sealed.is_some() || last.discarded) {
            self.departures.push_back(Departure {
                id: self.next_id,
                epoch,
                permit: false,
                pieces: VecDeque::new(),
                device: None,
                copied: 0,
                copying: 0,
                stage: if self.staging.is_some() { Stage::Before } else { Stage::Behind },
                lent: None,
                sealed: None,
                discarded: false,
                failed: None,
            });
            self.next_id += 1;
        }
        self.departures.back_mut().expect("there is one now")
    }

    /// Gives permits in order, and lends or copies what has one; what is copied goes on to the stage.
    fn dispatch(&mut self) {
        let mut index = self.next_index - self.departures.iter().filter(|d| d.sealed.is_some()).count() as u64;
        for departure in &mut self.departures {
            let batch_index = index;
            index += u64::from(departure.sealed.is_some());
            if departure.discarded || departure.failed.is_some() || !departure.has_work() {
                continue;
            }
            if !departure.permit {
                if self.permits == 0 {
                    break;
                }
                self.permits -= 1;
                departure.permit = true;
            }
            if let Some(sealed) = &mut departure.sealed
                && !sealed.slots.is_empty()
            {
                let slots = std::mem::take(&mut sealed.slots);
                let whole = departure.copied == 0 && departure.copying == 0 && departure.pieces.is_empty();
                if self.lends && whole && Slot::run_len(&slots) == slots.len() {
                    departure.lent = Some(slots);
                } else {
                    departure.pieces.push_back(slots);
                }
            }
            if departure.copying > 0 {
                continue;
            }
            // A copy's events count batches, and so do the stage's.
            let item = Item { epoch: departure.epoch, position: batch_index, sample: batch_index };
            let op = |stage| Op { stage, rank: self.control.rank, attempt: 0, item };
            if departure.is_copied()
                && departure.is_before_stage()
                && let Some((staging, batch)) = self.staging.as_ref().zip(departure.device.take())
            {
                departure.stage = Stage::In;
                let (op, samples) = (op(StageId::DEVICE), departure.copied);
                staging.line.submit(Staged { departure: departure.id, op, batch, samples });
            }
            let Some(src) = departure.pieces.pop_front() else { continue };
            let dst = match departure.device.take().or_else(|| self.device_batches.pop()) {
                Some(batch) => batch,
                None => match self.control.machine.device_batch(self.batch, self.slot_bytes) {
                    Ok(batch) => batch,
                    Err(failure) => {
                        departure.pieces.push_front(src);
                        departure.failed = Some(failure.clone());
                        self.control.fatal(failure);
                        break;
                    }
                },
            };
            departure.copying = src.len();
            let op = op(StageId::TRANSFER);
            self.copies.submit(Copy { departure: departure.id, op, src, dst, at: departure.copied });
        }
    }

    /// Makes ready, in order, what has arrived.
    fn deliver(&mut self) {
        while let Some(front) = self.departures.front_mut() {
            if let Some(failure) = front.failed.take() {
                if !matches!(self.terminal, Some(Err(_))) {
                    self.terminal = Some(Err(Error::Fatal(failure)));
                }
                // Nothing wakes this task for departures that are given up, so they are taken apart right here.
                self.abandon();
                continue;
            }
            if front.is_away() || !(front.discarded || front.is_done()) {
                return;
            }
            let departure = self.departures.pop_front().expect("looked at above");
            if departure.discarded {
                self.dispose(departure);
            } else {
                self.send(departure);
            }
        }
    }

    fn send(&mut self, departure: Departure<M>) {
        let Sealed { index, epoch, items, launched, skipped, state, sealed, .. } =
            departure.sealed.expect("a departure that has arrived is sealed");
        let bytes = (items.len() * self.slot_bytes) as u64;
        let memory = match (departure.lent, departure.device) {
            (Some(slots), _) => {
                self.lent_slots += slots.len();
                self.lent_batches += 1;
                Memory::Slots(slots)
            }
            (None, Some(batch)) => Memory::Device(batch),
            (None, None) => Memory::Empty,
        };
        let ready = self.control.machine.now();
        self.record(ready, index, epoch, StageId::TRANSFER, Kind::Ready, sealed, bytes);
        let copy = self.control.copy_items(&items);
        self.sent.push_back(Sent { index, epoch, items: copy, launched, state: state.clone() });
        let units_per_sample = <M::Payload as Payload>::units(self.slot_bytes);
        self.sender.push(Content { index, epoch, items, skipped, state, memory, units_per_sample, ready });
    }

    /// Takes back what a batch was made of that will not be delivered.
    fn dispose(&mut self, departure: Departure<M>) {
        self.permits += usize::from(departure.permit);
        self.device_batches.extend(departure.device);
        for slots in departure.pieces.into_iter().chain(departure.lent) {
            self.come_home(slots);
        }
        if let Some(sealed) = departure.sealed {
            self.samples_given_up += sealed.items.len() as u64;
            self.unreported.extend(sealed.skipped);
            self.come_home(sealed.slots);
        }
    }

    /// Whether only the consumer can make anything happen, by giving memory back. `waits` says whether it waits while it holds some.
    fn waits_for_consumer(&mut self, waits: bool) -> bool {
        let on_its_way = match self.departures.front() {
            Some(front) if front.has_work() && !front.permit && self.permits == 0 => return waits,
            Some(front) => front.has_work() || front.is_away(),
            None => false,
        };
        self.control.consumer_waits(waits && !on_its_way)
    }

    /// Gives up everything that has not been made ready.
    fn abandon(&mut self) {
        self.lanes.clear();
        self.control.fatal(Failure::new(crate::failure::FailureKind::Closed, "the loader stops"));
        for departure in &mut self.departures {
            departure.discarded = true;
        }
    }

    /// Takes everything apart once the tasks are gone.
    pub(super) fn close(mut self) -> (Remains, Sender<M::DeviceBatch, Unit<M>>) {
        // The error that the consumer did not stay for.
        if !matches!(self.end(), End::Failed(_))
            && let Some(Err(error)) = &self.terminal
        {
            self.unreported.extend(error.sample());
        }
        for copy in self.copies.withdraw() {
            if let Some(departure) = self.departures.iter_mut().find(|d| d.id == copy.departure) {
                departure.copying = 0;
            }
            self.come_home(copy.src);
        }
        for staged in self.staging.iter().flat_map(|staging| staging.line.withdraw()) {
            if let Some(departure) = self.departures.iter_mut().find(|d| d.id == staged.departure) {
                (departure.stage, departure.device) = (Stage::Before, Some(staged.batch));
            }
        }
        self.collect();
        for departure in std::mem::take(&mut self.departures) {
            self.slots_given_up += departure.copying;
            self.dispose(departure);
        }
        // Batches that are ready go before those that were on their way.
        let mut unreported = Vec::new();
        for content in std::mem::take(&mut self.untaken) {
            unreported.extend(content.skipped);
            if let Memory::Slots(slots) = content.memory {
                self.lent_slots -= slots.len();
                self.come_home(slots);
            }
        }
        unreported.append(&mut self.unreported);
        let untaken = self.sent.iter().map(|sent| sent.items.len() as u64).sum::<u64>();
        let remains = Remains {
            in_flight: self.samples_given_up + untaken,
            slots_lent: self.lent_slots,
            slots_given_up: self.slots_given_up,
            lent_batches: self.lent_batches,
            unreported,
            state: self.state,
        };
        (remains, self.sender)
    }

    /// Stops every lane.
    pub(super) fn stop(&mut self) {
        self.lanes.clear();
    }

    fn come_home(&mut self, mut slots: Vec<Slot<Unit<M>>>) {
        self.control.come_home(&mut slots);
        self.control.recycle_slots(slots);
    }

    #[expect(clippy::too_many_arguments, reason = "they are the fields of an event")]
    fn record(&self, time: Time, batch: u64, epoch: u32, stage: StageId, kind: Kind, since: Time, bytes: u64) {
        let rank = self.control.rank;
        self.control.machine.record(Event { time, since, sample: batch, bytes, epoch, rank, stage, kind });
    }
}

impl<M: Machine> Departure<M> {
    /// Whether something is to be done for it that takes a permit.
    fn has_work(&self) -> bool {
        !self.is_away() && (!self.pieces.is_empty() || self.sealed.is_some() && !self.is_done())
    }

    /// Whether a copy or the stage has its memory, and will come back with it.
    fn is_away(&self) -> bool {
        self.copying > 0 || self.stage == Stage::In
    }

    /// Whether all its samples are known and none is left to be lent or copied.
    fn is_copied(&self) -> bool {
        self.pieces.is_empty() && self.copying == 0 && self.sealed.as_ref().is_some_and(|sealed| sealed.slots.is_empty())
    }

    /// Whether it is still to go through the stage, which a batch without samples passes by.
    fn is_before_stage(&self) -> bool {
        self.stage == Stage::Before && self.copied > 0
    }

    /// Whether the consumer may have it.
    fn is_done(&self) -> bool {
        self.permit && self.is_copied() && self.stage != Stage::In && !self.is_before_stage()
    }
}
