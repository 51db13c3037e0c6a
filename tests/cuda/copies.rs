//! The device alone: its memory, its copies, its kernels.

use std::{sync::mpsc, time::Duration};

use towtank::{
    device::{
        CopyDone, Device, KernelDone,
        cuda::{CudaBatch, CudaDevice, CudaError, Event, HostMemory, Kernels, Normalize, Options, Stream, TrainStep},
    },
    failure::{Failure, FailureKind},
    machine::Slot,
};

use crate::fake::fake;

/// Slots of two cells, each filled with its number and one.
fn slots(device: &CudaDevice, count: usize) -> Vec<Slot<u8>> {
    let mut slots: Vec<Slot<u8>> = device.slots(count, 2).expect("a few bytes");
    for slot in &mut slots {
        assert_eq!(slot.get(), [0, 0], "slots begin as zeros");
        let number = slot.index() as u8 + 1;
        slot.get_mut().fill(number);
    }
    slots
}

fn copied(device: &CudaDevice, src: Vec<Slot<u8>>, dst: CudaBatch, at: usize) -> Result<(Vec<Slot<u8>>, CudaBatch), Failure> {
    let (tell, told) = mpsc::channel();
    device.copy(src, dst, at, CopyDone::new(move |answer| tell.send(answer).expect("the test listens")));
    told.recv_timeout(Duration::from_secs(20)).expect("every copy is told of")
}

fn batch(device: &CudaDevice, samples: usize) -> CudaBatch {
    Device::<u8>::batch(device, samples, 2).expect("a few bytes")
}

#[test]
fn without_such_a_gpu_there_is_an_error_that_counts_them() {
    let fake = fake();
    assert_eq!(CudaDevice::count(), Ok(2));
    assert_eq!(CudaDevice::open(2).expect_err("there are two"), CudaError::NoDevice { ordinal: 2, count: 2 });
    assert_eq!(
        CudaDevice::open(usize::MAX).expect_err("not so many").to_string(),
        format!("there is no GPU number {}: the driver knows 2, counted from 0", usize::MAX)
    );
    fake.reset(0, 1, Duration::ZERO);
    let error = CudaDevice::open(0).expect_err("there is none").to_string();
    assert_eq!(error, "cuInit failed: CUDA_ERROR_NO_DEVICE (100), as the test wants it");
    fake.assert_clean();
}

#[test]
fn runs_of_slots_land_behind_one_another_from_their_place_on() {
    let fake = fake();
    for host in [HostMemory::Pinned, HostMemory::Pageable] {
        let device = CudaDevice::with(Options { ordinal: 1, host }).expect("the second GPU");
        assert_eq!(Device::<u8>::name(&device), "cuda:1");
        let mut src = slots(&device, 5);
        drop(src.remove(2));
        let (src, dst) = copied(&device, src, batch(&device, 5), 2).expect("it fits");
        assert_eq!(src.iter().map(Slot::index).collect::<Vec<_>>(), [0, 1, 3, 4]);
        let mut bytes = [9; 10];
        dst.memory().read(&mut bytes).expect("it was copied");
        assert_eq!(bytes, [0, 0, 1, 1, 2, 2, 4, 4, 5, 5]);
    }
    assert_eq!(fake.assert_clean().copies, 4, "two runs each");
}

#[test]
fn what_does_not_fit_fails_and_copies_nothing() {
    let fake = fake();
    let device = CudaDevice::open(0).expect("a GPU");
    for at in [5, usize::MAX] {
        let failure = copied(&device, slots(&device, 2), batch(&device, 4), at).expect_err("too far");
        assert_eq!(failure.kind, FailureKind::Device);
    }
    fake.capacity(1 << 20);
    let kind = |failure: Failure| failure.kind;
    assert_eq!(Device::<u8>::batch(&device, 1 << 20, 2).map(drop).map_err(kind), Err(FailureKind::TooLarge));
    assert_eq!(Device::<u64>::batch(&device, usize::MAX, 2).map(drop).map_err(kind), Err(FailureKind::TooLarge));
    assert_eq!(Device::<u64>::slots(&device, usize::MAX, 2).map(drop).map_err(kind), Err(FailureKind::TooLarge));
    assert_eq!(Device::<u64>::slots(&device, 0, 2).expect("no slots").len(), 0);
    drop(device);
    assert_eq!(fake.assert_clean().copies, 0);
}

#[test]
fn slots_and_batches_outlive_the_device() {
    let fake = fake();
    let device = CudaDevice::open(0).expect("a GPU");
    let (mut src, dst) = (slots(&device, 2), batch(&device, 2));
    drop(device);
    src[1].get_mut().fill(7);
    assert_ne!(fake.report().leaks, 0);
    drop((src, dst));
    fake.assert_clean();
}

#[test]
fn a_copy_waits_for_those_who_read_what_was_there() {
    let fake = fake();
    let device = CudaDevice::open(0).expect("a GPU");
    let step = TrainStep::new(device.context(), 1.0).expect("kernels");
    let kernels = Kernels::new(device.context()).expect("kernels");
    let reader = Stream::new(device.context()).expect("a stream");
    let (mut src, mut dst) = (slots(&device, 2), batch(&device, 2));
    for round in 0..4 {
        let number = src[0].index() as u8;
        src[0].get_mut().fill(number + round);
        (src, dst) = copied(&device, src, dst, 0).expect("it fits");
        dst.wait_on(&reader).expect("a wait");
        kernels.spin(&reader, dst.memory(), 4, Duration::from_millis(3), 1.0).expect("a kernel");
        // One that does not say when it is done is waited for all the same.
        if round % 2 == 0 {
            dst.release_on(&reader).expect("a release");
        }
    }
    let busy = step.step(&dst, 4, Duration::from_millis(2)).expect("a step");
    assert!(busy >= 0.002, "{busy}");
    reader.synchronize().expect("nothing failed");
    drop((device, step, kernels, reader, src, dst));
    assert_eq!(fake.assert_clean().kernels, 5);
}

#[test]
fn images_are_normalized_on_the_gpu() {
    let fake = fake();
    let device = CudaDevice::open(0).expect("a GPU");
    let kernels = Kernels::new(device.context()).expect("kernels");
    let mut src: Vec<Slot<u8>> = device.slots(2, 12).expect("two images of four pixels");
    for slot in &mut src {
        let first = slot.index() as u8 * 100;
        slot.get_mut().iter_mut().enumerate().for_each(|(at, cell)| *cell = first + at as u8);
    }
    let bytes = Device::<u8>::batch(&device, 2, 12).expect("memory");
    let halves = Device::<u8>::batch(&device, 2, 24).expect("memory");
    let (src, bytes) = copied(&device, src, bytes, 0).expect("it fits");
    let stream = Stream::new(device.context()).expect("a stream");
    let work = Normalize { images: 2, pixels: 4, scale: [1.0, 0.5, 0.25], offset: [0.0, 1.0, -1.0] };
    bytes.wait_on(&stream).expect("a wait");
    kernels.normalize(&stream, bytes.memory(), halves.memory(), work).expect("a kernel");
    let done = Event::new(device.context()).expect("an event");
    done.record(&stream).expect("a record");
    done.synchronize().expect("nothing failed");
    let mut out = [0; 48];
    halves.memory().read(&mut out).expect("it is there");
    let value = |at: usize| u16::from_le_bytes([out[2 * at], out[2 * at + 1]]);
    // 0, 3, 6, 9 of the first channel; then (1, 4, 7, 10) / 2 + 1, and (2, 5, 8, 11) / 4 − 1 of the others, as binary16.
    assert_eq!([value(0), value(1), value(2), value(3)], [0, 0x4200, 0x4600, 0x4880]);
    assert_eq!([value(4), value(5), value(6), value(7)], [0x3e00, 0x4200, 0x4480, 0x4600]);
    assert_eq!([value(8), value(9), value(10), value(11)], [0xb800, 0x3400, 0x3c00, 0x3f00]);
    assert_eq!(value(12), 0x5640, "100, the second image's first");
    drop((device, kernels, src, bytes, halves, stream, done));
    fake.assert_clean();
}

/// What a stage does to a batch of the device's.
type Job = Box<dyn FnOnce(&mut CudaBatch) -> Result<(), Failure> + Send>;

fn through_stage(device: &CudaDevice, batch: CudaBatch, job: Job) -> Result<CudaBatch, Failure> {
    let (tell, told) = mpsc::channel();
    Device::<u8>::kernel(device, batch, job, KernelDone::new(move |answer| tell.send(answer).expect("the test listens")));
    told.recv_timeout(Duration::from_secs(20)).expect("every stage is told of")
}

#[test]
fn a_batch_comes_back_when_the_kernels_of_its_stage_are_done_and_keeps_what_they_made() {
    let fake = fake();
    fake.reset(1, 20_000_000, Duration::from_millis(1));
    let device = CudaDevice::open(0).expect("a GPU");
    let kernels = std::sync::Arc::new(Kernels::new(device.context()).expect("kernels"));
    let reader = Stream::new(device.context()).expect("a stream");
    let (mut src, mut dst) = (slots(&device, 3), batch(&device, 3));
    let mut made_at = None;
    for round in 0..3_u8 {
        src.iter_mut().for_each(|slot| slot.get_mut().fill(40 + round));
        (src, dst) = copied(&device, src, dst, 0).expect("it fits");
        let (own, work) = (kernels.clone(), Normalize { images: 1, pixels: 2, scale: [1.0; 3], offset: [0.0; 3] });
        dst = through_stage(
            &device,
            dst,
            Box::new(move |batch| {
                let stream = batch.stage_stream().clone();
                let launched = batch.make(12).map(drop).and_then(|()| {
                    own.spin(&stream, batch.memory(), 6, Duration::from_millis(5), 1.0)?;
                    own.normalize(&stream, batch.memory(), batch.result().expect("just made"), work)
                });
                launched.map_err(|error| error.failure())
            }),
        )
        .expect("nothing fails");
        assert!(device.stage_stream().is_idle().expect("nothing failed") || round > 0, "its kernels are done");
        let result = dst.result().expect("it was made");
        assert_eq!(*made_at.get_or_insert(result.address()), result.address(), "the same memory comes again");
        let mut halves = [0; 12];
        result.read(&mut halves).expect("it is there");
        // 40, 41 and 42 as binary16.
        let expected = (0x5100 + u16::from(round) * 0x20).to_le_bytes();
        assert!(halves.chunks(2).all(|half| half == expected), "{halves:x?} in round {round}");
        // Whoever reads what was made is waited for by the next copy, and so by the next kernels.
        dst.wait_on(&reader).expect("a wait");
        kernels.spin(&reader, dst.result().expect("made"), 12, Duration::from_millis(3), 1.0).expect("a kernel");
    }
    reader.synchronize().expect("nothing failed");
    drop((device, kernels, reader, src, dst));
    assert_eq!(fake.assert_clean().kernels, 9);
}

#[test]
fn a_stage_that_fails_behind_a_kernel_gives_nothing_up_before_that_is_done() {
    let fake = fake();
    let device = CudaDevice::open(0).expect("a GPU");
    let kernels = Kernels::new(device.context()).expect("kernels");
    let (src, dst) = copied(&device, slots(&device, 2), batch(&device, 2), 0).expect("it fits");
    let job: Job = Box::new(move |batch| {
        let stream = batch.stage_stream().clone();
        kernels.spin(&stream, batch.memory(), 4, Duration::from_millis(20), 1.0).map_err(|error| error.failure())?;
        Err(Failure::new(FailureKind::Corrupt, "not these"))
    });
    let failure = through_stage(&device, dst, job).map(drop).expect_err("the stage says so");
    assert_eq!((failure.kind, &*failure.message), (FailureKind::Corrupt, "not these"));
    assert_eq!(fake.report().kernels, 1, "the kernel is over");
    drop((device, src));
    fake.assert_clean();
}
