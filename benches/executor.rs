//! What the simulated machine costs: sleeps, leaves, and a lane loop like a loader's, with its trace.
//!
//! `cargo bench --bench executor [words of the line's name]`. Each figure is the best of a few runs, so that a busy computer disturbs it little.

use std::{cell::Cell, rc::Rc, time::Duration};

use towtank::{
    machine::{Item, Machine, Op, Tags, Time, Work},
    sim::{
        Chooser, Config, Cost, Costs, CpuSpec, Dataset, Distribution, Outcome, PixelCount, Quantiles, Reader, SchedulerSpec,
        SimMachine, StoreSpec, run,
    },
    trace::{Event, Kind, Recorder, StageId},
};

const ROUNDS: usize = 5;

/// CPU time of this thread, which a busy computer disturbs less than the time on the wall.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn best<T>(what: &str, units: u64, of: &str, mut simulate: impl FnMut() -> Outcome<T>) {
    if std::env::args().skip(1).any(|wanted| !wanted.starts_with("--") && !what.contains(&wanted)) {
        return;
    }
    let mut seconds = f64::INFINITY;
    let mut last = None;
    for _ in 0..ROUNDS {
        let start = cpu_time();
        last = Some(simulate());
        seconds = seconds.min((cpu_time() - start).as_secs_f64());
    }
    let outcome = last.expect("at least one round");
    let per = |n: u64| n as f64 / units as f64;
    println!(
        "{what:<34} {:>7.1} ns a {of}  {:>6.2} M/s   {:.1} fired, {:.1} polls, {:.1} events a {of}",
        seconds * 1e9 / units as f64,
        units as f64 / seconds / 1e6,
        per(outcome.tally.fired),
        per(outcome.tally.polls),
        per(outcome.recorder.count()),
    );
}

/// `tasks` tasks that do nothing but sleep, `sleeps` times in all.
fn sleeps(chooser: Chooser, tasks: u64, sleeps: u64) -> Outcome<()> {
    let config = Config { chooser, ..Config::default() };
    run(config, Recorder::new(), move |machine| async move {
        let rest = Rc::new(Cell::new(sleeps));
        let handles: Vec<_> = (0..tasks)
            .map(|k| {
                let (m, rest) = (machine.clone(), rest.clone());
                machine.spawn("sleeper", async move {
                    let mut x = k * 7919 + 1;
                    while let Some(left) = rest.get().checked_sub(1) {
                        rest.set(left);
                        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        m.sleep(Duration::from_nanos(1000 + (x >> 44))).await;
                    }
                })
            })
            .collect();
        while rest.get() > 0 {
            machine.sleep(Duration::from_micros(100)).await;
        }
        drop(handles);
    })
    .expect("sleeps end")
}

/// A lane loop: read, decode, and as many events of its own as a loader's lane records.
fn lanes(config: Config, lanes: u64, samples: u64, own_events: bool) -> Outcome<()> {
    run(config, Recorder::new(), move |machine| async move {
        let next = Rc::new(Cell::new(0));
        let finished = Rc::new(Cell::new(0));
        let handles: Vec<_> = (0..lanes)
            .map(|_| machine.spawn("lane", lane(machine.clone(), next.clone(), samples, own_events, finished.clone())))
            .collect();
        while finished.get() < lanes {
            machine.sleep(Duration::from_millis(10)).await;
        }
        drop(handles);
        machine.quiesce().await;
    })
    .expect("lanes end")
}

async fn lane(machine: SimMachine<Tags>, next: Rc<Cell<u64>>, samples: u64, own_events: bool, finished: Rc<Cell<u64>>) {
    while next.get() < samples {
        let sample = next.get();
        next.set(sample + 1);
        let item = Item { epoch: 0, position: sample, sample };
        let op = |stage| Op { stage, rank: 0, attempt: 0, item };
        let record = |kind: Kind, stage: StageId, since: Time| {
            let time = machine.now();
            machine.record(Event { time, since, sample, bytes: 0, epoch: 0, rank: 0, stage, kind });
        };
        let launch = machine.now();
        if own_events {
            record(Kind::Launch, StageId::LOADER, launch);
            record(Kind::Reserve, StageId::LOADER, launch);
        }
        let bytes = machine.read(op(StageId::FETCH)).await.expect("a read");
        let work = Work { kind: "decode", bytes: bytes.bytes, pixels: bytes.pixels };
        let tag = machine.cpu(op(StageId::DECODE), work, move || bytes.sample).await.expect("a job");
        assert_eq!(tag, sample);
        record(Kind::Filled, StageId::BATCH, launch);
        if own_events {
            record(Kind::Refund, StageId::LOADER, machine.now());
            record(Kind::Delivered, StageId::CONSUMER, launch);
        }
    }
    finished.set(finished.get() + 1);
}

fn plain() -> Config {
    Config {
        cpu: CpuSpec { cores: 16, speed_ppm: Vec::new() },
        pool_threads: 16,
        costs: Costs::new().with("decode", Cost::fixed(2_000_000)),
        store: StoreSpec { first_byte_ns: Distribution::Constant(5_000_000), ..StoreSpec::default() },
        dataset: Dataset::uniform(u64::MAX, towtank::sim::Size { bytes: 114_660, pixels: 181_503 }),
        ..Config::default()
    }
}

fn imagenet() -> Config {
    let residual = || Distribution::Table(Quantiles::lognormal(1_000_000, 0.2));
    Config {
        cpu: CpuSpec { cores: 96, speed_ppm: (0..96).map(|k| 1_000_000 - 4_000 * k).collect() },
        pool_threads: 96,
        wakeup_ns: 20_000,
        scheduler: SchedulerSpec { per_wake_ns: 5_000, per_completion_ns: 1_500, burst: 16, queued_low: 192, age_ns: 1_000_000 },
        costs: Costs::new()
            .with("decode", Cost { fixed_ns: 100_000, ps_per_byte: 9_000, ps_per_pixel: 5_000, residual_ppm: residual() }),
        store: StoreSpec {
            reader: Reader::Own,
            first_byte_ns: Distribution::Table(Quantiles::lognormal(100_000, 0.4)),
            link_bytes_per_s: Some(16_000_000_000),
            cost: Cost { fixed_ns: 10_000, ps_per_byte: 100, ps_per_pixel: 0, residual_ppm: residual() },
            ..StoreSpec::default()
        },
        dataset: Dataset::Drawn {
            count: 1_281_167,
            bytes: Distribution::Table(Quantiles::lognormal(114_660, 0.55)),
            pixels: PixelCount::PerByte { ppm: 1_583_000 },
        },
        ..Config::default()
    }
}

fn main() {
    let n = 1_000_000;
    best("sleeps, 1000 tasks, fifo", n, "sleep", || sleeps(Chooser::Fifo, 1000, n));
    best("sleeps, 1000 tasks, random", n, "sleep", || sleeps(Chooser::Random(1), 1000, n));
    let samples = 500_000;
    best("lanes, constant times, fifo", samples, "sample", || lanes(plain(), 64, samples, false));
    best("lanes, constant times, random", samples, "sample", || {
        lanes(Config { chooser: Chooser::Random(1), ..plain() }, 64, samples, false)
    });
    best("lanes, imagenet", samples, "sample", || lanes(imagenet(), 192, samples, false));
    best("lanes, imagenet, all events", samples, "sample", || lanes(imagenet(), 192, samples, true));
    let idle = SchedulerSpec::default();
    best("lanes, imagenet, free scheduler", samples, "sample", || {
        lanes(Config { scheduler: idle, wakeup_ns: 0, ..imagenet() }, 192, samples, false)
    });
}
