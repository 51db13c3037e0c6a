//! Checks a loader: many schedules, costs and faults, each a seed; what must hold of every run; and the smallest case of what does not.
//!
//! ```text
//!  scenario, cut to a few samples
//!     │ seed ─▶ case: schedule, settings, faults ─▶ run on the simulated machine ─▶ events, batches
//!     │                                                                             │
//!     │         marks: what was reached  ◀── coverage ───────────────────── invariants (one run)
//!     ▼                                                                     relations  (two runs)
//!  all cores, up to the first failure ─▶ shrink: samples, lanes, faults, tape ─▶ story, scenario with `[replay]`
//! ```
//!
//! - An [`Invariant`] is a fold over one run: every sample once, order kept, memory within its budget, work conserved, and so on. A
//!   [relation] holds between two runs of a case: the same again, one lane, going on from a state.
//! - A seed is a case: the scenario's own seed is the first, and `--seed N --seeds 1` looks at one again. In a swarm it also draws small
//!   settings and a subset of the fault families.
//! - By default leaves take as long as the machine's model says. Under [`Schedule::Pct`] and [`Schedule::Exhaustive`] time is abstract: every
//!   leaf that has begun may end next, and every order of completions can be met, however rare it would be.
//! - A failure is shrunk until nothing can be left out, and [written] as a scenario that [replays](replay) it bit for bit.
//! - A [`Design`] is a loader under test: this crate's own, or any async code over a [`SimMachine`](crate::sim::SimMachine).
//!
//! The technique is that of deterministic simulation testing, as FoundationDB and TigerBeetle do it, and of shuttle, madsim and turmoil
//! in Rust.

mod case;
mod design;
mod explore;
pub mod invariant;
mod look;
mod marks;
pub mod plan;
pub mod recorded;
pub mod redeal;
pub mod relation;
mod run;
mod shrink;
mod story;
mod swarm;
mod write;

pub use case::{Base, Case, SAMPLES};
pub use design::{Delivery, Design, Got, Job, Memory, OwnLoader, RankEnd, Taken};
pub use explore::{Check, Checked, FAILURES_MOST, Failure, Schedules, Step, check};
pub use invariant::{Broken, Invariant};
pub use marks::{Coverage, Mark};
pub use run::{Finding, Run};
pub use shrink::{LOOKS_MOST, Shrunk, Size};
pub use story::story;
pub use swarm::{Schedule, TWICE_EVERY};
pub use write::{FAILURE, NAMES, Replayed, replay, replays, written};
