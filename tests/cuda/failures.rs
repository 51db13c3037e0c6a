//! A driver that fails, at every call it is asked for.

use std::{sync::mpsc, thread, time::Duration};

use towtank::device::cuda::{CudaDevice, TrainStep};

use crate::{
    fake::{Fake, fake},
    loading::{loader, staged, train},
};

/// Whether batches go through a stage on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Without,
    With,
}

/// Everything from opening the GPU to closing the loader; the first error, in words.
fn whole_run(stage: Stage) -> Result<(), String> {
    let device = CudaDevice::open(0).map_err(|error| error.to_string())?;
    let step = TrainStep::new(device.context(), 1.0).map_err(|error| error.to_string())?;
    let mut loader = match stage {
        Stage::Without => loader(device, 0, 1).map_err(|error| error.to_string())?,
        Stage::With => staged(device, 2, 0, 1)?,
    };
    let trained = train(&mut loader, &step, usize::MAX);
    loader.close().map_err(|error| error.to_string())?;
    trained.map(drop).map_err(|error| error.to_string())
}

/// The same, on a thread of its own: a run that hangs is a failure of the test, and not a test that hangs.
fn in_time(stage: Stage, what: &str) -> Result<(), String> {
    let (tell, told) = mpsc::channel();
    let run = move || tell.send(whole_run(stage));
    let thread = thread::Builder::new().spawn(run).expect("a thread");
    let ended = told.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| panic!("{what}: it hangs"));
    thread.join().expect("no panic").expect("it is heard");
    ended
}

fn clean(fake: &Fake, what: &str) {
    let report = fake.settle();
    assert_eq!((report.races, report.forbidden, report.leaks), (0, 0, 0), "{what}: {report:?}");
}

#[test]
fn every_call_may_fail_and_nothing_hangs_or_leaks() {
    every_call_may_fail(Stage::Without);
}

#[test]
fn every_call_may_fail_of_a_loader_whose_batches_go_through_a_stage() {
    every_call_may_fail(Stage::With);
}

fn every_call_may_fail(stage: Stage) {
    let fake = fake();
    in_time(stage, "no failure").expect("nothing fails");
    clean(&fake, "no failure");
    let calls = fake.calls();
    let called: Vec<_> = calls.iter().filter(|(_, calls)| *calls > 0).collect();
    assert!(called.len() > 25, "{called:?}");
    let mut heard = 0;
    for (name, calls) in called {
        if name.starts_with("cuGetError") {
            continue;
        }
        // The first ones, which set up; some in the middle; the last, which tear down.
        let mut places = vec![0, 1, 2, calls / 3, calls / 2, calls - 1];
        places.retain(|nth| nth < calls);
        places.sort_unstable();
        places.dedup();
        for nth in places {
            fake.reset(1, 2_000_000_000, Duration::from_micros(20));
            fake.fail(name, nth);
            let what = format!("{name}, call {nth} of {calls}");
            match in_time(stage, &what) {
                Ok(()) => {}
                Err(error) => {
                    heard += 1;
                    assert!(!error.is_empty(), "{what}");
                }
            }
            clean(&fake, &what);
        }
    }
    // Those that give something back are not heard, nor those that only the consumer's step needs.
    assert!(heard >= 30, "{heard}");
}

#[test]
fn a_context_that_breaks_ends_the_loader_with_the_drivers_words() {
    for (nth, stage) in [(0, Stage::Without), (1, Stage::With), (7, Stage::Without), (7, Stage::With), (16, Stage::With)] {
        let fake = fake();
        fake.reset(1, 2_000_000_000, Duration::from_micros(20));
        fake.break_at(nth);
        let error = in_time(stage, "a broken context").expect_err("nothing works any more");
        assert!(error.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
        clean(&fake, "a broken context");
    }
}
