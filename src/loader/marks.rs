//! A set of indices that is nearly a prefix: a low-water mark and a bitmap above it.

use std::collections::VecDeque;

/// A set of indices, counted from 0: all below [`low`](Marks::low), not `low` itself, and some above.
///
/// In memory and when saved it takes one bit for each index between `low` and the highest one in the set, so it is as long as the
/// set is untidy, not as it is large.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(from = "Saved", into = "Saved")]
pub struct Marks {
    low: u64,
    /// Bit `b` of word `w` stands for index `base + 64 w + b`, where `base` is `low` rounded down to 64. Bits below `low` are
    /// set, and the last word, if there is one, holds an index above `low`.
    words: VecDeque<u64>,
    /// Indices above `low`.
    above: u64,
}

/// As saved: what is above `low`, as words that start at `low` rounded down to 64.
#[derive(serde::Serialize, serde::Deserialize)]
struct Saved {
    low: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    above: Vec<u64>,
}

impl Marks {
    /// The empty set.
    pub fn new() -> Marks {
        Marks::default()
    }

    /// All indices below `low`.
    pub fn below(low: u64) -> Marks {
        Marks { low, ..Marks::default() }
    }

    /// The lowest index that is not in the set.
    pub fn low(&self) -> u64 {
        self.low
    }

    /// How many indices are in the set.
    pub fn len(&self) -> u64 {
        self.low + self.above
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.low == 0 && self.above == 0
    }

    /// One more than the highest index in the set; 0 for the empty set.
    pub fn end(&self) -> u64 {
        match self.words.back() {
            None => self.low,
            Some(last) => self.base() + 64 * self.words.len() as u64 - u64::from(last.leading_zeros()),
        }
    }

    /// Bits the set takes beyond its low-water mark: the distance from [`low`](Marks::low) to [`end`](Marks::end).
    pub fn span(&self) -> u64 {
        self.end() - self.low
    }

    /// Whether `index` is in the set.
    pub fn contains(&self, index: u64) -> bool {
        index < self.low || self.place(index).is_some_and(|(w, bit)| self.words.get(w).is_some_and(|word| word & bit != 0))
    }

    /// Adds `index`; returns whether it was not in the set before.
    pub fn insert(&mut self, index: u64) -> bool {
        if index == self.low && self.words.is_empty() {
            self.low += 1;
            return true;
        }
        let Some((w, bit)) = self.place(index).filter(|_| index >= self.low) else { return false };
        if self.words.is_empty() {
            self.words.push_back((1 << (self.low % 64)) - 1);
        }
        while self.words.len() <= w {
            self.words.push_back(0);
        }
        if self.words[w] & bit != 0 {
            return false;
        }
        self.words[w] |= bit;
        self.above += 1;
        if index == self.low {
            self.settle();
        }
        true
    }

    /// The indices that are not in the set, by rank.
    pub fn missing(&self) -> Missing {
        let base = self.base();
        let mut before = Vec::with_capacity(self.words.len());
        let mut zeros = 0;
        for word in &self.words {
            before.push(zeros);
            zeros += u64::from(word.count_zeros());
        }
        Missing { words: self.words.iter().copied().collect(), before, base, low: self.low, zeros }
    }

    /// First index of the first word.
    fn base(&self) -> u64 {
        self.low & !63
    }

    fn place(&self, index: u64) -> Option<(usize, u64)> {
        let offset = index.checked_sub(self.base())?;
        Some(((offset / 64) as usize, 1 << (offset % 64)))
    }

    /// Moves `low` past the indices that follow it without a gap.
    fn settle(&mut self) {
        while let Some(first) = self.words.front() {
            let ones = first.trailing_ones();
            let next = self.base() + u64::from(ones);
            self.above -= next - self.low;
            self.low = next;
            if ones < 64 {
                break;
            }
            self.words.pop_front();
        }
        if self.above == 0 {
            self.words.clear();
        }
    }
}

impl Extend<u64> for Marks {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, indices: I) {
        for index in indices {
            self.insert(index);
        }
    }
}

impl From<Saved> for Marks {
    fn from(saved: Saved) -> Marks {
        let mut marks = Marks::below(saved.low);
        let base = marks.base();
        for (w, word) in saved.above.into_iter().enumerate() {
            let first = base.saturating_add(64 * w as u64);
            marks.extend((0..64).filter(|b| word >> b & 1 == 1).map(|b| first.saturating_add(b)));
        }
        marks
    }
}

impl From<Marks> for Saved {
    fn from(marks: Marks) -> Saved {
        Saved { low: marks.low, above: marks.words.into() }
    }
}

/// What is not in a set of [`Marks`], as a list that goes on for ever.
#[derive(Clone, Debug)]
pub struct Missing {
    words: Vec<u64>,
    /// Missing indices before each word.
    before: Vec<u64>,
    base: u64,
    low: u64,
    /// Missing indices in all words.
    zeros: u64,
}

impl Missing {
    /// Number `k` of the missing indices, in ascending order, from 0.
    pub fn nth(&self, k: u64) -> u64 {
        if self.words.is_empty() {
            return self.low + k;
        }
        if k >= self.zeros {
            return self.base + 64 * self.words.len() as u64 + (k - self.zeros);
        }
        let w = self.before.partition_point(|before| *before <= k) - 1;
        let mut free = !self.words[w];
        for _ in 0..k - self.before[w] {
            free &= free - 1;
        }
        self.base + 64 * w as u64 + u64::from(free.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn marks_are_a_set(low in 0u64..100, indices in proptest::collection::vec(0u64..260, 0..900)) {
            let mut marks = Marks::below(low);
            let mut set: BTreeSet<u64> = (0..low).collect();
            for index in indices {
                prop_assert_eq!(marks.insert(index), set.insert(index));
                let first_gap = (0..).find(|i| !set.contains(i)).expect("a finite set");
                prop_assert_eq!(marks.low(), first_gap);
                prop_assert_eq!(marks.len(), set.len() as u64);
                prop_assert_eq!(marks.end(), set.last().map_or(0, |last| last + 1));
                prop_assert!(marks.words.len() as u64 <= marks.span() / 64 + 2);
            }
            for index in 0..300 {
                prop_assert_eq!(marks.contains(index), set.contains(&index));
            }
            let missing = marks.missing();
            for (k, index) in (0..400).filter(|i| !set.contains(i)).enumerate() {
                prop_assert_eq!(missing.nth(k as u64), index);
            }
            let json = serde_json::to_string(&marks).expect("numbers");
            prop_assert_eq!(serde_json::from_str::<Marks>(&json).expect("what was written"), marks);
        }
    }

    #[test]
    fn a_prefix_is_saved_as_one_number() {
        assert_eq!(serde_json::to_string(&Marks::below(12)).expect("a number"), r#"{"low":12}"#);
    }
}
