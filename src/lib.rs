//! Towtank.

pub mod codec;
pub mod device;
pub mod document;
pub mod draw;
pub mod failure;
pub mod fault;
pub mod loader;
pub mod machine;
pub mod measure;
pub mod model;
pub mod report;
pub mod scenario;
pub mod sim;
pub mod source;
pub mod sync;
pub mod synth;
pub mod trace;
pub mod units;
