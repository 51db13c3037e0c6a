//! The host as a device: batches are heap memory, copies are `memcpy`.

use std::{io, sync::Arc};

use super::{CopyDone, Device, link::Link};
use crate::{
    failure::{Failure, FailureKind},
    machine::{Slot, gather, slab},
};

/// A consumer on the host.
///
/// It reads contiguous batches where they lie. A host device made by [`copying`](HostDevice::copying) does not, so that every batch
/// takes the way it would take to a device of its own; one that is [`linked`](HostDevice::linked) takes as long for it, too.
#[derive(Clone, Debug)]
pub struct HostDevice {
    lends_slots: bool,
    link: Option<Arc<Link>>,
}

impl HostDevice {
    /// A host whose consumer reads slots in place.
    pub fn new() -> HostDevice {
        HostDevice { lends_slots: true, link: None }
    }

    /// A host on which every batch is copied.
    pub fn copying() -> HostDevice {
        HostDevice { lends_slots: false, link: None }
    }

    /// A host that stands for a device behind a link of so many bytes a second: every batch is copied, and one copy after the other takes
    /// as long as its bytes take on the link. A thread of its own copies, until the device is dropped.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub fn linked(bytes_per_s: u64) -> io::Result<HostDevice> {
        Ok(HostDevice { lends_slots: false, link: Some(Arc::new(Link::new(bytes_per_s)?)) })
    }
}

impl Default for HostDevice {
    fn default() -> HostDevice {
        HostDevice::new()
    }
}

impl<U: Copy + Default + Send + Sync + 'static> Device<U> for HostDevice {
    type Batch = Vec<U>;

    fn name(&self) -> String {
        "host".to_owned()
    }

    fn lends_slots(&self) -> bool {
        self.lends_slots
    }

    fn slots(&self, count: usize, units_per_slot: usize) -> Result<Vec<Slot<U>>, Failure> {
        slab(count, units_per_slot)
    }

    fn batch(&self, samples: usize, units_per_slot: usize) -> Result<Vec<U>, Failure> {
        let cannot =
            || Failure::new(FailureKind::TooLarge, format!("no memory for a batch of {samples} × {units_per_slot} cells"));
        let units = samples.checked_mul(units_per_slot).ok_or_else(cannot)?;
        let mut batch = Vec::new();
        batch.try_reserve_exact(units).map_err(|_| cannot())?;
        batch.resize(units, U::default());
        Ok(batch)
    }

    fn copy(&self, src: Vec<Slot<U>>, mut dst: Vec<U>, at_unit: usize, done: CopyDone<U, Vec<U>>) {
        let bytes = src.iter().map(|slot| size_of_val(slot.get()) as u64).sum();
        let copy = move || {
            let units = src.iter().map(|slot| slot.get().len()).sum::<usize>();
            let Some(place) = at_unit.checked_add(units).and_then(|end| dst.get_mut(at_unit..end)) else {
                let message = format!("{units} cells do not fit at cell {at_unit} of a batch of {}", dst.len());
                let full = Failure::new(FailureKind::Device, message);
                return Box::new(move || done.fail(full)) as Box<dyn FnOnce() + Send>;
            };
            gather(&src, place);
            Box::new(move || done.complete(src, dst))
        };
        match &self.link {
            None => copy()(),
            Some(link) => link.carry(bytes, copy),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc,
        time::{Duration, Instant},
    };

    use super::*;

    fn copy(count: usize, at_unit: usize) -> Result<Vec<u8>, Failure> {
        let device = HostDevice::copying();
        let mut slots: Vec<Slot<u8>> = device.slots(count, 2).expect("a few bytes");
        for slot in &mut slots {
            let i = slot.index() as u8;
            slot.get_mut().fill(i + 1);
        }
        let (heard, answer) = mpsc::channel();
        let done = CopyDone::new(move |a| heard.send(a).expect("the test listens"));
        device.copy(slots, device.batch(3, 2).expect("a few bytes"), at_unit, done);
        answer.recv().expect("every copy is reported").map(|(_, batch)| batch)
    }

    #[test]
    fn slots_land_behind_one_another_from_their_place_on() {
        assert_eq!(copy(2, 2).expect("it fits"), [0, 0, 1, 1, 2, 2]);
        assert_eq!(copy(0, 6).expect("nothing fits anywhere"), [0; 6]);
    }

    #[test]
    fn a_copy_past_the_end_fails_and_writes_nothing() {
        assert_eq!(copy(2, 4).expect_err("two slots at the last place").kind, FailureKind::Device);
        assert_eq!(copy(1, usize::MAX).expect_err("far outside").kind, FailureKind::Device);
    }

    #[test]
    fn memory_that_cannot_be_had_is_a_failure() {
        let device = HostDevice::new();
        let kind = |f: Failure| f.kind;
        assert_eq!(Device::<u64>::batch(&device, usize::MAX, 2).map_err(kind), Err(FailureKind::TooLarge));
        assert_eq!(Device::<u64>::batch(&device, usize::MAX / 16, 1).map_err(kind), Err(FailureKind::TooLarge));
        assert_eq!(Device::<u8>::slots(&device, usize::MAX, 2).map(|_| ()).map_err(kind), Err(FailureKind::TooLarge));
        assert_eq!(Device::<u64>::slots(&device, usize::MAX / 16, 1).map(|_| ()).map_err(kind), Err(FailureKind::TooLarge));
    }

    #[test]
    fn copies_over_a_link_follow_one_another_and_take_as_long_as_their_bytes() {
        // A slot of 1000 bytes takes two milliseconds.
        let device = HostDevice::linked(500_000).expect("a thread");
        let (tell, told) = mpsc::channel();
        #[expect(clippy::disallowed_methods, reason = "the time that copies take is what is tested")]
        let began = Instant::now();
        for sample in 0..3_u8 {
            let mut slots: Vec<Slot<u8>> = device.slots(1, 1000).expect("a few bytes");
            slots[0].get_mut().fill(sample);
            let dst = device.batch(1, 1000).expect("a few bytes");
            let tell = tell.clone();
            device.copy(slots, dst, 0, CopyDone::new(move |answer| tell.send(answer.map(|(_, dst)| dst)).expect("it is heard")));
        }
        for sample in 0..3 {
            let dst = told.recv().expect("it is told").expect("it is copied");
            assert!(dst.iter().all(|cell| *cell == sample), "in order");
        }
        assert!(began.elapsed() >= Duration::from_millis(6), "{:?}", began.elapsed());
        drop(device);
        assert!(told.try_recv().is_err());
    }
}
