//! The CUDA device against a driver without a GPU, which sees every race, leak and forbidden call: `fake-cuda`.

#![cfg(target_os = "linux")]

#[path = "cuda/command_line.rs"]
mod command_line;
#[path = "cuda/copies.rs"]
mod copies;
#[path = "cuda/failures.rs"]
mod failures;
#[path = "cuda/fake.rs"]
mod fake;
#[path = "cuda/loading.rs"]
mod loading;
#[path = "cuda/mutants.rs"]
mod mutants;
