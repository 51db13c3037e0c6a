//! What goes wrong with a store, for a person and for the loader.

use std::error::Error;

use hyper::StatusCode;

use super::http::{Broken, Refusal};
use crate::failure::{Failure, FailureKind};

/// Why a URL is no dataset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The URL names no bucket.
    #[error("`{url}` {why}")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// The environment names a store without encryption, and does not allow that.
    #[error("`{url}` is at {endpoint}, without encryption")]
    Plain {
        /// As it was given.
        url: String,
        /// Where the environment says the store is.
        endpoint: String,
    },
    /// Nothing says who asks.
    #[error("nothing says who asks for `{url}`: there are no credentials, in the environment or from the cloud: {cause}")]
    NoCredentials {
        /// As it was given.
        url: String,
        /// What was tried last.
        cause: String,
    },
    /// There is no such bucket.
    #[error("there is no bucket for `{url}`: {cause}")]
    NoBucket {
        /// As it was given.
        url: String,
        /// What the store said.
        cause: String,
    },
    /// The store does not let us.
    #[error("the store refuses `{url}`: {cause}")]
    Denied {
        /// As it was given.
        url: String,
        /// What the store said.
        cause: String,
    },
    /// The store cannot be reached, or does not answer.
    #[error("cannot reach the store of `{url}`: {cause}")]
    Unreachable {
        /// As it was given.
        url: String,
        /// Why.
        cause: String,
    },
    /// There is no key with one of the extensions.
    #[error("no {} object under `{url}`", extensions.join(" or "))]
    Empty {
        /// As it was given.
        url: String,
        /// The extensions looked for, with their dots.
        extensions: Vec<String>,
        /// Objects with other names that were seen.
        others: u64,
    },
    /// Anything else that the store or its client says.
    #[error("cannot list `{url}`: {cause}")]
    Other {
        /// As it was given.
        url: String,
        /// What was said.
        cause: String,
    },
}

impl RemoteError {
    /// What was said about the store at `url`. `known` tells whether the environment says who asks.
    pub(super) fn of(url: &str, known: bool, error: &(dyn Error + 'static)) -> RemoteError {
        let url = url.to_owned();
        if let Some(refusal) = find::<Refusal>(error) {
            let cause = refusal.to_string();
            return match refusal.status {
                StatusCode::NOT_FOUND if known => RemoteError::NoBucket { url, cause },
                StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED if known => RemoteError::Denied { url, cause },
                _ if !known => RemoteError::NoCredentials { url, cause },
                _ => RemoteError::Other { url, cause },
            };
        }
        match find::<Broken>(error) {
            Some(broken) if !known => RemoteError::NoCredentials { url, cause: broken.to_string() },
            Some(broken) => RemoteError::Unreachable { url, cause: broken.to_string() },
            None => RemoteError::Other { url, cause: error.to_string() },
        }
    }

    /// What to do about it, in a sentence.
    pub fn hint(&self) -> String {
        match self {
            RemoteError::Url { .. } => "write `s3://bucket/prefix`, or `https://host/bucket/prefix` for a store elsewhere",
            RemoteError::Plain { .. } => "set AWS_ALLOW_HTTP=true if that is meant, or give a URL that begins with `http://`",
            RemoteError::NoCredentials { .. } => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket"
            }
            RemoteError::NoBucket { .. } => {
                "look at the bucket's name, at AWS_REGION, and at AWS_ENDPOINT_URL if the store is not Amazon's"
            }
            RemoteError::Denied { .. } => {
                "look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, and whether they may list and read the bucket"
            }
            RemoteError::Unreachable { .. } => "look at AWS_ENDPOINT_URL, and whether this computer has a way there",
            RemoteError::Empty { others: 0, .. } => "look at the prefix: there is nothing under it at all",
            RemoteError::Empty { others, .. } => {
                return format!("{others} objects with other names are there; hidden ones are passed over");
            }
            RemoteError::Other { .. } => "try the same with `aws s3 ls`",
        }
        .to_owned()
    }
}

/// The failure of a read of the object called `name`.
pub(super) fn failure(name: &str, error: &(dyn Error + 'static)) -> Failure {
    let (kind, cause) = if let Some(refusal) = find::<Refusal>(error) {
        (kind(refusal.status), refusal.to_string())
    } else if let Some(broken) = find::<Broken>(error) {
        (FailureKind::Transient, broken.to_string())
    } else {
        (FailureKind::Store, error.to_string())
    };
    Failure::new(kind, format!("cannot read `{name}`: {cause}"))
}

fn kind(status: StatusCode) -> FailureKind {
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => FailureKind::NotFound,
        // Amazon's SlowDown is a 503, and so is what others say when they are busy.
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => FailureKind::Throttled,
        StatusCode::REQUEST_TIMEOUT => FailureKind::Transient,
        status if status.is_server_error() => FailureKind::Transient,
        _ => FailureKind::Store,
    }
}

/// The first error of this type among an error and its causes.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
}
