//! Streams and events: a thread for each stream, and what it carries out.

use std::{
    ffi::c_void,
    sync::{Arc, Condvar, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::{
    calls::IN_HOST_FUNCTION,
    kernel::Kernel,
    state::{self, Code, Span, State, state},
};

pub type HostFunction = unsafe extern "C" fn(*mut c_void);

/// A pointer that goes to a stream's thread.
#[derive(Clone, Copy)]
pub struct Pointer(pub usize);

pub struct Copy {
    pub device: usize,
    pub to_device: bool,
    pub from: u64,
    pub to: u64,
    pub bytes: u64,
    /// Of the source when the copy was asked for.
    pub hash: u64,
    /// Its number, and what it must not overtake.
    pub id: u64,
    pub after_reads: Vec<u64>,
    pub after_writes: Vec<u64>,
}

pub struct Launch {
    pub kernel: Kernel,
    pub id: u64,
    pub after_writes: Vec<u64>,
    pub after_reads: Vec<u64>,
}

pub enum Op {
    Copy(Copy),
    Launch(Launch),
    Record(Arc<Event>, u64),
    Wait(Arc<Event>, u64),
    Host(HostFunction, Pointer),
}

#[derive(Default)]
struct Progress {
    done: Mutex<u64>,
    moved: Condvar,
}

pub struct Stream {
    ops: mpsc::Sender<Op>,
    submitted: Mutex<u64>,
    progress: Arc<Progress>,
}

impl Stream {
    pub fn start() -> Stream {
        let (ops, taken) = mpsc::channel();
        let progress = Arc::new(Progress::default());
        let own = progress.clone();
        let run = move || {
            let mut free = Instant::now();
            for op in taken {
                carry_out(op, &mut free);
                *own.done.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                own.moved.notify_all();
            }
        };
        thread::Builder::new().name("fake stream".to_owned()).spawn(run).expect("a thread");
        Stream { ops, submitted: Mutex::new(0), progress }
    }

    pub fn put(&self, op: Op) {
        let mut submitted = self.submitted.lock().unwrap_or_else(PoisonError::into_inner);
        *submitted += 1;
        self.ops.send(op).expect("the thread lives as long as the stream");
    }

    pub fn is_idle(&self) -> bool {
        let submitted = *self.submitted.lock().unwrap_or_else(PoisonError::into_inner);
        *self.progress.done.lock().unwrap_or_else(PoisonError::into_inner) >= submitted
    }

    pub fn synchronize(&self) {
        let submitted = *self.submitted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = self.progress.done.lock().unwrap_or_else(PoisonError::into_inner);
        while *done < submitted {
            done = self.progress.moved.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[derive(Default)]
pub struct Event {
    marks: Mutex<Marks>,
    moved: Condvar,
}

#[derive(Default)]
struct Marks {
    asked: u64,
    done: u64,
    at: Option<Instant>,
}

impl Event {
    fn marks(&self) -> std::sync::MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more record is asked for; which one.
    pub fn ask(&self) -> u64 {
        let mut marks = self.marks();
        marks.asked += 1;
        marks.asked
    }

    pub fn asked(&self) -> u64 {
        self.marks().asked
    }

    pub fn is_done(&self) -> bool {
        let marks = self.marks();
        marks.done >= marks.asked
    }

    pub fn at(&self) -> Option<Instant> {
        self.marks().at
    }

    fn mark(&self, which: u64) {
        let mut marks = self.marks();
        marks.done = marks.done.max(which);
        marks.at = Some(Instant::now());
        self.moved.notify_all();
    }

    pub fn wait(&self, which: u64) {
        let mut marks = self.marks();
        while marks.done < which {
            marks = self.moved.wait(marks).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// When the copy engines of eight devices are free: to the device, and from it.
static ENGINES: [[Mutex<Option<Instant>>; 2]; 8] = [const { [const { Mutex::new(None) }; 2] }; 8];

/// Work that is asked for this soon after the last was to end follows it at once: a sleep ends late by less.
const LATE: Duration = Duration::from_millis(1);

/// What looking at a source and copying it takes the host that stands for a GPU, roughly.
const COPIES_BYTES_PER_S: u64 = 3_000_000_000;

/// When work that takes `time` ends behind what ends at `free`.
fn behind(free: Instant, time: Duration) -> Instant {
    let now = Instant::now();
    (if now.saturating_duration_since(free) < LATE { free } else { now }) + time
}

fn sleep_until(end: Instant) {
    thread::sleep(end.saturating_duration_since(Instant::now()));
}

fn carry_out(op: Op, free: &mut Instant) {
    let broken = state().broken.is_some();
    match op {
        Op::Copy(copy) => {
            if !broken {
                carry_out_copy(&copy);
            }
            let mut state = state();
            state.writes.remove(&copy.id);
            state.reads.remove(&copy.id);
        }
        Op::Launch(launch) => {
            if !broken {
                carry_out_kernel(&launch, free);
            }
            let mut state = state();
            state.reads.remove(&launch.id);
            state.writes.remove(&launch.id);
        }
        Op::Record(event, which) => event.mark(which),
        // What a broken context waits for may never come.
        Op::Wait(event, which) if !broken => event.wait(which),
        Op::Wait(..) => {}
        // A context that is broken tells nothing.
        Op::Host(_, _) if broken => {}
        Op::Host(function, argument) => tell(function, argument),
    }
}

pub fn tell(function: HostFunction, argument: Pointer) {
    IN_HOST_FUNCTION.set(true);
    unsafe { function(argument.0 as *mut c_void) };
    IN_HOST_FUNCTION.set(false);
}

fn carry_out_copy(copy: &Copy) {
    let (bytes_per_s, latency) = {
        let mut state = state();
        if let Some(left) = &mut state.breaks_after {
            if *left == 0 {
                state.broken = Some(state::ILLEGAL_ADDRESS);
                return;
            }
            *left -= 1;
        }
        if State::races_with(&state.reads, &copy.after_reads) || State::races_with(&state.writes, &copy.after_writes) {
            state.races += 1;
        }
        (state.bytes_per_s, state.latency)
    };
    let time = latency + Duration::from_nanos((u128::from(copy.bytes) * 1_000_000_000 / u128::from(bytes_per_s)) as u64);
    let end = {
        let engine = &ENGINES[copy.device % ENGINES.len()][usize::from(!copy.to_device)];
        let mut free = engine.lock().unwrap_or_else(PoisonError::into_inner);
        let end = behind(free.unwrap_or_else(Instant::now), time);
        *free = Some(end);
        end
    };
    // What is written until shortly before the end is copied: a GPU would read it at some time in between.
    let copying = Duration::from_nanos(copy.bytes * 1_000_000_000 / COPIES_BYTES_PER_S).min(time / 2);
    sleep_until(end - copying);
    if copy.to_device && hash(copy.from, copy.bytes) != copy.hash {
        state().races += 1;
    }
    unsafe { std::ptr::copy(copy.from as *const u8, copy.to as *mut u8, copy.bytes as usize) };
    sleep_until(end);
    let mut state = state();
    state.copies += 1;
    state.copied_bytes += copy.bytes;
}

fn carry_out_kernel(launch: &Launch, free: &mut Instant) {
    let time = launch.kernel.time();
    *free = behind(*free, time);
    {
        let mut state = state();
        if State::races_with(&state.writes, &launch.after_writes) || State::races_with(&state.reads, &launch.after_reads) {
            state.races += 1;
        }
    }
    let (from, to) = launch.kernel.reads();
    let before = hash_span((from, to));
    launch.kernel.run();
    // What looking takes is a part of the kernel's time, as far as it goes.
    let looking = Duration::from_nanos((to - from) * 1_000_000_000 / COPIES_BYTES_PER_S).min(time / 2);
    sleep_until(*free - looking);
    let races = u64::from(hash_span((from, to)) != before);
    sleep_until(*free);
    let mut state = state();
    state.races += races;
    state.kernels += 1;
}

fn hash_span((from, to): Span) -> u64 {
    hash(from, to - from)
}

/// Words of large memory of which one is looked at: whoever writes a sample writes more than that, and looking shall cost little.
const LOOKED_AT: u64 = 8;
/// Memory that is large \[B\].
const LARGE: u64 = 64 << 10;

/// A hash of memory that others may write meanwhile: that is what it is to find out.
pub fn hash(from: u64, bytes: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut step = |value: u64| hash = (hash ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    let words = bytes / 8;
    let stride = if bytes > LARGE { LOOKED_AT } else { 1 };
    for word in (0..words).step_by(stride as usize) {
        // Memory of samples may begin anywhere.
        step(unsafe { ((from + word * 8) as *const u64).read_unaligned() });
    }
    for at in words * 8..bytes {
        step(u64::from(unsafe { std::ptr::read_volatile((from + at) as *const u8) }));
    }
    std::hint::black_box(hash)
}

/// Handles that the driver gave and nobody gave back.
pub fn known<T>(handle: *mut T, given: &std::collections::BTreeSet<usize>) -> Result<(), Code> {
    if given.contains(&(handle as usize)) { Ok(()) } else { Err(state::INVALID_HANDLE) }
}
