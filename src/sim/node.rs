//! A machine of the simulation with all its resources, and which of many is the next on which something happens.

use std::collections::BTreeMap;

use super::{
    Config, CopyBy,
    executor::Waiter,
    resource::{Account, Cpu, Direction, Disk, Gate, Gpu, Kernels, Link, Lock, NEVER, Pcie, Scheduler},
    stall::{Balance, Depth},
    timers::AlarmId,
};

/// One machine: nothing of it is shared with another.
pub(super) struct Node {
    pub(super) cpu: Cpu,
    pub(super) pool: Gate,
    pub(super) lock: Option<Box<Lock>>,
    /// When whoever holds the lock has to give way.
    pub(super) switch: AlarmId,
    pub(super) connections: Option<Gate>,
    pub(super) link: Option<Link>,
    pub(super) disk: Option<Disk>,
    pub(super) engines: Option<Gate>,
    pub(super) pcie: Option<Box<Pcie>>,
    pub(super) gpu: Option<Box<Gpu>>,
    pub(super) kernels: Kernels,
    pub(super) scheduler: Scheduler,
    pub(super) host: Account,
    pub(super) device: Account,
    /// Who waits for the end of its train step.
    pub(super) steps: BTreeMap<u64, Waiter>,
}

impl Node {
    pub(super) fn new(config: &Config) -> Node {
        let store = &config.store;
        Node {
            cpu: Cpu::new(&config.cpu),
            pool: Gate::new(config.pool_threads),
            lock: config.lock.as_ref().map(|lock| Box::new(Lock::new(lock))),
            switch: AlarmId::default(),
            connections: store.connections.map(Gate::new),
            link: store.link_bytes_per_s.map(|rate| Link::new(rate, store.connection_bytes_per_s)),
            disk: store.disk.as_ref().map(Disk::new),
            engines: match config.copy.by {
                CopyBy::Engines(engines) => Some(Gate::new(engines)),
                CopyBy::Pool | CopyBy::Thread | CopyBy::Pcie(_) => None,
            },
            pcie: match &config.copy.by {
                CopyBy::Pcie(spec) => Some(Box::new(Pcie::new(spec))),
                CopyBy::Pool | CopyBy::Thread | CopyBy::Engines(_) => None,
            },
            gpu: Gpu::new(&config.gpu, config.cpu.cores).map(Box::new),
            kernels: Kernels::new(
                config.kernels.at_once,
                match &config.copy.by {
                    CopyBy::Pcie(spec) => Some(spec.devices),
                    CopyBy::Pool | CopyBy::Thread | CopyBy::Engines(_) => None,
                },
            ),
            scheduler: Scheduler::new(config.scheduler, config.wakeup_ns),
            host: Account::new(config.memory_bytes),
            device: Account::new(None),
            steps: BTreeMap::new(),
        }
    }

    /// When the next thing happens here, if nothing changes before.
    #[inline]
    pub(super) fn next(&mut self, now: u64) -> u64 {
        let link = self.link.as_ref().map_or(NEVER, Link::next);
        let bus = self.pcie.as_ref().map_or(NEVER, |pcie| pcie.next());
        let busy = self.cpu.runnable();
        let step = self.gpu.as_mut().map_or(NEVER, |gpu| gpu.next(now, busy));
        self.cpu.next().min(link).min(bus).min(step)
    }

    /// The engines that copy this way for a rank; `None` where threads copy.
    pub(super) fn engines_of(&mut self, rank: u16, way: Direction) -> Option<&mut Gate> {
        match &mut self.pcie {
            Some(pcie) => Some(pcie.engines(rank, way)),
            None => self.engines.as_mut(),
        }
    }

    /// Every resource, and who is there.
    pub(super) fn depths(&self) -> Vec<Depth> {
        let gate = |resource, gate: &Gate| Depth {
            resource,
            busy: gate.taken() as usize,
            places: Some(gate.places() as usize),
            waiting: gate.waiting(),
            holders: Vec::new(),
        };
        let free = |resource, busy| Depth { resource, busy, places: None, waiting: 0, holders: Vec::new() };
        let mut depths = vec![free("cores", self.cpu.runnable()), gate("pool", &self.pool)];
        depths.extend(self.lock.as_ref().map(|lock| Depth {
            resource: "lock",
            busy: usize::from(lock.holder().is_some()),
            places: Some(1),
            waiting: lock.waiting(),
            holders: Vec::new(),
        }));
        depths.extend(self.connections.as_ref().map(|connections| gate("connections", connections)));
        depths.extend(self.link.as_ref().map(|link| free("link", link.flows())));
        depths.extend(self.engines.as_ref().map(|engines| gate("copy engines", engines)));
        depths.extend(self.pcie.as_ref().map(|pcie| {
            let (waiting, taken, places) = pcie.depth();
            Depth { resource: "copy engines", busy: taken as usize, places: Some(places as usize), waiting, holders: Vec::new() }
        }));
        depths.extend(self.kernels.depth().map(|(waiting, taken, places)| Depth {
            resource: "kernels",
            busy: taken as usize,
            places: Some(places as usize),
            waiting,
            holders: Vec::new(),
        }));
        if !self.scheduler.is_free() {
            depths.push(Depth { waiting: self.scheduler.backlog(), ..free("scheduler", 0) });
        }
        depths
    }

    /// Every memory account.
    pub(super) fn balances(&self) -> Vec<Balance> {
        let balance = |account, of: &Account| Balance { account, used_bytes: of.used(), peak_bytes: of.peak() };
        vec![balance("slots", &self.host), balance("device", &self.device)]
    }
}

/// When something next happens on each of many nodes: a tournament of which the first to act is the winner, so that a change of one
/// node costs as many steps as there are rounds. Nodes that have changed are kept apart until somebody asks them anew.
pub(super) struct Nearest {
    /// Times, as a binary tree: the children of `k` are `2k` and `2k + 1`, and the nodes are the last half.
    times: Vec<u64>,
    leaves: usize,
    changed: Vec<u16>,
    is_changed: Vec<bool>,
}

impl Nearest {
    /// Nothing ever happens on so many nodes.
    pub(super) fn new(nodes: u16) -> Nearest {
        let leaves = usize::from(nodes).next_power_of_two();
        Nearest { times: vec![NEVER; 2 * leaves], leaves, changed: Vec::new(), is_changed: vec![false; usize::from(nodes)] }
    }

    /// What is known of a node does not hold any more.
    #[inline]
    pub(super) fn change(&mut self, node: u16) {
        let is_changed = &mut self.is_changed[usize::from(node)];
        if !*is_changed {
            *is_changed = true;
            self.changed.push(node);
        }
    }

    /// One of the nodes that have changed, which is then to be [set](Nearest::set).
    #[inline]
    pub(super) fn take_changed(&mut self) -> Option<u16> {
        let node = self.changed.pop()?;
        self.is_changed[usize::from(node)] = false;
        Some(node)
    }

    /// Something happens on a node at this time next.
    pub(super) fn set(&mut self, node: u16, time: u64) {
        let mut at = self.leaves + usize::from(node);
        self.times[at] = time;
        while at > 1 {
            at /= 2;
            let first = self.times[2 * at].min(self.times[2 * at + 1]);
            if self.times[at] == first {
                break;
            }
            self.times[at] = first;
        }
    }

    /// When something next happens, and on which node: the one with the lowest number where there are several.
    #[inline]
    pub(super) fn first(&self) -> (u64, u16) {
        let time = self.times[1];
        let mut at = 1;
        while at < self.leaves {
            at = if self.times[2 * at] == time { 2 * at } else { 2 * at + 1 };
        }
        (time, (at - self.leaves) as u16)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_the_least_of_all(nodes in 1u16..40, sets in prop::collection::vec((0u16..40, 0u64..20), 1..200)) {
            let mut nearest = Nearest::new(nodes);
            let mut all = vec![NEVER; usize::from(nodes)];
            for (node, time) in sets {
                let node = node % nodes;
                all[usize::from(node)] = time;
                nearest.set(node, time);
                let least = all.iter().enumerate().map(|(k, time)| (*time, k as u16)).min().expect("there is a node");
                prop_assert_eq!(nearest.first(), least);
            }
        }
    }

    #[test]
    fn a_node_that_changes_twice_is_asked_once() {
        let mut nearest = Nearest::new(3);
        nearest.change(2);
        nearest.change(0);
        nearest.change(2);
        let mut asked: Vec<u16> = std::iter::from_fn(|| nearest.take_changed()).collect();
        asked.sort_unstable();
        assert_eq!(asked, [0, 2]);
        nearest.change(2);
        assert_eq!((nearest.take_changed(), nearest.take_changed()), (Some(2), None));
    }
}
