use super::*;
use crate::{
    report::{Expectation, Facts},
    trace::{Recorder, StageId, oracle::Toy},
};

fn metrics(toy: &Toy, facts: Facts) -> Metrics {
    let servers = toy.servers as u32;
    let mut recorder = Recorder::new().preparation_servers(servers);
    toy.events().into_iter().for_each(|e| recorder.record(e));
    let (threads, lanes) = (servers, toy.lanes as u32);
    Metrics::of(&recorder, &Facts { threads, lanes, copies: 1, cores: 2, ..facts })
}

fn simulated() -> Metrics {
    let toy = Toy { samples: 2000, decode_ns: 1_000_000, fails_every: 50, ..Toy::default() };
    let facts = Facts {
        machine: "model of this computer".to_owned(),
        device: "host".to_owned(),
        codec: Some("rust".to_owned()),
        cpu_s: Some(2.04),
        ring_slots: 24,
        prefetch_batches: 2,
        budget_bytes: Some(8 << 20),
        ledger_bytes: Some(2 << 20),
        fixed_bytes: 6 << 20,
        repeatable: true,
        ..Facts::default()
    };
    metrics(&toy, facts)
}

fn measured() -> Metrics {
    let toy = Toy { seed: 9, samples: 2000, decode_ns: 1_060_000, fails_every: 50, ..Toy::default() };
    let facts = Facts {
        machine: "this computer".to_owned(),
        device: "host".to_owned(),
        codec: Some("rust".to_owned()),
        cpu_s: Some(2.21),
        peak_rss_bytes: Some(41 << 20),
        budget_bytes: Some(8 << 20),
        fixed_bytes: 6 << 20,
        ..Facts::default()
    };
    metrics(&toy, facts)
}

fn expectations() -> Vec<Expectation> {
    let of = |name: &str, held, wanted: &str, found: &str| Expectation {
        name: name.to_owned(),
        held,
        wanted: wanted.to_owned(),
        found: found.to_owned(),
    };
    vec![
        of("throughput", true, "at least 1800 samples/s", "1 887 samples/s"),
        of("time_to_first_batch", false, "at most 1 ms", "6.2 ms"),
        of("exactly_once", true, "every sample delivered or skipped once", "so it is"),
    ]
}

#[test]
fn both_sides_with_their_errors() {
    let mut report = Report::new("quickstart", 7, Some(simulated()), Some(measured()));
    report.expectations = expectations();
    insta::assert_snapshot!(report.terminal(Style::Plain));
}

#[test]
fn one_side_alone() {
    insta::assert_snapshot!(Report::new("quickstart", 7, Some(simulated()), None).terminal(Style::Plain));
}

#[test]
fn colours_only_dress_the_same_text() {
    let mut report = Report::new("quickstart", 7, Some(simulated()), Some(measured()));
    report.expectations = expectations();
    let mut bare = String::new();
    let coloured = report.terminal(Style::Colour);
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        bare.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    bare.push_str(rest);
    let plain = bare.replace('µ', "u").replace("✓", "ok    ").replace("✗", "FAILED");
    assert_eq!(plain, report.terminal(Style::Plain));
    assert!(report.terminal(Style::Plain).is_ascii());
}

#[test]
fn a_run_that_delivered_nothing_is_told_without_figures() {
    let nothing = metrics(&Toy { samples: 0, ..Toy::default() }, Facts::default());
    insta::assert_snapshot!(Report::new("empty", 1, None, Some(nothing)).terminal(Style::Plain));
}

#[test]
fn json_has_the_keys_that_scripts_rely_on() {
    let mut report = Report::new("quickstart", 7, Some(simulated()), Some(measured()));
    report.expectations = expectations();
    let json = serde_json::to_value(&report).unwrap();
    for key in ["scenario", "seed", "bottleneck", "expectations", "simulated", "measured", "errors"] {
        assert!(!json[key].is_null(), "{key}");
    }
    for side in ["simulated", "measured"] {
        for key in [
            "samples_per_s",
            "accelerator_utilization",
            "time_to_first_batch_s",
            "cpu_s",
            "peak_bytes_in_flight",
            "delivered",
            "skipped",
        ] {
            assert!(json[side][key].is_number(), "{side}.{key}");
        }
    }
    assert!(json["measured"]["peak_rss_bytes"].is_u64());
    assert!(json["simulated"].get("peak_rss_bytes").is_none());
    assert_eq!(json["simulated"]["trace_hash"].as_str().map(str::len), Some(16));
    assert!(json["measured"].get("trace_hash").is_none());
    assert_eq!(json["bottleneck"], "decode");
    assert_eq!(json["expectations"][1]["held"], false);
    let keys = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(format!(
        "{}\n\n{}\n\n{}",
        keys(&json),
        keys(&json["simulated"]),
        keys(&json["simulated"]["stages"][0])
    ));
}

#[test]
fn a_users_stage_stands_between_fetch_and_decode() {
    let mut recorder = Recorder::new();
    recorder.name_stage(StageId::user(0), "tokenize");
    let mut events = Toy::default().events();
    let fetches: Vec<_> = events.iter().filter(|e| e.stage == StageId::FETCH).copied().collect();
    events.extend(fetches.into_iter().map(|e| crate::trace::Event { stage: StageId::user(0), ..e }));
    events.into_iter().for_each(|e| recorder.record(e));
    let names: Vec<String> = Metrics::of(&recorder, &Facts::default()).stages.into_iter().map(|s| s.name).collect();
    assert_eq!(names, ["fetch", "tokenize", "decode", "transfer"]);
}
