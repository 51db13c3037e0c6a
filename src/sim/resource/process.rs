//! What goes between processes: a pipe, of which messages come out in order, a while after they went in.
//!
//! Processes share nothing else. What they cost beside it, the time until one is up and the system time of either end, is time on the
//! cores, in their one run queue.

use std::collections::VecDeque;

/// A pipe with room for so many messages.
pub(in crate::sim) struct Pipe<T> {
    capacity: usize,
    latency_ns: u64,
    /// Each with the time from which on it may be taken.
    messages: VecDeque<(u64, T)>,
}

impl<T> Pipe<T> {
    /// A pipe with room for `capacity` messages, at least one, that can be taken `latency_ns` after they went in.
    pub(in crate::sim) fn new(capacity: u32, latency_ns: u64) -> Pipe<T> {
        Pipe { capacity: capacity.max(1) as usize, latency_ns, messages: VecDeque::new() }
    }

    /// Puts a message in; gives it back when there is no room. One takes its room until it is taken.
    pub(in crate::sim) fn put(&mut self, now: u64, message: T) -> Result<(), T> {
        if self.messages.len() == self.capacity {
            return Err(message);
        }
        self.messages.push_back((now.saturating_add(self.latency_ns), message));
        Ok(())
    }

    /// From when on the first message may be taken (ns); `None` when there is none.
    pub(in crate::sim) fn next(&self) -> Option<u64> {
        self.messages.front().map(|(at, _)| *at)
    }

    /// Takes the first message, if it may be taken at `now`.
    pub(in crate::sim) fn take(&mut self, now: u64) -> Option<T> {
        self.messages.pop_front_if(|(at, _)| *at <= now).map(|(_, message)| message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_in_order_after_the_latency() {
        let mut pipe = Pipe::new(3, 10);
        assert_eq!(pipe.next(), None);
        assert_eq!((pipe.put(5, 'a'), pipe.put(7, 'b')), (Ok(()), Ok(())));
        assert_eq!((pipe.next(), pipe.take(14)), (Some(15), None));
        assert_eq!((pipe.take(15), pipe.take(15), pipe.next()), (Some('a'), None, Some(17)));
        assert_eq!((pipe.take(17), pipe.take(17)), (Some('b'), None));
    }

    #[test]
    fn a_message_takes_its_room_until_it_is_taken() {
        let mut pipe = Pipe::new(2, 0);
        assert_eq!((pipe.put(0, 1), pipe.put(0, 2), pipe.put(0, 3)), (Ok(()), Ok(()), Err(3)));
        assert_eq!((pipe.take(0), pipe.put(0, 3), pipe.put(0, 4)), (Some(1), Ok(()), Err(4)));
        // Without any room nothing would ever get through.
        assert_eq!(Pipe::new(0, 0).put(0, 1), Ok(()));
    }
}
