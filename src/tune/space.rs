//! What is searched: the values of each setting.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    document::{Diagnostic, Place, Source, Trouble},
    model::MachineModel,
    scenario::{Samples, Scenario},
    units::{Count, Size, nearest},
};

/// The most points of a space.
pub const POINTS_MAX: u64 = 1 << 20;
/// Steps of a range for each doubling; below twice this every whole number.
const STEPS: u64 = 8;

/// A setting that is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// `loader.threads`: threads of the pool.
    Threads,
    /// `loader.lanes`: samples under way at once.
    Lanes,
    /// `loader.ring`: slots for decoded samples.
    Ring,
    /// `loader.prefetch`: batches made ready ahead of the consumer.
    Prefetch,
    /// `loader.budget`: all memory of a rank's loader \[B\].
    Budget,
    /// `ranks.count`: ranks side by side. Searched only when asked for.
    Ranks,
}

impl Field {
    /// All, in the order of a point's levels.
    pub const ALL: [Field; 6] = [Field::Threads, Field::Lanes, Field::Ring, Field::Prefetch, Field::Budget, Field::Ranks];

    /// Its path in a scenario.
    pub fn path(self) -> &'static str {
        match self {
            Field::Threads => "loader.threads",
            Field::Lanes => "loader.lanes",
            Field::Ring => "loader.ring",
            Field::Prefetch => "loader.prefetch",
            Field::Budget => "loader.budget",
            Field::Ranks => "ranks.count",
        }
    }

    /// What it is called in `--space`.
    pub fn name(self) -> &'static str {
        match self {
            Field::Ranks => "ranks",
            other => &other.path()["loader.".len()..],
        }
    }

    /// A value of it for people, and as it is written in a scenario.
    pub fn told(self, value: u64) -> String {
        match self {
            Field::Budget => Size::from_bytes(value).to_string(),
            _ => Count(value).to_string(),
        }
    }
}

/// One point: a value of every setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Settings {
    /// Threads of the pool.
    pub threads: u64,
    /// Lanes of a rank.
    pub lanes: u64,
    /// Slots of a rank's ring.
    pub ring: u64,
    /// Batches made ready ahead of a rank's consumer.
    pub prefetch: u64,
    /// Memory of a rank's loader \[B\].
    pub budget_bytes: u64,
    /// Ranks.
    pub ranks: u64,
}

impl Settings {
    /// Those of a scenario on its machine; what it leaves open is as its loader decides.
    ///
    /// # Errors
    ///
    /// When they do not fit together.
    pub fn of(scenario: &Scenario, machine: &MachineModel, samples: &Samples) -> Result<Settings, Trouble> {
        let threads = scenario.threads(machine);
        let settings = scenario.settings(threads, samples)?;
        let resolved = settings.resolve().expect("`Scenario::settings` has resolved them");
        Ok(Settings {
            threads,
            lanes: resolved.settings.lanes as u64,
            ring: resolved.ring as u64,
            prefetch: scenario.loader.prefetch,
            budget_bytes: scenario.loader.budget.as_bytes(),
            ranks: u64::from(scenario.ranks.count),
        })
    }

    /// The value of `field`.
    pub fn get(&self, field: Field) -> u64 {
        match field {
            Field::Threads => self.threads,
            Field::Lanes => self.lanes,
            Field::Ring => self.ring,
            Field::Prefetch => self.prefetch,
            Field::Budget => self.budget_bytes,
            Field::Ranks => self.ranks,
        }
    }

    /// `scenario` with these settings.
    pub fn on(&self, scenario: &Scenario) -> Scenario {
        let mut changed = scenario.clone();
        changed.loader.threads = Some(self.threads);
        changed.loader.lanes = Some(self.lanes);
        changed.loader.ring = Some(self.ring);
        changed.loader.prefetch = self.prefetch;
        changed.loader.budget = Size::from_bytes(self.budget_bytes);
        let ranks = u16::try_from(self.ranks).unwrap_or(u16::MAX);
        if changed.ranks.count != ranks {
            changed.ranks.count = ranks;
            changed.loader.world = ranks;
        }
        changed
    }
}

/// The values of one setting, rising.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Axis {
    /// Which setting.
    pub field: Field,
    /// Its values.
    pub values: Vec<u64>,
}

/// What `--space` says; nothing of settings that it does not name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked(Vec<(Axis, Option<Place>)>);

impl Asked {
    /// Reads `threads=1..16,lanes=8|16|32,budget=64 MiB..2 GiB`. A range stands for every whole number below 16 and for eight steps a
    /// doubling above; its ends are always in.
    ///
    /// # Errors
    ///
    /// When a setting is not one that can be searched, or its values are none.
    pub fn parse(texts: &[String]) -> Result<Asked, Trouble> {
        let mut asked = Asked::default();
        for text in texts {
            let source = Source::flag("--space", text);
            let mut start = 0;
            for part in text.split(',') {
                let place = |from: usize, len: usize| Place::new(&source, start + from..start + from + len);
                let axis = axis(part, &place)?;
                if asked.0.iter().any(|(known, _)| known.field == axis.field) {
                    let wrong = Diagnostic::new(format!("the space says twice what `{}` may be", axis.field.name()));
                    return Err(wrong.at(Some(&place(0, part.len()))).expected("each setting once").into());
                }
                asked.0.push((axis, Some(place(0, part.len()))));
                start += part.len() + 1;
            }
        }
        Ok(asked)
    }

    /// The same with these values of a setting.
    #[must_use]
    pub fn with(mut self, field: Field, values: impl IntoIterator<Item = u64>) -> Asked {
        let values: BTreeSet<u64> = values.into_iter().collect();
        self.0.retain(|(axis, _)| axis.field != field);
        self.0.push((Axis { field, values: values.into_iter().collect() }, None));
        self
    }

    /// What it says of a setting.
    pub fn of(&self, field: Field) -> Option<&[u64]> {
        self.0.iter().find(|(axis, _)| axis.field == field).map(|(axis, _)| &axis.values[..])
    }

    /// Where it says it.
    pub(super) fn place(&self, field: Field) -> Option<&Place> {
        self.0.iter().find(|(axis, _)| axis.field == field).and_then(|(_, place)| place.as_ref())
    }
}

fn axis(part: &str, place: &impl Fn(usize, usize) -> Place) -> Result<Axis, Diagnostic> {
    const FORMS: &str = "`threads=1..16`, `lanes=8|16|32` or `budget=64 MiB..2 GiB`";
    let Some((name, rest)) = part.split_once('=') else {
        let wrong = Diagnostic::new(format!("`{}` does not say which values a setting may have", part.trim()));
        return Err(wrong.at(Some(&place(0, part.len()))).expected(FORMS));
    };
    let word = name.trim().to_lowercase();
    let aliases = [("workers", Field::Threads), ("cores", Field::Threads), ("memory", Field::Budget)];
    let known = || Field::ALL.into_iter().flat_map(|f| [(f.name(), f), (f.path(), f)]).chain(aliases);
    let Some((_, field)) = known().find(|(known, _)| *known == word) else {
        let list: Vec<String> = Field::ALL.map(|f| format!("`{}`", f.name())).into();
        let near = nearest(&word, known().map(|(w, _)| w)).map(|near| format!("did you mean `{near}`?")).unwrap_or_default();
        let wrong = Diagnostic::new(format!("`{}` is no setting that can be searched", name.trim()));
        return Err(wrong.at(Some(&place(0, name.len()))).expected(format!("one of {}", list.join(", "))).hint(near));
    };
    let mut values = BTreeSet::new();
    let mut at = name.len() + 1;
    for item in rest.split('|') {
        let here = place(at, item.len());
        at += item.len() + 1;
        match item.split_once("..") {
            None => {
                values.insert(value(field, item, &here)?);
            }
            Some((low, high)) => {
                let (low, high) = (value(field, low, &here)?, value(field, high.trim_start_matches('='), &here)?);
                if low > high {
                    let wrong =
                        Diagnostic::new(format!("the range `{}` of `{}` ends before it begins", item.trim(), field.name()));
                    return Err(wrong.at(Some(&here)).expected("the smaller value first"));
                }
                values.extend(range(field, low, high, STEPS));
            }
        }
    }
    Ok(Axis { field, values: values.into_iter().collect() })
}

fn value(field: Field, text: &str, place: &Place) -> Result<u64, Diagnostic> {
    let read = match field {
        Field::Budget => text.trim().parse::<Size>().map(Size::as_bytes),
        _ => text.trim().parse::<Count>().map(|n| n.0),
    };
    let most = if field == Field::Ranks { u64::from(u16::MAX) } else { crate::loader::LARGEST_COUNT as u64 };
    let wrong = |message: String| Diagnostic::new(message).at(Some(place));
    match read {
        Err(e) => Err(wrong(format!("`{}` {}", field.name(), e.predicate())).hint(e.hint()).expected(match field {
            Field::Budget => "a size such as `256 MiB`",
            _ => "a whole number",
        })),
        Ok(0) => Err(wrong(format!("`{}` cannot be 0", field.name())).expected("at least 1")),
        Ok(n) if field != Field::Budget && n > most => {
            Err(wrong(format!("`{}` is too large", field.name())).expected(format!("at most {}", Count(most))))
        }
        Ok(n) => Ok(n),
    }
}

/// From `low` to `high`, both in, in `steps` steps a doubling; whole numbers, or whole MiB where that is fine enough.
fn range(field: Field, low: u64, high: u64, steps: u64) -> Vec<u64> {
    let unit = match field {
        Field::Budget => [1u64 << 20, 1 << 16, 1 << 10].into_iter().find(|unit| low / steps >= *unit).unwrap_or(1),
        _ => 1,
    };
    let mut values = vec![low];
    let mut at = low;
    loop {
        let step = ((1u64 << at.max(1).ilog2()) / steps).max(unit);
        at = (at / unit * unit).saturating_add(step.div_ceil(unit) * unit);
        if at >= high {
            break;
        }
        values.push(at);
    }
    values.extend((high > low).then_some(high));
    values
}

/// All settings with their values: every combination is a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Space {
    /// One axis for each of [`Field::ALL`], in that order.
    pub axes: Vec<Axis>,
}

impl Space {
    /// What was asked for, and for other settings what is worth trying on this machine; ranks stay as they are:
    ///
    /// - threads from 1 to the machine's cores, eight steps a doubling;
    /// - lanes from 1 to four times what the scenario has and 64 at least, two steps a doubling;
    /// - rings of 1, 2, 3, 4, 6 and 8 batches;
    /// - 1 to 4 batches prefetched;
    /// - budgets from the least that anything in the space can do with, `least(…)`, to twice the scenario's, eight steps a doubling;
    /// - and what the scenario has, so that it is one of the points.
    ///
    /// # Errors
    ///
    /// When it has more than [`POINTS_MAX`] points, or a value that the scenario cannot have.
    pub fn new(
        asked: &Asked,
        now: &Settings,
        batch: u64,
        machine: &MachineModel,
        least: impl FnOnce(&[Axis]) -> Option<u64>,
    ) -> Result<Space, Trouble> {
        if let Some(wrong) = asked.of(Field::Ring).and_then(|rings| rings.iter().find(|ring| **ring < batch)) {
            let wrong = Diagnostic::new(format!("a `ring` of {} holds less than a batch", Count(*wrong)));
            return Err(wrong.at(asked.place(Field::Ring)).expected(format!("at least {} slots", Count(batch))).into());
        }
        let or = |field: Field, default: &dyn Fn() -> Vec<u64>| {
            let with_now = || {
                let values: BTreeSet<u64> = default().into_iter().chain([now.get(field)]).collect();
                values.into_iter().collect()
            };
            Axis { field, values: asked.of(field).map_or_else(with_now, <[u64]>::to_vec) }
        };
        let lanes_most = now.lanes.saturating_mul(4).clamp(64, crate::loader::LARGEST_COUNT as u64);
        let mut axes = vec![
            or(Field::Threads, &|| range(Field::Threads, 1, machine.cpu.threads.value.0.max(1), STEPS)),
            or(Field::Lanes, &|| range(Field::Lanes, 1, lanes_most, 2)),
            or(Field::Ring, &|| [1, 2, 3, 4, 6, 8].map(|n: u64| n.saturating_mul(batch)).to_vec()),
            or(Field::Prefetch, &|| vec![1, 2, 3, 4]),
            Axis { field: Field::Budget, values: vec![now.budget_bytes] },
            or(Field::Ranks, &|| vec![now.ranks]),
        ];
        fits(&axes, asked)?;
        let most = now.budget_bytes.saturating_mul(2);
        let low = if asked.of(Field::Budget).is_some() { None } else { least(&axes) };
        axes[4] = or(Field::Budget, &|| {
            low.filter(|low| *low <= most).map_or_else(Vec::new, |low| range(Field::Budget, rounded_up(low), most, STEPS))
        });
        fits(&axes, asked)?;
        Ok(Space { axes })
    }

    /// How many combinations there are; at most `u64::MAX`.
    pub fn points(&self) -> u64 {
        points(&self.axes)
    }

    /// The settings at these levels.
    pub fn at(&self, levels: &[u16]) -> Settings {
        let value = |axis: usize| self.axes[axis].values[usize::from(levels[axis])];
        Settings {
            threads: value(0),
            lanes: value(1),
            ring: value(2),
            prefetch: value(3),
            budget_bytes: value(4),
            ranks: value(5),
        }
    }
}

fn points(axes: &[Axis]) -> u64 {
    axes.iter().fold(1, |n: u64, axis| n.saturating_mul(axis.values.len() as u64))
}

fn fits(axes: &[Axis], asked: &Asked) -> Result<(), Diagnostic> {
    let (points, longest) = (points(axes), axes.iter().map(|a| a.values.len()).max().unwrap_or(0));
    if points <= POINTS_MAX && longest <= usize::from(u16::MAX) {
        return Ok(());
    }
    let sizes: Vec<String> = axes.iter().map(|a| format!("{} of `{}`", a.values.len(), a.field.name())).collect();
    let wrong = Diagnostic::new(format!("the space has {} points", Count(points)));
    let wrong = wrong.at(asked.0.iter().find_map(|(_, place)| place.as_ref()));
    let wrong =
        wrong.expected(format!("at most {} points, and {} values of a setting", Count(POINTS_MAX), Count(u16::MAX.into())));
    Err(wrong.hint(format!("there are {}; give some fewer values", sizes.join(", "))))
}

/// Up to a whole MiB, where that is little.
fn rounded_up(bytes: u64) -> u64 {
    let unit = if bytes >= 16 << 20 { 1 << 20 } else { 1 << 16 };
    bytes.div_ceil(unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Asked {
        Asked::parse(&[text.to_owned()]).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_space_is_read_as_ranges_and_lists() {
        let space = asked("threads=1..4, loader.lanes = 8|16|64,budget=64 MiB..128 MiB,ring=32");
        assert_eq!(space.of(Field::Threads), Some(&[1, 2, 3, 4][..]));
        assert_eq!(space.of(Field::Lanes), Some(&[8, 16, 64][..]));
        let mebibytes: Vec<u64> = space.of(Field::Budget).unwrap().iter().map(|b| b >> 20).collect();
        assert_eq!(mebibytes, [64, 72, 80, 88, 96, 104, 112, 120, 128]);
        assert_eq!(space.of(Field::Prefetch), None);
        assert_eq!(asked("workers=14..40").of(Field::Threads), Some(&[14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40][..]));
    }

    #[test]
    fn what_is_no_space_says_what_would_be_one() {
        let error = |text: &str| Asked::parse(&[text.to_owned()]).unwrap_err().to_string();
        insta::assert_snapshot!(error("lanes=8,thread=1..4"), @"
        error: `thread` is no setting that can be searched
         --> --space
          |
          | lanes=8,thread=1..4
          |         ^^^^^^ expected one of `threads`, `lanes`, `ring`, `prefetch`, `budget`, `ranks`
        hint: did you mean `threads`?
        ");
        insta::assert_snapshot!(error("threads=8..2"), @"
        error: the range `8..2` of `threads` ends before it begins
         --> --space
          |
          | threads=8..2
          |         ^^^^ expected the smaller value first
        ");
        assert!(error("threads").contains("does not say which values"));
        assert!(error("budget=3..4").contains("a size such as `256 MiB`"), "{}", error("budget=3..4"));
        assert!(error("threads=0..4").contains("cannot be 0"));
        assert!(error("threads=1,threads=2").contains("twice"));
        assert!(error("ranks=70000").contains("too large"));
    }
}
