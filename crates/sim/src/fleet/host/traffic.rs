//! Network tests between machines: the output of the traffic program (`crates/traffic`, uploaded by `crates/validate`),
//! with rates derived from the profile and the faults of the two machines.

use super::Hosts;
use crate::fleet::dice::Purpose;
use crate::fleet::installed::SystemUp;
use crate::fleet::node::Node;
use crate::fleet::serve::Member;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The port that every server reports; nothing listens there.
const PORT: u16 = 18_515;
/// Relative variation of rates from test to test.
const NOISE: f64 = 0.04;
/// Longest sending time of one direction of a test.
const LONGEST_MS: u64 = 600_000;

/// SHA-256 in hex.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest(&SHA256, bytes).as_ref())
}

/// The folder into which a command puts a file.
pub(super) fn folder_of(command: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(command).ok()?;
    let (folder, file) = text.strip_prefix("mkdir -m 700 -p ")?.split_once(" && cat >")?;
    let is_ours = folder.contains("/rackwright-traffic-") && file == format!("{folder}/program");
    is_ours.then(|| folder.to_owned())
}

/// The other machines on the network.
pub(super) struct Neighbours {
    hosts: Weak<Hosts>,
    members: Arc<[Member]>,
}

impl Neighbours {
    pub(super) fn new(hosts: &Arc<Hosts>, members: &Arc<[Member]>) -> Self {
        Self {
            hosts: Arc::downgrade(hosts),
            members: Arc::clone(members),
        }
    }

    fn at(&self, address: IpAddr) -> Option<&Arc<Node>> {
        let running = self.hosts.upgrade()?.answering(address)?;
        Some(&self.members.get(running.system.node)?.node)
    }
}

/// A step of the script.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Start {
        folder: String,
        sha256: String,
    },
    Run {
        folder: String,
        ms: u64,
        one_way: bool,
        /// TCP instead of RDMA.
        tcp: bool,
        /// Lane and address.
        lanes: Vec<(String, IpAddr)>,
    },
    Stop {
        folder: String,
    },
    Keep {
        folder: String,
    },
    /// Ends the servers of earlier tests; in this simulation none outlives its login.
    Sweep,
}

impl Step {
    /// The step that a script requests; `None` for any other script or another version.
    pub(super) fn of(text: &str) -> Option<Self> {
        let set = |name: &str| {
            let value = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
            Some(value.trim_matches('\'').to_owned())
        };
        let has_line = |line: &str| text.lines().any(|other| other.trim() == line);
        let name = set("step")?;
        if !has_line(&format!("say begin rackwright-traffic-{name}-1")) {
            return None;
        }
        let folder = set("folder")?;
        match name.as_str() {
            "start" => Some(Self::Start {
                folder,
                sha256: set("sha256")?,
            }),
            "run" => {
                let words = set("lanes")?;
                let lanes = words.split_whitespace().map(lane);
                let further = set("further")?;
                let has = |word: &str| further.split_whitespace().any(|other| other == word);
                Some(Self::Run {
                    folder,
                    ms: set("ms")?.parse().ok().filter(|ms| *ms <= LONGEST_MS)?,
                    one_way: has("--one-way"),
                    tcp: has("--tcp"),
                    lanes: lanes.collect::<Option<_>>()?,
                })
            }
            "stop" => Some(Self::Stop { folder }),
            "keep" => Some(Self::Keep { folder }),
            "sweep" => Some(Self::Sweep),
            _ => None,
        }
    }
}

/// `mlx5_0=127.128.0.2:18515`
fn lane(word: &str) -> Option<(String, IpAddr)> {
    let (lane, at) = word.split_once('=')?;
    let (address, _) = at.rsplit_once(':')?;
    Some((lane.to_owned(), address.parse().ok()?))
}

/// The output of a step, or its error.
pub(super) async fn answer(
    step: &Step,
    node: &Arc<Node>,
    system: &SystemUp,
    neighbours: &Neighbours,
    copied: &mut HashMap<String, String>,
) -> Result<String, &'static str> {
    let whole = |name: &str, line: String| {
        format!("begin=rackwright-traffic-{name}-1\n{line}end=rackwright-traffic-{name}-1\n")
    };
    match step {
        Step::Start { folder, sha256 } => {
            if copied.get(folder) != Some(sha256) {
                return Err("the program arrived with another digest\n");
            }
            let lane = |name: &&str| json!({"name": name, "guid": "", "address": system.address, "interface": "ib"});
            let lanes: Vec<Value> = node.shared.sku.hcas.iter().map(lane).collect();
            let ready = json!({"port": PORT, "pid": 1000 + node.index(), "lanes": lanes});
            Ok(whole("start", format!("ready={ready}\n")))
        }
        Step::Run {
            folder,
            ms,
            one_way,
            tcp,
            lanes,
        } => {
            if !copied.contains_key(folder) {
                return Err("there is no such program\n");
            }
            let directions = if *one_way { 1 } else { 2 };
            let lasts = node.shared.clock.lasts(Duration::from_millis(ms * directions));
            tokio::time::sleep(lasts).await;
            let measured = lanes.iter().map(|(lane, address)| {
                let transport = if lane == "-" || *tcp { "tcp" } else { "rdma" };
                let mut measured = measured(node, neighbours, lane, *address, *one_way);
                measured["transport"] = transport.into();
                measured
            });
            let report = json!({"lanes": measured.collect::<Vec<Value>>()});
            Ok(whole("run", format!("report={report}\n")))
        }
        Step::Stop { folder } => {
            copied.remove(folder);
            Ok(whole("stop", "stopped=yes\n".to_owned()))
        }
        Step::Keep { folder } if !copied.contains_key(folder) => Err("there is no such program\n"),
        Step::Keep { .. } => Ok(whole("keep", "kept=yes\n".to_owned())),
        Step::Sweep => {
            copied.clear();
            Ok(whole("sweep", "swept=yes\n".to_owned()))
        }
    }
}

fn measured(node: &Node, neighbours: &Neighbours, lane: &str, address: IpAddr, one_way: bool) -> Value {
    let sku = node.shared.sku;
    let adapter = sku.hcas.iter().position(|name| *name == lane);
    let Some(peer) = neighbours.at(address) else {
        return json!({"lane": lane, "error": format!("{address}: connection timed out")});
    };
    let adapter = match (lane, adapter) {
        ("-", _) => None,
        (_, Some(adapter)) => u8::try_from(adapter).ok(),
        _ => return json!({"lane": lane, "error": format!("there is no active adapter {lane} with an address here")}),
    };
    let best = if adapter.is_some() {
        sku.hca_gbit_per_s
    } else {
        sku.network_gbit_per_s
    };
    let faults = &node.shared.config.faults;
    let slow = [node, peer].map(|end| faults.network_gbit_per_s(end.moment(), adapter).unwrap_or(best));
    let carries = slow.into_iter().fold(best, f64::min);
    if carries <= 0.0 {
        return json!({"lane": lane, "error": format!("{address}: connection timed out")});
    }
    let rate = |from: &Node, to: &Node| {
        let count = (to.index() as u64) << 8 | u64::from(adapter.unwrap_or(u8::MAX));
        let chance = node.shared.dice.fraction(from.index(), Purpose::Traffic, count);
        json!({"gbit_per_s": carries * (1.0 - NOISE * chance), "retransmits": 0})
    };
    if one_way {
        return json!({"lane": lane, "sent": rate(node, peer)});
    }
    json!({
        "lane": lane,
        "sent": rate(node, peer),
        "received": rate(peer, node),
        "round_trip": {"p50_us": 12.0, "p99_us": 20.0},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scripts_of_this_version_and_files_for_their_folder_are_known() {
        let body =
            "start() {\n  say begin rackwright-traffic-start-1\n}\nrun() {\n  say begin rackwright-traffic-run-1\n}\n";
        let run = format!(
            "step=run\nfolder='/run/x'\nms=500\nfurther=''\nlanes='-=127.128.0.2:9 mlx5_0=127.128.0.3:9'\n{body}"
        );
        let Some(Step::Run { ms, one_way, lanes, .. }) = Step::of(&run) else {
            panic!("{run}")
        };
        assert_eq!((ms, one_way, lanes.len()), (500, false, 2));
        for other in [
            run.replace("run-1", "run-2"),
            run.replace("ms=500", "ms=soon"),
            run.replace("127.128.0.2:9", "here:9"),
            run.replace("step=run", "step=fly"),
            String::new(),
        ] {
            assert_eq!(Step::of(&other), None, "{other}");
        }
        let put = b"mkdir -m 700 -p /run/rackwright-traffic-1 && cat >/run/rackwright-traffic-1/program";
        assert_eq!(folder_of(put).as_deref(), Some("/run/rackwright-traffic-1"));
        for other in [
            "cat >/etc/shadow",
            "mkdir -m 700 -p /run/rackwright-traffic-1 && cat >/etc/shadow",
            "sh",
        ] {
            assert_eq!(folder_of(other.as_bytes()), None, "{other}");
        }
    }
}
