//! What each task of a run that does not go on waits for, looked up once for all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{
        executor::{TaskView, Waiter},
        leaf::{Holds, Leaf, Phase},
        machine::Core,
        timers::Alarm,
        wake::TaskId,
        world::World,
    },
    On, Waiting, WaitsFor,
};
use crate::{
    fault,
    machine::{Standing, Time, Wait, Who},
};

/// Every task that has not finished, with what it waits for: in time that grows with tasks, leaves, alarms and waits, not with their
/// product.
pub(super) fn all(core: &Core, standings: Vec<Standing>) -> Vec<Waiting> {
    let mut known = Known::of(&core.world, core.tasks.slots());
    let numbers: BTreeMap<Who, u32> = core.tasks.views().map(|task| (task.who, task.id.slot)).collect();
    for Standing { waits, and_alike } in standings {
        let alike = if and_alike { alike(core, &waits) } else { Vec::new() };
        for (k, Wait { who, what, on }) in waits.into_iter().enumerate() {
            let Some(task) = numbers.get(&who) else { continue };
            let mut on: Vec<On> = on.into_iter().map(|(who, what)| On { task: numbers.get(&who).copied(), what }).collect();
            // The first tells of them all; a thousand that each told of a thousand would be a million.
            let told = if k == 0 { alike.len() } else { alike.len().min(ALIKE_TOLD) };
            let more: Vec<On> = alike[..told].iter().filter(|new| on.iter().all(|on| on.task != new.task)).cloned().collect();
            on.extend(more);
            known.shared[*task as usize].get_or_insert(WaitsFor::Shared { what, on });
        }
    }
    core.tasks.views().map(|task| known.waiting(&core.world, &task)).collect()
}

/// Tasks that everybody but the first tells of where it is not known who is waited for.
const ALIKE_TOLD: usize = 8;

/// Tasks that were spawned where one that waits was, and do not wait.
fn alike(core: &Core, waits: &[Wait]) -> Vec<On> {
    let waiting: BTreeSet<Who> = waits.iter().map(|wait| wait.who).collect();
    let places: BTreeSet<_> =
        core.tasks.views().filter(|task| waiting.contains(&task.who)).map(|task| (task.place, task.name)).collect();
    let missing = core.tasks.views().filter(|task| places.contains(&(task.place, task.name)) && !waiting.contains(&task.who));
    missing.map(|task| On { task: Some(task.id.slot), what: "is not here".to_owned() }).collect()
}

/// Who has a place of each kind, each as a report names it: threads of the pool, connections, engines, kernels, the lock. Only those of whom
/// somebody is in line for the same.
#[derive(Default)]
pub(super) struct Places {
    pub(super) threads: Vec<(Option<u32>, String)>,
    pub(super) connections: Vec<(Option<u32>, String)>,
    pub(super) engines: Vec<(Option<u32>, String)>,
    pub(super) kernels: Vec<(Option<u32>, String)>,
    pub(super) lock: Vec<(Option<u32>, String)>,
}

impl Places {
    pub(super) fn of(world: &World) -> Places {
        let mut places = Places::default();
        for (slot, leaf) in world.leaves.iter() {
            let named = || {
                let task = match &leaf.waiter {
                    Waiter::Task(id) => Some(id.slot),
                    Waiter::Nobody | Waiter::Foreign(_) => None,
                };
                (task, words(leaf.kind, leaf.op.item.sample))
            };
            let node = &world.nodes[usize::from(leaf.node)];
            let line = [
                (&mut places.threads, Holds::THREAD, node.pool.waiting()),
                (&mut places.connections, Holds::CONNECTION, node.connections.as_ref().map_or(0, |line| line.waiting())),
                (&mut places.engines, Holds::ENGINE, usize::MAX),
                (&mut places.kernels, Holds::KERNEL, usize::MAX),
            ];
            for (holders, place, waiting) in line {
                if leaf.holds.has(place) && waiting > 0 {
                    holders.push(named());
                }
            }
            if node.lock.as_ref().is_some_and(|lock| lock.holder() == Some(slot) && lock.waiting() > 0) {
                places.lock.push(named());
            }
        }
        places
    }
}

/// What a leaf is called.
pub(super) fn words(kind: fault::Leaf, sample: u64) -> String {
    match kind {
        fault::Leaf::Read => format!("the read of sample {sample}"),
        fault::Leaf::Cpu => format!("a job on sample {sample}"),
        fault::Leaf::Kernel => format!("the stage on the device of batch {sample}"),
        fault::Leaf::Copy => format!("the copy of the batch that begins with sample {sample}"),
    }
}

/// What is known of each task, by its slot.
struct Known {
    leaf: Vec<Option<(TaskId, u32)>>,
    step: Vec<Option<TaskId>>,
    sleep: Vec<Option<(TaskId, u64)>>,
    shared: Vec<Option<WaitsFor>>,
}

impl Known {
    fn of(world: &World, tasks: usize) -> Known {
        let mut known = Known {
            leaf: vec![None; tasks],
            step: vec![None; tasks],
            sleep: vec![None; tasks],
            shared: (0..tasks).map(|_| None).collect(),
        };
        for (slot, leaf) in world.leaves.iter() {
            if let Waiter::Task(id) = leaf.waiter {
                known.leaf[id.slot as usize].get_or_insert((id, slot));
            }
        }
        for waiter in world.steppers() {
            if let Waiter::Task(id) = waiter {
                known.step[id.slot as usize] = Some(*id);
            }
        }
        for (until, alarm) in world.timers.iter() {
            if let Alarm::Wake(Waiter::Task(id)) = alarm {
                let first = known.sleep[id.slot as usize].get_or_insert((*id, until));
                first.1 = first.1.min(until);
            }
        }
        known
    }

    fn waiting(&mut self, world: &World, task: &TaskView) -> Waiting {
        let slot = task.id.slot as usize;
        let mine = |id: TaskId| id == task.id;
        let shared = self.shared[slot].take();
        let on = if task.ready {
            WaitsFor::Turn
        } else if let Some((_, leaf)) = self.leaf[slot].filter(|(id, _)| mine(*id)) {
            of_leaf(world.leaves.peek(leaf))
        } else if self.step[slot].is_some_and(mine) {
            WaitsFor::Step
        } else if let Some(shared) = shared {
            shared
        } else if let Some((_, until)) = self.sleep[slot].filter(|(id, _)| mine(*id)) {
            WaitsFor::Sleep { until: Time(until) }
        } else {
            WaitsFor::Unknown
        };
        Waiting { number: task.id.slot, task: task.name, spawned_at: task.place, on }
    }
}

fn of_leaf(leaf: &Leaf) -> WaitsFor {
    WaitsFor::Leaf {
        kind: leaf.kind,
        stage: leaf.op.stage,
        item: leaf.op.item,
        attempt: leaf.op.attempt,
        state: state(leaf.phase),
        since: Time(leaf.since),
    }
}

fn state(phase: Phase) -> &'static str {
    match phase {
        Phase::ForThread => "in line for a thread of the pool",
        Phase::ForConnection => "in line for a connection",
        Phase::ForLock => "in line for the lock",
        Phase::ForEngine => "in line for a copy engine",
        Phase::ForKernel => "in line for a place among the kernels of its device",
        Phase::Waking => "its thread is waking up",
        Phase::FirstByte => "waiting for the store",
        Phase::OnLink => "its bytes are on the link",
        Phase::OnCore => "on the processor",
        Phase::OnEngine | Phase::Submitting => "on a copy engine",
        Phase::OnDevice => "on the device",
        Phase::OnBus => "its bytes are on the links to the devices",
        Phase::Outstanding => "under way, in abstract time",
        Phase::Stalled => "the store never answers",
        Phase::Ended | Phase::Delivered => "it has ended, the scheduler has not seen it",
    }
}
