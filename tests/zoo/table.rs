//! What the zoo's entries took to be found.

use std::fmt::Write;

use towtank::check::{Checked, Schedule, Size, check};

use crate::zoo::{
    entry::{Entry, entries},
    kit,
};

/// By chance, with the costs of a machine.
pub const RANDOM: Schedule = Schedule::Random;
/// By priorities, in abstract time.
pub const PCT: Schedule = Schedule::Pct { depth: 3 };
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

/// Looks at an entry's kit from a seed on.
fn looked(entry: &Entry, defective: bool, schedule: Schedule, seed: u64, seeds: u64) -> Checked {
    let kit = entry.kit(defective);
    let design = move |machine, job| kit::load(kit, machine, job);
    let scenario = entry.scenario(seed);
    let checking = check(&scenario).design(&design).schedule(schedule).seeds(seeds).jobs(1).shrinks(false);
    checking.run().unwrap_or_else(|e| panic!("{}: {e}", entry.defect.id()))
}

/// What became of a search.
enum Search {
    /// The named invariant found it, after so many seeds.
    Found(u64),
    /// Another invariant found it first, after so many.
    Other(u64, String),
    /// Nothing did.
    Missed,
}

fn search(entry: &Entry, schedule: Schedule, seed: u64, seeds: u64) -> Search {
    let checked = looked(entry, true, schedule, seed, seeds);
    let Some(failure) = checked.failures.first() else { return Search::Missed };
    let finding = &failure.shrunk.finding;
    let took = failure.seed - seed + 1;
    match finding.invariant == entry.invariant {
        true => Search::Found(took),
        false => {
            let why = format!("found by `{}`, and not by `{}`:\n{}", finding.invariant, entry.invariant, failure.story());
            Search::Other(took, why)
        }
    }
}

/// How many seeds it takes to find an entry from a starting point.
///
/// # Errors
///
/// When nothing finds it, or anything but the named invariant does.
pub fn found(entry: &Entry, start: u64) -> Result<u64, String> {
    match search(entry, RANDOM, start * APART, SEEDS) {
        Search::Found(seeds) => Ok(seeds),
        Search::Other(_, why) => Err(why),
        Search::Missed => Err(format!("not found within {SEEDS} seeds")),
    }
}

/// How many seeds it takes by priorities until the named invariant is broken, those passed over in which another was; 0 for one that
/// takes time and is not found.
///
/// # Errors
///
/// When it is not found, or found although it takes time.
pub fn found_by_priorities(entry: &Entry, start: u64) -> Result<u64, String> {
    let mut passed = 0;
    while passed < SEEDS {
        match (search(entry, PCT, start * APART + passed, SEEDS - passed), entry.takes_time) {
            (Search::Found(seeds), None) => return Ok(passed + seeds),
            (Search::Other(seeds, _), None) => passed += seeds,
            (Search::Missed, None) => break,
            (Search::Missed, Some(_)) => return Ok(0),
            (Search::Found(_) | Search::Other(..), Some(why)) => return Err(format!("found by priorities, although {why}")),
        }
    }
    Err(format!("not found by priorities within {SEEDS} seeds"))
}

/// Whether the sound twin passes.
pub fn sound(entry: &Entry, schedule: Schedule, start: u64, seeds: u64) -> Result<(), String> {
    let checked = looked(entry, false, schedule, start * APART, seeds);
    checked.failures.first().map_or(Ok(()), |failure| Err(format!("the sound twin fails:\n{}", failure.story())))
}

/// What the starting points took under a schedule.
struct Column {
    /// Seeds of those that the named invariant found, or nothing, in rising order.
    took: Vec<u64>,
    /// How many another invariant found first.
    others: u64,
}

impl Column {
    fn of(entry: &Entry, schedule: Schedule) -> Result<Column, String> {
        let mut column = Column { took: Vec::new(), others: 0 };
        for start in 0..STARTS {
            match search(entry, schedule, start * APART, LONG) {
                Search::Found(seeds) => column.took.push(seeds),
                Search::Other(..) => column.others += 1,
                Search::Missed => column.took.push(u64::MAX),
            }
            sound(entry, schedule, start, SOUND)?;
        }
        column.took.sort_unstable();
        Ok(column)
    }

    /// The upper one of two in the middle.
    fn median(&self) -> Option<u64> {
        self.took.get(self.took.len() / 2).copied()
    }

    /// Median, most, and what others found; a dash where nothing was found.
    fn cells(&self) -> String {
        let words = |seeds: Option<u64>| match seeds {
            None => "–".to_owned(),
            Some(u64::MAX) => format!("> {LONG}"),
            Some(seeds) => seeds.to_string(),
        };
        match self.took.iter().all(|seeds| *seeds == u64::MAX) {
            true => format!("– | – | {}", self.others),
            false => format!("{} | {} | {}", words(self.median()), words(self.took.last().copied()), self.others),
        }
    }
}

/// All entries, as `docs/zoo.md` has them.
struct Table {
    rows: String,
    /// What takes time, with the reason.
    timed: Vec<(String, &'static str)>,
    /// Entries that only some runs show and that both schedules find, of which priorities take fewer seeds in the median, as many, more.
    against: [u64; 3],
}

fn table() -> Result<Table, String> {
    let mut table = Table { rows: String::new(), timed: Vec::new(), against: [0; 3] };
    for entry in entries() {
        let id = entry.defect.id();
        let column = |schedule| Column::of(entry, schedule).map_err(|why| format!("{id}: {why}"));
        let (random, pct) = (column(RANDOM)?, column(PCT)?);
        let missed = |column: &Column| column.others == 0 && column.took.iter().all(|seeds| *seeds == u64::MAX);
        if random.took.is_empty() || missed(&random) || missed(&pct) != entry.takes_time.is_some() {
            return Err(format!("{id}: by chance {:?}, by priorities {:?}", random.took, pct.took));
        }
        match (entry.takes_time, random.median(), pct.median()) {
            (Some(why), ..) => table.timed.push((id.clone(), why)),
            (None, Some(random), Some(pct)) if entry.by_chance => table.against[(pct.cmp(&random) as i8 + 1) as usize] += 1,
            _ => {}
        }
        let when = if entry.by_chance { "some" } else { "all" };
        let row = format!(
            "| {id} | {} | `{}` | {when} | {} | {} | {} |",
            entry.says,
            entry.invariant,
            random.cells(),
            pct.cells(),
            2 * STARTS * SOUND
        );
        println!("{row}");
        _ = writeln!(table.rows, "{row}");
    }
    Ok(table)
}

/// Prints how small the failure of each defect gets: of the first seed that shows it, before and after.
pub fn shrunk() -> Result<(), String> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    println!("{:<6} {:>10} {:>8} {:>12} {:>12} {:>7}", "id", "samples", "lanes", "choices", "events", "looks");
    for entry in entries() {
        let kit = entry.kit(true);
        let design = move |machine, job| kit::load(kit, machine, job);
        let scenario = entry.scenario(0);
        let checked = check(&scenario).design(&design).seeds(SEEDS).jobs(1).run().map_err(|error| error.to_string())?;
        let shrunk = &checked.failures.first().ok_or_else(|| format!("{} is not found", entry.defect.id()))?.shrunk;
        let size = shrunk.size();
        let samples = |size: &Size| size.samples * u64::from(size.epochs);
        let arrow = |of: fn(&Size) -> u64| format!("{} → {}", of(&shrunk.from), of(&size));
        println!(
            "{:<6} {:>10} {:>8} {:>12} {:>12} {:>7}",
            entry.defect.id(),
            format!("{} → {}", samples(&shrunk.from), samples(&size)),
            arrow(|size| size.lanes.unwrap_or(0)),
            arrow(|size| size.choices as u64),
            arrow(|size| size.events as u64),
            shrunk.looks,
        );
        before.push(shrunk.from.events);
        after.push((samples(&size) as usize, size.choices, size.events));
    }
    let middle = |mut of: Vec<usize>| {
        of.sort_unstable();
        (of[of.len() / 2], of[of.len() * 9 / 10], of[of.len() - 1])
    };
    println!("median, nine tenths, most; events before: {:?}", middle(before));
    println!("samples: {:?}", middle(after.iter().map(|(samples, ..)| *samples).collect()));
    println!("choices: {:?}", middle(after.iter().map(|(_, choices, _)| *choices).collect()));
    println!("events: {:?}", middle(after.iter().map(|(.., events)| *events).collect()));
    Ok(())
}

/// Writes `docs/zoo.md`.
pub fn written() -> Result<(), String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/zoo.md");
    let page = page(&table()?);
    std::fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))
}

/// The page around the rows of the table.
fn page(table: &Table) -> String {
    let classes: std::collections::BTreeSet<String> = entries().map(|entry| entry.defect.class()).collect();
    let [fewer, same, more] = table.against;
    let timed = table.timed.iter().fold(String::new(), |said, (id, why)| format!("{said}- {id}: {why}.\n"));
    format!(
        "# The zoo\n\n\
         Loaders have had the same defects again and again. Each row below is one that was reported in public, in our own words, built into \
         a small loader behind a switch: {} defects of {} classes. `towtank check` must find it by the invariant that forbids it, and \
         find nothing in the same loader without it.\n\n\
         This page is written by `TOWTANK_ZOO=table cargo test --test zoo -- --nocapture`. From each of {STARTS} starting \
         points it counts the seeds until a schedule shows the defect, once by chance (`--chooser random`) and once by priorities in \
         abstract time (`--chooser pct:3`), and lets {SOUND} seeds of the sound twin pass under either. A defect \
         in all runs is found by the first seed, unless it takes a comparison of two runs, such as `resume_exact`, which only some seeds \
         make; one in some runs takes a certain order of events, or certain faults. Where another \
         invariant was broken first, the starting point counts as found by another and not among the seeds.\n\n\
         Of the defects in some runs, priorities find {fewer} in fewer seeds than chance, in the median, {same} in as many, and {more} in more. \
         What depends on how long something takes they cannot find, and the table has a dash:\n\n{timed}\n\
         | id | what is wrong | found by | in runs | random: median | most | by another | pct: median | most | by another | sound twin passed |\n\
         | --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n{}",
        entries().count(),
        classes.len(),
        table.rows,
    )
}
