use super::*;
use crate::scenario::{self, Overrides};

/// What is to be loaded: six samples in batches of four unless it is said otherwise.
fn scenario(more: &str) -> Scenario {
    set(more, &["loader.shuffle=false"])
}

/// The same, with this set over it.
fn set(more: &str, sets: &[&str]) -> Scenario {
    let text = format!("title = \"theirs\"\nmachine = \"ideal\"\n[dataset]\ncount = 6\n[loader]\nbatch = 4\n{more}");
    scenario::parse("theirs.toml", &text, &Overrides::set(sets.iter().copied())).unwrap_or_else(|e| panic!("{e}"))
}

/// A trace of these batches, each an epoch and its samples, with its last line.
fn trace(batches: &[(u32, &[u64])]) -> String {
    let told: Vec<String> = batches.iter().map(|(epoch, samples)| line(*epoch, samples, "")).collect();
    format!("{{\"towtank_trace\": 1, \"start\": 0.0}}\n{}{{\"end\": 1000.0}}\n", told.concat())
}

fn line(epoch: u32, samples: &[u64], more: &str) -> String {
    format!("{{\"epoch\": {epoch}, \"asked\": 1, \"got\": 1, \"samples\": {}, \"indices\": {samples:?}{more}}}\n", samples.len())
}

fn judge(scenario: &Scenario, traces: &[String]) -> Judged {
    let count = scenario.dataset.count().unwrap_or(0);
    let mut check = TraceCheck::new(scenario, count).unwrap_or_else(|e| panic!("{e}"));
    for (rank, trace) in traces.iter().enumerate() {
        check.read(&format!("rank-{rank}.jsonl"), trace.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    }
    check.finish().unwrap_or_else(|e| panic!("{e}"))
}

/// Every invariant that is broken, and how.
fn broken(scenario: &Scenario, traces: &[String]) -> Vec<String> {
    let told = judge(scenario, traces).verdicts.into_iter().filter_map(|(name, verdict)| match verdict {
        Verdict::Broken { why, file, line, more } => Some(format!("{name}, {file}:{line}: {why}, {more} more")),
        Verdict::Held(_) | Verdict::NotJudged(_) => None,
    });
    told.collect()
}

fn names(judged: &Judged, is: impl Fn(&Verdict) -> bool) -> Vec<&'static str> {
    judged.verdicts.iter().filter(|(_, verdict)| is(verdict)).map(|(name, _)| *name).collect()
}

#[test]
fn a_sound_trace_breaks_nothing_and_every_invariant_is_judged_or_said_not_to_be() {
    let judged =
        judge(&scenario("epochs = 2\n"), &[trace(&[(0, &[0, 1, 2, 3]), (0, &[4, 5]), (1, &[0, 1, 2, 3]), (1, &[4, 5])])]);
    assert!(judged.holds() && judged.epochs == 2);
    let held = names(&judged, |verdict| matches!(verdict, Verdict::Held(_)));
    assert_eq!(held, [EXACTLY_ONCE, BATCHES_WHOLE, ORDER_KEPT]);
    let mut all = names(&judged, |_| true);
    all.sort_unstable();
    let mut known: Vec<&str> = super::super::NAMES.iter().copied().filter(|name| *name != "no_panic").collect();
    known.sort_unstable();
    assert_eq!(all, known, "no invariant is passed over");
}

#[test]
fn what_is_lost_doubled_or_foreign_is_found_with_its_line() {
    let one = scenario("");
    let lost = broken(&one, &[trace(&[(0, &[0, 1, 2]), (0, &[4, 5])])]);
    assert_eq!(
        lost,
        [
            "exactly_once, rank-0.jsonl:3: sample 3 never came in epoch 0, whose last line this is, 0 more",
            "batches_whole, rank-0.jsonl:2: this batch has 3 samples of 4, and is not the last of epoch 0, 0 more",
        ]
    );
    let doubled = broken(&one, &[trace(&[(0, &[0, 1, 2, 3]), (0, &[3, 5])])]);
    assert!(
        doubled[0].starts_with("exactly_once, rank-0.jsonl:3: sample 3 of epoch 0 came twice, first in line 2, 1 more"),
        "{doubled:?}"
    );
    let in_one_line = broken(&set("", &["loader.shuffle=true"]), &[trace(&[(0, &[0, 1, 1, 3]), (0, &[2, 5])])]);
    assert!(in_one_line[0].contains("sample 1 of epoch 0 came twice, both times in this line"), "{in_one_line:?}");
    let foreign = broken(&one, &[trace(&[(0, &[0, 1, 2, 3]), (0, &[4, 6])])]);
    assert!(foreign[0].starts_with("exactly_once, rank-0.jsonl:3: sample 6 is not in the dataset, which has 6"), "{foreign:?}");
    let no_second = broken(&scenario("epochs = 2\n"), &[trace(&[(0, &[0, 1, 2, 3]), (0, &[4, 5])])]);
    assert_eq!(no_second, ["exactly_once, rank-0.jsonl:3: 2 epochs were to come, and 1 did, 0 more"]);
    let gap = broken(&scenario("epochs = 3\n"), &[trace(&[(0, &[0, 1, 2, 3]), (0, &[4, 5]), (2, &[0, 1, 2, 3]), (2, &[4, 5])])]);
    assert_eq!(gap, ["exactly_once, rank-0.jsonl:4: epoch 2 comes after epoch 0, 0 more"]);
}

#[test]
fn another_order_is_found_where_nothing_shuffles() {
    let traces = [trace(&[(0, &[0, 2, 1, 3]), (0, &[4, 5])])];
    assert_eq!(broken(&scenario(""), &traces), ["order_kept, rank-0.jsonl:2: sample 1 of epoch 0 comes after sample 2, 0 more"]);
    let shuffled = set("", &["loader.shuffle=true"]);
    assert!(judge(&shuffled, &traces).holds());
}

#[test]
fn a_shuffle_that_forgets_the_epoch_is_found() {
    let order: Vec<u64> = (0..30).map(|k| k * 7 % 30).collect();
    let other: Vec<u64> = (0..30).map(|k| k * 11 % 30).collect();
    let sets = ["dataset.count=30", "loader.batch=30", "loader.shuffle=true", "loader.epochs=2"];
    let many = set("", &sets);
    assert_eq!(
        broken(&many, &[trace(&[(0, &order), (1, &order)])]),
        ["epochs_differ, rank-0.jsonl:3: epoch 1 comes in the order of the epoch before, 0 more"]
    );
    assert!(judge(&many, &[trace(&[(0, &order), (1, &other)])]).holds());
}

#[test]
fn ranks_share_the_samples() {
    let two = scenario("[ranks]\ncount = 2\n");
    let of = |a: &[u64], b: &[u64]| [trace(&[(0, a)]), trace(&[(0, b)])];
    let judged = judge(&two, &of(&[0, 2, 4], &[1, 3, 5]));
    assert!(judged.holds() && names(&judged, |v| matches!(v, Verdict::Held(_))).contains(&RANKS_SHARE));
    let both = broken(&two, &of(&[0, 2, 4], &[1, 2, 5]));
    assert!(both.iter().any(|b| b == "ranks_disjoint_complete_equal, rank-1.jsonl:2: sample 2 of epoch 0 came to rank 0, line 2, and to rank 1, 0 more"), "{both:?}");
    assert!(both.iter().any(|b| b.starts_with("exactly_once, rank-0.jsonl:2: sample 3 never came")), "{both:?}");
    let steps = broken(&two, &[trace(&[(0, &[0, 2, 4])]), trace(&[(0, &[1, 3]), (0, &[5])])]);
    assert!(steps.iter().any(|b| b.contains("epoch 0 has 2 batches, and 1 were planned")), "{steps:?}");
    let mut one = TraceCheck::new(&two, 6).unwrap_or_else(|e| panic!("{e}"));
    one.read("first.jsonl", trace(&[(0, &[0, 2, 4])]).as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    assert!(one.finish().expect_err("the other is missing").to_string().contains("2 ranks, and there are traces of 1"));
}

#[test]
fn batches_are_whole_and_the_last_is_dropped_where_that_is_asked_for() {
    let dropping = scenario("drop_last = true\n");
    assert!(judge(&dropping, &[trace(&[(0, &[0, 1, 2, 3])])]).holds());
    let kept = broken(&dropping, &[trace(&[(0, &[0, 1, 2, 3]), (0, &[4, 5])])]);
    assert_eq!(kept, ["batches_whole, rank-0.jsonl:3: this batch has 2 samples of 4, and `drop_last` is asked for, 0 more"]);
    let dropped = broken(&scenario(""), &[trace(&[(0, &[0, 1, 2, 3])])]);
    assert_eq!(
        dropped,
        [
            "exactly_once, rank-0.jsonl:2: sample 4 never came in epoch 0, whose last line this is, nor did 1 more, 0 more",
            "batches_whole, rank-0.jsonl:2: epoch 0 has 1 batches, and 2 were planned, 0 more",
        ]
    );
    let large = broken(&scenario(""), &[trace(&[(0, &[0, 1, 2, 3, 4]), (0, &[5])])]);
    assert!(large[0].contains("this batch has 5 samples, and 4 are a full one"), "{large:?}");
}

#[test]
fn what_was_left_out_is_accounted_for() {
    let skipping = scenario("errors = \"skip\"\n");
    let with = |lines: &[String]| format!("{{\"towtank_trace\": 1, \"start\": 0.0}}\n{}{{\"end\": 9.0}}\n", lines.concat());
    let told = with(&[line(0, &[0, 1, 3, 4], ", \"skipped\": [2]"), line(0, &[5], ", \"skipped\": []")]);
    let judged = judge(&skipping, std::slice::from_ref(&told));
    assert!(judged.holds() && names(&judged, |v| matches!(v, Verdict::Held(_))).contains(&ERRORS_SURFACED));
    let lost = broken(&skipping, &[with(&[line(0, &[0, 1, 4, 5], ", \"skipped\": [2]")])]);
    assert_eq!(lost, ["exactly_once, rank-0.jsonl:2: sample 3 never came in epoch 0, whose last line this is, 0 more"]);
    let both = broken(&skipping, &[with(&[line(0, &[0, 1, 2, 3], ", \"skipped\": [2]"), line(0, &[4, 5], "")])]);
    assert_eq!(
        both,
        ["errors_surfaced_or_counted, rank-0.jsonl:2: sample 2 of epoch 0 came, and line 2 says that it was left out, 0 more"]
    );
    let forbidden = broken(&scenario(""), &[told]);
    assert!(forbidden[0].contains("sample 2 was left out, and the scenario has `errors = \"fail\"`"), "{forbidden:?}");
    let last = format!(
        "{{\"towtank_trace\": 1, \"start\": 0.0}}\n{}{{\"end\": 9.0, \"skipped\": [4, 5]}}\n",
        line(0, &[0, 1, 2, 3], "")
    );
    assert!(judge(&skipping, &[last]).holds());
    let silent = judge(&skipping, &[trace(&[(0, &[0, 1, 3, 4]), (0, &[5])])]);
    assert!(silent.holds(), "it may have been skipped");
    assert!(matches!(&silent.verdicts[0], (EXACTLY_ONCE, Verdict::Held(words)) if words.contains("does not tell `skipped`")));
}

#[test]
fn a_trace_without_its_end_says_nothing_of_what_would_have_come() {
    let whole = trace(&[(0, &[0, 1, 2, 3]), (0, &[4, 5]), (1, &[0, 1, 2, 3])]);
    let cut = whole.replace("{\"end\": 1000.0}\n", "");
    let two = scenario("epochs = 2\n");
    assert!(judge(&two, &[cut]).holds());
    assert!(broken(&two, &[whole])[0].contains("sample 4 never came in epoch 1"));
    let lost = trace(&[(0, &[0, 1, 2, 3]), (0, &[4]), (1, &[0, 1, 2, 3])]).replace("{\"end\": 1000.0}\n", "");
    assert!(broken(&two, &[lost])[0].contains("sample 5 never came in epoch 0"), "the first epoch is whole");
}

#[test]
fn without_indices_it_is_said_what_is_not_judged() {
    let text = "{\"towtank_trace\": 1, \"start\": 0.0}\n{\"asked\": 1, \"got\": 1, \"samples\": 4}\n{\"asked\": 1, \"got\": 1, \"samples\": 2}\n";
    let judged = judge(&scenario(""), &[format!("{text}{{\"end\": 2}}\n")]);
    assert!(judged.holds());
    assert_eq!(names(&judged, |v| matches!(v, Verdict::Held(_))), [BATCHES_WHOLE]);
}
