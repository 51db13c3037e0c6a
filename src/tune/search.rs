//! The search itself: which points of a finite space to evaluate, and what follows from the answers. It knows nothing of loaders.
//!
//! A point has *levels* (how much of each resource it has), *costs* that are known before anything is evaluated, and a place in the
//! order of cost: points come sorted, the cheapest first. Evaluating one tells its *grade* (more is better) and whether it *meets* the
//! goal. Wanted are the **winner**, the first point in the order that meets it, and the **front**, the points of which no other costs
//! no more and has as good a grade.
//!
//! # What is excluded without being evaluated, exactly
//!
//! - a point that *cannot* meet the goal, because a bound says so, from being the winner;
//! - a point behind one that meets the goal, from being the winner;
//! - a point whose *highest possible* grade is reached by one that costs no more, from being on the front.
//!
//! None of this assumes anything about the shape of the function. A search that ends with nothing left open has found what evaluating
//! every point would have found, however awkward the function is.
//!
//! # What is only presumed
//!
//! More of every resource is mostly better, so a point that fails for lack of them makes all points with at most its levels *presumed* to fail, and they
//! are put off. When everything else is settled, they are evaluated after all if the allowance pays for it; otherwise a sample of
//! them, spread over the order, is, as a check. A point that meets the goal *refutes* every failure above it, and what was presumed by
//! that failure alone is open again. For the front, a point is likewise put off when one with more of everything has no better grade than
//! what its cost buys already. What was presumed and never evaluated is [counted](Proof), so that nobody takes it for proven.
//!
//! # Which comes next
//!
//! Coarse points first (levels 0, 1, 2, 4, 8 … and the last), then all. Among the open ones, a round takes those that exclude most
//! either way: were the point to fail, the open points below it; were it to meet the goal, those behind it; the smaller of the two
//! counts. That is bisection where the function is monotone. Rounds have a fixed size, so that the result does not depend on the number
//! of cores.

use rayon::prelude::*;

/// The most resources that a point has levels of.
pub const AXES: usize = 6;
/// The most costs that are told apart.
pub const COSTS: usize = 3;
/// Evaluations between two decisions.
const ROUND: usize = 16;
/// Points that are looked at to choose the next.
const LOOKED_AT: usize = 192;
/// The part of the allowance that checks what is presumed, when it cannot pay for all of it.
const CHECKS: usize = 8;
/// Evaluations that every judgement of a winner adds to the allowance.
const FOR_A_REJECTED: usize = 64;

/// A point before it is evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// How much it has of each resource, as the number of the value on that axis; 0 for axes that there are not.
    pub levels: [u16; AXES],
    /// What it costs; 0 for costs that nobody asked for.
    pub costs: [u64; COSTS],
    /// No grade of it is higher, whatever comes; `i64::MAX` when nothing is known. Must be at most `i64::MAX / 4` otherwise.
    pub grade_most: i64,
    /// Whether it may meet the goal, as far as bounds know.
    pub may_meet: bool,
}

/// What evaluating a point told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// How good it is; from `-i64::MAX / 4` to `i64::MAX / 4`.
    pub grade: i64,
    /// Whether it meets the goal.
    pub meets: bool,
    /// Whether it fails for lack of resources, so that whatever has less of each is presumed to fail too.
    pub lacks: bool,
}

/// How sure the winner and the front are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Proof {
    /// Points before the winner, or all when there is none, that were neither evaluated nor excluded nor presumed to fail.
    pub open: usize,
    /// Points before the winner that were presumed to fail, because one with more of everything failed, and not evaluated.
    pub presumed: usize,
    /// Points that were presumed to fail and then evaluated as a check.
    pub checked: usize,
    /// Points that were presumed to fail and met the goal when they were evaluated, as a check or for the front.
    pub refuting: usize,
    /// Points that were neither evaluated nor excluded from the front.
    pub front_open: usize,
}

impl Proof {
    /// Whether the winner is what evaluating every point would have found.
    pub fn winner_is_exact(&self) -> bool {
        self.open == 0 && self.presumed == 0
    }

    /// Whether the front is what evaluating every point would have found.
    pub fn front_is_exact(&self) -> bool {
        self.front_open == 0
    }
}

/// What is known of a point that was not evaluated.
#[derive(Clone, Debug)]
struct Mark {
    /// Failures with at least its levels that nobody has refuted.
    failures_above: u32,
    /// Twice the best grade at no more cost, and one more where that point would be preferred at the same grade.
    reached: i64,
    /// The least grade of a point with at least its levels.
    presumed_most: i64,
}

/// A search under way. See the [module documentation](self).
#[derive(Debug)]
pub struct Search {
    points: Vec<Point>,
    coarse: Vec<bool>,
    marks: Vec<Mark>,
    found: Vec<Option<Found>>,
    failures: Vec<usize>,
    winner: Option<usize>,
    evaluated: usize,
    allowance: usize,
    checked: usize,
    refuting: usize,
    /// Points evaluated that were presumed not to be on the front.
    front_checked: usize,
}

/// Whether all of `a` are at most those of `b`.
fn at_most<T: PartialOrd>(a: &[T], b: &[T]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b)
}

impl Search {
    /// A search over `points`, sorted by cost, that evaluates at most `allowance` of them.
    pub fn new(points: Vec<Point>, allowance: usize) -> Search {
        let mark = Mark { failures_above: 0, reached: i64::MIN, presumed_most: i64::MAX };
        let (marks, found) = (vec![mark; points.len()], vec![None; points.len()]);
        let coarse = coarse(&points, allowance);
        let failures = Vec::new();
        let (winner, evaluated, checked, refuting, front_checked) = (None, 0, 0, 0, 0);
        Search { coarse, points, marks, found, failures, winner, evaluated, allowance, checked, refuting, front_checked }
    }

    /// Evaluates points, side by side, until nothing is open or the allowance is spent.
    ///
    /// # Errors
    ///
    /// The first error of `evaluate`, in the order of cost.
    pub fn run<E: Send>(&mut self, evaluate: impl Fn(usize) -> Result<Found, E> + Sync) -> Result<(), E> {
        loop {
            let round = self.next_round();
            if round.is_empty() {
                return Ok(());
            }
            let told: Result<Vec<Found>, E> = round.par_iter().map(|at| evaluate(*at)).collect();
            self.record(&round.into_iter().zip(told?).collect::<Vec<_>>());
        }
    }

    /// The first point that meets the goal, of those that were evaluated.
    pub fn winner(&self) -> Option<usize> {
        self.winner
    }

    /// Judges the points that met the goal anew, by what `evaluate` could not know: those that `still` refuses fail, for lack of resources.
    /// The next [run](Search::run) looks for another winner, and may evaluate a few more for it.
    pub fn reconsider(&mut self, still: impl Fn(usize) -> bool) {
        let refused: Vec<usize> =
            (0..self.found.len()).filter(|at| self.found[*at].is_some_and(|f| f.meets) && !still(*at)).collect();
        for at in &refused {
            self.found[*at] = self.found[*at].map(|found| Found { meets: false, lacks: true, ..found });
        }
        self.winner = self.found.iter().position(|f| f.is_some_and(|f| f.meets));
        for at in refused {
            self.fail(at);
        }
        self.allowance = self.allowance.saturating_add(FOR_A_REJECTED);
    }

    /// What was found at a point.
    pub fn found(&self, at: usize) -> Option<Found> {
        self.found[at]
    }

    /// How many points were evaluated.
    pub fn evaluated(&self) -> usize {
        self.evaluated
    }

    /// Points that are still open for the winner.
    pub fn open(&self) -> usize {
        self.for_winner(false).count()
    }

    /// The evaluated points of which no other costs no more and has as good a grade; of equals the first. In the order of cost.
    pub fn front(&self) -> Vec<usize> {
        let known: Vec<(usize, Found)> = (0..self.points.len()).filter_map(|at| Some((at, self.found[at]?))).collect();
        front_of(&self.points, &known)
    }

    /// How sure winner and front are.
    pub fn proof(&self) -> Proof {
        Proof {
            open: self.for_winner(false).count(),
            presumed: self.for_winner(true).count(),
            checked: self.checked,
            refuting: self.refuting,
            front_open: self.for_front().count(),
        }
    }

    /// Points that may be the winner: presumed to fail, or not.
    fn for_winner(&self, presumed: bool) -> impl Iterator<Item = usize> + '_ {
        let end = self.winner.unwrap_or(self.points.len());
        (0..end).filter(move |at| {
            self.found[*at].is_none() && self.points[*at].may_meet && (self.marks[*at].failures_above > 0) == presumed
        })
    }

    /// Points that may be on the front.
    fn for_front(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.points.len()).filter(|at| {
            let most = self.points[*at].grade_most;
            self.found[*at].is_none() && (most == i64::MAX || self.marks[*at].reached <= 2 * most)
        })
    }

    /// Whether a point would better what is reached at its cost, were the function monotone.
    fn promises(&self, at: usize) -> bool {
        let (point, mark) = (&self.points[at], &self.marks[at]);
        let most = point.grade_most.min(mark.presumed_most);
        most == i64::MAX || mark.reached <= 2 * most
    }

    fn next_round(&mut self) -> Vec<usize> {
        let left = self.allowance.saturating_sub(self.evaluated);
        if left == 0 {
            return Vec::new();
        }
        let most = left.min(ROUND);
        let open: Vec<usize> = self.for_winner(false).collect();
        if !open.is_empty() {
            let coarse: Vec<usize> = open.iter().copied().filter(|at| self.coarse[*at]).collect();
            return self.dividing(if coarse.is_empty() { &open } else { &coarse }, most);
        }
        let presumed: Vec<usize> = self.for_winner(true).collect();
        let checks = self.allowance / CHECKS;
        if !presumed.is_empty() && (presumed.len() <= left || self.checked < checks) {
            let most = if presumed.len() <= left { most } else { most.min(checks - self.checked) };
            let round = spread(&presumed, most);
            self.checked += round.len();
            return round;
        }
        let front: Vec<usize> = self.for_front().collect();
        let promising: Vec<usize> = front.iter().copied().filter(|at| self.promises(*at)).collect();
        let coarse: Vec<usize> = promising.iter().copied().filter(|at| self.coarse[*at]).collect();
        if let Some(list) = [coarse, promising].iter().find(|list| !list.is_empty()) {
            return spread(list, most);
        }
        // As with what is presumed to fail: all of it where the allowance pays for it, else a sample.
        if front.len() > left && self.front_checked >= checks {
            return Vec::new();
        }
        let round = spread(&front, most);
        self.front_checked += round.len();
        round
    }

    /// The points of `open` that divide it best.
    fn dividing(&self, open: &[usize], most: usize) -> Vec<usize> {
        if open.len() <= most {
            return open.to_vec();
        }
        let mut looked_at = spread(open, LOOKED_AT);
        let mut chosen = Vec::new();
        let mut above: Vec<usize> = looked_at.clone();
        while chosen.len() < most && !looked_at.is_empty() {
            let below = |at: usize| above.iter().filter(|p| at_most(&self.points[**p].levels, &self.points[at].levels)).count();
            let behind = |at: usize| above.iter().filter(|p| **p > at).count() + 1;
            let divides = |at: usize| below(at).min(behind(at));
            let (place, worth) = looked_at
                .iter()
                .enumerate()
                .map(|(place, at)| (place, divides(*at)))
                .max_by_key(|(place, worth)| (*worth, usize::MAX - place))
                .expect("there is one");
            if worth == 0 && !chosen.is_empty() {
                break;
            }
            let at = looked_at.remove(place);
            // As if it failed: then the next should tell something else.
            above.retain(|p| !at_most(&self.points[*p].levels, &self.points[at].levels));
            chosen.push(at);
        }
        chosen.sort_unstable();
        chosen
    }

    fn record(&mut self, round: &[(usize, Found)]) {
        self.refuting += round.iter().filter(|(at, found)| found.meets && self.marks[*at].failures_above > 0).count();
        for (at, found) in round {
            self.found[*at] = Some(*found);
            self.evaluated += 1;
            if found.meets {
                self.winner = Some(self.winner.map_or(*at, |w| w.min(*at)));
                self.refute(*at);
            } else if found.lacks {
                self.fail(*at);
            }
        }
        let points = &self.points;
        self.marks.par_iter_mut().zip(points.par_iter()).enumerate().for_each(|(p, (mark, point))| {
            for (at, found) in round {
                let other = &points[*at];
                if at_most(&point.levels, &other.levels) {
                    mark.presumed_most = mark.presumed_most.min(found.grade);
                }
                if at_most(&other.costs, &point.costs) {
                    let preferred = other.costs != point.costs || *at < p;
                    mark.reached = mark.reached.max(2 * found.grade + i64::from(preferred));
                }
            }
        });
    }

    /// A failure, unless something below it is known to meet the goal.
    fn fail(&mut self, at: usize) {
        let levels = self.points[at].levels;
        let refuted = self.found.iter().zip(&self.points).any(|(f, p)| f.is_some_and(|f| f.meets) && at_most(&p.levels, &levels));
        if !refuted {
            self.failures.push(at);
            self.count(&levels, 1);
        }
    }

    /// Forgets the failures above a point that meets the goal.
    fn refute(&mut self, at: usize) {
        let levels = self.points[at].levels;
        let refuted = |search: &Search, failure: &usize| at_most(&levels, &search.points[*failure].levels);
        let (gone, kept): (Vec<usize>, Vec<usize>) = self.failures.iter().copied().partition(|f| refuted(self, f));
        self.failures = kept;
        for failure in gone {
            let above = self.points[failure].levels;
            self.count(&above, -1);
        }
    }

    fn count(&mut self, levels: &[u16; AXES], by: i32) {
        let points = &self.points;
        self.marks.par_iter_mut().zip(points.par_iter()).for_each(|(mark, point)| {
            if at_most(&point.levels, levels) {
                mark.failures_above = mark.failures_above.saturating_add_signed(by);
            }
        });
    }
}

/// Of `known` points, those of which no other costs no more and has as good a grade; of equals the first.
pub fn front_of(points: &[Point], known: &[(usize, Found)]) -> Vec<usize> {
    let beats = |(a, fa): &(usize, Found), (b, fb): &(usize, Found)| {
        let (ca, cb) = (&points[*a].costs, &points[*b].costs);
        a != b && at_most(ca, cb) && fa.grade >= fb.grade && (fa.grade > fb.grade || ca != cb || a < b)
    };
    known.iter().filter(|one| !known.iter().any(|other| beats(other, one))).map(|(at, _)| *at).collect()
}

/// `most` of `list`, evenly spread over it.
fn spread(list: &[usize], most: usize) -> Vec<usize> {
    if list.len() <= most {
        return list.to_vec();
    }
    (0..most).map(|i| list[(2 * i + 1) * list.len() / (2 * most)]).collect()
}

/// Which points have coarse levels only: 0, powers of two and the last of every axis, thinned until a quarter of the allowance pays
/// for all their combinations.
fn coarse(points: &[Point], allowance: usize) -> Vec<bool> {
    let mut kept: Vec<Vec<u16>> = (0..AXES)
        .map(|axis| {
            let last = points.iter().map(|p| p.levels[axis]).max().unwrap_or(0);
            (0..=last).filter(|level| *level == 0 || *level == last || level.is_power_of_two()).collect()
        })
        .collect();
    let combinations = |kept: &[Vec<u16>]| kept.iter().fold(1usize, |n, levels| n.saturating_mul(levels.len()));
    while combinations(&kept) > (allowance / 4).max(1) {
        let Some(longest) = kept.iter_mut().max_by_key(|levels| levels.len()).filter(|levels| levels.len() > 1) else { break };
        let last = longest.len() - 1;
        // The largest stays to the end: it is what tells whether the goal can be met at all.
        let mut place = 0;
        longest.retain(|_| {
            place += 1;
            (last + 1 - place) % 2 == 0
        });
    }
    points.iter().map(|p| p.levels.iter().zip(&kept).all(|(level, kept)| kept.contains(level))).collect()
}

#[cfg(test)]
mod tests;
