//! A loader that has stopped leaves nothing behind.

use super::{Asked, Broken, Ended, Invariant, of_rank};
use crate::{
    loader::Outcome,
    sim::Left,
    trace::{Event, Kind},
};

/// When a rank has ended, whether at the end of the plan, after an error or because its consumer left after any number of batches, nothing
/// of it is left: no task, no leaf, no thread, no byte that is reserved, no slot that is away, and books that balance. It is broken by a
/// read that nobody gave up, by a task that waits for ever, and by bytes that never came back.
pub struct CleanStop<'a> {
    asked: Asked<'a>,
    /// Leaves that were submitted and have not ended.
    leaves: i64,
    reserved: i64,
}

impl<'a> CleanStop<'a> {
    /// Before a run.
    pub fn new(asked: Asked<'a>) -> CleanStop<'a> {
        CleanStop { asked, leaves: 0, reserved: 0 }
    }
}

impl Invariant for CleanStop<'_> {
    fn name(&self) -> &'static str {
        "clean_stop"
    }

    fn event(&mut self, event: &Event) -> Result<(), Broken> {
        match event.kind {
            Kind::Queued => self.leaves += 1,
            Kind::End | Kind::Fail | Kind::Abandon => self.leaves -= 1,
            Kind::Reserve => self.reserved = self.reserved.saturating_add_unsigned(event.bytes),
            Kind::Refund => self.reserved = self.reserved.saturating_sub_unsigned(event.bytes),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, ended: &Ended<'_>) -> Result<(), Broken> {
        if ended.stall.is_some() {
            return Ok(());
        }
        let broken = |why: String| Err(Broken::new(why).at(ended.at));
        let Left { tasks, leaves, threads, .. } = ended.left;
        if (tasks, leaves, threads) != (0, 0, 0) {
            return broken(format!("{tasks} tasks, {leaves} leaves and {threads} busy threads were left at the end"));
        }
        if self.leaves != 0 {
            return broken(format!("{} leaves were submitted and neither ended nor were given up", self.leaves));
        }
        let whole = (0..self.asked.ranks.len()).all(|rank| ended.finished(rank as u16));
        if whole && self.reserved != 0 {
            return broken(format!("{} of the bytes that were reserved never came back", self.reserved));
        }
        for end in ended.ends {
            if let Some(why) = end.outcome.as_ref().and_then(left_behind) {
                let broken = Broken::new(of_rank(end.rank, self.asked.ranks.len(), why)).at(ended.at);
                return Err(Broken { rank: Some(end.rank), ..broken });
            }
        }
        Ok(())
    }
}

/// What a loader's books say it has left behind.
fn left_behind(outcome: &Outcome) -> Option<String> {
    let Outcome { accounts, memory, slots, end, .. } = outcome;
    let ended = matches!(end, crate::loader::End::Finished);
    if memory.reserved_bytes > 0 {
        Some(format!("{} encoded bytes are still reserved", memory.reserved_bytes))
    } else if slots.lent > 0 {
        Some(format!("{} slots are with a consumer that has left", slots.lent))
    } else if ended && slots.home != slots.ring {
        Some(format!("{} of {} slots came home", slots.home, slots.ring))
    } else if !accounts.balanced() {
        Some(format!("its books do not balance: {accounts}"))
    } else if ended && accounts.in_flight > 0 {
        Some(format!("{} samples are still in flight at the end of the plan", accounts.in_flight))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            example::{asked, event, of_loader, resolved},
            fold,
        },
        *,
    };
    use crate::{loader::Settings, machine::Time, trace::StageId};

    fn judged(events: &[Event], left: Left) -> Result<(), String> {
        let ranks = resolved(Settings::new(4, 2, 1));
        let ended = Ended { got: &[], ends: &[], stall: None, left, held_bytes_peak: 0, at: Time(0), leaves: false };
        fold(&mut CleanStop::new(asked(&ranks)), events, &ended).map_err(|broken| broken.why)
    }

    #[test]
    fn what_is_left_behind_breaks_it() {
        let read = |kind| event(1, StageId::FETCH, 3, kind);
        assert_eq!(judged(&[read(Kind::Queued), read(Kind::Start), read(Kind::Abandon)], Left::default()), Ok(()));
        let never = judged(&[read(Kind::Queued), read(Kind::Start)], Left::default());
        assert_eq!(never, Err("1 leaves were submitted and neither ended nor were given up".to_owned()));
        let bytes = [of_loader(1, 3, Kind::Reserve, 60), of_loader(2, 3, Kind::Refund, 50)];
        assert_eq!(judged(&bytes, Left::default()), Err("10 of the bytes that were reserved never came back".to_owned()));
        let task = judged(&[], Left { tasks: 2, ..Left::default() });
        assert_eq!(task, Err("2 tasks, 0 leaves and 0 busy threads were left at the end".to_owned()));
    }
}
