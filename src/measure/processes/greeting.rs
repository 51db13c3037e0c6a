//! Who says hello to rank 0, and whether it belongs to the job.
//!
//! ```text
//!  rank r                                    rank 0
//!  "towtank2" · rank · its settings ──────►  compares them with its own
//!             ◄────── "towtank2" · welcome   once all are there
//!             ◄────── "towtank2" · refused · why
//! ```
//!
//! All who are on their way are listened to at once, each for a few seconds: one who is silent keeps nobody waiting.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use super::{MeetError, Say, Setting, now, pause};

/// Name and version of what is spoken. Version 1 knew neither goodbyes nor settings.
pub(super) const MAGIC: [u8; 8] = *b"towtank2";
const NAME: &[u8] = b"towtank";
/// How long one that is there may take to say who it is.
const HELLO: Duration = Duration::from_secs(5);
/// How long nothing is said about waiting.
const SILENT: Duration = Duration::from_secs(3);
/// Between two tries of a name that does not resolve, each of which may be a question to a server.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// The longest try to reach one address.
const REACH: Duration = Duration::from_secs(5);
/// Settings longer than that are no hello.
const TEXT_MOST: usize = 1 << 16;
/// More than that are not listened to at once, beside those that are expected.
const CROWD: usize = 1024;
/// Ranks, or reasons, that a message names.
const NAMED: usize = 8;

const WELCOME: u8 = 0;
const REFUSED: u8 = 1;

/// What was heard of one who is on its way.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    /// Not all of it yet.
    More,
    /// It is nothing that this program says.
    Stranger,
    /// It is another version of this program.
    Version(u8),
    /// A rank and its settings.
    Hello(u16, Vec<Setting>),
}

/// What `rank` says to rank 0.
fn hello(rank: u16, settings: &[Setting]) -> Vec<u8> {
    let lines: Vec<String> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut said = MAGIC.to_vec();
    said.extend(rank.to_le_bytes());
    append(&mut said, &lines.join("\n"));
    said
}

/// What rank 0 answers.
fn answer(word: u8, why: &str) -> Vec<u8> {
    let mut said = MAGIC.to_vec();
    said.push(word);
    append(&mut said, why);
    said
}

/// A text with its length before it.
pub(super) fn append(said: &mut Vec<u8>, text: &str) {
    let text = text.get(..TEXT_MOST).unwrap_or(text);
    said.extend(u32::try_from(text.len()).unwrap_or(0).to_le_bytes());
    said.extend(text.as_bytes());
}

fn heard(bytes: &[u8]) -> Heard {
    let (known, rest) = bytes.split_at(bytes.len().min(NAME.len()));
    if !NAME.starts_with(known) {
        return Heard::Stranger;
    }
    let [version, rest @ ..] = rest else { return Heard::More };
    if *version != MAGIC[NAME.len()] {
        return Heard::Version(*version);
    }
    let [low, high, a, b, c, d, text @ ..] = rest else { return Heard::More };
    let length = usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX);
    match std::str::from_utf8(text) {
        _ if length > TEXT_MOST || text.len() > length => Heard::Stranger,
        _ if text.len() < length => Heard::More,
        Ok(text) => {
            let settings = text.lines().filter_map(|line| line.split_once('='));
            let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            Heard::Hello(u16::from_le_bytes([*low, *high]), settings)
        }
        Err(_) => Heard::Stranger,
    }
}

/// What two processes of one job should have in common and do not, in words for `theirs`.
fn differences(ours: &[Setting], theirs: &[Setting]) -> Option<String> {
    let (ours, theirs): (BTreeMap<_, _>, BTreeMap<_, _>) = (ours.iter().cloned().collect(), theirs.iter().cloned().collect());
    let names: Vec<&String> = ours
        .keys()
        .chain(theirs.keys().filter(|name| !ours.contains_key(*name)))
        .filter(|n| ours.get(*n) != theirs.get(*n))
        .collect();
    let value = |of: &BTreeMap<String, String>, name: &String| of.get(name).map_or_else(|| "not set".to_owned(), Clone::clone);
    let words: Vec<String> = names
        .iter()
        .map(|name| format!("`{name}` is {} at rank 0 and {} here", value(&ours, name), value(&theirs, name)))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Somebody who has connected and not yet said all.
struct OnItsWay {
    stream: TcpStream,
    said: Vec<u8>,
    until: Instant,
}

impl OnItsWay {
    fn new(stream: TcpStream) -> io::Result<OnItsWay> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(OnItsWay { stream, said: Vec::new(), until: now() + HELLO })
    }

    /// What it has said so far, without waiting.
    fn listen(&mut self) -> Heard {
        let mut more = [0; 4096];
        loop {
            match heard(&self.said) {
                Heard::More => {}
                done => return done,
            }
            match self.stream.read(&mut more) {
                Ok(0) => return Heard::Stranger,
                Ok(n) => self.said.extend(&more[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::More,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Heard::Stranger,
            }
        }
    }
}

/// Whether a connection that is not read from yet is still there.
fn is_there(stream: &TcpStream) -> bool {
    match stream.peek(&mut [0]) {
        Ok(n) => n > 0,
        Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}

/// Rank 0 while the others come.
pub(super) struct Gathering<'a> {
    /// Ranks of the job.
    pub(super) world: u16,
    /// What all must have in common.
    pub(super) settings: &'a [Setting],
    /// Where it listens, in words.
    pub(super) at: &'a str,
    /// How long.
    pub(super) patience: Duration,
    pub(super) say: Say<'a>,
    /// Those that came.
    pub(super) there: BTreeMap<u16, TcpStream>,
    /// Why others were sent away.
    pub(super) refused: Vec<String>,
}

impl Gathering<'_> {
    /// Waits for all; gives a connection to each.
    pub(super) fn wait(mut self, listener: &TcpListener) -> Result<BTreeMap<u16, TcpStream>, MeetError> {
        let cannot = |error| MeetError::Listen { at: self.at.to_owned(), error };
        listener.set_nonblocking(true).map_err(cannot)?;
        let (begun, mut on_their_way, mut told) = (now(), Vec::new(), false);
        loop {
            while on_their_way.len() < usize::from(self.world) + CROWD {
                match listener.accept() {
                    // One that is gone again is nobody.
                    Ok((stream, _)) => on_their_way.extend(OnItsWay::new(stream).ok()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
                    Err(error) => return Err(MeetError::Listen { at: self.at.to_owned(), error }),
                }
            }
            for mut one in std::mem::take(&mut on_their_way) {
                match one.listen() {
                    Heard::More if now() < one.until => on_their_way.push(one),
                    Heard::More | Heard::Stranger => {}
                    Heard::Version(version) => {
                        let (theirs, ours) = (char::from(version), char::from(MAGIC[NAME.len()]));
                        let why = format!(
                            "it speaks version {} of the protocol, and rank 0 version {ours}: all must run the same program",
                            theirs.escape_default()
                        );
                        self.refuse(one.stream, "a process", &why);
                    }
                    Heard::Hello(rank, settings) => self.greet(rank, &settings, one.stream),
                }
            }
            if self.missing().next().is_none() {
                // One that has left again before all were there is missing.
                self.there.retain(|_, stream| is_there(stream));
            }
            if self.missing().next().is_none() {
                return Ok(self.there);
            }
            let waited = begun.elapsed();
            if waited >= self.patience {
                return Err(self.gave_up());
            }
            if waited >= SILENT && !told {
                told = true;
                (self.say)(&format!("note: rank 0 waits at {} for {}", self.at, self.missing_words()));
            }
            pause();
        }
    }

    fn missing(&self) -> impl Iterator<Item = u16> {
        (1..self.world).filter(|rank| !self.there.contains_key(rank))
    }

    fn missing_words(&self) -> String {
        let missing: Vec<String> = self.missing().map(|rank| rank.to_string()).collect();
        let rest = missing.len().saturating_sub(NAMED);
        let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        let plural = if missing.len() == 1 { "" } else { "s" };
        format!("rank{plural} {}{more}", missing[..missing.len() - rest].join(", "))
    }

    fn gave_up(self) -> MeetError {
        let missing = self.missing_words();
        let Gathering { world, at, patience: waited, there, refused, .. } = self;
        let refused = match refused.as_slice() {
            [] => String::new(),
            some => format!("; sent away: {}", some.join("; ")),
        };
        MeetError::Missing { here: there.len() + 1, world, missing, at: at.to_owned(), waited, refused }
    }

    fn greet(&mut self, rank: u16, settings: &[Setting], stream: TcpStream) {
        let who = format!("a process that is rank {rank}");
        let why = match differences(self.settings, settings) {
            Some(differences) => format!("it is of another job, or was started otherwise: {differences}"),
            None if rank == 0 || rank >= self.world => format!("there is no place for a second rank {rank} here"),
            None if self.there.get(&rank).is_some_and(is_there) => {
                format!("another process is rank {rank} already: `RANK={rank}` is set for two")
            }
            // One that was there before has lost its connection before the start, and comes again.
            None => {
                self.there.insert(rank, stream);
                return;
            }
        };
        self.refuse(stream, &who, &why);
    }

    /// Sends somebody away, and says so on both sides.
    fn refuse(&mut self, mut stream: TcpStream, who: &str, why: &str) {
        // Whether it still listens is its own matter.
        let _ = stream.set_nonblocking(false).and_then(|()| stream.set_write_timeout(Some(Duration::from_secs(1))));
        let _ = stream.write_all(&answer(REFUSED, why));
        let from = stream.peer_addr().map_or_else(|_| String::new(), |from| format!(" from {}", from.ip()));
        (self.say)(&format!("note: {who}{from} was sent away: {why}"));
        if self.refused.len() < NAMED {
            self.refused.push(format!("{who}{from}: {why}"));
        }
    }
}

/// Tells one that all are there.
pub(super) fn welcome(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.write_all(&answer(WELCOME, ""))
}

/// A rank that is on its way to rank 0.
pub(super) struct Journey<'a> {
    pub(super) rank: u16,
    pub(super) settings: &'a [Setting],
    pub(super) address: &'a str,
    pub(super) port: u16,
    pub(super) patience: Duration,
    pub(super) say: Say<'a>,
}

impl Journey<'_> {
    /// Connects as soon as somebody listens, and waits until all are there.
    pub(super) fn go(self) -> Result<TcpStream, MeetError> {
        let at = format!("{}:{}", self.address, self.port);
        let unreachable = |error| MeetError::Connect { at: at.clone(), error };
        let (begun, until) = (now(), now() + self.patience);
        let mut stream = self.connect(&at, begun, until)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        stream.write_all(&hello(self.rank, self.settings)).map_err(unreachable)?;
        let mut said = Vec::new();
        let stranger = || MeetError::Stranger { at: at.clone() };
        let word = self.next(&mut stream, &mut said, MAGIC.len() + 5, &at, until)?;
        if word[..MAGIC.len()] != MAGIC {
            return Err(stranger());
        }
        let length: [u8; 4] = word[MAGIC.len() + 1..].try_into().unwrap_or_default();
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        match word[MAGIC.len()] {
            WELCOME if length == 0 => Ok(stream),
            REFUSED if length <= TEXT_MOST => {
                let why = self.next(&mut stream, &mut said, length, &at, until)?;
                Err(MeetError::Refused { at: at.clone(), why: String::from_utf8_lossy(&why).into_owned() })
            }
            _ => Err(stranger()),
        }
    }

    fn connect(&self, at: &str, begun: Instant, until: Instant) -> Result<TcpStream, MeetError> {
        let mut told = false;
        loop {
            let error = match (self.address, self.port).to_socket_addrs() {
                Err(error) => MeetError::Resolve { address: self.address.to_owned(), error },
                Ok(addresses) => match reach(addresses, until) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => MeetError::Connect { at: at.to_owned(), error },
                },
            };
            if now() >= until {
                return Err(error);
            }
            if begun.elapsed() >= SILENT && !told {
                told = true;
                (self.say)(&format!("note: rank {} waits for rank 0 at {at}, and tries again: {error}", self.rank));
            }
            let asked = matches!(error, MeetError::Resolve { .. }).then(|| now() + ASK_AGAIN);
            pause();
            while asked.is_some_and(|asked| now() < asked.min(until)) {
                pause();
            }
        }
    }

    /// The next `length` bytes that rank 0 says; what came after them stays in `said`.
    fn next(
        &self,
        stream: &mut TcpStream,
        said: &mut Vec<u8>,
        length: usize,
        at: &str,
        until: Instant,
    ) -> Result<Vec<u8>, MeetError> {
        let lost = |error| MeetError::Connect { at: at.to_owned(), error };
        let mut told = false;
        let mut more = [0; 256];
        while said.len() < length {
            let left = until.saturating_duration_since(now());
            if left.is_zero() {
                return Err(lost(io::Error::new(io::ErrorKind::TimedOut, "it has not said yet that all are there")));
            }
            stream.set_read_timeout(Some(if told { left } else { left.min(SILENT) })).map_err(lost)?;
            match stream.read(&mut more) {
                Ok(0) => return Err(MeetError::Stranger { at: at.to_owned() }),
                Ok(n) => said.extend(&more[..n]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if !told {
                        (self.say)(&format!(
                            "note: rank {} has reached rank 0 at {at}, and waits until all are there",
                            self.rank
                        ));
                    }
                    told = true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(error)),
            }
        }
        let rest = said.split_off(length);
        Ok(std::mem::replace(said, rest))
    }
}

/// A connection to one of these addresses.
fn reach(addresses: impl Iterator<Item = std::net::SocketAddr>, until: Instant) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in addresses {
        let left = until.saturating_duration_since(now()).clamp(Duration::from_millis(1), REACH);
        match TcpStream::connect_timeout(&address, left) {
            // While nobody listens, a connection may by chance leave from the very port that it goes to, and meet itself.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {
                failed = io::Error::new(io::ErrorKind::ConnectionRefused, "nobody listens there");
            }
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(all: &[(&str, &str)]) -> Vec<Setting> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_hello_is_heard_once_it_is_whole() {
        let settings = settings(&[("WORLD_SIZE", "4"), ("loader.batch", "32")]);
        let said = hello(3, &settings);
        for cut in 0..said.len() {
            assert_eq!(heard(&said[..cut]), Heard::More, "{cut} of {} bytes", said.len());
        }
        assert_eq!(heard(&said), Heard::Hello(3, settings));
        assert_eq!(heard(&[&said[..], b"more"].concat()), Heard::Stranger);
        assert_eq!(heard(b"GET / HTTP/1.1"), Heard::Stranger);
        assert_eq!(heard(b"towtank1"), Heard::Version(b'1'));
        let endless = [&MAGIC[..], &[0, 0, 255, 255, 255, 255]].concat();
        assert_eq!(heard(&endless), Heard::Stranger, "nobody says so much");
    }

    #[test]
    fn what_differs_is_named_with_both_values() {
        let ours = settings(&[("WORLD_SIZE", "2"), ("seed", "1")]);
        assert_eq!(differences(&ours, &ours), None);
        let theirs = settings(&[("WORLD_SIZE", "2"), ("seed", "7"), ("job", "b")]);
        let words = "`seed` is 1 at rank 0 and 7 here, `job` is not set at rank 0 and b here";
        assert_eq!(differences(&ours, &theirs).as_deref(), Some(words));
    }
}
