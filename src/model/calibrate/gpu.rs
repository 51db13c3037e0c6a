//! The GPUs of this computer as the device of a machine model: their links, what a copy costs, and how a busy host slows their steps.
//!
//! | number | how it is found |
//! | --- | --- |
//! | `device.copy.fixed`, `device.links.link` | copies of 4 KiB to 256 MiB out of page-locked memory, alone: `a + bytes / rate` |
//! | `device.links.pageable` | the same out of ordinary memory, the largest |
//! | `device.links.uplink`, `devices_per_uplink` | the first GPU together with each other one, and all at once |
//! | `kernels.normalize` | the kernel of that name on 4 KiB and more: `a + b·bytes` |
//! | `device.slowed` | a kernel of a set time beside a host none, half and all of whose threads are busy |
//!
//! Times are the GPU's own, between two events. Copies to the host, both ways at once, far memory and what it costs the host to ask for a
//! copy are told and are no numbers of a model.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde::Serialize;

use super::{
    duration,
    fit::{self, Sample, Terms},
    fraction, median, rounded,
};
use crate::{
    device::cuda::{CudaDevice, CudaError, DeviceMemory, Event, HostMemory, Kernels, Normalize, Stream, Transfer, Way},
    loader::stage::NORMALIZE,
    machine::real::usage,
    model::{CopiedBy, Cost, Device, DeviceKind, KernelCost, Links, Measured, Slowed},
    units::{ByteCost, ByteRate, Count},
};

/// How long to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuEffort {
    /// The largest copy \[B\].
    pub largest: usize,
    /// Copies of each size, of which the median counts.
    pub copies: usize,
    /// Steps beside each load of the host; 0 leaves that out.
    pub steps: usize,
}

impl GpuEffort {
    /// Less than a second.
    pub const QUICK: GpuEffort = GpuEffort { largest: 16 << 20, copies: 7, steps: 0 };
    /// Some ten seconds.
    pub const THOROUGH: GpuEffort = GpuEffort { largest: 256 << 20, copies: 15, steps: 40 };
}

/// The smallest copy \[B\].
const SMALLEST: usize = 4 << 10;
/// How much slower a copy must be beside another GPU's to share a link with it.
const SHARES: f64 = 0.85;
/// The kernel whose time is watched beside a busy host.
const STEP: Duration = Duration::from_millis(5);

/// Copies of one size, one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Copies {
    /// `pinned`, `pageable`, `pinned, far`.
    pub memory: &'static str,
    /// `to the GPU` or `to the host`.
    pub way: &'static str,
    /// Size \[B\].
    pub bytes: usize,
    /// Median \[s\].
    pub seconds: f64,
    /// Rate \[B/s\].
    pub bytes_per_s: f64,
}

/// What was found, and how good it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuQuality {
    /// What the driver calls the GPUs.
    pub names: Vec<String>,
    /// Every size, way and kind of memory, on the first GPU.
    pub copies: Vec<Copies>,
    /// Root mean square of what the cost of a copy is off by, relative.
    pub relative_rms: f64,
    /// CPU time of asking for one copy \[s\].
    pub submission_s: f64,
    /// Rate to the GPU while as much goes the other way, over that alone.
    pub both_ways: f64,
    /// Rate of each GPU while all copy, over that of the first alone.
    pub all_at_once: Vec<f64>,
    /// Rate out of the memory that is farthest from the GPU, over that out of the nearest; `None` where all is as near.
    pub far: Option<f64>,
    /// What could not be measured, and why.
    pub remarks: Vec<String>,
}

impl GpuQuality {
    /// As the terminal shows it.
    pub fn terminal(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{}", self.names.join(", "));
        let _ = writeln!(out, "{:<12} {:<11} {:>11} {:>12} {:>10}", "memory", "way", "bytes", "time", "GB/s");
        for Copies { memory, way, bytes, seconds, bytes_per_s } in &self.copies {
            let (micros, rate) = (seconds * 1e6, bytes_per_s / 1e9);
            let _ = writeln!(out, "{memory:<12} {way:<11} {bytes:>11} {micros:>9.1} us {rate:>10.2}");
        }
        let _ = writeln!(out, "asking for a copy takes {:.2} us of a thread", self.submission_s * 1e6);
        let _ = writeln!(out, "while as much goes back, {:.0} % of the rate to the GPU", self.both_ways * 100.0);
        let all: Vec<String> = self.all_at_once.iter().map(|share| format!("{:.0} %", share * 100.0)).collect();
        let _ = writeln!(out, "all at once: {} of the first one's rate alone", all.join(", "));
        if let Some(far) = self.far {
            let _ = writeln!(out, "out of far memory, {:.0} % of the rate out of near memory", far * 100.0);
        }
        for remark in &self.remarks {
            let _ = writeln!(out, "note: {remark}");
        }
        out
    }
}

/// The device of a model, and how good it is.
#[derive(Clone, Debug)]
pub struct CalibratedGpus {
    /// `[device]`.
    pub device: Device,
    /// `[kernels]`.
    pub kernels: BTreeMap<String, KernelCost>,
    /// How good it is.
    pub quality: GpuQuality,
}

/// Why GPUs could not be calibrated.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// The driver refuses.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The times make no cost.
    #[error("cannot fit a cost of copies or kernels: {0}")]
    Fit(#[from] fit::FitError),
    /// No GPU was given.
    #[error("there is no GPU to calibrate")]
    None,
}

/// Measures the GPUs that are given.
///
/// # Errors
///
/// When the driver fails, or the times make no cost.
pub fn calibrate_gpus(gpus: &[CudaDevice], effort: GpuEffort) -> Result<CalibratedGpus, GpuError> {
    let first = gpus.first().ok_or(GpuError::None)?;
    let context = first.context();
    let mut copies = Vec::new();
    let mut pinned = Transfer::new(context, effort.largest, HostMemory::Pinned, first.near())?;
    let to_device = measure(&mut pinned, Way::ToDevice, effort)?;
    let rate = fit::fit(&to_device, Terms::BYTES, 5)?;
    copies.extend(told("pinned", "to the GPU", &to_device));
    copies.extend(told("pinned", "to the host", &measure(&mut pinned, Way::ToHost, effort)?));
    let submission_s = submission(&mut pinned)?;
    let both_ways = both_ways(&mut pinned, first, effort)?;
    let mut pageable = Transfer::new(context, effort.largest, HostMemory::Pageable, first.near())?;
    let ordinary = measure(&mut pageable, Way::ToDevice, effort)?;
    copies.extend(told("pageable", "to the GPU", &ordinary));
    copies.extend(told("pageable", "to the host", &measure(&mut pageable, Way::ToHost, effort)?));
    drop(pageable);

    let (mut remarks, mut far) = (Vec::new(), None);
    match farthest(first) {
        Some(processors) => {
            let mut there = Transfer::new(context, effort.largest, HostMemory::Pinned, Some(&processors))?;
            let times = measure(&mut there, Way::ToDevice, effort)?;
            far = Some(last_rate(&times) / last_rate(&to_device));
            copies.extend(told("pinned, far", "to the GPU", &times));
        }
        None => remarks.push("all memory is as near to the GPU, or the system does not tell".to_owned()),
    }
    drop(pinned);
    let (all_at_once, shared) = together(gpus, last_rate(&to_device), effort)?;
    if gpus.len() == 1 {
        remarks.push("one GPU: whether others share its way to the host is not known".to_owned());
    }
    let kernels = BTreeMap::from([(NORMALIZE.to_owned(), normalizing(first, effort)?)]);
    let slowed = if effort.steps > 0 { slowed(first, effort.steps)? } else { Vec::new() };
    if effort.steps == 0 {
        remarks.push("how a busy host slows train steps down was left out".to_owned());
    }

    let link = 1e9 / rate.terms[1].max(f64::MIN_POSITIVE);
    let uplink = link * all_at_once.iter().take(shared).sum::<f64>().max(1.0);
    let how = |what: &str| format!("{what}, {} to {} bytes", SMALLEST, effort.largest);
    let error = if rate.terms[1] > 0.0 { (rate.standard_errors[1] / rate.terms[1]).clamp(0.01, 1.0) } else { 1.0 };
    let per_s = |value: f64| ByteRate::of_base(rounded(value));
    let device = Device {
        kind: DeviceKind::Cuda,
        copied_by: CopiedBy::Engines,
        engines: Some(Measured::new(Count(1), "one copy after the other on one stream", fraction(0.0))),
        links: Some(Links {
            devices: Measured::new(Count(gpus.len() as u64), "the driver", fraction(0.0)),
            devices_per_uplink: Measured::new(Count(shared as u64), "the first GPU beside each other one", fraction(0.0)),
            link: Measured::new(per_s(link), how("page-locked memory, one GPU alone"), fraction(error)),
            uplink: Measured::new(per_s(uplink), "GPUs that share a link, all at once", fraction(0.05)),
            pageable: Some(Measured::new(per_s(last_rate(&ordinary)), "ordinary memory, the largest copy", fraction(0.1))),
        }),
        lends_slots: false,
        copy: Cost {
            fixed: Some(Measured::new(
                duration(rate.terms[0]),
                how("a copy beyond its bytes"),
                fraction(if rate.terms[0] > 0.0 { (rate.standard_errors[0] / rate.terms[0]).clamp(0.01, 1.0) } else { 1.0 }),
            )),
            ..Cost::FREE
        },
        kernels_at_once: None,
        slowed_source: (!slowed.is_empty()).then(|| "a kernel beside threads that are busy on this computer".to_owned()),
        slowed_uncertainty: (!slowed.is_empty()).then(|| fraction(0.3)),
        slowed,
    };
    let names: Result<Vec<String>, CudaError> = gpus.iter().map(|gpu| gpu.context().name()).collect();
    let quality =
        GpuQuality { names: names?, copies, relative_rms: rate.relative_rms, submission_s, both_ways, all_at_once, far, remarks };
    Ok(CalibratedGpus { device, kernels, quality })
}

/// What it costs to normalize a batch, by its bytes.
fn normalizing(gpu: &CudaDevice, effort: GpuEffort) -> Result<KernelCost, GpuError> {
    let context = gpu.context();
    let (kernels, stream) = (Kernels::new(context)?, Stream::new(context)?);
    let (from, to) = (DeviceMemory::new(context, effort.largest)?, DeviceMemory::new(context, 2 * effort.largest)?);
    let (began, done) = (Event::timed(context)?, Event::timed(context)?);
    let timed = |bytes: usize| -> Result<f64, CudaError> {
        let work = Normalize { images: 1, pixels: bytes / 3, scale: [1.0; 3], offset: [0.0; 3] };
        began.record(&stream)?;
        kernels.normalize(&stream, &from, &to, work)?;
        done.record(&stream)?;
        done.synchronize()?;
        done.seconds_since(&began)
    };
    let mut samples = Vec::new();
    for bytes in sizes(effort) {
        timed(bytes)?;
        let times: Result<Vec<f64>, CudaError> = (0..effort.copies.max(1)).map(|_| timed(bytes)).collect();
        samples.push(Sample { bytes: bytes as f64, pixels: 0.0, time_ns: (median(times?) * 1e9).max(1.0) });
    }
    stream.synchronize()?;
    let cost = fit::fit(&samples, Terms::BYTES, 5)?;
    let error = |term: usize| match cost.terms[term] > 0.0 {
        true => fraction((cost.standard_errors[term] / cost.terms[term]).clamp(0.01, 1.0)),
        false => fraction(1.0),
    };
    let how = format!("the kernel on {} to {} bytes", SMALLEST, effort.largest);
    Ok(KernelCost {
        fixed: Some(Measured::new(duration(cost.terms[0]), how.clone(), error(0))),
        per_byte: Some(Measured::new(ByteCost::of_base(rounded(cost.terms[1])), how, error(1))),
    })
}

/// Sizes four apart.
fn sizes(effort: GpuEffort) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(SMALLEST), |size| size.checked_mul(4)).take_while(move |size| *size <= effort.largest)
}

/// The median of each size.
fn measure(transfer: &mut Transfer, way: Way, effort: GpuEffort) -> Result<Vec<Sample>, CudaError> {
    let mut samples = Vec::new();
    for bytes in sizes(effort) {
        // The first one wakes the link.
        transfer.time(way, bytes)?;
        let times: Result<Vec<f64>, CudaError> = (0..effort.copies.max(1)).map(|_| transfer.time(way, bytes)).collect();
        let time_ns = (median(times?) * 1e9).max(1.0);
        samples.push(Sample { bytes: bytes as f64, pixels: 0.0, time_ns });
    }
    Ok(samples)
}

fn told(memory: &'static str, way: &'static str, samples: &[Sample]) -> impl Iterator<Item = Copies> {
    samples.iter().map(move |sample| Copies {
        memory,
        way,
        bytes: sample.bytes as usize,
        seconds: sample.time_ns / 1e9,
        bytes_per_s: sample.bytes / sample.time_ns * 1e9,
    })
}

/// The rate of the largest copy \[B/s\].
fn last_rate(samples: &[Sample]) -> f64 {
    samples.last().map_or(0.0, |sample| sample.bytes / sample.time_ns * 1e9)
}

/// CPU time of asking for a small copy \[s\].
fn submission(transfer: &mut Transfer) -> Result<f64, CudaError> {
    const COPIES: u32 = 200;
    transfer.start_clock()?;
    let before = usage::thread_cpu_ns();
    for _ in 0..COPIES {
        transfer.begin(Way::ToDevice, SMALLEST)?;
    }
    let asked = usage::thread_cpu_ns() - before;
    transfer.seconds()?;
    Ok(asked as f64 / 1e9 / f64::from(COPIES))
}

/// How many large copies are timed together.
const TOGETHER: usize = 6;

/// The rate to the GPU while as much goes to the host, over that alone.
fn both_ways(there: &mut Transfer, gpu: &CudaDevice, effort: GpuEffort) -> Result<f64, CudaError> {
    let mut back = Transfer::new(gpu.context(), effort.largest, HostMemory::Pinned, gpu.near())?;
    let mut timed = |with: bool| {
        there.start_clock()?;
        for _ in 0..TOGETHER {
            if with {
                back.begin(Way::ToHost, effort.largest)?;
            }
            there.begin(Way::ToDevice, effort.largest)?;
        }
        let seconds = there.seconds();
        if with {
            back.start_clock()?;
            back.seconds()?;
        }
        seconds
    };
    Ok(timed(false)? / timed(true)?.max(f64::MIN_POSITIVE))
}

/// The rate of each GPU while all copy, over `alone`, and how many from the first on share its way to the host.
fn together(gpus: &[CudaDevice], alone: f64, effort: GpuEffort) -> Result<(Vec<f64>, usize), CudaError> {
    let rates = |which: &[&CudaDevice]| -> Result<Vec<f64>, CudaError> {
        let mut transfers = Vec::new();
        for gpu in which {
            transfers.push(Transfer::new(gpu.context(), effort.largest, HostMemory::Pinned, gpu.near())?);
        }
        for transfer in &transfers {
            transfer.start_clock()?;
        }
        for _ in 0..TOGETHER {
            for transfer in &mut transfers {
                transfer.begin(Way::ToDevice, effort.largest)?;
            }
        }
        let bytes = (TOGETHER * effort.largest) as f64;
        transfers.iter().map(|transfer| Ok(bytes / transfer.seconds()?.max(f64::MIN_POSITIVE) / alone)).collect()
    };
    let all = rates(&gpus.iter().collect::<Vec<_>>())?;
    let mut shared = 1;
    for other in gpus.iter().skip(1) {
        if rates(&[&gpus[0], other])?[0] > SHARES {
            break;
        }
        shared += 1;
    }
    Ok((all, shared))
}

/// Processors of another memory node than the GPU's; `None` where there is one node.
fn farthest(gpu: &CudaDevice) -> Option<Vec<usize>> {
    let near = gpu.near()?;
    let all = thread::available_parallelism().map_or(1, usize::from);
    let far: Vec<usize> = (0..all).filter(|processor| !near.contains(processor)).collect();
    (!far.is_empty()).then_some(far)
}

/// By how much a kernel, and what the host does around it, takes longer while threads of the host are busy.
fn slowed(gpu: &CudaDevice, steps: usize) -> Result<Vec<Slowed>, CudaError> {
    let context = gpu.context();
    let kernels = Kernels::new(context)?;
    let stream = Stream::new(context)?;
    let memory = DeviceMemory::new(context, SMALLEST)?;
    let done = Event::timed(context)?;
    let began = Event::timed(context)?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut loads = vec![0, threads / 2, threads];
    loads.dedup();
    let mut times = Vec::new();
    for busy in loads {
        let over = Arc::new(AtomicBool::new(false));
        let run = |over: Arc<AtomicBool>| {
            move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            }
        };
        let spinning: Vec<_> = (0..busy)
            .filter_map(|_| thread::Builder::new().name("towtank load".to_owned()).spawn(run(over.clone())).ok())
            .collect();
        let timed = || {
            began.record(&stream)?;
            // As a training loop does it: a step, and the host waits for it before it asks for the next.
            for _ in 0..steps {
                kernels.spin(&stream, &memory, SMALLEST, STEP, 1.0)?;
                done.record(&stream)?;
                done.synchronize()?;
            }
            done.seconds_since(&began)
        };
        let seconds = timed();
        over.store(true, Ordering::Relaxed);
        // They only spin.
        spinning.into_iter().for_each(|thread| drop(thread.join()));
        times.push((busy, seconds?));
    }
    let idle = times.first().map_or(0.0, |(_, seconds)| *seconds).max(f64::MIN_POSITIVE);
    let by = |seconds: f64| fraction((seconds / idle - 1.0).max(0.0));
    Ok(times.into_iter().map(|(busy, seconds)| Slowed { busy: Count(busy as u64), by: by(seconds) }).collect())
}
