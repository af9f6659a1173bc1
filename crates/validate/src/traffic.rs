//! The traffic program on machines that let us in: brought, started, asked, removed.
//!
//! The program comes with the login, runs from a folder below `/run` that only root may enter, and ends by itself. Every
//! answer is bounded and parsed: the machine may be broken or hostile.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::ssh::{Output, RunLimits, Session, SshError, SshTarget};

const SCRIPT: &str = include_str!("traffic.sh");
/// Folders that may let a program run, the best first: some systems mount one or the other `noexec`.
const FOLDERS: [&str; 4] = ["/run", "/dev/shm", "/tmp", "/var/tmp"];
/// For the program on its way: some megabytes at some 100 kB/s.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// For what takes no time.
const LIMIT: Duration = Duration::from_secs(30);
/// Of an answer.
const OUTPUT_MAX_BYTES: usize = 256 * 1024;
/// What is taken of a machine's own words.
const WORDS: usize = 200;

/// The program, for machines of one architecture.
#[derive(Debug, Clone)]
pub struct TrafficProgram {
    /// As it is in its file.
    pub bytes: Arc<[u8]>,
    /// SHA-256 of that, in hex.
    pub sha256: String,
}

/// What a run of tests has in common.
#[derive(Debug, Clone)]
pub struct TrafficSetup {
    /// Lower-case letters, digits and hyphens: names the folder on the machines.
    pub id: String,
    /// 32 hex digits that only the machines of this run are told.
    pub token: String,
    /// Servers end by themselves after so long, in seconds.
    pub deadline_s: u64,
    /// Where they listen; 0: at any free port.
    pub port: u16,
}

/// A server that runs on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Where the program is.
    pub folder: String,
    /// Where it listens.
    pub port: u16,
    /// Its process.
    pub pid: u32,
    /// Adapters by which it can be reached, beside the machine's address.
    pub lanes: Vec<ServedLane>,
}

/// An adapter with an address of its own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServedLane {
    /// As the machine names it: `mlx5_0`.
    pub name: String,
    /// GUID of its port, `0x...`; empty where it is not told.
    #[serde(default)]
    pub guid: String,
    /// Where it can be reached by the same adapter of another machine; none: by RDMA only.
    #[serde(default)]
    pub address: Option<IpAddr>,
}

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// How long each direction sends.
    pub ms: u64,
    /// Connections for each lane.
    pub streams: u32,
    /// Only send.
    pub one_way: bool,
    /// Not by RDMA, even where that is possible.
    pub tcp: bool,
    /// All at once.
    pub lanes: Vec<Goal>,
}

/// Where one lane goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// The lane's name, or `-`: as the machine routes.
    pub lane: String,
    /// The server's lane, where the address is not that lane's own: by RDMA only.
    pub peer: Option<String>,
    /// The server's address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
}

/// What carried the bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Connections.
    #[default]
    Tcp,
    /// Writes from adapter to adapter.
    Rdma,
}

/// Of one lane.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct Measured {
    /// As in the order.
    pub lane: String,
    /// How.
    #[serde(default)]
    pub transport: Transport,
    /// Why it was not by RDMA, where an adapter was asked for.
    #[serde(default)]
    pub no_rdma: Option<String>,
    /// Why it could not be measured to the end.
    #[serde(default)]
    pub error: Option<String>,
    /// From the machine to the server.
    #[serde(default)]
    pub sent: Option<Rate>,
    /// From the server to the machine.
    #[serde(default)]
    pub received: Option<Rate>,
    /// A byte there and back.
    #[serde(default)]
    pub round_trip: Option<RoundTrip>,
}

/// Of one direction: what has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Rate {
    /// 10^9 bits a second.
    pub gbit_per_s: f64,
    /// TCP segments that were sent again.
    #[serde(default)]
    pub retransmits: u64,
}

/// Microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct RoundTrip {
    /// 99 of 100 are quicker.
    pub p99_us: f64,
}

/// Why a machine does not take part.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The connection or the command failed.
    #[error(transparent)]
    Ssh(#[from] SshError),
    /// The program does not run there: no folder may run programs, or it is for another architecture.
    #[error("the traffic program does not run on {at}: {why}")]
    Program {
        /// Address and port.
        at: std::net::SocketAddr,
        /// The machine's words.
        why: String,
    },
    /// What it printed is no answer.
    #[error("the traffic program on {at} gave no answer: {why}")]
    Answer {
        /// Address and port.
        at: std::net::SocketAddr,
        /// What is wrong with it.
        why: String,
    },
    /// What was brought may still be there, or what an earlier test left.
    #[error("the traffic program could not be removed from {at}: {why}")]
    Left {
        /// Address and port.
        at: std::net::SocketAddr,
        /// The machine's words.
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

fn few(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(WORDS).collect()
}

/// Words that a shell reads as one, whatever they are.
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

/// The value of a line `key=value`, and only of an answer that is whole.
fn value(output: &Output, key: &str, step: &str) -> Result<String, String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let end = format!("end=rackwright-traffic-{step}-1");
    let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    match found.filter(|_| output.status == 0 && text.lines().any(|line| line == end)) {
        Some(found) => Ok(found.to_owned()),
        None => Err(format!("exit status {}; {}", output.status, few(&output.stderr_tail()))),
    }
}

/// Ends servers that earlier tests left on the machine, removes their files, brings the program and starts a server.
/// Nothing stays of it where that fails, as long as the session holds; else the server ends by itself within a minute.
///
/// # Errors
/// No login, what was left cannot be removed, or no folder of the machine where the program runs.
pub async fn serve_traffic(
    session: &Session,
    program: &TrafficProgram,
    setup: &TrafficSetup,
) -> Result<Served, TrafficError> {
    serve_traffic_below(session, program, setup, &FOLDERS).await
}

/// [`serve_traffic`] below the first of these folders that lets a program run. Their paths must be plain words.
///
/// # Errors
/// As above.
pub async fn serve_traffic_below(
    session: &Session,
    program: &TrafficProgram,
    setup: &TrafficSetup,
    parents: &[&str],
) -> Result<Served, TrafficError> {
    let variables = format!("step=sweep\nparents='{}'\nfolder=''\n", parents.join(" "));
    removed(session, &step(session, &variables, LIMIT).await?, "swept", "sweep")?;
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
        // The first fault tells more than that cleaning failed for the same reason.
        tried.map(drop)?;
        stopped?;
    }
    Err(TrafficError::Program { at: session.at(), why })
}

async fn serve_in(
    session: &Session,
    program: &TrafficProgram,
    setup: &TrafficSetup,
    folder: &str,
) -> Result<Result<Served, String>, TrafficError> {
    let put = session.put(folder, "program", &program.bytes, SEND_LIMIT).await?;
    if put.status != 0 {
        return Ok(Err(few(&put.stderr_tail())));
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
    // Names go to another machine's shell.
    let lanes = ready
        .lanes
        .into_iter()
        .filter(|lane| is_plain(&lane.name) && !lane.name.contains('/') && lane.name.len() <= 64);
    Ok(Ok(Served {
        folder: folder.to_owned(),
        port: ready.port,
        pid: ready.pid,
        lanes: lanes.take(64).collect(),
    }))
}

/// Has a machine measure the way to others.
///
/// # Errors
/// No login, or no answer. A lane that could not be measured is no error: it says so itself.
pub async fn measure(
    session: &Session,
    here: &Served,
    setup: &TrafficSetup,
    order: &Order,
) -> Result<Vec<Measured>, TrafficError> {
    let goal = |goal: &Goal| {
        let peer = goal.peer.as_ref().map_or(String::new(), |peer| format!("/{peer}"));
        let at = SocketAddr::new(goal.address, goal.port);
        format!("{}{peer}={at}", goal.lane)
    };
    let lanes: Vec<String> = order.lanes.iter().map(goal).collect();
    let variables = format!(
        "step=run\nfolder='{}'\ntoken='{}'\nms={}\nstreams={}\nfurther='{}'\nlanes='{}'\n",
        here.folder,
        setup.token,
        order.ms,
        order.streams,
        further(order),
        lanes.join(" ")
    );
    let limit = LIMIT + Duration::from_millis(order.ms.saturating_mul(2));
    let output = step(session, &variables, limit).await?;
    let wrong = |why: String| TrafficError::Answer { at: session.at(), why };
    let report = value(&output, "report", "run").map_err(wrong)?;
    let report: Report = serde_json::from_str(&report).map_err(|e| wrong(e.to_string()))?;
    let asked = |lane: &Measured| order.lanes.iter().any(|goal| goal.lane == lane.lane);
    let lanes = report.lanes.into_iter().filter(asked).map(|mut lane| {
        lane.error = lane.error.map(|error| few(&error));
        lane.no_rdma = lane.no_rdma.map(|why| few(&why));
        lane
    });
    Ok(lanes.take(order.lanes.len()).collect())
}

fn further(order: &Order) -> &'static str {
    match (order.one_way, order.tcp) {
        (false, false) => "",
        (true, false) => "--one-way",
        (false, true) => "--tcp",
        (true, true) => "--one-way --tcp",
    }
}

/// Tells a server that its test goes on: without this, and without connections, it ends by itself after a minute.
///
/// # Errors
/// The connection or the command failed, or the server is not there any more.
pub async fn keep_traffic(session: &Session, served: &Served) -> Result<(), TrafficError> {
    let output = step(session, &format!("step=keep\nfolder='{}'\n", served.folder), LIMIT).await?;
    let wrong = |why: String| TrafficError::Answer { at: session.at(), why };
    value(&output, "kept", "keep").map(drop).map_err(wrong)
}

/// Ends a server and removes what was brought.
///
/// # Errors
/// The connection or the command failed, or something is still there.
pub async fn stop_traffic(session: &Session, served: &Served) -> Result<(), TrafficError> {
    stop_in(session, &served.folder).await
}

/// [`stop_traffic`], and once more with a new login if that failed: the session may have broken meanwhile.
///
/// # Errors
/// As above, of the second try.
pub async fn clear_traffic(session: &Session, target: &SshTarget, served: &Served) -> Result<(), TrafficError> {
    let Err(error) = stop_traffic(session, served).await else {
        return Ok(());
    };
    tracing::debug!(%error, "the traffic program is removed by another login");
    let again = Session::connect(target).await?;
    let stopped = stop_traffic(&again, served).await;
    again.close().await;
    stopped
}

async fn stop_in(session: &Session, folder: &str) -> Result<(), TrafficError> {
    let output = step(session, &format!("step=stop\nfolder='{folder}'\n"), LIMIT).await?;
    removed(session, &output, "stopped", "stop")
}

fn removed(session: &Session, output: &Output, key: &str, step: &str) -> Result<(), TrafficError> {
    let left = |why| TrafficError::Left { at: session.at(), why };
    value(output, key, step).map(drop).map_err(left)
}
