//! What it costs to gather slots into a batch, by its size.

use std::hint::black_box;

use super::{CalibrateError, fit::Sample};
use crate::machine::{gather, real::usage, slab};

/// Slots of the largest batch.
const MOST: usize = 64;

/// Gathering 1 to 64 slots, at memory that no cache holds.
pub(super) fn copying(slot_bytes: usize, repeats: u32) -> Result<Vec<Sample>, CalibrateError> {
    let mut slots = slab::<u8>(MOST, slot_bytes).map_err(CalibrateError::Memory)?;
    slots.iter_mut().for_each(|slot| slot.get_mut().fill(1));
    let mut batch = vec![1; MOST * slot_bytes];
    let mut samples = Vec::new();
    for count in [1, 4, 16, 32, MOST] {
        for _ in 0..repeats {
            let began = usage::thread_cpu_ns();
            gather(&slots[MOST - count..], black_box(&mut batch[..count * slot_bytes]));
            let time_ns = (usage::thread_cpu_ns() - began).max(1) as f64;
            samples.push(Sample { bytes: (count * slot_bytes) as f64, pixels: 0.0, time_ns });
        }
    }
    Ok(samples)
}
