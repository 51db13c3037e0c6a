//! The loader against an independent oracle, on tokio's paused clock and on the simulator.
#![expect(unreachable_pub, reason = "one test binary in several files")]

mod content;
mod device_stage;
mod dlpack;
mod errors;
mod held;
mod paused;
mod queueing;
mod ranks;
mod real;
mod resume;
mod scenario;
mod simulated;
mod stop;
mod world;
