use std::convert::Infallible;

use proptest::prelude::*;

use super::*;

/// A finite space with a function on it, and what evaluating every point of it finds.
#[derive(Clone, Debug)]
struct Toy {
    points: Vec<Point>,
    answers: Vec<Found>,
}

impl Toy {
    /// All combinations of `sizes` levels, with these costs and answers, sorted by cost. `slack` is how far above the truth the highest
    /// possible grade of a point is said to be; `None` where nothing is said.
    fn new(
        sizes: &[u16],
        threshold: i64,
        costs: impl Fn(&[u16; AXES]) -> [u64; COSTS],
        grade: impl Fn(&[u16; AXES]) -> i64,
        slack: impl Fn(&[u16; AXES]) -> Option<i64>,
    ) -> Toy {
        let mut all = vec![[0u16; AXES]];
        for (axis, size) in sizes.iter().enumerate() {
            let with = |levels: &[u16; AXES], level| {
                let mut levels = *levels;
                levels[axis] = level;
                levels
            };
            all = all.iter().flat_map(|levels| (0..*size).map(move |level| with(levels, level))).collect();
        }
        let mut both: Vec<(Point, Found)> = all
            .into_iter()
            .map(|levels| {
                let grade = grade(&levels);
                let grade_most = slack(&levels).map_or(i64::MAX, |slack| grade + slack);
                let point = Point { levels, costs: costs(&levels), grade_most, may_meet: grade_most >= threshold };
                (point, Found { grade, meets: grade >= threshold, lacks: grade < threshold })
            })
            .collect();
        both.sort_by_key(|(p, _)| (p.costs, p.levels));
        let (points, answers) = both.into_iter().unzip();
        Toy { points, answers }
    }

    fn searched(&self, allowance: usize) -> Search {
        let mut search = Search::new(self.points.clone(), allowance);
        let Ok(()) = search.run(|at| Ok::<Found, Infallible>(self.answers[at]));
        search
    }

    fn winner(&self) -> Option<usize> {
        self.answers.iter().position(|f| f.meets)
    }

    fn front(&self) -> Vec<usize> {
        front_of(&self.points, &self.answers.iter().copied().enumerate().collect::<Vec<_>>())
    }
}

/// A word that depends on all levels and looks like chance.
fn noise(seed: u64, levels: &[u16; AXES]) -> u64 {
    levels.iter().fold(seed | 1, |h, level| {
        let h = (h ^ u64::from(*level).wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        h ^ (h >> 29)
    })
}

/// Shapes that searches stumble over.
fn shape(kind: u8, seed: u64, levels: &[u16; AXES]) -> i64 {
    let sum: i64 = levels.iter().map(|l| i64::from(*l)).sum();
    let random = (noise(seed, levels) % 41) as i64;
    match kind {
        // The more the better.
        0 => sum * 10,
        // The more the better, but for noise.
        1 => sum * 10 + random,
        // Chance alone.
        2 => random,
        // A ridge: too much of the first starves the second.
        3 => 100 - (i64::from(levels[0]) * 3 - i64::from(levels[1]) * 2).abs() * 10 + sum,
        // A single needle.
        4 => i64::from(noise(seed, levels).is_multiple_of(97)) * 100,
        // Less is better: every presumption is wrong.
        5 => 200 - sum * 10,
        // The same everywhere.
        _ => 50,
    }
}

fn any_toy() -> impl Strategy<Value = Toy> {
    (prop::collection::vec(1u16..6, 1..5), 0u8..7, any::<u64>(), 0i64..140, 0u8..3, 0u8..3).prop_map(
        |(sizes, kind, seed, threshold, bounded, priced)| {
            let costs = |levels: &[u16; AXES]| match priced {
                // Each resource has its price; some have none.
                0 => [u64::from(levels[0]), u64::from(levels[1]), 0],
                1 => [u64::from(levels[0]) * 2 + u64::from(levels[2]), u64::from(levels[1]), u64::from(levels[3])],
                // Prices that have nothing to do with the levels.
                _ => [noise(!seed, levels) % 9, noise(seed ^ 5, levels) % 4, 0],
            };
            let slack = |levels: &[u16; AXES]| match bounded {
                0 => None,
                1 => Some((noise(seed ^ 3, levels) % 60) as i64),
                _ => Some(0).filter(|_| noise(seed ^ 7, levels).is_multiple_of(2)),
            };
            Toy::new(&sizes, threshold, costs, |levels| shape(kind, seed, levels), slack)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_search_that_may_evaluate_everything_finds_what_evaluating_everything_finds(toy in any_toy()) {
        let search = toy.searched(toy.points.len());
        prop_assert_eq!(search.winner(), toy.winner());
        prop_assert_eq!(search.front(), toy.front());
        prop_assert!(search.proof().winner_is_exact() && search.proof().front_is_exact());
    }

    #[test]
    fn whatever_a_short_search_leaves_out_it_owns_up_to(toy in any_toy(), allowance in 0usize..200) {
        let search = toy.searched(allowance);
        let (proof, winner) = (search.proof(), search.winner());
        prop_assert!(search.evaluated() <= allowance);
        prop_assert!(winner.is_none_or(|at| toy.answers[at].meets));
        let end = winner.unwrap_or(toy.points.len());
        let missed = (0..end).filter(|at| toy.answers[*at].meets).count();
        prop_assert!(missed <= proof.open + proof.presumed, "{} cheaper ones missed, {:?}", missed, proof);
        if proof.winner_is_exact() {
            prop_assert_eq!(winner, toy.winner());
        }
        if proof.front_is_exact() {
            prop_assert_eq!(search.front(), toy.front());
        }
    }

    #[test]
    fn where_more_is_better_a_fraction_of_the_evaluations_finds_the_winner(threshold in 1i64..330, seed: u64) {
        // Each resource is worth something else, and costs something else.
        let worth = [7, 5, 3].map(|n| n + (seed % 3) as i64);
        let grade = |levels: &[u16; AXES]| (0..3).map(|axis| worth[axis] * i64::from(levels[axis])).sum();
        let costs = |levels: &[u16; AXES]| [u64::from(levels[0]) + u64::from(levels[2]), u64::from(levels[1]), 0];
        let toy = Toy::new(&[16, 16, 16], threshold, costs, grade, |_| None);
        let search = toy.searched(toy.points.len() / 8);
        prop_assert_eq!(search.winner(), toy.winner(), "{:?}", search.proof());
        prop_assert_eq!(search.proof().open, 0);
    }

    #[test]
    fn a_rejected_winner_makes_way_for_the_next(toy in any_toy()) {
        let mut search = toy.searched(toy.points.len());
        let meeting: Vec<usize> = (0..toy.points.len()).filter(|at| toy.answers[*at].meets).collect();
        let mut rejected: Vec<usize> = Vec::new();
        for expected in meeting.iter().take(4) {
            prop_assert_eq!(search.winner(), Some(*expected));
            search.reconsider(|at| at != *expected && toy.answers[at].meets && !rejected.contains(&at));
            rejected.push(*expected);
            let Ok(()) = search.run(|at| Ok::<Found, Infallible>(toy.answers[at]));
        }
        prop_assert_eq!(search.winner(), meeting.get(4).copied());
    }
}

#[test]
fn a_wrong_presumption_is_found_out_by_the_checks() {
    // Whoever has as much of both as can be fails, and with it all are presumed to.
    let grade = |levels: &[u16; AXES]| 100 - i64::from(levels[0]) * i64::from(levels[1]);
    let toy = Toy::new(&[40, 40], 90, |levels| [u64::from(levels[0]), u64::from(levels[1]), 0], grade, |_| None);
    let search = toy.searched(400);
    assert!(search.proof().refuting > 0, "{:?}", search.proof());
    assert_eq!(search.winner(), toy.winner());
}

#[test]
fn bounds_keep_points_from_being_evaluated() {
    let grade = |levels: &[u16; AXES]| i64::from(levels[0].min(levels[1]) * 10);
    let costs = |levels: &[u16; AXES]| [u64::from(levels[0]), u64::from(levels[1]), 0];
    let blind = Toy::new(&[20, 20], 100, costs, grade, |_| None).searched(400);
    let told = Toy::new(&[20, 20], 100, costs, grade, |_| Some(0)).searched(400);
    assert_eq!((blind.winner(), blind.front()), (told.winner(), told.front()));
    assert!(told.evaluated() * 3 < blind.evaluated(), "{} with bounds, {} without", told.evaluated(), blind.evaluated());
}
