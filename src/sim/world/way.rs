//! A leaf's way through the resources, from its submission to its end.

use super::{Request, World};
use crate::{
    failure::FailureKind,
    fault::{self, Fault, Leaf as LeafKind},
    sim::{
        CopyBy, Reader,
        executor::Tasks,
        leaf::{Holds, LeafId, Phase},
        node::Node,
        resource::{Cpu, Gate, Link, NEVER},
        timers::Alarm,
    },
    trace::Kind,
};

impl World {
    /// A leaf sets out. Who waits for it says so when it [polls](World::poll).
    pub(in crate::sim) fn submit(&mut self, request: &mut Request<'_>, tasks: &mut Tasks) -> LeafId {
        let (op, bytes) = (request.op, request.bytes);
        self.touch(request.node);
        let phase = match request.kind {
            LeafKind::Read if self.reader == Reader::Own || request.own_thread => Phase::ForConnection,
            LeafKind::Copy if self.copy_by != CopyBy::Pool => Phase::ForEngine,
            LeafKind::Kernel => Phase::ForKernel,
            _ if request.own_thread => Phase::OnCore,
            _ => Phase::ForThread,
        };
        let id = self.leaves.insert(request, phase, self.now);
        if request.locked_ns > 0
            && let Some(lock) = &mut self.node(request.node).lock
        {
            lock.owes(id.slot, Cpu::work(request.locked_ns));
        }
        self.record(op, Kind::Queued, self.now, bytes);
        match phase {
            Phase::ForConnection => self.connect(id.slot, tasks),
            Phase::ForEngine => self.seek_engine(id.slot, tasks),
            Phase::ForKernel => self.seek_device(id.slot, tasks),
            Phase::OnCore => self.on_thread(id.slot, tasks),
            _ => {
                if self.node(request.node).pool.enter(id.slot) {
                    self.hired(id.slot, self.wakeup_ns, tasks);
                }
            }
        }
        id
    }

    /// It has a thread of the pool, which needs so long to wake up.
    #[inline]
    fn hired(&mut self, slot: u32, wakeup_ns: u64, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        leaf.holds.0 |= Holds::THREAD;
        if wakeup_ns > 0 {
            leaf.phase = Phase::Waking;
            leaf.alarm = self.timers.set_steady(self.now + wakeup_ns, Alarm::Leaf(slot));
        } else {
            self.on_thread(slot, tasks);
        }
    }

    /// Its thread is awake.
    pub(super) fn on_thread(&mut self, slot: u32, tasks: &mut Tasks) {
        match self.leaves.at(slot).kind {
            LeafKind::Read => self.connect(slot, tasks),
            LeafKind::Cpu | LeafKind::Copy => {
                self.start(slot);
                self.process(slot, tasks);
            }
            LeafKind::Kernel => unreachable!("a kernel has no thread"),
        }
    }

    /// A read wants a connection.
    fn connect(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        match &mut self.nodes[usize::from(leaf.node)].connections {
            None => self.ask(slot, tasks),
            Some(_) if leaf.holds.has(Holds::CACHED) => self.ask(slot, tasks),
            Some(connections) => {
                leaf.phase = Phase::ForConnection;
                if connections.enter(slot) {
                    self.connected(slot, tasks);
                }
            }
        }
    }

    fn connected(&mut self, slot: u32, tasks: &mut Tasks) {
        self.leaves.at(slot).holds.0 |= Holds::CONNECTION;
        self.ask(slot, tasks);
    }

    /// A read asks the store.
    fn ask(&mut self, slot: u32, tasks: &mut Tasks) {
        self.start(slot);
        let now = self.now;
        let cached = self.leaves.at(slot).holds.has(Holds::CACHED);
        let refused = !cached && self.bucket.as_mut().is_some_and(|bucket| !bucket.admit(now));
        let leaf = self.leaves.at(slot);
        let node = &mut self.nodes[usize::from(leaf.node)];
        if refused {
            leaf.fault = Some(Fault::Fail(FailureKind::Throttled));
        }
        let mut wait_ns = leaf.wait_ns;
        match leaf.fault {
            Some(Fault::Stall) => {
                leaf.phase = Phase::Stalled;
                return;
            }
            Some(Fault::Fail(kind)) => {
                leaf.failed = Some(kind);
                leaf.bytes = 0;
            }
            fault => {
                if let Some(Fault::Truncate { keep_ppm }) = fault {
                    leaf.bytes = fault::kept(leaf.bytes, keep_ppm);
                }
                let bytes = node.disk.as_ref().map_or(leaf.bytes, |disk| disk.handed_out(leaf.bytes));
                if cached {
                    wait_ns = 0;
                } else if node.link.is_none() {
                    wait_ns = wait_ns.saturating_add(transfer_ns(self.connection_bytes_per_s, bytes));
                }
                if let Some(Fault::Slow { times }) = fault {
                    wait_ns = wait_ns.saturating_mul(u64::from(times));
                }
                if let Some(disk) = &mut node.disk
                    && !cached
                {
                    wait_ns = wait_ns.saturating_add(disk.queued_ns(now, bytes));
                }
            }
        }
        leaf.phase = Phase::FirstByte;
        if wait_ns > 0 {
            leaf.alarm = self.timers.set(now.saturating_add(wait_ns), Alarm::Leaf(slot));
        } else {
            self.arrived(slot, tasks);
        }
    }

    /// A read's first byte is there, or all of them where no link is shared.
    pub(super) fn arrived(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        if leaf.failed.is_some() {
            return self.end(slot, tasks);
        }
        let node = &mut self.nodes[usize::from(leaf.node)];
        match &mut node.link {
            Some(link) if leaf.bytes > 0 && !leaf.holds.has(Holds::CACHED) => {
                let times = match leaf.fault {
                    Some(Fault::Slow { times }) => u64::from(times),
                    _ => 1,
                };
                leaf.phase = Phase::OnLink;
                let bytes = node.disk.as_ref().map_or(leaf.bytes, |disk| disk.handed_out(leaf.bytes));
                link.start(self.now, slot, bytes.saturating_mul(times).min(Link::BYTES_MAX));
            }
            _ => self.process(slot, tasks),
        }
    }

    /// A copy wants an engine.
    fn seek_engine(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        let (rank, way) = (leaf.op.rank, leaf.holds.way());
        let node = &mut self.nodes[usize::from(leaf.node)];
        match node.engines_of(rank, way) {
            Some(engines) => {
                if engines.enter(slot) {
                    self.on_engine(slot, tasks);
                }
            }
            None => {
                self.start(slot);
                self.process(slot, tasks);
            }
        }
    }

    fn on_engine(&mut self, slot: u32, tasks: &mut Tasks) {
        self.start(slot);
        let leaf = self.leaves.at(slot);
        leaf.holds.0 |= Holds::ENGINE;
        let by_pcie = self.nodes[usize::from(leaf.node)].pcie.is_some() && self.outstanding.is_none();
        leaf.phase = if by_pcie { Phase::Submitting } else { Phase::OnEngine };
        if leaf.busy_ns > 0 {
            leaf.alarm = self.timers.set(self.now.saturating_add(leaf.busy_ns), Alarm::Leaf(slot));
        } else if by_pcie {
            self.on_bus(slot);
        } else {
            self.end(slot, tasks);
        }
    }

    /// A kernel wants a place on its rank's device.
    fn seek_device(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        if self.nodes[usize::from(leaf.node)].kernels.of(leaf.op.rank).enter(slot) {
            self.on_device(slot, tasks);
        }
    }

    fn on_device(&mut self, slot: u32, tasks: &mut Tasks) {
        self.start(slot);
        let leaf = self.leaves.at(slot);
        leaf.holds.0 |= Holds::KERNEL;
        leaf.phase = Phase::OnDevice;
        if leaf.busy_ns > 0 {
            leaf.alarm = self.timers.set(self.now.saturating_add(leaf.busy_ns), Alarm::Leaf(slot));
        } else {
            self.end(slot, tasks);
        }
    }

    /// The bytes of a copy set out.
    pub(super) fn on_bus(&mut self, slot: u32) {
        let leaf = self.leaves.at(slot);
        leaf.phase = Phase::OnBus;
        let (rank, way) = (leaf.op.rank, leaf.holds.way());
        let bytes = leaf.bytes;
        let now = self.now;
        let pcie = self.node_of(slot).pcie.as_mut().expect("only its engines are told to send bytes");
        pcie.start(now, slot, rank, way, bytes);
    }

    /// Its thread wants the lock.
    fn lock(&mut self, slot: u32) {
        let leaf = self.leaves.at(slot);
        let node = leaf.node;
        let lock = self.nodes[usize::from(node)].lock.as_mut().expect("something is to be done under it");
        if lock.enter(slot) {
            self.locked(node);
        } else {
            leaf.phase = Phase::ForLock;
            if lock.waiting() == 1 {
                self.watch(node);
            }
        }
    }

    /// Somebody has got the lock of a node, and wants a core.
    fn locked(&mut self, node: u16) {
        let Node { lock, cpu, .. } = &mut self.nodes[usize::from(node)];
        let lock = lock.as_ref().expect("somebody has it");
        if let Some(slot) = lock.holder() {
            self.leaves.at(slot).phase = Phase::OnCore;
            cpu.go_on(self.now, slot, lock.work(slot));
        }
        self.watch(node);
    }

    /// The lock has changed hands, or somebody waits for it where nobody did: from now on they wait an interval.
    fn watch(&mut self, at: u16) {
        let node = &mut self.nodes[usize::from(at)];
        self.timers.cancel(node.switch);
        let lock = node.lock.as_ref().expect("it has just been taken");
        if lock.waiting() > 0 && lock.interval_ns() < NEVER {
            node.switch = self.timers.set(self.now.saturating_add(lock.interval_ns()), Alarm::LockSwitch(at));
        }
    }

    /// Whoever holds the lock of a node has to give way.
    pub(super) fn switch(&mut self, node: u16) {
        self.touch(node);
        let Node { lock, cpu, .. } = &mut self.nodes[usize::from(node)];
        let lock = lock.as_mut().expect("somebody waits for it");
        // One that is done at this very instant leaves by itself.
        if let Some(left) = lock.holder().and_then(|holder| cpu.suspend(self.now, holder)) {
            if let Some(holder) = lock.holder() {
                self.leaves.at(holder).phase = Phase::ForLock;
            }
            lock.give_way(left);
            self.locked(node);
        }
    }

    /// A leaf has done what it had to do under the lock.
    pub(super) fn unlock(&mut self, slot: u32, tasks: &mut Tasks) {
        let node = self.leaves.at(slot).node;
        self.node(node).lock.as_mut().expect("it has it").leave();
        self.locked(node);
        self.process(slot, tasks);
    }

    /// It wants a core, and before it the lock if it has to do something under that.
    #[inline]
    pub(super) fn process(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        let node = &mut self.nodes[usize::from(leaf.node)];
        if node.lock.as_ref().is_some_and(|lock| lock.is_owed(slot)) {
            return self.lock(slot);
        }
        if leaf.busy_ns > 0 {
            leaf.phase = Phase::OnCore;
            node.cpu.start(self.now, slot, leaf.busy_ns);
        } else {
            self.end(slot, tasks);
        }
    }

    /// It begins, as traces have it.
    #[inline]
    pub(super) fn start(&mut self, slot: u32) {
        let now = self.now;
        let leaf = self.leaves.at(slot);
        let (op, since) = (leaf.op, std::mem::replace(&mut leaf.since, now));
        self.record(&op, Kind::Start, since, 0);
    }

    /// It ends, in abstract time once the chooser has said so.
    pub(in crate::sim) fn end(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        if let Some(outstanding) = &mut self.outstanding
            && leaf.phase != Phase::Outstanding
        {
            let id = LeafId { slot, generation: leaf.generation };
            return outstanding.begin(id, leaf);
        }
        if let Some(body) = &leaf.body
            && leaf.failed.is_none()
        {
            leaf.failed = body.run(leaf.fault);
            self.bodies_ran = true;
        }
        let (op, node, since, holds, given_up) = (leaf.op, leaf.node, leaf.since, leaf.holds, leaf.given_up);
        leaf.holds = Holds::default();
        leaf.phase = Phase::Ended;
        if given_up {
            self.litter.extend(leaf.body.take());
            self.leaves.remove(slot);
            self.ended_alone(tasks);
        } else {
            match leaf.failed {
                None => {
                    let bytes = leaf.bytes;
                    self.record(&op, Kind::End, since, bytes);
                }
                Some(kind) => self.record(&op, Kind::Fail, since, kind.code()),
            }
        }
        self.release(holds, node, op.rank, tasks);
        if given_up {
            return;
        }
        match holds.has(Holds::OWN_THREAD) {
            true => self.deliver(slot, tasks),
            false => self.completed(slot, tasks),
        }
    }

    /// Gives its places to those who wait for them.
    pub(super) fn release(&mut self, holds: Holds, node: u16, rank: u16, tasks: &mut Tasks) {
        if holds.has(Holds::THREAD)
            && let Some(next) = self.node(node).pool.leave()
        {
            self.hired(next, 0, tasks);
        }
        if holds.has(Holds::CONNECTION)
            && let Some(next) = self.node(node).connections.as_mut().and_then(Gate::leave)
        {
            self.connected(next, tasks);
        }
        if holds.has(Holds::ENGINE)
            && let Some(next) = self.node(node).engines_of(rank, holds.way()).and_then(Gate::leave)
        {
            self.on_engine(next, tasks);
        }
        if holds.has(Holds::KERNEL)
            && let Some(next) = self.node(node).kernels.of(rank).leave()
        {
            self.on_device(next, tasks);
        }
    }
}

/// Time that a connection of this rate takes for so many bytes, rounded up (ns).
fn transfer_ns(bytes_per_s: Option<u64>, bytes: u64) -> u64 {
    const NS_PER_S: u64 = 1_000_000_000;
    let Some(rate) = bytes_per_s.map(|rate| rate.max(1)) else { return 0 };
    match bytes.checked_mul(NS_PER_S) {
        Some(product) => product.div_ceil(rate),
        None => u64::try_from((u128::from(bytes) * u128::from(NS_PER_S)).div_ceil(u128::from(rate))).unwrap_or(u64::MAX),
    }
}
