//! What must be met: `AU >= 95 %`.

use std::{fmt, sync::Arc};

use serde::{Serialize, Serializer};

use crate::{
    document::{Diagnostic, Place, Source, Spanned, Trouble},
    report::{Metrics, humane},
    scenario::{Bound, Figure as _, Scenario},
    units::{Count, Duration, Fraction, Quantity, SampleRate, Size, UnitError, nearest},
};

/// A figure that a goal may be about: one of those that scenarios expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Samples per second the consumer gets; more is better.
    Throughput,
    /// Part of the time that the accelerator computes; more is better.
    AcceleratorUtilization,
    /// Until the consumer has its first batch \[s\]; less is better.
    TimeToFirstBatch,
    /// CPU time of the whole run \[s\]; less is better.
    Cpu,
    /// The most memory the loaders held \[B\]; less is better.
    PeakBytesInFlight,
    /// Samples left out; fewer are better.
    Skipped,
}

/// Each figure with its words; the first is the name of its expectation.
const WORDS: &[(Figure, &[&str])] = &[
    (Figure::Throughput, &["throughput", "samples_per_s"]),
    (Figure::AcceleratorUtilization, &["accelerator_utilization", "au"]),
    (Figure::TimeToFirstBatch, &["time_to_first_batch", "ttfb"]),
    (Figure::Cpu, &["cpu", "cpu_time"]),
    (Figure::PeakBytesInFlight, &["peak_bytes_in_flight"]),
    (Figure::Skipped, &["skipped"]),
];

impl Figure {
    /// The name of its expectation, such as `accelerator_utilization`.
    pub fn name(self) -> &'static str {
        WORDS.iter().find(|(figure, _)| *figure == self).map_or("", |(_, words)| words[0])
    }

    /// Its name for people.
    pub fn title(self) -> String {
        self.name().replace('_', " ")
    }

    /// Whether more of it is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Figure::Throughput | Figure::AcceleratorUtilization)
    }

    /// What a run came to, in samples per second, a share from 0 to 1, seconds, bytes or samples; `None` when it has no such figure.
    ///
    /// `part` is how much of the whole scenario the run was, from 0 to 1. What adds up over a run is projected to the whole; and since
    /// a cut would blow up the share of the start, throughput is then that without start-up.
    pub fn of(self, metrics: &Metrics, part: f64) -> Option<f64> {
        let whole = part >= 1.0;
        match self {
            Figure::Throughput if whole => (metrics.delivered > 0).then_some(metrics.samples_per_s),
            Figure::Throughput => metrics.steady_samples_per_s,
            Figure::AcceleratorUtilization => metrics.accelerator_utilization,
            Figure::TimeToFirstBatch => metrics.time_to_first_batch_s,
            Figure::Cpu => metrics.cpu_s.map(|s| if whole { s } else { s / part }),
            Figure::PeakBytesInFlight => metrics.peak_bytes_of_a_rank().map(|b| b as f64),
            Figure::Skipped if whole => metrics.skipped.map(|n| n as f64),
            Figure::Skipped => metrics.skipped.map(|n| n as f64 / part),
        }
    }

    /// A value of it for people.
    pub fn told(self, value: f64) -> String {
        match self {
            Figure::Throughput => humane::rate(value),
            Figure::AcceleratorUtilization => humane::percent(value),
            Figure::TimeToFirstBatch | Figure::Cpu => humane::seconds(value),
            Figure::PeakBytesInFlight => humane::bytes(value),
            Figure::Skipped => format!("{} samples", humane::number(value)),
        }
    }
}

/// What a figure must reach: at least where more is better, else at most.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Which figure.
    pub figure: Figure,
    /// The value that still meets it, in the figure's unit.
    pub value: f64,
    /// As it was written, in the unit that was meant.
    written: String,
}

impl Goal {
    /// Reads `FIGURE OP VALUE`, such as `AU >= 95 %` or `time to first batch <= 500 ms`.
    ///
    /// # Errors
    ///
    /// When it is none, with what was probably meant.
    pub fn parse(text: &str) -> Result<Goal, Trouble> {
        let source = Source::flag("--for", text);
        let place = |start: usize, end: usize| Place::new(&source, start..end);
        let whole = place(0, text.len());
        let Some((at, sign)) = operator(text) else {
            let wrong = Diagnostic::new(format!("`{text}` is no goal: it does not say how much")).at(Some(&whole));
            return Err(wrong.expected("`FIGURE >= VALUE` or `FIGURE <= VALUE`, such as `AU >= 95 %`").into());
        };
        let (name, rest) = (text[..at].trim_end(), &text[at + sign.len()..]);
        let figure = figure(name, &place(0, name.len().max(1)))?;
        let meant = if figure.more_is_better() { ">=" } else { "<=" };
        if !matches!((sign, meant), (">=" | "≥", ">=") | ("<=" | "≤", "<=")) {
            let better = if figure.more_is_better() { "more" } else { "less" };
            let wrong = Diagnostic::new(format!("a goal for `{}` cannot be `{sign}`: {better} of it is better", figure.name()));
            let wrong = wrong.at(Some(&place(at, at + sign.len()))).expected(format!("`{meant}`"));
            return Err(wrong.hint(format!("write `--for \"{} {meant} {}\"`", figure.name(), rest.trim())).into());
        }
        let start = at + sign.len() + rest.len() - rest.trim_start().len();
        let (value, written) = value(figure, rest.trim(), &Place::new(&source, start..start + rest.trim().len()))?;
        Ok(Goal { figure, value, written })
    }

    /// Whether `value` meets it.
    pub fn met_by(&self, value: Option<f64>) -> bool {
        value.is_some_and(|v| if self.figure.more_is_better() { v >= self.value } else { v <= self.value })
    }

    /// `>=` or `<=`.
    pub fn sign(&self) -> &'static str {
        if self.figure.more_is_better() { ">=" } else { "<=" }
    }

    /// The expectation that says the same in a scenario: its path, and its value.
    pub fn expectation(&self) -> (String, String) {
        let side = if self.figure.more_is_better() { "min" } else { "max" };
        (format!("expect.{}.{side}", self.figure.name()), self.written.clone())
    }
}

/// What a scenario expects of its figures that can be a goal: at least so much, at most so much. Used where nobody says a goal.
pub fn expected(scenario: &Scenario) -> Vec<Goal> {
    fn side<D: crate::units::Dimension>(
        goals: &mut Vec<Goal>,
        figure: Figure,
        scale: f64,
        bound: Option<&Spanned<Bound<Quantity<D>>>>,
    ) {
        let Some(bound) = bound.map(|b| &b.value) else { return };
        let limit = if figure.more_is_better() { bound.min } else { bound.max };
        goals.extend(limit.map(|v| Goal { figure, value: v.figure() * scale, written: v.to_string() }));
    }
    let mut goals = Vec::new();
    let expect = &scenario.expect;
    side(&mut goals, Figure::AcceleratorUtilization, 1.0, expect.accelerator_utilization.as_ref());
    side(&mut goals, Figure::Throughput, 1.0, expect.throughput.as_ref());
    side(&mut goals, Figure::TimeToFirstBatch, 1e-9, expect.time_to_first_batch.as_ref());
    goals
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.figure.title(), self.sign(), self.written)
    }
}

impl Serialize for Goal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The first comparison in `text`: where it stands and what it is.
fn operator(text: &str) -> Option<(usize, &str)> {
    let at = text.find(['<', '>', '≥', '≤', '='])?;
    let len: usize = text[at..].chars().take_while(|c| matches!(c, '<' | '>' | '≥' | '≤' | '=')).map(char::len_utf8).sum();
    Some((at, &text[at..at + len]))
}

fn figure(name: &str, place: &Place) -> Result<Figure, Diagnostic> {
    let plain = name.trim().to_lowercase().replace([' ', '-'], "_");
    let known = || WORDS.iter().flat_map(|(figure, words)| words.iter().map(move |word| (*figure, *word)));
    if let Some((figure, _)) = known().find(|(_, word)| *word == plain) {
        return Ok(figure);
    }
    let list: Vec<String> = WORDS.iter().map(|(_, words)| format!("`{}`", words[0])).collect();
    let hint = nearest(&plain, known().map(|(_, word)| word)).map(|near| format!("did you mean `{near}`?")).unwrap_or_default();
    let wrong = Diagnostic::new(format!("there is no figure `{name}` to be met")).at(Some(place));
    Err(wrong.expected(format!("one of {}", list.join(", "))).hint(hint))
}

/// A value of `figure`, and how it is written in its unit.
fn value(figure: Figure, text: &str, place: &Place) -> Result<(f64, String), Diagnostic> {
    let wrong = |e: UnitError| Diagnostic::new(format!("the goal of `{}` {}", figure.name(), e.predicate())).hint(e.hint());
    let told = |e: UnitError, example: &str| wrong(e).at(Some(place)).expected(example.to_owned());
    let read = match figure {
        Figure::Throughput => {
            text.parse::<SampleRate>().map(|v| (v.per_s(), v.to_string())).map_err(|e| told(e, "a rate such as `1300 samples/s`"))
        }
        Figure::AcceleratorUtilization => {
            text.parse::<Fraction>().map(|v| (v.base(), v.to_string())).map_err(|e| told(e, "a percentage such as `95 %`"))
        }
        Figure::TimeToFirstBatch | Figure::Cpu => {
            text.parse::<Duration>().map(|v| (v.as_secs_f64(), v.to_string())).map_err(|e| told(e, "a duration such as `500 ms`"))
        }
        Figure::PeakBytesInFlight => {
            text.parse::<Size>().map(|v| (v.base(), v.to_string())).map_err(|e| told(e, "a size such as `2 GiB`"))
        }
        Figure::Skipped => text.parse::<Count>().map(|v| (v.0 as f64, v.to_string())).map_err(|e| told(e, "a whole number")),
    }?;
    if figure == Figure::AcceleratorUtilization && read.0 > 1.0 {
        let wrong = Diagnostic::new(format!("an accelerator cannot be used to more than 100 %, and {} was asked for", read.1));
        return Err(wrong.at(Some(place)).expected("at most `100 %`"));
    }
    Ok(read)
}

/// All goals that were typed; each figure once.
///
/// # Errors
///
/// When one is none, or two are about the same figure.
pub fn goals(typed: &[String]) -> Result<Vec<Goal>, Trouble> {
    let mut goals: Vec<Goal> = Vec::new();
    for text in typed {
        let goal = Goal::parse(text)?;
        if goals.iter().any(|g| g.figure == goal.figure) {
            let source: Arc<Source> = Source::flag("--for", text);
            let wrong = Diagnostic::new(format!("two goals for `{}`", goal.figure.name()));
            return Err(wrong.at(Some(&Place::new(&source, 0..text.len()))).expected("one goal for each figure").into());
        }
        goals.push(goal);
    }
    Ok(goals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read_as_people_write_them() {
        let goal = |text: &str| Goal::parse(text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(goal("AU >= 95 %").figure, Figure::AcceleratorUtilization);
        assert!((goal("accelerator utilization>=95%").value - 0.95).abs() < 1e-12);
        assert_eq!(goal("time to first batch ≤ 500 ms").value, 0.5);
        assert_eq!(goal("throughput >= 1_300 images/s").to_string(), "throughput >= 1300 samples/s");
        assert_eq!(goal("peak_bytes_in_flight <= 2 GiB").value, 2.0 * 1024.0 * 1024.0 * 1024.0);
        assert_eq!(goal("AU >= 95 %").expectation(), ("expect.accelerator_utilization.min".to_owned(), "95 %".to_owned()));
        assert!(goal("skipped <= 0").met_by(Some(0.0)) && !goal("skipped <= 0").met_by(Some(1.0)));
        assert!(!goal("AU >= 95 %").met_by(None));
    }

    #[test]
    fn what_is_no_goal_says_what_would_be_one() {
        let error = |text: &str| Goal::parse(text).unwrap_err().to_string();
        insta::assert_snapshot!(error("AU"), @"
        error: `AU` is no goal: it does not say how much
         --> --for
          |
          | AU
          | ^^ expected `FIGURE >= VALUE` or `FIGURE <= VALUE`, such as `AU >= 95 %`
        ");
        insta::assert_snapshot!(error("troughput >= 3 samples/s"), @"
        error: there is no figure `troughput` to be met
         --> --for
          |
          | troughput >= 3 samples/s
          | ^^^^^^^^^ expected one of `throughput`, `accelerator_utilization`, `time_to_first_batch`, `cpu`, `peak_bytes_in_flight`, `skipped`
        hint: did you mean `throughput`?
        ");
        insta::assert_snapshot!(error("AU <= 95 %"), @r#"
        error: a goal for `accelerator_utilization` cannot be `<=`: more of it is better
         --> --for
          |
          | AU <= 95 %
          |    ^^ expected `>=`
        hint: write `--for "accelerator_utilization >= 95 %"`
        "#);
        insta::assert_snapshot!(error("AU >= 0.95"), @r#"
        error: the goal of `accelerator_utilization` is "0.95" without a unit
         --> --for
          |
          | AU >= 0.95
          |       ^^^^ expected a percentage such as `95 %`
        hint: the unit is `%`
        "#);
        assert!(error("AU >= 101 %").contains("cannot be used to more than 100 %"));
        let twice = goals(&["AU >= 9 %".to_owned(), "AU >= 8 %".to_owned()]).unwrap_err().to_string();
        assert!(twice.contains("two goals for `accelerator_utilization`"), "{twice}");
    }
}
