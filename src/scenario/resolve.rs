//! From what was typed to what is meant.

use std::path::PathBuf;

use super::{
    Codec, Consumer, Dataset, DatasetKind, Design, Figure, Loader, MachineChoice, OnErrors, Order, REFERENCE, Ranks, Resize,
    Scenario, Store, Tail,
    typed::{self, File},
    words::ImageSize,
};
use crate::{
    document::{Errors, Positive, Spanned},
    fault::{Faults, Hits},
    model,
    units::{Count, Duration, Size},
};

/// A value, or its default.
fn or<T: Clone>(field: &Option<Spanned<T>>, default: T) -> T {
    field.as_ref().map_or(default, |f| f.value.clone())
}

fn count(field: &Option<Spanned<Positive<Count>>>) -> Option<u64> {
    field.as_ref().map(|f| f.value.0.0)
}

fn positive<T: Copy>(field: &Option<Spanned<Positive<T>>>) -> Option<T> {
    field.as_ref().map(|f| f.value.0)
}

/// A count that must fit its place in the loader.
fn fits<T: TryFrom<u64>>(field: &Option<Spanned<impl AsCount>>, most: u64, default: T, errors: &Errors) -> T {
    let Some(field) = field else { return default };
    let n = field.value.as_count();
    match T::try_from(n).ok().filter(|_| n <= most) {
        Some(value) => value,
        None => {
            errors.push(field.wrong("is too large").expected(format!("at most {}", Count(most))));
            default
        }
    }
}

trait AsCount {
    fn as_count(&self) -> u64;
}

impl AsCount for Count {
    fn as_count(&self) -> u64 {
        self.0
    }
}

impl AsCount for Positive<Count> {
    fn as_count(&self) -> u64 {
        self.0.0
    }
}

/// What is meant; where something is wrong, the error is taken and the value does not matter.
pub(super) fn resolve(name: &str, file: File, errors: &Errors) -> Scenario {
    let places = file.places();
    let mut loader = loader(&file.loader, errors);
    let ranks = ranks(&file, errors);
    if ranks.count > 1 {
        loader.world = ranks.count;
    }
    Scenario {
        name: name.to_owned(),
        title: file.top.title.as_ref().map(|t| t.value.clone()).unwrap_or_default(),
        description: file.top.description.as_ref().map(|d| d.value.clone()),
        seed: or(&file.top.seed, Count(0)).0,
        machine: match file.top.machine.as_ref().map(|m| m.value.as_str()) {
            None | Some("this") => MachineChoice::This,
            Some(named) => MachineChoice::Named(named.to_owned()),
        },
        dataset: dataset(&file.dataset, errors),
        store: store(&file.store),
        consumer: consumer(&file.consumer, loader.batch, errors),
        loader,
        ranks,
        faults: faults(&file.faults, errors),
        replay: super::replay::resolve(&file.replay, errors),
        expect: file.expect,
        places,
    }
}

/// Refuses a field that has no meaning beside another.
fn refuse<T>(field: &Option<Spanned<T>>, because: &str, errors: &Errors) {
    if let Some(field) = field {
        errors.push(field.wrong(because));
    }
}

fn dataset(typed: &typed::Dataset, errors: &Errors) -> Dataset {
    let drawn = typed.model.is_some() || typed.bytes.is_some();
    let implied = match (&typed.path, drawn) {
        (Some(_), _) => DatasetKind::Folder,
        (None, true) => DatasetKind::Drawn,
        (None, false) => DatasetKind::Synthetic,
    };
    let kind = or(&typed.kind, implied);
    if kind != DatasetKind::Folder {
        refuse(&typed.path, &format!("has no meaning with `kind = \"{kind}\"`: only a \"folder\" has a path"), errors);
    }
    if kind != DatasetKind::Drawn {
        refuse(
            &typed.model,
            &format!("has no meaning with `kind = \"{kind}\"`: only sizes that are \"drawn\" have a model"),
            errors,
        );
        let because = format!("has no meaning with `kind = \"{kind}\"`: only sizes that are \"drawn\" are said");
        refuse(&typed.bytes, &because, errors);
        refuse(&typed.deviation, &because, errors);
    } else if typed.bytes.is_none() {
        refuse(&typed.deviation, "has no meaning without `dataset.bytes`, from which sizes deviate", errors);
    } else {
        refuse(&typed.model, "has no meaning beside `dataset.bytes`: either says how large samples are", errors);
    }
    if kind != DatasetKind::Synthetic {
        refuse(&typed.seed, &format!("has no meaning with `kind = \"{kind}\"`: only a \"synthetic\" dataset has one"), errors);
    }
    match kind {
        DatasetKind::Synthetic => {
            Dataset::Synthetic { count: count(&typed.count).unwrap_or(400), seed: or(&typed.seed, Count(1)).0 }
        }
        DatasetKind::Folder => {
            refuse(&typed.count, "has no meaning with `kind = \"folder\"`: the folder has as many as it has", errors);
            match (&typed.path, &typed.kind) {
                (Some(path), _) => Dataset::Folder(PathBuf::from(&path.value)),
                (None, Some(kind)) => {
                    let wrong = kind.wrong("is \"folder\", but there is no path").hint("write `path = \"images\"` beside it");
                    errors.push(wrong);
                    Dataset::Folder(PathBuf::new())
                }
                (None, None) => unreachable!("a folder is implied by its path"),
            }
        }
        DatasetKind::Drawn if typed.bytes.is_some() => {
            let bytes = positive(&typed.bytes).unwrap_or(Size::new(1.0, "B"));
            let deviation = or(&typed.deviation, Size::new(0.0, "B"));
            let records = model::DatasetModel::records(Count(count(&typed.count).unwrap_or(400)), bytes, deviation);
            Dataset::Drawn(Box::new(records))
        }
        DatasetKind::Drawn => {
            let name = typed.model.as_ref().map_or("imagenet", |m| m.value.as_str());
            match model::load_dataset(name) {
                Ok(mut drawn) => {
                    if let Some(count) = count(&typed.count) {
                        drawn.count = model::Measured::plain(Count(count));
                    }
                    Dataset::Drawn(Box::new(drawn))
                }
                Err(trouble) => {
                    for diagnostic in trouble.diagnostics() {
                        let place = diagnostic.place.clone().or(typed.model.as_ref().map(|m| m.place.clone()));
                        errors.push(diagnostic.clone().at(place.as_ref()));
                    }
                    Dataset::Synthetic { count: 1, seed: 0 }
                }
            }
        }
    }
}

fn store(typed: &typed::Store) -> Store {
    Store {
        kind: typed.kind.as_ref().map_or_else(|| "page-cache".to_owned(), |k| k.value.clone()),
        first_byte: typed.first_byte.as_ref().map(|f| f.value.clone()),
        per_connection: positive(&typed.per_connection),
        bandwidth: positive(&typed.bandwidth),
        connections: count(&typed.connections),
        requests: positive(&typed.requests),
        burst: count(&typed.burst),
    }
}

/// The most threads of one machine's pool: far more than any has cores, and as many as a simulation holds in memory with their lanes.
const THREADS_MOST: u64 = 1 << 16;

/// The most lanes of one rank.
const LANES_MOST: u64 = 1 << 20;

/// The most lanes, slots or samples in a batch.
const LARGEST: u64 = crate::loader::LARGEST_COUNT as u64;

fn loader(typed: &typed::Loader, errors: &Errors) -> Loader {
    let design = or(&typed.design, Design::Towtank);
    refuse_others(typed, design, errors);
    let errors_policy = or(&typed.errors, OnErrors::Fail);
    if errors_policy == OnErrors::Fail {
        refuse(&typed.skip_at_most, "has no meaning with `errors = \"fail\"`: write `errors = \"skip\"`", errors);
    }
    let order = or(&typed.order, Order::Plan);
    if order == Order::Plan {
        refuse(&typed.window, "has no meaning with `order = \"plan\"`: it bounds how far completion order may run ahead", errors);
    }
    if typed.device_stage.is_none() {
        refuse(&typed.device_stage_limit, "has no meaning without `device_stage`", errors);
    }
    let world: u16 = fits(&typed.world, u64::from(u16::MAX), 1, errors);
    let rank: u16 = fits(&typed.rank, u64::from(u16::MAX), 0, errors);
    if let Some(wrong) = typed.rank.as_ref().filter(|_| rank >= world) {
        errors.push(
            wrong
                .wrong(format!("is {rank}, but `loader.world` is {world}"))
                .expected("a rank below `loader.world`, counted from 0"),
        );
    }
    let (pause, pause_most) =
        (or(&typed.retry_pause, Duration::new(50.0, "ms")), or(&typed.retry_pause_most, Duration::new(5.0, "s")));
    let batch: u64 = fits(&typed.batch, LARGEST, 32, errors);
    let bounded = |field: &Option<Spanned<Positive<Count>>>| field.is_some().then(|| fits(field, LARGEST, 1, errors));
    let ring = bounded(&typed.ring);
    if let Some(wrong) = typed.ring.as_ref().filter(|_| ring < Some(batch)) {
        let least = format!("at least one batch: {}", Count(batch));
        errors.push(wrong.wrong(format!("is {}, less than a batch", wrong.value.0)).expected(least));
    }
    if let Some(wrong) = typed.retry_pause_most.as_ref().filter(|most| most.value < pause) {
        errors.push(wrong.wrong(format!("is {}, shorter than the first pause of {pause}", wrong.value)));
    }
    Loader {
        design,
        batch,
        threads: typed.threads.is_some().then(|| fits(&typed.threads, THREADS_MOST, 1, errors)),
        lanes: typed.lanes.is_some().then(|| fits(&typed.lanes, LANES_MOST, 1, errors)),
        ring,
        budget: positive(&typed.budget).unwrap_or(Size::new(1.0, "GiB")),
        prefetch: fits(&typed.prefetch, LARGEST, 2, errors),
        copies: fits(&typed.copies, LARGEST, 2, errors),
        device_stage: typed.device_stage.as_ref().map(|stage| stage.value),
        device_stage_limit: fits(&typed.device_stage_limit, LARGEST, 1, errors),
        order,
        shuffle: or(&typed.shuffle, true),
        drop_last: or(&typed.drop_last, false),
        epochs: fits(&typed.epochs, u64::from(u32::MAX), 1, errors),
        rank,
        world,
        tail: or(&typed.tail, Tail::Uneven),
        errors: errors_policy,
        skip_at_most: typed.skip_at_most.as_ref().map(|s| s.value),
        retries: fits(&typed.retries, u64::from(u16::MAX), 3, errors),
        retry_pause: pause,
        retry_pause_most: if pause_most < pause { pause } else { pause_most },
        fetch_limit: bounded(&typed.fetch_limit),
        fetch_deadline: positive(&typed.fetch_deadline),
        decode_limit: bounded(&typed.decode_limit),
        decode_deadline: positive(&typed.decode_deadline),
        window: count(&typed.window),
        size: or(&typed.size, ImageSize { width: 224, height: 224 }),
        resize: or(&typed.resize, Resize::Squash),
        codec: or(&typed.codec, Codec::Auto),
        workers: typed.workers.is_some().then(|| fits(&typed.workers, WORKERS_MOST, 1, errors)),
        prefetch_factor: fits(&typed.prefetch_factor, WORKERS_MOST, 2, errors),
        worker_start: typed.worker_start.as_ref().map(|start| start.value),
    }
}

/// The most worker processes, or batches that one has outstanding.
const WORKERS_MOST: u64 = u16::MAX as u64;

/// Refuses what another design has.
fn refuse_others(typed: &typed::Loader, design: Design, errors: &Errors) {
    let because = format!("has no meaning with `design = \"{design}\"`");
    macro_rules! refuse_all {
        ($($field:ident),+) => {{ $(refuse(&typed.$field, &because, errors);)+ }};
    }
    match design {
        Design::Towtank => refuse_all!(workers, prefetch_factor, worker_start),
        Design::WorkerProcesses => {
            refuse_all!(threads, lanes, ring, budget, prefetch, copies, window, skip_at_most, retries, retry_pause);
            refuse_all!(
                device_stage,
                device_stage_limit,
                retry_pause_most,
                fetch_limit,
                fetch_deadline,
                decode_limit,
                decode_deadline,
                codec
            );
            if let Some(order) = typed.order.as_ref().filter(|order| order.value == Order::Completion) {
                errors.push(order.wrong(format!("is \"completion\", which {because}: batches come in the order of the plan")));
            }
            if let Some(policy) = typed.errors.as_ref().filter(|policy| policy.value == OnErrors::Skip) {
                errors.push(policy.wrong(format!("is \"skip\", which {because}: a sample that fails ends it")));
            }
        }
    }
}

fn ranks(file: &File, errors: &Errors) -> Ranks {
    let count = fits(&file.ranks.count, u64::from(u16::MAX), 1, errors);
    if count > 1 {
        let because = format!("has no meaning beside `ranks.count = {count}`: these ranks are all there are");
        refuse(&file.loader.rank, &because, errors);
        refuse(&file.loader.world, &because, errors);
    }
    let per_node = file.ranks.per_node.is_some().then(|| fits(&file.ranks.per_node, u64::from(u16::MAX), 1, errors));
    Ranks { count, per_node, barrier: or(&file.ranks.barrier, true) }
}

fn consumer(typed: &typed::Consumer, batch: u64, errors: &Errors) -> Consumer {
    let step = match (&typed.step, &typed.rate) {
        (Some(step), Some(rate)) => {
            let meant = Duration::of_base(batch as f64 / rate.value.0.per_s() * 1e9);
            let meant = Figure::alike(meant, meant.base());
            let rate_and_batch = format!("{} with `loader.batch` {batch}", rate.value.0);
            let wrong = format!("contradicts `consumer.step`: {rate_and_batch} is a step of {meant}, not {}", step.value);
            errors.push(rate.wrong(wrong));
            step.value
        }
        (Some(step), None) => step.value,
        (None, Some(rate)) => Duration::of_base((batch as f64 / rate.value.0.per_s() * 1e9).round()),
        (None, None) => Duration::new(0.0, "ms"),
    };
    Consumer {
        step,
        link: positive(&typed.link),
        start_up: or(&typed.start_up, Duration::new(0.0, "ms")),
        hold: fits(&typed.hold, LARGEST, 1, errors),
        leave_after: count(&typed.leave_after),
    }
}

fn faults(typed: &typed::Faults, errors: &Errors) -> Faults {
    if typed.slow_reads.is_none() && typed.slow_jobs.is_none() && typed.slow_kernels.is_none() {
        refuse(&typed.slow_times, "has no meaning without `slow_reads`, `slow_jobs` or `slow_kernels`", errors);
    }
    if typed.truncated.is_none() {
        refuse(&typed.truncated_keep, "has no meaning without `truncated`", errors);
    }
    let default = Faults::default();
    Faults {
        missing: or(&typed.missing, Hits::NONE),
        truncated: or(&typed.truncated, Hits::NONE),
        truncated_keep_ppm: typed.truncated_keep.as_ref().map_or(default.truncated_keep_ppm, |k| k.value.0.as_ppm() as u32),
        undecodable: or(&typed.undecodable, Hits::NONE),
        panicking: or(&typed.panicking, Hits::NONE),
        transient: or(&typed.transient, Hits::NONE),
        throttled: or(&typed.throttled, Hits::NONE),
        stalled: or(&typed.stalled, Hits::NONE),
        slow_reads: or(&typed.slow_reads, Hits::NONE),
        slow_jobs: or(&typed.slow_jobs, Hits::NONE),
        slow_times: fits(&typed.slow_times, 1_000_000, default.slow_times, errors),
        failed_copies: or(&typed.failed_copies, Hits::NONE),
        failed_kernels: or(&typed.failed_kernels, Hits::NONE),
        slow_kernels: or(&typed.slow_kernels, Hits::NONE),
    }
}

impl Scenario {
    /// The model it is simulated on: the one it names, else this computer's as calibrated, else [`REFERENCE`].
    ///
    /// # Errors
    ///
    /// When there is no such model or its file is wrong.
    pub fn machine_model(&self) -> Result<model::MachineModel, crate::document::Trouble> {
        match &self.machine {
            MachineChoice::Named(name) => model::load(name).map_err(|trouble| {
                let place = self.places.of("machine");
                trouble.placed(place)
            }),
            MachineChoice::This => match model::cache_file().filter(|f| f.exists()) {
                Some(file) => model::load(&file.to_string_lossy()).map_err(|trouble| {
                    trouble.hinted(
                        "this computer's model was kept by an earlier version; `towtank compare --recalibrate` measures it anew",
                    )
                }),
                None => model::load(REFERENCE),
            },
        }
    }
}
