//! rackwrightd with several fabrics, each with an OpenSM of its own: clusters are planned, partitioned and checked in the
//! fabric of their nodes, or in all fabrics of their rails. A storage fabric beside them has an OpenSM too, and is left
//! alone.
//!
//! The control plane, the OpenSMs and the tools that read ports are the real ones; ibsim plays each fabric.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rackwright_fabric::FabricManager as _;
use rackwright_infiniband::Guid;
use rackwright_site::model::{Port, Redundancy, Site as Model};
use rackwright_tests::fabric::{Lab, folder};
use rackwright_tests::hall::{
    Ports, config_of_fabrics, describe, enrolment, image, keys_of_clusters, keys_of_ports, read, simulate, with_port,
};
use rackwright_tests::process;
use rackwright_tests::site::{Site, texts};
use serde_json::Value;
use tokio::process::Child;

const CUSTOMERS: [(&str, Redundancy, bool); 2] = [("acme", Redundancy::None, false), ("bolt", Redundancy::None, false)];
/// The adapters of a node for its rails, and one for storage.
const RAILS: [&str; 8] = [
    "mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11",
];
const STORAGE: &str = "mlx5_1";
/// Seconds of the machines' time per real second.
const SPEED: u32 = 200;
/// Checks follow each other closely. A reading of all ports without a cause does not fall into the test.
const PACE: &str = "check_s: 2\n  proof_s: 7200\n  deadline_s: 300";
/// Time limit of each wait. Each takes seconds on a quiet computer.
const LIMIT: Duration = Duration::from_secs(600);

/// A compute fabric in the site file: one spine, and a leaf for each of these rails with cables to nodes `gpu-[NODES]`.
/// Returns its switches and its cables.
fn compute(name: &str, guid: u64, rails: Range<usize>, nodes: [usize; 2]) -> [String; 2] {
    let (first, last) = (rails.start, rails.end - 1);
    let numbers: Vec<String> = rails.clone().map(|rail| rail.to_string()).collect();
    let switches = format!(
        "- {{name: '{name}-leaf-[{first}-{last}]', role: leaf, ports: 64, speed: HDR, rail: [{}], scalable_unit: 1, \
         fabric: {name}, guid: {:#018x}+0x40}}\n\
         - {{name: {name}-spine, role: spine, ports: 64, speed: HDR, guid: {guid:#018x}}}\n",
        numbers.join(", "),
        guid + 0x40,
    );
    let up = format!(
        "- {{label: '{name}-up-[{first}-{last}]', a: '{name}-leaf-[{first}-{last}]/64', b: '{name}-spine/[1-{}]'}}\n",
        rails.len()
    );
    let down = rails.map(|rail| down(&format!("{name}-leaf-{rail}"), RAILS[rail], nodes));
    [switches, down.collect::<String>() + &up]
}

/// The cables from an adapter of these nodes to a leaf.
fn down(leaf: &str, hca: &str, [first, last]: [usize; 2]) -> String {
    let ports = last - first + 1;
    format!("- {{label: '{leaf}-[1-{ports}]', a: 'gpu-[{first}-{last}]/{hca}', b: '{leaf}/[1-{ports}]'}}\n")
}

/// The site file of a number of nodes with these fabrics, and a storage fabric `disks` with a cable to each node.
fn site_file(nodes: usize, fabrics: &[&str], parts: &[[String; 2]]) -> String {
    let text = describe(nodes, &CUSTOMERS);
    let (facility, rest) = text.split_once("\nswitches:\n").expect("switches");
    let (_, customers) = rest.split_once("\ncustomers:\n").expect("customers");
    let last = RAILS[7];
    let mut facility = facility.replace(&format!("{last}]"), &format!("{last}, {STORAGE}]"));
    let field = format!("    {last}: ");
    let lines = facility.lines().flat_map(|line| {
        let first = line.strip_prefix(&field).and_then(|guid| guid.split_once('+'));
        let first = first.map(|(guid, step)| (guid.parse::<Guid>().expect("a GUID").get() + 0x10, step));
        let storage = first.map(|(guid, step)| format!("    {STORAGE}: {guid:#018x}+{step}\n"));
        [format!("{line}\n"), storage.unwrap_or_default()]
    });
    facility = lines.collect();
    assert!(facility.contains(&format!("{STORAGE}: 0x")), "{facility}");
    let names: Vec<String> = fabrics.iter().map(|name| format!("{{name: {name}}}")).collect();
    let [switches, cables]: [String; 2] = [0, 1].map(|at| parts.iter().map(|part| part[at].as_str()).collect());
    format!(
        "{facility}\nfabrics: [{names}, {{name: disks, purpose: storage}}]\n\nswitches:\n{switches}\
         - {{name: disks-leaf, role: leaf, ports: 64, speed: HDR, fabric: disks, guid: 0xfc6a1c0000030000}}\n\n\
         cables:\n{cables}{disks}\ncustomers:\n{customers}",
        names = names.join(", "),
        disks = down("disks-leaf", STORAGE, [1, nodes]),
    )
}

/// Two compute fabrics of four and three nodes.
fn apart() -> String {
    let parts = [
        compute("east", 0xfc6a_1c00_0001_0000, 0..8, [1, 4]),
        compute("west", 0xfc6a_1c00_0002_0000, 0..8, [5, 7]),
    ];
    site_file(7, &["east", "west"], &parts)
}

/// Two compute fabrics of four rails each, with the same three nodes.
fn rails() -> String {
    let parts = [
        compute("left", 0xfc6a_1c00_0001_0000, 0..4, [1, 3]),
        compute("right", 0xfc6a_1c00_0002_0000, 4..8, [1, 3]),
    ];
    site_file(3, &["left", "right"], &parts)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

struct Hall {
    dir: PathBuf,
    model: Model,
    /// The site file.
    text: String,
    /// The fabrics with a manager in the settings.
    labs: BTreeMap<&'static str, Lab>,
    /// The storage fabric with its OpenSM, and the partition file of this OpenSM at the start.
    disks: (Lab, String),
    simulator: Child,
    site: Site,
}

impl Hall {
    async fn start(dir: &Path, text: String, fabrics: [&'static str; 2]) -> Self {
        let model = read(&text);
        std::fs::write(dir.join("site.yaml"), &text).expect("the site file");
        std::fs::write(dir.join("image.raw"), image(13)).expect("an image");
        let mut labs = BTreeMap::new();
        for fabric in fabrics {
            labs.insert(fabric, Lab::of_fabric(&model, fabric).await);
        }
        let disks = Lab::of_fabric(&model, "disks").await;
        let partitions = std::fs::read_to_string(disks.partitions_file()).expect("its partitions");
        let ports = Ports::find();
        let (simulator, machines) = simulate(dir, &ports, model.nodes.len(), SPEED, &[]).await;
        std::fs::write(dir.join("nodes.yaml"), enrolment(model.nodes.iter(), &machines)).expect("the nodes");
        let settings = config_of_fabrics(dir, &ports, &labs, PACE);
        let site = Site::start_with(dir, &format!("{settings}network_test: {{enabled: false}}\n")).await;
        let hall = Self {
            dir: dir.to_owned(),
            model,
            text,
            labs,
            disks: (disks, partitions),
            simulator,
            site,
        };
        let file = |name: &str| dir.join(name).display().to_string();
        hall.site.cli(["site", "apply", &file("site.yaml"), "--yes", "--quiet"]);
        let add = ["image", "add", "system", "--format", "raw", "--quiet", "--file"];
        hall.site.cli([&add[..], &[&file("image.raw")]].concat());
        hall.site.cli(["apply", "-f", &file("nodes.yaml"), "--wait", "--quiet"]);
        hall
    }

    async fn stop(mut self) {
        self.site.stop().await;
        self.simulator.kill().await.expect("the simulator ends");
        for lab in self.labs.into_values().chain([self.disks.0]) {
            lab.stop().await;
        }
    }

    /// The arguments that create a cluster.
    fn create<'a>(name: &'a str, customer: &'a str, nodes: &'a str) -> Vec<&'a str> {
        let mut arguments = vec!["cluster", "create", name, "--customer", customer, "--nodes", nodes];
        arguments.extend(["--sku", "dgx-h100", "--image", "system"]);
        arguments
    }

    /// The ports that the site file cables to a fabric.
    fn ports(&self, fabric: &str) -> BTreeSet<Guid> {
        let mut ports = BTreeSet::new();
        for cable in &self.model.cables {
            let (Port::Hca { node, hca }, Port::Switch { switch, .. }) = (cable.a, cable.b) else {
                continue;
            };
            let of = self.model.switch(switch).fabric.expect("a fabric");
            if *self.model.fabric(of).name == *fabric {
                let guid = self.model.node(node).port_guids[usize::from(hca)];
                ports.insert(guid.and_then(Guid::new).expect("a port GUID"));
            }
        }
        ports
    }

    /// Reads every port of every fabric, past rackwrightd: the ports of each cluster have its key, and no other port has
    /// it. Each manager has the ports of its own fabric only, and the OpenSM of the storage fabric is as at the start.
    /// Returns the keys in each fabric.
    async fn isolated(&self, clusters: &[&str]) -> BTreeMap<&'static str, BTreeMap<u16, BTreeSet<Guid>>> {
        let wanted = keys_of_clusters(&self.site, &self.model, clusters);
        let mut all = BTreeMap::new();
        for (fabric, lab) in &self.labs {
            let tables = lab.opensm().tables().await.expect("tables").tables;
            assert!(tables.unread.is_empty(), "{fabric}: {:?}", tables.unread);
            let own = self.ports(fabric);
            let mut here: BTreeMap<u16, BTreeSet<Guid>> = BTreeMap::new();
            for (key, ports) in &wanted {
                let ports: BTreeSet<Guid> = ports.intersection(&own).copied().collect();
                if !ports.is_empty() {
                    here.insert(*key, ports);
                }
            }
            assert_eq!(keys_of_ports(&tables), here, "{fabric}");
            let file = std::fs::read_to_string(lab.partitions_file()).expect("the partitions");
            for other in self
                .labs
                .keys()
                .copied()
                .chain(["disks"])
                .filter(|other| other != fabric)
            {
                let foreign = self.ports(other);
                let found = foreign.iter().find(|port| file.contains(&port.to_string()));
                assert_eq!(
                    found, None,
                    "a port of {other} is in the partitions of {fabric}:\n{file}"
                );
            }
            all.insert(*fabric, here);
        }
        let (disks, partitions) = &self.disks;
        let now = std::fs::read_to_string(disks.partitions_file()).expect("its partitions");
        assert_eq!(now, *partitions, "the partitions of the storage fabric");
        let tables = disks.opensm().tables().await.expect("tables").tables;
        assert_eq!(keys_of_ports(&tables), BTreeMap::new(), "keys in the storage fabric");
        all
    }

    /// After a comparison and a check that began after all changes, nothing is wrong in any fabric.
    async fn nothing_is_wrong(&self) {
        let times = |hall: &Self| {
            let seen = hall.site.json(["fabric", "faults"]);
            ["check_time", "isolation_check_time"].map(|field| seen[field].clone())
        };
        for _ in 0..2 {
            let before = times(self);
            let are_newer = |hall: &Self| times(hall).iter().zip(&before).all(|(new, old)| new != old);
            self.wait("another comparison and check", are_newer).await;
        }
        let seen = self.site.json(["fabric", "faults"]);
        let problems = ["problem", "isolation_problem"].map(|field| text(&seen, field));
        assert_eq!(problems, [""; 2]);
        assert_eq!(self.faults(), [] as [Value; 0]);
        assert_eq!(self.open_breaches(), [] as [Value; 0]);
    }

    /// The open faults of the fabrics.
    fn faults(&self) -> Vec<Value> {
        let seen = self.site.json(["fabric", "faults"]);
        seen["faults"].as_array().cloned().unwrap_or_default()
    }

    fn breaches(&self) -> Vec<Value> {
        let seen = self.site.json(["fabric", "faults"]);
        seen["breaches"].as_array().cloned().unwrap_or_default()
    }

    fn open_breaches(&self) -> Vec<Value> {
        let mut breaches = self.breaches();
        breaches.retain(|breach| !breach["end_time"].is_string());
        breaches
    }

    fn status(&self, cluster: &str) -> Value {
        self.site.json(["cluster", "get", cluster])["status"].clone()
    }

    fn nodes(&self, cluster: &str) -> BTreeSet<String> {
        let status = self.status(cluster);
        let members = status["members"].as_array().expect("members").iter();
        let names = members.map(|member| text(member, "node").trim_start_matches("nodes/").to_owned());
        names.collect()
    }

    async fn until(&self, cluster: &str, state: &str) {
        let state = format!("CLUSTER_STATE_{state}");
        let is_so = |hall: &Self| text(&hall.status(cluster), "state") == state;
        self.wait(&format!("{cluster} is {state}"), is_so).await;
    }

    async fn wait(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !is_so(self) {
            assert!(
                Instant::now() < deadline,
                "not within {LIMIT:?}: {what}\n{}\n{}",
                self.site.json(["fabric", "faults"]),
                self.site.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The names of nodes `gpu-FIRST` to `gpu-LAST`.
fn gpus(first: usize, last: usize) -> BTreeSet<String> {
    (first..=last).map(|number| format!("gpu-{number}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_of_two_fabrics_are_planned_partitioned_and_checked_each_by_its_manager() {
    let dir = folder();
    let mut hall = Hall::start(dir.path(), apart(), ["east", "west"]).await;
    // Only east has four nodes, and no fabric has five.
    let refused = hall.site.try_cli(Hall::create("both", "acme", "5"));
    let (_, why) = texts(&refused);
    let words = "a cluster is in one fabric, and no fabric has more than 4 free nodes of dgx-h100";
    assert!(!refused.status.success() && why.contains(words), "{why}");
    hall.site.cli(Hall::create("alpha", "acme", "4"));
    hall.site.cli(Hall::create("beta", "bolt", "3"));
    for (cluster, nodes) in [("alpha", gpus(1, 4)), ("beta", gpus(5, 7))] {
        assert_eq!(hall.nodes(cluster), nodes, "{cluster}");
        hall.until(cluster, "READY").await;
    }
    let keys = hall.isolated(&["alpha", "beta"]).await;
    let counts = ["east", "west"].map(|fabric| keys[fabric].values().map(BTreeSet::len).collect::<Vec<_>>());
    assert_eq!(counts, [vec![32], vec![24]], "all rails of four and of three nodes");
    hall.nothing_is_wrong().await;

    a_cable_of_west_degrades_its_cluster_alone(&mut hall).await;
    an_opened_west_is_a_breach_of_its_cluster_alone(&mut hall).await;
    east_is_changed_while_west_has_no_manager(&mut hall).await;
    hall.stop().await;
}

async fn a_cable_of_west_degrades_its_cluster_alone(hall: &mut Hall) {
    let west = hall.labs.get_mut("west").expect("a fabric");
    let cable = west.cable("gpu-6 mlx5_4", 1);
    west.unlink(&cable).await;
    hall.until("beta", "DEGRADED").await;
    let faults = hall.faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(faults[0]["cables"], serde_json::json!([cable.name]));
    assert_eq!(faults[0]["clusters"], serde_json::json!(["clusters/beta"]));
    assert_eq!(text(&hall.status("alpha"), "state"), "CLUSTER_STATE_READY");
    hall.labs.get_mut("west").expect("a fabric").relink(&cable).await;
    hall.until("beta", "READY").await;
    hall.isolated(&["alpha", "beta"]).await;
    hall.nothing_is_wrong().await;
}

async fn an_opened_west_is_a_breach_of_its_cluster_alone(hall: &mut Hall) {
    let east = hall.labs["east"].partitions_file();
    let written = || {
        let file = std::fs::metadata(&east).expect("the partitions of east");
        file.modified().expect("its time")
    };
    let before = written();
    // rackwrightd stands still, so that its next check finds the whole attack.
    process::freeze(hall.site.pid());
    let west = &hall.labs["west"];
    std::fs::write(west.partitions_file(), "Default=0x7fff : ALL=full ; %%%\n").expect("written");
    west.sweep_after_hangup().await;
    process::signal(hall.site.pid(), Signal::SIGCONT);
    let is_over = |hall: &Hall| !hall.breaches().is_empty() && hall.open_breaches().is_empty();
    hall.wait("the breach is seen and repaired", is_over).await;
    let breaches = hall.breaches();
    let mut kinds: Vec<&str> = breaches.iter().map(|breach| text(breach, "kind")).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["cut-off", "open-default", "partition-file"]);
    let file = hall.labs["west"].partitions_file().display().to_string();
    for breach in &breaches {
        match text(breach, "kind") {
            "partition-file" => assert!(text(breach, "text").starts_with(&file), "{breach}"),
            _ => assert_eq!(breach["clusters"], serde_json::json!(["clusters/beta"]), "{breach}"),
        }
    }
    for (cluster, is_concerned) in [("clusters/alpha", false), ("clusters/beta", true)] {
        let events = hall.site.cli(["events", "--target", cluster]);
        assert_eq!(events.contains("cluster.isolation-breach"), is_concerned, "{events}");
    }
    hall.isolated(&["alpha", "beta"]).await;
    assert_eq!(written(), before, "the partitions of east are not written again");
}

async fn east_is_changed_while_west_has_no_manager(hall: &mut Hall) {
    hall.labs.get_mut("west").expect("a fabric").kill_opensm().await;
    let names_it = |hall: &Hall| {
        let seen = hall.site.json(["fabric", "faults"]);
        text(&seen, "isolation_problem").starts_with("fabric west: ")
    };
    hall.wait("the fabric without a manager is named", names_it).await;
    hall.site.cli(["cluster", "release", "alpha", "--yes"]);
    let deadline = Instant::now() + LIMIT;
    loop {
        let tables = hall.labs["east"].opensm().tables().await.expect("tables").tables;
        if keys_of_ports(&tables).is_empty() {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "alpha keeps its key:\n{}",
            hall.site.log_tail()
        );
    }
    assert!(hall.open_breaches().iter().any(|one| text(one, "kind") == "no-manager"));
    hall.labs.get_mut("west").expect("a fabric").start_opensm().await;
    hall.until("alpha", "RELEASED").await;
    hall.until("beta", "READY").await;
    hall.wait("no breach", |hall| hall.open_breaches().is_empty()).await;
    hall.isolated(&["beta"]).await;
    hall.nothing_is_wrong().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_on_rails_apart_has_its_key_from_both_managers_also_after_a_new_adapter() {
    let dir = folder();
    let mut hall = Hall::start(dir.path(), rails(), ["left", "right"]).await;
    hall.site.cli(Hall::create("wide", "acme", "2"));
    hall.until("wide", "READY").await;
    let keys = hall.isolated(&["wide"]).await;
    let counts = ["left", "right"].map(|fabric| keys[fabric].values().map(BTreeSet::len).collect::<Vec<_>>());
    assert_eq!(counts, [[8]; 2], "four rails of two nodes in each fabric");
    let of = |fabric: &str| keys[fabric].keys().copied().collect::<Vec<u16>>();
    assert_eq!(of("left"), of("right"), "one key");
    hall.nothing_is_wrong().await;

    // An adapter in one of the fabrics is replaced.
    let (node, hca) = (hall.nodes("wide").into_iter().next().expect("a node"), RAILS[6]);
    let id = hall.model.node_named(&node).expect("a node of the site");
    let former = hall.model.node(id).port_guids[6]
        .and_then(Guid::new)
        .expect("a port GUID");
    let new = Guid::new(former.get() + 0x0f00_0000).expect("a GUID");
    let right = hall.labs.get_mut("right").expect("a fabric");
    right.replace_adapter(&format!("{node} {hca}"), new).await;
    hall.until("wide", "DEGRADED").await;
    let needed = format!("the site file needs `guids: {{{hca}: {new}}}` of node {node}");
    let names_it = |hall: &Hall| text(&hall.status("wide"), "reason").contains(&needed);
    hall.wait(&needed, names_it).await;
    hall.text = with_port(&hall.text, &hall.model, (&node, hca), new);
    hall.model = read(&hall.text);
    let file = hall.dir.join("site.yaml");
    std::fs::write(&file, &hall.text).expect("the site file");
    hall.site
        .cli(["site", "apply", &file.display().to_string(), "--yes", "--quiet"]);
    hall.until("wide", "READY").await;
    let keys = hall.isolated(&["wide"]).await;
    assert!(keys["right"].values().any(|ports| ports.contains(&new)), "{keys:?}");
    hall.nothing_is_wrong().await;
    hall.stop().await;
}
