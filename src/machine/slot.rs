//! One slab of memory cut into slots, each with exactly one owner.
//!
//! A [`Slot`] is a token: made once per index, never cloned, and the only way to its region of the slab. "Not reused before its
//! last reader" is therefore a type: whoever still reads a slot holds its token, and whoever wants to write it needs that token.
//! That is the whole safety argument. A slot is like a `Box<[U]>` that lies next to its neighbours, so that a run of them can
//! be handed to a device, or to a consumer, as one piece.

use std::{any::Any, ptr::NonNull, slice, sync::Arc};

struct Slab<U> {
    base: NonNull<U>,
    units_per_slot: usize,
    /// Whatever keeps `base` allocated.
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the slab itself reads and writes nothing. Its cells are reached only through the one `Slot` of their region.
unsafe impl<U: Send> Send for Slab<U> {}
// SAFETY: as above.
unsafe impl<U: Send> Sync for Slab<U> {}

/// The unique owner of one sample's place in a slab.
pub struct Slot<U> {
    slab: Arc<Slab<U>>,
    index: usize,
}

/// `count` zeroed slots of `units_per_slot` cells on the heap.
pub fn slab<U: Copy + Default + Send + Sync + 'static>(count: usize, units_per_slot: usize) -> Vec<Slot<U>> {
    let memory = Box::into_raw(vec![U::default(); count * units_per_slot].into_boxed_slice());
    let base = NonNull::new(memory.cast::<U>()).expect("a box is never null");

    struct Heap<U>(*mut [U]);
    // SAFETY: the owner only frees the memory.
    unsafe impl<U: Send> Send for Heap<U> {}
    // SAFETY: as above.
    unsafe impl<U: Send> Sync for Heap<U> {}
    impl<U> Drop for Heap<U> {
        fn drop(&mut self) {
            // SAFETY: the pointer came from `Box::into_raw` in `slab`, and the last slot is gone, so nobody else points there.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }

    // SAFETY: `memory` holds `count * units_per_slot` initialised cells, and `Heap` keeps them until the last slot is gone.
    unsafe { slab_from(base, count, units_per_slot, Box::new(Heap(memory))) }
}

/// Slots over memory that somebody else allocated, such as page-locked memory of a device.
///
/// # Safety
///
/// `base` must point to `count * units_per_slot` initialised cells that stay allocated as long as `owner` lives and that nobody
/// else reads or writes meanwhile.
pub unsafe fn slab_from<U: Copy>(
    base: NonNull<U>,
    count: usize,
    units_per_slot: usize,
    owner: Box<dyn Any + Send + Sync>,
) -> Vec<Slot<U>> {
    let slab = Arc::new(Slab { base, units_per_slot, _owner: owner });
    (0..count).map(|index| Slot { slab: slab.clone(), index }).collect()
}

impl<U> Slot<U> {
    /// Place in the slab, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The sample's cells.
    pub fn get(&self) -> &[U] {
        let n = self.slab.units_per_slot;
        // SAFETY: the region is inside the slab and this is its only token, borrowed shared.
        unsafe { slice::from_raw_parts(self.slab.base.as_ptr().add(self.index * n), n) }
    }

    /// The sample's cells, to be written.
    pub fn get_mut(&mut self) -> &mut [U] {
        let n = self.slab.units_per_slot;
        // SAFETY: the region is inside the slab and this is its only token, borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.slab.base.as_ptr().add(self.index * n), n) }
    }

    /// How many of `slots`, from the first on, lie next to each other in one slab, in order.
    pub fn run_len(slots: &[Slot<U>]) -> usize {
        let Some(first) = slots.first() else { return 0 };
        let follows = |(i, s): &(usize, &Slot<U>)| s.index == first.index + i && Arc::ptr_eq(&s.slab, &first.slab);
        slots.iter().enumerate().take_while(follows).count()
    }

    /// The leading run of `slots` as one piece of memory.
    pub fn run(slots: &[Slot<U>]) -> &[U] {
        let Some(first) = slots.first() else {
            return &[];
        };
        let n = first.slab.units_per_slot;
        let len = Slot::run_len(slots) * n;
        // SAFETY: the regions follow one another inside one slab, and all their tokens are borrowed shared.
        unsafe { slice::from_raw_parts(first.slab.base.as_ptr().add(first.index * n), len) }
    }
}

impl<U> std::fmt::Debug for Slot<U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slot({})", self.index)
    }
}

/// Copies the slots, run by run, to the front of `dst`; returns how many runs there were.
pub fn gather<U: Copy>(src: &[Slot<U>], dst: &mut [U]) -> usize {
    let (mut rest, mut at, mut runs) = (src, 0, 0);
    while !rest.is_empty() {
        let run = Slot::run(rest);
        dst[at..at + run.len()].copy_from_slice(run);
        at += run.len();
        rest = &rest[Slot::run_len(rest)..];
        runs += 1;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_gathered_as_one_run_and_a_hole_costs_one_more() {
        let mut slots = slab::<u8>(5, 3);
        for (i, s) in slots.iter_mut().enumerate() {
            s.get_mut().fill(i as u8);
        }
        let mut out = [9; 12];
        slots.remove(2);
        assert_eq!(Slot::run_len(&slots), 2);
        assert_eq!(gather(&slots, &mut out), 2);
        assert_eq!(out, [0, 0, 0, 1, 1, 1, 3, 3, 3, 4, 4, 4]);
    }

    #[test]
    fn a_slot_outlives_its_neighbours() {
        let mut slots = slab::<u64>(3, 1);
        let mut last = slots.pop().expect("three slots");
        drop(slots);
        last.get_mut()[0] = 7;
        assert_eq!(last.get(), [7]);
    }
}
