//! A store that speaks S3 over a folder, in the test's own process, and that misbehaves as a test asks.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    error::Error,
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime::Runtime};

/// What the store does with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    /// What it should.
    Serve,
    /// Refuses with this status, and a code in S3's words.
    Refuse(u16, &'static str),
    /// Takes the request and never answers.
    Stall,
    /// Answers late, and then at this rate [B/s].
    Slow(Duration, f64),
}

type Body = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;
type Hook = dyn Fn(&str, u64) -> Answer + Send + Sync;

/// The store. Dropping it stops it.
pub(crate) struct Server {
    root: TempDir,
    address: String,
    state: Arc<State>,
    runtime: Option<Runtime>,
}

struct State {
    hook: Box<Hook>,
    asked: Mutex<BTreeMap<String, u64>>,
    under_way: AtomicUsize,
}

impl Server {
    pub(crate) const BUCKET: &'static str = "photos";
    const KEY: &'static str = "a key";
    const SECRET: &'static str = "a secret";

    /// A store with an empty bucket. `hook` says what it does when asked for a key for the n-th time, from 0.
    pub(crate) fn start(hook: impl Fn(&str, u64) -> Answer + Send + Sync + 'static) -> Server {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(Server::BUCKET)).unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single(Server::KEY, Server::SECRET));
        let service = builder.build();
        let state = Arc::new(State { hook: Box::new(hook), asked: Mutex::default(), under_way: AtomicUsize::new(0) });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = state.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (service, state) = (service.clone(), shared.clone());
                let answer = service_fn(move |request| answer(service.clone(), state.clone(), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        Server { root, address, state, runtime: Some(runtime) }
    }

    /// One that does what it should.
    pub(crate) fn sound() -> Server {
        Server::start(|_, _| Answer::Serve)
    }

    /// The folder behind the bucket.
    pub(crate) fn bucket(&self) -> PathBuf {
        self.root.path().join(Server::BUCKET)
    }

    /// Puts an object into the bucket.
    pub(crate) fn put(&self, key: &str, bytes: &[u8]) {
        let path = self.bucket().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// `prefix` in the bucket.
    pub(crate) fn url(&self, prefix: &str) -> String {
        format!("http://{}/{}/{prefix}", self.address, Server::BUCKET)
    }

    /// Where it is, without a bucket.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The variables of an environment that may ask it.
    pub(crate) fn environment() -> Vec<(String, String)> {
        [("AWS_ACCESS_KEY_ID", Server::KEY), ("AWS_SECRET_ACCESS_KEY", Server::SECRET), ("AWS_REGION", "us-east-1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    }

    /// Requests for objects that have not been answered.
    pub(crate) fn under_way(&self) -> usize {
        self.state.under_way.load(SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct UnderWay(Arc<State>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, SeqCst);
    }
}

async fn answer(
    service: s3s::service::S3Service,
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let key = request.uri().path().split_once(&format!("/{}/", Server::BUCKET)).map(|(_, key)| key.to_owned());
    let object = key.filter(|key| !key.is_empty());
    let (what, _under_way) = match &object {
        None => (Answer::Serve, None),
        Some(key) => {
            let asked = {
                let mut asked = state.asked.lock().unwrap();
                let asked = asked.entry(key.clone()).or_default();
                *asked += 1;
                *asked - 1
            };
            state.under_way.fetch_add(1, SeqCst);
            ((state.hook)(key, asked), Some(UnderWay(state.clone())))
        }
    };
    let served = match what {
        Answer::Refuse(status, code) => {
            let text = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>as asked</Message></Error>");
            let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
            return Ok(Response::builder().status(status).body(body.boxed_unsync()).unwrap());
        }
        Answer::Stall => std::future::pending().await,
        Answer::Serve => service.call(request.map(s3s::Body::from)).await.expect("the store answers"),
        Answer::Slow(late, _) => {
            pause(late).await;
            service.call(request.map(s3s::Body::from)).await.expect("the store answers")
        }
    };
    let (head, body) = served.into_parts();
    let Answer::Slow(_, rate) = what else { return Ok(Response::from_parts(head, body.boxed_unsync())) };
    let whole = body.collect().await.expect("a file can be read").to_bytes();
    let pieces: Vec<Bytes> = whole.chunks(16 << 10).map(Bytes::copy_from_slice).collect();
    let slowly = futures_util::stream::unfold(pieces.into_iter(), move |mut pieces| async move {
        let piece = pieces.next()?;
        pause(Duration::from_secs_f64(piece.len() as f64 / rate)).await;
        Some((Ok(Frame::data(piece)), pieces))
    });
    Ok(Response::from_parts(head, StreamBody::new(slowly).boxed_unsync()))
}

#[expect(clippy::disallowed_methods, reason = "a store has no machine whose clock it could ask")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
