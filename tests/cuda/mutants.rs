//! Defects that these tests exist for, each of them caught. The driver stands in for them: a device that gives slots back when it has put
//! their copy on the stream does what this one does on a driver that tells at once; one that forgets a wait, what this one does on a driver
//! that ignores waits; and one that loses what it is told, what this one does on a driver that tells nothing.

use std::time::Duration;

use towtank::device::cuda::{CudaDevice, TrainStep};

use crate::{
    fake::{IGNORES_WAITS, TELLS_AT_ONCE, TELLS_NOTHING, fake},
    loading::loader,
};

/// Trains without looking at what is in the batches.
fn run(leave_after: usize) -> Result<(), String> {
    let device = CudaDevice::open(0).expect("a GPU");
    let step = TrainStep::new(device.context(), 1.0).expect("kernels");
    let mut loader = loader(device, 0, 1).expect("it starts");
    for batch in loader.by_ref().take(leave_after) {
        let batch = batch.map_err(|error| error.to_string())?;
        let bytes = batch.len() * crate::loading::SLOT;
        step.step(batch.device().expect("on the GPU"), bytes, Duration::from_micros(300)).expect("a step");
    }
    Ok(())
}

#[test]
fn slots_that_come_back_before_they_are_copied_are_a_race() {
    let fake = fake();
    fake.reset(1, 20_000_000, Duration::from_millis(1));
    run(usize::MAX).expect("nobody notices");
    fake.assert_clean();
    fake.misbehave(TELLS_AT_ONCE);
    run(usize::MAX).expect("nobody notices");
    assert_ne!(fake.report().races, 0);
}

#[test]
fn a_stream_that_does_not_wait_is_a_race() {
    let fake = fake();
    for (misbehaviour, races) in [(0, false), (IGNORES_WAITS, true)] {
        fake.reset(1, 20_000_000, Duration::from_millis(1));
        fake.misbehave(misbehaviour);
        overlapping();
        let report = fake.settle();
        assert_eq!((report.races > 0, report.leaks), (races, 0), "{report:?}");
    }
}

/// A consumer that does not wait for its kernels on the host: only waits on the GPU keep its batches whole.
fn overlapping() {
    use towtank::device::cuda::{Kernels, Stream};
    let device = CudaDevice::open(0).expect("a GPU");
    let kernels = Kernels::new(device.context()).expect("kernels");
    let stream = Stream::new(device.context()).expect("a stream");
    let mut loader = loader(device, 0, 1).expect("it starts");
    for batch in loader.by_ref() {
        let batch = batch.expect("nothing fails");
        let memory = batch.device().expect("on the GPU");
        memory.wait_on(&stream).expect("a wait");
        let bytes = batch.len() * crate::loading::SLOT;
        kernels.spin(&stream, memory.memory(), bytes, Duration::from_millis(4), 1.0).expect("a kernel");
        memory.release_on(&stream).expect("a release");
    }
    stream.synchronize().expect("nothing failed");
}

#[test]
fn a_driver_that_tells_nothing_ends_the_loader_instead_of_hanging_it() {
    let fake = fake();
    fake.misbehave(TELLS_NOTHING);
    let error = run(1).expect_err("no batch ever comes");
    assert!(error.contains("the driver has finished a copy and not told of it"), "{error}");
}
