//! HTTP/1.1 for `object_store`: a connection to each request that is under way, kept for the next one, and nothing tried twice.
//!
//! The pool below does one thing over by itself: a request that met a kept connection which the store had closed meanwhile, and of which
//! no byte was sent, takes another connection.

use std::{error::Error, fmt, time::Duration};

use async_trait::async_trait;
use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector as Tcp},
    rt::{TokioExecutor, TokioTimer},
};
use object_store::{
    ClientConfigKey, ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
        HttpService,
    },
};

/// The most that is read of an answer that is no success \[B\].
const ANSWER_MOST: usize = 64 << 10;
/// The most of its words that are kept, in characters.
const WORDS: usize = 300;
/// How long the cloud's own metadata may take to be there.
const METADATA_PATIENCE: Duration = Duration::from_secs(1);

/// Makes clients.
#[derive(Debug)]
pub(super) struct Hyper;

#[derive(Debug)]
struct Requests(Client<HttpsConnector<Tcp>, HttpRequestBody>);

/// An answer that is no success. The crate above never sees it, which knows only a few kinds and hides the rest.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    words: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store answered {}", self.status)?;
        if self.words.is_empty() { Ok(()) } else { write!(f, ": {}", self.words) }
    }
}

impl Error for Refusal {}

/// A connection that could not be had, or broke.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Broken(String);

impl Broken {
    /// With the cause behind each cause, since the first says little.
    fn of(error: &(dyn Error + 'static)) -> Broken {
        let mut words = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            let more = cause.to_string();
            if !words.contains(&more) {
                words.push_str(": ");
                words.push_str(&more);
            }
            next = cause.source();
        }
        Broken(words)
    }
}

impl HttpConnector for Hyper {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|said| said == "true");
        let mut tcp = Tcp::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        // What is set is set for the cloud's metadata, which are not there on other computers.
        if options.get_config_value(&ClientConfigKey::ConnectTimeout).is_some() {
            tcp.set_connect_timeout(Some(METADATA_PATIENCE));
        }
        let provider = rustls::crypto::ring::default_provider();
        let tls = match HttpsConnectorBuilder::new().with_provider_and_native_roots(provider.clone()) {
            Ok(tls) => tls,
            // A computer without certificates can still use a store that needs none.
            Err(_) if plain => {
                let config = rustls::ClientConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions();
                let config = config.map_err(no_client)?.with_root_certificates(rustls::RootCertStore::empty());
                HttpsConnectorBuilder::new().with_tls_config(config.with_no_client_auth())
            }
            Err(error) => return Err(no_client(error)),
        };
        let connector = if plain { tls.https_or_http() } else { tls.https_only() }.enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Ok(HttpClient::new(Requests(client)))
    }
}

fn no_client(error: impl Error + Send + Sync + 'static) -> object_store::Error {
    object_store::Error::Generic { store: "HTTP", source: Box::new(error) }
}

#[async_trait]
impl HttpService for Requests {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let broken = |error: &(dyn Error + 'static)| HttpError::new(HttpErrorKind::Unknown, Broken::of(error));
        let (head, body) = self.0.request(request).await.map_err(|error| broken(&error))?.into_parts();
        if head.status.is_client_error() || head.status.is_server_error() {
            // What it says besides is a help for people; without, the status has to do.
            let words = Limited::new(body, ANSWER_MOST).collect().await.map(|all| all.to_bytes()).unwrap_or_default();
            let words = in_words(&String::from_utf8_lossy(&words));
            return Err(HttpError::new(HttpErrorKind::Unknown, Refusal { status: head.status, words }));
        }
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body.map_err(move |error| broken(&error)))))
    }
}

/// Code and message of an answer in S3's XML; its beginning, when it is none.
fn in_words(answer: &str) -> String {
    let of = |tag: &str| {
        let from = answer.split_once(&format!("<{tag}>"))?.1;
        Some(from.split_once(&format!("</{tag}>"))?.0)
    };
    match (of("Code"), of("Message")) {
        (Some(code), Some(message)) if !message.is_empty() => format!("{code}, {message}"),
        (Some(code), _) => code.to_owned(),
        (None, _) => answer.chars().take(WORDS).collect::<String>().trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_and_the_message_of_an_answer_are_found() {
        let answer = "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>";
        assert_eq!(in_words(answer), "SlowDown, Reduce your rate.");
        assert_eq!(in_words("<Error><Code>NoSuchKey</Code></Error>"), "NoSuchKey");
        assert_eq!(in_words(" plain "), "plain");
    }
}
