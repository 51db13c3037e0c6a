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
//! The first bounds a saturated resource, the second a loader with too few samples under way. Both hold exactly for the rate up
//! to the run's last event, when its lanes end empty; the time of failed tries and of skipped samples is shared among the
//! delivered ones, for it has to be spent.

use serde::Serialize;

use super::{Facts, Resource};
use crate::trace::{StageId, Summary};

/// What the pool is called when more than one stage fills it.
pub(super) const CORES: &str = "cores";

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
        let ranks = f64::from(facts.ranks(summary));
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
            let limited = facts.limits.iter().any(|(limit, _)| *limit == id);
            if facts.on_pool(id) {
                cpu_s += busy_s;
                cpu_stages += 1;
            }
            if !matches!(id, StageId::BATCH | StageId::TRANSFER | StageId::DEVICE) {
                lane_s += busy_s + stage.backoff_ns() as f64 / 1e9;
            }
            if let Some(servers) = facts.servers(id).filter(|_| limited || !facts.on_pool(id)) {
                add(Facts::resource_of(id), name_of(id), busy_s, f64::from(servers));
            }
        }
        let name = if cpu_stages == 1 { busiest_on_pool(summary, facts).map(name_of) } else { None };
        add(Resource::Decode, name.unwrap_or_else(|| CORES.to_owned()), cpu_s, f64::from(facts.threads));
        for (name, amount, most) in facts.store(summary) {
            add(Resource::Fetch, name.to_owned(), amount / most, 1.0);
        }
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

/// The stage that kept the pool's threads busy longest.
pub(super) fn busiest_on_pool(summary: &Summary, facts: &Facts) -> Option<StageId> {
    let on_pool = summary.stages().filter(|(id, _)| facts.on_pool(*id));
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
    fn what_a_store_can_do_at_most_is_a_bound() {
        let summary = Summary::of(&Toy::default().events());
        let facts = Facts { store_bytes_per_s: Some(1e6), store_requests_per_s: Some(50.0), ..Facts::default() };
        let found = Bounds::of(&summary, &facts, |_| String::new());
        let names: Vec<&str> = found.limits.iter().map(|b| b.name.as_str()).collect();
        assert_eq!(names, ["store bandwidth", "store requests", "consumer"]);
        assert_eq!(found.limits[1].samples_per_s, 50.0);
    }

    #[test]
    fn reads_on_the_pool_share_its_threads() {
        let toy = Toy { samples: 1000, fetch_ns: 500_000, decode_ns: 500_000, ..Toy::default() };
        let summary = Summary::of(&toy.events());
        let cores = |reads_on_pool| {
            let found = Bounds::of(&summary, &Facts { reads_on_pool, ..facts(&toy) }, |_| String::new());
            found.limits.into_iter().find(|b| b.resource == Resource::Decode).expect("cores are known").samples_per_s
        };
        assert!((cores(false) / cores(true) - 2.0).abs() < 0.1, "{} {}", cores(false), cores(true));
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
            let (rate, found) = rate_to_the_end(&toy);
            for bound in found.limits {
                prop_assert!(rate <= bound.samples_per_s * (1.0 + 1e-9), "{} samples/s against {:?}", rate, bound);
            }
        }
    }

    /// Up to the last event: lanes may still be busy with samples that fail when the consumer has its last batch.
    fn rate_to_the_end(toy: &Toy) -> (f64, Bounds) {
        let summary = Summary::of(&toy.events());
        (summary.loader().delivered() as f64 / summary.end().as_secs_f64(), bounds(toy))
    }

    #[test]
    fn work_on_samples_that_fail_after_the_last_batch_counts_with_its_time() {
        let toy =
            Toy { seed: 9_958_771_036_356_373_684, lanes: 5, servers: 1, fetch_ns: 1, decode_ns: 1_595_668, ..Toy::default() };
        let toy = Toy { step_ns: 1, transfer_ns: 1, fails_every: 3, ..toy };
        let (rate, found) = rate_to_the_end(&toy);
        assert!(rate <= found.samples_per_s().expect("a bound") * (1.0 + 1e-9), "{rate} against {found:?}");
    }
}
