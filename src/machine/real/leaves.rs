//! The scheduler's table of leaves that are out.
//!
//! | state | means | left by |
//! | --- | --- | --- |
//! | `Out` | somebody awaits it | its news, or being given up |
//! | `Home` | it has ended, and its answer waits to be taken | its future, which frees the entry |
//! | `GivenUp` | nobody awaits it, but it still runs or its news is under way | its news, which frees the entry |
//! | `Free` | – | the next leaf |
//!
//! An entry is free only when the future is gone *and* no news can come any more, so a key never meets news of an earlier leaf.

use std::task::{Context, Poll, Waker};

use super::home::Completion;
use crate::{
    failure::FailureKind,
    machine::{Op, Time},
    sync::GivenUp,
    trace::{Event, Kind, LeafTime, Recorder, StageId},
};

/// Leaves that are out.
#[derive(Default)]
pub(super) struct Leaves {
    entries: Vec<Entry>,
    free: Vec<u32>,
    out: usize,
    given_up: usize,
    cpu: Vec<LeafCpu>,
    times: Vec<(Op, LeafTime)>,
}

struct Entry {
    op: Op,
    queued: Time,
    state: State,
}

enum State {
    Free,
    Out(Option<Waker>),
    Home,
    GivenUp { recorded: bool },
}

/// What the leaves of one stage have used, summed over those that were run to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafCpu {
    /// The stage.
    pub stage: StageId,
    /// How many leaves.
    pub leaves: u64,
    /// CPU time of their threads \[ns\].
    pub cpu_ns: u64,
    /// From start to end on the wall \[ns\].
    pub wall_ns: u64,
}

impl Leaves {
    /// Enters a leaf that is submitted now, and returns its key.
    pub(super) fn submit(&mut self, op: Op, queued: Time) -> u32 {
        let entry = Entry { op, queued, state: State::Out(None) };
        self.out += 1;
        if let Some(key) = self.free.pop() {
            self.entries[key as usize] = entry;
            return key;
        }
        self.entries.push(entry);
        u32::try_from(self.entries.len() - 1).expect("four thousand million leaves do not fit into memory")
    }

    /// Ready when the leaf has ended; else its task is woken when it does.
    pub(super) fn poll(&mut self, key: u32, cx: &Context<'_>) -> Poll<()> {
        match &mut self.entries[key as usize].state {
            State::Out(Some(waker)) => waker.clone_from(cx.waker()),
            State::Out(none) => *none = Some(cx.waker().clone()),
            State::Home => return Poll::Ready(()),
            State::Free | State::GivenUp { .. } => unreachable!("a leaf that is awaited is out or home"),
        }
        Poll::Pending
    }

    /// Whether the leaf has come home.
    pub(super) fn is_home(&self, key: u32) -> bool {
        matches!(self.entries[key as usize].state, State::Home)
    }

    /// The future of a leaf that has ended is gone.
    pub(super) fn release(&mut self, key: u32) {
        debug_assert!(self.is_home(key), "only the news of its end sends a leaf home");
        self.retire(key);
    }

    /// The future of a leaf that is still out is gone, which came to `fate`.
    pub(super) fn give_up(&mut self, key: u32, fate: GivenUp, now: Time, recorder: &mut Recorder) {
        let Entry { op, queued, .. } = self.entries[key as usize];
        match fate {
            GivenUp::Removed => {
                recorder.record(event(&op, Kind::Abandon, now, queued, 0));
                self.out -= 1;
                self.retire(key);
            }
            GivenUp::Running(since_ns) => {
                let start = Time(since_ns);
                recorder.record(event(&op, Kind::Start, start, queued, 0));
                recorder.record(event(&op, Kind::Abandon, now, start, 0));
                self.entries[key as usize].state = State::GivenUp { recorded: true };
                self.given_up += 1;
            }
            GivenUp::Ended => {
                self.entries[key as usize].state = State::GivenUp { recorded: false };
                self.given_up += 1;
            }
        }
    }

    /// Takes the news of a leaf's end: records it and returns who awaits it.
    pub(super) fn arrive(&mut self, news: &Completion, recorder: &mut Recorder) -> Option<Waker> {
        let entry = &mut self.entries[news.key as usize];
        let (op, queued) = (entry.op, entry.queued);
        let (waker, recorded) = match std::mem::replace(&mut entry.state, State::Home) {
            State::Out(waker) => (waker, false),
            State::GivenUp { recorded } => {
                self.given_up -= 1;
                self.retire(news.key);
                (None, recorded)
            }
            State::Home | State::Free => unreachable!("a leaf ends once"),
        };
        self.out -= 1;
        if !recorded {
            recorder.record(event(&op, Kind::Start, news.start, queued, 0));
            let (kind, bytes) = news.failed.map_or((Kind::End, news.bytes), |kind: FailureKind| (Kind::Fail, kind.code()));
            recorder.record(event(&op, kind, news.end, news.start, bytes));
        }
        if news.cpu_ns > 0 {
            self.add_cpu(op.stage, news);
            self.times.push((op, LeafTime { cpu_ns: news.cpu_ns, wall_ns: news.end.since(news.start) }));
        }
        waker
    }

    /// Leaves submitted whose end is not known yet.
    pub(super) fn out(&self) -> usize {
        self.out
    }

    /// Those of them that nobody awaits any more.
    pub(super) fn given_up(&self) -> usize {
        self.given_up
    }

    /// CPU time by stage.
    pub(super) fn cpu(&self) -> &[LeafCpu] {
        &self.cpu
    }

    /// What every leaf took, in the order of arrival.
    pub(super) fn take_times(&mut self) -> Vec<(Op, LeafTime)> {
        std::mem::take(&mut self.times)
    }

    fn retire(&mut self, key: u32) {
        self.entries[key as usize].state = State::Free;
        self.free.push(key);
    }

    fn add_cpu(&mut self, stage: StageId, news: &Completion) {
        let at = self.cpu.iter().position(|sum| sum.stage == stage).unwrap_or_else(|| {
            self.cpu.push(LeafCpu { stage, leaves: 0, cpu_ns: 0, wall_ns: 0 });
            self.cpu.len() - 1
        });
        let sum = &mut self.cpu[at];
        sum.leaves += 1;
        sum.cpu_ns += news.cpu_ns;
        sum.wall_ns += news.end.since(news.start);
    }
}

/// The machine's event about a leaf.
pub(super) fn event(op: &Op, kind: Kind, time: Time, since: Time, bytes: u64) -> Event {
    Event { time, since, sample: op.item.sample, bytes, epoch: op.item.epoch, rank: op.rank, stage: op.stage, kind }
}
