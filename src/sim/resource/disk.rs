//! A local disk: what sets it apart from a store behind a network.
//!
//! Most of a disk is what every store has. Its queue depth is a [`Gate`](super::Gate) of connections: so many reads are served at once, the
//! others wait in the order in which they came. Its latency, or its seeks, are the time to the first byte; its rate is a
//! [`Link`](super::Link). What remains is here and, where it is drawn, with the prices:
//!
//! - It hands out whole **blocks**: a file's last block travels whole, which matters where files are small.
//! - It takes so many **requests a second** and no more. A request beyond does not fail, as a store's does that
//!   [throttles](super::Bucket); it waits in the disk. A long read is several requests.
//! - A hard disk **turns**: whatever the seek, the block comes by after anything up to a whole turn.
//! - Files may lie in the **page cache**: such a read never gets to the disk, and costs what it costs the processor.
//!
//! Reads are served in the order in which they come. An elevator, which sorts those that wait by their place on the platter, is not
//! modelled; its effect is that seeks are shorter, so give the seeks of the depth that is used.

use crate::sim::DiskSpec;

const PS_PER_S: u128 = 1_000_000_000_000;

/// A disk.
pub(in crate::sim) struct Disk {
    block_bytes: u64,
    request_bytes: u64,
    /// From one request to the next, when they wait (ps); 0 where nothing limits them.
    interval_ps: u128,
    /// When it takes the next request (ps).
    free_at_ps: u128,
}

impl Disk {
    pub(in crate::sim) fn new(spec: &DiskSpec) -> Disk {
        Disk {
            block_bytes: spec.block_bytes.max(1),
            request_bytes: spec.request_bytes.unwrap_or(u64::MAX).max(1),
            interval_ps: spec.requests_per_s.map_or(0, |rate| PS_PER_S / u128::from(rate.max(1))),
            free_at_ps: 0,
        }
    }

    /// Bytes that the disk hands out for so many.
    pub(in crate::sim) fn handed_out(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.block_bytes).unwrap_or(bytes)
    }

    /// A read of so many bytes comes up at `now` (ns): how long until the disk takes its first request (ns), rounded up.
    pub(in crate::sim) fn queued_ns(&mut self, now: u64, bytes: u64) -> u64 {
        let now_ps = u128::from(now) * 1000;
        let taken_at_ps = self.free_at_ps.max(now_ps);
        let requests = bytes.div_ceil(self.request_bytes).max(1);
        self.free_at_ps = taken_at_ps + self.interval_ps * u128::from(requests);
        u64::try_from((taken_at_ps - now_ps).div_ceil(1000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_handed_out_in_blocks() {
        let disk = Disk::new(&DiskSpec { block_bytes: 4096, ..DiskSpec::default() });
        assert_eq!([0, 1, 4096, 4097, u64::MAX].map(|n| disk.handed_out(n)), [0, 4096, 4096, 8192, u64::MAX]);
        assert_eq!(Disk::new(&DiskSpec::default()).handed_out(1234), 1234);
    }

    #[test]
    fn requests_beyond_the_rate_wait_and_a_long_read_is_several() {
        let spec = DiskSpec { requests_per_s: Some(1_000_000), request_bytes: Some(1000), ..DiskSpec::default() };
        let mut disk = Disk::new(&spec);
        assert_eq!([(5, 1000), (5, 2001), (6, 0), (6, 1)].map(|(now, bytes)| disk.queued_ns(now, bytes)), [0, 1000, 3999, 4999]);
        assert_eq!(disk.queued_ns(1_000_000, 1), 0, "it does not save up what it could have done");
        let mut odd = Disk::new(&DiskSpec { requests_per_s: Some(3_000_000), ..DiskSpec::default() });
        assert_eq!([(); 4].map(|()| odd.queued_ns(0, 1)), [0, 334, 667, 1000], "a third of a microsecond apart");
    }
}
