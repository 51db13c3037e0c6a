//! What a loader is told, and what follows from it.
//!
//! [`Settings`] are what a user types; [`Settings::resolve`] checks them against one another and computes what follows: the size of
//! the ring, the memory that is fixed, and what is left for encoded bytes in flight. An error names the field and what it should
//! have been.

use std::time::Duration;

use super::{
    plan::Plan,
    state::{State, StateError},
};

/// Which order batches come in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// As planned: a sample takes its place in the order when it is launched. What a batch holds is a function of the plan and of
    /// which samples failed, never of timing.
    #[default]
    Plan,
    /// As decoding starts: a slow read holds up nobody. Only the set of samples of an epoch is promised.
    Completion,
}

/// What ranks do when the samples of an epoch do not divide evenly among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tail {
    /// Every rank delivers what it has. Counts differ by at most one sample, and so may the number of batches.
    #[default]
    Uneven,
    /// Short ranks repeat samples from the start of the epoch's order. Every rank delivers the same number of batches.
    Pad,
    /// Samples beyond the last even share are left out of the epoch. Every rank delivers the same number of batches.
    Drop,
}

impl Tail {
    /// Whether every rank delivers the number of batches that the plan says, come what may. Where samples fail, the last batches
    /// of the epoch are then short, at worst empty.
    pub fn fixes_steps(self) -> bool {
        self != Tail::Uneven
    }
}

/// How many failed samples an epoch may have on this rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowance {
    /// At most this many samples.
    Count(u64),
    /// At most this part of the samples planned for the epoch, from 0 to 1, rounded down.
    Fraction(f64),
}

impl Allowance {
    /// No limit.
    pub const ANY: Allowance = Allowance::Count(u64::MAX);

    /// The most samples of `planned` that may fail.
    pub fn of(self, planned: u64) -> u64 {
        match self {
            Allowance::Count(n) => n,
            // A saturating cast of a product that lies between 0 and `planned`.
            Allowance::Fraction(f) => (planned as f64 * f) as u64,
        }
    }
}

/// What a failed sample means.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum OnError {
    /// The consumer gets the error in the sample's place in the order, after every batch before it, and the loader ends.
    #[default]
    Fail,
    /// The sample is left out and counted. One failure too many in an epoch ends the loader with an error.
    Skip {
        /// How many.
        at_most: Allowance,
    },
}

/// How often, and after what pause, a failed read is tried again. Only failures that may pass are retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Tries after the first; 0 for none.
    pub at_most: u16,
    /// Pause before the first retry; it doubles with each further one.
    pub base: Duration,
    /// The longest pause.
    pub cap: Duration,
}

impl Retries {
    /// One try only.
    pub const NONE: Retries = Retries { at_most: 0, base: Duration::ZERO, cap: Duration::ZERO };
}

impl Default for Retries {
    /// Three retries after about 50, 100 and 200 ms.
    fn default() -> Retries {
        Retries { at_most: 3, base: Duration::from_millis(50), cap: Duration::from_secs(5) }
    }
}

/// What a loader must know of a [stage on the device](super::stage::BatchStage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceStage {
    /// Batches in it at once.
    pub limit: usize,
    /// What it makes of each sample beside the batch \[B\].
    pub result_bytes: usize,
}

/// Everything a loader is told. Start from [`Settings::new`] and change fields.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Samples in the dataset.
    pub samples: u64,
    /// A number that changes when the dataset does, such as a hash of its file names; 0 when nobody computed one. A saved
    /// [`State`] is refused when it differs.
    pub dataset: u64,
    /// Seed of the shuffle; `None` for the dataset's own order.
    pub shuffle: Option<u64>,
    /// Passes over the dataset.
    pub epochs: u32,
    /// Samples in a batch.
    pub batch: usize,
    /// Leaves out an epoch's last batch when it is not full.
    pub drop_last: bool,
    /// This rank, from 0.
    pub rank: u16,
    /// Number of ranks.
    pub world: u16,
    /// What ranks do when samples do not divide evenly.
    pub tail: Tail,
    /// Which order batches come in.
    pub order: Order,
    /// What a failed sample means.
    pub on_error: OnError,
    /// Size of a decoded sample \[B\].
    pub slot_bytes: usize,
    /// The most encoded bytes a sample has \[B\]: what is reserved where the machine knows no bound, and what the oldest sample in
    /// flight may always count on.
    pub sample_bytes: u64,
    /// All memory of the loader: ring, device batches, scratch and encoded bytes in flight \[B\].
    pub budget_bytes: u64,
    /// Memory of others that the budget pays too, such as full-size frames of the pool's threads \[B\].
    pub scratch_bytes: u64,
    /// Slots in the ring; `None` for as many as lanes and prefetched batches can use and the budget allows.
    pub ring: Option<usize>,
    /// Samples under way at once.
    pub lanes: usize,
    /// Batches that are made ready, or copied to the device, ahead of the consumer.
    pub prefetch: usize,
    /// Batches the consumer works on at once. A consumer that holds `prefetch + held` batches and asks for another gets an error.
    pub held: usize,
    /// Copies to the device in flight at once.
    pub copies: usize,
    /// The stage on the device that batches go through before the consumer gets them; `None` where there is none. With one, every batch is
    /// copied, and none is lent in its slots.
    pub device_stage: Option<DeviceStage>,
    /// In completion order: how far, in samples of this rank, launches may be ahead of the oldest sample that is not done; `None`
    /// for four times the ring. It bounds the size of a saved [`State`].
    pub window: Option<u64>,
    /// Reads at once; `None` for as many as there are lanes.
    pub fetch_limit: Option<usize>,
    /// Decode jobs submitted at once; `None` for as many as there are lanes.
    pub decode_limit: Option<usize>,
    /// The longest a read may take, each try for itself. A read that takes longer fails and may be retried.
    pub fetch_deadline: Option<Duration>,
    /// The longest a decode job may take from its submission. A job that takes longer is stuck, and ends the loader with an error.
    pub decode_deadline: Option<Duration>,
    /// Retries of failed reads.
    pub retries: Retries,
    /// Where to go on, from [`Batch::state`](super::Batch::state) of an earlier run; `None` to start anew.
    pub resume: Option<State>,
}

impl Settings {
    /// Settings for a dataset of `samples` samples that decode to `slot_bytes` bytes each, in batches of `batch`: one epoch in
    /// the dataset's own order on one rank, 16 lanes, two batches prefetched, 1 GiB, the first failure ends it.
    pub fn new(samples: u64, batch: usize, slot_bytes: usize) -> Settings {
        Settings {
            samples,
            dataset: 0,
            shuffle: None,
            epochs: 1,
            batch,
            drop_last: false,
            rank: 0,
            world: 1,
            tail: Tail::default(),
            order: Order::default(),
            on_error: OnError::default(),
            slot_bytes,
            sample_bytes: 1 << 20,
            budget_bytes: 1 << 30,
            scratch_bytes: 0,
            ring: None,
            lanes: 16,
            prefetch: 2,
            held: 1,
            copies: 2,
            device_stage: None,
            window: None,
            fetch_limit: None,
            decode_limit: None,
            fetch_deadline: None,
            decode_deadline: None,
            retries: Retries::default(),
            resume: None,
        }
    }

    /// Checks the settings and computes what follows from them.
    ///
    /// # Errors
    ///
    /// The first field that cannot be as it is; see [`SettingsError`].
    pub fn resolve(self) -> Result<Resolved, SettingsError> {
        self.check()?;
        let bytes = |samples: usize| (samples as u64).checked_mul(self.slot_bytes as u64);
        let device_batches = self.prefetch + self.held;
        let result_bytes = self.device_stage.map_or(0, |stage| stage.result_bytes);
        let on_device = |samples: usize| bytes(samples)?.checked_add((samples as u64).checked_mul(result_bytes as u64)?);
        let device =
            device_batches.checked_mul(self.batch).and_then(on_device).ok_or(SettingsError::TooLarge { field: "batch" })?;
        let fixed = |ring: usize| bytes(ring)?.checked_add(device)?.checked_add(self.scratch_bytes);
        let too_large = || SettingsError::TooLarge { field: "ring" };

        let least = self.ring.unwrap_or(self.batch);
        let minimum_bytes = fixed(least).and_then(|f| f.checked_add(self.sample_bytes)).ok_or_else(too_large)?;
        if self.budget_bytes < minimum_bytes {
            return Err(SettingsError::Budget {
                budget_bytes: self.budget_bytes,
                minimum_bytes,
                ring: least,
                device_batches,
                batch: self.batch,
                slot_bytes: self.slot_bytes,
                result_bytes,
                scratch_bytes: self.scratch_bytes,
                sample_bytes: self.sample_bytes,
            });
        }
        let ring = match self.ring {
            Some(ring) => ring,
            None => {
                let fits = |ring: usize| {
                    let ledger = (self.lanes.min(ring) as u64).checked_mul(self.sample_bytes);
                    fixed(ring).zip(ledger).and_then(|(f, l)| f.checked_add(l)).is_some_and(|b| b <= self.budget_bytes)
                };
                let most = device_batches + self.lanes.div_ceil(self.batch);
                (1..=most).rev().map(|batches| batches * self.batch).find(|ring| fits(*ring)).unwrap_or(self.batch)
            }
        };
        let fixed_bytes = fixed(ring).ok_or_else(too_large)?;
        let window = self.window.unwrap_or(4 * ring as u64);
        let plan = Plan::new(&self)?;
        let ledger_bytes = self.budget_bytes - fixed_bytes;
        Ok(Resolved { ring, window, device_batches, fixed_bytes, ledger_bytes, minimum_bytes, plan, settings: self })
    }

    fn check(&self) -> Result<(), SettingsError> {
        for (field, value) in [
            ("samples", self.samples),
            ("epochs", u64::from(self.epochs)),
            ("batch", self.batch as u64),
            ("world", u64::from(self.world)),
            ("slot_bytes", self.slot_bytes as u64),
            ("sample_bytes", self.sample_bytes),
            ("lanes", self.lanes as u64),
            ("held", self.held as u64),
            ("copies", self.copies as u64),
            ("device_stage_limit", self.device_stage.map_or(1, |stage| stage.limit as u64)),
            ("ring", self.ring.map_or(1, |v| v as u64)),
            ("window", self.window.unwrap_or(1)),
            ("fetch_limit", self.fetch_limit.map_or(1, |v| v as u64)),
            ("decode_limit", self.decode_limit.map_or(1, |v| v as u64)),
            ("fetch_deadline", self.fetch_deadline.map_or(1, |v| u64::from(!v.is_zero()))),
            ("decode_deadline", self.decode_deadline.map_or(1, |v| u64::from(!v.is_zero()))),
        ] {
            if value == 0 {
                return Err(SettingsError::Zero { field });
            }
        }
        // Whatever is counted in samples or batches below can then be added and multiplied without overflow.
        for (field, value) in [
            ("batch", self.batch),
            ("lanes", self.lanes),
            ("prefetch", self.prefetch),
            ("held", self.held),
            ("copies", self.copies),
            ("device_stage_limit", self.device_stage.map_or(0, |stage| stage.limit)),
            ("ring", self.ring.unwrap_or(0)),
        ] {
            if value > LARGEST_COUNT {
                return Err(SettingsError::TooLarge { field });
            }
        }
        if self.samples > LARGEST_DATASET {
            return Err(SettingsError::TooLarge { field: "samples" });
        }
        if self.rank >= self.world {
            return Err(SettingsError::Rank { rank: self.rank, world: self.world });
        }
        if let Some(ring) = self.ring.filter(|ring| *ring < self.batch) {
            return Err(SettingsError::Ring { ring, batch: self.batch });
        }
        if let OnError::Skip { at_most: Allowance::Fraction(fraction) } = self.on_error
            && !(0.0..=1.0).contains(&fraction)
        {
            return Err(SettingsError::Fraction { fraction });
        }
        Ok(())
    }
}

/// The most lanes, slots or samples in a batch.
pub const LARGEST_COUNT: usize = 1 << 24;
/// The most samples in a dataset.
pub const LARGEST_DATASET: u64 = 1 << 48;

/// Settings that fit together, and what follows from them.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// As given.
    pub settings: Settings,
    /// The plan: which sample comes when.
    pub plan: Plan,
    /// Slots in the ring.
    pub ring: usize,
    /// In completion order: how far launches may be ahead of the oldest sample that is not done \[samples\].
    pub window: u64,
    /// Batches that exist at once, ready or held by the consumer, and the device memory for as many.
    pub device_batches: usize,
    /// Ring, device batches and scratch \[B\].
    pub fixed_bytes: u64,
    /// What the budget leaves for encoded bytes in flight \[B\]: at least one sample.
    pub ledger_bytes: u64,
    /// The least budget these settings could do with \[B\].
    pub minimum_bytes: u64,
}

impl Resolved {
    /// Whether batches are lent to the consumer in their slots where the machine can do so. It takes a ring that holds as many
    /// batches as may exist at once; otherwise a consumer that holds what it may would block the ring. And no stage on the device, which
    /// works on copies.
    pub fn lends(&self, machine_lends: bool) -> bool {
        machine_lends && self.settings.device_stage.is_none() && self.ring >= self.device_batches * self.settings.batch
    }
}

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A field that counts something is zero.
    #[error("`{field}` is 0; it must be at least 1")]
    Zero {
        /// Which field.
        field: &'static str,
    },
    /// A field is beyond what can be computed with.
    #[error("`{field}` is too large")]
    TooLarge {
        /// Which field.
        field: &'static str,
    },
    /// The rank is not one of the world's.
    #[error("`rank` is {rank}, but `world` is {world}; ranks count from 0")]
    Rank {
        /// As given.
        rank: u16,
        /// As given.
        world: u16,
    },
    /// The ring holds less than a batch.
    #[error("`ring` is {ring}; it must hold at least one `batch` of {batch} samples")]
    Ring {
        /// As given \[slots\].
        ring: usize,
        /// As given \[samples\].
        batch: usize,
    },
    /// A fraction of failed samples that is none.
    #[error("`on_error` allows a fraction of {fraction}; it must lie between 0 and 1")]
    Fraction {
        /// As given.
        fraction: f64,
    },
    /// The budget does not pay for the least the loader needs.
    #[error(
        "`budget_bytes` is {budget_bytes}; these settings need at least {minimum_bytes}: `ring` {ring} + `prefetch + held` \
         {device_batches} × `batch` {batch} slots of `slot_bytes` {slot_bytes}{}, `scratch_bytes` {scratch_bytes}, and one sample of \
         `sample_bytes` {sample_bytes}",
        if *result_bytes > 0 { format!(" and on the device as many results of {result_bytes}") } else { String::new() }
    )]
    Budget {
        /// As given \[B\].
        budget_bytes: u64,
        /// The least that would do \[B\].
        minimum_bytes: u64,
        /// Slots in the smallest ring.
        ring: usize,
        /// `prefetch + held`.
        device_batches: usize,
        /// As given \[samples\].
        batch: usize,
        /// As given \[B\].
        slot_bytes: usize,
        /// What a stage on the device makes of each sample \[B\].
        result_bytes: usize,
        /// As given \[B\].
        scratch_bytes: u64,
        /// As given \[B\].
        sample_bytes: u64,
    },
    /// The plan holds no batch for this rank.
    #[error(
        "rank {rank} of {world} has {mine} of {samples} samples an epoch: not one batch of {batch} with `drop_last` {drop_last} and \
         `tail` {tail:?}"
    )]
    NoBatch {
        /// As given.
        rank: u16,
        /// As given.
        world: u16,
        /// Samples planned for this rank in an epoch.
        mine: u64,
        /// As given.
        samples: u64,
        /// As given \[samples\].
        batch: usize,
        /// As given.
        drop_last: bool,
        /// As given.
        tail: Tail,
    },
    /// The state to resume from belongs to another run.
    #[error("`resume`: {0}")]
    Resume(#[from] StateError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new(1000, 8, 100)
    }

    #[test]
    fn a_budget_below_the_minimum_is_refused_and_the_minimum_is_enough() {
        let least = settings();
        let least = Settings { budget_bytes: 0, ..least };
        let Err(SettingsError::Budget { minimum_bytes, .. }) = least.clone().resolve() else { panic!("a budget of 0") };
        assert_eq!(minimum_bytes, (8 + 3 * 8) * 100 + (1 << 20));
        assert!(Settings { budget_bytes: minimum_bytes - 1, ..least.clone() }.resolve().is_err());
        let resolved = Settings { budget_bytes: minimum_bytes, ..least }.resolve().expect("the minimum");
        assert_eq!((resolved.ring, resolved.ledger_bytes), (8, 1 << 20));
    }

    #[test]
    fn a_ring_left_open_grows_with_the_budget_up_to_what_lanes_and_batches_can_use() {
        let ring = |budget_bytes| Settings { budget_bytes, sample_bytes: 1000, ..settings() }.resolve().expect("settings").ring;
        let rings: Vec<_> = [4_200, 20_000, 22_000, 1 << 30].map(ring).into();
        assert!(rings.is_sorted(), "{rings:?}");
        assert_eq!(rings[3], 3 * 8 + 16);
        assert!(rings.iter().all(|ring| ring % 8 == 0));
    }

    #[test]
    fn every_field_that_cannot_be_is_named() {
        let with = |change: fn(&mut Settings)| {
            let mut s = settings();
            change(&mut s);
            s.resolve().map(drop).expect_err("settings that cannot be").to_string()
        };
        assert_eq!(with(|s| s.batch = 0), "`batch` is 0; it must be at least 1");
        assert_eq!(with(|s| s.samples = 0), "`samples` is 0; it must be at least 1");
        assert_eq!(with(|s| s.rank = 1), "`rank` is 1, but `world` is 1; ranks count from 0");
        assert_eq!(with(|s| s.ring = Some(7)), "`ring` is 7; it must hold at least one `batch` of 8 samples");
        assert_eq!(with(|s| s.lanes = usize::MAX), "`lanes` is too large");
        assert_eq!(with(|s| s.fetch_deadline = Some(Duration::ZERO)), "`fetch_deadline` is 0; it must be at least 1");
        let half = |s: &mut Settings| s.on_error = OnError::Skip { at_most: Allowance::Fraction(1.5) };
        assert_eq!(with(half), "`on_error` allows a fraction of 1.5; it must lie between 0 and 1");
        let message = with(|s| s.budget_bytes = 5);
        assert!(message.contains("at least 1051776") && message.contains("`sample_bytes` 1048576"), "{message}");
    }
}
