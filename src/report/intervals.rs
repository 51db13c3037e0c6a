//! How far a prediction may be off, by what its model does not know.

use serde::Serialize;

use super::Metrics;

/// Where a figure lies in [`Intervals::LEVEL`] of all draws.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Interval {
    /// The central part of these values; `None` for none. It is never narrower than its level says.
    pub fn of(mut values: Vec<f64>) -> Option<Interval> {
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        // A twentieth of them on either side, rounded down, is outside.
        let outside = last / 20;
        Some(Interval { low: values[outside], high: values[last - outside] })
    }

    /// Whether it holds `value`.
    pub fn holds(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Where the figures of a prediction lie when the numbers of its machine are drawn from their uncertainties, and the seed anew.
///
/// The interval is of parameters, of luck, and of what simulations were found to leave out, where the machine's model says how much that is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "named as the fields of `Metrics`")]
pub struct Intervals {
    /// How many simulations.
    pub draws: u64,
    /// The part of them that each interval holds.
    pub level: f64,
    pub samples_per_s: Option<Interval>,
    pub steady_samples_per_s: Option<Interval>,
    pub accelerator_utilization: Option<Interval>,
    pub time_to_first_batch_s: Option<Interval>,
    pub stall_s: Option<Interval>,
    pub cpu_s: Option<Interval>,
}

impl Intervals {
    /// The part of all draws that an interval holds.
    pub const LEVEL: f64 = 0.9;

    /// Of these simulations.
    pub fn of(draws: &[Metrics]) -> Intervals {
        let of = |figure: &dyn Fn(&Metrics) -> Option<f64>| Interval::of(draws.iter().filter_map(figure).collect());
        Intervals {
            draws: draws.len() as u64,
            level: Intervals::LEVEL,
            samples_per_s: of(&|m| Some(m.samples_per_s)),
            steady_samples_per_s: of(&|m| m.steady_samples_per_s),
            accelerator_utilization: of(&|m| m.accelerator_utilization),
            time_to_first_batch_s: of(&|m| m.time_to_first_batch_s),
            stall_s: of(&|m| Some(m.stall_s)),
            cpu_s: of(&|m| m.cpu_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_its_part_of_the_values() {
        let values: Vec<f64> = (0..101).map(f64::from).collect();
        assert_eq!(Interval::of(values), Some(Interval { low: 5.0, high: 95.0 }));
        let few: Vec<f64> = (0..10).map(f64::from).collect();
        assert_eq!(Interval::of(few), Some(Interval { low: 0.0, high: 9.0 }));
        assert_eq!(Interval::of(vec![3.0]), Some(Interval { low: 3.0, high: 3.0 }));
        assert_eq!(Interval::of(Vec::new()), None);
    }
}
