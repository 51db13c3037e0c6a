//! `towtank check --trace`: what another loader delivered, as a script sees it.

use std::{fs, process::Command};

use tempfile::TempDir;

use super::{report, stderr, towtank};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/recorded.jsonl");

/// Six samples in batches of four, twice, as the fixture has them.
fn scenario(folder: &TempDir) -> String {
    let path = folder.path().join("other.toml");
    let text = "title = \"Another loader\"\n[dataset]\nkind = \"synthetic\"\ncount = 6\n[loader]\nbatch = 4\nepochs = 2\n";
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn told(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_is_of_another_run_is_told_with_the_way_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(&folder);
    let output = towtank(&["check", &file, "--trace", FIXTURE, "--set", "loader.batch=5"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = told(&output);
    assert!(text.contains("note: the trace has batches of 4, the scenario of 5: `--set loader.batch=4`"), "{text}");

    let timeline = folder.path().join("timeline.json");
    let output = towtank(&["sim", "slow-consumer", "--set", "dataset.count=32", "--trace", timeline.to_str().unwrap()]);
    assert!(timeline.exists(), "{}", stderr(&output));
    let output = towtank(&["check", &file, "--trace", timeline.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("this is a trace for Perfetto"), "{}", stderr(&output));
}

#[test]
fn a_sound_trace_holds_and_what_it_cannot_show_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let output = towtank(&["check", &scenario(&folder), "--trace", FIXTURE]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = told(&output).replace(FIXTURE, "recorded.jsonl");
    insta::assert_snapshot!(text, @r"
    checked `recorded.jsonl` against `other`: 12 samples in 4 batches of PyTorch DataLoader, 2 workers
      not judged  order_kept                     the scenario shuffles, and every loader shuffles in its own way
                  ranks_disjoint_complete_equal  the scenario has one rank
                  errors_surfaced_or_counted     the trace does not tell `skipped`, what was left out
                  epochs_differ                  so few samples come in the same order by chance
                  progress                       a trace tells what came, and not whether anything still would have: a loader that hangs records no end
                  bytes_within_budget            a training loop does not see the loader's memory
                  slots_not_reused_early         a training loop does not see where batches lie
                  content_intact                 a trace has no content
                  work_conservation              a training loop does not see who waits inside the loader
                  clean_stop                     what is left when a loader is stopped is behind the end of its trace
                  streams_distinct               a trace has no draws of the augmentation
                  same_run_again                 a run on real threads is not repeated event for event
                  same_order_any_schedule        that takes a second trace, with one worker
                  resume_exact                   a trace has no states to go on from
                  seeds_differ                   that takes a second trace, with another seed
                  plan_whole                     that is of this crate's plans, before anything runs
                  errors_justified               a trace does not tell of errors that end a loader
                  retries_justified              a training loop does not see who is asked for a sample, and how often
                  state_kept                     a trace has no states
                  redeal_exact                   a trace has no states to go on from
      holds       exactly_once                   each of 6 samples in each of 2 epochs
                  batches_whole                  4 samples in each but an epoch's last
      nothing is broken
    ");
    let output = towtank(&["check", &scenario(&folder), "--trace", FIXTURE, "--json"]);
    let found = report(&output);
    assert_eq!((&found["epochs"], &found["traces"][0]["samples"]), (&2.into(), &12.into()));
    let invariants = found["invariants"].as_array().unwrap();
    assert!(invariants.iter().any(|i| i["invariant"] == "clean_stop" && i["verdict"] == "not judged"));
}

#[test]
fn what_is_broken_is_exit_code_1_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(FIXTURE).unwrap();
    let bad = folder.path().join("bad.jsonl");
    let bad_path = bad.to_str().unwrap();
    for (from, to, invariant, line, why) in [
        (
            "\"samples\": 2, \"indices\": [2, 4]",
            "\"samples\": 1, \"indices\": [2]",
            "exactly_once",
            5,
            "sample 4 never came in epoch 1",
        ),
        ("[2, 0, 5, 1]", "[2, 0, 5, 2]", "exactly_once", 2, "sample 2 of epoch 0 came twice, both times in this line"),
        ("[4, 3]", "[4, 5]", "exactly_once", 3, "sample 5 of epoch 0 came twice, first in line 2"),
    ] {
        assert!(text.contains(from));
        fs::write(&bad, text.replace(from, to)).unwrap();
        let output = towtank(&["check", &scenario(&folder), "--trace", bad_path]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let told = told(&output);
        assert!(told.contains(invariant) && told.contains(&format!("{bad_path}:{line}: {why}")), "{told}");
        let end: Vec<&str> = told.lines().rev().take(3).collect();
        assert!(end[0].starts_with("  broken: ") && end[0].contains(invariant), "{told}");
        assert!(end[1..].iter().any(|line| line.contains(invariant)), "what is broken is seen at the end: {told}");
    }
    let output = towtank(&["check", &scenario(&folder), "--trace", FIXTURE, "--set", "loader.shuffle=false", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let found = report(&output);
    let order = found["invariants"].as_array().unwrap().iter().find(|i| i["invariant"] == "order_kept").unwrap().clone();
    assert_eq!((&order["verdict"], &order["line"]), (&"broken".into(), &2.into()), "{order}");
}

#[test]
fn a_broken_file_is_exit_code_2_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let (scenario, bad) = (scenario(&folder), folder.path().join("bad.jsonl"));
    let text = fs::read_to_string(FIXTURE).unwrap();
    fs::write(&bad, text.replace("\"got\": 100.7", "\"got\": 100.5")).unwrap();
    let bad = bad.to_str().unwrap();
    let output = towtank(&["check", &scenario, "--trace", bad]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains(&format!("--> {bad}:3:")) && stderr(&output).contains("time goes backwards"),
        "{}",
        stderr(&output)
    );
    let nowhere = towtank(&["check", &scenario, "--trace", "no/such/trace.jsonl"]);
    assert_eq!(nowhere.status.code(), Some(2));
    let many = towtank(&["check", &scenario, "--trace", FIXTURE, "--trace", FIXTURE]);
    assert_eq!(many.status.code(), Some(2));
    assert!(stderr(&many).contains("a trace too many"), "{}", stderr(&many));
    let both = towtank(&["check", &scenario, "--trace", FIXTURE, "--seeds", "3"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn what_the_documented_recorder_writes_of_a_sound_loader_holds() {
    const LOOP: &str = "
import random, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from record import record
class Loader:
    def __iter__(self):
        order = random.sample(range(6), 6)
        return iter([order[:4], order[4:]])
tell = lambda batch: {'samples': len(batch), 'indices': batch}
for batch in record(Loader(), sys.argv[2], epochs=2, tell=tell, loader='a list', batch=4):
    pass
";
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/docs");
    let Ok(python) = Command::new("python3").args(["-c", LOOP, docs]).arg(&trace).output() else {
        eprintln!("skipped: there is no python3 to run docs/record.py with");
        return;
    };
    assert!(python.status.success(), "{}", stderr(&python));
    let output = towtank(&["check", &scenario(&folder), "--trace", trace.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}{}", told(&output), stderr(&output));
    assert!(told(&output).contains("each of 6 samples in each of 2 epochs"), "{}", told(&output));
}

#[test]
fn a_dataset_that_no_trace_can_be_of_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = scenario(&folder);
    let count = ["--set", "dataset.count=9223372036854775808", "--set", "machine=reference-2core"];
    for verb in [&["check", &scenario, "--trace", FIXTURE][..], &["compare", &scenario, "--measured", FIXTURE]] {
        let output = towtank(&[verb, &count[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let told = stderr(&output);
        assert!(told.contains("is larger than a recorded trace can be") && told.contains("at most 4_294_967_296"), "{told}");
        assert!(told.contains("dataset.count=9223372036854775808"), "{told}");
    }
}

#[test]
fn names_in_a_trace_do_nothing_to_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(FIXTURE).unwrap().replace("PyTorch DataLoader", "\\u001b[31mPyTorch");
    let file = folder.path().join("\u{1b}]0;mine\u{7}.jsonl");
    fs::write(&file, text).unwrap();
    let output = towtank(&["check", &scenario(&folder), "--trace", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(told(&output).contains("␛]0;mine␇.jsonl") && told(&output).contains("of ␛[31mPyTorch"), "{}", told(&output));
    fs::write(&file, "no trace").unwrap();
    let output = towtank(&["check", &scenario(&folder), "--trace", file.to_str().unwrap()]);
    assert!(!stderr(&output).contains('\u{1b}') && stderr(&output).contains("␛]0;mine␇.jsonl"), "{}", stderr(&output));
}
