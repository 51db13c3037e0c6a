//! What the loader itself costs.
//!
//! ```sh
//! cargo bench --bench loader            # all three
//! cargo bench --bench loader -- own     # one of: own, sim, real
//! ```
//!
//! - `own`: a machine on which every leaf is over at its first poll and nothing is recorded. What is left is the loader's own work: ticket,
//!   number, reservation, resolution, assembly, channel. Allocations are counted too, those of warming up left out.
//! - `sim`: simulated samples a second of CPU time, on tags, through fetch, decode, batch and copy.
//! - `real`: the real machine with no-op jobs on tiny samples in memory: CPU of the scheduler's thread and of the process for a sample.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the wall clock and runs its own tasks")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    future::Future,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use towtank::{
    failure::Failure,
    loader::{self, Loader, Order, Settings, stage},
    machine::{Bytes, Clock, Copied, Machine, Op, Phantom, Slot, Tags, Time, Unit, Work, gather, real::usage, slab},
    sim::{Chooser, Config, CopyBy, CopySpec, Cost, Costs, CpuSpec, Dataset, Distribution, Simulation, Size, StoreSpec},
    source::Memory,
    trace::{Event, StageId},
};

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A machine on which everything is over at once and nothing is recorded.
#[derive(Clone)]
struct Instantly {
    lends_slots: bool,
}

#[derive(Clone)]
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Time {
        Time::ZERO
    }
}

struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Machine for Instantly {
    type Payload = Tags;
    type DeviceBatch = Vec<u64>;
    type Task = Task;
    type Clock = Stopped;

    fn now(&self) -> Time {
        Time::ZERO
    }
    fn clock(&self) -> Stopped {
        Stopped
    }
    fn seed(&self) -> u64 {
        1
    }
    async fn sleep(&self, _: Duration) {}
    fn spawn(&self, _: &'static str, task: impl Future<Output = ()> + 'static) -> Task {
        Task(tokio::task::spawn_local(task))
    }
    fn bytes_bound(&self, _: u64) -> Option<u64> {
        Some(100_000)
    }
    async fn read(&self, op: Op) -> Result<Bytes<Self>, Failure> {
        Ok(Phantom { sample: op.item.sample, bytes: 90_000, pixels: 0 })
    }
    async fn cpu<R, F>(&self, _: Op, _: Work, job: F) -> Result<R, Failure>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        Ok(job())
    }
    async fn copy(&self, _: Op, src: Vec<Slot<Unit<Self>>>, mut dst: Vec<u64>, at: usize) -> Result<Copied<Self>, Failure> {
        gather(&src, &mut dst[at..]);
        Ok(Copied { src, dst })
    }
    async fn kernel<F>(&self, _: Op, _: Work, mut batch: Vec<u64>, job: F) -> Result<Vec<u64>, Failure>
    where
        F: FnOnce(&mut Vec<u64>) -> Result<(), Failure> + Send + 'static,
    {
        job(&mut batch).map(|()| batch)
    }
    fn lends_slots(&self) -> bool {
        self.lends_slots
    }
    fn slots(&self, count: usize, _: usize) -> Result<Vec<Slot<u64>>, Failure> {
        slab(count, 1)
    }
    fn device_batch(&self, samples: usize, _: usize) -> Result<Vec<u64>, Failure> {
        Ok(vec![0; samples])
    }
    fn record(&self, event: Event) {
        black_box(event);
    }
    fn name_stage(&self, _: StageId, _: &'static str) {}
    async fn quiesce(&self) {}
}

fn cpu_ns() -> u64 {
    usage::process_cpu_ns()
}

fn settings(samples: u64, order: Order) -> Settings {
    Settings {
        order,
        shuffle: Some(1),
        lanes: 64,
        sample_bytes: 200_000,
        budget_bytes: 1 << 34,
        ..Settings::new(samples, 64, 150_528)
    }
}

/// CPU time and allocations of one run.
fn once(samples: u64, order: Order, lends_slots: bool) -> (u64, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let resolved = settings(samples, order).resolve().expect("settings");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (sender, mut batches) = loader::channel(Stopped);
        let (cpu, allocations) = (cpu_ns(), ALLOCATIONS.load(Relaxed));
        let stages = stage::fetch(&resolved.settings);
        let run = tokio::task::spawn_local(loader::run(Instantly { lends_slots }, resolved, stages, stage::Tag, sender));
        let mut delivered = 0;
        while let Some(batch) = batches.recv().await {
            delivered += batch.expect("nothing fails").len() as u64;
        }
        assert_eq!(delivered, samples);
        run.await.expect("the loader ends");
        (cpu_ns() - cpu, ALLOCATIONS.load(Relaxed) - allocations)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn own() {
    for order in [Order::Plan, Order::Completion] {
        for lends in [false, true] {
            let (few, many) = (200_000, 1_200_000);
            let rounds: Vec<_> = (0..7).map(|_| (once(few, order, lends), once(many, order, lends))).collect();
            let each = |cost: fn(&(u64, u64)) -> u64| {
                median(
                    rounds
                        .iter()
                        .map(|(few_run, many_run)| (cost(many_run) as f64 - cost(few_run) as f64) / (many - few) as f64)
                        .collect(),
                )
            };
            let (ns, allocations) = (each(|run| run.0), each(|run| run.1));
            let how = if lends { "lent" } else { "copied" };
            println!("own   {order:?}, {how}: {ns:.0} ns a sample, {:.2} allocations a batch of 64", allocations * 64.0);
        }
    }
}

fn sim() {
    for (name, chooser) in [("first come, first served", Chooser::Fifo), ("random schedule", Chooser::Random(1))] {
        let samples = 500_000;
        let rates = (0..5).map(|_| {
            let config = Config {
                seed: 1,
                chooser: chooser.clone(),
                cpu: CpuSpec { cores: 16, speed_ppm: Vec::new() },
                pool_threads: 16,
                costs: Costs::all(Cost::exponential(2_000_000)),
                store: StoreSpec { first_byte_ns: Distribution::Exponential { mean: 3_000_000 }, ..StoreSpec::default() },
                copy: CopySpec { by: CopyBy::Engines(1), cost: Cost::fixed(1_000_000) },
                dataset: Dataset::uniform(samples, Size { bytes: 100_000, pixels: 200_000 }),
                ..Config::default()
            };
            let resolved = settings(samples, Order::Plan).resolve().expect("settings");
            let cpu = cpu_ns();
            let run = Simulation::<Tags>::new(config).run(|machine| async move {
                let (sender, mut batches) = loader::channel(machine.clock());
                let stages = stage::fetch(&resolved.settings);
                let _run = machine.spawn("loader", {
                    let machine = machine.clone();
                    async move { drop(loader::run(machine, resolved, stages, stage::Tag, sender).await) }
                });
                let mut delivered = 0;
                while let Some(batch) = batches.recv().await {
                    delivered += batch.expect("nothing fails").len() as u64;
                }
                delivered
            });
            let run = run.unwrap_or_else(|stall| panic!("{stall}"));
            assert_eq!(run.value, samples);
            let polls = run.tally.polls as f64 / samples as f64;
            (samples as f64 / (cpu_ns() - cpu) as f64 * 1e3, polls)
        });
        let (rates, polls): (Vec<f64>, Vec<f64>) = rates.unzip();
        println!("sim   {name}: {:.2} M samples a CPU second, {:.2} polls a sample", median(rates), polls[0]);
    }
}

fn real() {
    let samples = 300_000;
    let source = Arc::new(Memory::new((0..samples).map(|_| vec![1; 64]).collect()));
    for threads in [1, 2] {
        let rounds = (0..5).map(|_| {
            let (cpu, wall) = (cpu_ns(), Instant::now());
            let loader = Loader::from_source(source.clone())
                .fill(16, |_, encoded, out| {
                    out.copy_from_slice(&encoded.data[..16]);
                    Ok(())
                })
                .batch(64)
                .shuffle(1)
                .workers(threads)
                .lanes(128)
                .start()
                .expect("a loader");
            let mut delivered = 0;
            let mut loader = loader;
            for batch in &mut loader {
                delivered += batch.expect("nothing fails").len() as u64;
            }
            let wall = wall.elapsed().as_nanos() as f64;
            drop(loader.close().expect("it ends"));
            assert_eq!(delivered, samples);
            (wall / samples as f64, (cpu_ns() - cpu) as f64 / samples as f64)
        });
        let (walls, cpus): (Vec<f64>, Vec<f64>) = rounds.unzip();
        println!(
            "real  {threads} threads, no-op jobs, read and fill: {:.2} µs wall, {:.2} µs CPU a sample",
            median(walls) / 1e3,
            median(cpus) / 1e3
        );
    }
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let parts: [(&str, fn()); 3] = [("own", own), ("sim", sim), ("real", real)];
    for (name, part) in parts {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            part();
        }
    }
}
