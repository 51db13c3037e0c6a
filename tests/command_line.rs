//! The program as a script sees it: what goes where, and the exit code.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use towtank::synth;

#[path = "command_line/check.rs"]
mod check;
#[path = "command_line/check_trace.rs"]
mod check_trace;
#[path = "command_line/measured.rs"]
mod measured;
#[path = "command_line/pages.rs"]
mod pages;
#[path = "command_line/ranks.rs"]
mod ranks;
#[path = "command_line/schema.rs"]
mod schema;
#[path = "command_line/tune.rs"]
mod tune;

fn towtank(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_towtank")).args(args).output().expect("the program runs")
}

/// A simulation that takes no time, on the reference.
fn sim(more: &[&str]) -> Output {
    let mut args = vec!["sim", "slow-consumer", "--set", "dataset.count=160"];
    args.extend(more);
    towtank(&args)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(output)))
}

const LOOSE: [&str; 4] = ["--set", "expect.throughput.within.tol=50 %", "--set", "expect.accelerator_utilization.min=50 %"];

#[test]
fn a_report_has_the_keys_that_scripts_rely_on() {
    let output = sim(&[&["--json"], &LOOSE[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = report(&output);
    for key in ["scenario", "seed", "bottleneck", "expectations"] {
        assert!(!report[key].is_null(), "{key}");
    }
    for key in [
        "samples_per_s",
        "accelerator_utilization",
        "time_to_first_batch_s",
        "cpu_s",
        "peak_bytes_in_flight",
        "delivered",
        "skipped",
        "trace_hash",
    ] {
        assert!(!report["simulated"][key].is_null(), "{key}");
    }
    let expectations = report["expectations"].as_array().unwrap();
    assert!(expectations.iter().all(|e| e["name"].is_string() && e["held"] == true), "{expectations:?}");
}

#[test]
fn an_expectation_that_does_not_hold_is_exit_code_1_and_quoted() {
    let output = sim(&["--set", "expect.throughput.within.of=9000 samples/s", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(report(&output)["expectations"][0]["held"], false);
    let told = stderr(&output);
    assert!(told.contains("`expect.throughput` does not hold: found 4"), "{told}");
    assert!(told.contains("9000 samples/s ± 3 %"), "{told}");
}

#[test]
fn wrong_input_is_exit_code_2_and_leaves_standard_output_empty() {
    for args in [
        &["sim", "slow-consumr"] as &[&str],
        &["sim", "slow-consumer", "--set", "loader.bach=3"],
        &["sim", "slow-consumer", "--seed", "x"],
        &["sim"],
        &["simulate", "slow-consumer"],
        &["sim", "slow-consumer", "--set", "loader.budget=1 MiB"],
    ] {
        let output = towtank(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty() && stderr(&output).contains("error"), "{args:?}");
    }
}

#[test]
fn a_loader_that_fails_is_exit_code_1_and_says_why() {
    let output = sim(&["--set", "faults.missing=[7]", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the loader ended early: sample 7"), "{}", stderr(&output));
}

#[test]
fn a_trace_opens_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let output = sim(&[&["--trace", file.to_str().unwrap()], &LOOSE[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let trace: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 160);
    let nowhere = sim(&["--trace", "no/such/folder/trace.json"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(stderr(&nowhere).contains("no/such/folder/trace.json"));
}

#[test]
fn a_trace_is_written_over_a_trace_and_over_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (mine, trace) = (folder.path().join("mine.toml"), folder.path().join("trace.json"));
    fs::write(&mine, "title = \"not to be lost\"").unwrap();
    let refused = sim(&[&LOOSE[..], &["--trace", mine.to_str().unwrap()]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("exists and is no trace"), "{}", stderr(&refused));
    assert_eq!(fs::read_to_string(&mine).unwrap(), "title = \"not to be lost\"");
    for _ in 0..2 {
        assert_eq!(sim(&[&LOOSE[..], &["--trace", trace.to_str().unwrap()]].concat()).status.code(), Some(0));
    }
}

#[test]
fn a_page_and_a_trace_are_written_by_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let [page, trace] = ["report.html", "trace.json"].map(|name| folder.path().join(name));
    let output = sim(&[&["--html", page.to_str().unwrap(), "--trace", trace.to_str().unwrap()], &LOOSE[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let written = fs::read_to_string(page).unwrap();
    assert!(written.starts_with("<!DOCTYPE html>") && written.ends_with("</html>\n") && written.contains("<svg"));
    assert!(serde_json::from_str::<Value>(&fs::read_to_string(trace).unwrap()).is_ok());
    let nowhere = sim(&["--html", "no/such/folder/report.html"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(stderr(&nowhere).contains("no/such/folder/report.html"));
}

#[test]
fn another_seed_is_another_trace_and_the_same_is_the_same() {
    let hash = |seed: &str| report(&sim(&["--json", "--seed", seed]))["simulated"]["trace_hash"].clone();
    assert_eq!(hash("5"), hash("5"));
    assert_ne!(hash("5"), hash("6"));
}

#[test]
fn a_folder_is_simulated_by_the_sizes_of_its_files() {
    let folder = tempfile::tempdir().unwrap();
    for i in 0..64u32 {
        fs::write(folder.path().join(format!("{i}.jpg")), vec![7; 1000 + i as usize]).unwrap();
    }
    let text = format!("title = \"a folder\"\nmachine = \"reference-2core\"\n[dataset]\npath = {:?}\n", folder.path());
    let file = folder.path().join("mine.toml");
    fs::write(&file, text).unwrap();
    let output = towtank(&["sim", file.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = report(&output);
    assert_eq!((&report["scenario"], &report["simulated"]["delivered"]), (&Value::from("mine"), &Value::from(64)));
    fs::write(&file, "title = \"no folder\"\n[dataset]\npath = \"/no/such/folder\"\n").unwrap();
    let output = towtank(&["sim", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("mine.toml:3:8"), "{}", stderr(&output));
}

#[test]
fn synthetic_images_are_made_once_and_can_be_simulated_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images");
    let synth = || towtank(&["synth", images.to_str().unwrap(), "--count", "12", "--seed", "3", "--json"]);
    let first = report(&synth());
    assert_eq!((&first["count"], &first["made"]), (&Value::from(12), &Value::from(12)));
    assert_eq!(report(&synth())["made"], 0);
    let read = ["--data", images.to_str().unwrap(), "--json", "--set", "loader.epochs=1", "--set", "loader.batch=5"];
    let output = towtank(&[&["sim", "quickstart", "--set", "machine=reference-2core"], &read[..]].concat());
    assert_eq!(report(&output)["simulated"]["delivered"], 12, "{}", stderr(&output));
    let output = towtank(&[&["run", "quickstart"], &read[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let measured = report(&output)["measured"].clone();
    assert_eq!((&measured["delivered"], &measured["batches"]), (&Value::from(12), &Value::from(3)));
    assert!(measured["peak_rss_bytes"].as_u64().unwrap() > 0 && measured["trace_hash"].is_null(), "{measured}");
}

#[test]
fn a_kept_model_that_cannot_be_read_says_how_to_make_another() {
    let cache = tempfile::tempdir().unwrap();
    fs::create_dir(cache.path().join("towtank")).unwrap();
    let sim = || {
        let mut program = Command::new(env!("CARGO_BIN_EXE_towtank"));
        program.args(["sim", "quickstart", "--json"]).env("XDG_CACHE_HOME", cache.path()).output().expect("the program runs")
    };
    let reference = sim();
    assert_eq!(reference.status.code(), Some(0));
    assert!(stderr(&reference).contains("has not been calibrated"), "{}", stderr(&reference));
    fs::write(cache.path().join("towtank/machine.toml"), "title = 3\n").unwrap();
    let odd = sim();
    assert_eq!(odd.status.code(), Some(2));
    assert!(stderr(&odd).contains("`title` is the number 3") && stderr(&odd).contains("--recalibrate"), "{}", stderr(&odd));
}

/// The program with a cache folder of its own.
fn towtank_in(cache: &tempfile::TempDir, args: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_towtank"));
    program.args(args).env("XDG_CACHE_HOME", cache.path()).output().expect("the program runs")
}

#[test]
fn a_calibration_says_how_good_it_is_and_can_be_taken_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("here.toml");
    let model = model.to_str().unwrap();
    let small = ["--set", "loader.size=64"];
    let output = towtank_in(&folder, &[&["calibrate", "--quick", "--json", "--out", model], &small[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found = report(&output);
    let decoding = &found["quality"]["fits"][0];
    assert!(decoding["r2"].as_f64().unwrap() > 0.5 && decoding["condition"].as_f64().unwrap() > 1.0, "{found}");
    assert_eq!(decoding["terms"].as_array().unwrap().len(), 3, "{found}");
    assert!(found["quality"]["cores"]["threads"].as_u64().unwrap() >= 1, "{found}");
    // Nothing was kept beside the file, and the file simulates.
    assert!(!folder.path().join("towtank/machine.toml").exists());
    let machine = format!("machine={model}");
    let short = ["--set", "dataset.count=64", "--set", "loader.epochs=1", "--json"];
    let simulated = towtank_in(&folder, &[&["sim", "quickstart", "--set", &machine], &short[..]].concat());
    assert_eq!(simulated.status.code(), Some(0), "{}", stderr(&simulated));
    // A model may be written over, a scenario not.
    fs::write(folder.path().join("mine.toml"), "title = \"a scenario\"\n").unwrap();
    let other = folder.path().join("mine.toml");
    let refused = towtank_in(&folder, &["calibrate", "--quick", "--out", other.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}

#[test]
fn too_few_images_to_calibrate_on_are_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images");
    fs::create_dir(&images).unwrap();
    for i in 0..3 {
        fs::write(images.join(format!("{i}.jpg")), synth::jpeg(&synth::Spec::plan(5, i))).unwrap();
    }
    fs::write(images.join("x.jpg"), "no image").unwrap();
    let output = towtank_in(&folder, &["calibrate", "--quick", "--data", images.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("only 3 of the images") && stderr(&output).contains("x.jpg"), "{}", stderr(&output));
    let nowhere = towtank_in(&folder, &["calibrate", "--quick", "--data", "/no/such/folder"]);
    assert_eq!(nowhere.status.code(), Some(2), "{}", stderr(&nowhere));
}

#[test]
fn an_emulated_store_is_as_slow_as_the_scenario_says_on_both_machines() {
    let folder = tempfile::tempdir().unwrap();
    for i in 0..16 {
        let spec = synth::Spec { width: 64, height: 48, ..synth::Spec::plan(6, i) };
        fs::write(folder.path().join(format!("{i}.jpg")), synth::jpeg(&spec)).unwrap();
    }
    let data = folder.path().to_str().unwrap();
    let run = |more: &[&str]| {
        let common = ["compare", "quickstart", "--data", data, "--json", "--set", "machine=reference-2core"];
        let store = ["--set", "store.kind=emulated", "--set", "store.first_byte=20 ms", "--set", "store.connections=2"];
        let loader = ["--set", "loader.batch=4", "--set", "loader.epochs=1", "--set", "consumer.step=0 ms"];
        towtank(&[&common[..], &store, &loader, more].concat())
    };
    let told = report(&run(&[]));
    for side in ["simulated", "measured"] {
        // 16 reads, two at a time, 20 ms each.
        let duration = told[side]["duration_s"].as_f64().unwrap();
        assert!(duration >= 0.16, "{side}: {duration}");
        assert_eq!(told[side]["bottleneck"]["name"], "fetch", "{side}: {told}");
    }
    let refused = run(&["--set", "store.bandwidth=1 GB/s"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("`store.bandwidth` can be simulated, and not emulated"), "{}", stderr(&refused));
}

#[test]
fn a_frozen_prediction_is_judged_as_it_was_and_a_changed_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images");
    fs::create_dir(&images).unwrap();
    for i in 0..12 {
        let spec = synth::Spec { width: 64, height: 48, ..synth::Spec::plan(7, i) };
        fs::write(images.join(format!("{i}.jpg")), synth::jpeg(&spec)).unwrap();
    }
    let (data, file) = (images.to_str().unwrap(), folder.path().join("before.json"));
    let file = file.to_str().unwrap();
    let sets = ["--set", "machine=reference-2core", "--set", "loader.batch=4", "--set", "consumer.step=1 ms"];
    let freeze = towtank(&[&["sim", "quickstart", "--json", "--data", data, "--freeze", file], &sets[..]].concat());
    assert_eq!(freeze.status.code(), Some(0), "{}", stderr(&freeze));
    let predicted = report(&freeze);
    let judge = || towtank(&["compare", "--frozen", file, "--data", data, "--json"]);
    let judged = judge();
    assert!(stderr(&judged).contains("judging a prediction frozen"), "{}", stderr(&judged));
    let told = report(&judged);
    assert_eq!(told["simulated"]["trace_hash"], predicted["simulated"]["trace_hash"]);
    assert_eq!(told["intervals"], predicted["intervals"]);
    assert_eq!(told["measured"]["delivered"], 24);
    let (low, high) = (&told["intervals"]["samples_per_s"]["low"], &told["intervals"]["samples_per_s"]["high"]);
    assert!(low.as_f64().unwrap() < high.as_f64().unwrap(), "{told}");

    fs::write(images.join("more.jpg"), fs::read(images.join("0.jpg")).unwrap()).unwrap();
    let others = judge();
    assert_eq!(others.status.code(), Some(2));
    assert!(stderr(&others).contains("the images are not those that were predicted for"), "{}", stderr(&others));
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, text.replace("loader.batch=4", "loader.batch=6")).unwrap();
    let changed = judge();
    assert_eq!(changed.status.code(), Some(2));
    assert!(stderr(&changed).contains("was changed after it was frozen"), "{}", stderr(&changed));
}

#[test]
fn a_slow_link_to_the_device_is_the_bottleneck_on_both_machines() {
    let folder = tempfile::tempdir().unwrap();
    for i in 0..16 {
        let spec = synth::Spec { width: 64, height: 48, ..synth::Spec::plan(6, i) };
        fs::write(folder.path().join(format!("{i}.jpg")), synth::jpeg(&spec)).unwrap();
    }
    let data = folder.path().to_str().unwrap();
    let common = ["compare", "quickstart", "--data", data, "--json", "--set", "machine=reference-2core"];
    // A batch of four takes 120 ms: long enough that a start on a busy computer is a small part of the run.
    let link =
        ["--set", "consumer.link=5 MB/s", "--set", "loader.batch=4", "--set", "loader.epochs=3", "--set", "consumer.step=0 ms"];
    let told = report(&towtank(&[&common[..], &link].concat()));
    for side in ["simulated", "measured"] {
        let duration = told[side]["duration_s"].as_f64().unwrap();
        assert!(duration >= 12.0 * 0.12, "{side}: {duration}");
        assert_eq!(told[side]["bottleneck"]["name"], "transfer", "{side}: {}", told[side]["bottleneck"]);
    }
}

#[test]
fn help_shows_examples() {
    for args in [&["--help"] as &[&str], &["sim", "--help"], &["synth", "--help"]] {
        let output = towtank(args);
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&output.stdout).contains("Examples:"));
    }
}

/// Closing the pipe that we write to is the reader's right: neither a panic nor a failure.
#[cfg(unix)]
#[test]
fn a_reader_that_leaves_is_no_failure() {
    let program = env!("CARGO_BIN_EXE_towtank");
    let loose = LOOSE.map(|word| format!("'{word}'")).join(" ");
    let script = format!("set -o pipefail; {program} sim slow-consumer --json {loose} | head -c 1 >/dev/null");
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash runs");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
}

#[test]
fn a_copy_that_fails_ends_the_loader_with_its_error() {
    for seed in 1..=6 {
        let seed = seed.to_string();
        let shapes: [&[&str]; 2] = [
            &["--set", "faults.failed_copies=[0]", "--set", "loader.ring=32"],
            &[
                "--set",
                "faults.failed_copies=30 %",
                "--set",
                "loader.batch=8",
                "--set",
                "loader.ring=16",
                "--set",
                "loader.copies=4",
                "--set",
                "loader.prefetch=6",
                "--set",
                "consumer.step=0 ms",
                "--set",
                "loader.epochs=3",
            ],
        ];
        for shape in shapes {
            let common = ["sim", "quickstart", "--set", "machine=reference-2core", "--seed", &seed, "--json"];
            let output = towtank(&[&common[..], shape].concat());
            assert_eq!(output.status.code(), Some(1));
            assert!(stderr(&output).contains("the loader cannot go on: device"), "{}", stderr(&output));
            assert!(report(&output)["error"].as_str().is_some_and(|why| why.contains("device")));
        }
    }
}

#[test]
fn an_expectation_that_fails_decides_the_exit_code_whoever_reads() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_towtank"))
        .args(["sim", "slow-consumer", "--set", "dataset.count=160", "--set", "consumer.step=1 ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    drop(child.stdout.take());
    assert_eq!(child.wait_with_output().expect("it ends").status.code(), Some(1));
}

#[test]
fn a_broken_image_is_named_with_a_way_out_and_can_be_skipped() {
    let folder = tempfile::tempdir().expect("a folder");
    for index in 0..6 {
        let spec = synth::Spec { width: 40, height: 30, ..synth::Spec::plan(1, index) };
        let mut bytes = synth::jpeg(&spec);
        if index == 3 {
            bytes.truncate(bytes.len() / 2);
        }
        fs::write(folder.path().join(format!("{index}.jpg")), bytes).expect("an image");
    }
    let path = folder.path().to_str().expect("UTF-8");
    let common = ["run", "quickstart", "--json", "--data", path, "--set", "loader.batch=2", "--set", "consumer.step=0 ms"];
    let output = towtank(&common);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("3.jpg") && stderr(&output).contains("hint: `loader.errors"), "{}", stderr(&output));
    let told = report(&output);
    assert!(told["error"].as_str().is_some_and(|why| why.contains("3.jpg")), "{told}");
    let once = told["expectations"].as_array().expect("a list").iter().find(|e| e["name"] == "exactly_once");
    let once = once.expect("it is expected");
    assert_eq!((&once["held"], &once["found"]), (&true.into(), &"so it is, as far as the loader came".into()), "{told}");

    let output = towtank(&[&common[..], &["--set", "loader.errors=skip"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told = report(&output);
    assert_eq!((told["measured"]["delivered"].as_u64(), told["measured"]["skipped"].as_u64()), (Some(10), Some(2)), "2 epochs");
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_done() {
    let output = sim(&["--trace", "/no/such/folder/trace.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/no/such/folder/trace.json") && stderr(&output).contains("hint"), "{}", stderr(&output));
    let output = towtank(&["run", "quickstart", "--set", "faults.stalled=[7]"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("fetch_deadline"), "{}", stderr(&output));
}

#[test]
fn an_explanation_names_the_bottleneck_and_what_relieves_it() {
    let args = ["explain", "slow-store", "--set", "dataset.count=320", "--seeds", "2"];
    let output = towtank(&[&args[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let explained = report(&output);
    assert_eq!(explained["bottleneck"]["name"], "fetch");
    assert!(explained["elasticities"].as_array().unwrap().iter().any(|c| c["resource"] == "first-byte speed"));
    assert!(explained["reliefs"][0]["gain_percent"]["mean"].as_f64().unwrap() > 1.0, "{explained}");
    let text = String::from_utf8(towtank(&args).stdout).unwrap();
    assert!(text.contains("Bottleneck: fetch") && text.contains("First reliefs"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("explained.html");
    let output = towtank(&[&args[..], &["--html", page.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("What if") && page.contains("first-byte speed"), "the chart has no bar for the relief");
    let wrong = towtank(&["explain", "slow-store", "--set", "loader.budget=1 MiB"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
}

#[test]
fn a_comparison_says_how_much_of_its_error_is_of_the_costs_and_how_much_of_the_structure() {
    let folder = tempfile::tempdir().expect("a folder");
    for index in 0..24 {
        let spec = synth::Spec { width: 200, height: 150, ..synth::Spec::plan(4, index) };
        fs::write(folder.path().join(format!("{index}.jpg")), synth::jpeg(&spec)).expect("an image");
    }
    let path = folder.path().to_str().expect("UTF-8");
    let output = towtank(&[
        "compare",
        "quickstart",
        "--json",
        "--data",
        path,
        "--set",
        "machine=reference-2core",
        "--set",
        "loader.batch=4",
        "--set",
        "consumer.step=0 ms",
    ]);
    let told = report(&output);
    let of = |side: &str| told[side]["samples_per_s"].as_f64().unwrap_or_else(|| panic!("{side}: {told}"));
    let error = |part: &str| told["errors"][part]["samples_per_s"].as_f64().unwrap_or_else(|| panic!("{part}: {told}"));
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(near(error("structure"), of("replayed") / of("measured") - 1.0), "{}", told["errors"]);
    assert!(near(error("cost_model"), of("simulated") / of("replayed") - 1.0), "{}", told["errors"]);
    assert_eq!(told["replayed"]["delivered"], told["measured"]["delivered"]);
    assert!(told["replayed"]["cpu_s"].as_f64() != told["simulated"]["cpu_s"].as_f64(), "it was fed with other times");
}

#[test]
fn a_loader_that_ends_early_is_not_explained() {
    let output = towtank(&["explain", "flaky-store", "--set", "loader.skip_at_most=0", "--set", "dataset.count=320"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("the loader ended early"), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_loader_of_another_design_is_simulated_and_not_run() {
    let sets = ["worker-processes", "--set", "dataset.count=640", "--set", "loader.workers=2"];
    let output = towtank(&[&["sim", "--json"], &sets[..]].concat());
    assert_eq!(report(&output)["simulated"]["delivered"], 640, "{}", stderr(&output));
    for (verb, why) in
        [("run", "not run"), ("compare", "not run"), ("tune", "cannot be tuned"), ("explain", "cannot be explained")]
    {
        let output = towtank(&[&[verb], &sets[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{verb}: {}", stderr(&output));
        for part in
            [why, "a loader of the design `worker-processes`", "hint: `towtank sim` simulates it, `towtank compare --measured`"]
        {
            assert!(stderr(&output).contains(part), "{verb}: {}", stderr(&output));
        }
    }
}

#[test]
fn what_was_there_stays_until_a_whole_file_takes_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (page, trace, mine) = (path("page.html"), path("trace.json"), path("mine.toml"));
    fs::write(&mine, "[dataset]\ncount = 64\n").unwrap();
    fs::write(path("user.json"), "{\"not\": \"ours\"}").unwrap();
    fs::write(path("user.html"), "<p>not ours</p>").unwrap();
    assert_eq!(sim(&[&LOOSE[..], &["--html", &page, "--trace", &trace]].concat()).status.code(), Some(0));
    let before = [&page, &trace].map(|file| fs::read(file).unwrap());
    // A wrong input, after the files are opened.
    let wrong = sim(&["--html", &page, "--trace", &trace, "--set", "loader.budget=1 MiB"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!([&page, &trace].map(|file| fs::read(file).unwrap()), before);
    for (flag, file) in [("--trace", "mine.toml"), ("--trace", "user.json"), ("--html", "user.html")] {
        let refused = sim(&[flag, &path(file)]);
        assert_eq!(refused.status.code(), Some(2), "{file}: {}", stderr(&refused));
        assert!(stderr(&refused).contains("it is left as it is"), "{}", stderr(&refused));
    }
    let both = sim(&["--html", &page, "--trace", &page]);
    assert_eq!(both.status.code(), Some(2), "{}", stderr(&both));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5, "nothing unfinished is left");
}

/// A copy of the node's model with one text replaced.
fn p4d_with(folder: &tempfile::TempDir, from: &str, to: &str) -> String {
    let model = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/models/p4d.24xlarge.toml")).unwrap();
    assert!(model.contains(from), "{from}");
    let path = folder.path().join("machine.toml");
    fs::write(&path, model.replace(from, to)).unwrap();
    format!("machine={}", path.display())
}

#[test]
fn links_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to, says) in [
        ("12.5 GB/s", "0 GB/s", "uplink"),
        ("devices = { value = 8", "devices = { value = 4_000_000_000", "at most"),
        ("devices_per_uplink = { value = 2", "devices_per_uplink = { value = 9", "on an uplink"),
    ] {
        let output = towtank(&["sim", "imagenet-p4d", "--set", &p4d_with(&folder, from, to), "--set", "dataset.count=16384"]);
        assert_eq!(output.status.code(), Some(2), "{to}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

#[test]
fn slow_links_are_named_and_faster_ones_relieve_them() {
    let folder = tempfile::tempdir().unwrap();
    let machine = p4d_with(&folder, "\"12 GB/s\"", "\"0.02 GB/s\"");
    let output =
        towtank(&["explain", "imagenet-p4d", "--seeds", "1", "--json", "--set", &machine, "--set", "dataset.count=16384"]);
    let explained = report(&output);
    assert_eq!(explained["bottleneck"]["name"], "transfer", "{explained:#}");
    let gain = |resource: &str| {
        let all = explained["elasticities"].as_array().unwrap();
        all.iter().find(|c| c["resource"] == resource).unwrap()["gain_percent"]["mean"].as_f64().unwrap()
    };
    assert!(gain("copy speed") > 5.0 && gain("decode speed").abs() < 1.0, "{explained:#}");
}

#[test]
fn nothing_is_busier_than_it_can_be_when_a_run_is_cut_short() {
    for sets in [
        &["consumer.leave_after=1"][..],
        &["faults.undecodable=20 %", "loader.errors=skip", "loader.skip_at_most=10"],
        &["ranks.count=1", "ranks.barrier=true"],
    ] {
        let mut args = vec!["sim", "imagenet-p4d", "--json", "--set", "dataset.count=16384", "--set", "loader.batch=32"];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let output = towtank(&args);
        let report = report(&output);
        for stage in report["simulated"]["stages"].as_array().unwrap() {
            let busy = stage["utilization"].as_f64().unwrap_or(0.0);
            assert!(busy <= 1.0 + 1e-9, "{sets:?}: {stage:#}");
        }
        for queue in report["simulated"]["queues"].as_array().unwrap() {
            if let (Some(peak), Some(capacity)) = (queue["peak"].as_u64(), queue["capacity"].as_u64()) {
                assert!(peak <= capacity, "{sets:?}: {queue:#}");
            }
        }
    }
}

#[test]
fn a_workload_of_dlio_becomes_a_scenario_and_what_is_left_out_is_said() {
    let workload = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/dlio/unet3d_h100.yaml");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("unet3d.toml");
    let imported = towtank(&["import", "dlio", workload, "--out", out.to_str().unwrap()]);
    assert_eq!(imported.status.code(), Some(0), "{}", stderr(&imported));
    assert!(stderr(&imported).contains("`checkpoint.model_size`: checkpoints are not simulated"), "{}", stderr(&imported));
    assert!(imported.stdout.is_empty());
    let printed = towtank(&["import", "dlio", workload]);
    assert_eq!(String::from_utf8_lossy(&printed.stdout), fs::read_to_string(&out).unwrap());
    let simulated = towtank(&["sim", out.to_str().unwrap(), "--json"]);
    assert_eq!(report(&simulated)["simulated"]["delivered"], 5 * 168);

    let wrong = folder.path().join("wrong.yaml");
    fs::write(&wrong, "reader:\n  batch_size: none\n").unwrap();
    let refused = towtank(&["import", "dlio", wrong.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("wrong.yaml:2:15"), "{}", stderr(&refused));
}

#[test]
fn a_prediction_and_a_trace_are_not_written_to_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("both.json");
    let file = file.to_str().unwrap();
    for flag in ["--trace", "--html"] {
        let output = towtank(&["sim", "slow-consumer", "--freeze", file, flag, file]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(&format!("what `{flag}` writes")), "{}", stderr(&output));
        assert!(!std::path::Path::new(file).exists());
    }
}

/// How an unfinished file of this process is called beside `name`.
#[cfg(target_os = "linux")]
fn unfinished(name: &str, process: u32) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host: String = host.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
    format!("{name}.unfinished-{host}-{process}")
}

#[cfg(target_os = "linux")]
#[test]
fn what_a_killed_process_left_goes_with_the_next_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // A process that has been.
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let (gone, here) = (gone.id(), std::process::id());
    let begun = "{\"displayTimeUnit\"";
    let stays = [
        (unfinished("trace.json", here), begun),
        (unfinished("other.json", gone), begun),
        (unfinished("trace.json", gone).replace(&format!("-{gone}"), &format!("x-{gone}")), begun),
        (format!("trace.json.unfinished-{gone}"), begun),
        ("trace.json.unfinished-notes".to_owned(), "mine"),
    ];
    for (name, text) in &stays {
        fs::write(at(name), text).unwrap();
    }
    let left = at(&unfinished("trace.json", gone));
    // Whatever it holds is no trace: it is somebody's.
    fs::write(&left, "mine").unwrap();
    let trace = || sim(&[&["--trace", at("trace.json").to_str().unwrap()], &LOOSE[..]].concat());
    assert_eq!(trace().status.code(), Some(0));
    assert!(left.exists());
    let start: String = fs::read_to_string(at("trace.json")).unwrap().chars().take(40).collect();
    for text in [&start[..], ""] {
        fs::write(&left, text).unwrap();
        assert_eq!(trace().status.code(), Some(0));
        assert!(!left.exists(), "{text:?}");
    }
    for (name, text) in &stays {
        assert_eq!(fs::read_to_string(at(name)).unwrap(), *text, "{name}");
    }
}

#[test]
fn a_share_of_no_gpu_is_refused() {
    for verb in ["run", "compare"] {
        let output = towtank(&[verb, "quickstart", "--gpu-share", "50"]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("`--gpu-share 50` has no meaning on the host"), "{}", stderr(&output));
    }
}

#[test]
fn a_dataset_of_any_size_is_refused_or_simulated() {
    for sets in [&["dataset.count=9223372036854775808"][..], &["dataset.count=9223372036854775808", "loader.epochs=4"]] {
        let output =
            towtank(&[&["sim", "slow-consumer"], &sets.iter().flat_map(|set| ["--set", set]).collect::<Vec<_>>()[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("`dataset.count` is too large"), "{}", stderr(&output));
    }
}
