//! What tuning found, for programs and for people.

use std::fmt::{self, Write as _};

use serde::Serialize;

use super::{Cost, Field, Figure, Goal, Settings, Space, search::Proof};
use crate::report::{Align, Bottleneck, Bound, Table, humane};

/// Rows of the front that a terminal is shown.
const ROWS_MOST: usize = 24;

/// A figure that was found for a goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Told {
    /// Which figure.
    pub figure: Figure,
    /// Its value, the worst over the seeds; `null` where there was none.
    pub worst: Option<f64>,
    /// Whether the goal is met.
    pub met: bool,
}

impl Told {
    fn told(&self) -> String {
        self.worst.map_or_else(|| "none".to_owned(), |value| self.figure.told(value))
    }
}

/// Settings, what they cost, and what the whole scenario came to with them under all seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The settings.
    pub settings: Settings,
    /// The named costs, in their order.
    pub costs: Vec<u64>,
    /// The figure of each goal.
    pub figures: Vec<Told>,
    /// Whether every goal is met under every seed.
    pub meets: bool,
    /// The most memory that the loaders held, of all ranks \[B\].
    pub peak_bytes_in_flight: u64,
    /// What limits it, under the first seed.
    pub bottleneck: String,
}

/// A point that was simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnFront {
    /// The settings.
    pub settings: Settings,
    /// The named costs, in their order.
    pub costs: Vec<u64>,
    /// The figure of the first goal, in the cut scenario.
    pub figure: f64,
    /// Whether every goal is met there.
    pub meets: bool,
}

/// What stands in the way of the goals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// The settings that came nearest.
    pub settings: Settings,
    /// What they cost, in the order of the named costs.
    pub costs: Vec<u64>,
    /// The figure of each goal, in the cut scenario.
    pub figures: Vec<Told>,
    /// For each goal, the most that its figure can be anywhere in the space, by the operational laws; `null` where nothing is known.
    pub ceilings: Vec<Option<f64>>,
    /// The tightest bound of that run.
    pub bound: Option<Bound>,
    /// What limited that run.
    pub bottleneck: Bottleneck,
}

/// What tuning found.
#[derive(Clone, Debug, Serialize)]
pub struct Tuned {
    /// The scenario's name.
    pub scenario: String,
    /// The machine, in words.
    pub machine: String,
    /// What must be met.
    pub goals: Vec<Goal>,
    /// What is to be cheap, the most important first.
    pub cheapest: Vec<Cost>,
    /// The seeds under which a winner was verified.
    pub seeds: Vec<u64>,
    /// Samples of the dataset that the search simulated.
    pub samples: u64,
    /// Samples that it has.
    pub samples_of: u64,
    /// The values of every setting.
    pub space: Space,
    /// Combinations of them.
    pub points: u64,
    /// Of those, how many cannot run, such as for a budget below their minimum.
    pub impossible: u64,
    /// Of those that can, how many cannot meet the goals, by the operational laws.
    pub hopeless: u64,
    /// Whether such limits are known at all: not with faults, deadlines, or a consumer that leaves.
    pub ceilings: bool,
    /// Points simulated.
    pub simulated: u64,
    /// How sure the winner and the front are.
    pub proof: Proof,
    /// The scenario as it is.
    pub as_it_is: Choice,
    /// The cheapest settings that meet the goals; `null` when none do.
    pub winner: Option<Choice>,
    /// Cheaper settings that met the goals in the cut scenario, and not in the whole one under every seed.
    pub rejected: Vec<Settings>,
    /// Cheaper settings that met the goals in the cut scenario by less than the rejected ones fell short of their promise there, and were
    /// not simulated as a whole.
    pub put_off: u64,
    /// What stands in the way, when no settings meet the goals.
    pub limit: Option<Limit>,
    /// The points of which no other costs no more and is as good, the cheapest first.
    pub front: Vec<OnFront>,
    /// All points that were simulated and had the figure, the cheapest first.
    #[serde(skip)]
    pub all: Vec<OnFront>,
}

impl Tuned {
    /// What is asked, in a line.
    pub(super) fn question(&self) -> String {
        let goals: Vec<String> = self.goals.iter().map(Goal::to_string).collect();
        let costs: Vec<&str> = self.cheapest.iter().map(|cost| cost.name()).collect();
        format!("{}; cheapest {}", goals.join(" and "), costs.join(", then "))
    }

    /// Changes of the scenario's fields that make it the winner's, as `--set` takes them: `loader.threads=4`.
    pub fn sets(&self) -> Vec<String> {
        let Some(winner) = &self.winner else { return Vec::new() };
        let searched = |field: &Field| *field != Field::Ranks || winner.settings.ranks != self.as_it_is.settings.ranks;
        let set = |field: Field| format!("{}={}", field.path(), field.told(winner.settings.get(field)));
        Field::ALL.into_iter().filter(searched).map(set).collect()
    }

    /// The best that was reached and what stands in the way, in a few lines.
    pub fn why_not(&self) -> String {
        let mut out = format!("no settings in the space meet {}", self.question().split(';').next().unwrap_or_default());
        let more = |line: String, out: &mut String| write!(out, "\n  {line}").expect("a string takes everything");
        if let Some(first) = self.rejected.first() {
            let n = self.rejected.len();
            more(format!("{n} did in the cut scenario and not in the whole one, the first with {}", listed(first)), &mut out);
        }
        let Some(limit) = &self.limit else { return out };
        let reached: Vec<String> = limit.figures.iter().map(|t| format!("{} {}", t.figure.title(), t.told())).collect();
        more(format!("the best that was reached: {}, with {}", reached.join(", "), listed(&limit.settings)), &mut out);
        for (goal, most) in self.goals.iter().zip(&limit.ceilings) {
            if let Some(most) = most.filter(|most| !goal.met_by(Some(*most))) {
                let told = goal.figure.told(most);
                more(
                    format!("by the operational laws, {} is at most {told} anywhere in the space", goal.figure.title()),
                    &mut out,
                );
            }
        }
        if let Some(bound) = &limit.bound {
            more(format!("its tightest bound is {}: at most {}", bound.name, humane::rate(bound.samples_per_s)), &mut out);
        }
        more(
            format!("what limits it: {}. {} {}", limit.bottleneck.name, limit.bottleneck.why, limit.bottleneck.relief),
            &mut out,
        );
        out
    }

    /// All of it for a terminal.
    pub fn terminal(&self) -> String {
        let mut out = String::new();
        self.write(&mut out).expect("a string takes everything");
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "{} on {}\nGoal: {}", self.scenario, self.machine, self.question())?;
        if let Some(winner) = &self.winner {
            out.push('\n');
            out.push_str(&self.side_by_side(winner));
            writeln!(out, "\n{}", self.difference(winner))?;
        }
        writeln!(out, "\nSearch\n{}", indented(&self.searched()))?;
        let costs: Vec<&str> = self.cheapest.iter().map(|cost| cost.name()).collect();
        let figure = self.goals[0].figure.title();
        writeln!(out, "\nFront: {} against {figure}, in the scenario as it was searched", costs.join(" and "))?;
        out.push_str(&self.front_table());
        Ok(())
    }

    fn side_by_side(&self, winner: &Choice) -> String {
        let mut table = Table::new(vec![String::new(), "as it is".to_owned(), "cheapest".to_owned()]);
        let now = &self.as_it_is;
        for field in Field::ALL {
            let told = |choice: &Choice| field.told(choice.settings.get(field));
            if field != Field::Ranks || now.settings.ranks != winner.settings.ranks {
                table.row(vec![field.path().to_owned(), told(now), told(winner)]);
            }
        }
        for cost in Cost::ALL {
            let named = if self.cheapest.contains(&cost) { "" } else { " (not asked for)" };
            let told = |choice: &Choice| cost.told(cost.of(&choice.settings));
            table.row(vec![format!("{cost}{named}"), told(now), told(winner)]);
        }
        let peak = |choice: &Choice| humane::bytes(choice.peak_bytes_in_flight as f64);
        table.row(vec!["peak bytes in flight".to_owned(), peak(now), peak(winner)]);
        for (before, after) in now.figures.iter().zip(&winner.figures) {
            table.row(vec![before.figure.title(), before.told(), after.told()]);
        }
        table.row(vec!["bottleneck".to_owned(), now.bottleneck.clone(), winner.bottleneck.clone()]);
        table.render(Align::Right, str::to_owned)
    }

    /// What the winner saves and what it gives up.
    fn difference(&self, winner: &Choice) -> String {
        let now = &self.as_it_is;
        let change = |cost: &Cost| {
            let (before, after) = (cost.of(&now.settings), cost.of(&winner.settings));
            let percent = 100.0 * (after as f64 / before.max(1) as f64 - 1.0);
            let (from, to) = (cost.told(before), cost.told(after));
            if before == after { format!("{cost} stays at {to}") } else { format!("{cost} {from} → {to} ({percent:+.0} %)") }
        };
        let costs: Vec<String> = self.cheapest.iter().map(change).collect();
        let moved = |(before, after): (&Told, &Told)| format!("{} {} → {}", before.figure.title(), before.told(), after.told());
        let figures: Vec<String> = now.figures.iter().zip(&winner.figures).map(moved).collect();
        format!(
            "It costs: {}.\nIt gives: {}; the worst of {} seeds on the whole scenario.",
            costs.join(", "),
            figures.join(", "),
            self.seeds.len()
        )
    }

    /// How the search went and how sure it is, line by line.
    pub(super) fn searched(&self) -> Vec<String> {
        let n = humane::count;
        let proof = &self.proof;
        let mut lines = vec![format!(
            "{} points; {} cannot run, {} of the others cannot meet the goal by the operational laws; {} were simulated",
            n(self.points),
            n(self.impossible),
            n(self.hopeless),
            n(self.simulated)
        )];
        if !self.ceilings {
            lines.push("Nothing is excluded by such laws: faults, deadlines or the end make the work differ.".to_owned());
        }
        if self.samples < self.samples_of {
            lines.push(format!("with the first {} of {} samples of the dataset", n(self.samples), n(self.samples_of)));
        }
        let cheaper = if self.winner.is_some() { "No cheaper point meets the goal" } else { "No point meets the goal" };
        lines.push(match (proof.open, proof.presumed) {
            (0, 0) => format!("{cheaper}: each was simulated or is excluded for certain."),
            (0, presumed) => format!(
                "{cheaper}, if more of everything is never worse: {} cheaper ones have less of everything than one that fails, and were \
                 not simulated. Of such, {} were, as a check: {}.",
                n(presumed as u64),
                n(proof.checked as u64),
                match proof.refuting {
                    0 => "none met the goal".to_owned(),
                    some => format!("{} met it as searched, so others may; more `--simulations` tell", n(some as u64)),
                }
            ),
            (open, presumed) => format!(
                "It may not be the cheapest: {} cheaper points were left when the simulations were spent, and {} more that are presumed to fail.",
                n(open as u64),
                n(presumed as u64)
            ),
        });
        if !self.rejected.is_empty() {
            let short = "met the goal as searched and then failed on the whole scenario under a seed";
            let put_off = match self.put_off {
                0 => String::new(),
                more => format!("; met it by less than that fell short and were not tried: {}", n(more)),
            };
            lines.push(format!("Cheaper points that {short}: {}{put_off}.", self.rejected.len()));
        }
        lines.push(match proof.front_open {
            0 => "The front is that of all points.".to_owned(),
            open => format!("The front is of the points simulated; {} others may be on it.", n(open as u64)),
        });
        lines
    }

    /// The winner as it was searched, whether it is on the front or another of the same costs has a better figure.
    pub(super) fn chosen(&self) -> Option<&OnFront> {
        let winner = self.winner.as_ref()?;
        self.all.iter().find(|point| point.settings == winner.settings)
    }

    /// The points that a table shows: of the front those that meet the goal and those that do not, an even part of each where they are
    /// many, and the winner.
    fn shown(&self) -> Vec<&OnFront> {
        let part = |meets: bool| {
            let all: Vec<&OnFront> = self.front.iter().filter(|point| point.meets == meets).collect();
            let most = ROWS_MOST / 2;
            if all.len() <= most { all } else { (0..most).map(|i| all[i * (all.len() - 1) / (most - 1)]).collect() }
        };
        let mut rows = [part(false), part(true)].concat();
        rows.extend(self.chosen().filter(|chosen| !rows.iter().any(|row| row.settings == chosen.settings)));
        rows.sort_by(|a, b| a.costs.cmp(&b.costs).then(a.figure.total_cmp(&b.figure)));
        rows
    }

    fn front_table(&self) -> String {
        let mut header: Vec<String> = vec![String::new()];
        header.extend(self.cheapest.iter().map(|cost| cost.name().to_owned()));
        header.push(self.goals[0].figure.title());
        header.extend(Field::ALL.iter().filter(|f| self.is_searched(**f)).map(|f| f.name().to_owned()));
        let mut table = Table::new(header);
        let shown = self.shown();
        for point in &shown {
            let mark = match &self.winner {
                Some(winner) if winner.settings == point.settings => "→",
                _ if point.meets => "+",
                _ => " ",
            };
            let mut row = vec![format!("  {mark}")];
            row.extend(self.cheapest.iter().zip(&point.costs).map(|(cost, amount)| cost.told(*amount)));
            row.push(self.goals[0].figure.told(point.figure));
            row.extend(Field::ALL.iter().filter(|f| self.is_searched(**f)).map(|f| f.told(point.settings.get(*f))));
            table.row(row);
        }
        let mut out = table.render(Align::Right, str::to_owned);
        let left_out = self.front.iter().filter(|point| !shown.contains(point)).count();
        let more = if left_out > 0 { format!("; {left_out} rows are left out, `--json` has them") } else { String::new() };
        out.push_str(&format!("  → the cheapest, + meets the goal{more}\n"));
        out
    }

    fn is_searched(&self, field: Field) -> bool {
        self.space.axes.iter().any(|axis| axis.field == field && axis.values.len() > 1)
    }
}

/// Settings in a few words.
pub(super) fn listed(settings: &Settings) -> String {
    let one = |field: Field| format!("{} {}", field.name(), field.told(settings.get(field)));
    Field::ALL.into_iter().filter(|f| *f != Field::Ranks || settings.ranks > 1).map(one).collect::<Vec<_>>().join(", ")
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
