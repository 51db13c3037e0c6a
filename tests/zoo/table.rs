//! What the zoo's entries took to be found.

use std::fmt::Write;

use towtank::check::{Checked, check};

use crate::zoo::{
    entry::{Entry, entries},
    kit,
};

/// Seeds within which a defect must be found.
pub const SEEDS: u64 = 200;
/// Seeds after which a long run gives up.
const LONG: u64 = 2000;
/// Seeds that a sound twin must pass.
pub const SOUND: u64 = 48;
/// Seeds from one starting point to the next.
const APART: u64 = 10_000;
/// Starting points of a long run.
const STARTS: u64 = 20;

/// Looks at an entry's kit from the seeds of a starting point on.
fn looked(entry: &Entry, defective: bool, start: u64, seeds: u64) -> Checked {
    let kit = entry.kit(defective);
    let design = move |machine, job| kit::load(kit, machine, job);
    let scenario = entry.scenario(start * APART);
    let checking = check(&scenario).design(&design).seeds(seeds).jobs(1).shrinks(false);
    checking.run().unwrap_or_else(|e| panic!("{}: {e}", entry.defect.id()))
}

/// What became of a search.
enum Search {
    /// The named invariant found it, after so many seeds.
    Found(u64),
    /// Another invariant found it first.
    Other(String),
    /// Nothing did.
    Missed,
}

fn search(entry: &Entry, start: u64, seeds: u64) -> Search {
    let checked = looked(entry, true, start, seeds);
    let Some(failure) = checked.failures.first() else { return Search::Missed };
    let finding = &failure.shrunk.finding;
    match finding.invariant == entry.invariant {
        true => Search::Found(failure.seed - start * APART + 1),
        false => {
            Search::Other(format!("found by `{}`, and not by `{}`:\n{}", finding.invariant, entry.invariant, failure.story()))
        }
    }
}

/// How many seeds it takes to find an entry from a starting point.
///
/// # Errors
///
/// When nothing finds it, or anything but the named invariant does.
pub fn found(entry: &Entry, start: u64) -> Result<u64, String> {
    match search(entry, start, SEEDS) {
        Search::Found(seeds) => Ok(seeds),
        Search::Other(why) => Err(why),
        Search::Missed => Err(format!("not found within {SEEDS} seeds")),
    }
}

/// Whether the sound twin passes.
pub fn sound(entry: &Entry, start: u64, seeds: u64) -> Result<(), String> {
    let checked = looked(entry, false, start, seeds);
    checked.failures.first().map_or(Ok(()), |failure| Err(format!("the sound twin fails:\n{}", failure.story())))
}

/// The table of all entries, as `docs/zoo.md` has it.
pub fn table() -> Result<String, String> {
    let (mut rows, mut rare) = (String::new(), 0);
    for entry in entries() {
        let (mut took, mut others) = (Vec::new(), 0);
        for start in 0..STARTS {
            match search(entry, start, LONG) {
                Search::Found(seeds) => took.push(seeds),
                Search::Other(_) => others += 1,
                Search::Missed => took.push(u64::MAX),
            }
        }
        took.sort_unstable();
        let id = entry.defect.id();
        (0..STARTS).try_for_each(|start| sound(entry, start, SOUND)).map_err(|why| format!("{id}: {why}"))?;
        let (Some(median), Some(most)) = (took.get(took.len() / 2).copied(), took.last().copied()) else {
            return Err(format!("{id} was never found by `{}`", entry.invariant));
        };
        let words = |seeds: u64| if seeds == u64::MAX { format!("> {LONG}") } else { seeds.to_string() };
        rare += u64::from(entry.by_chance && median > 1);
        let when = if entry.by_chance { "some" } else { "all" };
        let row = format!(
            "| {id} | {} | `{}` | {when} | {} | {} | {others} | {} |",
            entry.says,
            entry.invariant,
            words(median),
            words(most),
            STARTS * SOUND
        );
        println!("{row}");
        _ = writeln!(rows, "{row}");
    }
    println!("{rare} of them take more than one seed in the median, and a schedule or a fault");
    Ok(rows)
}

/// Writes `docs/zoo.md`.
pub fn written() -> Result<(), String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/zoo.md");
    let page = page(&table()?);
    std::fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))
}

/// The page around the rows of the table.
fn page(rows: &str) -> String {
    let classes: std::collections::BTreeSet<String> = entries().map(|entry| entry.defect.class()).collect();
    format!(
        "# The zoo\n\n\
         Loaders have had the same defects again and again. Each row below is one that was reported in public, in our own words, built into \
         a small loader behind a switch: {} defects of {} classes. `towtank check` must find it by the invariant that forbids it, and \
         find nothing in the same loader without it.\n\n\
         This page is written by `TOWTANK_ZOO=table cargo test --test zoo -- --nocapture`. From each of {STARTS} starting \
         points it counts the seeds until a schedule by chance shows the defect, and lets {SOUND} seeds of the sound twin pass. A defect \
         in all runs is found by the first seed, unless it takes a comparison of two runs, such as `resume_exact`, which only some seeds \
         make; one in some runs takes a certain order of events, or certain faults. Where another \
         invariant was broken first, the starting point counts as found by another and not among the seeds.\n\n\
         | id | what is wrong | found by | in runs | seeds, median | seeds, most | by another | sound twin passed |\n\
         | --- | --- | --- | --- | ---: | ---: | ---: | ---: |\n{rows}",
        entries().count(),
        classes.len(),
    )
}
