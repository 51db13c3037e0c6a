//! The two passes.

use super::axis::Axis;

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;

/// Output rows that are made together.
const GROUP: usize = 4;

/// One pixel of `GROUP` rows: red, green, blue and an unused lane of each, 8 bits behind the point.
type Pixels = [u16; 4 * GROUP];

/// Bytes of a source row that are weighed at a time.
const CHUNK: usize = 64;

/// What is to be done.
pub(super) struct Job<'a> {
    pub(super) source: &'a [u8],
    /// Of the source \[px\].
    pub(super) width: usize,
    pub(super) across: &'a Axis,
    pub(super) down: &'a Axis,
}

/// Memory between the passes.
#[derive(Default)]
pub(super) struct Rows {
    /// `GROUP` rows of sums, each with some lanes more than it needs.
    sums: Vec<u16>,
    group: Vec<Pixels>,
}

impl Rows {
    pub(super) fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<u16>() + self.group.capacity() * size_of::<Pixels>()
    }

    /// The rows, each of `lanes` lanes and at least 8 more, and a group of `columns` pixels and one more.
    fn of(&mut self, lanes: usize, columns: usize) -> ([&mut [u16]; GROUP], &mut [Pixels]) {
        let padded = (lanes + 8).next_multiple_of(CHUNK);
        if self.sums.len() < padded * GROUP {
            self.sums.resize(padded * GROUP, 0);
        }
        if self.group.len() < columns + 1 {
            self.group.resize(columns + 1, [0; 4 * GROUP]);
        }
        let mut rows = self.sums.chunks_exact_mut(padded);
        (std::array::from_fn(|_| rows.next().expect("there are as many rows as a group has")), &mut self.group[..columns + 1])
    }
}

/// Does the job with the widest vectors that this computer has.
pub(super) fn run(job: &Job<'_>, rows: &mut Rows, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the function asks for nothing but the instructions it is compiled to, and the computer has them.
        return unsafe { avx2::run(job, rows, out) };
    }
    portable::run(job, rows, out);
}

#[cfg(test)]
pub(super) use portable::run as run_portable;
