//! Whatever can be wrong in a scenario, and what its author is told.
//!
//! Every field is given every kind of value that it must refuse. The messages are kept in `tests/snapshots`, one file for each table, to be
//! read as an author would read them.

use std::fmt::Write;

use towtank::scenario::{Overrides, load, parse};

/// A kind of field: the values it must refuse.
const COUNT: &[&str] = &["\"32\"", "-1", "1.5", "true", "99999999999999999999999"];
const ONE_OR_MORE: &[&str] = &["\"32\"", "-1", "0", "1.5", "[32]"];
const FLAG: &[&str] = &["\"yes\"", "1"];
const TEXT: &[&str] = &["7", "\"\""];
const DURATION: &[&str] = &["50", "\"50\"", "\"50 parsecs\"", "\"5 Ms\"", "\"-5 ms\"", "\"soon\"", "2026-01-01"];
const SIZE: &[&str] = &["64", "\"64\"", "\"64 KB\"", "\"-64 KiB\"", "\"0 B\""];
const BYTE_RATE: &[&str] = &["12", "\"12 GB\"", "\"12 gb/s\"", "\"0 GB/s\""];
const SAMPLE_RATE: &[&str] = &["1300", "\"1300\"", "\"1300 Hz\"", "\"0 samples/s\""];
const REQUEST_RATE: &[&str] = &["\"5500 GB/s\"", "\"0 requests/s\""];
const SHARE: &[&str] = &["0.1", "\"0.1\"", "\"110 %\"", "\"-1 %\""];
const HITS: &[&str] = &["0.1", "\"110 %\"", "[-1]", "{ shares = \"1 %\" }", "{ share = 1 }", "true"];

macro_rules! snapshot {
    ($messages:expr) => {
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!($messages) })
    };
}

fn base(section: &str, field: &str, value: &str) -> String {
    match section {
        "" if field == "title" => format!("{field} = {value}\n"),
        "" => format!("title = \"odd\"\n{field} = {value}\n"),
        _ => format!("title = \"odd\"\n\n[{section}]\n{field} = {value}\n"),
    }
}

/// The messages for one text, or a note that there are none, which the snapshot then shows.
fn messages(text: &str) -> String {
    match parse("scenarios/odd.toml", text, &Overrides::default()) {
        Ok(_) => "NO ERROR".to_owned(),
        Err(trouble) => trouble.to_string(),
    }
}

fn table(section: &str, fields: &[(&str, &[&str])]) -> String {
    let mut out = String::new();
    for (field, values) in fields {
        for value in *values {
            let text = base(section, field, value);
            let told = messages(&text);
            assert_ne!(told, "NO ERROR", "{text}");
            writeln!(out, "{told}\n").unwrap();
        }
    }
    out
}

#[test]
fn top() {
    snapshot!(table("", &[("title", TEXT), ("seed", COUNT), ("machine", TEXT), ("titel", &["\"odd\""])]));
}

#[test]
fn dataset() {
    let kind: &[&str] = &["\"synthetical\"", "\"s3\"", "3"];
    snapshot!(table(
        "dataset",
        &[
            ("kind", kind),
            ("count", ONE_OR_MORE),
            ("seed", COUNT),
            ("model", &["7", "\"imagenet21k\"", "\"no/such.toml\""]),
            ("path", TEXT),
            ("folder", &["\"images\""]),
        ]
    ));
}

#[test]
fn store() {
    snapshot!(table(
        "store",
        &[
            ("kind", TEXT),
            ("first_byte", &["40", "\"40\"", "{ quantiles = [] }", "{ quantiles = [{ at = \"50 %\" }] }"]),
            ("per_connection", BYTE_RATE),
            ("bandwidth", BYTE_RATE),
            ("connections", ONE_OR_MORE),
            ("requests", REQUEST_RATE),
            ("burst", ONE_OR_MORE),
            ("latency", &["\"40 ms\""]),
        ]
    ));
}

#[test]
fn loader_counts() {
    snapshot!(table(
        "loader",
        &[
            ("batch", ONE_OR_MORE),
            ("batch", &["100_000_000"]),
            ("threads", ONE_OR_MORE),
            ("lanes", ONE_OR_MORE),
            ("ring", ONE_OR_MORE),
            ("prefetch", COUNT),
            ("copies", ONE_OR_MORE),
            ("device_stage_limit", ONE_OR_MORE),
            ("epochs", ONE_OR_MORE),
            ("epochs", &["5_000_000_000"]),
            ("rank", COUNT),
            ("world", ONE_OR_MORE),
            ("world", &["70_000"]),
            ("retries", COUNT),
            ("fetch_limit", ONE_OR_MORE),
            ("decode_limit", ONE_OR_MORE),
        ]
    ));
}

#[test]
fn loader_words_and_quantities() {
    let positive: &[&str] = &["\"0 ms\"", "\"5\""];
    snapshot!(table(
        "loader",
        &[
            ("budget", SIZE),
            ("order", &["\"planned\"", "\"completions\"", "1"]),
            ("shuffle", FLAG),
            ("drop_last", FLAG),
            ("tail", &["\"padded\"", "0"]),
            ("errors", &["\"ignore\"", "false"]),
            ("skip_at_most", &["1.5", "\"1\"", "\"101 %\"", "-1"]),
            ("retry_pause", DURATION),
            ("retry_pause_most", DURATION),
            ("fetch_deadline", positive),
            ("decode_deadline", positive),
            ("size", &["0", "70000", "\"224\"", "\"224x\"", "\"0x224\"", "1.5"]),
            ("resize", &["\"crop\"", "224"]),
            ("device_stage", &["\"normalise\"", "\"jpeg\"", "true"]),
            ("codec", &["\"turbojpeg\"", "\"gpu\"", "true"]),
            ("prefech", &["2"]),
            ("Batch", &["2"]),
            ("num_workers", &["2"]),
        ]
    ));
}

#[test]
fn consumer() {
    snapshot!(table(
        "consumer",
        &[
            ("step", DURATION),
            ("rate", SAMPLE_RATE),
            ("start_up", DURATION),
            ("hold", ONE_OR_MORE),
            ("leave_after", ONE_OR_MORE),
            ("steps", &["3"]),
        ]
    ));
}

#[test]
fn faults() {
    let hits =
        ["missing", "truncated", "undecodable", "panicking", "transient", "throttled", "stalled", "slow_reads", "slow_jobs"];
    let mut fields: Vec<(&str, &[&str])> = hits.iter().map(|name| (*name, HITS)).collect();
    fields.extend([
        ("failed_copies", HITS),
        ("failed_kernels", HITS),
        ("slow_kernels", HITS),
        ("truncated_keep", SHARE),
        ("slow_times", ONE_OR_MORE),
        ("failed", &["\"1 %\""] as &[&str]),
    ]);
    snapshot!(table("faults", &fields));
}

#[test]
fn replay() {
    snapshot!(table(
        "replay",
        &[
            ("invariant", TEXT),
            ("tape", &["7", "[1, 2]", "[[1]]", "[[1, 2, 3]]", "[[1, \"2\"]]", "[[1, 99_999_999_999]]"]),
            ("tape", &["[[1, 2]]"]),
            ("random", COUNT),
            ("pct", &["7", "[1, 2]", "[1, 99_999_999_999, 3]"]),
            ("abstract_time", &["7"]),
            ("resume_after", COUNT),
            ("trace_hash", &["7", "\"c0ffee\"", "\"00C0FFEE00C0FFEE\""]),
            ("hash", &["\"00c0ffee00c0ffee\""]),
        ]
    ));
}

#[test]
fn expectations() {
    let figure: &[&str] = &["7", "{}", "{ least = 1 }", "{ within = { of = 3 } }", "{ within = 3 }"];
    snapshot!(table(
        "expect",
        &[
            ("throughput", figure),
            (
                "throughput",
                &["{ min = \"9 samples/s\", max = \"8 samples/s\" }", "{ min = \"9\" }", "{ within = { of = \"9 img/s\" } }"]
            ),
            ("throughput", &["{ within = { of = \"9 samples/s\", tol = 10 } }", "{ within = { tol = \"10 %\" } }"]),
            ("accelerator_utilization", &["{ min = 0.9 }", "{ min = \"0.9\" }"]),
            ("time_to_first_batch", &["{ max = 3 }"]),
            ("cpu", &["{ max = \"3\" }"]),
            ("peak_bytes_in_flight", &["{ max = 1000 }"]),
            ("skipped", &["{ max = \"3\" }", "{ max = -3 }"]),
            ("exactly_once", &["true", "{ min = 3 }"]),
            ("order_kept", &["true"]),
            ("bottleneck", &["\"decode\"", "{ is = \"decoder\" }", "{ is = \"python\" }", "{ }"]),
            ("troughput", &["{ min = \"9 samples/s\" }"]),
        ]
    ));
}

#[test]
fn what_contradicts_itself() {
    let mut out = String::new();
    for text in [
        "[dataset]\nkind = \"synthetic\"\npath = \"images\"",
        "[dataset]\nkind = \"folder\"",
        "[dataset]\npath = \"images\"\ncount = 10",
        "[dataset]\npath = \"images\"\nmodel = \"imagenet\"",
        "[dataset]\nkind = \"drawn\"\nseed = 4",
        "[loader]\nbatch = 32\nring = 31",
        "[loader]\nrank = 2\nworld = 2",
        "[loader]\nrank = 2",
        "[loader]\nskip_at_most = 3",
        "[loader]\nwindow = 64",
        "[loader]\ndevice_stage_limit = 2",
        "[loader]\ndesign = \"worker-processes\"\ndevice_stage = \"normalize\"",
        "[loader]\nretry_pause = \"1 s\"\nretry_pause_most = \"100 ms\"",
        "[loader]\nbatch = 32\n[consumer]\nstep = \"10 ms\"\nrate = \"1300 samples/s\"",
        "[faults]\nslow_times = 4",
        "[faults]\ntruncated_keep = \"10 %\"",
        "loader = 3",
        "[loader]\nbatch = 0\norder = \"random\"\n[consumer]\nstep = 5",
        "[loader]\nbatch = 1\nbatch = 2",
        "[loader]\nbatch = ",
    ] {
        let told = messages(&format!("title = \"odd\"\n{text}\n"));
        assert_ne!(told, "NO ERROR", "{text}");
        writeln!(out, "{told}\n").unwrap();
    }
    snapshot!(out);
}

#[test]
fn what_is_missing() {
    insta::assert_snapshot!(messages("[loader]\nbatch = 32\n"), @"
    error: `title` is missing
    hint: write `title = \"what this scenario shows\"` at the top of the file
    ");
}

#[test]
fn a_flag_is_quoted_in_its_error() {
    let mut out = String::new();
    for set in [
        "loader.batch=-4",
        "loader.prefech=2",
        "consumer.step=50",
        "consumer.step=50 parsecs",
        "loder.batch=4",
        "loader.batch",
        "title.x=2",
        "expect.throughput.min=9",
        "=3",
    ] {
        let scenario = parse("scenarios/odd.toml", "title = \"odd\"\n[loader]\nbatch = 3\n", &Overrides::set([set]));
        writeln!(out, "{}\n", scenario.expect_err(set)).unwrap();
    }
    snapshot!(out);
}

/// What the loader and the machine say to a scenario that is well written.
fn fitting(name: &str, sets: &[&str]) -> String {
    let scenario = load(name, &Overrides::set(sets.iter().copied())).unwrap();
    let machine = match scenario.machine_model() {
        Ok(machine) => machine,
        Err(trouble) => return trouble.to_string(),
    };
    let samples = scenario.samples().unwrap().expect("no folder");
    let settings = scenario.settings(scenario.threads(&machine), &samples);
    let config = scenario.to_sim(&machine, &samples);
    match (settings.err(), config.err()) {
        (Some(trouble), _) | (None, Some(trouble)) => trouble.to_string(),
        (None, None) => "NO ERROR".to_owned(),
    }
}

#[test]
fn what_does_not_fit_the_machine_or_the_budget() {
    let mut out = String::new();
    for (name, sets) in [
        ("tiny-memory", &["loader.budget=4 MiB"] as &[&str]),
        ("slow-consumer", &["loader.batch=4096"]),
        ("slow-consumer", &["store.kind=tape"]),
        ("slow-consumer", &["store.kind=dsik"]),
        ("slow-consumer", &["machine=reference-2cores"]),
        ("slow-consumer", &["machine=no/such.toml"]),
        ("slow-consumer", &["loader.drop_last=true", "dataset.count=31"]),
        ("slow-consumer", &["loader.world=8", "loader.tail=drop", "dataset.count=7"]),
        ("slow-consumer", &["loader.batch=16_777_216", "loader.prefetch=16_777_216", "loader.size=65535"]),
        ("slow-consumer", &["dataset.count=999_999_999_999_999_999"]),
    ] {
        let told = fitting(name, sets);
        assert_ne!(told, "NO ERROR", "{name} {sets:?}");
        writeln!(out, "{told}\n").unwrap();
    }
    snapshot!(out);
}

#[test]
fn the_minimum_that_is_named_is_enough() {
    let told = fitting("tiny-memory", &["loader.budget=1 MiB"]);
    let minimum = told.split("expected at least ").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
    assert_eq!(fitting("tiny-memory", &[&format!("loader.budget={minimum}")]), "NO ERROR", "{minimum}");
}
