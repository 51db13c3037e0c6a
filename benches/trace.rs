//! What recording an event costs: `cargo bench --bench trace`.
//!
//! The events are a loader's: 64 lanes, 16 cores, batches of 64; about 11 a sample. Each way of recording is run in turn, ten
//! rounds, and the median told with the least and the most. The bare loop sums one field of each event: what it costs to have the
//! events at all.

use std::{hint::black_box, io};

use rustix::time::{ClockId, clock_gettime};

use towtank::{
    machine::Time,
    report::Perfetto,
    trace::{Event, Kind, Recorder, StageId},
};

const SAMPLES: u64 = 16_384;
const BATCH: u64 = 64;
const LANES: u64 = 64;
const ROUNDS: usize = 10;

/// Takes all events and returns something that depends on each.
type Way = fn(&[Event]) -> u64;

fn main() {
    let events = events();
    println!("{} events of {SAMPLES} samples, {:.1} a sample", events.len(), events.len() as f64 / SAMPLES as f64);
    let mut ways: Vec<(&str, Vec<f64>, Way)> = vec![
        ("bare loop", Vec::new(), |events| events.iter().fold(0, |sum, e| sum ^ black_box(e.time.0))),
        ("hash and summary", Vec::new(), |events| recorded(Recorder::new(), events)),
        ("the same, stall split", Vec::new(), |events| recorded(Recorder::new().preparation_servers(16), events)),
        ("and events kept", Vec::new(), |events| recorded(Recorder::new().preparation_servers(16).keep_events(), events)),
        ("and Perfetto written, to nowhere", Vec::new(), |events| {
            let recorder = Recorder::new().preparation_servers(16).keep_events();
            recorded(recorder.stream_to(Perfetto::new(io::sink())), events)
        }),
    ];
    for _ in 0..ROUNDS {
        for (_, times, way) in &mut ways {
            let begun = cpu_ns();
            black_box(way(black_box(&events)));
            times.push((cpu_ns() - begun) as f64 / events.len() as f64);
        }
    }
    for (name, mut times, _) in ways {
        times.sort_by(f64::total_cmp);
        println!("{name:34} {:7.2} ns/event ({:.2} to {:.2})", times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
    }
}

/// CPU time of this thread: what others do on the computer does not count, though they leave less of its caches.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn recorded(mut recorder: Recorder, events: &[Event]) -> u64 {
    events.iter().for_each(|e| recorder.record(*e));
    recorder.finish().expect("nowhere takes everything");
    recorder.hash()
}

/// The life of each sample, overlapped as lanes overlap them, in order of time.
fn events() -> Vec<Event> {
    let mut all = Vec::new();
    let mut put = |time: u64, since: u64, sample: u64, bytes: u64, stage: StageId, kind: Kind| {
        all.push(Event { time: Time(time), since: Time(since), sample, bytes, epoch: 0, rank: 0, stage, kind });
    };
    for sample in 0..SAMPLES {
        // One sample in 150 µs; the lane's round takes 64 times that. A little noise, so that branches have something to guess.
        let noise = sample.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        let launch = sample * 150_000;
        let (fetched, start, ends) = (launch + 5_000_000 + noise, launch + 6_500_000 + noise, launch + 8_500_000 + noise / 2);
        put(launch, launch.saturating_sub(1000), sample, 0, StageId::LOADER, Kind::Launch);
        put(launch, launch, sample, 200_000, StageId::LOADER, Kind::Reserve);
        put(launch, launch, sample, 0, StageId::FETCH, Kind::Queued);
        put(launch, launch, sample, 0, StageId::FETCH, Kind::Start);
        put(fetched, launch, sample, 114_660, StageId::FETCH, Kind::End);
        put(fetched, fetched, sample, 85_340, StageId::LOADER, Kind::Refund);
        put(fetched, fetched, sample, 114_660, StageId::DECODE, Kind::Queued);
        put(start, fetched, sample, 0, StageId::DECODE, Kind::Start);
        put(ends, start, sample, 114_660, StageId::DECODE, Kind::End);
        put(ends, ends, sample, 114_660, StageId::LOADER, Kind::Refund);
        put(ends, launch, sample, 0, StageId::BATCH, Kind::Filled);
        if (sample + 1).is_multiple_of(BATCH) {
            let (batch, sealed) = (sample / BATCH, ends + LANES * 150_000);
            let (ready, got) = (sealed + 900_000, sealed + 1_000_000 + noise);
            put(sealed, ends, batch, BATCH, StageId::BATCH, Kind::Sealed);
            put(sealed, sealed, batch, 0, StageId::TRANSFER, Kind::Queued);
            put(sealed, sealed, batch, 0, StageId::TRANSFER, Kind::Start);
            put(ready, sealed, batch, 9_633_792, StageId::TRANSFER, Kind::End);
            put(ready, sealed, batch, 9_633_792, StageId::TRANSFER, Kind::Ready);
            put(got, sealed, batch, BATCH, StageId::CONSUMER, Kind::Taken);
            put(got, ready, batch, 0, StageId::CONSUMER, Kind::Idle);
            (0..BATCH).for_each(|k| put(got, launch, sample - k, 0, StageId::CONSUMER, Kind::Delivered));
            put(got + 9_000_000, got, batch, 0, StageId::CONSUMER, Kind::Step);
            put(got + 9_100_000, got, batch, 0, StageId::CONSUMER, Kind::Returned);
        }
    }
    all.sort_by_key(|e| e.time);
    all
}
