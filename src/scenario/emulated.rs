//! A store that is not there, emulated around the files that are: every read waits as the store's would.

use std::time::Duration;

use super::Scenario;
use crate::{
    document::{Diagnostic, Trouble},
    machine::{Op, real::StoreDelay},
    sim,
};

/// The kind of store whose reads wait in a real run as the scenario says.
pub const EMULATED: &str = "emulated";
/// The kind of store that images at a URL are read from.
pub const OBJECT: &str = "object";

/// What the scenario says of an emulated store.
#[derive(Debug)]
pub(super) struct Emulated {
    seed: u64,
    first_byte_ns: sim::Distribution,
    bytes_per_s: Option<u64>,
}

impl StoreDelay for Emulated {
    fn first_byte(&self, op: &Op) -> Duration {
        Duration::from_nanos(sim::first_byte_ns(&self.first_byte_ns, self.seed, op))
    }

    fn transfer(&self, bytes: u64) -> Duration {
        let rate = self.bytes_per_s.unwrap_or(u64::MAX);
        Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64)
    }
}

impl Scenario {
    /// The emulated store, when the scenario has one, and the reads it takes at once.
    ///
    /// # Errors
    ///
    /// When the scenario says something of it that only a simulation can do.
    pub(super) fn emulated(&self) -> Result<Option<Emulated>, Trouble> {
        let store = &self.store;
        if store.kind != EMULATED {
            return Ok(None);
        }
        for (said, field) in [(store.bandwidth.is_some(), "store.bandwidth"), (store.requests.is_some(), "store.requests")] {
            if said {
                let wrong = Diagnostic::new(format!("`{field}` can be simulated, and not emulated: every read waits for itself"));
                let hint = "`store.per_connection` with `store.connections` limits the whole too";
                return Err(wrong.at(self.places.of(field)).hint(hint).into());
            }
        }
        Ok(Some(Emulated {
            seed: self.seed,
            first_byte_ns: store.first_byte.as_ref().map_or(sim::Distribution::Constant(0), crate::model::Latency::to_sim),
            bytes_per_s: store.per_connection.map(|rate| rate.as_bytes_per_s().max(1)),
        }))
    }
}
