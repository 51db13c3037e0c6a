//! Where ranks that are processes of their own wait for each other after every step: a barrier over TCP.
//!
//! ```text
//!  rank 1 ──hello──►┐                        ┌──► a thread for each, a party of the barrier like rank 0's own:
//!  rank 2 ──hello──►│ rank 0, which listens ─┤      reads a word, meets, answers
//!  rank 3 ──hello──►┘                        └──► a goodbye leaves the barrier; a connection that ends without one is a loss
//! ```
//!
//! Rank 0 answers a hello once all are there, so they begin together. After that every step is a word there and one back:
//!
//! | word | from | means |
//! | --- | --- | --- |
//! | `step` | another rank | it has done a step, and waits |
//! | `goodbye` | another rank | it has no more steps, or its loader has failed, and nobody is to wait for it |
//! | `go` | rank 0 | all have done the step, or have said goodbye |
//! | `lost`, rank, why | rank 0 | a rank went without a goodbye: killed, crashed, or its computer cannot be reached |
//!
//! Rank 0 says no goodbye: when it has no more steps, the others still meet at it. A rank that is lost is an error for all that are left,
//! as it is in data-parallel training, whose next step would never end.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{Lost, Meeting};
use crate::sync::Party;

mod greeting;

use greeting::{Gathering, Journey, append, welcome};

/// How long processes wait for each other to start.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than that no step takes: who has said nothing by then is lost.
const STEP_MOST: Duration = Duration::from_secs(600);
/// Between two looks at who has come.
const PAUSE: Duration = Duration::from_millis(2);

const STEP: u8 = 1;
const GOODBYE: u8 = 2;
const GO: u8 = 3;
const LOST: u8 = 4;

/// Something that all processes of a job must have in common, and its value in words of one line.
pub type Setting = (String, String);

/// Who is told in between what is waited for.
pub type Say<'a> = &'a dyn Fn(&str);

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
    /// The name of rank 0's computer has no address.
    #[error("`{address}` does not resolve: {error}")]
    Resolve {
        /// The name.
        address: String,
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
    /// Rank 0 says that this process is none of its job.
    #[error("rank 0 at {at} sends this process away: {why}")]
    Refused {
        /// Address and port.
        at: String,
        /// What differs.
        why: String,
    },
    /// Not all came in time.
    #[error("of {world} ranks only {here} came to {at} within {} s: {missing} did not{refused}", waited.as_secs())]
    Missing {
        /// Those that came, rank 0 among them.
        here: usize,
        /// How many there are.
        world: u16,
        /// Which did not come.
        missing: String,
        /// Address and port.
        at: String,
        /// How long they were waited for.
        waited: Duration,
        /// Who came and was sent away, and why; empty for nobody.
        refused: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for a rank: {0}")]
    Thread(#[from] io::Error),
}

impl MeetError {
    /// What may help.
    pub fn hint(&self) -> &'static str {
        match self {
            MeetError::Listen { error, .. } if error.kind() == io::ErrorKind::AddrInUse => {
                "another process has this port: a second one with `RANK=0`, or another job, which needs another `MASTER_PORT`"
            }
            MeetError::Listen { .. } => "`MASTER_ADDR` is an address of the computer that rank 0 runs on",
            MeetError::Resolve { .. } => "`MASTER_ADDR` is the name or the address of the computer that rank 0 runs on",
            MeetError::Connect { .. } => "rank 0 runs at `MASTER_ADDR`, and `MASTER_PORT` must be open to the others",
            MeetError::Stranger { .. } => "each job needs a `MASTER_PORT` of its own, and all its processes the same program",
            MeetError::Refused { .. } => "all processes of a job are started alike, but for `RANK` and `LOCAL_RANK`",
            MeetError::Missing { .. } | MeetError::Thread(_) => "`--set ranks.barrier=false` has each process step by itself",
        }
    }
}

/// One process of a job.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Which one, from 0.
    pub rank: u16,
    /// How many there are.
    pub world: u16,
    /// What all of them must have in common, `WORLD_SIZE` among it: who has it otherwise is of another job, and sent away.
    pub settings: &'a [Setting],
}

/// Waits until all processes of the job are there, and gives where this one meets them: rank 0 listens at `address` and `port`, the others
/// connect there. They are waited for as long as `patience`; [`PATIENCE`] suits most. `say` is told what is waited for when that takes more
/// than a moment, and who was sent away.
///
/// # Errors
///
/// When they do not meet: see [`MeetError`].
pub fn meet(
    member: Member<'_>,
    (address, port): (&str, u16),
    patience: Duration,
    say: Say<'_>,
) -> Result<Box<dyn Meeting>, MeetError> {
    let Member { rank, world, settings } = member;
    let at = format!("{address}:{port}");
    if rank == 0 {
        let listener = TcpListener::bind((address, port)).map_err(|error| MeetError::Listen { at: at.clone(), error })?;
        let (there, refused) = (BTreeMap::new(), Vec::new());
        let gathering = Gathering { world, settings, at: &at, patience, say, there, refused };
        return Ok(Box::new(Host::new(gathering.wait(&listener)?)?));
    }
    let unreachable = |error| MeetError::Connect { at: at.clone(), error };
    let stream = Journey { rank, settings, address, port, patience, say }.go()?;
    watch(&stream).map_err(unreachable)?;
    Ok(Box::new(Guest { stream: Some(stream), lost: None }))
}

#[expect(clippy::disallowed_methods, reason = "processes wait for each other in real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "processes wait for each other in real time")]
fn pause() {
    thread::sleep(PAUSE);
}

/// Has the system see within a minute that the computer at the other end is gone, with which no goodbye and no end of the connection comes.
fn watch(stream: &TcpStream) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::net::sockopt;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, Duration::from_secs(10))?;
        sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
        sockopt::set_tcp_keepcnt(stream, 6)?;
        sockopt::set_tcp_user_timeout(stream, 40_000)?;
    }
    stream.set_read_timeout(Some(STEP_MOST))
}

/// Why a connection counts as lost.
fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "its process ended without a goodbye".to_owned()
        }
        io::ErrorKind::WouldBlock => format!("it has said nothing for {} s", STEP_MOST.as_secs()),
        _ => format!("it cannot be reached any more: {error}"),
    }
}

/// The first rank that was lost, as all threads of rank 0 see it.
#[derive(Clone, Debug, Default)]
struct Losses(Arc<Mutex<Option<Lost>>>);

impl Losses {
    fn note(&self, rank: u16, why: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(Lost { rank, why });
    }

    fn first(&self) -> Result<(), Lost> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}

/// Rank 0: a party like the others, which stand behind their threads.
struct Host {
    party: Option<Party>,
    losses: Losses,
    threads: Vec<JoinHandle<()>>,
}

impl Host {
    fn new(there: BTreeMap<u16, TcpStream>) -> io::Result<Host> {
        let mut parties = Party::of(u32::try_from(there.len()).unwrap_or(u32::MAX).saturating_add(1)).into_iter();
        let mut host = Host { party: parties.next(), losses: Losses::default(), threads: Vec::new() };
        for ((rank, mut stream), mut party) in there.into_iter().zip(parties) {
            let losses = host.losses.clone();
            let stand = move || {
                let stood =
                    welcome(&mut stream).and_then(|()| watch(&stream)).and_then(|()| stand_for(stream, &mut party, &losses));
                if let Err(error) = stood {
                    losses.note(rank, words(&error));
                }
                // Only now, so that whoever is let pass by this sees why.
                drop(party);
            };
            let thread = thread::Builder::new().name(format!("towtank rank {rank}")).spawn(stand);
            host.threads.push(thread.inspect_err(|_| host.losses.note(0, "it could not start a thread".to_owned()))?);
        }
        Ok(host)
    }
}

/// Stands for a process at the barrier until it says goodbye.
fn stand_for(mut stream: TcpStream, party: &mut Party, losses: &Losses) -> io::Result<()> {
    let mut word = [0; 1];
    loop {
        stream.read_exact(&mut word)?;
        match word[0] {
            STEP => {}
            GOODBYE => return Ok(()),
            _ => return Err(nonsense()),
        }
        party.meet();
        match losses.first() {
            Ok(()) => stream.write_all(&[GO])?,
            Err(Lost { rank, why }) => {
                let mut said = vec![LOST];
                said.extend(rank.to_le_bytes());
                append(&mut said, &why);
                stream.write_all(&said)?;
            }
        }
    }
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it says what no rank says")
}

impl Meeting for Host {
    fn meet(&mut self) -> Result<(), Lost> {
        if let Some(party) = &mut self.party {
            party.meet();
        }
        self.losses.first()
    }
}

impl Drop for Host {
    /// The others still meet here when rank 0 has no more steps.
    fn drop(&mut self) {
        if thread::panicking() {
            self.losses.note(0, "it panicked".to_owned());
        }
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
    /// Which rank was lost, when one was.
    lost: Option<Lost>,
}

impl Guest {
    /// A step: who was lost meanwhile, if any was.
    fn step(stream: &mut TcpStream) -> io::Result<Option<Lost>> {
        stream.write_all(&[STEP])?;
        let mut word = [0; 1];
        stream.read_exact(&mut word)?;
        match word[0] {
            GO => Ok(None),
            LOST => {
                let (mut rank, mut length) = ([0; 2], [0; 4]);
                stream.read_exact(&mut rank)?;
                stream.read_exact(&mut length)?;
                let mut why = Vec::new();
                stream.take(u32::from_le_bytes(length).into()).read_to_end(&mut why)?;
                Ok(Some(Lost { rank: u16::from_le_bytes(rank), why: String::from_utf8_lossy(&why).into_owned() }))
            }
            _ => Err(nonsense()),
        }
    }
}

impl Meeting for Guest {
    fn meet(&mut self) -> Result<(), Lost> {
        if let (None, Some(stream)) = (&self.lost, &mut self.stream) {
            match Guest::step(stream) {
                Ok(lost) => self.lost = lost,
                Err(error) => {
                    self.lost = Some(Lost { rank: 0, why: words(&error) });
                    self.stream = None;
                }
            }
        }
        self.lost.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Guest {
    /// Says goodbye; one that panics ends without.
    fn drop(&mut self) {
        if let Some(stream) = self.stream.as_mut().filter(|_| !thread::panicking()) {
            // When rank 0 is gone too, nobody waits.
            let _ = stream.write_all(&[GOODBYE]);
        }
    }
}

#[cfg(test)]
mod tests;
