//! How good a calibration is.

use std::fmt::Write;

use serde::Serialize;

use super::{fit, host::Cores};

/// How good a calibration is: what the fits explain, how sure their terms are, and what could not be told apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quality {
    /// The cores that were found.
    pub cores: Cores,
    /// Rounds of passes over the images.
    pub rounds: usize,
    /// Those of them that something disturbed, and that do not count.
    pub set_aside: usize,
    /// How far one pass is from another: one standard deviation, relative.
    pub spread: f64,
    /// Each cost that was fitted.
    pub fits: Vec<FitQuality>,
    /// What the model leaves open, in whole sentences.
    pub remarks: Vec<String>,
}

/// How good one fit is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FitQuality {
    /// Of what.
    pub of: String,
    /// Pieces of work that were timed.
    pub samples: usize,
    /// Each term that was asked for.
    pub terms: Vec<Term>,
    /// Part of the variance of the times that the terms explain.
    pub r2: f64,
    /// See [`Fit::condition`](fit::Fit::condition).
    pub condition: f64,
    /// Root mean square of the relative residuals.
    pub relative_rms: f64,
}

/// One term of a cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Term {
    /// `fixed`, `per_byte` or `per_pixel`.
    pub name: String,
    /// \[ns\], [ns/B] or [ns/px].
    pub value: f64,
    /// One standard error, in the same unit; 0 for a term that was left out since it came out negative.
    pub standard_error: f64,
}

/// Past this condition the split between terms is not to be trusted, though their sum is.
const CONDITION_MOST: f64 = 30.0;

impl FitQuality {
    /// Of this fit.
    pub(super) fn of(what: &str, samples: &[fit::Sample], terms: fit::Terms, fit: &fit::Fit) -> FitQuality {
        let named = [("fixed", terms.fixed), ("per_byte", terms.bytes), ("per_pixel", terms.pixels)];
        let term = |(i, (name, on)): (usize, (&str, bool))| {
            on.then(|| Term { name: name.to_owned(), value: fit.terms[i], standard_error: fit.standard_errors[i] })
        };
        FitQuality {
            of: what.to_owned(),
            samples: samples.len(),
            terms: named.into_iter().enumerate().filter_map(term).collect(),
            r2: fit.r2,
            condition: fit.condition,
            relative_rms: fit.relative_rms,
        }
    }

    /// What this fit could not tell apart.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.condition > CONDITION_MOST {
            remarks.push(format!(
                "the terms of {} cannot be told apart on these data (condition {:.0}): their sum is right for samples like these, their \
                 split is not to be trusted",
                self.of, self.condition
            ));
        }
        for term in &self.terms {
            if term.value == 0.0 {
                remarks.push(format!("no `{}` of {} could be found: it is within the noise", term.name, self.of));
            } else if term.standard_error > term.value / 2.0 {
                let percent = term.standard_error / term.value * 100.0;
                remarks.push(format!("`{}` of {} is known to ±{percent:.0} % only", term.name, self.of));
            }
        }
        remarks
    }
}

impl Quality {
    /// With what the fits leave open added to `remarks`.
    pub(super) fn new(
        cores: Cores,
        (rounds, undisturbed): (usize, usize),
        spread: f64,
        fits: Vec<FitQuality>,
        mut remarks: Vec<String>,
    ) -> Quality {
        remarks.extend(fits.iter().flat_map(FitQuality::remarks));
        Quality { cores, rounds, set_aside: rounds - undisturbed, spread, fits, remarks }
    }

    /// For a person.
    pub fn terminal(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{}", self.cores.words());
        let disturbed = match self.set_aside {
            0 => String::new(),
            n => format!(", {n} of them set aside as disturbed"),
        };
        let _ =
            writeln!(out, "{} rounds{disturbed}; a pass is within ±{:.1} % of the typical one", self.rounds, self.spread * 100.0);
        for fit in &self.fits {
            let terms: Vec<String> = fit.terms.iter().map(term_words).collect();
            let _ = writeln!(
                out,
                "{:<10} {}\n{:<10} R² {:.4}, condition {:.1}, residual {:.1} % rms, {} samples",
                fit.of,
                terms.join(" + "),
                "",
                fit.r2,
                fit.condition,
                fit.relative_rms * 100.0,
                fit.samples
            );
        }
        for remark in &self.remarks {
            let _ = writeln!(out, "note: {remark}");
        }
        out
    }
}

fn term_words(term: &Term) -> String {
    let (scale, unit) = match term.name.as_str() {
        "per_byte" => (1.0, "ns/B"),
        "per_pixel" => (1.0, "ns/px"),
        _ => (1e-3, "µs"),
    };
    let (value, error) = (term.value * scale, term.standard_error * scale);
    format!("{value:.3} ± {error:.3} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(pixels_of: impl Fn(f64) -> f64) -> Vec<fit::Sample> {
        let noise = |i: usize| 1.0 + 0.02 * [1.0, -1.0, 0.5, -0.5][i % 4];
        (1..=24)
            .map(|i| {
                let bytes = 1e4 * (i * i) as f64;
                let pixels = pixels_of(bytes);
                fit::Sample { bytes, pixels, time_ns: (1e5 + 5.0 * bytes + 2.0 * pixels) * noise(i) }
            })
            .collect()
    }

    fn quality(samples: &[fit::Sample]) -> Quality {
        let fit = fit::fit(samples, fit::Terms::ALL, 5).unwrap();
        let fits = vec![FitQuality::of("decoding", samples, fit::Terms::ALL, &fit)];
        Quality::new(Cores { threads: 2, cores: Some(1), quota: Some(1.5) }, (10, 8), 0.012, fits, Vec::new())
    }

    #[test]
    fn what_cannot_be_told_apart_is_said() {
        let apart = quality(&samples(|bytes| if (bytes as u64).is_multiple_of(3) { bytes } else { 3.0 * bytes }));
        assert!(apart.remarks.is_empty() && apart.fits[0].r2 > 0.99, "{apart:?}");
        let together = quality(&samples(|bytes| 2.0 * bytes));
        assert!(together.remarks[0].contains("cannot be told apart"), "{together:?}");
    }

    #[test]
    fn a_person_is_told_how_sure_it_is() {
        let told = quality(&samples(|bytes| if (bytes as u64).is_multiple_of(3) { bytes } else { 3.0 * bytes })).terminal();
        assert!(
            told.starts_with("2 hardware threads of 1 core, with a quota of 1.50 cores\n10 rounds, 2 of them set aside"),
            "{told}"
        );
        assert!(told.contains("ns/px") && told.contains("R² 0.99"), "{told}");
    }
}
