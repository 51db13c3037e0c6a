//! Work conservation: nobody who could go on is left waiting.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Asked, Broken, Invariant, of_rank, places::Places};
use crate::{
    loader::{Order, Resolved},
    machine::{Item, Time},
    trace::{Event, Kind, StageId},
};

/// Work is conserved: a sample is launched at the instant at which a lane and its slot are free, and a sample that waits for bytes gets them
/// at the instant at which it is first in line and they fit. It is broken by a wake that is missing: all would still come to its end, only
/// later, woken by the next thing that happens.
///
/// It looks at launches in plan order, whose slots are known: each number lives in the slot after that of the one before, and the first one
/// of an epoch where batches begin, if the ring holds two or more of them and nothing else. A slot counts as free from when the
/// trace says so for certain, which is when its batch is ready where it was copied, and when it comes back where it was lent.
pub struct WorkConservation<'a> {
    asked: Asked<'a>,
    ranks: Vec<Rank>,
    now: Time,
}

/// What has become of a launch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    Filled,
    Gone,
}

struct Rank {
    /// Whether slots are known.
    judged: bool,
    planned: u64,
    launched: u64,
    resolved: u64,
    /// Slot of the next launch.
    turn: usize,
    /// Launches that every epoch still has, from the one that launches.
    epochs: VecDeque<u64>,
    /// Samples to a batch.
    batch: usize,
    /// Launches that no batch has, in order: their slots, and what has become of them.
    line: VecDeque<(usize, (u16, u32, u64))>,
    fates: Places<Fate>,
    /// Whether each slot is free.
    free: Vec<bool>,
    /// Slots of batches that are sealed and not home.
    away: BTreeMap<u64, Vec<usize>>,
    copied: BTreeSet<u64>,
    /// Since when the next sample could have been launched.
    could: Option<Time>,

    reserved: u64,
    /// Encoded bytes reserved at the end of each instant that changed them.
    levels: Vec<(Time, u64)>,
    last_entry: Time,
}

impl Rank {
    fn new(resolved: &Resolved) -> Rank {
        let plan = &resolved.plan;
        let start = plan.start();
        let mut epochs: VecDeque<u64> = (start.epoch()..plan.epochs()).map(|epoch| plan.shape(epoch).samples).collect();
        if let Some(first) = epochs.front_mut() {
            *first = first.saturating_sub(start.taken().len());
        }
        // A state may lie at an epoch's end.
        while epochs.front() == Some(&0) {
            epochs.pop_front();
        }
        Rank {
            judged: resolved.settings.order == Order::Plan,
            planned: epochs.iter().sum(),
            launched: 0,
            resolved: 0,
            turn: 0,
            epochs,
            batch: resolved.settings.batch,
            line: VecDeque::new(),
            fates: Places::new(),
            free: vec![true; resolved.ring],
            away: BTreeMap::new(),
            copied: BTreeSet::new(),
            could: None,
            reserved: 0,
            levels: Vec::new(),
            last_entry: Time::ZERO,
        }
    }

    /// An instant is over.
    fn settle(&mut self, now: Time, lanes: u64) {
        let can = self.launched < self.planned && self.launched - self.resolved < lanes && self.free[self.turn];
        match can && self.launched > 0 {
            true => _ = self.could.get_or_insert(now),
            false => self.could = None,
        }
        if self.levels.last().is_none_or(|(_, level)| *level != self.reserved) {
            self.levels.push((now, self.reserved));
        }
    }

    /// A sample is launched; since when it could have been.
    fn launch(&mut self, event: &Event) -> Option<Time> {
        let slot = self.turn;
        if !self.free[slot] {
            // A copy is over before its batch is ready, behind others. Anything else is a ring that passes over slots.
            let copied = self.away.iter_mut().find(|(batch, slots)| self.copied.contains(batch) && slots.contains(&slot));
            match copied {
                Some((_, slots)) => slots.retain(|other| *other != slot),
                None => self.judged = false,
            }
        }
        self.free[slot] = false;
        self.line.push_back((slot, (event.rank, event.epoch, event.sample)));
        self.fates.insert((event.rank, event.epoch, event.sample), Fate::Open);
        self.launched += 1;
        self.go_on();
        self.could.take()
    }

    /// Turns to the slot of the next launch.
    fn go_on(&mut self) {
        let ring = self.free.len();
        self.turn = (self.turn + 1) % ring;
        let Some(left) = self.epochs.front_mut() else { return };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return;
        }
        while self.epochs.front() == Some(&0) {
            self.epochs.pop_front();
        }
        if !self.epochs.is_empty() && ring > self.batch && ring.is_multiple_of(self.batch) {
            self.turn = self.turn.next_multiple_of(self.batch) % ring;
        }
    }

    fn resolve(&mut self, event: &Event, fate: Fate) {
        let key = (event.rank, event.epoch, event.sample);
        if self.fates.insert(key, fate) == Some(Fate::Open) {
            self.resolved += 1;
        }
        if fate == Fate::Gone
            && let Some((slot, _)) = self.line.iter().find(|(_, other)| *other == key)
        {
            self.free[*slot] = true;
        }
    }

    fn seal(&mut self, batch: u64, samples: u64) {
        let mut slots = Vec::new();
        while (slots.len() as u64) < samples
            && let Some((slot, key)) = self.line.pop_front()
        {
            if self.fates.remove(key) == Some(Fate::Filled) {
                slots.push(slot);
            }
        }
        self.away.insert(batch, slots);
    }

    fn home(&mut self, batch: u64) {
        for slot in self.away.remove(&batch).unwrap_or_default() {
            self.free[slot] = true;
        }
        self.copied.remove(&batch);
    }

    /// A sample was let in that had asked at `event.since`: when it fitted before that.
    fn enter(&mut self, event: &Event, general_limit: u64) -> Option<Time> {
        let first_since = event.since.max(self.last_entry);
        self.last_entry = event.time;
        let fits = |level: u64| level.saturating_add(event.bytes) <= general_limit;
        // What holds at the end of an instant holds until the next one that changes it.
        let begun = self.levels.partition_point(|(time, _)| *time <= first_since).saturating_sub(1);
        let mut waited = self.levels[begun..].iter().filter(|(time, level)| fits(*level) && *time < event.time);
        let fitted = waited.next().map(|(time, _)| (*time).max(first_since)).filter(|since| *since < event.time);
        self.reserved += event.bytes;
        fitted
    }
}

impl<'a> WorkConservation<'a> {
    /// Before a run.
    pub fn new(asked: Asked<'a>) -> WorkConservation<'a> {
        WorkConservation { asked, ranks: asked.ranks.iter().map(Rank::new).collect(), now: Time::ZERO }
    }
}

impl Invariant for WorkConservation<'_> {
    fn name(&self) -> &'static str {
        "work_conservation"
    }

    fn event(&mut self, event: &Event) -> Result<(), Broken> {
        if event.time > self.now {
            for (rank, resolved) in self.ranks.iter_mut().zip(self.asked.ranks) {
                rank.settle(self.now, resolved.settings.lanes as u64);
            }
            self.now = event.time;
        }
        let number = usize::from(event.rank);
        let (Some(rank), Some(resolved)) = (self.ranks.get_mut(number), self.asked.ranks.get(number)) else { return Ok(()) };
        let mut late = None;
        match event.kind {
            Kind::Launch => {
                let could = rank.launch(event).filter(|_| rank.judged);
                late = could.map(|since| (since, "a lane and its slot were free"));
            }
            Kind::Filled => rank.resolve(event, Fate::Filled),
            Kind::Skipped | Kind::Dropped => rank.resolve(event, Fate::Gone),
            Kind::Sealed => rank.seal(event.sample, event.bytes),
            Kind::Queued if event.stage == StageId::TRANSFER => {
                // A part of a batch that has no end yet: the ring was flushed, and slots are no longer in batches.
                rank.judged &= rank.away.contains_key(&event.sample);
                rank.copied.insert(event.sample);
            }
            Kind::Ready if rank.copied.contains(&event.sample) => rank.home(event.sample),
            Kind::Returned => rank.home(event.sample),
            Kind::Reserve => {
                let general = resolved.ledger_bytes.saturating_sub(resolved.settings.sample_bytes);
                let fitted = rank.enter(event, general);
                late = fitted.map(|since| (since, "it was first in line and its bytes fitted"));
            }
            Kind::Refund => rank.reserved = rank.reserved.saturating_sub(event.bytes),
            _ => {}
        }
        match late {
            None => Ok(()),
            Some((since, why)) => {
                let item = Item { epoch: event.epoch, position: 0, sample: event.sample };
                let what = if event.kind == Kind::Launch { "launched" } else { "let in" };
                let why = format!("sample {} was {what} at {}, although {why} from {since} on", event.sample, event.time);
                Err(Broken::new(of_rank(event.rank, self.asked.ranks.len(), why)).at(event.time).by(event.rank, item))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::example::{asked, event, judge, of_loader, resolved},
        *,
    };
    use crate::loader::Settings;

    fn launch(ms: u64, sample: u64) -> Event {
        event(ms, StageId::LOADER, sample, Kind::Launch)
    }

    fn filled(ms: u64, sample: u64) -> Event {
        event(ms, StageId::BATCH, sample, Kind::Filled)
    }

    #[test]
    fn a_lane_that_is_not_woken_breaks_it() {
        let ranks = resolved(Settings { lanes: 2, ring: Some(4), ..Settings::new(8, 2, 1) });
        let judged = |events: &[Event]| judge(&mut WorkConservation::new(asked(&ranks)), events, &[]);
        let begun = [launch(0, 0), launch(0, 1), filled(3, 0)];
        assert_eq!(judged(&[&begun[..], &[launch(3, 2)]].concat()), Ok(()));
        let late = judged(&[&begun[..], &[filled(5, 1), launch(5, 2)]].concat());
        assert_eq!(late, Err("sample 2 was launched at 5ms, although a lane and its slot were free from 3ms on".to_owned()));
    }

    #[test]
    fn a_slot_that_is_away_is_waited_for() {
        let ranks = resolved(Settings { lanes: 2, ring: Some(2), ..Settings::new(8, 2, 1) });
        let judged = |events: &[Event]| judge(&mut WorkConservation::new(asked(&ranks)), events, &[]);
        let sealed = Event { bytes: 2, ..event(3, StageId::BATCH, 0, Kind::Sealed) };
        let begun = [launch(0, 0), launch(0, 1), filled(3, 0), filled(3, 1), sealed];
        let returned = event(6, StageId::CONSUMER, 0, Kind::Returned);
        assert_eq!(judged(&[&begun[..], &[returned, launch(6, 2)]].concat()), Ok(()));
        let late = judged(&[&begun[..], &[returned, event(8, StageId::LOADER, 9, Kind::Stop), launch(9, 2)]].concat());
        assert_eq!(late, Err("sample 2 was launched at 9ms, although a lane and its slot were free from 6ms on".to_owned()));
    }

    #[test]
    fn a_waiter_that_fits_and_is_not_woken_breaks_it() {
        // 100 bytes for encoded samples, 40 of them the reserve of the oldest.
        let settings = Settings { lanes: 4, sample_bytes: 40, ring: Some(4), budget_bytes: 110, ..Settings::new(8, 2, 1) };
        let ranks = resolved(settings);
        assert_eq!(ranks[0].ledger_bytes, 100);
        let judged = |events: &[Event]| judge(&mut WorkConservation::new(asked(&ranks)), events, &[]);
        let asked_at = |ms: u64, event: Event| Event { since: Time(ms * 1_000_000), ..event };
        let begun = [of_loader(0, 0, Kind::Reserve, 40), of_loader(1, 0, Kind::Refund, 10), of_loader(4, 0, Kind::Refund, 10)];
        let entered = |ms| asked_at(0, of_loader(ms, 1, Kind::Reserve, 40));
        assert_eq!(judged(&[&begun[..], &[entered(4)]].concat()), Ok(()));
        let late = judged(&[&begun[..], &[entered(7)]].concat());
        let expected = "sample 1 was let in at 7ms, although it was first in line and its bytes fitted from 4ms on";
        assert_eq!(late, Err(expected.to_owned()));
    }
}
