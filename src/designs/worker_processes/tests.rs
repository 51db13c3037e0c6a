use super::*;
use crate::{
    failure::FailureKind,
    fault::{Faults, Hits},
    loader::Settings,
    sim::{self, Chooser, Config, Costs, CpuSpec, Dataset, Distribution, Size},
    trace::Recorder,
};

const MS: u64 = 1_000_000;

/// Workers that pay so much (ms) to start, to send a batch and to receive it.
fn workers(workers: u32, prefetch_factor: u32, [start, send, receive]: [u64; 3]) -> WorkerProcesses {
    WorkerProcesses {
        workers,
        prefetch_factor,
        process: ProcessSpec { start_ns: start * MS, boot_ns: 0 },
        send: Cost::fixed(send * MS),
        receive: Cost::fixed(receive * MS),
        latency_ns: 0,
    }
}

/// A machine that decodes a sample in 1 ms, with room on its cores for everybody.
fn machine(samples: u64) -> Config {
    Config {
        cpu: CpuSpec { cores: 16, speed_ppm: Vec::new() },
        costs: Costs::new().with("decode", Cost::fixed(MS)),
        dataset: Dataset::uniform(samples, Size { bytes: 100, pixels: 100 }),
        lends_slots: true,
        ..Config::default()
    }
}

/// Batches of four.
fn settings(samples: u64) -> Settings {
    Settings::new(samples, 4, 10)
}

struct Seen {
    batches: Vec<Batch>,
    error: Option<Error>,
    outcome: Outcome,
    recorder: Recorder,
    cpu_ns: u64,
}

impl Seen {
    /// When each batch was taken (ms).
    fn taken_ms(&self) -> Vec<u64> {
        self.batches.iter().map(|batch| batch.taken.0 / MS).collect()
    }

    fn positions(&self) -> Vec<u64> {
        self.batches.iter().flat_map(|batch| batch.items.iter().map(|item| item.position)).collect()
    }
}

/// Takes all batches, with a step of so long after each.
fn all(config: Config, settings: Settings, spec: WorkerProcesses, step_ms: u64) -> Seen {
    let resolved = settings.resolve().unwrap();
    let outcome = sim::run(config, Recorder::new().keep_events(), move |m| async move {
        let mut loader = DataLoader::new(&m, &resolved, spec);
        let (mut batches, mut error) = (Vec::new(), None);
        while let Some(batch) = loader.next().await {
            match batch {
                Ok(batch) => {
                    m.step(std::time::Duration::from_millis(step_ms)).await;
                    loader.give_back(batch.clone());
                    batches.push(batch);
                }
                Err(e) => error = Some(e),
            }
        }
        (batches, error, loader.close().await)
    })
    .unwrap();
    assert_eq!((outcome.left.tasks, outcome.left.leaves, outcome.left.runnable), (0, 0, 0));
    let (batches, error, books) = outcome.value;
    assert!(books.accounts.balanced(), "{}", books.accounts);
    Seen { batches, error, outcome: books, recorder: outcome.recorder, cpu_ns: outcome.cpu_ns }
}

#[test]
fn workers_start_first_and_then_make_batches_side_by_side() {
    // Two starts of 10 ms; a batch takes 4 + 2 ms, and the main process 1 ms more for each.
    let seen = all(machine(24), settings(24), workers(2, 2, [10, 2, 1]), 0);
    // Both are done at once. Whichever is received first, the second of a pair comes 2 ms after that.
    assert_eq!(seen.taken_ms()[1..].iter().step_by(2).collect::<Vec<_>>(), [&28, &34, &40]);
    assert_eq!(seen.positions(), (0..24).collect::<Vec<u64>>());
    assert_eq!(seen.cpu_ns, (2 * 10 + 24 + 6 * (2 + 1)) * MS);
    let summary = seen.recorder.summary();
    assert_eq!((summary.loader().delivered(), summary.loader().sealed(), summary.loader().returned()), (24, 6, 6));
    assert_eq!(seen.outcome.end, End::Finished);
    // Six batches of 40 bytes: two being made and at most two more that have come.
    assert!((80..=160).contains(&seen.outcome.memory.peak_reserved_bytes), "{:?}", seen.outcome.memory);
    assert_eq!(summary.peak_reserved_bytes(), seen.outcome.memory.peak_reserved_bytes);
}

#[test]
fn what_the_main_process_pays_bounds_any_number_of_workers() {
    // 10 ms a batch in the main process: the first comes after 8 x 1 + 4 + 10 ms.
    let seen = all(machine(64), settings(64), workers(8, 2, [1, 0, 10]), 0);
    assert_eq!(seen.taken_ms()[15], 22 + 15 * 10);
    // It receives when it is asked, so a step of 5 ms comes on top of it.
    let seen = all(machine(64), settings(64), workers(8, 2, [1, 0, 10]), 5);
    assert_eq!(seen.taken_ms()[15], 22 + 15 * (10 + 5));
}

#[test]
fn a_worker_with_one_batch_outstanding_waits_for_the_main_process() {
    let seen = all(machine(16), settings(16), workers(1, 1, [0, 0, 3]), 0);
    assert_eq!(seen.taken_ms(), [7, 14, 21, 28]);
    let seen = all(machine(16), settings(16), workers(1, 2, [0, 0, 3]), 0);
    assert_eq!(seen.taken_ms(), [7, 11, 15, 19]);
}

#[test]
fn without_workers_the_main_process_makes_batches_when_it_is_asked() {
    let seen = all(machine(8), settings(8), workers(0, 2, [10, 10, 10]), 5);
    assert_eq!(seen.taken_ms(), [4, 13]);
}

#[test]
fn workers_share_the_cores_with_the_main_process() {
    // Three on one core: 12 samples of 1 ms and 3 x 2 ms, whatever the order.
    let config = Config { cpu: CpuSpec { cores: 1, speed_ppm: Vec::new() }, ..machine(12) };
    let seen = all(config, settings(12), workers(3, 2, [0, 1, 1]), 0);
    // But for rates that are rounded to a millionth.
    let taken = seen.batches[2].taken.0;
    assert!(taken.abs_diff(18 * MS) < 100 && seen.cpu_ns.abs_diff(18 * MS) < 100, "{taken} ns, {} ns", seen.cpu_ns);
}

#[test]
fn a_slow_first_batch_holds_up_those_behind_it() {
    // The read of the first sample is 40 ms late, and the other worker has two batches outstanding: the fourth is not begun before the
    // first is there.
    let mut config = machine(24);
    config.store.first_byte_ns = Distribution::Constant(4 * MS);
    config.faults = Faults { slow_reads: Hits::samples(vec![0]), slow_times: 10, ..Faults::default() };
    let seen = all(config, settings(24), workers(2, 2, [0, 0, 0]), 0);
    // A batch takes 4 x (4 + 1) ms, the first 36 more.
    assert_eq!(seen.taken_ms(), [56, 56, 76, 76, 96, 96]);
    assert_eq!(seen.positions(), (0..24).collect::<Vec<u64>>());
}

#[test]
fn each_sample_comes_once_and_in_order_whatever_the_timing() {
    for seed in 0..20 {
        let decode = Cost { residual_ppm: Distribution::Exponential { mean: MS }, ..Cost::fixed(MS) };
        let config = Config {
            seed,
            chooser: Chooser::Random(seed),
            costs: Costs::new().with("decode", decode),
            cpu: CpuSpec { cores: 3, speed_ppm: Vec::new() },
            ..machine(103)
        };
        let shuffled = Settings { shuffle: Some(seed), epochs: 2, ..settings(103) };
        let seen = all(config, shuffled, workers(seed as u32 % 5, 1 + seed as u32 % 3, [1, 1, 1]), 1);
        assert_eq!(seen.positions(), (0..103).chain(0..103).collect::<Vec<u64>>());
        assert_eq!(seen.batches.len(), 52);
        let of = |epoch| {
            let batches = seen.batches.iter().filter(|batch| batch.epoch == epoch);
            let mut samples: Vec<u64> = batches.flat_map(|batch| &batch.items).map(|item| item.sample).collect();
            samples.sort_unstable();
            samples
        };
        assert_eq!((of(0), of(1)), ((0..103).collect(), (0..103).collect()));
    }
}

#[test]
fn a_last_batch_that_is_not_full_is_left_out_if_it_is_to_be() {
    let seen = all(machine(10), Settings { drop_last: true, epochs: 2, ..settings(10) }, workers(2, 2, [0, 0, 0]), 0);
    assert_eq!((seen.batches.len(), seen.outcome.accounts.dropped, seen.outcome.accounts.planned), (4, 4, 20));
    let seen = all(machine(10), settings(10), workers(2, 2, [0, 0, 0]), 0);
    assert_eq!(seen.batches.iter().map(|batch| batch.items.len()).collect::<Vec<_>>(), [4, 4, 2]);
}

#[test]
fn a_sample_that_fails_ends_it_in_its_place() {
    let config = Config { faults: Faults { undecodable: Hits::samples(vec![9]), ..Faults::default() }, ..machine(32) };
    for number in [0, 1, 4] {
        let seen = all(config.clone(), settings(32), workers(number, 2, [0, 1, 1]), 0);
        assert_eq!(seen.positions(), (0..8).collect::<Vec<u64>>());
        let Some(Error::Sample { item, failure }) = seen.error else { panic!("{:?}", seen.error) };
        assert_eq!((item.sample, failure.kind), (9, FailureKind::Corrupt));
        assert_eq!((seen.outcome.accounts.delivered, seen.outcome.accounts.skipped), (8, 1));
        assert!(matches!(seen.outcome.end, End::Failed(_)));
    }
}

#[test]
fn batches_are_copied_to_a_device_that_cannot_read_them_where_they_are() {
    let mut config = Config { lends_slots: false, ..machine(8) };
    config.copy.cost = Cost::fixed(3 * MS);
    let seen = all(config, settings(8), workers(1, 2, [0, 0, 1]), 0);
    assert_eq!(seen.taken_ms(), [8, 12]);
}
