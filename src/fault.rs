//! What goes wrong, declared as data and the same on both machines.
//!
//! [`Faults`] says which leaves are hit; [`Faults::verdict`] answers for one leaf, as a pure function of the seed and the leaf's
//! [`Op`]. A fault of a *sample* (missing, truncated, undecodable, one on which the job panics) hits every try in every epoch; a fault of
//! an *attempt* (transient, throttled, stalled, slow) is drawn anew for each, so that a retry may succeed.
//!
//! Faults of reads, copies and kernels are the machine's to carry out. A fault of a job must happen where user code runs, inside whatever
//! the loader does to survive it: the machine runs the job [`inside`] the fault, and the loader calls [`strike`] at that place. A
//! job in which nobody does fails as a whole.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use crate::{
    draw::{self, Block, Purpose},
    failure::{Failure, FailureKind},
    machine::Op,
    trace::StageId,
};

/// What can be hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// A read from the store.
    Read,
    /// A CPU job.
    Cpu,
    /// A copy to the device.
    Copy,
    /// A kernel on the device.
    Kernel,
}

/// What hits a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The leaf fails with this kind; a read does so when its first byte would have come.
    Fail(FailureKind),
    /// The read delivers only the first so many millionths of the bytes.
    Truncate {
        /// What is left, in millionths.
        keep_ppm: u32,
    },
    /// The read delivers bytes that are not what their format says.
    Garble,
    /// The job panics.
    Panic,
    /// The read delivers nothing and never ends.
    Stall,
    /// The leaf takes so many times as long.
    Slow {
        /// Factor, in whole times.
        times: u32,
    },
}

impl Fault {
    /// The failure that a fault which fails its leaf ends in; `None` for one that only spoils or delays it.
    pub fn failure(self) -> Option<Failure> {
        Some(match self {
            Fault::Fail(kind) => Failure::new(kind, "injected"),
            Fault::Panic => Failure::new(FailureKind::Panicked, "injected panic"),
            Fault::Truncate { .. } => Failure::new(FailureKind::Truncated, "injected: the data end early"),
            Fault::Garble => Failure::new(FailureKind::Corrupt, "injected: not what its format says"),
            Fault::Stall | Fault::Slow { .. } => return None,
        })
    }

    /// Does to the bytes of a read what [`Truncate`](Fault::Truncate) and [`Garble`](Fault::Garble) say; nothing for other faults.
    pub fn spoil(self, data: &mut Vec<u8>) {
        match self {
            Fault::Truncate { keep_ppm } => data.truncate(kept(data.len() as u64, keep_ppm) as usize),
            Fault::Garble => {
                let head = data.len().min(64);
                data[..head].fill(0);
            }
            _ => {}
        }
    }
}

/// What is left of `bytes` after a truncation.
pub(crate) fn kept(bytes: u64, keep_ppm: u32) -> u64 {
    (u128::from(bytes) * u128::from(keep_ppm.min(1_000_000)) / 1_000_000) as u64
}

/// Which samples, or attempts, a fault hits: a share of all, and some that are named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Share of all, in millionths.
    pub ppm: u32,
    /// Samples hit in any case; for a fault of attempts, at the first attempt of every epoch.
    pub samples: Vec<u64>,
}

impl Hits {
    /// None.
    pub const NONE: Hits = Hits { ppm: 0, samples: Vec::new() };

    /// A share of all, in millionths.
    pub const fn share(ppm: u32) -> Hits {
        Hits { ppm, samples: Vec::new() }
    }

    /// These samples.
    pub fn samples(samples: impl Into<Vec<u64>>) -> Hits {
        Hits { ppm: 0, samples: samples.into() }
    }

    fn is_empty(&self) -> bool {
        self.ppm == 0 && self.samples.is_empty()
    }

    fn hit(&self, word: u64, sample: u64, first: bool) -> bool {
        draw::below(word, 1_000_000) < u64::from(self.ppm) || (first && self.samples.contains(&sample))
    }
}

/// All that goes wrong in a run. The default is nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Samples that the store does not have.
    pub missing: Hits,
    /// Samples whose bytes end early.
    pub truncated: Hits,
    /// What is left of a truncated sample, in millionths.
    pub truncated_keep_ppm: u32,
    /// Samples whose bytes are not what their format says.
    pub undecodable: Hits,
    /// Samples on which the decode job panics.
    pub panicking: Hits,
    /// Reads that fail but may succeed when tried again.
    pub transient: Hits,
    /// Reads that the store refuses for now.
    pub throttled: Hits,
    /// Reads that never end.
    pub stalled: Hits,
    /// Reads that take [`slow_times`](Faults::slow_times) as long.
    pub slow_reads: Hits,
    /// CPU jobs that take [`slow_times`](Faults::slow_times) as long.
    pub slow_jobs: Hits,
    /// How many times as long a slow read, job or kernel takes.
    pub slow_times: u32,
    /// Copies, by the index of their batch in the run, on which the device fails.
    pub failed_copies: Hits,
    /// Kernels of a stage on the device, by the index of their batch in the run, on which the device fails.
    pub failed_kernels: Hits,
    /// Kernels of a stage on the device, by the index of their batch in the run, that take [`slow_times`](Faults::slow_times) as long.
    pub slow_kernels: Hits,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            missing: Hits::NONE,
            truncated: Hits::NONE,
            truncated_keep_ppm: 500_000,
            undecodable: Hits::NONE,
            panicking: Hits::NONE,
            transient: Hits::NONE,
            throttled: Hits::NONE,
            stalled: Hits::NONE,
            slow_reads: Hits::NONE,
            slow_jobs: Hits::NONE,
            slow_times: 10,
            failed_copies: Hits::NONE,
            failed_kernels: Hits::NONE,
            slow_kernels: Hits::NONE,
        }
    }
}

impl Faults {
    /// Whether nothing goes wrong.
    pub fn is_empty(&self) -> bool {
        [
            &self.missing,
            &self.truncated,
            &self.undecodable,
            &self.panicking,
            &self.transient,
            &self.throttled,
            &self.stalled,
            &self.slow_reads,
            &self.slow_jobs,
            &self.failed_copies,
            &self.failed_kernels,
            &self.slow_kernels,
        ]
        .iter()
        .all(|hits| hits.is_empty())
    }

    /// Only what hits samples that are named.
    #[must_use]
    pub fn of_named(&self) -> Faults {
        let named = |hits: &Hits| Hits { ppm: 0, samples: hits.samples.clone() };
        Faults {
            missing: named(&self.missing),
            truncated: named(&self.truncated),
            truncated_keep_ppm: self.truncated_keep_ppm,
            undecodable: named(&self.undecodable),
            panicking: named(&self.panicking),
            transient: named(&self.transient),
            throttled: named(&self.throttled),
            stalled: named(&self.stalled),
            slow_reads: named(&self.slow_reads),
            slow_jobs: named(&self.slow_jobs),
            slow_times: self.slow_times,
            failed_copies: named(&self.failed_copies),
            failed_kernels: named(&self.failed_kernels),
            slow_kernels: named(&self.slow_kernels),
        }
    }

    /// What hits the leaf of `op`, if anything does. Where several faults would, the first in the order of the fields of
    /// [`Faults`].
    pub fn verdict(&self, seed: u64, op: &Op, leaf: Leaf) -> Option<Fault> {
        let sample = op.item.sample;
        let lasting = || draw::draw(seed, Purpose::FAULT, sample, 0);
        match leaf {
            Leaf::Read => self.read_verdict(&lasting(), &passing(seed, op, leaf), op),
            Leaf::Cpu if op.stage == StageId::DECODE && self.panicking.hit(lasting().word(3), sample, true) => Some(Fault::Panic),
            Leaf::Cpu => {
                let slow = self.slow_jobs.hit(passing(seed, op, leaf).word(0), sample, op.attempt == 0);
                slow.then_some(Fault::Slow { times: self.slow_times })
            }
            Leaf::Copy => {
                let failed = self.failed_copies.hit(passing(seed, op, leaf).word(0), sample, op.attempt == 0);
                failed.then_some(Fault::Fail(FailureKind::Device))
            }
            Leaf::Kernel => {
                let (words, first) = (passing(seed, op, leaf), op.attempt == 0);
                if self.failed_kernels.hit(words.word(0), sample, first) {
                    return Some(Fault::Fail(FailureKind::Device));
                }
                let slow = self.slow_kernels.hit(words.word(1), sample, first);
                slow.then_some(Fault::Slow { times: self.slow_times })
            }
        }
    }

    /// What a decode job would find wrong with the bytes that [`Truncate`](Fault::Truncate) or [`Garble`](Fault::Garble) spoiled: for
    /// payloads without bytes, where no decoder can find out by itself.
    pub fn found_by_decoder(&self, seed: u64, op: &Op) -> Option<Fault> {
        match self.lasting(seed, op.item.sample) {
            Some(Fault::Fail(_)) | None => None,
            spoiled => spoiled,
        }
    }

    /// What is wrong with the sample itself as the store has it, whatever is tried.
    pub fn lasting(&self, seed: u64, sample: u64) -> Option<Fault> {
        self.lasting_read_fault(&draw::draw(seed, Purpose::FAULT, sample, 0), sample)
    }

    fn lasting_read_fault(&self, lasting: &Block, sample: u64) -> Option<Fault> {
        if self.missing.hit(lasting.word(0), sample, true) {
            Some(Fault::Fail(FailureKind::NotFound))
        } else if self.truncated.hit(lasting.word(1), sample, true) {
            Some(Fault::Truncate { keep_ppm: self.truncated_keep_ppm })
        } else if self.undecodable.hit(lasting.word(2), sample, true) {
            Some(Fault::Garble)
        } else {
            None
        }
    }

    fn read_verdict(&self, lasting: &Block, passing: &Block, op: &Op) -> Option<Fault> {
        let sample = op.item.sample;
        let first = op.attempt == 0;
        // An attempt that fails by itself delivers no bytes that could be spoiled; only a sample that is not there comes before.
        let spoiled = self.lasting_read_fault(lasting, sample);
        if let Some(Fault::Fail(_)) = spoiled {
            spoiled
        } else if self.transient.hit(passing.word(0), sample, first) {
            Some(Fault::Fail(FailureKind::Transient))
        } else if self.throttled.hit(passing.word(1), sample, first) {
            Some(Fault::Fail(FailureKind::Throttled))
        } else if self.stalled.hit(passing.word(2), sample, first) {
            Some(Fault::Stall)
        } else if spoiled.is_some() {
            spoiled
        } else if self.slow_reads.hit(passing.word(3), sample, first) {
            Some(Fault::Slow { times: self.slow_times })
        } else {
            None
        }
    }
}

/// The draws of one attempt: different for each try, epoch and stage, and never those of the sample itself.
fn passing(seed: u64, op: &Op, leaf: Leaf) -> Block {
    let occurrence =
        1 << 63 | (leaf as u64) << 56 | u64::from(op.stage.0) << 48 | u64::from(op.item.epoch) << 16 | u64::from(op.attempt);
    draw::draw(seed, Purpose::FAULT, op.item.sample, occurrence)
}

thread_local! {
    static PENDING: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Runs a job under a fault, catching its panics: for machines.
///
/// The fault waits for a [`strike`] in the job. If none comes, the job's result is dropped and the leaf fails.
pub fn inside<R>(fault: Option<Fault>, job: impl FnOnce() -> R) -> Result<R, Failure> {
    let outer = PENDING.replace(fault);
    let result = catch_unwind(AssertUnwindSafe(job));
    let missed = PENDING.replace(outer);
    match (result, missed.and_then(Fault::failure)) {
        (Err(payload), _) => Err(Failure::panicked(&*payload)),
        (Ok(_), Some(failure)) => Err(failure),
        (Ok(value), None) => Ok(value),
    }
}

/// The place in a job where a fault happens: right before user code, inside whatever protects the loader from it.
///
/// # Errors
///
/// The failure of the fault that the machine wants here, once; usually none.
///
/// # Panics
///
/// When that fault is a [`Panic`](Fault::Panic).
pub fn strike() -> Result<(), Failure> {
    match PENDING.take() {
        None => Ok(()),
        // Not `panic!`, which would print to stderr a backtrace of something that was asked for.
        Some(Fault::Panic) => resume_unwind(Box::new("injected panic")),
        Some(fault) => fault.failure().map_or(Ok(()), Err),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Item;

    fn op(sample: u64, attempt: u16) -> Op {
        Op { stage: StageId::FETCH, attempt, item: Item { sample, ..Item::default() }, ..Op::default() }
    }

    fn share(faults: &Faults, leaf: Leaf, stage: StageId) -> f64 {
        let hit = (0..20_000).filter(|s| faults.verdict(5, &Op { stage, ..op(*s, 0) }, leaf).is_some()).count();
        hit as f64 / 20_000.0
    }

    #[test]
    fn nothing_declared_hits_nobody() {
        let faults = Faults::default();
        assert!(faults.is_empty());
        for leaf in [Leaf::Read, Leaf::Cpu, Leaf::Copy, Leaf::Kernel] {
            assert_eq!(share(&faults, leaf, StageId::DECODE), 0.0);
        }
    }

    #[test]
    fn a_share_of_all_is_hit() {
        for (faults, leaf) in [
            (Faults { missing: Hits::share(50_000), ..Faults::default() }, Leaf::Read),
            (Faults { transient: Hits::share(50_000), ..Faults::default() }, Leaf::Read),
            (Faults { panicking: Hits::share(50_000), ..Faults::default() }, Leaf::Cpu),
            (Faults { slow_jobs: Hits::share(50_000), ..Faults::default() }, Leaf::Cpu),
            (Faults { failed_copies: Hits::share(50_000), ..Faults::default() }, Leaf::Copy),
            (Faults { failed_kernels: Hits::share(50_000), ..Faults::default() }, Leaf::Kernel),
            (Faults { slow_kernels: Hits::share(50_000), ..Faults::default() }, Leaf::Kernel),
        ] {
            let share = share(&faults, leaf, StageId::DECODE);
            assert!((share - 0.05).abs() < 0.005, "{share} of {faults:?}");
        }
    }

    #[test]
    fn a_transient_fault_passes_and_a_missing_sample_stays_missing() {
        let faults = Faults { transient: Hits::samples([3]), missing: Hits::samples([4]), ..Faults::default() };
        assert_eq!(faults.verdict(1, &op(3, 0), Leaf::Read), Some(Fault::Fail(FailureKind::Transient)));
        assert_eq!(faults.verdict(1, &op(3, 1), Leaf::Read), None);
        for attempt in 0..3 {
            assert_eq!(faults.verdict(1, &op(4, attempt), Leaf::Read), Some(Fault::Fail(FailureKind::NotFound)));
        }
        assert_eq!(faults.verdict(1, &op(5, 0), Leaf::Read), None);
    }

    #[test]
    fn a_decoder_finds_what_the_read_spoiled() {
        let faults = Faults {
            truncated: Hits::samples([1]),
            undecodable: Hits::samples([2]),
            missing: Hits::samples([3]),
            ..Faults::default()
        };
        assert_eq!(faults.found_by_decoder(0, &op(1, 0)), Some(Fault::Truncate { keep_ppm: 500_000 }));
        assert_eq!(faults.found_by_decoder(0, &op(2, 0)), Some(Fault::Garble));
        assert_eq!(faults.found_by_decoder(0, &op(3, 0)), None);
        assert_eq!(faults.found_by_decoder(0, &op(4, 0)), None);
    }

    #[test]
    fn spoiled_bytes_are_shorter_or_have_no_head() {
        let mut data = vec![7; 100];
        Fault::Truncate { keep_ppm: 250_000 }.spoil(&mut data);
        assert_eq!(data, vec![7; 25]);
        Fault::Garble.spoil(&mut data);
        assert_eq!(data, vec![0; 25]);
    }

    #[test]
    fn a_fault_strikes_where_the_job_says_and_otherwise_fails_it() {
        let caught = inside(Some(Fault::Panic), || catch_unwind(|| strike().is_ok()).is_err());
        assert_eq!(caught, Ok(true), "the job survived its panic");
        let refused = inside(Some(Fault::Garble), || strike().expect_err("a fault is due").kind);
        assert_eq!(refused, Ok(FailureKind::Corrupt));
        let missed = inside(Some(Fault::Panic), || 7).expect_err("nobody took the fault");
        assert_eq!(missed.kind, FailureKind::Panicked);
        assert_eq!(inside(None, || 7), Ok(7));
        assert_eq!(inside(Some(Fault::Slow { times: 3 }), || strike().map(|()| 7)), Ok(Ok(7)));
    }

    #[test]
    fn a_job_that_panics_by_itself_says_why() {
        let failure = inside(None, || resume_unwind(Box::new("bad luck".to_owned()))).expect_err("it panicked");
        assert_eq!((failure.kind, failure.message.as_ref()), (FailureKind::Panicked, "bad luck"));
    }
}
