//! Tuning against simulating every point: the same winner and the same front, and how many simulations each takes.
//!
//! `cargo bench --bench tune`

use std::time::Instant;

use rayon::prelude::*;
use towtank::{
    scenario::{self, Overrides, Scenario},
    trace::Recorder,
    tune::{Asked, Cost, Figure, GRADES, Goal, Question, Settings, tune},
};

/// Scenario, what is set, goal, costs, space.
type Case = (&'static str, &'static [&'static str], &'static str, &'static str, &'static str);

const CASES: &[Case] = &[
    (
        "imagenet-local",
        &["dataset.count=5120"],
        "AU >= 95 %",
        "memory,cores",
        "threads=1|2|3|4|5|6|8|12,lanes=4|8|16|48|96,ring=256|512|1024,prefetch=1|2,budget=128 MiB|192 MiB|256 MiB|384 MiB|512 MiB|1 GiB",
    ),
    (
        "imagenet-s3",
        &["dataset.count=5120", "loader.errors=fail"],
        "AU >= 90 %",
        "cores,lanes,memory",
        "threads=2|3|4|5|6|8|12,lanes=16|32|64|96|128,ring=256|512|1024,prefetch=1|2,budget=256 MiB|384 MiB|512 MiB|1 GiB",
    ),
    (
        "slow-store",
        &["dataset.count=1920"],
        "throughput >= 300 samples/s",
        "memory,lanes",
        "threads=1|2|3,lanes=4|8|12|14|16|24|32|64,ring=32|64|128|256,prefetch=1|2|4,budget=24 MiB|32 MiB|48 MiB|64 MiB|96 MiB",
    ),
];

#[expect(clippy::disallowed_methods, reason = "measures this computer")]
fn now() -> Instant {
    Instant::now()
}

fn main() {
    for (name, sets, goal, cheapest, space) in CASES {
        let scenario = scenario::load(name, &Overrides::set(sets.iter().copied())).expect("it is part of the program");
        let machine = scenario.machine_model().expect("it is part of the program");
        let samples = scenario.samples().expect("drawn sizes").expect("drawn sizes");
        let mut question = Question::new(vec![Goal::parse(goal).expect("a goal")]);
        question.cheapest = Cost::parse(cheapest).expect("costs");
        question.space = Asked::parse(&[(*space).to_owned()]).expect("a space");
        (question.seeds, question.simulations, question.samples) = (1, usize::MAX, Some(u64::MAX));

        let start = now();
        let tuned = tune(&scenario, &machine, &samples, &question, &|_| ()).expect("it can be simulated");
        let tuning_s = start.elapsed().as_secs_f64();

        let (figure, goal) = (question.goals[0].figure, &question.goals[0]);
        let mut all: Vec<Vec<u64>> = vec![Vec::new()];
        for axis in &tuned.space.axes {
            all = all.iter().flat_map(|v| axis.values.iter().map(|n| [&v[..], &[*n]].concat())).collect();
        }
        let start = now();
        let every: Vec<(Settings, f64)> = all
            .par_iter()
            .filter_map(|v| {
                let settings =
                    Settings { threads: v[0], lanes: v[1], ring: v[2], prefetch: v[3], budget_bytes: v[4], ranks: v[5] };
                let with: Scenario = settings.on(&scenario);
                let simulated = with.simulate(&machine, &samples, Recorder::new()).ok()?;
                Some((settings, figure.of(&simulated.metrics, 1.0)?))
            })
            .collect();
        let every_s = start.elapsed().as_secs_f64();

        let costs = |s: &Settings| question.cheapest.iter().map(|cost| cost.of(s)).collect::<Vec<u64>>();
        let key = |s: &Settings| (costs(s), Cost::ALL.map(|cost| cost.of(s)), *s);
        let meeting = every.iter().filter(|(_, f)| goal.met_by(Some(*f)));
        let winner = meeting.clone().map(|(s, _)| *s).min_by_key(key);
        let step_s = scenario.consumer.step.as_secs_f64();
        let best = if figure == Figure::Throughput { scenario.loader.batch as f64 / step_s } else { 1.0 };
        let grade = |f: f64| (f / (best / GRADES)).round() as i64;
        let graded: Vec<(Vec<u64>, i64)> = every.iter().map(|(s, f)| (costs(s), grade(*f))).collect();
        let beats = |a: &(Vec<u64>, i64), b: &(Vec<u64>, i64)| a != b && a.1 >= b.1 && a.0.iter().zip(&b.0).all(|(a, b)| a <= b);
        let mut front: Vec<_> = graded.iter().filter(|one| !graded.iter().any(|other| beats(other, one))).cloned().collect();
        let mut found: Vec<_> = tuned.front.iter().map(|p| (p.costs.clone(), grade(p.figure))).collect();
        front.sort();
        front.dedup();
        found.sort();

        println!("{name}, {goal}, cheapest {cheapest}: {} points, {} meet it", all.len(), meeting.count());
        println!(
            "  every point  {:>5} simulations in {every_s:>6.2} s, {:.0} a second",
            every.len(),
            every.len() as f64 / every_s
        );
        println!(
            "  tuned        {:>5} simulations in {tuning_s:>6.2} s, ceilings and verification included; {} excluded by ceilings",
            tuned.simulated, tuned.hopeless
        );
        let same = |yes: bool| if yes { "the same" } else { "ANOTHER" };
        println!(
            "  {} winner, {} front of {} points",
            same(tuned.winner.map(|w| w.settings) == winner),
            same(found == front),
            front.len()
        );
    }
}
