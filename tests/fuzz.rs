//! Whatever is read must be read or refused, whatever is in it: no panic, no overflow, no memory without bound.
//!
//! The files of this repository, mutated by a seeded generator: a bounded number of cases, the same every time. libFuzzer looks further
//! with the same targets: see `fuzz/`.

#[path = "../fuzz/targets.rs"]
mod targets;

use std::{
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
};

use towtank::draw::{Purpose, below, draw};

/// Numbers and words at which readers stumble.
const TOKENS: [&str; 22] = [
    "0",
    "-1",
    "1",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "4294967296",
    "65536",
    "1e308",
    "1e-320",
    "nan",
    "inf",
    "-0.0",
    "0.1",
    "\"\"",
    "[]",
    "{}",
    "null",
    "true",
    "\"1 GiB\"",
    "\"1e400 s\"",
    "\"99999999999999 TiB/s\"",
];

/// Numbers that depend on a case alone.
struct Dice {
    case: u64,
    drawn: u64,
}

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.drawn += 1;
        below(draw(7, Purpose::CUSTOM, self.case, self.drawn).word(0), n.max(1) as u64) as usize
    }
}

/// A file with a few things changed.
fn mutated(file: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..=dice.below(3) {
        let (at, length) = (dice.below(bytes.len()), dice.below(24));
        let end = (at + length).min(bytes.len());
        match dice.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            1 => drop(bytes.drain(at..end)),
            2 => bytes.truncate(at),
            3 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            4 => {
                let from = dice.below(other.len());
                let piece = &other[from..(from + 4 * length).min(other.len())];
                bytes.splice(at..end, piece.iter().copied());
            }
            5 if at < bytes.len() => bytes[at] = dice.below(256) as u8,
            // The value of a field, most often.
            _ => {
                let start = (at..bytes.len()).find(|k| bytes[*k].is_ascii_digit() || bytes[*k] == b'"').unwrap_or(at);
                let is_of_it = |k: &usize| !matches!(bytes[*k], b'\n' | b',' | b']' | b'}');
                let end = (start..bytes.len()).take_while(is_of_it).last().map_or(start, |k| k + 1);
                bytes.splice(start..end, TOKENS[dice.below(TOKENS.len())].bytes());
            }
        }
    }
    bytes
}

/// The files in a folder with one of these endings.
fn files(folder: &str, endings: &[&str]) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| endings.iter().any(|ending| e == *ending)));
    paths.sort();
    let files: Vec<Vec<u8>> = paths.into_iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(!files.is_empty(), "there is nothing to begin with in {}", folder.display());
    files
}

/// So many mutations of these files, or as many times that as `TOWTANK_FUZZ_TIMES` says. Some must be read, and some refused: else
/// nothing is looked at but the way in.
fn run(target: fn(&[u8]) -> bool, seeds: &[Vec<u8>], cases: u64) {
    let times = std::env::var("TOWTANK_FUZZ_TIMES").map_or(1, |times| times.parse().expect("a whole number"));
    assert!(!target(&[]), "nothing is something");
    let mut read = 0;
    for case in 0..cases * times {
        let mut dice = Dice { case, drawn: 0 };
        let (file, other) = (dice.below(seeds.len()), dice.below(seeds.len()));
        let data = mutated(&seeds[file], &seeds[other], &mut dice);
        match catch_unwind(|| target(&data)) {
            Ok(was_read) => read += u64::from(was_read),
            Err(_) => panic!("case {case} panics:\n{}", String::from_utf8_lossy(&data)),
        }
    }
    let some = cases * times / 50..cases * times;
    assert!(some.contains(&read), "{read} of {} were read", cases * times);
}

#[test]
fn scenarios() {
    run(targets::scenario, &files("scenarios", &["toml"]), 1500);
}

#[test]
fn models() {
    run(targets::model, &files("models", &["toml"]), 3000);
}

#[test]
fn traces() {
    run(targets::trace, &files("tests/data", &["jsonl"]), 5000);
}

#[test]
fn images() {
    let mut seeds = files("tests/data", &["jpg", "png"]);
    seeds.retain(|file| file.len() < 4000);
    run(targets::image, &seeds, 3000);
}

#[test]
fn workloads_of_dlio() {
    run(targets::dlio, &files("tests/data/dlio", &["yaml"]), 3000);
}

#[test]
fn failures() {
    run(targets::failure, &files("scenarios/regressions", &["toml"]), 500);
}
