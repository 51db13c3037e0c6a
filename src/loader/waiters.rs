//! Who waits for something, in order.

use std::{collections::VecDeque, task::Waker};

use crate::machine::Who;

/// A line of waiting futures. Each has a key, and keys ascend along the line; with each stands what it wants.
///
/// Being woken does not take a future out of the line: it leaves when it has got what it waited for, or when it is dropped. So a
/// wake cannot be lost on a future that no longer wants it, and a future at the head may be woken twice, which does no harm. Whoever
/// takes and leaves something wakes the next. A line allocates only while it grows longer than it ever was.
#[derive(Debug)]
pub(super) struct Waiters<T = ()> {
    line: VecDeque<(u64, Waker, T)>,
    next: u64,
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Waiters { line: VecDeque::new(), next: 0 }
    }
}

impl<T: Copy> Waiters<T> {
    /// Joins at the end of the line; returns the key.
    pub(super) fn join(&mut self, waker: &Waker, wants: T) -> u64 {
        let key = self.next;
        self.next += 1;
        self.line.push_back((key, waker.clone(), wants));
        key
    }

    /// Joins, or stays, at the place of `key`, to be woken by `waker`. A line is joined either by key or at its end, never both.
    pub(super) fn join_as(&mut self, key: u64, waker: &Waker, wants: T) {
        let place = match self.line.back() {
            Some((last, ..)) if *last >= key => self.line.partition_point(|(other, ..)| *other < key),
            _ => self.line.len(),
        };
        match self.line.get_mut(place) {
            Some((other, known, _)) if *other == key => known.clone_from(waker),
            _ => self.line.insert(place, (key, waker.clone(), wants)),
        }
    }

    /// Stays in line, to be woken by `waker` from now on.
    pub(super) fn renew(&mut self, key: u64, waker: &Waker) {
        if let Ok(place) = self.line.binary_search_by_key(&key, |(key, ..)| *key) {
            self.line[place].1.clone_from(waker);
        }
    }

    /// Leaves the line.
    pub(super) fn leave(&mut self, key: u64) {
        if self.line.front().is_some_and(|(first, ..)| *first == key) {
            self.line.pop_front();
        } else if let Ok(place) = self.line.binary_search_by_key(&key, |(key, ..)| *key) {
            self.line.remove(place);
        }
    }

    /// Whether nobody in line comes before `key`; without a key, whether nobody is in line.
    #[inline]
    pub(super) fn is_turn(&self, key: Option<u64>) -> bool {
        self.line.front().is_none_or(|(first, ..)| key.is_some_and(|key| key <= *first))
    }

    /// Key and wish of who is at the head of the line.
    #[inline]
    pub(super) fn first(&self) -> Option<(u64, T)> {
        self.line.front().map(|(key, _, wants)| (*key, *wants))
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Everybody in line, with what they want.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Who, T)> + '_ {
        self.line.iter().map(|(key, waker, wants)| (*key, Who::of(waker), *wants))
    }

    pub(super) fn len(&self) -> usize {
        self.line.len()
    }

    #[inline]
    pub(super) fn wake_first(&self) {
        if let Some((_, waker, _)) = self.line.front() {
            waker.wake_by_ref();
        }
    }

    pub(super) fn wake_all(&self) {
        for (_, waker, _) in &self.line {
            waker.wake_by_ref();
        }
    }
}
