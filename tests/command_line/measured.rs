//! `towtank compare --measured`: another loader's run, as a script sees it.

use std::{fs, process::Command};

use tempfile::TempDir;
use towtank::synth;

use super::{report, stderr, towtank};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/recorded.jsonl");

/// Six samples in batches of four, twice, as the fixture has them.
fn scenario(folder: &TempDir) -> String {
    let path = folder.path().join("other.toml");
    let text = "title = \"Another loader\"\nmachine = \"reference-2core\"\n[dataset]\nkind = \"synthetic\"\ncount = 6\n\
                [loader]\nbatch = 4\nepochs = 2\nshuffle = true\n[consumer]\nstep = \"100 ms\"\n\
                [expect.exactly_once]\n[expect.peak_bytes_in_flight]\nmax = \"4 GiB\"\n";
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn close(found: &serde_json::Value, expected: f64) {
    let found = found.as_f64().unwrap_or(f64::NAN);
    assert!((found / expected - 1.0).abs() < 1e-9, "{found} instead of {expected}");
}

#[test]
fn a_recorded_trace_is_the_measured_side() {
    let folder = tempfile::tempdir().unwrap();
    let (scenario, page) = (scenario(&folder), folder.path().join("page.html"));
    let output = towtank(&["compare", &scenario, "--measured", FIXTURE, "--json", "--html", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told = report(&output);
    close(&told["measured"]["samples_per_s"], 12.0 / 1.4);
    close(&told["measured"]["accelerator_utilization"], 0.375);
    close(&told["measured"]["stall_s"], 0.5);
    let simulated = told["simulated"]["samples_per_s"].as_f64().unwrap();
    close(&told["errors"]["samples_per_s"], simulated / (12.0 / 1.4) - 1.0);
    assert!(told["intervals"]["samples_per_s"]["low"].is_f64() && told.get("replayed").is_none());
    assert!(told["measured"]["peak_bytes_in_flight"].is_null() && told["errors"]["peak_bytes_in_flight"].is_null());
    assert_eq!(told["bottleneck"], told["simulated"]["bottleneck"]["name"]);
    let held: Vec<_> = told["expectations"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(held, ["peak_bytes_in_flight (simulated)", "exactly_once (simulated)", "exactly_once (measured)"]);
    assert!(stderr(&output).contains("tells nothing about peak_bytes_in_flight"), "{}", stderr(&output));
    assert!(fs::read_to_string(page).unwrap().contains("PyTorch DataLoader, 2 workers"));
}

#[test]
fn figures_that_the_trace_lacks_are_absent_for_people_too() {
    let folder = tempfile::tempdir().unwrap();
    let output = towtank(&["compare", &scenario(&folder), "--measured", FIXTURE, "--intervals", "0"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row =
        |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}")).to_owned();
    for name in ["peak bytes in flight", "skipped"] {
        assert!(row(name).split_whitespace().any(|cell| cell == "-"), "{}", row(name));
    }
    assert!(row("measured: PyTorch").ends_with("DataLoader, 2 workers, 2 cores"), "{text}");
    let queues = text.split("queues\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
    assert!(queues.contains("simulated") && !queues.contains("measured"), "{queues}");
    assert!(text.contains("measured: unknown\n  The consumer waits"), "{text}");
}

#[test]
fn a_wrong_trace_is_exit_code_2_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let (scenario, bad) = (scenario(&folder), folder.path().join("bad.jsonl"));
    let text = fs::read_to_string(FIXTURE).unwrap();
    fs::write(&bad, &text[..text.len() - 20]).unwrap();
    let bad = bad.to_str().unwrap();
    let output = towtank(&["compare", &scenario, "--measured", bad]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    let told = stderr(&output);
    assert!(told.contains(&format!("--> {bad}:6:")) && told.contains("cut off"), "{told}");
    let nowhere = towtank(&["compare", &scenario, "--measured", "no/such/trace.jsonl"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(stderr(&nowhere).contains("no/such/trace.jsonl"), "{}", stderr(&nowhere));
    let ranks = towtank(&["compare", &scenario, "--measured", FIXTURE, "--set", "ranks.count=2", "--set", "loader.batch=2"]);
    assert_eq!(ranks.status.code(), Some(2));
    assert!(stderr(&ranks).contains("a recorded trace is of one consumer"), "{}", stderr(&ranks));
}

#[test]
fn a_frozen_prediction_is_judged_by_a_recorded_trace() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images");
    fs::create_dir(&images).unwrap();
    for i in 0..6 {
        let spec = synth::Spec { width: 64, height: 48, ..synth::Spec::plan(8, i) };
        fs::write(images.join(format!("{i}.jpg")), synth::jpeg(&spec)).unwrap();
    }
    let (scenario, data, frozen) = (scenario(&folder), images.to_str().unwrap(), folder.path().join("before.json"));
    let frozen = frozen.to_str().unwrap();
    let freeze = towtank(&["sim", &scenario, "--json", "--data", data, "--freeze", frozen]);
    assert_eq!(freeze.status.code(), Some(0), "{}", stderr(&freeze));
    let output = towtank(&["compare", "--frozen", frozen, "--data", data, "--measured", FIXTURE, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (before, told) = (report(&freeze), report(&output));
    assert_eq!(told["simulated"]["trace_hash"], before["simulated"]["trace_hash"]);
    assert_eq!(
        (&told["measured"]["delivered"], &told["measured"]["machine"]),
        (&12.into(), &"PyTorch DataLoader, 2 workers".into())
    );
}

#[test]
fn what_the_documented_recorder_writes_is_read_back() {
    const LOOP: &str = "
import sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from record import record
class Loader:
    def __iter__(self):
        for batch in [[0, 1, 2, 3], [4, 5]]:
            time.sleep(0.02)
            yield batch
tell = lambda batch: {'samples': len(batch), 'indices': batch}
for batch in record(Loader(), sys.argv[2], epochs=2, tell=tell, loader='a list', batch=4):
    time.sleep(0.01)
for batch in record([[1, 2, 3], [4, 5, 6]], sys.argv[3], tell=lambda batch: {'samples': 3}):
    break
class Columns(list):
    shape = (2, 3)
for batch in record([Columns([1, 2]), ([1, 2, 3], [0, 1, 0])], sys.argv[4]):
    pass
";
    let folder = tempfile::tempdir().unwrap();
    let [whole, left, counted] = ["whole.jsonl", "left.jsonl", "counted.jsonl"].map(|name| folder.path().join(name));
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/docs");
    let Ok(python) = Command::new("python3").args(["-c", LOOP, docs]).args([&whole, &left, &counted]).output() else {
        eprintln!("skipped: there is no python3 to run docs/record.py with");
        return;
    };
    assert!(python.status.success(), "{}", stderr(&python));
    let scenario = scenario(&folder);
    let output = towtank(&["compare", &scenario, "--measured", whole.to_str().unwrap(), "--intervals", "0", "--json"]);
    let told = &report(&output)["measured"];
    assert_eq!((&told["delivered"], &told["batches"], &told["machine"]), (&12.into(), &4.into(), &"a list".into()), "{told}");
    // Sleeps last at least as long as they are told to.
    let at_least = |key: &str, least: f64| assert!(told[key].as_f64().is_some_and(|s| s >= least), "{key} of {told}");
    at_least("time_to_first_batch_s", 0.02);
    at_least("stall_s", 0.06);
    at_least("duration_s", 0.12);
    at_least("cpu_s", 0.0);
    at_least("peak_rss_bytes", 1e6);
    assert!(told["accelerator_utilization"].as_f64().is_some_and(|part| part > 0.0 && part < 1.0), "{told}");
    let lines = |path| fs::read_to_string(path).unwrap();
    assert_eq!(lines(&left).lines().count(), 1, "the batch that the loop left at is not whole");
    let counts: Vec<_> = lines(&counted).lines().filter_map(|l| Some(l.split_once("\"samples\": ")?.1[..1].to_owned())).collect();
    assert_eq!(counts, ["2", "3"]);
}
