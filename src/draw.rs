//! Keyed randomness: every draw is a function of `(seed, purpose, entity, occurrence)`.
//!
//! Nothing here has state. A sample's decode cost, a request's first-byte latency or a fault is looked up, not consumed from a
//! stream, so removing one sample moves no other draw, two designs run with the same seed meet the same luck, and a failure can be
//! shrunk without disturbing the rest of the run.
//!
//! A draw is one ChaCha8 block, 64 bytes, laid out as in the published cipher with its 64-bit counter and 64-bit nonce:
//!
//! ```text
//!  constants            "expand 32-byte k"
//!  key, 8 words         seed low, seed high, purpose, 0, 0, 0, 0, 0
//!  counter, 2 words     occurrence low, high
//!  nonce, 2 words       entity low, high
//! ```
//!
//! Distinct arguments give distinct inputs of one block function, so streams can neither overlap nor be correlated by the way they
//! are seeded. The block function is written out here because a library generator is made for long streams under one key: setting
//! it up anew for every draw costs several times the block itself (`cargo bench --bench draw` prints both).
//!
//! ```
//! use towtank::draw::{Purpose, below, draw, unit};
//!
//! let block = draw(7, Purpose::FIRST_BYTE, 1_281_166, 0);
//! let die = below(block.word(0), 6) + 1;
//! let probability = unit(block.word(1));
//! assert!((1..=6).contains(&die) && (0.0..1.0).contains(&probability));
//! assert_eq!(block, draw(7, Purpose::FIRST_BYTE, 1_281_166, 0), "the same question has the same answer");
//! ```

/// What a draw is for. Two purposes never share a stream.
///
/// The numbers of the constants are part of what a seed means: a new purpose takes a new number, and a number is never given to
/// another purpose. Numbers from [`Purpose::CUSTOM`] on are for programs that use this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Purpose(pub u32);

impl Purpose {
    /// The order of samples within an epoch.
    pub const PERMUTATION: Purpose = Purpose(1);
    /// Sizes and other properties of a simulated data set's samples.
    pub const DATASET: Purpose = Purpose(2);
    /// Latency from a request to its first byte.
    pub const FIRST_BYTE: Purpose = Purpose(3);
    /// What a CPU job takes beyond, or below, its modelled cost.
    pub const CPU_RESIDUAL: Purpose = Purpose(4);
    /// What a copy to the device takes beyond, or below, its modelled cost.
    pub const COPY_RESIDUAL: Purpose = Purpose(5);
    /// Whether, where and how something fails.
    pub const FAULT: Purpose = Purpose(6);
    /// Which of several ready things goes first.
    pub const CHOICE: Purpose = Purpose(7);
    /// How long a retry waits beyond its base delay.
    pub const RETRY_JITTER: Purpose = Purpose(8);
    /// Content of synthetic images.
    pub const SYNTH: Purpose = Purpose(9);
    /// What a consumer's step takes.
    pub const CONSUMER: Purpose = Purpose(10);
    /// Which samples a read-ahead or shard order visits first: the order of blocks, and of rows within a window of blocks.
    pub const BLOCK_ORDER: Purpose = Purpose(11);
    /// Random augmentation of a sample, such as the place of a crop.
    pub const AUGMENT: Purpose = Purpose(12);
    /// What `check` explores: the swarm's subset of fault families, and the parameters of a schedule.
    pub const EXPLORE: Purpose = Purpose(13);
    /// Bandwidth of one connection to a store.
    pub const BANDWIDTH: Purpose = Purpose(14);
    /// Resampling when an uncertainty is estimated.
    pub const BOOTSTRAP: Purpose = Purpose(15);
    /// What an uncertain number of a model may be.
    pub const UNCERTAINTY: Purpose = Purpose(16);
    /// The first number that this crate leaves to others.
    pub const CUSTOM: Purpose = Purpose(1 << 16);
}

/// The 64 bytes of one draw: eight independent uniform words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Block {
    words: [u32; 16],
}

impl Block {
    /// Words in a block.
    pub const WORDS: usize = 8;

    /// Word `i`, uniform over all of `u64` and independent of the block's other words.
    ///
    /// # Panics
    ///
    /// When `i` is not below [`Block::WORDS`].
    #[inline]
    #[must_use]
    pub fn word(&self, i: usize) -> u64 {
        u64::from(self.words[2 * i]) | u64::from(self.words[2 * i + 1]) << 32
    }
}

/// The block that belongs to these four arguments.
///
/// `entity` says whose draw this is (a sample, a request, a slot) and `occurrence` which of its draws (an epoch, an attempt). A call
/// costs a fixed few tens of nanoseconds and touches no memory.
#[inline]
pub fn draw(seed: u64, purpose: Purpose, entity: u64, occurrence: u64) -> Block {
    #[rustfmt::skip]
    let input = [
        0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574,
        low(seed), high(seed), purpose.0, 0,
        0, 0, 0, 0,
        low(occurrence), high(occurrence), low(entity), high(entity),
    ];
    Block { words: chacha8(input) }
}

/// A whole number uniform over `0..n`, from a uniform word: the high half of the product.
///
/// A result's probability differs from `1/n` by at most 2⁻⁶⁴, which no experiment can see for any `n` that counts samples.
///
/// # Panics
///
/// When `n` is 0: there is no number below it.
#[inline]
#[must_use]
pub fn below(word: u64, n: u64) -> u64 {
    assert!(n > 0, "no number is below 0");
    ((u128::from(word) * u128::from(n)) >> 64) as u64
}

/// A real number uniform over `[0, 1)`, from a uniform word: its upper 53 bits, so every result is a multiple of 2⁻⁵³.
#[inline]
#[must_use]
pub fn unit(word: u64) -> f64 {
    (word >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[inline]
fn low(x: u64) -> u32 {
    x as u32
}

#[inline]
fn high(x: u64) -> u32 {
    (x >> 32) as u32
}

/// The ChaCha block function with eight rounds: four times the columns, then the diagonals, of a 4 × 4 matrix.
///
/// It is written on single words: for one block at a time, four words in an SSE2 register gain nothing, since SSE2 has no rotation.
#[inline(always)]
fn chacha8(input: [u32; 16]) -> [u32; 16] {
    #[rustfmt::skip]
    let [mut x0, mut x1, mut x2, mut x3, mut x4, mut x5, mut x6, mut x7,
         mut x8, mut x9, mut xa, mut xb, mut xc, mut xd, mut xe, mut xf] = input;
    for _ in 0..4 {
        [x0, x4, x8, xc] = quarter_round([x0, x4, x8, xc]);
        [x1, x5, x9, xd] = quarter_round([x1, x5, x9, xd]);
        [x2, x6, xa, xe] = quarter_round([x2, x6, xa, xe]);
        [x3, x7, xb, xf] = quarter_round([x3, x7, xb, xf]);
        [x0, x5, xa, xf] = quarter_round([x0, x5, xa, xf]);
        [x1, x6, xb, xc] = quarter_round([x1, x6, xb, xc]);
        [x2, x7, x8, xd] = quarter_round([x2, x7, x8, xd]);
        [x3, x4, x9, xe] = quarter_round([x3, x4, x9, xe]);
    }
    let state = [x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, xa, xb, xc, xd, xe, xf];
    std::array::from_fn(|i| state[i].wrapping_add(input[i]))
}

#[inline(always)]
fn quarter_round([mut a, mut b, mut c, mut d]: [u32; 4]) -> [u32; 4] {
    a = a.wrapping_add(b);
    d = (d ^ a).rotate_left(16);
    c = c.wrapping_add(d);
    b = (b ^ c).rotate_left(12);
    a = a.wrapping_add(b);
    d = (d ^ a).rotate_left(8);
    c = c.wrapping_add(d);
    b = (b ^ c).rotate_left(7);
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    /// The same draw by the published implementation.
    fn published(seed: u64, purpose: Purpose, entity: u64, occurrence: u64) -> [u64; 8] {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..12].copy_from_slice(&purpose.0.to_le_bytes());
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(entity);
        rng.set_word_pos(u128::from(occurrence) * 16);
        std::array::from_fn(|_| rng.next_u64())
    }

    #[test]
    fn a_draw_is_the_published_chacha8_block() {
        let values = [0, 1, 2, 63, 64, 0xffff_ffff, 0x1_0000_0000, 0x0123_4567_89ab_cdef, u64::MAX - 1, u64::MAX];
        for seed in values {
            for entity in values {
                for occurrence in values {
                    let purpose = Purpose((seed ^ entity.rotate_left(7) ^ occurrence) as u32);
                    let ours = draw(seed, purpose, entity, occurrence);
                    let words: [u64; 8] = std::array::from_fn(|i| ours.word(i));
                    assert_eq!(
                        words,
                        published(seed, purpose, entity, occurrence),
                        "{seed:x} {purpose:?} {entity:x} {occurrence:x}"
                    );
                }
            }
        }
    }

    /// The first bytes of the all-zero key, nonce and counter, as published with the eSTREAM test vectors of ChaCha8.
    #[test]
    fn the_zero_draw_is_the_published_test_vector() {
        let bytes: Vec<u8> = (0..2).flat_map(|i| draw(0, Purpose(0), 0, 0).word(i).to_le_bytes()).collect();
        assert_eq!(bytes, [0x3e, 0x00, 0xef, 0x2f, 0x89, 0x5f, 0x40, 0xd6, 0x7f, 0x5b, 0xb8, 0xe8, 0x1f, 0x09, 0xa5, 0xa1]);
    }

    #[test]
    fn changing_any_argument_changes_about_half_the_bits() {
        let (seed, purpose, entity, occurrence) = (11, Purpose::FAULT, 1000, 3);
        let base = draw(seed, purpose, entity, occurrence);
        for bit in 0..64 {
            let flip = 1u64 << bit;
            let mut others = vec![draw(seed ^ flip, purpose, entity, occurrence)];
            others.push(draw(seed, purpose, entity ^ flip, occurrence));
            others.push(draw(seed, purpose, entity, occurrence ^ flip));
            if bit < 32 {
                others.push(draw(seed, Purpose(purpose.0 ^ flip as u32), entity, occurrence));
            }
            for other in others {
                let differing: u32 = (0..Block::WORDS).map(|i| (base.word(i) ^ other.word(i)).count_ones()).sum();
                // 512 fair coins: mean 256, standard deviation 11.3; five of them either way.
                assert!((200..=312).contains(&differing), "bit {bit}: {differing} of 512 bits differ");
            }
        }
    }

    #[test]
    fn exchanging_two_arguments_gives_another_draw() {
        assert_ne!(draw(1, Purpose(2), 3, 4), draw(1, Purpose(2), 4, 3));
        assert_ne!(draw(2, Purpose(1), 3, 4), draw(1, Purpose(2), 3, 4));
        assert_ne!(draw(3, Purpose(2), 1, 4), draw(1, Purpose(2), 3, 4));
    }

    #[test]
    fn the_purposes_have_distinct_numbers() {
        let mut numbers = [
            Purpose::PERMUTATION,
            Purpose::DATASET,
            Purpose::FIRST_BYTE,
            Purpose::CPU_RESIDUAL,
            Purpose::COPY_RESIDUAL,
            Purpose::FAULT,
            Purpose::CHOICE,
            Purpose::RETRY_JITTER,
            Purpose::SYNTH,
            Purpose::CONSUMER,
            Purpose::BLOCK_ORDER,
            Purpose::AUGMENT,
            Purpose::EXPLORE,
            Purpose::BANDWIDTH,
            Purpose::BOOTSTRAP,
            Purpose::UNCERTAINTY,
            Purpose::CUSTOM,
        ];
        let count = numbers.len();
        numbers.sort();
        assert_eq!(numbers.iter().collect::<std::collections::BTreeSet<_>>().len(), count);
    }

    /// Chi-square of 64 cells over 20 000 draws of each word. With 63 degrees of freedom 124.8 is passed by chance once in 200 000.
    #[test]
    fn every_word_is_uniform_over_entities() {
        let draws = 20_000u64;
        let mut cells = [[0u64; 64]; Block::WORDS];
        for entity in 0..draws {
            let block = draw(5, Purpose::CPU_RESIDUAL, entity, 0);
            for (word, cells) in cells.iter_mut().enumerate() {
                cells[below(block.word(word), 64) as usize] += 1;
            }
        }
        for (word, cells) in cells.iter().enumerate() {
            let statistic = chi_square(cells, draws);
            assert!(statistic < 124.8, "word {word}: chi-square {statistic:.1}");
        }
    }

    /// Chi-square of the 8 × 8 joint cells of neighbours. Same degrees of freedom and limit as above.
    #[test]
    fn neighbouring_entities_and_occurrences_are_independent() {
        let draws = 20_000u64;
        let cell = |entity, occurrence| below(draw(9, Purpose::DATASET, entity, occurrence).word(0), 8);
        let (mut entities, mut occurrences) = ([0u64; 64], [0u64; 64]);
        for i in 0..draws {
            entities[(8 * cell(i, 0) + cell(i + 1, 0)) as usize] += 1;
            occurrences[(8 * cell(17, i) + cell(17, i + 1)) as usize] += 1;
        }
        for (what, cells) in [("entities", entities), ("occurrences", occurrences)] {
            let statistic = chi_square(&cells, draws);
            assert!(statistic < 124.8, "{what}: chi-square {statistic:.1}");
        }
    }

    fn chi_square(cells: &[u64; 64], draws: u64) -> f64 {
        let expected = draws as f64 / 64.0;
        cells.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum()
    }

    #[test]
    fn below_reaches_both_ends_and_no_further() {
        for n in [1, 2, 3, 1_281_167, u64::MAX] {
            assert_eq!(below(0, n), 0);
            assert_eq!(below(u64::MAX, n), n - 1);
        }
    }

    #[test]
    #[should_panic(expected = "no number is below 0")]
    fn below_zero_is_a_mistake() {
        let _ = below(1, 0);
    }

    #[test]
    fn unit_never_reaches_one() {
        assert_eq!(unit(0), 0.0);
        assert_eq!(unit(1 << 63), 0.5);
        assert!(unit(u64::MAX) < 1.0);
    }
}
