//! Whole loaders whose batches go to a GPU.

use std::time::Duration;

use towtank::{
    device::cuda::{CudaDevice, HostMemory, Options, TrainStep},
    loader::{Loader, RunError, StartError, Tail},
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
    let source = Memory::from_fn(SAMPLES, |sample, into| {
        into.clear();
        into.extend(sample.to_le_bytes());
        Ok(())
    });
    let write = |item: towtank::machine::Item, _, out: &mut [u8]| {
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
        .start_on(device)
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
        for (k, sample) in batch.samples().enumerate() {
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
    let fake = fake();
    fake.reset(1, 100_000_000, Duration::from_micros(300));
    let device = CudaDevice::open(0).expect("a GPU");
    let step = TrainStep::new(device.context(), 1.0).expect("kernels");
    let batches = (SAMPLES as usize).div_ceil(BATCH) * EPOCHS as usize;
    for leave_after in 0..=batches {
        let mut loader = loader(device.clone(), 0, 1).expect("it starts");
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
