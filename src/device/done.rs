//! How a device says that a copy or a kernel has ended.

use crate::{
    failure::{Failure, FailureKind},
    machine::Slot,
};

/// An end that is reported once: by whoever knows of it, or as a loss by being dropped.
struct Once<T> {
    report: Option<Report<T>>,
    what: &'static str,
}

type Report<T> = Box<dyn FnOnce(Result<T, Failure>) + Send>;

impl<T> Once<T> {
    fn new(what: &'static str, report: impl FnOnce(Result<T, Failure>) + Send + 'static) -> Once<T> {
        Once { report: Some(Box::new(report)), what }
    }

    fn report(mut self, answer: Result<T, Failure>) {
        if let Some(report) = self.report.take() {
            report(answer);
        }
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        if let Some(report) = self.report.take() {
            report(Err(Failure::new(FailureKind::Lost, self.what)));
        }
    }
}

/// The end of one copy, to be reported exactly once and from any thread. Dropped without a report, it reports the memory as
/// [`Lost`](FailureKind::Lost), so that a device that goes away never leaves the loader waiting.
pub struct CopyDone<U, B>(Once<(Vec<Slot<U>>, B)>);

impl<U, B> CopyDone<U, B> {
    /// An end that is reported to `report`.
    pub fn new(report: impl FnOnce(Result<(Vec<Slot<U>>, B), Failure>) + Send + 'static) -> CopyDone<U, B> {
        CopyDone(Once::new("the device dropped a copy", report))
    }

    /// The copy is complete: `src` is read no more, and `dst` is written.
    pub fn complete(self, src: Vec<Slot<U>>, dst: B) {
        self.0.report(Ok((src, dst)));
    }

    /// The copy failed.
    pub fn fail(self, failure: Failure) {
        self.0.report(Err(failure));
    }
}

/// The end of what one stage does to one batch, to be reported exactly once and from any thread. Dropped without a report, it reports the
/// batch as [`Lost`](FailureKind::Lost).
pub struct KernelDone<B>(Once<B>);

impl<B> KernelDone<B> {
    /// An end that is reported to `report`.
    pub fn new(report: impl FnOnce(Result<B, Failure>) + Send + 'static) -> KernelDone<B> {
        KernelDone(Once::new("the device dropped a kernel", report))
    }

    /// All is done to the batch.
    pub fn complete(self, batch: B) {
        self.0.report(Ok(batch));
    }

    /// It failed.
    pub fn fail(self, failure: Failure) {
        self.0.report(Err(failure));
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

    #[test]
    fn a_kernel_that_nobody_ends_is_reported_as_lost() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let done = || {
            let heard = heard.clone();
            KernelDone::new(move |answer: Result<u8, Failure>| {
                heard.lock().expect("no test panics").push(answer.map_err(|f| f.to_string()))
            })
        };
        done().complete(7);
        drop(done());
        let heard = heard.lock().expect("no test panics");
        assert_eq!(heard[0], Ok(7));
        assert!(heard[1].as_ref().is_err_and(|words| words.contains("the device dropped a kernel")), "{heard:?}");
    }
}
