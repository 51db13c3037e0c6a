//! An order is a permutation, whatever its size, and looks like one drawn by chance.
//!
//! "Looks like" is decided by chi-square tests. Each result is put on the scale of the normal distribution, and a deviation of
//! [`LIMIT`] either way fails: a fair order does that once in 150 000 tests. All seeds are fixed, so a test that passes once passes
//! always. The same tests reject a network of four rounds, which shows that they can.

use super::*;

#[test]
fn several_positions_at_once_are_what_each_is_by_itself() {
    // Tables, networks with a hardly filled rectangle, where walking is most likely, and a large one.
    for n in [1, 7, TABLE_MAX, TABLE_MAX + 1, 182 * 182 + 1, 1_281_167] {
        let order = Permutation::new(n, 5, 1);
        for first in (0..n).step_by(n as usize / 300 + 1) {
            let positions: [u64; 8] = std::array::from_fn(|k| (first + k as u64) % n);
            let mut samples = positions;
            order.at_each(&mut samples);
            assert_eq!(samples, positions.map(|position| order.at(position)), "{n} samples from {first}");
        }
    }
}

/// Standard deviations, two-sided: a significance of 7 in a million.
const LIMIT: f64 = 4.5;

/// A chi-square statistic over cells with these counts and expectations, as standard deviations of the normal distribution
/// (Wilson and Hilferty's cube root).
fn deviation(counts: &[u64], expected: impl Fn(usize) -> f64, freedom: f64) -> f64 {
    let statistic: f64 = counts.iter().enumerate().map(|(i, &c)| (c as f64 - expected(i)).powi(2) / expected(i)).sum();
    let spread = 2.0 / (9.0 * freedom);
    ((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

/// The deviation of `pairs`, each a cell of a `side × side` square whose margins are fixed, from independence.
fn pairs_deviation(side: u64, pairs: impl Iterator<Item = (u64, u64)>) -> f64 {
    let mut counts = vec![0; (side * side) as usize];
    let mut total = 0u64;
    for (x, y) in pairs {
        counts[(x * side + y) as usize] += 1;
        total += 1;
    }
    let each = total as f64 / (side * side) as f64;
    deviation(&counts, |_| each, ((side - 1) * (side - 1)) as f64)
}

/// The deviation of `values` below `n` from uniformity, in at most 64 cells.
fn values_deviation(n: u64, values: impl Iterator<Item = u64>) -> f64 {
    let cells = n.min(64);
    let mut counts = vec![0; cells as usize];
    let mut total = 0u64;
    for value in values {
        counts[part(value, n, cells) as usize] += 1;
        total += 1;
    }
    let starts = |cell: usize| (cell as u64 * n).div_ceil(cells);
    let expected = |cell: usize| total as f64 * (starts(cell + 1) - starts(cell)) as f64 / n as f64;
    deviation(&counts, expected, (cells - 1) as f64)
}

/// Which of `cells` equal parts of `0..n` holds `x`.
fn part(x: u64, n: u64, cells: u64) -> u64 {
    (u128::from(x) * u128::from(cells) / u128::from(n)) as u64
}

fn assert_fair(what: &str, deviation: f64) {
    assert!(deviation.abs() < LIMIT, "{what}: {deviation:.1} standard deviations from a random order");
}

/// Every test of one order of `n` samples, by name. `b` is a lag at which a network on rows of length `b` could give itself away.
fn deviations_of_an_order(n: u64, b: u64, at: impl Fn(u64) -> u64) -> Vec<(String, f64)> {
    let order: Vec<u64> = (0..n).map(at).collect();
    let lagged = |lag: u64| order.iter().zip(&order[lag as usize..]).map(|(&x, &y)| (x, y));
    let mut results = vec![(
        "position and sample".to_owned(),
        pairs_deviation(16, order.iter().enumerate().map(|(i, &x)| (part(i as u64, n, 16), part(x, n, 16)))),
    )];
    for lag in [1, 2, b, b + 1] {
        let difference = |modulus: u64, scale: fn(u64, u64) -> u64| {
            values_deviation(modulus, lagged(lag).map(|(x, y)| (scale(y, b) + modulus - scale(x, b)) % modulus))
        };
        results.extend([
            (format!("joint parts, lag {lag}"), pairs_deviation(16, lagged(lag).map(|(x, y)| (part(x, n, 16), part(y, n, 16))))),
            (format!("joint remainders, lag {lag}"), pairs_deviation(16, lagged(lag).map(|(x, y)| (x % 16, y % 16)))),
            (format!("differences, lag {lag}"), difference(n, |x, _| x)),
            (format!("differences of columns, lag {lag}"), difference(b, |x, b| x % b)),
            (format!("differences of rows, lag {lag}"), difference(n.div_ceil(b), |x, b| x / b)),
        ]);
    }
    results
}

fn deviations_of_a_network<const ROUNDS: usize>(n: u64, seed: u64) -> Vec<(String, f64)> {
    let network = Network::<ROUNDS>::new(n, seed, 0);
    deviations_of_an_order(n, network.b, |position| network.forward(position, n))
}

fn assert_all_fair(what: &str, deviations: &[(String, f64)]) {
    for (name, deviation) in deviations {
        assert_fair(&format!("{what}, {name}"), *deviation);
    }
}

fn assert_bijection(what: impl Fn() -> String, n: u64, seen: &mut [u32], mark: u32, at: impl Fn(u64) -> u64) {
    for position in 0..n {
        let sample = at(position);
        assert!(sample < n, "{}: position {position} gives {sample}", what());
        assert_ne!(seen[sample as usize], mark, "{}: sample {sample} comes a second time, at position {position}", what());
        seen[sample as usize] = mark;
    }
}

#[test]
fn every_small_order_is_a_permutation() {
    let mut seen = vec![u32::MAX; 10_001];
    for n in 0..=10_000 {
        let order = Permutation::new(n, 3, n as u32 % 5);
        assert_bijection(|| format!("n = {n}"), n, &mut seen, n as u32, |position| order.at(position));
    }
}

#[test]
fn a_network_of_any_small_size_is_a_permutation_though_tables_serve_there() {
    let mut seen = vec![u32::MAX; 10_001];
    for n in 1..=10_000 {
        let network = Network::<8>::new(n, 5, n as u32 % 3);
        assert_bijection(|| format!("n = {n}"), n, &mut seen, n as u32, |position| network.forward(position, n));
    }
}

#[test]
fn orders_on_both_sides_of_the_table_are_permutations() {
    let mut seen = vec![u32::MAX; 300_000];
    for (mark, n) in [TABLE_MAX - 1, TABLE_MAX, TABLE_MAX + 1, 65_535, 65_536, 65_537, 262_144, 299_999].into_iter().enumerate() {
        let order = Permutation::new(n, 11, 2);
        assert_bijection(|| format!("n = {n}"), n, &mut seen, mark as u32, |position| order.at(position));
    }
}

#[test]
fn the_inverse_finds_every_position_of_a_sampled_large_order() {
    for n in [1_281_167, (1 << 32) - 5, (1 << 40) - 1, 1 << 40, (1 << 40) + 1, SAMPLES_MAX - 1, SAMPLES_MAX] {
        let order = Permutation::new(n, 17, 1);
        let windows = [0, n / 3, n / 2, n - 500];
        let scattered = (0..2_000).map(|i| below(draw(1, Purpose::CUSTOM, n, i).word(0), n));
        for position in windows.into_iter().flat_map(|start| start..start + 500).chain(scattered) {
            let sample = order.at(position);
            assert!(sample < n, "n = {n}: position {position} gives {sample}");
            assert_eq!(order.position_of(sample), position, "n = {n}: sample {sample}");
        }
    }
}

#[test]
fn the_inverse_finds_every_position_of_a_table() {
    let order = Permutation::new(1_000, 17, 1);
    for position in 0..1_000 {
        assert_eq!(order.position_of(order.at(position)), position);
    }
}

/// The numbers that a seed stands for must not change from one version of this crate to the next.
#[test]
fn a_seed_keeps_its_order() {
    let start = |n| std::array::from_fn::<u64, 4, _>(|position| Permutation::new(n, 7, 3).at(position as u64));
    assert_eq!(start(10), [7, 1, 0, 9]);
    assert_eq!(start(TABLE_MAX), [27026, 762, 4873, 32478]);
    assert_eq!(start(1_281_167), [148759, 510865, 720758, 386657]);
    assert_eq!(start(1 << 40), [938763667436, 249248250736, 146822528065, 806102112756]);
}

#[test]
fn an_order_of_none_and_of_one() {
    assert!(Permutation::new(0, 1, 1).is_empty());
    assert_eq!(Permutation::new(1, 1, 1).at(0), 0);
}

#[test]
#[should_panic(expected = "position 40000 of an order of 40000 samples")]
fn a_position_past_the_end_is_a_mistake() {
    let _ = Permutation::new(40_000, 1, 1).at(40_000);
}

#[test]
#[should_panic(expected = "more than a permutation can have")]
fn too_many_samples_are_a_mistake() {
    let _ = Permutation::new(SAMPLES_MAX + 1, 1, 1);
}

#[test]
fn neighbours_in_an_order_are_independent() {
    for seed in 0..4 {
        let order = Permutation::new(TABLE_MAX, seed, 0);
        assert_all_fair("table", &deviations_of_an_order(TABLE_MAX, 180, |position| order.at(position)));
        assert_all_fair("network, n = 40 000", &deviations_of_a_network::<8>(40_000, seed));
        assert_all_fair("network, n = 65 536", &deviations_of_a_network::<8>(65_536, seed));
    }
    assert_all_fair("network, n = 1 281 167", &deviations_of_a_network::<8>(1_281_167, 0));
}

#[test]
fn five_rounds_would_do_and_four_are_caught() {
    for seed in 0..4 {
        assert_all_fair("five rounds", &deviations_of_a_network::<5>(40_000, seed));
        let four = deviations_of_a_network::<4>(40_000, seed);
        assert!(four.iter().any(|(_, deviation)| deviation.abs() > LIMIT), "seed {seed}: four rounds pass every test");
    }
}

/// The number of the permutation of `0..items.len()` in some order of all permutations (its Lehmer code).
fn rank(items: &[u64]) -> u64 {
    let later_and_smaller = |i: usize| items[i..].iter().filter(|&&x| x < items[i]).count() as u64;
    (0..items.len()).fold(0, |code, i| code * (items.len() - i) as u64 + later_and_smaller(i))
}

/// The deviation of the permutations of five from all 120 being equally likely.
fn deviation_of_fives(order: impl Fn(u64) -> [u64; 5]) -> f64 {
    let orders = 24_000u64;
    let mut counts = vec![0u64; 120];
    (0..orders).for_each(|i| counts[rank(&order(i)) as usize] += 1);
    deviation(&counts, |_| orders as f64 / 120.0, 119.0)
}

#[test]
fn all_orders_of_five_are_equally_likely() {
    let table = |seed, epoch| {
        let order = Permutation::new(5, seed, epoch);
        std::array::from_fn(|position| order.at(position as u64))
    };
    assert_fair("over seeds", deviation_of_fives(|seed| table(seed, 0)));
    assert_fair("over epochs", deviation_of_fives(|epoch| table(0, epoch as u32)));
}

#[test]
fn the_start_of_an_order_is_uniform_over_seeds_and_over_epochs() {
    let n = 40_000;
    let starts = |seed, epoch| {
        let order = Permutation::new(n, seed, epoch);
        (part(order.at(0), n, 8), part(order.at(1), n, 8))
    };
    let joint = |at: &dyn Fn(u64) -> (u64, u64)| values_deviation(64, (0..20_000).map(at).map(|(x, y)| 8 * x + y));
    assert_fair("over seeds", joint(&|seed| starts(seed, 0)));
    assert_fair("over epochs", joint(&|epoch| starts(0, epoch as u32)));
}

fn is_odd(n: u64, at: impl Fn(u64) -> u64) -> bool {
    let mut seen = vec![false; n as usize];
    let mut cycles = 0;
    for start in 0..n {
        let mut x = start;
        if !seen[x as usize] {
            cycles += 1;
        }
        while !seen[x as usize] {
            seen[x as usize] = true;
            x = at(x);
        }
    }
    (n - cycles) % 2 == 1
}

#[test]
fn even_and_odd_orders_are_equally_likely() {
    let orders = 400;
    for n in [100, TABLE_MAX + 1, 4_096, 6_561] {
        let odd = (0..orders)
            .filter(|&seed| match n {
                // Sizes at which tables serve, so that a square and a power of two are met by the network all the same.
                4_096 | 6_561 => {
                    let network = Network::<8>::new(n, seed, 0);
                    is_odd(n, |position| network.forward(position, n))
                }
                _ => {
                    let order = Permutation::new(n, seed, 0);
                    is_odd(n, |position| order.at(position))
                }
            })
            .count() as f64;
        let orders = orders as f64;
        assert_fair(&format!("odd orders of {n}"), (odd - orders / 2.0) / (orders / 4.0).sqrt());
    }
}

/// The deviation of the counts of coincidences from a Poisson distribution with mean 1, over cells for 0, 1, 2, 3 and more.
fn poisson_deviation(coincidences: impl Iterator<Item = u64>) -> f64 {
    let mut counts = vec![0u64; 5];
    let mut total = 0.0;
    for count in coincidences {
        counts[count.min(4) as usize] += 1;
        total += 1.0;
    }
    let cells = [1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0].map(|x| x / std::f64::consts::E);
    let expected = |i: usize| total * cells.get(i).copied().unwrap_or_else(|| 1.0 - cells.iter().sum::<f64>());
    deviation(&counts, expected, 4.0)
}

#[test]
fn fixed_points_are_as_many_as_chance_gives() {
    let fixed = |n: u64, at: &dyn Fn(u64) -> u64| (0..n).filter(|&position| at(position) == position).count() as u64;
    let table = (0..3_000).map(|seed| {
        let order = Permutation::new(200, seed, 1);
        fixed(200, &|position| order.at(position))
    });
    assert_fair("table", poisson_deviation(table));
    let network = (0..3_000).map(|seed| {
        let network = Network::<8>::new(1_500, seed, 1);
        fixed(1_500, &|position| network.forward(position, 1_500))
    });
    assert_fair("network", poisson_deviation(network));
}

#[test]
fn orders_of_neighbouring_epochs_and_seeds_are_unrelated() {
    for n in [TABLE_MAX, 200_000] {
        let base = Permutation::new(n, 21, 4);
        for (what, other) in [
            ("next epoch", Permutation::new(n, 21, 5)),
            ("next seed", Permutation::new(n, 22, 4)),
            ("exchanged", Permutation::new(n, 4, 21)),
        ] {
            let pairs = (0..n).map(|position| (part(base.at(position), n, 16), part(other.at(position), n, 16)));
            assert_fair(&format!("{what}, n = {n}"), pairs_deviation(16, pairs));
            let differences = (0..n).map(|position| (other.at(position) + n - base.at(position)) % n);
            assert_fair(&format!("{what}, n = {n}, differences"), values_deviation(n, differences));
        }
    }
    let same = |a: Network<8>, b: Network<8>| (0..1_500).filter(|&p| a.forward(p, 1_500) == b.forward(p, 1_500)).count() as u64;
    let order = |seed, epoch| Network::<8>::new(1_500, seed, epoch);
    let epochs = (0..2_000).map(|epoch| same(order(9, epoch), order(9, epoch + 1)));
    assert_fair("coincidences of neighbouring epochs", poisson_deviation(epochs));
    let seeds = (0..2_000).map(|seed| same(order(seed, 9), order(seed + 1, 9)));
    assert_fair("coincidences of neighbouring seeds", poisson_deviation(seeds));
}
