//! An entry: what a defect is, where it can be reached, and which invariant must find it.

use towtank::scenario::{self, Overrides, Scenario};

use crate::zoo::{
    defect::Defect,
    kit::{Feed, Kit, Shape},
    motions::MOTIONS,
    sequences::SEQUENCES,
};

/// A defect of the zoo.
pub struct Entry {
    pub defect: Defect,
    /// What was seen, in a line.
    pub says: &'static str,
    /// What must find it.
    pub invariant: &'static str,
    /// The scenario's settings that make it reachable.
    pub sets: &'static [&'static str],
    /// The kit's.
    pub shape: Shape,
    /// Samples of the largest size that the budget leaves room for; 0 for one that is never short.
    pub room: u64,
    /// Whether it takes a certain order of events, or certain faults.
    pub by_chance: bool,
    /// Why no schedule in abstract time shows it, where none does.
    pub takes_time: Option<&'static str>,
}

/// All that a defect needs and the scenario does not say.
const BASE: &str = "title = \"A loader of the zoo\"\nmachine = \"reference-2core\"\n[store]\nkind = \"object\"\n";
const SETS: &[&str] = &["dataset.count=24", "loader.batch=4", "loader.lanes=4", "loader.threads=2"];

impl Entry {
    /// Its scenario, from this seed on.
    pub fn scenario(&self, seed: u64) -> Scenario {
        let mut sets: Vec<String> = SETS.iter().chain(self.sets).map(|set| (*set).to_owned()).collect();
        sets.push(format!("seed={seed}"));
        let name = self.defect.id().to_lowercase();
        let mut scenario = scenario::parse(&name, BASE, &Overrides::set(sets)).unwrap_or_else(|e| panic!("{name}: {e}"));
        scenario.name = name;
        if self.room > 0 {
            let (machine, samples) = (scenario.machine_model().expect("a model"), scenario.samples().expect("sizes"));
            let samples = samples.expect("no folder");
            let resolved = scenario.settings(scenario.threads(&machine), &samples).expect("settings").resolve().expect("a plan");
            let bytes = resolved.fixed_bytes + self.room * resolved.settings.sample_bytes;
            scenario.loader.budget = towtank::units::Size::from_bytes(bytes);
        }
        scenario
    }

    /// The kit with the defect, or its sound twin.
    pub fn kit(&self, defective: bool) -> Kit {
        Kit { shape: self.shape, defect: defective.then_some(self.defect) }
    }
}

pub const fn entry(
    defect: Defect,
    invariant: &'static str,
    sets: &'static [&'static str],
    shape: Shape,
    says: &'static str,
) -> Entry {
    Entry { defect, says, invariant, sets, shape, room: 0, by_chance: false, takes_time: None }
}

impl Entry {
    pub const fn by_chance(self) -> Entry {
        Entry { by_chance: true, ..self }
    }

    pub const fn takes_time(self, why: &'static str) -> Entry {
        Entry { takes_time: Some(why), ..self }
    }

    pub const fn room(self, samples: u64) -> Entry {
        Entry { room: samples, ..self }
    }
}

pub const PLAIN: Shape = Shape::PLAIN;
pub const EACH: Shape = Shape { feed: Feed::Each, ..PLAIN };
pub const OWN: Shape = Shape { feed: Feed::Own, ..PLAIN };
pub const CHUNKS: Shape = Shape { chunk: 4, ..PLAIN };
pub const LOOKS: Shape = Shape { looks: true, ..PLAIN };
pub const AGREE: Shape = Shape { agree: true, ..PLAIN };
pub const CACHED: Shape = Shape { cached: true, ..PLAIN };
pub const NARROW: Shape = Shape { queue: 1, ..PLAIN };
pub const COPIES: Shape = Shape { buffers: 2, ..PLAIN };
pub const LAUNCHES: Shape = Shape { launches: true, queue: 64, ..PLAIN };
pub const LIMITED: Shape = Shape { limit: 6, queue: 16, ..PLAIN };

pub const ONCE: &str = "exactly_once";
pub const RANKS: &str = "ranks_disjoint_complete_equal";
pub const WHOLE: &str = "batches_whole";
pub const RESUME: &str = "resume_exact";
pub const EPOCHS: &str = "epochs_differ";
pub const STREAMS: &str = "streams_distinct";
pub const SURFACED: &str = "errors_surfaced_or_counted";
pub const BUDGET: &str = "bytes_within_budget";
pub const CLEAN: &str = "clean_stop";
pub const PROGRESS: &str = "progress";
pub const CONTENT: &str = "content_intact";
pub const SAME_ORDER: &str = "same_order_any_schedule";
pub const CONSERVED: &str = "work_conservation";

pub const TWICE: &[&str] = &["loader.epochs=2"];

/// All entries, class by class.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    SEQUENCES.iter().chain(MOTIONS)
}
