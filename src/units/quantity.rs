//! A number and its unit.

use std::{cmp::Ordering, fmt, marker::PhantomData, str::FromStr};

use serde::{Serialize, Serializer};

use super::{Dimension, Unit, UnitError, UnitProblem};

/// A number of units of dimension `D`: finite and not negative. Displayed in the unit it was written in, compared in the base unit.
#[derive(Clone, Copy)]
pub struct Quantity<D> {
    number: f64,
    unit: usize,
    dimension: PhantomData<D>,
}

impl<D: Dimension> Quantity<D> {
    /// `number` of the unit `symbol`.
    ///
    /// # Panics
    ///
    /// If `D` has no such unit, or `number` is negative or not finite.
    pub fn new(number: f64, symbol: &str) -> Quantity<D> {
        assert!(number.is_finite() && number >= 0.0, "{number} {symbol} is not {}", D::WHAT);
        let unit = unit_of::<D>(symbol).unwrap_or_else(|| panic!("`{symbol}` is not a unit of {}", D::WHAT));
        Quantity { number, unit, dimension: PhantomData }
    }

    /// `base` of the base unit, written in the largest unit that leaves it at 1 or above. Not finite or negative counts as 0.
    pub fn of_base(base: f64) -> Quantity<D> {
        let base = if base.is_finite() { base.max(0.0) } else { 0.0 };
        // Bits and powers of 1024 are for people to choose, never for a program.
        let plain = |s: &str| !s.contains('i') || s == "min";
        let chosen = D::UNITS.iter().enumerate().filter(|(_, u)| plain(u.symbol) && !u.symbol.contains("b/"));
        let unit = chosen.filter(|(_, u)| u.in_base <= base || u.in_base <= 1.0).map(|(i, _)| i).next_back().unwrap_or(0);
        Quantity { number: base / D::UNITS[unit].in_base, unit, dimension: PhantomData }
    }

    /// The value in the dimension's base unit.
    pub fn base(self) -> f64 {
        self.number * D::UNITS[self.unit].in_base
    }

    /// `base` of the base unit, as a number of the unit that this quantity is written in, and that unit.
    pub fn alike(self, base: f64) -> (f64, &'static str) {
        let Unit { symbol, in_base, .. } = D::UNITS[self.unit];
        (base / in_base, symbol)
    }

    /// Whether it is exactly 0.
    pub fn is_zero(self) -> bool {
        self.number == 0.0
    }
}

fn unit_of<D: Dimension>(symbol: &str) -> Option<usize> {
    D::UNITS.iter().position(|u| u.symbol == symbol || u.aliases.contains(&symbol))
}

impl<D: Dimension> FromStr for Quantity<D> {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let fail = |problem| UnitError::of::<D>(text, problem);
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '+'))).unwrap_or(trimmed.len());
        let (digits, symbol) = (trimmed[..end].trim_end(), trimmed[end..].trim());
        if digits.is_empty() {
            return Err(fail(UnitProblem::NoNumber));
        }
        let number: f64 = digits.replace('_', "").parse().map_err(|_| fail(UnitProblem::NoNumber))?;
        if symbol.is_empty() {
            return Err(fail(UnitProblem::NoUnit));
        }
        let unit = unit_of::<D>(symbol).ok_or_else(|| fail(UnitProblem::UnknownUnit(symbol.to_owned())))?;
        if number < 0.0 || digits.starts_with('-') {
            return Err(fail(UnitProblem::Negative));
        }
        if number * D::UNITS[unit].in_base > D::MOST {
            return Err(fail(UnitProblem::TooLarge));
        }
        Ok(Quantity { number, unit, dimension: PhantomData })
    }
}

impl<D: Dimension> fmt::Display for Quantity<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.number, D::UNITS[self.unit].symbol))
    }
}

impl<D: Dimension> fmt::Debug for Quantity<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<D: Dimension> PartialEq for Quantity<D> {
    fn eq(&self, other: &Self) -> bool {
        self.base() == other.base()
    }
}

impl<D: Dimension> PartialOrd for Quantity<D> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.base().partial_cmp(&other.base())
    }
}

impl<D: Dimension> Serialize for Quantity<D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::*;

    fn round_trips<D: Dimension>(number: f64, unit: usize) {
        let written = Quantity::<D> { number, unit: unit % D::UNITS.len(), dimension: PhantomData };
        let text = written.to_string();
        if written.base() > D::MOST {
            assert_eq!(text.parse::<Quantity<D>>().unwrap_err().problem(), &UnitProblem::TooLarge);
            return;
        }
        let read: Quantity<D> = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!((read.number, read.unit), (written.number, written.unit), "{text}");
        assert_eq!(read.to_string(), text);
        let base = Quantity::<D>::of_base(written.base());
        assert!((base.base() - written.base()).abs() <= written.base() * 1e-15, "{written} became {base}");
    }

    proptest! {
        #[test]
        fn what_is_displayed_is_read_back(number in prop_oneof![
            (0u64..1_000_000_000).prop_map(|n| n as f64),
            (0u64..1_000_000_000).prop_map(|n| n as f64 / 1000.0),
            0.0..1e12f64,
        ], unit in 0usize..60) {
            round_trips::<by_time>(number, unit);
            round_trips::<by_size>(number, unit);
            round_trips::<by_bytes_per_second>(number, unit);
            round_trips::<by_samples_per_second>(number, unit);
            round_trips::<by_requests_per_second>(number, unit);
            round_trips::<percent>(number, unit);
            round_trips::<by_byte>(number, unit);
            round_trips::<by_pixel>(number, unit);
        }

        #[test]
        fn a_number_of_bytes_survives(bytes in prop_oneof![0u64..1 << 20, 0u64..1 << 52, (0u64..1 << 20).prop_map(|n| n << 30)]) {
            prop_assert_eq!(Size::from_bytes(bytes).as_bytes(), bytes);
            prop_assert_eq!(Size::from_bytes(bytes).to_string().parse::<Size>().unwrap().as_bytes(), bytes);
        }

        #[test]
        fn nothing_that_is_typed_makes_it_panic(text in ".{0,24}") {
            let _ = text.parse::<Duration>().map_err(|e| e.to_string());
            let _ = text.parse::<ByteRate>().map_err(|e| e.hint());
            let _ = text.parse::<Count>().map_err(|e| e.to_string());
        }
    }

    #[test]
    fn units_are_what_the_field_means_by_them() {
        let same = |a: &str, b: &str| assert_eq!(a.parse::<ByteRate>().unwrap(), b.parse().unwrap(), "{a} and {b}");
        same("400 Gb/s", "50 GB/s");
        same("8 kb/s", "1 kB/s");
        same("1 KiB/s", "1024 B/s");
        assert_eq!("1.5ms".parse::<Duration>().unwrap().as_ns(), 1_500_000);
        assert_eq!("2 us".parse::<Duration>().unwrap().to_string(), "2 µs");
        assert_eq!("1_300 img/s".parse::<SampleRate>().unwrap().to_string(), "1300 samples/s");
        assert_eq!("10 %".parse::<Fraction>().unwrap().as_ppm(), 100_000);
        assert_eq!(Duration::of_base(90e9).to_string(), "1.5 min");
        assert_eq!(Size::from_bytes(8 << 30).to_string(), "8 GiB");
        assert_eq!(ByteRate::of_base(2.7e9).to_string(), "2.7 GB/s");
    }

    #[test]
    fn errors_say_what_was_expected() {
        let duration = |text: &str| text.parse::<Duration>().unwrap_err();
        assert_eq!("8760 h".parse::<Duration>().unwrap().as_ns(), 365 * 24 * 3600 * 1_000_000_000);
        assert_eq!(duration("8761 h").hint(), "it can be 8760 h at most");
        insta::assert_snapshot!(duration("50"), @r#"expected a duration with its unit, such as "50 ms", found "50" without a unit"#);
        insta::assert_snapshot!(duration("fast"), @r#"expected a duration with its unit, such as "50 ms", found "fast", which does not begin with a number"#);
        insta::assert_snapshot!(duration("-5 ms"), @r#"expected a duration with its unit, such as "50 ms", found "-5 ms", which is negative"#);
        insta::assert_snapshot!(duration("5 sec"), @r#"expected a duration with its unit, such as "50 ms", found "5 sec", whose unit `sec` is unknown"#);
        insta::assert_snapshot!(duration("5 sec").hint(), @"the units are `ns`, `µs`, `ms`, `s`, `min`, `h`");
        insta::assert_snapshot!(duration("5 Ms").hint(), @"did you mean `5 ms`?");
        let rate = "12 gb/s".parse::<ByteRate>().unwrap_err();
        insta::assert_snapshot!(rate.hint(), @"did you mean `12 Gb/s` (bits) or `12 GB/s`?");
        let size = "150 KB".parse::<Size>().unwrap_err();
        insta::assert_snapshot!(size.hint(), @"did you mean `150 kB` or `150 KiB`?");
    }
}
