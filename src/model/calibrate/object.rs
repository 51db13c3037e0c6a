//! What an object store gives this computer: how long it takes to begin, what a connection gets, and what many get together.
//!
//! Objects are read whole, in an order of their own, by 1, 2, 4, … connections at a time, each series for a part of the time allowed. The
//! first read of every connection opens it and does not count.
//!
//! | number | how it is found |
//! | --- | --- |
//! | `first_byte` | from the request to the first piece of its answer, one read at a time |
//! | `per_connection` | bytes after the first piece over the time they took, one read at a time |
//! | `bandwidth` | the most that connections got together: how many they were, times the bytes of their reads over the time of these, since each reads all the time |
//! | `cost` | CPU time of this process, reading beginnings and reading whole objects |

use std::{
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{duration, fraction, median, rounded};
use crate::{
    draw::{Purpose, draw},
    failure::{Failure, FailureKind},
    machine::real::usage,
    model::{Cost, Latency, Measured, QuantilePoint, Reader, Store, fit::quantiles_of},
    source::{Remote, Source},
    units::{ByteCost, ByteRate, Count},
};

/// How long to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreEffort {
    /// All series together; a store that is slower than this to answer a few times takes longer.
    pub time: Duration,
    /// The most connections tried.
    pub connections: usize,
}

impl StoreEffort {
    /// Less than five seconds.
    pub const QUICK: StoreEffort = StoreEffort { time: Duration::from_millis(3600), connections: 32 };
    /// Less than a minute.
    pub const THOROUGH: StoreEffort = StoreEffort { time: Duration::from_secs(48), connections: 64 };
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct CalibratedStore {
    /// The store, as a section of a machine's model.
    pub store: Store,
    /// How good that is.
    pub quality: StoreQuality,
}

/// How good a calibration of a store is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoreQuality {
    /// Objects that were read whole.
    pub reads: usize,
    /// Reads that failed.
    pub failed: usize,
    /// Those of them that the store asked to come later.
    pub throttled: usize,
    /// From the request to the first byte, one read at a time: the median and its standard error \[ns\].
    pub first_byte_ns: Estimate,
    /// What one connection gets \[B/s\]; `None` where it could not be told from the latency.
    pub per_connection: Option<Estimate>,
    /// What connections get together, by how many they are.
    pub by_connections: Vec<AtOnce>,
    /// What the model leaves open, in whole sentences.
    pub remarks: Vec<String>,
}

/// A value and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// One standard error, in the same unit.
    pub standard_error: f64,
}

/// What so many connections get.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AtOnce {
    /// How many.
    pub connections: usize,
    /// All together \[B/s\].
    pub rate: Estimate,
    /// Median of the time to the first byte meanwhile \[ns\].
    pub first_byte_ns: f64,
}

/// Why a store could not be calibrated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Too many reads failed.
    #[error("{failed} of {reads} reads failed, the last with: {failure}")]
    Failed {
        /// How many failed.
        failed: usize,
        /// Of how many.
        reads: usize,
        /// The last one's.
        failure: Failure,
    },
    /// Nothing came in all the time.
    #[error("no object came within {0:?}")]
    Silent(Duration),
}

/// Points of the table of first bytes.
const QUANTILES: usize = 21;
/// Reads that a series must have, however long they take.
const LEAST: usize = 4;
/// How long a series may take for those.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a beginning, when the cost of a request is told from that of its bytes \[B\].
const BEGINNING: u64 = 1 << 10;
/// Connections that read when CPU time is measured.
const BUSY: usize = 8;
/// Growth of the rate from one number of connections to twice as many that still counts as growth.
const GROWTH: f64 = 1.1;
/// Part of all reads that may fail.
const FAILURES_MOST: f64 = 0.1;

/// Measures the store. `progress` is told the time passed and all time, in milliseconds.
///
/// # Errors
///
/// When too many reads fail, or none succeeds: see [`StoreError`].
#[expect(clippy::disallowed_methods, reason = "calibration is of the real machine")]
pub fn calibrate_store(
    remote: &Arc<Remote>,
    effort: StoreEffort,
    mut progress: impl FnMut(u64, u64),
) -> Result<CalibratedStore, StoreError> {
    let counts: Vec<usize> = std::iter::successors(Some(2), |n| Some(n * 2)).take_while(|n| *n <= effort.connections).collect();
    let whole = effort.time;
    let (alone_for, busy_for) = (whole.mul_f64(0.3), whole.mul_f64(0.05));
    let each_for = whole.mul_f64(0.6) / u32::try_from(counts.len().max(1)).unwrap_or(1);
    let began = Instant::now();
    let mut tick = || progress((began.elapsed().as_millis() as u64).min(whole.as_millis() as u64), whole.as_millis() as u64);
    let mut all = Tally::default();

    let alone = series(remote, 1, None, alone_for, &mut tick)?;
    all.add(&alone)?;
    let per_connection = flow(&alone.reads);
    let firsts = |reads: &[Read]| -> Vec<f64> { reads.iter().map(|read| read.first_ns).collect() };
    let mut by_connections = vec![AtOnce { connections: 1, rate: alone.rate(), first_byte_ns: median(firsts(&alone.reads)) }];
    let mut best_cores = alone.cores();
    for connections in counts {
        let many = series(remote, connections, None, each_for, &mut tick)?;
        all.add(&many)?;
        let rate = many.rate();
        if by_connections.iter().all(|known| known.rate.value < rate.value) {
            best_cores = many.cores();
        }
        by_connections.push(AtOnce { connections, rate, first_byte_ns: median(firsts(&many.reads)) });
        // Twice without growth: more would not bring more, and be a burden to others.
        if let [.., before, _, last] = &by_connections[..]
            && last.rate.value < before.rate.value * GROWTH
        {
            break;
        }
    }
    let beginnings = series(remote, BUSY, Some(BEGINNING), busy_for, &mut tick)?;
    let wholes = series(remote, BUSY, None, busy_for, &mut tick)?;
    all.add(&wholes)?;
    tick();

    let first_byte_ns = firsts(&alone.reads);
    let quality = StoreQuality {
        reads: all.reads,
        failed: all.failed,
        throttled: all.throttled,
        first_byte_ns: Estimate { value: median(first_byte_ns.clone()), standard_error: error_of_median(&first_byte_ns) },
        per_connection,
        remarks: remarks(&all, per_connection, &by_connections, best_cores),
        by_connections,
    };
    let store = store(remote, &quality, first_byte_ns, cost(&beginnings, &wholes));
    Ok(CalibratedStore { store, quality })
}

/// One read.
#[derive(Clone, Copy)]
struct Read {
    first_ns: f64,
    first_bytes: f64,
    whole_ns: f64,
    bytes: f64,
}

struct Series {
    connections: usize,
    reads: Vec<Read>,
    failures: Vec<Failure>,
    /// CPU time of the process meanwhile \[ns\], and all reads that it was used for, those that open connections too.
    cpu_ns: f64,
    done: usize,
    wall_s: f64,
}

impl Series {
    /// What all its connections got \[B/s\]. Each of them reads all the time, so all get what one read gets, times their number.
    fn rate(&self) -> Estimate {
        let reads: Vec<(f64, f64)> = self.reads.iter().map(|read| (read.bytes, read.whole_ns)).collect();
        let Estimate { value, standard_error } = ratio(&reads);
        let connections = self.connections as f64;
        Estimate { value: value * connections, standard_error: standard_error * connections }
    }

    /// Cores that the process kept busy meanwhile.
    fn cores(&self) -> f64 {
        self.cpu_ns / 1e9 / self.wall_s.max(1e-9)
    }

    /// Bytes and CPU time of a read, both means \[B\], \[ns\].
    fn mean_cost(&self) -> (f64, f64) {
        let bytes = self.reads.iter().map(|read| read.bytes).sum::<f64>() / self.reads.len().max(1) as f64;
        (bytes, self.cpu_ns / self.done.max(1) as f64)
    }
}

#[derive(Default)]
struct Tally {
    reads: usize,
    failed: usize,
    throttled: usize,
}

impl Tally {
    fn add(&mut self, series: &Series) -> Result<(), StoreError> {
        self.reads += series.done;
        self.failed += series.failures.len();
        self.throttled += series.failures.iter().filter(|failure| failure.kind == FailureKind::Throttled).count();
        match series.failures.last() {
            Some(failure) if self.failed as f64 > FAILURES_MOST * (self.reads + self.failed) as f64 => {
                Err(StoreError::Failed { failed: self.failed, reads: self.reads + self.failed, failure: failure.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// Reads on so many connections for `time`, and longer where that brings too little.
#[expect(clippy::disallowed_methods, reason = "calibration is of the real machine")]
fn series(
    remote: &Arc<Remote>,
    connections: usize,
    part: Option<u64>,
    time: Duration,
    tick: &mut impl FnMut(),
) -> Result<Series, StoreError> {
    let (give, get) = mpsc::channel();
    let next = Arc::new(AtomicU64::new(0));
    let (began, cpu) = (Instant::now(), usage::process_cpu_ns());
    let reader = || {
        let (remote, next, give) = (remote.clone(), next.clone(), give.clone());
        async move {
            let mut data = Vec::new();
            for nth in 0_u64.. {
                let drawn = draw(connections as u64, Purpose::SYNTH, next.fetch_add(1, Relaxed), part.unwrap_or(0)).word(0);
                let read = one(&remote, drawn % remote.len(), part, &mut data).await;
                // The other end is gone when the time is over.
                if give.send((nth > 0, read)).is_err() {
                    return;
                }
            }
        }
    };
    let io = remote.io().expect("a remote source has a runtime").clone();
    let tasks: Vec<_> = (0..connections).map(|_| io.spawn(reader())).collect();
    let mut series = Series { connections, reads: Vec::new(), failures: Vec::new(), cpu_ns: 0.0, done: 0, wall_s: 0.0 };
    loop {
        let elapsed = began.elapsed();
        let enough = series.reads.len() + series.failures.len() >= LEAST;
        if elapsed >= time && (enough || elapsed >= time + PATIENCE) {
            break;
        }
        match get.recv_timeout(Duration::from_millis(50)) {
            Ok((counts, Ok(read))) => {
                series.done += 1;
                if counts {
                    series.reads.push(read);
                }
            }
            Ok((_, Err(failure))) => series.failures.push(failure),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        tick();
    }
    series.wall_s = began.elapsed().as_secs_f64();
    series.cpu_ns = usage::process_cpu_ns().saturating_sub(cpu) as f64;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    match (series.reads.is_empty(), series.failures.last()) {
        (true, Some(failure)) => {
            let failed = series.failures.len();
            Err(StoreError::Failed { failed, reads: failed + series.done, failure: failure.clone() })
        }
        (true, None) => Err(StoreError::Silent(time + PATIENCE)),
        (false, _) => Ok(series),
    }
}

#[expect(clippy::disallowed_methods, reason = "calibration is of the real machine")]
async fn one(remote: &Remote, sample: u64, part: Option<u64>, data: &mut Vec<u8>) -> Result<Read, Failure> {
    let asked = Instant::now();
    let mut first = None;
    remote.fetch_watched(sample, part, data, &mut |bytes| first = Some((asked.elapsed(), bytes))).await?;
    let whole = asked.elapsed();
    let (first, first_bytes) = first.unwrap_or((whole, 0));
    Ok(Read {
        first_ns: first.as_nanos() as f64,
        first_bytes: first_bytes as f64,
        whole_ns: whole.as_nanos() as f64,
        bytes: data.len() as f64,
    })
}

/// What a connection gets once bytes flow \[B/s\]: a ratio of sums, so that long reads count for what they are. `None` where most of the
/// bytes come at once.
fn flow(reads: &[Read]) -> Option<Estimate> {
    let flows: Vec<(f64, f64)> =
        reads.iter().map(|read| (read.bytes - read.first_bytes, read.whole_ns - read.first_ns)).collect();
    let (bytes, time): (f64, f64) = flows.iter().fold((0.0, 0.0), |sum, flow| (sum.0 + flow.0, sum.1 + flow.1));
    let all: f64 = reads.iter().map(|read| read.bytes).sum();
    if reads.len() < 2 || bytes < all / 2.0 || time <= 0.0 {
        return None;
    }
    Some(ratio(&flows))
}

/// Bytes over time \[B/s\], of pairs of both \[B\], \[ns\]: a ratio of sums. Where there is one pair, nothing is sure.
fn ratio(pairs: &[(f64, f64)]) -> Estimate {
    let (bytes, time): (f64, f64) = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    let (value, n) = (bytes / time.max(1.0), pairs.len() as f64);
    let scatter: f64 = pairs.iter().map(|(bytes, time)| (bytes - value * time).powi(2)).sum();
    let error = if pairs.len() < 2 { value } else { (scatter / (n * (n - 1.0))).sqrt() / (time / n).max(1.0) };
    Estimate { value: value * 1e9, standard_error: error * 1e9 }
}

/// One standard error of a median, from the ranks around it.
fn error_of_median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let at = |rank: f64| sorted[(rank.round().max(0.0) as usize).min(sorted.len() - 1)];
    match sorted.len() {
        0 => 0.0,
        _ => (at((n - 1.0) / 2.0 + n.sqrt() / 2.0) - at((n - 1.0) / 2.0 - n.sqrt() / 2.0)) / 2.0,
    }
}

/// CPU time of a read, from beginnings and whole objects.
fn cost(beginnings: &Series, wholes: &Series) -> Cost {
    let ((small, small_ns), (large, large_ns)) = (beginnings.mean_cost(), wholes.mean_cost());
    let apart = large > 4.0 * small;
    let per_byte = if apart { ((large_ns - small_ns) / (large - small)).max(0.0) } else { 0.0 };
    let (base, base_ns) = if apart { (small, small_ns) } else { (large, large_ns) };
    let fixed = (base_ns - per_byte * base).max(0.0);
    Cost {
        fixed: Some(Measured::new(duration(fixed), "CPU time of the process, reading beginnings of objects", fraction(0.3))),
        per_byte: Some(Measured::new(
            ByteCost::of_base(rounded(per_byte)),
            "CPU time of the process, reading whole objects beside beginnings",
            fraction(0.3),
        )),
        ..Cost::FREE
    }
}

fn remarks(all: &Tally, per_connection: Option<Estimate>, by_connections: &[AtOnce], cores: f64) -> Vec<String> {
    let mut remarks = Vec::new();
    if per_connection.is_none() {
        remarks.push(
            "what a connection gets could not be told from the latency: most of an object comes in one piece; larger objects would tell"
                .to_owned(),
        );
    }
    if let [.., before, last] = by_connections
        && last.rate.value > before.rate.value * GROWTH
    {
        remarks.push(format!(
            "the rate still grew at {} connections: what the store gives together is at least this, and may be more",
            last.connections
        ));
    }
    if let [alone, .., last] = by_connections
        && last.first_byte_ns > 1.5 * alone.first_byte_ns
    {
        remarks.push(format!(
            "first bytes took {:.1} times as long at {} connections as at one: waiting there could not be told from the way of the bytes",
            last.first_byte_ns / alone.first_byte_ns.max(1.0),
            last.connections
        ));
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    if cores > 0.8 * threads.min(2.0) {
        remarks.push(format!(
            "this computer was busy with {cores:.1} cores at the highest rate: it may be the limit, and not the store"
        ));
    }
    if all.failed > 0 {
        remarks.push(format!("{} reads failed, {} of them since the store asked to come later", all.failed, all.throttled));
    }
    remarks
}

fn store(remote: &Remote, quality: &StoreQuality, first_byte_ns: Vec<f64>, cost: Cost) -> Store {
    let relative = |estimate: &Estimate| fraction((estimate.standard_error / estimate.value.max(1.0)).clamp(0.01, 1.0));
    let rate = |estimate: &Estimate, source: String| {
        Measured::new(ByteRate::of_base(rounded(estimate.value)), source, relative(estimate))
    };
    let best = quality.by_connections.iter().max_by(|a, b| a.rate.value.total_cmp(&b.rate.value));
    let table = quantiles_of(first_byte_ns, QUANTILES);
    let last = (table.len() - 1) as f64;
    let point = |(i, ns): (usize, &f64)| QuantilePoint { at: fraction(i as f64 / last), value: duration(*ns) };
    Store {
        first_byte: Some(Latency::Table {
            points: table.iter().enumerate().map(point).collect(),
            source: Some(format!("one read at a time, at {}", remote.url())),
            uncertainty: Some(relative(&quality.first_byte_ns)),
        }),
        per_connection: quality
            .per_connection
            .as_ref()
            .map(|flow| rate(flow, "one read at a time, after its first piece".to_owned())),
        bandwidth: best.map(|best| rate(&best.rate, format!("{} connections, whole objects", best.connections))),
        connections: quality.by_connections.last().map(|most| Measured {
            source: Some("the most that were tried".to_owned()),
            ..Measured::plain(Count(most.connections as u64))
        }),
        cost: Some(cost),
        ..Store::plain(Reader::Own)
    }
}

impl StoreQuality {
    /// For a person.
    pub fn terminal(&self) -> String {
        let mut out = String::new();
        let rate = |of: &Estimate| format!("{:.1} ± {:.1} MB/s", of.value / 1e6, of.standard_error / 1e6);
        let first = &self.first_byte_ns;
        let _ = writeln!(out, "{} objects read", self.reads);
        let _ = writeln!(out, "first byte      {:.2} ± {:.2} ms, median", first.value / 1e6, first.standard_error / 1e6);
        if let Some(flow) = &self.per_connection {
            let _ = writeln!(out, "per connection  {}", rate(flow));
        }
        for at in &self.by_connections {
            let connections = if at.connections == 1 { "connection " } else { "connections" };
            let _ = writeln!(
                out,
                "{:>3} {connections} {}, first byte {:.2} ms",
                at.connections,
                rate(&at.rate),
                at.first_byte_ns / 1e6
            );
        }
        for remark in &self.remarks {
            let _ = writeln!(out, "note: {remark}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: f64, first_ms: f64) -> Read {
        // 10 MB/s after a first piece of 1000 bytes.
        let first_ns = first_ms * 1e6;
        Read { first_ns, first_bytes: 1000.0, whole_ns: first_ns + (bytes - 1000.0) * 100.0, bytes }
    }

    #[test]
    fn what_flows_is_told_from_what_is_waited() {
        let reads: Vec<Read> = (1..20).map(|i| read(1e4 * f64::from(i), 30.0 + f64::from(i % 5))).collect();
        let flow = flow(&reads).unwrap();
        assert!((flow.value - 1e7).abs() < 1.0 && flow.standard_error < 1.0, "{flow:?}");
        let small: Vec<Read> = reads.iter().map(|read| Read { bytes: 1500.0, ..*read }).collect();
        assert_eq!(super::flow(&small), None, "most comes in one piece");
    }

    #[test]
    fn connections_get_together_what_each_gets() {
        let reads: Vec<Read> = (0..80).map(|i| read(51_000.0, 15.0 + 0.1 * f64::from(i % 3))).collect();
        let series = Series { connections: 4, reads, failures: Vec::new(), cpu_ns: 0.0, done: 81, wall_s: 1.0 };
        // 51 kB in 20 ms, four times.
        let rate = series.rate();
        assert!((rate.value / 10.2e6 - 1.0).abs() < 0.01 && rate.standard_error < 0.01 * rate.value, "{rate:?}");
    }

    #[test]
    fn more_values_make_a_median_surer() {
        let spread = |n: u32| (0..n).map(|i| f64::from(i) / f64::from(n)).collect::<Vec<f64>>();
        let (few, many) = (error_of_median(&spread(25)), error_of_median(&spread(2500)));
        assert!((0.05..0.15).contains(&few) && many < few / 5.0, "{few} {many}");
    }
}
