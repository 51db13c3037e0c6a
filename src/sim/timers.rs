//! Timers: what is due when.
//!
//! A heap ordered by `(time, sequence)`, so that what is due at the same instant fires in the order in which it was set. Cancelling
//! leaves the heap alone and only forgets what the entry was for: a forgotten entry is skipped when it comes up, without moving
//! the clock. When more than half of the heap is forgotten it is rebuilt, so that deadlines set and cancelled by the million,
//! each far in the future, hold no memory.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::executor::Waiter;

/// What to do when an alarm goes off.
#[derive(Debug)]
pub(super) enum Alarm {
    /// Wake a sleeper.
    Wake(Waiter),
    /// The leaf in this slot goes on.
    Leaf(u32),
    /// The scheduler's thread has woken up.
    SchedulerAwake,
    /// The oldest completion has waited long enough.
    SchedulerAge,
}

/// The name of an alarm that was set: a slot, and the alarm's place in the order of all that were ever set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AlarmId {
    slot: u32,
    sequence: u64,
}

struct Pending {
    /// 0 when vacant.
    sequence: u64,
    /// It is in the heap, not yet taken out as due.
    in_heap: bool,
    alarm: Alarm,
}

/// All alarms of a run.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    pending: Vec<Pending>,
    vacant: Vec<u32>,
    sequence: u64,
    forgotten: usize,
}

impl Timers {
    /// The time of an alarm that never goes off.
    pub(super) const NEVER: u64 = u64::MAX;

    /// Sets an alarm for time `at`.
    pub(super) fn set(&mut self, at: u64, alarm: Alarm) -> AlarmId {
        self.sequence += 1;
        let pending = Pending { sequence: self.sequence, in_heap: true, alarm };
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.pending[slot as usize] = pending;
                slot
            }
            None => {
                self.pending.push(pending);
                u32::try_from(self.pending.len() - 1).expect("fewer than 2^32 alarms at a time")
            }
        };
        self.heap.push(Reverse((at, self.sequence, slot)));
        AlarmId { slot, sequence: self.sequence }
    }

    /// What a pending alarm is for.
    #[inline]
    pub(super) fn get_mut(&mut self, id: AlarmId) -> Option<&mut Alarm> {
        self.pending.get_mut(id.slot as usize).filter(|p| p.sequence == id.sequence && id.sequence != 0).map(|p| &mut p.alarm)
    }

    /// Forgets an alarm; nothing if it is not pending any more.
    pub(super) fn cancel(&mut self, id: AlarmId) -> Option<Alarm> {
        let in_heap = self.pending.get(id.slot as usize)?.in_heap;
        let alarm = self.take(id)?;
        self.forgotten += usize::from(in_heap);
        if self.forgotten > 64 && self.forgotten * 2 > self.heap.len() {
            let pending = &self.pending;
            self.heap.retain(|Reverse((_, sequence, slot))| pending[*slot as usize].sequence == *sequence);
            self.forgotten = 0;
        }
        Some(alarm)
    }

    /// The time of the next alarm.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        while let Some(Reverse((at, sequence, slot))) = self.heap.peek() {
            if self.pending[*slot as usize].sequence == *sequence {
                return *at;
            }
            self.heap.pop();
            self.forgotten -= 1;
        }
        Timers::NEVER
    }

    /// The next alarm that is due at `now`, still pending: it goes off with [`take`](Timers::take).
    #[inline]
    pub(super) fn pop_due(&mut self, now: u64) -> Option<AlarmId> {
        if self.next() > now {
            return None;
        }
        let Reverse((_, sequence, slot)) = self.heap.pop()?;
        self.pending[slot as usize].in_heap = false;
        Some(AlarmId { slot, sequence })
    }

    /// Sets a popped alarm off; nothing if it was cancelled since.
    #[inline]
    pub(super) fn take(&mut self, id: AlarmId) -> Option<Alarm> {
        let pending = self.pending.get_mut(id.slot as usize).filter(|p| p.sequence == id.sequence && id.sequence != 0)?;
        pending.sequence = 0;
        self.vacant.push(id.slot);
        Some(std::mem::replace(&mut pending.alarm, Alarm::SchedulerAge))
    }

    /// All alarms that are pending, with their times, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Alarm)> + '_ {
        self.heap.iter().filter_map(|Reverse((at, sequence, slot))| {
            let pending = &self.pending[*slot as usize];
            (pending.sequence == *sequence).then_some((*at, &pending.alarm))
        })
    }
}
