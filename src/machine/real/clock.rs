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
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
