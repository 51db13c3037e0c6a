//! Links that lead to other links: a flow uses the one it enters by and all above it.
//!
//! Rates are max-min fair: all flows grow together until a link is full or a flow has reached the most that its entrance gives; those
//! are settled, and the others go on growing (progressive filling). Flows with the same entrance always have the same rate, so each
//! entrance is one [`Share`]: the filling is over entrances with their number of flows, and the next flow to end is found in
//! O(log n). A change concerns only the links that are connected with the one that changed.
//!
//! A link may have less to give while the link of the opposite direction is in use. Rates are whole bytes a second, rounded down,
//! and at least one. One link alone does what [`Link`](super::Link) does, to the nanosecond.

use std::collections::BTreeSet;

use super::{
    NEVER,
    share::{Share, WORK_MAX},
};

/// Units of work in a byte, so that a rate in bytes a second is one in units a nanosecond.
const UNITS_PER_BYTE: u64 = 1_000_000_000;

/// What a link is.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) struct Branch {
    /// The link it leads to.
    pub(in crate::sim) above: Option<u32>,
    /// What all its flows share (B/s).
    pub(in crate::sim) bytes_per_s: u64,
    /// The same while `opposite` is in use (B/s).
    pub(in crate::sim) against_bytes_per_s: u64,
    /// The link of the other direction.
    pub(in crate::sim) opposite: Option<u32>,
    /// The most that one flow gets that enters here (B/s).
    pub(in crate::sim) flow_bytes_per_s: u64,
}

struct Joint {
    spec: Branch,
    component: u32,
    share: Share,
    rate: u64,
    /// Scratch of the filling: flows not settled yet, and what they share.
    open: u64,
    room: u64,
    settled: bool,
}

struct Component {
    joints: Vec<u32>,
    next: u64,
}

/// Connected links.
pub(in crate::sim) struct Tree {
    joints: Vec<Joint>,
    components: Vec<Component>,
    /// (when its next flow ends, component), of those that have flows.
    due: BTreeSet<(u64, u32)>,
}

impl Tree {
    /// Links in an order in which whatever one leads to comes before it.
    pub(in crate::sim) fn new(branches: &[Branch]) -> Tree {
        // A forest in which each link leads to another of its component, and those that lead to themselves stand for one each.
        let mut of: Vec<usize> = (0..branches.len()).collect();
        fn find(of: &mut [usize], mut link: usize) -> usize {
            while of[link] != link {
                of[link] = of[of[link]];
                link = of[link];
            }
            link
        }
        for (k, branch) in branches.iter().enumerate() {
            debug_assert!(branch.above.is_none_or(|above| (above as usize) < k), "what a link leads to comes before it");
            for other in branch.above.into_iter().chain(branch.opposite) {
                let (old, new) = (find(&mut of, k), find(&mut of, other as usize));
                of[old] = new;
            }
        }
        let mut components = Vec::new();
        let mut numbers = vec![None; branches.len()];
        let joints = branches.iter().enumerate().map(|(k, spec)| {
            let component = *numbers[find(&mut of, k)].get_or_insert_with(|| {
                components.push(Component { joints: Vec::new(), next: NEVER });
                components.len() as u32 - 1
            });
            components[component as usize].joints.push(k as u32);
            Joint { spec: *spec, component, share: Share::default(), rate: 1, open: 0, room: 0, settled: true }
        });
        let joints = joints.collect();
        Tree { joints, components, due: BTreeSet::new() }
    }

    /// The link, then all above it.
    fn path(&self, from: u32) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(from as usize), |at| self.joints[*at].spec.above.map(|above| above as usize))
    }

    fn advance(&mut self, now: u64, component: u32) {
        for k in &self.components[component as usize].joints {
            let joint = &mut self.joints[*k as usize];
            joint.share.advance(now, joint.rate);
        }
    }

    /// Rates after a change, by progressive filling.
    fn changed(&mut self, component: u32) {
        let links = std::mem::take(&mut self.components[component as usize].joints);
        for k in &links {
            self.joints[*k as usize].open = 0;
        }
        for k in &links {
            let flows = self.joints[*k as usize].share.len() as u64;
            self.joints[*k as usize].settled = flows == 0;
            self.count(*k, |open| open + flows);
        }
        for k in &links {
            let against = self.joints[*k as usize].spec.opposite.is_some_and(|other| self.joints[other as usize].open > 0);
            let joint = &mut self.joints[*k as usize];
            joint.room = if against { joint.spec.against_bytes_per_s } else { joint.spec.bytes_per_s };
        }
        // Each round settles at least one entrance.
        while let Some(level) = self.level(&links) {
            let full = |joint: &Joint| joint.room / joint.open <= level;
            let reached: Vec<u32> = (links.iter().copied())
                .filter(|k| !self.joints[*k as usize].settled)
                .filter(|k| {
                    self.joints[*k as usize].spec.flow_bytes_per_s <= level || self.path(*k).any(|l| full(&self.joints[l]))
                })
                .collect();
            for k in reached {
                let joint = &mut self.joints[k as usize];
                joint.settled = true;
                joint.rate = level.max(1);
                let flows = joint.share.len() as u64;
                let taken = level * flows;
                let path: Vec<usize> = self.path(k).collect();
                path.into_iter().for_each(|l| self.joints[l].room -= taken);
                self.count(k, |open| open - flows);
            }
        }
        let next = links.iter().map(|k| &self.joints[*k as usize]).map(|joint| joint.share.next(joint.rate)).min();
        let place = &mut self.components[component as usize];
        place.joints = links;
        self.due.remove(&(place.next, component));
        place.next = next.unwrap_or(NEVER);
        if place.next != NEVER {
            self.due.insert((place.next, component));
        }
    }

    /// Changes the number of open flows of a link and all above it.
    fn count(&mut self, from: u32, change: impl Fn(u64) -> u64) {
        let mut at = Some(from);
        while let Some(k) = at {
            let joint = &mut self.joints[k as usize];
            joint.open = change(joint.open);
            at = joint.spec.above;
        }
    }

    /// The rate at which the next link is full or the next flow has all that it may have, while a flow is not settled.
    fn level(&self, links: &[u32]) -> Option<u64> {
        let joints = || links.iter().map(|k| &self.joints[*k as usize]);
        let full = joints().filter(|joint| joint.open > 0).map(|joint| joint.room / joint.open);
        full.chain(joints().filter(|joint| !joint.settled).map(|joint| joint.spec.flow_bytes_per_s)).min()
    }

    /// A flow of at most [`Link::BYTES_MAX`](super::Link::BYTES_MAX) enters by `link`.
    pub(in crate::sim) fn start(&mut self, now: u64, user: u32, link: u32, bytes: u64) {
        let component = self.joints[link as usize].component;
        self.advance(now, component);
        self.joints[link as usize].share.push(user, (bytes * UNITS_PER_BYTE).min(WORK_MAX));
        self.changed(component);
    }

    /// When the next flow ends (ns).
    #[inline]
    pub(in crate::sim) fn next(&self) -> u64 {
        self.due.first().map_or(NEVER, |(next, _)| *next)
    }

    /// Tells which flows end at `now`, which is [`next`](Tree::next).
    pub(in crate::sim) fn done(&mut self, now: u64, mut tell: impl FnMut(u32)) {
        while let Some((next, component)) = self.due.first().copied()
            && next <= now
        {
            self.advance(now, component);
            for k in &self.components[component as usize].joints {
                let joint = &mut self.joints[*k as usize];
                while let Some(user) = joint.share.pop_done(joint.rate) {
                    tell(user);
                }
            }
            self.changed(component);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sim::resource::Link;

    const FREE: u64 = u64::MAX;

    fn branch(above: Option<u32>, bytes_per_s: u64, flow_bytes_per_s: u64) -> Branch {
        Branch { above, bytes_per_s, against_bytes_per_s: bytes_per_s, opposite: None, flow_bytes_per_s }
    }

    fn run(tree: &mut Tree) -> Vec<(u64, u32)> {
        let mut ends = Vec::new();
        while tree.next() != NEVER {
            let now = tree.next();
            tree.done(now, |user| ends.push((now, user)));
        }
        ends
    }

    #[test]
    fn a_flow_takes_what_others_cannot_use() {
        // 10 above 4 and 8: the first flow is held at 4, the second gets the 6 that are left.
        let mut tree = Tree::new(&[
            branch(None, 10_000_000_000, FREE),
            branch(Some(0), 4_000_000_000, FREE),
            branch(Some(0), 8_000_000_000, FREE),
        ]);
        tree.start(0, 1, 1, 4000);
        tree.start(0, 2, 2, 6000);
        assert_eq!(run(&mut tree), [(1000, 1), (1000, 2)]);
    }

    #[test]
    fn links_that_are_not_connected_do_not_feel_each_other() {
        let mut tree = Tree::new(&[branch(None, 1_000_000_000, FREE), branch(None, 1_000_000_000, FREE)]);
        tree.start(0, 0, 0, 1000);
        tree.start(0, 1, 1, 1000);
        tree.start(0, 2, 1, 1000);
        assert_eq!(run(&mut tree), [(1000, 0), (2000, 1), (2000, 2)]);
    }

    /// Max-min rates of single flows in floating point, one flow at a time: raise all until something binds, settle, repeat.
    fn by_force(branches: &[Branch], flows: &[u32]) -> Vec<f64> {
        let path = |from: u32| std::iter::successors(Some(from), |k| branches[*k as usize].above).collect::<Vec<_>>();
        let mut rates = vec![0.0; flows.len()];
        let mut open = vec![true; flows.len()];
        while open.contains(&true) {
            let slack = |link: u32, rates: &[f64]| {
                let used: f64 = (0..flows.len()).filter(|f| path(flows[*f]).contains(&link)).map(|f| rates[f]).sum();
                let growing = (0..flows.len()).filter(|f| open[*f] && path(flows[*f]).contains(&link)).count();
                (branches[link as usize].bytes_per_s as f64 - used, growing)
            };
            let mut step = f64::INFINITY;
            for f in (0..flows.len()).filter(|f| open[*f]) {
                step = step.min(branches[flows[f] as usize].flow_bytes_per_s as f64 - rates[f]);
                for link in path(flows[f]) {
                    let (room, growing) = slack(link, &rates);
                    step = step.min(room / growing as f64);
                }
            }
            for f in 0..flows.len() {
                rates[f] += if open[f] { step } else { 0.0 };
            }
            let bound: Vec<bool> = (0..flows.len())
                .map(|f| {
                    let capped = branches[flows[f] as usize].flow_bytes_per_s as f64 - rates[f] < 1e-3;
                    capped || path(flows[f]).iter().any(|link| slack(*link, &rates).0 < 1e-3)
                })
                .collect();
            (0..flows.len()).for_each(|f| open[f] &= !bound[f]);
        }
        rates
    }

    proptest! {
        #[test]
        fn rates_are_those_of_a_brute_force_solver(
            links in prop::collection::vec((any::<prop::sample::Index>(), 1_000_000u64..1_000_000_000, 1_000_000u64..1_000_000_000), 1..8),
            flows in prop::collection::vec(any::<prop::sample::Index>(), 1..12),
        ) {
            let branches: Vec<Branch> = links
                .iter()
                .enumerate()
                .map(|(k, (above, rate, flow))| {
                    // One in so many is a root.
                    let above = above.index(k + 1) as u32;
                    branch((above as usize != k).then_some(above), *rate, *flow)
                })
                .collect();
            let flows: Vec<u32> = flows.iter().map(|link| link.index(branches.len()) as u32).collect();
            let mut tree = Tree::new(&branches);
            for (user, link) in flows.iter().enumerate() {
                tree.start(0, user as u32, *link, 1_000_000_000);
            }
            for (link, expected) in flows.iter().zip(by_force(&branches, &flows)) {
                let rate = tree.joints[*link as usize].rate as f64;
                prop_assert!((rate - expected).abs() < 100.0, "{rate} on link {link} instead of {expected}");
            }
        }

        #[test]
        fn one_link_is_what_the_single_link_is(
            rate in 1_000_000u64..30_000_000_000,
            flow in prop::option::of(1_000_000u64..1_000_000_000),
            arrivals in prop::collection::vec((0u64..100_000, 0u64..1_000_000), 1..60),
        ) {
            let mut tree = Tree::new(&[branch(None, rate, flow.unwrap_or(FREE))]);
            let mut link = Link::new(rate, flow);
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            let mut at = 0;
            for (user, (gap, bytes)) in arrivals.iter().enumerate() {
                at += gap;
                while tree.next().min(link.next()) <= at {
                    let now = tree.next().min(link.next());
                    tree.done(now, |user| ours.push((now, user)));
                    link.done(now, |user| theirs.push((now, user)));
                }
                tree.start(at, user as u32, 0, *bytes);
                link.start(at, user as u32, *bytes);
            }
            ours.extend(run(&mut tree));
            while link.next() != NEVER {
                let now = link.next();
                link.done(now, |user| theirs.push((now, user)));
            }
            prop_assert_eq!(ours, theirs);
        }
    }
}
