//! One source of several loaders.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::{Fetching, Source};
use crate::failure::Failure;

/// What is shared is read as it is, by all who share it.
impl<S: Source + ?Sized> Source for Arc<S> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn is_empty(&self) -> bool {
        (**self).is_empty()
    }

    fn bytes_bound(&self, sample: u64) -> Option<u64> {
        (**self).bytes_bound(sample)
    }

    fn name(&self, sample: u64) -> String {
        (**self).name(sample)
    }

    fn read(&self, sample: u64, into: &mut Vec<u8>, wanted: &dyn Fn() -> bool) -> Result<(), Failure> {
        (**self).read(sample, into, wanted)
    }

    fn try_read(&self, sample: u64, into: &mut Vec<u8>) -> Result<bool, Failure> {
        (**self).try_read(sample, into)
    }

    fn io(&self) -> Option<&Handle> {
        (**self).io()
    }

    fn fetch<'a>(&'a self, sample: u64, into: &'a mut Vec<u8>) -> Fetching<'a> {
        (**self).fetch(sample, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    /// Answers every question in a way of its own, none of them as the trait does where a source says nothing.
    struct Singular(tokio::runtime::Runtime);

    impl Source for Singular {
        fn len(&self) -> u64 {
            3
        }

        fn is_empty(&self) -> bool {
            true
        }

        fn bytes_bound(&self, sample: u64) -> Option<u64> {
            Some(100 + sample)
        }

        fn name(&self, sample: u64) -> String {
            format!("number {sample}")
        }

        fn read(&self, sample: u64, into: &mut Vec<u8>, wanted: &dyn Fn() -> bool) -> Result<(), Failure> {
            into.push(sample as u8);
            if wanted() { Ok(()) } else { Err(Failure::new(FailureKind::Closed, "nobody waits")) }
        }

        fn try_read(&self, _: u64, _: &mut Vec<u8>) -> Result<bool, Failure> {
            Ok(false)
        }

        fn io(&self) -> Option<&Handle> {
            Some(self.0.handle())
        }

        fn fetch<'a>(&'a self, sample: u64, into: &'a mut Vec<u8>) -> Fetching<'a> {
            Box::pin(async move {
                into.push(10 + sample as u8);
                Ok(())
            })
        }
    }

    #[test]
    fn a_shared_source_answers_as_the_one_that_is_shared() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let source: Arc<dyn Source> = Arc::new(Singular(runtime));
        let shared = &source as &dyn Source;
        let mut into = Vec::new();
        assert_eq!((shared.len(), shared.is_empty(), shared.bytes_bound(2)), (3, true, Some(102)));
        assert_eq!(shared.name(1), "number 1");
        assert_eq!(shared.read(1, &mut into, &|| true), Ok(()));
        assert_eq!(shared.read(2, &mut into, &|| false).unwrap_err().kind, FailureKind::Closed);
        assert_eq!(shared.try_read(1, &mut into), Ok(false));
        assert_eq!(shared.io().expect("it has one").block_on(shared.fetch(0, &mut into)), Ok(()));
        assert_eq!(into, [1, 2, 10]);
    }
}
