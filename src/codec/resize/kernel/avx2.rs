//! The passes with AVX2, which compilers do not find by themselves: they undo the trick with the product's upper half.

use std::arch::x86_64::*;

use super::{CHUNK, GROUP, Job, Pixels, Rows};
use crate::codec::resize::axis::Axis;

#[target_feature(enable = "avx2")]
pub(super) fn run(job: &Job<'_>, rows: &mut Rows, out: &mut [u8]) {
    let columns = job.across.used();
    let lanes = columns.len() * 3;
    let (mut sums, group) = rows.of(lanes, columns.len());
    let row_bytes = job.across.count() * 3;
    for (i, band) in out.chunks_mut(row_bytes * GROUP).enumerate() {
        let made = band.len() / row_bytes;
        for (row, sums) in sums[..made].iter_mut().enumerate() {
            claim(&mut band[row * row_bytes..][..row_bytes]);
            let (first, weights) = job.down.at(i * GROUP + row);
            let start = (first * job.width + columns.start) * 3;
            weigh_rows(&job.source[start..], job.width * 3, weights, &mut sums[..lanes]);
        }
        spread(&sums, group);
        weigh_columns(group, columns.start, job.across, band);
    }
}

/// Has the cache fetch what the horizontal pass will write, while the vertical one is at work. A sample's place in a ring was last touched
/// a whole ring ago; to wait for its lines at the stores doubled the time of a photograph's resize.
#[inline]
#[target_feature(enable = "avx2")]
fn claim(row: &mut [u8]) {
    const LINE: usize = 64;
    for line in row.chunks_mut(LINE) {
        _mm_prefetch::<_MM_HINT_ET0>(line.as_ptr().cast());
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_bytes(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 readable bytes are what the instruction reads, at any alignment.
    unsafe { _mm256_loadu_si256(std::ptr::from_ref(bytes).cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_lanes(lanes: &[u16; 16]) -> __m256i {
    // SAFETY: 16 lanes are 32 readable bytes, which is what the instruction reads, at any alignment.
    unsafe { _mm256_loadu_si256(std::ptr::from_ref(lanes).cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_eight(lanes: &[u16; 8]) -> __m128i {
    // SAFETY: 8 lanes are 16 readable bytes, which is what the instruction reads, at any alignment.
    unsafe { _mm_loadu_si128(std::ptr::from_ref(lanes).cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_bytes(bytes: &mut [u8; 16], value: __m128i) {
    // SAFETY: 16 writable bytes are what the instruction writes, at any alignment.
    unsafe { _mm_storeu_si128(std::ptr::from_mut(bytes).cast(), value) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_lanes(lanes: &mut [u16; 16], value: __m256i) {
    // SAFETY: 16 lanes are 32 writable bytes, which is what the instruction writes, at any alignment.
    unsafe { _mm256_storeu_si256(std::ptr::from_mut(lanes).cast(), value) }
}

/// The vertical pass: rows that lie `stride` apart, weighed.
#[inline]
#[target_feature(enable = "avx2")]
fn weigh_rows(source: &[u8], stride: usize, weights: &[u16], sums: &mut [u16]) {
    let lanes = sums.len();
    let mut place = 0;
    while place + CHUNK <= lanes {
        weigh_chunk(&source[place..], stride, weights, &mut sums[place..place + CHUNK]);
        place += CHUNK;
    }
    if place < lanes && lanes >= CHUNK {
        // The last chunk ends with the row and repeats some of the one before it.
        let place = lanes - CHUNK;
        weigh_chunk(&source[place..], stride, weights, &mut sums[place..]);
    } else if place < lanes {
        for (lane, sum) in sums.iter_mut().enumerate() {
            let terms = weights.iter().zip(source[lane..].iter().step_by(stride));
            *sum = terms.fold(0, |sum, (&weight, &byte)| sum + ((u32::from(byte) * u32::from(weight)) >> 8) as u16);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn weigh_chunk(source: &[u8], stride: usize, weights: &[u16], sums: &mut [u16]) {
    let zero = _mm256_setzero_si256();
    let mut acc = [zero; CHUNK / 16];
    let mut at = 0usize;
    for weight in weights {
        let (blocks, _) = source[at..at + CHUNK].as_chunks::<32>();
        let weight = _mm256_set1_epi16(*weight as i16);
        for (pair, block) in acc.as_chunks_mut::<2>().0.iter_mut().zip(blocks) {
            let bytes = load_bytes(block);
            // Each byte becomes the upper half of a lane. Of both halves of the register, the first 8 bytes go to the first of the pair.
            pair[0] = _mm256_add_epi16(pair[0], _mm256_mulhi_epu16(_mm256_unpacklo_epi8(zero, bytes), weight));
            pair[1] = _mm256_add_epi16(pair[1], _mm256_mulhi_epu16(_mm256_unpackhi_epi8(zero, bytes), weight));
        }
        at = at.wrapping_add(stride);
    }
    for (sums, [low, high]) in sums.as_chunks_mut::<32>().0.iter_mut().zip(acc.as_chunks::<2>().0) {
        let (sums, _) = sums.as_chunks_mut::<16>();
        store_lanes(&mut sums[0], _mm256_permute2x128_si256::<0x20>(*low, *high));
        store_lanes(&mut sums[1], _mm256_permute2x128_si256::<0x31>(*low, *high));
    }
}

/// Puts the rows' pixels side by side, two pixels at a time.
#[inline]
#[target_feature(enable = "avx2")]
fn spread(sums: &[&mut [u16]; GROUP], group: &mut [Pixels]) {
    // Two pixels of three lanes become two of four; the fourth is the next pixel's first, and nobody reads it.
    let widen = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9, 10, 11, 12, 13);
    let (pairs, _) = group.as_chunks_mut::<2>();
    for (i, [first, second]) in pairs.iter_mut().enumerate() {
        let rows: [__m128i; GROUP] = std::array::from_fn(|row| {
            let lanes = sums[row][6 * i..6 * i + 8].try_into().expect("eight lanes");
            _mm_shuffle_epi8(load_eight(lanes), widen)
        });
        let (upper, lower) = (_mm256_set_m128i(rows[2], rows[0]), _mm256_set_m128i(rows[3], rows[1]));
        store_lanes(first, _mm256_unpacklo_epi64(upper, lower));
        store_lanes(second, _mm256_unpackhi_epi64(upper, lower));
    }
}

/// The horizontal pass: as many rows as `band` has, four pixels of each at a time.
#[inline]
#[target_feature(enable = "avx2")]
fn weigh_columns(group: &[Pixels], offset: usize, across: &Axis, band: &mut [u8]) {
    // Of four pixels of RGB and one unused byte, the RGB.
    let narrow = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    let mut rows = band.chunks_exact_mut(3 * across.count());
    let mut rows: [&mut [u8]; GROUP] = std::array::from_fn(|_| rows.next().unwrap_or_default());
    let (starts, mut weights) = across.parts();
    for (block, starts) in starts.chunks(4).enumerate() {
        let mut columns = [_mm_setzero_si128(); 4];
        for (column, start) in columns.iter_mut().zip(starts) {
            let (own, rest) = weights.split_at(across.taps());
            weights = rest;
            *column = weigh_column(&group[(*start as usize).wrapping_sub(offset)..], own);
        }
        // Column by column the four rows' pixels; then row by row the four columns'.
        let [a, b, c, d] = columns;
        let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
        let (ab_low, cd_low) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
        let pixels = [
            _mm_unpacklo_epi64(ab, cd),
            _mm_unpackhi_epi64(ab, cd),
            _mm_unpacklo_epi64(ab_low, cd_low),
            _mm_unpackhi_epi64(ab_low, cd_low),
        ];
        for (row, pixels) in rows.iter_mut().zip(pixels) {
            let rgb = _mm_shuffle_epi8(pixels, narrow);
            // Four bytes too many are overwritten by the next block, where there is one.
            match row.get_mut(12 * block..).and_then(<[u8]>::first_chunk_mut::<16>) {
                Some(place) => store_bytes(place, rgb),
                None => {
                    let mut bytes = [0; 16];
                    store_bytes(&mut bytes, rgb);
                    row.iter_mut().skip(12 * block).zip(bytes).for_each(|(place, byte)| *place = byte);
                }
            }
        }
    }
}

/// One pixel of the four rows, 8 bits a channel: RGB and one unused byte of each row.
#[inline]
#[target_feature(enable = "avx2")]
fn weigh_column(group: &[Pixels], weights: &[u16]) -> __m128i {
    let mut sum = _mm256_set1_epi16(128);
    for (pixels, weight) in group.iter().zip(weights) {
        sum = _mm256_add_epi16(sum, _mm256_mulhi_epu16(load_lanes(pixels), _mm256_set1_epi16(*weight as i16)));
    }
    let lanes = _mm256_srli_epi16::<8>(sum);
    _mm_packus_epi16(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes))
}
