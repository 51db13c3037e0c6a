//! What keyed randomness costs: one draw, the same draw by a library generator that is keyed anew, one position of an epoch's order.
//!
//! `cargo bench --bench draw`. Each figure is the least of many short runs, so that a busy computer disturbs it little.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::hint::black_box;
use std::time::Instant;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use towtank::draw::{Purpose, draw};
use towtank::loader::Permutation;

/// Prints the nanoseconds of one call of `f`, which is given the numbers from 0.
fn measure(what: &str, mut f: impl FnMut(u64) -> u64) {
    let (runs, calls) = (1_000, 5_000);
    let mut least = f64::INFINITY;
    for run in 0..runs {
        let start = Instant::now();
        let mut sum = 0;
        for i in run * calls..(run + 1) * calls {
            sum ^= f(black_box(i));
        }
        black_box(sum);
        least = least.min(start.elapsed().as_nanos() as f64 / calls as f64);
    }
    println!("{what:<48} {least:>8.1} ns");
}

fn main() {
    let seed = black_box(7u64);
    measure("draw: one block", |entity| draw(seed, Purpose::FAULT, entity, 0).word(0));
    measure("rand_chacha: keyed anew, one block", |entity| {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..12].copy_from_slice(&Purpose::FAULT.0.to_le_bytes());
        let mut generator = ChaCha8Rng::from_seed(key);
        generator.set_stream(entity);
        generator.next_u64()
    });
    let mut generator = ChaCha8Rng::from_seed([7; 32]);
    measure("rand_chacha: same key, another stream, one block", |entity| {
        generator.set_stream(entity);
        generator.set_word_pos(0);
        generator.next_u64()
    });
    for n in [10_000, 32_769, 1_281_167, 1 << 40] {
        let order = Permutation::new(n, seed, 0);
        measure(&format!("permutation of {n}: one position"), |i| order.at(i % n));
    }
}
