//! Where a machine's events go.

use std::io;

use super::{Checkpoints, Event, Sink, StageId, Summary, Timeline, TraceHash};

/// Takes a machine's events as they come: always into a [hash](TraceHash), into a [summary](Summary) unless nobody wants one, and on demand
/// into a list and a [sink](Sink) too.
///
/// One writer: the scheduler. It is the simulator's hottest call, so it allocates nothing per event.
pub struct Recorder {
    hash: TraceHash,
    count: u64,
    summary: Summary,
    summarizes: bool,
    kept: Option<Vec<Event>>,
    checkpoints: Option<Checkpoints>,
    timeline: Option<Box<Timeline>>,
    sink: Option<Box<dyn Sink>>,
    /// Whether there is a list, checkpoints, a timeline or a sink.
    tells_more: bool,
    names: Vec<(StageId, &'static str)>,
}

impl Recorder {
    /// Kept events that there is room for at first.
    const KEPT_AT_FIRST: usize = 1024;

    /// A recorder with hash and summary.
    pub fn new() -> Recorder {
        Recorder {
            hash: TraceHash::EMPTY,
            count: 0,
            summary: Summary::new(),
            summarizes: true,
            kept: None,
            checkpoints: None,
            timeline: None,
            sink: None,
            tells_more: false,
            names: Vec::new(),
        }
    }

    /// Leaves the summary out: it stays that of no events. For thousands of short runs that are looked at event by event.
    pub fn without_summary(mut self) -> Recorder {
        self.summarizes = false;
        self
    }

    /// Keeps every event too: 40 bytes each, with room for those of a short run from the beginning.
    pub fn keep_events(mut self) -> Recorder {
        self.kept = Some(Vec::with_capacity(Recorder::KEPT_AT_FIRST));
        self.tells_more = true;
        self
    }

    /// Keeps the hash after every so many events too: see [`Checkpoints`].
    pub fn keep_checkpoints(mut self) -> Recorder {
        self.checkpoints = Some(Checkpoints::default());
        self.tells_more = true;
        self
    }

    /// Tells how many samples can be prepared at the same time: the least of cores, lanes and the limit of the decode stage.
    /// Without it the data stall is not split into [its causes](super::Stall).
    pub fn preparation_servers(mut self, servers: u32) -> Recorder {
        self.summary = self.summary.with_preparation_servers(servers);
        self
    }

    /// Folds events into a [`Timeline`] too.
    pub fn keep_timeline(mut self) -> Recorder {
        self.timeline = Some(Box::default());
        self.tells_more = true;
        self
    }

    /// Hands every event on to `sink` too.
    pub fn stream_to(mut self, sink: impl Sink + 'static) -> Recorder {
        self.sink = Some(Box::new(sink));
        self.tells_more = true;
        self
    }

    /// Takes one event.
    #[inline(always)]
    pub fn record(&mut self, event: Event) {
        self.hash.update(&event);
        self.count += 1;
        if self.summarizes {
            self.summary.update(&event);
        }
        if self.tells_more {
            self.tell_more(event);
        }
    }

    /// Hands an event on to whoever else wants it.
    #[cold]
    fn tell_more(&mut self, event: Event) {
        if let Some(kept) = &mut self.kept {
            kept.push(event);
        }
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.note(self.hash.get());
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.update(&event);
        }
        if let Some(sink) = &mut self.sink {
            sink.event(&event);
        }
    }

    /// Names a user's stage.
    pub fn name_stage(&mut self, stage: StageId, name: &'static str) {
        match self.names.iter_mut().find(|(known, _)| *known == stage) {
            Some(known) => known.1 = name,
            None => self.names.push((stage, name)),
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.name_stage(stage, name);
        }
        if let Some(sink) = &mut self.sink {
            sink.name_stage(stage, name);
        }
    }

    /// What `stage` is called: the built-in name, the one given to [`name_stage`](Recorder::name_stage), or `"stage"`.
    pub fn name_of(&self, stage: StageId) -> &'static str {
        let given = || self.names.iter().find(|(known, _)| *known == stage).map(|(_, name)| *name);
        stage.name().or_else(given).unwrap_or("stage")
    }

    /// The kept events; empty without [`keep_events`](Recorder::keep_events).
    pub fn events(&self) -> &[Event] {
        self.kept.as_deref().unwrap_or_default()
    }

    /// Takes the kept events out.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Hashes on the way; `None` without [`keep_checkpoints`](Recorder::keep_checkpoints).
    pub fn checkpoints(&self) -> Option<&Checkpoints> {
        self.checkpoints.as_ref()
    }

    /// The run over time; `None` without [`keep_timeline`](Recorder::keep_timeline).
    pub fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_deref()
    }

    /// How many events there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// Closes the sink, if there is one, and tells the first error it met. A recorder that is dropped instead closes it too, but
    /// tells nobody.
    pub fn finish(&mut self) -> io::Result<()> {
        self.sink.as_mut().map_or(Ok(()), |sink| sink.finish())
    }

    /// What the events so far amount to; nothing [without a summary](Recorder::without_summary).
    pub fn summary(&self) -> &Summary {
        &self.summary
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorder of {} events, hash {:016x}", self.count(), self.hash())
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder::new()
    }
}
