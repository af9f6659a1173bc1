//! The command line.

use std::net::IpAddr;
use std::time::Duration;

/// The usage text.
const USAGE: &str = "usage: rackwright-traffic serve --deadline-s N [--port P]\n       \
                     rackwright-traffic run --ms N [--streams N] [--one-way] [--tcp] LANE[/PEER]=ADDRESS:PORT...\n       \
                     rackwright-traffic verbs\n\
                     The token, 32 hex digits, is in RACKWRIGHT_TRAFFIC_TOKEN.";
/// Longest time of a direction: a test takes seconds.
const LONGEST_MS: u64 = 600_000;
/// Longest deadline of a server: longer than any validation.
const LONGEST_S: u64 = 6 * 3600;
/// Most streams; each takes a thread on both sides.
const MOST_STREAMS: u32 = 64;
/// Most lanes: more than the adapters of any machine.
const MOST_LANES: usize = 64;

/// The parsed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Start a server in the background, and print where it listens.
    Serve {
        /// The server ends by itself after this time.
        deadline: Duration,
        /// Port; 0: any free port.
        port: u16,
    },
    /// Run that server in the foreground.
    Listen {
        /// As in `Serve`.
        deadline: Duration,
        /// As in `Serve`.
        port: u16,
    },
    /// Measure.
    Run(MeasureRequest),
    /// Print whether RDMA is usable at all.
    Verbs,
}

/// A measurement to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasureRequest {
    /// Time of sending in each direction.
    pub duration: Duration,
    /// Connections for each lane.
    pub streams: u32,
    /// Only send: no latency, no opposite direction.
    pub one_way: bool,
    /// Only by TCP, even where RDMA is possible.
    pub tcp: bool,
    /// Lanes, measured all at once.
    pub lanes: Vec<LaneTarget>,
}

/// The target of one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneTarget {
    /// Name of this machine's adapter; `-`: by the system's routing.
    pub lane: String,
    /// Name of the server's adapter, where `address` is not that adapter's own: only by RDMA.
    pub peer: Option<String>,
    /// The server's address.
    pub address: IpAddr,
    pub port: u16,
}

fn number(word: &str, value: Option<&String>, most: u64) -> Result<u64, String> {
    let value = value.ok_or_else(|| format!("{word} needs a number"))?;
    let number = value.parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| format!("{word}: {value:?} is not a number from 0 to {most}"))
}

fn target(word: &str) -> Result<LaneTarget, String> {
    let wrong = || format!("{word:?} is not LANE=ADDRESS:PORT");
    let (lane, at) = word.split_once('=').ok_or_else(wrong)?;
    let (address, port) = at.rsplit_once(':').ok_or_else(wrong)?;
    let address = address.trim_start_matches('[').trim_end_matches(']');
    let (lane, peer) = match lane.split_once('/') {
        Some((lane, peer)) => (lane, Some(peer.to_owned())),
        None => (lane, None),
    };
    Ok(LaneTarget {
        lane: lane.to_owned(),
        peer,
        address: address.parse().map_err(|_| wrong())?,
        port: port.parse().map_err(|_| wrong())?,
    })
}

impl Command {
    /// Parses the words after the program's name.
    ///
    /// # Errors
    /// The fault of the words, and the correct form.
    pub fn of(arguments: &[String]) -> Result<Self, String> {
        let (verb, rest) = arguments.split_first().ok_or_else(|| USAGE.to_owned())?;
        let (mut deadline_s, mut port, mut ms, mut streams) = (0, 0, 0, 1);
        let (mut one_way, mut tcp, mut lanes) = (false, false, Vec::new());
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "--deadline-s" => deadline_s = number(word, rest.next(), LONGEST_S)?,
                "--port" => port = number(word, rest.next(), u16::MAX.into())? as u16,
                "--ms" => ms = number(word, rest.next(), LONGEST_MS)?,
                "--streams" => streams = number(word, rest.next(), MOST_STREAMS.into())? as u32,
                "--one-way" => one_way = true,
                "--tcp" => tcp = true,
                other => lanes.push(target(other)?),
            }
        }
        let deadline = Duration::from_secs(deadline_s);
        match verb.as_str() {
            "serve" | "listen" if deadline_s == 0 => Err("--deadline-s is required and must be at least 1".into()),
            "serve" => Ok(Self::Serve { deadline, port }),
            "listen" => Ok(Self::Listen { deadline, port }),
            "verbs" => Ok(Self::Verbs),
            "run" if ms == 0 || streams == 0 => Err("--ms and --streams must be at least 1".into()),
            "run" if lanes.is_empty() || lanes.len() > MOST_LANES => {
                Err(format!("give 1 to {MOST_LANES} lanes\n{USAGE}"))
            }
            "run" => Ok(Self::Run(MeasureRequest {
                duration: Duration::from_millis(ms),
                streams,
                one_way,
                tcp,
                lanes,
            })),
            _ => Err(USAGE.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Command, String> {
        Command::of(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_parsed() {
        let request = of("run --ms 500 --streams 4 mlx5_0=[fe80::1]:4242 -=10.0.0.1:4242 a/b=10.0.0.1:1").unwrap();
        let Command::Run(request) = request else {
            panic!("{request:?}")
        };
        assert_eq!(
            (request.duration.as_millis(), request.streams, request.one_way),
            (500, 4, false)
        );
        assert_eq!(request.lanes[0].address, "fe80::1".parse::<IpAddr>().unwrap());
        assert_eq!((request.lanes[1].lane.as_str(), request.lanes[1].port), ("-", 4242));
        assert_eq!(
            (request.lanes[1].peer.as_deref(), request.lanes[2].peer.as_deref()),
            (None, Some("b"))
        );
        assert!(!request.tcp);
    }

    #[test]
    fn invalid_options_are_reported() {
        for (line, word) in [
            ("", "usage"),
            ("serve", "--deadline-s"),
            ("serve --deadline-s 99999999", "--deadline-s"),
            ("run --ms 0 -=10.0.0.1:1", "--ms"),
            ("run --ms 5", "lanes"),
            ("run --ms 5 -=here:1", "LANE=ADDRESS:PORT"),
            ("run --ms 5 --streams 1000 -=10.0.0.1:1", "--streams"),
            ("fly --ms 5", "usage"),
        ] {
            let fault = of(line).unwrap_err();
            assert!(fault.contains(word), "{line}: {fault}");
        }
    }
}
