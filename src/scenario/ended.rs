//! How the ranks of a scenario ended, on either machine.

use super::deliveries::Findings;
use crate::loader::{self, Outcome};

/// What came of one rank, or of all together.
pub(super) struct Ended {
    /// The loader's books.
    pub(super) outcome: Outcome,
    /// Whether every sample came once, and in order.
    pub(super) findings: Findings,
    /// The error that the consumer got, when it got one.
    pub(super) error: Option<loader::Error>,
}

impl Ended {
    /// The most memory that the rank's loader held \[B\].
    pub(super) fn peak_bytes(&self) -> u64 {
        self.outcome.memory.fixed_bytes.saturating_add(self.outcome.memory.peak_reserved_bytes)
    }

    /// All ranks as one: the books of the first that failed, else of the first, with everybody's accounts in it; the first finding
    /// of each kind. Beside it the rank that failed first, where there are several.
    pub(super) fn of_ranks(ranks: Vec<Ended>) -> (Ended, Option<u16>) {
        let failed = ranks.iter().position(|rank| rank.error.is_some());
        let mut accounts = loader::Accounts::default();
        let (mut exactly_once, mut order_kept) = (Ok(()), Ok(()));
        let several = ranks.len() > 1;
        for (number, rank) in ranks.iter().enumerate() {
            accounts = accounts.plus(&rank.outcome.accounts);
            let named = |why: String| if several { format!("rank {number}: {why}") } else { why };
            exactly_once = exactly_once.and(rank.findings.exactly_once.clone().map_err(named));
            order_kept = order_kept.and(rank.findings.order_kept.clone().map_err(named));
        }
        let mut one = ranks.into_iter().nth(failed.unwrap_or(0)).expect("there is at least one rank");
        one.outcome.accounts = accounts;
        one.findings = Findings { exactly_once, order_kept };
        (one, failed.filter(|_| several).and_then(|rank| u16::try_from(rank).ok()))
    }
}
