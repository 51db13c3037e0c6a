//! `towtank tune`, as a script sees it.

use std::fs;

use super::{report, stderr, towtank};

/// A small space on a small dataset.
fn tune(more: &[&str]) -> std::process::Output {
    let space = "threads=1|2,lanes=4|16,ring=32|64,prefetch=1|2,budget=24 MiB|32 MiB|48 MiB";
    let common = ["tune", "slow-consumer", "--set", "dataset.count=320", "--seeds", "2", "--space", space];
    towtank(&[&common[..], more].concat())
}

#[test]
fn the_winner_is_told_and_written_as_a_scenario_that_holds_its_goal() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (out, page) = (path("tuned.toml"), path("tuned.html"));
    let args = ["--for", "AU >= 90 %", "--cheapest", "memory,cores", "--json", "--out", &out, "--html", &page];
    let output = tune(&args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told = report(&output);
    let winner = &told["winner"]["settings"];
    assert_eq!((winner["budget_bytes"].as_u64(), winner["threads"].as_u64()), (Some(24 << 20), Some(1)), "{winner}");
    assert_eq!((told["points"].as_u64(), told["proof"]["open"].as_u64()), (Some(48), Some(0)));
    assert!(told["front"].as_array().is_some_and(|front| !front.is_empty()) && told["limit"].is_null());
    assert!(stderr(&output).contains("simulations in"), "{}", stderr(&output));

    let text = fs::read_to_string(&out).unwrap();
    assert!(
        text.starts_with("# Tuned by Towtank: the cheapest in memory, then cores with accelerator utilization >= 90 %\n"),
        "{text}"
    );
    assert!(text.contains("threads = 1\n") && text.contains("budget = \"24 MiB\"\n") && text.contains("count = 320"), "{text}");
    let simulated = towtank(&["sim", &out, "--json"]);
    assert_eq!(simulated.status.code(), Some(0), "{}", stderr(&simulated));
    let names: Vec<String> =
        report(&simulated)["expectations"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["accelerator_utilization", "exactly_once", "order_kept"]);
    assert!(fs::read_to_string(&page).unwrap().contains("<svg class=\"scatter\""));
    // A tuned scenario may be written over, and nothing else.
    assert_eq!(tune(&args).status.code(), Some(0));
    fs::write(&out, "title = \"mine\"\n").unwrap();
    let refused = tune(&args);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("is no tuned scenario: it is left as it is"), "{}", stderr(&refused));
}

#[test]
fn people_are_told_what_it_buys_what_it_costs_and_how_sure_it_is() {
    let output = tune(&["--for", "AU >= 90 %"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in
        ["cheapest memory, then cores", "loader.threads", "It costs: memory 128 MiB → 24.0 MiB", "No cheaper point", "Front:"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_goal_that_nothing_meets_is_exit_code_1_with_the_best_and_what_limits_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tuned.toml");
    let output = tune(&["--for", "throughput >= 5000 samples/s", "--json", "--out", out.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.contains("no settings in the space meet throughput >= 5000 samples/s"), "{told}");
    assert!(told.contains("the best that was reached: throughput 5") && told.contains("what limits it: consumer"), "{told}");
    assert!(told.contains("by the operational laws, throughput is at most 533 samples/s"), "{told}");
    assert!(report(&output)["winner"].is_null() && !out.exists());
}

#[test]
fn what_is_no_question_is_exit_code_2_with_its_place() {
    for (args, says) in [
        (&["--for", "AU > 90 %"] as &[&str], "a goal for `accelerator_utilization` cannot be `>`"),
        (&["--for", "AUU >= 90 %"], "there is no figure `AUU`"),
        (&["--for", "AU >= 90 %", "--cheapest", "money"], "`money` is no cost"),
        (&["--for", "AU >= 90 %", "--space", "thread=1..2"], "did you mean `threads`?"),
        (&["--for", "AU >= 90 %", "--set", "loader.bach=3"], "unknown field `bach`"),
        (&["--for", "AU >= 90 %", "--seeds", "0"], "--seeds"),
    ] {
        let output = towtank(&[&["tune", "slow-consumer"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty() && stderr(&output).contains(says), "{args:?}: {}", stderr(&output));
    }
    let silent = towtank(&["tune", "quickstart"]);
    assert_eq!(silent.status.code(), Some(2));
    assert!(stderr(&silent).contains("nothing says what `quickstart` has to meet"), "{}", stderr(&silent));
    let wide = towtank(&[
        "tune",
        "slow-consumer",
        "--for",
        "AU >= 9 %",
        "--space",
        "threads=1..9999999,lanes=1..9999999,ring=32..9999999",
    ]);
    assert_eq!(wide.status.code(), Some(2));
    assert!(stderr(&wide).contains("give some fewer values"), "{}", stderr(&wide));
}
