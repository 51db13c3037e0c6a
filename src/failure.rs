//! Why a sample, or the whole loader, failed.

use std::{borrow::Cow, fmt, ops::Deref};

/// What kind of thing went wrong: one kind per thing a caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The store has no such sample. Retrying does not help.
    NotFound,
    /// The store failed in a way that may pass: a broken connection, an interrupted read. Worth a retry.
    Transient,
    /// The store asks for fewer requests. Worth a retry after a pause.
    Throttled,
    /// The store failed in a way that does not pass, such as a missing permission.
    Store,
    /// The data end before they should.
    Truncated,
    /// The data are not what their format says.
    Corrupt,
    /// A format, or a variant of one, that no codec here reads.
    Unsupported,
    /// Larger than the limit: huge dimensions or a decompression bomb.
    TooLarge,
    /// The job panicked.
    Panicked,
    /// It took longer than its deadline.
    Deadline,
    /// The device failed. Fatal for the loader.
    Device,
    /// A user's stage refused the sample.
    Stage,
    /// A slot or a worker was lost. Fatal for the loader.
    Lost,
    /// The machine is going away.
    Closed,
}

impl FailureKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [FailureKind; 14] = {
        use FailureKind::*;
        [
            NotFound,
            Transient,
            Throttled,
            Store,
            Truncated,
            Corrupt,
            Unsupported,
            TooLarge,
            Panicked,
            Deadline,
            Device,
            Stage,
            Lost,
            Closed,
        ]
    };

    /// Whether the same request may succeed later.
    pub fn is_transient(self) -> bool {
        matches!(self, FailureKind::Transient | FailureKind::Throttled | FailureKind::Deadline)
    }

    /// Whether the loader cannot go on, whatever the error policy says.
    pub fn is_fatal(self) -> bool {
        matches!(self, FailureKind::Device | FailureKind::Lost | FailureKind::Closed)
    }

    /// The number that stands for the kind in [`Event::bytes`](crate::trace::Event::bytes).
    pub fn code(self) -> u64 {
        self as u64
    }

    /// The kind of a [code](FailureKind::code).
    pub fn from_code(code: u64) -> Option<FailureKind> {
        FailureKind::ALL.get(usize::try_from(code).ok()?).copied()
    }

    /// One or two words, as reports print them.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::NotFound => "not found",
            FailureKind::Transient => "transient",
            FailureKind::Throttled => "throttled",
            FailureKind::Store => "store",
            FailureKind::Truncated => "truncated",
            FailureKind::Corrupt => "corrupt",
            FailureKind::Unsupported => "unsupported",
            FailureKind::TooLarge => "too large",
            FailureKind::Panicked => "panicked",
            FailureKind::Deadline => "deadline",
            FailureKind::Device => "device",
            FailureKind::Stage => "stage",
            FailureKind::Lost => "lost",
            FailureKind::Closed => "closed",
        }
    }
}

/// What went wrong, and in whose words. Its fields are those of [`Cause`].
///
/// One pointer, since results that may hold a failure are moved from future to future for every sample, and failures are rare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(Box<Cause>);

/// What a [`Failure`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cause {
    /// What kind of thing it was.
    pub kind: FailureKind,
    /// Cause and place, for a person.
    pub message: Cow<'static, str>,
}

impl Deref for Failure {
    type Target = Cause;

    fn deref(&self) -> &Cause {
        &self.0
    }
}

impl Failure {
    /// A failure of `kind` with its cause.
    pub fn new(kind: FailureKind, message: impl Into<Cow<'static, str>>) -> Failure {
        Failure(Box::new(Cause { kind, message: message.into() }))
    }

    /// In whose words, when nothing else of it is of interest.
    pub fn into_message(self) -> Cow<'static, str> {
        self.0.message
    }

    /// The failure of a job that panicked with `payload`.
    pub fn panicked(payload: &(dyn std::any::Any + Send)) -> Failure {
        let words = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Failure::new(FailureKind::Panicked, words.unwrap_or("no message").to_owned())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_leads_back_to_its_kind() {
        for kind in FailureKind::ALL {
            assert_eq!(FailureKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(FailureKind::from_code(FailureKind::ALL.len() as u64), None);
    }
}
