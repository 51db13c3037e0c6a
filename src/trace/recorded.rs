//! Traces that somebody else's training loop recorded: JSON Lines, as `docs/trace-format.md` defines them.
//!
//! A training loop knows when it asked for a batch, when it got it and when its step was over, and nothing of what its loader did
//! meanwhile. [`read`] turns that into the events of [`Kind`] that a consumer writes, so that the same folds give the same figures.
//! What such a trace cannot know must be told to the report by
//! [`Facts::consumer_only`](crate::report::Facts::consumer_only).
//!
//! | line | events |
//! | --- | --- |
//! | first | none |
//! | batch | `Taken` at `got` since `asked`, one `Delivered` a sample, `Step` at `done` since `got` |
//! | last | `Stop` at `end` |
//!
//! It streams: memory does not grow with the file, and a line, a batch and the sum of samples have limits.

use std::{
    io::{BufRead, Read},
    sync::Arc,
};

use self::line::{BatchLine, Line, Wrong};
use super::{Event, Kind, Recorder, StageId};
use crate::{
    document::{Diagnostic, Place, Source, Trouble},
    machine::Time,
    units::Count,
};

mod line;
#[cfg(test)]
mod tests;

/// The version of the format that is read.
pub const VERSION: u64 = 1;

/// The most samples in one batch: 2²⁰.
pub const BATCH_MOST: u64 = 1 << 20;

/// The most samples in a trace: 2³².
pub const SAMPLES_MOST: u64 = 1 << 32;

/// Refuses a dataset of more samples than a trace can tell of, whose books would have no room in memory; `place` is where their number
/// stands.
///
/// # Errors
///
/// When `count` is larger than [`SAMPLES_MOST`].
pub(crate) fn bounded(count: u64, place: Option<&Place>) -> Result<(), Trouble> {
    if count <= SAMPLES_MOST {
        return Ok(());
    }
    let (count, most) = (Count(count), Count(SAMPLES_MOST));
    let wrong = Diagnostic::new(format!("a dataset of {count} samples is larger than a recorded trace can be"));
    Err(wrong
        .at(place)
        .expected(format!("at most {most}"))
        .hint("`dataset.count` is that of the dataset that was recorded")
        .into())
}

/// The longest line \[B\]: room for a batch of the most samples with their indices.
const LINE_BYTES_MOST: u64 = 32 << 20;

/// What the first line says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// What loaded, in words.
    pub loader: String,
    /// Samples in a full batch.
    pub batch: Option<u64>,
    /// Cores of the computer.
    pub cores: Option<u32>,
    /// The clock when the loader was started \[s\].
    pub start: f64,
}

/// One batch as its consumer knew it.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Epoch, from 0.
    pub epoch: u32,
    /// When the consumer asked for it, since the loader's start.
    pub asked: Time,
    /// When the consumer got it.
    pub got: Time,
    /// When the step on it was over.
    pub done: Option<Time>,
    /// Samples in it.
    pub samples: u64,
    /// Which samples of the dataset, in the order of the batch.
    pub indices: Option<Vec<u64>>,
    /// Its size as the consumer got it \[B\].
    pub bytes: Option<u64>,
    /// Samples of the dataset that were left out since the batch before, where the trace tells.
    pub skipped: Option<Vec<u64>>,
    /// Its line in the file, from 1.
    pub line: u64,
}

/// What a trace came to.
#[derive(Debug)]
pub struct Recorded {
    /// Its first line.
    pub header: Header,
    /// What took its events.
    pub recorder: Recorder,
    /// Batches.
    pub batches: u64,
    /// Samples in all of them.
    pub samples: u64,
    /// The most samples in one.
    pub largest_batch: u64,
    /// The size of all batches \[B\], when the trace tells.
    pub bytes: Option<u64>,
    /// Whether every batch tells which samples it has.
    pub has_indices: bool,
    /// Whether it has its last line, so that nothing more came.
    pub ended: bool,
    /// Samples that were left out after the last batch, where the trace tells.
    pub skipped_last: Option<Vec<u64>>,
    /// CPU time of training loop and loader, user and system, of all processes \[s\].
    pub cpu_s: Option<f64>,
    /// Peak resident memory of the training loop's process \[B\].
    pub peak_rss_bytes: Option<u64>,
}

impl Recorded {
    /// What to say where its batches are not of `planned` samples, with the way to those that it has; an epoch has so many `samples`, and no
    /// batch of more.
    pub(crate) fn other_batch(&self, planned: u64, samples: u64) -> Option<String> {
        let (batch, fits) = match self.header.batch {
            Some(batch) => (batch, planned),
            None => (self.largest_batch, planned.min(samples)),
        };
        (batch != fits)
            .then(|| format!("the trace has batches of {batch}, the scenario of {planned}: `--set loader.batch={batch}`"))
    }
}

/// Reads the trace in `input`, which errors call `name`. Its events go to `recorder`, and `look` sees every batch.
///
/// # Errors
///
/// At the first line that is not what the format says, with its number; when there is no batch; and when `input` cannot be read.
pub fn read(
    name: &str,
    mut input: impl BufRead,
    recorder: Recorder,
    mut look: impl FnMut(&Batch),
) -> Result<Recorded, Diagnostic> {
    let mut text = Vec::new();
    let mut number = 0;
    let mut reader: Option<Reader> = None;
    let mut recorder = Some(recorder);
    loop {
        text.clear();
        let read = input.by_ref().take(LINE_BYTES_MOST + 1).read_until(b'\n', &mut text);
        let read = read.map_err(|error| Diagnostic::new(format!("cannot read `{name}`: {error}")))?;
        if read == 0 {
            break;
        }
        number += 1;
        let too_long = read as u64 > LINE_BYTES_MOST;
        if !too_long && text.trim_ascii().is_empty() {
            continue;
        }
        let taken = match &mut reader {
            _ if too_long => Err(Wrong::new("this line is longer than 32 MiB")),
            None => line::header(&text).map(|header| {
                let recorder = recorder.take().unwrap_or_default();
                reader = Some(Reader::new(header, recorder));
            }),
            Some(reader) => line::parse(&text).and_then(|line| reader.take(line, number as u64, &mut look)),
        };
        taken.map_err(|wrong| placed(name, number, &text, wrong))?;
    }
    let hint = "`docs/record.py` records one; `docs/trace-format.md` says what it looks like";
    match reader {
        None => Err(Diagnostic::new(format!("`{name}` is empty")).expected("a recorded trace").hint(hint)),
        Some(reader) if reader.recorded.batches == 0 => Err(Diagnostic::new(format!("`{name}` has no batch"))
            .expected("a line for every batch after the first line")
            .hint(hint)),
        Some(reader) => Ok(reader.recorded),
    }
}

/// `wrong` with its place: the line, as much of it as one wants to see.
fn placed(name: &str, number: usize, text: &[u8], wrong: Wrong) -> Diagnostic {
    const SHOWN: usize = 160;
    let whole = String::from_utf8_lossy(text);
    let whole = whole.trim_end();
    let mut shown: String = whole.chars().take(SHOWN).collect();
    let span = wrong.field.and_then(|field| {
        let key = format!("\"{field}\"");
        shown.find(&key).map(|at| at..at + key.len())
    });
    let end = shown.len();
    let span = span.or_else(|| wrong.column.map(|column| column.saturating_sub(1).min(end)..column.min(end)));
    let span = span.filter(|span| shown.is_char_boundary(span.start) && shown.is_char_boundary(span.end)).unwrap_or(0..end);
    if end < whole.len() {
        shown.push('…');
    }
    let cut = !text.ends_with(b"\n") && wrong.cut;
    let source: Arc<Source> = Source::line(name, number, shown);
    let hint = if cut { "the recording was cut off while it wrote this line: delete the line" } else { wrong.hint };
    Diagnostic::new(wrong.message).at(Some(&Place::new(&source, span))).expected(wrong.expected).hint(hint)
}

/// What came so far.
struct Reader {
    recorded: Recorded,
    /// The clock, since the start, that the next line may not go behind \[s\].
    last_s: f64,
    last_epoch: u32,
    /// Whether the batches have `done`, `indices` and `bytes`, once there was one.
    has: Option<[bool; 3]>,
    ended: bool,
}

impl Reader {
    fn new(header: Header, recorder: Recorder) -> Reader {
        let recorded = Recorded {
            header,
            recorder,
            batches: 0,
            samples: 0,
            largest_batch: 0,
            bytes: Some(0),
            has_indices: false,
            ended: false,
            skipped_last: None,
            cpu_s: None,
            peak_rss_bytes: None,
        };
        Reader { recorded, last_s: 0.0, last_epoch: 0, has: None, ended: false }
    }

    fn take(&mut self, line: Line, number: u64, look: &mut impl FnMut(&Batch)) -> Result<(), Wrong> {
        if self.ended {
            return Err(Wrong::new("a line comes after the last one, the one with `end`")
                .hint("two recordings in one file? Give each a file of its own"));
        }
        match line {
            Line::Batch(line) => {
                let batch = self.batch(line, number)?;
                look(&batch);
                self.record(&batch);
            }
            Line::End(end) => {
                let at = self.time("end", end.end, "the last step was over")?;
                self.recorded.cpu_s = end.cpu_s;
                self.recorded.peak_rss_bytes = end.peak_rss_bytes;
                self.recorded.recorder.record(Event {
                    time: at,
                    since: Time::ZERO,
                    sample: 0,
                    bytes: 0,
                    epoch: 0,
                    rank: 0,
                    stage: StageId::LOADER,
                    kind: Kind::Stop,
                });
                (self.ended, self.recorded.ended) = (true, true);
                self.recorded.skipped_last = end.skipped;
            }
        }
        Ok(())
    }

    /// The batch of a line that follows from those before.
    fn batch(&mut self, line: BatchLine, number: u64) -> Result<Batch, Wrong> {
        let asked = self.time("asked", line.asked, "the batch before was over")?;
        let got = self.time("got", line.got, "it was asked for")?;
        let done = line.done.map(|done| self.time("done", done, "the batch was got")).transpose()?;
        if line.epoch < self.last_epoch {
            let message = format!("epoch {} comes after epoch {}", line.epoch, self.last_epoch);
            return Err(Wrong::new(message).of("epoch").expected("the same epoch, or a later one"));
        }
        self.last_epoch = line.epoch;
        let full = self.recorded.header.batch.unwrap_or(BATCH_MOST).min(BATCH_MOST);
        if line.samples == 0 || line.samples > full {
            let hint = match self.recorded.header.batch {
                Some(_) if line.samples > 0 => {
                    "`samples` counts samples, not bytes; the first line says how many a full batch has"
                }
                _ => "a batch of several tensors has as many samples as each of them, not as there are tensors",
            };
            let wrong = Wrong::new(format!("a batch has {} samples", line.samples)).of("samples");
            return Err(wrong.expected(format!("1 to {full}")).hint(hint));
        }
        if self.recorded.samples + line.samples > SAMPLES_MOST {
            return Err(Wrong::new(format!("there are more than {SAMPLES_MOST} samples")).of("samples"));
        }
        if let Some(indices) = &line.indices
            && indices.len() as u64 != line.samples
        {
            let message = format!("{} samples have {} indices", line.samples, indices.len());
            return Err(Wrong::new(message).of("indices").expected("one for each sample"));
        }
        let has = [line.done.is_some(), line.indices.is_some(), line.bytes.is_some()];
        let before = *self.has.get_or_insert(has);
        for (field, (now, before)) in ["done", "indices", "bytes"].into_iter().zip(has.into_iter().zip(before)) {
            if now != before {
                let word = if now { "only some batches have" } else { "this batch has no" };
                let wrong = Wrong::new(format!("{word} `{field}`")).of(field);
                return Err(wrong.expected(format!("`{field}` in the line of every batch, or of none")));
            }
        }
        let BatchLine { epoch, samples, indices, bytes, skipped, .. } = line;
        Ok(Batch { epoch, asked, got, done, samples, indices, bytes, skipped, line: number })
    }

    /// The time since the start that a reading of the clock stands for; `earlier` says what it may not come before.
    fn time(&mut self, field: &'static str, clock_s: f64, earlier: &str) -> Result<Time, Wrong> {
        const YEARS_31: f64 = 1e9;
        let at_s = clock_s - self.recorded.header.start;
        let first = self.recorded.batches == 0 && field == "asked";
        if at_s < self.last_s {
            let earlier = if first { "the loader was started" } else { earlier };
            let message = format!("time goes backwards: `{field}` is {:.6} s before {earlier}", self.last_s - at_s);
            let wrong = Wrong::new(message).of(field).expected("a later time");
            return Err(wrong.hint(if first {
                "`start` and all times are readings of the same clock"
            } else {
                "one file is of one training loop on one monotonic clock"
            }));
        }
        if at_s > YEARS_31 {
            let wrong = Wrong::new(format!("`{field}` is {at_s:e} s after the start")).of(field).expected("seconds");
            return Err(wrong.hint("are these milliseconds or nanoseconds?"));
        }
        self.last_s = at_s;
        // Not negative and less than 2⁶³, as both were just seen to be.
        Ok(Time((at_s * 1e9).round() as u64))
    }

    fn record(&mut self, batch: &Batch) {
        let recorded = &mut self.recorded;
        let taken = Event {
            time: batch.got,
            since: batch.asked,
            sample: recorded.batches,
            bytes: batch.samples,
            epoch: batch.epoch,
            rank: 0,
            stage: StageId::CONSUMER,
            kind: Kind::Taken,
        };
        recorded.recorder.record(taken);
        for i in 0..batch.samples {
            // A sample without an index is named by its place in the trace.
            let sample = batch.indices.as_ref().map_or(recorded.samples + i, |indices| indices[i as usize]);
            recorded.recorder.record(Event { since: batch.got, sample, bytes: 0, kind: Kind::Delivered, ..taken });
        }
        if let Some(done) = batch.done {
            recorded.recorder.record(Event { time: done, since: batch.got, bytes: 0, kind: Kind::Step, ..taken });
        }
        recorded.batches += 1;
        recorded.samples += batch.samples;
        recorded.largest_batch = recorded.largest_batch.max(batch.samples);
        recorded.bytes = recorded.bytes.zip(batch.bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
        recorded.has_indices = batch.indices.is_some();
    }
}
