//! What every call goes through first.

use std::cell::Cell;

use crate::state::{self, Code, state};

thread_local! {
    /// Whether this thread runs a host function.
    pub static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    /// The context of this thread: its device plus one; 0 for none.
    pub static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Calls that give something back. They do it even when they report a failure, as the driver does when it reports an earlier one.
const RELEASES: [&str; 6] = [
    "cuMemFree_v2",
    "cuMemFreeHost",
    "cuStreamDestroy_v2",
    "cuEventDestroy_v2",
    "cuModuleUnload",
    "cuDevicePrimaryCtxRelease_v2",
];
/// Calls that a host function may make, and that no failure is made of.
const HARMLESS: [&str; 2] = ["cuGetErrorName", "cuGetErrorString"];

/// Counts a call, and runs it unless it is to fail.
pub fn call(name: &'static str, body: impl FnOnce() -> Result<(), Code>) -> Code {
    if HARMLESS.contains(&name) {
        return body().err().unwrap_or(0);
    }
    let refused = {
        let mut state = state();
        let nth = state.calls.entry(name).or_default();
        *nth += 1;
        let nth = *nth;
        if IN_HOST_FUNCTION.get() {
            state.forbidden += 1;
            Some(state::NOT_PERMITTED)
        } else {
            let failing = state.failing.as_ref().filter(|(which, after, _)| which == name && nth == after + 1);
            failing.map(|(_, _, code)| *code).or(state.broken)
        }
    };
    match refused {
        Some(code) => {
            if RELEASES.contains(&name) {
                let _ = body();
            }
            code
        }
        None => body().err().unwrap_or(0),
    }
}

/// The device of this thread's context.
pub fn device() -> Result<usize, Code> {
    CURRENT.get().checked_sub(1).ok_or(state::INVALID_CONTEXT)
}
