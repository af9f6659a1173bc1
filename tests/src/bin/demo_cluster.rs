//! `make demo-cluster`: two customers get clusters of a hall of 128 machines, on a fabric that a real OpenSM manages. The
//! hall lacks a cable, has a storage fabric beside the compute fabric, and gets a new adapter, without a false alarm.
//!
//! Machines are simulated (`rackwright-sim`) and ibsim plays the fabric; the control plane, the agents' code, OpenSM and the
//! tools that read its ports are the real ones. Every line after `$` is a command that an operator would type.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rackwright_fabric::FabricManager as _;
use rackwright_infiniband::Guid;
use rackwright_site::model::{FabricPurpose, Redundancy, Site as Model};
use rackwright_tests::fabric::{Lab, folder};
use rackwright_tests::hall::{
    Ports, config, describe_irregular, enrolment, image, keys_of_clusters, keys_of_ports, read, simulate, with_port,
};
use rackwright_tests::keep;
use rackwright_tests::site::{Site, program};
use serde_json::{Value, json};
use tokio::process::Child;

/// With machines; the storage nodes have none.
const NODES: usize = 128;
const STORAGE_NODES: usize = 4;
/// Each has circuits of its own.
const CUSTOMERS: [(&str, Redundancy, bool); 2] = [
    ("acme", Redundancy::FeedLoss, true),
    ("bolt", Redundancy::FeedLoss, true),
];
const CLUSTERS: &str = "clusters:\n\
                        - {name: alpha, customer: acme, sku: dgx-h100, nodes: 48}\n\
                        - {name: beta, customer: bolt, sku: dgx-h100, nodes: 32}\n";
/// The adapter that is replaced.
const REPLACED: &str = "mlx5_5";
/// Time limit until the control plane has noticed a change of the fabric, which takes seconds on a quiet computer.
const TEST_LIMIT: Duration = Duration::from_secs(600);
/// Seconds of the machines' time per real second.
const SPEED: u32 = 40;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let begun = Instant::now();
    let dir = folder();
    let mut demo = Demo::start(dir.path()).await;
    demo.story().await;
    let failed = demo.failed;
    println!("\nThe whole demo took {:.0} s.", begun.elapsed().as_secs_f64());
    if keep::is_wanted() {
        keep::with_logins(&demo.site, &[]).await;
    }
    demo.stop().await;
    if failed {
        eprintln!("The demo did not end as it should.");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn say(text: &str) {
    println!("\n== {text}");
}

struct Demo {
    dir: PathBuf,
    /// The site file.
    text: String,
    hall: Model,
    /// The compute fabric.
    lab: Lab,
    /// The storage fabric with an OpenSM of its own, and the partition file of this OpenSM at the start.
    storage: (Lab, String),
    simulator: Child,
    site: Site,
    /// Nodes of each cluster, from the plan made before the start.
    planned: BTreeMap<String, Vec<String>>,
    /// The label of the cable that is cut while a cluster is built, and stays so.
    cut: String,
    failed: bool,
}

/// The nodes that the clusters will get: the same request in the same hall gives the same nodes.
fn plan(dir: &Path) -> BTreeMap<String, Vec<String>> {
    let output = std::process::Command::new(program("rackwright"))
        .args(["cluster", "plan", "-f"])
        .arg(dir.join("clusters.yaml"))
        .arg("--site")
        .arg(dir.join("site.yaml"))
        .args(["-o", "json"])
        .output()
        .expect("the CLI can be started");
    let plan: Value = serde_json::from_slice(&output.stdout).expect("a plan in JSON");
    let clusters = plan["clusters"].as_array().expect("clusters");
    let names = |cluster: &Value| {
        let nodes = cluster["nodes"].as_array().expect("nodes").iter();
        nodes.map(|node| node.as_str().expect("a name").to_owned()).collect()
    };
    clusters
        .iter()
        .map(|cluster| (cluster["name"].as_str().expect("a name").to_owned(), names(cluster)))
        .collect()
}

impl Demo {
    async fn start(dir: &Path) -> Self {
        say(
            "A site file describes a hall of 128 DGX H100 and 4 storage nodes: racks, three feeds, cooling, two fabrics.",
        );
        let text = describe_irregular(&CUSTOMERS);
        let hall = read(&text);
        assert_eq!(hall.nodes.len(), NODES + STORAGE_NODES, "the nodes of the hall");
        std::fs::write(dir.join("site.yaml"), &text).expect("the site file");
        std::fs::write(dir.join("clusters.yaml"), CLUSTERS).expect("the clusters");
        println!(
            "{} nodes, {} switches, {} cables",
            hall.nodes.len(),
            hall.switches.len(),
            hall.cables.len()
        );
        let planned = plan(dir);
        say(
            "A simulator (ibsim) plays exactly these cables. The compute and the storage fabric have a real OpenSM each.",
        );
        let begun = Instant::now();
        let lab = Lab::of_purpose(&hall, FabricPurpose::Compute).await;
        let storage = Lab::of_purpose(&hall, FabricPurpose::Storage).await;
        let partitions = std::fs::read_to_string(storage.partitions_file()).expect("its partitions");
        println!(
            "each OpenSM has found its fabric after {:.1} s",
            begun.elapsed().as_secs_f64()
        );
        say("The machines are simulated and switched off; each has a BMC that speaks Redfish. Two faults are hidden:");
        let broken = planned["alpha"][5].clone();
        let at = hall
            .nodes
            .iter()
            .position(|node| *node.name == *broken)
            .expect("a node");
        let slow = planned["beta"][7].clone();
        let slow_at = hall.nodes.iter().position(|node| *node.name == *slow).expect("a node");
        println!("a drive of {broken} is broken, and a cable of {slow} carries a third of what the others carry.");
        println!("The control plane does not know this yet.");
        let faults = format!(
            "faults:\n- {{fault: disk-errors, nodes: [{at}]}}\n\
             - {{fault: slow-cable, adapter: 2, gbit_per_s: 40, nodes: [{slow_at}]}}\n"
        );
        std::fs::write(dir.join("faults.yaml"), faults).expect("the faults");
        let ports = Ports::find();
        let (simulator, machines) = simulate(dir, &ports, NODES, SPEED, &["--faults", "faults.yaml"]).await;
        std::fs::write(dir.join("nodes.yaml"), enrolment(hall.nodes.iter(), &machines)).expect("the nodes");
        let site = Site::start_with(dir, &config(dir, &ports, &lab, "check_s: 5")).await;
        Self {
            dir: dir.to_owned(),
            text,
            hall,
            lab,
            storage: (storage, partitions),
            simulator,
            site,
            planned,
            cut: String::new(),
            failed: false,
        }
    }

    async fn stop(mut self) {
        self.site.stop().await;
        self.simulator.kill().await.expect("the simulator ends");
        self.lab.stop().await;
        self.storage.0.stop().await;
    }

    /// Shows a command and runs it in the folder of the demo; its output goes to the terminal.
    fn run(&mut self, arguments: &[&str]) {
        let is_successful = self.succeeds(arguments);
        self.failed |= !is_successful;
    }

    fn succeeds(&self, arguments: &[&str]) -> bool {
        let quoted = |one: &&str| match one.contains(' ') {
            true => format!("\"{one}\""),
            false => (*one).to_owned(),
        };
        let shown: Vec<String> = arguments.iter().map(quoted).collect();
        println!("\n$ rackwright {}", shown.join(" "));
        let mut command = self.site.command();
        let status = command.current_dir(&self.dir).args(arguments).status();
        status.expect("the CLI can be started").success()
    }

    async fn story(&mut self) {
        say(
            "This hall lacks a cable between leaf-su4-r7 and spine-16, and has a storage fabric beside the compute fabric.",
        );
        println!(
            "The check of the site file warns of the absent cable and states its cost. All other cables are used."
        );
        println!(
            "The site file says that the storage fabric is for storage, so no cluster gets a link or a key there. The"
        );
        println!(
            "control plane changes the keys of the compute fabric alone: its settings name the OpenSM of that fabric."
        );
        self.run(&["site", "validate", "site.yaml"]);
        say("The site is applied; the machines are found by their BMCs and inspected.");
        self.run(&["site", "apply", "site.yaml", "--yes", "--quiet"]);
        self.run(&["site", "show"]);
        let begun = Instant::now();
        self.run(&["apply", "-f", "nodes.yaml", "--wait", "--quiet"]);
        println!(
            "{NODES} machines are available after {:.0} s",
            begun.elapsed().as_secs_f64()
        );
        for (shift, name) in [(13, "ubuntu"), (11, "ubuntu-next")] {
            std::fs::write(self.dir.join("image.raw"), image(shift)).expect("an image");
            let add = [
                "image",
                "add",
                name,
                "--file",
                "image.raw",
                "--format",
                "raw",
                "--quiet",
            ];
            self.run(&add);
        }

        say("Two customers ask for clusters: non-blocking, on circuits of their own, surviving the loss of any feed.");
        println!("With a site file, the plan shows both beside each other; the control plane chooses the same nodes.");
        self.run(&["cluster", "plan", "-f", "clusters.yaml", "--site", "site.yaml"]);
        let begun = Instant::now();
        for (name, customer, nodes) in [("alpha", "acme", "48"), ("beta", "bolt", "32")] {
            let wants = [
                "--customer",
                customer,
                "--sku",
                "dgx-h100",
                "--nodes",
                nodes,
                "--image",
                "ubuntu",
            ];
            let mut create = vec!["cluster", "create", name];
            create.extend(wants);
            self.run(&create);
        }
        self.cut_a_cable().await;
        for name in ["alpha", "beta"] {
            self.run(&["cluster", "watch", name]);
        }
        println!(
            "both customers have their clusters after {:.0} s",
            begun.elapsed().as_secs_f64()
        );
        self.run(&["cluster", "list"]);
        for name in ["alpha", "beta"] {
            self.run(&["cluster", "explain", name]);
        }
        self.isolated(&["alpha", "beta"]).await;
        self.a_cable_in_use().await;
        self.a_damaged_file().await;
        self.a_replaced_adapter().await;
        self.hand_over();
        self.change().await;
        say("One customer needs its cluster no longer: all drives are erased, and no port has the key any more.");
        self.run(&["cluster", "release", "beta", "--yes", "--wait"]);
        self.run(&["cluster", "list"]);
        self.isolated(&["alpha"]).await;
        self.no_false_alarm().await;
    }

    /// A cable of one of beta's nodes breaks while the cluster is built.
    async fn cut_a_cable(&mut self) {
        let node = self.planned["beta"][3].clone();
        let cable = self.lab.cable(&format!("{node} mlx5_0"), 1);
        say(&format!(
            "Cable {} at {node} breaks while the clusters are built. The operator has the node replaced.",
            cable.name
        ));
        self.cut.clone_from(&cable.name);
        let dump = |name: &str| self.dir.join(name);
        let before = self.lab.opensm().topology().await.expect("a topology");
        std::fs::write(dump("planned.dump"), before.write()).expect("a dump");
        self.lab.unlink(&cable).await;
        let after = self.lab.opensm().topology().await.expect("a topology");
        std::fs::write(dump("now.dump"), after.write()).expect("a dump");
        // The command finds faults, which its exit status reports.
        let check = ["fabric", "check", "--plan", "planned.dump", "--discovered", "now.dump"];
        let is_faultless = self.succeeds(&check);
        self.failed |= is_faultless;
        let reason = format!("cable {} is broken", cable.name);
        self.run(&["cluster", "replace", "beta", &node, "--reason", &reason, "--yes"]);
    }

    /// A cable of a customer's node breaks and is plugged in again.
    async fn a_cable_in_use(&mut self) {
        let node = self.planned["alpha"][0].clone();
        let cable = self.lab.cable(&format!("{node} mlx5_3"), 1);
        say(&format!(
            "Cable {} at {node} breaks, which is in use: the node stays with its customer.",
            cable.name
        ));
        self.lab.unlink(&cable).await;
        self.until("alpha", "CLUSTER_STATE_DEGRADED").await;
        self.run(&["fabric", "faults"]);
        self.run(&["cluster", "list"]);
        say("It is plugged in again.");
        self.lab.relink(&cable).await;
        self.until("alpha", "CLUSTER_STATE_READY").await;
        self.run(&["fabric", "faults"]);
        // The cable that was cut while beta was built belongs to a free node that is off, which is not a fault.
        let faults = self.site.json(["fabric", "faults"]);
        self.failed |= faults["faults"].as_array().is_none_or(|faults| !faults.is_empty());
    }

    /// OpenSM's partition file is damaged, so OpenSM opens every port.
    async fn a_damaged_file(&mut self) {
        say("OpenSM's partition file is damaged: OpenSM makes every port a full member of the default partition.");
        println!(
            "Every port can reach every other one until the control plane has restored the file, which it does now."
        );
        let deadline = Instant::now() + 2 * TEST_LIMIT;
        // If the control plane reads the damaged file before OpenSM has opened the ports, the file is repaired before
        // that. Then the file is damaged again.
        while !self.is_over("open-default") {
            std::fs::write(self.lab.partitions_file(), "Default=0x7fff : ALL=full ; %%%\n").expect("a damaged file");
            self.lab.sweep_after_hangup().await;
            while !self.is_repaired() {
                if Instant::now() > deadline {
                    println!("the breach is not over after {} s", 2 * TEST_LIMIT.as_secs());
                    self.failed = true;
                    return;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        self.failed |= !self.is_over("partition-file");
        self.run(&["fabric", "faults"]);
        for cluster in ["clusters/alpha", "clusters/beta"] {
            let events = self.site.cli(["events", "--target", cluster]);
            let is_reported =
                events.contains("cluster.isolation-breach") && events.contains("cluster.isolation-restored");
            println!(
                "{cluster}: the breach and its end are {}",
                if is_reported { "reported" } else { "NOT reported" }
            );
            self.failed |= !is_reported;
        }
    }

    /// An adapter of one of alpha's nodes is replaced. The new port gets the cluster's key when the site file has its GUID.
    async fn a_replaced_adapter(&mut self) {
        let node = self.planned["alpha"][2].clone();
        let id = self.hall.node_named(&node).expect("a node of the site");
        let mut hcas = self.hall.sku_of(id).hcas.iter();
        let at = hcas.position(|hca| *hca.name == *REPLACED).expect("an adapter");
        let former = self.hall.node(id).port_guids[at].and_then(Guid::new);
        let former = former.expect("a port GUID");
        let new = Guid::new(former.get() + 0x0f00_0000).expect("a GUID");
        say(&format!(
            "Adapter {REPLACED} of {node} is replaced: its port has GUID {new} instead of {former}, and no key."
        ));
        self.lab.replace_adapter(&format!("{node} {REPLACED}"), new).await;
        self.until("alpha", "CLUSTER_STATE_DEGRADED").await;
        let needed = format!("`guids: {{{REPLACED}: {new}}}` of node {node}");
        let what = format!("alpha's reason names {needed}");
        if self.wait(&what, |demo| demo.reason("alpha").contains(&needed)).await {
            println!("the reason: {}", self.reason("alpha"));
        }
        say("The site file gets this GUID. Applying the file confirms the adapter.");
        self.text = with_port(&self.text, &self.hall, (node.as_str(), REPLACED), new);
        self.hall = read(&self.text);
        std::fs::write(self.dir.join("site.yaml"), &self.text).expect("the site file");
        self.run(&["site", "apply", "site.yaml", "--yes", "--quiet"]);
        self.until("alpha", "CLUSTER_STATE_READY").await;
        let events = self.site.cli(["-o", "json", "events", "--target", "fabric"]);
        let mut newest = events
            .lines()
            .rev()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let proof = newest.find(|event| event["kind"] == "fabric.proven");
        let words = proof.as_ref().and_then(|event| event["message"].as_str());
        println!("the proof: {}", words.unwrap_or("NONE"));
        self.failed |= words.is_none();
        let keys = self.isolated(&["alpha", "beta"]).await;
        let key_of = |port: &Guid| keys.iter().find(|(_, ports)| ports.contains(port)).map(|(key, _)| *key);
        match (key_of(&new), key_of(&former)) {
            (Some(key), None) => println!("port {new} has key {key:#06x}"),
            other => {
                println!("the keys of ports {new} and {former} are NOT as they should be: {other:?}");
                self.failed = true;
            }
        }
    }

    fn reason(&self, cluster: &str) -> String {
        let cluster = self.site.json(["cluster", "get", cluster]);
        cluster["status"]["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// After a comparison of the fabric and a check of the isolation that began after all changes, no fault is open except
    /// the one that the demo has left, and no breach.
    async fn no_false_alarm(&mut self) {
        say("Is there a false alarm? The absent cable, the storage fabric and the new adapter are no faults.");
        for _ in 0..2 {
            let before = self.check_times();
            let are_newer = |demo: &Self| demo.check_times().iter().zip(&before).all(|(new, old)| new != old);
            if !self.wait("the fabric is compared and checked", are_newer).await {
                return;
            }
        }
        self.run(&["fabric", "faults"]);
        let seen = self.site.json(["fabric", "faults"]);
        let list = |field: &str| seen[field].as_array().cloned().unwrap_or_default();
        let mut wrong = list("faults");
        wrong.retain(|fault| fault["cables"] != json!([self.cut]));
        let breaches = list("breaches").into_iter();
        wrong.extend(breaches.filter(|breach| !breach["end_time"].is_string()));
        let problems = ["problem", "isolation_problem"].map(|field| seen[field].clone());
        wrong.extend(
            problems
                .into_iter()
                .filter(|problem| problem.as_str().is_some_and(|why| !why.is_empty())),
        );
        if wrong.is_empty() {
            println!("no fault of the fabric is unintended, and no breach of isolation is open");
        }
        for one in wrong {
            println!("NOT intended: {one}");
            self.failed = true;
        }
    }

    /// When the fabric was last compared with the site, and when the isolation was last checked.
    fn check_times(&self) -> [Value; 2] {
        let seen = self.site.json(["fabric", "faults"]);
        ["check_time", "isolation_check_time"].map(|field| seen[field].clone())
    }

    fn breaches(&self) -> Vec<Value> {
        let faults = self.site.json(["fabric", "faults"]);
        faults["breaches"].as_array().cloned().unwrap_or_default()
    }

    /// Whether a breach of this kind has a start and an end.
    fn is_over(&self, kind: &str) -> bool {
        let has_times = |breach: &Value| breach["since"].is_string() && breach["end_time"].is_string();
        self.breaches()
            .iter()
            .any(|breach| breach["kind"] == kind && has_times(breach))
    }

    /// Whether the partition file is readable for OpenSM again, and no breach is open.
    fn is_repaired(&self) -> bool {
        let text = std::fs::read_to_string(self.lab.partitions_file()).unwrap_or_default();
        let is_readable = rackwright_infiniband::partition::parse(&text).is_ok();
        is_readable && self.breaches().iter().all(|breach| breach["end_time"].is_string())
    }

    /// Waits until a cluster is in a state.
    async fn until(&mut self, cluster: &str, state: &str) {
        let word = state.trim_start_matches("CLUSTER_STATE_").to_lowercase();
        let what = format!("{cluster} is {word}");
        let is_so = |demo: &Self| demo.site.json(["cluster", "get", cluster])["status"]["state"] == state;
        if self.wait(&what, is_so).await {
            println!("{what}");
        }
    }

    /// Waits until something is so. Returns whether it is; otherwise the demo has failed.
    async fn wait(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> bool {
        let deadline = Instant::now() + TEST_LIMIT;
        while !is_so(self) {
            if Instant::now() > deadline {
                println!("NOT within {} s: {what}", TEST_LIMIT.as_secs());
                self.failed = true;
                return false;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        true
    }

    /// Reads every port's table without the control plane and compares it with the expected one of each cluster. The storage
    /// fabric is as at the start. Returns the ports of each key.
    async fn isolated(&mut self, clusters: &[&str]) -> BTreeMap<u16, BTreeSet<Guid>> {
        say("Every port of the fabric is read without the control plane: which ports have which partition key?");
        let reading = self.lab.opensm().tables().await.expect("tables");
        let keys = keys_of_ports(&reading.tables);
        let (read, unread) = (reading.tables.read.len(), reading.tables.unread.len());
        println!(
            "{read} ports read, {unread} unread; the port at the broken cable {} is not in the fabric",
            self.cut
        );
        for (key, ports) in &keys {
            println!("key {key:#06x}: {} ports", ports.len());
        }
        let wanted = keys_of_clusters(&self.site, &self.hall, clusters);
        if keys == wanted && unread == 0 {
            println!("each cluster's ports have its key, and no other port has it");
        } else {
            println!("that is NOT what the clusters should have");
            self.failed = true;
        }
        let (storage, partitions) = &self.storage;
        let now = std::fs::read_to_string(storage.partitions_file()).unwrap_or_default();
        let tables = storage.opensm().tables().await.expect("tables").tables;
        if now == *partitions && tables.unread.is_empty() && keys_of_ports(&tables).is_empty() {
            println!("the storage fabric: {} ports read, none has a key", tables.read.len());
        } else {
            println!("the storage fabric is NOT as at the start");
            self.failed = true;
        }
        keys
    }

    /// Beta gets more nodes, then another image leaf by leaf, and returns nodes.
    async fn change(&mut self) {
        say(
            "The other customer needs more nodes, then another image on all of them, half at a time, then fewer nodes.",
        );
        self.run(&["cluster", "resize", "beta", "--nodes", "36", "--wait"]);
        let reimage = [
            "cluster",
            "reimage",
            "beta",
            "--image",
            "ubuntu-next",
            "--yes",
            "--wait",
        ];
        self.run(&[&reimage[..], &["--max-unavailable", "50%", "--roll-back"]].concat());
        self.run(&["cluster", "resize", "beta", "--nodes", "30", "--yes", "--wait"]);
        self.run(&["cluster", "explain", "beta"]);
        let beta = self.site.json(["cluster", "get", "beta"]);
        let members = beta["status"]["members"].as_array().expect("members").len();
        let image = beta["spec"]["deployment"]["image"].as_str().expect("an image");
        self.failed |= members != 30
            || !image.starts_with("images/ubuntu-next/")
            || beta["status"]["state"] != "CLUSTER_STATE_READY";
        self.isolated(&["alpha", "beta"]).await;
    }

    fn hand_over(&mut self) {
        say("What alpha's team gets with its nodes:");
        self.run(&["cluster", "pack", "alpha", "pack"]);
        let topology = std::fs::read_to_string(self.dir.join("pack/slurm/topology.conf")).unwrap_or_default();
        println!("\npack/slurm/topology.conf:");
        topology
            .lines()
            .filter(|line| !line.starts_with('#'))
            .take(8)
            .for_each(|line| println!("  {line}"));
        self.failed |= topology.is_empty();
    }
}
