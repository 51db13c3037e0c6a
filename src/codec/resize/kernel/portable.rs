//! The passes in plain Rust, written so that compilers find the vectors.

use super::{CHUNK, GROUP, Job, Pixels, Rows};
use crate::codec::resize::axis::Axis;

pub(in crate::codec::resize) fn run(job: &Job<'_>, rows: &mut Rows, out: &mut [u8]) {
    let columns = job.across.used();
    let lanes = columns.len() * 3;
    let (mut sums, group) = rows.of(lanes, columns.len());
    for (i, band) in out.chunks_mut(job.across.count() * 3 * GROUP).enumerate() {
        let made = band.len() / (job.across.count() * 3);
        for (row, sums) in sums[..made].iter_mut().enumerate() {
            let (first, weights) = job.down.at(i * GROUP + row);
            let start = (first * job.width + columns.start) * 3;
            weigh_rows(&job.source[start..], job.width * 3, weights, &mut sums[..lanes]);
            // The fourth lane is the next pixel's first, and nobody reads it.
            for (pixels, rgb) in group.iter_mut().zip(sums.windows(4).step_by(3)).take(columns.len()) {
                pixels[4 * row..4 * row + 4].copy_from_slice(rgb);
            }
        }
        weigh_columns(group, columns.start, job.across, band);
    }
}

/// The vertical pass: rows that lie `stride` apart, weighed.
fn weigh_rows(source: &[u8], stride: usize, weights: &[u16], sums: &mut [u16]) {
    for (i, sums) in sums.chunks_mut(CHUNK).enumerate() {
        sums.fill(0);
        for (k, &weight) in weights.iter().enumerate() {
            let row = &source[k * stride + i * CHUNK..][..sums.len()];
            for (sum, &byte) in sums.iter_mut().zip(row) {
                *sum = sum.wrapping_add(((u32::from(byte) * u32::from(weight)) >> 8) as u16);
            }
        }
    }
}

/// The horizontal pass: as many rows as `band` has.
fn weigh_columns(group: &[Pixels], offset: usize, across: &Axis, band: &mut [u8]) {
    let width = across.count();
    for (x, (start, weights)) in across.iter().enumerate() {
        let mut sum: Pixels = [128; 4 * GROUP];
        for (pixels, &weight) in group[start - offset..].iter().zip(weights) {
            for (sum, &lane) in sum.iter_mut().zip(pixels) {
                *sum = sum.wrapping_add(((u32::from(lane) * u32::from(weight)) >> 16) as u16);
            }
        }
        for (row, out) in band.chunks_exact_mut(3 * width).enumerate() {
            for (byte, lane) in out[3 * x..3 * x + 3].iter_mut().zip(&sum[4 * row..]) {
                *byte = (lane >> 8) as u8;
            }
        }
    }
}
