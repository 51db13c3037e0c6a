//! Samples in an object store that speaks S3: one object, one sample.
//!
//! Reads wait on a small runtime of the store's own, many to a thread, with one HTTP/1.1 connection to each request under way. Nothing
//! below the loader tries a request again or gives up on one: retries and deadlines are the loader's, which counts and reports them.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

use futures_util::StreamExt;
use object_store::{GetOptions, GetRange, ObjectStore, aws::AmazonS3, path::Path as Key};
use tokio::runtime::{Builder, Handle, Runtime};

use super::{Fetching, Source, listing::Listing};
use crate::failure::{Failure, FailureKind};

mod address;
mod error;
mod http;

use address::{Address, Environment};
pub use error::RemoteError;

/// Threads that wait for all requests. They pass bytes on; two take what a network of 10 Gbit/s brings, decrypted.
const THREADS: usize = 2;
/// How long the store may take for a page of its listing, which no deadline of a loader covers.
const LISTING_PATIENCE: Duration = Duration::from_secs(30);
/// Samples that are looked at at once.
const AT_ONCE: usize = 64;
/// How often a thread that waits for a request looks whether anybody still wants it.
const LOOKS: Duration = Duration::from_millis(20);

/// The objects under a URL whose names say that they are images, in the order of their keys, segment by segment: the order in which
/// [`Folder`](super::Folder) has files of the same names.
///
/// The store is listed once; an object that changes its size afterwards is a failure of its read. Where the store is and who asks is
/// said by the environment, in the variables that other tools read too: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
/// `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP`, `AWS_SKIP_SIGNATURE`.
pub struct Remote {
    address: Address,
    store: Arc<AmazonS3>,
    listing: Listing,
    io: Handle,
    /// Taken only by the drop.
    runtime: Option<Runtime>,
    under_way: AtomicUsize,
}

impl Remote {
    /// Whether this is the URL of a store, and not a folder.
    pub fn is_url(text: &str) -> bool {
        Address::looks_like_one(text)
    }

    /// The images under `url`: `s3://bucket/prefix`, or `http(s)://host/bucket/prefix` for a store that is not Amazon's.
    ///
    /// # Errors
    ///
    /// When the URL names no bucket, when the store cannot be reached or refuses, or when there is no image: see [`RemoteError`].
    pub fn images(url: &str) -> Result<Remote, RemoteError> {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Remote::open(url, &super::Folder::IMAGES, variables)
    }

    /// The objects under `url` with one of these extensions, with `variables` in the place of the process's environment. Objects with a
    /// segment below the prefix that begins with a dot are passed over.
    ///
    /// # Errors
    ///
    /// As [`Remote::images`].
    pub fn open(
        url: &str,
        extensions: &[&str],
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Remote, RemoteError> {
        let address = Address::parse(url)?;
        let environment = Environment::new(variables);
        let store = Arc::new(address.store(&environment)?);
        let other = |cause: String| RemoteError::Other { url: url.to_owned(), cause };
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).thread_name("towtank remote").enable_all().build();
        let runtime = runtime.map_err(|error| other(error.to_string()))?;
        let io = runtime.handle().clone();
        // From here on the drop ends the runtime, whatever happens.
        let mut remote = Remote {
            address,
            store,
            listing: Listing::of_keys(Vec::new()),
            io,
            runtime: Some(runtime),
            under_way: AtomicUsize::new(0),
        };
        let (address, store) = (remote.address.clone(), remote.store.clone());
        let extensions: Vec<String> = extensions.iter().map(|&extension| extension.to_owned()).collect();
        let (give, get) = mpsc::channel();
        remote.io.spawn(async move {
            // Whoever asked waits for the answer.
            let _ = give.send(list(&address, &store, &extensions, environment.has_credentials()).await);
        });
        let keys = get.recv().map_err(|_| other("the listing was lost".to_owned()))??;
        remote.listing = Listing::of_keys(keys);
        Ok(remote)
    }

    /// Bytes of all objects together, as they were listed \[B\].
    pub fn bytes(&self) -> u64 {
        self.listing.bytes()
    }

    /// Reads that wait for the store now.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Relaxed)
    }

    /// Reads the first `bytes` of every sample, many at a time, and shows them in the samples' order, on this thread; what cannot be read
    /// is shown empty.
    pub fn beginnings(self: &Arc<Self>, bytes: u64, mut look: impl FnMut(u64, &[u8])) {
        let (give, mut get) = tokio::sync::mpsc::channel(AT_ONCE);
        let remote = self.clone();
        self.io.spawn(async move {
            let beginning = |sample| {
                let remote = &remote;
                async move {
                    let (mut data, end) = (Vec::new(), bytes.min(remote.listing.size(sample)));
                    let read = match remote.key(sample) {
                        Ok(key) if end > 0 => remote.get(sample, &key, Some(0..end), &mut data, &mut |_| ()).await,
                        _ => Ok(()),
                    };
                    read.map_or_else(|_| Vec::new(), |()| data)
                }
            };
            let mut all = futures_util::stream::iter(0..remote.len()).map(beginning).buffered(AT_ONCE);
            while let Some(data) = all.next().await {
                if give.send(data).await.is_err() {
                    return;
                }
            }
        });
        for (sample, data) in (0..).zip(std::iter::from_fn(|| get.blocking_recv())) {
            look(sample, &data);
        }
    }

    /// The URL, as it was given.
    pub fn url(&self) -> &str {
        &self.address.url
    }

    /// Reads a sample, or its first `part` bytes; `first` is told when the first piece has come, and its bytes.
    pub(crate) async fn fetch_watched(
        &self,
        sample: u64,
        part: Option<u64>,
        into: &mut Vec<u8>,
        first: &mut (dyn FnMut(usize) + Send),
    ) -> Result<(), Failure> {
        let key = self.key(sample)?;
        let part = part.map(|bytes| bytes.min(self.listing.size(sample))).filter(|bytes| *bytes > 0);
        self.get(sample, &key, part.map(|bytes| 0..bytes), into, first).await
    }

    async fn get(
        &self,
        sample: u64,
        key: &Key,
        part: Option<Range<u64>>,
        into: &mut Vec<u8>,
        first: &mut (dyn FnMut(usize) + Send),
    ) -> Result<(), Failure> {
        let _under_way = UnderWay::new(&self.under_way);
        let name = || self.address.name(key.as_ref());
        let listed = self.listing.size(sample);
        let wanted = part.as_ref().map_or(listed, |part| part.end - part.start);
        let range = part.map(GetRange::Bounded);
        let options = GetOptions { range, ..GetOptions::default() };
        let answer = self.store.get_opts(key, options).await.map_err(|error| error::failure(&name(), &error))?;
        let now = answer.meta.size;
        if now != listed {
            let kind = if now < listed { FailureKind::Truncated } else { FailureKind::Corrupt };
            let message = format!("`{}` has {now} bytes, but had {listed} when the store was listed", name());
            return Err(Failure::new(kind, message));
        }
        into.clear();
        let room = usize::try_from(wanted).ok().filter(|&room| into.try_reserve_exact(room).is_ok());
        let room =
            room.ok_or_else(|| Failure::new(FailureKind::TooLarge, format!("no memory for the {wanted} bytes of `{}`", name())))?;
        let mut pieces = answer.into_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| error::failure(&name(), &error))?;
            if into.is_empty() {
                first(piece.len());
            }
            if piece.len() > room - into.len() {
                return Err(Failure::new(FailureKind::Corrupt, format!("more than the {wanted} bytes of `{}` came", name())));
            }
            into.extend_from_slice(&piece);
        }
        if into.len() < room {
            let message = format!("`{}` ended after {} of {wanted} bytes while it was read", name(), into.len());
            return Err(Failure::new(FailureKind::Transient, message));
        }
        Ok(())
    }

    fn key(&self, sample: u64) -> Result<Key, Failure> {
        if sample >= self.listing.len() {
            let message = format!("sample {sample} is not among the {} of the store", self.listing.len());
            return Err(Failure::new(FailureKind::NotFound, message));
        }
        let key = self.key_text(sample);
        Key::parse(&key).map_err(|error| Failure::new(FailureKind::Store, format!("`{key}` is no key: {error}")))
    }

    fn key_text(&self, sample: u64) -> String {
        let mut path = Vec::new();
        self.listing.write_path(sample, &mut path);
        // A key at the root of the bucket lies in the folder without a name.
        let key = path.strip_prefix(b"/").unwrap_or(&path);
        String::from_utf8_lossy(key).into_owned()
    }
}

impl Source for Remote {
    fn len(&self) -> u64 {
        self.listing.len()
    }

    fn bytes_bound(&self, sample: u64) -> Option<u64> {
        (sample < self.listing.len()).then(|| self.listing.size(sample))
    }

    fn name(&self, sample: u64) -> String {
        if sample >= self.listing.len() {
            return format!("sample {sample}");
        }
        self.address.name(&self.key_text(sample))
    }

    /// Waits on the caller's thread, which must not be one of a runtime.
    fn read(&self, sample: u64, into: &mut Vec<u8>, wanted: &dyn Fn() -> bool) -> Result<(), Failure> {
        self.io.block_on(async {
            let mut fetch = self.fetch(sample, into);
            loop {
                match tokio::time::timeout(LOOKS, &mut fetch).await {
                    Ok(answer) => return answer,
                    Err(_) if wanted() => {}
                    Err(_) => return Err(Failure::new(FailureKind::Closed, "nobody waits for the rest")),
                }
            }
        })
    }

    fn try_read(&self, _sample: u64, _into: &mut Vec<u8>) -> Result<bool, Failure> {
        Ok(false)
    }

    fn io(&self) -> Option<&Handle> {
        Some(&self.io)
    }

    fn fetch<'a>(&'a self, sample: u64, into: &'a mut Vec<u8>) -> Fetching<'a> {
        Box::pin(async move {
            let key = self.key(sample)?;
            self.get(sample, &key, None, into, &mut |_| ()).await
        })
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // Whoever drops it last may be one of its own threads, which cannot wait for themselves.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("url", &self.address.url).field("objects", &self.listing.len()).finish_non_exhaustive()
    }
}

/// Counts a read while it waits.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn new(count: &'a AtomicUsize) -> UnderWay<'a> {
        count.fetch_add(1, Relaxed);
        UnderWay(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Keys and sizes of what counts under the address.
async fn list(
    address: &Address,
    store: &AmazonS3,
    extensions: &[String],
    known: bool,
) -> Result<Vec<(String, u64)>, RemoteError> {
    let url = &address.url;
    let wrong_prefix =
        |error: object_store::path::Error| RemoteError::Url { url: url.clone(), why: format!("has no sound prefix: {error}") };
    let prefix = Key::parse(&address.prefix).map_err(wrong_prefix)?;
    let mut objects = store.list(Some(&prefix));
    let (mut keys, mut others) = (Vec::new(), 0);
    loop {
        let next = tokio::time::timeout(LISTING_PATIENCE, objects.next()).await.map_err(|_| RemoteError::Unreachable {
            url: url.clone(),
            cause: format!("no answer within {LISTING_PATIENCE:?}"),
        })?;
        let Some(object) = next else { break };
        let object = object.map_err(|error| RemoteError::of(url, known, &error))?;
        let key = object.location.as_ref();
        let below = key.strip_prefix(address.prefix.as_str()).unwrap_or(key);
        if below.split('/').any(|segment| segment.starts_with('.')) {
            continue;
        }
        let extension = below.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map_or("", |(_, extension)| extension);
        if extensions.iter().any(|known| known.eq_ignore_ascii_case(extension)) {
            keys.push((key.to_owned(), object.size));
        } else {
            others += 1;
        }
    }
    if keys.is_empty() {
        let extensions = extensions.iter().map(|extension| format!(".{extension}")).collect();
        return Err(RemoteError::Empty { url: url.clone(), extensions, others });
    }
    Ok(keys)
}
