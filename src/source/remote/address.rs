//! Which bucket a URL means, and how it is reached.

use std::collections::BTreeMap;

use object_store::{
    ClientOptions, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
};

use super::{RemoteError, http::Hyper};

/// A URL taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// As it was typed.
    pub(super) url: String,
    /// Where the store is; `None` for what the environment says, else Amazon's.
    endpoint: Option<String>,
    bucket: String,
    /// Before the keys that count, without a slash at the end.
    pub(super) prefix: String,
}

/// Schemes of URLs that a store can be at.
const SCHEMES: [&str; 4] = ["s3", "s3a", "http", "https"];

impl Address {
    /// Whether this names a store, and not a folder.
    pub(super) fn looks_like_one(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)))
    }

    pub(super) fn parse(url: &str) -> Result<Address, RemoteError> {
        let wrong = |why: &str| RemoteError::Url { url: url.to_owned(), why: why.to_owned() };
        let Some((scheme, rest)) = url.split_once("://") else { return Err(wrong("has no scheme")) };
        if rest.contains(['?', '#']) {
            return Err(wrong("has a query, which no bucket and no key prefix has"));
        }
        let scheme = scheme.to_ascii_lowercase();
        let (endpoint, path) = match scheme.as_str() {
            "s3" | "s3a" => (None, rest),
            "http" | "https" => {
                let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
                if host.is_empty() || host.contains('@') {
                    return Err(wrong("has no host, or more than one"));
                }
                (Some(format!("{scheme}://{host}")), path)
            }
            other => return Err(wrong(&format!("has the scheme {other:?}"))),
        };
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if bucket.is_empty() {
            return Err(wrong("names no bucket"));
        }
        Ok(Address { url: url.to_owned(), endpoint, bucket: bucket.to_owned(), prefix: prefix.trim_matches('/').to_owned() })
    }

    /// What messages call a key.
    pub(super) fn name(&self, key: &str) -> String {
        let scheme = self.endpoint.as_ref().map_or_else(|| "s3:/".to_owned(), Clone::clone);
        format!("{scheme}/{}/{key}", self.bucket)
    }

    /// The store, with nothing tried twice and nothing timed out but by the loader.
    pub(super) fn store(&self, environment: &Environment) -> Result<AmazonS3, RemoteError> {
        let retries = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let patient = ClientOptions::new().with_timeout_disabled().with_connect_timeout_disabled();
        let mut builder = AmazonS3Builder::new();
        for (name, value) in &environment.0 {
            if let Ok(key) = name.to_ascii_lowercase().parse() {
                builder = builder.with_config(key, value);
            }
        }
        builder = builder.with_bucket_name(&self.bucket).with_retry(retries);
        let plain = match &self.endpoint {
            // What a URL says in so many words need not be allowed again.
            Some(endpoint) => {
                builder = builder.with_endpoint(endpoint).with_virtual_hosted_style_request(false);
                endpoint.starts_with("http://")
            }
            None => {
                let plain = environment.is_on("AWS_ALLOW_HTTP");
                let endpoint =
                    ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"].iter().find_map(|name| environment.get(name));
                if let Some(endpoint) = endpoint.filter(|endpoint| !plain && endpoint.starts_with("http://")) {
                    return Err(RemoteError::Plain { url: self.url.clone(), endpoint: endpoint.to_owned() });
                }
                plain
            }
        };
        builder
            .with_client_options(patient.with_allow_http(plain))
            .with_http_connector(Hyper)
            .build()
            .map_err(|error| RemoteError::of(&self.url, environment.has_credentials(), &error))
    }
}

/// The variables that say where a store is and who asks it, all of which begin with `AWS_`.
pub(super) struct Environment(BTreeMap<String, String>);

impl Environment {
    pub(super) fn new(variables: impl IntoIterator<Item = (String, String)>) -> Environment {
        let counts = |(name, value): &(String, String)| name.starts_with("AWS_") && !value.is_empty();
        Environment(variables.into_iter().filter(counts).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|said| said == "1" || said.eq_ignore_ascii_case("true"))
    }

    /// Whether they say who asks, or that nobody needs to know. Without, the crate asks the cloud's own address, which answers on its
    /// instances alone.
    pub(super) fn has_credentials(&self) -> bool {
        const SAYING: [&str; 5] = [
            "AWS_ACCESS_KEY_ID",
            "AWS_SKIP_SIGNATURE",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        ];
        SAYING.iter().any(|name| self.get(name).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_endpoint_bucket_and_prefix() {
        let of = |url| Address::parse(url).map(|a| (a.endpoint, a.bucket, a.prefix));
        let some = |endpoint: Option<&str>, bucket: &str, prefix: &str| {
            (endpoint.map(str::to_owned), bucket.to_owned(), prefix.to_owned())
        };
        assert_eq!(of("s3://photos/train/2024/").unwrap(), some(None, "photos", "train/2024"));
        assert_eq!(of("s3://photos").unwrap(), some(None, "photos", ""));
        assert_eq!(of("http://127.0.0.1:9000/photos/a").unwrap(), some(Some("http://127.0.0.1:9000"), "photos", "a"));
        for wrong in ["s3://", "https://host", "https:///bucket", "ftp://host/bucket", "photos", "s3://photos?x=1"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn folders_are_not_taken_for_stores() {
        assert!(Address::looks_like_one("s3://photos") && Address::looks_like_one("HTTPS://host/photos"));
        assert!(!Address::looks_like_one("photos/s3") && !Address::looks_like_one("/mnt/s3:/photos"));
    }
}
