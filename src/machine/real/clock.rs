//! The clock on the wall.

use std::time::Instant;

use crate::machine::{Clock, Time};

/// Nanoseconds since the machine was launched, on any thread.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    start: Instant,
}

impl WallClock {
    /// A clock that stands at zero now.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everything else asks")]
    pub(super) fn start() -> WallClock {
        WallClock { start: Instant::now() }
    }
}

impl Clock for WallClock {
    fn now(&self) -> Time {
        let elapsed = self.start.elapsed();
        // Unlike `as_nanos`, without arithmetic of 128 bits. It is good for 584 years.
        Time(elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos()))
    }
}
