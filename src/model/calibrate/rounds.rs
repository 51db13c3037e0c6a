//! Passes in rounds, and which of them count.
//!
//! A computer is not as fast in every second: a neighbour on the same host, another process, a processor that grows hot. A round is
//! one pass for each number of threads, back to back, so that what its passes say of each other holds in spite of that. Rounds go on
//! until enough of them were *undisturbed*: each pass within [`TOLERANCE`] of the lower quartile of all passes with as many
//! threads. The quartile, not the least, since the fastest pass is luck; and not the median, since more than half may be disturbed.

use std::collections::BTreeMap;

use super::{corpus::Pass, median};

/// How much longer than the lower quartile an undisturbed pass may take.
const TOLERANCE: f64 = 0.04;

/// All rounds so far.
pub(super) struct Rounds {
    counts: Vec<usize>,
    rounds: Vec<BTreeMap<usize, Pass>>,
}

impl Rounds {
    /// None yet, of passes with these numbers of threads.
    pub(super) fn new(counts: Vec<usize>) -> Rounds {
        Rounds { counts, rounds: Vec::new() }
    }

    /// Makes one more.
    pub(super) fn add<E>(&mut self, mut pass: impl FnMut(usize) -> Result<Pass, E>) -> Result<(), E> {
        let round = self.counts.iter().map(|&threads| Ok((threads, pass(threads)?)));
        self.rounds.push(round.collect::<Result<_, E>>()?);
        Ok(())
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.rounds.len()
    }

    /// How many were undisturbed.
    pub(super) fn undisturbed(&self) -> usize {
        self.which().len()
    }

    /// The undisturbed passes by number of threads.
    pub(super) fn passes(&self) -> BTreeMap<usize, Vec<&Pass>> {
        let which = self.which();
        self.counts.iter().map(|threads| (*threads, which.iter().map(|&i| &self.rounds[i][threads]).collect())).collect()
    }

    /// How far a pass is from the typical one, in all rounds, disturbed or not: one standard deviation of what a run will meet, relative.
    pub(super) fn spread(&self) -> f64 {
        let apart = self.counts.iter().flat_map(|threads| {
            let totals = self.totals(*threads);
            let middle = median(totals.clone());
            totals.into_iter().map(move |total| (total / middle - 1.0).abs())
        });
        // Of normally distributed values half are within 0.6745 standard deviations.
        median(apart.collect()) / 0.6745
    }

    fn totals(&self, threads: usize) -> Vec<f64> {
        self.rounds.iter().map(|round| decoding_ns(&round[&threads])).collect()
    }

    fn which(&self) -> Vec<usize> {
        let totals: Vec<Vec<f64>> = self.counts.iter().map(|&threads| self.totals(threads)).collect();
        undisturbed(&totals)
    }
}

/// Which rounds are undisturbed, given every kind of pass's times by round.
fn undisturbed(totals: &[Vec<f64>]) -> Vec<usize> {
    let most: Vec<f64> = totals.iter().map(|of_a_kind| lower_quartile(of_a_kind) * (1.0 + TOLERANCE)).collect();
    let rounds = totals.first().map_or(0, Vec::len);
    (0..rounds).filter(|&round| totals.iter().zip(&most).all(|(of_a_kind, most)| of_a_kind[round] <= *most)).collect()
}

fn lower_quartile(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 4).copied().unwrap_or(0.0)
}

/// CPU time of all decodes of a pass \[ns\].
pub(super) fn decoding_ns(pass: &Pass) -> f64 {
    pass.decode_ns.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_phase_is_set_aside_even_when_it_is_the_longer_part() {
        let alone = vec![100.0, 101.0, 130.0, 131.0, 132.0, 129.0, 99.0, 131.0, 100.0];
        let both = vec![105.0, 104.0, 140.0, 141.0, 139.0, 140.0, 106.0, 142.0, 105.0];
        assert_eq!(undisturbed(&[alone, both]), [0, 1, 6, 8]);
    }

    #[test]
    fn a_round_counts_only_if_all_of_its_passes_do() {
        let alone = vec![100.0, 100.0, 100.0, 100.0];
        let both = vec![105.0, 160.0, 105.0, 105.0];
        assert_eq!(undisturbed(&[alone, both]), [0, 2, 3]);
    }

    #[test]
    fn one_lucky_pass_does_not_make_all_others_disturbed() {
        let alone = vec![80.0, 100.0, 101.0, 102.0, 100.0, 101.0, 99.0, 100.0];
        assert_eq!(undisturbed(&[alone]).len(), 8);
    }

    #[test]
    fn without_rounds_there_is_nothing() {
        assert!(undisturbed(&[Vec::new()]).is_empty());
        assert!(undisturbed(&[]).is_empty());
    }
}
