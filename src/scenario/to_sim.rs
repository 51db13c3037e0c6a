//! From a scenario to the numbers that a simulated machine and a loader take.

use std::sync::Arc;

use super::{Allowed, Dataset, Design, DeviceStage, Loader, OnErrors, Order, Scenario, Tail};
use crate::{
    codec,
    designs::WorkerProcesses,
    document::{Diagnostic, Trouble},
    loader::{self, Allowance, Retries, Settings, SettingsError},
    model::{MachineModel, Measured, Store},
    sim,
    source::Source,
    units::{ByteRate, Count, Size},
};

/// What a loader and a simulation must know of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samples {
    /// Their sizes.
    pub sizes: sim::Dataset,
    /// The most encoded bytes that one has.
    pub bytes_most: u64,
    /// The most pixels that one has.
    pub pixels_most: u64,
}

/// What of an image tells its size, unless a large preview comes first \[B\].
#[cfg(feature = "remote")]
const HEAD_BYTES: u64 = 32 << 10;

/// Pixels of an image; 0 for what is none, and for one that is larger than any decoder accepts, since it takes no frame.
fn pixels_of(encoded: &[u8]) -> u64 {
    let pixels = codec::probe(encoded).map_or(0, |header| header.pixels());
    if pixels > codec::Limits::default().pixels_max { 0 } else { pixels }
}

impl Samples {
    /// Samples of which every size is known, such as those of a folder.
    pub fn listed(sizes: Vec<sim::Size>) -> Samples {
        let bytes_most = sizes.iter().map(|s| s.bytes).max().unwrap_or(0);
        let pixels_most = sizes.iter().map(|s| s.pixels).max().unwrap_or(0);
        Samples { sizes: sim::Dataset::Listed(Arc::from(sizes)), bytes_most, pixels_most }
    }

    /// The samples of a source, each read once to see its size. One that cannot be read or is no image counts with the bytes it has
    /// and no pixels: what that means is for the loader to find out.
    pub fn of_source(source: &dyn Source) -> Samples {
        let mut data = Vec::new();
        let size = |sample: u64| match source.read(sample, &mut data, &|| true) {
            Ok(()) => sim::Size { bytes: data.len() as u64, pixels: pixels_of(&data) },
            Err(_) => sim::Size { bytes: source.bytes_bound(sample).unwrap_or(0), pixels: 0 },
        };
        Samples::listed((0..source.len()).map(size).collect())
    }

    /// The samples of a source as it lists them, without a look at one: nothing is known of their pixels.
    pub fn of_listing(source: &dyn Source) -> Samples {
        let size = |sample| sim::Size { bytes: source.bytes_bound(sample).unwrap_or(0), pixels: 0 };
        Samples::listed((0..source.len()).map(size).collect())
    }

    /// The samples of a store, of each of which the beginning is read, or all where that does not tell its size. What cannot be read or is
    /// no image counts as in [`of_source`](Samples::of_source). `progress` is told how many have been looked at.
    #[cfg(feature = "remote")]
    pub fn of_remote(remote: &Arc<crate::source::Remote>, mut progress: impl FnMut(u64)) -> Samples {
        let mut sizes = Vec::new();
        remote.beginnings(HEAD_BYTES, |sample, data| {
            let bytes = remote.bytes_bound(sample).unwrap_or(0);
            let mut pixels = pixels_of(data);
            if pixels == 0 && bytes > HEAD_BYTES {
                let mut whole = Vec::new();
                pixels = remote.read(sample, &mut whole, &|| true).map_or(0, |()| pixels_of(&whole));
            }
            sizes.push(sim::Size { bytes, pixels });
            progress(sizes.len() as u64);
        });
        Samples::listed(sizes)
    }

    /// Samples that are drawn from a model.
    pub fn drawn(model: &crate::model::DatasetModel) -> Samples {
        let sizes = model.to_sim();
        let sim::Dataset::Drawn { bytes, pixels, .. } = &sizes else { unreachable!("a model is drawn from") };
        let largest = |d: &sim::Distribution| d.at(u64::MAX);
        let pixels_most = match pixels {
            sim::PixelCount::Drawn(pixels) => largest(pixels),
            sim::PixelCount::PerByte { ppm } => (u128::from(*ppm) * u128::from(largest(bytes)) / 1_000_000) as u64,
        };
        let bytes_most = model.largest.value.as_bytes().max(largest(bytes));
        Samples { bytes_most, pixels_most, sizes }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.sizes.count()
    }

    /// The first `count` of them, or all. What is known of the largest stays.
    #[must_use]
    pub fn first(&self, count: u64) -> Samples {
        let sizes = match &self.sizes {
            sim::Dataset::Drawn { count: all, bytes, pixels } => {
                sim::Dataset::Drawn { count: count.min(*all), bytes: bytes.clone(), pixels: pixels.clone() }
            }
            sim::Dataset::Listed(sizes) => {
                sim::Dataset::Listed(sizes[..usize::try_from(count).unwrap_or(usize::MAX).min(sizes.len())].into())
            }
        };
        Samples { sizes, ..*self }
    }
}

impl Scenario {
    /// The samples as far as the scenario itself knows them: a model's, or ImageNet's sizes for synthetic images; `None` for a folder.
    ///
    /// # Errors
    ///
    /// When the model of synthetic images cannot be read.
    pub fn samples(&self) -> Result<Option<Samples>, Trouble> {
        Ok(match &self.dataset {
            Dataset::Drawn(model) => Some(Samples::drawn(model)),
            Dataset::Synthetic { count, .. } => {
                let mut model = crate::model::load_dataset("imagenet")?;
                model.count = Measured::plain(Count(*count));
                Some(Samples::drawn(&model))
            }
            Dataset::Folder(_) => None,
        })
    }

    /// Threads of the pool on this machine.
    pub fn threads(&self, machine: &MachineModel) -> u64 {
        self.loader.threads.unwrap_or_else(|| machine.pool_threads())
    }

    /// The store on this machine, with what the scenario says over it.
    ///
    /// # Errors
    ///
    /// When the machine has no store of this kind.
    pub fn store_on(&self, machine: &MachineModel) -> Result<Store, Trouble> {
        let kind = &self.store.kind;
        let Some(known) = machine.stores.get(kind) else {
            let names = || machine.stores.keys().map(String::as_str);
            let list: Vec<String> = names().map(|n| format!("{n:?}")).collect();
            let hint = crate::units::nearest(kind, names()).map(|n| format!("did you mean {n:?}?")).unwrap_or_default();
            let wrong = Diagnostic::new(format!("the machine \"{}\" has no store {kind:?}", machine.title));
            return Err(wrong.at(self.places.of("store.kind")).expected(list.join(" or ")).hint(hint).into());
        };
        let said = &self.store;
        let over = |model: &Option<Measured<_>>, mine: Option<_>| mine.map(Measured::plain).or_else(|| model.clone());
        Ok(Store {
            first_byte: said.first_byte.clone().or_else(|| known.first_byte.clone()),
            per_connection: over(&known.per_connection, said.per_connection),
            bandwidth: over(&known.bandwidth, said.bandwidth),
            connections: said.connections.map(|n| Measured::plain(Count(n))).or_else(|| known.connections.clone()),
            requests: said.requests.map(Measured::plain).or_else(|| known.requests.clone()),
            burst: said.burst.map(|n| Measured::plain(Count(n))).or_else(|| known.burst.clone()),
            ..known.clone()
        })
    }

    /// The simulated machine that the scenario runs on.
    ///
    /// # Errors
    ///
    /// When the machine has no such store.
    pub fn to_sim(&self, machine: &MachineModel, samples: &Samples) -> Result<sim::Config, Trouble> {
        let config = sim::Config {
            seed: self.seed,
            nodes: self.ranks.nodes(),
            dataset: samples.sizes.clone(),
            faults: self.faults.clone(),
            chooser: self.replay.as_ref().map_or(sim::Chooser::Fifo, |replay| replay.chooser.clone()),
            timing: self.replay.as_ref().map_or(sim::Timing::Modelled, |replay| replay.timing),
            kernels: self.kernels_on(machine)?,
            ..machine.to_config(self.threads(machine), &self.store_on(machine)?)
        };
        Ok(match self.consumer.link {
            Some(link) => over(link, config),
            None => config,
        })
    }

    /// The device at the scenario's stage. What is replayed looks at orders and not at times, so there the stage may be free.
    fn kernels_on(&self, machine: &MachineModel) -> Result<sim::KernelSpec, Trouble> {
        let mut kernels = machine.kernel_spec();
        let Some(kind) = self.loader.device_stage.map(DeviceStage::name).filter(|kind| kernels.cost(kind).is_none()) else {
            return Ok(kernels);
        };
        if self.replay.is_some() {
            kernels.costs.insert(kind.to_owned(), sim::KernelCost::FREE);
            return Ok(kernels);
        }
        let wrong = format!("the machine \"{}\" does not say what `{kind}` costs on its device", machine.title);
        let wrong = Diagnostic::new(wrong).at(self.places.of("loader.device_stage"));
        let hint =
            format!("give its model `[kernels.{kind}]`, or simulate it on one that has a GPU: `--set machine=p4d.24xlarge`");
        Err(wrong.hint(hint).into())
    }

    /// Worker processes, where the scenario's loader is of that design.
    pub fn worker_processes(&self, machine: &MachineModel) -> Option<WorkerProcesses> {
        let loader = &self.loader;
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        (loader.design == Design::WorkerProcesses).then(|| {
            let mut process = machine.process.clone().unwrap_or_default();
            if let Some(start) = loader.worker_start {
                process.start = Measured::plain(start);
            }
            let workers = count(loader.workers.unwrap_or_else(|| machine.pool_threads()));
            process.to_design(workers, count(loader.prefetch_factor), machine.cpu.wake_up.value)
        })
    }

    /// Refuses a loader of which there is nothing but a simulation; `why` ends a sentence that begins with it.
    ///
    /// # Errors
    ///
    /// When it is not [Towtank's own](Design::Towtank).
    pub fn only_ours(&self, why: &str) -> Result<(), Trouble> {
        if self.loader.design == Design::Towtank {
            return Ok(());
        }
        let wrong = Diagnostic::new(format!("a loader of the design `{}` {why}", self.loader.design));
        let wrong = wrong.at(self.places.of("loader.design")).expected("`design = \"towtank\"`");
        Err(wrong
            .hint("`towtank sim` simulates it, `towtank compare --measured` judges it by what such a loader recorded")
            .into())
    }

    /// What the loader is told, checked. `threads` is the number of threads that decode: each holds one full-size image.
    ///
    /// # Errors
    ///
    /// When the settings do not fit together: a budget below the minimum, ranks without a batch.
    pub fn settings(&self, threads: u64, samples: &Samples) -> Result<Settings, Trouble> {
        let loader = &self.loader;
        self.bounded_lanes(threads)?;
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let slot_bytes = loader.size.bytes();
        // A decoding thread keeps the full-size frame and a small image beside it.
        let frame_bytes = samples.pixels_most.saturating_mul(3).saturating_add(slot_bytes);
        let mut settings = Settings::new(samples.count(), size(loader.batch), size(slot_bytes));
        settings.shuffle = loader.shuffle.then_some(self.seed);
        settings.epochs = loader.epochs;
        settings.drop_last = loader.drop_last;
        settings.rank = loader.rank;
        settings.world = loader.world;
        settings.tail = match loader.tail {
            Tail::Uneven => loader::Tail::Uneven,
            Tail::Pad => loader::Tail::Pad,
            Tail::Drop => loader::Tail::Drop,
        };
        settings.order = match loader.order {
            Order::Plan => loader::Order::Plan,
            Order::Completion => loader::Order::Completion,
        };
        settings.on_error = on_error(loader);
        settings.sample_bytes = samples.bytes_most.max(1);
        settings.budget_bytes = loader.budget.as_bytes();
        settings.scratch_bytes = threads.saturating_mul(frame_bytes);
        settings.ring = loader.ring.map(size);
        settings.lanes = size(loader.lanes_for(threads, &self.store.kind));
        settings.prefetch = size(loader.prefetch);
        settings.held = size(self.consumer.hold);
        settings.copies = size(loader.copies);
        settings.device_stage = loader.device_stage.map(|_| loader::DeviceStage {
            limit: size(loader.device_stage_limit),
            result_bytes: size(slot_bytes.saturating_mul(DeviceStage::BYTES_A_BYTE)),
        });
        settings.window = loader.window;
        settings.fetch_limit = loader.fetch_limit.map(size);
        settings.decode_limit = loader.decode_limit.map(size);
        settings.fetch_deadline = loader.fetch_deadline.map(|d| d.to_std());
        settings.decode_deadline = loader.decode_deadline.map(|d| d.to_std());
        settings.retries =
            Retries { at_most: loader.retries, base: loader.retry_pause.to_std(), cap: loader.retry_pause_most.to_std() };
        if loader.design != Design::Towtank {
            // It keeps no books of memory. What is left of the settings is the plan.
            (settings.budget_bytes, settings.scratch_bytes) = (u64::MAX, 0);
        }
        match settings.clone().resolve() {
            Ok(_) => Ok(settings),
            Err(error) => Err(self.explain(&error, threads, frame_bytes).into()),
        }
    }

    /// Refuses more lanes, of all ranks together, than memory has room for.
    fn bounded_lanes(&self, threads: u64) -> Result<(), Trouble> {
        const ALL_MOST: u64 = 1 << 22;
        let (ranks, lanes) = (u64::from(self.ranks.count), self.loader.lanes_for(threads, &self.store.kind));
        let all = lanes.saturating_mul(ranks);
        if all <= ALL_MOST || self.loader.design != Design::Towtank {
            return Ok(());
        }
        let of = if ranks > 1 { format!(" for each of {} ranks", Count(ranks)) } else { String::new() };
        let place = ["loader.lanes", "loader.threads", "ranks.count"].iter().find_map(|path| self.places.of(path));
        let wrong =
            Diagnostic::new(format!("{} lanes{of} are {} in all, which no memory has room for", Count(lanes), Count(all)));
        let hint = "`loader.lanes` says how many; left out there are four or eight for each of `loader.threads`";
        Err(wrong.at(place).expected(format!("at most {} lanes in all", Count(ALL_MOST))).hint(hint).into())
    }

    /// The loader's complaint in the scenario's words, at the scenario's place.
    pub(crate) fn explain(&self, error: &SettingsError, threads: u64, frame_bytes: u64) -> Diagnostic {
        let mebibytes = |bytes: u64| match bytes {
            0..1_000_000 => format!("{:.0} KiB", bytes as f64 / 1024.0),
            _ => format!("{:.1} MiB", bytes as f64 / (1u64 << 20) as f64),
        };
        match *error {
            SettingsError::Budget {
                minimum_bytes, ring, device_batches, batch, slot_bytes, result_bytes, sample_bytes, ..
            } => {
                let enough = Size::new(minimum_bytes.div_ceil(1 << 20) as f64, "MiB");
                let results = match result_bytes {
                    0 => String::new(),
                    bytes => format!(
                        ", with {} more for what `device_stage` makes of each sample of these batches",
                        mebibytes(bytes as u64)
                    ),
                };
                let parts = format!(
                    "a ring of {ring} slots and {device_batches} batches of {batch} at {} each{results}, {threads} full-size images of up \
                     to {} while they are decoded, and one encoded image of up to {}",
                    mebibytes(slot_bytes as u64),
                    mebibytes(frame_bytes),
                    mebibytes(sample_bytes),
                );
                Diagnostic::new(format!(
                    "`loader.budget` of {} is below the minimum of {}",
                    self.loader.budget,
                    mebibytes(minimum_bytes)
                ))
                .at(self.places.of("loader.budget"))
                .expected(format!("at least {enough}: {parts}"))
                .hint("raise `loader.budget`; or a smaller `batch`, `prefetch`, `ring` or `size`, or fewer `threads`, needs less")
            }
            SettingsError::NoBatch { rank, world, mine, samples, batch, .. } => {
                let fields = match mine {
                    0 => ["ranks.count", "loader.world", "loader.rank", "loader.tail"],
                    _ => ["loader.drop_last", "loader.tail", "loader.batch", "dataset.count"],
                };
                let place = fields.iter().find_map(|path| self.places.of(path));
                let message =
                    format!("rank {rank} of {world} has {mine} of {samples} samples an epoch: not one batch of {batch}");
                Diagnostic::new(message).at(place).expected(match mine {
                    0 => "fewer ranks, more samples, or `loader.tail = \"pad\"`",
                    _ => "a smaller `loader.batch`, more samples, or `loader.drop_last = false`",
                })
            }
            SettingsError::Zero { field: "samples" } => {
                Diagnostic::new("the dataset has no samples").at(self.places.of("dataset.path"))
            }
            SettingsError::Zero { field } | SettingsError::TooLarge { field } => {
                let path = match field {
                    "samples" => "dataset.count".to_owned(),
                    "held" => "consumer.hold".to_owned(),
                    "slot_bytes" => "loader.size".to_owned(),
                    "budget_bytes" => "loader.budget".to_owned(),
                    other => format!("loader.{other}"),
                };
                let what = if matches!(error, SettingsError::Zero { .. }) { "zero" } else { "too large" };
                Diagnostic::new(format!("`{path}` is {what}")).at(self.places.of(&path))
            }
            ref other => Diagnostic::new(other.to_string()),
        }
    }
}

/// The machine with an emulated link to its device.
fn over(link: ByteRate, config: sim::Config) -> sim::Config {
    let ps_per_byte = 1_000_000_000_000 / link.as_bytes_per_s().max(1);
    let copy = sim::CopySpec { by: sim::CopyBy::Engines(1), cost: sim::Cost { ps_per_byte, ..sim::Cost::FREE } };
    sim::Config { copy, lends_slots: false, ..config }
}

fn on_error(loader: &Loader) -> loader::OnError {
    match loader.errors {
        OnErrors::Fail => loader::OnError::Fail,
        OnErrors::Skip => loader::OnError::Skip {
            at_most: match loader.skip_at_most {
                None => Allowance::ANY,
                Some(Allowed::Count(n)) => Allowance::Count(n.0),
                Some(Allowed::Part(part)) => Allowance::Fraction(part.base()),
            },
        },
    }
}
