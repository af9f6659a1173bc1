//! Traffic by RDMA: a reliable queue pair writes into the other side's memory, without that side's processor.
//!
//! A TCP connection with the token (see [`wire`](crate::wire)) carries the descriptions of both ends, one line of JSON each
//! way ([`card`]); then the client sends a byte, and the queue pairs do the rest:
//!
//! | kind | client | server |
//! |---|---|---|
//! | ping | sends a byte and waits for a byte; two bytes at the end | sends each back |
//! | push | writes until its time is up, and closes | waits for the close |
//! | pull | waits for a line | writes until the time is up, then sends a line with the result |
//!
//! A write completes when its bytes have arrived at the other adapter, so the writing side counts.

pub mod card;
mod port;
mod queue;
mod sys;

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::lanes;
use crate::wire::{IO_TIMEOUT, Taken};
use card::{Answer, Card, Kind, Offer, negotiate};
use port::Port;
use queue::{DEPTH, MESSAGE, Queue};

/// Most bytes of a line.
const LONGEST_LINE: usize = 16 * 1024;
/// Polls without a result before the thread yields: a software adapter runs on the same processor.
const SPINS: u32 = 64;
/// Bytes of the last message of a ping.
const LAST_MESSAGE_BYTES: u32 = 2;
/// Sent by the client when both ends are ready.
const GO: u8 = b'g';

/// Why a measurement failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// RDMA is not possible between the two ends: TCP may be tried.
    Unavailable(String),
    /// RDMA is possible, and failed.
    Failed(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

/// The result of a pull, from the server.
#[derive(Debug, Serialize, Deserialize)]
struct Outcome {
    bytes: u64,
    nanos: u64,
    error: Option<String>,
}

/// Checks that this program can load the RDMA library here.
///
/// # Errors
/// The library cannot be loaded, with the reason.
pub fn available() -> Result<(), String> {
    sys::verbs().map(drop)
}

/// Checks that a lane of this machine is usable.
///
/// # Errors
/// The lane is not usable, with the reason.
pub fn usable(lane: &str) -> Result<(), String> {
    Queue::new(Port::of(lane)?, 0).map(drop)
}

fn open_queue(lane: &str) -> Result<Queue, String> {
    // Packet sequence numbers need not be secret, only different from run to run.
    let psn = RandomState::new().hash_one(lane) as u32;
    Queue::new(Port::of(lane)?, psn)
}

fn write_line(stream: &mut TcpStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn read_line<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            return Ok(serde_json::from_slice(&line)?);
        }
        line.push(byte[0]);
        if line.len() > LONGEST_LINE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"));
        }
    }
}

/// A connected queue pair, and the TCP connection that negotiated it.
pub struct ConnectedLane {
    queue: Queue,
    peer: Card,
    stream: TcpStream,
}

/// Connects a lane with a lane of the server: by name, or by the address of the TCP connection. The server waits for the
/// client to begin.
///
/// # Errors
/// One of the two ends cannot, or the server does not answer.
pub fn join(mut stream: TcpStream, lane: &str, peer_lane: Option<&str>, kind: Kind) -> Result<ConnectedLane, Fault> {
    let mut queue = open_queue(lane).map_err(|why| Fault::Unavailable(format!("here: {why}")))?;
    let card = queue.card();
    let offer = Offer {
        lane: peer_lane.unwrap_or_default().to_owned(),
        kind,
        card: card.clone(),
    };
    write_line(&mut stream, &offer)?;
    let peer = match read_line(&mut stream)? {
        Answer::Taken(peer) => peer,
        Answer::Refused(why) => return Err(Fault::Unavailable(format!("there: {why}"))),
    };
    let (route, _) = negotiate(&card, &peer).map_err(Fault::Unavailable)?;
    queue.connect(route, &peer)?;
    if kind == Kind::Ping {
        queue.expect()?;
    }
    Ok(ConnectedLane { queue, peer, stream })
}

/// Runs the server's side of a measurement to its end.
///
/// # Errors
/// The client is gone, or RDMA failed, which the client sees as well.
pub fn answer(mut stream: TcpStream, duration: Duration) -> Result<(), Fault> {
    let offer: Offer = read_line(&mut stream)?;
    let address = stream.local_addr()?.ip();
    let made = || {
        let lane = match offer.lane.is_empty() {
            true => lanes::at(address).ok_or_else(|| format!("no adapter has the address {address}"))?,
            false => offer.lane.clone(),
        };
        let mut queue = open_queue(&lane)?;
        let card = queue.card();
        let (_, route) = negotiate(&offer.card, &card)?;
        queue.connect(route, &offer.card)?;
        if offer.kind == Kind::Ping {
            queue.expect()?;
        }
        Ok::<_, String>((queue, card))
    };
    let (mut queue, card) = match made() {
        Ok(made) => made,
        Err(why) => return Ok(write_line(&mut stream, &Answer::Refused(why))?),
    };
    write_line(&mut stream, &Answer::Taken(card))?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    match offer.kind {
        Kind::Ping => echo(&mut queue, Instant::now() + duration + IO_TIMEOUT)?,
        // The writes need no action here; the client ends the measurement.
        Kind::Push => {
            stream.set_read_timeout(Some(duration + IO_TIMEOUT))?;
            stream.read_exact(&mut byte)?;
        }
        Kind::Pull => {
            let wrote = write(&mut queue, &offer.card, duration);
            let taken = wrote.as_ref().copied().unwrap_or(Taken {
                bytes: 0,
                took: Duration::ZERO,
            });
            let outcome = Outcome {
                bytes: taken.bytes,
                nanos: u64::try_from(taken.took.as_nanos()).unwrap_or(u64::MAX),
                error: wrote.err(),
            };
            write_line(&mut stream, &outcome)?;
        }
    }
    Ok(())
}

/// Polls without a result, with a yield now and then.
struct PollTimer {
    idle: u32,
    duration: Duration,
    until: Instant,
}

impl PollTimer {
    /// Gives up after this time without a result.
    fn of(duration: Duration) -> Self {
        let until = Instant::now() + duration;
        Self {
            idle: 0,
            duration,
            until,
        }
    }

    fn renew(&mut self) {
        self.until = Instant::now() + self.duration;
    }

    fn wait(&mut self) -> Result<(), String> {
        self.idle += 1;
        if self.idle < SPINS {
            std::hint::spin_loop();
            return Ok(());
        }
        self.idle = 0;
        std::thread::yield_now();
        match Instant::now() < self.until {
            true => Ok(()),
            false => Err(format!(
                "the adapter reported no completion for {:.1} s",
                self.duration.as_secs_f64()
            )),
        }
    }
}

/// Writes until the time is up, and then waits until everything has arrived.
fn write(queue: &mut Queue, peer: &Card, duration: Duration) -> Result<Taken, String> {
    let (mut bytes, mut took) = (0, Duration::ZERO);
    let begun = Instant::now();
    let mut timer = PollTimer::of(IO_TIMEOUT);
    loop {
        while queue.in_flight() < DEPTH && begun.elapsed() < duration {
            queue.write(peer)?;
        }
        if queue.in_flight() == 0 {
            return Ok(Taken { bytes, took });
        }
        let done = queue.poll()?.sent;
        if done == 0 {
            timer.wait()?;
            continue;
        }
        timer.renew();
        took = begun.elapsed();
        bytes += u64::from(done) * MESSAGE as u64;
    }
}

/// The size of the next message in bytes.
fn next(queue: &mut Queue) -> Result<u32, String> {
    let mut timer = PollTimer::of(IO_TIMEOUT);
    loop {
        if let Some(bytes) = queue.poll()?.received {
            queue.expect()?;
            return Ok(bytes);
        }
        timer.wait()?;
    }
}

fn echo(queue: &mut Queue, until: Instant) -> Result<(), String> {
    while next(queue)? < LAST_MESSAGE_BYTES && Instant::now() < until {
        queue.send(1)?;
    }
    Ok(())
}

impl ConnectedLane {
    /// Writes to the server.
    ///
    /// # Errors
    /// A write failed.
    pub fn push(mut self, duration: Duration) -> Result<Taken, Fault> {
        self.stream.write_all(&[GO])?;
        Ok(write(&mut self.queue, &self.peer, duration)?)
    }

    /// Has the server write.
    ///
    /// # Errors
    /// A write failed there, or the server is gone.
    pub fn pull(mut self, duration: Duration) -> Result<Taken, Fault> {
        self.stream.write_all(&[GO])?;
        // The server waits for its adapter as long.
        self.stream.set_read_timeout(Some(duration + 2 * IO_TIMEOUT))?;
        let outcome: Outcome = read_line(&mut self.stream)?;
        match outcome.error {
            Some(error) => Err(Fault::Failed(format!("there: {error}"))),
            None => Ok(Taken {
                bytes: outcome.bytes,
                took: Duration::from_nanos(outcome.nanos),
            }),
        }
    }

    /// Times of round trips, up to `most` or until the time is up.
    ///
    /// # Errors
    /// A message was lost.
    pub fn ping(mut self, warm_up: usize, most: usize, duration: Duration) -> Result<Vec<Duration>, Fault> {
        self.stream.write_all(&[GO])?;
        let (begun, mut times) = (Instant::now(), Vec::with_capacity(most));
        for turn in 0..warm_up + most {
            let sent = Instant::now();
            self.queue.send(1)?;
            next(&mut self.queue)?;
            if turn >= warm_up {
                times.push(sent.elapsed());
            }
            if begun.elapsed() > duration && !times.is_empty() {
                break;
            }
        }
        self.queue.send(LAST_MESSAGE_BYTES as usize)?;
        // The message must arrive before the queue pair is destroyed.
        let mut timer = PollTimer::of(IO_TIMEOUT);
        while self.queue.in_flight() > 0 {
            self.queue.poll()?;
            timer.wait()?;
        }
        Ok(times)
    }
}
