//! What one run is a function of: a small scenario, a schedule, and the batch to go on from.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use super::plan::SAMPLES_MOST;
use crate::{
    document::{Diagnostic, Trouble},
    loader::{Resolved, stage::NORMALIZE},
    model::{MachineModel, Measured},
    scenario::{Dataset, MachineChoice, REFERENCE, Samples, Scenario},
    sim::{self, Chooser, Timing},
    units::{Count, Size},
};

/// Samples that a scenario is cut to, unless it is told otherwise.
pub const SAMPLES: u64 = 64;

/// What stays the same from run to run: the machine, and how large samples are.
#[derive(Debug)]
pub struct Base {
    machine: MachineModel,
    samples: Samples,
    /// The simulated machine with so many threads: making its tables takes longer than a run.
    machines: Mutex<BTreeMap<u64, sim::Config>>,
    /// The scenario, cut.
    pub(super) scenario: Scenario,
    /// The scenario as it was.
    uncut: Scenario,
    /// Samples of the scenario as it was.
    pub(super) whole: u64,
}

impl Base {
    /// The scenario, cut to so many samples, and then with batches small enough for some of them. One that is meant for this computer is checked on [`REFERENCE`], so that what is found is
    /// found again anywhere.
    ///
    /// # Errors
    ///
    /// When the machine's model cannot be read, the samples are those of a folder, the loader is of a design that is only simulated, or
    /// scenario and machine do not fit together.
    pub fn new(scenario: &Scenario, samples_most: u64) -> Result<Base, Trouble> {
        scenario.only_ours("cannot be checked")?;
        let mut scenario = scenario.clone();
        if scenario.machine == MachineChoice::This {
            scenario.machine = MachineChoice::Named(REFERENCE.to_owned());
        }
        let mut machine = scenario.machine_model()?;
        // Whatever the device, some seeds have a stage on it: checks look at orders, not at times.
        machine.kernels.entry(NORMALIZE.to_owned()).or_default();
        let Some(samples) = scenario.samples()? else {
            let wrong = Diagnostic::new("the images of a folder cannot be checked: what fails must be found again anywhere");
            let wrong = wrong.at(scenario.places.of("dataset.path"));
            return Err(wrong
                .hint("check with sizes of a model: `--set dataset.kind=synthetic` and without `dataset.path`")
                .into());
        };
        let whole = samples.count();
        // Nobody reads them in a run, and every run has a copy of the rest.
        scenario.description = None;
        scenario.places = Default::default();
        scenario.expect = Default::default();
        scenario.replay = None;
        let uncut = scenario.clone();
        let kept = whole.min(samples_most.max(1));
        cut(&mut scenario, kept);
        let world = u64::from(scenario.ranks.count.max(scenario.loader.world));
        if kept < whole {
            // Four batches of each rank at least, since little happens in one.
            scenario.loader.batch = scenario.loader.batch.min((kept / world / 4).max(1));
        }
        if kept < whole && kept < world {
            let wrong = format!("cut to {kept} samples, the dataset has none for some of {world} ranks");
            let wrong = Diagnostic::new(wrong).expected("a sample for each rank at least");
            let enough = whole.min(world.saturating_mul(4));
            return Err(wrong
                .hint(format!("cut it to more with `--samples {enough}`, or check fewer ranks, such as `--set ranks.count=8`"))
                .into());
        }
        let base = Base { machine, samples, machines: Mutex::default(), scenario, uncut, whole };
        base.settings(&base.scenario).map(|_| base)
    }

    /// The case of the scenario's own dataset, of which the plan is looked at and nothing is run: one that is never short of memory.
    pub(super) fn plan_case(&self) -> Case {
        let mut scenario = self.uncut.clone();
        cut(&mut scenario, self.whole.min(SAMPLES_MOST));
        scenario.loader.budget = Size::from_bytes(1 << 50);
        Case { scenario, chooser: Chooser::Fifo, timing: Timing::Modelled, resume_after: None }
    }

    /// Samples after the cut.
    pub fn samples(&self) -> u64 {
        count(&self.scenario)
    }

    /// Samples in a batch, which are fewer where the dataset was cut.
    pub fn batch(&self) -> u64 {
        self.scenario.loader.batch
    }

    /// The samples of a scenario made of this one.
    fn samples_of(&self, scenario: &Scenario) -> Samples {
        self.samples.first(count(scenario))
    }

    /// The simulated machine of a scenario made of this one: as [`Scenario::to_sim`] says it.
    pub(super) fn config(&self, scenario: &Scenario) -> Result<sim::Config, Trouble> {
        let threads = scenario.threads(&self.machine);
        let samples = self.samples_of(scenario);
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        let machine = match machines.get(&threads) {
            Some(machine) => machine.clone(),
            None => {
                let machine = scenario.to_sim(&self.machine, &samples)?;
                machines.insert(threads, machine.clone());
                machine
            }
        };
        drop(machines);
        Ok(sim::Config {
            seed: scenario.seed,
            nodes: scenario.ranks.nodes(),
            dataset: samples.sizes,
            faults: scenario.faults.clone(),
            ..machine
        })
    }

    /// What each rank's loader is told.
    pub(super) fn plans(&self, scenario: &Scenario) -> Result<Vec<Resolved>, Trouble> {
        let first = self.settings(scenario)?.resolve().expect("`Scenario::settings` has resolved them");
        scenario.of_ranks(&first)
    }

    /// What the first rank's loader is told.
    pub(super) fn settings(&self, scenario: &Scenario) -> Result<crate::loader::Settings, Trouble> {
        scenario.settings(scenario.threads(&self.machine), &self.samples_of(scenario))
    }
}

/// Samples of a scenario that has been cut.
pub(super) fn count(scenario: &Scenario) -> u64 {
    scenario.dataset.count().unwrap_or(0)
}

/// Leaves a scenario so many samples.
pub(super) fn cut(scenario: &mut Scenario, samples: u64) {
    match &mut scenario.dataset {
        Dataset::Synthetic { count, .. } => *count = samples,
        Dataset::Drawn(model) => model.count = Measured::plain(Count(samples)),
        Dataset::Folder(_) => {}
    }
}

/// One case: all that its runs are a function of.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is loaded, how, by whom, and what goes wrong.
    pub scenario: Scenario,
    /// The schedule.
    pub chooser: Chooser,
    /// Whether things take time.
    pub timing: Timing,
    /// A batch, from 0, after which another run goes on.
    pub resume_after: Option<u64>,
}
