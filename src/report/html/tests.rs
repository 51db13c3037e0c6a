use super::*;
use crate::{
    report::{Expectation, Facts},
    trace::{Recorder, oracle::Toy},
};

fn run(samples: u64, seed: u64) -> (Metrics, Timeline) {
    let toy = Toy { samples, seed, decode_ns: 1_000_000, ..Toy::default() };
    let mut recorder = Recorder::new().preparation_servers(toy.servers as u32).keep_timeline();
    toy.events().into_iter().for_each(|e| recorder.record(e));
    let facts = Facts { threads: toy.servers as u32, lanes: toy.lanes as u32, copies: 1, ring_slots: 24, ..Facts::default() };
    let metrics = Metrics::of(&recorder, &facts);
    (metrics, recorder.timeline().unwrap().clone())
}

const HOSTILE: &str = "</title><script>alert(1)</script><img src=x onerror=\"a\" b='c'>&\u{1}";

fn page(title: &str, samples: u64) -> String {
    let ((sim, sim_line), (mut real, real_line)) = (run(samples, 1), run(samples, 9));
    real.machine = title.to_owned();
    let mut report = Report::new(title, 7, Some(sim), Some(real));
    report.error = Some(title.to_owned());
    let text = || title.to_owned();
    report.expectations = vec![
        Expectation { name: text(), held: false, wanted: text(), found: text() },
        Expectation { name: "exactly_once".to_owned(), held: true, wanted: "once".to_owned(), found: "once".to_owned() },
    ];
    let what_if = [WhatIf { name: text(), change: text(), samples_per_s: 1100.0, low: 1000.0, high: 1200.0 }];
    Html::new(&report).simulated(Some(&sim_line)).measured(Some(&real_line)).what_if(&what_if).render()
}

/// The tags of `page` in order; what is between them must not contain `<`. Ends the test where they do not match.
fn balanced(page: &str) -> Vec<String> {
    let cut = |text: &str, tag: &str| {
        let (before, rest) = text.split_once(&format!("<{tag}>")).unwrap();
        format!("{before}{}", rest.split_once(&format!("</{tag}>")).unwrap().1)
    };
    let page = cut(&cut(page, "style"), "script");
    let (mut open, mut seen) = (Vec::new(), Vec::new());
    for piece in page.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').unwrap_or_else(|| panic!("`<{piece}` is not closed"));
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap().to_owned();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_ref(), Some(&name), "</{name}>");
        } else if !tag.ends_with('/') && !["!DOCTYPE", "meta"].contains(&name.as_str()) {
            open.push(name.clone());
        }
        seen.push(name);
    }
    assert!(open.is_empty(), "{open:?} are left open");
    seen
}

#[test]
fn every_tag_is_closed_and_every_chart_is_there() {
    let page = page("quickstart", 2000);
    let tags = balanced(&page);
    assert!(tags.iter().filter(|tag| *tag == "svg").count() >= 14, "{tags:?}");
    for title in ["What limits it", "Expectations", "Over time", "Queues over time", "What if", "Predicted against measured"] {
        assert!(page.contains(&format!("<h2>{title}</h2>")), "{title}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf\""));
}

#[test]
fn hostile_text_stays_text() {
    let tags = balanced(&page(HOSTILE, 100));
    assert_eq!(tags, balanced(&page("plain", 100)));
}

#[test]
fn nothing_is_fetched() {
    let page = page("quickstart", 100);
    for fetches in ["http:", "https:", "url(", "@import", " src=", "<link", "fetch("] {
        assert!(!page.contains(fetches), "{fetches}");
    }
}

#[test]
fn the_same_run_is_the_same_page_and_a_long_run_no_larger_one() {
    assert_eq!(page("quickstart", 300), page("quickstart", 300));
    assert!(page("quickstart", 20_000).len() < 400_000);
}

#[test]
fn a_run_that_delivered_nothing_has_a_page_too() {
    let metrics = Metrics::of(&Recorder::new(), &Facts::default());
    let report = Report::new("nothing", 0, Some(metrics), None);
    balanced(&Html::new(&report).simulated(Some(&Timeline::new())).render());
}
