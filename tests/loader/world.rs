//! What is loaded in these tests, and what should come of it.
//!
//! Latencies, costs and failures are pure functions of a sample, the same on every machine and under every schedule. The oracle
//! computes from them, from the settings and from the permutation alone, which batches a loader must deliver.

use std::time::Duration;

use towtank::{
    draw::{Purpose, below, draw},
    failure::{Failure, FailureKind},
    loader::{
        Allowance, DeviceStage, Fill, OnError, Order, Permutation, Settings, Stage, Tail,
        stage::{BatchStage, Context},
    },
    machine::{Encoded, Item, Machine, Payload, Phantom, Pixels, Tags, Work},
};

/// Bytes of a slot in these tests.
pub const SLOT_BYTES: usize = 20;

/// What a sample costs and whether it fails.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub seed: u64,
    /// Latencies and costs are drawn up to so much [ms].
    pub fetch_ms: u64,
    pub decode_ms: u64,
    /// Failures of reads and of decode jobs, of a thousand samples.
    pub bad_reads: u64,
    pub bad_decodes: u64,
}

impl World {
    fn word(&self, what: u32, item: Item) -> u64 {
        draw(self.seed, Purpose(Purpose::CUSTOM.0 + what), item.sample, u64::from(item.epoch)).word(0)
    }

    pub fn fetch(&self, item: Item) -> u64 {
        1 + below(self.word(0, item), self.fetch_ms)
    }

    pub fn decode(&self, item: Item) -> u64 {
        1 + below(self.word(1, item), self.decode_ms)
    }

    /// Bad samples are bad in every epoch.
    pub fn bad_read(&self, item: Item) -> bool {
        below(self.word(2, Item { epoch: 0, ..item }), 1000) < self.bad_reads
    }

    pub fn bad_decode(&self, item: Item) -> bool {
        below(self.word(3, Item { epoch: 0, ..item }), 1000) < self.bad_decodes
    }

    pub fn bad(&self, item: Item) -> bool {
        self.bad_read(item) || self.bad_decode(item)
    }
}

/// A sample that was read.
#[derive(Clone, Copy)]
pub struct Read {
    sample: u64,
}

/// Reads as the world says.
#[derive(Clone, Copy)]
pub struct Source(pub World);

impl<M: Machine> Stage<M, ()> for Source {
    type Out = Read;

    async fn run(&self, cx: &Context<'_, M>, (): ()) -> Result<Read, Failure> {
        let item = cx.item();
        cx.machine().sleep(Duration::from_millis(self.0.fetch(item))).await;
        if self.0.bad_read(item) {
            return Err(Failure::new(FailureKind::NotFound, "no such sample"));
        }
        cx.settle(1 + item.sample % 100);
        Ok(Read { sample: item.sample })
    }
}

/// Decodes as the world says: one cell in three samples panics, the others refuse.
#[derive(Clone, Copy)]
pub struct Decode(pub World);

impl<P: TestPayload> Fill<P, Read> for Decode {
    fn work(&self, item: Item, _: &Read) -> Work {
        Work { kind: "decode", bytes: self.0.decode(item), pixels: 0 }
    }

    fn fill(&self, item: Item, read: Read, out: &mut [P::Unit]) -> Result<(), Failure> {
        if self.0.bad_decode(item) {
            // Not `panic!`, which would print.
            if item.sample.is_multiple_of(3) {
                std::panic::resume_unwind(Box::new("undecodable"));
            }
            return Err(Failure::new(FailureKind::Corrupt, "undecodable"));
        }
        P::write(read.sample, out);
        Ok(())
    }
}

/// What the store of these tests holds for a sample.
pub fn encoded(sample: u64) -> Vec<u8> {
    sample.to_le_bytes().to_vec()
}

/// Decodes what the machine's own store delivers, as the world says.
#[derive(Clone, Copy)]
pub struct DecodeBytes(pub World);

impl<P: TestPayload> Fill<P, P::Bytes> for DecodeBytes {
    fn work(&self, item: Item, _: &P::Bytes) -> Work {
        Work { kind: "decode", bytes: self.0.decode(item), pixels: 0 }
    }

    fn fill(&self, item: Item, bytes: P::Bytes, out: &mut [P::Unit]) -> Result<(), Failure> {
        let read = Read { sample: P::decoded(&bytes) };
        Fill::<P, Read>::fill(&Decode(self.0), item, read, out)
    }
}

/// Payloads whose cells say which sample they hold.
pub trait TestPayload: Payload {
    fn encoded(sample: u64) -> Self::Bytes;
    fn decoded(bytes: &Self::Bytes) -> u64;
    fn write(sample: u64, cells: &mut [Self::Unit]);
    fn holds(sample: u64, cells: &[Self::Unit]) -> bool;
    /// What the stage on the device does in these tests; twice, and nothing has happened.
    fn flip(cells: &mut [Self::Unit]);
}

/// Flips the cells of batches, where they are.
pub struct Flip<P>(std::marker::PhantomData<fn() -> P>, usize);

impl<P> Flip<P> {
    pub fn new(result_bytes: usize) -> Flip<P> {
        Flip(std::marker::PhantomData, result_bytes)
    }
}

impl<P: TestPayload, B: AsMut<[P::Unit]>> BatchStage<B> for Flip<P> {
    fn name(&self) -> &'static str {
        "flip"
    }
    fn work(&self, samples: usize) -> Work {
        Work { kind: "flip", bytes: (samples * SLOT_BYTES) as u64, pixels: 0 }
    }
    fn result_bytes(&self) -> usize {
        self.1
    }
    fn run(&self, batch: &mut B, samples: usize) -> Result<(), Failure> {
        P::flip(&mut batch.as_mut()[..samples * P::units(SLOT_BYTES)]);
        Ok(())
    }
}

impl TestPayload for Tags {
    fn encoded(sample: u64) -> Phantom {
        Phantom { sample, bytes: 8, pixels: 0 }
    }
    fn decoded(bytes: &Phantom) -> u64 {
        bytes.sample
    }
    fn write(sample: u64, cells: &mut [u64]) {
        cells.fill(sample + 1);
    }
    fn holds(sample: u64, cells: &[u64]) -> bool {
        cells == [sample + 1]
    }
    fn flip(cells: &mut [u64]) {
        cells.iter_mut().for_each(|cell| *cell = !*cell);
    }
}

impl TestPayload for Pixels {
    fn encoded(sample: u64) -> Encoded {
        Encoded::new(encoded(sample))
    }
    fn decoded(bytes: &Encoded) -> u64 {
        u64::from_le_bytes(bytes.data[..8].try_into().expect("eight bytes"))
    }
    fn write(sample: u64, cells: &mut [u8]) {
        for (k, cell) in cells.iter_mut().enumerate() {
            *cell = (sample * 31 + k as u64) as u8;
        }
    }
    fn holds(sample: u64, cells: &[u8]) -> bool {
        cells.len() == SLOT_BYTES && cells.iter().enumerate().all(|(k, cell)| *cell == (sample * 31 + k as u64) as u8)
    }
    fn flip(cells: &mut [u8]) {
        cells.iter_mut().for_each(|cell| *cell = !*cell);
    }
}

/// A batch as the oracle sees it: its epoch and the positions of its samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expected {
    pub epoch: u32,
    pub positions: Vec<u64>,
}

/// What a loader must deliver.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    pub batches: Vec<Expected>,
    /// Failed samples, in order of the plan.
    pub skipped: Vec<Item>,
    /// Samples left over at the end of epochs.
    pub dropped: u64,
    pub planned: u64,
}

/// The items of one epoch of a rank, in order.
pub fn share(settings: &Settings, epoch: u32) -> Vec<Item> {
    let (n, world) = (settings.samples, u64::from(settings.world));
    let order = settings.shuffle.map(|seed| Permutation::new(n, seed, epoch));
    let end = match settings.tail {
        Tail::Uneven => n,
        Tail::Pad => n.div_ceil(world) * world,
        Tail::Drop => n / world * world,
    };
    let positions = (u64::from(settings.rank)..end).step_by(world as usize);
    positions
        .map(|position| {
            let place = position % n;
            Item { epoch, position, sample: order.as_ref().map_or(place, |order| order.at(place)) }
        })
        .collect()
}

/// What must be delivered in plan order under `OnError::Skip` without a limit.
pub fn oracle(settings: &Settings, world: &World) -> Oracle {
    let mut oracle = Oracle::default();
    for epoch in 0..settings.epochs {
        let share = share(settings, epoch);
        oracle.planned += share.len() as u64;
        let (bad, good): (Vec<Item>, Vec<Item>) = share.iter().copied().partition(|item| world.bad(*item));
        oracle.skipped.extend(bad);
        let steps = if settings.drop_last { share.len() / settings.batch } else { share.len().div_ceil(settings.batch) };
        let mut batches: Vec<Vec<u64>> =
            good.chunks(settings.batch).map(|batch| batch.iter().map(|item| item.position).collect()).collect();
        if settings.tail == Tail::Uneven {
            if settings.drop_last && batches.last().is_some_and(|last| last.len() < settings.batch) {
                oracle.dropped += batches.pop().map_or(0, |last| last.len() as u64);
            }
        } else {
            oracle.dropped += batches.iter().skip(steps).map(|batch| batch.len() as u64).sum::<u64>();
            batches.resize(steps, Vec::new());
        }
        oracle.batches.extend(batches.into_iter().map(|positions| Expected { epoch, positions }));
    }
    oracle
}

/// Settings and a world of every kind, as a function of a number.
pub fn draw_case(seed: u64) -> (Settings, World) {
    let word = |what: u32| draw(seed, Purpose(Purpose::CUSTOM.0 + 100 + what), 0, 0).word(0);
    fn pick<T: Copy>(word: u64, from: &[T]) -> T {
        from[below(word, from.len() as u64) as usize]
    }
    let batch = pick(word(0), &[1, 3, 8, 16]);
    let samples = 1 + below(word(1), 120);
    let (world_size, rank) = pick(word(2), &[(1, 0), (1, 0), (1, 0), (2, 1), (3, 0), (3, 2)]);
    let (bad_reads, bad_decodes) = pick(word(3), &[(0, 0), (0, 0), (30, 30), (0, 400), (300, 300), (900, 0)]);
    let (prefetch, held) = pick(word(4), &[(1, 1), (0, 1), (2, 1), (2, 3)]);
    let sample_bytes = 100;
    let mut settings = Settings {
        shuffle: pick(word(5), &[None, Some(seed)]),
        epochs: pick(word(6), &[1, 1, 2, 4]),
        drop_last: pick(word(7), &[false, false, true]),
        rank,
        world: world_size,
        tail: pick(word(8), &[Tail::Uneven, Tail::Pad, Tail::Drop]),
        order: pick(word(9), &[Order::Plan, Order::Completion]),
        on_error: OnError::Skip { at_most: Allowance::ANY },
        sample_bytes,
        lanes: pick(word(10), &[1, 2, 7, 48]),
        prefetch,
        held,
        copies: pick(word(11), &[1, 2, 4]),
        ring: pick(word(12), &[Some(batch), Some(batch + 1), Some(batch * 2), Some(batch * 7), None]),
        window: pick(word(13), &[None, None, Some(1), Some(64)]),
        decode_limit: pick(word(14), &[None, None, Some(2)]),
        ..Settings::new(samples, batch, SLOT_BYTES)
    };
    let stage = |limit, result_bytes| Some(DeviceStage { limit, result_bytes });
    settings.device_stage = pick(word(18), &[None, None, None, stage(1, 0), stage(2, SLOT_BYTES), stage(5, 3 * SLOT_BYTES)]);
    // The least there can be, a few samples more, or plenty.
    let results = settings.device_stage.map_or(0, |stage| stage.result_bytes * batch * (prefetch + held));
    let fixed = (settings.ring.unwrap_or(batch * 4) + batch * (prefetch + held)) * SLOT_BYTES + results;
    settings.budget_bytes = fixed as u64 + sample_bytes * pick(word(15), &[1, 1, 4, 1000]);
    let world = World {
        seed,
        fetch_ms: pick(word(16), &[1, 50, 100_000]),
        decode_ms: pick(word(17), &[1, 70, 100_000]),
        bad_reads,
        bad_decodes,
    };
    (settings, world)
}
