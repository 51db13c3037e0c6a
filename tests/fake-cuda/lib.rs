//! A CUDA driver without a GPU, to test what calls one.
//!
//! It answers the driver functions that Towtank calls. A thread for each stream carries out what is put on it: copies take a set latency
//! and bandwidth, and copy when that time is over; kernels take the time they are asked to. Meanwhile it looks for what a GPU would not
//! tell of:
//!
//! - **races**: a source whose bytes at the copy are not those at the call, and copies and kernels that touch the same memory without a wait
//!   between them;
//! - **leaks**: memory, streams, events, modules and contexts that nobody has given back;
//! - **forbidden calls**: calls into the driver from a host function.
//!
//! `control.rs` is how a test sets it up, makes any call fail, and asks what it saw. Built by `tests/cuda`, as `libcuda.so`.

mod calls;
mod control;
mod driver;
mod kernel;
mod state;
mod stream;
