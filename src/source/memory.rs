//! Samples that are in memory already, or that a function makes.

use super::Source;
use crate::failure::{Failure, FailureKind};

type Make = dyn Fn(u64, &mut Vec<u8>) -> Result<(), Failure> + Send + Sync;

/// A source without a store: tests, benchmarks, and data that fit into memory.
///
/// ```
/// use towtank::source::{Memory, Source};
///
/// let squares = Memory::from_fn(4, |sample, into| {
///     into.push((sample * sample) as u8);
///     Ok(())
/// });
/// let mut bytes = Vec::new();
/// squares.read(3, &mut bytes, &|| true).unwrap();
/// assert_eq!(bytes, [9]);
/// ```
pub struct Memory {
    len: u64,
    bytes_bound: Option<u64>,
    make: Box<Make>,
}

impl Memory {
    /// The given samples.
    pub fn new(samples: Vec<Vec<u8>>) -> Memory {
        let largest = samples.iter().map(|s| s.len() as u64).max().unwrap_or(0);
        let len = samples.len() as u64;
        let make = move |sample: u64, into: &mut Vec<u8>| {
            into.extend_from_slice(&samples[usize::try_from(sample).expect("checked against the number of samples")]);
            Ok(())
        };
        Memory { len, bytes_bound: Some(largest), make: Box::new(make) }
    }

    /// `len` samples, each made by `make` when it is read. The function appends to an empty buffer and may be called from several
    /// threads at once.
    pub fn from_fn(len: u64, make: impl Fn(u64, &mut Vec<u8>) -> Result<(), Failure> + Send + Sync + 'static) -> Memory {
        Memory { len, bytes_bound: None, make: Box::new(make) }
    }

    /// Promises that no sample is larger \[B\].
    pub fn with_bytes_bound(mut self, bytes: u64) -> Memory {
        self.bytes_bound = Some(bytes);
        self
    }
}

impl Source for Memory {
    fn len(&self) -> u64 {
        self.len
    }

    fn bytes_bound(&self, _sample: u64) -> Option<u64> {
        self.bytes_bound
    }

    fn name(&self, sample: u64) -> String {
        format!("sample {sample}")
    }

    fn read(&self, sample: u64, into: &mut Vec<u8>, _wanted: &dyn Fn() -> bool) -> Result<(), Failure> {
        if sample >= self.len {
            let message = format!("sample {sample} is not among the {} in memory", self.len);
            return Err(Failure::new(FailureKind::NotFound, message));
        }
        into.clear();
        (self.make)(sample, into)?;
        match self.bytes_bound {
            Some(bound) if into.len() as u64 > bound => {
                let message = format!("sample {sample} has {} bytes, more than the {bound} promised", into.len());
                Err(Failure::new(FailureKind::Corrupt, message))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &Memory, sample: u64) -> Result<Vec<u8>, FailureKind> {
        let mut bytes = Vec::new();
        source.read(sample, &mut bytes, &|| true).map(|()| bytes).map_err(|f| f.kind)
    }

    #[test]
    fn samples_come_as_they_were_given_and_the_largest_is_the_bound() {
        let source = Memory::new(vec![vec![1, 2], vec![], vec![3]]);
        assert_eq!((source.len(), source.bytes_bound(1)), (3, Some(2)));
        assert_eq!(read(&source, 0), Ok(vec![1, 2]));
        assert_eq!(read(&source, 1), Ok(vec![]));
        assert_eq!(read(&source, 3), Err(FailureKind::NotFound));
    }

    #[test]
    fn a_sample_above_the_promised_bound_is_a_failure() {
        let source = Memory::from_fn(9, |sample, into| {
            into.resize(sample as usize, 0);
            Ok(())
        })
        .with_bytes_bound(4);
        assert_eq!(read(&source, 4), Ok(vec![0; 4]));
        assert_eq!(read(&source, 5), Err(FailureKind::Corrupt));
    }
}
