//! The way between host and devices: each device's own link, and an uplink that the devices of one switch share.
//!
//! A copy holds a copy engine of its device and direction from its submission to its last byte. It first takes what every copy takes,
//! whatever its size, which is the leaf's business; then its bytes flow over the device's link and the uplink, in a [`Tree`].
//! Bytes in one direction slow the other down on the device's link.

use super::{
    Gate,
    tree::{Branch, Tree},
};
use crate::sim::{LaneSpec, PcieSpec};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Direction {
    /// From the host to the device.
    In,
    /// From the device to the host.
    Out,
}

/// Links to the devices.
pub(in crate::sim) struct Pcie {
    tree: Tree,
    /// By device, then direction.
    engines: Vec<Gate>,
    first_device: u32,
    devices: u32,
}

impl Pcie {
    pub(in crate::sim) fn new(spec: &PcieSpec) -> Pcie {
        let devices = spec.devices.max(1);
        let per_uplink = spec.devices_per_uplink.clamp(1, devices);
        let uplinks = devices.div_ceil(per_uplink);
        let ways = |lanes: [LaneSpec; 2], first: u32, above: Option<u32>| {
            [0, 1].map(|way| Branch {
                above: above.map(|above| above + way),
                bytes_per_s: lanes[way as usize].bytes_per_s.max(1),
                against_bytes_per_s: lanes[way as usize].against_bytes_per_s.max(1),
                opposite: Some(first + 1 - way),
                flow_bytes_per_s: spec.copy_bytes_per_s.unwrap_or(u64::MAX).max(1),
            })
        };
        let mut branches: Vec<Branch> = (0..uplinks).flat_map(|k| ways([spec.uplink; 2], 2 * k, None)).collect();
        for device in 0..devices {
            let above = 2 * (device / per_uplink);
            branches.extend(ways([spec.to_device, spec.to_host], 2 * (uplinks + device), Some(above)));
        }
        let engines = (0..2 * devices).map(|_| Gate::new(spec.engines)).collect();
        Pcie { tree: Tree::new(&branches), engines, first_device: 2 * uplinks, devices }
    }

    fn lane(&self, rank: u16, way: Direction) -> u32 {
        2 * (u32::from(rank) % self.devices) + way as u32
    }

    /// The copy engines of a rank's device.
    pub(in crate::sim) fn engines(&mut self, rank: u16, way: Direction) -> &mut Gate {
        let lane = self.lane(rank, way);
        &mut self.engines[lane as usize]
    }

    /// Copies that wait for an engine, those that have one, and the engines.
    pub(in crate::sim) fn depth(&self) -> (usize, u32, u32) {
        let sum = |of: fn(&Gate) -> u32| self.engines.iter().map(of).sum();
        (self.engines.iter().map(Gate::waiting).sum(), sum(Gate::taken), sum(Gate::places))
    }

    /// The bytes of a copy set out.
    pub(in crate::sim) fn start(&mut self, now: u64, user: u32, rank: u16, way: Direction, bytes: u64) {
        self.tree.start(now, user, self.first_device + self.lane(rank, way), bytes);
    }

    /// When the next copy is done (ns).
    #[inline]
    pub(in crate::sim) fn next(&self) -> u64 {
        self.tree.next()
    }

    /// Tells which copies are done at `now`, which is [`next`](Pcie::next).
    pub(in crate::sim) fn done(&mut self, now: u64, tell: impl FnMut(u32)) {
        self.tree.done(now, tell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::resource::NEVER;

    const MB: u64 = 1_000_000;

    fn run(pcie: &mut Pcie) -> Vec<(u64, u32)> {
        let mut ends = Vec::new();
        while pcie.next() != NEVER {
            let now = pcie.next();
            pcie.done(now, |user| ends.push((now, user)));
        }
        ends
    }

    /// Times of copies of 257 MB, one each at these (rank, way), in ns.
    fn times(spec: PcieSpec, copies: &[(u16, Direction)]) -> Vec<u64> {
        let mut pcie = Pcie::new(&spec);
        for (user, (rank, way)) in copies.iter().enumerate() {
            pcie.start(0, user as u32, *rank, *way, 257 * MB);
        }
        let mut ends = run(&mut pcie);
        ends.sort_by_key(|(_, user)| *user);
        ends.into_iter().map(|(at, _)| at).collect()
    }

    /// An A100 on a gen4 host.
    fn gen4(copy_bytes_per_s: Option<u64>) -> PcieSpec {
        PcieSpec {
            to_device: LaneSpec { bytes_per_s: 25_700 * MB, against_bytes_per_s: 11_000 * MB },
            to_host: LaneSpec { bytes_per_s: 25_700 * MB, against_bytes_per_s: 24_000 * MB },
            copy_bytes_per_s,
            ..PcieSpec::new(1, LaneSpec::both(25_700 * MB))
        }
    }

    #[test]
    fn pinned_and_pageable_memory_alone() {
        assert_eq!(times(gen4(None), &[(0, Direction::In)]), [10_000_000]);
        assert_eq!(times(gen4(Some(10_000 * MB)), &[(0, Direction::In)]), [25_700_000]);
    }

    #[test]
    fn both_ways_at_once_the_way_in_falls_to_less_than_half() {
        // 257 MB at 24 GB/s; by then 117.79 MB have gone in at 11 GB/s, and the rest goes at full speed.
        let out: f64 = 257.0 * 1e6 / 24.0;
        let back = (257.0 * 1e6 - out * 11.0) / 25.7;
        let expected = [(out + back).round() as u64, out.round() as u64];
        for (time, expected) in times(gen4(None), &[(0, Direction::In), (0, Direction::Out)]).into_iter().zip(expected) {
            assert!(time.abs_diff(expected) <= 1, "{time} instead of {expected}");
        }
    }

    #[test]
    fn devices_of_one_switch_share_its_uplink_and_those_of_another_do_not_feel_it() {
        let spec = PcieSpec {
            devices_per_uplink: 2,
            uplink: LaneSpec::both(12_850 * MB),
            ..PcieSpec::new(8, LaneSpec::both(25_700 * MB))
        };
        assert_eq!(times(spec, &[(0, Direction::In)]), [20_000_000]);
        assert_eq!(
            times(spec, &[(0, Direction::In), (1, Direction::In), (2, Direction::In)]),
            [40_000_000, 40_000_000, 20_000_000]
        );
        // Directions of an uplink are apart, and a rank beyond the last device begins again with the first.
        assert_eq!(times(spec, &[(0, Direction::In), (1, Direction::Out)]), [20_000_000, 20_000_000]);
        assert_eq!(times(spec, &[(0, Direction::In), (8, Direction::In)]), [40_000_000, 40_000_000]);
    }

    #[test]
    fn each_device_has_its_own_engines_for_each_way() {
        let mut pcie = Pcie::new(&PcieSpec::new(2, LaneSpec::both(MB)));
        assert!(
            pcie.engines(0, Direction::In).enter(1)
                && pcie.engines(0, Direction::Out).enter(2)
                && pcie.engines(1, Direction::In).enter(3)
        );
        assert!(!pcie.engines(0, Direction::In).enter(4));
        assert_eq!(pcie.depth(), (1, 3, 4));
        assert_eq!(pcie.engines(0, Direction::In).leave(), Some(4));
    }
}
