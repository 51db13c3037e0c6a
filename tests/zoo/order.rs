//! Which sample comes when: the kit's own shuffle, its sharding over ranks, and where a resumed run begins.

use std::{cell::Cell, cell::RefCell, rc::Rc};

use towtank::{
    draw::{Purpose, below, draw},
    machine::Item,
};

use crate::zoo::{defect::Defect, kit::Cx, resume::Position};

/// The order of a rank's samples.
pub struct Order {
    cx: Rc<Cx>,
    from: Position,
    /// The seed that all ranks share, once they have agreed on it; before, the rank's own.
    seed: Cell<u64>,
    frozen: RefCell<Option<Vec<u64>>>,
    /// Shuffles that were made in this process.
    shuffles: Cell<u32>,
}

impl Order {
    /// The order from where the run begins.
    pub fn new(cx: &Rc<Cx>, from: Position) -> Order {
        let seed = match cx.shape.agree && cx.defect() != Some(Defect::Resume13) {
            true => own_seed(cx),
            false => shared_seed(cx),
        };
        Order { cx: cx.clone(), from, seed: Cell::new(seed), frozen: RefCell::new(None), shuffles: Cell::new(0) }
    }

    /// The ranks have agreed on a seed.
    pub fn agreed(&self) {
        self.seed.set(shared_seed(&self.cx));
    }

    /// The first epoch, and the one after the last.
    pub fn epochs(&self) -> std::ops::Range<u32> {
        self.from.epoch..self.cx.settings.epochs
    }

    /// The rank's items of an epoch that are still to come.
    pub fn epoch(&self, epoch: u32) -> Vec<Item> {
        let cx = &self.cx;
        let resumed = self.from.taken > 0 || self.from.epoch > 0;
        let shuffled_as = match cx.defect() {
            // The epoch only counts on where somebody says so, and nobody does.
            Some(Defect::Epoch1) => 0,
            // The pipeline is copied anew for every epoch, and its counter with it.
            Some(Defect::Epoch4) => Counter::default().count(),
            // A resumed sampler begins with the first epoch's permutation.
            Some(Defect::Resume11) if epoch == self.from.epoch => 0,
            // Iterators are made, and draw, before somebody has told them the epoch.
            Some(Defect::Resume13) if !cx.agreed.get() => 0,
            // Shuffles are counted from the start of the process.
            Some(Defect::Resume17) if epoch > self.from.epoch || self.from.taken == 0 => self.shuffles.get(),
            _ => epoch,
        };
        self.shuffles.set(self.shuffles.get() + 1);
        if cx.defect() == Some(Defect::Resume5) && self.from.taken > 0 && epoch > self.from.epoch {
            // What is cycled through is the iterator as it was after it had been resumed.
            let tail = self.share(self.from.epoch, self.from.epoch).split_off(self.from.taken as usize);
            return tail.into_iter().map(|item| Item { epoch, ..item }).collect();
        }
        let mut items = self.share(epoch, shuffled_as);
        let skip = match cx.defect() {
            // An offset that stays with the sampler.
            Some(Defect::Resume4) if resumed => self.from.taken,
            // Batches are skipped, and not samples.
            Some(Defect::Resume12) => 0,
            // Two layers skip what was consumed.
            Some(Defect::Resume15) if epoch == self.from.epoch => 2 * self.from.taken,
            _ if epoch == self.from.epoch => self.from.taken,
            _ => 0,
        };
        items.drain(..(skip as usize).min(items.len()));
        if cx.defect() == Some(Defect::Resume9) && resumed && epoch > self.from.epoch {
            // The workers still count as resumed, and as exhausted.
            items.clear();
        }
        items
    }

    /// The rank's items of an epoch, all of them.
    fn share(&self, epoch: u32, shuffled_as: u32) -> Vec<Item> {
        let cx = &self.cx;
        let (samples, world, rank) = (cx.settings.samples, u64::from(cx.settings.world), u64::from(cx.settings.rank));
        let order = self.permutation(shuffled_as);
        let planned = match cx.defect() {
            // Every rank gets as many as the first, repeated from the head where there are no more.
            Some(Defect::Eo13) => samples.div_ceil(world),
            _ => cx.plan.shape(epoch).samples,
        };
        let item = |dealt: u64| Item { epoch, position: dealt, sample: order[(dealt % samples) as usize] };
        let own = |dealt: &u64| dealt % world == rank;
        let mut items: Vec<Item> = match cx.defect() {
            // One of `world` of each chunk, and a chunk has one sample.
            Some(Defect::Eo4) => {
                if rank == 0 {
                    (0..samples).map(item).collect()
                } else {
                    Vec::new()
                }
            }
            // Whole chunks of three, the last to whoever is last.
            Some(Defect::Rank1) => (0..samples).filter(|p| (p / 3).min(world - 1) == rank).map(item).collect(),
            // Shards of five, in turn.
            Some(Defect::Rank3) => (0..samples).filter(|p| own(&(p / 5))).map(item).collect(),
            _ => (0..planned).map(|index| item(rank + index * world)).collect(),
        };
        if cx.defect() == Some(Defect::Eo7) {
            // The source was given its shard, and is given it again.
            items = items.into_iter().skip(rank as usize).step_by(world as usize).collect();
        }
        if cx.defect() == Some(Defect::Rank6) {
            // Shards of four are shuffled by each rank for itself, and dealt out then.
            let shards = permutation(samples / 4, self.seed.get() ^ (rank << 32), u64::from(epoch));
            for (index, item) in items.iter_mut().enumerate() {
                let shard = shards[(index / 4 * world as usize + rank as usize) % shards.len()];
                item.sample = order[(shard * 4 + index as u64 % 4) as usize];
            }
        }
        items
    }

    /// The samples of an epoch in their order.
    fn permutation(&self, epoch: u32) -> Vec<u64> {
        let cx = &self.cx;
        let samples = cx.settings.samples;
        if cx.settings.shuffle.is_none() {
            return (0..samples).collect();
        }
        let (seed, epoch) = (self.seed.get(), u64::from(epoch));
        match cx.defect() {
            // The shared seed reaches nobody who is already running.
            Some(Defect::Rng5) if epoch > 0 => permutation(samples, own_seed(cx), epoch),
            Some(Defect::Eo5) => permutation(samples, seed ^ (u64::from(cx.settings.rank) << 32), epoch),
            Some(Defect::Eo10) => {
                (0..samples).map(|k| below(draw(seed, Purpose::PERMUTATION, k, epoch).word(1), samples)).collect()
            }
            // A base seed is drawn only where there are workers.
            Some(Defect::Det5) => permutation(samples, seed ^ (u64::from(cx.workers > 1) << 40), epoch),
            Some(Defect::Rng4) => permutation(samples, 0, epoch),
            // The sampler is seeded again before each epoch.
            Some(Defect::Epoch6) => permutation(samples, draw(seed, Purpose::PERMUTATION, 0, 0).word(2), 0),
            // The plan is made once, with its order in it.
            Some(Defect::Epoch7) => self.frozen.borrow_mut().get_or_insert_with(|| permutation(samples, seed, epoch)).clone(),
            _ if cx.shape.buffer > 0 => buffered(samples, cx.shape.buffer, seed, epoch),
            _ => permutation(samples, seed, epoch),
        }
    }
}

/// What counts epochs where a pipeline counts them itself.
#[derive(Default)]
struct Counter(u32);

impl Counter {
    fn count(&mut self) -> u32 {
        self.0 += 1;
        self.0 - 1
    }
}

/// The seed of the run, in which all ranks agree.
fn shared_seed(cx: &Cx) -> u64 {
    cx.settings.shuffle.unwrap_or(0)
}

/// What a rank begins with by itself.
fn own_seed(cx: &Cx) -> u64 {
    draw(shared_seed(cx), Purpose::PERMUTATION, u64::from(cx.settings.rank) + 1, u64::MAX).word(3)
}

/// A shuffle of so many by Fisher and Yates.
pub fn permutation(samples: u64, seed: u64, epoch: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..samples).collect();
    for last in (1..samples).rev() {
        let other = below(draw(seed, Purpose::PERMUTATION, last, epoch).word(0), last + 1);
        order.swap(last as usize, other as usize);
    }
    order
}

/// A stream that is shuffled through a buffer: each sample that goes in pushes out one at random.
pub fn buffered(samples: u64, buffer: usize, seed: u64, epoch: u64) -> Vec<u64> {
    let (mut held, mut order) = (Vec::new(), Vec::new());
    let mut push_out = |held: &mut Vec<u64>, step: u64| {
        let place = below(draw(seed, Purpose::BLOCK_ORDER, step, epoch).word(0), held.len() as u64);
        order.push(held.swap_remove(place as usize));
    };
    for sample in 0..samples {
        held.push(sample);
        if held.len() > buffer {
            push_out(&mut held, sample);
        }
    }
    let mut step = samples;
    while !held.is_empty() {
        push_out(&mut held, step);
        step += 1;
    }
    order
}
