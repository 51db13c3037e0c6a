//! Tests, predicts and measures data loaders for machine learning: one loader, the same code, on a simulated machine and on the real
//! one.
//!
//! ```text
//!  scenario ─▶ plan ─▶ ┌────────────── the loader, one code ───────────────┐ ─▶ consumer
//!                      │ order ─▶ fetch ─▶ decode ─▶ batch ─▶ transfer     │    (train step)
//!                      └────────────────────┬──────────────────────────────┘
//!                           Machine: clock · tasks · cores · store · device · trace
//!                           ┌───────────────┴───────────────┐
//!                       SimMachine                      RealMachine
//!               virtual time, seeded choices,     one scheduler thread, a pool,
//!               resource models, faults           files, a device, the wall clock
//!                           └───────────────┬───────────────┘
//!                                 one stream of events
//!                           ┌───────────────┼───────────────┐
//!                        summary          report         comparison
//! ```
//!
//! # Where to start reading
//!
//! 1. [`machine`]: the seam. Everything that differs between the two machines is behind one trait, [`Machine`](machine::Machine), and
//!    nothing else is. What flows, real pixels or tags that stand for them, is a second, orthogonal trait,
//!    [`Payload`](machine::Payload).
//! 2. [`loader`]: plan, lanes, ring of slots, ledger, batches, state. It knows `machine` and nothing below.
//! 3. [`sim`]: the simulated machine: executor, chooser, resources. [`machine::real`]: the real one: scheduler thread, pools, handoff.
//! 4. [`trace`]: what happened, as streaming folds; [`report`]: what is told about it.
//! 5. [`scenario`] and [`model`]: what is run, on what; [`model::calibrate`] measures this computer, [`measure`] runs for real.
//! 6. [`advise`] and [`tune`]: what limits a loader, and the least that it needs. [`mod@check`]: whether it is right.
//!
//! # Loading images
//!
//! ```no_run
//! # fn train(pixels: &[u8]) {}
//! use towtank::loader::Loader;
//!
//! let mut loader = Loader::images("data/train")?.size(224, 224).batch(64).shuffle(42).epochs(3).start()?;
//! for batch in &mut loader {
//!     let batch = batch?;
//!     train(batch.pixels()); // [64, 224, 224, 3] u8, RGB; the last batch of an epoch may be smaller
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Simulating the same loader
//!
//! ```
//! use towtank::{scenario::{self, Overrides}, trace::Recorder};
//!
//! let scenario = scenario::load("slow-consumer", &Overrides::default())?;
//! let (machine, samples) = (scenario.machine_model()?, scenario.samples()?.expect("they are drawn from a model"));
//! let simulated = scenario.simulate(&machine, &samples, Recorder::new())?;
//! assert_eq!(simulated.metrics.bottleneck.name, "consumer");
//! assert!(simulated.verdicts.iter().all(|verdict| verdict.held));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rules that hold everywhere
//!
//! - The same scenario and seed give the same trace, bit for bit, on every machine, in debug and release. Control logic reads no clock,
//!   draws from keyed streams ([`draw`]) and iterates over nothing whose order is not defined.
//! - A failure is never silent: it reaches the consumer in its place, or is skipped by a policy that was asked for and counted by reason.
//! - Memory is planned: the ring, the device batches and the encoded bytes in flight share one budget.

pub mod advise;
pub mod check;
pub mod codec;
pub mod designs;
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
pub mod tune;
pub mod units;

pub use check::check;
