//! Keyed randomness: every draw is a function of `(seed, purpose, entity, occurrence)`.

/// What a draw is for. Two purposes never share a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Purpose(pub u32);
