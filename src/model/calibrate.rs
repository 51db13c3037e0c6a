//! This computer as a model, measured in a few seconds on images of its own.
//!
//! What is measured is the loader itself, on the real machine, with observers around its reads and its decoding that take the CPU time
//! of their thread. So every cost holds in the place where it will be paid: with cold slots to write to, a pool that must be woken,
//! and neighbours that are busy. What the process uses beyond the observed work is what control costs.
//!
//! | number | how it is found |
//! | --- | --- |
//! | `costs.decode` | CPU time of every decode on one thread, median of the undisturbed passes, over qualities × sizes and photographs, or over the user's own images: `a + b·bytes + c·pixels` |
//! | `stores.page-cache.cost` | CPU time of every read of a cached file: `a + b·bytes` |
//! | `cpu.speed` | CPU time of the same decodes with more threads, passes alternating with those on one |
//! | `scheduler.per_wake`, `per_completion` | CPU time of the scheduler's thread with no-op stages, waking for each completion and for bursts, solved for both |
//! | overhead of a leaf | what the process uses beyond decoding, reading and scheduling, per leaf, on the pool and on threads that wait; in the fixed costs |
//! | `cpu.wake_up` | from submission to start, with one lane and so a pool that sleeps; median |
//! | `device.copy` | gathering slots into a batch, of 1 to 64 |
//! | `stores.disk` | reads of files that no cache holds, small and large, one and many at once; left out where none can be made cold |
//!
//! The images are of another seed than any scenario's, and vary more. Passes are made in rounds, and those that something disturbed do
//! not count: see [`Quality::set_aside`].

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use self::{
    control::{Control, no_ops, overhead, waiting_overhead, wake_up},
    copying::copying,
    corpus::{Corpus, Pass},
    disk::{Disk, cold_reads},
    rounds::{Rounds, decoding_ns},
};
use super::{
    CopiedBy, Cost, Cpu, Device, DeviceKind, Latency, MachineModel, Measured, QuantilePoint, Reader, Residual, Scheduler, Speed,
    Store,
    fit::{self, FitError, Sample, Terms, fit},
};
use crate::{
    codec::{Decoder, Fit, Target},
    failure::Failure,
    loader::SettingsError,
    machine::real::{self, Wakes},
    measure::MeasureError,
    source::FolderError,
    units::{ByteCost, ByteRate, Count, Duration, Fraction, PixelCost},
};

mod control;
mod copying;
mod corpus;
mod disk;
mod gpu;
mod host;
#[cfg(feature = "remote")]
mod object;
mod probe;
mod quality;
mod rounds;

pub use gpu::{CalibratedGpus, Copies, GpuEffort, GpuError, GpuQuality, calibrate_gpus};
pub use host::Cores;
#[cfg(feature = "remote")]
pub use object::{AtOnce, CalibratedStore, Estimate, StoreEffort, StoreError, StoreQuality, calibrate_store};
pub use probe::speed_now;
pub use quality::{FitQuality, Quality, Term};

/// How to calibrate.
pub struct Options<'a> {
    /// Where what is read is kept: images and files for cold reads.
    pub corpus: &'a Path,
    /// A folder of the user's own images to decode, in the place of images made for the purpose.
    pub data: Option<&'a Path>,
    /// What decodes images, and what it brings them to.
    pub decoder: &'a Decoder,
    /// How long to take.
    pub effort: Effort,
}

/// How long to take: more rounds spread less, and meet more of what this computer does over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Undisturbed rounds to make at least, see [`Quality::set_aside`].
    pub rounds: usize,
    /// Rounds to make at most.
    pub rounds_most: usize,
    /// Batches gathered for each size.
    pub copies: u32,
}

impl Effort {
    /// A few seconds.
    pub const QUICK: Effort = Effort { rounds: 10, rounds_most: 20, copies: 5 };
    /// Less than a minute on an ordinary computer.
    pub const THOROUGH: Effort = Effort { rounds: 50, rounds_most: 80, copies: 25 };
}

/// What came of a calibration.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// This computer.
    pub machine: MachineModel,
    /// How good that is.
    pub quality: Quality,
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
    /// Too few images of the user's folder can be decoded.
    #[error("only {have} of the images can be decoded, too few to calibrate on; the last that cannot is `{name}`: {failure}")]
    TooFew {
        /// How many can.
        have: usize,
        /// One that cannot.
        name: String,
        /// Why.
        failure: Failure,
    },
    /// The user's folder has too few images.
    #[error("`{}` has {have} images, too few to calibrate on", folder.display())]
    FewImages {
        /// How many.
        have: usize,
        /// Where.
        folder: PathBuf,
    },
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
/// Points of a residual's table.
const QUANTILES: usize = 17;

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
pub fn calibrate(options: &Options<'_>, mut progress: impl FnMut(u64, u64)) -> Result<Calibrated, CalibrateError> {
    let cores = Cores::of_this_computer();
    let effort = options.effort;
    let steps = 2 + effort.rounds_most as u64 + 5;
    let mut done = 0;
    let mut step = |n: usize| {
        done += n as u64;
        progress(done, steps);
    };

    let mut corpus = match options.data {
        Some(folder) => Corpus::of_folder(folder, options.decoder)?,
        None => Corpus::make(options.corpus, options.decoder)?,
    };
    step(1);
    // Once for the page cache, the allocator and the processor's clock; and to see that the images are whole.
    match corpus.pass(cores.threads) {
        Err(CalibrateError::Loader(_)) if options.data.is_none() => {
            corpus.discard()?;
            corpus = Corpus::make(options.corpus, options.decoder)?;
            corpus.pass(cores.threads)?
        }
        warm => warm?,
    };
    step(1);
    let mut rounds = Rounds::new(thread_counts(cores.threads));
    while rounds.undisturbed() < effort.rounds && rounds.len() < effort.rounds_most {
        rounds.add(|threads| corpus.pass(threads))?;
        step(1);
    }
    step(effort.rounds_most - rounds.len());
    let (eager, lazy) = (no_ops(cores.threads, Wakes::EAGER)?, no_ops(cores.threads, Wakes::LAZY)?);
    step(1);
    let wake_up_ns = wake_up(cores.threads, &corpus)?;
    step(1);
    let waiting = corpus.waiting_pass(cores.threads)?;
    step(1);
    let copy = copying(options.decoder.target().bytes(), effort.copies)?;
    step(1);
    let disk = cold_reads(&options.corpus.join("calibration-cold"))?;
    step(1);

    let passes = rounds.passes();
    let overhead_ns = overhead(passes.values().flatten().copied());
    let alone = &passes[&1];
    let mut fits = Vec::new();
    let mut fitted = |what: &'static str, samples: &[Sample], terms: Terms| {
        let fit = fit(samples, terms, QUANTILES).map_err(|error| CalibrateError::Fit { what, error })?;
        fits.push(FitQuality::of(what, samples, terms, &fit));
        Ok::<_, CalibrateError>(fit)
    };
    let found = Found {
        decode: fitted("decoding", &corpus.samples(alone, |pass| &pass.decode_ns), Terms::ALL)?,
        read: fitted("reading", &corpus.samples(alone, |pass| &pass.read_ns), Terms::BYTES)?,
        copy: fitted("copying", &copy, Terms::BYTES)?,
        speed: speeds(&passes),
        spread: rounds.spread(),
        control: Control::solve(&eager, &lazy),
        wake_up_ns,
        overhead_ns,
        waiting_overhead_ns: waiting_overhead(&waiting, overhead_ns),
        disk,
        // Of the images that calibration makes, whichever the costs were measured on.
        probe_ns: match options.data {
            None => median(passes[&cores.threads].iter().map(|pass| decoding_ns(pass)).collect()),
            Some(_) => probe::decoding_now_ns(options.corpus, options.decoder, cores.threads)?,
        },
    };
    let mut remarks = Vec::new();
    if rounds.undisturbed() < effort.rounds {
        let (kept, most) = (rounds.undisturbed(), rounds.len());
        remarks.push(format!(
            "only {kept} of {most} rounds were undisturbed: something else uses this computer, or its speed changes"
        ));
    }
    if found.disk.is_none() {
        let folder = options.corpus.display();
        remarks
            .push(format!("cold reads could not be measured: the file system of `{folder}` keeps what it was asked to forget"));
    }
    if found.control.per_wake_ns == 0.0 {
        remarks
            .push("what a wake-up costs could not be told from what a completion costs; the two together are right".to_owned());
    }
    let quality = Quality::new(cores.clone(), (rounds.len(), rounds.undisturbed()), found.spread, fits, remarks);
    Ok(Calibrated { machine: model(options, &cores, &corpus, &found), quality })
}

/// 1, 2, 4, … and all.
fn thread_counts(threads: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < threads).collect();
    counts.push(threads.max(1));
    counts.dedup();
    counts
}

/// Speed of each busy thread by how many are.
fn speeds(passes: &BTreeMap<usize, Vec<&Pass>>) -> Vec<(usize, f64)> {
    let typical = |threads: usize| median(passes[&threads].iter().map(|pass| decoding_ns(pass)).collect());
    let alone = typical(1);
    passes.keys().map(|&threads| (threads, (alone / typical(threads)).min(1.0))).collect()
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
    speed: Vec<(usize, f64)>,
    spread: f64,
    control: Control,
    wake_up_ns: f64,
    overhead_ns: f64,
    waiting_overhead_ns: f64,
    disk: Option<Disk>,
    probe_ns: f64,
}

fn model(options: &Options<'_>, cores: &Cores, corpus: &Corpus, found: &Found) -> MachineModel {
    let here = |ns: f64, what: &str, uncertainty: f64| Measured::new(duration(ns), what, fraction(uncertainty));
    // One pass is one draw of what a run meets; the typical one is known better than that, but a run is no typical one.
    let spread = found.spread.max(SPREAD_LEAST);
    let decode = cost(&found.decode, found.overhead_ns, spread, &format!("{} on this computer", options.decoder.description()));
    let read = cost(&found.read, found.overhead_ns, 0.2, "cached files on this computer");
    let copy = cost(&found.copy, found.overhead_ns, 0.2, "slots gathered on this computer");
    let page_cache = Store { cost: Some(read), ..Store::plain(Reader::Pool) };
    let emulated = Store {
        connections: Some(Measured::plain(Count(real::Config::BLOCKING_THREADS as u64))),
        cost: Some(cost(&found.read, found.waiting_overhead_ns, 0.2, "cached files, on threads that wait")),
        ..Store::plain(Reader::Own)
    };
    let mut stores = BTreeMap::from([("page-cache".to_owned(), page_cache), ("emulated".to_owned(), emulated)]);
    if let Some(disk) = &found.disk {
        stores.insert("disk".to_owned(), disk_store(disk, found.waiting_overhead_ns));
    }
    let lazy = Wakes::LAZY;
    MachineModel {
        title: title(options.decoder),
        memory: None,
        structure: Some(Measured { source: Some(STRUCTURE_SOURCE.to_owned()), ..Measured::plain(fraction(STRUCTURE)) }),
        cpu: Cpu {
            threads: Measured { source: Some(cores.words()), ..Measured::plain(Count(cores.threads as u64)) },
            cores: None,
            smt_speed: None,
            pool_threads: None,
            wake_up: here(found.wake_up_ns, "submission to start of a job on a sleeping pool", 0.3),
            speed: found.speed.iter().map(|&(busy, each)| Speed { busy: Count(busy as u64), each: fraction(each) }).collect(),
            speed_source: Some(format!("CPU time of decodes on one thread over that on more, {} images", corpus.len())),
            speed_uncertainty: Some(fraction(spread)),
            probe: Some(here(found.probe_ns, "decoding the images of calibration once, all threads together", spread)),
        },
        lock: None,
        process: None,
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
            kernels_at_once: None,
            slowed: Vec::new(),
            slowed_source: None,
            slowed_uncertainty: None,
        },
        costs: BTreeMap::from([("decode".to_owned(), decode)]),
        kernels: BTreeMap::new(),
        stores,
    }
}

/// How far simulations are off that are fed with measured costs: the root mean square over the settings of `docs/predictions.md`.
const STRUCTURE: f64 = 0.03;
const STRUCTURE_SOURCE: &str = "settings that were held out, on two virtual cores: docs/predictions.md";

/// No computer is steadier than this from run to run.
const SPREAD_LEAST: f64 = 0.01;

fn disk_store(disk: &Disk, overhead_ns: f64) -> Store {
    let last = disk.first_byte_ns.len() - 1;
    let point = |(i, ns): (usize, &f64)| QuantilePoint { at: fraction(i as f64 / last as f64), value: duration(*ns) };
    let rate =
        |bytes_per_s: f64, source: String| Some(Measured::new(ByteRate::of_base(rounded(bytes_per_s)), source, fraction(0.2)));
    let [small, large] = &disk.cpu[..] else { unreachable!("cold reads come in two sizes") };
    let per_byte = ((large.time_ns - small.time_ns) / (large.bytes - small.bytes)).max(0.0);
    let fixed = (small.time_ns - per_byte * small.bytes).max(0.0) + overhead_ns;
    let read = Cost {
        fixed: Some(Measured::new(duration(fixed), "open, read and close of a cold page", fraction(0.3))),
        per_byte: Some(Measured::new(ByteCost::of_base(rounded(per_byte)), "CPU time of cold reads of two sizes", fraction(0.3))),
        ..Cost::FREE
    };
    Store {
        first_byte: Some(Latency::Table {
            points: disk.first_byte_ns.iter().enumerate().map(point).collect(),
            source: Some("cold reads of a page on this computer".to_owned()),
            uncertainty: Some(fraction(0.2)),
        }),
        per_connection: rate(disk.per_connection, "one large cold read".to_owned()),
        bandwidth: rate(disk.bandwidth, format!("{} large cold reads at once", disk.depth)),
        connections: Some(Measured::plain(Count(real::Config::BLOCKING_THREADS as u64))),
        cost: Some(read),
        ..Store::plain(Reader::Own)
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
    Fraction::new(rounded(value * 100.0), "%")
}

fn cost(fit: &fit::Fit, overhead_ns: f64, uncertainty: f64, source: &str) -> Cost {
    // A term that its error drowns is uncertain as a whole, which is the most that a model can say.
    let relative = |i: usize| fraction(if fit.terms[i] > 0.0 { (fit.standard_errors[i] / fit.terms[i]).min(1.0) } else { 0.0 });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_that_its_error_drowns_is_uncertain_as_a_whole() {
        let fit = fit::Fit {
            terms: [10.0, 0.02, 0.0],
            standard_errors: [136.0, 0.002, 0.0],
            condition: 40.0,
            relative_rms: 0.1,
            r2: 0.9,
            residual_quantiles: vec![0.9, 1.0, 1.1],
        };
        let cost = cost(&fit, 0.0, 0.05, "made up");
        let uncertainty = |ppm: Option<Fraction>| ppm.map(Fraction::as_ppm);
        assert_eq!(uncertainty(cost.fixed.unwrap().uncertainty), Some(1_000_000));
        assert_eq!(uncertainty(cost.per_byte.unwrap().uncertainty), Some(100_000));
    }
}
