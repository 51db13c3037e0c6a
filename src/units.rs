//! Values with their units, as people write them in scenarios, models and flags: `"50 ms"`, `"8 GiB"`, `"12 GB/s"`, `"10 %"`.
//!
//! A [`Quantity`] remembers the unit it was written in and is displayed in it, so that a report quotes what the user typed;
//! it is compared, ordered and computed with in its base unit. Bits and bytes are told apart by case, as the field does: `400 Gb/s`
//! is 50 GB/s. `k`, `M`, `G`, `T` are powers of 1000, `Ki`, `Mi`, `Gi`, `Ti` of 1024.
//!
//! ```
//! use towtank::units::{ByteRate, Duration, Size};
//!
//! let step: Duration = "50 ms".parse()?;
//! assert_eq!(step.as_ns(), 50_000_000);
//! assert_eq!(step.to_string(), "50 ms");
//! assert_eq!("64 KiB".parse::<Size>()?.as_bytes(), 65_536);
//! assert_eq!("400 Gb/s".parse::<ByteRate>()?, "50 GB/s".parse()?);
//! assert!("50".parse::<Duration>().is_err());
//! # Ok::<(), towtank::units::UnitError>(())
//! ```

mod count;
mod dimension;
mod error;
mod quantity;

pub use count::{Count, counted};
pub use dimension::{
    ByteCost, ByteRate, Dimension, Duration, Fraction, PixelCost, RequestRate, SampleRate, Size, Unit, by_byte,
    by_bytes_per_second, by_pixel, by_requests_per_second, by_samples_per_second, by_size, by_time, percent,
};
pub use error::{UnitError, UnitProblem};
pub use quantity::Quantity;

/// How many single-character insertions, deletions, replacements and swaps of neighbours lead from `a` to `b`, upper and lower case
/// alike.
///
/// What "did you mean" goes by.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    let first: Vec<usize> = (0..=b.len()).collect();
    let mut rows = [first.clone(), first.clone(), first];
    for i in 0..a.len() {
        let [older, old, new] = &mut rows;
        new[0] = i + 1;
        for j in 0..b.len() {
            let replaced = old[j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(old[j + 1] + 1).min(new[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(older[j - 1] + 1);
            }
            new[j + 1] = least;
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

/// The candidate nearest to `typed`, when it is near enough to be what was meant: at most a third of it differs, or one is the
/// beginning of the other.
pub fn nearest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (typed.chars().count() / 3).max(1);
    let begins = |a: &str, b: &str| a.len() >= 3 && b.to_lowercase().starts_with(&a.to_lowercase());
    let distance = |candidate: &str| match edit_distance(typed, candidate) {
        near if near <= allowed => Some(near),
        far if begins(candidate, typed) || begins(typed, candidate) => Some(far),
        _ => None,
    };
    candidates.into_iter().filter_map(|c| Some((distance(c)?, c))).min_by_key(|(d, _)| *d).map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_meant_when_it_is_near() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("titel", "title"), 1);
        assert_eq!((edit_distance("", "abc"), edit_distance("abc", "")), (3, 3));
        assert_eq!(nearest("prefech", ["budget", "prefetch", "batch"]), Some("prefetch"));
        assert_eq!(nearest("Batch", ["budget", "prefetch", "batch"]), Some("batch"));
        assert_eq!(nearest("planned", ["plan", "completion"]), Some("plan"));
        assert_eq!(nearest("colour", ["budget", "prefetch", "batch"]), None);
    }
}
