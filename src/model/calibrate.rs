//! This computer as a model, measured in a few seconds on images of its own.
//!
//! What is measured is the loader itself, on the real machine, with observers around its reads and its decoding that take the CPU time
//! of their thread. So every cost holds in the place where it will be paid: with cold slots to write to, a pool that must be woken,
//! and neighbours that are busy. What the process uses beyond the observed work is what control costs.
//!
//! | number | how it is found |
//! | --- | --- |
//! | `costs.decode` | CPU time of every decode on one thread, median of the passes, over qualities × sizes and photographs: `a + b·bytes + c·pixels` |
//! | `stores.page-cache.cost` | CPU time of every read of a cached file: `a + b·bytes` |
//! | `cpu.speed` | CPU time of the same decodes with more threads, passes alternating with those on one |
//! | `scheduler.per_wake`, `per_completion` | CPU time of the scheduler's thread with no-op stages, waking for each completion and for bursts, solved for both |
//! | overhead of a leaf | what the process uses beyond decoding, reading and scheduling, per leaf; in both fixed costs |
//! | `cpu.wake_up` | from submission to start, with one lane and so a pool that sleeps; median |
//! | `device.copy` | gathering slots into a batch |
//!
//! The images are of another seed than any scenario's, and vary more.

use std::{
    collections::BTreeMap,
    fs,
    hint::black_box,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    CopiedBy, Cost, Cpu, Device, DeviceKind, MachineModel, Measured, Reader, Residual, Scheduler, Speed, Store,
    fit::{self, FitError, Sample, Terms, fit},
};
use crate::{
    codec::{Decoder, Fit, Target},
    failure::Failure,
    loader::{Fill, Settings, SettingsError},
    machine::{
        Encoded, Item, Pixels, Work, gather,
        real::{self, Reads, Wakes, usage},
        slab,
    },
    measure::{Consumer, MeasureError, Run, measure},
    source::{Folder, FolderError, Memory, Source},
    synth,
    trace::{Kind, Recorder, StageId},
    units::{ByteCost, Count, Duration, Fraction, PixelCost},
};

/// How to calibrate.
pub struct Options<'a> {
    /// Where the images are kept.
    pub corpus: &'a Path,
    /// What decodes images, and what it brings them to.
    pub decoder: &'a Decoder,
    /// Hardware threads of this computer.
    pub threads: usize,
    /// Passes over the corpus for each number of threads; more of them take longer and spread less.
    pub passes: u32,
}

/// Why calibration failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// The images could not be written.
    #[error("cannot write calibration images to {}: {error}", folder.display())]
    Write {
        /// Where.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The images could not be read back.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The loader refused its settings.
    #[error("the calibration's own settings were refused: {0}")]
    Settings(#[from] SettingsError),
    /// The loader could not run.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The loader ended with an error.
    #[error("the calibration's loader failed: {0}")]
    Loader(crate::loader::Error),
    /// There is no memory for a batch.
    #[error("no memory for a batch: {0}")]
    Memory(Failure),
    /// The times do not make a cost.
    #[error("cannot fit a cost of {what}: {error}")]
    Fit {
        /// Of what.
        what: &'static str,
        /// Why.
        error: FitError,
    },
}

/// Seed of the images: no scenario's.
const SEED: u64 = 0xCA11_B7A7E;
const QUALITIES: [u8; 4] = [75, 88, 94, 97];
const SIZES: [(u32, u32); 5] = [(200, 150), (333, 500), (500, 375), (800, 600), (1400, 1000)];
/// Photographs beside the factorial images: the sizes that most images have.
const PHOTOGRAPHS: u64 = 40;
/// Points of a residual's table.
const QUANTILES: usize = 17;
/// Samples of a pass with no-op stages.
const NO_OPS: u64 = 20_000;

/// What the model of this computer is called: a calibration holds for one decoder and one size of images.
pub fn title(decoder: &Decoder) -> String {
    let Target { width, height, fit } = decoder.target();
    let fit = match fit {
        Fit::Squash => "squashed".to_owned(),
        Fit::CenterCrop { shorter } => format!("cut from {shorter}"),
    };
    format!("This computer, as calibrated for {} and images {fit} to {width}×{height}", decoder.description())
}

/// Measures this computer. `progress` is told the steps done and all steps.
///
/// # Errors
///
/// When the images cannot be written or read, or the loader cannot run.
pub fn calibrate(options: &Options<'_>, mut progress: impl FnMut(u64, u64)) -> Result<MachineModel, CalibrateError> {
    let counts = thread_counts(options.threads);
    let steps = 2 + u64::from(options.passes) * counts.len() as u64 + 3;
    let mut done = 0;
    let mut step = || {
        done += 1;
        progress(done, steps);
    };

    let mut corpus = Corpus::make(options)?;
    step();
    // Once for the page cache, the allocator and the processor's clock; and to see that the images are whole.
    if let Err(CalibrateError::Loader(_)) = corpus.pass(options.threads).map(drop) {
        corpus.discard()?;
        corpus = Corpus::make(options)?;
        corpus.pass(options.threads)?;
    }
    step();
    let mut passes: BTreeMap<usize, Vec<Pass>> = BTreeMap::new();
    for _ in 0..options.passes {
        for &threads in &counts {
            passes.entry(threads).or_default().push(corpus.pass(threads)?);
            step();
        }
    }
    let (eager, lazy) = (no_ops(options.threads, Wakes::EAGER)?, no_ops(options.threads, Wakes::LAZY)?);
    step();
    let wake_up_ns = wake_up(options, &corpus)?;
    step();
    let copy = copying(options.decoder.target().bytes())?;
    step();

    let control = Control::solve(&eager, &lazy);
    let alone = &passes[&1];
    let overhead_ns = overhead(passes.values().flatten());
    let decode = fitted("decoding", &corpus.samples(alone, |pass| &pass.decode_ns), Terms::ALL)?;
    let read = fitted("reading", &corpus.samples(alone, |pass| &pass.read_ns), Terms::BYTES)?;
    let copy = fitted("copying", &copy, Terms::BYTES)?;
    let speed = speeds(&passes);
    Ok(model(options, &corpus, &Found { decode, read, copy, speed, control, wake_up_ns, overhead_ns }))
}

/// 1, 2, 4, … and all.
fn thread_counts(threads: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < threads).collect();
    counts.push(threads.max(1));
    counts.dedup();
    counts
}

/// The images, on disk, and how large they are.
struct Corpus {
    path: PathBuf,
    folder: Arc<Folder>,
    decoder: Decoder,
    sizes: Vec<(f64, f64)>,
}

/// What was observed over one pass.
struct Pass {
    decode_ns: Vec<f64>,
    read_ns: Vec<f64>,
    run: Run,
}

impl Corpus {
    fn make(options: &Options<'_>) -> Result<Corpus, CalibrateError> {
        let mut specs = synth::factorial(SEED, &QUALITIES, &SIZES, 1);
        specs.extend((0..PHOTOGRAPHS).map(|index| synth::Spec::plan(SEED, index)));
        let folder = options.corpus.join(format!("calibration-{}-{}", synth::VERSION, specs.len()));
        let wrong = |error| CalibrateError::Write { folder: folder.clone(), error };
        fs::create_dir_all(&folder).map_err(wrong)?;
        for (i, spec) in specs.iter().enumerate() {
            let path = folder.join(format!("{i:04}.jpg"));
            if !path.exists() {
                // Two processes may calibrate at once, with the same images.
                let unfinished = path.with_extension(format!("{}.unfinished", std::process::id()));
                fs::write(&unfinished, synth::jpeg(spec)).and_then(|()| fs::rename(&unfinished, &path)).map_err(wrong)?;
            }
        }
        let files = Folder::images(&folder)?;
        let sizes = specs.iter().enumerate().map(|(i, spec)| {
            let bytes = files.bytes_bound(i as u64).unwrap_or(0);
            (bytes as f64, spec.pixels() as f64)
        });
        let sizes = sizes.collect();
        Ok(Corpus { path: folder, folder: Arc::new(files), decoder: options.decoder.clone(), sizes })
    }

    /// Removes the images: some are damaged, as a crash of the computer leaves them.
    fn discard(&self) -> Result<(), CalibrateError> {
        fs::remove_dir_all(&self.path).map_err(|error| CalibrateError::Write { folder: self.path.clone(), error })
    }

    fn pass(&self, threads: usize) -> Result<Pass, CalibrateError> {
        self.observed(threads, 4 * threads, Recorder::new())
    }

    fn observed(&self, threads: usize, lanes: usize, recorder: Recorder) -> Result<Pass, CalibrateError> {
        let count = self.sizes.len();
        let times = || Arc::new(Mutex::new(vec![0.0; count]));
        let (decode_ns, read_ns) = (times(), times());
        let source = Arc::new(Observed { inner: self.folder.clone(), read_ns: read_ns.clone() });
        let fill = Decode { decoder: self.decoder.clone(), decode_ns: decode_ns.clone() };
        let config = real::Config { threads, reads: Reads::Pool, ..real::Config::new(source) };
        let mut settings = Settings::new(count as u64, 32, self.decoder.target().bytes());
        settings.shuffle = Some(SEED);
        settings.lanes = lanes;
        settings.sample_bytes = self.sizes.iter().map(|s| s.0 as u64).max().unwrap_or(1).max(1);
        let run = measure(config, settings.resolve()?, fill, Consumer::EAGER, recorder, |_| ())?;
        if let Err(error) = run.end {
            return Err(CalibrateError::Loader(error));
        }
        let take = |times: Arc<Mutex<Vec<f64>>>| times.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Pass { decode_ns: take(decode_ns), read_ns: take(read_ns), run })
    }

    /// The median time of every image over the passes.
    fn samples(&self, passes: &[Pass], times: impl Fn(&Pass) -> &Vec<f64>) -> Vec<Sample> {
        let median_of = |i: usize| median(passes.iter().map(|pass| times(pass)[i]).collect());
        self.sizes.iter().enumerate().map(|(i, &(bytes, pixels))| Sample { bytes, pixels, time_ns: median_of(i) }).collect()
    }
}

/// A folder whose reads are timed.
struct Observed {
    inner: Arc<Folder>,
    read_ns: Arc<Mutex<Vec<f64>>>,
}

impl Source for Observed {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn bytes_bound(&self, sample: u64) -> Option<u64> {
        self.inner.bytes_bound(sample)
    }

    fn name(&self, sample: u64) -> String {
        self.inner.name(sample)
    }

    fn read(&self, sample: u64, into: &mut Vec<u8>, wanted: &dyn Fn() -> bool) -> Result<(), Failure> {
        let began = usage::thread_cpu_ns();
        let answer = self.inner.read(sample, into, wanted);
        note(&self.read_ns, sample, began);
        answer
    }
}

fn note(times: &Mutex<Vec<f64>>, sample: u64, began_ns: u64) {
    let took_ns = usage::thread_cpu_ns() - began_ns;
    times.lock().unwrap_or_else(PoisonError::into_inner)[sample as usize] = took_ns as f64;
}

/// Decoding that is timed.
struct Decode {
    decoder: Decoder,
    decode_ns: Arc<Mutex<Vec<f64>>>,
}

impl Fill<Pixels, Encoded> for Decode {
    fn work(&self, _: Item, encoded: &Encoded) -> Work {
        Work { kind: "decode", bytes: encoded.data.len() as u64, pixels: encoded.pixels }
    }

    fn fill(&self, item: Item, encoded: Encoded, out: &mut [u8]) -> Result<(), Failure> {
        let began = usage::thread_cpu_ns();
        let answer = self.decoder.decode_into(&encoded.data, out).map(drop);
        note(&self.decode_ns, item.sample, began);
        answer
    }
}

/// Does nothing with a sample.
struct NoOp;

impl Fill<Pixels, Encoded> for NoOp {
    fn work(&self, _: Item, _: &Encoded) -> Work {
        Work { kind: "nothing", bytes: 0, pixels: 0 }
    }

    fn fill(&self, _: Item, _: Encoded, out: &mut [u8]) -> Result<(), Failure> {
        out.fill(1);
        Ok(())
    }
}

fn no_ops(threads: usize, wakes: Wakes) -> Result<Run, CalibrateError> {
    let source = Memory::from_fn(NO_OPS, |_, into| {
        into.clear();
        into.push(0);
        Ok(())
    });
    let config = real::Config { threads, wakes, reads: Reads::Pool, ..real::Config::new(Arc::new(source.with_bytes_bound(1))) };
    let mut settings = Settings::new(NO_OPS, 64, 64);
    settings.lanes = 32 * threads;
    settings.sample_bytes = 1;
    let run = measure(config, settings.resolve()?, NoOp, Consumer::EAGER, Recorder::new(), |_| ())?;
    match run.end {
        Ok(()) => Ok(run),
        Err(error) => Err(CalibrateError::Loader(error)),
    }
}

/// What the scheduler's thread costs.
struct Control {
    per_wake_ns: f64,
    per_completion_ns: f64,
}

impl Control {
    /// Two runs that completed the same leaves, one with many wakes and one with few.
    fn solve(eager: &Run, lazy: &Run) -> Control {
        let leaves = 2.0 * NO_OPS as f64;
        let (cpu_e, cpu_l) = (eager.scheduler_cpu_ns as f64, lazy.scheduler_cpu_ns as f64);
        let (wakes_e, wakes_l) = (eager.drains as f64, lazy.drains as f64);
        let apart = wakes_e - wakes_l;
        let per_wake_ns = if apart > leaves / 50.0 { ((cpu_e - cpu_l) / apart).clamp(0.0, 50_000.0) } else { 0.0 };
        Control { per_wake_ns, per_completion_ns: ((cpu_l - wakes_l * per_wake_ns) / leaves).max(0.0) }
    }
}

/// What the process uses beyond decoding, reading and scheduling, per leaf \[ns\].
fn overhead<'a>(passes: impl Iterator<Item = &'a Pass>) -> f64 {
    let per_leaf = passes.map(|pass| {
        let work: f64 = pass.decode_ns.iter().chain(&pass.read_ns).sum();
        (pass.run.cpu_ns as f64 - work - pass.run.scheduler_cpu_ns as f64).max(0.0) / (2.0 * pass.decode_ns.len() as f64)
    });
    median(per_leaf.collect())
}

/// From a job's submission to its start when the pool sleeps \[ns\].
fn wake_up(options: &Options<'_>, corpus: &Corpus) -> Result<f64, CalibrateError> {
    let pass = corpus.observed(options.threads, 1, Recorder::new().keep_events())?;
    let events = pass.run.recorder.events();
    let starts = events.iter().filter(|e| e.kind == Kind::Start && e.stage == StageId::DECODE);
    Ok(median(starts.map(|e| e.time.since(e.since) as f64).collect()))
}

/// Gathering 1 to 64 slots, at memory that no cache holds.
fn copying(slot_bytes: usize) -> Result<Vec<Sample>, CalibrateError> {
    const MOST: usize = 64;
    let mut slots = slab::<u8>(MOST, slot_bytes).map_err(CalibrateError::Memory)?;
    slots.iter_mut().for_each(|slot| slot.get_mut().fill(1));
    let mut batch = vec![1; MOST * slot_bytes];
    let mut samples = Vec::new();
    for count in [1, 4, 16, 32, MOST] {
        for _ in 0..5 {
            let began = usage::thread_cpu_ns();
            gather(&slots[MOST - count..], black_box(&mut batch[..count * slot_bytes]));
            let time_ns = (usage::thread_cpu_ns() - began).max(1) as f64;
            samples.push(Sample { bytes: (count * slot_bytes) as f64, pixels: 0.0, time_ns });
        }
    }
    Ok(samples)
}

fn fitted(what: &'static str, samples: &[Sample], terms: Terms) -> Result<fit::Fit, CalibrateError> {
    fit(samples, terms, QUANTILES).map_err(|error| CalibrateError::Fit { what, error })
}

/// Speed of each busy thread by how many are, and how far it spread from pass to pass.
fn speeds(passes: &BTreeMap<usize, Vec<Pass>>) -> (Vec<(usize, f64)>, f64) {
    let total = |pass: &Pass| pass.decode_ns.iter().sum::<f64>();
    let typical = |threads: usize| median(passes[&threads].iter().map(total).collect());
    let alone = typical(1);
    let spread = passes.iter().flat_map(|(threads, all)| {
        let middle = typical(*threads);
        all.iter().map(move |pass| (total(pass) / middle - 1.0).abs())
    });
    (passes.keys().map(|&threads| (threads, (alone / typical(threads)).min(1.0))).collect(), median(spread.collect()))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Everything that was found.
struct Found {
    decode: fit::Fit,
    read: fit::Fit,
    copy: fit::Fit,
    speed: (Vec<(usize, f64)>, f64),
    control: Control,
    wake_up_ns: f64,
    overhead_ns: f64,
}

fn model(options: &Options<'_>, corpus: &Corpus, found: &Found) -> MachineModel {
    let (speed, spread) = &found.speed;
    let here = |ns: f64, what: &str, uncertainty: f64| Measured::new(duration(ns), what, fraction(uncertainty));
    let threads = options.threads as u64;
    let decode = cost(&found.decode, found.overhead_ns, *spread, &format!("{} on this computer", corpus.decoder.description()));
    let read = cost(&found.read, found.overhead_ns, 0.2, "cached files on this computer");
    let copy = cost(&found.copy, found.overhead_ns, 0.2, "slots gathered on this computer");
    let page_cache = Store {
        reader: Reader::Pool,
        first_byte: None,
        per_connection: None,
        bandwidth: None,
        connections: None,
        requests: None,
        burst: None,
        cost: Some(read.clone()),
    };
    let lazy = Wakes::LAZY;
    MachineModel {
        title: title(options.decoder),
        memory: None,
        cpu: Cpu {
            threads: Measured::plain(Count(threads)),
            pool_threads: None,
            wake_up: here(found.wake_up_ns, "submission to start of a job on a sleeping pool", 0.3),
            speed: speed.iter().map(|&(busy, each)| Speed { busy: Count(busy as u64), each: fraction(each) }).collect(),
            speed_source: Some("CPU time of the same decodes on one thread over that on more".to_owned()),
            speed_uncertainty: Some(fraction(*spread)),
        },
        scheduler: Scheduler {
            per_wake: here(found.control.per_wake_ns, "no-op stages, waking for each against bursts", 0.3),
            per_completion: here(found.control.per_completion_ns, "no-op stages, the scheduler's thread", 0.3),
            burst: Measured::plain(Count(lazy.burst as u64)),
            queued_low: Measured::plain(Count(lazy.dry_per_thread as u64)),
            age: Measured::plain(duration(lazy.age.as_nanos() as f64)),
        },
        device: Device {
            kind: DeviceKind::Host,
            copied_by: CopiedBy::Pool,
            engines: None,
            links: None,
            lends_slots: true,
            copy,
            slowed: Vec::new(),
            slowed_source: None,
            slowed_uncertainty: None,
        },
        costs: BTreeMap::from([("decode".to_owned(), decode)]),
        stores: BTreeMap::from([("page-cache".to_owned(), page_cache)]),
    }
}

fn duration(ns: f64) -> Duration {
    Duration::of_base(rounded(ns))
}

/// Four digits: more than any of this is good for.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

fn fraction(value: f64) -> Fraction {
    Fraction::of_base(rounded(value))
}

fn cost(fit: &fit::Fit, overhead_ns: f64, uncertainty: f64, source: &str) -> Cost {
    let relative = |i: usize| fraction(if fit.terms[i] > 0.0 { fit.standard_errors[i] / fit.terms[i] } else { 0.0 });
    let term = |i: usize, what: &str| (what.to_owned(), relative(i));
    let (fixed, by_byte, by_pixel) = (term(0, "fitted, with the overhead of a leaf"), term(1, "fitted"), term(2, "fitted"));
    Cost {
        fixed: Some(Measured::new(duration(fit.terms[0] + overhead_ns), fixed.0, fixed.1)),
        per_byte: Some(Measured::new(ByteCost::of_base(rounded(fit.terms[1])), by_byte.0, by_byte.1)),
        per_pixel: (fit.terms[2] > 0.0).then(|| Measured::new(PixelCost::of_base(rounded(fit.terms[2])), by_pixel.0, by_pixel.1)),
        residual: Some(Residual { quantiles: fit.residual_quantiles.iter().map(|q| fraction(*q)).collect() }),
        source: Some(format!("{source}; condition {:.1}, residual {:.1} % rms", fit.condition, fit.relative_rms * 100.0)),
        uncertainty: Some(fraction(uncertainty.max(0.01))),
    }
}
