//! What no setting can exceed: upper limits of a point's figures, by the operational laws, before it is simulated.
//!
//! The [bounds of a report](crate::report::bounds) are made of a run's own means, so they come too late. Here the work of every sample is
//! known beforehand: it is a pure function of the seed, so one simulation on an *ideal* machine, on which nothing waits for anything,
//! tells the least time that each leaf of every other simulation of the same samples can take. Let W be the sum of such times on a
//! resource, and C the most of them that a point lets pass at once. No schedule whatever does the work in less than W / C. From the
//! first batch on, what is left to do is at least W less the work that can have been done until then, which ring, device batches and
//! lanes have room for; of what lies there nothing is assumed but that it is the largest.
//!
//! | resource | the most at once |
//! | --- | --- |
//! | cores | k threads at the speed that a core has beside k − 1 busy ones, at the best k |
//! | threads | as many leaves of the pool as it has threads |
//! | lanes | a sample in each |
//! | store | its connections, its bytes and requests per second |
//! | consumer | one step after the other |
//!
//! With faults, deadlines or a consumer that leaves early the work is not the same in every schedule, and there are no ceilings.

use crate::{
    machine::Item,
    model::{MachineModel, Measured, Reader},
    scenario::{OnErrors, Samples, Scenario, SimulateError},
    trace::{Event, Kind, Recorder, StageId},
    units::{Count, Duration},
};

use super::{Figure, Settings};

/// Sums of the largest times of samples on a resource, or of their bytes: entry k is that of the k largest.
#[derive(Clone, Debug)]
struct Work(Vec<f64>);

impl Work {
    fn new(mut each: Vec<f64>) -> Work {
        each.sort_by(|a, b| b.total_cmp(a));
        let mut sum = 0.0;
        let sums = each.into_iter().map(|x| {
            sum += x;
            sum
        });
        Work(std::iter::once(0.0).chain(sums).collect())
    }

    /// What is left when any `done` samples are done, at least.
    fn left(&self, done: u64) -> f64 {
        let largest = usize::try_from(done).unwrap_or(usize::MAX).min(self.0.len() - 1);
        (self.0[self.0.len() - 1] - self.0[largest]).max(0.0)
    }
}

/// The limits of all points with a number of ranks. See the [module documentation](self).
#[derive(Clone, Debug)]
pub(super) struct Ceiling {
    ranks: u64,
    barrier: bool,
    batch: u64,
    held: u64,
    samples: f64,
    /// Batches of each rank.
    batches: f64,
    step_s: f64,
    /// How much longer a step of a busy machine takes at most.
    step_slowed: f64,
    /// Speed of all cores together when at most so many threads compute, from 0 threads on.
    speed: Vec<f64>,
    /// Speed of a core at its best.
    fastest: f64,
    reads_on_pool: bool,
    decode: Work,
    compute: Work,
    pool: Work,
    lanes: Work,
    fetch: Work,
    bytes: Work,
    connections: Option<f64>,
    fetch_limit: Option<f64>,
    decode_limit: Option<f64>,
    bytes_per_s: Option<f64>,
}

impl Ceiling {
    /// The limits for `scenario`, as many ranks as it has; `None` where there are none.
    ///
    /// # Errors
    ///
    /// When the scenario cannot be simulated.
    pub(super) fn of(scenario: &Scenario, machine: &MachineModel, samples: &Samples) -> Result<Option<Ceiling>, SimulateError> {
        let loader = &scenario.loader;
        let store = scenario.store_on(machine)?;
        // A store that refuses reads makes a loader that may skip samples skip some.
        let skips = store.requests.is_some() && loader.errors == OnErrors::Skip;
        let same_work = !skips
            && scenario.faults.is_empty()
            && loader.fetch_deadline.is_none()
            && loader.decode_deadline.is_none()
            && scenario.ranks.nodes() == 1
            && scenario.consumer.leave_after.is_none();
        if !same_work {
            return Ok(None);
        }
        let mut roomy = scenario.clone();
        roomy.loader.threads = Some(64);
        roomy.loader.lanes = Some(64);
        roomy.loader.budget = super::enough();
        (roomy.loader.ring, roomy.loader.fetch_limit, roomy.loader.decode_limit) = (None, None, None);
        roomy.store = crate::scenario::Store::plain(&roomy.store.kind);
        let ideal = ideal(machine, &scenario.store.kind, &store);
        let waiting = leaves(&roomy, &ideal, samples)?;
        let mut instant = ideal.clone();
        let there = instant.stores.get_mut(&scenario.store.kind).expect("`ideal` has put it there");
        (there.first_byte, there.per_connection, there.rotation) = (None, None, None);
        let computing = leaves(&roomy, &instant, samples)?;
        let (Some(waiting), Some(computing)) = (waiting, computing) else { return Ok(None) };
        let ranks = u64::from(scenario.ranks.count);
        // Ranks with batches of different numbers end at different times, and then a figure of all says little about each.
        if waiting.batches % ranks != 0 || waiting.fetch.len() != computing.fetch.len() {
            return Ok(None);
        }
        let sums = |a: &[f64], b: &[f64]| Work::new(a.iter().zip(b).map(|(a, b)| a + b).collect());
        // Reads that the page cache answers take nothing of the disk.
        let spared = store.cached.is_some();
        let reads_on_pool = store.reader == Reader::Pool;
        Ok(Some(Ceiling {
            ranks,
            barrier: scenario.ranks.barrier,
            batch: loader.batch,
            held: scenario.consumer.hold,
            samples: waiting.fetch.len() as f64,
            batches: (waiting.batches / ranks) as f64,
            step_s: scenario.consumer.step.as_secs_f64(),
            step_slowed: machine.device.slowed.iter().map(|s| s.by.base()).fold(0.0, f64::max),
            speed: speed(machine),
            fastest: machine.cpu.speed.iter().map(|s| s.each.base()).fold(1.0, f64::max) * (1.0 + 2e-6),
            reads_on_pool,
            compute: sums(&computing.fetch, &computing.decode),
            pool: if reads_on_pool { sums(&waiting.fetch, &waiting.decode) } else { Work::new(waiting.decode.clone()) },
            lanes: sums(&waiting.fetch, &waiting.decode),
            fetch: Work::new(waiting.fetch),
            decode: Work::new(waiting.decode),
            bytes: Work::new(waiting.bytes),
            connections: store.connections.as_ref().filter(|_| !spared).map(|n| n.value.0 as f64),
            fetch_limit: loader.fetch_limit.map(|n| (n * ranks) as f64),
            decode_limit: loader.decode_limit.map(|n| (n * ranks) as f64),
            bytes_per_s: store.bandwidth.as_ref().filter(|_| !spared).map(|rate| rate.value.as_bytes_per_s().max(1) as f64),
        }))
    }

    /// The least time in which a point does all work but that of `done` samples \[s\].
    fn least_s(&self, at: &Settings, done: u64) -> f64 {
        let threads = usize::try_from(at.threads).unwrap_or(usize::MAX);
        let speed = |threads: usize| self.speed[threads.min(self.speed.len() - 1)];
        let computing = if self.reads_on_pool { speed(threads) } else { speed(usize::MAX) };
        let lanes = (at.lanes * self.ranks) as f64;
        let mut limits = vec![
            (&self.compute, computing),
            (&self.decode, speed(threads)),
            (&self.pool, at.threads as f64 * self.fastest),
            (&self.lanes, lanes * self.fastest),
        ];
        limits.extend([self.connections, self.fetch_limit].into_iter().flatten().map(|n| (&self.fetch, n * self.fastest)));
        limits.extend(self.decode_limit.map(|n| (&self.decode, n * self.fastest)));
        limits.extend(self.bytes_per_s.map(|n| (&self.bytes, n)));
        limits.into_iter().map(|(work, at_once)| work.left(done) / at_once).fold(0.0, f64::max)
    }

    /// Samples that may have been worked on when every rank has taken its first batch and no rank its third.
    fn in_store(&self, at: &Settings) -> u64 {
        let batches = 1 + at.prefetch + self.held;
        self.ranks.saturating_mul(batches.saturating_mul(self.batch).saturating_add(at.ring).saturating_add(at.lanes))
    }

    /// The most that `figure` can be at a point; `None` where nothing limits it but its kind. `whole` says whether the figure is of a
    /// whole run, as opposed to [one that was cut](Figure::of).
    pub(super) fn of_figure(&self, figure: Figure, at: &Settings, whole: bool) -> Option<f64> {
        let steps_s = (self.batches - 1.0) * self.step_s;
        let first_batches = (self.ranks * self.batch) as f64;
        // Between the first barrier and the last, when one batch of each rank is still to come.
        let steady_s = match (self.ranks, self.barrier) {
            (1, _) => self.least_s(at, self.in_store(at)),
            (_, true) => self.least_s(at, self.in_store(at).saturating_add(self.ranks * self.batch)),
            (_, false) => 0.0,
        };
        match figure {
            Figure::AcceleratorUtilization if self.step_s > 0.0 => {
                Some((steps_s * (1.0 + self.step_slowed) / (self.step_s + steady_s)).min(1.0))
            }
            Figure::Throughput => {
                let (samples, least_s) = match whole {
                    true => (self.samples, self.least_s(at, 0).max(self.batches * self.step_s)),
                    false => (self.samples - first_batches, steady_s.max(steps_s)),
                };
                (least_s > 0.0).then(|| samples / least_s)
            }
            _ => None,
        }
    }
}

/// Speed of all cores together with at most so many threads computing, from 0 on: the best number of them counts.
fn speed(machine: &MachineModel) -> Vec<f64> {
    let cores = machine.cpu.threads.value.0.max(1);
    let each: Vec<f64> = (1..=cores).map(|busy| machine.cpu.speed_at(busy)).collect();
    // Others may be busy beside these: then each has the speed of more busy ones, should that be higher.
    let mut best_each = each.clone();
    for at in (0..best_each.len().saturating_sub(1)).rev() {
        best_each[at] = best_each[at].max(best_each[at + 1]);
    }
    let mut best = 0.0f64;
    let together = best_each.iter().enumerate().map(|(at, each)| {
        best = best.max((at + 1) as f64 * each);
        // The simulator rounds speeds to millionths.
        best * (1.0 + 2e-6) + 1e-6
    });
    std::iter::once(0.0).chain(together).collect()
}

/// The machine without anything to wait for but a read's own bytes and a job's own work.
fn ideal(machine: &MachineModel, kind: &str, store: &crate::model::Store) -> MachineModel {
    let mut ideal = machine.clone();
    ideal.cpu.threads = Measured::plain(Count(4096));
    ideal.cpu.speed.clear();
    (ideal.cpu.cores, ideal.cpu.smt_speed) = (None, None);
    ideal.device.slowed.clear();
    ideal.cpu.wake_up = Measured::plain(Duration::new(0.0, "ns"));
    (ideal.memory, ideal.lock) = (None, None);
    let (connections, requests, bandwidth, iops) = (None, None, None, None);
    ideal.stores.insert(kind.to_owned(), crate::model::Store { connections, requests, bandwidth, iops, ..store.clone() });
    ideal
}

/// Times of the leaves of a run, by sample and epoch \[s\].
struct Leaves {
    fetch: Vec<f64>,
    decode: Vec<f64>,
    bytes: Vec<f64>,
    batches: u64,
}

/// What the leaves take in a simulation; `None` when it did not come to its end, or not every sample was read and decoded once.
fn leaves(scenario: &Scenario, machine: &MachineModel, samples: &Samples) -> Result<Option<Leaves>, SimulateError> {
    let simulated = scenario.simulate(machine, samples, Recorder::new().keep_events())?;
    let name = |e: &Event| Item { epoch: e.epoch, sample: e.sample, position: 0 };
    let of = |stage: StageId| {
        let ends = simulated.recorder.events().iter().filter(|e| e.kind == Kind::End && e.stage == stage);
        let mut all: Vec<_> =
            ends.map(|e| ((name(e).epoch, name(e).sample), e.time.since(e.since) as f64 / 1e9, e.bytes)).collect();
        all.sort_by_key(|(name, _, _)| *name);
        all
    };
    let (fetch, decode) = (of(StageId::FETCH), of(StageId::DECODE));
    let metrics = &simulated.metrics;
    let once = simulated.error.is_none()
        && fetch.len() == decode.len()
        && fetch.iter().zip(&decode).all(|(f, d)| f.0 == d.0)
        && metrics.delivered == fetch.len() as u64
        && metrics.skipped == Some(0);
    Ok(once.then(|| Leaves {
        bytes: fetch.iter().map(|(_, _, bytes)| *bytes as f64).collect(),
        fetch: fetch.into_iter().map(|(_, s, _)| s).collect(),
        decode: decode.into_iter().map(|(_, s, _)| s).collect(),
        batches: metrics.batches,
    }))
}

#[cfg(test)]
mod tests;
