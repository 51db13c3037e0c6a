//! One line of a recorded trace: its fields and their types. What lines have to do with one another is not looked at here.

use serde::{Deserialize, de::DeserializeOwned};

use super::{Header, VERSION};
use crate::report::Perfetto;

/// What is wrong with a line.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) message: String,
    pub(super) expected: String,
    pub(super) hint: &'static str,
    /// The field that is wrong.
    pub(super) field: Option<String>,
    /// Where it is wrong, where no field is known: a byte of the line, from 1.
    pub(super) column: Option<usize>,
    /// Whether it ends in the middle.
    pub(super) cut: bool,
}

impl Wrong {
    pub(super) fn new(message: impl Into<String>) -> Wrong {
        Wrong { message: message.into(), expected: String::new(), hint: "", field: None, column: None, cut: false }
    }

    pub(super) fn of(self, field: &str) -> Wrong {
        Wrong { field: Some(field.to_owned()), ..self }
    }

    pub(super) fn expected(self, expected: impl Into<String>) -> Wrong {
        Wrong { expected: expected.into(), ..self }
    }

    pub(super) fn hint(self, hint: &'static str) -> Wrong {
        Wrong { hint, ..self }
    }
}

/// A line after the first.
pub(super) enum Line {
    Batch(BatchLine),
    End(EndLine),
}

/// The line of a batch. Times are readings of the clock \[s\].
pub(super) struct BatchLine {
    pub(super) epoch: u32,
    pub(super) asked: f64,
    pub(super) got: f64,
    pub(super) done: Option<f64>,
    pub(super) samples: u64,
    pub(super) indices: Option<Vec<u64>>,
    pub(super) bytes: Option<u64>,
    pub(super) skipped: Option<Vec<u64>>,
}

/// The last line.
pub(super) struct EndLine {
    pub(super) end: f64,
    pub(super) cpu_s: Option<f64>,
    pub(super) peak_rss_bytes: Option<u64>,
    pub(super) skipped: Option<Vec<u64>>,
}

/// All fields that a line after the first may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    epoch: Option<u32>,
    asked: Option<f64>,
    got: Option<f64>,
    done: Option<f64>,
    samples: Option<u64>,
    indices: Option<Vec<u64>>,
    bytes: Option<u64>,
    skipped: Option<Vec<u64>>,
    end: Option<f64>,
    cpu_s: Option<f64>,
    peak_rss_bytes: Option<u64>,
}

/// The fields of the first line that are known; it may have others.
#[derive(Deserialize)]
struct HeaderFields {
    towtank_trace: Option<u64>,
    start: Option<f64>,
    loader: Option<String>,
    batch: Option<u64>,
    cores: Option<u32>,
}

const FIRST: &str = r#"{"towtank_trace": 1, "start": 0.0}"#;

/// Reads the first line.
pub(super) fn header(text: &[u8]) -> Result<Header, Wrong> {
    let fields: HeaderFields = json(text)?;
    match fields.towtank_trace {
        None => {
            let wrong = Wrong::new("this is no recorded trace: its first line has no `towtank_trace`");
            return Err(wrong.expected(FIRST).hint("`docs/record.py` records one"));
        }
        Some(VERSION) => {}
        Some(other) => {
            let message = format!("this trace has version {other} of its format, and this program knows version {VERSION}");
            return Err(Wrong::new(message).of("towtank_trace").expected("1").hint("a newer program may know it"));
        }
    }
    let start = fields.start.ok_or_else(|| Wrong::new("the first line has no `start`").expected(FIRST))?;
    // Beyond, a reading in doubles is coarser than two microseconds.
    const START_MOST: f64 = 1e10;
    if !(0.0..=START_MOST).contains(&start) {
        let wrong = Wrong::new(format!("the loader was started at {start:e} s")).of("start").expected("0 to 1e10, in seconds");
        return Err(wrong.hint(if start > 0.0 { "are these milliseconds or nanoseconds?" } else { "" }));
    }
    if fields.batch == Some(0) {
        return Err(Wrong::new("a full batch has no samples").of("batch").expected("1 or more"));
    }
    if fields.cores == Some(0) {
        return Err(Wrong::new("a computer has no cores").of("cores").expected("1 or more"));
    }
    Ok(Header { loader: fields.loader.unwrap_or_default(), batch: fields.batch, cores: fields.cores, start })
}

/// Reads a line after the first.
pub(super) fn parse(text: &[u8]) -> Result<Line, Wrong> {
    let fields: Fields = json(text)?;
    let Some(end) = fields.end else {
        if let Some(field) = [("cpu_s", fields.cpu_s.is_some()), ("peak_rss_bytes", fields.peak_rss_bytes.is_some())]
            .iter()
            .find_map(|(field, is)| is.then_some(*field))
        {
            return Err(Wrong::new(format!("`{field}` stands in a line without `end`")).of(field).expected("`end` beside it"));
        }
        let missing = |field: &str| Wrong::new(format!("the line of a batch has no `{field}`")).expected(BATCH);
        return Ok(Line::Batch(BatchLine {
            epoch: fields.epoch.unwrap_or(0),
            asked: fields.asked.ok_or_else(|| missing("asked"))?,
            got: fields.got.ok_or_else(|| missing("got"))?,
            done: fields.done,
            samples: fields.samples.ok_or_else(|| missing("samples"))?,
            indices: fields.indices,
            bytes: fields.bytes,
            skipped: fields.skipped,
        }));
    };
    if fields.asked.is_some() || fields.got.is_some() || fields.samples.is_some() {
        return Err(Wrong::new("a batch and `end` stand in one line").of("end").expected("a line for each"));
    }
    if let Some(cpu_s) = fields.cpu_s.filter(|s| !(0.0..=1e12).contains(s)) {
        return Err(Wrong::new(format!("the CPU time is {cpu_s} s")).of("cpu_s").expected("0 to 1e12, in seconds"));
    }
    Ok(Line::End(EndLine { end, cpu_s: fields.cpu_s, peak_rss_bytes: fields.peak_rss_bytes, skipped: fields.skipped }))
}

const BATCH: &str = r#"{"epoch": 0, "asked": 0.0, "got": 0.2, "done": 0.3, "samples": 64}"#;

/// Reads one JSON object, and says what is wrong in words that do not need to know this program.
fn json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Wrong> {
    const HINT: &str = "every line is one JSON object, with numbers as JSON has them: no NaN, no Infinity";
    let text = text.trim_ascii_end();
    if text.starts_with(Perfetto::START.as_bytes()) {
        let wrong = Wrong::new("this is a trace for Perfetto, as `--trace` of `sim`, `run` and `compare` writes it");
        return Err(wrong
            .expected("one that a training loop recorded")
            .hint("`docs/record.py` records one, `docs/trace-format.md` says how"));
    }
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(Wrong::new("this line is no JSON object").expected("`{`").hint(HINT));
    }
    serde_json::from_slice(text).map_err(|error| {
        let told = error.to_string();
        let told = told.rsplit_once(" at line ").map_or(told.as_str(), |(told, _)| told);
        let column = Some(error.column());
        if error.is_eof() {
            let wrong = Wrong::new("this line ends in the middle of its JSON").expected("the rest of it").hint(HINT);
            return Wrong { column, cut: true, ..wrong };
        }
        if error.is_syntax() {
            return Wrong { column, ..Wrong::new(format!("this line is not JSON: {told}")).hint(HINT) };
        }
        let (message, expected) = told.split_once(", expected ").unwrap_or((told, ""));
        let expected = match expected {
            "u64" | "u32" => "a whole number, 0 or more",
            "f64" => "a number of seconds",
            other => other,
        };
        let field = message.split('`').nth(1).filter(|_| message.contains("field")).map(str::to_owned);
        let second = field.as_deref() == Some("towtank_trace");
        let hint = if second { "two recordings in one file? Give each a file of its own" } else { "" };
        Wrong { column, field, ..Wrong::new(message).expected(expected).hint(hint) }
    })
}
