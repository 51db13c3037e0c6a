//! `towtank check` and `towtank replay`.

use std::fs;

use serde_json::Value;

use super::{report, stderr, towtank};

/// A read that never ends, and nobody who looks at the clock: a hang.
const HANGS: [&str; 2] = ["--set", "faults.stalled=[3]"];

#[test]
fn a_check_tells_what_it_looked_at_and_what_it_never_reached() {
    let output = towtank(&["check", "flaky-store", "--seeds", "40", "--swarm", "--jobs", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("checked `flaky-store`, cut to 64 of 4000 samples in batches of 16"), "{told}");
    assert!(told.contains("40 seeds") && told.contains("a read was retried") && told.contains("nothing is broken"), "{told}");
    let output = towtank(&["check", "flaky-store", "--seeds", "3", "--chooser", "fifo", "--json"]);
    let found = report(&output);
    assert_eq!((&found["seeds"], &found["samples"]), (&Value::from(3), &Value::from(64)));
    assert_eq!(found["coverage"]["a choice differed from first come, first served"], 0);
}

#[test]
fn all_schedules_are_counted_or_it_is_said_that_there_are_more() {
    let small = ["--samples", "2", "--set", "loader.batch=2", "--set", "loader.lanes=2", "--set", "loader.epochs=1"];
    let check =
        |chooser: &str, more: &[&str]| towtank(&[&["check", "slow-consumer", "--chooser", chooser], &small[..], more].concat());
    let output = check("exhaustive", &["--seeds", "100000", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found = report(&output);
    let (seen, all) = (found["schedules"]["seen"].as_u64().unwrap(), &found["schedules"]["all"]);
    assert!(seen > 6 && *all == true && found["runs"].as_u64() >= Some(seen) && found["seeds"] == 1, "{found}");
    let told = |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let output = check("exhaustive", &["--seeds", "100000"]);
    assert!(told(&output).contains(&format!("all {seen} schedules of the scenario's own seed")), "{}", told(&output));
    let output = check("exhaustive", &["--seeds", "5"]);
    assert!(told(&output).contains("the first 5 of more schedules"), "{}", told(&output));
    let output = check("pct:2", &["--seeds", "5", "--json"]);
    assert_eq!((&report(&output)["seeds"], &report(&output)["schedules"]), (&Value::from(5), &Value::Null));
    for wrong in ["pct", "pct:0", "pct:x", "best"] {
        let output = check(wrong, &[]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(stderr(&output).contains("such as `pct:3`"), "{}", stderr(&output));
    }
    assert_eq!(check("exhaustive", &["--shard", "0/2"]).status.code(), Some(2));
}

#[test]
fn shards_share_the_seeds() {
    let seeds = |shard: &str| {
        let output = towtank(&["check", "slow-consumer", "--seeds", "9", "--samples", "8", "--shard", shard, "--json"]);
        report(&output)["seeds"].as_u64().unwrap()
    };
    assert_eq!([seeds("0/4"), seeds("1/4"), seeds("3/4")], [3, 2, 2]);
    for wrong in ["4/4", "1", "a/b", "0/18446744073709551615"] {
        let output = towtank(&["check", "slow-consumer", "--shard", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(stderr(&output).contains("such as `0/4`"), "{}", stderr(&output));
    }
    for none in [&["--seeds", "0"][..], &["--seeds", "4", "--shard", "5/1000"]] {
        let output = towtank(&[&["check", "slow-consumer"], none].concat());
        assert_eq!(output.status.code(), Some(2), "{none:?}");
        assert!(stderr(&output).contains("leaves nothing to check"), "{}", stderr(&output));
    }
}

#[test]
fn shards_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let part = |shard: &str, more: &[&str]| {
        let mut args = vec!["check", "tiny-memory", "--samples", "8", "--json", "--shard", shard, "--out"];
        args.push(folder.path().to_str().unwrap());
        if !more.contains(&"--seeds") {
            args.extend(["--seeds", "6"]);
        }
        let output = towtank(&[&args[..], more].concat());
        let file = folder.path().join(format!("{}.json", shard.replace('/', "-")));
        fs::write(&file, &output.stdout).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let [first, second] = [part("0/2", &[]), part("1/2", &[])];
    let output = towtank(&["merge", &first, &second]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let merged = report(&output);
    let waited = &merged["coverage"]["the consumer waited for a batch"];
    assert_eq!((&merged["seeds"], waited), (&Value::from(6), &Value::from(6)));
    assert_eq!(merged["shards"]["missing"], serde_json::json!([]));
    let refused = |files: &[&String], why: &str| {
        let output = towtank(&[vec!["merge"], files.iter().map(|file| file.as_str()).collect()].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(why), "{why}: {}", stderr(&output));
    };
    refused(&[&first, &second, &first], "would count twice");
    refused(&[&first], "of 2 shards 1 is not here, so their seeds were not looked at: `1/2`");
    let alone = towtank(&["merge", &first, "--partial"]);
    assert_eq!((alone.status.code(), &report(&alone)["shards"]["missing"]), (Some(0), &serde_json::json!([1])));
    assert!(stderr(&alone).contains("note: of 2 shards 1 is not here"), "{}", stderr(&alone));
    let whole = folder.path().join("merged.json");
    fs::write(&whole, &output.stdout).unwrap();
    refused(&[&whole.to_str().unwrap().to_owned()], "is merged already");

    // What is not of the same search.
    refused(&[&first, &part("1/3", &[])], "is one of 3 shards");
    for (more, why) in [
        (&["--swarm"][..], "has `swarm` true"),
        (&["--chooser", "pct:3"], "has `chooser` \"pct:3\""),
        (&["--seed", "77"], "has `seed` 77"),
        (&["--seeds", "8"], "has `seeds` 8"),
        (&["--set", "loader.batch=8"], "is of another search"),
        (&["--set", "consumer.step=7 ms"], "has `fingerprint` "),
    ] {
        refused(&[&first, &part("1/2", more)], why);
    }
    let text = fs::read_to_string(&first).unwrap();
    for (what, why) in [
        (text.replace("\"runs\": ", "\"runs\": -"), "is no report of a check"),
        (text.replace("\"took_s\": ", "\"took_s\": -"), "is no report of a check"),
        (text.replace("\"search\"", "\"sought\""), "is of an earlier version"),
    ] {
        let wrong = folder.path().join("wrong.json");
        fs::write(&wrong, what).unwrap();
        refused(&[&wrong.to_str().unwrap().to_owned(), &second], why);
    }

    let [first, broken] = [part("0/2", &HANGS), part("1/2", &HANGS)];
    let output = towtank(&["merge", &first, &broken]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(report(&output)["failures"].as_array().unwrap().len(), 2);
    assert!(stderr(&output).contains("an invariant is broken: 2 failures of \"tiny-memory\""), "{}", stderr(&output));
    let other = towtank(&["merge", &first, folder.path().join("none.json").to_str().unwrap()]);
    assert_eq!(other.status.code(), Some(2));
    assert!(stderr(&other).contains("cannot be read"), "{}", stderr(&other));
    refused(&[&folder.path().to_str().unwrap().to_owned()], "is a folder");
}

#[test]
fn a_failure_is_shrunk_written_and_repeated_with_the_same_hash() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let output = towtank(&[&["check", "tiny-memory", "--seeds", "5", "--json", "--out", out], &HANGS[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let story = stderr(&output);
    assert!(story.contains("progress is broken") && story.contains("the store never answers"), "{story}");
    assert!(story.contains("note: reads that are never answered (`faults.stalled`) hang any loader"), "{story}");
    let found = report(&output)["failures"][0].clone();
    assert_eq!((&found["invariant"], &found["samples"]), (&Value::from("progress"), &Value::from(1)), "{found}");
    assert_eq!(found["before"]["samples"], 64, "{found}");
    assert!(story.contains("before     64 samples in 1 epoch,"), "{story}");
    let file = found["file"].as_str().unwrap();

    let replayed = towtank(&["replay", file, "--json"]);
    assert_eq!(replayed.status.code(), Some(1), "{}", stderr(&replayed));
    let again = report(&replayed);
    assert_eq!((&again["trace_hash"], &again["same_trace"]), (&found["trace_hash"], &Value::from(true)));
    assert_eq!(again["why"], found["why"]);
    let told = towtank(&["replay", file]);
    assert!(String::from_utf8_lossy(&told.stdout).contains("progress is broken"), "{}", stderr(&told));

    // Found in another loader, of which this program knows nothing.
    let own = folder.path().join("own.toml");
    let text = fs::read_to_string(file).unwrap();
    fs::write(&own, text.replace("[replay]", "[replay]\ndesign = \"mine::Loader\"")).unwrap();
    let foreign = towtank(&["replay", own.to_str().unwrap()]);
    assert_eq!(foreign.status.code(), Some(2), "{}", stderr(&foreign));
    assert!(stderr(&foreign).contains("was found in a loader of somebody's own, `mine::Loader`"), "{}", stderr(&foreign));

    // Mended: somebody looks at the clock now.
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, text.replace("[loader]", "[loader]\nfetch_deadline = \"1 s\"")).unwrap();
    let mended = towtank(&["replay", file]);
    assert_eq!(mended.status.code(), Some(0), "{}", stderr(&mended));
    assert!(String::from_utf8_lossy(&mended.stdout).contains("does not fail any more"));
}

#[test]
fn what_cannot_be_repeated_is_said() {
    let output = towtank(&["replay", "flaky-store"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("has no `[replay]`"), "{}", stderr(&output));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.toml");
    fs::write(&path, "title = \"wrong\"\n[replay]\ninvariant = \"exactly_twice\"\n").unwrap();
    let output = towtank(&["replay", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("did you mean `exactly_once`?"), "{}", stderr(&output));
}

#[test]
fn what_would_check_nothing_is_refused() {
    for (flag, value) in [("--samples", "0"), ("--jobs", "0"), ("--twice-every", "0")] {
        let output = towtank(&["check", "slow-consumer", flag, value]);
        assert_eq!(output.status.code(), Some(2), "{flag}");
        assert!(stderr(&output).contains("expected at least 1"), "{}", stderr(&output));
    }
    let output = towtank(&["synth", "--count", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("expected at least 1"), "{}", stderr(&output));
}

#[test]
fn where_failures_cannot_be_written_is_told_before_anything_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    for out in [file.clone(), file.join("inside/of/it")] {
        let output = towtank(&["check", "slow-consumer", "--seeds", "1", "--out", out.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(output.stdout.is_empty(), "nothing was checked");
        assert!(stderr(&output).contains("failures cannot be written to the folder"), "{}", stderr(&output));
    }
    let new = folder.path().join("new/folder");
    let output = towtank(&["check", "slow-consumer", "--seeds", "1", "--samples", "4", "--out", new.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!new.exists(), "it is made for a failure only");
}

#[test]
fn a_check_ends_with_what_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let output = towtank(&[&["check", "tiny-memory", "--seeds", "1", "--seed", "5", "--out", out], &HANGS[..]].concat());
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(told.lines().last(), Some("  broken: progress under seed 5"), "{told}");
    assert!(told.contains("  1 seed from 5, 1 run, "), "{told}");
    assert!(stderr(&output).ends_with("error: an invariant is broken: progress under seed 5\n"), "{}", stderr(&output));
}
