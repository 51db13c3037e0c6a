//! The primitives that threads share, from `std` or, under the model checker, from loom.
