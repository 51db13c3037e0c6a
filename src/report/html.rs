//! The report as one page for a browser: no network, no other file; light and dark, on screen and on paper.
//!
//! The same report and timelines give the same bytes. Whatever comes from a scenario, a machine or a file is escaped. The page is
//! readable without its script, which only adds the theme's button and the figures under the pointer.

use super::{
    Metrics, Report,
    humane::{bytes, percent, rate, seconds},
};
use crate::{trace::Timeline, units::counted};

mod bars;
mod curves;
mod tables;

/// What a change would bring: a bar of the what-if chart.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIf {
    /// What is changed, such as `cores`.
    pub name: String,
    /// How, such as `+10 %`.
    pub change: String,
    /// Samples per second after it.
    pub samples_per_s: f64,
    /// The low end of its interval; `samples_per_s` itself where there is none.
    pub low: f64,
    /// The high end of its interval.
    pub high: f64,
}

/// A page being put together.
#[derive(Clone, Debug)]
pub struct Html<'a> {
    report: &'a Report,
    simulated: Option<&'a Timeline>,
    measured: Option<&'a Timeline>,
    what_if: &'a [WhatIf],
}

/// One side of the report: its name, its class of colour, its figures and its run over time.
#[derive(Clone, Copy)]
struct Side<'a> {
    name: &'static str,
    class: &'static str,
    metrics: &'a Metrics,
    timeline: Option<&'a Timeline>,
}

impl<'a> Html<'a> {
    /// How every page begins.
    pub const START: &'static str = "<!DOCTYPE html>\n<html lang=\"en\" data-by=\"towtank\">";

    /// A page of `report`, without curves.
    pub fn new(report: &'a Report) -> Html<'a> {
        Html { report, simulated: None, measured: None, what_if: &[] }
    }

    /// Draws the simulated run over time.
    pub fn simulated(mut self, timeline: Option<&'a Timeline>) -> Html<'a> {
        self.simulated = timeline;
        self
    }

    /// Draws the measured run over time.
    pub fn measured(mut self, timeline: Option<&'a Timeline>) -> Html<'a> {
        self.measured = timeline;
        self
    }

    /// Draws what changes would bring.
    pub fn what_if(mut self, what_if: &'a [WhatIf]) -> Html<'a> {
        self.what_if = what_if;
        self
    }

    /// The page.
    pub fn render(&self) -> String {
        let report = self.report;
        let simulated =
            report.simulated.as_ref().map(|metrics| Side { name: "simulated", class: "sim", metrics, timeline: self.simulated });
        let measured =
            report.measured.as_ref().map(|metrics| Side { name: "measured", class: "real", metrics, timeline: self.measured });
        let sides: Vec<Side<'_>> = simulated.into_iter().chain(measured).collect();
        let title = escaped(&report.scenario);
        let mut body = format!(
            "<header><div><p class=\"brand\">Towtank</p><h1>{title}</h1>{}</div><button id=\"theme\" type=\"button\" hidden>Dark or light</button></header>\n<main>\n",
            settings(&sides, report.seed)
        );
        if let Some(error) = &report.error {
            body.push_str(&format!("<p class=\"alarm\" role=\"alert\">{}</p>\n", escaped(error)));
        }
        body.push_str(&cards(&sides, report));
        let mut section = |title: &str, note: &str, inside: String| {
            if !inside.is_empty() {
                body.push_str(&format!("<section><h2>{title}</h2>"));
                if !note.is_empty() {
                    body.push_str(&format!("<p class=\"note\">{note}</p>"));
                }
                body.push_str(&format!("{inside}</section>\n"));
            }
        };
        section("What limits it", "", verdict(&sides));
        section("Expectations", "", tables::expectations(report));
        section(
            "Predicted against measured",
            "Simulated over measured; for utilization, the difference in points.",
            report.errors.as_ref().map_or_else(String::new, bars::errors),
        );
        section(
            "Over time",
            "Mean number of leaves running, per stage, and what part of the consumers computes or waits. The dashed line is how many may, where it is near.",
            curves::stages(&sides),
        );
        section(
            "Queues over time",
            "What filled up between the stages. The dashed line is the capacity, where it is near.",
            curves::queues(&sides),
        );
        section("Where the consumer's time went", "", bars::stall(&sides));
        section(
            "At most, by the operational laws",
            "What each resource lets through at most, whatever the queues do. The line is the rate that was achieved.",
            bars::bounds(&sides),
        );
        section(
            "What if",
            "Samples per second after a change, with its interval. The line is the rate as it is.",
            self.whats(&sides),
        );
        section("Figures", "", tables::figures(&sides));
        section("Ranks", "", tables::ranks(&sides));
        section("Stages", "", tables::stages(&sides));
        section("Queues", "", tables::queues(&sides));
        page(&title, &body)
    }

    fn whats(&self, sides: &[Side<'_>]) -> String {
        sides.first().map_or_else(String::new, |side| bars::what_if(self.what_if, side.metrics.samples_per_s))
    }
}

/// A whole page: `title` is escaped, `body` begins with the header and leaves its `<main>` open.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "{}<head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{title} · Towtank</title>\n<style>\n{}</style></head>\n<body>\n\
         {body}</main>\n<footer>Towtank {}</footer>\n<script>\n{}</script>\n</body></html>\n",
        Html::START,
        include_str!("html/page.css"),
        env!("CARGO_PKG_VERSION"),
        include_str!("html/page.js"),
    )
}

/// `text` as it may stand in HTML, between tags or in a quoted attribute.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // HTML allows no other control characters.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn settings(sides: &[Side<'_>], seed: u64) -> String {
    let line = |side: &Side<'_>| {
        let m = side.metrics;
        let mut parts = vec![m.machine.clone()];
        parts.extend((m.cores > 0).then(|| counted(u64::from(m.cores), "core", "cores")));
        parts.extend((m.threads > 0).then(|| counted(u64::from(m.threads), "thread", "threads")));
        parts.push(m.device.clone());
        parts.extend(m.codec.as_ref().map(|codec| format!("codec {codec}")));
        parts.extend(m.budget_bytes.map(|b| format!("budget {}", bytes(b as f64))));
        parts.retain(|part| !part.is_empty());
        let what = escaped(&parts.join(", "));
        format!("<p class=\"setting\"><b class=\"{}\">{}</b> {what}, seed {seed}</p>", side.class, side.name)
    };
    sides.iter().map(line).collect()
}

fn cards(sides: &[Side<'_>], report: &Report) -> String {
    let mut out = String::from("<div class=\"cards\">");
    let mut card = |title: &str, figure: &dyn Fn(&Metrics) -> Option<String>, error: Option<String>| {
        let values: Vec<String> = sides
            .iter()
            .filter_map(|side| Some((side, figure(side.metrics)?)))
            .map(|(side, text)| {
                let label = if sides.len() > 1 {
                    format!("<small class=\"{}\">{}</small>", side.class, side.name)
                } else {
                    String::new()
                };
                format!("<dd>{}{label}</dd>", escaped(&text))
            })
            .collect();
        if !values.is_empty() {
            let error = error.map_or_else(String::new, |e| format!("<dd class=\"error\">off by {e}</dd>"));
            out.push_str(&format!("<dl><dt>{title}</dt>{}{error}</dl>", values.concat()));
        }
    };
    let errors = report.errors.as_ref();
    let relative = |e: Option<f64>| e.map(|e| format!("{:+.1} %", e * 100.0));
    card("Throughput", &|m| Some(rate(m.samples_per_s)), relative(errors.and_then(|e| e.samples_per_s)));
    card(
        "Accelerator busy",
        &|m| m.accelerator_utilization.map(percent),
        errors.and_then(|e| e.accelerator_utilization).map(|e| format!("{:+.1} points", e * 100.0)),
    );
    card("Data stall", &|m| Some(seconds(m.stall_s)), relative(errors.and_then(|e| e.stall_s)));
    card("First batch after", &|m| m.time_to_first_batch_s.map(seconds), relative(errors.and_then(|e| e.time_to_first_batch_s)));
    card("CPU time", &|m| m.cpu_s.map(seconds), relative(errors.and_then(|e| e.cpu_s)));
    card(
        "Peak bytes in flight",
        &|m| m.peak_bytes_in_flight.map(|b| bytes(b as f64)),
        relative(errors.and_then(|e| e.peak_bytes_in_flight)),
    );
    out.push_str("</div>\n");
    out
}

fn verdict(sides: &[Side<'_>]) -> String {
    let of = |side: &Side<'_>| {
        let b = &side.metrics.bottleneck;
        let name = if b.between.is_empty() { b.name.clone() } else { format!("{}: {}", b.name, b.between.join(" and ")) };
        format!(
            "<div class=\"verdict {}\"><h3>{} <small>{}</small></h3><p>{}</p><p>{}</p></div>",
            side.class,
            escaped(&name),
            side.name,
            escaped(&b.why),
            escaped(&b.relief)
        )
    };
    sides.iter().map(of).collect()
}

#[cfg(test)]
mod tests;
