//! The traffic program on machines with an open login: copied, started, queried, removed.
//!
//! The program is copied over the login, runs from a folder that only root may enter, below `/run` if possible, and ends by
//! itself. Every answer is bounded and parsed: the machine may be broken or hostile.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;

use crate::carried::{CarriedProgram, FOLDERS, SEND_LIMIT, shortened};
use crate::ssh::{Output, RunLimits, Session, SshError, SshTarget};

const SCRIPT: &str = include_str!("traffic.sh");
/// Time limit of a step, without the time of measurements.
const LIMIT: Duration = Duration::from_secs(30);
/// Most bytes of an answer.
const OUTPUT_MAX_BYTES: usize = 256 * 1024;

/// The common settings of a run of tests.
#[derive(Debug, Clone)]
pub struct TrafficSetup {
    /// Lower-case letters, digits and hyphens: part of the folder's name on the machines.
    pub id: String,
    /// 32 hex digits, known only to the machines of this run.
    pub token: String,
    /// Servers end by themselves after this time, in seconds.
    pub deadline_s: u64,
    /// Port of the servers; 0: any free port.
    pub port: u16,
}

/// A running server on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficServer {
    /// Folder of the program.
    pub folder: String,
    pub port: u16,
    /// Its process id.
    pub pid: u32,
    /// Adapters through which it can be reached, beside the machine's address.
    pub lanes: Vec<ServedLane>,
}

/// An adapter with an address of its own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServedLane {
    /// Name on the machine: `mlx5_0`.
    pub name: String,
    /// GUID of its port, `0x...`; empty: unknown.
    #[serde(default)]
    pub guid: String,
    /// Its address for the same adapter of another machine; none: only by RDMA.
    #[serde(default)]
    pub address: Option<IpAddr>,
}

/// A measurement to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasureRequest {
    /// Milliseconds of sending in each direction.
    pub ms: u64,
    /// Connections for each lane.
    pub streams: u32,
    /// Only send, do not receive.
    pub one_way: bool,
    /// Only by TCP, even where RDMA is possible.
    pub tcp: bool,
    /// Lanes, measured all at once.
    pub lanes: Vec<LaneTarget>,
}

/// The target of one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneTarget {
    /// The lane's name, or `-`: by the machine's own routing.
    pub lane: String,
    /// The server's lane, where `address` is not that lane's own: only by RDMA.
    pub peer: Option<String>,
    /// The server's address.
    pub address: IpAddr,
    pub port: u16,
}

/// The transport of the bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP connections.
    #[default]
    Tcp,
    /// RDMA writes from adapter to adapter.
    Rdma,
}

/// The result of one lane.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct Measured {
    /// The lane's name, as in the request.
    pub lane: String,
    /// The transport used.
    #[serde(default)]
    pub transport: Transport,
    /// Why RDMA was not used, if the request named an adapter.
    #[serde(default)]
    pub no_rdma: Option<String>,
    /// Why the measurement failed.
    #[serde(default)]
    pub error: Option<String>,
    /// From the machine to the server.
    #[serde(default)]
    pub sent: Option<Rate>,
    /// From the server to the machine.
    #[serde(default)]
    pub received: Option<Rate>,
    /// The round-trip time of a message.
    #[serde(default)]
    pub round_trip: Option<RoundTrip>,
}

/// The rate of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Rate {
    /// Rate in 10^9 bits a second.
    pub gbit_per_s: f64,
    /// Number of TCP retransmissions.
    #[serde(default)]
    pub retransmits: u64,
}

/// Round-trip times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct RoundTrip {
    /// 99 % of the round trips take at most this time.
    pub p99_us: f64,
}

/// Why a machine cannot take part.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The connection or the command failed.
    #[error(transparent)]
    Ssh(#[from] SshError),
    /// The program cannot run there: no folder may run programs, or the architecture differs.
    #[error("the traffic program does not run on {at}: {why}")]
    Program {
        /// Address and port.
        at: std::net::SocketAddr,
        /// The machine's message.
        why: String,
    },
    /// The program's output is not a valid answer.
    #[error("the traffic program on {at} gave no answer: {why}")]
    Answer {
        /// Address and port.
        at: std::net::SocketAddr,
        /// The fault of the answer.
        why: String,
    },
    /// The copied program may still be there, or parts of an earlier test.
    #[error("the traffic program could not be removed from {at}: {why}")]
    NotRemoved {
        /// Address and port.
        at: std::net::SocketAddr,
        /// The machine's message.
        why: String,
    },
}

#[derive(Deserialize)]
struct Ready {
    port: u16,
    pid: u32,
    #[serde(default)]
    lanes: Vec<ServedLane>,
}

#[derive(Deserialize)]
struct Report {
    lanes: Vec<Measured>,
}

/// True for a text that a shell reads as one plain word.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-:/".contains(c))
}

async fn step(session: &Session, variables: &str, limit: Duration) -> Result<Output, SshError> {
    let limits = RunLimits {
        timeout: limit,
        output_max_bytes: OUTPUT_MAX_BYTES,
    };
    session.run(&format!("{variables}{SCRIPT}"), limits).await
}

/// The value of a line `key=value`, only from a complete answer.
fn value(output: &Output, key: &str, step: &str) -> Result<String, String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let end = format!("end=rackwright-traffic-{step}-1");
    let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    match found.filter(|_| output.status == 0 && text.lines().any(|line| line == end)) {
        Some(found) => Ok(found.to_owned()),
        None => Err(format!(
            "exit status {}; {}",
            output.status,
            shortened(&output.stderr_tail())
        )),
    }
}

/// Ends servers that earlier tests left on the machine, removes their files, copies the program and starts a server. On
/// failure everything is removed again as long as the session works; otherwise the server ends by itself within a minute.
///
/// # Errors
/// No login, parts of earlier tests that cannot be removed, or no folder of the machine that may run the program.
pub async fn serve_traffic(
    session: &Session,
    program: &CarriedProgram,
    setup: &TrafficSetup,
) -> Result<TrafficServer, TrafficError> {
    serve_traffic_below(session, program, setup, &FOLDERS).await
}

/// As [`serve_traffic`], below the first of these folders that may run a program. Their paths must be plain words.
///
/// # Errors
/// Those of [`serve_traffic`].
pub async fn serve_traffic_below(
    session: &Session,
    program: &CarriedProgram,
    setup: &TrafficSetup,
    parents: &[&str],
) -> Result<TrafficServer, TrafficError> {
    let variables = format!("step=sweep\nparents='{}'\nfolder=''\n", parents.join(" "));
    check_removed(session, &step(session, &variables, LIMIT).await?, "swept", "sweep")?;
    let mut why = String::new();
    for parent in parents {
        let folder = format!("{parent}/rackwright-traffic-{}", setup.id);
        let tried = serve_in(session, program, setup, &folder).await;
        let words = match tried {
            Ok(Ok(served)) => return Ok(served),
            Ok(Err(ref words)) => words.as_str(),
            Err(_) => "",
        };
        why.push_str(&format!("{}{parent}: {words}", if why.is_empty() { "" } else { "; " }));
        let stopped = stop_in(session, &folder).await;
        // The first error says more than a failed cleanup for the same reason.
        tried.map(drop)?;
        stopped?;
    }
    Err(TrafficError::Program { at: session.at(), why })
}

async fn serve_in(
    session: &Session,
    program: &CarriedProgram,
    setup: &TrafficSetup,
    folder: &str,
) -> Result<Result<TrafficServer, String>, TrafficError> {
    let put = session.put(folder, "program", &program.bytes, SEND_LIMIT).await?;
    if put.status != 0 {
        return Ok(Err(shortened(&put.stderr_tail())));
    }
    let variables = format!(
        "step=start\nfolder='{folder}'\nsha256='{}'\nbytes={}\ntoken='{}'\ndeadline_s={}\nport={}\n",
        program.sha256,
        program.bytes.len(),
        setup.token,
        setup.deadline_s,
        setup.port
    );
    let output = step(session, &variables, LIMIT).await?;
    let ready = match value(&output, "ready", "start") {
        Ok(ready) => ready,
        Err(why) => return Ok(Err(why)),
    };
    let ready: Ready = serde_json::from_str(&ready).map_err(|e| TrafficError::Answer {
        at: session.at(),
        why: e.to_string(),
    })?;
    // The names are passed to another machine's shell.
    let lanes = ready
        .lanes
        .into_iter()
        .filter(|lane| is_plain(&lane.name) && !lane.name.contains('/') && lane.name.len() <= 64);
    Ok(Ok(TrafficServer {
        folder: folder.to_owned(),
        port: ready.port,
        pid: ready.pid,
        lanes: lanes.take(64).collect(),
    }))
}

/// Measures from a machine to others.
///
/// # Errors
/// No login, or no answer. A lane that fails is not an error: its result has the reason.
pub async fn measure(
    session: &Session,
    here: &TrafficServer,
    setup: &TrafficSetup,
    request: &MeasureRequest,
) -> Result<Vec<Measured>, TrafficError> {
    let target = |target: &LaneTarget| {
        let peer = target.peer.as_ref().map_or(String::new(), |peer| format!("/{peer}"));
        let at = SocketAddr::new(target.address, target.port);
        format!("{}{peer}={at}", target.lane)
    };
    let lanes: Vec<String> = request.lanes.iter().map(target).collect();
    let variables = format!(
        "step=run\nfolder='{}'\ntoken='{}'\nms={}\nstreams={}\nfurther='{}'\nlanes='{}'\n",
        here.folder,
        setup.token,
        request.ms,
        request.streams,
        extra_flags(request),
        lanes.join(" ")
    );
    let limit = LIMIT + Duration::from_millis(request.ms.saturating_mul(2));
    let output = step(session, &variables, limit).await?;
    let wrong = |why: String| TrafficError::Answer { at: session.at(), why };
    let report = value(&output, "report", "run").map_err(wrong)?;
    let report: Report = serde_json::from_str(&report).map_err(|e| wrong(e.to_string()))?;
    let is_requested = |lane: &Measured| request.lanes.iter().any(|target| target.lane == lane.lane);
    let lanes = report.lanes.into_iter().filter(is_requested).map(|mut lane| {
        lane.error = lane.error.map(|error| shortened(&error));
        lane.no_rdma = lane.no_rdma.map(|why| shortened(&why));
        lane
    });
    Ok(lanes.take(request.lanes.len()).collect())
}

fn extra_flags(request: &MeasureRequest) -> &'static str {
    match (request.one_way, request.tcp) {
        (false, false) => "",
        (true, false) => "--one-way",
        (false, true) => "--tcp",
        (true, true) => "--one-way --tcp",
    }
}

/// Keeps a server running: without this call and without connections it ends by itself after a minute.
///
/// # Errors
/// The connection or the command failed, or the server has ended.
pub async fn keep_traffic(session: &Session, served: &TrafficServer) -> Result<(), TrafficError> {
    let output = step(session, &format!("step=keep\nfolder='{}'\n", served.folder), LIMIT).await?;
    let wrong = |why: String| TrafficError::Answer { at: session.at(), why };
    value(&output, "kept", "keep").map(drop).map_err(wrong)
}

/// Ends a server and removes the copied files.
///
/// # Errors
/// The connection or the command failed, or a part is still there.
pub async fn stop_traffic(session: &Session, served: &TrafficServer) -> Result<(), TrafficError> {
    stop_in(session, &served.folder).await
}

/// As [`stop_traffic`], with a second try by a new login if the first fails: the session may have broken meanwhile.
///
/// # Errors
/// Those of [`stop_traffic`], of the second try.
pub async fn clear_traffic(session: &Session, target: &SshTarget, served: &TrafficServer) -> Result<(), TrafficError> {
    let Err(error) = stop_traffic(session, served).await else {
        return Ok(());
    };
    tracing::debug!(%error, "the traffic program could not be removed; trying again with a new login");
    let again = Session::connect(target).await?;
    let stopped = stop_traffic(&again, served).await;
    again.close().await;
    stopped
}

async fn stop_in(session: &Session, folder: &str) -> Result<(), TrafficError> {
    let output = step(session, &format!("step=stop\nfolder='{folder}'\n"), LIMIT).await?;
    check_removed(session, &output, "stopped", "stop")
}

fn check_removed(session: &Session, output: &Output, key: &str, step: &str) -> Result<(), TrafficError> {
    let not_removed = |why| TrafficError::NotRemoved { at: session.at(), why };
    value(output, key, step).map(drop).map_err(not_removed)
}
