//! Streams, and events on them.

use std::{fmt, sync::Arc};

use cudarc::driver::{
    result::{event, stream},
    sys,
};

use super::{
    context::Context,
    error::{Called, CudaError},
};

/// An order of work on a GPU. Work of two streams overlaps.
pub struct Stream {
    context: Arc<Context>,
    raw: sys::CUstream,
}

// SAFETY: the driver's functions on streams may be called from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream that does not wait for the default stream.
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Stream>, CudaError> {
        context.bind()?;
        let raw = stream::create(stream::StreamKind::NonBlocking).called("cuStreamCreate")?;
        Ok(Arc::new(Stream { context: context.clone(), raw }))
    }

    /// Makes what is put on the stream from now on wait for what `event` recorded.
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.context.bind()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: stream and event are alive.
        unsafe { stream::wait_event(self.raw, event.raw, flags) }.called("cuStreamWaitEvent")
    }

    /// Waits until everything on the stream is done.
    ///
    /// # Errors
    ///
    /// When something on the stream has failed, or the driver refuses.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the stream is alive.
        unsafe { stream::synchronize(self.raw) }.called("cuStreamSynchronize")
    }

    /// Whether everything on the stream is done.
    ///
    /// # Errors
    ///
    /// When something on the stream has failed.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        self.context.bind()?;
        // SAFETY: the stream is alive.
        match unsafe { sys::cuStreamQuery(self.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            answer => answer.called("cuStreamQuery").map(|()| true),
        }
    }

    /// The driver's handle, for other libraries; valid as long as this lives.
    pub fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let (context, raw) = (self.context.clone(), Handle(self.raw));
        self.context.attendant().carry_out(move || {
            let Handle(raw) = { raw };
            // A driver that refuses is gone, and the stream with it; what is still on it goes on.
            let _ = context.bind();
            // SAFETY: the stream was made in `new`, and nobody has it any more.
            let _ = unsafe { stream::destroy(raw) };
        });
    }
}

/// A handle of the driver that is handed to another thread.
pub(super) struct Handle<T>(pub(super) T);
// SAFETY: the driver takes its handles from any thread.
unsafe impl<T> Send for Handle<T> {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?}, {:p})", self.context, self.raw)
    }
}

/// A mark on a stream.
pub struct Event {
    context: Arc<Context>,
    raw: sys::CUevent,
}

// SAFETY: the driver's functions on events may be called from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event for waits, which is the cheapest kind.
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    pub fn new(context: &Arc<Context>) -> Result<Event, CudaError> {
        Event::make(context, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// An event that tells the time, and that a host may wait for asleep.
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    pub fn timed(context: &Arc<Context>) -> Result<Event, CudaError> {
        Event::make(context, sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC)
    }

    fn make(context: &Arc<Context>, flags: sys::CUevent_flags) -> Result<Event, CudaError> {
        context.bind()?;
        let raw = event::create(flags).called("cuEventCreate")?;
        Ok(Event { context: context.clone(), raw })
    }

    /// Marks what is on `stream` now.
    ///
    /// # Errors
    ///
    /// When the driver refuses.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: event and stream are alive.
        unsafe { event::record(self.raw, stream.raw) }.called("cuEventRecord")
    }

    /// Waits until what it marked is done.
    ///
    /// # Errors
    ///
    /// When something on its stream has failed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the event is alive.
        unsafe { event::synchronize(self.raw) }.called("cuEventSynchronize")
    }

    /// From `earlier` to this \[s\]; both [timed](Event::timed), and both done.
    ///
    /// # Errors
    ///
    /// When one of them is not.
    pub fn seconds_since(&self, earlier: &Event) -> Result<f64, CudaError> {
        self.context.bind()?;
        // SAFETY: both events are alive.
        let ms = unsafe { event::elapsed(earlier.raw, self.raw) }.called("cuEventElapsedTime")?;
        Ok(f64::from(ms) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let (context, raw) = (self.context.clone(), Handle(self.raw));
        self.context.attendant().carry_out(move || {
            let Handle(raw) = { raw };
            // As with a stream.
            let _ = context.bind();
            // SAFETY: the event was made in `make`, and nobody has it any more.
            let _ = unsafe { event::destroy(raw) };
        });
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?}, {:p})", self.context, self.raw)
    }
}
