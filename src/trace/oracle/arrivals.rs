//! Another order in which the same events may be recorded.

use std::collections::BTreeMap;

use crate::trace::{Event, Kind, StageId};

/// `events`, which are in order of time, in a random order of arrival that [`trace`](crate::trace#order) allows: what the
/// scheduler stamps keeps its order; leaves and consumers are late by anything.
pub(crate) fn arrivals(events: &[Event], seed: u64) -> Vec<Event> {
    // An event arrives at a position of its own between the event it must follow and the one it must precede.
    let mut last_of: BTreeMap<(u16, u32, u64, bool), f64> = BTreeMap::new();
    let deadlines = deadlines(events);
    let mut state = seed;
    let mut arrived: Vec<(f64, Event)> = Vec::with_capacity(events.len());
    for (at, event) in events.iter().enumerate() {
        let own = at as f64;
        let position = match deadlines[at] {
            None => own,
            Some(deadline) => {
                let after = last_of.get(&key(event)).copied().unwrap_or(own).max(own);
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                after + (deadline - after) * (state >> 11) as f64 / (1u64 << 53) as f64
            }
        };
        last_of.insert(key(event), position);
        arrived.push((position, *event));
    }
    arrived.sort_by(|a, b| a.0.total_cmp(&b.0));
    arrived.into_iter().map(|(_, event)| event).collect()
}

/// What must come in order among itself: a sample's events, or a batch's.
fn key(event: &Event) -> (u16, u32, u64, bool) {
    let of_batch = event.kind == Kind::Sealed || matches!(event.stage, StageId::TRANSFER | StageId::CONSUMER);
    let batch = of_batch && event.kind != Kind::Delivered;
    (event.rank, event.epoch, event.sample, batch)
}

/// For every event that may be late, the position before which it must arrive; `None` for what the scheduler stamps.
fn deadlines(events: &[Event]) -> Vec<Option<f64>> {
    let end = events.len() as f64;
    let mut next: BTreeMap<(u16, u32, u64, bool), usize> = BTreeMap::new();
    let mut of_batch = end;
    let mut deadlines = vec![None; events.len()];
    for (at, event) in events.iter().enumerate().rev() {
        let until = next.get(&key(event)).map_or(end, |at| *at as f64);
        deadlines[at] = match event.kind {
            Kind::Start | Kind::End | Kind::Fail | Kind::Abandon | Kind::Taken | Kind::Idle => Some(until),
            // Its own batch's return is not known from the event; the samples of one batch are the only ones between two `Taken`.
            Kind::Delivered => Some(of_batch.min(end)),
            Kind::Step => Some(end),
            _ => None,
        };
        if deadlines[at].is_none() {
            next.insert(key(event), at);
        }
        if event.kind == Kind::Returned {
            of_batch = at as f64;
        }
    }
    deadlines
}
