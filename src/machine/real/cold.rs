//! Whether it is worth asking the page cache first.
//!
//! A read begins on the pool, where what is cached costs least, and moves on to a thread that may wait when it is not. On its way it stands
//! in line behind the jobs of the pool twice as long as it reads, so where reads are mostly cold they had better begin where they end.
//! A score counts how reads that began on the pool came out: up for a cold one, down for a cached one. While it is high, only one read in
//! [`PROBE`] begins on the pool, to see whether the rest is cached by now.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The score from which reads are taken to be cold: one cold read is chance, a few in a row are not.
const HIGH: u32 = 4;
/// The highest score: so many cached reads more than cold ones are needed to believe in the cache again.
const HIGHEST: u32 = 8;
/// One read in so many asks the page cache while the score is high.
const PROBE: u32 = 8;

/// How cold reads have been.
#[derive(Debug, Default)]
pub(super) struct Cold {
    score: AtomicU32,
    reads: AtomicU32,
}

impl Cold {
    /// Whether the next read had better begin on a thread that may wait.
    pub(super) fn skips_the_pool(&self) -> bool {
        self.score.load(Relaxed) >= HIGH && !self.reads.fetch_add(1, Relaxed).is_multiple_of(PROBE)
    }

    /// A read that began on the pool found its sample cached, or not. Scores that threads change at the same moment may lose one of
    /// the changes, which is no matter.
    pub(super) fn note(&self, cached: bool) {
        let score = self.score.load(Relaxed);
        if cached && score > 0 {
            self.score.store(score - 1, Relaxed);
        } else if !cached && score < HIGHEST {
            self.score.store(score + 1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_begin_where_they_end() {
        let cold = Cold::default();
        assert!((0..100).all(|_| !cold.skips_the_pool()), "nobody has read yet");
        (0..3).for_each(|_| cold.note(false));
        assert!(!cold.skips_the_pool(), "that may be chance");
        (0..20).for_each(|_| cold.note(false));
        let skipped = (0..80).filter(|_| cold.skips_the_pool()).count();
        assert_eq!(skipped, 70, "one in eight asks");
        (0..5).for_each(|_| cold.note(true));
        assert!((0..100).all(|_| !cold.skips_the_pool()), "what was read is cached by now");
    }

    #[test]
    fn a_mix_stays_on_the_pool() {
        let cold = Cold::default();
        let skipped = (0..1000).filter(|n| {
            cold.note(n % 2 == 0);
            cold.skips_the_pool()
        });
        assert_eq!(skipped.count(), 0);
    }
}
