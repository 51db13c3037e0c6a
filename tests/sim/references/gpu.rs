//! Train steps beside a busy host.

use std::{cell::Cell, rc::Rc, time::Duration};

use towtank::{
    machine::Machine,
    sim::{Config, Cost, CpuSpec, GpuSpec, Slowed, StallReason, WaitsFor},
    trace::StageId,
};

use super::{EXPONENTIAL, JOB, MEAN_NS, check, exact, gap, job, machine, op, open, run};

fn slowed(points: &[(u32, u32)]) -> GpuSpec {
    GpuSpec { slowed: points.iter().map(|&(busy, by_ppm)| Slowed { busy, by_ppm }).collect() }
}

/// Steps of a thousandth of a mean service, beside a host that serves customers: how many of them in its time, if none were slowed.
#[test]
fn steps_beside_a_busy_server_progress_by_the_time_it_is_idle() {
    let (rho, by) = (0.7, 0.5);
    check("steps beside M/M/1", &[("progress", 1.0 - rho + rho / (1.0 + by))], |seed| {
        let config = Config { gpu: slowed(&[(1, 500_000)]), ..machine(seed, 1, EXPONENTIAL) };
        let steps = Rc::new(Cell::new(0));
        let counted = steps.clone();
        let outcome = run(config, move |m| async move {
            let trainer = m.spawn("trainer", {
                let m = m.clone();
                async move {
                    loop {
                        m.step(Duration::from_nanos(MEAN_NS / 10)).await;
                        counted.set(counted.get() + 1);
                    }
                }
            });
            open(m, rho, 8_000, |_| true, job).await;
            drop(trainer);
        });
        vec![steps.get() as f64 * (MEAN_NS / 10) as f64 / outcome.end.0 as f64]
    });
}

/// When a step ends that begins at once beside so many jobs of so long on a host of eight threads.
fn beside(gpu: GpuSpec, jobs: u64, job_ns: u64, step_ns: u64) -> u64 {
    let config = Config { cpu: CpuSpec { cores: 8, speed_ppm: Vec::new() }, gpu, ..machine(0, 8, Cost::EXACT) };
    let config = Config { costs: towtank::sim::Costs::all(Cost::fixed(job_ns)), ..config };
    let ended = Rc::new(Cell::new(0));
    let end = ended.clone();
    run(config, move |m| async move {
        let load: Vec<_> = (0..jobs)
            .map(|k| {
                let m = m.clone();
                m.clone().spawn("load", async move { m.cpu(op(StageId::DECODE, k), JOB, || ()).await.expect("a job") })
            })
            .collect();
        m.step(Duration::from_nanos(step_ns)).await;
        end.set(m.now().0);
        drop(load);
        m.quiesce().await;
    });
    ended.get()
}

#[test]
fn a_step_beside_a_load_that_stays_or_goes_is_exact() {
    let table = || slowed(&[(4, 0), (8, 400_000)]);
    exact("a step beside a busy host", "4 of 8 busy [ns]", 1_000_000, beside(table(), 4, 9_000_000, 1_000_000));
    exact("a step beside a busy host", "6 of 8 busy [ns]", 1_200_000, beside(table(), 6, 9_000_000, 1_000_000));
    exact("a step beside a busy host", "8 of 8 busy [ns]", 1_400_000, beside(table(), 8, 9_000_000, 1_000_000));
    // Half of it is done when the load goes.
    exact("a step beside a busy host", "8 until half [ns]", 1_200_000, beside(table(), 8, 700_000, 1_000_000));
    exact("a step beside a busy host", "no table [ns]", 1_000_000, beside(slowed(&[]), 8, 9_000_000, 1_000_000));
}

#[test]
fn a_table_of_no_effect_changes_no_trace() {
    let trace = |gpu| {
        let config = Config { gpu, ..machine(7, 2, EXPONENTIAL) };
        let outcome = run(config, |m| async move {
            for k in 0..200 {
                job(m.clone(), 2 * k).await;
                let beside = m.spawn("beside", {
                    let m = m.clone();
                    async move { job(m, 2 * k + 1).await }
                });
                m.step(gap(m.seed(), k, 1.0)).await;
                drop(beside);
            }
        });
        (outcome.end, outcome.recorder.hash())
    };
    let without = trace(slowed(&[]));
    assert_eq!(trace(slowed(&[(2, 0)])), without);
    assert_ne!(trace(slowed(&[(2, 1_000)])), without);
}

#[test]
fn a_step_given_up_has_not_happened_and_one_that_is_too_long_is_named() {
    let config = || Config { gpu: slowed(&[(1, 500_000)]), ..machine(0, 1, Cost::EXACT) };
    let outcome = run(config(), |m| async move {
        tokio::select! {
            biased;
            () = m.step(Duration::from_secs(9)) => panic!("it is longer"),
            () = m.sleep(Duration::from_millis(1)) => {}
        }
        m.step(Duration::from_millis(2)).await;
    });
    assert_eq!(outcome.end.0, 3_000_000);
    let limits = towtank::sim::Limits { time_ns: 1_000, ..towtank::sim::Limits::default() };
    let stall = towtank::sim::run(Config { limits, ..config() }, towtank::trace::Recorder::new(), |m| async move {
        m.step(Duration::from_secs(1)).await;
    });
    let stall = stall.expect_err("it is longer than the limit");
    assert!(matches!(stall.reason, StallReason::Time(_)));
    assert_eq!(stall.waiting[0].on, WaitsFor::Step);
}
