//! What a point costs, and in which order costs count.

use std::fmt;

use serde::Serialize;

use super::{Settings, search::COSTS};
use crate::{
    document::{Diagnostic, Place, Source, Trouble},
    report::humane,
    units::nearest,
};

/// What a user has to provide. Known before anything is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// The budgets of all ranks together \[B\]: what ring, device batches, frames under decoding and encoded bytes in flight may take.
    Memory,
    /// Threads of the pool, which all ranks of a node share.
    Cores,
    /// Lanes of all ranks together: samples under way at once.
    Lanes,
}

impl Cost {
    /// All, in the order in which those that nobody named decide between equals.
    pub const ALL: [Cost; COSTS] = [Cost::Memory, Cost::Cores, Cost::Lanes];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Cost::Memory => "memory",
            Cost::Cores => "cores",
            Cost::Lanes => "lanes",
        }
    }

    /// What `settings` cost.
    pub fn of(self, settings: &Settings) -> u64 {
        let all = |n: u64| n.saturating_mul(settings.ranks);
        match self {
            Cost::Memory => all(settings.budget_bytes),
            Cost::Cores => settings.threads,
            Cost::Lanes => all(settings.lanes),
        }
    }

    /// An amount of it for people.
    pub fn told(self, amount: u64) -> String {
        match self {
            Cost::Memory => humane::bytes(amount as f64),
            Cost::Cores | Cost::Lanes => humane::count(amount),
        }
    }

    /// Reads `memory,cores`.
    ///
    /// # Errors
    ///
    /// When a word is none of them, or comes twice, or there is none.
    pub fn parse(text: &str) -> Result<Vec<Cost>, Trouble> {
        let source = Source::flag("--cheapest", text);
        let known: Vec<String> = Cost::ALL.map(|cost| format!("`{}`", cost.name())).into();
        let mut costs = Vec::new();
        let mut start = 0;
        for part in text.split(',') {
            let (from, word) = (start + part.len() - part.trim_start().len(), part.trim());
            let place = Place::new(&source, from..from + word.len());
            start += part.len() + 1;
            let wrong = |message: String| Diagnostic::new(message).at(Some(&place)).expected(known.join(", "));
            let Some(cost) = Cost::ALL.into_iter().find(|cost| cost.name() == word.to_lowercase()) else {
                let near = nearest(word, Cost::ALL.map(Cost::name)).map(|near| format!("did you mean `{near}`?"));
                return Err(wrong(format!("`{word}` is no cost")).hint(near.unwrap_or_default()).into());
            };
            if costs.contains(&cost) {
                return Err(wrong(format!("`{word}` comes twice")).into());
            }
            costs.push(cost);
        }
        Ok(costs)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_in_their_order() {
        assert_eq!(Cost::parse("memory,cores").unwrap(), [Cost::Memory, Cost::Cores]);
        assert_eq!(Cost::parse(" Lanes , memory").unwrap(), [Cost::Lanes, Cost::Memory]);
        let error = |text: &str| Cost::parse(text).unwrap_err().to_string();
        insta::assert_snapshot!(error("cores,memry"), @"
        error: `memry` is no cost
         --> --cheapest
          |
          | cores,memry
          |       ^^^^^ expected `memory`, `cores`, `lanes`
        hint: did you mean `memory`?
        ");
        assert!(error("cores,cores").contains("`cores` comes twice"));
        assert!(error("").contains("`` is no cost"));
    }
}
