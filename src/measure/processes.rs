//! Where ranks that are processes of their own wait for each other after every step: a barrier over TCP.
//!
//! ```text
//!  rank 1 ──hello──►┐                        ┌──► a thread for each, a party of the barrier like rank 0's own:
//!  rank 2 ──hello──►│ rank 0, which listens ─┤      reads a byte, meets, answers a byte
//!  rank 3 ──hello──►┘                        └──► a connection that ends leaves the barrier
//! ```
//!
//! Rank 0 answers a hello once all are there, so they begin together. After that every step is a byte there and a byte back. A process that
//! ends closes its connection, whatever ended it, and is waited for no longer; when rank 0 is gone, the others go on by themselves.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::Meeting;
use crate::sync::Party;

/// How long processes wait for each other to start.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How long one that is there may take to say who it is.
const HELLO: Duration = Duration::from_secs(5);
/// Longer than that no step takes: who has not answered by then is gone without a word, with its whole computer.
const STEP_MOST: Duration = Duration::from_secs(600);
/// Between two looks at who has come.
const PAUSE: Duration = Duration::from_millis(2);

const MAGIC: [u8; 8] = *b"towtank1";

/// Why processes did not meet.
#[derive(Debug, thiserror::Error)]
pub enum MeetError {
    /// Rank 0 cannot listen there.
    #[error("rank 0 cannot listen at {at}: {error}")]
    Listen {
        /// Address and port.
        at: String,
        /// Why.
        error: io::Error,
    },
    /// Rank 0 cannot be reached.
    #[error("rank 0 cannot be reached at {at}: {error}")]
    Connect {
        /// Address and port.
        at: String,
        /// Why.
        error: io::Error,
    },
    /// Somebody else answers there.
    #[error("what answers at {at} is no rank 0 of this job")]
    Stranger {
        /// Address and port.
        at: String,
    },
    /// Not all came in time.
    #[error("of {world} ranks only {here} came to {at} within {} s", waited.as_secs())]
    Missing {
        /// Those that came, rank 0 among them.
        here: usize,
        /// How many there are.
        world: u16,
        /// Address and port.
        at: String,
        /// How long they were waited for.
        waited: Duration,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for a rank: {0}")]
    Thread(#[from] io::Error),
}

/// Waits until all processes of the job are there, and gives where this one meets them: rank 0 listens at `address` and `port`, the others
/// connect there. They are waited for as long as `patience`; [`PATIENCE`] suits most.
///
/// # Errors
///
/// When they do not meet: see [`MeetError`].
pub fn meet(rank: u16, world: u16, address: &str, port: u16, patience: Duration) -> Result<Box<dyn Meeting>, MeetError> {
    let until = now() + patience;
    let at = format!("{address}:{port}");
    if rank == 0 {
        let mut there = listen(world, address, port, &at, until, patience)?;
        for stream in there.values_mut() {
            // One that is gone already leaves the barrier by itself.
            let _ = stream.write_all(&MAGIC);
        }
        return Ok(Box::new(Host::new(there)?));
    }
    let unreachable = |error| MeetError::Connect { at: at.clone(), error };
    let mut stream = connect(address, port, until).map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    stream.write_all(&hello(rank, world)).map_err(unreachable)?;
    // What is not the rank 0 may never answer.
    stream.set_read_timeout(Some(patience.max(PAUSE))).map_err(unreachable)?;
    let mut answer = [0; MAGIC.len()];
    match stream.read_exact(&mut answer) {
        Ok(()) if answer == MAGIC => {}
        Ok(()) => return Err(MeetError::Stranger { at }),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(MeetError::Stranger { at }),
        Err(error) => return Err(unreachable(error)),
    }
    stream.set_read_timeout(Some(STEP_MOST)).map_err(unreachable)?;
    Ok(Box::new(Guest { stream: Some(stream) }))
}

fn hello(rank: u16, world: u16) -> [u8; 12] {
    let mut hello = [0; 12];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..10].copy_from_slice(&world.to_le_bytes());
    hello[10..].copy_from_slice(&rank.to_le_bytes());
    hello
}

#[expect(clippy::disallowed_methods, reason = "processes wait for each other in real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "processes wait for each other in real time")]
fn pause() {
    thread::sleep(PAUSE);
}

/// Rank 0's connection to each of the others.
fn listen(
    world: u16,
    address: &str,
    port: u16,
    at: &str,
    until: Instant,
    waited: Duration,
) -> Result<BTreeMap<u16, TcpStream>, MeetError> {
    let cannot = |error| MeetError::Listen { at: at.to_owned(), error };
    let listener = TcpListener::bind((address, port)).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let mut there = BTreeMap::new();
    while there.len() + 1 < usize::from(world) {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Some(rank) = greeted(&stream, world) {
                    // A rank that comes again has lost its connection before the start.
                    there.insert(rank, stream);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if now() >= until {
                    return Err(MeetError::Missing { here: there.len() + 1, world, at: at.to_owned(), waited });
                }
                pause();
            }
            Err(error) => return Err(cannot(error)),
        }
    }
    Ok(there)
}

/// The rank that says hello; `None` for strangers.
fn greeted(mut stream: &TcpStream, world: u16) -> Option<u16> {
    stream.set_nonblocking(false).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(HELLO)).ok()?;
    let mut told = [0; 12];
    stream.read_exact(&mut told).ok()?;
    let rank = u16::from_le_bytes([told[10], told[11]]);
    stream.set_read_timeout(Some(STEP_MOST)).ok()?;
    (told == hello(rank, world) && (1..world).contains(&rank)).then_some(rank)
}

/// Connects as soon as somebody listens.
fn connect(address: &str, port: u16, until: Instant) -> io::Result<TcpStream> {
    loop {
        match TcpStream::connect((address, port)) {
            // While nobody listens, a connection may by chance leave from the very port that it goes to, and meet itself.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => pause(),
            Ok(stream) => return Ok(stream),
            Err(error) if now() >= until => return Err(error),
            Err(_) => pause(),
        }
    }
}

/// Rank 0: a party like the others, which stand behind their threads.
struct Host {
    party: Option<Party>,
    threads: Vec<JoinHandle<()>>,
}

impl Host {
    fn new(there: BTreeMap<u16, TcpStream>) -> io::Result<Host> {
        let mut parties = Party::of(u32::try_from(there.len()).unwrap_or(u32::MAX).saturating_add(1)).into_iter();
        let mut host = Host { party: parties.next(), threads: Vec::new() };
        for ((rank, stream), party) in there.into_iter().zip(parties) {
            let thread = thread::Builder::new().name(format!("towtank rank {rank}"));
            host.threads.push(thread.spawn(move || stand_for(stream, party))?);
        }
        Ok(host)
    }
}

/// Stands for a process at the barrier until its connection ends.
fn stand_for(mut stream: TcpStream, mut party: Party) {
    let mut step = [0; 1];
    while stream.read_exact(&mut step).is_ok() {
        party.meet();
        if stream.write_all(&step).is_err() {
            break;
        }
    }
}

impl Meeting for Host {
    fn meet(&mut self) {
        if let Some(party) = &mut self.party {
            party.meet();
        }
    }
}

impl Drop for Host {
    /// The others still meet here when rank 0 has no more steps.
    fn drop(&mut self) {
        self.party = None;
        for thread in self.threads.drain(..) {
            // A panic there has been told of by its thread, and the party is gone with it.
            let _ = thread.join();
        }
    }
}

/// Every other rank.
struct Guest {
    /// `None` when rank 0 is gone.
    stream: Option<TcpStream>,
}

impl Meeting for Guest {
    fn meet(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let mut step = [1; 1];
        if stream.write_all(&step).and_then(|()| stream.read_exact(&mut step)).is_err() {
            self.stream = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn free_port() -> u16 {
        TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a free port").port()
    }

    fn soon() -> Duration {
        Duration::from_secs(20)
    }

    /// Ranks that do so many steps each; fails when one is ahead of one that has not left.
    fn run(steps: &[u32]) {
        let (port, world) = (free_port(), steps.len() as u16);
        let done: Vec<AtomicU32> = steps.iter().map(|_| AtomicU32::new(0)).collect();
        thread::scope(|scope| {
            for rank in 0..world {
                let done = &done;
                scope.spawn(move || {
                    let mut meeting = meet(rank, world, "127.0.0.1", port, soon()).expect("they meet");
                    for step in 0..steps[usize::from(rank)] {
                        done[usize::from(rank)].store(step + 1, Ordering::SeqCst);
                        meeting.meet();
                        let behind = done.iter().zip(steps).any(|(done, all)| done.load(Ordering::SeqCst) < (step + 1).min(*all));
                        assert!(!behind, "all have done step {step}");
                    }
                });
            }
        });
        assert!(done.iter().zip(steps).all(|(done, steps)| done.load(Ordering::SeqCst) == *steps));
    }

    #[test]
    fn processes_meet_after_every_step_whoever_ends_first() {
        run(&[50, 50, 50, 50]);
        run(&[1, 20, 20]);
        run(&[20, 20, 0]);
    }

    #[test]
    fn who_is_left_when_rank_0_is_gone_goes_on_alone() {
        let port = free_port();
        thread::scope(|scope| {
            scope.spawn(move || {
                let there = listen(2, "127.0.0.1", port, "here", now() + soon(), soon()).expect("it comes");
                there.into_values().for_each(|mut stream| stream.write_all(&MAGIC).expect("it is there"));
                // Gone, as when the process is killed.
            });
            let mut meeting = meet(1, 2, "127.0.0.1", port, soon()).expect("they meet");
            meeting.meet();
            meeting.meet();
        });
    }

    #[test]
    fn one_that_never_comes_is_missed() {
        let port = free_port();
        let missing = meet(0, 3, "127.0.0.1", port, Duration::from_millis(5)).map(|_| ()).expect_err("nobody comes");
        assert_eq!(missing.to_string(), format!("of 3 ranks only 1 came to 127.0.0.1:{port} within 0 s"));
        let alone = meet(1, 3, "127.0.0.1", port, Duration::from_millis(5)).map(|_| ()).expect_err("nobody listens");
        assert!(matches!(alone, MeetError::Connect { .. }), "{alone}");
    }

    #[test]
    fn strangers_are_told_apart() {
        let stranger = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = stranger.local_addr().expect("its address").port();
        thread::scope(|scope| {
            scope.spawn(|| stranger.accept().map(|(mut stream, _)| stream.write_all(b"HTTP/1.1 400")).expect("it connects"));
            let wrong = meet(1, 2, "127.0.0.1", port, soon()).map(|_| ()).expect_err("no rank 0");
            assert!(matches!(wrong, MeetError::Stranger { .. } | MeetError::Connect { .. }), "{wrong}");
        });
        let busy = meet(0, 2, "127.0.0.1", port, soon()).map(|_| ()).expect_err("somebody is there");
        assert!(matches!(busy, MeetError::Listen { .. }), "{busy}");
        // A world of another size is another job's.
        let port = free_port();
        thread::scope(|scope| {
            scope.spawn(move || meet(1, 3, "127.0.0.1", port, soon()).map(|_| ()).expect_err("another job"));
            let alone = meet(0, 2, "127.0.0.1", port, Duration::from_millis(300)).map(|_| ()).expect_err("nobody of this job");
            assert!(matches!(alone, MeetError::Missing { here: 1, .. }), "{alone}");
        });
    }
}
