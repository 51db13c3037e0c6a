//! The order of one epoch: a keyed permutation with random access.
//!
//! A plan must say which sample stands at position 900 000 000 without having visited the positions before it, because ranks and
//! resumed runs start anywhere. So the order is computed, not shuffled:
//!
//! - Up to [`TABLE_MAX`] samples a Fisher–Yates shuffle fills a table of at most 64 KiB. Every permutation is equally likely, as far
//!   as the generator's words are random.
//! - Above, a Feistel network in a few hundred bytes. The numbers below n are written as `left · b + right` on a rectangle of
//!   `a × b` cells, `a ≈ b ≈ √n`; each round adds a keyed function of one coordinate to the other, modulo its side. A round can be
//!   undone, so the network permutes the rectangle. The rectangle has at most about 3√n cells more than n; a result among those is
//!   put through the network again until it falls below n ("cycle walking"), which follows a cycle of the permutation and so keeps
//!   the result a permutation of the first n cells.
//!
//! Two choices differ from the textbook network on powers of two with exclusive or. Sides near √n make walking rare (one position in
//! a thousand at a million samples, instead of up to three rounds in four). And sides are even and rounds *add*: a rotation by an
//! odd amount of an even side is an odd permutation, so that even and odd orders are equally likely; a network of exclusive ors
//! only makes even ones.
//!
//! Five rounds pass every statistical test of this module and four fail some; eight are used. On a handful of cells a network reaches
//! some permutations more often than others, at any number of rounds worth paying for: that is what the tables are for.

use std::fmt;
use std::sync::Arc;

use crate::draw::{Block, Purpose, below, draw};

/// The most samples that are shuffled in a table: their numbers fit in 64 KiB.
pub const TABLE_MAX: u64 = 1 << 15;

/// The most samples a permutation can have.
pub const SAMPLES_MAX: u64 = 1 << 60;

/// A permutation of `0..n` that is a function of `(n, seed, epoch)` alone.
///
/// Clones share the table, if there is one.
///
/// ```
/// use towtank::loader::Permutation;
///
/// let order = Permutation::new(1_281_167, 7, 0);
/// let sample = order.at(1_000_000);
/// assert!(sample < 1_281_167);
/// assert_eq!(order.position_of(sample), 1_000_000);
/// ```
#[derive(Clone)]
pub struct Permutation {
    n: u64,
    order: Order,
}

#[derive(Clone)]
enum Order {
    Table(Arc<[u16]>),
    Network(Network<8>),
}

impl Permutation {
    /// The order of `n` samples in this epoch.
    ///
    /// Takes up to about 0.3 ms and 64 KiB when `n` is at most [`TABLE_MAX`], and less than a microsecond above.
    ///
    /// # Panics
    ///
    /// When `n` is above [`SAMPLES_MAX`].
    #[must_use]
    pub fn new(n: u64, seed: u64, epoch: u32) -> Permutation {
        assert!(n <= SAMPLES_MAX, "{n} samples are more than a permutation can have ({SAMPLES_MAX})");
        let order = if n <= TABLE_MAX {
            Order::Table(shuffled(n as usize, seed, epoch).into())
        } else {
            Order::Network(Network::new(n, seed, epoch))
        };
        Permutation { n, order }
    }

    /// How many samples are permuted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Whether there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The sample at this position, in constant time.
    ///
    /// # Panics
    ///
    /// When `position` is not below [`len`](Permutation::len).
    #[inline]
    #[must_use]
    pub fn at(&self, position: u64) -> u64 {
        assert!(position < self.n, "position {position} of an order of {} samples", self.n);
        match &self.order {
            Order::Table(table) => u64::from(table[position as usize]),
            Order::Network(network) => network.forward(position, self.n),
        }
    }

    /// The samples at these positions, each in the place of its position.
    ///
    /// # Panics
    ///
    /// When a position is not below [`len`](Permutation::len).
    pub(super) fn at_each<const K: usize>(&self, positions: &mut [u64; K]) {
        match &self.order {
            Order::Table(_) => *positions = positions.map(|position| self.at(position)),
            Order::Network(network) => {
                for position in &*positions {
                    assert!(*position < self.n, "position {position} of an order of {} samples", self.n);
                }
                network.forward_each(positions, self.n);
            }
        }
    }

    /// The position at which this sample stands: the inverse of [`at`](Permutation::at). A table is searched for it.
    ///
    /// # Panics
    ///
    /// When `sample` is not below [`len`](Permutation::len).
    #[must_use]
    pub fn position_of(&self, sample: u64) -> u64 {
        assert!(sample < self.n, "sample {sample} of an order of {} samples", self.n);
        match &self.order {
            Order::Table(table) => {
                let position = table.iter().position(|&s| u64::from(s) == sample);
                position.expect("a table holds every sample below its length") as u64
            }
            Order::Network(network) => network.backward(sample, self.n),
        }
    }
}

impl fmt::Debug for Permutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.order {
            Order::Table(_) => "table",
            Order::Network(_) => "network",
        };
        f.debug_struct("Permutation").field("n", &self.n).field("kind", &kind).finish()
    }
}

/// The random words of one order, eight to a draw.
struct Words {
    seed: u64,
    epoch: u32,
    next: u64,
    block: Block,
}

impl Words {
    fn new(seed: u64, epoch: u32) -> Words {
        Words { seed, epoch, next: 0, block: draw(seed, Purpose::PERMUTATION, u64::from(epoch), 0) }
    }

    fn next(&mut self) -> u64 {
        let (occurrence, word) = (self.next / Block::WORDS as u64, self.next % Block::WORDS as u64);
        if word == 0 {
            self.block = draw(self.seed, Purpose::PERMUTATION, u64::from(self.epoch), occurrence);
        }
        self.next += 1;
        self.block.word(word as usize)
    }
}

/// The numbers below `n`, shuffled from the end as by Fisher and Yates.
fn shuffled(n: usize, seed: u64, epoch: u32) -> Vec<u16> {
    let last = n.saturating_sub(1);
    let last = u16::try_from(last).expect("a table is made for at most 2^15 samples");
    let mut table: Vec<u16> = (0..=last).collect();
    table.truncate(n);
    let mut words = Words::new(seed, epoch);
    for i in (1..n).rev() {
        table.swap(i, below(words.next(), i as u64 + 1) as usize);
    }
    table
}

/// A Feistel network on `a × b` cells. Even rounds change the left coordinate, odd rounds the right one.
#[derive(Clone)]
struct Network<const ROUNDS: usize> {
    a: u64,
    b: u64,
    keys: [RoundKey; ROUNDS],
}

/// What a round adds, as a function of the other coordinate: a hash keyed with two words.
#[derive(Clone, Copy)]
struct RoundKey {
    mask: u64,
    factor: u64,
}

impl RoundKey {
    /// A number below `side`.
    ///
    /// A product alone would be linear in `x`, so that neighbours would stay neighbours; the fold between two products breaks that.
    #[inline]
    fn apply(self, x: u64, side: u64) -> u64 {
        let x = (x ^ self.mask).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 32)).wrapping_mul(self.factor);
        below(x, side)
    }
}

impl<const ROUNDS: usize> Network<ROUNDS> {
    fn new(n: u64, seed: u64, epoch: u32) -> Network<ROUNDS> {
        // The next even numbers from √n and n/a: even for the sake of parity, and a·b ≥ n.
        let a = (n.max(1) - 1).isqrt() + 1;
        let a = a.next_multiple_of(2);
        let b = n.div_ceil(a).max(1).next_multiple_of(2);
        let mut words = Words::new(seed, epoch);
        let keys = std::array::from_fn(|_| RoundKey { mask: words.next(), factor: words.next() | 1 });
        Network { a, b, keys }
    }

    #[inline]
    fn forward(&self, position: u64, n: u64) -> u64 {
        let mut x = position;
        loop {
            x = self.permute(x);
            if x < n {
                return x;
            }
        }
    }

    /// As [`forward`](Network::forward) for each of several. A round waits for the one before; those of several numbers do not wait
    /// for each other, and a processor works on them at once.
    #[inline]
    fn forward_each<const K: usize>(&self, xs: &mut [u64; K], n: u64) {
        let (mut left, mut right) = (xs.map(|x| x / self.b), xs.map(|x| x % self.b));
        for (round, key) in self.keys.iter().enumerate() {
            for k in 0..K {
                if round % 2 == 0 {
                    left[k] = wrap(left[k] + key.apply(right[k], self.a), self.a);
                } else {
                    right[k] = wrap(right[k] + key.apply(left[k], self.b), self.b);
                }
            }
        }
        for k in 0..K {
            let x = left[k] * self.b + right[k];
            xs[k] = if x < n { x } else { self.forward(x, n) };
        }
    }

    fn backward(&self, sample: u64, n: u64) -> u64 {
        let mut x = sample;
        loop {
            x = self.unpermute(x);
            if x < n {
                return x;
            }
        }
    }

    #[inline]
    fn permute(&self, x: u64) -> u64 {
        let (mut left, mut right) = (x / self.b, x % self.b);
        for (round, key) in self.keys.iter().enumerate() {
            if round % 2 == 0 {
                left = wrap(left + key.apply(right, self.a), self.a);
            } else {
                right = wrap(right + key.apply(left, self.b), self.b);
            }
        }
        left * self.b + right
    }

    fn unpermute(&self, x: u64) -> u64 {
        let (mut left, mut right) = (x / self.b, x % self.b);
        for (round, key) in self.keys.iter().enumerate().rev() {
            if round % 2 == 0 {
                left = wrap(left + self.a - key.apply(right, self.a), self.a);
            } else {
                right = wrap(right + self.b - key.apply(left, self.b), self.b);
            }
        }
        left * self.b + right
    }
}

/// `x` modulo `side`, for an `x` below twice the side.
#[inline]
fn wrap(x: u64, side: u64) -> u64 {
    if x < side { x } else { x - side }
}

#[cfg(test)]
mod tests;
