//! The loader to a GPU, beside what the GPU's link can do: correctness, bandwidth, overlap, and the rate beside that of a consumer on the host.
//!
//! ```text
//! cargo bench --bench gpu                      # GPU 0
//! gpu-HASH 1 --batches 200 --samples 64        # a binary that was built elsewhere: GPU 1
//! ```
//!
//! Exits with 1 when a batch on the GPU is not what the host wrote. Where there is no GPU it says so, and that is no failure.

use std::{env, process::ExitCode, time::Duration};

use towtank::{
    device::{
        Device, HostDevice,
        cuda::{CudaBatch, CudaDevice, CudaError, HostMemory, Options, TrainStep, Transfer, Way},
    },
    loader::{Loader, Order},
    machine::Item,
    source::Memory,
};

/// Bytes of a sample: 224×224 RGB.
const SLOT: usize = 224 * 224 * 3;

struct Asked {
    ordinal: usize,
    batches: u64,
    samples: usize,
}

fn asked() -> Asked {
    let mut asked = Asked { ordinal: 0, batches: 200, samples: 64 };
    let mut words = env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let mut number =
            || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or_else(|| panic!("{word} wants a number"));
        match word.as_str() {
            "--batches" => asked.batches = number().max(1),
            "--samples" => asked.samples = number().max(1) as usize,
            ordinal => asked.ordinal = ordinal.parse().unwrap_or_else(|_| panic!("`{ordinal}` is no number of a GPU")),
        }
    }
    asked
}

fn main() -> ExitCode {
    let asked = asked();
    match CudaDevice::open(asked.ordinal).and_then(|device| report(&asked, &device)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(wrong) => {
            println!("WRONG: {wrong} batches on the GPU are not what the host wrote");
            ExitCode::FAILURE
        }
        Err(CudaError::NoDriver) => {
            println!("no GPU here: nothing is measured");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What a sample's bytes are: different for every sample, and every place in it.
fn content(sample: u64, at: usize) -> u8 {
    (sample.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ (at as u8).wrapping_mul(31)
}

/// Writes a sample; first what no sample holds, so that a slot that is reused too early shows.
fn write(item: Item, out: &mut [u8]) {
    out.fill(0xee);
    out.iter_mut().enumerate().for_each(|(at, cell)| *cell = content(item.sample, at));
}

/// A loader whose samples cost next to nothing, unless `whole` says that each is to be written.
fn loader<D: Device<u8>>(asked: &Asked, device: D, whole: bool) -> Loader<D> {
    let samples = asked.batches * asked.samples as u64;
    let source = Memory::from_fn(samples, |_, into| {
        into.clear();
        into.push(0);
        Ok(())
    });
    let fill = move |item: Item, _, out: &mut [u8]| {
        if whole {
            write(item, out);
        } else {
            out[..8].copy_from_slice(&item.sample.to_le_bytes());
        }
        Ok(())
    };
    Loader::from_source(source.with_bytes_bound(1))
        .fill(SLOT, fill)
        .batch(asked.samples)
        .order(Order::Plan)
        .memory(8 << 30)
        .prefetch(3)
        .start_on(device)
        .expect("the loader starts")
}

fn report(asked: &Asked, device: &CudaDevice) -> Result<u64, CudaError> {
    let batch_bytes = asked.samples * SLOT;
    println!("{} ({:?}), {} batches of {} × {SLOT} B", device.context().name()?, device.context(), asked.batches, asked.samples);

    let wrong = compare(asked, device)?;
    println!("correct              {} batches compared, {wrong} wrong", asked.batches);

    let bare = |host: HostMemory, bytes: usize| -> Result<f64, CudaError> {
        let mut transfer = Transfer::new(device.context(), bytes, host, device.near())?;
        transfer.time(Way::ToDevice, bytes)?;
        transfer.start_clock()?;
        for _ in 0..asked.batches {
            transfer.begin(Way::ToDevice, bytes)?;
        }
        Ok(bytes as f64 * asked.batches as f64 / transfer.seconds()?)
    };
    let pinned = bare(HostMemory::Pinned, batch_bytes)?;
    let pageable = bare(HostMemory::Pageable, batch_bytes)?;
    println!("bare copies          {:.2} GB/s pinned, {:.2} GB/s pageable", pinned / 1e9, pageable / 1e9);

    let (to_gpu, _) = rate(loader(asked, device.clone(), false), batch_bytes, |_| Ok(()))?;
    println!("loader, copies alone {:.2} GB/s, {:.3} of bare pinned copies", to_gpu / 1e9, to_gpu / pinned);
    let ordinary = CudaDevice::with(Options { ordinal: asked.ordinal, host: HostMemory::Pageable })?;
    let (out_of_pageable, _) = rate(loader(asked, ordinary, false), batch_bytes, |_| Ok(()))?;
    println!("the same, pageable   {:.2} GB/s, {:.3} of bare pageable copies", out_of_pageable / 1e9, out_of_pageable / pageable);

    // A step as long as the copy of its batch: overlapped both take as long as one of them.
    let step = Duration::from_secs_f64(batch_bytes as f64 / pinned).max(Duration::from_micros(100));
    let train = TrainStep::new(device.context(), 1.0)?;
    let (trained, took) = rate(loader(asked, device.clone(), false), batch_bytes, |batch| {
        let memory: &CudaBatch = batch.device().expect("it is on the GPU");
        train.step(memory, batch_bytes, step).map(drop)
    })?;
    let one_after_the_other = asked.batches as f64 * 2.0 * step.as_secs_f64();
    println!(
        "overlap              {:.2} GB/s with steps of {step:.1?}: {:.2} of the time of both one after the other",
        trained / 1e9,
        took / one_after_the_other
    );

    let (host, _) = rate(loader(asked, HostDevice::new(), true), batch_bytes, |_| Ok(()))?;
    let (gpu, _) = rate(loader(asked, device.clone(), true), batch_bytes, |_| Ok(()))?;
    println!(
        "samples written      {:.0} samples/s to the GPU, {:.3} of {:.0} to the host",
        gpu / SLOT as f64,
        gpu / host,
        host / SLOT as f64
    );
    Ok(wrong)
}

/// How many batches are not what their samples hold.
fn compare(asked: &Asked, device: &CudaDevice) -> Result<u64, CudaError> {
    let mut host = vec![0; asked.samples * SLOT];
    let mut wrong = 0;
    for batch in loader(asked, device.clone(), true) {
        let batch = batch.map_err(ended)?;
        batch.device().expect("it is on the GPU").memory().read(&mut host)?;
        let whole = |(k, sample): (usize, u64)| {
            host[k * SLOT..][..SLOT].iter().enumerate().all(|(at, cell)| *cell == content(sample, at))
        };
        wrong += u64::from(!batch.samples().enumerate().all(whole));
    }
    Ok(wrong)
}

fn ended(error: towtank::loader::RunError) -> CudaError {
    CudaError::Call { call: "the loader", code: 0, name: error.to_string(), what: String::new() }
}

/// Bytes a second from the second batch on, and the seconds of all of them.
#[expect(clippy::disallowed_methods, reason = "this is a measurement")]
fn rate<D: Device<u8>>(
    loader: Loader<D>,
    batch_bytes: usize,
    mut step: impl FnMut(&towtank::loader::Batch<D::Batch, u8>) -> Result<(), CudaError>,
) -> Result<(f64, f64), CudaError> {
    let (mut first, mut batches) = (None, 0);
    for batch in loader {
        let batch = batch.map_err(ended)?;
        first = first.or_else(|| Some(std::time::Instant::now()));
        step(&batch)?;
        batches += 1;
    }
    let seconds = first.map_or(0.0, |first| first.elapsed().as_secs_f64()).max(f64::MIN_POSITIVE);
    Ok(((batches - 1) as f64 * batch_bytes as f64 / seconds, seconds))
}
