//! The client, which measures.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, SocketAddrV6, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::args::{LaneTarget, MeasureRequest};
use crate::rdma::{self, ConnectedLane, Fault, card::Kind};
use crate::report::{Lane, Measured, Rate, Report, RoundTrip, Transport};
use crate::wire::{self, IO_TIMEOUT, Mode, Taken, Token};
use crate::{lanes, tcp_info};

/// Limit for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Number of measured round trips, if `PING_TIME` allows.
const PINGS: usize = 400;
const PING_TIME: Duration = Duration::from_millis(500);
/// Round trips before the first measured one.
const WARM_UP: usize = 10;

/// Measures every lane, all at once, and prints the report.
///
/// # Errors
/// There is no token. A lane that fails is not an error: the report has the reason.
pub fn run(request: &MeasureRequest) -> Result<(), String> {
    let token = wire::token()?;
    let own = lanes::found();
    let report = Report {
        lanes: all(request, &own, &token),
    };
    let line = serde_json::to_string(&report).map_err(|e| e.to_string())?;
    println!("{line}");
    Ok(())
}

fn all(request: &MeasureRequest, own: &[Lane], token: &Token) -> Vec<Measured> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = request
            .lanes
            .iter()
            .map(|target| scope.spawn(move || measured(request, target, own, token)))
            .collect();
        let joined = threads.into_iter().zip(&request.lanes);
        joined
            .map(|(thread, target)| {
                thread.join().unwrap_or_else(|_| Measured {
                    lane: target.lane.clone(),
                    error: Some("the measurement's thread failed".into()),
                    ..Measured::default()
                })
            })
            .collect()
    })
}

fn measured(request: &MeasureRequest, target: &LaneTarget, own: &[Lane], token: &Token) -> Measured {
    let mut measured = Measured {
        lane: target.lane.clone(),
        ..Measured::default()
    };
    let route = match Route::of(target, own) {
        Ok(route) => route,
        Err(fault) => {
            measured.error = Some(fault);
            return measured;
        }
    };
    if target.lane != "-" && !request.tcp {
        match by_rdma(request, target, &route, token, &mut measured) {
            Err(Fault::Unavailable(why)) if measured.round_trip.is_none() && measured.sent.is_none() => {
                measured.no_rdma = Some(why);
            }
            done => {
                measured.transport = Transport::Rdma;
                if let Err(Fault::Unavailable(why) | Fault::Failed(why)) = done {
                    measured.error = Some(format!("RDMA with {}: {why}", route.to));
                }
                return measured;
            }
        }
    }
    if target.peer.is_some() {
        let why = measured.no_rdma.as_deref().unwrap_or("--tcp was given");
        let message = format!(
            "{}: the adapters have no addresses for TCP, and RDMA is not possible: {why}",
            route.to
        );
        measured.error = Some(message);
        return measured;
    }
    let mut each = || {
        if !request.one_way {
            measured.round_trip = Some(ping(&route, token)?);
        }
        measured.sent = Some(push(&route, token, request)?);
        if !request.one_way {
            measured.received = Some(pull(&route, token, request)?);
        }
        Ok::<_, io::Error>(())
    };
    measured.error = each().err().map(|error| format!("{}: {error}", route.to));
    measured
}

fn by_rdma(
    request: &MeasureRequest,
    target: &LaneTarget,
    route: &Route,
    token: &Token,
    measured: &mut Measured,
) -> Result<(), Fault> {
    let join = |kind, duration| {
        let stream = route.send_request(token, Mode::Rdma, duration)?;
        rdma::join(stream, &target.lane, target.peer.as_deref(), kind)
    };
    let together = |kind, each: fn(ConnectedLane, Duration) -> Result<Taken, Fault>| {
        let join = |_| join(kind, request.duration);
        let streams: Vec<ConnectedLane> = (0..request.streams).map(join).collect::<Result<_, _>>()?;
        let shares: Vec<_> = std::thread::scope(|scope| {
            let begin = |joined| scope.spawn(move || each(joined, request.duration));
            let threads: Vec<_> = streams.into_iter().map(begin).collect();
            let failed = |_| Err(Fault::Failed("a stream's thread failed".into()));
            threads.into_iter().map(|t| t.join().unwrap_or_else(failed)).collect()
        });
        let taken: Vec<Share> = shares
            .into_iter()
            .map(|share| Ok((share?, 0)))
            .collect::<Result<_, Fault>>()?;
        Ok::<_, Fault>(rate(&taken))
    };
    if !request.one_way {
        let times = join(Kind::Ping, PING_TIME)?.ping(WARM_UP, PINGS, PING_TIME)?;
        measured.round_trip = Some(round_trip(times));
    }
    measured.sent = Some(together(Kind::Push, ConnectedLane::push)?);
    if !request.one_way {
        measured.received = Some(together(Kind::Pull, ConnectedLane::pull)?);
    }
    Ok(())
}

/// The route of a lane's connections.
struct Route {
    to: SocketAddr,
    /// The outgoing interface; none: by the system's routing.
    by: Option<String>,
}

impl Route {
    fn of(target: &LaneTarget, own: &[Lane]) -> Result<Self, String> {
        if target.lane == "-" {
            let to = SocketAddr::new(target.address, target.port);
            return Ok(Self { to, by: None });
        }
        let lane = own.iter().find(|lane| lane.name == target.lane);
        let lane = lane.ok_or_else(|| format!("there is no active adapter {} with an address here", target.lane))?;
        let to = match target.address {
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                let scope = lane.interface.as_deref().and_then(lanes::index).unwrap_or(0);
                SocketAddrV6::new(address, target.port, 0, scope).into()
            }
            address => SocketAddr::new(address, target.port),
        };
        // The machine's address is not reached through the adapter.
        let by = lane.interface.clone().filter(|_| target.peer.is_none());
        Ok(Self { to, by })
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(self.to), Type::STREAM, Some(Protocol::TCP))?;
        if let Some(interface) = &self.by {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        socket.connect_timeout(&self.to.into(), CONNECT)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(IO_TIMEOUT))?;
        stream.set_write_timeout(Some(IO_TIMEOUT))?;
        Ok(stream)
    }

    fn send_request(&self, token: &Token, mode: Mode, duration: Duration) -> io::Result<TcpStream> {
        let mut stream = self.connect()?;
        wire::send_request(&mut stream, token, mode, duration)?;
        Ok(stream)
    }
}

fn ping(route: &Route, token: &Token) -> io::Result<RoundTrip> {
    let mut stream = route.send_request(token, Mode::Ping, PING_TIME)?;
    let mut byte = [0];
    let mut times = Vec::with_capacity(PINGS);
    let begun = Instant::now();
    for turn in 0..PINGS + WARM_UP {
        let sent = Instant::now();
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        if turn >= WARM_UP {
            times.push(sent.elapsed());
        }
        if begun.elapsed() > PING_TIME && !times.is_empty() {
            break;
        }
    }
    Ok(round_trip(times))
}

fn round_trip(mut times: Vec<Duration>) -> RoundTrip {
    times.sort_unstable();
    let at = |share: f64| {
        let place = (times.len().saturating_sub(1) as f64 * share).round() as usize;
        times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e6)
    };
    RoundTrip {
        p50_us: at(0.50),
        p99_us: at(0.99),
    }
}

/// The result of one stream: the bytes taken, and TCP retransmissions.
type Share = (Taken, u64);

/// Runs several streams at once; all are connected before the first of them sends.
fn together(
    route: &Route,
    token: &Token,
    request: &MeasureRequest,
    mode: Mode,
    each: impl Fn(TcpStream) -> io::Result<Share> + Sync,
) -> io::Result<Rate> {
    let connect = |_| route.connect();
    let streams: Vec<TcpStream> = (0..request.streams).map(connect).collect::<Result<_, _>>()?;
    let shares: Vec<io::Result<Share>> = std::thread::scope(|scope| {
        let each = &each;
        let begin = |mut stream: TcpStream| {
            scope.spawn(move || {
                wire::send_request(&mut stream, token, mode, request.duration)?;
                each(stream)
            })
        };
        let threads: Vec<_> = streams.into_iter().map(begin).collect();
        let failed = |_| Err(io::Error::other("a stream's thread failed"));
        threads.into_iter().map(|t| t.join().unwrap_or_else(failed)).collect()
    });
    let shares: Vec<Share> = shares.into_iter().collect::<Result<_, _>>()?;
    Ok(rate(&shares))
}

fn rate(shares: &[Share]) -> Rate {
    let bytes: u64 = shares.iter().map(|(taken, _)| taken.bytes).sum();
    let seconds = shares
        .iter()
        .map(|(taken, _)| taken.took.as_secs_f64())
        .fold(0.0, f64::max);
    Rate {
        bytes,
        seconds,
        gbit_per_s: if seconds > 0.0 {
            bytes as f64 * 8.0 / 1e9 / seconds
        } else {
            0.0
        },
        retransmits: shares.iter().map(|(_, again)| again).sum(),
    }
}

fn push(route: &Route, token: &Token, request: &MeasureRequest) -> io::Result<Rate> {
    together(route, token, request, Mode::Sink, |mut stream| {
        wire::send(&mut stream, request.duration)?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = [0; 16];
        stream.read_exact(&mut answer)?;
        let (bytes, nanos) = answer.split_at(8);
        let taken = Taken {
            bytes: number(bytes),
            took: Duration::from_nanos(number(nanos)),
        };
        Ok((taken, tcp_info::retransmits(&stream).unwrap_or_default()))
    })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn pull(route: &Route, token: &Token, request: &MeasureRequest) -> io::Result<Rate> {
    together(route, token, request, Mode::Source, |mut stream| {
        let (mut taken, tail) = wire::drain(&mut stream)?;
        let Some(retransmits) = tail.strip_prefix(&wire::END) else {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server ended the connection early",
            ));
        };
        taken.bytes = taken.bytes.saturating_sub(wire::TAIL as u64);
        Ok((taken, number(retransmits)))
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const TOKEN: Token = [7; 16];

    fn server() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || crate::server::serve(&listener, TOKEN, &crate::connections::Connections::new()));
        port
    }

    fn request(port: u16, one_way: bool) -> MeasureRequest {
        MeasureRequest {
            duration: Duration::from_millis(100),
            streams: 2,
            one_way,
            tcp: false,
            lanes: vec![LaneTarget {
                lane: "-".into(),
                peer: None,
                address: "127.0.0.1".parse().unwrap(),
                port,
            }],
        }
    }

    #[test]
    fn both_ways_and_latency_are_measured() {
        let measured = all(&request(server(), false), &[], &TOKEN).remove(0);
        assert_eq!(measured.error, None);
        for rate in [measured.sent.unwrap(), measured.received.unwrap()] {
            assert!(rate.bytes > 1 << 20, "{rate:?}");
            assert!(rate.gbit_per_s > 0.01 && rate.seconds < 5.0, "{rate:?}");
            let own = rate.bytes as f64 * 8.0 / 1e9 / rate.seconds;
            assert!((own - rate.gbit_per_s).abs() < 1e-9);
        }
        let trip = measured.round_trip.unwrap();
        assert!(trip.p50_us > 0.0 && trip.p50_us <= trip.p99_us, "{trip:?}");
    }

    #[test]
    fn a_one_way_lane_only_sends() {
        let measured = all(&request(server(), true), &[], &TOKEN).remove(0);
        assert!(measured.sent.is_some() && measured.received.is_none() && measured.round_trip.is_none());
    }

    #[test]
    fn a_wrong_token_gets_nothing() {
        let measured = all(&request(server(), false), &[], &[8; 16]).remove(0);
        assert!(measured.error.is_some() && measured.sent.is_none(), "{measured:?}");
    }

    #[test]
    fn a_missing_server_and_lane_are_reported() {
        let port = rackwright_free_port::free_port().unwrap();
        let measured = all(&request(port, false), &[], &TOKEN).remove(0);
        assert!(measured.error.unwrap().starts_with("127.0.0.1:"));
        let mut request = request(port, false);
        request.lanes[0].lane = "mlx5_7".into();
        let measured = all(&request, &[], &TOKEN).remove(0);
        assert!(measured.error.unwrap().contains("no active adapter mlx5_7"));
    }

    #[test]
    fn a_server_that_breaks_off_is_no_measurement() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            wire::accept_request(&mut stream, &TOKEN, Duration::from_secs(10)).unwrap();
            stream.write_all(&[0x5a; 1 << 16]).unwrap();
        });
        let mut request = request(port, false);
        request.streams = 1;
        let route = Route::of(&request.lanes[0], &[]).unwrap();
        assert_eq!(
            pull(&route, &TOKEN, &request).unwrap_err().to_string(),
            "the server ended the connection early"
        );
    }

    #[test]
    fn without_an_adapter_the_lane_uses_tcp_and_reports_why() {
        let mut request = request(server(), true);
        request.lanes[0].lane = "none0".into();
        let own = Lane {
            name: "none0".into(),
            guid: String::new(),
            address: None,
            interface: None,
        };
        let measured = all(&request, std::slice::from_ref(&own), &TOKEN).remove(0);
        assert_eq!((measured.transport, measured.error), (Transport::Tcp, None));
        assert_eq!(measured.no_rdma.as_deref(), Some("here: there is no adapter none0"));
        assert!(measured.sent.unwrap().bytes > 0);
        request.lanes[0].peer = Some("none0".into());
        let measured = all(&request, std::slice::from_ref(&own), &TOKEN).remove(0);
        let why = measured.error.unwrap();
        assert!(
            why.ends_with("RDMA is not possible: here: there is no adapter none0"),
            "{why}"
        );
    }
}
