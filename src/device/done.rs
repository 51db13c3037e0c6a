//! How a device says that a copy has ended.

use crate::{
    failure::{Failure, FailureKind},
    machine::Slot,
};

type Answer<U, B> = Result<(Vec<Slot<U>>, B), Failure>;
type Report<U, B> = Box<dyn FnOnce(Answer<U, B>) + Send>;

/// The end of one copy, to be reported exactly once and from any thread. Dropped without a report, it reports the memory as
/// [`Lost`](FailureKind::Lost), so that a device that goes away never leaves the loader waiting.
pub struct CopyDone<U, B> {
    report: Option<Report<U, B>>,
}

impl<U, B> CopyDone<U, B> {
    /// An end that is reported to `report`.
    pub fn new(report: impl FnOnce(Answer<U, B>) + Send + 'static) -> CopyDone<U, B> {
        CopyDone { report: Some(Box::new(report)) }
    }

    /// The copy is complete: `src` is read no more, and `dst` is written.
    pub fn complete(self, src: Vec<Slot<U>>, dst: B) {
        self.report(Ok((src, dst)));
    }

    /// The copy failed.
    pub fn fail(self, failure: Failure) {
        self.report(Err(failure));
    }

    fn report(mut self, answer: Answer<U, B>) {
        if let Some(report) = self.report.take() {
            report(answer);
        }
    }
}

impl<U, B> Drop for CopyDone<U, B> {
    fn drop(&mut self) {
        if let Some(report) = self.report.take() {
            report(Err(Failure::new(FailureKind::Lost, "the device dropped a copy")));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn every_copy_is_reported_exactly_once() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let done = || {
            let heard = heard.clone();
            CopyDone::<u8, ()>::new(move |answer| {
                heard.lock().expect("no test panics").push(answer.map(|_| ()).map_err(|f| f.kind))
            })
        };
        done().complete(Vec::new(), ());
        done().fail(Failure::new(FailureKind::Device, "asked to"));
        drop(done());
        assert_eq!(*heard.lock().expect("no test panics"), [Ok(()), Err(FailureKind::Device), Err(FailureKind::Lost)]);
    }
}
