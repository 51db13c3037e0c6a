//! What a scenario expects, and whether it holds.

use std::fmt;

use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::{
    document::{Diagnostic, Doc, FromNode, FromSection, Node, Place, Section, Share, Spanned, Value, documented, wrong_type},
    report::RankMetrics,
    units::{Count, Dimension, Duration, Fraction, Quantity, SampleRate, Size},
};

/// A value that can be compared with what was measured.
pub trait Figure: Copy + fmt::Display {
    /// In the unit the measurement comes in.
    fn figure(self) -> f64;
    /// A measurement, in the unit that this value is written in.
    fn alike(self, measured: f64) -> String;
}

impl<D: Dimension> Figure for Quantity<D> {
    fn figure(self) -> f64 {
        self.base()
    }
    fn alike(self, measured: f64) -> String {
        let (number, symbol) = self.alike(measured);
        let decimals = if number >= 100.0 {
            0
        } else if number >= 10.0 {
            1
        } else {
            2
        };
        format!("{number:.decimals$} {symbol}")
    }
}

impl Figure for Count {
    fn figure(self) -> f64 {
        self.0 as f64
    }
    fn alike(self, measured: f64) -> String {
        Count(measured as u64).to_string()
    }
}

documented! {
    /// Between what a figure is expected to lie.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Bound<T> {
        /// At least.
        pub min: Option<T>,
        /// At most.
        pub max: Option<T>,
        /// Near a value.
        pub within: Option<Within<T>>,
    }
}

documented! {
    /// Near a value that somebody published or measured.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Within<T> {
        /// The value.
        pub of: T,
        /// How far off, relative to it, still holds.
        pub tol: Fraction,
        /// Where the value comes from.
        pub source: Option<String>,
    }
}

impl<T: Figure> Bound<T> {
    /// Whether `measured` lies inside.
    pub fn holds(&self, measured: f64) -> bool {
        let near = |w: &Within<T>| (measured - w.of.figure()).abs() <= w.tol.base() * w.of.figure();
        self.min.is_none_or(|min| measured >= min.figure())
            && self.max.is_none_or(|max| measured <= max.figure())
            && self.within.as_ref().is_none_or(near)
    }
}

impl<T: Figure> Bound<T> {
    /// What was found, in the unit that was expected.
    fn found(&self, measured: f64) -> String {
        let unit = self.min.or(self.max).or(self.within.as_ref().map(|w| w.of));
        unit.map_or_else(|| measured.to_string(), |unit| unit.alike(measured))
    }
}

impl<T: Figure> fmt::Display for Bound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.min.map(|min| format!("at least {min}")));
        parts.extend(self.max.map(|max| format!("at most {max}")));
        parts.extend(self.within.as_ref().map(|w| format!("{} ± {}", w.of, w.tol)));
        f.write_str(&parts.join(", "))
    }
}

impl<T: FromNode> FromSection for Within<T> {
    const EXPECTED: &'static str = r#"a value and a tolerance, such as { of = …, tol = "10 %" }"#;

    fn read(section: &Section<'_>) -> Option<Within<T>> {
        section.documents(Within::<T>::DOCS);
        let of = section.required("of", "…");
        let tol = section.required::<Share>("tol", "\"10 %\"");
        let source = section.plain("source");
        Some(Within { of: of?, tol: tol?.0, source })
    }
}

fn read_bound<T: FromNode>(section: &Section<'_>) -> Option<Bound<T>> {
    section.documents(Bound::<T>::DOCS);
    Some(Bound { min: section.plain::<T>("min"), max: section.plain::<T>("max"), within: section.plain::<Within<T>>("within") })
}

impl<T: FromNode + Figure> FromNode for Bound<T> {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let bound = Section::of(node, path, "a table with `min`, `max` or `within`", read_bound::<T>)?;
        let here = |message: String| Diagnostic::new(message).at(Some(&node.place));
        match (&bound.min, &bound.max, &bound.within) {
            (None, None, None) => Err(here(format!("`{path}` expects nothing")).expected("`min`, `max` or `within`")),
            (Some(min), Some(max), _) if min.figure() > max.figure() => {
                Err(here(format!("`{path}` can never hold: `min` is {min}, `max` is {max}")).expected("`min` below `max`"))
            }
            _ => Ok(bound),
        }
    }

    fn schema() -> Json {
        let mut table = Section::sketch(|section| read_bound::<T>(&section));
        table["minProperties"] = json!(1);
        table
    }
}

/// An expectation that only has to be named: `[expect.exactly_once]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named;

impl FromNode for Named {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        match &node.value {
            Value::Table(table) if table.fields.is_empty() => Ok(Named),
            _ => Err(wrong_type(node, path, format!("`[{path}]` without fields"))),
        }
    }

    fn schema() -> Json {
        json!({ "type": "object", "additionalProperties": false, "description": "Without fields: naming it is enough.", "examples": [{}] })
    }
}

/// An expectation that names what something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Is(pub String);

/// What can limit a loader.
pub const BOTTLENECKS: &[&str] =
    &["fetch", "decode", "transfer", "device", "consumer", "scheduler", "memory", "lanes", "balanced"];

/// One of [`BOTTLENECKS`].
struct Bottleneck(String);

impl FromNode for Bottleneck {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let word = String::from_node(node, path)?;
        if BOTTLENECKS.contains(&word.as_str()) {
            return Ok(Bottleneck(word));
        }
        let words: Vec<String> = BOTTLENECKS.iter().map(|w| format!("{w:?}")).collect();
        let hint = crate::units::nearest(&word, BOTTLENECKS.iter().copied());
        let hint = hint.map(|near| format!("did you mean {near:?}?")).unwrap_or_default();
        let wrong = Diagnostic::new(format!("`{path}` is {word:?}")).at(Some(&node.place));
        Err(wrong.expected(words.join(" or ")).hint(hint))
    }

    fn schema() -> Json {
        json!({ "type": "string", "enum": BOTTLENECKS, "description": "A stage or a resource.", "examples": ["decode"] })
    }
}

impl FromSection for Is {
    const EXPECTED: &'static str = "a table such as { is = \"decode\" }";

    fn read(section: &Section<'_>) -> Option<Is> {
        section.documents(&[Doc { name: "is", text: "What limits the loader.", example: None }]);
        Some(Is(section.required::<Bottleneck>("is", "\"decode\"")?.0))
    }
}

documented! {
    /// Everything a scenario expects.
    #[derive(Clone, Debug, Default)]
    pub struct Expectations {
        /// Samples per second the consumer got.
        pub throughput: Option<Spanned<Bound<SampleRate>>>,
        /// Part of the time that the accelerator computes.
        pub accelerator_utilization: Option<Spanned<Bound<Fraction>>>,
        /// Until the consumer has its first batch.
        pub time_to_first_batch: Option<Spanned<Bound<Duration>>>,
        /// CPU time of the whole run.
        pub cpu: Option<Spanned<Bound<Duration>>>,
        /// The most memory a loader held, which its budget bounds; of several ranks the one that held most.
        pub peak_bytes_in_flight: Option<Spanned<Bound<Size>>>,
        /// Samples left out.
        pub skipped: Option<Spanned<Bound<Count>>>,
        /// Every planned sample is delivered or skipped, once.
        pub exactly_once: Option<Spanned<Named>>,
        /// Samples come as planned.
        pub order_kept: Option<Spanned<Named>>,
        /// What limits it.
        pub bottleneck: Option<Spanned<Is>>,
    }
}

impl Expectations {
    pub(super) fn read(section: Section<'_>) -> Expectations {
        section.documents(Expectations::DOCS);
        let read = Expectations {
            throughput: section.field("throughput"),
            accelerator_utilization: section.field("accelerator_utilization"),
            time_to_first_batch: section.field("time_to_first_batch"),
            cpu: section.field("cpu"),
            peak_bytes_in_flight: section.field("peak_bytes_in_flight"),
            skipped: section.field("skipped"),
            exactly_once: section.field("exactly_once"),
            order_kept: section.field("order_kept"),
            bottleneck: section.field("bottleneck"),
        };
        section.finish();
        read
    }

    /// Holds every expectation against what was found, in the order of the fields above.
    pub fn check(&self, found: &Found) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        figure(&mut verdicts, &self.throughput, found.samples_per_s);
        figure(&mut verdicts, &self.accelerator_utilization, found.accelerator_utilization);
        figure(&mut verdicts, &self.time_to_first_batch, found.time_to_first_batch_s.map(|s| s * 1e9));
        figure(&mut verdicts, &self.cpu, found.cpu_s.map(|s| s * 1e9));
        figure(&mut verdicts, &self.peak_bytes_in_flight, found.peak_bytes_in_flight.map(|b| b as f64));
        figure(&mut verdicts, &self.skipped, found.skipped.map(|n| n as f64));
        named(&mut verdicts, &self.exactly_once, &found.exactly_once, "every sample delivered or skipped once");
        named(&mut verdicts, &self.order_kept, &found.order_kept, "samples as planned");
        if let Some(expected) = &self.bottleneck {
            let is = &expected.value.0;
            verdicts.push(Verdict {
                name: name_of(&expected.path),
                held: found.bottleneck.as_deref() == Some(is),
                wanted: is.clone(),
                found: found.bottleneck.clone().unwrap_or_else(|| "none".to_owned()),
                place: expected.place.clone(),
            });
        }
        verdicts
    }
}

/// Says in which of several ranks the most memory was found, which a report shows of all together.
pub(super) fn name_the_rank(verdicts: &mut [Verdict], ranks: &[RankMetrics]) {
    let most = ranks.iter().rev().max_by_key(|rank| rank.peak_bytes_in_flight).filter(|_| ranks.len() > 1);
    for verdict in verdicts.iter_mut().filter(|verdict| verdict.name == "peak_bytes_in_flight") {
        if let Some(RankMetrics { rank, peak_bytes_in_flight: Some(_), .. }) = most {
            verdict.found = format!("{} in rank {rank}", verdict.found);
        }
    }
}

/// Says of what was expected of all samples that it was found of those alone that came before the loader ended.
pub(super) fn only_so_far(verdicts: &mut [Verdict]) {
    for verdict in
        verdicts.iter_mut().filter(|verdict| verdict.held && ["exactly_once", "order_kept"].contains(&&verdict.name[..]))
    {
        verdict.found = "so it is, as far as the loader came".to_owned();
    }
}

/// `throughput` of `expect.throughput`.
fn name_of(path: &str) -> String {
    path.trim_start_matches("expect.").to_owned()
}

fn figure<T: Figure>(verdicts: &mut Vec<Verdict>, expected: &Option<Spanned<Bound<T>>>, measured: Option<f64>) {
    let Some(expected) = expected else { return };
    verdicts.push(Verdict {
        name: name_of(&expected.path),
        held: measured.is_some_and(|m| expected.value.holds(m)),
        wanted: expected.value.to_string(),
        found: measured.map_or_else(|| "nothing measured".to_owned(), |m| expected.value.found(m)),
        place: expected.place.clone(),
    });
}

fn named(verdicts: &mut Vec<Verdict>, expected: &Option<Spanned<Named>>, found: &Result<(), String>, wanted: &str) {
    let Some(expected) = expected else { return };
    verdicts.push(Verdict {
        name: name_of(&expected.path),
        held: found.is_ok(),
        wanted: wanted.to_owned(),
        found: found.clone().err().unwrap_or_else(|| "so it is".to_owned()),
        place: expected.place.clone(),
    });
}

/// What a run came to, as far as expectations ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Samples per second the consumer got; `None` when it got none.
    pub samples_per_s: Option<f64>,
    /// Part of the time that the accelerator computes, from 0 to 1.
    pub accelerator_utilization: Option<f64>,
    /// Until the consumer had its first batch, in seconds.
    pub time_to_first_batch_s: Option<f64>,
    /// CPU time, in seconds.
    pub cpu_s: Option<f64>,
    /// The most memory the loader held, of several ranks the one that held most, in bytes.
    pub peak_bytes_in_flight: Option<u64>,
    /// Samples left out.
    pub skipped: Option<u64>,
    /// Why not every planned sample was delivered or skipped once.
    pub exactly_once: Result<(), String>,
    /// Why the samples did not come as planned.
    pub order_kept: Result<(), String>,
    /// What limited it.
    pub bottleneck: Option<String>,
}

/// Whether one expectation holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Its name, such as `throughput`.
    pub name: String,
    /// Whether it holds.
    pub held: bool,
    /// What was expected, in words.
    pub wanted: String,
    /// What was found, in words.
    pub found: String,
    /// Where it was written.
    #[serde(skip)]
    pub place: Place,
}

impl Verdict {
    /// The error of an expectation that does not hold.
    pub fn diagnostic(&self) -> Diagnostic {
        Diagnostic::new(format!("`expect.{}` does not hold: found {}", self.name, self.found))
            .at(Some(&self.place))
            .expected(&self.wanted)
    }
}
