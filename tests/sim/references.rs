//! The machine against exact results of queueing theory.
//!
//! Each figure is the mean of thirty independent runs, without the first customers, and must be within three standard errors of the
//! exact one; where nothing is drawn it must be the exact one itself. `cargo test --test sim references -- --nocapture` prints the table. Times are in units of a mean service, which is a million nanoseconds.

#[path = "references/disk.rs"]
mod disk;
#[path = "references/gpu.rs"]
mod gpu;
#[path = "references/lock.rs"]
mod lock;
#[path = "references/process.rs"]
mod process;
#[path = "references/smt.rs"]
mod smt;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::Duration,
};

use tokio::sync::{Notify, Semaphore, mpsc};
use towtank::{
    draw::{Purpose, draw},
    machine::{Machine, Tags},
    sim::{
        Config, CopyBy, CopySpec, Cost, Costs, CpuSpec, Dataset, Distribution, Outcome, PixelCount, Quantiles, SimMachine,
        Simulation, Size, StoreSpec,
    },
    trace::{Kind, Recorder, StageId},
};

use crate::{JOB, op};

const MEAN_NS: u64 = 1_000_000;
const REPLICATIONS: u64 = 30;
const WARM_UP: u64 = 1_000;

/// Means of some figures over the replications, held against what they should be.
fn check(what: &str, expected: &[(&str, f64)], one: impl Fn(u64) -> Vec<f64>) {
    let runs: Vec<Vec<f64>> = (0..REPLICATIONS).map(one).collect();
    for (k, (name, expected)) in expected.iter().enumerate() {
        let n = runs.len() as f64;
        let mean = runs.iter().map(|run| run[k]).sum::<f64>() / n;
        let variance = runs.iter().map(|run| (run[k] - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let error = (variance / n).sqrt();
        let off = (mean - expected) / error;
        println!("{what:<45} {name:<18} {expected:>10.6} {mean:>10.6} ± {error:.6} {off:>+6.2} standard errors");
        assert!(
            (mean - expected).abs() <= 3.0 * error,
            "{what}, {name}: {mean:.6} ± {error:.6}, expected {expected:.6}: off by {:.1} standard errors",
            (mean - expected).abs() / error
        );
        assert!(error < 0.03 * expected, "{what}, {name}: {mean:.6} ± {error:.6} says little about {expected:.6}");
    }
}

/// A figure of a case in which nothing is drawn, held against what it must be.
fn exact(what: &str, name: &str, expected: u64, found: u64) {
    println!("{what:<45} {name:<18} {expected:>10} {found:>10} exact");
    assert_eq!(found, expected, "{what}, {name}");
}

/// A machine with so many threads, each on its own core.
fn machine(seed: u64, threads: u32, service: Distribution) -> Config {
    Config {
        seed,
        cpu: CpuSpec { cores: threads, speed_ppm: Vec::new() },
        pool_threads: threads,
        costs: Costs::all(Cost { residual_ppm: service, ..Cost::fixed(MEAN_NS) }),
        dataset: Dataset::uniform(u64::MAX, Size::default()),
        ..Config::default()
    }
}

fn run<F: Future<Output = ()> + 'static>(config: Config, root: impl FnOnce(SimMachine<Tags>) -> F) -> Outcome<()> {
    Simulation::<Tags>::new(config).recorder(Recorder::new().keep_events()).run(root).expect("it ends")
}

const EXPONENTIAL: Distribution = Distribution::Exponential { mean: MEAN_NS };

/// The `k`-th time of a Poisson process with `rate` arrivals per mean service.
fn gap(seed: u64, k: u64, rate: f64) -> Duration {
    let law = Distribution::Exponential { mean: (MEAN_NS as f64 / rate) as u64 };
    Duration::from_nanos(law.at(draw(seed, Purpose::CUSTOM, k, 0).word(0)))
}

/// Customers arrive by themselves, and each wants one leaf; `admit` sees how many are there already. Ends when all are gone.
async fn open<L, F>(m: SimMachine<Tags>, rate: f64, customers: u64, mut admit: impl FnMut(u64) -> bool, leaf: L)
where
    L: Fn(SimMachine<Tags>, u64) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    let present = Rc::new(Cell::new(0));
    let mut tasks = VecDeque::new();
    for k in 0..customers {
        m.sleep(gap(m.seed(), k, rate)).await;
        if !admit(present.get()) {
            continue;
        }
        present.set(present.get() + 1);
        let (served, count) = (leaf(m.clone(), k), present.clone());
        tasks.push_back(m.spawn("customer", async move {
            served.await;
            count.set(count.get() - 1);
        }));
        // Handles of those who are long gone.
        if tasks.len() > 1000 && present.get() < 500 {
            tasks.drain(..400);
        }
    }
    while present.get() > 0 {
        m.sleep(Duration::from_nanos(MEAN_NS)).await;
    }
}

async fn job(m: SimMachine<Tags>, k: u64) {
    m.cpu(op(StageId::DECODE, k), JOB, || ()).await.expect("a job");
}

/// Of each customer after the warm-up: how long it waited, and how long it was there. In mean services.
fn times(outcome: &Outcome<()>) -> Vec<(f64, f64)> {
    let units = |ns: u64| ns as f64 / MEAN_NS as f64;
    let mut waited = Vec::new();
    let mut times = Vec::new();
    for event in outcome.recorder.events() {
        match event.kind {
            Kind::Start => {
                debug_assert_eq!(event.sample, waited.len() as u64, "they start in their order");
                waited.push(event.time.since(event.since));
            }
            Kind::End if event.sample >= WARM_UP => {
                let wait = waited[event.sample as usize];
                times.push((units(wait), units(wait + event.time.since(event.since))));
            }
            _ => {}
        }
    }
    times
}

fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().sum::<f64>() / values.count() as f64
}

/// Mean wait, mean time, share of those who waited, share of those who were there for longer than 5.
fn single_queue(seed: u64, threads: u32, rate: f64, service: Distribution) -> Vec<f64> {
    let customers = 8_000 * u64::from(threads).min(2);
    let outcome = run(machine(seed, threads, service), |m| open(m, rate, customers, |_| true, job));
    little_and_utilization_hold(&outcome);
    let times = times(&outcome);
    let share = |of: &dyn Fn(&(f64, f64)) -> bool| times.iter().filter(|t| of(t)).count() as f64 / times.len() as f64;
    vec![mean(times.iter().map(|t| t.0)), mean(times.iter().map(|t| t.1)), share(&|t| t.0 > 0.0), share(&|t| t.1 > 5.0)]
}

/// Little's law and the utilization law, busy time = Σ service: exactly, to the nanosecond.
fn little_and_utilization_hold(outcome: &Outcome<()>) {
    assert_eq!(outcome.cpu_ns, little_holds(outcome), "the utilization law");
}

/// Little's law, L·T = Σ time there: exactly, to the nanosecond. Gives Σ service (ns).
fn little_holds(outcome: &Outcome<()>) -> u64 {
    let (mut present, mut area, mut at, mut there, mut service) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let mut queued = Vec::new();
    for event in outcome.recorder.events() {
        area += present * (event.time.0 - at);
        at = event.time.0;
        match event.kind {
            Kind::Queued => {
                present += 1;
                debug_assert_eq!(event.sample, queued.len() as u64, "they come in their order");
                queued.push(event.time);
            }
            Kind::End => {
                present -= 1;
                there += event.time.since(queued[event.sample as usize]);
                service += event.time.since(event.since);
            }
            _ => {}
        }
    }
    assert_eq!((area, present), (there, 0), "Little's law");
    service
}

#[test]
fn one_exponential_server() {
    let (rho, mu) = (0.7, 1.0f64);
    let time = 1.0 / (mu - rho);
    let expected =
        [("wait", time - 1.0), ("time", time), ("share that waits", rho), ("share beyond 5", (-(mu - rho) * 5.0f64).exp())];
    check("M/M/1", &expected, |seed| single_queue(seed, 1, rho, EXPONENTIAL));
}

#[test]
fn four_exponential_servers() {
    let expected = [("wait", 0.745541), ("time", 1.745541), ("share that waits", 0.596432)];
    check("M/M/4", &expected, |seed| single_queue(seed, 4, 3.2, EXPONENTIAL));
}

#[test]
fn one_server_that_always_takes_as_long() {
    let rho = 0.7;
    let wait = rho / (1.0 - rho) / 2.0;
    check("M/D/1", &[("wait", wait), ("time", wait + 1.0), ("share that waits", rho)], |seed| {
        single_queue(seed, 1, rho, Cost::EXACT)
    });
}

/// First two moments of a table, in mean services.
fn moments(table: &Quantiles) -> (f64, f64) {
    let square = |a: f64, b: f64| (a * a + a * b + b * b) / 3.0;
    let unit = |v: u64| v as f64 / MEAN_NS as f64;
    let steps = table.values().windows(2);
    (table.mean() / MEAN_NS as f64, mean(steps.map(|w| square(unit(w[0]), unit(w[1])))))
}

#[test]
fn one_server_whose_service_is_lognormal() {
    let table = Quantiles::lognormal(MEAN_NS, 1.0);
    let (first, second) = moments(&table);
    let rho = 0.6;
    let wait = rho / first * second / 2.0 / (1.0 - rho);
    check("M/G/1", &[("wait", wait), ("time", wait + first)], |seed| {
        single_queue(seed, 1, rho / first, Distribution::Table(table.clone()))
    });
}

#[test]
fn one_server_with_room_for_five() {
    check("M/M/1/5", &[("finds nobody", 0.271056), ("is turned away", 0.0888195)], |seed| {
        let (seen, lost, all) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)), 8_000);
        let (empty, full) = (seen.clone(), lost.clone());
        let count = |cell: &Cell<u64>, yes: bool| cell.set(cell.get() + u64::from(yes));
        run(machine(seed, 1, EXPONENTIAL), move |m| {
            let admit = move |present: u64| {
                count(&seen, present == 0);
                count(&lost, present == 5);
                present < 5
            };
            open(m, 0.8, all, admit, job)
        });
        vec![empty.get() as f64 / all as f64, full.get() as f64 / all as f64]
    });
}

/// Throughput of two stations with a buffer of three between them. The first serves with mean 1/1.2, the second with mean 1.
fn tandem(seed: u64, reserve_first: bool) -> f64 {
    let items = 8_000;
    let costs =
        Costs::new().with("first", Cost::exponential((MEAN_NS as f64 / 1.2) as u64)).with("second", Cost::exponential(MEAN_NS));
    let outcome = run(Config { costs, ..machine(seed, 2, EXPONENTIAL) }, move |m| async move {
        let (sender, mut receiver) = mpsc::channel(3);
        let work = |kind| towtank::machine::Work { kind, ..JOB };
        let first = m.clone();
        let station = m.spawn("first", async move {
            for k in 0..items {
                let place = if reserve_first { Some(sender.reserve().await.expect("open")) } else { None };
                first.cpu(op(StageId::user(0), k), work("first"), || ()).await.expect("a job");
                match place {
                    Some(place) => place.send(k),
                    None => sender.send(k).await.expect("open"),
                }
            }
        });
        while let Some(k) = receiver.recv().await {
            m.cpu(op(StageId::user(1), k), work("second"), || ()).await.expect("a job");
        }
        drop(station);
    });
    let left = |k: u64| {
        let is = |e: &&towtank::trace::Event| e.kind == Kind::End && e.stage == StageId::user(1) && e.sample == k;
        outcome.recorder.events().iter().find(is).expect("it left").time.0
    };
    (items - 1 - WARM_UP) as f64 * MEAN_NS as f64 / (left(items - 1) - left(WARM_UP)) as f64
}

#[test]
fn two_stations_that_block_each_other() {
    check("blocking after service", &[("throughput", 0.899294)], |seed| vec![tandem(seed, false)]);
    check("blocking before service", &[("throughput", 0.865620)], |seed| vec![tandem(seed, true)]);
}

#[test]
fn two_stations_that_always_take_as_long_are_exact() {
    for (first, second) in [(1000, 1500), (1500, 1000), (1234, 1234)] {
        let costs = Costs::new().with("first", Cost::fixed(first)).with("second", Cost::fixed(second));
        let outcome = run(Config { costs, ..machine(0, 2, Cost::EXACT) }, |m| async move {
            let (sender, mut receiver) = mpsc::channel(3);
            let work = |kind| towtank::machine::Work { kind, ..JOB };
            let inner = m.clone();
            let station = m.spawn("first", async move {
                for k in 0..1000 {
                    inner.cpu(op(StageId::user(0), k), work("first"), || ()).await.expect("a job");
                    sender.send(k).await.expect("open");
                }
            });
            while let Some(k) = receiver.recv().await {
                m.cpu(op(StageId::user(1), k), work("second"), || ()).await.expect("a job");
            }
            drop(station);
        });
        assert_eq!(outcome.end.0, first + second + 999 * first.max(second));
    }
}

/// `c` workers, one consumer four times as fast, `credits` items made and not yet consumed: throughput.
fn workers_and_consumer(seed: u64, credits: usize) -> f64 {
    let items = 10_000u64;
    let times = Rc::new(RefCell::new((0, 0)));
    let seen = times.clone();
    run(machine(seed, 4, EXPONENTIAL), move |m| async move {
        let (semaphore, ready, made) =
            (Rc::new(Semaphore::new(credits)), Rc::new(Notify::new()), Rc::new(RefCell::new(VecDeque::new())));
        let next = Rc::new(Cell::new(0));
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let (inner, semaphore, ready, made, next) =
                    (m.clone(), semaphore.clone(), ready.clone(), made.clone(), next.clone());
                m.spawn("worker", async move {
                    loop {
                        semaphore.acquire().await.expect("open").forget();
                        let k = next.replace(next.get() + 1);
                        job(inner.clone(), k).await;
                        made.borrow_mut().push_back(k);
                        ready.notify_one();
                    }
                })
            })
            .collect();
        for k in 0..items {
            while made.borrow_mut().pop_front().is_none() {
                ready.notified().await;
            }
            m.sleep(gap(seed, k, 4.0)).await;
            semaphore.add_permits(1);
            match k {
                WARM_UP => times.borrow_mut().0 = m.now().0,
                last if last == items - 1 => times.borrow_mut().1 = m.now().0,
                _ => {}
            }
        }
        drop(workers);
        m.quiesce().await;
    });
    let (from, to) = *seen.borrow();
    (items - 1 - WARM_UP) as f64 * MEAN_NS as f64 / (to - from) as f64
}

#[test]
fn workers_and_a_consumer_with_credits() {
    for (credits, expected) in [(4, 2.757282), (8, 3.445887), (16, 3.737166)] {
        check(&format!("4 workers, {credits} credits"), &[("throughput", expected)], |seed| {
            vec![workers_and_consumer(seed, credits)]
        });
    }
}

#[test]
fn ten_customers_in_a_closed_network_of_store_cores_and_copy_engine() {
    let (customers, rounds) = (10, 500);
    check("closed network", &[("throughput", 31.582853)], |seed| {
        let config = Config {
            store: StoreSpec {
                connections: Some(1),
                first_byte_ns: Distribution::Exponential { mean: 5_000_000 },
                ..StoreSpec::default()
            },
            costs: Costs::all(Cost::exponential(30_000_000)),
            copy: CopySpec { by: CopyBy::Engines(1), cost: Cost::exponential(27_000_000) },
            ..machine(seed, 1, EXPONENTIAL)
        };
        let outcome = run(config, move |m| async move {
            let left = Rc::new(Cell::new(customers * rounds));
            let tasks: Vec<_> = (0..customers)
                .map(|_| {
                    let (inner, left) = (m.clone(), left.clone());
                    m.spawn("customer", async move {
                        while left.get() > 0 {
                            left.set(left.get() - 1);
                            let k = left.get();
                            inner.read(op(StageId::FETCH, k)).await.expect("a read");
                            job(inner.clone(), k).await;
                            let (slots, batch) = (inner.slots(1, 1).expect("memory"), inner.device_batch(1, 1).expect("memory"));
                            inner.copy(op(StageId::TRANSFER, k), slots, batch, 0).await.map(|_| ()).expect("a copy");
                        }
                    })
                })
                .collect();
            while left.get() > 0 {
                m.sleep(Duration::from_millis(100)).await;
            }
            drop(tasks);
            m.quiesce().await;
        });
        let copies = outcome.recorder.events().iter().filter(|e| e.kind == Kind::End && e.stage == StageId::TRANSFER);
        let ends: Vec<f64> = copies.map(|e| e.time.as_secs_f64()).collect();
        let (from, to) = (500, ends.len() - 1);
        vec![(to - from) as f64 / (ends[to] - ends[from])]
    });
}

#[test]
fn a_shared_link_does_not_mind_how_sizes_are_distributed() {
    let rho = 0.6;
    let table = Quantiles::lognormal(MEAN_NS, 1.0);
    let laws =
        [("equal", Distribution::Constant(MEAN_NS)), ("exponential", EXPONENTIAL), ("lognormal", Distribution::Table(table))];
    for (name, law) in laws {
        // A byte takes a nanosecond. Time is proportional to size, and an arrival finds the link empty with probability 1 − ρ.
        let mean_size = law.mean() / MEAN_NS as f64;
        let expected = [("time", mean_size / (1.0 - rho)), ("time per size", 1.0 / (1.0 - rho)), ("finds nobody", 1.0 - rho)];
        check(&format!("M/G/1 processor sharing, {name} sizes"), &expected, |seed| {
            let store = StoreSpec { link_bytes_per_s: Some(1_000_000_000), ..StoreSpec::default() };
            let dataset = Dataset::Drawn { count: u64::MAX, bytes: law.clone(), pixels: PixelCount::PerByte { ppm: 0 } };
            let (all, found_empty) = (8_000, Rc::new(Cell::new(0)));
            let seen = found_empty.clone();
            let outcome = run(Config { store, dataset, ..machine(seed, 1, EXPONENTIAL) }, move |m| {
                let mut k = 0;
                let admit = move |present: u64| {
                    k += 1;
                    seen.set(seen.get() + u64::from(present == 0 && k > WARM_UP));
                    true
                };
                open(m, rho / mean_size, all, admit, |m, k| async move {
                    m.read(op(StageId::FETCH, k)).await.map(|_| ()).expect("a read")
                })
            });
            let ends = || outcome.recorder.events().iter().filter(|e| e.kind == Kind::End && e.sample >= WARM_UP);
            let total_time: u64 = ends().map(|e| e.time.since(e.since)).sum();
            let total_size: u64 = ends().map(|e| e.bytes).sum();
            vec![
                total_time as f64 / MEAN_NS as f64 / ends().count() as f64,
                total_time as f64 / total_size as f64,
                found_empty.get() as f64 / (all - WARM_UP) as f64,
            ]
        });
    }
}
