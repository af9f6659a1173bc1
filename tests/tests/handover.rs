//! Slurm's own daemon reads the files of a hand-over pack: it lists each node under the right switch, with its GPUs and
//! memory. A broken topology shows in the daemon's log or makes the daemon exit.
//!
//! Debian 12 has Slurm 22.05, so no real Slurm reads `topology.yaml` here, which came with 25.05.

#![allow(clippy::disallowed_methods)] // a test may read clocks, and wait for what it started

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rackwright_planner::handover::{Cluster, Format, Member, pack};
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::{CustomerId, NodeId, Port, Site};
use rackwright_site::power::{Ledger, Reservation};
use rackwright_tests::ports::free_port;

/// Twenty times the need of 2,048 nodes.
const WAIT_LIMIT: Duration = Duration::from_secs(120);

fn generated(nodes: usize) -> Site {
    let text = site_file(&Request::new(ReferenceSku::DgxH100, nodes)).expect("a site");
    let text = format!("{text}---\ncustomers:\n- {{name: acme}}\n");
    let source = Source {
        name: "site",
        text: &text,
    };
    check(&[source]).site.expect("a site without errors")
}

/// The Slurm files of a cluster of these nodes. Their addresses are of this computer and have no listeners: the daemon
/// tries to reach its nodes.
fn files(site: &Site, nodes: impl Iterator<Item = NodeId>) -> BTreeMap<String, String> {
    let mut ledger = Ledger::new(site);
    let member = |node: NodeId| Member {
        node,
        hostname: site.node(node).name.to_string(),
        address: Some(std::net::IpAddr::from((0x7f01_0001_u32 + node.0).to_be_bytes())),
        spare: false,
    };
    let members: Vec<Member> = nodes.map(member).collect();
    let wanted: Vec<Reservation> = members
        .iter()
        .map(|member| Reservation::full(site, member.node, CustomerId(0)))
        .collect();
    ledger.reserve(site, &wanted).expect("there is power");
    let cluster = Cluster {
        site,
        name: "alpha",
        customer: "acme",
        members,
        ledger: &ledger,
        processors: BTreeMap::new(),
        partition: None,
        report: Vec::new(),
    };
    let files = pack(&cluster, &[Format::Slurm]).expect("a pack");
    files.into_iter().map(|file| (file.name, file.text)).collect()
}

/// A slurmctld with the files of a pack, in its own folder and on its own ports.
struct Controller {
    folder: tempfile::TempDir,
    child: Child,
}

impl Drop for Controller {
    fn drop(&mut self) {
        // The daemon may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Controller {
    /// Starts the daemon; [`Self::ready`] reports whether it keeps running.
    fn start(files: &BTreeMap<String, String>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path();
        for (name, text) in files {
            if let Some(name) = name.strip_prefix("slurm/") {
                fs::write(here.join(name), text).expect("a file of the pack");
            }
        }
        fs::create_dir(here.join("state")).expect("a folder for its state");
        let user = Command::new("id").arg("-un").output().expect("id runs").stdout;
        let (port, path) = (free_port(), here.display());
        let conf = format!(
            "ClusterName=test\nSlurmctldHost=localhost(127.0.0.1)\nSlurmUser={}\nSlurmctldPort={port}\nSlurmdPort={}\n\
             AuthType=auth/none\nCredType=cred/none\nMailProg=/bin/true\nMpiDefault=none\nProctrackType=proctrack/pgid\nSlurmdTimeout=0\n\
             StateSaveLocation={path}/state\nSlurmdSpoolDir={path}/spool\nSlurmctldPidFile={path}/pid\n\
             SlurmctldLogFile={path}/log\nGresTypes=gpu\nSelectType=select/cons_tres\nTopologyPlugin=topology/tree\n\
             Include {path}/nodes.conf\n",
            String::from_utf8_lossy(&user).trim(),
            port + 1,
        );
        fs::write(here.join("slurm.conf"), conf).expect("slurm.conf");
        let child = Command::new("slurmctld")
            .args(["-D", "-f"])
            .arg(here.join("slurm.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("slurmctld runs: images/deps.sh installs it");
        Self { folder, child }
    }

    fn conf(&self) -> PathBuf {
        self.folder.path().join("slurm.conf")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Waits until it is ready. False: it has ended.
    fn ready(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < WAIT_LIMIT {
            if self.child.try_wait().expect("its state").is_some() {
                return false;
            }
            // scontrol itself waits long for a daemon that is not ready yet.
            if self.log().contains("Running as primary controller") {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("slurmctld is not ready:\n{}", self.log());
    }

    fn scontrol(&self, arguments: &[&str]) -> String {
        let output = Command::new("scontrol")
            .env("SLURM_CONF", self.conf())
            .args(arguments)
            .output()
            .expect("scontrol runs: images/deps.sh installs it");
        assert!(output.status.success(), "{arguments:?}: {output:?}\n{}", self.log());
        String::from_utf8(output.stdout).expect("text")
    }

    /// The names in a list, as Slurm reads it.
    fn names(&self, list: &str) -> Vec<String> {
        let names = self.scontrol(&["show", "hostnames", list]);
        names.lines().map(str::to_owned).collect()
    }

    /// Log lines about wrong names and switches.
    fn complaints(&self) -> Vec<String> {
        let log = self.log();
        let about = |line: &&str| {
            let line = line.to_lowercase();
            [
                "switch",
                "topology: warning",
                "hostname",
                "duplicate",
                "gres",
                "nodename",
                "memory is",
                "invalid",
            ]
            .iter()
            .any(|word| line.contains(word))
                && ["error", "warning", "fatal"].iter().any(|word| line.contains(word))
        };
        log.lines().filter(about).map(str::to_owned).collect()
    }

    /// The parent switch of each node and of each switch, as Slurm reports it.
    fn above(&self) -> BTreeMap<String, String> {
        let mut above = BTreeMap::new();
        for line in self.scontrol(&["show", "topology"]).lines() {
            let fields = fields(line);
            let below = if fields["Level"] == "0" { "Nodes" } else { "Switches" };
            for name in self.names(fields[below]) {
                let other = above.insert(name.clone(), fields["SwitchName"].to_owned());
                assert_eq!(other, None, "{name} is below two switches");
            }
        }
        above
    }
}

/// `Name=value` words of a line.
fn fields(line: &str) -> BTreeMap<&str, &str> {
    line.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .collect()
}

/// The unit and pod of a node, from the leaf of its first cable.
fn numbers(site: &Site, node: NodeId) -> (u16, Option<u16>) {
    let leaf = site.cables.iter().find_map(|cable| match (cable.a, cable.b) {
        (Port::Hca { node: one, .. }, Port::Switch { switch, .. }) if one == node => Some(switch),
        _ => None,
    });
    let leaf = site.switch(leaf.expect("a cable"));
    (leaf.scalable_unit.expect("a unit"), leaf.pod)
}

/// Slurm has every node below its unit, every unit below its pod, and no complaints.
fn is_read(site: &Site, nodes: &[NodeId]) {
    let mut slurm = Controller::start(&files(site, nodes.iter().copied()));
    assert!(slurm.ready(), "slurmctld has ended:\n{}", slurm.log());
    assert_eq!(slurm.complaints(), [""; 0]);
    let above = slurm.above();
    for node in nodes {
        let (unit, pod) = numbers(site, *node);
        let switch = &above[&*site.node(*node).name];
        assert_eq!(*switch, format!("su{unit:02}"));
        let top = pod.map_or_else(|| "spine".to_owned(), |pod| format!("pod{pod:02}"));
        assert_eq!(above[switch], top);
        assert_eq!(above.get(&top).map(String::as_str), pod.map(|_| "core"));
    }
    let shown = slurm.scontrol(&["-o", "show", "nodes"]);
    let shown: BTreeMap<&str, _> = shown
        .lines()
        .map(fields)
        .map(|fields| (fields["NodeName"], fields))
        .collect();
    assert_eq!(shown.len(), nodes.len());
    for node in nodes {
        let fields = &shown[&*site.node(*node).name];
        // 95 % of 2 TiB.
        assert_eq!(
            (fields["Gres"], fields["RealMemory"], fields["Sockets"]),
            ("gpu:8", "1992294", "2")
        );
        assert_eq!(fields["Partitions"], "alpha");
    }
}

#[test]
fn slurm_reads_the_pack_of_128_nodes() {
    let site = generated(128);
    is_read(&site, &site.node_ids().collect::<Vec<_>>());
}

#[test]
fn slurm_reads_the_pack_of_2048_nodes_in_three_levels() {
    let site = generated(2048);
    is_read(&site, &site.node_ids().collect::<Vec<_>>());
}

/// Every third node from the middle of two pods: lists with gaps.
#[test]
fn slurm_reads_the_pack_of_a_part_of_a_site() {
    let site = generated(512);
    is_read(&site, &(96..160).step_by(3).map(NodeId).collect::<Vec<_>>());
}

/// Slurm reads the short lists of a pack as they are meant.
#[test]
fn slurm_reads_short_lists_as_they_are_meant() {
    let site = generated(2);
    let mut slurm = Controller::start(&files(&site, site.node_ids()));
    assert!(slurm.ready(), "slurmctld has ended:\n{}", slurm.log());
    for names in [
        &["gpu-098", "gpu-099", "gpu-100", "gpu-101"][..],
        &["gpu-8", "gpu-9", "gpu-10", "gpu-010", "gpu-011"],
        &["n999999998", "n999999999", "n1000000000", "n20000000000"],
        &["r1-n1", "r1-n2", "r2-n1", "login", "a.b-7", "a.b-8", "x0", "x00"],
    ] {
        let list = rackwright_planner::handover::hostlist::compress(names.iter().copied());
        let (mut listed, mut wanted) = (slurm.names(&list), names.to_vec());
        listed.sort();
        wanted.sort_unstable();
        assert_eq!(listed, wanted, "{list}");
    }
}

/// Slurmctld's reaction to a pack of 64 nodes with a changed topology: `None` if it exits, otherwise its complaints.
fn with_topology(change: impl Fn(&str) -> String) -> Option<Vec<String>> {
    let site = generated(64);
    let mut files = files(&site, site.node_ids());
    let topology = files.get_mut("slurm/topology.conf").expect("a topology");
    let changed = change(topology);
    assert_ne!(*topology, changed);
    *topology = changed;
    let mut slurm = Controller::start(&files);
    slurm.ready().then(|| slurm.complaints())
}

#[test]
fn a_broken_topology_is_noticed() {
    // Missing or duplicate switches, or a cycle of switches: it does not start.
    assert_eq!(
        with_topology(|text| text.replace("Switches=su[01-02]", "Switches=su[01-03]")),
        None
    );
    assert_eq!(
        with_topology(|text| text.replace("SwitchName=su02", "SwitchName=su01")),
        None
    );
    assert_eq!(
        with_topology(|text| format!("{text}SwitchName=x Switches=y\nSwitchName=y Switches=x\n")),
        None
    );
    // Nodes without a switch, with two, or unknown: it starts and reports them.
    for (to, words) in [
        ("gpu-[33-63]", "switches lack access to 1 nodes: gpu-64"),
        ("gpu-[32-64]", "Multiple leaf switches contain nodes: gpu-32"),
        ("gpu-[33-65]", "Invalid hostnames in switch configuration: gpu-65"),
    ] {
        let errors = with_topology(|text| text.replace("gpu-[33-64]", to)).expect("it starts");
        assert!(errors.iter().any(|line| line.contains(words)), "{to}: {errors:?}");
    }
}
