//! The simulator against SimPy: the same loader on the same machine, with the same costs to the nanosecond.
//!
//! ```sh
//! python3 -m venv ~/peers/simpy && ~/peers/simpy/bin/pip install simpy
//! TOWTANK_PYTHON=~/peers/simpy/bin/python cargo bench --bench simpy            # 128 000 samples, 3 runs of each
//! TOWTANK_PYTHON=~/peers/simpy/bin/python cargo bench --bench simpy -- 1280000 1
//! ```
//!
//! The model is `scenarios/imagenet-local.toml`: 96 lanes read 115 kB files from a disk of 16 GB/s, 16 threads decode, batches of 256
//! are copied to a device ahead of a consumer that takes 1300 samples a second. What SimPy does not know is switched off: residuals of
//! costs, the scheduler's own time, slower cores when many are busy. `benches/simpy/model.py` gets each sample's costs in a file. Both
//! must end at the same instant with the same batches, taken at the same instants in sum; only then are times compared. Ours runs the
//! loader's real code and folds its trace on the way; SimPy's model only keeps the time.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::{
    cell::RefCell,
    error::Error,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    rc::Rc,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use towtank::{
    loader::{self, Resolved, Settings, channel, stage},
    machine::{Machine, Tags},
    sim::{
        Config, CopyBy, CopySpec, Cost, Costs, CpuSpec, Dataset, Distribution, PixelCount, Quantiles, Reader, Simulation,
        StoreSpec,
    },
};

const BATCH: u64 = 256;
const SLOT_BYTES: u64 = 224 * 224 * 3;
const THREADS: u32 = 16;
const LANES: usize = 96;
const LINK_BYTES_PER_S: u64 = 16_000_000_000;
const CONNECTION_BYTES_PER_S: u64 = 2_700_000_000;
const FIRST_BYTE_NS: u64 = 100_000;
const STEP_NS: u64 = BATCH * 1_000_000_000 / 1300;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(python) = std::env::var_os("TOWTANK_PYTHON") else {
        println!("skipped: set TOWTANK_PYTHON to a Python that has simpy (pip install simpy)");
        return Ok(());
    };
    // `cargo bench` passes `--bench`.
    let mut numbers = std::env::args().skip(1).filter(|a| !a.starts_with("--")).map(|a| a.parse::<u64>());
    let samples = numbers.next().transpose()?.unwrap_or(128_000).next_multiple_of(BATCH);
    let runs = numbers.next().transpose()?.unwrap_or(3).max(1);

    let config = machine(samples);
    let resolved = settings(samples).resolve()?;
    let order = simulate(&config, &resolved).order;
    let folder = tempfile::tempdir()?;
    let costs = folder.path().join("costs");
    std::fs::write(&costs, costs_of(&config, &order))?;
    let request = request(&costs, &resolved);

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut version = String::new();
    for _ in 0..runs {
        let (start, cpu) = (Instant::now(), cpu_s());
        let Run { totals, .. } = simulate(&config, &resolved);
        ours.push((start.elapsed().as_secs_f64(), cpu_s() - cpu));

        let answer = ask(Path::new(&python), &request)?;
        assert_eq!(totals, answer.totals, "both compute the same run");
        theirs.push((answer.wall_s, answer.cpu_s));
        version = answer.version;
    }

    let totals = simulate(&config, &resolved).totals;
    println!("{samples} samples, {} batches, end at {:.3} s of simulated time", totals.batches, totals.end_ns as f64 / 1e9);
    println!("{:<16} {:>9} {:>9} {:>12}", "", "wall s", "CPU s", "samples/s");
    for (name, times) in [("towtank", &ours), (&*format!("SimPy {version}"), &theirs)] {
        let (wall, cpu) = (median(times, |t| t.0), median(times, |t| t.1));
        println!("{name:<16} {wall:>9.3} {cpu:>9.3} {:>12.0}", samples as f64 / cpu);
    }
    let ratio = |of: fn(&(f64, f64)) -> f64| median(&theirs, of) / median(&ours, of);
    println!("SimPy takes {:.1} times the wall time and {:.1} times the CPU time", ratio(|t| t.0), ratio(|t| t.1));
    Ok(())
}

/// `models/p4d.24xlarge.toml` without what SimPy's model leaves out.
fn machine(samples: u64) -> Config {
    let cost = |fixed_ns, ps_per_byte, ps_per_pixel| Cost { fixed_ns, ps_per_byte, ps_per_pixel, residual_ppm: Cost::EXACT };
    Config {
        seed: 1,
        // As many as can ever be busy, so that nobody shares a core: on the 96 of the machine that is seldom otherwise.
        cpu: CpuSpec { cores: THREADS + LANES as u32, speed_ppm: Vec::new() },
        pool_threads: THREADS,
        costs: Costs::new().with("decode", cost(200_000, 12_000, 5_000)),
        store: StoreSpec {
            reader: Reader::Own,
            first_byte_ns: Distribution::Constant(FIRST_BYTE_NS),
            connection_bytes_per_s: Some(CONNECTION_BYTES_PER_S),
            link_bytes_per_s: Some(LINK_BYTES_PER_S),
            connections: None,
            requests: None,
            disk: None,
            cost: cost(20_000, 250, 0),
        },
        copy: CopySpec { by: CopyBy::Engines(2), cost: cost(10_000, 83, 0) },
        dataset: Dataset::Drawn {
            count: samples,
            bytes: Distribution::Table(Quantiles::lognormal(114_660, 0.55)),
            pixels: PixelCount::Drawn(Distribution::Table(Quantiles::lognormal(181_503, 0.4))),
        },
        ..Config::default()
    }
}

fn settings(samples: u64) -> Settings {
    let mut settings = Settings::new(samples, BATCH as usize, SLOT_BYTES as usize);
    settings.shuffle = Some(1);
    settings.lanes = LANES;
    settings.prefetch = 2;
    settings.budget_bytes = 2 << 30;
    settings
}

/// What both must agree on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    end_ns: u64,
    batches: u64,
    taken_ns: u64,
}

#[derive(Default)]
struct Run {
    totals: Totals,
    /// The samples as they came.
    order: Vec<u64>,
}

fn simulate(config: &Config, resolved: &Resolved) -> Run {
    let resolved = resolved.clone();
    let outcome = Simulation::<Tags>::new(config.clone())
        .run(|machine| async move {
            let (sender, mut batches) = channel(machine.clock());
            let seen = Rc::new(RefCell::new(Run::default()));
            let consumer = {
                let (machine, seen) = (machine.clone(), seen.clone());
                machine.clone().spawn("consumer", async move {
                    while let Some(batch) = batches.recv().await {
                        let batch = batch.expect("nothing fails");
                        {
                            let Run { totals, order } = &mut *seen.borrow_mut();
                            totals.taken_ns += machine.now().0;
                            totals.batches += 1;
                            order.extend(batch.samples());
                        }
                        machine.sleep(Duration::from_nanos(STEP_NS)).await;
                        seen.borrow_mut().totals.end_ns = machine.now().0;
                    }
                })
            };
            let fetch = stage::fetch(&resolved.settings);
            let outcome = loader::run(machine, resolved, fetch, stage::Tag, sender).await;
            assert_eq!(outcome.flushes, 0, "the model has no partial copies");
            drop(consumer);
            seen.take()
        })
        .unwrap_or_else(|stall| panic!("{stall}"));
    outcome.value
}

/// Each sample's costs in the order of the plan, then each batch's.
fn costs_of(config: &Config, order: &[u64]) -> Vec<u8> {
    let decode = config.costs.get("decode").expect("the machine decodes");
    let samples = order.iter().flat_map(|&sample| {
        let size = config.dataset.size(config.seed, sample);
        let read_ns = config.store.cost.ns(size.bytes, 0, 0);
        [size.bytes, FIRST_BYTE_NS, read_ns, decode.ns(size.bytes, size.pixels, 0)]
    });
    let batches =
        order.chunks(BATCH as usize).flat_map(|batch| [config.copy.cost.ns(batch.len() as u64 * SLOT_BYTES, 0, 0), STEP_NS]);
    samples.chain(batches).flat_map(u64::to_le_bytes).collect()
}

fn request(costs: &Path, resolved: &Resolved) -> String {
    serde_json::json!({
        "costs": costs,
        "samples": resolved.settings.samples,
        "batch": BATCH,
        "lanes": LANES,
        "ring": resolved.ring,
        "threads": THREADS,
        "permits": resolved.device_batches,
        "copies": resolved.settings.copies,
        "link": LINK_BYTES_PER_S,
        "connection": CONNECTION_BYTES_PER_S,
    })
    .to_string()
}

struct Answer {
    totals: Totals,
    wall_s: f64,
    cpu_s: f64,
    version: String,
}

fn ask(python: &Path, request: &str) -> Result<Answer, Box<dyn Error>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/simpy/model.py");
    let mut child = Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no standard input")?.write_all(request.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("{} ended with {}", python.display(), output.status).into());
    }
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let whole = |key: &str| answer[key].as_u64().ok_or(format!("no {key} in {answer}"));
    let real = |key: &str| answer[key].as_f64().ok_or(format!("no {key} in {answer}"));
    Ok(Answer {
        totals: Totals { end_ns: whole("end_ns")?, batches: whole("batches")?, taken_ns: whole("taken_ns")? },
        wall_s: real("wall_s")?,
        cpu_s: real("cpu_s")?,
        version: answer["version"].as_str().unwrap_or_default().to_owned(),
    })
}

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn median(times: &[(f64, f64)], of: impl Fn(&(f64, f64)) -> f64) -> f64 {
    let mut values: Vec<f64> = times.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
