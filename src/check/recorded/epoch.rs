//! One epoch of all ranks: which samples came, where they stand in the traces, and what that breaks.

use super::{Asked, ERRORS_SURFACED, EXACTLY_ONCE, ORDER_KEPT, RANKS_SHARE};
use crate::scenario::Tail;

/// A sample that came, or that was left out. 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Came {
    /// Its number in the dataset.
    pub(super) index: u64,
    /// The line of its batch.
    pub(super) line: u64,
    pub(super) rank: u32,
    pub(super) skipped: bool,
}

/// All that came, rank after rank, each in order.
#[derive(Debug, Default)]
pub(super) struct Epoch {
    pub(super) came: Vec<Came>,
}

/// An invariant that is broken, by which sample, and how.
type Broken = (&'static str, Came, String);

impl Epoch {
    /// What is broken in it. Where it is `whole`, all that was to come has; `last` is its last line.
    pub(super) fn judge(&self, number: u32, asked: &Asked, whole: bool, last: u64) -> Vec<Broken> {
        let mut broken = Vec::new();
        if asked.ordered {
            self.order(number, asked, &mut broken);
        }
        let mut sorted = self.came.clone();
        sorted.sort_by_key(|came| (came.index, came.rank, came.line));
        let outside = sorted.partition_point(|came| came.index < asked.count);
        if let Some(came) = sorted.get(outside) {
            let why = format!("sample {} is not in the dataset, which has {}, counted from 0", came.index, asked.count);
            broken.push((EXACTLY_ONCE, *came, why));
        }
        sorted.truncate(outside);
        let twice = self.twice(number, asked, &sorted, &mut broken);
        if whole && !self.came.is_empty() {
            sorted.dedup_by_key(|came| came.index);
            missing(number, asked, &sorted, last, twice, &mut broken);
        }
        for came in self.came.iter().filter(|came| came.skipped && !asked.skips) {
            let why = format!("sample {} was left out, and the scenario has `errors = \"fail\"`", came.index);
            broken.push((ERRORS_SURFACED, *came, why));
        }
        broken
    }

    /// Where samples do not rise.
    fn order(&self, number: u32, asked: &Asked, broken: &mut Vec<Broken>) {
        let delivered: Vec<&Came> = self.came.iter().filter(|came| !came.skipped).collect();
        // What pads a rank begins anew.
        let pads = asked.tail == Tail::Pad && asked.shapes.len() > 1;
        for (k, pair) in delivered.windows(2).enumerate() {
            let [before, after] = [pair[0], pair[1]];
            let is_pad = pads && delivered.get(k + 2).is_none_or(|next| next.rank != after.rank);
            if before.rank == after.rank && before.index >= after.index && !is_pad {
                let why = format!("sample {} of epoch {number} comes after sample {}", after.index, before.index);
                broken.push((ORDER_KEPT, *after, why));
            }
        }
    }

    /// Samples that stand in the traces more than once; how many of them pad a rank's share.
    fn twice(&self, number: u32, asked: &Asked, sorted: &[Came], broken: &mut Vec<Broken>) -> u64 {
        let due: u64 = (0..asked.shapes.len()).map(|rank| asked.due(rank)).sum();
        let (mut pads, may_pad) = (0, if asked.tail == Tail::Pad { due.saturating_sub(asked.count) } else { 0 });
        for pair in sorted.windows(2).filter(|pair| pair[0].index == pair[1].index) {
            let [first, second] = [pair[0], pair[1]];
            let index = first.index;
            let [earlier, later] =
                if (first.rank, first.line) <= (second.rank, second.line) { [first, second] } else { [second, first] };
            if first.skipped != second.skipped {
                let left_out = if first.skipped { first } else { second };
                let why = format!("sample {index} of epoch {number} came, and line {} says that it was left out", left_out.line);
                broken.push((ERRORS_SURFACED, later, why));
            } else if first.rank != second.rank {
                pads += 1;
                if pads > may_pad {
                    let why = format!(
                        "sample {index} of epoch {number} came to rank {}, line {}, and to rank {}",
                        earlier.rank, earlier.line, later.rank
                    );
                    broken.push((RANKS_SHARE, later, why));
                }
            } else {
                let what = if first.skipped { "was left out" } else { "came" };
                let why = match earlier.line == later.line {
                    true => format!("sample {index} of epoch {number} {what} twice, both times in this line"),
                    false => format!("sample {index} of epoch {number} {what} twice, first in line {}", earlier.line),
                };
                broken.push((EXACTLY_ONCE, later, why));
            }
        }
        pads.min(may_pad)
    }
}

/// Samples that never came; `sorted` has each once.
fn missing(number: u32, asked: &Asked, sorted: &[Came], last: u64, pads: u64, broken: &mut Vec<Broken>) {
    let due: u64 = (0..asked.shapes.len()).map(|rank| asked.due(rank)).sum();
    let (came, due) = (sorted.len() as u64, (due - pads).min(asked.count));
    if came >= due {
        return;
    }
    let at = Came { index: 0, line: last, rank: 0, skipped: false };
    let first = sorted.iter().zip(0..).position(|(came, index)| came.index != index).unwrap_or(sorted.len());
    let why = match due == asked.count {
        true if due - came == 1 => format!("sample {first} never came in epoch {number}, whose last line this is"),
        true => format!("sample {first} never came in epoch {number}, whose last line this is, nor did {} more", due - came - 1),
        false => format!("{came} samples came in epoch {number}, whose last line this is, and {due} were to"),
    };
    broken.push((EXACTLY_ONCE, at, why));
}
