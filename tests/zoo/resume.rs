//! Where a run stands after a batch, as the kit saves it.

use std::rc::Rc;

use towtank::check::Job;

use crate::zoo::{defect::Defect, kit::Cx};

/// Where a rank stands: the epoch of its next batch, and what of it was consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Epoch of the next sample.
    pub epoch: u32,
    /// Samples of it, of this rank, that were delivered or skipped.
    pub taken: u64,
    /// Batches of it that were delivered.
    pub steps: u64,
    /// Batches of the run.
    pub batches: u64,
}

impl Position {
    /// After the last batch of an epoch the next one begins.
    pub fn settled(self, cx: &Cx) -> Position {
        let towtank::loader::Shape { samples, steps } = cx.plan.shape(self.epoch);
        // Empty batches may still be due.
        match self.taken >= samples && (self.steps >= steps || !cx.settings.tail.fixes_steps()) {
            true => Position { epoch: self.epoch + 1, taken: 0, steps: 0, ..self },
            false => self,
        }
    }

    /// As bytes.
    pub fn save(self, cx: &Cx) -> Vec<u8> {
        let planned = cx.plan.shape(self.epoch).samples;
        let saved = match cx.defect() {
            // All of an epoch is taken for none of it.
            Some(Defect::Resume1) if self.taken >= planned => Position { taken: 0, steps: 0, ..self },
            // What workers were given counts, and not what came out of the loader.
            Some(Defect::Resume19) => {
                let (epoch, taken) = cx.handed_out.get();
                Position { epoch, taken, ..self }.settled(cx)
            }
            _ => self.settled(cx),
        };
        let words = [u64::from(saved.epoch), saved.taken, saved.steps, saved.batches];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// From bytes.
    fn load(saved: &[u8]) -> Position {
        let word = |k: usize| u64::from_le_bytes(saved[8 * k..8 * k + 8].try_into().expect("eight bytes"));
        Position { epoch: word(0) as u32, taken: word(1), steps: word(2), batches: word(3) }
    }

    /// Where a run begins.
    pub fn of(cx: &Rc<Cx>, job: &Job) -> Position {
        let Some(saved) = job.resumes_from() else { return Position::default() };
        let saved = Position::load(saved);
        match cx.defect() {
            // The epoch is no part of the sampler's state.
            Some(Defect::Resume3) => Position { epoch: 0, ..saved },
            // States are kept by worker, and without workers there is none.
            Some(Defect::Resume10) if cx.workers == 1 => Position::default(),
            // Every worker must have left a state, and one that had no sample yet has left none.
            Some(Defect::Resume16) => {
                let states: Vec<u64> = (0..saved.batches * cx.settings.batch as u64).take(cx.workers).collect();
                assert_eq!(states.len(), cx.workers, "a state of every worker");
                saved
            }
            // Past the first shard of four the state names a shard of the other order.
            Some(Defect::Resume7) if saved.taken >= 4 => Position { taken: saved.taken - saved.taken % 4, ..saved },
            // The buffer is not saved: the stream goes on behind what was in it.
            Some(Defect::Resume6) if saved.taken > 0 => Position { taken: saved.taken + cx.shape.buffer as u64, ..saved },
            _ => saved,
        }
    }
}
