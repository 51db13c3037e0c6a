//! How far a prediction may be off.

use rayon::prelude::*;

use super::{Samples, Scenario, SimulateError};
use crate::{
    model::MachineModel,
    report::{Intervals, Metrics},
    trace::Recorder,
    units::Quantity,
};

impl Scenario {
    /// Simulates the scenario `draws` times, on all cores: each time on a machine [drawn](MachineModel::drawn) from the uncertainties of
    /// `machine`, and with a seed of its own. A loader that ends early counts with what it came to.
    ///
    /// What the simulation leaves out, [`MachineModel::structure`], counts as a stretch of all that is not a train step: the same run is
    /// simulated with steps shorter by that factor, and then takes that factor longer.
    ///
    /// # Errors
    ///
    /// As [`Scenario::simulate`], of the first draw that fails.
    pub fn intervals(&self, machine: &MachineModel, samples: &Samples, draws: u64) -> Result<Intervals, SimulateError> {
        let simulate = |number: u64| {
            let mut scenario = Scenario { seed: self.seed.wrapping_add(number), ..self.clone() };
            let stretch = machine.stretch(self.seed, number);
            scenario.consumer.step = Quantity::of_base(scenario.consumer.step.base() / stretch);
            let simulated = scenario.simulate(&machine.drawn(self.seed, number), samples, Recorder::new())?;
            Ok(stretched(simulated.metrics, stretch))
        };
        let all: Result<Vec<Metrics>, SimulateError> = (0..draws).into_par_iter().map(simulate).collect();
        Ok(Intervals::of(&all?))
    }
}

/// What [`Intervals`] looks at, of the same run taking `by` times as long.
fn stretched(mut metrics: Metrics, by: f64) -> Metrics {
    metrics.samples_per_s /= by;
    metrics.steady_samples_per_s = metrics.steady_samples_per_s.map(|rate| rate / by);
    metrics.time_to_first_batch_s = metrics.time_to_first_batch_s.map(|time| time * by);
    metrics.stall_s *= by;
    metrics
}

#[cfg(test)]
mod tests {
    use crate::{
        model,
        scenario::{Overrides, load},
    };

    #[test]
    fn an_uncertain_machine_makes_an_uncertain_prediction_and_a_certain_one_does_not() {
        let sets = ["dataset.count=256", "loader.epochs=1", "consumer.step=0 ms"];
        let scenario = load("quickstart", &Overrides::set(sets)).unwrap();
        let samples = scenario.samples().unwrap().unwrap();
        let mut machine = model::load("reference-2core").unwrap();
        let of = |machine: &model::MachineModel| scenario.intervals(machine, &samples, 40).unwrap();
        machine.costs.get_mut("decode").unwrap().uncertainty = Some("10 %".parse().unwrap());
        let wide = of(&machine);
        assert_eq!(wide, of(&machine), "the same draws come out the same");
        machine.costs.get_mut("decode").unwrap().uncertainty = Some("0 %".parse().unwrap());
        let narrow = of(&machine);
        let relative = |i: &crate::report::Intervals| {
            let interval = i.samples_per_s.unwrap();
            (interval.high - interval.low) / interval.high
        };
        // 90 % of a normal distribution lie within 1.645 deviations.
        assert!((0.2..0.45).contains(&relative(&wide)), "{wide:?}");
        assert!(relative(&narrow) < 0.16, "{narrow:?}");
    }

    #[test]
    fn what_a_model_leaves_out_widens_what_the_loader_does_and_not_what_the_consumer_does() {
        let mut machine = model::load("reference-2core").unwrap();
        let relative = |machine: &model::MachineModel, step: &str| {
            let sets = ["dataset.count=512", "loader.epochs=1", step];
            let scenario = load("quickstart", &Overrides::set(sets)).unwrap();
            let samples = scenario.samples().unwrap().unwrap();
            let interval = scenario.intervals(machine, &samples, 40).unwrap().samples_per_s.unwrap();
            (interval.high - interval.low) / interval.high
        };
        machine.structure = None;
        let (sure, sure_of_steps) = (relative(&machine, "consumer.step=0 ms"), relative(&machine, "consumer.step=2 s"));
        machine.structure = Some(model::Measured::plain("20 %".parse().unwrap()));
        assert!(relative(&machine, "consumer.step=0 ms") > sure + 0.1);
        assert!(relative(&machine, "consumer.step=2 s") < sure_of_steps + 0.02);
    }
}
