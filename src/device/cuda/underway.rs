//! What is under way on a stream of a GPU, copies or kernels, each with somebody who is to be told of its end.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use cudarc::driver::result::stream;

use super::{
    attendant::{Watched, in_host_function},
    context::Context,
    error::{Called, CudaError},
    stream::Stream,
};
use crate::failure::{Failure, FailureKind};

/// What a copy, or what a stage does to a batch, owns until it is over.
pub(super) trait Ending: Send {
    fn complete(self: Box<Self>);
    fn fail(self: Box<Self>, failure: Failure);
}

/// A stream of a device, and what is under way on it.
pub(super) struct Underway {
    stream: Arc<Stream>,
    /// What one piece is called.
    what: &'static str,
    flights: Mutex<Flights>,
}

#[derive(Default)]
struct Flights {
    next: u64,
    flying: BTreeMap<u64, Flight>,
}

struct Flight {
    ending: Box<dyn Ending>,
    /// Keeps the stream until this is over, told or not.
    _underway: Arc<Underway>,
    /// How often in a row nothing was on the stream and its end was not told.
    forgotten: u32,
}

/// Looks at an idle stream after which what is not told of will not be: between the last of its work and its host function a driver
/// takes microseconds.
const FORGOTTEN: u32 = 8;

/// What a host function is given. One that is never called keeps nothing alive.
struct Ticket {
    underway: Weak<Underway>,
    id: u64,
}

impl Underway {
    /// A stream of its own, on which a piece is called `what`.
    pub(super) fn new(context: &Arc<Context>, what: &'static str) -> Result<Arc<Underway>, CudaError> {
        let underway = Arc::new(Underway { stream: Stream::new(context)?, what, flights: Mutex::default() });
        let watched: Weak<dyn Watched> = Arc::<Underway>::downgrade(&underway);
        context.attendant().watch(watched);
        Ok(underway)
    }

    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Ends the piece whose work this thread has put on the stream, once that is done; or now, if it could not all be put there.
    pub(super) fn end_after(self: &Arc<Self>, enqueued: Result<(), Failure>, ending: Box<dyn Ending>) {
        let id = {
            let mut flights = self.lock();
            let id = flights.next;
            flights.next += 1;
            flights.flying.insert(id, Flight { ending, _underway: self.clone(), forgotten: 0 });
            id
        };
        let Err(failure) = enqueued.and_then(|()| self.tell(id).map_err(|error| error.failure())) else { return };
        // A part of the work may be on the stream, and what it reads and writes must stay until that is done. A stream that fails, too, does nothing more.
        let _ = self.stream.synchronize();
        self.fail(id, failure);
    }

    /// Puts a host function on the stream that ends piece number `id`.
    fn tell(self: &Arc<Self>, id: u64) -> Result<(), CudaError> {
        self.stream.context().bind()?;
        let ticket = Box::into_raw(Box::new(Ticket { underway: Arc::downgrade(self), id }));
        // SAFETY: the stream is alive, and the function takes the ticket, once.
        let put = unsafe { stream::launch_host_function(self.stream.raw(), told, ticket.cast()) }.called("cuLaunchHostFunc");
        if put.is_err() {
            // SAFETY: the driver has refused it, so the function is never called.
            drop(unsafe { Box::from_raw(ticket) });
        }
        put
    }

    fn take(&self, id: u64) -> Option<Box<dyn Ending>> {
        self.lock().flying.remove(&id).map(|flight| flight.ending)
    }

    fn fail(&self, id: u64, failure: Failure) {
        if let Some(ending) = self.take(id) {
            ending.fail(failure);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The host function behind a piece.
unsafe extern "C" fn told(ticket: *mut c_void) {
    // SAFETY: it is the ticket that `tell` made, and the driver calls this once.
    let ticket = unsafe { Box::from_raw(ticket.cast::<Ticket>()) };
    in_host_function(move || {
        if let Some(ending) = ticket.underway.upgrade().and_then(|underway| underway.take(ticket.id)) {
            ending.complete();
        }
    });
}

impl Watched for Underway {
    fn look(&self) {
        if self.lock().flying.is_empty() {
            return;
        }
        let answer = self.stream.is_idle();
        let mut flights = self.lock();
        let lost: Vec<u64> = match &answer {
            Err(_) => flights.flying.keys().copied().collect(),
            Ok(idle) => {
                let flying = flights.flying.iter_mut();
                let looked = flying.map(|(id, flight)| {
                    flight.forgotten = if *idle { flight.forgotten + 1 } else { 0 };
                    (*id, flight.forgotten)
                });
                looked.filter(|(_, forgotten)| *forgotten > FORGOTTEN).map(|(id, _)| id).collect()
            }
        };
        drop(flights);
        let failure = match answer {
            Err(error) => error.failure(),
            Ok(_) => Failure::new(FailureKind::Device, format!("the driver has finished {} and not told of it", self.what)),
        };
        lost.into_iter().for_each(|id| self.fail(id, failure.clone()));
    }
}
