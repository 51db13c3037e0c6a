//! The real machine: threads, files, a device, and the clock on the wall.

mod config;

pub use config::{Config, Reads, Wakes};
