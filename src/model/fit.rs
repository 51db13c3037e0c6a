//! Fitting a cost `a + b·bytes + c·pixels` to measured times.
//!
//! Times spread in proportion to their size, so the fit minimises *relative* errors: each row is divided by its measured time and
//! the least-squares problem is solved by Householder reflections on columns scaled to equal length. Costs are not negative: a term
//! whose coefficient comes out below zero is left out and the rest fitted again. What a corpus cannot tell apart shows in the
//! condition number of the scaled columns and in the standard errors, both of which are part of the result.

/// One measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Encoded bytes \[B\].
    pub bytes: f64,
    /// Pixels of the full-size image \[px\].
    pub pixels: f64,
    /// Time it took \[ns\].
    pub time_ns: f64,
}

/// A fitted cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// `a` \[ns\], `b` [ns/B], `c` [ns/px].
    pub terms: [f64; 3],
    /// Standard errors of the terms, in their units; zero for a term left out.
    pub standard_errors: [f64; 3],
    /// Ratio of the largest to the smallest singular value of the scaled columns: 1 for terms that are told apart perfectly, past
    /// some 30 their split is not to be trusted, though their sum is.
    pub condition: f64,
    /// Root mean square of the relative residuals.
    pub relative_rms: f64,
    /// Part of the variance of the times that the terms explain; 1 where times do not vary.
    pub r2: f64,
    /// Quantiles of measured over fitted time, at `0, 1/(k−1), …, 1`, scaled so that their mean is 1.
    pub residual_quantiles: Vec<f64>,
}

/// Why no cost could be fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// Fewer samples than terms.
    #[error("{have} measured times are too few to fit {terms} terms")]
    TooFew {
        /// Samples given.
        have: usize,
        /// Terms asked for.
        terms: usize,
    },
    /// A time that is zero, negative or not a number.
    #[error("a measured time is not a positive number")]
    BadTime,
}

/// Which terms a cost may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The constant `a`.
    pub fixed: bool,
    /// `b·bytes`.
    pub bytes: bool,
    /// `c·pixels`.
    pub pixels: bool,
}

impl Terms {
    /// All three.
    pub const ALL: Terms = Terms { fixed: true, bytes: true, pixels: true };
    /// `a + b·bytes`.
    pub const BYTES: Terms = Terms { fixed: true, bytes: true, pixels: false };

    fn list(self) -> Vec<usize> {
        [self.fixed, self.bytes, self.pixels].iter().enumerate().filter(|(_, on)| **on).map(|(i, _)| i).collect()
    }
}

impl Fit {
    /// The fitted time of a piece of work \[ns\].
    pub fn predict(&self, bytes: f64, pixels: f64) -> f64 {
        self.terms[0] + self.terms[1] * bytes + self.terms[2] * pixels
    }
}

/// Fits `terms` to `samples`, with `quantiles` points of the residual.
///
/// # Errors
///
/// When there are fewer samples than terms, or a time is not positive.
pub fn fit(samples: &[Sample], terms: Terms, quantiles: usize) -> Result<Fit, FitError> {
    let mut active = terms.list();
    if samples.len() < active.len() {
        return Err(FitError::TooFew { have: samples.len(), terms: active.len() });
    }
    if samples.iter().any(|s| !(s.time_ns > 0.0 && s.time_ns.is_finite())) {
        return Err(FitError::BadTime);
    }
    loop {
        let solved = solve(samples, &active);
        let worst = active.iter().zip(&solved.coefficients).filter(|(_, c)| **c < 0.0).min_by(|a, b| a.1.total_cmp(b.1));
        match worst {
            Some((&term, _)) if active.len() > 1 => active.retain(|&t| t != term),
            _ => return Ok(finish(samples, &active, solved, quantiles)),
        }
    }
}

struct Solved {
    coefficients: Vec<f64>,
    standard_errors: Vec<f64>,
    condition: f64,
}

fn column(s: &Sample, term: usize) -> f64 {
    [1.0, s.bytes, s.pixels][term]
}

fn solve(samples: &[Sample], active: &[usize]) -> Solved {
    let (n, k) = (samples.len(), active.len());
    let mut columns: Vec<Vec<f64>> =
        active.iter().map(|&t| samples.iter().map(|s| column(s, t) / s.time_ns).collect::<Vec<_>>()).collect();
    let scale: Vec<f64> = columns.iter().map(|c| norm(c).max(f64::MIN_POSITIVE)).collect();
    for (c, s) in columns.iter_mut().zip(&scale) {
        c.iter_mut().for_each(|x| *x /= s);
    }
    let mut rhs = vec![1.0; n];
    let r = reflect(&mut columns, &mut rhs);
    let mut x = vec![0.0; k];
    for i in (0..k).rev() {
        let rest: f64 = (i + 1..k).map(|j| r[i][j] * x[j]).sum();
        x[i] = if r[i][i].abs() > 1e-12 { (rhs[i] - rest) / r[i][i] } else { 0.0 };
    }
    let error2: f64 = rhs[k..].iter().map(|e| e * e).sum::<f64>() / (n - k).max(1) as f64;
    let inverse = invert_upper(&r);
    let variance = |i: usize| inverse[i].iter().map(|v| v * v).sum::<f64>() * error2;
    Solved {
        standard_errors: (0..k).map(|i| variance(i).sqrt() / scale[i]).collect(),
        coefficients: x.iter().zip(&scale).map(|(c, s)| c / s).collect(),
        condition: condition(&r),
    }
}

/// Householder reflections: leaves `Qᵀ·rhs` in `rhs` and returns the upper triangle `R`.
fn reflect(columns: &mut [Vec<f64>], rhs: &mut [f64]) -> Vec<Vec<f64>> {
    let (n, k) = (rhs.len(), columns.len());
    let mut r = vec![vec![0.0; k]; k];
    for i in 0..k {
        let length = norm(&columns[i][i..]);
        let alpha = if columns[i][i] > 0.0 { -length } else { length };
        let mut v = columns[i][i..].to_vec();
        v[0] -= alpha;
        let v2: f64 = v.iter().map(|x| x * x).sum();
        let apply = |target: &mut [f64]| {
            if v2 > 0.0 {
                let dot: f64 = v.iter().zip(target.iter()).map(|(a, b)| a * b).sum();
                target.iter_mut().zip(&v).for_each(|(t, a)| *t -= 2.0 * dot / v2 * a);
            }
        };
        for column in columns.iter_mut().skip(i) {
            apply(&mut column[i..n]);
        }
        apply(&mut rhs[i..n]);
        for j in i..k {
            r[i][j] = columns[j][i];
        }
    }
    r
}

#[expect(clippy::needless_range_loop, reason = "a matrix is read by its indices")]
fn invert_upper(r: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let k = r.len();
    let mut inverse = vec![vec![0.0; k]; k];
    for j in 0..k {
        for i in (0..=j).rev() {
            let rest: f64 = (i + 1..=j).map(|m| r[i][m] * inverse[m][j]).sum();
            let one = f64::from(u8::from(i == j));
            inverse[i][j] = if r[i][i].abs() > 1e-12 { (one - rest) / r[i][i] } else { 0.0 };
        }
    }
    inverse
}

/// Condition number of a small upper triangle: Jacobi rotations on `RᵀR`.
#[expect(clippy::needless_range_loop, reason = "a matrix is read by its indices")]
fn condition(r: &[Vec<f64>]) -> f64 {
    let k = r.len();
    let mut m: Vec<Vec<f64>> = (0..k).map(|i| (0..k).map(|j| (0..k).map(|l| r[l][i] * r[l][j]).sum()).collect()).collect();
    for _ in 0..30 {
        for p in 0..k {
            for q in p + 1..k {
                if m[p][q].abs() < 1e-15 {
                    continue;
                }
                let angle = 0.5 * (2.0 * m[p][q]).atan2(m[q][q] - m[p][p]);
                let (s, c) = angle.sin_cos();
                for row in m.iter_mut() {
                    (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
                }
                for j in 0..k {
                    (m[p][j], m[q][j]) = (c * m[p][j] - s * m[q][j], s * m[p][j] + c * m[q][j]);
                }
            }
        }
    }
    let (low, high) = (0..k).map(|i| m[i][i]).fold((f64::INFINITY, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
    if low > 0.0 { (high / low).sqrt() } else { f64::INFINITY }
}

fn norm(v: &[f64]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn finish(samples: &[Sample], active: &[usize], solved: Solved, quantiles: usize) -> Fit {
    let mut fit = Fit {
        terms: [0.0; 3],
        standard_errors: [0.0; 3],
        condition: solved.condition,
        relative_rms: 0.0,
        r2: 1.0,
        residual_quantiles: Vec::new(),
    };
    for (i, &term) in active.iter().enumerate() {
        fit.terms[term] = solved.coefficients[i].max(0.0);
        fit.standard_errors[term] = solved.standard_errors[i];
    }
    let ratios: Vec<f64> = samples.iter().map(|s| s.time_ns / fit.predict(s.bytes, s.pixels).max(f64::MIN_POSITIVE)).collect();
    fit.relative_rms = (ratios.iter().map(|r| (r - 1.0) * (r - 1.0)).sum::<f64>() / ratios.len() as f64).sqrt();
    // The residual carries the spread and the terms carry the mean: of the whole corpus' time, not of its ratios.
    let measured: f64 = samples.iter().map(|s| s.time_ns).sum();
    let fitted: f64 = samples.iter().map(|s| fit.predict(s.bytes, s.pixels)).sum();
    let level = measured / fitted.max(f64::MIN_POSITIVE);
    fit.terms.iter_mut().for_each(|t| *t *= level);
    let mean = measured / samples.len() as f64;
    let squares = |of: &dyn Fn(&Sample) -> f64| samples.iter().map(|s| of(s) * of(s)).sum::<f64>();
    let (left, whole) = (squares(&|s| s.time_ns - fit.predict(s.bytes, s.pixels)), squares(&|s| s.time_ns - mean));
    fit.r2 = if whole > 0.0 { 1.0 - left / whole } else { 1.0 };
    fit.residual_quantiles = quantile_table(ratios, quantiles.max(2));
    fit
}

/// `count` equally spaced quantiles of `values`, from the least to the most, with straight lines between neighbouring values.
pub fn quantiles_of(mut values: Vec<f64>, count: usize) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    let at = |q: f64| {
        let (low, part) = ((q * last as f64).floor() as usize, (q * last as f64).fract());
        values[low] + part * (values[(low + 1).min(last)] - values[low])
    };
    (0..count).map(|i| at(i as f64 / (count - 1) as f64)).collect()
}

/// The same, scaled to a mean of 1 under linear interpolation between them.
pub fn quantile_table(values: Vec<f64>, count: usize) -> Vec<f64> {
    let mut table = quantiles_of(values, count);
    let mean = table.windows(2).map(|w| (w[0] + w[1]) / 2.0).sum::<f64>() / (count - 1) as f64;
    table.iter_mut().for_each(|q| *q /= mean);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(cost: impl Fn(f64, f64, usize) -> f64) -> Vec<Sample> {
        let mut out = Vec::new();
        for (i, pixels) in [10_000.0, 60_000.0, 190_000.0, 600_000.0].into_iter().enumerate() {
            for (j, density) in [0.2, 0.5, 0.9, 1.5].into_iter().enumerate() {
                let bytes = pixels * density;
                out.push(Sample { bytes, pixels, time_ns: cost(bytes, pixels, i * 4 + j) });
            }
        }
        out
    }

    fn close(a: f64, b: f64, tolerance: f64) -> bool {
        (a - b).abs() <= tolerance * b.abs()
    }

    #[test]
    fn an_exact_cost_is_found_exactly() {
        let f = fit(&corpus(|b, p, _| 20_000.0 + 5.0 * b + 1.5 * p), Terms::ALL, 17).expect("enough samples");
        assert!(close(f.terms[0], 20_000.0, 1e-6) && close(f.terms[1], 5.0, 1e-6) && close(f.terms[2], 1.5, 1e-6), "{f:?}");
        assert!(f.relative_rms < 1e-9 && f.condition < 30.0, "{f:?}");
    }

    #[test]
    fn noise_widens_the_errors_and_the_residual_but_keeps_the_mean() {
        let noise = |i: usize| 1.0 + if i.is_multiple_of(2) { 0.1 } else { -0.1 };
        let samples = corpus(|b, p, i| (20_000.0 + 5.0 * b + 1.5 * p) * noise(i));
        let f = fit(&samples, Terms::ALL, 17).expect("enough samples");
        assert!((0.05..0.15).contains(&f.relative_rms), "{f:?}");
        assert!(f.standard_errors[1] > 0.0 && close(f.terms[1], 5.0, 0.5));
        let (fitted, measured) =
            (samples.iter().map(|s| f.predict(s.bytes, s.pixels)).sum::<f64>(), samples.iter().map(|s| s.time_ns).sum::<f64>());
        assert!(close(fitted, measured, 1e-9));
        let mean = f.residual_quantiles.windows(2).map(|w| (w[0] + w[1]) / 2.0).sum::<f64>() / 16.0;
        assert!(close(mean, 1.0, 1e-9));
    }

    #[test]
    fn a_term_that_would_be_negative_is_left_out() {
        let f = fit(&corpus(|b, _, _| 1_000.0 + 2.0 * b), Terms::ALL, 5).expect("enough samples");
        assert!(f.terms.iter().all(|t| *t >= 0.0), "{f:?}");
        assert!(close(f.predict(1e5, 2e5), 201_000.0, 1e-3), "{f:?}");
    }

    #[test]
    fn what_cannot_be_told_apart_shows_in_the_condition() {
        let same: Vec<Sample> = corpus(|b, _, _| 100.0 + b).iter().map(|s| Sample { pixels: s.bytes * 2.0, ..*s }).collect();
        assert!(fit(&same, Terms::ALL, 5).expect("enough samples").condition > 1e6);
    }

    #[test]
    fn too_little_or_nonsense_is_an_error() {
        let one = [Sample { bytes: 1.0, pixels: 1.0, time_ns: 1.0 }];
        assert_eq!(fit(&one, Terms::ALL, 5), Err(FitError::TooFew { have: 1, terms: 3 }));
        let zero = [Sample { bytes: 1.0, pixels: 1.0, time_ns: 0.0 }; 4];
        assert_eq!(fit(&zero, Terms::ALL, 5), Err(FitError::BadTime));
    }
}
