//! loader

mod permutation;

pub use permutation::{Permutation, SAMPLES_MAX, TABLE_MAX};
