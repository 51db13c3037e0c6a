//! How many of something.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

use super::{UnitError, UnitProblem};

/// A whole number, displayed in groups of three from 10 000 on, as Rust and TOML read it: `1_281_167`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

impl Count {
    pub(crate) const WHAT: &'static str = "a whole number";
    pub(crate) const EXAMPLE: &'static str = "1_281_167";
}

/// So many of something, in words: `1 seed`, `12_000 seeds`.
///
/// ```
/// use towtank::units::counted;
///
/// assert_eq!(counted(1, "batch", "batches"), "1 batch");
/// assert_eq!(counted(12_000, "batch", "batches"), "12_000 batches");
/// ```
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", Count(n), if n == 1 { one } else { many })
}

impl FromStr for Count {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let fail = |problem| UnitError::new(Count::WHAT, Count::EXAMPLE, &[], text, problem);
        let digits = text.trim();
        if digits.starts_with('-') {
            return Err(fail(UnitProblem::Negative));
        }
        if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_digit() || c == '_') {
            return Err(fail(UnitProblem::NotWhole));
        }
        digits.replace('_', "").parse().map(Count).map_err(|_| fail(UnitProblem::TooLarge))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        if digits.len() < 5 {
            return f.pad(&digits);
        }
        let mut grouped = String::with_capacity(digits.len() * 4 / 3 + 1);
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                grouped.push('_');
            }
            grouped.push(digit);
        }
        f.pad(&grouped)
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_count_is_read_back(n: u64) {
            prop_assert_eq!(Count(n).to_string().parse::<Count>().unwrap(), Count(n));
        }
    }

    #[test]
    fn counts_are_grouped_from_five_digits_on() {
        assert_eq!(Count(1_281_167).to_string(), "1_281_167");
        assert_eq!(Count(9999).to_string(), "9999");
        assert_eq!("12 000".parse::<Count>().unwrap_err().problem(), &UnitProblem::NotWhole);
        assert_eq!("-1".parse::<Count>().unwrap_err().problem(), &UnitProblem::Negative);
        assert_eq!("99999999999999999999".parse::<Count>().unwrap_err().problem(), &UnitProblem::TooLarge);
    }
}
