//! The measured half of `tests/bench-redfish.sh`: walks BMCs and power-cycles their machines by [`BmcClient`], and counts.
//!
//! Usage: `rackwright-bench-redfish SECONDS`, with the BMCs on standard input as JSON: a list of objects with `address`,
//! `username`, `password` and `certificate_sha256`. All BMCs run at once: walks for that many seconds, then cycles for as
//! many. Prints one JSON object: `bmcs`, and for `walk` and `cycle` each `runs`, `requests` (null for cycles), `wall_s`
//! and `cpu_s` of this process, user and system. `bench_redfish_sushy.py` does and prints the same.

use std::collections::{BTreeSet, VecDeque};
use std::io::Read;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rackwright_redfish::{BmcClient, BmcTarget, CertificateFingerprint, PowerGoal, Settings};
use serde_json::{Value, json};

/// Links that a walk leaves out: published by the standard, or created by the walks and cycles themselves.
const CLOSED: [&str; 6] = [
    "/$metadata",
    "/JsonSchemas",
    "/Registries",
    "/SessionService/Sessions/",
    "/TaskService/Tasks/",
    "/Entries/",
];
/// Time limit for each half of a power cycle.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

const USAGE: &str = "usage: rackwright-bench-redfish SECONDS, and BMCs on standard input";

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    // One thread: the measure is of the client, not of its spread over cores.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run())) {
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rackwright-bench-redfish: error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Fallible<Value> {
    let [seconds] = std::env::args()
        .skip(1)
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| USAGE)?;
    let span = Duration::try_from_secs_f64(seconds.parse()?)?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let clients = connect(&serde_json::from_str(&text)?).await?;

    let began = Began::now()?;
    let walks = clients.iter().map(|client| walk_until(client, began.at + span));
    let walked = futures::future::try_join_all(walks).await?;
    let walk = began.ended(walked.iter().map(Vec::len).sum(), Some(walked.iter().flatten().sum()))?;
    let began = Began::now()?;
    let cycles = clients.iter().map(|client| cycle_until(client, began.at + span));
    let cycled = futures::future::try_join_all(cycles).await?;
    let cycle = began.ended(cycled.iter().sum(), None)?;
    futures::future::try_join_all(clients.iter().map(BmcClient::close)).await?;
    Ok(json!({ "bmcs": clients.len(), "walk": walk, "cycle": cycle }))
}

async fn connect(bmcs: &Value) -> Fallible<Vec<BmcClient>> {
    let bmcs = bmcs.as_array().ok_or("standard input is not a JSON list")?;
    let mut clients = Vec::with_capacity(bmcs.len());
    for bmc in bmcs {
        let text = |name: &str| bmc[name].as_str().ok_or_else(|| format!("a BMC has no {name}"));
        let target = BmcTarget {
            address: text("address")?.to_owned(),
            username: text("username")?.to_owned(),
            password: text("password")?.to_owned().into(),
            certificate_sha256: Some(text("certificate_sha256")?.parse::<CertificateFingerprint>()?),
            system: None,
        };
        let client = BmcClient::connect(target, Settings::default()).await?;
        // Each run of cycles begins with machines that are powered on.
        client.set_power(PowerGoal::On).await?;
        client.wait_power(PowerGoal::On, WAIT_LIMIT).await?;
        clients.push(client);
    }
    Ok(clients)
}

/// The requests of each walk.
async fn walk_until(client: &BmcClient, end: Instant) -> Fallible<Vec<usize>> {
    let mut requests = Vec::new();
    while Instant::now() < end {
        requests.push(walk(client).await?);
    }
    Ok(requests)
}

/// Reads everything reachable by links; returns the number of resources.
async fn walk(client: &BmcClient) -> Fallible<usize> {
    let mut seen = BTreeSet::new();
    let mut open = VecDeque::from(["/redfish/v1".to_owned()]);
    let mut requests = 0;
    while !open.is_empty() {
        let batch: Vec<String> = open.drain(..open.len().min(64)).collect();
        requests += batch.len();
        for (_, outcome) in client.get_each(&batch).await {
            collect_links(outcome?.json(), &mut seen, &mut open);
        }
    }
    Ok(requests)
}

fn collect_links(value: &Value, seen: &mut BTreeSet<String>, open: &mut VecDeque<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(link) = fields.get("@odata.id").and_then(Value::as_str) {
                let link = link.split('#').next().unwrap_or_default().trim_end_matches('/');
                let is_closed = CLOSED.iter().any(|closed| link.contains(closed));
                if link.starts_with("/redfish/v1/") && !is_closed && seen.insert(link.to_owned()) {
                    open.push_back(link.to_owned());
                }
            }
            fields.values().for_each(|value| collect_links(value, seen, open));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_links(value, seen, open)),
        _ => {}
    }
}

async fn cycle_until(client: &BmcClient, end: Instant) -> Fallible<usize> {
    let mut runs = 0;
    while Instant::now() < end {
        client.power_cycle(WAIT_LIMIT).await?;
        runs += 1;
    }
    Ok(runs)
}

struct Began {
    at: Instant,
    cpu_s: f64,
}

impl Began {
    fn now() -> Fallible<Self> {
        Ok(Self {
            cpu_s: cpu_s()?,
            at: Instant::now(),
        })
    }

    fn ended(&self, runs: usize, requests: Option<usize>) -> Fallible<Value> {
        let wall_s = self.at.elapsed().as_secs_f64();
        Ok(json!({ "runs": runs, "requests": requests, "wall_s": wall_s, "cpu_s": cpu_s()? - self.cpu_s }))
    }
}

/// Seconds of CPU of this process, user and system, in steps of 10 ms: fields 14 and 15 of `/proc/PID/stat` (`proc(5)`).
fn cpu_s() -> Fallible<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let behind_name = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?.1;
    let ticks: Vec<f64> = behind_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / 100.0)
}
