//! A lock that goes from hand to hand.

use std::{cell::RefCell, rc::Rc, time::Duration};

use towtank::{
    machine::{Machine, Work},
    sim::{Config, Cost, Costs, CpuSpec, Distribution, LockSpec, Quantiles},
    trace::StageId,
};

use super::{EXPONENTIAL, MEAN_NS, check, exact, job, machine, mean, moments, op, open, run, times};

const MS: u64 = 1_000_000;

/// A lock that jobs hold for so much of their time.
fn lock(interval_ns: u64, held_ppm: u32) -> Option<LockSpec> {
    Some(LockSpec { interval_ns, held: vec![("job".to_owned(), held_ppm)] })
}

/// When jobs end that come at (time, length, kind), on so many cores, all in ms.
fn ends(lock: Option<LockSpec>, cores: u32, jobs: &'static [(u64, &'static str)]) -> Vec<u64> {
    let cost = |ns_per_byte| Cost { ps_per_byte: ns_per_byte, ..Cost::FREE };
    let costs = Costs::new().with("job", cost(1000)).with("free", cost(1000));
    let cpu = CpuSpec { cores, speed_ppm: Vec::new() };
    let config = Config { cpu, lock, costs, pool_threads: 64, ..machine(0, 1, Cost::EXACT) };
    let ends = Rc::new(RefCell::new(vec![0; jobs.len()]));
    let found = ends.clone();
    run(config, move |m| async move {
        let start = |k: usize, ms: u64, kind: &'static str| {
            let (m, ends) = (m.clone(), ends.clone());
            m.clone().spawn("job", async move {
                let work = Work { kind, bytes: ms * MS, pixels: 0 };
                m.cpu(op(StageId::DECODE, k as u64), work, || ()).await.expect("a job");
                ends.borrow_mut()[k] = m.now().0 / MS;
            })
        };
        let tasks: Vec<_> = jobs.iter().enumerate().map(|(k, (ms, kind))| start(k, *ms, kind)).collect();
        m.sleep(Duration::from_secs(1)).await;
        drop(tasks);
    });
    found.take()
}

#[test]
fn jobs_that_are_longer_than_the_interval_take_turns() {
    let turns = |what: &str, expected: &[u64], found: Vec<u64>| {
        for (k, (expected, found)) in expected.iter().zip(found).enumerate() {
            exact(what, &format!("end of job {} [ms]", k + 1), *expected, found);
        }
    };
    let all = |interval_ms| lock(interval_ms * MS, 1_000_000);
    let three: &[_] = &[(12, "job"), (12, "job"), (12, "job")];
    turns("lock, turns of 5 ms, 3 x 12 ms", &[32, 34, 36], ends(all(5), 8, three));
    turns("lock, to the end, 3 x 12 ms", &[12, 24, 36], ends(all(1_000_000), 8, three));
    turns("no lock, 3 x 12 ms", &[12, 12, 12], ends(None, 8, three));
    // Half of the time is outside of it.
    turns("lock for half, 3 x 12 ms", &[12, 18, 24], ends(lock(1_000_000 * MS, 500_000), 8, three));
    // The one that does not need it shares the core: each of the others does 2.5 ms in its turn of 5.
    turns("lock, 1 core", &[35, 40, 40], ends(all(5), 1, &[(10, "job"), (10, "job"), (20, "free")]));
}

#[test]
fn a_short_one_waits_an_interval_for_a_long_one() {
    let config = Config { lock: lock(5 * MS, 1_000_000), costs: Costs::all(Cost::fixed(20 * MS)), ..machine(0, 4, Cost::EXACT) };
    let seen = Rc::new(RefCell::new(Vec::new()));
    let found = seen.clone();
    run(config, move |m| async move {
        let one = |k: u64, after_ms: u64| {
            let (m, seen) = (m.clone(), seen.clone());
            m.clone().spawn("job", async move {
                m.sleep(Duration::from_millis(after_ms)).await;
                job(m.clone(), k).await;
                seen.borrow_mut().push((k, m.now().0 / MS));
            })
        };
        // 0-12, then turns: 12-17, 17-22, ..., of which the first has 8 ms left and the second 20.
        let tasks = [one(0, 0), one(1, 7)];
        m.sleep(Duration::from_secs(1)).await;
        drop(tasks);
    });
    assert_eq!(found.take(), [(0, 30), (1, 40)]);
}

#[test]
fn threads_under_the_lock_are_as_many_as_it_has_room_for() {
    let (under, outside, rounds) = (MS, 3 * MS, 100);
    for threads in [1u64, 2, 4, 8, 16] {
        let config = Config {
            lock: lock(5 * MS, 250_000),
            costs: Costs::all(Cost::fixed(under + outside)),
            ..machine(0, threads as u32, Cost::EXACT)
        };
        let outcome = run(config, move |m| async move {
            let left = Rc::new(RefCell::new(threads));
            let tasks: Vec<_> = (0..threads)
                .map(|thread| {
                    let (m, left) = (m.clone(), left.clone());
                    m.clone().spawn("thread", async move {
                        for k in 0..rounds {
                            job(m.clone(), thread * rounds + k).await;
                        }
                        *left.borrow_mut() -= 1;
                    })
                })
                .collect();
            while *left.borrow() > 0 {
                m.sleep(Duration::from_millis(1)).await;
            }
            drop(tasks);
        });
        // The last is `threads − 1` behind the first where there is room, else the lock is never free.
        let expected = (rounds * (under + outside) + (threads - 1) * under).max(threads * rounds * under + outside);
        exact("lock, threads of 1 ms under it and 3 outside", &format!("{threads} x 100 [ns]"), expected, outcome.end.0);
    }
}

#[test]
fn a_lock_is_a_server() {
    let table = Quantiles::lognormal(MEAN_NS, 1.0);
    let (first, second) = moments(&table);
    let rho = 0.6;
    let time = first + rho / first * second / 2.0 / (1.0 - rho);
    let arriving = |seed, service, interval_ns, rate| {
        let config = Config { lock: lock(interval_ns, 1_000_000), ..machine(seed, 256, service) };
        let outcome = run(config, move |m| open(m, rate, 8_000, |_| true, job));
        vec![mean(times(&outcome).iter().map(|t| t.1))]
    };
    check("lock, M/G/1", &[("time", time)], |seed| arriving(seed, Distribution::Table(table.clone()), u64::MAX, rho / first));
    // Whoever forgets how long he has been served loses nothing by taking turns.
    check("lock, M/M/1 in turns of a half", &[("time", 1.0 / (1.0 - 0.7))], |seed| arriving(seed, EXPONENTIAL, MEAN_NS / 2, 0.7));
}

#[test]
fn one_that_waits_for_the_lock_and_is_given_up_still_has_it_in_the_end() {
    let config =
        Config { lock: lock(u64::MAX, 1_000_000), costs: Costs::all(Cost::fixed(10 * MS)), ..machine(0, 4, Cost::EXACT) };
    let outcome = run(config, |m| async move {
        let first = m.spawn("first", {
            let m = m.clone();
            async move { job(m, 0).await }
        });
        m.sleep(Duration::from_millis(1)).await;
        tokio::select! {
            biased;
            () = job(m.clone(), 1) => panic!("the lock is taken"),
            () = m.sleep(Duration::from_millis(3)) => {}
        }
        m.quiesce().await;
        drop(first);
        assert_eq!(m.now().0, 20 * MS);
        job(m.clone(), 2).await;
    });
    assert_eq!((outcome.end.0, outcome.left.leaves), (30 * MS, 0));
}
