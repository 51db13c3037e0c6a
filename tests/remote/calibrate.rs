//! What calibration finds of a store whose latency and rate are planted.

use std::{sync::Arc, time::Duration};

use ::towtank::{
    failure::FailureKind,
    model::{
        Latency,
        calibrate::{StoreEffort, StoreError, calibrate_store},
    },
};

use super::{
    open,
    server::{Answer, Server},
    stderr, towtank,
};

const EFFORT: StoreEffort = StoreEffort { time: Duration::from_millis(1200), connections: 4 };

/// Six objects of 200 kB.
fn planted(hook: impl Fn(&str, u64) -> Answer + Send + Sync + 'static) -> Server {
    let server = Server::start(hook);
    for i in 0..6_u8 {
        server.put(&format!("{i}.jpg"), &vec![i; 200_000]);
    }
    server
}

/// A store that is late by `LATE` and gives a connection `RATE`, never less late and never more. The machine on which the test runs can
/// only add to the one and take from the other, so the bounds have one side; 10 % more are for pieces that come in pairs.
#[test]
fn what_was_planted_is_found() {
    const LATE: Duration = Duration::from_millis(20);
    const RATE: f64 = 4e6;
    let server = planted(|_, _| Answer::Slow(LATE, RATE));
    let remote = Arc::new(open(&server, "").unwrap());
    let mut told = Vec::new();
    let found = calibrate_store(&remote, EFFORT, |done, all| told.push((done, all))).unwrap();
    let quality = &found.quality;
    assert!(quality.first_byte_ns.value >= LATE.as_nanos() as f64, "{quality:?}");
    let flow = quality.per_connection.expect("most of an object comes after its first piece");
    assert!(flow.value > 0.0 && flow.value <= 1.1 * RATE && flow.standard_error.is_finite(), "{quality:?}");
    assert_eq!(quality.failed, 0);
    assert!(quality.by_connections.len() >= 2 && quality.by_connections.iter().all(|at| at.rate.value > 0.0), "{quality:?}");
    for at in &quality.by_connections {
        assert!(at.rate.value <= 1.1 * RATE * at.connections as f64, "{quality:?}");
    }
    assert!(told.windows(2).all(|w| w[0].0 <= w[1].0) && told.last().is_some_and(|(done, all)| done <= all), "{told:?}");

    let Some(Latency::Table { points, .. }) = &found.store.first_byte else { panic!("{:?}", found.store) };
    assert!(points.len() > 2 && points.windows(2).all(|w| w[0].at < w[1].at && w[0].value <= w[1].value), "{points:?}");
    let mut machine = ::towtank::model::load("reference-2core").unwrap();
    machine.stores.insert("object".to_owned(), found.store);
    let read = ::towtank::model::parse("written.toml", &machine.to_toml()).unwrap_or_else(|trouble| panic!("{trouble}"));
    assert_eq!(read.stores["object"], machine.stores["object"], "a model's file holds it");
}

#[test]
fn a_store_that_serves_nothing_says_why() {
    let server = planted(|_, _| Answer::Refuse(503, "SlowDown"));
    let remote = Arc::new(open(&server, "").unwrap());
    match calibrate_store(&remote, EFFORT, |_, _| ()) {
        Err(StoreError::Failed { failure, .. }) => assert_eq!(failure.kind, FailureKind::Throttled),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_program_says_what_is_wrong_with_a_url() {
    let server = Server::sound();
    for (url, words) in [
        (server.url("empty"), "nothing under it"),
        ("http://127.0.0.1:1/photos".to_owned(), "AWS_ENDPOINT_URL"),
        ("s3://".to_owned(), "names no bucket"),
    ] {
        let output = towtank(&["calibrate", "--quick", "--store", &url]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(words) && stderr(&output).contains(&format!("`{url}`")), "{}", stderr(&output));
    }
}
