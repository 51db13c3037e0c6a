//! What is known of each sample of each epoch of each rank.

use std::collections::BTreeMap;

/// A place of a sample: rank, epoch, and its number or its position.
pub(super) type Place = (u16, u32, u64);

/// Numbers below this have their entry in a list, all others in a map.
const LISTED: u64 = 1 << 16;

/// A table by rank, epoch and a number, for runs in which most numbers are small: an entry is found without a search.
#[derive(Debug)]
pub(super) struct Places<T> {
    /// In order of rank and epoch.
    pages: Vec<Page<T>>,
    /// Where the last entry was found, as the next one mostly is.
    last: usize,
}

#[derive(Debug)]
struct Page<T> {
    rank: u16,
    epoch: u32,
    listed: Vec<Option<T>>,
    others: BTreeMap<u64, T>,
}

impl<T> Places<T> {
    /// Of nothing.
    pub(super) fn new() -> Places<T> {
        Places { pages: Vec::new(), last: 0 }
    }

    /// Where the page is, or where it would be.
    fn find(&self, rank: u16, epoch: u32) -> Result<usize, usize> {
        let key = |page: &Page<T>| (page.rank, page.epoch);
        match self.pages.get(self.last) {
            Some(page) if key(page) == (rank, epoch) => Ok(self.last),
            _ => self.pages.binary_search_by_key(&(rank, epoch), key),
        }
    }

    /// Enters what is known of a place; what was known before.
    pub(super) fn insert(&mut self, (rank, epoch, number): Place, value: T) -> Option<T> {
        self.last = self.find(rank, epoch).unwrap_or_else(|at| {
            self.pages.insert(at, Page { rank, epoch, listed: Vec::new(), others: BTreeMap::new() });
            at
        });
        let page = &mut self.pages[self.last];
        if number >= LISTED {
            return page.others.insert(number, value);
        }
        let at = number as usize;
        if page.listed.len() <= at {
            page.listed.resize_with((at + 1).next_power_of_two().max(64), || None);
        }
        page.listed[at].replace(value)
    }

    /// What is known of a place.
    pub(super) fn get(&self, (rank, epoch, number): Place) -> Option<&T> {
        let page = &self.pages[self.find(rank, epoch).ok()?];
        if number < LISTED { page.listed.get(number as usize)?.as_ref() } else { page.others.get(&number) }
    }

    /// What is known of a place, to be changed.
    pub(super) fn get_mut(&mut self, (rank, epoch, number): Place) -> Option<&mut T> {
        self.last = self.find(rank, epoch).ok()?;
        let page = &mut self.pages[self.last];
        if number < LISTED { page.listed.get_mut(number as usize)?.as_mut() } else { page.others.get_mut(&number) }
    }

    /// Forgets a place; what was known of it.
    pub(super) fn remove(&mut self, (rank, epoch, number): Place) -> Option<T> {
        self.last = self.find(rank, epoch).ok()?;
        let page = &mut self.pages[self.last];
        if number < LISTED { page.listed.get_mut(number as usize)?.take() } else { page.others.remove(&number) }
    }

    /// Whatever is known, with its rank.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        self.pages
            .iter()
            .flat_map(|page| page.listed.iter().flatten().chain(page.others.values()).map(|value| (page.rank, value)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is entered, changed and forgotten, it is as in a map.
        #[test]
        fn it_is_a_map(
            steps in prop::collection::vec((0u8..4, 0u16..3, 0u32..3, prop_oneof![0u64..200, LISTED - 1..LISTED + 2]), 1..200),
        ) {
            let (mut places, mut map) = (Places::new(), BTreeMap::new());
            for (value, (step, rank, epoch, number)) in steps.into_iter().enumerate() {
                let place = (rank, epoch, number);
                match step {
                    0 | 1 => prop_assert_eq!(places.insert(place, value), map.insert(place, value)),
                    2 => prop_assert_eq!(places.remove(place), map.remove(&place)),
                    _ => prop_assert_eq!(places.get_mut(place).map(|known| std::mem::replace(known, value)),
                        map.get_mut(&place).map(|known| std::mem::replace(known, value))),
                }
                prop_assert_eq!(places.get(place), map.get(&place));
            }
            let mut all: Vec<_> = places.iter().map(|(rank, value)| (rank, *value)).collect();
            all.sort_unstable();
            let mut expected: Vec<_> = map.iter().map(|((rank, _, _), value)| (*rank, *value)).collect();
            expected.sort_unstable();
            prop_assert_eq!(all, expected);
        }
    }
}
