//! Scenarios of worker processes, and what was published of PyTorch's.

use crate::{
    advise,
    model::Measured,
    report::Metrics,
    scenario::{self, Overrides, Scenario},
    trace::Recorder,
    units::Duration,
};

fn scenario(sets: &[&str]) -> Scenario {
    scenario::load("worker-processes", &Overrides::set(sets.iter().copied())).unwrap_or_else(|e| panic!("{e}"))
}

/// The scenario with so much for an image, in a process of its own.
fn simulated(image: Duration, sets: &[&str]) -> Metrics {
    let scenario = scenario(sets);
    let mut machine = scenario.machine_model().unwrap();
    machine.costs.get_mut("decode").unwrap().fixed = Some(Measured::plain(image));
    let samples = scenario.samples().unwrap().unwrap();
    scenario.simulate(&machine, &samples, Recorder::new()).unwrap().metrics
}

#[test]
fn a_published_benchmark_of_image_readers() {
    // Its first line is what the model's numbers are derived from, but for 4 workers. The second has another processor's time for an image
    // alone: all but its first point is predicted.
    for (processor, published) in [("EPYC 9B14", [612, 1030, 1495, 1596]), ("Neoverse-N1", [431, 766, 1387, 1505])] {
        // Starting the workers, which counts here and hardly there, makes the difference where the numbers come from.
        let image = Duration::new(1e3 / f64::from(published[0]), "ms");
        for (workers, published) in [0, 2, 4, 8].into_iter().zip(published) {
            let found = simulated(image, &[&format!("loader.workers={workers}")]).samples_per_s;
            let off = found / f64::from(published) - 1.0;
            println!(
                "{processor}, {workers} workers: {published} images/s published, {found:.0} simulated: {:+.1} %",
                off * 100.0
            );
            let most = if processor == "EPYC 9B14" && workers != 4 { 0.02 } else { 0.1 };
            assert!(off.abs() < most, "{processor}, {workers} workers: {found:.0} images/s instead of {published}");
        }
    }
}

#[test]
fn epochs_begin_with_starting_the_workers() {
    // Of 32 workers each is given a copy of the dataset, which takes 7.8 s; published are 277 s until the first batch.
    let sets = ["loader.workers=32", "loader.worker_start=7.8 s", "dataset.count=3200"];
    let first_s = simulated(Duration::new(9.1, "ms"), &sets).time_to_first_batch_s.unwrap();
    assert!((250.0..251.0).contains(&first_s), "{first_s} s");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let hash = || {
        let scenario = scenario(&["dataset.count=500", "consumer.step=10 ms", "ranks.count=2", "loader.workers=3"]);
        let samples = scenario.samples().unwrap().unwrap();
        let simulated = scenario.simulate(&scenario.machine_model().unwrap(), &samples, Recorder::new()).unwrap();
        assert_eq!((simulated.metrics.delivered, simulated.outcome.accounts.delivered), (500, 500));
        let wrong: Vec<_> = simulated.verdicts.iter().filter(|v| v.name.contains("once") || v.name.contains("order")).collect();
        assert!(!wrong.is_empty() && wrong.iter().all(|v| v.held), "{wrong:?}");
        simulated.recorder.hash()
    };
    assert_eq!(hash(), hash());
}

#[test]
fn what_belongs_to_another_design_is_refused() {
    let error = |sets: &[&str]| {
        scenario::load("worker-processes", &Overrides::set(sets.iter().copied())).err().map(|e| e.to_string()).unwrap_or_default()
    };
    for (set, complaint) in [
        ("loader.lanes=4", "`loader.lanes` has no meaning with `design = \"worker-processes\"`"),
        ("loader.budget=1 GiB", "`loader.budget` has no meaning with"),
        ("loader.order=completion", "batches come in the order of the plan"),
        ("loader.errors=skip", "a sample that fails ends it"),
        ("loader.design=towtank", "`loader.workers` has no meaning with `design = \"towtank\"`"),
        ("loader.prefetch_factor=0", "`loader.prefetch_factor`"),
        ("loader.workers=100000", "`loader.workers` is too large"),
        ("loader.design=worker-process", "did you mean"),
    ] {
        assert!(error(&[set]).contains(complaint), "{set}: {}", error(&[set]));
    }
}

#[test]
fn what_needs_our_loader_says_so() {
    let scenario = scenario(&[]);
    let samples = scenario.samples().unwrap().unwrap();
    let explained = advise::explain(&scenario, &scenario.machine_model().unwrap(), &samples, 1);
    let error = explained.unwrap_err().to_string();
    assert!(error.contains("a loader of the design `worker-processes` cannot be explained"), "{error}");
    assert!(error.contains("towtank sim"), "{error}");
}
