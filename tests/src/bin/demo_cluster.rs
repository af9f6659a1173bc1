//! `make demo-cluster`: two customers get clusters of a hall of 128 machines, on a fabric that a real OpenSM manages.
//!
//! Machines are simulated (`rackwright-sim`) and ibsim plays the fabric; the control plane, the agents' code, OpenSM and the
//! tools that read its ports are the real ones. Every line after `$` is a command that an operator would type.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use rackwright_fabric::FabricManager as _;
use rackwright_infiniband::Guid;
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::{Redundancy, Site as Hall};
use rackwright_tests::fabric::{Lab, folder};
use rackwright_tests::ports::free_port;
use rackwright_tests::site::{Site, program};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

const NODES: usize = 128;
const CLUSTERS: &str = "clusters:\n\
                        - {name: alpha, customer: acme, sku: dgx-h100, nodes: 48}\n\
                        - {name: beta, customer: bolt, sku: dgx-h100, nodes: 32}\n";
/// Time limit until the control plane has noticed a change of a cable.
const TEST_LIMIT: Duration = Duration::from_secs(120);
/// Seconds of the machines' time per real second.
const SPEED: &str = "40";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let begun = Instant::now();
    let dir = folder();
    let mut demo = Demo::start(dir.path()).await;
    demo.story().await;
    let failed = demo.failed;
    demo.stop().await;
    println!("\nThe whole demo took {:.0} s.", begun.elapsed().as_secs_f64());
    if failed {
        eprintln!("The demo did not end as it should.");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn say(text: &str) {
    println!("\n== {text}");
}

/// A machine as the simulator describes it.
type Machine = Value;

struct Demo {
    dir: PathBuf,
    hall: Hall,
    lab: Lab,
    simulator: Child,
    site: Site,
    /// Nodes of each cluster, from the plan made before the start.
    planned: BTreeMap<String, Vec<String>>,
    failed: bool,
}

/// The site: NVIDIA's reference for 128 DGX H100, and two customers with promised nodes. Its fabric uses HDR instead of NDR:
/// ibsim plays HDR, and with any other rate in the site every cable would be at fault.
fn describe() -> String {
    let mut request = Request::new(ReferenceSku::DgxH100, NODES);
    request.customers = vec![
        ("acme".into(), Redundancy::FeedLoss, true),
        ("bolt".into(), Redundancy::FeedLoss, true),
    ];
    let text = site_file(&request).expect("a site");
    assert!(
        text.contains("speed: NDR"),
        "the reference names the speed of its links"
    );
    text.replace("speed: NDR", "speed: HDR")
}

fn read(text: &str) -> Hall {
    let name = "site.yaml";
    let checked = check(&[Source { name, text }]);
    checked.site.unwrap_or_else(|| panic!("{:?}", checked.findings))
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
        say("A hall of 128 DGX H100 as a site file: racks, three feeds, cooling, the fat-tree with every cable.");
        let text = describe();
        let hall = read(&text);
        std::fs::write(dir.join("site.yaml"), &text).expect("the site file");
        std::fs::write(dir.join("clusters.yaml"), CLUSTERS).expect("the clusters");
        println!(
            "{} nodes, {} switches, {} cables",
            hall.nodes.len(),
            hall.switches.len(),
            hall.cables.len()
        );
        let planned = plan(dir);
        say("ibsim plays its InfiniBand fabric, and OpenSM brings that up.");
        let begun = Instant::now();
        let lab = Lab::of_site(&hall).await;
        println!(
            "OpenSM has swept the fabric after {:.1} s",
            begun.elapsed().as_secs_f64()
        );
        say("The machines are switched off; each has a BMC that speaks Redfish. One of them has a broken drive.");
        let broken = planned["alpha"][5].clone();
        let at = hall
            .nodes
            .iter()
            .position(|node| *node.name == *broken)
            .expect("a node");
        println!("(the broken one is {broken}; the control plane does not know)");
        let slow = planned["beta"][7].clone();
        let slow_at = hall.nodes.iter().position(|node| *node.name == *slow).expect("a node");
        println!("(and a cable of {slow}, which carries a third of what the others do)");
        let faults = format!(
            "faults:\n- {{fault: disk-errors, nodes: [{at}]}}\n\
             - {{fault: slow-cable, adapter: 2, gbit_per_s: 40, nodes: [{slow_at}]}}\n"
        );
        std::fs::write(dir.join("faults.yaml"), faults).expect("the faults");
        let ports = Ports::find();
        let (simulator, machines) = simulate(dir, &ports).await;
        std::fs::write(dir.join("nodes.yaml"), enrolment(&hall, &machines)).expect("the nodes");
        let site = Site::start_with(dir, &config(dir, &ports, &lab)).await;
        Self {
            dir: dir.to_owned(),
            hall,
            lab,
            simulator,
            site,
            planned,
            failed: false,
        }
    }

    async fn stop(mut self) {
        self.site.stop().await;
        self.simulator.kill().await.expect("the simulator ends");
        self.lab.stop().await;
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Shows a command and runs it; its output goes to the terminal.
    fn run(&mut self, arguments: &[&str]) {
        let shown: Vec<&str> = arguments
            .iter()
            .map(|one| one.rsplit('/').next().unwrap_or(one))
            .collect();
        println!("\n$ rackwright {}", shown.join(" "));
        let status = self.site.command().args(arguments).status();
        self.failed |= !status.expect("the CLI can be started").success();
    }

    async fn story(&mut self) {
        say("The site is applied; the machines are found by their BMCs and inspected.");
        let (site, nodes) = (self.path("site.yaml"), self.path("nodes.yaml"));
        self.run(&["site", "apply", &site, "--yes", "--quiet"]);
        self.run(&["site", "show"]);
        let begun = Instant::now();
        self.run(&["apply", "-f", &nodes, "--wait", "--quiet"]);
        println!(
            "{NODES} machines are available after {:.0} s",
            begun.elapsed().as_secs_f64()
        );
        for (shift, name) in [(13, "ubuntu"), (11, "ubuntu-next")] {
            let image = self.path("image.raw");
            // Any bytes will do: these machines verify the data that they fetch and run no system.
            let bytes: Vec<u8> = (0..4_u32 << 20)
                .map(|n| (n.wrapping_mul(2_654_435_761) >> shift) as u8)
                .collect();
            std::fs::write(&image, bytes).expect("an image");
            self.run(&["image", "add", name, "--file", &image, "--format", "raw", "--quiet"]);
        }

        say("Two customers ask for clusters: non-blocking, on circuits of their own, surviving the loss of any feed.");
        let clusters = self.path("clusters.yaml");
        self.run(&["cluster", "plan", "-f", &clusters]);
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
            "both clusters are their customers' after {:.0} s",
            begun.elapsed().as_secs_f64()
        );
        self.run(&["cluster", "list"]);
        for name in ["alpha", "beta"] {
            self.run(&["cluster", "explain", name]);
        }
        self.isolated(&["alpha", "beta"]).await;
        self.a_cable_in_use().await;
        self.a_damaged_file().await;
        self.hand_over();
        self.change().await;
        say("One customer has had enough: everything is erased, and the key is proven to be in no port any more.");
        self.run(&["cluster", "release", "beta", "--yes", "--wait"]);
        self.run(&["cluster", "list"]);
        self.isolated(&["alpha"]).await;
    }

    /// A cable of one of beta's nodes breaks while the cluster is built.
    async fn cut_a_cable(&mut self) {
        let node = self.planned["beta"][3].clone();
        let cable = self.lab.cable(&format!("{node} mlx5_0"), 1);
        say(&format!("Cable {} at {node} breaks while they are built.", cable.name));
        let dump = |name: &str| self.dir.join(name);
        let before = self.lab.opensm().topology().await.expect("a topology");
        std::fs::write(dump("planned.dump"), before.write()).expect("a dump");
        self.lab.unlink(&cable).await;
        let after = self.lab.opensm().topology().await.expect("a topology");
        std::fs::write(dump("now.dump"), after.write()).expect("a dump");
        let (planned, now) = (self.path("planned.dump"), self.path("now.dump"));
        // The command finds faults, which its exit status reports.
        println!("\n$ rackwright fabric check --plan planned.dump --discovered now.dump");
        let check = ["fabric", "check", "--plan", &planned, "--discovered", &now];
        let status = self
            .site
            .command()
            .args(check)
            .status()
            .expect("the CLI can be started");
        self.failed |= status.success();
        let reason = format!("cable {} is broken", cable.name);
        self.run(&["cluster", "replace", "beta", &node, "--reason", &reason]);
    }

    /// A cable of a customer's node breaks and is plugged in again.
    async fn a_cable_in_use(&mut self) {
        let node = self.planned["alpha"][0].clone();
        let cable = self.lab.cable(&format!("{node} mlx5_3"), 1);
        say(&format!(
            "Cable {} at {node} breaks, which is in use: nobody takes the node away.",
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
        let deadline = Instant::now() + TEST_LIMIT;
        while self.site.json(["cluster", "get", cluster])["status"]["state"] != state {
            if Instant::now() > deadline {
                println!("{cluster} is not {word} after {} s", TEST_LIMIT.as_secs());
                self.failed = true;
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        println!("{cluster} is {word}");
    }

    /// Reads every port's table without the control plane and compares it with the expected one of each cluster.
    async fn isolated(&mut self, clusters: &[&str]) {
        say("Every port of the fabric is read, past the control plane: who has which partition key?");
        let reading = self.lab.opensm().tables().await.expect("tables");
        let mut keys: BTreeMap<u16, BTreeSet<Guid>> = BTreeMap::new();
        for (port, table) in &reading.tables.read {
            for key in table
                .iter()
                .map(|entry| entry & 0x7fff)
                .filter(|key| !matches!(key, 0 | 0x7fff))
            {
                keys.entry(key).or_default().insert(*port);
            }
        }
        let (read, unread) = (reading.tables.read.len(), reading.tables.unread.len());
        println!("{read} ports read, {unread} unread");
        for (key, ports) in &keys {
            println!("key {key:#06x}: {} ports", ports.len());
        }
        let mut wanted: BTreeMap<u16, BTreeSet<Guid>> = BTreeMap::new();
        for cluster in clusters {
            let cluster = self.site.json(["cluster", "get", cluster]);
            let status = &cluster["status"];
            let key = status["partition"]["key"].as_str().expect("a key");
            let key = u16::from_str_radix(key.trim_start_matches("0x"), 16).expect("a key");
            let members = status["members"].as_array().expect("members").iter();
            let nodes = members.map(|member| member["node"].as_str().expect("a node").trim_start_matches("nodes/"));
            let ports = nodes.flat_map(|name| {
                let node = self.hall.node(self.hall.node_named(name).expect("a node of the site"));
                node.port_guids.iter().flatten().filter_map(|guid| Guid::new(*guid))
            });
            wanted.insert(key, ports.collect());
        }
        if keys == wanted && unread == 0 {
            println!("each cluster's ports have its key, and nobody else has it");
        } else {
            println!("that is NOT what the clusters should have");
            self.failed = true;
        }
    }

    /// Beta gets more nodes, then another image leaf by leaf, and returns nodes.
    async fn change(&mut self) {
        say("The other customer needs more, then another image on all nodes without losing all at once, then less.");
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
        let pack = self.path("pack");
        self.run(&["cluster", "pack", "alpha", &pack]);
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

/// Ports of this computer for the started programs.
struct Ports {
    api: u16,
    store: u16,
    boot: u16,
    tftp: u16,
    bmc: u16,
    ssh: u16,
    dhcp: u16,
}

impl Ports {
    fn find() -> Self {
        Self {
            api: free_port(),
            store: free_port(),
            boot: free_port(),
            tftp: free_port(),
            bmc: free_port(),
            ssh: free_port(),
            dhcp: free_port(),
        }
    }
}

async fn simulate(dir: &Path, ports: &Ports) -> (Child, Vec<Machine>) {
    let log = std::fs::File::create(dir.join("rackwright-sim.log")).expect("a log");
    let mut child = Command::new(program("rackwright-sim"))
        .args(["--nodes", &NODES.to_string(), "--profile", "dgx-h100", "--speed", SPEED])
        .args(["--listen", &format!("0.0.0.0:{}", ports.bmc)])
        .args(["--boot-server", &format!("127.0.0.1:{}", ports.dhcp)])
        .args(["--ssh-listen", &format!("0.0.0.0:{}", ports.ssh)])
        .args(["--format", "json", "--keep-running", "--faults"])
        .arg(dir.join("faults.yaml"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .expect("rackwright-sim can be started");
    let mut text = String::new();
    let mut out = child.stdout.take().expect("its output");
    out.read_to_string(&mut text).await.expect("what it prints");
    let described: Value = serde_json::from_str(&text).expect("machines in JSON");
    (child, described["nodes"].as_array().expect("machines").clone())
}

/// The machines under the site's names, as documents for `rackwright apply`.
fn enrolment(hall: &Hall, machines: &[Machine]) -> String {
    let document = |(node, machine): (&rackwright_site::model::Node, &Machine)| {
        let bmc = &machine["bmc"];
        let document = json!({
            "kind": "Node",
            "id": &*node.name,
            "sku": "dgx-h100",
            "bmc": {
                "address": bmc["address"],
                "username": bmc["username"],
                "password": bmc["password"],
                "certificate_sha256": bmc["certificate_sha256"],
            },
        });
        // JSON is YAML.
        format!("---\n{document}\n")
    };
    hall.nodes.iter().zip(machines).map(document).collect()
}

fn config(dir: &Path, ports: &Ports, lab: &Lab) -> String {
    for name in ["vmlinuz", "initrd"] {
        // Simulated machines fetch only the boot script.
        std::fs::write(dir.join(name), name).expect("a boot file");
    }
    let [log, pid] = lab.log_and_pid_files().map(|path| path.display().to_string());
    let environment: BTreeMap<String, String> = lab.environment().into_iter().collect();
    let here = dir.display();
    let Ports {
        api,
        store,
        boot,
        tftp,
        ssh,
        dhcp,
        ..
    } = ports;
    format!(
        "data_dir: {here}/data\nsite: hall\n\
         api:\n  listen: 127.0.0.1:{api}\n  names: [127.0.0.1, localhost]\n\
         store:\n  listen: 127.0.0.1:{store}\n\
         boot:\n  ramdisk:\n    kernel: {here}/vmlinuz\n    initrd: {here}/initrd\n  \
         network:\n    server_ip: 127.0.0.1\n    interface: lo\n    dhcp_port: {dhcp}\n    boot_server_port: {proxy}\n    \
         http_port: {boot}\n    tftp_port: {tftp}\n    first_stages: {{}}\n    \
         dhcp:\n      server:\n        subnets:\n        - network: 127.128.0.0/10\n          \
         pool: {{first: 127.190.0.1, last: 127.190.255.254}}\n\
         ssh_port: {ssh}\n\
         policy: {{power_off_s: 1, tries: 2, backoff_s: 1, backoff_max_s: 2}}\n\
         fabric:\n  check_s: 5\n  opensm: {{partitions: {partitions}, log: {log}, pid_file: {pid}}}\n  \
         tools: {{environment: {environment}}}\n",
        proxy = free_port(),
        partitions = lab.partitions_file().display(),
        environment = json!(environment),
    )
}
