//! Tables: whatever is drawn above, in figures.

use super::{
    super::{
        Metrics, RankMetrics, Report, StageMetrics,
        humane::{bytes, count, number, percent, rate, seconds},
    },
    Side, escaped,
};

const NONE: &str = "–";

/// Whether each expectation held.
pub(super) fn expectations(report: &Report) -> String {
    let row = |e: &super::super::Expectation| {
        let (class, word) = if e.held { ("held", "✓ held") } else { ("failed", "✗ failed") };
        format!(
            "<tr><td class=\"{class}\">{word}</td><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>",
            escaped(&e.name),
            escaped(&e.wanted),
            escaped(&e.found)
        )
    };
    if report.expectations.is_empty() {
        return String::new();
    }
    let rows: String = report.expectations.iter().map(row).collect();
    table("words", &["", "", "expected", "found"], &rows)
}

/// The figures of all sides.
pub(super) fn figures(sides: &[Side<'_>]) -> String {
    type Figure = (&'static str, fn(&Metrics) -> Option<String>);
    let figures: [Figure; 15] = [
        ("throughput", |m| Some(rate(m.samples_per_s))),
        ("without start-up", |m| m.steady_samples_per_s.map(rate)),
        ("least bound", |m| m.bounds.samples_per_s().map(rate)),
        ("accelerator utilization", |m| m.accelerator_utilization.map(percent)),
        ("time to first batch", |m| m.time_to_first_batch_s.map(seconds)),
        ("data stall", |m| Some(seconds(m.stall_s))),
        ("CPU time", |m| m.cpu_s.map(seconds)),
        ("peak bytes in flight", |m| m.peak_bytes_in_flight.map(|b| bytes(b as f64))),
        ("peak resident memory", |m| m.peak_rss_bytes.map(|b| bytes(b as f64))),
        ("samples delivered", |m| Some(count(m.delivered))),
        ("samples skipped", |m| m.skipped.map(count)),
        ("batches", |m| Some(count(m.batches))),
        ("duration", |m| Some(seconds(m.duration_s))),
        ("events", |m| Some(count(m.events))),
        ("trace hash", |m| m.trace_hash.clone()),
    ];
    let mut rows = String::new();
    for (name, figure) in figures {
        let values: Vec<Option<String>> = sides.iter().map(|side| figure(side.metrics)).collect();
        if values.iter().any(Option::is_some) {
            let cells = values.into_iter().map(|v| format!("<td>{}</td>", escaped(v.as_deref().unwrap_or(NONE))));
            rows.push_str(&format!("<tr><th scope=\"row\">{name}</th>{}</tr>", cells.collect::<String>()));
        }
    }
    let mut head = vec![""];
    head.extend(sides.iter().map(|side| side.name));
    table("", &head, &rows)
}

/// Each rank, or of many the slowest and the fastest; nothing of one alone.
pub(super) fn ranks(sides: &[Side<'_>]) -> String {
    let mut rows = String::new();
    for side in sides {
        for (name, rank) in RankMetrics::told(&side.metrics.ranks) {
            rows.push_str(&line(&name, side.name, &rank.cells(NONE)));
        }
    }
    let head = [&["", ""][..], &RankMetrics::COLUMNS].concat();
    if rows.is_empty() { rows } else { table("", &head, &rows) }
}

/// What the leaves of each stage did.
pub(super) fn stages(sides: &[Side<'_>]) -> String {
    let mut rows = String::new();
    for side in sides {
        for s in &side.metrics.stages {
            rows.push_str(&line(&s.name, side.name, &s.cells(NONE)));
        }
    }
    let head = [&["", ""][..], &StageMetrics::COLUMNS].concat();
    if rows.is_empty() { rows } else { table("", &head, &rows) }
}

/// How full the queues were.
pub(super) fn queues(sides: &[Side<'_>]) -> String {
    let mut rows = String::new();
    for side in sides {
        for q in &side.metrics.queues {
            let in_bytes = q.name.ends_with("bytes");
            let whole = |n: u64| if in_bytes { bytes(n as f64) } else { count(n) };
            let or_none = |n: Option<u64>| n.map_or_else(|| NONE.to_owned(), whole);
            let mean = if in_bytes { bytes(q.mean) } else { number(q.mean) };
            rows.push_str(&line(&q.name, side.name, &[mean, or_none(q.peak), or_none(q.capacity)]));
        }
    }
    table("", &["", "", "mean", "peak", "of"], &rows)
}

fn line(name: &str, side: &str, cells: &[String]) -> String {
    let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
    format!("<tr><th scope=\"row\">{}</th><td class=\"side\">{side}</td>{cells}</tr>", escaped(name))
}

fn table(class: &str, head: &[&str], rows: &str) -> String {
    let head: String = head
        .iter()
        .map(|title| if title.is_empty() { "<td></td>".to_owned() } else { format!("<th scope=\"col\">{title}</th>") })
        .collect();
    format!("<div class=\"scroll\"><table class=\"{class}\"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>")
}
