//! What limits a loader, the proof, and what would relieve it.
//!
//! # Evidence
//!
//! Two kinds, both from the trace's sums. A **load** says how much of its time a thing with a limit was busy: the consumer
//! computing (accelerator utilization), the pool's threads running jobs, copies under way, reads under way where their number is
//! limited, and whatever was measured elsewhere, such as a link. Loads of the loader's own resources are taken from the first
//! launch to the last batch made ready, not over the consumer's drain after it. **Lane time** says where the lanes spent theirs:
//! waiting for a slot, for the ledger, reading, waiting for a core, on a core, pausing before a retry.
//!
//! # Rules, in order
//!
//! 1. Nothing was delivered: there is nothing to say.
//! 2. Only the consumer was watched: it is the `consumer` when that is saturated, else what it waits for is `unknown`.
//! 3. Something was busy [`SATURATED`] of the time or more: the busiest such thing. It bounds throughput by the utilization law,
//!    whatever else is true. When the next is within [`BALANCED`] of it, they are `balanced`: relieving one alone gains next to
//!    nothing.
//! 4. Nothing was. Then too little was under way, and where the lanes were tells why. When they waited for the ledger or for
//!    slots [`BLOCKED`] of their time or more, `memory` keeps them.
//! 5. When they read for longer than they prepared, and nobody knows the store's bandwidth, `fetch` keeps them: more lanes would
//!    read more at once, as far as the store scales, and one run cannot tell how far that is. When the bandwidth is known the
//!    store has room, by rule 3, and it is the number of `lanes`, as it is when they mostly prepared.

use serde::Serialize;

use super::{
    Bounds, Facts, Load, Resource,
    bounds::{CORES, busiest_on_pool},
    humane::{number, percent, rate, seconds},
};
use crate::trace::{StageId, StageSummary, Summary};

/// Part of the time from which on a thing counts as busy all the time: queues before it are then long, and more load brings next
/// to nothing.
pub const SATURATED: f64 = 0.9;

/// Two saturated things closer than this have the same limit, as far as one run can tell.
pub const BALANCED: f64 = 0.03;

/// Part of the lanes' time from which on waiting for memory counts as what keeps them.
pub const BLOCKED: f64 = 0.25;

/// The name of what limits a loader of which only the consumer was watched, when it is not the consumer.
pub const UNKNOWN: &str = "unknown";

/// What limits throughput.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// `consumer`, `fetch`, `decode` (or the stage of the user's that is busiest), `transfer`, `device`, `scheduler`, `memory`, `lanes`,
    /// `balanced`, [`unknown`](UNKNOWN), or `none`.
    pub name: String,
    /// The two that are balanced, the busier first; otherwise empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub between: Vec<String>,
    /// The proof, in a sentence.
    pub why: String,
    /// What would relieve it, in a sentence.
    pub relief: String,
    /// What would limit next, and at how many samples per second at most, where that is known.
    pub next: Option<Next>,
    /// What it was judged by; left out of JSON when only the consumer was watched.
    #[serde(skip_serializing_if = "Evidence::is_consumer_only")]
    pub evidence: Evidence,
}

/// What would limit if the bottleneck did not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Next {
    /// What.
    pub name: String,
    /// At most so many samples per second.
    pub samples_per_s: f64,
}

/// What a bottleneck is judged by.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Evidence {
    /// Whether only the consumer was watched, so that the rest says nothing of the loader.
    #[serde(skip)]
    pub consumer_only: bool,
    /// Samples the consumer got.
    pub delivered: u64,
    /// Loads of all that has a known limit.
    pub loads: Vec<Load>,
    /// Where the lanes spent their time.
    pub lanes: LaneTime,
    /// Lanes of all ranks, 0 when not known.
    pub lane_count: u32,
    /// Whether the store's bandwidth is known, so that a low load of it means that there is room.
    pub store_known: bool,
    /// The busiest stage on the pool's threads.
    pub cpu_stage: String,
    /// Mean time of a read \[s\].
    pub mean_read_s: f64,
    /// Mean wait for a core \[s\].
    pub mean_core_wait_s: f64,
    /// Mean number of batches that were ready.
    pub ready_batches: f64,
    /// Mean wait of the consumer for a batch, the first one left out \[s\].
    pub mean_consumer_wait_s: f64,
}

/// Where the lanes spent their time, as parts of it from 0 to 1. What is missing to 1 is idling before the first and after the
/// last sample, and the handing over between stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LaneTime {
    /// Waiting for a slot of the ring.
    pub slot: f64,
    /// Waiting for the ledger to let the sample's bytes in.
    pub ledger: f64,
    /// Reading, or waiting for the store to begin.
    pub fetch: f64,
    /// Waiting for a core.
    pub core_wait: f64,
    /// On a core.
    pub core: f64,
    /// Pausing before a retry.
    pub backoff: f64,
}

impl Evidence {
    /// What `summary` and `facts` tell.
    pub fn of(summary: &Summary, facts: &Facts, name_of: impl Fn(StageId) -> String) -> Evidence {
        let ranks = facts.ranks(summary);
        let span_s = summary.working_ns() as f64 / 1e9;
        let part = |busy_s: f64, servers: u32| if span_s > 0.0 { busy_s / span_s / f64::from(servers.max(1)) } else { 0.0 };
        let mut loads = facts.loads.clone();
        let mut add = |resource, name: String, share: f64| loads.push(Load { resource, name, share });
        if let Some(utilization) = summary.accelerator_utilization() {
            add(Resource::Consumer, "consumer".to_owned(), utilization);
        }
        let (mut cpu_s, mut core_wait_s, mut core_jobs, mut lanes) = (0.0, 0.0, 0, LaneTime::default());
        let lane_count = facts.lanes * ranks;
        let lane_part = |ns: u64| part(ns as f64 / 1e9, lane_count);
        for (id, stage) in summary.stages() {
            let (busy, waiting) = (stage.busy_ns(), stage.waiting_ns());
            let on_pool = facts.on_pool(id);
            let limited = facts.limits.iter().any(|(limit, _)| *limit == id);
            if let Some(servers) = facts.servers(id).filter(|_| limited || !on_pool) {
                add(Facts::resource_of(id), name_of(id), part(busy as f64 / 1e9, servers));
            }
            if on_pool {
                cpu_s += busy as f64 / 1e9;
                core_wait_s += waiting as f64 / 1e9;
                core_jobs += stage.started();
            }
            match id {
                StageId::FETCH => lanes.fetch += lane_part(busy) + lane_part(waiting),
                StageId::BATCH | StageId::TRANSFER | StageId::DEVICE => continue,
                _ => {
                    lanes.core += lane_part(busy);
                    lanes.core_wait += lane_part(waiting);
                }
            }
            lanes.backoff += lane_part(stage.backoff_ns());
        }
        let loader = summary.loader();
        lanes.slot = lane_part(loader.slot_wait().sum());
        lanes.ledger = lane_part(loader.ledger_wait().sum());
        for (name, amount, most) in facts.store(summary) {
            add(Resource::Fetch, name.to_owned(), part(amount / most, 1));
        }
        let store_known = facts.store_bytes_per_s.is_some() || facts.loads.iter().any(|l| l.resource == Resource::Fetch);
        let cpu_stage = busiest_on_pool(summary, facts).map_or_else(|| "decode".to_owned(), name_of);
        if facts.threads > 0 {
            add(Resource::Decode, cpu_stage.clone(), part(cpu_s, facts.threads));
        }
        let stalled_s: f64 = summary.consumers().map(|c| c.stalled_ns() as f64 / 1e9).sum();
        let waits: u64 = summary.consumers().map(|c| c.taken().saturating_sub(1)).sum();
        let mean = |sum_s: f64, n: u64| if n > 0 { sum_s / n as f64 } else { 0.0 };
        Evidence {
            consumer_only: facts.consumer_only,
            delivered: loader.delivered(),
            loads,
            lanes,
            lane_count,
            store_known,
            cpu_stage,
            mean_read_s: summary.stage(StageId::FETCH).and_then(mean_service_s).unwrap_or(0.0),
            mean_core_wait_s: mean(core_wait_s, core_jobs),
            ready_batches: loader.ready_batches().mean(summary.end()),
            mean_consumer_wait_s: mean(stalled_s, waits),
        }
    }

    /// Names the bottleneck by the [rules](self), and what comes after it by the bounds of the same run.
    pub fn judge(self, bounds: &Bounds) -> Bottleneck {
        let cpu_stage = self.cpu_stage.clone();
        let mut found = self.found();
        let is_found = |resource: Resource, name: &str| match resource {
            // The pool as a whole is the limit of whatever stage fills it most.
            Resource::Decode if name == CORES => [&found.name].into_iter().chain(&found.between).any(|n| *n == cpu_stage),
            Resource::Decode => found.name == name || found.between.iter().any(|b| b == name),
            // Reading for too long and too few lanes are two sides of one limit.
            Resource::Lanes if found.name == "fetch" => true,
            _ => found.name == resource.name() || found.between.iter().any(|b| b == resource.name()),
        };
        let next = bounds.limits.iter().find(|b| !is_found(b.resource, &b.name));
        found.next = next.filter(|_| found.name != "none").map(|b| Next { name: b.name.clone(), samples_per_s: b.samples_per_s });
        if let Some(Next { name, samples_per_s }) = &found.next {
            found.relief.push_str(&format!(" The next limit is {name}, at {}.", rate(*samples_per_s)));
        }
        found
    }

    fn found(self) -> Bottleneck {
        if self.delivered == 0 {
            let why = "No sample was delivered.".to_owned();
            let relief = "Look at the failures.".to_owned();
            return Bottleneck { name: "none".to_owned(), between: Vec::new(), why, relief, next: None, evidence: self };
        }
        if self.consumer_only {
            return self.seen_by_the_consumer();
        }
        let mut busy: Vec<Load> = self.loads.iter().filter(|l| l.share >= SATURATED).cloned().collect();
        busy.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.resource.cmp(&b.resource)));
        // Several loads of one resource, such as a store's link and its connections, are one limit.
        busy.dedup_by_key(|l| l.resource);
        match busy.as_slice() {
            [first, second, ..] if first.share - second.share <= BALANCED && first.resource != second.resource => {
                self.balanced(first, second)
            }
            [first, ..] => self.saturated(first),
            [] => self.too_little_under_way(),
        }
    }

    fn is_consumer_only(&self) -> bool {
        self.consumer_only
    }

    fn seen_by_the_consumer(&self) -> Bottleneck {
        let wait = seconds(self.mean_consumer_wait_s);
        let load = self.loads.iter().find(|l| l.resource == Resource::Consumer);
        match load.filter(|l| l.share >= SATURATED) {
            Some(load) => {
                let why = format!("The consumer computes {} of the time and waits {wait} a batch.", percent(load.share));
                Bottleneck { why, ..self.saturated(load) }
            }
            None => Bottleneck {
                name: UNKNOWN.to_owned(),
                between: Vec::new(),
                why: format!(
                    "The consumer waits {wait} a batch; what the loader is busy with meanwhile, its trace does not tell."
                ),
                relief: "What limits the simulated loader is the best guess.".to_owned(),
                next: None,
                evidence: self.clone(),
            },
        }
    }

    fn balanced(&self, first: &Load, second: &Load) -> Bottleneck {
        Bottleneck {
            name: "balanced".to_owned(),
            between: vec![first.word(), second.word()],
            why: format!("{} {}", self.proof(first), self.proof(second)),
            relief: format!("Relieve {} and {} together: one alone gains next to nothing.", first.name, second.name),
            next: None,
            evidence: self.clone(),
        }
    }

    fn saturated(&self, load: &Load) -> Bottleneck {
        let relief = match load.resource {
            Resource::Consumer => "The loader keeps up: only a faster step or another accelerator brings more.".to_owned(),
            Resource::Fetch => {
                "A store with more bandwidth, requests or connections, or fewer bytes a sample; more lanes would not help."
                    .to_owned()
            }
            Resource::Decode => format!("More or faster cores, or less work a sample in {}.", load.name),
            Resource::Transfer => "A faster way to the device: pinned memory, larger batches, more copies in flight.".to_owned(),
            Resource::Device => "Less work a batch on the device; or, where it has places for them, more batches in its stage at once, which takes `prefetch` too.".to_owned(),
            Resource::Scheduler => "Fewer, larger jobs a sample: the thread that hands them out is full.".to_owned(),
            Resource::Memory => "A larger budget.".to_owned(),
            Resource::Lanes => "More lanes.".to_owned(),
        };
        Bottleneck { name: load.word(), between: Vec::new(), why: self.proof(load), relief, next: None, evidence: self.clone() }
    }

    fn too_little_under_way(&self) -> Bottleneck {
        let lanes = &self.lanes;
        let busiest = self.loads.iter().max_by(|a, b| a.share.total_cmp(&b.share));
        let idle = busiest
            .map_or_else(String::new, |l| format!(" Nothing is full: {} comes nearest with {}.", l.name, percent(l.share)));
        let waits = format!("The consumer waits {} a batch.", seconds(self.mean_consumer_wait_s));
        let found = |resource: Resource, why: String, relief: &str| Bottleneck {
            name: resource.name().to_owned(),
            between: Vec::new(),
            why: format!("{waits} {why}{idle}"),
            relief: relief.to_owned(),
            next: None,
            evidence: self.clone(),
        };
        if lanes.ledger.max(lanes.slot) >= BLOCKED {
            if lanes.ledger >= lanes.slot {
                let why = format!("Lanes spend {} of their time waiting for memory for encoded bytes.", percent(lanes.ledger));
                return found(Resource::Memory, why, "A larger budget.");
            }
            let why = format!("Lanes spend {} of their time waiting for a free slot.", percent(lanes.slot));
            return found(
                Resource::Memory,
                why,
                "A larger budget for more slots, or `order = \"completion\"` when single samples are late.",
            );
        }
        if lanes.fetch > lanes.core + lanes.core_wait && !self.store_known {
            let why =
                format!("Lanes spend {} of their time reading, {} a sample.", percent(lanes.fetch), seconds(self.mean_read_s));
            return found(Resource::Fetch, why, "More lanes, as far as the store scales; beyond that a faster store.");
        }
        let why = format!(
            "{} lanes are too few: {} of their time goes into reading, {} into CPU jobs.",
            number(f64::from(self.lane_count)),
            percent(lanes.fetch),
            percent(lanes.core + lanes.core_wait)
        );
        found(Resource::Lanes, why, "More lanes.")
    }

    /// Why `load` is at its limit.
    fn proof(&self, load: &Load) -> String {
        let share = percent(load.share);
        match load.resource {
            Resource::Consumer => format!(
                "The consumer computes {share} of the time and waits {} a batch; {} batches are ready on average.",
                seconds(self.mean_consumer_wait_s),
                number(self.ready_batches)
            ),
            Resource::Decode => format!(
                "{} keeps its cores busy {share} of the time; jobs wait {} for one; {} batches are ready on average.",
                capital(&load.name),
                seconds(self.mean_core_wait_s),
                number(self.ready_batches)
            ),
            Resource::Fetch => format!(
                "{} is at {share} of what it can do; a read takes {}, and lanes spend {} of their time on reads.",
                capital(&load.name),
                seconds(self.mean_read_s),
                percent(self.lanes.fetch)
            ),
            _ => format!(
                "{} is busy {share} of the time; {} batches are ready on average.",
                capital(&load.name),
                number(self.ready_batches)
            ),
        }
    }
}

impl Load {
    /// What a bottleneck there is called: the stage for the pool's threads, else the kind of thing.
    fn word(&self) -> String {
        if self.resource == Resource::Decode { self.name.clone() } else { self.resource.name().to_owned() }
    }
}

fn mean_service_s(stage: &StageSummary) -> Option<f64> {
    stage.service().mean().map(|ns| ns / 1e9)
}

fn capital(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests;
