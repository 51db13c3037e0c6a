//! The whole loader as a queue whose behaviour is known exactly.

use std::{collections::BTreeMap, time::Duration};

use towtank::{
    draw::{Purpose, draw, unit},
    failure::Failure,
    loader::{Allowance, Fill, OnError, Order, Settings, Stage, stage, stage::Context},
    machine::{Item, Machine, Tags, Work},
    sim::{Chooser, Config, Cost, Costs, CpuSpec, Dataset, Distribution, Simulation, Size, StoreSpec},
    trace::{Event, Kind, Recorder, StageId},
};

use crate::scenario::load;

/// Serves a sample for so long, given its draw.
#[derive(Clone, Copy)]
struct Serve {
    mean_ns: u64,
    exponential: bool,
}

impl Serve {
    fn time(self, seed: u64, what: u32, sample: u64) -> Duration {
        let u = unit(draw(seed, Purpose(Purpose::CUSTOM.0 + what), sample, 0).word(0));
        let factor = if self.exponential { -(1.0 - u).ln() } else { 1.0 };
        Duration::from_nanos((self.mean_ns as f64 * factor).round() as u64)
    }
}

impl<M: Machine> Stage<M, ()> for Serve {
    type Out = ();

    async fn run(&self, cx: &Context<'_, M>, (): ()) -> Result<(), Failure> {
        cx.machine().sleep(self.time(cx.machine().seed(), 1, cx.item().sample)).await;
        Ok(())
    }
}

struct Nothing;

impl Fill<Tags, ()> for Nothing {
    fn work(&self, _: Item, (): &()) -> Work {
        Work { kind: "nothing", bytes: 0, pixels: 0 }
    }
    fn fill(&self, item: Item, (): (), out: &mut [u64]) -> Result<(), Failure> {
        out.fill(item.sample);
        Ok(())
    }
}

/// `workers` lanes, one consumer, `credits` slots, batches of one. Returns when the consumer got each batch \[ns\].
fn tandem(seed: u64, samples: u64, workers: usize, credits: usize, worker: Serve, consumer: Serve) -> Vec<u64> {
    let settings = Settings {
        order: Order::Completion,
        lanes: workers,
        ring: Some(credits),
        prefetch: credits - 1,
        held: 1,
        ..Settings::new(samples, 1, 8)
    };
    let config = Config { seed, lends_slots: true, pool_threads: 64, ..Config::default() };
    let run = Simulation::<Tags>::new(config).run(|machine| {
        load(machine, settings, worker, Nothing, move |machine, mut batches| async move {
            let mut times = Vec::new();
            while let Some(batch) = batches.recv().await {
                let batch = batch.expect("nothing fails");
                assert!(batch.is_lent());
                times.push(machine.now().0);
                machine.sleep(consumer.time(seed, 2, batch.index())).await;
            }
            times.push(machine.now().0);
            (times, batches.closed().await)
        })
    });
    run.unwrap_or_else(|stall| panic!("{stall}")).value.0
}

#[test]
fn exponential_workers_one_consumer_and_credits_are_the_birth_death_chain() {
    // Birth min(c, K - n) mu1, death mu2 in n, the finished samples that still have their credit: c = 4, mu1 = 1, mu2 = 4.
    for (credits, exact) in [(4, 2.757282), (8, 3.445887), (16, 3.737166)] {
        let (worker, consumer) = (1_000_000_000, 250_000_000);
        let exponential = |mean_ns| Serve { mean_ns, exponential: true };
        let rates: Vec<f64> = (0..30)
            .map(|seed| {
                let times = tandem(seed, 6_000, 4, credits, exponential(worker), exponential(consumer));
                let warm = 500;
                (times.len() - 1 - warm) as f64 / ((times[times.len() - 1] - times[warm]) as f64 / 1e9)
            })
            .collect();
        let mean = rates.iter().sum::<f64>() / 30.0;
        let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / 29.0;
        let error = (variance / 30.0).sqrt();
        assert!((mean - exact).abs() < 3.0 * error, "K = {credits}: {mean} instead of {exact}, standard error {error}");
        assert!(error < 0.01 * exact, "{error}");
    }
}

#[test]
fn deterministic_service_is_exact_to_the_nanosecond() {
    let fixed = |mean_ns| Serve { mean_ns, exponential: false };
    // The consumer is the bottleneck: it never waits after the first sample.
    let times = tandem(1, 1_000, 4, 8, fixed(3_999), fixed(1_001));
    assert_eq!(times.iter().enumerate().map(|(k, _)| 3_999 + k as u64 * 1_001).collect::<Vec<_>>(), times);
    // The workers are: four samples come at a time, and the consumer is through with them before the next four.
    let times = tandem(1, 1_000, 4, 8, fixed(4_001), fixed(1_000));
    let expected = (0..1_000).map(|k| (k / 4 + 1) * 4_001 + (k % 4) * 1_000).chain([250 * 4_001 + 4_000]);
    assert_eq!(times, expected.collect::<Vec<u64>>());
}

/// Fails when somebody waited for bytes who was first in line and fitted, or was the oldest launch of all.
fn check_work_is_conserved(events: &[Event], ledger_bytes: u64, sample_bytes: u64) {
    struct Launch {
        asked: u64,
        reserved: u64,
        bytes: u64,
        resolved: u64,
    }
    let mut launches: BTreeMap<usize, Launch> = BTreeMap::new();
    let mut number = BTreeMap::new();
    let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
    for event in events {
        let key = (event.epoch, event.sample);
        let at = *changes.entry(event.time.0).or_default();
        match event.kind {
            Kind::Launch => {
                number.insert(key, number.len());
            }
            Kind::Reserve => {
                let launch = Launch { asked: event.since.0, reserved: event.time.0, bytes: event.bytes, resolved: u64::MAX };
                launches.insert(number[&key], launch);
                changes.insert(event.time.0, at + event.bytes as i64);
            }
            Kind::Refund => {
                changes.insert(event.time.0, at - event.bytes as i64);
            }
            Kind::Filled | Kind::Skipped if event.stage == StageId::BATCH => {
                launches.get_mut(&number[&key]).expect("it was let in").resolved = event.time.0;
            }
            _ => {}
        }
    }
    let (mut used, mut waits) = (0, 0);
    for (time, change) in changes {
        used += change;
        assert!((0..=ledger_bytes as i64).contains(&used), "{used} bytes");
        // As it stands when this instant is over.
        let open = launches.iter().filter(|(_, l)| l.asked <= time && l.resolved > time);
        let Some((oldest, _)) = open.clone().next() else { continue };
        let Some((first, launch)) = open.clone().find(|(_, l)| l.reserved > time) else { continue };
        waits += 1;
        assert_ne!(first, oldest, "at {time} the oldest launch waits");
        let general = (ledger_bytes - sample_bytes) as i64;
        assert!(
            used + launch.bytes as i64 > general,
            "at {time} launch {first} waits for {} bytes, {used} are used",
            launch.bytes
        );
    }
    assert!(waits > 20, "the budget was never short");
}

#[test]
fn no_sample_that_fits_is_left_waiting() {
    for seed in 0..40 {
        let sizes: Vec<Size> = (0..300)
            .map(|sample| Size { bytes: 10 + draw(seed, Purpose(Purpose::CUSTOM.0), sample, 0).word(0) % 91, pixels: 0 })
            .collect();
        let settings = Settings {
            order: if seed % 2 == 0 { Order::Plan } else { Order::Completion },
            on_error: OnError::Skip { at_most: Allowance::ANY },
            sample_bytes: 100,
            budget_bytes: (40 + 3 * 8) * 8 + 350,
            ring: Some(40),
            lanes: 24,
            ..Settings::new(300, 8, 8)
        };
        let config = Config {
            seed,
            chooser: Chooser::Random(seed),
            cpu: CpuSpec { cores: 2, speed_ppm: Vec::new() },
            pool_threads: 2,
            costs: Costs::all(Cost::exponential(1_000_000)),
            store: StoreSpec { first_byte_ns: Distribution::Exponential { mean: 3_000_000 }, ..StoreSpec::default() },
            dataset: Dataset::Listed(sizes.into()),
            ..Config::default()
        };
        let resolved = settings.clone().resolve().expect("settings");
        assert_eq!(resolved.ledger_bytes, 350);
        let fetch = stage::fetch(&settings);
        let run = Simulation::<Tags>::new(config).recorder(Recorder::new().keep_events()).run(|machine| {
            load(machine, settings, fetch, stage::Tag, |_, mut batches| async move {
                while let Some(batch) = batches.recv().await {
                    batch.expect("nothing fails");
                }
                ((), batches.closed().await)
            })
        });
        let run = run.unwrap_or_else(|stall| panic!("{stall}"));
        assert_eq!(run.value.1.accounts.delivered, 300);
        check_work_is_conserved(run.recorder.events(), 350, 100);
    }
}
