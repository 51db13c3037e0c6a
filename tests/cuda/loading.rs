//! Whole loaders whose batches go to a GPU.

use std::time::Duration;

use towtank::{
    device::cuda::{CudaDevice, HostMemory, NormalizeStage, Options, TrainStep},
    loader::{
        Builder, FillWith, Loader, Read, RunError, StartError, Tail,
        dlpack::{DataType, Device},
    },
    machine::{Encoded, Item},
    source::Memory,
};

use crate::fake::fake;

pub(crate) const SAMPLES: u64 = 22;
pub(crate) const BATCH: usize = 4;
pub(crate) const EPOCHS: u32 = 3;
/// Bytes of a sample.
pub(crate) const SLOT: usize = 3000;

/// What a sample is made of.
fn content(sample: u64, at: usize) -> u8 {
    (sample as usize * 31 + at * 7 + 1) as u8
}

/// Samples whose bytes can be told apart, through a ring so short that every slot is used again and again.
pub(crate) fn loader(device: CudaDevice, rank: u16, world: u16) -> Result<Loader<CudaDevice>, StartError> {
    builder(rank, world).start_on(device)
}

/// The same, whose batches are normalized on the GPU.
pub(crate) fn staged(device: CudaDevice, limit: usize, rank: u16, world: u16) -> Result<Loader<CudaDevice>, String> {
    let stage = NormalizeStage::new(device.context(), SLOT / 3, MEAN, DEVIATION).map_err(|error| error.to_string())?;
    builder(rank, world).prefetch(3).device_stage(limit, stage).start_on(device).map_err(|error| error.to_string())
}

/// With these a byte becomes `byte / 32 − 4`, `byte / 64 − 2` and `byte / 128`, which half floats have exactly.
const MEAN: [f32; 3] = [128.0 / 255.0, 128.0 / 255.0, 0.0];
const DEVIATION: [f32; 3] = [32.0 / 255.0, 64.0 / 255.0, 128.0 / 255.0];

/// What a sample becomes on the GPU: its pixels by channel, as the bits of half floats.
fn normalized(sample: u64) -> Vec<u16> {
    let channel = |channel: usize| (0..SLOT / 3).map(move |pixel| half(content(sample, 3 * pixel + channel), channel));
    (0..3).flat_map(channel).collect()
}

/// The bits of a multiple of 1/128 that is less than 8, as binary16.
fn half(byte: u8, channel: usize) -> u16 {
    let value = [4 * i32::from(byte) - 512, 2 * i32::from(byte) - 256, i32::from(byte)][channel];
    let (sign, value) = (u16::from(value < 0) << 15, value.unsigned_abs());
    if value == 0 {
        return 0;
    }
    // value / 128 = 1.m · 2^(exponent − 7).
    let exponent = value.ilog2();
    let mantissa = (value << (10 - exponent)) as u16 & 0x3ff;
    sign | ((exponent + 8) as u16) << 10 | mantissa
}

type Write = fn(Item, Encoded, &mut [u8]) -> Result<(), towtank::failure::Failure>;

fn builder(rank: u16, world: u16) -> Builder<Read, FillWith<Write>> {
    let source = Memory::from_fn(SAMPLES, |sample, into| {
        into.clear();
        into.extend(sample.to_le_bytes());
        Ok(())
    });
    let write: Write = |item, _, out| {
        // First what no sample holds, so that a copy that comes late copies that.
        out.fill(0xee);
        std::thread::yield_now();
        out.iter_mut().enumerate().for_each(|(at, cell)| *cell = content(item.sample, at));
        Ok(())
    };
    Loader::from_source(source.with_bytes_bound(8))
        .fill(SLOT, write)
        .batch(BATCH)
        .shuffle(5)
        .epochs(EPOCHS)
        .workers(2)
        .lanes(4)
        .rank(rank, world, Tail::Uneven)
        .settings(|settings| settings.ring = Some(9))
}

/// Trains on every batch up to `leave_after`; the samples in order. Every batch is compared with what its samples hold.
pub(crate) fn train(loader: &mut Loader<CudaDevice>, step: &TrainStep, leave_after: usize) -> Result<Vec<u64>, RunError> {
    let mut seen = Vec::new();
    for batch in loader.take(leave_after) {
        let batch = batch?;
        let memory = batch.device().expect("it is on the GPU");
        let bytes = batch.len() * SLOT;
        // What fails on the GPU fails the loader's next copy, too.
        let Ok(_) = step.step(memory, bytes, Duration::from_micros(200)) else { continue };
        let mut host = vec![0; bytes];
        if memory.memory().read(&mut host).is_err() {
            continue;
        }
        let mut halves = vec![0; 2 * bytes];
        let staged = memory.result().map(|result| result.read(&mut halves));
        if let Some(Err(_)) = staged {
            continue;
        }
        for (k, sample) in batch.samples().enumerate() {
            if staged.is_some() {
                let own = halves[2 * k * SLOT..][..2 * SLOT].chunks(2).map(|half| u16::from_le_bytes([half[0], half[1]]));
                assert!(own.eq(normalized(sample)), "what became of sample {sample} of batch {}", batch.index());
            }
            let whole = host[k * SLOT..][..SLOT].iter().enumerate().all(|(at, cell)| *cell == content(sample, at));
            assert!(whole, "sample {sample} of batch {}", batch.index());
            seen.push(sample);
        }
    }
    Ok(seen)
}

fn epoch_by_epoch(seen: &[u64]) {
    assert_eq!(seen.len() as u64, SAMPLES * u64::from(EPOCHS));
    for epoch in seen.chunks(SAMPLES as usize) {
        let mut sorted = epoch.to_vec();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..SAMPLES));
    }
}

#[test]
fn every_batch_is_on_the_gpu_as_it_was_on_the_host() {
    let fake = fake();
    for host in [HostMemory::Pinned, HostMemory::Pageable] {
        let device = CudaDevice::with(Options { ordinal: 0, host }).expect("a GPU");
        let step = TrainStep::new(device.context(), 0.5).expect("kernels");
        let mut loader = loader(device, 0, 1).expect("it starts");
        epoch_by_epoch(&train(&mut loader, &step, usize::MAX).expect("nothing fails"));
        let outcome = loader.close().expect("it ended");
        assert_eq!((outcome.accounts.delivered, outcome.slots.home), (SAMPLES * u64::from(EPOCHS), outcome.slots.ring));
    }
    let report = fake.assert_clean();
    assert_eq!(report.copied_bytes, 2 * SAMPLES * u64::from(EPOCHS) * SLOT as u64);
}

#[test]
fn every_batch_is_normalized_before_it_comes() {
    let fake = fake();
    for (limit, host) in [(1, HostMemory::Pinned), (3, HostMemory::Pinned), (2, HostMemory::Pageable)] {
        fake.reset(1, 2_000_000_000, Duration::from_micros(20));
        let device = CudaDevice::with(Options { ordinal: 0, host }).expect("a GPU");
        let step = TrainStep::new(device.context(), 0.5).expect("kernels");
        let mut loader = staged(device, limit, 0, 1).expect("it starts");
        epoch_by_epoch(&train(&mut loader, &step, usize::MAX).expect("nothing fails"));
        let outcome = loader.close().expect("it ended");
        assert_eq!((outcome.accounts.delivered, outcome.slots.home), (SAMPLES * u64::from(EPOCHS), outcome.slots.ring));
        drop(step);
        // A train step and a stage for each batch.
        assert_eq!(fake.assert_clean().kernels, 2 * outcome.accounts.batches);
    }
}

#[test]
fn a_consumer_may_leave_after_every_batch_that_was_normalized() {
    leave_after_every_batch(|device| staged(device, 2, 0, 1).expect("it starts"));
}

#[test]
fn ranks_that_share_a_gpu_share_its_stage() {
    let fake = fake();
    let device = CudaDevice::open(1).expect("a GPU");
    let ranks: Vec<_> = (0..3_u16)
        .map(|rank| {
            let device = device.clone();
            let run = move || {
                let step = TrainStep::new(device.context(), 0.25).expect("kernels");
                train(&mut staged(device, 1, rank, 3).expect("it starts"), &step, usize::MAX).expect("nothing fails")
            };
            std::thread::Builder::new().spawn(run).expect("a thread")
        })
        .collect();
    let mut seen: Vec<u64> = ranks.into_iter().flat_map(|rank| rank.join().expect("no panic")).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq((0..SAMPLES).flat_map(|sample| [sample; EPOCHS as usize])));
    drop(device);
    fake.assert_clean();
}

#[test]
fn what_a_stage_has_made_is_a_tensor_that_keeps_its_batch() {
    let fake = fake();
    let device = CudaDevice::open(0).expect("a GPU");
    let mut running = staged(device.clone(), 1, 0, 1).expect("it starts");
    for batch in &mut running {
        let batch = batch.expect("nothing fails");
        let (samples, made): (Vec<u64>, _) = (batch.samples().collect(), batch.device().and_then(|memory| memory.result()));
        let address = made.expect("half floats").address();
        let mut halves = vec![0; samples.len() * SLOT * 2];
        made.expect("half floats").read(&mut halves).expect("the stage is over");
        let tensor = batch.result_into_dlpack(DataType::F16, &[3, SLOT / 3]).expect("it fits");
        let plain = tensor.plain();
        assert_eq!((plain.data as u64, plain.device, plain.data_type), (address, Device::cuda(0), DataType::F16));
        assert_eq!(tensor.shape(), [samples.len() as i64, 3, SLOT as i64 / 3]);
        let expected = samples.iter().flat_map(|sample| normalized(*sample)).flat_map(u16::to_le_bytes);
        assert!(halves.into_iter().eq(expected));
    }
    assert_eq!(running.close().expect("it ended").slots.lent, 0);

    // More than there is, and what nobody has made.
    let mut running = staged(device.clone(), 1, 0, 1).expect("it starts");
    let batch = running.next().expect("a batch").expect("nothing fails");
    let error = batch.result_into_dlpack(DataType::F16, &[4, SLOT / 3]).expect_err("it is too large").to_string();
    assert_eq!(error, "4 samples of shape [4, 1000] are more than the 24000 bytes that a stage has made of the batch");
    drop(running);
    let mut plain = loader(device, 0, 1).expect("it starts");
    let batch = plain.next().expect("a batch").expect("nothing fails");
    let error = batch.result_into_dlpack(DataType::F16, &[3]).expect_err("there is none").to_string();
    assert_eq!(error, "4 samples of shape [3] are more than the 0 bytes that a stage has made of the batch");
    drop(plain);
    fake.assert_clean();
}

/// Nobody but the loader has the device, and it is dropped with a copy or a stage under way: what is given back last is so by the driver's
/// thread, which may not call the driver.
#[test]
fn the_last_owner_of_a_gpu_may_go_with_a_host_function() {
    let fake = fake();
    fake.reset(1, 20_000_000, Duration::from_micros(500));
    for taken in (0..8).cycle().take(32) {
        for limit in [0, 2] {
            let device = CudaDevice::open(0).expect("a GPU");
            let mut running = match limit {
                0 => loader(device, 0, 1).expect("it starts"),
                _ => staged(device, limit, 0, 1).expect("it starts"),
            };
            running.by_ref().take(taken).for_each(|batch| drop(batch.expect("nothing fails")));
            drop(running);
        }
    }
    fake.assert_clean();
}

#[test]
fn images_of_another_size_than_the_batches_are_an_error() {
    let fake = fake();
    let device = CudaDevice::open(0).expect("a GPU");
    let stage = NormalizeStage::imagenet(device.context(), 64, 64).expect("a kernel");
    let mut loader = builder(0, 1).device_stage(1, stage).start_on(device).expect("it starts");
    let error = loader.next().expect("an error").expect_err("no batch").to_string();
    assert!(error.contains("4 images of 4096 pixels are 49152 bytes, and the batch has 12000"), "{error}");
    loader.close().expect("it ended");
    fake.assert_clean();
}

#[test]
fn copies_as_slow_as_a_modem_lose_nothing() {
    let fake = fake();
    fake.reset(1, 10_000_000, Duration::from_millis(1));
    let device = CudaDevice::open(0).expect("a GPU");
    let step = TrainStep::new(device.context(), 1.0).expect("kernels");
    epoch_by_epoch(&train(&mut loader(device, 0, 1).expect("it starts"), &step, usize::MAX).expect("nothing fails"));
    drop(step);
    fake.assert_clean();
}

#[test]
fn a_consumer_may_leave_after_every_batch() {
    leave_after_every_batch(|device| loader(device, 0, 1).expect("it starts"));
}

fn leave_after_every_batch(start: impl Fn(CudaDevice) -> Loader<CudaDevice>) {
    let fake = fake();
    fake.reset(1, 100_000_000, Duration::from_micros(300));
    let device = CudaDevice::open(0).expect("a GPU");
    let step = TrainStep::new(device.context(), 1.0).expect("kernels");
    let batches = (SAMPLES as usize).div_ceil(BATCH) * EPOCHS as usize;
    for leave_after in 0..=batches {
        let mut loader = start(device.clone());
        let seen = train(&mut loader, &step, leave_after).expect("nothing fails");
        // Half of them are only dropped.
        if leave_after % 2 == 0 {
            let outcome = loader.close().expect("it ended");
            assert_eq!((outcome.accounts.delivered, outcome.slots.lent), (seen.len() as u64, 0));
            assert_eq!(outcome.slots.home + outcome.slots.given_up, outcome.slots.ring);
        }
    }
    drop((device, step));
    // What was only dropped ends by itself.
    fake.assert_clean();
}

#[test]
fn ranks_share_a_gpu_or_have_one_each() {
    let fake = fake();
    for devices in [1, 2] {
        let open: Vec<CudaDevice> = (0..devices).map(|ordinal| CudaDevice::open(ordinal).expect("a GPU")).collect();
        let ranks: Vec<_> = (0..4_u16)
            .map(|rank| {
                let device = open[usize::from(rank) % devices].clone();
                let run = move || {
                    let step = TrainStep::new(device.context(), 0.25).expect("kernels");
                    train(&mut loader(device, rank, 4).expect("it starts"), &step, usize::MAX).expect("nothing fails")
                };
                std::thread::Builder::new().spawn(run).expect("a thread")
            })
            .collect();
        let mut seen: Vec<u64> = ranks.into_iter().flat_map(|rank| rank.join().expect("no panic")).collect();
        seen.sort_unstable();
        let all = (0..SAMPLES).flat_map(|sample| [sample; EPOCHS as usize]);
        assert!(seen.into_iter().eq(all));
    }
    fake.assert_clean();
}
