//! Memory stays within its budget.

use super::{Asked, Broken, Ended, Invariant, of_rank};
use crate::{
    machine::Item,
    trace::{Event, Kind},
};

/// Bytes stay within the budget: the encoded bytes that a rank has reserved and not given back never exceed what its budget leaves for
/// them, and slots and device batches are no more than was planned. It is broken by a read that begins before its bytes are reserved, by
/// a reservation beyond the budget, and by a byte that is given back twice.
pub struct BytesWithinBudget<'a> {
    asked: Asked<'a>,
    reserved: Vec<u64>,
}

impl<'a> BytesWithinBudget<'a> {
    /// Before a run.
    pub fn new(asked: Asked<'a>) -> BytesWithinBudget<'a> {
        BytesWithinBudget { asked, reserved: vec![0; asked.ranks.len()] }
    }
}

impl Invariant for BytesWithinBudget<'_> {
    fn name(&self) -> &'static str {
        "bytes_within_budget"
    }

    fn event(&mut self, event: &Event) -> Result<(), Broken> {
        let rank = usize::from(event.rank);
        let (Some(reserved), Some(resolved)) = (self.reserved.get_mut(rank), self.asked.ranks.get(rank)) else { return Ok(()) };
        let wrong = match event.kind {
            Kind::Reserve => {
                *reserved = reserved.saturating_add(event.bytes);
                let (now, most) = (*reserved, resolved.ledger_bytes);
                (now > most).then(|| format!("{now} encoded bytes are reserved, and the budget leaves {most} for them"))
            }
            Kind::Refund => {
                let left = reserved.checked_sub(event.bytes);
                let had = std::mem::replace(reserved, left.unwrap_or(0));
                left.is_none().then(|| format!("{} bytes were given back, and only {had} were reserved", event.bytes))
            }
            _ => None,
        };
        match wrong {
            None => Ok(()),
            Some(why) => {
                let item = Item { epoch: event.epoch, position: 0, sample: event.sample };
                Err(Broken::new(of_rank(event.rank, self.asked.ranks.len(), why)).at(event.time).by(event.rank, item))
            }
        }
    }

    fn end(&mut self, ended: &Ended<'_>) -> Result<(), Broken> {
        let fixed: u64 = self.asked.ranks.iter().map(|rank| rank.fixed_bytes - rank.settings.scratch_bytes).sum();
        if ended.held_bytes_peak > fixed {
            let why = format!("slots and batches on the device were {} bytes, planned were {fixed}", ended.held_bytes_peak);
            return Err(Broken::new(why).at(ended.at));
        }
        for end in ended.ends {
            let Some(memory) = end.outcome.as_ref().map(|outcome| outcome.memory) else { continue };
            let budget = self.asked.ranks.get(usize::from(end.rank)).map_or(0, |rank| rank.settings.budget_bytes);
            let most = memory.fixed_bytes + memory.peak_reserved_bytes;
            if most > budget && memory.overruns == 0 {
                let why = of_rank(end.rank, self.asked.ranks.len(), format!("{most} bytes were held, the budget is {budget}"));
                return Err(Broken { rank: Some(end.rank), ..Broken::new(why).at(ended.at) });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::example::{asked, judge, of_loader, resolved},
        *,
    };
    use crate::loader::Settings;

    #[test]
    fn a_byte_too_many_breaks_it_and_so_does_one_given_back_twice() {
        // 100 bytes for encoded samples, beside a ring of 4 and 3 batches of 2 slots of a byte.
        let settings = Settings { sample_bytes: 60, ring: Some(4), budget_bytes: 110, ..Settings::new(8, 2, 1) };
        let ranks = resolved(settings);
        assert_eq!(ranks[0].ledger_bytes, 100);
        let judged = |events: &[Event]| judge(&mut BytesWithinBudget::new(asked(&ranks)), events, &[]);
        let [first, second] = [of_loader(1, 0, Kind::Reserve, 60), of_loader(2, 1, Kind::Reserve, 40)];
        assert_eq!(judged(&[first, second, of_loader(3, 0, Kind::Refund, 60), of_loader(4, 2, Kind::Reserve, 60)]), Ok(()));
        let over = judged(&[first, second, of_loader(3, 2, Kind::Reserve, 1)]);
        assert_eq!(over, Err("101 encoded bytes are reserved, and the budget leaves 100 for them".to_owned()));
        let twice = judged(&[first, of_loader(2, 0, Kind::Refund, 60), of_loader(3, 0, Kind::Refund, 60)]);
        assert_eq!(twice, Err("60 bytes were given back, and only 0 were reserved".to_owned()));
    }
}
