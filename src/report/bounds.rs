//! What the operational laws allow at most, whatever the queues do.
//!
//! From the means of a run alone, with no assumption about distributions (Denning and Buzen 1978; Lazowska et al. 1984): let a
//! delivered sample keep resource r busy for b_r on average. With c servers its demand is D_r = b_r / c, and since no server is
//! busy more than all the time,
//!
//! ```text
//! X ≤ 1 / D_r   for every r             (utilization law, U = X·D ≤ 1)
//! X ≤ N / Σ b_r                         (Little's law: N lanes, each sample in one for at least Σ b_r)
//! ```
//!
//! The first bounds a saturated resource, the second a loader with too few samples under way. Both hold exactly for a run whose
//! lanes end empty; the time of failed tries and of skipped samples is shared among the delivered ones, for it has to be spent.

use serde::Serialize;

use super::{Facts, Resource};
use crate::trace::{StageId, Summary};

/// The most that one resource lets through.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Which.
    pub resource: Resource,
    /// What it is called: a stage, `"lanes"`.
    pub name: String,
    /// At most so many samples per second.
    pub samples_per_s: f64,
    /// How long a delivered sample keeps one server of it, on average \[s\].
    pub busy_per_sample_s: f64,
    /// How many servers it has.
    pub servers: f64,
}

/// The bounds of a run, the tightest first. See the [module documentation](self).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Bounds {
    /// One per resource with a known number of servers and any work.
    pub limits: Vec<Bound>,
}

impl Bounds {
    /// The bounds of the run that `summary` tells of.
    pub fn of(summary: &Summary, facts: &Facts, name_of: impl Fn(StageId) -> String) -> Bounds {
        let delivered = summary.loader().delivered() as f64;
        let ranks = summary.consumers().count().max(1) as f64;
        if delivered == 0.0 {
            return Bounds::default();
        }
        let mut limits = Vec::new();
        let mut add = |resource, name: String, busy_s: f64, servers: f64| {
            let busy_per_sample_s = busy_s / delivered;
            if busy_per_sample_s > 0.0 && servers > 0.0 {
                let samples_per_s = servers / busy_per_sample_s;
                limits.push(Bound { resource, name, samples_per_s, busy_per_sample_s, servers });
            }
        };
        let (mut cpu_s, mut cpu_stages, mut lane_s) = (0.0, 0, 0.0);
        for (id, stage) in summary.stages() {
            let busy_s = stage.busy_ns() as f64 / 1e9;
            let resource = resource_of(id);
            let limited = facts.limits.iter().any(|(limit, _)| *limit == id);
            if resource == Resource::Decode {
                cpu_s += busy_s;
                cpu_stages += 1;
            }
            if id != StageId::BATCH && id != StageId::TRANSFER {
                lane_s += busy_s + stage.backoff_ns() as f64 / 1e9;
            }
            if let Some(servers) = facts.servers(id).filter(|_| limited || resource != Resource::Decode) {
                add(resource, name_of(id), busy_s, f64::from(servers));
            }
        }
        let name = if cpu_stages == 1 { busiest_cpu_stage(summary).map(name_of) } else { None };
        add(Resource::Decode, name.unwrap_or_else(|| "cores".to_owned()), cpu_s, f64::from(facts.threads));
        add(Resource::Lanes, "lanes".to_owned(), lane_s, f64::from(facts.lanes) * ranks);
        let step_s: f64 = summary.consumers().map(|c| c.step_ns() as f64 / 1e9).sum();
        add(Resource::Consumer, "consumer".to_owned(), step_s, ranks);
        limits.sort_by(|a, b| a.samples_per_s.total_cmp(&b.samples_per_s).then(a.resource.cmp(&b.resource)));
        Bounds { limits }
    }

    /// The least of them; `None` when nothing is known.
    pub fn samples_per_s(&self) -> Option<f64> {
        self.limits.first().map(|b| b.samples_per_s)
    }
}

/// Which resource the leaves of `stage` need.
pub(super) fn resource_of(stage: StageId) -> Resource {
    match stage {
        StageId::FETCH => Resource::Fetch,
        StageId::TRANSFER => Resource::Transfer,
        _ => Resource::Decode,
    }
}

/// The stage on the pool's threads that kept them busy longest.
pub(super) fn busiest_cpu_stage(summary: &Summary) -> Option<StageId> {
    let on_pool = summary.stages().filter(|(id, _)| resource_of(*id) == Resource::Decode);
    on_pool.max_by_key(|(id, stage)| (stage.busy_ns(), std::cmp::Reverse(*id))).map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::oracle::Toy;

    fn facts(toy: &Toy) -> Facts {
        let (threads, lanes) = (toy.servers as u32, toy.lanes as u32);
        Facts { threads, lanes, copies: 1, ..Facts::default() }
    }

    fn bounds(toy: &Toy) -> Bounds {
        Bounds::of(&Summary::of(&toy.events()), &facts(toy), |id| id.name().unwrap_or("user's").to_owned())
    }

    #[test]
    fn the_tightest_comes_first() {
        // 500 µs a sample on 2 cores, 250 µs of step: decoding and the step allow 4000 a second each, but for the noise of the
        // first.
        let toy = Toy { samples: 1000, decode_ns: 1_000_000, step_ns: 1_000_000, ..Toy::default() };
        let found = bounds(&toy);
        assert_eq!(found.limits[0].name, "decode");
        assert!((found.limits[0].samples_per_s / 2000.0 - 1.0).abs() < 0.05, "{found:?}");
        let consumer = found.limits.iter().find(|b| b.resource == Resource::Consumer).expect("it steps");
        assert!((consumer.samples_per_s - 8000.0).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn without_deliveries_there_are_no_bounds() {
        assert_eq!(bounds(&Toy { samples: 0, ..Toy::default() }).samples_per_s(), None);
    }

    proptest! {
        #[test]
        fn no_run_is_faster_than_its_bounds(
            seed: u64, lanes in 1usize..20, servers in 1usize..5, fetch_ns in 1u64..2_000_000, decode_ns in 1u64..2_000_000,
            step_ns in 1u64..9_000_000, transfer_ns in 1u64..9_000_000, fails_every in prop_oneof![Just(0), 3u64..9],
        ) {
            let toy = Toy { seed, lanes, servers, fetch_ns, decode_ns, step_ns, transfer_ns, fails_every, ..Toy::default() };
            let summary = Summary::of(&toy.events());
            let rate = summary.samples_per_s().expect("something is delivered");
            for bound in bounds(&toy).limits {
                prop_assert!(rate <= bound.samples_per_s * (1.0 + 1e-9), "{} samples/s against {:?}", rate, bound);
            }
        }
    }
}
