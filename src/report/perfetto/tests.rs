use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::trace::{
    Recorder,
    oracle::{Toy, arrivals},
};

/// A file in memory that can be looked at afterwards, and that takes no more than `room` bytes.
#[derive(Clone)]
struct Paper {
    text: Arc<Mutex<Vec<u8>>>,
    room: usize,
}

impl Paper {
    fn new(room: usize) -> Paper {
        Paper { text: Arc::default(), room }
    }

    fn text(&self) -> String {
        String::from_utf8(self.text.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = self.text.lock().unwrap();
        if text.len() + bytes.len() > self.room {
            return Err(io::Error::other("no room"));
        }
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn written(events: &[Event]) -> Vec<Value> {
    let paper = Paper::new(usize::MAX);
    let mut recorder = Recorder::new().stream_to(Perfetto::new(paper.clone()));
    recorder.name_stage(StageId::user(0), "tokenize \"fast\"");
    events.iter().for_each(|e| recorder.record(*e));
    recorder.finish().unwrap();
    let mut all: Value = serde_json::from_str(&paper.text()).unwrap();
    serde_json::from_value(all["traceEvents"].take()).unwrap()
}

fn of_phase<'a>(all: &'a [Value], phase: &'a str) -> impl Iterator<Item = &'a Value> {
    all.iter().filter(move |e| e["ph"] == phase)
}

fn ns(micros: &Value) -> u64 {
    (micros.as_f64().unwrap() * 1000.0).round() as u64
}

/// Spans per row, as (start, end) in order \[ns\].
fn rows(all: &[Value]) -> BTreeMap<u64, Vec<(u64, u64)>> {
    let mut rows: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for e in of_phase(all, "X") {
        rows.entry(e["tid"].as_u64().unwrap()).or_default().push((ns(&e["ts"]), ns(&e["ts"]) + ns(&e["dur"])));
    }
    rows.values_mut().for_each(|spans| spans.sort_unstable());
    rows
}

#[test]
fn a_small_trace_reads_like_this() {
    let toy = Toy { samples: 3, batch: 2, lanes: 2, ..Toy::default() };
    let paper = Paper::new(usize::MAX);
    let mut recorder = Recorder::new().stream_to(Perfetto::new(paper.clone()));
    toy.events().iter().for_each(|e| recorder.record(*e));
    recorder.finish().unwrap();
    insta::assert_snapshot!(paper.text());
}

#[test]
fn a_users_stage_bears_its_name() {
    let leaf = Event {
        time: Time(2_500),
        since: Time(1_000),
        sample: 4,
        bytes: 10,
        epoch: 0,
        rank: 1,
        stage: StageId::user(0),
        kind: Kind::End,
    };
    let all = written(&[leaf]);
    assert_eq!(all[0]["args"]["name"], "tokenize \"fast\", rank 1");
    let span = of_phase(&all, "X").next().unwrap();
    assert_eq!(span["name"], "tokenize \"fast\"");
    assert_eq!((&span["ts"], &span["dur"]), (&Value::from(1), &Value::from(1.5)), "microseconds");
}

#[test]
fn leaves_use_no_more_rows_than_run_at_once() {
    let toy = Toy { samples: 500, lanes: 16, servers: 3, ..Toy::default() };
    let all = written(&toy.events());
    let pid = of_phase(&all, "M").find(|e| e["args"]["name"] == "decode").unwrap()["pid"].clone();
    let tids: BTreeSet<u64> = of_phase(&all, "X").filter(|e| e["pid"] == pid).map(|e| e["tid"].as_u64().unwrap()).collect();
    assert_eq!(tids.len(), 3);
}

#[test]
fn a_full_disk_is_told_at_the_end() {
    let events = Toy { samples: 2000, ..Toy::default() }.events();
    let mut perfetto = Perfetto::new(Paper::new(100_000));
    events.iter().for_each(|e| perfetto.event(e));
    assert_eq!(perfetto.finish().unwrap_err().to_string(), "no room");
    assert!(perfetto.finish().is_ok(), "told once");
}

#[test]
fn a_trace_that_is_dropped_is_closed() {
    let paper = Paper::new(usize::MAX);
    let mut perfetto = Perfetto::new(paper.clone());
    Toy::default().events().iter().take(100).for_each(|e| perfetto.event(e));
    drop(perfetto);
    assert!(serde_json::from_str::<Value>(&paper.text()).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn spans_never_overlap_within_a_row_and_every_leaf_has_one(
        seed: u64, lanes in 1usize..20, servers in 1usize..6, ranks in 1u16..3, fails_every in prop_oneof![Just(0), 2u64..9],
    ) {
        let toy = Toy { seed, lanes, servers, ranks, fails_every, samples: 60, epochs: 2, ..Toy::default() };
        let events = toy.events();
        let all = written(&arrivals(&events, seed));
        for (tid, spans) in rows(&all) {
            for pair in spans.windows(2) {
                prop_assert!(pair[0].1 <= pair[1].0, "row {}: {:?}", tid, pair);
            }
        }
        let spans = events.iter().filter(|e| {
            matches!(e.kind, Kind::End | Kind::Fail | Kind::Filled | Kind::Skipped | Kind::Idle | Kind::Taken | Kind::Step)
        });
        prop_assert_eq!(of_phase(&all, "X").count(), spans.count());
        let mut ready: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for c in of_phase(&all, "C") {
            if c["name"] == "ready batches" {
                ready.entry(c["pid"].as_u64().unwrap()).or_default().push(ns(&c["ts"]));
            }
        }
        for times in ready.values() {
            prop_assert!(times.is_sorted(), "a counter is written in order of time");
        }
    }
}
