//! What the consumer gets.

use std::fmt;

use super::{channel::Home, outcome::Skipped, state::State};
use crate::machine::{Item, Slot, Time};

/// Memory of a batch.
pub(super) enum Memory<D, U> {
    /// A batch on the device, or gathered on the host.
    Device(D),
    /// The slots themselves, neighbours in order.
    Slots(Vec<Slot<U>>),
    /// No samples, no memory.
    Empty,
}

/// A batch without its way home.
pub(super) struct Content<D, U> {
    pub(super) index: u64,
    pub(super) epoch: u32,
    pub(super) items: Vec<Item>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) state: State,
    pub(super) memory: Memory<D, U>,
    pub(super) units_per_sample: usize,
    pub(super) ready: Time,
}

/// A batch: samples side by side, what was left out on the way, and the state of the run after it.
///
/// `D` is the machine's memory for a batch on the device, `U` the cell that samples are made of: `u8` for pixels. Where the consumer
/// is on the host and the batch's slots are neighbours, it is those slots; nothing was copied.
///
/// Dropping a batch gives its memory back to the loader. A consumer that keeps `prefetch + held` of them and asks for more gets an
/// error.
pub struct Batch<D: Send + 'static, U: Send + 'static> {
    content: Content<D, U>,
    taken: Time,
    home: Home<D, U>,
}

impl<D: Send + 'static, U: Send + 'static> Batch<D, U> {
    pub(super) fn new(content: Content<D, U>, taken: Time, home: Home<D, U>) -> Batch<D, U> {
        Batch { content, taken, home }
    }

    /// Which batch of the run it is, from 0; a resumed run goes on counting.
    pub fn index(&self) -> u64 {
        self.content.index
    }

    /// The epoch all its samples belong to.
    pub fn epoch(&self) -> u32 {
        self.content.epoch
    }

    /// Samples in it.
    pub fn len(&self) -> usize {
        self.content.items.len()
    }

    /// Whether it holds no samples: only where every rank delivers a fixed number of batches and samples failed.
    pub fn is_empty(&self) -> bool {
        self.content.items.is_empty()
    }

    /// Its samples with their places in the plan, in order.
    pub fn items(&self) -> &[Item] {
        &self.content.items
    }

    /// Indices of its samples in the dataset, in order.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.content.items.iter().map(|item| item.sample)
    }

    /// What was left out between the batch before it and its last sample, and why.
    pub fn skipped(&self) -> &[Skipped] {
        &self.content.skipped
    }

    /// Where the run stands once this batch is consumed. A run resumed from it goes on with the next batch.
    pub fn state(&self) -> &State {
        &self.content.state
    }

    /// Cells of one sample.
    pub fn units_per_sample(&self) -> usize {
        self.content.units_per_sample
    }

    /// The batch on the device; `None` when it lies in its slots on the host, or is empty.
    pub fn device(&self) -> Option<&D> {
        match &self.content.memory {
            Memory::Device(batch) => Some(batch),
            Memory::Slots(_) | Memory::Empty => None,
        }
    }

    /// Whether the batch lies in its slots, so that nothing was copied.
    pub fn is_lent(&self) -> bool {
        matches!(self.content.memory, Memory::Slots(_))
    }

    /// The cells of a batch that [is lent](Batch::is_lent).
    pub(super) fn lent_cells(&self) -> Option<&[U]> {
        match &self.content.memory {
            Memory::Slots(slots) => Some(Slot::run(slots)),
            Memory::Device(_) | Memory::Empty => None,
        }
    }

    /// The cells of all samples side by side: `[batch, cells of a sample]`.
    pub fn cells(&self) -> &[U]
    where
        D: AsRef<[U]>,
    {
        match &self.content.memory {
            Memory::Device(batch) => &batch.as_ref()[..self.len() * self.content.units_per_sample],
            Memory::Slots(slots) => Slot::run(slots),
            Memory::Empty => &[],
        }
    }

    /// The cells of sample number `k` of the batch.
    ///
    /// # Panics
    ///
    /// If the batch has no such sample.
    pub fn sample(&self, k: usize) -> &[U]
    where
        D: AsRef<[U]>,
    {
        let units = self.content.units_per_sample;
        &self.cells()[k * units..][..units]
    }
}

impl<D: AsRef<[u8]> + Send + 'static> Batch<D, u8> {
    /// The pixels of all samples side by side, as the loader's last stage wrote them; for images `[batch, height, width, 3]`.
    pub fn pixels(&self) -> &[u8] {
        self.cells()
    }
}

impl<D: Send + 'static, U: Send + 'static> Drop for Batch<D, U> {
    fn drop(&mut self) {
        self.home.give_back(&mut self.content, self.taken);
    }
}

impl<D: Send + 'static, U: Send + 'static> fmt::Debug for Batch<D, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Content { index, epoch, items, skipped, .. } = &self.content;
        write!(f, "Batch {index} of epoch {epoch}: {} samples, {} skipped", items.len(), skipped.len())
    }
}
