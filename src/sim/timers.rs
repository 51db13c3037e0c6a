//! Timers: what is due when.
//!
//! A heap ordered by `(time, sequence)`, so that what is due at the same instant fires in the order in which it was set. Alarms that
//! are always set the same time ahead, such as the waking up of threads, come in the order of their times by themselves and stand in a
//! plain queue beside it.
//!
//! Cancelling leaves heap and queue alone and only forgets what the entry was for: a forgotten entry is skipped when it comes up,
//! without moving the clock. When more than half of the heap is forgotten it is rebuilt, so that deadlines set and cancelled by
//! the million, each far in the future, hold no memory.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use super::executor::Waiter;

/// What to do when an alarm goes off.
#[derive(Debug)]
pub(super) enum Alarm {
    /// Wake a sleeper.
    Wake(Waiter),
    /// The leaf in this slot goes on.
    Leaf(u32),
    /// The scheduler's thread of this node has woken up.
    SchedulerAwake(u16),
    /// The oldest completion on this node has waited long enough.
    SchedulerAge(u16),
    /// The first in line has waited long enough for this node's lock.
    LockSwitch(u16),
}

/// Bits of an [`AlarmId`] that are the slot; the others are the sequence number.
const SLOT_BITS: u32 = 24;

/// The name of an alarm that was set: its place in the order of all that were ever set, and its slot. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AlarmId(u64);

impl AlarmId {
    #[inline]
    fn slot(self) -> usize {
        (self.0 & ((1 << SLOT_BITS) - 1)) as usize
    }
}

/// A time and the name of an alarm in one number, ordered as both are.
#[derive(Clone, Copy)]
struct Entry(u128);

impl Entry {
    #[inline]
    fn new(at: u64, id: AlarmId) -> Entry {
        Entry(u128::from(at) << 64 | u128::from(id.0))
    }

    #[inline]
    fn at(self) -> u64 {
        (self.0 >> 64) as u64
    }

    #[inline]
    fn id(self) -> AlarmId {
        AlarmId(self.0 as u64)
    }
}

/// Where the entry of a pending alarm is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Heap,
    Queue,
    /// Taken out as due.
    Due,
}

struct Pending {
    /// [`AlarmId(0)`](AlarmId) when vacant.
    id: AlarmId,
    place: Place,
    alarm: Alarm,
}

/// All alarms of a run.
#[derive(Default)]
pub(super) struct Timers {
    /// [`Entry`]s, as plain numbers, which compare without branching.
    heap: BinaryHeap<Reverse<u128>>,
    /// In the order of times.
    queue: VecDeque<Entry>,
    pending: Vec<Pending>,
    vacant: Vec<u32>,
    sequence: u64,
    /// Entries of the heap that were cancelled.
    forgotten: usize,
}

impl Timers {
    /// The time of an alarm that never goes off.
    pub(super) const NEVER: u64 = u64::MAX;

    /// Sets an alarm for time `at`.
    #[inline]
    pub(super) fn set(&mut self, at: u64, alarm: Alarm) -> AlarmId {
        let id = self.insert(alarm, Place::Heap);
        self.heap.push(Reverse(Entry::new(at, id).0));
        id
    }

    /// Sets an alarm for time `at`, of a kind that is always set the same time ahead: none is ever set for an earlier time than the
    /// one before.
    #[inline]
    pub(super) fn set_steady(&mut self, at: u64, alarm: Alarm) -> AlarmId {
        debug_assert!(self.queue.back().is_none_or(|last| last.at() <= at), "an alarm set ahead of the steady ones");
        let id = self.insert(alarm, Place::Queue);
        self.queue.push_back(Entry::new(at, id));
        id
    }

    #[inline]
    fn insert(&mut self, alarm: Alarm, place: Place) -> AlarmId {
        self.sequence += 1;
        let slot = match self.vacant.pop() {
            Some(slot) => slot as usize,
            None => {
                assert!(self.pending.len() < 1 << SLOT_BITS, "more than 16 million alarms at a time");
                self.pending.push(Pending { id: AlarmId(0), place, alarm: Alarm::SchedulerAge(0) });
                self.pending.len() - 1
            }
        };
        let id = AlarmId(self.sequence << SLOT_BITS | slot as u64);
        self.pending[slot] = Pending { id, place, alarm };
        id
    }

    #[inline]
    fn is_pending(&self, id: AlarmId) -> bool {
        self.pending[id.slot()].id == id
    }

    /// What a pending alarm is for; nothing when it has gone off or was cancelled.
    #[inline]
    pub(super) fn get_mut(&mut self, id: AlarmId) -> Option<&mut Alarm> {
        self.pending.get_mut(id.slot()).filter(|p| p.id == id).map(|p| &mut p.alarm)
    }

    /// What a pending alarm is for; nothing when it has gone off or was cancelled.
    pub(super) fn get(&self, id: AlarmId) -> Option<&Alarm> {
        self.pending.get(id.slot()).filter(|p| p.id == id).map(|p| &p.alarm)
    }

    /// Forgets an alarm; nothing if it is not pending any more.
    pub(super) fn cancel(&mut self, id: AlarmId) -> Option<Alarm> {
        let place = self.pending.get(id.slot())?.place;
        let alarm = self.take(id)?;
        self.forgotten += usize::from(place == Place::Heap);
        if self.forgotten > 64 && self.forgotten * 2 > self.heap.len() {
            let pending = &self.pending;
            self.heap.retain(|Reverse(entry)| pending[Entry(*entry).id().slot()].id == Entry(*entry).id());
            self.forgotten = 0;
        }
        Some(alarm)
    }

    /// The time of the next alarm.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        let in_heap = loop {
            match self.heap.peek().map(|Reverse(entry)| Entry(*entry)) {
                None => break Timers::NEVER,
                Some(entry) if self.is_pending(entry.id()) => break entry.at(),
                Some(_) => {
                    self.heap.pop();
                    self.forgotten -= 1;
                }
            }
        };
        let in_queue = loop {
            match self.queue.front() {
                None => break Timers::NEVER,
                Some(entry) if self.is_pending(entry.id()) => break entry.at(),
                Some(_) => {
                    self.queue.pop_front();
                }
            }
        };
        in_heap.min(in_queue)
    }

    /// The earliest alarm and its time.
    pub(super) fn first(&mut self) -> Option<(u64, AlarmId)> {
        let at = self.next();
        let in_queue = self.queue.front().filter(|entry| entry.at() == at);
        let in_heap = self.heap.peek().map(|Reverse(entry)| Entry(*entry)).filter(|entry| entry.at() == at);
        in_queue.copied().or(in_heap).map(|entry| (at, entry.id()))
    }

    /// Takes the earliest alarm out alone. It stays pending, and goes off with [`take`](Timers::take).
    pub(super) fn take_first(&mut self) -> Option<AlarmId> {
        let (_, id) = self.first()?;
        match self.queue.front() {
            Some(entry) if entry.id() == id => _ = self.queue.pop_front(),
            _ => _ = self.heap.pop(),
        }
        self.pending[id.slot()].place = Place::Due;
        Some(id)
    }

    /// Takes out the alarms that are due at `now`, steady ones first. They stay pending, and go off with [`take`](Timers::take).
    #[inline]
    pub(super) fn due(&mut self, now: u64, mut tell: impl FnMut(AlarmId)) {
        while let Some(entry) = self.queue.front().copied()
            && entry.at() <= now
        {
            self.queue.pop_front();
            self.tell_if_pending(entry, &mut tell);
        }
        while let Some(entry) = self.heap.peek().map(|Reverse(entry)| Entry(*entry))
            && entry.at() <= now
        {
            self.heap.pop();
            if !self.tell_if_pending(entry, &mut tell) {
                self.forgotten -= 1;
            }
        }
    }

    #[inline]
    fn tell_if_pending(&mut self, entry: Entry, tell: &mut impl FnMut(AlarmId)) -> bool {
        let pending = &mut self.pending[entry.id().slot()];
        let still = pending.id == entry.id();
        if still {
            // A cancellation from now on forgets nothing in the heap.
            pending.place = Place::Due;
            tell(entry.id());
        }
        still
    }

    /// Sets an alarm off; nothing if it is not pending any more.
    #[inline]
    pub(super) fn take(&mut self, id: AlarmId) -> Option<Alarm> {
        let pending = self.pending.get_mut(id.slot()).filter(|p| p.id == id && id != AlarmId(0))?;
        pending.id = AlarmId(0);
        self.vacant.push(id.slot() as u32);
        Some(std::mem::replace(&mut pending.alarm, Alarm::SchedulerAge(0)))
    }

    /// All alarms that are pending, with their times, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Alarm)> + '_ {
        let entries = self.heap.iter().map(|Reverse(entry)| Entry(*entry)).chain(self.queue.iter().copied());
        entries.filter(|entry| self.is_pending(entry.id())).map(|entry| (entry.at(), &self.pending[entry.id().slot()].alarm))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// What may be done with timers. The clock of the model moves only with `Next`.
    #[derive(Clone, Copy, Debug)]
    enum Do {
        /// Set an alarm so far ahead.
        Set(u64),
        /// Set one of those that are always [`STEADY`] ahead.
        SetSteady,
        /// Cancel one of those set so far, gone off or not.
        Cancel(usize),
        /// Move the clock to the next alarm and let all go off that are due.
        Next,
        /// The same, but cancel one of those that are due, if there are several, after they were laid out.
        NextButOne,
    }

    const STEADY: u64 = 5;

    fn anything() -> impl Strategy<Value = Do> {
        prop_oneof![
            4 => (0..20u64).prop_map(Do::Set),
            2 => Just(Do::SetSteady),
            3 => (0..200usize).prop_map(Do::Cancel),
            2 => Just(Do::Next),
            1 => Just(Do::NextButOne),
        ]
    }

    proptest! {
        #[test]
        fn alarms_go_off_as_in_a_sorted_map(script in proptest::collection::vec(anything(), 1..300)) {
            let mut timers = Timers::default();
            // Steady ones first at the same time, then in the order in which they were set.
            let mut model: BTreeMap<(u64, bool, usize), ()> = BTreeMap::new();
            let mut set: Vec<(AlarmId, (u64, bool, usize))> = Vec::new();
            let mut now = 0;
            for action in script {
                match action {
                    Do::Set(ahead) => {
                        let key = (now + ahead, true, set.len());
                        set.push((timers.set(key.0, Alarm::Leaf(key.2 as u32)), key));
                        model.insert(key, ());
                    }
                    Do::SetSteady => {
                        let key = (now + STEADY, false, set.len());
                        set.push((timers.set_steady(key.0, Alarm::Leaf(key.2 as u32)), key));
                        model.insert(key, ());
                    }
                    Do::Cancel(k) => {
                        if let Some((id, key)) = set.get(k) {
                            let was_pending = timers.cancel(*id).is_some();
                            prop_assert_eq!(was_pending, model.remove(key).is_some());
                        }
                    }
                    Do::Next | Do::NextButOne => {
                        let expected = model.keys().next().map_or(Timers::NEVER, |key| key.0);
                        prop_assert_eq!(timers.next(), expected);
                        if expected == Timers::NEVER {
                            continue;
                        }
                        now = expected;
                        let mut due = Vec::new();
                        timers.due(now, |id| due.push(id));
                        if matches!(action, Do::NextButOne) && due.len() > 1 {
                            let (_, key) = set.iter().find(|(id, _)| *id == due[1]).expect("it was set");
                            model.remove(key);
                            prop_assert!(timers.cancel(due[1]).is_some());
                        }
                        let gone_off: Vec<usize> = due
                            .iter()
                            .filter_map(|id| match timers.take(*id) {
                                Some(Alarm::Leaf(k)) => Some(k as usize),
                                _ => None,
                            })
                            .collect();
                        let expected: Vec<usize> = model.keys().take_while(|key| key.0 == now).map(|key| key.2).collect();
                        model.retain(|key, ()| key.0 != now);
                        prop_assert_eq!(gone_off, expected);
                    }
                }
                prop_assert_eq!(timers.iter().count(), model.len());
            }
        }
    }

    #[test]
    fn deadlines_set_and_cancelled_by_the_million_hold_no_memory() {
        let mut timers = Timers::default();
        timers.set(1, Alarm::Leaf(0));
        for k in 0..1_000_000 {
            let id = timers.set(1_000_000 + k, Alarm::Leaf(1));
            timers.cancel(id);
        }
        assert!(timers.heap.len() < 200 && timers.pending.len() < 4, "{} entries", timers.heap.len());
        assert_eq!(timers.next(), 1);
    }
}
