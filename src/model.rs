//! Machines as models: what their parts cost.

pub mod fit;
