//! The summary of a trace, worked out slowly: the events sorted, everything looked up, curves drawn and measured.

use std::collections::{BTreeMap, BTreeSet};

use crate::trace::{Event, Kind, StageId};

type Named = Vec<(String, f64)>;

/// What [`Summary`](crate::trace::Summary) must tell of `events`, which are in order of time.
pub(crate) fn figures(events: &[Event], servers: u32) -> Named {
    let end = events.iter().map(|e| e.time.0).max().unwrap_or(0);
    let mut all = Named::new();
    let mut add = |name: &str, value: f64| all.push((name.to_owned(), value));
    add("end", end as f64);
    add("events", events.len() as f64);
    let first_launch = times(events, Kind::Launch).min();
    let last_ready = times(events, Kind::Ready).max().unwrap_or(0);
    let last_leaf = times(events, Kind::End).chain(times(events, Kind::Fail)).max().unwrap_or(0);
    add("production", last_ready.max(last_leaf).saturating_sub(first_launch.unwrap_or(u64::MAX)) as f64);
    let stages: BTreeSet<u8> = events.iter().filter(|e| e.kind == Kind::Queued).map(|e| e.stage.0).collect();
    stages.into_iter().for_each(|id| all.extend(stage(events, StageId(id), end)));
    all.extend(loader(events, end));
    let ranks: BTreeSet<u16> = events.iter().filter(|e| e.kind == Kind::Taken).map(|e| e.rank).collect();
    ranks.iter().for_each(|rank| all.extend(consumer(events, *rank, servers)));
    let last_step = times(events, Kind::Step).max();
    let rate = last_step.map_or(-1.0, |end| count(events, Kind::Delivered) * 1e9 / end as f64);
    all.push(("samples per s".to_owned(), rate));
    all
}

fn times(events: &[Event], kind: Kind) -> impl Iterator<Item = u64> {
    events.iter().filter(move |e| e.kind == kind).map(|e| e.time.0)
}

fn count(events: &[Event], kind: Kind) -> f64 {
    times(events, kind).count() as f64
}

fn length(events: &[Event], kind: Kind) -> f64 {
    events.iter().filter(|e| e.kind == kind).map(|e| (e.time.0 - e.since.0) as f64).sum()
}

/// The area under a curve that changes by `delta` of each event, and its highest value.
fn curve(events: &[Event], end: u64, delta: impl Fn(&Event) -> i64) -> (f64, f64) {
    let (mut value, mut peak, mut area, mut last) = (0i64, 0i64, 0f64, 0);
    for e in events {
        area += value as f64 * (e.time.0 - last) as f64;
        last = e.time.0;
        value += delta(e);
        peak = peak.max(value);
    }
    area += value as f64 * (end - last) as f64;
    (if end == 0 { 0.0 } else { area / end as f64 }, peak as f64)
}

fn stage(events: &[Event], id: StageId, end: u64) -> Named {
    let own: Vec<Event> = events.iter().filter(|e| e.stage == id).copied().collect();
    let mut all = Named::new();
    let mut add = |name: &str, value: f64| all.push((format!("stage {} {name}", id.0), value));
    add("queued", count(&own, Kind::Queued));
    add("started", count(&own, Kind::Start));
    add("ended", count(&own, Kind::End));
    add("failed", count(&own, Kind::Fail));
    add("abandoned", count(&own, Kind::Abandon));
    add("retries", count(&own, Kind::Retry));
    add("backoff", length(&own, Kind::Retry));
    add("bytes", own.iter().filter(|e| e.kind == Kind::End).map(|e| e.bytes as f64).sum());
    let over = |ns: f64| if end == 0 { 0.0 } else { ns / end as f64 };
    add("mean running", over(length(&own, Kind::End) + length(&own, Kind::Fail)));
    // Drawn as a curve, not summed: what Little's law says must be so.
    let waiting = curve(&own, end, |e| match e.kind {
        Kind::Queued => 1,
        Kind::Start => -1,
        _ => 0,
    });
    add("mean waiting", waiting.0);
    let waits = own.iter().filter(|e| e.kind == Kind::Start).map(|e| e.time.0 - e.since.0);
    add("wait max", waits.max().unwrap_or(0) as f64);
    let ended = count(&own, Kind::End);
    add("service mean", if ended == 0.0 { 0.0 } else { length(&own, Kind::End) / ended });
    all
}

fn loader(events: &[Event], end: u64) -> Named {
    let mut all = Named::new();
    let mut add = |name: &str, value: f64| all.push((name.to_owned(), value));
    add("launched", count(events, Kind::Launch));
    add("filled", count(events, Kind::Filled));
    add("skipped", count(events, Kind::Skipped));
    add("dropped", count(events, Kind::Dropped));
    add("delivered", count(events, Kind::Delivered));
    add("sealed", count(events, Kind::Sealed));
    add("slot wait", length(events, Kind::Launch));
    add("ledger wait", length(events, Kind::Reserve));
    add("latency", length(events, Kind::Delivered));
    let lanes = curve(events, end, |e| match e.kind {
        Kind::Launch => 1,
        Kind::Filled | Kind::Skipped => -1,
        _ => 0,
    });
    let ring = curve(events, end, |e| match e.kind {
        Kind::Filled => 1,
        Kind::Dropped => -1,
        Kind::Sealed => -(e.bytes as i64),
        _ => 0,
    });
    let batches = curve(events, end, |e| match e.kind {
        Kind::Sealed => e.bytes as i64,
        Kind::Delivered => -1,
        _ => 0,
    });
    let ready = curve(events, end, |e| match e.kind {
        Kind::Ready => 1,
        Kind::Taken => -1,
        _ => 0,
    });
    let ledger = curve(events, end, |e| match e.kind {
        Kind::Reserve => e.bytes as i64,
        Kind::Refund => -(e.bytes as i64),
        _ => 0,
    });
    add("mean in lanes", lanes.0);
    add("mean in ring", ring.0);
    add("mean in batches", batches.0);
    add("mean ready", ready.0);
    add("mean ready by Little", ready.0);
    add("mean reserved", ledger.0);
    add("peak in lanes", lanes.1);
    add("peak in ring", ring.1);
    add("peak reserved", ledger.1);
    all
}

fn consumer(events: &[Event], rank: u16, servers: u32) -> Named {
    let own: Vec<Event> = events.iter().filter(|e| e.rank == rank).copied().collect();
    let taken: Vec<&Event> = own.iter().filter(|e| e.kind == Kind::Taken).collect();
    let steps: Vec<&Event> = own.iter().filter(|e| e.kind == Kind::Step).collect();
    let mut all = Named::new();
    let mut add = |name: &str, value: f64| all.push((format!("rank {rank} {name}"), value));
    add("taken", taken.len() as f64);
    add("first batch", taken[0].time.0 as f64);
    let (mut fetch, mut preparation) = (0.0, 0.0);
    for got in &taken[1..] {
        let wait = got.time.0 - got.since.0;
        let left = wait.saturating_sub(saved_by_free_fetching(&own, got.sample, servers));
        preparation += left as f64;
        fetch += (wait - left) as f64;
    }
    add("stalled", fetch + preparation);
    add("fetch stall", fetch);
    add("preparation stall", preparation);
    let (first, last) = (steps[0], steps[steps.len() - 1]);
    let total = (last.time.0 - first.time.0) as f64;
    let compute: f64 = steps[1..].iter().map(|e| (e.time.0 - e.since.0) as f64).sum();
    add("utilization", if total > 0.0 { compute / total } else { -1.0 });
    let span = (taken[taken.len() - 1].time.0 - taken[0].time.0) as f64;
    let samples: u64 = taken[1..].iter().map(|e| e.bytes).sum();
    add("steady", if span > 0.0 { samples as f64 * 1e9 / span } else { -1.0 });
    let mut epochs: BTreeMap<u32, Vec<&Event>> = BTreeMap::new();
    taken.iter().for_each(|e| epochs.entry(e.epoch).or_default().push(e));
    for (epoch, batches) in epochs {
        add(&format!("epoch {epoch} samples"), batches.iter().map(|e| e.bytes as f64).sum());
        add(&format!("epoch {epoch} first"), batches[0].time.0 as f64);
        add(&format!("epoch {epoch} last"), batches[batches.len() - 1].time.0 as f64);
    }
    all
}

/// How much earlier `batch` of the rank whose events these are would have been ready with free fetching \[ns\].
fn saved_by_free_fetching(own: &[Event], batch: u64, servers: u32) -> u64 {
    let position = |kind: Kind, batch: u64| own.iter().position(|e| e.kind == kind && e.sample == batch);
    let sealed = position(Kind::Sealed, batch).expect("a batch taken was sealed");
    let begins = batch.checked_sub(1).and_then(|before| position(Kind::Sealed, before)).map_or(0, |at| at + 1);
    let resolved = own[begins..sealed].iter().filter(|e| matches!(e.kind, Kind::Filled | Kind::Skipped));
    let cpu: u64 = resolved
        .flat_map(|r| own.iter().filter(|e| (e.sample, e.epoch) == (r.sample, r.epoch)))
        .filter(|e| e.stage == StageId::DECODE && matches!(e.kind, Kind::End | Kind::Fail))
        .map(|e| e.time.0 - e.since.0)
        .sum();
    let ready = own[position(Kind::Ready, batch).expect("a batch taken was ready")];
    let before = batch.checked_sub(1).and_then(|before| position(Kind::Ready, before)).map_or(0, |at| own[at].time.0);
    let preparing = (cpu / u64::from(servers)).max(ready.time.0 - ready.since.0);
    (ready.time.0 - before).saturating_sub(preparing)
}
