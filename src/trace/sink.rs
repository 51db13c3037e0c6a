//! Where else events may go while they happen.

use std::io;

use super::{Event, StageId};

/// Takes a trace event by event, so that nobody needs to keep it: a file, for one.
///
/// [`event`](Sink::event) is called by the scheduler and cannot fail; what goes wrong is kept until [`finish`](Sink::finish).
pub trait Sink: Send {
    /// Takes one event, in the [order](super#order) that traces promise.
    fn event(&mut self, event: &Event);

    /// Tells what a user's stage is called, before the stage's first event.
    fn name_stage(&mut self, stage: StageId, name: &'static str);

    /// Writes what is still held back and closes. Returns the first error since the beginning. Later calls do nothing.
    fn finish(&mut self) -> io::Result<()>;
}
