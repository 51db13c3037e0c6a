//! Who waits: the scheduler for answers, tasks for their leaves and train steps.

use std::rc::Rc;

use super::{Ended, SCHEDULER, World};
use crate::{
    fault::Leaf as LeafKind,
    sim::{
        executor::{Tasks, Waiter},
        leaf::{Body, LeafId, Phase},
        node::Node,
        resource::Rouse,
        timers::Alarm,
    },
    trace::Kind,
};

impl World {
    #[inline]
    pub(super) fn completed(&mut self, slot: u32, tasks: &mut Tasks) {
        let node = self.leaves.at(slot).node;
        let Node { scheduler, pool, .. } = self.node(node);
        if scheduler.is_free() {
            self.deliver(slot, tasks);
        } else {
            let rouse = scheduler.completed(slot, pool.waiting());
            self.rouse(node, rouse);
        }
    }

    pub(super) fn rouse(&mut self, node: u16, rouse: Rouse) {
        match rouse {
            Rouse::No => {}
            Rouse::Now if self.wakeup_ns == 0 => self.scheduler_awake(node),
            Rouse::Now => {
                self.timers.set_steady(self.now + self.wakeup_ns, Alarm::SchedulerAwake(node));
            }
            Rouse::Within(ns) => {
                self.timers.set(self.now.saturating_add(ns), Alarm::SchedulerAge(node));
            }
        }
    }

    pub(super) fn scheduler_awake(&mut self, node: u16) {
        self.touch(node);
        let now = self.now;
        let Node { scheduler, cpu, .. } = self.node(node);
        cpu.start(now, SCHEDULER, scheduler.awake());
    }

    /// The scheduler of a node has handled a burst.
    pub(super) fn handled(&mut self, node: u16, tasks: &mut Tasks) {
        self.touch(node);
        let burst = self.node(node).scheduler.handled();
        for slot in &burst {
            self.deliver(*slot, tasks);
        }
        let now = self.now;
        let Node { scheduler, cpu, .. } = self.node(node);
        if let Some(ns) = scheduler.again(burst) {
            cpu.start(now, SCHEDULER, ns);
        }
    }

    #[inline]
    pub(super) fn deliver(&mut self, slot: u32, tasks: &mut Tasks) {
        let leaf = self.leaves.at(slot);
        if leaf.given_up {
            self.litter.extend(leaf.body.take());
            self.leaves.remove(slot);
        } else {
            leaf.phase = Phase::Delivered;
            tasks.notify(std::mem::take(&mut leaf.waiter));
        }
    }

    // ---- train steps

    /// A train step begins on a node, of so long on an idle host (ns), on a device that a busy host slows down.
    pub(in crate::sim) fn begin_step(&mut self, node: u16, ns: u64, waiter: Waiter) -> u64 {
        self.touch(node);
        let now = self.now;
        let Node { gpu, steps, .. } = self.node(node);
        let step = gpu.as_mut().expect("a step that nothing slows down is a sleep").start(now, ns);
        steps.insert(step, waiter);
        step
    }

    /// Who waits for the end of a step that is under way on a node.
    pub(in crate::sim) fn stepper(&mut self, node: u16, step: u64) -> Option<&mut Waiter> {
        self.node(node).steps.get_mut(&step)
    }

    /// Who waits for the end of any step.
    pub(in crate::sim) fn steppers(&self) -> impl Iterator<Item = &Waiter> + '_ {
        self.nodes.iter().flat_map(|node| node.steps.values())
    }

    /// A step that nobody waits for any more; nothing if it is over.
    pub(in crate::sim) fn break_off_step(&mut self, node: u16, step: u64) -> Option<Waiter> {
        self.touch(node);
        let now = self.now;
        let Node { gpu, steps, .. } = self.node(node);
        let waiter = steps.remove(&step)?;
        gpu.as_mut().expect("it has begun one").stop(now, step);
        Some(waiter)
    }

    // ---- its future

    /// The answer, if it is there; else whoever polls is woken when it is.
    #[inline]
    pub(in crate::sim) fn poll(&mut self, id: LeafId, waiter: impl FnOnce() -> Waiter) -> Result<Ended, Waiter> {
        let leaf = self.leaves.at(id.slot);
        debug_assert_eq!(leaf.generation, id.generation, "a leaf stays until its future has its answer or is dropped");
        if leaf.phase != Phase::Delivered {
            return Err(std::mem::replace(&mut leaf.waiter, waiter()));
        }
        let ended = Ended { bytes: leaf.bytes, failed: leaf.failed };
        leaf.body = None;
        self.leaves.remove(id.slot);
        Ok(ended)
    }

    /// Nobody wants the answer any more. Gives what is to be dropped outside of the cell.
    pub(in crate::sim) fn give_up(&mut self, id: LeafId, tasks: &mut Tasks) -> (Waiter, Option<Rc<dyn Body>>) {
        let now = self.now;
        let leaf = self.leaves.at(id.slot);
        debug_assert_eq!(leaf.generation, id.generation, "a leaf stays until its future has its answer or is dropped");
        let (op, at, since, phase, holds) = (leaf.op, leaf.node, leaf.since, leaf.phase, leaf.holds);
        let waiter = std::mem::take(&mut leaf.waiter);
        if let Some(nearest) = &mut self.nearest {
            nearest.change(at);
        }
        let node = &mut self.nodes[usize::from(at)];
        match phase {
            Phase::Delivered => {}
            Phase::Ended => {
                leaf.given_up = true;
                return (waiter, None);
            }
            Phase::ForLock | Phase::OnCore | Phase::OnEngine | Phase::OnDevice | Phase::Submitting | Phase::OnBus => {
                leaf.given_up = true;
                self.running_alone += 1;
                self.record(&op, Kind::Abandon, since, 0);
                return (waiter, None);
            }
            Phase::ForThread => node.pool.give_up(id.slot),
            Phase::ForConnection => node.connections.as_mut().expect("it waits for one").give_up(id.slot),
            Phase::ForEngine => node.engines_of(op.rank, holds.way()).expect("it waits for one").give_up(id.slot),
            Phase::ForKernel => node.kernels.of(op.rank).give_up(id.slot),
            Phase::Waking | Phase::FirstByte => {
                self.timers.cancel(leaf.alarm);
            }
            Phase::Outstanding if leaf.kind == LeafKind::Read => {
                self.outstanding.iter_mut().for_each(|outstanding| outstanding.give_up(id));
            }
            Phase::Outstanding => {
                leaf.given_up = true;
                self.running_alone += 1;
                self.record(&op, Kind::Abandon, since, 0);
                return (waiter, None);
            }
            Phase::OnLink => node.link.as_mut().expect("it is on it").stop(now, id.slot),
            Phase::Stalled => {}
        }
        if let Some(lock) = &mut node.lock {
            lock.settle(id.slot);
        }
        let body = self.leaves.at(id.slot).body.take();
        self.leaves.remove(id.slot);
        if phase != Phase::Delivered {
            self.record(&op, Kind::Abandon, since, 0);
            self.release(holds, at, op.rank, tasks);
        }
        (waiter, body)
    }

    pub(super) fn ended_alone(&mut self, tasks: &mut Tasks) {
        self.running_alone -= 1;
        if self.running_alone == 0 {
            for waiter in self.quiet.drain(..) {
                tasks.notify(waiter);
            }
        }
    }

    /// Whether no leaf that was given up still runs; else whoever asks is woken when that is so.
    pub(in crate::sim) fn quiet(&mut self, waiter: impl FnOnce() -> Waiter) -> bool {
        if self.running_alone > 0 {
            self.quiet.push(waiter());
        }
        self.running_alone == 0
    }
}
