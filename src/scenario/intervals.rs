//! How far a prediction may be off.

use rayon::prelude::*;

use super::{Samples, Scenario, SimulateError};
use crate::{
    model::MachineModel,
    report::{Intervals, Metrics},
    trace::Recorder,
};

impl Scenario {
    /// Simulates the scenario `draws` times, on all cores: each time on a machine [drawn](MachineModel::drawn) from the uncertainties of
    /// `machine`, and with a seed of its own. A loader that ends early counts with what it came to.
    ///
    /// # Errors
    ///
    /// As [`Scenario::simulate`], of the first draw that fails.
    pub fn intervals(&self, machine: &MachineModel, samples: &Samples, draws: u64) -> Result<Intervals, SimulateError> {
        let simulate = |number: u64| {
            let scenario = Scenario { seed: self.seed.wrapping_add(number), ..self.clone() };
            let simulated = scenario.simulate(&machine.drawn(self.seed, number), samples, Recorder::new())?;
            Ok(simulated.metrics)
        };
        let all: Result<Vec<Metrics>, SimulateError> = (0..draws).into_par_iter().map(simulate).collect();
        Ok(Intervals::of(&all?))
    }
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
}
