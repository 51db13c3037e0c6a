use std::{fmt::Write, path::Path};

use proptest::prelude::*;

use super::*;
use crate::report::{Facts, Metrics};

const FIXTURE: &str = include_str!("../../../tests/data/recorded.jsonl");

fn read_text(text: &str) -> Result<Recorded, Diagnostic> {
    read("trace.jsonl", text.as_bytes(), Recorder::new().keep_events(), |_| {})
}

fn metrics(recorded: &Recorded) -> Metrics {
    Metrics::of(&recorded.recorder, &Facts { cpu_s: recorded.cpu_s, consumer_only: true, ..Facts::default() })
}

#[test]
fn the_figures_are_those_one_computes_by_hand() {
    let recorded = read_text(FIXTURE).unwrap();
    let m = metrics(&recorded);
    // 4 + 2 + 4 + 2 samples until 1.4 s; without the first batch 8 samples between the batches got at 0.5 and 1.3 s.
    assert_eq!((m.samples_per_s, m.steady_samples_per_s), (12.0 / 1.4, Some(10.0)));
    // Three steps of 100 ms between the ends of the first, 0.6 s, and the last.
    assert_eq!(m.accelerator_utilization, Some(0.375));
    // Waits of 100, 400 and 0 ms behind the first.
    assert_eq!((m.time_to_first_batch_s, m.stall_s), (Some(0.5), 0.5));
    assert_eq!((m.delivered, m.batches, m.duration_s, m.cpu_s), (12, 4, 1.5, Some(2.25)));
    let epochs: Vec<_> = m.epochs.iter().map(|e| (e.epoch, e.first_batch_s, e.last_batch_s, e.batches, e.samples)).collect();
    assert_eq!(epochs, [(0, 0.5, 0.7, 2, 6), (1, 1.2, 1.3, 2, 6)]);
    assert_eq!((recorded.samples, recorded.bytes, recorded.largest_batch), (12, Some(1_806_336), 4));
    assert_eq!((recorded.header.cores, recorded.peak_rss_bytes, recorded.has_indices), (Some(2), Some(314_572_800), true));
}

#[test]
fn batches_of_another_run_are_told_apart_from_those_of_a_short_epoch() {
    let recorded = read_text(FIXTURE).unwrap();
    assert_eq!(recorded.other_batch(4, 6), None);
    let told = recorded.other_batch(5, 6).expect("its first line says 4");
    assert_eq!(told, "the trace has batches of 4, the scenario of 5: `--set loader.batch=4`");
    let untold = Recorded { header: Header { batch: None, ..recorded.header.clone() }, ..recorded };
    assert_eq!(untold.other_batch(32, 4), None, "an epoch has no more than 4");
    assert!(untold.other_batch(32, 6).is_some() && untold.other_batch(3, 6).is_some());
}

#[test]
fn what_a_consumer_cannot_see_is_absent() {
    let recorded = read_text(FIXTURE).unwrap();
    let json = serde_json::to_value(metrics(&recorded)).unwrap();
    for key in ["peak_bytes_in_flight", "planned", "skipped", "dropped", "in_flight", "fetch_stall_s", "fixed_bytes"] {
        assert!(json[key].is_null(), "{key}: {}", json[key]);
    }
    for key in ["cores", "threads", "trace_hash"] {
        assert!(json.get(key).is_none(), "{key}");
    }
    assert!(json["stages"].as_array().unwrap().is_empty() && json["queues"].as_array().unwrap().is_empty());
    assert_eq!(json["bottleneck"]["name"], "unknown");
    assert!(json["bottleneck"].get("evidence").is_none());
}

#[test]
fn a_consumer_that_computes_all_the_time_is_the_bottleneck() {
    let busy = FIXTURE.replace("\"got\": 101.2", "\"got\": 100.8");
    let found = metrics(&read_text(&busy).unwrap()).bottleneck;
    assert_eq!(found.name, "unknown", "500 ms of step in 800 ms");
    let busy = busy.replace("\"got\": 100.7", "\"got\": 100.6").replace("\"done\": 101.3", "\"done\": 101.3, \"epoch\": 1");
    let busy = busy.replace("{\"epoch\": 1, \"asked\": 100.8", "{\"asked\": 100.8");
    let found = metrics(&read_text(&busy).unwrap()).bottleneck;
    assert_eq!(
        (found.name.as_str(), found.why.as_str()),
        ("consumer", "The consumer computes 100.0 % of the time and waits 0 s a batch.")
    );
}

#[test]
fn events_are_those_that_a_consumer_writes() {
    let recorded = read_text(FIXTURE).unwrap();
    let told: Vec<_> = recorded.recorder.events()[..6].iter().map(|e| (e.kind, e.since.0, e.time.0, e.sample, e.bytes)).collect();
    let (half, step) = (500_000_000, 600_000_000);
    let delivered = |sample| (Kind::Delivered, half, half, sample, 0);
    let expected =
        [(Kind::Taken, 0, half, 0, 4), delivered(2), delivered(0), delivered(5), delivered(1), (Kind::Step, half, step, 0, 0)];
    assert_eq!(told, expected);
}

#[test]
fn all_that_may_be_left_out_may_be() {
    let bare = "{\"towtank_trace\":1,\"start\":0,\"host\":\"mine\"}\n\n{\"asked\":0,\"got\":2,\"samples\":5,\"epoch\":null}\n\
                {\"asked\":2,\"got\":4,\"samples\":5}";
    let recorded = read_text(bare).unwrap();
    let m = metrics(&recorded);
    assert_eq!((m.samples_per_s, m.accelerator_utilization, m.stall_s, m.cpu_s), (2.5, None, 2.0, None));
    assert_eq!((recorded.bytes, recorded.has_indices), (None, false));
}

#[test]
fn the_documentation_shows_the_recorder_and_a_trace_as_they_are() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let page = std::fs::read_to_string(docs.join("trace-format.md")).unwrap();
    let recorder = std::fs::read_to_string(docs.join("record.py")).unwrap();
    let (_, body) = recorder.split_once('\n').unwrap();
    assert!(page.contains(&format!("```python\n{}\n```", body.trim())), "docs/record.py is not the one shown");
    assert!(page.contains(&format!("```json\n{FIXTURE}```")), "tests/data/recorded.jsonl is not the one shown");
}

/// Traces of a header, a batch and the line in question, each wrong in one way.
fn wrong_lines() -> Vec<(&'static str, String)> {
    let header = "{\"towtank_trace\": 1, \"start\": 100.0, \"batch\": 4}\n";
    let batch = "{\"asked\": 100.0, \"got\": 100.5, \"done\": 100.6, \"samples\": 4, \"indices\": [2, 0, 5, 1]}\n";
    let third = |line: &str| format!("{header}{batch}{line}\n");
    let first = |line: &str| format!("{line}\n{batch}");
    let bare = |line: &str| format!("{header}{line}\n");
    let indices: Vec<String> = (0..200).map(|i| (10_000 + i).to_string()).collect();
    vec![
        ("empty", String::new()),
        ("no batch", header.to_owned()),
        ("no batch, but an end", bare("{\"end\": 100.1}")),
        ("not JSON", third("epoch 0, 100.6, 100.7")),
        ("an array", third("[0, 100.6, 100.7]")),
        ("a typing error", third("{\"asked\": 100.6, \"got\": 100.7 \"done\": 100.8}")),
        ("NaN", third("{\"asked\": 100.6, \"got\": NaN, \"done\": 100.8, \"samples\": 4}")),
        ("cut", format!("{header}{batch}{{\"asked\": 100.6, \"got\": 100.")),
        ("cut, and more after it", format!("{header}{{\"asked\": 100.6, \"got\": 100.\n{batch}")),
        ("no header", batch.to_owned()),
        ("unknown version", first("{\"towtank_trace\": 2, \"start\": 100.0}")),
        ("no start", first("{\"towtank_trace\": 1}")),
        ("start in nanoseconds", first("{\"towtank_trace\": 1, \"start\": 1700000000000000000}")),
        ("negative start", first("{\"towtank_trace\": 1, \"start\": -1.5}")),
        ("start after the first batch", first("{\"towtank_trace\": 1, \"start\": 100.25}")),
        ("a batch of nothing", first("{\"towtank_trace\": 1, \"start\": 100.0, \"batch\": 0}")),
        ("no cores", first("{\"towtank_trace\": 1, \"start\": 100.0, \"cores\": 0}")),
        ("missing field", bare("{\"asked\": 100.0, \"done\": 100.6, \"samples\": 4}")),
        ("unknown field", third("{\"asked\": 100.6, \"got\": 100.7, \"done\": 100.8, \"sample\": 4}")),
        ("field twice", bare("{\"asked\": 100.0, \"got\": 100.5, \"got\": 100.6, \"samples\": 4}")),
        ("text for a number", bare("{\"asked\": 100.0, \"got\": \"100.5\", \"samples\": 4}")),
        ("negative count", bare("{\"asked\": 100.0, \"got\": 100.5, \"samples\": -4}")),
        ("half a sample", bare("{\"asked\": 100.0, \"got\": 100.5, \"samples\": 4.5}")),
        ("no samples", bare("{\"asked\": 100.0, \"got\": 100.5, \"samples\": 0}")),
        ("more samples than a batch", bare("{\"asked\": 100.0, \"got\": 100.5, \"samples\": 48000}")),
        ("huge count", bare("{\"asked\": 100.0, \"got\": 100.5, \"samples\": 100000000000000000000000}")),
        ("huge epoch", bare("{\"epoch\": 4294967296, \"asked\": 100.0, \"got\": 100.5, \"samples\": 4}")),
        ("huge time", bare("{\"asked\": 100.0, \"got\": 1e300, \"samples\": 4}")),
        ("time that is none", bare("{\"asked\": 100.0, \"got\": 1e999, \"samples\": 4}")),
        ("time goes backwards in a line", bare("{\"asked\": 100.5, \"got\": 100.25, \"samples\": 4}")),
        ("time goes backwards between lines", third("{\"asked\": 100.5, \"got\": 100.7, \"done\": 100.8, \"samples\": 4}")),
        ("step ends before it begins", bare("{\"asked\": 100.0, \"got\": 100.5, \"done\": 100.25, \"samples\": 4}")),
        ("epoch goes backwards", format!("{header}{}{}", batch.replace('{', "{\"epoch\": 1, "), batch.replace("100.", "101."))),
        (
            "fewer indices than samples",
            third("{\"asked\": 100.6, \"got\": 100.7, \"done\": 100.8, \"samples\": 4, \"indices\": [1, 2]}"),
        ),
        ("negative index", bare("{\"asked\": 100.0, \"got\": 100.5, \"samples\": 2, \"indices\": [1, -2]}")),
        ("no indices any more", third("{\"asked\": 100.6, \"got\": 100.7, \"done\": 100.8, \"samples\": 4}")),
        ("no step any more", third("{\"asked\": 100.6, \"got\": 100.7, \"samples\": 1, \"indices\": [1]}")),
        (
            "bytes all of a sudden",
            third("{\"asked\": 100.6, \"got\": 100.7, \"done\": 100.8, \"samples\": 1, \"indices\": [1], \"bytes\": 9}"),
        ),
        ("CPU time without an end", third("{\"cpu_s\": 1.5}")),
        ("negative CPU time", third("{\"end\": 101.0, \"cpu_s\": -1.5}")),
        ("end before the end", third("{\"end\": 100.25}")),
        ("a batch and an end", third("{\"asked\": 100.6, \"got\": 100.7, \"samples\": 4, \"end\": 101.0}")),
        ("two recordings", format!("{header}{batch}{{\"end\": 101.0}}\n{header}{batch}")),
        (
            "a long line",
            bare(&format!("{{\"asked\": 100.0, \"samples\": 4, \"indices\": [{}], \"gott\": 100.5}}", indices.join(", "))),
        ),
    ]
}

#[test]
fn every_wrong_line_is_told_with_its_place_and_a_way_out() {
    let mut told = String::new();
    for (name, text) in wrong_lines() {
        let wrong = read_text(&text).map(|recorded| recorded.batches).expect_err(name);
        let _ = writeln!(told, "# {name}\n{wrong}\n");
    }
    insta::assert_snapshot!(told);
}

#[test]
fn a_line_without_end_is_refused_and_not_kept() {
    let endless = "{\"towtank_trace\": 1, \"start\": 0}\n".as_bytes().chain(std::io::repeat(b' '));
    let wrong = read("endless", std::io::BufReader::new(endless), Recorder::new(), |_| {}).unwrap_err();
    assert_eq!(wrong.message, "this line is longer than 32 MiB");
    assert_eq!(wrong.place.unwrap().line_and_column().0, 2);
}

#[test]
fn more_samples_than_anybody_has_are_refused() {
    let recorded = read_text(FIXTURE).unwrap();
    let mut reader = Reader::new(Header::default(), Recorder::new());
    reader.recorded.samples = SAMPLES_MOST - 1;
    let line =
        |samples| BatchLine { epoch: 0, asked: 0.0, got: 0.0, done: None, samples, indices: None, bytes: None, skipped: None };
    assert!(reader.take(Line::Batch(line(2)), 2, &mut |_| {}).is_err());
    assert!(reader.take(Line::Batch(line(1)), 2, &mut |_| {}).is_ok());
    assert_eq!(recorded.batches, 4);
}

proptest! {
    #[test]
    fn whatever_the_bytes_are_an_answer_comes(
        at in 0..FIXTURE.len(),
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"0123456789.-e{}[]\",\n".to_vec())], 0..6),
        gone in 0usize..12,
    ) {
        let mut text = FIXTURE.as_bytes().to_vec();
        text.splice(at..(at + gone).min(FIXTURE.len()), bytes);
        match read("any", text.as_slice(), Recorder::new(), |_| {}) {
            Ok(recorded) => prop_assert!(serde_json::to_string(&metrics(&recorded)).is_ok()),
            Err(wrong) => prop_assert!(!wrong.to_string().is_empty()),
        }
    }
}
