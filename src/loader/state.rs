//! Where a run stands, so that another can go on from there.
//!
//! A [`State`] comes with every batch and says what the run has delivered once the consumer took that batch. It counts what was
//! consumed, never what was produced. It is small: positions taken are a low-water mark and, in completion order, a bitmap no longer
//! than the window.
//!
//! A state belongs to one rank of one world. A run with the same world size goes on with each rank's own state and delivers exactly
//! what the uninterrupted run would have. For another world size, [`State::merge`] joins the states of all ranks into one that
//! every rank of the new world starts from: what is left of the epoch is dealt out anew, nothing twice and nothing not at all.

use std::sync::Arc;

use super::{
    marks::Marks,
    plan::{EpochPlan, Plan},
    settings::{Order, Settings, Tail},
};

const VERSION: u32 = 1;

/// Where a run stands after a batch.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct State {
    pub(super) version: u32,
    pub(super) identity: Identity,
    /// Which rank of which world; `None` for a merged state, from which any rank of any world may start.
    pub(super) place: Option<Place>,
    /// The epoch that the next batch belongs to.
    pub(super) epoch: u32,
    /// Batches of that epoch so far.
    pub(super) step: u64,
    /// Batches of the run so far.
    pub(super) batches: u64,
    /// Failed samples of that epoch so far.
    pub(super) skipped: u64,
    /// Positions of the epoch that were consumed before it was dealt out to the present ranks.
    #[serde(with = "shared")]
    pub(super) before: Arc<Marks>,
    /// What this rank has consumed of its share since, counted within the share.
    pub(super) taken: Marks,
}

/// Saves what is shared in memory by value.
mod shared {
    use super::{Arc, Marks};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(marks: &Arc<Marks>, serializer: S) -> Result<S::Ok, S::Error> {
        marks.as_ref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Marks>, D::Error> {
        Marks::deserialize(deserializer).map(Arc::new)
    }
}

/// One of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Place {
    pub(super) rank: u16,
    pub(super) world: u16,
}

/// What must be the same for a state to mean the same.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Identity {
    samples: u64,
    dataset: u64,
    shuffle: Option<u64>,
    batch: u64,
    drop_last: bool,
    tail: Tail,
    order: Order,
}

impl Identity {
    pub(super) fn of(settings: &Settings) -> Identity {
        Identity {
            samples: settings.samples,
            dataset: settings.dataset,
            shuffle: settings.shuffle,
            batch: settings.batch as u64,
            drop_last: settings.drop_last,
            tail: settings.tail,
            order: settings.order,
        }
    }

    fn check(&self, now: &Identity) -> Result<(), StateError> {
        let differs = |field, saved: &dyn std::fmt::Debug, now: &dyn std::fmt::Debug| {
            Err(StateError::Differs { field, saved: format!("{saved:?}"), now: format!("{now:?}") })
        };
        if self.samples != now.samples {
            return differs("samples", &self.samples, &now.samples);
        }
        if self.dataset != now.dataset {
            return differs("dataset", &self.dataset, &now.dataset);
        }
        if self.shuffle != now.shuffle {
            return differs("shuffle", &self.shuffle, &now.shuffle);
        }
        if self.batch != now.batch {
            return differs("batch", &self.batch, &now.batch);
        }
        if self.drop_last != now.drop_last {
            return differs("drop_last", &self.drop_last, &now.drop_last);
        }
        if self.tail != now.tail {
            return differs("tail", &self.tail, &now.tail);
        }
        if self.order != now.order {
            return differs("order", &self.order, &now.order);
        }
        Ok(())
    }
}

impl State {
    /// The state of a run that has not begun.
    pub(super) fn start(settings: &Settings) -> State {
        State {
            version: VERSION,
            identity: Identity::of(settings),
            place: Some(Place { rank: settings.rank, world: settings.world }),
            epoch: 0,
            step: 0,
            batches: 0,
            skipped: 0,
            before: Arc::new(Marks::new()),
            taken: Marks::new(),
        }
    }

    /// The epoch that the next batch belongs to.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Batches of that epoch so far.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Batches of the run so far, all epochs and all runs it was resumed from together.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Failed samples of that epoch so far, which its [allowance](super::Allowance) counts.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// What the rank has consumed of its share of the epoch.
    pub fn taken(&self) -> &Marks {
        &self.taken
    }

    /// This state as the start of a run with `settings`.
    pub(super) fn enter(&self, settings: &Settings) -> Result<State, StateError> {
        if self.version != VERSION {
            return Err(StateError::Version { saved: self.version, known: VERSION });
        }
        self.identity.check(&Identity::of(settings))?;
        let place = Place { rank: settings.rank, world: settings.world };
        if let Some(saved) = self.place
            && saved != place
        {
            return Err(StateError::Place {
                saved_rank: saved.rank,
                saved_world: saved.world,
                rank: place.rank,
                world: place.world,
            });
        }
        if self.before.end() > self.identity.samples || self.taken.end() > self.share(place).planned() {
            return Err(StateError::Corrupt);
        }
        Ok(State { place: Some(place), ..self.clone() })
    }

    /// Joins the states of all ranks of a world into one that every rank of any other world may resume from.
    ///
    /// What is left of the epoch is dealt out anew. The states must be those after the same batch, or at least of the same epoch:
    /// a rank may be at the start of the next epoch, but not in it.
    ///
    /// # Errors
    ///
    /// [`StateError::Incomplete`] when a rank is missing or there twice, [`StateError::Differs`] when the states are of different
    /// runs, [`StateError::Apart`] when ranks are in different epochs.
    pub fn merge(states: &[State]) -> Result<State, StateError> {
        let Some(first) = states.first() else { return Err(StateError::Incomplete { rank: 0, found: 0 }) };
        let world = first.place.map_or(0, |place| place.world);
        let mut epoch = u32::MAX;
        for state in states {
            if state.version != VERSION {
                return Err(StateError::Version { saved: state.version, known: VERSION });
            }
            first.identity.check(&state.identity)?;
            if state.place.is_none_or(|place| place.world != world) {
                let theirs = state.place.map_or(0, |place| place.world);
                return Err(StateError::Differs { field: "world", saved: world.to_string(), now: theirs.to_string() });
            }
            epoch = epoch.min(state.epoch);
        }
        for rank in 0..world {
            let found = states.iter().filter(|state| state.place.is_some_and(|place| place.rank == rank)).count();
            if found != 1 {
                return Err(StateError::Incomplete { rank, found });
            }
        }
        // Every rank that is still in the epoch knows what had been consumed before it was dealt out.
        let behind = states.iter().find(|state| state.epoch == epoch).unwrap_or(first);
        let mut consumed = (*behind.before).clone();
        for state in states {
            let place = state.place.expect("checked above");
            let share = State { before: behind.before.clone(), epoch, ..state.clone() }.share(place);
            if state.epoch == epoch {
                if state.before != behind.before || state.taken.end() > share.planned() {
                    return Err(StateError::Corrupt);
                }
                let taken = (0..state.taken.end()).filter(|index| state.taken.contains(*index));
                consumed.extend(taken.map(|index| share.item(index).position).filter(|p| *p < first.identity.samples));
            } else if state.epoch == epoch + 1 && state.taken.is_empty() && state.step == 0 {
                consumed.extend((0..share.planned()).map(|i| share.item(i).position).filter(|p| *p < first.identity.samples));
            } else {
                return Err(StateError::Apart { epoch, other: state.epoch });
            }
        }
        Ok(State {
            version: VERSION,
            identity: first.identity.clone(),
            place: None,
            epoch,
            step: 0,
            batches: states.iter().map(|state| state.batches).max().unwrap_or(0),
            skipped: 0,
            before: Arc::new(consumed),
            taken: Marks::new(),
        })
    }

    /// The share of the epoch that falls to `place`. Positions only: samples need no permutation here.
    fn share(&self, place: Place) -> EpochPlan {
        let identity = &self.identity;
        let shape = Settings {
            shuffle: None,
            drop_last: identity.drop_last,
            tail: identity.tail,
            rank: place.rank,
            world: place.world,
            ..Settings::new(identity.samples, identity.batch as usize, 1)
        };
        Plan::bare(&shape).deal(self.epoch, &self.before)
    }
}

/// Why a saved state cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Another version of this crate wrote it.
    #[error("the state is of version {saved}; this program reads version {known}")]
    Version {
        /// As saved.
        saved: u32,
        /// What this program writes.
        known: u32,
    },
    /// It is a state of other settings or another dataset.
    #[error("the state was saved with `{field}` {saved}, and it is now {now}")]
    Differs {
        /// Which setting.
        field: &'static str,
        /// As saved.
        saved: String,
        /// As it is now.
        now: String,
    },
    /// It is the state of another rank, or of a world of another size.
    #[error(
        "the state is that of rank {saved_rank} of {saved_world}, not of {rank} of {world}; merge the states of all ranks to go on \
         with another world size"
    )]
    Place {
        /// As saved.
        saved_rank: u16,
        /// As saved.
        saved_world: u16,
        /// As it is now.
        rank: u16,
        /// As it is now.
        world: u16,
    },
    /// States to be merged are not one of each rank.
    #[error("there are {found} states of rank {rank}; merging takes exactly one of every rank")]
    Incomplete {
        /// Which rank.
        rank: u16,
        /// How many states of it there are.
        found: usize,
    },
    /// States to be merged are of different epochs.
    #[error("one rank is in epoch {epoch} and another in epoch {other}; their states cannot be merged")]
    Apart {
        /// The earliest.
        epoch: u32,
        /// Another.
        other: u32,
    },
    /// It says things that cannot be.
    #[error("the state is damaged")]
    Corrupt,
}
