//! What lanes and the outgoing side share: who may launch, who draws a number, and what has become of it.
//!
//! Everything here is synchronous and on one thread. A change ends in [`Core::wake`], which looks once at who can go on: a lane whose slot
//! is there, the ring that waits for itself, the outgoing side when there is something for it. So the rules about who waits
//! for whom stand in one place.
//!
//! In completion order a launch keeps a slot free from the start, though not a particular one: launches without a number are never
//! more than slots at home. Numbers follow the epochs: a sample of the next epoch draws its number when every launch of the present
//! one has drawn its own or failed. And launches stay within a window of the oldest sample that is not done, so that a state is small.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::{
    assembly::{Assembly, Output, Sealed},
    ledger::{Hold, Ledger},
    outcome::{Accounts, Skipped},
    parcel::{Found, Parcel},
    plan::Cursor,
    ring::{Entry, Ring},
    settings::{Order, Resolved},
    waiters::Waiters,
};
use crate::{
    failure::Failure,
    machine::{Item, Machine, Shared, Slot, Standing, Time, Unit, Wait, Who},
    trace::{Event, Kind, StageId},
};

/// A sample that a lane has launched.
pub(super) struct Ticket<U> {
    pub(super) launch: u64,
    pub(super) item: Item,
    /// Its index in the rank's share of its epoch.
    index: u64,
    launched: Time,
    /// Sequence number and slot, once drawn.
    pub(super) place: Option<(u64, Parcel<U>)>,
}

impl<U> Ticket<U> {
    /// One that is not launched.
    pub(super) fn blank() -> Ticket<U> {
        Ticket { launch: 0, item: Item::default(), index: 0, launched: Time::ZERO, place: None }
    }
}

/// How a sample resolved.
pub(super) enum Resolution<U> {
    /// Its slot is filled.
    Filled(u64, Slot<U>),
    /// It failed; if it had drawn a number, that is now a hole.
    Failed(Option<(u64, Slot<U>)>, Failure),
    /// It failed, and its slot is lost.
    Lost(Failure),
}

pub(super) struct Control<M: Machine> {
    pub(super) machine: M,
    pub(super) rank: u16,
    pub(super) found: Arc<Found<Unit<M>>>,
    /// Wrappings of parcels, to be used again: a new one costs two atomic operations.
    wrappings: RefCell<Vec<Arc<Found<Unit<M>>>>>,
    pub(super) ledger: Rc<Ledger>,
    pub(super) retries: Cell<u64>,
    core: RefCell<Core<Unit<M>>>,
}

struct Core<U> {
    order: Order,
    batch: usize,
    window: u64,
    ring: Ring<U>,
    ledger: Rc<Ledger>,
    cursor: Cursor,
    assembly: Assembly<U>,
    accounts: Accounts,
    flushes: u64,
    /// Nothing more is launched.
    stopped: bool,

    /// Lanes that wait to launch.
    launching: Waiters,
    /// Completion order: lanes that wait for a number, by launch, and the epoch of each.
    claiming: Waiters<u32>,
    /// Completion order: launches without a number, by epoch; the front has some.
    unnumbered: VecDeque<(u32, usize)>,
    unnumbered_sum: usize,

    /// The outgoing side.
    outgoing: Option<Waker>,
    /// The consumer waits for a batch while it holds others, and nothing else is on its way to it.
    consumer_waits: bool,
}

impl<M: Machine> Control<M> {
    pub(super) fn new(machine: M, resolved: &Resolved, slots: Vec<Slot<Unit<M>>>) -> Control<M> {
        let settings = &resolved.settings;
        let ledger = Ledger::new(resolved.ledger_bytes, settings.sample_bytes);
        let core = Core {
            order: settings.order,
            batch: settings.batch,
            window: resolved.window,
            ring: Ring::new(slots),
            ledger: ledger.clone(),
            cursor: resolved.plan.cursor(),
            assembly: Assembly::new(resolved.plan.clone(), settings.batch, settings.on_error, machine.now()),
            accounts: Accounts::default(),
            flushes: 0,
            stopped: false,
            launching: Waiters::default(),
            claiming: Waiters::default(),
            unnumbered: VecDeque::new(),
            unnumbered_sum: 0,
            outgoing: None,
            consumer_waits: false,
        };
        let (rank, found, retries) = (settings.rank, Found::new(), Cell::new(0));
        Control { machine, rank, found, wrappings: RefCell::default(), ledger, retries, core: RefCell::new(core) }
    }

    /// Puts a slot where it cannot get lost.
    fn wrap(&self, slot: Slot<Unit<M>>) -> Parcel<Unit<M>> {
        let wrapping = self.wrappings.borrow_mut().pop().unwrap_or_else(|| self.found.clone());
        Parcel::new(slot, wrapping)
    }

    /// Takes the slot out of its parcel.
    pub(super) fn open(&self, parcel: Parcel<Unit<M>>) -> Slot<Unit<M>> {
        let (slot, wrapping) = parcel.open();
        self.wrappings.borrow_mut().push(wrapping);
        slot
    }

    /// Writes the next ticket; `false` when the plan has ended or the loader stops. In plan order it comes with its number.
    pub(super) fn launch<'a>(&'a self, ticket: &'a mut Ticket<Unit<M>>) -> Launching<'a, M> {
        Launching { control: self, ticket, since: self.machine.now(), key: None }
    }

    /// Waits until `bytes` may be held for the ticket.
    pub(super) async fn reserve(&self, ticket: &Ticket<Unit<M>>, bytes: u64) -> Hold {
        let asked = self.machine.now();
        let mut reserving = self.ledger.reserve(ticket.launch, bytes);
        let hold = poll_fn(|cx| {
            let poll = Pin::new(&mut reserving).poll(cx);
            if poll.is_pending() {
                self.core.borrow_mut().wake();
            }
            poll
        })
        .await;
        self.record(self.machine.now(), ticket.item, StageId::LOADER, Kind::Reserve, asked, bytes);
        hold
    }

    /// Gives back what the sample still holds.
    pub(super) fn refund(&self, item: Item, hold: Hold) {
        let bytes = hold.bytes();
        drop(hold);
        if bytes > 0 {
            let now = self.machine.now();
            self.record(now, item, StageId::LOADER, Kind::Refund, now, bytes);
        }
    }

    /// Draws the ticket's number, unless it has one.
    pub(super) async fn claim(&self, ticket: &mut Ticket<Unit<M>>) {
        if ticket.place.is_none() {
            let (number, slot) = Claiming { control: self, launch: ticket.launch, epoch: ticket.item.epoch, waits: false }.await;
            ticket.place = Some((number, self.wrap(slot)));
        }
    }

    /// The ticket's sample is filled or has failed. What it held is given back before.
    pub(super) fn resolve(&self, ticket: &Ticket<Unit<M>>, resolution: Resolution<Unit<M>>) {
        let Ticket { launch, item, index, launched, .. } = *ticket;
        let now = self.machine.now();
        let (kind, bytes) = match &resolution {
            Resolution::Filled(..) => (Kind::Filled, 0),
            Resolution::Failed(_, failure) | Resolution::Lost(failure) => (Kind::Skipped, failure.kind.code()),
        };
        self.record(now, item, StageId::BATCH, kind, launched, bytes);
        self.ledger.close(launch);
        let core = &mut *self.core.borrow_mut();
        match resolution {
            Resolution::Filled(number, slot) => {
                core.ring.put(number, Entry { item, index, launched, result: Ok((slot, now)) });
            }
            Resolution::Failed(place, failure) => {
                core.accounts.count_skipped(failure.kind);
                if failure.kind.is_fatal() {
                    core.assembly.fatal(failure.clone());
                }
                match place {
                    Some((number, slot)) => {
                        core.ring.come_home(slot);
                        core.ring.put(number, Entry { item, index, launched, result: Err(failure) });
                    }
                    None => {
                        core.number(item.epoch);
                        core.assembly.fail(index, item, failure, now);
                    }
                }
            }
            Resolution::Lost(failure) => {
                core.accounts.count_skipped(failure.kind);
                core.assembly.fatal(failure.clone());
                core.assembly.fail(index, item, failure, now);
            }
        }
        self.settle(core, now);
    }

    /// Slots are free again.
    pub(super) fn come_home(&self, slots: &mut Vec<Slot<Unit<M>>>) {
        let core = &mut *self.core.borrow_mut();
        for slot in slots.drain(..) {
            core.ring.come_home(slot);
        }
        core.wake();
    }

    /// What the assembly has decided next. Registers the caller for what it decides later.
    pub(super) fn next_output(&self, waker: &Waker) -> Option<Output<Unit<M>>> {
        let core = &mut *self.core.borrow_mut();
        match &mut core.outgoing {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        core.assembly.outputs.pop_front()
    }

    /// Wakes the outgoing side.
    pub(super) fn wake_outgoing(&self) {
        self.core.borrow_mut().wake_outgoing();
    }

    /// Says whether the consumer waits while it holds batches. While it does, the ring passes over slots that are away, and when nothing
    /// can go on in it until the consumer gives slots back, the outgoing side is woken. Returns whether it has come to that.
    pub(super) fn consumer_waits(&self, waits: bool) -> bool {
        let core = &mut *self.core.borrow_mut();
        core.consumer_waits = waits;
        core.wake();
        core.is_stuck()
    }

    /// Nothing more is launched or decided.
    pub(super) fn fatal(&self, failure: Failure) {
        let core = &mut *self.core.borrow_mut();
        core.assembly.fatal(failure);
        core.wake();
    }

    pub(super) fn count_delivered(&self, samples: u64) {
        let accounts = &mut self.core.borrow_mut().accounts;
        accounts.delivered += samples;
        accounts.batches += 1;
    }

    /// A copy of a batch's items.
    pub(super) fn copy_items(&self, items: &[Item]) -> Vec<Item> {
        let mut copy = self.core.borrow_mut().assembly.spare.items.pop().unwrap_or_default();
        copy.extend_from_slice(items);
        copy
    }

    /// Takes a list of items to be used again.
    pub(super) fn recycle_items(&self, mut items: Vec<Item>) {
        items.clear();
        self.core.borrow_mut().assembly.spare.items.push(items);
    }

    /// Takes a list of skipped samples to be used again.
    pub(super) fn recycle_skipped(&self, mut skipped: Vec<Skipped>) {
        skipped.clear();
        self.core.borrow_mut().assembly.spare.skipped.push(skipped);
    }

    /// Takes a list of stamps to be used again.
    pub(super) fn recycle_times(&self, mut times: Vec<Time>) {
        times.clear();
        self.core.borrow_mut().assembly.spare.times.push(times);
    }

    /// Takes an empty list of slots to be used again.
    pub(super) fn recycle_slots(&self, slots: Vec<Slot<Unit<M>>>) {
        debug_assert!(slots.is_empty());
        self.core.borrow_mut().assembly.spare.slots.push(slots);
    }

    /// Closes the books once lanes and jobs are gone. Whatever the ring and the assembly hold is given up.
    pub(super) fn close(&self) -> Closed {
        let core = &mut *self.core.borrow_mut();
        let mut in_flight = self.ledger.unresolved() as u64 + core.ring.filled() + core.assembly.len() as u64;
        let mut slots = core.assembly.give_up();
        let mut unreported = Vec::new();
        for output in std::mem::take(&mut core.assembly.outputs) {
            match output {
                Output::Piece { slots: mut piece, .. } => slots.append(&mut piece),
                Output::Batch(Sealed { slots: mut piece, items, mut skipped, .. }) => {
                    in_flight += items.len() as u64;
                    unreported.append(&mut skipped);
                    slots.append(&mut piece);
                }
                Output::Fail(error) => unreported.extend(error.sample()),
                Output::Discard { .. } | Output::End => {}
            }
        }
        slots.extend(self.found.take_all());
        unreported.append(&mut core.assembly.take_unreported());
        unreported.append(&mut core.ring.give_up());
        for slot in slots {
            core.ring.come_home(slot);
        }
        Closed {
            accounts: Accounts { in_flight, ..core.accounts },
            slots_home: core.ring.at_home(),
            unreported,
            flushes: core.flushes,
        }
    }

    /// Drains what has resolved, then wakes whoever can go on.
    fn settle(&self, core: &mut Core<Unit<M>>, now: Time) {
        while !core.assembly.is_over()
            && let Some(entry) = core.ring.drain()
        {
            core.assembly.take(entry, now);
        }
        for slot in core.assembly.freed.drain(..) {
            core.ring.come_home(slot);
        }
        for dropped in core.assembly.dropped.drain(..) {
            core.accounts.dropped += 1;
            self.record(now, dropped.item, StageId::BATCH, Kind::Dropped, dropped.filled, 0);
        }
        core.wake();
    }

    #[inline(always)]
    pub(super) fn record(&self, time: Time, item: Item, stage: StageId, kind: Kind, since: Time, bytes: u64) {
        let Item { epoch, sample, .. } = item;
        self.machine.record(Event { time, since, sample, bytes, epoch, rank: self.rank, stage, kind });
    }
}

impl<M: Machine> Shared for Control<M> {
    /// Lanes wait for the slot of the next number, the outgoing side for the oldest number.
    fn standing(&self) -> Standing {
        let core = self.core.borrow();
        let place = core.ring.turn();
        let with_a_batch = || core.outgoing.as_ref().map(|waker| (Who::of(waker), "has it in a batch".to_owned()));
        let holder = match core.ring.can_claim() {
            true => None,
            false => core.ring.holder().or_else(with_a_batch),
        };
        let lanes = || core.claiming.iter().map(|(_, who, _)| who).chain(core.launching.iter().map(|(_, who, ())| who));
        let first = lanes().next();
        let in_line = |who: Who| {
            let on = match first {
                Some(first) if first != who => vec![(first, "stands before it in line".to_owned())],
                _ => holder.clone().into_iter().filter(|(holder, _)| *holder != who).collect(),
            };
            Wait { who, what: format!("waits for slot {place} of the ring"), on }
        };
        let mut waits: Vec<Wait> = lanes().map(in_line).collect();
        waits.extend(core.outgoing.iter().map(|waker| {
            let on = core.ring.oldest().map(|who| (who, "has it".to_owned())).into_iter().collect();
            Wait { who: Who::of(waker), what: "waits for the oldest sample that is launched".to_owned(), on }
        }));
        Standing { waits, and_alike: false }
    }
}

/// What is left when all is over.
pub(super) struct Closed {
    pub(super) accounts: Accounts,
    pub(super) slots_home: usize,
    pub(super) unreported: Vec<Skipped>,
    pub(super) flushes: u64,
}

impl<U> Core<U> {
    /// Wakes whoever can go on.
    fn wake(&mut self) {
        if self.assembly.is_over() && !self.stopped {
            self.stopped = true;
            self.launching.wake_all();
        }
        if self.waits_for_itself() {
            self.flush();
        }
        if self.is_stuck() && !self.ring.pass_over() && self.assembly.has_slots() {
            self.flush();
        }
        if !self.launching.is_empty() && self.can_launch() {
            self.launching.wake_first();
        }
        if let Some((_, epoch)) = self.claiming.first()
            && self.can_claim(epoch)
        {
            self.claiming.wake_first();
        }
        if !self.assembly.outputs.is_empty() || self.is_stuck() {
            self.wake_outgoing();
        }
    }

    fn flush(&mut self) {
        self.assembly.flush();
        self.flushes += 1;
    }

    fn wake_outgoing(&mut self) {
        if let Some(waker) = self.outgoing.take() {
            waker.wake();
        }
    }

    fn can_launch(&self) -> bool {
        let Some((epoch, index)) = self.cursor.peek() else { return false };
        match self.order {
            _ if self.stopped => false,
            Order::Plan => self.ring.can_claim(),
            Order::Completion => {
                let low = if epoch == self.assembly.epoch() { self.assembly.low() } else { 0 };
                self.ring.at_home() > self.unnumbered_sum && index < low.saturating_add(self.window)
            }
        }
    }

    fn can_claim(&self, epoch: u32) -> bool {
        self.ring.can_claim() && self.unnumbered.front().is_some_and(|(oldest, _)| *oldest == epoch)
    }

    /// A launch of `epoch` has drawn its number, or will never do so.
    fn number(&mut self, epoch: u32) {
        self.unnumbered_sum -= 1;
        if let Some((_, count)) = self.unnumbered.iter_mut().find(|(other, _)| *other == epoch) {
            *count -= 1;
        }
        while self.unnumbered.front().is_some_and(|(_, count)| *count == 0) {
            self.unnumbered.pop_front();
        }
        let next = self.unnumbered.front().map(|(next, _)| *next).or_else(|| self.cursor.peek().map(|(next, _)| next));
        if next.is_some_and(|next| next != epoch) {
            self.ring.align(self.batch);
        }
    }

    /// Whether the next number waits for a slot of the unfinished batch, and that batch for the next number.
    fn waits_for_itself(&self) -> bool {
        let wanted = !self.claiming.is_empty() || !self.launching.is_empty() && self.unnumbered_sum == 0;
        wanted
            && !self.assembly.is_over()
            && self.ring.is_drained()
            && !self.ring.can_claim()
            && self.assembly.has_slot(self.ring.turn())
    }

    /// Whether the consumer waits while it holds batches, and every lane waits for a slot that is away.
    fn is_stuck(&self) -> bool {
        if !self.consumer_waits || self.assembly.is_over() || !self.assembly.outputs.is_empty() || !self.ring.is_drained() {
            return false;
        }
        let waiting = !self.launching.is_empty() || !self.claiming.is_empty();
        let launches = !self.launching.is_empty() && self.can_launch();
        let claims = self.claiming.first().is_some_and(|(_, epoch)| self.can_claim(epoch));
        let all_wait = self.ledger.blocked().is_some_and(|blocked| self.ledger.unresolved() == blocked + self.claiming.len());
        waiting && !launches && !claims && all_wait
    }
}

/// Waits for a ticket.
pub(super) struct Launching<'a, M: Machine> {
    control: &'a Control<M>,
    ticket: &'a mut Ticket<Unit<M>>,
    since: Time,
    /// Place in line.
    key: Option<u64>,
}

impl<M: Machine> Future for Launching<'_, M> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let control = self.control;
        let core = &mut *control.core.borrow_mut();
        let over = core.stopped || core.cursor.peek().is_none();
        let turn = core.launching.is_turn(self.key) && core.can_launch();
        if !over && !turn {
            match self.key {
                Some(key) => core.launching.renew(key, cx.waker()),
                None => self.key = Some(core.launching.join(cx.waker(), ())),
            }
            core.wake();
            return Poll::Pending;
        }
        if let Some(key) = self.key.take() {
            core.launching.leave(key);
        }
        if over {
            return Poll::Ready(false);
        }
        let (index, item) = core.cursor.take().expect("the plan has not ended");
        let place = match core.order {
            Order::Plan => {
                let (number, slot) = core.ring.claim(Who::of(cx.waker())).expect("a launch is allowed when its slot is at home");
                Some((number, control.wrap(slot)))
            }
            Order::Completion => {
                core.unnumbered_sum += 1;
                match core.unnumbered.back_mut() {
                    Some((epoch, count)) if *epoch == item.epoch => *count += 1,
                    _ => core.unnumbered.push_back((item.epoch, 1)),
                }
                None
            }
        };
        core.accounts.planned += 1;
        if core.order == Order::Plan && core.cursor.peek().is_some_and(|(next, _)| next != item.epoch) {
            core.ring.align(core.batch);
        }
        let launch = core.ledger.open();
        // The others see that the plan has ended, or the next one that it may launch too.
        if core.cursor.peek().is_none() {
            core.launching.wake_all();
        } else if !core.launching.is_empty() && core.can_launch() {
            core.launching.wake_first();
        }
        let launched = control.machine.now();
        control.record(launched, item, StageId::LOADER, Kind::Launch, self.since, 0);
        *self.ticket = Ticket { launch, item, index, launched, place };
        Poll::Ready(true)
    }
}

impl<M: Machine> Drop for Launching<'_, M> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.control.core.borrow_mut().launching.leave(key);
        }
    }
}

/// Waits for a number.
struct Claiming<'a, M: Machine> {
    control: &'a Control<M>,
    launch: u64,
    epoch: u32,
    waits: bool,
}

impl<M: Machine> Future for Claiming<'_, M> {
    type Output = (u64, Slot<Unit<M>>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let core = &mut *self.control.core.borrow_mut();
        if !(core.claiming.is_turn(Some(self.launch)) && core.can_claim(self.epoch)) {
            core.claiming.join_as(self.launch, cx.waker(), self.epoch);
            self.waits = true;
            core.wake();
            return Poll::Pending;
        }
        if std::mem::take(&mut self.waits) {
            core.claiming.leave(self.launch);
        }
        let claimed = core.ring.claim(Who::of(cx.waker())).expect("a number may be drawn when its slot is at home");
        core.number(self.epoch);
        core.wake();
        Poll::Ready(claimed)
    }
}

impl<M: Machine> Drop for Claiming<'_, M> {
    fn drop(&mut self) {
        if self.waits {
            self.control.core.borrow_mut().claiming.leave(self.launch);
        }
    }
}
