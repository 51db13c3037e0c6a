//! How long every leaf of a real run took, for a simulation to be fed with.

use super::StageId;
use crate::machine::Op;

/// What a leaf took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafTime {
    /// CPU time of the thread that ran it \[ns\].
    pub cpu_ns: u64,
    /// From start to end on the wall \[ns\], waiting for a core included.
    pub wall_ns: u64,
}

impl LeafTime {
    /// The part of the wall time in which its thread did not compute: it waited for a device, or for a core \[ns\].
    pub fn waited_ns(self) -> u64 {
        self.wall_ns.saturating_sub(self.cpu_ns)
    }
}

/// Which leaf: epoch, sample, stage, attempt and rank, in the order in which they are sorted.
type Name = (u32, u64, StageId, u16, u16);

/// What every leaf of a run took, by the name under which the same leaf comes again in another run of the same plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeafTimes(Vec<(Name, LeafTime)>);

impl LeafTimes {
    /// Leaves in any order. Of several with one name the last counts.
    pub fn new(leaves: impl IntoIterator<Item = (Op, LeafTime)>) -> LeafTimes {
        let mut all: Vec<(Name, LeafTime)> = leaves.into_iter().map(|(op, time)| (name(&op), time)).collect();
        all.sort_by_key(|&(name, _)| name);
        all.reverse();
        all.dedup_by_key(|(name, _)| *name);
        all.reverse();
        LeafTimes(all)
    }

    /// What a leaf took; `None` for one that did not run.
    #[inline]
    pub fn get(&self, op: &Op) -> Option<LeafTime> {
        let wanted = name(op);
        self.0.binary_search_by_key(&wanted, |&(name, _)| name).ok().map(|at| self.0[at].1)
    }

    /// How many leaves are known.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no leaf is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn name(op: &Op) -> Name {
    (op.item.epoch, op.item.sample, op.stage, op.attempt, op.rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Item;

    fn op(stage: StageId, epoch: u32, sample: u64, attempt: u16) -> Op {
        Op { stage, attempt, item: Item { epoch, sample, position: 0 }, ..Op::default() }
    }

    #[test]
    fn a_leaf_is_found_by_its_stage_epoch_sample_and_attempt() {
        let time = |cpu_ns| LeafTime { cpu_ns, wall_ns: 2 * cpu_ns };
        let times = LeafTimes::new([
            (op(StageId::DECODE, 1, 7, 0), time(10)),
            (op(StageId::FETCH, 0, 7, 1), time(20)),
            (op(StageId::FETCH, 0, 7, 0), time(30)),
            (op(StageId::FETCH, 0, 7, 0), time(40)),
        ]);
        assert_eq!(times.len(), 3);
        assert_eq!(times.get(&op(StageId::DECODE, 1, 7, 0)), Some(time(10)));
        assert_eq!(times.get(&op(StageId::FETCH, 0, 7, 1)), Some(time(20)));
        assert_eq!(times.get(&op(StageId::FETCH, 0, 7, 0)), Some(time(40)), "the last of its name");
        assert_eq!(times.get(&op(StageId::DECODE, 0, 7, 0)), None);
    }

    #[test]
    fn a_leaf_waits_for_what_it_does_not_compute() {
        assert_eq!(LeafTime { cpu_ns: 3, wall_ns: 10 }.waited_ns(), 7);
        assert_eq!(LeafTime { cpu_ns: 10, wall_ns: 9 }.waited_ns(), 0, "clocks differ by a tick");
    }
}
