//! A trace to look at: Chrome's trace event format, which Perfetto opens, written while the run goes on.
//!
//! | group | rows | spans | counters |
//! | --- | --- | --- | --- |
//! | lanes | as many as were busy at once | a sample from launch to filled slot, or to its being skipped | encoded bytes reserved, filled slots |
//! | each stage | as many as were busy at once | a leaf from start to end or failure | – |
//! | prefetch | as many as were ready at once | a batch from ready to taken | ready batches |
//! | consumer | one, if it does one thing at a time | waiting for a batch, a step | – |
//!
//! Retries, skips and leaves given up on are marks. Groups repeat per rank. Times are microseconds since the machine's start, to
//! the nanosecond.
//!
//! # Rows
//!
//! A span is known when it ends. It goes to the row whose last span ended latest, but not after this one began; without such a
//! row, to a new one. Spans that arrive in order of their ends are so put on the fewest rows there can be; others may take a row
//! more, but never overlap within one.
//!
//! # Memory
//!
//! Held back until the end are only the changes of the ready-batches counter, two per batch: the consumer's half of them comes
//! late, and a counter must be written in order of time.

use std::io::{self, Write};

use self::json::Json;
use crate::{
    failure::FailureKind,
    machine::Time,
    trace::{Event, Gauge, Kind, Sink, StageId},
};

mod json;

/// Writes a trace as Chrome trace JSON, for <https://ui.perfetto.dev>. See the [module documentation](self).
///
/// The output is complete only after [`finish`](Sink::finish) or drop; viewers read a file without its end too.
pub struct Perfetto {
    out: Box<dyn Write + Send>,
    json: Json,
    error: Option<io::Error>,
    finished: bool,
    names: Vec<(StageId, &'static str)>,
    groups: Vec<Group>,
    /// In the order of their numbers.
    ranks: Vec<Rank>,
    rows: u32,
}

/// What a group of rows shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    Lanes,
    Stage(StageId),
    Prefetch,
    Consumer,
}

struct Group {
    rank: u16,
    shows: Shows,
    pid: u32,
    /// What spans of a stage are called, quoted.
    label: String,
    rows: Vec<Row>,
}

struct Row {
    tid: u32,
    end: Time,
}

struct Rank {
    rank: u16,
    ledger: Gauge,
    ring: Gauge,
    ready: Vec<(Time, i8)>,
}

/// Bytes collected before they are written.
const BUFFER_BYTES: usize = 1 << 16;

impl Perfetto {
    /// How every trace begins.
    pub const START: &'static str = r#"{"displayTimeUnit":"ns","traceEvents":["#;

    /// Writes to `out`, in pieces of 64 KiB: a file needs no buffer of its own.
    pub fn new(out: impl Write + Send + 'static) -> Perfetto {
        let mut json = Json::with_capacity(BUFFER_BYTES + 1024);
        json.raw(Perfetto::START);
        Perfetto {
            out: Box::new(out),
            json,
            error: None,
            finished: false,
            names: Vec::new(),
            groups: Vec::new(),
            ranks: Vec::new(),
            rows: 0,
        }
    }

    fn span(&mut self, event: &Event, shows: Shows, what: &Label) {
        let group = self.group(event.rank, shows);
        let (start, end) = (event.since.min(event.time), event.time);
        let row = self.row(group, start, end);
        let group = &self.groups[group];
        let json = &mut self.json;
        json.event("X", group.pid);
        json.number(",\"tid\":", u64::from(row));
        json.micros(",\"ts\":", start.0);
        json.micros(",\"dur\":", end.since(start));
        json.raw(",\"name\":");
        match what {
            Label::Stage => json.raw(&group.label),
            Label::Failed(kind) => json.quoted(&["failed: ", kind]),
            Label::Numbered(word) => json.numbered(word, event.sample),
        }
        json.raw(",\"args\":{");
        let batch = matches!(shows, Shows::Prefetch | Shows::Consumer)
            || matches!(shows, Shows::Stage(StageId::TRANSFER | StageId::DEVICE));
        json.number(if batch { "\"batch\":" } else { "\"sample\":" }, event.sample);
        json.number(",\"epoch\":", u64::from(event.epoch));
        if event.kind == Kind::End {
            json.number(",\"bytes\":", event.bytes);
        }
        json.raw("}}");
    }

    fn mark(&mut self, event: &Event, shows: Shows, words: &[&str]) {
        let group = self.group(event.rank, shows);
        let tid = self.groups[group].rows.first().map(|row| row.tid);
        let tid = tid.unwrap_or_else(|| self.add_row(group, Time::ZERO));
        let json = &mut self.json;
        json.event("i", self.groups[group].pid);
        json.number(",\"tid\":", u64::from(tid));
        json.micros(",\"ts\":", event.time.0);
        json.raw(",\"s\":\"p\",\"name\":");
        json.quoted(words);
        json.number(",\"args\":{\"sample\":", event.sample);
        json.number(",\"epoch\":", u64::from(event.epoch));
        json.raw("}}");
    }

    fn counter(&mut self, rank: u16, shows: Shows, quoted: &str, at: Time, value: i64) {
        let group = self.group(rank, shows);
        let json = &mut self.json;
        json.event("C", self.groups[group].pid);
        json.micros(",\"ts\":", at.0);
        json.raw(",\"name\":");
        json.raw(quoted);
        json.number(",\"args\":{\"value\":", u64::try_from(value).unwrap_or(0));
        json.raw("}}");
    }

    fn rank(&mut self, rank: u16) -> &mut Rank {
        let at = self.ranks.binary_search_by_key(&rank, |r| r.rank).unwrap_or_else(|at| {
            self.ranks.insert(at, Rank { rank, ledger: Gauge::default(), ring: Gauge::default(), ready: Vec::new() });
            at
        });
        &mut self.ranks[at]
    }

    fn ledger(&mut self, event: &Event, delta: i64) {
        let ledger = &mut self.rank(event.rank).ledger;
        ledger.add(event.time, delta);
        let now = ledger.now();
        self.counter(event.rank, Shows::Lanes, "\"encoded bytes reserved\"", event.time, now);
    }

    fn ring(&mut self, event: &Event, delta: i64) {
        let ring = &mut self.rank(event.rank).ring;
        ring.add(event.time, delta);
        let now = ring.now();
        self.counter(event.rank, Shows::Lanes, "\"filled slots\"", event.time, now);
    }

    fn group(&mut self, rank: u16, shows: Shows) -> usize {
        match self.groups.iter().position(|g| g.shows == shows && g.rank == rank) {
            Some(at) => at,
            None => self.add_group(rank, shows),
        }
    }

    #[cold]
    fn add_group(&mut self, rank: u16, shows: Shows) -> usize {
        // Groups in the order in which a sample passes through them; users' stages lie between fetch and decode.
        let (place, name) = match shows {
            Shows::Lanes => (0, "lanes"),
            Shows::Stage(stage) => {
                let given = self.names.iter().find(|(known, _)| *known == stage).map(|(_, name)| *name);
                let place = match stage {
                    StageId::FETCH => 1,
                    StageId::DECODE => 300,
                    StageId::BATCH => 301,
                    StageId::TRANSFER => 302,
                    StageId::DEVICE => 303,
                    StageId(other) => 2 + u32::from(other),
                };
                (place, stage.name().or(given).unwrap_or("stage"))
            }
            Shows::Prefetch => (400, "prefetch"),
            Shows::Consumer => (401, "consumer"),
        };
        let pid = self.groups.len() as u32 + 1;
        let mut label = Json::with_capacity(32);
        label.quoted(&[name]);
        let label = label.into_string();
        let json = &mut self.json;
        json.event("M", pid);
        json.raw(",\"name\":\"process_name\",\"args\":{\"name\":");
        match rank {
            0 => json.raw(&label),
            _ => json.quoted(&[name, ", rank ", &rank.to_string()]),
        }
        json.raw("}}");
        json.event("M", pid);
        json.number(",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":", u64::from(u32::from(rank) * 1000 + place));
        json.raw("}}");
        self.groups.push(Group { rank, shows, pid, label, rows: Vec::new() });
        self.groups.len() - 1
    }

    /// The row for a span of `group`, claimed until `end`.
    fn row(&mut self, group: usize, start: Time, end: Time) -> u32 {
        let mut best: Option<&mut Row> = None;
        for row in &mut self.groups[group].rows {
            if row.end <= start && best.as_ref().is_none_or(|b| row.end > b.end) {
                let exact = row.end == start;
                best = Some(row);
                if exact {
                    break;
                }
            }
        }
        match best {
            Some(row) => {
                row.end = end;
                row.tid
            }
            None => self.add_row(group, end),
        }
    }

    #[cold]
    fn add_row(&mut self, group: usize, end: Time) -> u32 {
        // Viewers take a thread's number as unique in the whole trace.
        self.rows += 1;
        let (tid, group) = (self.rows, &mut self.groups[group]);
        group.rows.push(Row { tid, end });
        let number = group.rows.len() as u64;
        let json = &mut self.json;
        json.event("M", group.pid);
        json.number(",\"tid\":", u64::from(tid));
        json.number(",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":", number);
        json.raw("}}");
        json.event("M", group.pid);
        json.number(",\"tid\":", u64::from(tid));
        json.number(",\"name\":\"thread_name\",\"args\":{\"name\":\"", number);
        json.raw("\"}}");
        tid
    }

    fn write_out(&mut self) {
        if self.error.is_none()
            && let Err(error) = self.out.write_all(self.json.bytes())
        {
            self.error = Some(error);
        }
        self.json.clear();
    }
}

enum Label {
    Stage,
    Failed(&'static str),
    Numbered(&'static str),
}

impl Sink for Perfetto {
    fn event(&mut self, event: &Event) {
        if self.error.is_some() || self.finished {
            return;
        }
        let amount = i64::try_from(event.bytes).unwrap_or(i64::MAX);
        let stage = Shows::Stage(event.stage);
        match event.kind {
            Kind::End => self.span(event, stage, &Label::Stage),
            Kind::Fail => self.span(event, stage, &Label::Failed(reason(event.bytes))),
            Kind::Abandon => self.mark(event, stage, &["given up"]),
            Kind::Retry => self.mark(event, stage, &["retry"]),
            Kind::Reserve => self.ledger(event, amount),
            Kind::Refund => self.ledger(event, -amount),
            Kind::Filled => {
                self.span(event, Shows::Lanes, &Label::Numbered("sample "));
                self.ring(event, 1);
            }
            Kind::Skipped => {
                self.span(event, Shows::Lanes, &Label::Failed(reason(event.bytes)));
                self.mark(event, Shows::Lanes, &["skipped: ", reason(event.bytes)]);
            }
            Kind::Dropped => self.ring(event, -1),
            Kind::Sealed => self.ring(event, -amount),
            Kind::Ready => self.rank(event.rank).ready.push((event.time, 1)),
            Kind::Idle => self.span(event, Shows::Prefetch, &Label::Numbered("batch ")),
            Kind::Taken => {
                self.rank(event.rank).ready.push((event.time, -1));
                self.span(event, Shows::Consumer, &Label::Numbered("wait for batch "));
            }
            Kind::Step => self.span(event, Shows::Consumer, &Label::Numbered("step ")),
            Kind::Launch | Kind::Queued | Kind::Start | Kind::Delivered | Kind::Returned | Kind::Stop => {}
        }
        if self.json.bytes().len() >= BUFFER_BYTES {
            self.write_out();
        }
    }

    fn name_stage(&mut self, stage: StageId, name: &'static str) {
        self.names.retain(|(known, _)| *known != stage);
        self.names.push((stage, name));
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.finished {
            return Ok(());
        }
        for mut rank in std::mem::take(&mut self.ranks) {
            rank.ready.sort_unstable();
            let mut changes = rank.ready.into_iter().peekable();
            let mut now = 0;
            while let Some((at, delta)) = changes.next() {
                now += i64::from(delta);
                if changes.peek().is_none_or(|(next, _)| *next > at) {
                    self.counter(rank.rank, Shows::Prefetch, "\"ready batches\"", at, now);
                }
                if self.json.bytes().len() >= BUFFER_BYTES {
                    self.write_out();
                }
            }
        }
        self.json.raw("\n]}\n");
        self.write_out();
        self.finished = true;
        match self.error.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }
}

impl Drop for Perfetto {
    fn drop(&mut self) {
        // Whoever wants to know whether it worked calls `finish`.
        let _ = self.finish();
    }
}

fn reason(code: u64) -> &'static str {
    FailureKind::from_code(code).map_or("unknown", FailureKind::name)
}

#[cfg(test)]
mod tests;
