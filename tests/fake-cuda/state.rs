//! What the driver knows, and what it has seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// `CUDA_ERROR_…`.
pub type Code = u32;
pub const INVALID_VALUE: Code = 1;
pub const OUT_OF_MEMORY: Code = 2;
pub const NO_DEVICE: Code = 100;
pub const INVALID_DEVICE: Code = 101;
pub const INVALID_CONTEXT: Code = 201;
pub const INVALID_HANDLE: Code = 400;
pub const NOT_FOUND: Code = 500;
pub const NOT_READY: Code = 600;
pub const ILLEGAL_ADDRESS: Code = 700;
pub const NOT_PERMITTED: Code = 800;

/// Misbehaviour that stands for a defect in what calls the driver.
pub const TELLS_AT_ONCE: u32 = 1;
pub const IGNORES_WAITS: u32 = 2;
pub const TELLS_NOTHING: u32 = 4;

/// Memory that something on a stream is going to touch: from, to.
pub type Span = (u64, u64);

#[derive(Default)]
pub struct State {
    pub devices: u32,
    pub bytes_per_s: u64,
    pub latency: Duration,
    pub misbehaviour: u32,
    /// Device memory that may be had \[B\].
    pub capacity: u64,
    /// The call of this name that fails: how many succeed before it, and with what it fails.
    pub failing: Option<(String, u64, Code)>,
    /// Copies to succeed before one breaks the context.
    pub breaks_after: Option<u64>,
    pub broken: Option<Code>,

    pub calls: BTreeMap<&'static str, u64>,
    pub races: u64,
    pub forbidden: u64,
    pub copied_bytes: u64,
    pub copies: u64,
    pub kernels: u64,

    pub memory: BTreeMap<u64, u64>,
    pub pinned: BTreeMap<u64, u64>,
    pub streams: BTreeSet<usize>,
    pub events: BTreeSet<usize>,
    pub modules: BTreeSet<usize>,
    pub contexts: i64,

    /// What is on the streams and not yet done, by a number that grows.
    pub next: u64,
    pub writes: BTreeMap<u64, Span>,
    pub reads: BTreeMap<u64, Span>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

pub struct Locked(MutexGuard<'static, Option<State>>);

impl std::ops::Deref for Locked {
    type Target = State;
    fn deref(&self) -> &State {
        self.0.as_ref().expect("it is filled when it is locked")
    }
}

impl std::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("it is filled when it is locked")
    }
}

pub fn state() -> Locked {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.get_or_insert_with(State::from_environment);
    Locked(state)
}

impl State {
    /// As variables say, for programs that only load the driver.
    pub fn from_environment() -> State {
        let number = |name: &str, otherwise: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(otherwise);
        State {
            devices: number("FAKE_CUDA_DEVICES", 2) as u32,
            bytes_per_s: number("FAKE_CUDA_BYTES_PER_S", 12_000_000_000).max(1),
            latency: Duration::from_nanos(number("FAKE_CUDA_LATENCY_NS", 10_000)),
            capacity: number("FAKE_CUDA_CAPACITY", 1 << 30),
            ..State::default()
        }
    }

    /// Those among `spans` that overlap with `span`.
    pub fn overlapping(spans: &BTreeMap<u64, Span>, span: Span) -> Vec<u64> {
        spans.iter().filter(|(_, other)| other.0 < span.1 && span.0 < other.1).map(|(id, _)| *id).collect()
    }

    /// Whether one of `earlier` is still to be done: then what comes after them did not wait for them.
    pub fn races_with(spans: &BTreeMap<u64, Span>, earlier: &[u64]) -> bool {
        earlier.iter().any(|id| spans.contains_key(id))
    }

    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
