//! Why a text is not a quantity.

use super::{Dimension, Quantity, Unit, edit_distance};

/// What is wrong with the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitProblem {
    /// It does not begin with a number.
    NoNumber,
    /// The number has no unit.
    NoUnit,
    /// The unit is not one of the dimension's.
    UnknownUnit(String),
    /// The number is negative.
    Negative,
    /// The number does not fit.
    TooLarge,
    /// A count that is not a whole number.
    NotWhole,
}

/// A text that is not the quantity it should be.
#[derive(Clone, Debug, thiserror::Error)]
#[error("expected {what}, such as {example:?}, found {given:?}{}", self.because())]
pub struct UnitError {
    what: &'static str,
    example: &'static str,
    units: &'static [Unit],
    most: Option<String>,
    given: String,
    problem: UnitProblem,
}

impl UnitError {
    pub(super) fn new(
        what: &'static str,
        example: &'static str,
        units: &'static [Unit],
        given: &str,
        problem: UnitProblem,
    ) -> UnitError {
        UnitError { what, example, units, most: None, given: given.to_owned(), problem }
    }

    pub(super) fn of<D: Dimension>(given: &str, problem: UnitProblem) -> UnitError {
        let most = (D::MOST < f64::MAX).then(|| Quantity::<D>::of_base(D::MOST).to_string());
        UnitError { most, ..UnitError::new(D::WHAT, D::EXAMPLE, D::UNITS, given, problem) }
    }

    /// What is wrong with the text.
    pub fn problem(&self) -> &UnitProblem {
        &self.problem
    }

    fn because(&self) -> String {
        match &self.problem {
            UnitProblem::NoNumber => ", which does not begin with a number".to_owned(),
            UnitProblem::NoUnit => " without a unit".to_owned(),
            UnitProblem::UnknownUnit(unit) => format!(", whose unit `{unit}` is unknown"),
            UnitProblem::Negative => ", which is negative".to_owned(),
            UnitProblem::TooLarge => ", which is too large".to_owned(),
            UnitProblem::NotWhole => String::new(),
        }
    }

    /// What is wrong with the text, to follow the name of the field it was written for: `is "50", without a unit`.
    pub fn predicate(&self) -> String {
        format!("is {:?}{}", self.given, self.because())
    }

    /// What to write instead; empty when the message says it all.
    pub fn hint(&self) -> String {
        let known = || match self.units {
            [only] => format!("the unit is `{}`", only.symbol),
            units => format!("the units are {}", units.iter().map(|u| format!("`{}`", u.symbol)).collect::<Vec<_>>().join(", ")),
        };
        match &self.problem {
            UnitProblem::UnknownUnit(unit) => {
                let number = self.given.trim().trim_end_matches(unit.as_str()).trim_end();
                let meant = self.meant(unit);
                let several = meant.len() > 1;
                let written = |u: &&Unit| {
                    let bits = if several && u.symbol.contains("b/") { " (bits)" } else { "" };
                    format!("`{number} {}`{bits}", u.symbol)
                };
                match &meant[..] {
                    [] => known(),
                    some => format!("did you mean {}?", some.iter().map(written).collect::<Vec<_>>().join(" or ")),
                }
            }
            UnitProblem::TooLarge => self.most.iter().map(|most| format!("it can be {most} at most")).collect(),
            UnitProblem::NoUnit if !self.units.is_empty() => known(),
            _ => String::new(),
        }
    }

    /// The units that differ from what was typed by case alone; where that is one, also its power of 1024.
    fn meant(&self, typed: &str) -> Vec<&'static Unit> {
        let by_case = |u: &&Unit| u.aliases.iter().chain([&u.symbol]).any(|s| edit_distance(s, typed) == 0);
        let mut meant: Vec<_> = self.units.iter().filter(by_case).collect();
        if let [only] = meant[..] {
            meant.extend(
                self.units
                    .iter()
                    .filter(|u| u.symbol.contains('i') && u.symbol.replace('i', "").eq_ignore_ascii_case(only.symbol)),
            );
        }
        meant
    }
}
