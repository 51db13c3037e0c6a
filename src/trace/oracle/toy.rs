//! The events of a small loader.

use proptest::prelude::*;

use crate::{
    failure::FailureKind,
    machine::Time,
    trace::{Event, Kind, StageId},
};

/// A loader of the simplest kind: lanes, a store with any number of readers, `servers` cores, batches in plan order, one copy at
/// a time, a consumer per rank. Durations are mixed from `seed`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Toy {
    pub(crate) seed: u64,
    pub(crate) ranks: u16,
    pub(crate) epochs: u32,
    /// Per rank and epoch.
    pub(crate) samples: u64,
    pub(crate) batch: u64,
    pub(crate) lanes: usize,
    pub(crate) servers: usize,
    pub(crate) fetch_ns: u64,
    pub(crate) decode_ns: u64,
    pub(crate) transfer_ns: u64,
    pub(crate) step_ns: u64,
    /// One sample in so many fails for good, one try in as many has to be repeated; 0 for never.
    pub(crate) fails_every: u64,
    pub(crate) drop_last: bool,
}

impl Default for Toy {
    fn default() -> Self {
        Toy {
            seed: 1,
            ranks: 1,
            epochs: 1,
            samples: 200,
            batch: 8,
            lanes: 8,
            servers: 2,
            fetch_ns: 900_000,
            decode_ns: 400_000,
            transfer_ns: 300_000,
            step_ns: 2_000_000,
            fails_every: 0,
            drop_last: false,
        }
    }
}

pub(crate) fn any_toy() -> impl Strategy<Value = Toy> {
    let sizes = (any::<u64>(), 1u16..3, 1u32..3, 0u64..60, 1u64..9, 1usize..10, 1usize..5);
    let times = (0u64..5000, 0u64..5000, 0u64..9000, 0u64..20_000);
    (sizes, times, prop_oneof![Just(0), 2u64..12], any::<bool>()).prop_map(
        |(
            (seed, ranks, epochs, samples, batch, lanes, servers),
            (fetch_ns, decode_ns, transfer_ns, step_ns),
            fails_every,
            drop_last,
        )| {
            let times = Toy { fetch_ns, decode_ns, transfer_ns, step_ns, ..Toy::default() };
            Toy { seed, ranks, epochs, samples, batch, lanes, servers, fails_every, drop_last, ..times }
        },
    )
}

struct Rank<'a> {
    toy: &'a Toy,
    rank: u16,
    draws: u64,
    out: &'a mut Vec<Event>,
}

impl Toy {
    /// Its events in order of time.
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let mut cores = vec![0; self.servers];
        for rank in 0..self.ranks {
            let draws = self.seed.wrapping_add(u64::from(rank) << 32);
            Rank { toy: self, rank, draws, out: &mut events }.run(&mut cores);
        }
        // Stable: what happened at one instant stays in order of cause.
        events.sort_by_key(|e| e.time);
        events
    }
}

impl Rank<'_> {
    fn run(&mut self, cores: &mut [u64]) {
        let toy = self.toy;
        let mut lanes = vec![0; toy.lanes];
        let (mut copier, mut free, mut batch, mut order) = (0, 0, 0, 0);
        for epoch in 0..toy.epochs {
            let mut filled: Vec<(u64, u64, u64)> = Vec::new();
            let mut known = 0;
            let mut groups = Vec::new();
            for sample in 0..toy.samples {
                let lane = (0..lanes.len()).min_by_key(|l| lanes[*l]).expect("a lane");
                let launch = lanes[lane] + self.draw(50);
                self.put(launch, lanes[lane], sample, 0, epoch, StageId::LOADER, Kind::Launch);
                let (ends, failed) = self.sample(launch, sample, epoch, cores);
                lanes[lane] = ends;
                known = known.max(ends);
                if failed {
                    let code = FailureKind::Corrupt.code();
                    self.put(ends, launch, sample, code, epoch, StageId::BATCH, Kind::Skipped);
                    continue;
                }
                self.put(ends, launch, sample, 0, epoch, StageId::BATCH, Kind::Filled);
                filled.push((sample, launch, ends));
                if filled.len() as u64 == toy.batch {
                    groups.push(std::mem::take(&mut filled));
                }
            }
            match toy.drop_last {
                true => {
                    for (sample, _, ends) in filled {
                        self.put(known, ends, sample, 0, epoch, StageId::BATCH, Kind::Dropped);
                    }
                }
                false if !filled.is_empty() => groups.push(filled),
                false => {}
            }
            for group in groups {
                order = group.iter().map(|(_, _, ends)| *ends).max().unwrap_or(0).max(order);
                (copier, free) = self.batch(batch, &group, order, copier, free, epoch);
                batch += 1;
            }
        }
    }

    /// Fetches and decodes; returns when that is over and whether it failed.
    fn sample(&mut self, launch: u64, sample: u64, epoch: u32, cores: &mut [u64]) -> (u64, bool) {
        let bytes = 1000 + self.draw(100_000);
        let reserved = launch + self.draw(20);
        self.put(reserved, launch, sample, bytes, epoch, StageId::LOADER, Kind::Reserve);
        let mut at = reserved;
        if self.strikes() {
            let fails = at + self.draw(self.toy.fetch_ns);
            let (code, kind) = match self.next() % 2 {
                0 => (FailureKind::Transient.code(), Kind::Fail),
                _ => (0, Kind::Abandon),
            };
            self.leaf(at, at, fails, sample, code, epoch, StageId::FETCH, kind);
            at = fails + self.draw(1000);
            self.put(at, fails, sample, 1, epoch, StageId::FETCH, Kind::Retry);
        }
        let fetched = at + self.draw(self.toy.fetch_ns);
        self.leaf(at, at, fetched, sample, bytes, epoch, StageId::FETCH, Kind::End);
        let core = (0..cores.len()).min_by_key(|c| cores[*c]).expect("a core");
        let start = fetched.max(cores[core]);
        let ends = start + self.draw(self.toy.decode_ns);
        cores[core] = ends;
        let failed = self.strikes();
        let (code, kind) = if failed { (FailureKind::Corrupt.code(), Kind::Fail) } else { (bytes, Kind::End) };
        self.leaf(fetched, start, ends, sample, code, epoch, StageId::DECODE, kind);
        self.put(ends, ends, sample, bytes, epoch, StageId::LOADER, Kind::Refund);
        (ends, failed)
    }

    fn batch(&mut self, batch: u64, group: &[(u64, u64, u64)], sealed: u64, copier: u64, free: u64, epoch: u32) -> (u64, u64) {
        let count = group.len() as u64;
        let first_fill = group.iter().map(|(_, _, ends)| *ends).min().unwrap_or(0);
        self.put(sealed, first_fill, batch, count, epoch, StageId::BATCH, Kind::Sealed);
        let start = sealed.max(copier);
        let ready = start + self.draw(self.toy.transfer_ns);
        self.leaf(sealed, start, ready, batch, count * 150_528, epoch, StageId::TRANSFER, Kind::End);
        self.put(ready, sealed, batch, count * 150_528, epoch, StageId::TRANSFER, Kind::Ready);
        let got = free.max(ready);
        self.put(got, free, batch, count, epoch, StageId::CONSUMER, Kind::Taken);
        self.put(got, ready, batch, 0, epoch, StageId::CONSUMER, Kind::Idle);
        for (sample, launch, _) in group {
            self.put(got, *launch, *sample, 0, epoch, StageId::CONSUMER, Kind::Delivered);
        }
        let done = got + self.toy.step_ns;
        self.put(done, got, batch, 0, epoch, StageId::CONSUMER, Kind::Step);
        let returned = done + self.draw(500);
        self.put(returned, got, batch, 0, epoch, StageId::CONSUMER, Kind::Returned);
        (ready, done)
    }

    #[expect(clippy::too_many_arguments, reason = "an event has as many fields")]
    fn leaf(&mut self, queued: u64, start: u64, end: u64, sample: u64, bytes: u64, epoch: u32, stage: StageId, kind: Kind) {
        self.put(queued, queued, sample, 0, epoch, stage, Kind::Queued);
        self.put(start, queued, sample, 0, epoch, stage, Kind::Start);
        self.put(end, start, sample, bytes, epoch, stage, kind);
    }

    #[expect(clippy::too_many_arguments, reason = "an event has as many fields")]
    fn put(&mut self, time: u64, since: u64, sample: u64, bytes: u64, epoch: u32, stage: StageId, kind: Kind) {
        self.out.push(Event { time: Time(time), since: Time(since), sample, bytes, epoch, rank: self.rank, stage, kind });
    }

    /// Between half of `about` and one and a half of it.
    fn draw(&mut self, about: u64) -> u64 {
        about / 2 + self.next() % about.max(1)
    }

    fn strikes(&mut self) -> bool {
        self.toy.fails_every > 0 && self.next().is_multiple_of(self.toy.fails_every)
    }

    fn next(&mut self) -> u64 {
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.draws;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
