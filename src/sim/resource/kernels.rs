//! Kernels of stages on the devices of a node: so many at a time on each, the others in line.

use std::collections::BTreeMap;

use super::Gate;

/// Places for kernels, device by device. A device has none until somebody first wants one.
pub(in crate::sim) struct Kernels {
    at_once: u32,
    /// Rank `r` is on device `r mod devices`; `None` where each rank has a device of its own.
    devices: Option<u32>,
    gates: BTreeMap<u32, Gate>,
}

impl Kernels {
    /// So many at once on each of so many devices.
    pub(in crate::sim) fn new(at_once: u32, devices: Option<u32>) -> Kernels {
        Kernels { at_once, devices: devices.map(|devices| devices.max(1)), gates: BTreeMap::new() }
    }

    /// The places on a rank's device.
    pub(in crate::sim) fn of(&mut self, rank: u16) -> &mut Gate {
        let device = self.devices.map_or(u32::from(rank), |devices| u32::from(rank) % devices);
        let at_once = self.at_once;
        self.gates.entry(device).or_insert_with(|| Gate::new(at_once))
    }

    /// Kernels that wait for a place, those that have one, and the places; `None` where nobody ever wanted one.
    pub(in crate::sim) fn depth(&self) -> Option<(usize, u32, u32)> {
        let sum = |of: fn(&Gate) -> u32| self.gates.values().map(of).sum();
        let waiting = self.gates.values().map(Gate::waiting).sum();
        (!self.gates.is_empty()).then(|| (waiting, sum(Gate::taken), sum(Gate::places)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_a_device_or_have_one_each() {
        let entered = |devices| {
            let mut kernels = Kernels::new(1, devices);
            let got = [0_u16, 1, 2, 3].map(|rank| kernels.of(rank).enter(u32::from(rank)));
            (got, kernels.depth())
        };
        assert_eq!(entered(Some(2)), ([true, true, false, false], Some((2, 2, 2))));
        assert_eq!(entered(None), ([true; 4], Some((0, 4, 4))));
        assert_eq!(Kernels::new(1, None).depth(), None);
    }
}
