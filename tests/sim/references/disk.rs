//! Local disks: flash with a queue, an arm over a platter, and the page cache before both.

use std::{cell::Cell, rc::Rc, time::Duration};

use towtank::{
    machine::{Machine, Tags},
    sim::{Config, Cost, Dataset, DiskSpec, Distribution, Outcome, Quantiles, SimMachine, Size, StoreSpec},
    trace::{Kind, StageId},
};

use super::{EXPONENTIAL, MEAN_NS, WARM_UP, check, exact, gap, little_holds, machine, mean, op, open, run, times};

async fn read(m: SimMachine<Tags>, k: u64) {
    m.read(op(StageId::FETCH, k)).await.map(|_| ()).expect("a read");
}

fn config(seed: u64, store: StoreSpec, bytes: u64) -> Config {
    let dataset = Dataset::uniform(u64::MAX, Size { bytes, pixels: 0 });
    Config { store, dataset, ..machine(seed, 1, Cost::EXACT) }
}

/// When the last of so many reads ends that begin together.
fn together(store: StoreSpec, bytes: u64, reads: u64) -> u64 {
    let outcome = run(config(0, store, bytes), move |m| async move {
        let left = Rc::new(Cell::new(reads));
        let tasks: Vec<_> = (0..reads)
            .map(|k| {
                let (m, left) = (m.clone(), left.clone());
                m.clone().spawn("reader", async move {
                    read(m, k).await;
                    left.set(left.get() - 1);
                })
            })
            .collect();
        while left.get() > 0 {
            m.sleep(Duration::from_nanos(1000)).await;
        }
        drop(tasks);
    });
    outcome.recorder.events().iter().filter(|e| e.kind == Kind::End).map(|e| e.time.0).max().expect("a read")
}

#[test]
fn reads_that_begin_together_are_exact() {
    let latency = |ns, depth| StoreSpec {
        first_byte_ns: Distribution::Constant(ns),
        connections: Some(depth),
        disk: Some(DiskSpec::default()),
        ..StoreSpec::default()
    };
    for (reads, depth) in [(100u64, 32), (96, 32), (7, 1), (5, 64)] {
        let expected = 100_000 * reads.div_ceil(u64::from(depth));
        let what = format!("{reads} at depth {depth} [ns]");
        exact("disk: ceil(n/q) times the latency", &what, expected, together(latency(100_000, depth), 0, reads));
    }
    let flowing = |block_bytes| StoreSpec {
        link_bytes_per_s: Some(1_000_000_000),
        disk: Some(DiskSpec { block_bytes, ..DiskSpec::default() }),
        ..latency(100_000, 64)
    };
    exact("disk: latency, then all bytes", "50 of 3000 B [ns]", 250_000, together(flowing(1), 3_000, 50));
    exact("disk: latency, then all blocks", "50 of 3000 B [ns]", 304_800, together(flowing(4096), 3_000, 50));
    let limited = |request_bytes| {
        let disk = DiskSpec { requests_per_s: Some(500_000), request_bytes, ..DiskSpec::default() };
        StoreSpec { disk: Some(disk), ..latency(100_000, 64) }
    };
    exact("disk: a request each 2 us, then the latency", "50 [ns]", 198_000, together(limited(None), 3_000, 50));
    exact("disk: 3 requests each 2 us, then the latency", "50 [ns]", 394_000, together(limited(Some(1_000)), 3_000, 50));
}

/// Wait for a place in the queue, and time in all, of readers who come by themselves.
fn arriving(seed: u64, store: StoreSpec, bytes: u64, rate: f64, reads: u64) -> Vec<f64> {
    let outcome = run(config(seed, store, bytes), |m| open(m, rate, reads, |_| true, read));
    little_holds(&outcome);
    let times = times(&outcome);
    vec![mean(times.iter().map(|t| t.0)), mean(times.iter().map(|t| t.1))]
}

#[test]
fn a_queue_of_four_is_erlangs() {
    let store = || StoreSpec {
        first_byte_ns: EXPONENTIAL,
        connections: Some(4),
        disk: Some(DiskSpec::default()),
        ..StoreSpec::default()
    };
    check("disk, M/M/4", &[("wait", 0.745541), ("time", 1.745541)], |seed| arriving(seed, store(), 0, 3.2, 16_000));
}

#[test]
fn an_arm_over_a_platter_is_pollaczeks() {
    // Seeks from 0.1 to 0.7 of a unit, a turn of 0.8, and blocks that take 0.2: 1 on average.
    let unit = |x: f64| (x * MEAN_NS as f64) as u64;
    let store = || StoreSpec {
        first_byte_ns: Distribution::Table(Quantiles::from_points(&[(0, unit(0.1)), (1000, unit(0.7))])),
        link_bytes_per_s: Some(20_480_000_000),
        connections: Some(1),
        disk: Some(DiskSpec { rotation_ns: unit(0.8), block_bytes: 4096, ..DiskSpec::default() }),
        ..StoreSpec::default()
    };
    let rho = 0.7;
    let service = 0.4 + 0.4 + 0.2;
    let variance = (0.6f64.powi(2) + 0.8f64.powi(2)) / 12.0;
    let wait = rho / service * (service * service + variance) / 2.0 / (1.0 - rho);
    // A thousand blocks, the last not full.
    check("disk, M/G/1: seek, turn, blocks", &[("wait", wait), ("time", wait + service)], |seed| {
        arriving(seed, store(), 999 * 4096 + 1, rho, 8_000)
    });
}

#[test]
fn requests_that_wait_for_their_turn_are_a_server_that_always_takes_as_long() {
    let store = || StoreSpec {
        disk: Some(DiskSpec { requests_per_s: Some(1_000_000_000 / MEAN_NS), ..DiskSpec::default() }),
        ..StoreSpec::default()
    };
    let rho = 0.7;
    // A read is over as soon as the disk has taken it.
    check("disk, M/D/1: requests a second", &[("time", rho / (1.0 - rho) / 2.0)], |seed| {
        arriving(seed, store(), 0, rho, 8_000)[1..].to_vec()
    });
}

/// Ten readers who think for three units between their reads, at a depth of two: a closed network, by its birth-death process.
#[test]
fn ten_readers_in_a_closed_network_with_a_disk_of_depth_two() {
    let (readers, think, depth) = (10u32, 3.0, 2u32);
    let (mut weight, mut sum, mut done) = (1.0, 1.0, 0.0);
    for n in 1..=readers {
        let served = f64::from(n.min(depth));
        weight *= f64::from(readers - n + 1) / think / served;
        sum += weight;
        done += weight * served;
    }
    check("disk, closed network at depth 2", &[("throughput", done / sum)], |seed| {
        let store = StoreSpec {
            first_byte_ns: EXPONENTIAL,
            connections: Some(depth),
            disk: Some(DiskSpec::default()),
            ..StoreSpec::default()
        };
        let reads = 6_000;
        let outcome: Outcome<()> = run(config(seed, store, 0), move |m| async move {
            let next = Rc::new(Cell::new(0));
            let tasks: Vec<_> = (0..readers)
                .map(|_| {
                    let (m, next) = (m.clone(), next.clone());
                    m.clone().spawn("reader", async move {
                        loop {
                            let k = next.replace(next.get() + 1);
                            m.sleep(gap(m.seed(), k, 1.0 / think)).await;
                            read(m.clone(), k).await;
                        }
                    })
                })
                .collect();
            while next.get() < reads {
                m.sleep(Duration::from_nanos(100 * MEAN_NS)).await;
            }
            drop(tasks);
        });
        let ends: Vec<u64> = outcome.recorder.events().iter().filter(|e| e.kind == Kind::End).map(|e| e.time.0).collect();
        let (from, to) = (WARM_UP as usize, ends.len() - 1);
        vec![(to - from) as f64 * MEAN_NS as f64 / (ends[to] - ends[from]) as f64]
    });
}

#[test]
fn the_page_cache_answers_its_part_and_takes_no_place() {
    let store = |cached_ppm| StoreSpec {
        first_byte_ns: Distribution::Constant(MEAN_NS),
        connections: Some(1),
        disk: Some(DiskSpec { cached_ppm, ..DiskSpec::default() }),
        ..StoreSpec::default()
    };
    exact("disk: all in the page cache", "9 reads [ns]", 0, together(store(1_000_000), 3_000, 9));
    exact("disk: none in the page cache", "9 reads [ns]", 9 * MEAN_NS, together(store(0), 3_000, 9));
    // Those that miss come as a Poisson process too, and find a server that always takes as long.
    let (rate, missing) = (1.0, 0.7);
    let rho: f64 = rate * missing;
    let time = missing * (1.0 + rho / (1.0 - rho) / 2.0);
    check("disk, M/D/1 beyond a cache of 30 %", &[("time", time), ("share cached", 1.0 - missing)], |seed| {
        let outcome = run(config(seed, store(300_000), 0), |m| open(m, rate, 8_000, |_| true, read));
        let events = || outcome.recorder.events().iter().filter(|e| e.sample >= WARM_UP);
        let sum = |kind| events().filter(|e| e.kind == kind).map(|e| e.time.since(e.since)).sum::<u64>();
        let reads = events().filter(|e| e.kind == Kind::End).count() as f64;
        let cached = events().filter(|e| e.kind == Kind::End && e.time == e.since).count() as f64;
        vec![(sum(Kind::Start) + sum(Kind::End)) as f64 / MEAN_NS as f64 / reads, cached / reads]
    });
}
