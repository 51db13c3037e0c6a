//! What scheduling costs: CPU time of the process per sample, beyond the work itself, on the real machine.
//!
//! A sample is a read of one byte from memory and a CPU job, in lanes as a loader has them. The job is empty, or spins for as many
//! rounds as take about 20 µs or 1 ms. Lazy and eager wakes alternate, and so does a bare loop of the same jobs on as many threads,
//! whose CPU time is what is subtracted.
//!
//! `cargo bench --bench handoff [-- ROUNDS [CASE]]`

use std::{cell::Cell, hint::black_box, rc::Rc, sync::Arc, thread};

use towtank::{
    machine::{
        Item, Machine, Op, Tags, Work,
        real::{self, Config, RealMachine, Wakes, usage},
    },
    source::Memory,
    trace::{Recorder, StageId},
};

const LANES: usize = 64;

/// What one run used.
struct Run {
    cpu_ns: u64,
    scheduler_cpu_ns: u64,
    drains: u64,
}

fn spin(rounds: u64) {
    let mut x = 1_u64;
    for _ in 0..rounds {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

fn machine(wakes: Wakes, threads: usize, samples: u64, rounds: u64) -> Run {
    let source = Memory::from_fn(samples, |_, into| {
        into.push(1);
        Ok(())
    });
    let config = Config { wakes, threads, ..Config::new(Arc::new(source.with_bytes_bound(1))) };
    let before = usage::process_cpu_ns();
    let handle = real::launch(config, Recorder::new(), move |machine: RealMachine<Tags>| async move {
        let next = Rc::new(Cell::new(0));
        let (sender, mut done) = tokio::sync::mpsc::channel::<()>(1);
        let lanes = (0..LANES).map(|_| {
            let (m, next, sender) = (machine.clone(), next.clone(), sender.clone());
            machine.spawn("lane", async move {
                let _sender = sender;
                while next.get() < samples {
                    let item = Item { sample: next.replace(next.get() + 1), ..Item::default() };
                    m.read(Op { stage: StageId::FETCH, item, ..Op::default() }).await.expect("it is in memory");
                    let op = Op { stage: StageId::DECODE, item, ..Op::default() };
                    let work = Work { kind: "decode", bytes: 1, pixels: 0 };
                    m.cpu(op, work, move || spin(rounds)).await.expect("it does not panic");
                }
            })
        });
        let lanes = lanes.collect::<Vec<_>>();
        drop(sender);
        assert!(done.recv().await.is_none(), "lanes send nothing");
        drop(lanes);
    });
    let outcome = handle.expect("threads").join().expect("no task panics");
    let cpu_ns = usage::process_cpu_ns() - before;
    Run { cpu_ns, scheduler_cpu_ns: outcome.scheduler_cpu_ns, drains: outcome.drains }
}

#[expect(clippy::disallowed_methods, reason = "the bare loop has threads of its own")]
fn bare(threads: usize, samples: u64, rounds: u64) -> u64 {
    let before = usage::process_cpu_ns();
    let spinners = (0..threads as u64).map(|i| {
        let share = samples / threads as u64 + u64::from(i < samples % threads as u64);
        thread::spawn(move || (0..share).for_each(|_| spin(rounds)))
    });
    spinners.collect::<Vec<_>>().into_iter().for_each(|t| t.join().expect("spinning does not panic"));
    usage::process_cpu_ns() - before
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() {
    // cargo adds `--bench` itself.
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let rounds = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(7);
    let only = args.next();
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    let cpu = usage::process_cpu_ns();
    spin(4_000_000);
    let per_us = 4_000_000 * 1000 / (usage::process_cpu_ns() - cpu).max(1);
    println!("{threads} threads, {LANES} lanes, {rounds} rounds; µs of CPU a sample beyond the job, median (min–max)");
    for (name, samples, job_us) in [("no-op", 200_000, 0), ("20 µs", 40_000, 20), ("1 ms", 1_500, 1000)] {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let mut table = Vec::new();
        for (wakes, how) in [(Wakes::LAZY, "lazy"), (Wakes::EAGER, "eager")] {
            table.push((how, wakes, Vec::new(), Vec::new(), Vec::new()));
        }
        for _ in 0..rounds {
            let useful = bare(threads, samples, job_us * per_us) as f64;
            for (_, wakes, all, scheduler, drains) in &mut table {
                let run = machine(*wakes, threads, samples, job_us * per_us);
                all.push((run.cpu_ns as f64 - useful) / samples as f64 / 1000.0);
                scheduler.push(run.scheduler_cpu_ns as f64 / samples as f64 / 1000.0);
                drains.push(run.drains as f64 / samples as f64);
            }
        }
        for (how, _, all, scheduler, drains) in table {
            let (min, max) = all.iter().fold((f64::MAX, f64::MIN), |(lo, hi), x| (lo.min(*x), hi.max(*x)));
            println!(
                "{name:>6} {how:>6} {:6.2} ({min:.2}–{max:.2})  scheduler {:5.2}  drains a sample {:.3}",
                median(all),
                median(scheduler),
                median(drains)
            );
        }
    }
}
