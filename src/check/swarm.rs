//! What a seed explores: a schedule, and in a swarm also small settings, a subset of the fault families, and how far costs spread.
//!
//! All is drawn by `(seed, EXPLORE, what)`, so that a seed is a case, and is found again. A swarm leaves features out at random, since
//! a test in which everything is on at once seldom gets deep into anything (Groce et al., Swarm Testing, 2012).

use super::case::{Base, Case, cut};
use crate::{
    draw::{Purpose, below, draw},
    fault::{Faults, Hits},
    scenario::{Allowed, DeviceStage, OnErrors, Order, Scenario, Tail},
    sim::{Chooser, Tape, Timing},
    units::{Count, Duration, Size},
};

/// Who decides what happens next: between things that may happen at the same instant, or in abstract time, in which a leaf that has begun
/// may end at any moment.
///
/// Under [`Fifo`](Schedule::Fifo) and [`Random`](Schedule::Random) leaves take as long as the machine's model says, so only orders of
/// completion that its costs allow are seen. Under the others costs do not count, see [`Timing::Abstract`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// First come, first served: only costs differ from seed to seed.
    Fifo,
    /// By chance, by the seed.
    #[default]
    Random,
    /// In abstract time, by priorities that the seed draws and that change at some choices: see [`Chooser::Pct`].
    Pct {
        /// How many things have to happen in one order for the bugs that are looked for; at least one.
        depth: u32,
    },
    /// In abstract time, all schedules of one case one after the other, on one thread, up to as many as there are seeds; the case is the
    /// scenario's own. Ends at the first that fails; with [`all`](super::Check::all) it goes on and counts the others.
    Exhaustive,
}

/// What a run is compared with, beside what invariants say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    /// Nothing.
    Nothing,
    /// Itself.
    Again,
    /// One lane and one thread.
    Sequential,
    /// The next seed.
    OtherSeed,
    /// Nothing, but the plan of another size is looked at.
    OtherPlan,
    /// The rest, from the state after this part of its batches (of 2³²).
    Resumed(u64),
    /// The rest on other numbers of ranks, from the states after this part of its batches (of 2³²).
    Redealt(u64),
}

/// Every so many seeds one is run twice and must be the same run, unless told otherwise.
pub const TWICE_EVERY: u64 = 16;

/// A number below `n`, for this seed and question.
pub(super) fn pick(seed: u64, question: u64, n: u64) -> u64 {
    below(draw(seed, Purpose::EXPLORE, question, 0).word(0), n)
}

/// One of `values`, for this seed and question.
fn one_of<T: Copy>(seed: u64, question: u64, values: &[T]) -> T {
    values[pick(seed, question, values.len() as u64) as usize]
}

/// The case of a seed.
pub(super) fn case(base: &Base, seed: u64, schedule: Schedule, swarm: bool) -> Case {
    let mut scenario = base.scenario.clone();
    scenario.seed = seed;
    if swarm {
        vary(base, &mut scenario, seed);
    }
    // Some consumers leave in the middle.
    let many = schedule != Schedule::Exhaustive;
    if many && scenario.consumer.leave_after.is_none() && pick(seed, 1, 4) == 0 {
        let steps = base.plans(&scenario).ok().and_then(|plans| plans.iter().map(|plan| plan.plan.batches()).max()).unwrap_or(0);
        if steps > 1 {
            scenario.consumer.leave_after = Some(1 + pick(seed, 2, steps - 1));
        }
    }
    let (chooser, timing) = match schedule {
        Schedule::Fifo => (Chooser::Fifo, Timing::Modelled),
        Schedule::Random => (Chooser::Random(seed), Timing::Modelled),
        Schedule::Pct { depth } => (Chooser::Pct { seed, depth, length: length(&scenario) }, Timing::Abstract),
        Schedule::Exhaustive => (Chooser::Replay(Tape::new()), Timing::Abstract),
    };
    // A task that looks at jobs again and again could, where any timer may come next, be all that ever happens.
    if timing == Timing::Abstract {
        scenario.loader.decode_deadline.clone_from(&base.scenario.loader.decode_deadline);
    }
    Case { scenario, chooser, timing, resume_after: None }
}

/// Choices that a run in abstract time is expected to have: the ends of a read and a job for each sample, and of a copy and a step for
/// each batch.
fn length(scenario: &Scenario) -> u64 {
    let samples = super::case::count(scenario).saturating_mul(u64::from(scenario.loader.epochs));
    samples.saturating_add(samples / scenario.loader.batch.max(1)).saturating_mul(2)
}

/// What the run of a seed is compared with, where every `twice_every`-th is run twice.
pub(super) fn compare(seed: u64, twice_every: u64, swarm: bool) -> Compare {
    if seed.is_multiple_of(twice_every) {
        return Compare::Again;
    }
    match pick(seed, 3, 8) {
        0 | 1 => Compare::Sequential,
        2 | 3 => Compare::Resumed(pick(seed, 4, 1 << 32)),
        4 => Compare::OtherSeed,
        6 => Compare::Redealt(pick(seed, 4, 1 << 32)),
        5 if swarm => Compare::OtherPlan,
        _ => Compare::Nothing,
    }
}

/// A case of which the plan is looked at, by the scenario's seed: a world of a few ranks, and a size beside a power of two, where words
/// and tables end and a network's halves grow, or any.
pub(super) fn plan_case(scenario: &Scenario) -> Case {
    let seed = scenario.seed;
    let mut scenario = scenario.clone();
    let power = 1 << pick(seed, 61, 17);
    let samples = match pick(seed, 62, 2) {
        0 => power - 1 + pick(seed, 63, 3),
        _ => 1 + pick(seed, 63, power),
    };
    cut(&mut scenario, samples.max(1));
    scenario.ranks.count = 1 + pick(seed, 64, 6) as u16;
    let loader = &mut scenario.loader;
    (loader.rank, loader.world) = (0, scenario.ranks.count);
    loader.tail = one_of(seed, 65, &[Tail::Uneven, Tail::Pad, Tail::Drop]);
    loader.epochs = 1 + pick(seed, 66, 3) as u32;
    loader.batch = 1;
    loader.ring = None;
    loader.budget = Size::from_bytes(1 << 50);
    scenario.faults = Faults::default();
    scenario.consumer.leave_after = None;
    Case { scenario, chooser: Chooser::Fifo, timing: Timing::Modelled, resume_after: None }
}

/// Draws small settings, faults and spreads, and now and then another order, some ranks, and an allowance. Whether samples are shuffled stays.
fn vary(base: &Base, scenario: &mut Scenario, seed: u64) {
    let pick = |question, n| pick(seed, question, n);
    let samples = base.samples();
    if pick(10, 2) == 0 {
        cut(scenario, 1 + pick(11, samples));
    }
    let loader = &mut scenario.loader;
    loader.batch = 1 + pick(12, 8.min(samples));
    loader.lanes = Some(one_of(seed, 13, &[1, 2, 3, 4, 6, 8, 12, 16, 24]));
    loader.threads = Some(1 + pick(14, 4));
    loader.prefetch = pick(15, 4);
    loader.copies = 1 + pick(16, 3);
    loader.epochs = 1 + pick(17, 3) as u32;
    loader.ring = (pick(18, 3) > 0).then(|| loader.batch + pick(19, 3 * loader.batch + 1));
    loader.fetch_limit = (pick(20, 4) == 0).then(|| 1 + pick(21, 4));
    loader.decode_limit = (pick(22, 4) == 0).then(|| 1 + pick(23, 3));
    // Long enough for a job that waits for a core, and for a lane that waits for work to be long beyond it.
    loader.decode_deadline = (pick(72, 6) == 0).then(|| Duration::new(one_of(seed, 73, &[0.2, 1.0]), "s"));
    loader.drop_last = pick(28, 6) == 0;
    loader.tail = one_of(seed, 29, &[loader.tail, loader.tail, Tail::Uneven, Tail::Pad, Tail::Drop]);
    if pick(50, 5) == 0 {
        loader.order = match loader.order {
            Order::Plan => Order::Completion,
            Order::Completion => Order::Plan,
        };
    }
    // In plan order there is none.
    loader.window = match loader.order {
        Order::Plan => None,
        Order::Completion if pick(70, 3) == 0 => Some(1 + pick(71, 24)),
        Order::Completion => loader.window,
    };
    // One rank of a world of others stays what it is.
    if scenario.ranks.count == 1 && loader.world == 1 && pick(51, 5) == 0 {
        scenario.ranks.count = 2 + pick(52, 2) as u16;
        scenario.ranks.barrier = pick(53, 2) == 0;
        loader.world = scenario.ranks.count;
    }
    scenario.consumer.hold = 1 + u64::from(pick(24, 4) == 0);
    scenario.consumer.step = Duration::new(one_of(seed, 25, &[0.0, 1.0, 5.0, 40.0]), "ms");
    faults(scenario, seed);
    device_stage(scenario, seed);
    fit(base, scenario, pick(26, 4), pick(27, 5));
    if pick(55, 4) == 0 {
        between_epochs(base, scenario, seed);
    }
}

/// Has samples fail where one epoch ends and the next begins, which a share of all seldom hits: what is under way then is of two epochs.
fn between_epochs(base: &Base, scenario: &mut Scenario, seed: u64) {
    let epochs = u64::from(scenario.loader.epochs);
    if epochs < 2 || scenario.faults.is_empty() {
        return;
    }
    let Ok(plans) = base.plans(scenario) else { return };
    let plan = &plans[pick(seed, 56, plans.len() as u64) as usize].plan;
    let before = pick(seed, 57, epochs - 1) as u32;
    let (last, first) = (plan.epoch(before), plan.epoch(before + 1));
    let from = last.planned() - pick(seed, 58, 3).min(last.planned());
    let of_last = (from..last.planned()).map(|index| last.item(index).sample);
    let of_first = (0..first.planned().min(1 + pick(seed, 59, 3))).map(|index| first.item(index).sample);
    let mut samples: Vec<u64> = of_last.chain(of_first).collect();
    samples.sort_unstable();
    samples.dedup();
    let faults = &mut scenario.faults;
    let families = [&mut faults.missing, &mut faults.truncated, &mut faults.undecodable, &mut faults.panicking];
    let family = pick(seed, 60, families.len() as u64) as usize;
    for (_, hits) in families.into_iter().enumerate().filter(|(number, _)| *number == family) {
        hits.samples.clone_from(&samples);
    }
}

/// A budget near the least that the settings can do with: `tight` is 0 for one that is never short.
fn fit(base: &Base, scenario: &mut Scenario, tight: u64, more: u64) {
    // A world whose ranks have no batch is no case; the scenario's own settings are one.
    scenario.loader.budget = Size::from_bytes(1 << 50);
    let Ok(plans) = base.plans(scenario) else {
        let seed = scenario.seed;
        *scenario = base.scenario.clone();
        scenario.seed = seed;
        return;
    };
    if tight > 0
        && let Some(resolved) = plans.first()
    {
        let room = resolved.settings.sample_bytes.saturating_mul(more) / 8;
        scenario.loader.budget = Size::from_bytes(resolved.minimum_bytes.saturating_add(room));
    }
}

/// A budget that is never short.
pub(super) fn fit_budget(base: &Base, scenario: &mut Scenario) {
    let most = scenario.loader.budget;
    scenario.loader.budget = Size::from_bytes(1 << 50);
    let plans = base.plans(scenario).unwrap_or_default();
    scenario.loader.budget = plans.first().map_or(most, |resolved| {
        let encoded = resolved.settings.sample_bytes.saturating_mul(resolved.settings.lanes as u64 + 1);
        Size::from_bytes(resolved.fixed_bytes.saturating_add(encoded))
    });
}

/// Now and then a stage on the device, which may fail where anything may.
fn device_stage(scenario: &mut Scenario, seed: u64) {
    if scenario.loader.device_stage.is_none() && pick(seed, 80, 8) > 0 {
        return;
    }
    scenario.loader.device_stage = Some(DeviceStage::Normalize);
    scenario.loader.device_stage_limit = 1 + pick(seed, 81, 3);
    if !scenario.faults.is_empty() {
        let family = |question: u64, one_in: u64| match pick(seed, question, one_in) {
            0 => Hits::share(one_of(seed, question + 100, &[10_000, 50_000, 200_000])),
            _ => Hits::NONE,
        };
        scenario.faults.failed_kernels = family(82, 8);
        scenario.faults.slow_kernels = family(83, 3);
    }
}

/// A subset of the families, each with a share of its own.
fn faults(scenario: &mut Scenario, seed: u64) {
    // A third of all seeds sees nothing go wrong.
    if pick(seed, 30, 3) == 0 {
        scenario.faults = Faults::default();
        return;
    }
    let family = |question: u64, one_in: u64| match pick(seed, question, one_in) {
        0 => Hits::share(one_of(seed, question + 100, &[10_000, 50_000, 200_000])),
        _ => Hits::NONE,
    };
    scenario.faults = Faults {
        missing: family(31, 5),
        truncated: family(32, 5),
        undecodable: family(33, 5),
        panicking: family(34, 5),
        transient: family(35, 3),
        throttled: family(36, 4),
        stalled: family(37, 5),
        slow_reads: family(38, 3),
        slow_jobs: family(39, 3),
        slow_times: one_of(seed, 40, &[2, 10, 50]),
        failed_copies: family(41, 12),
        ..Faults::default()
    };
    let loader = &mut scenario.loader;
    loader.retries = pick(seed, 42, 5) as u16;
    loader.retry_pause = Duration::new(one_of(seed, 43, &[0.0, 1.0, 20.0]), "ms");
    loader.retry_pause_most = Duration::new(100.0, "ms");
    loader.errors = if pick(seed, 44, 4) == 0 { OnErrors::Fail } else { OnErrors::Skip };
    if loader.errors == OnErrors::Fail {
        loader.skip_at_most = None;
    } else if pick(seed, 46, 4) == 0 {
        loader.skip_at_most = Some(Allowed::Count(Count(pick(seed, 47, 12))));
    }
    // A read that never ends is a hang unless somebody looks at the clock.
    if scenario.faults.stalled != Hits::NONE && loader.fetch_deadline.is_none() {
        loader.fetch_deadline = Some(Duration::new(one_of(seed, 45, &[50.0, 400.0]), "ms"));
    }
}
