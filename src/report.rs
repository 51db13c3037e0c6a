//! What is told about a run: figures, bounds, the bottleneck and its proof; for a terminal, as JSON, and as a trace to look at.
//!
//! Everything here is made from a [`Summary`](crate::trace::Summary) and a few [`Facts`] that no trace knows. Nothing here knows
//! which machine a trace came from.
//!
//! ```text
//! Recorder ─► Summary ─┬─► Metrics ─► Report ─┬─► terminal: Report::terminal
//!             Facts ───┘   ├ Bounds           ├─► JSON: serde
//!                          └ Bottleneck       └─► page: Html, with the Timeline
//! Recorder ─► Perfetto ─► file
//! ```
//!
//! # The JSON report
//!
//! [`Report`] is its schema: each field's documentation says what it means and in which unit. Times are seconds, memory is bytes,
//! rates are per second, shares are from 0 to 1. A figure that a run cannot have, such as the utilization of an accelerator that
//! made one step, is `null` or left out.

use serde::Serialize;

pub mod bottleneck;
pub mod bounds;
mod facts;
pub mod html;
pub(crate) mod humane;
mod intervals;
mod metrics;
pub mod perfetto;
mod terminal;

pub use bottleneck::{Bottleneck, Evidence, LaneTime, Next};
pub use bounds::{Bound, Bounds};
pub use facts::{Facts, Load, Resource};
pub use html::{Html, WhatIf};
pub use intervals::{Interval, Intervals};
pub use metrics::{EpochMetrics, Metrics, QueueMetrics, RankMetrics, StageMetrics};
pub use perfetto::Perfetto;
pub use terminal::Style;
pub(crate) use terminal::table::{Align, Table};

/// All that is told about a scenario: one run, or a simulated and a measured one side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// Seed of every draw.
    pub seed: u64,
    /// What limits throughput, in one word: see [`Bottleneck`]. Of the measured run, when there is one and it is known of it.
    pub bottleneck: Option<String>,
    /// What the simulated machine did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Metrics>,
    /// Where what was simulated lies when the machine is as uncertain as its model says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<Intervals>,
    /// What the simulated machine did when it was fed with the measured times of the leaves, see
    /// [`Scenario::replay`](crate::scenario::Scenario::replay).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Metrics>,
    /// What the real machine did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Metrics>,
    /// How far the simulation was off, when there are both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<Errors>,
    /// Why the loader ended before its plan did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the scenario expected.
    pub expectations: Vec<Expectation>,
}

/// Whether one expectation held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Expectation {
    /// Its name, such as `throughput`.
    pub name: String,
    /// Whether it held.
    pub held: bool,
    /// What was expected, in words.
    pub wanted: String,
    /// What was found, in words.
    pub found: String,
}

/// How far the simulation was off: simulated / measured − 1, so that 0.05 means five percent too high; for the accelerator's
/// utilization the difference, so that 0.05 means five points. `None` where a side has no figure, or the measured one is 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "named as the fields of `Metrics`")]
pub struct Errors {
    pub samples_per_s: Option<f64>,
    pub steady_samples_per_s: Option<f64>,
    pub accelerator_utilization: Option<f64>,
    pub time_to_first_batch_s: Option<f64>,
    pub stall_s: Option<f64>,
    pub fetch_stall_s: Option<f64>,
    pub preparation_stall_s: Option<f64>,
    pub cpu_s: Option<f64>,
    pub peak_bytes_in_flight: Option<f64>,
    /// Of the least of the [`Bounds`] that the simulation gives, taken as a prediction: what one would have said without
    /// simulating queues.
    pub bound_samples_per_s: Option<f64>,
    /// Replayed against measured: what the simulation gets wrong even when it is told what every leaf took. `None` without a replay.
    pub structure: Option<Attributed>,
    /// Simulated against replayed: what the costs of the leaves get wrong. `None` without a replay.
    pub cost_model: Option<Attributed>,
}

/// The part of the [`Errors`] that has one origin, counted as they are. With relative errors `s` of structure and `c` of the cost
/// model the whole is `(1 + s)·(1 + c) − 1`, with differences `s + c`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "named as the fields of `Metrics`")]
pub struct Attributed {
    pub samples_per_s: Option<f64>,
    pub steady_samples_per_s: Option<f64>,
    pub accelerator_utilization: Option<f64>,
    pub time_to_first_batch_s: Option<f64>,
    pub stall_s: Option<f64>,
    pub cpu_s: Option<f64>,
}

impl Report {
    /// A report of one run or two. Bottleneck and errors are derived.
    pub fn new(scenario: impl Into<String>, seed: u64, simulated: Option<Metrics>, measured: Option<Metrics>) -> Report {
        let errors = simulated.as_ref().zip(measured.as_ref()).map(|(s, m)| Errors::of(s, m));
        let known = measured.as_ref().filter(|m| simulated.is_none() || m.bottleneck.name != bottleneck::UNKNOWN);
        let bottleneck = known.or(simulated.as_ref()).map(|m| m.bottleneck.name.clone());
        let (scenario, expectations) = (scenario.into(), Vec::new());
        Report {
            scenario,
            seed,
            bottleneck,
            simulated,
            intervals: None,
            replayed: None,
            measured,
            errors,
            error: None,
            expectations,
        }
    }

    /// Adds the simulation that was fed with measured times, and says with it where the errors come from.
    pub fn set_replayed(&mut self, replayed: Metrics) {
        if let (Some(errors), Some(simulated), Some(measured)) = (&mut self.errors, &self.simulated, &self.measured) {
            errors.structure = Some(Errors::of(&replayed, measured).attributed());
            errors.cost_model = Some(Errors::of(simulated, &replayed).attributed());
        }
        self.replayed = Some(replayed);
    }

    /// Whether every expectation held.
    pub fn held(&self) -> bool {
        self.expectations.iter().all(|e| e.held)
    }

    /// The report for a person.
    pub fn terminal(&self, style: Style) -> String {
        terminal::render(self, style)
    }
}

impl Errors {
    fn of(simulated: &Metrics, measured: &Metrics) -> Errors {
        let relative = |s: Option<f64>, m: Option<f64>| s.zip(m).filter(|(_, m)| *m > 0.0).map(|(s, m)| s / m - 1.0);
        let of = |figure: fn(&Metrics) -> Option<f64>| relative(figure(simulated), figure(measured));
        Errors {
            samples_per_s: of(|m| Some(m.samples_per_s)),
            steady_samples_per_s: of(|m| m.steady_samples_per_s),
            accelerator_utilization: simulated.accelerator_utilization.zip(measured.accelerator_utilization).map(|(s, m)| s - m),
            time_to_first_batch_s: of(|m| m.time_to_first_batch_s),
            stall_s: of(|m| Some(m.stall_s)),
            fetch_stall_s: of(|m| m.fetch_stall_s),
            preparation_stall_s: of(|m| m.preparation_stall_s),
            cpu_s: of(|m| m.cpu_s),
            peak_bytes_in_flight: of(|m| m.peak_bytes_in_flight.map(|b| b as f64)),
            bound_samples_per_s: relative(simulated.bounds.samples_per_s(), Some(measured.samples_per_s)),
            structure: None,
            cost_model: None,
        }
    }

    /// The figures of which one asks where their error comes from.
    pub(crate) fn attributed(&self) -> Attributed {
        Attributed {
            samples_per_s: self.samples_per_s,
            steady_samples_per_s: self.steady_samples_per_s,
            accelerator_utilization: self.accelerator_utilization,
            time_to_first_batch_s: self.time_to_first_batch_s,
            stall_s: self.stall_s,
            cpu_s: self.cpu_s,
        }
    }
}
