//! What a user should change: [`explain()`] says what limits a scenario's loader and what each resource is worth.
//!
//! It asks the simulator, not a formula. A change is judged against the same scenario without it under the same seeds (common
//! random numbers: draws are keyed, so both sides meet the same luck), and, from the second seed on, on a machine
//! [drawn](MachineModel::drawn) from the model's uncertainties, the same on both sides. Its interval is twice the standard deviation of
//! the paired differences: where one run on a machine that the model might mean will lie.
//!
//! Long epochs are cut to [`SAMPLES_MOST`] samples, by a consumer that leaves: throughput is settled by then, and what is cut says so.

use rayon::prelude::*;
use serde::Serialize;

use crate::{
    model::MachineModel,
    report::Metrics,
    scenario::{Samples, Scenario, SimulateError},
    trace::Recorder,
};

mod explain;
mod knob;

pub use explain::{Change, Explanation, explain};
pub use knob::{KNOBS, Knob, Setup, Step};

/// Samples after which a simulation that only serves a comparison is cut.
pub const SAMPLES_MOST: u64 = 20_000;

/// A mean and the half-width of its interval: twice the standard deviation of what was averaged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Twice the standard deviation; 0 for a single value.
    pub plus_minus: f64,
}

impl Estimate {
    /// The mean of `values` and its interval.
    pub fn of(values: &[f64]) -> Estimate {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n.max(1.0);
        let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
        let plus_minus = if values.len() > 1 { 2.0 * (squares / (n - 1.0)).sqrt() } else { 0.0 };
        Estimate { mean, plus_minus }
    }
}

/// Cuts the run after `most` samples of this rank when it is longer, and says whether it did.
fn cut(scenario: &mut Scenario, samples: &Samples, most: u64) -> bool {
    let whole = samples.count().saturating_mul(u64::from(scenario.loader.epochs)) / u64::from(scenario.loader.world.max(1));
    let batches = (most / scenario.loader.batch).max(20);
    let shorter =
        batches.saturating_mul(scenario.loader.batch) < whole && scenario.consumer.leave_after.is_none_or(|k| batches < k);
    if shorter {
        scenario.consumer.leave_after = Some(batches);
    }
    shorter
}

/// The figures of one simulation, or why there are none.
pub(crate) fn figures(scenario: &Scenario, machine: &MachineModel, samples: &Samples) -> Result<Metrics, SimulateError> {
    let simulated = scenario.simulate(machine, samples, Recorder::new())?;
    match simulated.error {
        None => Ok(simulated.metrics),
        // What it did until then says nothing about a whole run.
        Some(error) => Err(SimulateError::Ended(Box::new(error))),
    }
}

/// The figures under each seed, on all cores: under the first on the machine as it is modelled, under each further one on one of those
/// that the model might mean.
fn under_seeds(setup: &Setup, samples: &Samples, seeds: &[u64]) -> Result<Vec<Metrics>, SimulateError> {
    let first = seeds.first().copied().unwrap_or_default();
    let one = |(number, seed): (usize, &u64)| {
        let scenario = Scenario { seed: *seed, ..setup.scenario.clone() };
        match number {
            0 => figures(&scenario, &setup.machine, samples),
            _ => figures(&scenario, &setup.machine.drawn(first, number as u64), samples),
        }
    };
    seeds.par_iter().enumerate().map(one).collect()
}
