//! What limits a loader, and what more of each resource would bring.

use std::fmt::Write as _;

use rayon::prelude::*;
use serde::Serialize;

use super::{Estimate, KNOBS, SAMPLES_MOST, Setup, cut, under_seeds};
use crate::{
    model::MachineModel,
    report::{Bottleneck, Bounds, Metrics, QueueMetrics, StageMetrics, WhatIf, humane},
    scenario::{Samples, Scenario, SimulateError},
};

/// The least gain that is called a relief, relative.
const WORTH_NAMING: f64 = 0.01;

/// What one change brings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// What was raised.
    pub resource: String,
    /// Its value before.
    pub from: String,
    /// Its value after.
    pub to: String,
    /// By how much it is larger or faster \[%\]; counts grow by one at least.
    pub raised_percent: f64,
    /// More samples per second; `null` when the changed setup cannot run.
    pub gain_samples_per_s: Option<Estimate>,
    /// The same relative to the throughput before \[%\].
    pub gain_percent: Option<Estimate>,
    /// What limits after the change.
    pub bottleneck: Option<String>,
    /// Why the changed setup cannot run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What limits a loader, the proof, and what would relieve it.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The scenario's name.
    pub scenario: String,
    /// The machine, in words.
    pub machine: String,
    /// The seeds of every comparison.
    pub seeds: Vec<u64>,
    /// Whether the epoch was cut.
    pub cut: bool,
    /// Samples delivered under the first seed.
    pub samples: u64,
    /// Throughput over the seeds.
    pub samples_per_s: Estimate,
    /// What limits, under the first seed.
    pub bottleneck: Bottleneck,
    /// What the operational laws allow, the tightest first.
    pub bounds: Bounds,
    /// How busy each stage was.
    pub stages: Vec<StageMetrics>,
    /// How full each queue was.
    pub queues: Vec<QueueMetrics>,
    /// What 10 % more of each resource brings.
    pub elasticities: Vec<Change>,
    /// The three doublings that bring most; fewer when fewer bring anything.
    pub reliefs: Vec<Change>,
}

/// Simulates the scenario, then again with each resource raised by 10 % and doubled, under `seeds` seeds from the scenario's on.
///
/// # Errors
///
/// When the scenario itself cannot be simulated. A change that cannot is told in its row.
pub fn explain(scenario: &Scenario, machine: &MachineModel, samples: &Samples, seeds: u64) -> Result<Explanation, SimulateError> {
    scenario.only_ours("cannot be explained by more of what ours has")?;
    let mut setup = Setup::of(scenario, machine, samples)?;
    let cut = cut(&mut setup.scenario, samples, SAMPLES_MOST);
    let seeds: Vec<u64> = (0..seeds.max(1)).map(|n| scenario.seed.wrapping_add(n)).collect();
    let base = under_seeds(&setup, samples, &seeds)?;
    let all = |factor: f64| -> Vec<Change> {
        let change = |knob: &super::Knob| {
            let mut changed = setup.clone();
            let step = (knob.raise)(&mut changed, factor)?;
            let after = under_seeds(&changed, samples, &seeds);
            Some(Change::between(knob.name, step, &base, after))
        };
        KNOBS.par_iter().filter_map(change).collect()
    };
    let elasticities = all(1.1);
    let mut reliefs = all(2.0);
    let gain = |change: &Change| change.gain_percent.map_or(0.0, |g| g.mean);
    let real = |g: Estimate| g.mean >= 100.0 * WORTH_NAMING && g.mean > g.plus_minus;
    reliefs.retain(|change| change.gain_percent.is_some_and(real));
    reliefs.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
    reliefs.truncate(3);
    let samples_per_s = Estimate::of(&base.iter().map(|m| m.samples_per_s).collect::<Vec<_>>());
    let first = base.into_iter().next().expect("there is at least one seed");
    Ok(Explanation {
        scenario: scenario.name.clone(),
        machine: first.machine,
        seeds,
        cut,
        samples: first.delivered,
        samples_per_s,
        bottleneck: first.bottleneck,
        bounds: first.bounds,
        stages: first.stages,
        queues: first.queues,
        elasticities,
        reliefs,
    })
}

impl Change {
    fn between(name: &str, step: super::Step, base: &[Metrics], after: Result<Vec<Metrics>, SimulateError>) -> Change {
        let mut change = Change {
            resource: name.to_owned(),
            from: step.from,
            to: step.to,
            raised_percent: 100.0 * step.raised,
            gain_samples_per_s: None,
            gain_percent: None,
            bottleneck: None,
            error: None,
        };
        match after {
            Err(error) => change.error = Some(error.to_string()),
            Ok(after) => {
                let pairs = || base.iter().zip(&after).map(|(b, a)| (b.samples_per_s, a.samples_per_s));
                let absolute: Vec<f64> = pairs().map(|(b, a)| a - b).collect();
                let relative: Vec<f64> = pairs().map(|(b, a)| if b > 0.0 { 100.0 * (a / b - 1.0) } else { 0.0 }).collect();
                change.gain_samples_per_s = Some(Estimate::of(&absolute));
                change.gain_percent = Some(Estimate::of(&relative));
                change.bottleneck = after.first().map(|m| m.bottleneck.name.clone());
            }
        }
        change
    }

    fn line(&self, with_bottleneck: bool) -> String {
        let head = format!("  {:<20} {:>16} → {:<16}", self.resource, self.from, self.to);
        match (&self.gain_percent, &self.gain_samples_per_s) {
            (Some(percent), Some(absolute)) => {
                let now = self.bottleneck.as_deref().filter(|_| with_bottleneck);
                let then = now.map_or_else(String::new, |name| format!("; then {name} limits"));
                let (gain, half) = (shown(absolute.mean), absolute.plus_minus);
                let (percent, around) = (shown(percent.mean), percent.plus_minus);
                format!("{head} {gain:>+9.1} ± {half:.1} samples/s  ({percent:+.1} ± {around:.1} %){then}")
            }
            _ => {
                let why = self.error.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
                format!("{head} cannot run: {}", why.trim_start_matches("error: "))
            }
        }
    }
}

/// `value` to one digit behind the point, where nothing has no sign.
fn shown(value: f64) -> f64 {
    // A negative zero and a zero add up to a positive one.
    (value * 10.0).round() / 10.0 + 0.0
}

impl Explanation {
    /// What each change that can run comes to, for the chart of a page: what 10 % more brings, then the reliefs. `low` and `high` are the
    /// ends of the gain's interval.
    pub fn what_if(&self) -> Vec<WhatIf> {
        let bar = |change: &Change| {
            let gain = change.gain_samples_per_s?;
            let samples_per_s = self.samples_per_s.mean + gain.mean;
            Some(WhatIf {
                name: change.resource.clone(),
                change: format!("{} → {}", change.from, change.to),
                samples_per_s,
                low: samples_per_s - gain.plus_minus,
                high: samples_per_s + gain.plus_minus,
            })
        };
        self.elasticities.iter().chain(&self.reliefs).filter_map(bar).collect()
    }

    /// The explanation for a terminal.
    pub fn terminal(&self) -> String {
        let mut out = String::new();
        self.write(&mut out).expect("a string takes everything");
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Estimate { mean, plus_minus } = self.samples_per_s;
        writeln!(out, "{} on {}", self.scenario, self.machine)?;
        let cut = if self.cut { ", the epoch cut there" } else { "" };
        writeln!(
            out,
            "{mean:.1} ± {plus_minus:.1} samples/s under {} seeds of {} samples{cut}\n",
            self.seeds.len(),
            self.samples
        )?;
        writeln!(out, "Bottleneck: {}", self.bottleneck.name)?;
        writeln!(out, "  {}\n  {}\n", self.bottleneck.why, self.bottleneck.relief)?;
        writeln!(out, "At most, by the operational laws")?;
        for bound in &self.bounds.limits {
            writeln!(out, "  {:<20} {:>12} samples/s", bound.name, humane::number(bound.samples_per_s))?;
        }
        writeln!(out, "\nBusy")?;
        for stage in &self.stages {
            let busy = stage.utilization.map_or_else(|| "no limit".to_owned(), |u| format!("{:.1} %", 100.0 * u));
            writeln!(
                out,
                "  {:<20} {busy:>12}   {:.2} running, {:.2} waiting",
                stage.name, stage.mean_running, stage.mean_waiting
            )?;
        }
        writeln!(out, "\nFilled, on average")?;
        for queue in &self.queues {
            let told = |n: f64| if queue.name.ends_with("bytes") { humane::bytes(n) } else { humane::number(n) };
            let most = queue.capacity.map_or_else(String::new, |n| format!(" of {}", told(n as f64)));
            writeln!(out, "  {:<20} {:>12}{most}", queue.name, told(queue.mean))?;
        }
        writeln!(out, "\nWhat 10 % more would bring (counts: one more at least)")?;
        for change in &self.elasticities {
            writeln!(out, "{}", change.line(false))?;
        }
        writeln!(out, "\nFirst reliefs")?;
        for change in &self.reliefs {
            writeln!(out, "{}", change.line(true))?;
        }
        if self.reliefs.is_empty() {
            writeln!(out, "  No single resource brings anything when doubled.")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{self, Overrides};

    fn explained(name: &str, sets: &[&str]) -> Explanation {
        let scenario = scenario::load(name, &Overrides::set(sets.iter().copied())).unwrap();
        let samples = scenario.samples().unwrap().expect("sizes are drawn");
        explain(&scenario, &scenario.machine_model().unwrap(), &samples, 3).unwrap()
    }

    fn gain(of: &Explanation, resource: &str) -> f64 {
        let change = of.elasticities.iter().find(|c| c.resource == resource).expect("it is limited");
        change.gain_percent.expect("it runs").mean
    }

    #[test]
    fn a_store_of_few_slow_connections_gains_by_its_latency_and_not_by_cores() {
        let found = explained("slow-store", &["dataset.count=1600"]);
        assert_eq!(found.bottleneck.name, "fetch");
        // 40 ms of 45.7 ms a read become 36.4 ms: 8.6 % more reads, less the ends of a short run.
        assert!((6.5..9.5).contains(&gain(&found, "first-byte speed")), "{}", found.terminal());
        for idle in ["cores and threads", "decode speed", "train step speed", "memory budget"] {
            assert!(gain(&found, idle).abs() < 1.0, "{idle}: {}", found.terminal());
        }
        let names: Vec<&str> = found.reliefs.iter().map(|c| c.resource.as_str()).collect();
        assert!(names.contains(&"store connections") && names.contains(&"first-byte speed"), "{names:?}");
    }

    #[test]
    fn a_loss_too_small_to_show_has_no_sign() {
        assert_eq!(format!("{:+.1}", shown(-0.04)), "+0.0");
        assert_eq!(format!("{:+.1}", shown(-0.06)), "-0.1");
    }

    #[test]
    fn a_slow_consumer_gains_by_its_step_alone() {
        let found = explained("slow-consumer", &["dataset.count=640"]);
        assert!((7.0..10.5).contains(&gain(&found, "train step speed")), "{}", found.terminal());
        assert!(gain(&found, "decode speed").abs() < 2.0, "{}", found.terminal());
        assert_eq!(found.reliefs[0].resource, "train step speed");
    }

    #[test]
    fn the_same_seeds_give_the_same_explanation() {
        let json = || serde_json::to_string(&explained("slow-store", &["dataset.count=320"])).unwrap();
        assert_eq!(json(), json());
    }
}
