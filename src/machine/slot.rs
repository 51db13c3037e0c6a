//! One slab of memory cut into slots, each with exactly one owner.
//!
//! A [`Slot`] is a token: made once per index, never cloned, and the only way to its region of the slab. "Not reused before its
//! last reader" is therefore a type: whoever still reads a slot holds its token, and whoever wants to write it needs that token.
//! That is the whole safety argument. A slot is like a `Box<[U]>` that lies next to its neighbours, so that a run of them can
//! be handed to a device, or to a consumer, as one piece.

use std::{any::Any, ptr::NonNull, slice, sync::Arc};

use crate::failure::{Failure, FailureKind};

struct Slab<U> {
    base: NonNull<U>,
    count: usize,
    units_per_slot: usize,
    /// Whatever keeps `base` allocated.
    _owner: Box<dyn Any + Send + Sync>,
    #[cfg(towtank_loom)]
    watch: Vec<loom::cell::UnsafeCell<()>>,
}

// SAFETY: the slab itself reads and writes nothing. Its cells are reached only through the one `Slot` of their region.
unsafe impl<U: Send> Send for Slab<U> {}
// SAFETY: as above; a shared `Slot` hands out `&U`, which needs `U: Sync`.
unsafe impl<U: Send + Sync> Sync for Slab<U> {}

/// The unique owner of one sample's place in a slab.
pub struct Slot<U> {
    slab: Arc<Slab<U>>,
    index: usize,
}

/// `count` slots of `units_per_slot` cells on the heap, all of them `U::default()`. Memory that cannot be had is a failure of kind
/// [`TooLarge`](FailureKind::TooLarge), not an abort.
pub fn slab<U: Copy + Default + Send + Sync + 'static>(count: usize, units_per_slot: usize) -> Result<Vec<Slot<U>>, Failure> {
    let units = count.checked_mul(units_per_slot).ok_or_else(|| too_large::<U>(count, units_per_slot))?;
    let reserved = units.max(fresh_units::<U>(units));
    // What is asked for here and freed again can be had, and `vec!` of zeros then takes it from the system as it is: untouched, so that the
    // threads that fill slots have the pages made, all at once, and not one thread beforehand.
    drop(try_reserved::<U>(reserved).ok_or_else(|| too_large::<U>(count, units_per_slot))?);
    let mut cells = vec![U::default(); reserved];
    ask_for_large_pages(&mut cells[..units]);
    let memory = Box::into_raw(cells.into_boxed_slice());
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

    // SAFETY: `memory` holds at least `count * units_per_slot` initialised cells, and `Heap` keeps them until the last slot is gone.
    unsafe { slab_from(base, count, units_per_slot, Box::new(Heap(memory))) }
}

/// Slots over memory that somebody else allocated, such as page-locked memory of a device. Fails when there is no memory for the
/// tokens themselves; `owner` is dropped then.
///
/// # Safety
///
/// `base` must point to `count * units_per_slot` initialised cells in one allocation, which stays as long as `owner` lives and
/// which nobody else reads or writes meanwhile.
pub unsafe fn slab_from<U: Copy>(
    base: NonNull<U>,
    count: usize,
    units_per_slot: usize,
    owner: Box<dyn Any + Send + Sync>,
) -> Result<Vec<Slot<U>>, Failure> {
    let mut slots = Vec::new();
    slots.try_reserve_exact(count).map_err(|_| too_large::<U>(count, units_per_slot))?;
    let slab = Arc::new(Slab {
        base,
        count,
        units_per_slot,
        _owner: owner,
        #[cfg(towtank_loom)]
        watch: (0..count).map(|_| loom::cell::UnsafeCell::new(())).collect(),
    });
    slots.extend((0..count).map(|index| Slot { slab: slab.clone(), index }));
    Ok(slots)
}

/// Least size of a slab that asks for large pages \[bytes\]: some of them, so that the part of one that nobody needs stays small beside it.
const LARGE: usize = 8 << 20;

/// Asks the system to make the slab of large pages. A sample is written to memory that was last touched a whole ring ago, and with
/// pages of 4 KiB each of its some dozens of pages costs a walk through the page tables, and at first a fault. On a virtual machine of two
/// cores a photograph's resize into the ring took 250 µs with small pages and 120 µs into a buffer that stays in the cache.
#[cfg(target_os = "linux")]
fn ask_for_large_pages<U>(cells: &mut [U]) {
    let page = rustix::param::page_size();
    let bytes = size_of_val(cells);
    let start = cells.as_mut_ptr().cast::<u8>();
    let skip = start.align_offset(page);
    if bytes < LARGE || skip >= bytes {
        return;
    }
    let whole = (bytes - skip) / page * page;
    // SAFETY: the range lies within the slice, and the advice changes neither what it holds nor who may read and write it.
    // A system without large pages refuses, and small ones do.
    let _ = unsafe { rustix::mm::madvise(start.add(skip).cast(), whole, rustix::mm::Advice::LinuxHugepage) };
}

/// More than the largest piece that the C library keeps for itself when it is freed \[bytes\]: 32 MiB with glibc.
const FRESH: usize = 33 << 20;

/// How many cells to ask for so that they come from the system as untouched zeros. A smaller piece may be one that was freed before, such
/// as the ring of a loader that has ended; then all of it is cleared on the thread that asks, before the first sample: 20 ms for 20 MB. The
/// cells beyond those that are needed are never touched, and cost an address each.
fn fresh_units<U>(units: usize) -> usize {
    let cell = size_of::<U>().max(1);
    if units.saturating_mul(cell) >= LARGE { FRESH.div_ceil(cell) } else { 0 }
}

#[cfg(not(target_os = "linux"))]
fn ask_for_large_pages<U>(_cells: &mut [U]) {}

fn try_reserved<U>(units: usize) -> Option<Vec<U>> {
    let mut cells = Vec::new();
    cells.try_reserve_exact(units).ok().map(|()| cells)
}

fn too_large<U>(count: usize, units_per_slot: usize) -> Failure {
    let bytes = size_of::<U>();
    Failure::new(FailureKind::TooLarge, format!("no memory for {count} slots of {units_per_slot} cells of {bytes} B each"))
}

impl<U> Slot<U> {
    /// Place in the slab, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The sample's cells.
    pub fn get(&self) -> &[U] {
        self.slab.look(self.index);
        // SAFETY: the region is inside the slab and this is its only token, borrowed shared.
        unsafe { slice::from_raw_parts(self.slab.at(self.index), self.slab.units_per_slot) }
    }

    /// The sample's cells, to be written.
    pub fn get_mut(&mut self) -> &mut [U] {
        self.slab.touch(self.index);
        // SAFETY: the region is inside the slab and this is its only token, borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.slab.at(self.index), self.slab.units_per_slot) }
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
        let run = Slot::run_len(slots);
        slots[..run].iter().for_each(|slot| slot.slab.look(slot.index));
        // SAFETY: the regions follow one another inside one slab, and all their tokens are borrowed shared.
        unsafe { slice::from_raw_parts(first.slab.at(first.index), run * first.slab.units_per_slot) }
    }
}

impl<U> Slab<U> {
    /// Where the region of slot `index` begins.
    fn at(&self, index: usize) -> *mut U {
        debug_assert!(index < self.count, "slot {index} of a slab of {}", self.count);
        // SAFETY: `index < count`, since slots are made by `slab_from` alone, which requires that many regions in one allocation.
        unsafe { self.base.as_ptr().add(index * self.units_per_slot) }
    }

    /// Tells the model checker that a region is read; nothing otherwise.
    #[inline]
    fn look(&self, _index: usize) {
        #[cfg(towtank_loom)]
        self.watch[_index].with(|_| ());
    }

    /// Tells the model checker that a region is written; nothing otherwise.
    #[inline]
    fn touch(&self, _index: usize) {
        #[cfg(towtank_loom)]
        self.watch[_index].with_mut(|_| ());
    }
}

impl<U> std::fmt::Debug for Slot<U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slot({})", self.index)
    }
}

/// Copies the slots, run by run, to the front of `dst`; returns how many runs there were.
///
/// # Panics
///
/// If `dst` is shorter than all slots together.
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
        let mut slots = slab::<u8>(5, 3).expect("15 bytes");
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
        let mut slots = slab::<u64>(3, 1).expect("24 bytes");
        let mut last = slots.pop().expect("three slots");
        drop(slots);
        last.get_mut()[0] = 7;
        assert_eq!(last.get(), [7]);
    }
    #[test]
    fn slots_of_two_slabs_are_never_one_run() {
        let mut slots = slab::<u8>(2, 1).expect("2 bytes");
        let mut others = slab::<u8>(2, 1).expect("2 bytes");
        slots[0].get_mut()[0] = 1;
        others[1].get_mut()[0] = 2;
        let mixed = [slots.remove(0), others.remove(1)];
        let mut out = [0; 2];
        assert_eq!(gather(&mixed, &mut out), 2);
        assert_eq!(out, [1, 2]);
    }

    #[test]
    fn slots_are_written_on_other_threads_and_read_here() {
        let slots = slab::<u8>(8, 16).expect("128 bytes");
        let write = |mut slot: Slot<u8>| {
            std::thread::Builder::new()
                .spawn(move || {
                    let i = slot.index() as u8;
                    slot.get_mut().fill(i);
                    slot
                })
                .expect("a thread")
        };
        let threads = slots.into_iter().map(write).collect::<Vec<_>>();
        let slots = threads.into_iter().map(|t| t.join().expect("no panic")).collect::<Vec<_>>();
        let expected = (0..8).flat_map(|i| [i; 16]).collect::<Vec<u8>>();
        assert_eq!(Slot::run(&slots), expected);
    }

    /// Whether the mapping around `address` is to be made of large pages, as the kernel tells.
    #[cfg(target_os = "linux")]
    fn asked_for_large_pages(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("a process may look at its own mappings");
        let mut within = false;
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            if let Some((from, to)) = first.split_once('-')
                && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
            {
                within = (from..to).contains(&address);
            } else if within && first == "VmFlags:" {
                return words.any(|flag| flag == "hg");
            }
        }
        false
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "Miri has no such advice")]
    fn a_large_slab_asks_for_large_pages_and_a_small_one_does_not() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        let middle = |slots: &[Slot<u8>]| slots[slots.len() / 2].get().as_ptr() as usize;
        let (large, small) = (slab::<u8>(16, LARGE / 16).expect("memory"), slab::<u8>(16, 16 << 10).expect("memory"));
        assert!(asked_for_large_pages(middle(&large)));
        assert!(!asked_for_large_pages(middle(&small)));
        assert!(Slot::run(&large).iter().all(|byte| *byte == 0));
    }

    /// How many of the slots' pages are in memory, as the kernel tells.
    #[cfg(target_os = "linux")]
    fn resident_pages(slots: &[Slot<u8>]) -> usize {
        use std::os::unix::fs::FileExt;
        let page = rustix::param::page_size();
        let cells = Slot::run(slots);
        let mut entries = vec![0; cells.len() / page * 8];
        let map = std::fs::File::open("/proc/self/pagemap").expect("a process may look at its own pages");
        map.read_exact_at(&mut entries, (cells.as_ptr() as usize).div_ceil(page) as u64 * 8).expect("an entry for each page");
        entries.chunks(8).filter(|entry| entry[7] & 0x80 != 0).count()
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "Miri has no pages")]
    fn a_slab_is_untouched_even_where_another_has_been_freed() {
        for round in 0..3 {
            let mut slots = slab::<u8>(16, LARGE / 8).expect("memory");
            assert_eq!(resident_pages(&slots), 0, "round {round}");
            slots.iter_mut().for_each(|slot| slot.get_mut().fill(1));
            assert_ne!(resident_pages(&slots), 0);
        }
    }

    #[test]
    fn a_slab_that_cannot_be_had_is_a_failure() {
        for (count, units_per_slot) in [(usize::MAX, 2), (2, usize::MAX), (1, usize::MAX / 8), (usize::MAX / 8, 1)] {
            assert_eq!(slab::<u64>(count, units_per_slot).expect_err("too large").kind, FailureKind::TooLarge);
        }
        assert_eq!(slab::<u64>(0, 7).expect("no memory needed").len(), 0);
        assert!(slab::<u64>(3, 0).expect("tokens only")[2].get().is_empty());
    }
}
