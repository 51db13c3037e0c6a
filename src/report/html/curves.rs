//! Small charts of the run over time, one above the other on the same axis.

use super::{
    super::humane::{bytes, number, seconds},
    Side, escaped,
};
use crate::trace::{Timeline, Track};

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 72.0;

/// One chart: its name, its ceiling, and a curve of each side.
struct Row<'a> {
    name: String,
    capacity: Option<f64>,
    curves: Vec<(&'a str, &'a str, &'a Timeline, Vec<f64>)>,
    in_bytes: bool,
    share: bool,
}

/// What ran in each stage, and what the consumers did.
pub(super) fn stages(sides: &[Side<'_>]) -> String {
    let mut names: Vec<(&str, Option<u32>)> = Vec::new();
    for stage in sides.iter().flat_map(|side| &side.metrics.stages) {
        match names.iter_mut().find(|(known, _)| *known == stage.name) {
            Some((_, servers)) => *servers = (*servers).max(stage.servers),
            None => names.push((&stage.name, stage.servers)),
        }
    }
    let mut rows = Vec::new();
    for (name, servers) in names {
        let curve = |timeline: &Timeline| {
            let id = timeline.stages().iter().find(|id| timeline.name_of(**id) == name);
            id.map_or_else(Vec::new, |id| timeline.means(Track::Running(*id)))
        };
        rows.push(row(sides, name, servers.map(f64::from), curve));
    }
    for (name, track) in [("computing", Track::Computing), ("waiting for a batch", Track::Waiting)] {
        let share = |timeline: &Timeline| {
            let ranks = timeline.ranks().max(1) as f64;
            timeline.means(track).into_iter().map(|mean| mean / ranks).collect()
        };
        rows.push(Row { share: true, ..row(sides, name, Some(1.0), share) });
    }
    draw(sides, &rows)
}

/// How full the queues were, of the sides that know.
pub(super) fn queues(sides: &[Side<'_>]) -> String {
    let sides: Vec<Side<'_>> = sides.iter().filter(|side| !side.metrics.queues.is_empty()).copied().collect();
    let tracks = [Track::InLanes, Track::FilledSlots, Track::ReadyBatches, Track::EncodedBytes];
    let names = ["samples in lanes", "filled slots", "ready batches", "encoded bytes"];
    let rows: Vec<Row<'_>> = names
        .into_iter()
        .zip(tracks)
        .map(|(name, track)| {
            let capacity =
                sides.iter().flat_map(|side| &side.metrics.queues).filter(|q| q.name == name).filter_map(|q| q.capacity);
            let capacity = capacity.max().map(|n| n as f64);
            Row { in_bytes: track == Track::EncodedBytes, ..row(&sides, name, capacity, |timeline| timeline.means(track)) }
        })
        .collect();
    draw(&sides, &rows)
}

fn row<'a>(sides: &[Side<'a>], name: &str, capacity: Option<f64>, curve: impl Fn(&Timeline) -> Vec<f64>) -> Row<'a> {
    let curves = sides.iter().filter_map(|side| {
        let timeline = side.timeline?;
        Some((side.name, side.class, timeline, curve(timeline)))
    });
    Row { name: name.to_owned(), capacity, curves: curves.collect(), in_bytes: false, share: false }
}

fn draw(sides: &[Side<'_>], rows: &[Row<'_>]) -> String {
    let end = sides.iter().filter_map(|side| side.timeline).map(|t| t.end().0).max().unwrap_or(0);
    if end == 0 {
        return String::new();
    }
    let mut out = legend(sides);
    for row in rows {
        let highest = row.curves.iter().flat_map(|(_, _, _, means)| means).fold(0.0, |a: f64, b| a.max(*b));
        // A ceiling far above all there was would leave a flat line at the bottom.
        let shown = row.capacity.filter(|most| *most <= highest * 8.0 || row.share);
        let top = highest.max(shown.unwrap_or(0.0)).max(f64::MIN_POSITIVE) * 1.06;
        let amount = |n: f64| match row {
            Row { share: true, .. } => format!("{:.0} %", n * 100.0),
            Row { in_bytes: true, .. } => bytes(n),
            _ => number(n),
        };
        let of = row.capacity.filter(|_| !row.share).map_or_else(String::new, |most| format!(" of {}", amount(most)));
        let name = escaped(&row.name);
        let label = format!("{name} over time, at most {}{of}", amount(highest));
        out.push_str(&format!(
            "<figure class=\"curve\"><figcaption><b>{name}</b><span>highest mean {}{of}</span><output></output></figcaption>\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{label}\" \
             data-end=\"{}\" data-top=\"{top:.4}\" data-unit=\"{}\">",
            amount(highest),
            end as f64 / 1e9,
            if row.share {
                "share"
            } else if row.in_bytes {
                "bytes"
            } else {
                ""
            },
        ));
        for (side, class, timeline, means) in &row.curves {
            out.push_str(&path(side, class, timeline, means, end, top));
        }
        if let Some(most) = shown {
            let y = HEIGHT - most / top * HEIGHT;
            out.push_str(&format!("<line class=\"limit\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"));
        }
        out.push_str("</svg></figure>");
    }
    let ticks = (0..=4).map(|i| format!("<span>{}</span>", seconds(end as f64 / 1e9 * f64::from(i) / 4.0)));
    out.push_str(&format!("<p class=\"axis\" aria-hidden=\"true\">{}</p>", ticks.collect::<String>()));
    out
}

/// A curve of steps, filled below; steps rather than slopes, for each is the mean of its bucket.
fn path(side: &str, class: &str, timeline: &Timeline, means: &[f64], end: u64, top: f64) -> String {
    let x =
        |bucket: usize| (bucket as u64).saturating_mul(timeline.bucket_ns()).min(timeline.end().0) as f64 / end as f64 * WIDTH;
    let y = |mean: f64| HEIGHT - mean / top * HEIGHT;
    let mut steps = String::new();
    let mut last = None;
    for (i, mean) in means.iter().enumerate() {
        let height = format!("{:.1}", y(*mean));
        if last.as_ref() != Some(&height) {
            steps.push_str(&format!("H{:.1}V{height}", x(i)));
            last = Some(height);
        }
    }
    if steps.is_empty() {
        return String::new();
    }
    let right = x(means.len());
    format!(
        "<path class=\"{class}\" data-side=\"{side}\" d=\"M0 {HEIGHT}{steps}H{right:.1}V{HEIGHT}Z\" vector-effect=\"non-scaling-stroke\"/>"
    )
}

/// Which colour is which side, where there are two.
pub(super) fn legend(sides: &[Side<'_>]) -> String {
    if sides.len() < 2 {
        return String::new();
    }
    let keys = sides.iter().map(|side| format!("<span class=\"key {0}\">{1}</span>", side.class, side.name));
    format!("<p class=\"legend\">{}</p>", keys.collect::<String>())
}
