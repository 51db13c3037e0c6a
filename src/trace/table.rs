//! What is known so far about the samples in flight.

use super::Event;

/// Names a sample or a batch in a [`Table`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    index: u64,
    scope: u64,
}

impl Key {
    /// The sample that `event` is about.
    #[inline]
    pub(super) fn sample(event: &Event) -> Key {
        Key { index: event.sample, scope: u64::from(event.epoch) << 16 | u64::from(event.rank) }
    }

    /// The batch that `event` is about: its index is unique within the rank's run.
    #[inline]
    pub(super) fn batch(event: &Event) -> Key {
        Key { index: event.sample, scope: u64::from(event.rank) }
    }

    #[inline]
    fn hash(self) -> u64 {
        let mixed = (self.index ^ self.scope.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }
}

/// A small map from what is in flight to what has been found out about it.
///
/// Open addressing with linear probing and removal by shifting back, at most half full: both operations touch one or two cache
/// lines, and nothing is allocated once the table has grown to what is in flight. Never iterated, so its layout shows nowhere. It
/// stops growing at [`Table::LIMIT`] entries, then forgets newcomers: only a trace in which samples are begun and never resolved
/// comes there.
#[derive(Clone)]
pub(super) struct Table<V> {
    cells: Box<[Option<(Key, V)>]>,
    len: usize,
}

impl<V: Copy + Default> Table<V> {
    const LIMIT: usize = 1 << 20;

    pub(super) fn new() -> Table<V> {
        Table { cells: vec![None; 64].into_boxed_slice(), len: 0 }
    }

    /// The value of `key`, for the first time its default; `None` when the table is full.
    #[inline]
    pub(super) fn entry(&mut self, key: Key) -> Option<&mut V> {
        let mut at = self.find(key);
        if self.cells[at].is_none() {
            if 2 * self.len >= self.cells.len() {
                if self.len >= Self::LIMIT {
                    return None;
                }
                self.grow();
                at = self.find(key);
            }
            self.cells[at] = Some((key, V::default()));
            self.len += 1;
        }
        self.cells[at].as_mut().map(|(_, value)| value)
    }

    /// Removes the value of `key`.
    #[inline]
    pub(super) fn take(&mut self, key: Key) -> Option<V> {
        let mut hole = self.find(key);
        let (_, value) = self.cells[hole].take()?;
        self.len -= 1;
        let mask = self.cells.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let Some((next, _)) = &self.cells[at] else { return Some(value) };
            let home = next.hash() as usize & mask;
            // Moves back unless that would put it before its home, counted around the end.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.cells[hole] = self.cells[at].take();
                hole = at;
            }
        }
    }

    /// The cell of `key`, or the empty one where it belongs: there is one, since at most half are taken.
    #[inline]
    fn find(&self, key: Key) -> usize {
        let mask = self.cells.len() - 1;
        let mut at = key.hash() as usize & mask;
        while let Some((other, _)) = &self.cells[at] {
            if *other == key {
                break;
            }
            at = (at + 1) & mask;
        }
        at
    }

    #[cold]
    fn grow(&mut self) {
        let bigger = vec![None; self.cells.len() * 2].into_boxed_slice();
        for cell in std::mem::replace(&mut self.cells, bigger).into_iter().flatten() {
            let at = self.find(cell.0);
            self.cells[at] = Some(cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_does_what_a_btree_map_does(ops in prop::collection::vec((0u64..300, any::<bool>()), 0..3000)) {
            let (mut table, mut model) = (Table::<u64>::new(), BTreeMap::new());
            for (i, (index, take)) in ops.into_iter().enumerate() {
                let key = Key { index, scope: index % 3 };
                if take {
                    prop_assert_eq!(table.take(key), model.remove(&index));
                } else {
                    *table.entry(key).expect("far below the limit") += i as u64;
                    *model.entry(index).or_default() += i as u64;
                }
                prop_assert_eq!(table.len, model.len());
            }
            for (index, value) in model {
                prop_assert_eq!(table.take(Key { index, scope: index % 3 }), Some(value));
            }
        }
    }

    #[test]
    fn it_stops_growing_at_its_limit() {
        let mut table = Table::<u8>::new();
        let key = |index| Key { index, scope: 0 };
        (0..Table::<u8>::LIMIT as u64).for_each(|i| assert!(table.entry(key(i)).is_some()));
        assert!(table.entry(key(u64::MAX)).is_none());
        assert!(table.entry(key(3)).is_some(), "what is known stays known");
    }
}
