//! The driver's functions.

#![allow(non_snake_case, clippy::missing_safety_doc)]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::Arc,
};

use crate::{
    calls::{CURRENT, call, device},
    kernel::{Function, functions},
    state::{self, Code, State, state},
    stream::{Copy, Event, HostFunction, Launch, Op, Pointer, Stream, hash, known, tell},
};

type Answer = Result<(), Code>;

macro_rules! driver {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(unused_unsafe, reason = "some need none")]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> Code {
                call(stringify!($name), || -> Answer { unsafe { $body } })
            }
        )*
        /// All of them.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

/// Memory of the host that stands for a GPU's, and page-locked memory.
fn layout(bytes: u64) -> Layout {
    Layout::from_size_align(bytes.max(1) as usize, 4096).expect("a size")
}

unsafe fn stream<'a>(handle: *mut Stream) -> Result<&'a Stream, Code> {
    known(handle, &state().streams)?;
    Ok(unsafe { &*handle })
}

unsafe fn event(handle: *const Event) -> Result<Arc<Event>, Code> {
    known(handle.cast_mut(), &state().events)?;
    unsafe {
        Arc::increment_strong_count(handle);
        Ok(Arc::from_raw(handle))
    }
}

/// Whether a span lies in one piece of `pieces`.
fn lies_in(pieces: &std::collections::BTreeMap<u64, u64>, from: u64, bytes: u64) -> bool {
    pieces.range(..=from).next_back().is_some_and(|(start, size)| from + bytes <= start + size)
}

unsafe fn copy(to: u64, from: u64, bytes: u64, to_device: bool, on: &Stream) -> Result<bool, Code> {
    let device = device()?;
    let (on_device, host) = if to_device { (to, from) } else { (from, to) };
    let mut state = state();
    if !lies_in(&state.memory, on_device, bytes) {
        return Err(state::INVALID_VALUE);
    }
    let pinned = lies_in(&state.pinned, host, bytes);
    let span = (on_device, on_device + bytes);
    let after_reads = if to_device { State::overlapping(&state.reads, span) } else { Vec::new() };
    let after_writes = State::overlapping(&state.writes, span);
    let id = state.number();
    if to_device {
        state.writes.insert(id, span)
    } else {
        state.reads.insert(id, span)
    };
    drop(state);
    let hash = if to_device { hash(from, bytes) } else { 0 };
    on.put(Op::Copy(Copy { device, to_device, from, to, bytes, hash, id, after_reads, after_writes }));
    Ok(pinned)
}

driver! {
    fn cuInit(_flags: c_uint) {
        if state().devices == 0 { Err(state::NO_DEVICE) } else { Ok(()) }
    }

    fn cuDeviceGetCount(count: *mut c_int) {
        *count = state().devices as c_int;
        Ok(())
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        if ordinal < 0 || ordinal as u32 >= state().devices {
            return Err(state::INVALID_DEVICE);
        }
        *device = ordinal;
        Ok(())
    }

    fn cuDeviceGetName(name: *mut c_char, room: c_int, device: c_int) {
        let text = format!("GPU {device} that is none\0");
        let length = text.len().min(room as usize);
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, length);
        Ok(())
    }

    fn cuDeviceGetAttribute(value: *mut c_int, _attribute: c_int, _device: c_int) {
        *value = 108;
        Ok(())
    }

    fn cuDeviceGetPCIBusId(name: *mut c_char, room: c_int, device: c_int) {
        let text = format!("0000:{:02X}:00.0\0", 0x3b + device);
        if text.len() > room as usize {
            return Err(state::INVALID_VALUE);
        }
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len());
        Ok(())
    }

    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) {
        state().contexts += 1;
        *context = device as usize + 1;
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(_device: c_int) {
        state().contexts -= 1;
        Ok(())
    }

    fn cuCtxSetCurrent(context: usize) {
        CURRENT.set(context);
        Ok(())
    }

    fn cuStreamCreate(handle: *mut *mut Stream, _flags: c_uint) {
        device()?;
        *handle = Box::into_raw(Box::new(Stream::start()));
        state().streams.insert(*handle as usize);
        Ok(())
    }

    fn cuStreamDestroy_v2(handle: *mut Stream) {
        stream(handle)?;
        state().streams.remove(&(handle as usize));
        // Its thread ends when it has carried out what it was given.
        drop(Box::from_raw(handle));
        Ok(())
    }

    fn cuStreamSynchronize(handle: *mut Stream) {
        stream(handle)?.synchronize();
        state().broken.map_or(Ok(()), Err)
    }

    fn cuStreamQuery(handle: *mut Stream) {
        if stream(handle)?.is_idle() { Ok(()) } else { Err(state::NOT_READY) }
    }

    fn cuStreamWaitEvent(handle: *mut Stream, on: *const Event, _flags: c_uint) {
        let (stream, event) = (stream(handle)?, event(on)?);
        if state().misbehaviour & state::IGNORES_WAITS == 0 {
            let which = event.asked();
            stream.put(Op::Wait(event, which));
        }
        Ok(())
    }

    fn cuLaunchHostFunc(handle: *mut Stream, function: HostFunction, argument: *mut c_void) {
        let stream = stream(handle)?;
        let misbehaviour = state().misbehaviour;
        if misbehaviour & state::TELLS_AT_ONCE != 0 {
            tell(function, Pointer(argument as usize));
        } else if misbehaviour & state::TELLS_NOTHING == 0 {
            stream.put(Op::Host(function, Pointer(argument as usize)));
        }
        Ok(())
    }

    fn cuEventCreate(handle: *mut *const Event, _flags: c_uint) {
        device()?;
        *handle = Arc::into_raw(Arc::default());
        state().events.insert(*handle as usize);
        Ok(())
    }

    fn cuEventDestroy_v2(handle: *const Event) {
        let known = event(handle)?;
        state().events.remove(&(handle as usize));
        drop((known, Arc::from_raw(handle)));
        Ok(())
    }

    fn cuEventRecord(handle: *const Event, on: *mut Stream) {
        let (event, stream) = (event(handle)?, stream(on)?);
        let which = event.ask();
        stream.put(Op::Record(event, which));
        Ok(())
    }

    fn cuEventSynchronize(handle: *const Event) {
        let event = event(handle)?;
        event.wait(event.asked());
        state().broken.map_or(Ok(()), Err)
    }

    fn cuEventQuery(handle: *const Event) {
        if event(handle)?.is_done() { Ok(()) } else { Err(state::NOT_READY) }
    }

    fn cuEventElapsedTime(ms: *mut f32, start: *const Event, end: *const Event) {
        let (start, end) = (event(start)?, event(end)?);
        if !start.is_done() || !end.is_done() {
            return Err(state::NOT_READY);
        }
        let (Some(start), Some(end)) = (start.at(), end.at()) else { return Err(state::INVALID_HANDLE) };
        *ms = end.saturating_duration_since(start).as_secs_f32() * 1e3;
        Ok(())
    }

    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        device()?;
        if bytes == 0 {
            return Err(state::INVALID_VALUE);
        }
        let full = {
            let state = state();
            state.memory.values().sum::<u64>() + bytes as u64 > state.capacity
        };
        if full {
            return Err(state::OUT_OF_MEMORY);
        }
        *address = alloc_zeroed(layout(bytes as u64)) as u64;
        state().memory.insert(*address, bytes as u64);
        Ok(())
    }

    fn cuMemFree_v2(address: u64) {
        let bytes = state().memory.remove(&address).ok_or(state::INVALID_VALUE)?;
        dealloc(address as *mut u8, layout(bytes));
        Ok(())
    }

    fn cuMemHostAlloc(start: *mut *mut c_void, bytes: usize, _flags: c_uint) {
        device()?;
        let memory = alloc_zeroed(layout(bytes as u64));
        if memory.is_null() {
            return Err(state::OUT_OF_MEMORY);
        }
        // Not zeros: a driver promises nothing.
        std::ptr::write_bytes(memory, 0xa5, bytes.min(4096));
        state().pinned.insert(memory as u64, bytes as u64);
        *start = memory.cast();
        Ok(())
    }

    fn cuMemFreeHost(start: *mut c_void) {
        let bytes = state().pinned.remove(&(start as u64)).ok_or(state::INVALID_VALUE)?;
        dealloc(start.cast(), layout(bytes));
        Ok(())
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, on: *mut Stream) {
        let on = stream(on)?;
        // Ordinary memory is read before the call returns.
        if !copy(to, from as u64, bytes as u64, true, on)? {
            on.synchronize();
        }
        Ok(())
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, on: *mut Stream) {
        let on = stream(on)?;
        if !copy(to as u64, from, bytes as u64, false, on)? {
            on.synchronize();
        }
        Ok(())
    }

    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) {
        if !lies_in(&state().memory, from, bytes as u64) {
            return Err(state::INVALID_VALUE);
        }
        std::ptr::copy(from as *const u8, to.cast(), bytes);
        Ok(())
    }

    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) {
        if !lies_in(&state().memory, to, bytes as u64) {
            return Err(state::INVALID_VALUE);
        }
        std::ptr::copy(from.cast(), to as *mut u8, bytes);
        Ok(())
    }

    fn cuModuleLoadData(module: *mut *mut Vec<Function>, image: *const c_void) {
        device()?;
        let text = CStr::from_ptr(image.cast()).to_string_lossy();
        *module = Box::into_raw(Box::new(functions(&text)));
        state().modules.insert(*module as usize);
        Ok(())
    }

    fn cuModuleUnload(module: *mut Vec<Function>) {
        known(module, &state().modules)?;
        state().modules.remove(&(module as usize));
        drop(Box::from_raw(module));
        Ok(())
    }

    fn cuModuleGetFunction(function: *mut *const Function, module: *mut Vec<Function>, name: *const c_char) {
        known(module, &state().modules)?;
        let name = CStr::from_ptr(name).to_string_lossy();
        *function = (*module).iter().find(|function| function.is(&name)).ok_or(state::NOT_FOUND)?;
        Ok(())
    }

    fn cuLaunchKernel(
        function: *const Function, _gx: c_uint, _gy: c_uint, _gz: c_uint, _bx: c_uint, _by: c_uint, _bz: c_uint,
        _shared: c_uint, on: *mut Stream, parameters: *mut *mut c_void, _extra: *mut *mut c_void,
    ) {
        device()?;
        let on = stream(on)?;
        let kernel = (*function).launch(parameters)?;
        let mut state = state();
        let (reads, writes) = (kernel.reads(), kernel.writes());
        let mut after_writes = State::overlapping(&state.writes, reads);
        after_writes.extend(State::overlapping(&state.writes, writes));
        let after_reads = State::overlapping(&state.reads, writes);
        let id = state.number();
        state.reads.insert(id, reads);
        state.writes.insert(id, writes);
        drop(state);
        on.put(Op::Launch(Launch { kernel, id, after_writes, after_reads }));
        Ok(())
    }

    fn cuGetErrorName(code: Code, name: *mut *const c_char) {
        *name = match code {
            state::INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
            state::OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
            state::NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
            state::ILLEGAL_ADDRESS => c"CUDA_ERROR_ILLEGAL_ADDRESS",
            _ => c"CUDA_ERROR_UNKNOWN",
        }
        .as_ptr();
        Ok(())
    }

    fn cuGetErrorString(_code: Code, text: *mut *const c_char) {
        *text = c"as the test wants it".as_ptr();
        Ok(())
    }
}
