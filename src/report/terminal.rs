//! The report for a person: figures side by side, then stages, queues, limits, the bottleneck and the expectations.

use std::{env, io::IsTerminal};

use self::table::{Align, Table};
use super::{
    Attributed, Errors, Interval, Metrics, RankMetrics, Report, StageMetrics,
    humane::{bytes, count, number, percent, rate, seconds},
};
use crate::{document::printable, units::counted};

pub(crate) mod table;

/// How a report is dressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// ASCII without colours: for files, pipes and `NO_COLOR`.
    Plain,
    /// Colours and a few signs beyond ASCII.
    Colour,
}

impl Style {
    /// What suits standard output: colours on a terminal that has them, unless `NO_COLOR` is set.
    pub fn for_stdout() -> Style {
        let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        if set("NO_COLOR") || dumb || !std::io::stdout().is_terminal() { Style::Plain } else { Style::Colour }
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Style::Plain => text.to_owned(),
            Style::Colour => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }
}

/// What stands for a figure that a run does not have.
const NONE: &str = "-";

type Column<'a> = (&'static str, &'a Metrics);

pub(super) fn render(report: &Report, style: Style) -> String {
    let sides = [("simulated", report.simulated.as_ref()), ("measured", report.measured.as_ref())];
    let columns: Vec<Column<'_>> = sides.into_iter().filter_map(|(name, m)| Some((name, m?))).collect();
    let mut out = format!("{}, seed {}\n", style.bold(&printable(&report.scenario)), report.seed);
    columns.iter().for_each(|column| out.push_str(&setting(column, style)));
    let mut section = |title: &str, body: String| {
        if !body.is_empty() {
            out.push('\n');
            if !title.is_empty() {
                out.push_str(&format!("{}\n", style.bold(title)));
            }
            out.push_str(&body);
        }
    };
    section("", figures(&columns, report.errors.as_ref(), style));
    section("predicted within", intervals(report, style));
    section("error, by where it comes from", origins(report, style));
    section("ranks", ranks(&columns, style));
    section("stages", stages(&columns, style));
    section("queues", queues(&columns, style));
    section("at most, by operational laws", limits(&columns, style));
    section("bottleneck", bottlenecks(&columns, style));
    section("expectations", expectations(report, style));
    match style {
        Style::Plain => out.replace('µ', "u"),
        Style::Colour => out,
    }
}

/// What ran: a line of what the machine was.
fn setting((side, m): &Column<'_>, style: Style) -> String {
    let mut parts = vec![printable(&m.machine).into_owned()];
    if m.cores > 0 {
        parts.push(counted(u64::from(m.cores), "core", "cores"));
    }
    if m.threads > 0 {
        parts.push(counted(u64::from(m.threads), "thread", "threads"));
    }
    parts.push(m.device.clone());
    parts.extend(m.codec.as_ref().map(|codec| format!("codec {codec}")));
    parts.extend(m.budget_bytes.map(|b| format!("budget {}", bytes(b as f64))));
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() { String::new() } else { style.faint(&format!("{side}: {}", parts.join(", "))) + "\n" }
}

fn figures(columns: &[Column<'_>], errors: Option<&Errors>, style: Style) -> String {
    let mut header = vec![String::new()];
    header.extend(columns.iter().map(|(side, _)| (*side).to_owned()));
    if errors.is_some() {
        header.push("error".to_owned());
    }
    let mut table = Table::new(header);
    let mut row = |name: &str, figure: &dyn Fn(&Metrics) -> Option<String>, error: Option<String>| {
        let values: Vec<Option<String>> = columns.iter().map(|(_, m)| figure(m)).collect();
        if values.iter().all(Option::is_none) {
            return;
        }
        let mut cells = vec![name.to_owned()];
        cells.extend(values.into_iter().map(|v| v.unwrap_or_else(|| NONE.to_owned())));
        cells.extend(error);
        table.row(cells);
    };
    let relative = |of: fn(&Errors) -> Option<f64>| errors.map(|e| of(e).map_or_else(|| NONE.to_owned(), signed_percent));
    let points = |e: f64| format!("{:+.1} points", e * 100.0);
    row("throughput", &|m| Some(rate(m.samples_per_s)), relative(|e| e.samples_per_s));
    row("  without start-up", &|m| m.steady_samples_per_s.map(rate), relative(|e| e.steady_samples_per_s));
    row("  by the bound alone", &|m| m.bounds.samples_per_s().map(rate), relative(|e| e.bound_samples_per_s));
    row(
        "accelerator utilization",
        &|m| m.accelerator_utilization.map(percent),
        errors.map(|e| e.accelerator_utilization.map_or_else(|| NONE.to_owned(), points)),
    );
    row("time to first batch", &|m| m.time_to_first_batch_s.map(seconds), relative(|e| e.time_to_first_batch_s));
    row("data stall", &|m| Some(seconds(m.stall_s)), relative(|e| e.stall_s));
    row("  fetch stall", &|m| m.fetch_stall_s.map(seconds), relative(|e| e.fetch_stall_s));
    row("  preparation stall", &|m| m.preparation_stall_s.map(seconds), relative(|e| e.preparation_stall_s));
    row("CPU time", &|m| m.cpu_s.map(seconds), relative(|e| e.cpu_s));
    row("peak bytes in flight", &|m| m.peak_bytes_in_flight.map(|b| bytes(b as f64)), relative(|e| e.peak_bytes_in_flight));
    let blank = || errors.map(|_| String::new());
    let samples = |n: u64| format!("{} samples", count(n));
    row("peak resident memory", &|m| m.peak_rss_bytes.map(|b| bytes(b as f64)), blank());
    row("processors, used by others", &|m| m.taken_by_others.map(percent), blank());
    row("delivered", &|m| Some(samples(m.delivered)), blank());
    row("skipped", &|m| m.skipped.map(samples), blank());
    for reason in reasons(columns) {
        let of = |m: &Metrics| m.skipped.map(|_| samples(m.skipped_by_reason.get(&reason).copied().unwrap_or(0)));
        row(&format!("  {reason}"), &of, blank());
    }
    row("dropped", &|m| m.dropped.filter(|n| *n > 0).map(samples), blank());
    row("still in flight", &|m| m.in_flight.filter(|n| *n > 0).map(samples), blank());
    row("batches", &|m| Some(count(m.batches)), blank());
    row("duration", &|m| Some(seconds(m.duration_s)), blank());
    row("trace hash", &|m| m.trace_hash.clone(), blank());
    table.render(Align::Right, |text| style.bold(text))
}

/// Where the simulated figures lie, and whether the measured ones lie there too; nothing when nobody asked.
fn intervals(report: &Report, style: Style) -> String {
    let Some(intervals) = &report.intervals else { return String::new() };
    let level = format!("{:.0} % of {} draws", intervals.level * 100.0, count(intervals.draws));
    let mut header = vec![level, "from".to_owned(), "to".to_owned()];
    header.extend(report.measured.as_ref().map(|_| "measured".to_owned()));
    let mut table = Table::new(header);
    let mut row = |name: &str, interval: Option<Interval>, figure: fn(&Metrics) -> Option<f64>, show: fn(f64) -> String| {
        let Some(interval) = interval else { return };
        let mut cells = vec![name.to_owned(), show(interval.low), show(interval.high)];
        cells.extend(report.measured.as_ref().map(|m| match figure(m) {
            Some(value) if interval.holds(value) => "within".to_owned(),
            Some(value) if value < interval.low => "below".to_owned(),
            Some(_) => "above".to_owned(),
            None => NONE.to_owned(),
        }));
        table.row(cells);
    };
    row("throughput", intervals.samples_per_s, |m| Some(m.samples_per_s), rate);
    row("  without start-up", intervals.steady_samples_per_s, |m| m.steady_samples_per_s, rate);
    row("accelerator utilization", intervals.accelerator_utilization, |m| m.accelerator_utilization, percent);
    row("time to first batch", intervals.time_to_first_batch_s, |m| m.time_to_first_batch_s, seconds);
    row("data stall", intervals.stall_s, |m| Some(m.stall_s), seconds);
    row("CPU time", intervals.cpu_s, |m| m.cpu_s, seconds);
    table.render(Align::Right, |text| style.faint(text))
}

/// The errors taken apart; nothing without a replay.
fn origins(report: &Report, style: Style) -> String {
    let Some((whole, replayed)) = report.errors.as_ref().zip(report.replayed.as_ref()) else { return String::new() };
    let Some((structure, costs)) = whole.structure.zip(whole.cost_model) else { return String::new() };
    let header = ["", "replayed", "error", "of the cost model", "of structure"];
    let mut table = Table::new(header.map(str::to_owned).to_vec());
    let mut row = |name: &str, figure: Option<String>, of: fn(&Attributed) -> Option<f64>, points: bool| {
        let Some(figure) = figure else { return };
        let error = |part: &Attributed| match of(part) {
            Some(e) if points => format!("{:+.1} points", e * 100.0),
            Some(e) => signed_percent(e),
            None => NONE.to_owned(),
        };
        table.row(vec![name.to_owned(), figure, error(&whole.attributed()), error(&costs), error(&structure)]);
    };
    let m = replayed;
    row("throughput", Some(rate(m.samples_per_s)), |e| e.samples_per_s, false);
    row("  without start-up", m.steady_samples_per_s.map(rate), |e| e.steady_samples_per_s, false);
    row("accelerator utilization", m.accelerator_utilization.map(percent), |e| e.accelerator_utilization, true);
    row("time to first batch", m.time_to_first_batch_s.map(seconds), |e| e.time_to_first_batch_s, false);
    row("data stall", Some(seconds(m.stall_s)), |e| e.stall_s, false);
    row("CPU time", m.cpu_s.map(seconds), |e| e.cpu_s, false);
    table.render(Align::Right, |text| style.faint(text))
}

/// Each rank, or of many the slowest and the fastest; nothing of one alone.
fn ranks(columns: &[Column<'_>], style: Style) -> String {
    let head = [&["", ""][..], &RankMetrics::COLUMNS].concat();
    let mut table = Table::new(head.into_iter().map(str::to_owned).collect());
    for (side, m) in columns {
        for (name, rank) in RankMetrics::told(&m.ranks) {
            let mut row = vec![name, (*side).to_owned()];
            row.extend(rank.cells(NONE));
            table.row(row);
        }
    }
    table.render(Align::Right, |text| style.faint(text))
}

fn reasons(columns: &[Column<'_>]) -> Vec<String> {
    let mut all: Vec<String> = columns.iter().flat_map(|(_, m)| m.skipped_by_reason.keys().cloned()).collect();
    all.sort();
    all.dedup();
    all
}

fn stages(columns: &[Column<'_>], style: Style) -> String {
    let head = [&["", ""][..], &StageMetrics::COLUMNS].concat();
    let mut table = Table::new(head.into_iter().map(str::to_owned).collect());
    for (name, rows) in by_name(columns, |m| &m.stages, |s| &s.name) {
        for (i, (side, s)) in rows.into_iter().enumerate() {
            let mut row = vec![if i == 0 { name.clone() } else { String::new() }, side.to_owned()];
            row.extend(s.cells(NONE));
            table.row(row);
        }
    }
    table.render(Align::Right, |text| style.faint(text))
}

fn queues(columns: &[Column<'_>], style: Style) -> String {
    let mut table = Table::new(["", "", "mean", "peak", "of"].map(str::to_owned).to_vec());
    for (name, rows) in by_name(columns, |m| &m.queues, |q| &q.name) {
        for (i, (side, q)) in rows.into_iter().enumerate() {
            let amount = |n: f64| if q.name.ends_with("bytes") { bytes(n) } else { number(n) };
            let whole = |n: u64| if q.name.ends_with("bytes") { bytes(n as f64) } else { count(n) };
            table.row(vec![
                if i == 0 { name.clone() } else { String::new() },
                side.to_owned(),
                amount(q.mean),
                q.peak.map_or_else(|| NONE.to_owned(), whole),
                q.capacity.map_or_else(|| NONE.to_owned(), whole),
            ]);
        }
    }
    table.render(Align::Right, |text| style.faint(text))
}

/// The entries of all columns, grouped by name in the order in which names first come.
fn by_name<'a, T>(
    columns: &[Column<'a>],
    of: fn(&Metrics) -> &Vec<T>,
    name: fn(&T) -> &String,
) -> Vec<(String, Vec<(&'static str, &'a T)>)> {
    let mut groups: Vec<(String, Vec<(&'static str, &'a T)>)> = Vec::new();
    for (side, m) in columns {
        for entry in of(m) {
            match groups.iter_mut().find(|(known, _)| known == name(entry)) {
                Some((_, rows)) => rows.push((side, entry)),
                None => groups.push((name(entry).clone(), vec![(side, entry)])),
            }
        }
    }
    groups
}

fn limits(columns: &[Column<'_>], style: Style) -> String {
    let mut table = Table::new(Vec::new());
    for (side, m) in columns {
        let mut cells = vec![(*side).to_owned()];
        cells.extend(m.bounds.limits.iter().map(|b| format!("{} {}", b.name, rate(b.samples_per_s))));
        if cells.len() > 1 {
            table.row(cells);
        }
    }
    table.render(Align::Left, |text| style.faint(text))
}

fn bottlenecks(columns: &[Column<'_>], style: Style) -> String {
    let mut out = String::new();
    for (side, m) in columns {
        let b = &m.bottleneck;
        let name = if b.between.is_empty() { b.name.clone() } else { format!("{}: {}", b.name, b.between.join(" and ")) };
        out.push_str(&format!("{side}: {}\n  {}\n  {}\n", style.bold(&name), b.why, b.relief));
    }
    out
}

fn expectations(report: &Report, style: Style) -> String {
    let widest = report.expectations.iter().map(|e| e.name.chars().count()).max().unwrap_or(0);
    let line = |e: &super::Expectation| {
        let sign = match (style, e.held) {
            (Style::Plain, true) => "ok    ".to_owned(),
            (Style::Plain, false) => "FAILED".to_owned(),
            (Style::Colour, true) => style.good("✓"),
            (Style::Colour, false) => style.bad("✗"),
        };
        let found = if e.held { e.found.clone() } else { style.bad(&e.found) };
        format!("{sign} {:widest$}  {}; found {found}\n", e.name, e.wanted)
    };
    report.expectations.iter().map(line).collect()
}

fn signed_percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

#[cfg(test)]
mod tests;
