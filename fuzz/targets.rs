//! What is fuzzed: everything that the program reads. Each takes any bytes, must return, and says whether it read them.
//!
//! `cargo test --test fuzz` runs them on mutations of the files in this repository; `cargo +nightly fuzz run NAME` on whatever libFuzzer
//! finds.

// Each binary of cargo-fuzz uses one of them.
#![allow(dead_code)]

use std::str::from_utf8;

use towtank::{
    check::{self, OwnLoader, recorded::TraceCheck},
    codec::{Choice, Decoder, Limits, Target, probe},
    model,
    scenario::{self, MachineChoice, Overrides, Scenario},
    trace::{Recorder, recorded},
};

/// A scenario's file, what follows from it, and where that is a small run of eight samples, two seeds of it.
pub(crate) fn scenario(data: &[u8]) -> bool {
    let Some(scenario) = parsed(data) else { return false };
    if let (true, Ok(Some(samples))) = (is_known(&scenario.machine), scenario.samples())
        && let Ok(machine) = scenario.machine_model()
        && let Ok(settings) = scenario.settings(scenario.threads(&machine), &samples)
    {
        drop(settings.resolve());
    }
    if is_small(&scenario) {
        let checked = towtank::check(&scenario).samples(8).seeds(2).jobs(1).shrinks(false).run();
        let broken = checked.iter().flat_map(|checked| &checked.failures).map(|failure| &failure.shrunk.finding);
        broken.for_each(|finding| assert_ne!(finding.invariant, "no_panic", "{}", finding.broken));
    }
    true
}

fn parsed(data: &[u8]) -> Option<Scenario> {
    scenario::parse("fuzzed.toml", from_utf8(data).ok()?, &Overrides::default()).ok()
}

/// A model's file of another name may be anything on this computer.
fn is_known(machine: &MachineChoice) -> bool {
    matches!(machine, MachineChoice::Named(name) if model::NAMES.contains(&name.as_str()))
}

/// A machine's model.
pub(crate) fn model(data: &[u8]) -> bool {
    from_utf8(data).is_ok_and(|text| model::parse("fuzzed.toml", text).is_ok())
}

/// A recorded trace, as `compare --measured` and `check --trace` read it.
pub(crate) fn trace(data: &[u8]) -> bool {
    let text =
        "title = \"fuzzed\"\nmachine = \"ideal\"\n[dataset]\ncount = 6\n[loader]\nbatch = 4\nepochs = 2\nerrors = \"skip\"\n";
    for sets in [&["loader.shuffle=false"][..], &["loader.drop_last=true", "loader.errors=fail"]] {
        let scenario = scenario::parse("fuzz.toml", text, &Overrides::set(sets.iter().copied())).expect("it is a scenario");
        let mut check = TraceCheck::new(&scenario, 6).expect("it has batches");
        if check.read("fuzzed.jsonl", data).is_ok() {
            check.finish().expect("there is one rank").holds();
        }
    }
    recorded::read("fuzzed.jsonl", data, Recorder::new(), |_| {}).is_ok()
}

/// An image, by the decoder in Rust.
pub(crate) fn image(data: &[u8]) -> bool {
    drop(probe(data));
    let limits = Limits { pixels_max: 1 << 20, bytes_max: 64 << 20 };
    let decoder = Decoder::new(Choice::Rust, Target::square(16)).expect("it is always there").with_limits(limits);
    let mut out = vec![0; decoder.target().bytes()];
    drop(decoder.decode_full(data, &mut Vec::new()));
    decoder.decode_into(data, &mut out).is_ok()
}

/// A workload of DLIO.
pub(crate) fn dlio(data: &[u8]) -> bool {
    from_utf8(data).is_ok_and(|text| scenario::parse_dlio("fuzzed.yaml", text).is_ok())
}

/// A failure as `check` writes it, repeated where that is a small run.
pub(crate) fn failure(data: &[u8]) -> bool {
    let few = |scenario: &Scenario| is_small(scenario) && scenario.dataset.count().is_some_and(|count| count <= 64);
    parsed(data).is_some_and(|scenario| few(&scenario) && check::replay(&scenario, &OwnLoader).is_ok())
}

/// Whether a few samples of it are run in a moment.
fn is_small(scenario: &Scenario) -> bool {
    let loader = &scenario.loader;
    let few = |n: Option<u64>, most: u64| n.is_none_or(|n| n <= most);
    // What is meant for this computer is checked on a machine of the program's.
    (scenario.machine == MachineChoice::This || is_known(&scenario.machine))
        && loader.epochs <= 4
        && scenario.ranks.count <= 8
        && loader.batch <= 1024
        && loader.prefetch <= 8
        && few(loader.lanes, 512)
        && few(loader.threads, 128)
        && few(loader.ring, 4096)
}
