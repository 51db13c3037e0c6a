//! What tuning found as a page for a browser: cost against figure, with the front drawn.

use std::{cmp::Ordering, collections::BTreeSet};

use super::{Choice, Cost, OnFront, Tuned, tuned::listed};
use crate::report::html::{escaped, page};

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 90.0;
const BOTTOM: f64 = 44.0;
/// Points drawn beside the front; more only blacken the picture.
const DOTS_MOST: usize = 4000;

impl Tuned {
    /// One page that needs nothing beside it, light and dark.
    pub fn page(&self) -> String {
        let title = escaped(&self.scenario);
        let mut body = format!(
            "<header><div><p class=\"brand\">Towtank</p><h1>{title}</h1><p class=\"setting\">{}</p><p class=\"setting\">{}</p></div>\
             <button id=\"theme\" type=\"button\" hidden>Dark or light</button></header>\n<main>\n",
            escaped(&self.machine),
            escaped(&self.question())
        );
        match &self.winner {
            Some(winner) => body.push_str(&self.cards(winner)),
            None => body.push_str(&format!("<p class=\"alarm\" role=\"alert\">{}</p>\n", escaped(&self.why_not()))),
        }
        for (number, cost) in self.cheapest.iter().enumerate() {
            let chart = self.chart(number, *cost);
            let figure = escaped(&self.goals[0].figure.title());
            body.push_str(&format!(
                "<section><h2>{figure} against {cost}</h2><p class=\"note\">Every point that was simulated; filled ones meet the \
                 goal. The line is the best for so much or less; the scale of costs is logarithmic.</p>{chart}</section>\n"
            ));
        }
        body.push_str(&format!("<section><h2>Front</h2><div class=\"scroll\">{}</div></section>\n", self.table()));
        let lines: String = self.searched().iter().map(|line| format!("<p>{}</p>", escaped(line))).collect();
        body.push_str(&format!("<section><h2>Search</h2>{lines}</section>\n"));
        page(&title, &body)
    }

    fn cards(&self, winner: &Choice) -> String {
        let card = |title: &str, before: String, after: String| {
            format!("<dl><dt>{}</dt><dd>{}<small>now {}</small></dd></dl>", escaped(title), escaped(&after), escaped(&before))
        };
        let now = &self.as_it_is;
        let mut out = String::from("<div class=\"cards\">");
        for cost in &self.cheapest {
            out.push_str(&card(cost.name(), cost.told(cost.of(&now.settings)), cost.told(cost.of(&winner.settings))));
        }
        for (before, after) in now.figures.iter().zip(&winner.figures) {
            let told = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), |v| before.figure.told(v));
            out.push_str(&card(&before.figure.title(), told(before.worst), told(after.worst)));
        }
        out.push_str(&format!("</div>\n<p class=\"note\">With {}.</p>\n", escaped(&listed(&winner.settings))));
        out
    }

    fn chart(&self, number: usize, cost: Cost) -> String {
        let goal = &self.goals[0];
        // Costs are compared by their ratios.
        let amount = |point: &OnFront| (point.costs[number].max(1) as f64).log2();
        let (low, high) = self.all.iter().map(amount).fold((f64::MAX, 0.0), |(low, high), x| (x.min(low), x.max(high)));
        let (low, high) = ((low - 0.1).min(high), high + 0.1);
        let most_y = self.all.iter().map(|p| p.figure).fold(goal.value, f64::max).max(f64::MIN_POSITIVE) * 1.06;
        let x = |v: f64| LEFT + (v - low) / (high - low) * (WIDTH - LEFT - 10.0);
        let y = |v: f64| 10.0 + (1.0 - v / most_y) * (HEIGHT - BOTTOM - 10.0);
        let (title, base) = (escaped(&goal.figure.title()), y(0.0));
        let mut out = format!(
            "<svg class=\"scatter\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title} against {cost}\">\
             <path class=\"axes\" d=\"M{LEFT} 10V{base:.1}H{WIDTH}\"/>"
        );
        for part in 0..=4 {
            let v = most_y / 1.06 * f64::from(part) / 4.0;
            let told = escaped(&goal.figure.told(v));
            out.push_str(&format!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{told}</text>", LEFT - 8.0, y(v) + 4.0));
        }
        let powers: Vec<f64> = (0..64).map(f64::from).filter(|power| (low..=high).contains(power)).collect();
        let few = || (0..4).map(|part| low + (high - low) * (f64::from(part) + 0.5) / 4.0).collect();
        let ticks: Vec<f64> = if powers.len() < 3 { few() } else { powers };
        let mut last = 0;
        for tick in ticks.iter().step_by(ticks.len().div_ceil(8).max(1)) {
            // A tick stands where its whole number is, and each number once.
            let whole = tick.exp2().round() as u64;
            let at = (whole.max(1) as f64).log2();
            if whole == last || !(low..=high).contains(&at) {
                continue;
            }
            last = whole;
            let (x, y, told) = (x(at), base + 20.0, escaped(&cost.told(whole)));
            out.push_str(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{told}</text>"));
        }
        out.push_str(&format!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{cost}</text>", WIDTH - 6.0, base + 38.0));
        out.push_str(&format!("<path class=\"goal\" d=\"M{LEFT} {0:.1}H{WIDTH}\"/>", y(goal.value)));
        let place = |point: &OnFront| (x(amount(point)), y(point.figure));
        // Many lie on each other, and one of them shows it.
        let dots: BTreeSet<String> =
            self.all.iter().map(|point| dot(if point.meets { "dot meets" } else { "dot" }, 3.0, place(point), "")).collect();
        let every = dots.len().div_ceil(DOTS_MOST).max(1);
        out.extend(dots.into_iter().step_by(every));
        out.push_str(&format!("<path class=\"front\" d=\"{}\"/>", self.envelope(number, &place)));
        for point in &self.front {
            let amount = cost.told(point.costs[number]);
            let told = format!("{amount} {cost}, {}: {}", goal.figure.told(point.figure), listed(&point.settings));
            out.push_str(&dot("dot best", 4.5, place(point), &told));
        }
        if let Some(point) = self.chosen() {
            out.push_str(&dot("dot chosen", 8.0, place(point), &listed(&point.settings)));
        }
        out.push_str("</svg>");
        out
    }

    /// The best figure for so much of a cost or less, as a line of steps.
    fn envelope(&self, number: usize, place: &dyn Fn(&OnFront) -> (f64, f64)) -> String {
        let mut points: Vec<&OnFront> = self.all.iter().collect();
        let better = |a: f64, b: f64| if self.goals[0].figure.more_is_better() { a > b } else { a < b };
        points.sort_by(|a, b| {
            let figures = if better(b.figure, a.figure) { Ordering::Greater } else { Ordering::Less };
            a.costs[number].cmp(&b.costs[number]).then(if a.figure == b.figure { Ordering::Equal } else { figures })
        });
        let (mut path, mut best) = (String::new(), None);
        for point in points {
            let (x, y) = place(point);
            match best {
                None => path.push_str(&format!("M{x:.1} {y:.1}")),
                Some(known) if better(point.figure, known) => path.push_str(&format!("H{x:.1}V{y:.1}")),
                Some(_) => continue,
            }
            best = Some(point.figure);
        }
        if !path.is_empty() {
            path.push_str(&format!("H{WIDTH}"));
        }
        path
    }

    fn table(&self) -> String {
        let costs: String = self.cheapest.iter().map(|cost| format!("<th>{cost}</th>")).collect();
        let mut out = format!(
            "<table><thead><tr><th></th>{costs}<th>{}</th><th>settings</th></tr></thead><tbody>",
            escaped(&self.goals[0].figure.title())
        );
        for point in &self.front {
            let chosen = self.winner.as_ref().is_some_and(|w| w.settings == point.settings);
            let mark = match (chosen, point.meets) {
                (true, _) => "<th class=\"held\">the cheapest</th>",
                (false, true) => "<th class=\"held\">meets</th>",
                (false, false) => "<th></th>",
            };
            let cells = self.cheapest.iter().zip(&point.costs).map(|(cost, amount)| cost.told(*amount));
            let cells = cells.chain([self.goals[0].figure.told(point.figure), listed(&point.settings)]);
            let cells: String = cells.map(|cell| format!("<td>{}</td>", escaped(&cell))).collect();
            out.push_str(&format!("<tr>{mark}{cells}</tr>"));
        }
        out.push_str("</tbody></table>");
        out
    }
}

fn dot(class: &str, size: f64, (x, y): (f64, f64), title: &str) -> String {
    let title = if title.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(title)) };
    format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{size}\">{title}</circle>")
}
