//! For tests: traces that could have been, and their summary worked out slowly.
//!
//! [`Toy`] makes the events of a small loader from a handful of numbers. [`arrivals`] puts them in another order that
//! [`trace`](super#order) allows. [`figures`] works out from the events, sorted by time and with all the memory it wants, what
//! [`Summary`](super::Summary) must find in one pass.

mod arrivals;
mod figures;
mod loader;
mod toy;

pub(crate) use arrivals::arrivals;
pub(crate) use figures::figures;
pub(crate) use toy::Toy;

use proptest::prelude::*;

use super::{Recorder, StageId, Summary};

/// All that a summary tells, by name, for comparison with the slow way.
fn told(summary: &Summary) -> Vec<(String, f64)> {
    let mut all = Vec::new();
    let mut add = |name: &str, value: f64| all.push((name.to_owned(), value));
    let end = summary.end();
    add("end", end.0 as f64);
    add("events", summary.events() as f64);
    add("production", summary.production_ns() as f64);
    for (id, stage) in summary.stages() {
        let mut add = |name: &str, value: f64| add(&format!("stage {} {name}", id.0), value);
        add("queued", stage.queued() as f64);
        add("started", stage.started() as f64);
        add("ended", stage.ended() as f64);
        add("failed", stage.failed() as f64);
        add("abandoned", stage.abandoned() as f64);
        add("retries", stage.retries() as f64);
        add("backoff", stage.backoff_ns() as f64);
        add("bytes", stage.bytes() as f64);
        add("mean running", stage.mean_running(end));
        add("mean waiting", stage.mean_waiting(end));
        add("wait max", stage.wait().max().unwrap_or(0) as f64);
        add("service mean", stage.service().mean().unwrap_or(0.0));
    }
    let l = summary.loader();
    add("launched", l.launched() as f64);
    add("filled", l.filled() as f64);
    add("skipped", l.skipped() as f64);
    add("dropped", l.dropped() as f64);
    add("delivered", l.delivered() as f64);
    add("sealed", l.sealed() as f64);
    add("slot wait", l.slot_wait().sum() as f64);
    add("ledger wait", l.ledger_wait().sum() as f64);
    add("latency", l.latency().sum() as f64);
    add("mean in lanes", l.in_lanes().mean(end));
    add("mean in ring", l.in_ring().mean(end));
    add("mean in batches", l.in_batches().mean(end));
    add("mean ready", l.ready_batches().mean(end));
    add("mean ready by Little", l.idle_ns() as f64 / end.0.max(1) as f64);
    add("mean reserved", l.ledger().mean(end));
    add("peak in lanes", l.in_lanes().peak() as f64);
    add("peak in ring", l.in_ring().peak() as f64);
    add("peak reserved", summary.peak_reserved_bytes() as f64);
    for c in summary.consumers() {
        let mut add = |name: &str, value: f64| add(&format!("rank {} {name}", c.rank()), value);
        add("taken", c.taken() as f64);
        add("first batch", c.time_to_first_batch().map_or(0, |t| t.0) as f64);
        add("stalled", c.stalled_ns() as f64);
        add("fetch stall", c.stall().fetch_ns as f64);
        add("preparation stall", c.stall().preparation_ns as f64);
        add("utilization", c.accelerator_utilization().unwrap_or(-1.0));
        add("steady", c.steady_samples_per_s().unwrap_or(-1.0));
        for e in c.epochs() {
            add(&format!("epoch {} samples", e.epoch), e.samples as f64);
            add(&format!("epoch {} first", e.epoch), e.first_taken.0 as f64);
            add(&format!("epoch {} last", e.epoch), e.last_taken.0 as f64);
        }
    }
    add("samples per s", summary.samples_per_s().unwrap_or(-1.0));
    all
}

fn same(told: &[(String, f64)], slow: &[(String, f64)]) -> Result<(), TestCaseError> {
    for (a, b) in told.iter().zip(slow) {
        prop_assert_eq!(&a.0, &b.0);
        let close = (a.1 - b.1).abs() <= 1e-9 * a.1.abs().max(b.1.abs());
        prop_assert!(close, "{}: one pass tells {}, the slow way {}", a.0, a.1, b.1);
    }
    prop_assert_eq!(told.len(), slow.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn one_pass_in_any_allowed_order_tells_what_the_slow_way_tells(toy in toy::any_toy(), seed: u64) {
        let events = toy.events();
        let servers = toy.servers as u32;
        let mut recorder = Recorder::new().preparation_servers(servers).keep_events();
        for event in arrivals(&events, seed) {
            recorder.record(event);
            prop_assert_eq!(recorder.summary().accounts().difference(), 0);
        }
        same(&told(recorder.summary()), &figures(&events, servers))?;
        prop_assert_eq!(recorder.count(), recorder.events().len() as u64);
    }

    #[test]
    fn utilization_times_time_is_throughput_times_demand(toy in toy::any_toy()) {
        let summary = Summary::of(&toy.events());
        let (end, decode) = (summary.end(), summary.stage(StageId::DECODE));
        if let Some(decode) = decode {
            let done = (decode.ended() + decode.failed()) as f64;
            let rate = done / end.as_secs_f64();
            let demand = decode.busy_ns() as f64 / 1e9 / done;
            let utilization = decode.utilization(toy.servers as u32, end);
            prop_assert!((utilization - rate * demand / toy.servers as f64).abs() < 1e-9);
            prop_assert!(utilization <= 1.0 + 1e-9, "{} of {} servers", utilization, toy.servers);
        }
    }
}

#[test]
fn accounts_show_a_sample_delivered_twice() {
    let mut events = Toy { samples: 16, ..Toy::default() }.events();
    let delivered = *events.iter().find(|e| e.kind == super::Kind::Delivered).expect("samples are delivered");
    events.push(delivered);
    assert_eq!(Summary::of(&events).accounts().difference(), -1);
}
