//! A link that all transfers share equally, each at most at the rate of its own connection.
//!
//! With `n` transfers each runs at `min(connection, link / n)`. Rates are whole bytes a second, so a share is off by less than one.
//! Latency comes first and is not the link's business.

use super::{
    NEVER,
    share::{Share, WORK_MAX},
};

/// Units of work in a byte, so that a rate in bytes a second is one in units a nanosecond.
const UNITS_PER_BYTE: u64 = 1_000_000_000;

/// A shared link.
pub(in crate::sim) struct Link {
    share: Share,
    link_bytes_per_s: u64,
    connection_bytes_per_s: u64,
    /// Up to so many transfers have the rate of their connections.
    unhindered: u64,
    rate: u64,
    next: u64,
}

impl Link {
    /// The largest transfer (B): 9 GB.
    pub(in crate::sim) const BYTES_MAX: u64 = WORK_MAX / UNITS_PER_BYTE;

    pub(in crate::sim) fn new(link_bytes_per_s: u64, connection_bytes_per_s: Option<u64>) -> Link {
        let connection_bytes_per_s = connection_bytes_per_s.unwrap_or(u64::MAX).max(1);
        let unhindered = link_bytes_per_s / connection_bytes_per_s;
        Link { share: Share::default(), link_bytes_per_s, connection_bytes_per_s, unhindered, rate: 1, next: NEVER }
    }

    fn changed(&mut self) {
        let n = self.share.len().max(1) as u64;
        self.rate = if n <= self.unhindered { self.connection_bytes_per_s } else { (self.link_bytes_per_s / n).max(1) };
        self.next = self.share.next(self.rate);
    }

    /// A transfer begins, of at most [`BYTES_MAX`](Link::BYTES_MAX).
    pub(in crate::sim) fn start(&mut self, now: u64, user: u32, bytes: u64) {
        self.share.advance(now, self.rate);
        self.share.push(user, bytes * UNITS_PER_BYTE);
        self.changed();
    }

    /// A transfer is broken off.
    pub(in crate::sim) fn stop(&mut self, now: u64, user: u32) {
        self.share.advance(now, self.rate);
        self.share.remove(user);
        self.changed();
    }

    /// When the next transfer is done (ns).
    #[inline]
    pub(in crate::sim) fn next(&self) -> u64 {
        self.next
    }

    /// Tells which transfers are done at `now`, which is [`next`](Link::next).
    pub(in crate::sim) fn done(&mut self, now: u64, mut tell: impl FnMut(u32)) {
        self.share.advance(now, self.rate);
        while let Some(user) = self.share.pop_done(self.rate) {
            tell(user);
        }
        self.changed();
    }

    /// Transfers under way.
    pub(in crate::sim) fn flows(&self) -> usize {
        self.share.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(link: &mut Link) -> Vec<(u64, u32)> {
        let mut ends = Vec::new();
        while link.next() != NEVER {
            let now = link.next();
            link.done(now, |user| ends.push((now, user)));
        }
        ends
    }

    #[test]
    fn a_transfer_alone_takes_its_bytes_over_the_rate() {
        let mut link = Link::new(1_000_000_000, None);
        link.start(10, 0, 114_660);
        assert_eq!(run(&mut link), [(114_670, 0)]);
        let mut capped = Link::new(1_000_000_000, Some(90_000_000));
        capped.start(0, 0, 114_660);
        assert_eq!(run(&mut capped), [(1_274_000, 0)]);
    }

    #[test]
    fn connections_below_their_share_of_the_link_do_not_feel_each_other() {
        let mut link = Link::new(1_000_000_000, Some(100_000_000));
        for user in 0..10 {
            link.start(0, user, 1000);
        }
        assert!(run(&mut link).iter().all(|(at, _)| *at == 10_000));
        for user in 0..20 {
            link.start(10_000, user, 1000);
        }
        assert!(run(&mut link).iter().all(|(at, _)| *at == 30_000));
    }

    #[test]
    fn a_transfer_that_breaks_off_leaves_its_share_to_the_others() {
        let mut link = Link::new(1_000_000_000, None);
        link.start(0, 0, 1000);
        link.start(0, 1, 1000);
        link.stop(1000, 1);
        assert_eq!(run(&mut link), [(1500, 0)]);
    }
}
