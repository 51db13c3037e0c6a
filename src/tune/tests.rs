use super::*;
use crate::scenario::{self, Overrides};

const MIB: u64 = 1 << 20;

/// A few reads of 20 ms at a time, decoded on two cores, for a step that both together can just keep up with.
const NARROW: &str = "title = \"narrow\"\nmachine = \"reference-2core\"\n[dataset]\nkind = \"synthetic\"\ncount = 192\n\
                      [store]\nkind = \"object\"\nfirst_byte = \"8 ms\"\nconnections = 16\n\
                      [loader]\nbatch = 16\nbudget = \"32 MiB\"\n[consumer]\nstep = \"24 ms\"\n";

struct Given {
    scenario: Scenario,
    machine: MachineModel,
    samples: Samples,
}

fn given(text: &str, sets: &[&str]) -> Given {
    let scenario = scenario::parse("narrow.toml", text, &Overrides::set(sets.iter().copied())).unwrap_or_else(|e| panic!("{e}"));
    let (machine, samples) = (scenario.machine_model().unwrap(), scenario.samples().unwrap().unwrap());
    Given { scenario, machine, samples }
}

/// 640 points.
fn space() -> Asked {
    Asked::default()
        .with(Field::Threads, [1, 2, 3, 4])
        .with(Field::Lanes, [1, 4, 8, 16])
        .with(Field::Ring, [16, 32, 48, 96])
        .with(Field::Prefetch, [1, 2])
        .with(Field::Budget, [14, 16, 19, 24, 32].map(|n| n * MIB))
}

fn question(goal: &str, cheapest: &str) -> Question {
    let mut question = Question::new(vec![Goal::parse(goal).unwrap()]);
    question.cheapest = Cost::parse(cheapest).unwrap();
    (question.space, question.seeds) = (space(), 1);
    question
}

impl Given {
    fn tuned(&self, question: &Question) -> Tuned {
        tune(&self.scenario, &self.machine, &self.samples, question, &|_| ()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Every point that can run with what it comes to: nothing of the search in it.
    fn all(&self, space: &Space, figure: Figure) -> Vec<(Settings, f64)> {
        let mut all = vec![Vec::new()];
        for axis in &space.axes {
            all = all.iter().flat_map(|v: &Vec<u64>| axis.values.iter().map(|n| [&v[..], &[*n]].concat())).collect();
        }
        all.par_iter()
            .filter_map(|v| {
                let settings =
                    Settings { threads: v[0], lanes: v[1], ring: v[2], prefetch: v[3], budget_bytes: v[4], ranks: v[5] };
                let metrics = advise::figures(&settings.on(&self.scenario), &self.machine, &self.samples).ok()?;
                Some((settings, figure.of(&metrics, 1.0)?))
            })
            .collect()
    }
}

/// The cheapest of `all` that meet the goal, and the front, by comparing everything with everything.
fn exhaustive(all: &[(Settings, f64)], question: &Question, unit: f64) -> (Option<Settings>, Vec<(Vec<u64>, i64)>) {
    let goal = &question.goals[0];
    let costs = |s: &Settings| question.cheapest.iter().map(|c| c.of(s)).collect::<Vec<u64>>();
    let key = |s: &Settings| (costs(s), Cost::ALL.map(|c| c.of(s)), *s);
    let winner = all.iter().filter(|(_, f)| goal.met_by(Some(*f))).map(|(s, _)| *s).min_by_key(key);
    let sign = if goal.figure.more_is_better() { 1 } else { -1 };
    let graded: Vec<(Vec<u64>, i64)> = all.iter().map(|(s, f)| (costs(s), sign * (f / unit).round() as i64)).collect();
    let beats = |a: &(Vec<u64>, i64), b: &(Vec<u64>, i64)| a != b && a.1 >= b.1 && a.0.iter().zip(&b.0).all(|(a, b)| a <= b);
    let mut front: Vec<_> = graded.iter().filter(|one| !graded.iter().any(|other| beats(other, one))).cloned().collect();
    front.sort();
    front.dedup();
    (winner, front)
}

#[test]
fn it_finds_what_simulating_every_point_finds() {
    let given = given(NARROW, &[]);
    let mut all = None;
    for (goal, cheapest) in [("AU >= 90 %", "memory,cores"), ("AU >= 80 %", "cores,lanes,memory"), ("AU >= 100 %", "lanes")] {
        let question = question(goal, cheapest);
        let tuned = given.tuned(&question);
        let all = all.get_or_insert_with(|| given.all(&tuned.space, Figure::AcceleratorUtilization));
        assert_eq!((tuned.points, tuned.impossible), (640, 640 - all.len() as u64));
        let (winner, front) = exhaustive(all, &question, 1.0 / GRADES);
        assert_eq!(tuned.winner.as_ref().map(|w| w.settings), winner, "{goal}: {}", tuned.terminal());
        let graded = |p: &OnFront| (p.costs.clone(), (p.figure * GRADES).round() as i64);
        let mut found: Vec<_> = tuned.front.iter().map(graded).collect();
        found.sort();
        assert_eq!(found, front, "{goal}");
        assert!(tuned.proof.winner_is_exact() && tuned.proof.front_is_exact(), "{:?}", tuned.proof);
        assert!(tuned.simulated < all.len() as u64, "{} of {}", tuned.simulated, all.len());
    }
    let found = all.unwrap();
    let figures: Vec<f64> = found.iter().map(|(_, f)| *f).collect();
    let (low, high) = figures.iter().fold((1.0f64, 0.0f64), |(l, h), f| (l.min(*f), h.max(*f)));
    assert!(low < 0.3 && high > 0.9, "a space in which something is decided: from {low} to {high}");
}

#[test]
fn the_first_batch_and_the_peak_can_be_goals_too() {
    let given = given(NARROW, &["dataset.count=96"]);
    let mut question = question("time to first batch <= 60 ms", "memory,lanes");
    question.goals.push(Goal::parse("peak_bytes_in_flight <= 20 MiB").unwrap());
    let tuned = given.tuned(&question);
    let all = given.all(&tuned.space, Figure::TimeToFirstBatch);
    let peaks = given.all(&tuned.space, Figure::PeakBytesInFlight);
    let both: Vec<(Settings, f64)> =
        all.iter().zip(&peaks).map(|(a, p)| (a.0, if p.1 <= (20 * MIB) as f64 { a.1 } else { f64::MAX })).collect();
    assert_eq!(tuned.winner.map(|w| w.settings), exhaustive(&both, &question, 1.0).0);
}

#[test]
fn goals_that_cannot_be_met_end_with_the_best_and_what_limits_it() {
    let given = given(NARROW, &["consumer.step=2 ms", "dataset.count=640"]);
    let mut question = question("AU >= 95 %", "memory,cores");
    question.space = question.space.with(Field::Lanes, [8, 16]).with(Field::Ring, [16, 32]).with(Field::Threads, [1, 2]);
    let tuned = given.tuned(&question);
    assert!(tuned.winner.is_none());
    let limit = tuned.limit.as_ref().expect("something was simulated");
    assert!(limit.figures[0].worst.is_some_and(|au| au < 0.95) && !limit.figures[0].met);
    let why = tuned.why_not();
    assert!(why.contains("the best that was reached: accelerator utilization") && why.contains("what limits it"), "{why}");
    assert!(tuned.terminal().contains("No point meets the goal"), "{}", tuned.terminal());
    // Decoding alone takes longer than this, whatever the settings, and no simulation is needed to know.
    assert!(limit.ceilings[0].is_some_and(|most| most < 0.95) && tuned.hopeless == tuned.points - tuned.impossible, "{why}");
}

#[test]
fn a_long_epoch_is_cut_and_the_winner_kept_to_the_whole() {
    let given = given(NARROW, &["dataset.count=3200", "loader.drop_last=true"]);
    let mut question = question("throughput >= 500 samples/s", "cores,memory");
    (question.samples, question.seeds) = (Some(320), 2);
    let tuned = given.tuned(&question);
    assert_eq!((tuned.samples, tuned.samples_of), (320, 3200));
    let winner = tuned.winner.as_ref().unwrap_or_else(|| panic!("{}", tuned.why_not()));
    assert!(winner.meets && winner.figures[0].worst.is_some_and(|x| x >= 500.0), "{winner:?}");
    for seed in 0..2 {
        let scenario = Scenario { seed, ..winner.settings.on(&given.scenario) };
        let metrics = advise::figures(&scenario, &given.machine, &given.samples).unwrap();
        assert!(metrics.samples_per_s >= 500.0, "{}", metrics.samples_per_s);
    }
}

#[test]
fn where_the_cut_overstates_more_is_demanded_of_it() {
    let given = given(NARROW, &["dataset.count=1600", "loader.drop_last=true", "consumer.step=12 ms"]);
    let mut question = question("throughput >= 700 samples/s", "lanes,cores,memory");
    (question.samples, question.seeds) = (Some(160), 2);
    let first = given.tuned(&question).winner.expect("it can be done");
    let cut = Cut::of(&given.scenario, &given.samples, 1, Some(160));
    let metrics = advise::figures(&first.settings.on(&given.scenario), &given.machine, &cut.samples).unwrap();
    let (promised, came) = (Figure::Throughput.of(&metrics, cut.part).unwrap(), first.figures[0].worst.unwrap());
    assert!(promised > came, "{promised} in the cut, {came} in the whole");
    // Now ask for what the cut promises and the whole does not keep.
    question.goals = vec![Goal::parse(&format!("throughput >= {} samples/s", (promised + came) / 2.0)).unwrap()];
    let tuned = given.tuned(&question);
    assert!(tuned.rejected.contains(&first.settings), "{}", tuned.terminal());
    assert!(tuned.rejected.len() < 5, "{} whole runs for nothing", tuned.rejected.len());
    assert!(tuned.winner.is_some_and(|w| w.meets && w.costs > first.costs));
}

#[test]
fn the_same_question_gets_the_same_answer() {
    let given = given(NARROW, &["dataset.count=96"]);
    let json = || serde_json::to_string(&given.tuned(&question("AU >= 60 %", "memory,cores"))).unwrap();
    assert_eq!(json(), json());
}

#[test]
fn ranks_are_searched_when_asked_for() {
    let given = given(NARROW, &["loader.drop_last=true", "loader.tail=drop"]);
    let mut question = question("throughput >= 400 samples/s", "memory,cores");
    question.space = Asked::default()
        .with(Field::Threads, [1, 2])
        .with(Field::Lanes, [8, 16])
        .with(Field::Ring, [32])
        .with(Field::Prefetch, [1, 2])
        .with(Field::Budget, [24 * MIB, 32 * MIB])
        .with(Field::Ranks, [1, 2, 3]);
    let tuned = given.tuned(&question);
    let all = given.all(&tuned.space, Figure::Throughput);
    assert_eq!(tuned.points, 48);
    assert_eq!(tuned.winner.map(|w| w.settings), exhaustive(&all, &question, 1.0).0);
}

#[test]
fn a_page_shows_the_front_and_escapes_what_it_is_given() {
    let mut given = given(NARROW, &["dataset.count=96"]);
    given.scenario.name = "<b>narrow</b>".to_owned();
    let tuned = given.tuned(&question("AU >= 60 %", "memory,cores"));
    let page = tuned.page();
    assert!(page.starts_with(crate::report::Html::START) && page.contains("&lt;b&gt;narrow") && !page.contains("<b>narrow"));
    assert_eq!(page.matches("<svg class=\"scatter\"").count(), 2);
    assert!(page.contains("dot chosen") && page.contains("class=\"front\" d=\"M"), "the winner and the line are drawn");
    assert!(!page.contains("NaN") && !page.contains("inf"));
}
