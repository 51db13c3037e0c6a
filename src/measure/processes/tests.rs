use std::sync::{
    Mutex,
    atomic::{AtomicU32, Ordering},
};

use super::*;

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a free port").port()
}

fn soon() -> Duration {
    Duration::from_secs(20)
}

fn settings(world: u16, more: &[(&str, &str)]) -> Vec<Setting> {
    let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    std::iter::once(("WORLD_SIZE".to_owned(), world.to_string())).chain(more).collect()
}

fn come(rank: u16, world: u16, port: u16, patience: Duration) -> Result<Box<dyn Meeting>, MeetError> {
    meet(Member { rank, world, settings: &settings(world, &[]) }, ("127.0.0.1", port), patience, &|_| ())
}

/// A connection to whoever listens at the port, once somebody does.
fn connected(port: u16) -> TcpStream {
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(_) => pause(),
        }
    }
}

/// Ranks that do so many steps each; fails when one is ahead of one that has not left.
fn run(steps: &[u32]) {
    let (port, world) = (free_port(), steps.len() as u16);
    let done: Vec<AtomicU32> = steps.iter().map(|_| AtomicU32::new(0)).collect();
    thread::scope(|scope| {
        for rank in 0..world {
            let done = &done;
            scope.spawn(move || {
                let mut meeting = come(rank, world, port, soon()).expect("they meet");
                for step in 0..steps[usize::from(rank)] {
                    done[usize::from(rank)].store(step + 1, Ordering::SeqCst);
                    meeting.meet().expect("nobody is lost");
                    let behind = done.iter().zip(steps).any(|(done, all)| done.load(Ordering::SeqCst) < (step + 1).min(*all));
                    assert!(!behind, "all have done step {step}");
                }
            });
        }
    });
    assert!(done.iter().zip(steps).all(|(done, steps)| done.load(Ordering::SeqCst) == *steps));
}

#[test]
fn processes_meet_after_every_step_whoever_says_goodbye_first() {
    run(&[50, 50, 50, 50]);
    run(&[1, 20, 20]);
    run(&[20, 20, 0]);
}

/// What each rank is told at the step after which `gone` ends without a goodbye, as a process that is killed does.
fn lost(gone: u16) -> Vec<Lost> {
    let port = free_port();
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..3)
            .map(|rank| {
                scope.spawn(move || {
                    let mut meeting = come(rank, 3, port, soon()).expect("they meet");
                    let first = meeting.meet();
                    if rank == gone {
                        // A thread that panics says no goodbye.
                        std::panic::panic_any("killed");
                    }
                    // One that is slow to hear that all have done the first step may hear of the loss with it.
                    let lost = first.and_then(|()| meeting.meet()).expect_err("one is gone");
                    assert_eq!(meeting.meet(), Err(lost.clone()), "nothing brings it back");
                    lost
                })
            })
            .collect();
        ranks.into_iter().filter_map(|rank| rank.join().ok()).collect()
    })
}

#[test]
fn a_rank_that_goes_without_a_goodbye_is_named_to_all_that_are_left() {
    let told = lost(2);
    assert_eq!(told, vec![Lost { rank: 2, why: "its process ended without a goodbye".to_owned() }; 2]);
    let told = lost(0);
    assert_eq!(told, vec![Lost { rank: 0, why: "it panicked".to_owned() }; 2]);
}

#[test]
fn rank_0_that_is_killed_is_named_too() {
    let port = free_port();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (settings, say) = (settings(2, &[]), |_: &str| ());
            let gathering = Gathering {
                world: 2,
                settings: &settings,
                at: "here",
                patience: soon(),
                say: &say,
                there: BTreeMap::new(),
                refused: Vec::new(),
            };
            let there = gathering.wait(&listener).expect("it comes");
            there.into_values().for_each(|mut stream| welcome(&mut stream).expect("it is there"));
            // Gone, as when the process is killed.
        });
        let mut meeting = come(1, 2, port, soon()).expect("they meet");
        assert_eq!(meeting.meet().map_err(|lost| lost.rank), Err(0));
    });
}

#[test]
fn one_that_never_comes_is_missed_by_its_number() {
    let port = free_port();
    let missing = come(0, 3, port, Duration::from_millis(5)).map(|_| ()).expect_err("nobody comes");
    assert_eq!(missing.to_string(), format!("of 3 ranks only 1 came to 127.0.0.1:{port} within 0 s: ranks 1, 2 did not"));
    let alone = come(1, 3, port, Duration::from_millis(5)).map(|_| ()).expect_err("nobody listens");
    assert!(matches!(alone, MeetError::Connect { .. }), "{alone}");
}

#[test]
fn strangers_are_told_apart() {
    let stranger = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = stranger.local_addr().expect("its address").port();
    thread::scope(|scope| {
        scope.spawn(|| {
            stranger.accept().map(|(mut stream, _)| stream.write_all(b"HTTP/1.1 400 Bad Request")).expect("it connects")
        });
        let wrong = come(1, 2, port, soon()).map(|_| ()).expect_err("no rank 0");
        assert!(matches!(wrong, MeetError::Stranger { .. } | MeetError::Connect { .. }), "{wrong}");
    });
    let busy = come(0, 2, port, soon()).map(|_| ()).expect_err("somebody is there");
    assert!(matches!(busy, MeetError::Listen { .. }), "{busy}");
}

/// What rank 0 of two says and fails with while `other` goes to its port.
fn beside(other: impl FnOnce(u16) -> Option<MeetError> + Send) -> (String, String, String) {
    let (port, said) = (free_port(), Mutex::new(Vec::new()));
    let (theirs, ours) = thread::scope(|scope| {
        let other = scope.spawn(move || other(port));
        let say = |words: &str| said.lock().unwrap().push(words.to_owned());
        let member = Member { rank: 0, world: 2, settings: &settings(2, &[("loader.batch", "16")]) };
        let ours =
            meet(member, ("127.0.0.1", port), Duration::from_millis(500), &say).map(|_| ()).expect_err("nobody of this job");
        (other.join().unwrap(), ours)
    });
    let theirs = theirs.map(|error| error.to_string()).unwrap_or_default();
    (theirs, said.into_inner().unwrap().join("\n"), ours.to_string())
}

#[test]
fn a_process_of_another_job_is_sent_away_and_told_what_differs() {
    let (theirs, said, ours) = beside(|port| {
        let member = Member { rank: 1, world: 3, settings: &settings(3, &[("loader.batch", "32")]) };
        meet(member, ("127.0.0.1", port), soon(), &|_| ()).map(|_| ()).err()
    });
    let why = "it is of another job, or was started otherwise: `WORLD_SIZE` is 2 at rank 0 and 3 here, `loader.batch` is 16 at rank 0 and 32 here";
    assert!(theirs.ends_with(&format!("sends this process away: {why}")), "{theirs}");
    assert_eq!(said, format!("note: a process that is rank 1 from 127.0.0.1 was sent away: {why}"));
    assert!(ours.contains("rank 1 did not; sent away: a process that is rank 1 from 127.0.0.1"), "{ours}");
}

#[test]
fn another_version_is_named() {
    let (_, said, _) = beside(|port| {
        let mut old = connected(port);
        old.write_all(b"towtank1\x02\0\x01\0").unwrap();
        let mut answer = Vec::new();
        old.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"towtank2"));
        None
    });
    assert!(said.contains("it speaks version 1 of the protocol, and rank 0 version 2"), "{said}");
}

#[test]
fn a_rank_that_two_processes_have_is_said_to_be_so() {
    let (port, world) = (free_port(), 3);
    thread::scope(|scope| {
        // All of them wait for rank 2, which comes when one of the two has been sent away.
        let twins = [(); 2].map(|()| scope.spawn(move || come(1, world, port, soon()).map(|_| ())));
        let host = scope.spawn(move || come(0, world, port, soon()).map(|_| ()));
        while !twins.iter().any(|twin| twin.is_finished()) {
            pause();
        }
        come(2, world, port, soon()).expect("all are there");
        host.join().unwrap().expect("all are there");
        let ends = twins.map(|twin| twin.join().unwrap());
        let wrong: Vec<String> = ends.into_iter().filter_map(|end| end.err()).map(|error| error.to_string()).collect();
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].ends_with("another process is rank 1 already: `RANK=1` is set for two"), "{wrong:?}");
    });
}

#[test]
fn one_that_came_and_went_before_the_start_may_come_again() {
    let port = free_port();
    thread::scope(|scope| {
        let host = scope.spawn(move || come(0, 3, port, soon()).map(|_| ()));
        // Cannot wait for rank 2, and leaves.
        let gone = come(1, 3, port, Duration::from_millis(100)).map(|_| ());
        assert!(gone.is_err());
        let others = [1, 2].map(|rank| scope.spawn(move || come(rank, 3, port, soon()).map(|_| ())));
        others.into_iter().for_each(|other| other.join().unwrap().expect("all are there"));
        host.join().unwrap().expect("all are there");
    });
}

#[test]
fn those_who_connect_and_say_nothing_keep_nobody_waiting() {
    let port = free_port();
    thread::scope(|scope| {
        let host = scope.spawn(move || come(0, 2, port, soon()).map(|_| ()));
        let silent: Vec<TcpStream> = (0..8).map(|_| connected(port)).collect();
        // Each of them had five seconds to itself, one after the other: more than there are.
        come(1, 2, port, soon()).expect("they meet");
        host.join().unwrap().expect("they meet");
        drop(silent);
    });
}

#[test]
fn a_name_that_does_not_resolve_is_named_and_told_of() {
    let (said, member) = (Mutex::new(Vec::new()), Member { rank: 1, world: 2, settings: &settings(2, &[]) });
    let say = |words: &str| said.lock().unwrap().push(words.to_owned());
    let wrong = meet(member, ("no-such-node.invalid", 1), Duration::ZERO, &say).map(|_| ()).expect_err("there is none");
    assert!(matches!(wrong, MeetError::Resolve { .. }), "{wrong}");
    assert!(wrong.to_string().starts_with("`no-such-node.invalid` does not resolve: "), "{wrong}");
}
