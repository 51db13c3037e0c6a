//! Bare copies between the host and a GPU, timed by the GPU: what a loader's copies are held against.

use std::{ffi::c_void, sync::Arc};

use cudarc::driver::sys;

use super::{
    context::Context,
    error::{Called, CudaError},
    gpu::HostMemory,
    memory::{DeviceMemory, Pinned},
    stream::{Event, Stream},
};
use crate::device::numa::run_near;

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the host to the GPU.
    ToDevice,
    /// From the GPU to the host.
    ToHost,
}

/// Memory on both sides, and a stream of its own between them.
#[derive(Debug)]
pub struct Transfer {
    device: DeviceMemory,
    host: Host,
    stream: Arc<Stream>,
    began: Event,
    done: Event,
}

#[derive(Debug)]
enum Host {
    Pinned(Pinned),
    Pageable(Vec<u8>),
}

impl Transfer {
    /// Room for copies of up to `bytes` bytes; the host's memory near `processors`, where some are given.
    ///
    /// # Errors
    ///
    /// When there is no such memory.
    pub fn new(
        context: &Arc<Context>,
        bytes: usize,
        host: HostMemory,
        processors: Option<&[usize]>,
    ) -> Result<Transfer, CudaError> {
        let host = run_near(processors, || match host {
            HostMemory::Pinned => Pinned::new(context, bytes).map(Host::Pinned),
            // Written once, so that its pages are there and are here.
            HostMemory::Pageable => Ok(Host::Pageable((0..bytes).map(|at| at as u8 | 1).collect())),
        })?;
        Ok(Transfer {
            device: DeviceMemory::new(context, bytes)?,
            host,
            stream: Stream::new(context)?,
            began: Event::timed(context)?,
            done: Event::timed(context)?,
        })
    }

    /// Begins to copy the first `bytes` bytes. Copies that are begun follow one another.
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    ///
    /// # Panics
    ///
    /// If there is no room for so many.
    pub fn begin(&mut self, way: Way, bytes: usize) -> Result<(), CudaError> {
        let (start, room) = match &mut self.host {
            Host::Pinned(pinned) => (pinned.start().as_ptr(), pinned.bytes()),
            Host::Pageable(memory) => (memory.as_mut_ptr(), memory.len()),
        };
        assert!(bytes <= room && bytes <= self.device.bytes(), "{bytes} bytes of {room}");
        let start = start.cast::<c_void>();
        self.device.context().bind()?;
        let (device, stream) = (self.device.address(), self.stream.raw());
        // SAFETY: both memories are that large and live until the stream is idle: see `Drop`. Nobody else reads or writes them.
        let to_device = || unsafe { sys::cuMemcpyHtoDAsync_v2(device, start, bytes, stream) }.called("cuMemcpyHtoDAsync");
        // SAFETY: as above.
        let to_host = || unsafe { sys::cuMemcpyDtoHAsync_v2(start, device, bytes, stream) }.called("cuMemcpyDtoHAsync");
        match way {
            Way::ToDevice => to_device(),
            Way::ToHost => to_host(),
        }
    }

    /// Marks the time on the stream: from here on is [measured](Transfer::seconds).
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    pub fn start_clock(&self) -> Result<(), CudaError> {
        self.began.record(&self.stream)
    }

    /// Waits for what was begun; the seconds since the clock was started, on the GPU.
    ///
    /// # Errors
    ///
    /// When something on the stream has failed.
    pub fn seconds(&self) -> Result<f64, CudaError> {
        self.done.record(&self.stream)?;
        self.done.synchronize()?;
        self.done.seconds_since(&self.began)
    }

    /// One copy alone \[s\].
    ///
    /// # Errors
    ///
    /// When something has failed.
    pub fn time(&mut self, way: Way, bytes: usize) -> Result<f64, CudaError> {
        self.start_clock()?;
        self.begin(way, bytes)?;
        self.seconds()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // A stream that has failed copies no more.
        let _ = self.stream.synchronize();
    }
}
