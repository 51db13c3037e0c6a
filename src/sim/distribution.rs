//! Distributions over whole numbers, drawn without floating point.
//!
//! A model's distributions are tables of equally spaced quantiles, so that a simulation is the same bit for bit on every
//! computer. The exponential law, which the exact results of queueing theory want, is computed with additions,
//! multiplications and divisions only, whose results IEEE 754 fixes.

use std::sync::Arc;

/// A distribution as equally spaced quantiles with straight lines between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantiles {
    values: Arc<[u64]>,
}

impl Quantiles {
    /// Steps of the tables that [`from_points`](Quantiles::from_points) and [`lognormal`](Quantiles::lognormal) make: a permille each.
    pub const STEPS: usize = 1000;

    /// The distribution whose quantiles at 0, 1/(n−1), 2/(n−1), … 1 are `values`, in whatever unit the user of the table says.
    ///
    /// # Panics
    ///
    /// If there are no values, or they decrease.
    pub fn new(values: impl Into<Arc<[u64]>>) -> Quantiles {
        let values = values.into();
        assert!(!values.is_empty(), "a quantile table has at least one value");
        assert!(values.is_sorted(), "quantiles must not decrease");
        Quantiles { values }
    }

    /// The distribution through some points `(probability in permille, value)`, the first at 0 and the last at 1000, with straight
    /// lines between: how published latency tables come (min, p25, p50, …, max).
    ///
    /// # Panics
    ///
    /// If the points do not begin at 0, do not end at 1000, or decrease.
    pub fn from_points(points: &[(u32, u64)]) -> Quantiles {
        assert!(points.first().is_some_and(|p| p.0 == 0), "the first point of a quantile table is the minimum, at 0 permille");
        assert!(
            points.last().is_some_and(|p| p.0 == 1000),
            "the last point of a quantile table is the maximum, at 1000 permille"
        );
        assert!(points.windows(2).all(|w| w[0].0 < w[1].0), "the probabilities of a quantile table must increase");
        let mut values = Vec::with_capacity(Quantiles::STEPS + 1);
        for pair in points.windows(2) {
            let ((p0, v0), (p1, v1)) = (pair[0], pair[1]);
            let width = u64::from(p1 - p0);
            assert!(v0 <= v1, "quantiles must not decrease");
            values.extend((0..width).map(|k| v0 + (u128::from(v1 - v0) * u128::from(k) / u128::from(width)) as u64));
        }
        values.push(points[points.len() - 1].1);
        Quantiles::new(values)
    }

    /// The lognormal distribution with this mean and this standard deviation of the logarithm, cut at its 0.05 % and 99.95 %
    /// quantiles and scaled so that the table's mean is `mean`.
    pub fn lognormal(mean: u64, sigma: f64) -> Quantiles {
        let shape: Vec<f64> = (0..=Quantiles::STEPS)
            .map(|k| {
                let p = (k as f64 / Quantiles::STEPS as f64).clamp(0.0005, 0.9995);
                exp(sigma * normal_quantile(p))
            })
            .collect();
        let inner: f64 = shape[1..Quantiles::STEPS].iter().sum();
        let shape_mean = (inner + (shape[0] + shape[Quantiles::STEPS]) / 2.0) / Quantiles::STEPS as f64;
        Quantiles::new(shape.iter().map(|x| (x * mean as f64 / shape_mean + 0.5) as u64).collect::<Vec<_>>())
    }

    /// The value at the probability `word / 2^64`.
    #[inline]
    pub fn at(&self, word: u64) -> u64 {
        let steps = self.values.len() - 1;
        let place = u128::from(word) * steps as u128;
        let (k, within) = ((place >> 64) as usize, (place as u64) >> 32);
        let low = self.values[k];
        match self.values.get(k + 1) {
            Some(high) => low + ((u128::from(high - low) * u128::from(within)) >> 32) as u64,
            None => low,
        }
    }

    /// The mean of the distribution.
    pub fn mean(&self) -> f64 {
        match &self.values[..] {
            [only] => *only as f64,
            [first, inner @ .., last] => {
                let sum: f64 = inner.iter().map(|v| *v as f64).sum();
                (sum + (*first as f64 + *last as f64) / 2.0) / (inner.len() + 1) as f64
            }
            [] => unreachable!("a quantile table has at least one value"),
        }
    }

    /// The table.
    pub fn values(&self) -> &[u64] {
        &self.values
    }
}

/// A distribution over whole numbers. The unit is whatever the field that holds it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Always the same.
    Constant(u64),
    /// A table of quantiles.
    Table(Quantiles),
    /// Exponential with this mean: the law of the exact references.
    Exponential {
        /// Its mean, which is also its standard deviation.
        mean: u64,
    },
}

impl Distribution {
    /// The value that the uniform random `word` stands for.
    #[inline]
    pub fn at(&self, word: u64) -> u64 {
        match self {
            Distribution::Constant(value) => *value,
            Distribution::Table(table) => table.at(word),
            Distribution::Exponential { mean } => (minus_ln_unit(word) * *mean as f64 + 0.5) as u64,
        }
    }

    /// Whether [`at`](Distribution::at) looks at its word at all.
    #[inline]
    pub fn is_random(&self) -> bool {
        !matches!(self, Distribution::Constant(_))
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        match self {
            Distribution::Constant(value) => *value as f64,
            Distribution::Table(table) => table.mean(),
            Distribution::Exponential { mean } => *mean as f64,
        }
    }
}

/// −ln u for the uniform u in (0, 1) that the word stands for.
fn minus_ln_unit(word: u64) -> f64 {
    let u = ((word >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -ln(u)
}

/// Natural logarithm of a positive, normal `x`, to about 1e-15: the series of artanh, whose operations IEEE 754 fixes, where the
/// system's own logarithm may differ in the last bit.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (0..11).rev().fold(0.0, |sum, k| sum * square + 1.0 / f64::from(2 * k + 1));
    2.0 * s * series + exponent as f64 * std::f64::consts::LN_2
}

/// e to the power `x`, for |x| up to about 700: halved until small, then its series, then squared back.
fn exp(x: f64) -> f64 {
    let halvings = 10;
    let small = x / f64::from(1 << halvings);
    let series = (1..12).rev().fold(1.0, |sum, k| 1.0 + sum * small / f64::from(k));
    (0..halvings).fold(series, |y, _| y * y)
}

/// Quantile of the standard normal distribution, to a relative error of about 1e-9 (P. J. Acklam's rational approximation).
fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 5] =
        [-5.447609879822406e1, 1.615858368580409e2, -1.556989798598866e2, 6.680131188771972e1, -1.328068155288572e1];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 4] = [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416];
    let polynomial = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    let tail = |p: f64| {
        let q = (-2.0 * ln(p)).sqrt();
        polynomial(&C, q) / (polynomial(&D, q) * q + 1.0)
    };
    if p < 0.02425 {
        tail(p)
    } else if p > 1.0 - 0.02425 {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        polynomial(&A, q * q) * q / (polynomial(&B, q * q) * q * q + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_runs_straight_between_its_quantiles() {
        let table = Quantiles::new([100, 200, 400]);
        assert_eq!(table.at(0), 100);
        assert_eq!(table.at(1 << 62), 150);
        assert_eq!(table.at(1 << 63), 200);
        assert_eq!(table.at(3 << 62), 300);
        assert_eq!(table.at(u64::MAX), 399);
        assert_eq!(table.mean(), 225.0);
    }

    #[test]
    fn a_table_of_one_value_is_a_constant() {
        let table = Quantiles::new([7]);
        assert_eq!((table.at(0), table.at(u64::MAX), table.mean()), (7, 7, 7.0));
    }

    #[test]
    fn published_points_become_a_table_that_goes_through_them() {
        let first_byte_ms =
            [(0, 7), (250, 9), (500, 10), (750, 12), (900, 16), (990, 75), (1000, 500)].map(|(p, ms)| (p, ms * 1_000_000));
        let table = Quantiles::from_points(&first_byte_ms);
        assert_eq!(table.values().len(), 1001);
        for (permille, ns) in first_byte_ms {
            assert_eq!(table.values()[permille as usize], ns);
        }
        assert_eq!(table.values()[945], (16 + (75 - 16) / 2) * 1_000_000 + 500_000);
    }

    #[test]
    fn our_own_logarithm_and_exponential_agree_with_the_systems() {
        for k in 1..2000 {
            let x = f64::from(k) * f64::from(k) * 1e-4;
            assert!((ln(x) - x.ln()).abs() <= 4e-15 * x.ln().abs().max(1.0), "ln {x}");
            let y = x.ln();
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-12, "exp {y}");
        }
    }

    #[test]
    fn the_exponential_has_its_mean_and_its_tail() {
        let law = Distribution::Exponential { mean: 1_000_000 };
        let n = 100_000u64;
        let values: Vec<u64> = (0..n).map(|k| law.at((2 * k + 1) * (u64::MAX / (2 * n)))).collect();
        let mean = values.iter().sum::<u64>() as f64 / n as f64;
        assert!((mean / 1e6 - 1.0).abs() < 1e-4, "mean {mean}");
        let tail = values.iter().filter(|v| **v > 2_000_000).count() as f64 / n as f64;
        assert!((tail - (-2f64).exp()).abs() < 1e-4, "tail {tail}");
    }

    #[test]
    fn the_lognormal_has_its_mean_and_its_median() {
        let table = Quantiles::lognormal(114_660, 0.55);
        assert!((table.mean() / 114_660.0 - 1.0).abs() < 1e-4, "mean {}", table.mean());
        let median = table.values()[500] as f64;
        let expected = 114_660.0 / (0.55f64 * 0.55 / 2.0).exp();
        assert!((median / expected - 1.0).abs() < 0.01, "median {median}, expected {expected}");
    }
}
