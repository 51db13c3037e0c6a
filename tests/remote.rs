//! Images in an object store: the loader against a store that speaks S3, in the same process, without a network.

use std::{
    fs,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use towtank::{
    codec::{Choice, Decoder, Target},
    failure::{Failure, FailureKind},
    loader::{Allowance, DecodeImage, Fill, OnError, Retries, Settings},
    machine::{Encoded, Item, Pixels, Work, real},
    measure::{Consumer, Run, measure},
    source::{Folder, Remote, RemoteError, Source},
    synth,
    trace::{Kind, Recorder, StageId},
};

#[path = "remote/calibrate.rs"]
mod calibrate;
#[path = "remote/server.rs"]
mod server;

use server::{Answer, Server};

fn open(server: &Server, prefix: &str) -> Result<Remote, RemoteError> {
    Remote::open(&server.url(prefix), &Folder::IMAGES, Server::environment())
}

/// A slot is the beginning of the sample.
struct Beginning;

const BEGINNING: usize = 16;

impl Fill<Pixels, Encoded> for Beginning {
    fn work(&self, _: Item, _: &Encoded) -> Work {
        Work { kind: "copy", bytes: 0, pixels: 0 }
    }

    fn fill(&self, _: Item, encoded: Encoded, out: &mut [u8]) -> Result<(), Failure> {
        out.copy_from_slice(&encoded.data[..BEGINNING]);
        Ok(())
    }
}

fn settings(source: &dyn Source) -> Settings {
    let mut settings = Settings::new(source.len(), 4, BEGINNING);
    settings.shuffle = Some(7);
    settings.lanes = 8;
    settings.retries = Retries { at_most: 3, base: Duration::from_millis(1), cap: Duration::from_millis(2) };
    settings
}

fn run(source: Arc<dyn Source>, settings: Settings, consumer: Consumer) -> Run {
    let config = real::Config { threads: 2, ..real::Config::new(source) };
    measure(config, settings.resolve().unwrap(), Beginning, consumer, Recorder::new().keep_events(), |_| ()).unwrap()
}

fn failures(run: &Run, kind: FailureKind) -> usize {
    let events = run.recorder.events();
    events.iter().filter(|e| e.stage == StageId::FETCH && e.kind == Kind::Fail && e.bytes == kind.code()).count()
}

/// A store with twelve objects.
fn twelve(hook: impl Fn(&str, u64) -> Answer + Send + Sync + 'static) -> (Server, Arc<Remote>) {
    let server = Server::start(hook);
    for i in 0..12_u8 {
        server.put(&format!("{i:02}.jpg"), &[i; 1000]);
    }
    let remote = Arc::new(open(&server, "").unwrap());
    (server, remote)
}

#[test]
fn a_store_delivers_what_a_folder_does() {
    let server = Server::sound();
    // Names whose order by bytes is not that of a folder's files, and some that do not count.
    for (folder, seed) in [("a", 1), ("a-b", 2), ("a/c", 3)] {
        synth::write_folder(&server.bucket().join("train").join(folder), 4, seed, |_| ()).unwrap();
    }
    server.put("train/.hidden/x.jpg", b"no image");
    server.put("other/x.jpg", b"no image");
    let folder = Arc::new(Folder::images(server.bucket().join("train")).unwrap());
    let remote = Arc::new(open(&server, "train").unwrap());
    assert_eq!((remote.len(), remote.bytes()), (folder.len(), folder.bytes()));
    for sample in 0..folder.len() {
        let tail = |name: String| name.split_once("/train/").unwrap().1.to_owned();
        assert_eq!(tail(remote.name(sample)), tail(folder.name(sample)));
    }
    let delivered = |source: Arc<dyn Source>| {
        let target = Target::square(32);
        let mut settings = Settings { slot_bytes: target.bytes(), epochs: 2, ..settings(&*source) };
        settings.sample_bytes = 1 << 20;
        let fill = DecodeImage::new(Decoder::new(Choice::Rust, target).unwrap());
        let config = real::Config { threads: 2, leaf_cpu: true, ..real::Config::new(source) };
        let mut all = Vec::new();
        let look = |batch: &towtank::measure::HostBatch| {
            all.extend(batch.samples().flat_map(u64::to_le_bytes));
            all.extend_from_slice(batch.pixels());
        };
        let run = measure(config, settings.resolve().unwrap(), fill, Consumer::EAGER, Recorder::new(), look).unwrap();
        assert_eq!((&run.end, run.outcome.accounts.delivered), (&Ok(()), 24));
        assert!(run.outcome.accounts.balanced());
        all
    };
    assert!(delivered(folder) == delivered(remote), "other samples, another order, or other pixels");
}

#[test]
fn a_missing_object_and_a_forbidden_one_fail_by_name_and_are_skipped_if_asked() {
    let (server, remote) = twelve(|key, _| match key {
        "05.jpg" => Answer::Refuse(403, "AccessDenied"),
        _ => Answer::Serve,
    });
    fs::remove_file(server.bucket().join("02.jpg")).unwrap();
    fs::write(server.bucket().join("03.jpg"), [3; 400]).unwrap();
    let read = |sample| remote.read(sample, &mut Vec::new(), &|| true).unwrap_err();
    let (missing, shorter, forbidden) = (read(2), read(3), read(5));
    assert_eq!((missing.kind, shorter.kind, forbidden.kind), (FailureKind::NotFound, FailureKind::Truncated, FailureKind::Store));
    assert!(missing.message.contains("/photos/02.jpg`") && missing.message.contains("404"), "{missing}");
    assert!(forbidden.message.contains("AccessDenied, as asked"), "{forbidden}");

    let mut settings = settings(&*remote);
    settings.on_error = OnError::Skip { at_most: Allowance::Count(3) };
    let run = run(remote, settings, Consumer::EAGER);
    assert_eq!(run.end, Ok(()));
    let accounts = run.outcome.accounts;
    assert_eq!((accounts.delivered, accounts.skipped), (9, 3), "{accounts:?}");
    assert_eq!(accounts.reasons[FailureKind::Store as usize], 1);
    assert_eq!(run.outcome.retries, 0, "trying again helps none of them");
}

#[test]
fn a_store_that_asks_to_slow_down_is_asked_again_by_the_loader_alone() {
    let (_server, remote) = twelve(|_, nth| if nth == 0 { Answer::Refuse(503, "SlowDown") } else { Answer::Serve });
    let run = run(remote.clone(), settings(&*remote), Consumer::EAGER);
    assert_eq!((&run.end, run.outcome.accounts.delivered), (&Ok(()), 12));
    assert_eq!(run.outcome.retries, 12, "each object is asked for twice, and nothing below the loader asks on its own");
    assert_eq!(failures(&run, FailureKind::Throttled), 12);
}

#[test]
fn a_request_that_stalls_is_given_up_at_the_deadline_and_made_again() {
    let (server, remote) = twelve(|key, nth| if key == "04.jpg" && nth < 2 { Answer::Stall } else { Answer::Serve });
    let mut settings = settings(&*remote);
    settings.fetch_deadline = Some(Duration::from_millis(150));
    settings.retries.at_most = 50;
    let run = run(remote.clone(), settings, Consumer::EAGER);
    assert_eq!((&run.end, run.outcome.accounts.delivered), (&Ok(()), 12));
    assert!(run.outcome.retries >= 2, "{}", run.outcome.retries);
    assert_eq!(remote.under_way(), 0);
    comes_to_nothing(|| server.under_way());
}

#[test]
fn a_consumer_that_leaves_leaves_no_request_behind() {
    // The first batch comes; of the others every request stalls. By name, since two requests for one sample may overtake each other.
    let (server, remote) = twelve(|key, _| if key < "04.jpg" { Answer::Serve } else { Answer::Stall });
    let mut settings = settings(&*remote);
    settings.shuffle = None;
    let consumer = Consumer { leave_after: Some(1), ..Consumer::EAGER };
    let run = run(remote.clone(), settings, consumer);
    assert_eq!(run.end, Ok(()));
    assert!(run.outcome.accounts.balanced(), "{:?}", run.outcome.accounts);
    assert_eq!(remote.under_way(), 0, "tasks are gone when the machine has ended");
    comes_to_nothing(|| server.under_way());
}

/// The other end learns of a closed connection when it learns of it.
#[expect(clippy::disallowed_methods, reason = "the store is not of the machine")]
fn comes_to_nothing(mut left: impl FnMut() -> usize) {
    while left() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn no_more_requests_are_under_way_than_connections_are_allowed() {
    let most = Arc::new(AtomicUsize::new(0));
    let (_server, remote) = twelve(|_, _| Answer::Slow(Duration::from_millis(5), 1e9));
    let config =
        real::Config { threads: 2, connections: Some(2), ..real::Config::new(Arc::new(Counting(remote.clone(), most.clone()))) };
    let resolved = settings(&*remote).resolve().unwrap();
    let run = measure(config, resolved, Beginning, Consumer::EAGER, Recorder::new(), |_| ()).unwrap();
    assert_eq!(run.outcome.accounts.delivered, 12);
    assert_eq!(most.load(SeqCst), 2);
}

/// Notes how many reads are under way at once.
struct Counting(Arc<Remote>, Arc<AtomicUsize>);

impl Source for Counting {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn bytes_bound(&self, sample: u64) -> Option<u64> {
        self.0.bytes_bound(sample)
    }
    fn name(&self, sample: u64) -> String {
        self.0.name(sample)
    }
    fn read(&self, sample: u64, into: &mut Vec<u8>, wanted: &dyn Fn() -> bool) -> Result<(), Failure> {
        self.0.read(sample, into, wanted)
    }
    fn io(&self) -> Option<&tokio::runtime::Handle> {
        self.0.io()
    }
    fn fetch<'a>(&'a self, sample: u64, into: &'a mut Vec<u8>) -> towtank::source::Fetching<'a> {
        Box::pin(async move {
            let mut fetch = self.0.fetch(sample, into);
            std::future::poll_fn(|cx| {
                let polled = fetch.as_mut().poll(cx);
                self.1.fetch_max(self.0.under_way(), SeqCst);
                polled
            })
            .await
        })
    }
}

#[test]
fn what_is_wrong_with_a_store_is_told_with_its_url_and_a_way_out() {
    let server = Server::sound();
    server.put("notes/a.txt", b"no image");
    let told = |result: Result<Remote, RemoteError>, words: &[&str]| {
        let error = result.expect_err("it cannot be opened");
        let told = format!("{error}\nhint: {}", error.hint());
        assert!(words.iter().all(|word| told.contains(word)), "{words:?} in {told}");
    };
    let at = |url: &str, environment: Vec<(String, String)>| Remote::open(url, &Folder::IMAGES, environment);
    let endpoint = server.endpoint();
    told(open(&server, "none"), &["/photos/none", "nothing under it"]);
    told(open(&server, "notes"), &["/photos/notes", "1 objects with other names"]);
    told(at(&format!("{endpoint}/nobody"), Server::environment()), &["/nobody`", "NoSuchBucket", "AWS_ENDPOINT_URL"]);
    let mut wrong = Server::environment();
    wrong[1].1 = "another secret".to_owned();
    told(at(&server.url(""), wrong), &["/photos/`", "refuses", "AWS_SECRET_ACCESS_KEY"]);
    told(at("http://127.0.0.1:1/photos", Server::environment()), &["http://127.0.0.1:1/photos", "cannot reach", "refused"]);
    let nowhere = vec![("AWS_METADATA_ENDPOINT".to_owned(), "http://127.0.0.1:1".to_owned())];
    told(at(&server.url(""), nowhere), &["/photos/`", "no credentials", "AWS_SKIP_SIGNATURE"]);
    let mut plain = Server::environment();
    plain.push(("AWS_ENDPOINT_URL".to_owned(), endpoint.clone()));
    told(at("s3://photos", plain.clone()), &["s3://photos", &endpoint, "AWS_ALLOW_HTTP"]);
    plain.push(("AWS_ALLOW_HTTP".to_owned(), "true".to_owned()));
    server.put("x.jpg", b"an image");
    assert_eq!(at("s3://photos", plain).unwrap().name(0), "s3://photos/x.jpg");
}

fn towtank(args: &[&str]) -> Output {
    let cache = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_towtank"))
        .args(args)
        .env("XDG_CACHE_HOME", cache.path())
        .envs(Server::environment())
        .output()
        .expect("the program runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_program_runs_on_images_at_a_url() {
    let server = Server::sound();
    synth::write_folder(&server.bucket().join("train"), 6, 1, |_| ()).unwrap();
    let url = server.url("train");
    let small = ["--json", "--set", "loader.batch=2", "--set", "loader.size=32", "--set", "consumer.step=0 ms"];
    let output = towtank(&[&["run", "quickstart", "--data", &url], &small[..]].concat());
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)));
    assert_eq!(report["measured"]["delivered"], 12, "two epochs: {}", stderr(&output));

    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine.toml");
    let text = fs::read_to_string("scenarios/quickstart.toml").unwrap();
    let (before, after) = text.split_once("[dataset]").unwrap();
    let after = after.split_once("\n[").unwrap().1;
    fs::write(&mine, format!("{before}[dataset]\npath = {url:?}\n\n[{after}")).unwrap();
    let output = towtank(&[&["run", mine.to_str().unwrap()], &small[..]].concat());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)));
    assert_eq!(report["measured"]["delivered"], 12, "{}", stderr(&output));

    let output = towtank(&["run", "quickstart", "--data", &server.url("nothing")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no .jpg or .jpeg or .png object under `http://127.0.0.1:"), "{}", stderr(&output));
}
