//! Bars: where time went, what limits, how far the prediction was off, what changes would bring.

use super::{
    super::{
        Errors, Metrics,
        humane::{number, percent, rate, seconds},
    },
    Side, WhatIf, escaped,
};

/// Where the consumers' time went, as one bar of parts per side.
pub(super) fn stall(sides: &[Side<'_>]) -> String {
    sides.iter().map(|side| parts(side)).collect()
}

fn parts(side: &Side<'_>) -> String {
    let m = side.metrics;
    let ranks = side.timeline.map_or(1, |t| t.ranks().max(1)) as f64;
    let total = m.duration_s * ranks;
    if total <= 0.0 {
        return String::new();
    }
    let mut parts = vec![("first batch", "first", m.first_batches_s)];
    match (m.fetch_stall_s, m.preparation_stall_s) {
        (Some(fetch), Some(preparation)) => {
            parts.push(("fetch stall", "fetch", fetch));
            parts.push(("preparation stall", "prep", preparation));
        }
        _ => parts.push(("data stall", "prep", m.stall_s)),
    }
    let known: f64 = parts.iter().map(|(_, _, s)| s).sum();
    parts.push(("computing", "compute", (total - known).max(0.0)));
    let whole = total.max(known);
    let segment = |(name, class, s): &(&str, &str, f64)| {
        format!("<i class=\"{class}\" style=\"width:{:.3}%\" title=\"{name}: {}\"></i>", s / whole * 100.0, seconds(*s))
    };
    let key = |(name, class, s): &(&str, &str, f64)| {
        format!("<span class=\"key {class}\">{name} <b>{}</b> {}</span>", seconds(*s), percent(s / whole))
    };
    format!(
        "<h3>{}</h3><div class=\"parts\" role=\"img\" aria-label=\"parts of the consumer's time, listed below\">{}</div><p class=\"legend\">{}</p>",
        side.name,
        parts.iter().map(segment).collect::<String>(),
        parts.iter().map(key).collect::<String>()
    )
}

/// What each resource allows at most, beside what was achieved. Longer bars than four times the rate are cut.
pub(super) fn bounds(sides: &[Side<'_>]) -> String {
    let mut out = String::new();
    for side in sides {
        let m: &Metrics = side.metrics;
        if m.bounds.limits.is_empty() || m.samples_per_s <= 0.0 {
            continue;
        }
        let least = m.bounds.samples_per_s().unwrap_or(m.samples_per_s);
        let scale = least.max(m.samples_per_s) * 4.0;
        let line = m.samples_per_s / scale * 100.0;
        out.push_str(&format!("<h3>{} <small>achieved {}</small></h3><div class=\"bars\">", side.name, rate(m.samples_per_s)));
        for bound in &m.bounds.limits {
            let width = (bound.samples_per_s / scale * 100.0).min(100.0);
            let cut = if bound.samples_per_s > scale { " cut" } else { "" };
            let name = escaped(&bound.name);
            out.push_str(&bar(&name, side.class, cut, width, line, &number(bound.samples_per_s)));
        }
        out.push_str("</div>");
    }
    out
}

fn bar(name: &str, class: &str, cut: &str, width: f64, line: f64, value: &str) -> String {
    format!(
        "<div class=\"bar\"><span>{name}</span><div class=\"track\"><i class=\"{class}{cut}\" style=\"width:{width:.2}%\"></i>\
         <em style=\"left:{line:.2}%\"></em></div><b>{value}</b></div>"
    )
}

/// How far each figure was off, left of the middle too low, right of it too high.
pub(super) fn errors(errors: &Errors) -> String {
    let rows = [
        ("throughput", errors.samples_per_s),
        ("throughput without start-up", errors.steady_samples_per_s),
        ("least bound, as a prediction", errors.bound_samples_per_s),
        ("accelerator busy", errors.accelerator_utilization),
        ("time to first batch", errors.time_to_first_batch_s),
        ("data stall", errors.stall_s),
        ("fetch stall", errors.fetch_stall_s),
        ("preparation stall", errors.preparation_stall_s),
        ("CPU time", errors.cpu_s),
        ("peak bytes in flight", errors.peak_bytes_in_flight),
    ];
    let known: Vec<(&str, f64)> = rows.into_iter().filter_map(|(name, e)| Some((name, e?))).collect();
    // At least ten per cent to each side, so that small errors look small.
    let most = known.iter().fold(0.1, |most: f64, (_, e)| most.max(e.abs())).min(1.0);
    let row = |(name, e): &(&str, f64)| {
        let width = (e.abs() / most).min(1.0) * 50.0;
        let left = if *e < 0.0 { 50.0 - width } else { 50.0 };
        let unit = if *name == "accelerator busy" { "points" } else { "%" };
        format!(
            "<div class=\"bar\"><span>{name}</span><div class=\"track\"><i class=\"{}\" style=\"left:{left:.2}%;width:{width:.2}%\"></i>\
             <em style=\"left:50%\"></em></div><b>{:+.1} {unit}</b></div>",
            if *e < 0.0 { "low" } else { "high" },
            e * 100.0
        )
    };
    format!("<div class=\"bars\">{}</div>", known.iter().map(row).collect::<String>())
}

/// What changes would bring.
pub(super) fn what_if(list: &[WhatIf], now: f64) -> String {
    if list.is_empty() {
        return String::new();
    }
    let scale = list.iter().fold(now, |most, w| most.max(w.high).max(w.samples_per_s)).max(f64::MIN_POSITIVE) * 1.05;
    let part = |x: f64| (x / scale * 100.0).clamp(0.0, 100.0);
    let row = |w: &WhatIf| {
        format!(
            "<div class=\"bar\"><span>{} <small>{}</small></span><div class=\"track\"><i class=\"sim\" style=\"width:{:.2}%\"></i>\
             <u style=\"left:{:.2}%;width:{:.2}%\"></u><em style=\"left:{:.2}%\"></em></div><b>{}</b></div>",
            escaped(&w.name),
            escaped(&w.change),
            part(w.samples_per_s),
            part(w.low),
            (part(w.high) - part(w.low)).max(0.0),
            part(now),
            number(w.samples_per_s)
        )
    };
    format!("<div class=\"bars\">{}</div>", list.iter().map(row).collect::<String>())
}
