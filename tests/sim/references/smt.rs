//! Cores of two hardware threads each.

use towtank::{
    machine::Machine,
    sim::{Config, Cost, Costs, Smt},
    trace::StageId,
};

use super::{EXPONENTIAL, JOB, WARM_UP, check, exact, job, machine, mean, op, open, run, times};

/// How long so many equal jobs take that begin together, each of so long on a core of its own.
fn together(smt: Smt, jobs: u64, job_ns: u64) -> u64 {
    let config = Config { cpu: smt.cpu(), costs: Costs::all(Cost::fixed(job_ns)), ..machine(0, jobs as u32, Cost::EXACT) };
    let outcome = run(config, move |m| async move {
        let job = |k| {
            let m = m.clone();
            m.clone().spawn("job", async move { m.cpu(op(StageId::DECODE, k), JOB, || ()).await.expect("a job") })
        };
        let jobs: Vec<_> = (0..jobs).map(job).collect();
        // They begin before this one's clock moves, and it waits until all are done.
        m.sleep(std::time::Duration::from_nanos(1)).await;
        drop(jobs);
        m.quiesce().await;
    });
    outcome.end.0
}

#[test]
fn equal_jobs_on_cores_of_two_threads_are_exact() {
    let smt = Smt { cores: 4, sibling_ppm: 625_000 };
    // (jobs, together they do so many eighths of a core's work)
    for (jobs, eighths) in [(1, 8), (4, 32), (5, 34), (6, 36), (8, 40), (12, 40), (16, 40)] {
        let expected = 408_000 * jobs * 8 / eighths;
        exact("4 cores, 8 threads, sibling at 5/8", &format!("{jobs} jobs [ns]"), expected, together(smt, jobs, 408_000));
    }
    // A speed that is no whole number of millionths is off by less than one of them.
    let expected = 40_800_000 * 7 * 8 / 38;
    assert!(together(smt, 7, 40_800_000).abs_diff(expected) <= expected / 1_000_000);
}

/// Customers that all have a thread: with `n` there, the cores do what `n` threads do together. A birth-death process.
#[test]
fn customers_on_two_cores_of_two_threads() {
    let (smt, rate) = (Smt { cores: 2, sibling_ppm: 650_000 }, 2.0);
    let service = |n: u64| smt.together_ppm(n) as f64 / 1e6;
    let mut weight = 1.0;
    let (mut sum, mut number, mut more) = (1.0, 0.0, 0.0);
    for n in 1..1000 {
        weight *= rate / service(n);
        sum += weight;
        number += n as f64 * weight;
        more += if n > 5 { weight } else { 0.0 };
    }
    assert!(more / sum > 0.1, "threads have to share");
    check("2 cores, 4 threads, sibling at 65 %", &[("time", number / sum / rate)], |seed| {
        let config = Config { cpu: smt.cpu(), ..machine(seed, 1_000, EXPONENTIAL) };
        let outcome = run(config, |m| open(m, rate, 16_000 + WARM_UP, |_| true, job));
        vec![mean(times(&outcome).iter().map(|t| t.1))]
    });
}
