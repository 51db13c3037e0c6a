//! How a test sets the driver up, and what it asks of it.

use std::{
    ffi::{CStr, c_char},
    time::Duration,
};

use crate::{
    driver::NAMES,
    state::{State, state},
};

/// What the driver has seen.
#[repr(C)]
pub struct Report {
    pub races: u64,
    pub forbidden: u64,
    /// Handles and memory that nobody gave back.
    pub leaks: u64,
    pub copies: u64,
    pub copied_bytes: u64,
    pub kernels: u64,
}

/// Forgets everything, and behaves from now on.
#[unsafe(no_mangle)]
pub extern "C" fn fake_cuda_reset(devices: u32, bytes_per_s: u64, latency_ns: u64) {
    let state = &mut *state();
    *state = State {
        devices,
        bytes_per_s: bytes_per_s.max(1),
        latency: Duration::from_nanos(latency_ns),
        ..State::from_environment()
    };
}

#[unsafe(no_mangle)]
pub extern "C" fn fake_cuda_misbehave(how: u32) {
    state().misbehaviour = how;
}

#[unsafe(no_mangle)]
pub extern "C" fn fake_cuda_capacity(bytes: u64) {
    state().capacity = bytes;
}

/// Makes call number `nth` (from 0) of this name fail with `code`.
///
/// # Safety
///
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_cuda_fail(name: *const c_char, nth: u64, code: u32) {
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    state().failing = Some((name, nth, code));
}

/// Makes copy number `nth` (from 0) break the context when it is carried out.
#[unsafe(no_mangle)]
pub extern "C" fn fake_cuda_break(nth: u64) {
    state().breaks_after = Some(nth);
}

/// How often function number `which` was called, and its name; false when there is none.
///
/// # Safety
///
/// `name` has room for `room` characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_cuda_calls(which: usize, name: *mut c_char, room: usize, calls: *mut u64) -> bool {
    let Some(known) = NAMES.get(which).filter(|known| known.len() < room) else { return false };
    unsafe {
        std::ptr::copy_nonoverlapping(known.as_ptr().cast(), name, known.len());
        *name.add(known.len()) = 0;
        *calls = state().calls.get(known).copied().unwrap_or(0);
    }
    true
}

#[unsafe(no_mangle)]
pub extern "C" fn fake_cuda_report() -> Report {
    let state = state();
    let handles = state.streams.len() + state.events.len() + state.modules.len();
    let memory = state.memory.len() + state.pinned.len();
    Report {
        races: state.races,
        forbidden: state.forbidden,
        leaks: (handles + memory) as u64 + state.contexts.unsigned_abs(),
        copies: state.copies,
        copied_bytes: state.copied_bytes,
        kernels: state.kernels,
    }
}
