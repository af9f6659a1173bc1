//! An OpenSM that is attacked while two customers have clusters: each breach of isolation is seen by the first check after
//! the attack, reported with its times to operators and to the concerned customers only, repaired, and recorded.
//!
//! The control plane, OpenSM and the tools that read its ports are the real ones; ibsim plays the fabric. Times that the
//! control plane stored are compared with times of the test, so that a slow computer changes no result.

#[path = "replaced.rs"]
mod replaced;
#[path = "told.rs"]
mod told;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;
use rackwright_fabric::FabricManager as _;
use rackwright_infiniband::Guid;
use rackwright_site::model::{Redundancy, Site as Model, SwitchRole};
use rackwright_tests::fabric::{Lab, folder};
use rackwright_tests::hall::{
    Ports, config, describe, enrolment, image, keys_of_clusters, keys_of_ports, read, simulate,
};
use rackwright_tests::process;
use rackwright_tests::site::{Site, texts};
use serde_json::Value;
use tokio::process::Child;

const CUSTOMERS: [(&str, Redundancy, bool); 2] = [("acme", Redundancy::None, false), ("bolt", Redundancy::None, false)];
/// Each cluster with its customer. Each gets two nodes.
const CLUSTERS: [(&str, &str); 2] = [("alpha", "acme"), ("beta", "bolt")];
const NODES: usize = 9;
/// The nodes with machines: both clusters together get exactly these. The last one is alone in its rack, so that one line of
/// the site file has the GUID of its adapter.
const ENROLLED: [usize; 4] = [0, 1, 4, 8];
/// The attacker sits at an adapter of this node, which has no machine.
const ATTACKER: usize = 6;
/// Seconds of the machines' time per real second.
const SPEED: u32 = 200;
/// Seconds between two checks: they follow each other closely.
const CHECK_S: u64 = 2;
/// The shortest distance of two checks is at most so many times the wanted one, also on a busy computer.
const PACE_FACTOR: u64 = 10;
/// The port GUID of a host that the site does not have.
const STRANGER: &str = "0xa088c20200000001";
/// A user that is neither root nor the one of rackwrightd: nobody.
const OTHER_USER: &str = "65534";
/// Time limit of each wait. Each takes seconds on a quiet computer.
const LIMIT: Duration = Duration::from_secs(600);
/// Most changes of the partition file until one is seen.
const TRIES: usize = 20;
const METHOD: &str = "local/fabric-breach";

/// The breaches of an attack.
struct Breaches<'a> {
    /// Of these kinds, one each.
    kinds: &'a [&'a str],
    /// Kinds that a check may see beside them, if it falls between two steps of OpenSM.
    others: &'a [&'a str],
    /// The clusters with customers that get events.
    concerned: &'a [&'a str],
}

struct Attacked {
    site_file: PathBuf,
    text: String,
    model: Model,
    lab: Lab,
    simulator: Child,
    site: Site,
    ports: Ports,
    /// By cluster, the folder of a credential of a user of its customer.
    users: BTreeMap<&'static str, PathBuf>,
    /// By cluster, the folder of a credential of an administrator of its customer, who may see the usage.
    admins: BTreeMap<&'static str, PathBuf>,
    /// Ids of the breaches of former attacks.
    known: BTreeSet<String>,
    /// The position of the last event before the attack.
    position: u64,
    /// The times of the checks that were seen so far.
    checks: RefCell<BTreeSet<SystemTime>>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_attack_on_opensm_is_seen_reported_repaired_and_recorded() {
    let dir = folder();
    let mut hall = Attacked::start(dir.path()).await;
    hall.foreign_line().await;
    hall.damaged_file("garbage", Some("Default=0x7fff : ALL=full ; %%%\n"))
        .await;
    hall.damaged_file("deleted", None).await;
    hall.truncated_file().await;
    hall.file_of_others().await;
    hall.foreign_file().await;
    hall.stranger().await;
    hall.killed().await;
    hall.second_manager().await;
    hall.usage();
    hall.port_flap().await;
    hall.replaced_cables().await;
    hall.replaced_adapter().await;
    hall.replaced_switch().await;
    hall.pace();
    hall.stop().await;
}

fn time(value: &Value) -> Option<SystemTime> {
    let stamp: prost_types::Timestamp = value.as_str()?.parse().expect("a time");
    Some(SystemTime::try_from(stamp).expect("a time after 1970"))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

impl Attacked {
    async fn start(dir: &Path) -> Self {
        let text = describe(NODES, &CUSTOMERS);
        let model = read(&text);
        let file = |name: &str| dir.join(name).display().to_string();
        std::fs::write(file("site.yaml"), &text).expect("the site file");
        std::fs::write(file("image.raw"), image(13)).expect("an image");
        let lab = Lab::of_site(&with_stranger(&text, &model)).await;
        let ports = Ports::find();
        let (simulator, machines) = simulate(dir, &ports, ENROLLED.len(), SPEED, &[]).await;
        let nodes = ENROLLED.iter().map(|at| &model.nodes[*at]);
        std::fs::write(file("nodes.yaml"), enrolment(nodes, &machines)).expect("the nodes");
        // A reading of all ports without a cause does not fall into the test.
        let pace = format!("check_s: {CHECK_S}\n  proof_s: 7200\n  deadline_s: 300");
        let settings = config(dir, &ports, &lab, &pace);
        let site = Site::start_with(dir, &format!("{settings}network_test: {{enabled: false}}\n")).await;
        site.cli(["site", "apply", &file("site.yaml"), "--yes", "--quiet"]);
        site.cli([
            "image",
            "add",
            "system",
            "--file",
            &file("image.raw"),
            "--format",
            "raw",
            "--quiet",
        ]);
        site.cli(["apply", "-f", &file("nodes.yaml"), "--wait", "--quiet"]);
        let (mut users, mut admins) = (BTreeMap::new(), BTreeMap::new());
        for (cluster, customer) in CLUSTERS {
            let of = [
                "--customer",
                customer,
                "--sku",
                "dgx-h100",
                "--nodes",
                "2",
                "--image",
                "system",
            ];
            site.cli([&["cluster", "create", cluster], &of[..]].concat());
            users.insert(cluster, member(&site, &ports, ("customer-user", customer)));
            admins.insert(cluster, member(&site, &ports, ("customer-admin", customer)));
        }
        let mut hall = Self {
            site_file: dir.join("site.yaml"),
            text,
            model,
            lab,
            simulator,
            site,
            ports,
            users,
            admins,
            known: BTreeSet::new(),
            position: 0,
            checks: RefCell::default(),
        };
        for (cluster, _) in CLUSTERS {
            hall.until(cluster, "CLUSTER_STATE_READY").await;
        }
        hall.isolated().await;
        hall.remember();
        assert!(
            hall.known.is_empty(),
            "a breach before the first attack: {:?}",
            hall.breaches()
        );
        hall
    }

    async fn stop(mut self) {
        self.site.stop().await;
        self.simulator.kill().await.expect("the simulator ends");
        self.lab.stop().await;
    }

    /// A line of a foreign partition gives an attacker's port the key of alpha.
    async fn foreign_line(&mut self) {
        let wanted = keys_of_clusters(&self.site, &self.model, &["alpha"]);
        let key = wanted.keys().next().expect("a key");
        let port = self.port(ATTACKER, 0);
        let file = format!("{}intruder={key:#06x} : {port}=full ;\n", self.file());
        let at = self.strike(async |lab| write_and_hang_up(lab, Some(&file)).await).await;
        let breaches = Breaches {
            kinds: &["partition-file", "foreign-key"],
            others: &[],
            concerned: &["alpha"],
        };
        self.judge("a foreign line", at, &breaches).await;
        let report = self.report("security.fabric-breach", "foreign-key");
        assert!(
            report.contains(&port.to_string()) && report.contains("; cluster alpha;"),
            "{report}"
        );
    }

    /// A file that OpenSM cannot read, or none: OpenSM makes every port a full member of the default partition.
    async fn damaged_file(&mut self, name: &str, content: Option<&str>) {
        let at = self.strike(async |lab| write_and_hang_up(lab, content).await).await;
        let breaches = Breaches {
            kinds: &["partition-file", "open-default", "cut-off"],
            others: &[],
            concerned: &["alpha", "beta"],
        };
        self.judge(name, at, &breaches).await;
        let report = self.report("security.fabric-breach", "open-default");
        assert!(report.contains("; clusters alpha, beta;"), "{report}");
    }

    /// The file ends in the middle of the last partition: OpenSM reads it without a complaint, and the ports that are left
    /// out lose their key.
    async fn truncated_file(&mut self) {
        let keys = keys_of_clusters(&self.site, &self.model, &["alpha", "beta"]);
        let (_, last) = keys.last_key_value().expect("two keys");
        let middle = last.iter().nth(last.len() / 2).expect("a port").to_string();
        let file = self.file();
        let end = file.rfind(&middle).expect("the port is in the file");
        let cut = file[..end].to_owned();
        let of_alpha = keys_of_clusters(&self.site, &self.model, &["alpha"]);
        let concerned = if of_alpha.values().any(|ports| ports == last) {
            "alpha"
        } else {
            "beta"
        };
        let at = self.strike(async |lab| write_and_hang_up(lab, Some(&cut)).await).await;
        let breaches = Breaches {
            kinds: &["partition-file", "cut-off"],
            others: &[],
            concerned: &[concerned],
        };
        self.judge("a truncated file", at, &breaches).await;
    }

    /// Other users may write the file; OpenSM has not read it again.
    async fn file_of_others(&mut self) {
        use std::os::unix::fs::PermissionsExt as _;
        let open = std::fs::Permissions::from_mode(0o666);
        let path = self.lab.partitions_file();
        let at = self
            .strike(async |_| std::fs::set_permissions(&path, open).expect("permissions"))
            .await;
        let breaches = Breaches {
            kinds: &["partition-file"],
            others: &[],
            concerned: &[],
        };
        self.judge("a file that others may write", at, &breaches).await;
        let mode = std::fs::metadata(&path).expect("the file").permissions().mode();
        assert_eq!(mode & 0o022, 0, "{mode:o}");
    }

    /// The file has its content and its permissions, but belongs to another user, who may therefore write it.
    async fn foreign_file(&mut self) {
        use std::os::unix::fs::MetadataExt as _;
        let path = self.lab.partitions_file();
        let owner = |path: &Path| std::fs::metadata(path).expect("the file").uid();
        let own = owner(&path);
        let at = self.strike(async |_| give_away(&path)).await;
        let breaches = Breaches {
            kinds: &["partition-file"],
            others: &[],
            concerned: &[],
        };
        self.judge("a file of another user", at, &breaches).await;
        let report = self.report("security.fabric-breach", "partition-file");
        assert!(report.contains(&format!("(user {OTHER_USER}, mode ")), "{report}");
        assert_eq!(owner(&path), own);
    }

    /// A host that the site does not have gets the key of alpha. The file is right again before the next check, so that only
    /// the port shows the breach.
    async fn stranger(&mut self) {
        let wanted = keys_of_clusters(&self.site, &self.model, &["alpha"]);
        let key = wanted.keys().next().expect("a key");
        let (path, file) = (self.lab.partitions_file(), self.file());
        let foreign = format!("{file}intruder={key:#06x} : {STRANGER}=full ;\n");
        let at = self
            .strike(async |lab| {
                write_and_hang_up(lab, Some(&foreign)).await;
                std::fs::write(&path, &file).expect("written");
            })
            .await;
        let breaches = Breaches {
            kinds: &["foreign-key"],
            others: &[],
            concerned: &["alpha"],
        };
        self.judge("the key in a port that the site does not have", at, &breaches)
            .await;
        let report = self.report("security.fabric-breach", "foreign-key");
        assert!(
            report.contains(STRANGER) && report.contains("; cluster alpha;"),
            "{report}"
        );
    }

    /// OpenSM is killed, and its file is changed before it starts again.
    async fn killed(&mut self) {
        let file = self.file();
        let [_, pid] = self.lab.log_and_pid_files();
        let pid = std::fs::read_to_string(pid).expect("its pid file");
        let at = self.strike(async |lab| lab.kill_opensm().await).await;
        self.seen("a killed OpenSM", at, &["no-manager"]).await;
        let why = format!(
            "OpenSM does not run (its pid file names {}): no subnet manager answers; ports keep their keys",
            pid.trim()
        );
        let faults = self.site.json(["fabric", "faults"]);
        assert_eq!(text(&faults, "isolation_problem"), why);
        let report = self.report("security.fabric-breach", "no-manager");
        assert!(
            report.starts_with(&why) && report.contains("; start OpenSM; "),
            "{report}"
        );

        let port = self.port(ATTACKER, 0);
        let foreign = format!("{file}intruder=0x0666, indx0 : {port}=full ;\n");
        let change = |path: &Path| std::fs::write(path, &foreign).expect("written");
        self.change_file("its changed file", change).await;
        self.lab.start_opensm().await;
        let breaches = Breaches {
            kinds: &["no-manager", "partition-file"],
            others: &[],
            concerned: &[],
        };
        self.judge_seen("a killed OpenSM", at, &breaches).await;
    }

    /// A second subnet manager of higher priority, which opens every port, and is stopped by the operator.
    async fn second_manager(&mut self) {
        let ([_, _, adapter], port) = (self.names(ATTACKER, 7), self.port(ATTACKER, 7));
        let mut rival = None;
        let at = self
            .strike(async |lab| rival = Some(lab.start_rival(&adapter).await))
            .await;
        let kinds = ["foreign-manager", "open-default", "cut-off"];
        self.seen("a second subnet manager", at, &kinds).await;
        let report = self.report("security.fabric-breach", "foreign-manager");
        let named = format!("the subnet manager at port {port} (priority 15) is the master");
        assert!(
            report.starts_with(&named) && report.contains("; stop the other subnet manager; "),
            "{report}"
        );
        // The attacker's file would be read by OpenSM as soon as it is the master again.
        let remove = |path: &Path| std::fs::remove_file(path).expect("removed");
        self.change_file("its deleted file", remove).await;
        rival.expect("it was started").kill().await.expect("it is stopped");
        let breaches = Breaches {
            kinds: &["foreign-manager", "open-default", "cut-off", "partition-file"],
            others: &["no-manager"],
            concerned: &["alpha", "beta"],
        };
        self.judge_seen("a second subnet manager", at, &breaches).await;
    }

    /// Makes an attack while rackwrightd stands still, so that its next check finds all of the attack. Returns the time
    /// before the attack.
    async fn strike(&mut self, attack: impl AsyncFnOnce(&mut Lab)) -> SystemTime {
        let pid = self.site.pid();
        process::freeze(pid);
        let at = SystemTime::now();
        attack(&mut self.lab).await;
        process::signal(pid, Signal::SIGCONT);
        at
    }

    /// Changes the partition file while a breach is open, and waits until the change is seen and the file is restored. A
    /// repair that is under way may replace the changed file unread: then the file is changed again.
    async fn change_file(&mut self, attack: &str, change: impl Fn(&Path)) {
        let (path, file) = (self.lab.partitions_file(), self.file());
        for _ in 0..TRIES {
            let at = self.strike(async |_| change(&path)).await;
            self.wait(&format!("{attack}: the restored file"), |hall| hall.file() == file)
                .await;
            // A breach is stored before its repair.
            let mut new = self.new_breaches().into_iter();
            if new.any(|breach| text(&breach, "kind") == "partition-file") {
                return self.seen(attack, at, &["partition-file"]).await;
            }
        }
        panic!("{attack} is not seen in {TRIES} tries: {:?}", self.breaches());
    }

    /// Waits until an attack is seen as these kinds, and checks by the stored times that the first check after the attack
    /// saw it.
    async fn seen(&self, attack: &str, at: SystemTime, kinds: &[&str]) {
        let is_seen = |hall: &Self| {
            let new = hall.new_breaches();
            kinds
                .iter()
                .all(|kind| new.iter().any(|breach| text(breach, "kind") == *kind))
        };
        self.wait(&format!("{attack} is seen as {kinds:?}"), is_seen).await;
        for breach in self.new_breaches() {
            if !kinds.contains(&text(&breach, "kind")) {
                continue;
            }
            let since = time(&breach["since"]).expect("a start");
            assert!(since >= at, "{attack} is seen before it happens: {breach}");
            // The last reading without the breach.
            let good = time(&breach["good_time"]).expect("a reading before it");
            assert!(good <= at, "a check after {attack} has missed it: {breach}");
        }
    }

    /// Waits until an attack is seen and its breaches are over, and checks its records.
    async fn judge(&mut self, attack: &str, at: SystemTime, breaches: &Breaches<'_>) {
        self.seen(attack, at, breaches.kinds).await;
        self.judge_seen(attack, at, breaches).await;
    }

    /// Waits until the breaches of an attack that was seen are over. Checks what operators, customers, the audit and the
    /// metrics have.
    async fn judge_seen(&mut self, attack: &str, at: SystemTime, breaches: &Breaches<'_>) {
        let is_over = |hall: &Self| hall.breaches().iter().all(|breach| breach["end_time"].is_string());
        self.wait(&format!("{attack} is repaired"), is_over).await;
        let new = self.new_breaches();
        let mut kinds: Vec<&str> = new.iter().map(|breach| text(breach, "kind")).collect();
        kinds.retain(|kind| !breaches.others.contains(kind));
        kinds.sort_unstable();
        let mut expected = breaches.kinds.to_vec();
        expected.sort_unstable();
        assert_eq!(kinds, expected, "{attack}");
        let now = Some(SystemTime::now());
        for breach in &new {
            let times = [Some(at), time(&breach["since"]), time(&breach["end_time"]), now];
            assert!(times.is_sorted(), "{attack}: {breach}");
        }
        self.isolated().await;
        for (kind, times) in [
            ("security.fabric-breach", "since"),
            ("security.fabric-breach-ended", "until"),
        ] {
            let events = self.events_of_kind(kind);
            assert_eq!(events.len(), new.len(), "{attack}: {kind}: {events:?}");
            assert!(
                events.iter().all(|event| event["attributes"][times].is_string()),
                "{events:?}"
            );
        }
        for (cluster, _) in CLUSTERS {
            let is_concerned = breaches.concerned.contains(&cluster);
            self.customer(attack, cluster, is_concerned);
        }
        self.recorded(attack).await;
        self.remember();
    }

    /// Every port was read again, and there is no other breach than those of the attacks before.
    async fn no_breach(&mut self, deed: &str) {
        let now = SystemTime::now();
        let is_checked = |hall: &Self| {
            hall.breaches();
            hall.checks.borrow().last() > Some(&now)
        };
        self.wait("a check", is_checked).await;
        assert!(self.new_breaches().is_empty(), "{deed}: {:?}", self.new_breaches());
        self.remember();
    }

    /// The checks of the isolation were as close as the settings want.
    fn pace(&self) {
        let checks = self.checks.borrow();
        let distances = checks.iter().zip(checks.iter().skip(1));
        let distances = distances.map(|(one, next)| next.duration_since(*one).expect("a later time"));
        let shortest = distances.min().expect("two checks");
        println!("{} checks seen, the shortest distance is {shortest:?}", checks.len());
        assert!(shortest <= Duration::from_secs(CHECK_S * PACE_FACTOR), "{shortest:?}");
    }

    /// All breaches so far. Notes the last check.
    fn breaches(&self) -> Vec<Value> {
        let faults = self.site.json(["fabric", "faults"]);
        self.checks.borrow_mut().extend(time(&faults["isolation_check_time"]));
        faults["breaches"].as_array().cloned().unwrap_or_default()
    }

    fn new_breaches(&self) -> Vec<Value> {
        let mut breaches = self.breaches();
        breaches.retain(|breach| !self.known.contains(text(breach, "id")));
        breaches
    }

    /// The next attack begins after what is known now.
    fn remember(&mut self) {
        let ids = self.breaches().into_iter().map(|breach| text(&breach, "id").to_owned());
        self.known = ids.collect();
        let events = self.events_of(None);
        let positions = events.iter().filter_map(|event| {
            let position = event["position"].to_string();
            position.trim_matches('"').parse::<u64>().ok()
        });
        self.position = positions.max().unwrap_or(self.position);
    }

    /// The partition file; empty: there is none.
    fn file(&self) -> String {
        std::fs::read_to_string(self.lab.partitions_file()).unwrap_or_default()
    }

    fn port(&self, node: usize, adapter: usize) -> Guid {
        let guid = self.model.nodes[node].port_guids[adapter];
        guid.and_then(Guid::new).expect("a port GUID")
    }

    /// A node, one of its adapters, and the adapter in the fabric: `gpu-1`, `mlx5_0`, `gpu-1 mlx5_0`.
    fn names(&self, node: usize, adapter: usize) -> [String; 3] {
        let node = self.model.nodes[node].name.to_string();
        let id = self.model.node_named(&node).expect("a node of the site");
        let hca = self.model.sku_of(id).hcas[adapter].name.to_string();
        let both = format!("{node} {hca}");
        [node, hca, both]
    }

    fn cluster_of(&self, node: &str) -> String {
        let name = format!("nodes/{node}");
        let has_it = |cluster: &str| {
            let cluster = self.site.json(["cluster", "get", cluster]);
            let members = cluster["status"]["members"].as_array().expect("members");
            members.iter().any(|member| text(member, "node") == name)
        };
        let of = CLUSTERS.iter().find(|(cluster, _)| has_it(cluster));
        of.unwrap_or_else(|| panic!("{node} is in no cluster")).0.to_owned()
    }

    /// Every port of the fabric, read past rackwrightd, has the key of its cluster, and no other port has it.
    async fn isolated(&self) {
        let tables = self.lab.opensm().tables().await.expect("tables").tables;
        assert!(tables.unread.is_empty(), "{:?}", tables.unread);
        let clusters = CLUSTERS.map(|(cluster, _)| cluster);
        let wanted = keys_of_clusters(&self.site, &self.model, &clusters);
        assert_eq!(keys_of_ports(&tables), wanted);
    }

    async fn until(&self, cluster: &str, state: &str) {
        let is_so = |hall: &Self| text(&hall.site.json(["cluster", "get", cluster])["status"], "state") == state;
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

/// Writes the partition file, or removes it, and makes OpenSM read it.
async fn write_and_hang_up(lab: &Lab, content: Option<&str>) {
    match content {
        Some(content) => std::fs::write(lab.partitions_file(), content).expect("written"),
        None => std::fs::remove_file(lab.partitions_file()).expect("removed"),
    }
    lab.sweep_after_hangup().await;
}

/// The site, and a host that it does not have at a free port of a leaf.
fn with_stranger(text: &str, model: &Model) -> Model {
    let mut leaves = model.switches.iter().filter(|switch| switch.role == SwitchRole::Leaf);
    let leaf = &leaves.next_back().expect("a leaf").name;
    let host = format!(
        "---\nskus: [{{name: stranger, power: {{max_watts: 1 kW}}, psus: {{count: 2, watts: 1000, needed: 1}}, \
         height_units: 1, hcas: [mlx5_0], hca_speed: HDR}}]\n\
         nodes: [{{name: stranger, sku: stranger, rack: net-r1, psus: [~, ~], guids: {{mlx5_0: {STRANGER}}}}}]\n\
         cables: [{{label: stranger, a: stranger/mlx5_0, b: {leaf}/64}}]\n"
    );
    read(&format!("{text}{host}"))
}

/// Gives a file to another user, as root or by sudo.
fn give_away(path: &Path) {
    let chown: &[&str] = match nix::unistd::geteuid().is_root() {
        true => &["chown", OTHER_USER],
        false => &["sudo", "--non-interactive", "chown", OTHER_USER],
    };
    let (program, arguments) = chown.split_first().expect("a program");
    let done = std::process::Command::new(program).args(arguments).arg(path).status();
    assert!(done.expect("chown runs, as root or by sudo").success());
}

/// Invites a member of a customer, who logs in. Returns the folder of the credential.
fn member(site: &Site, ports: &Ports, (role, customer): (&str, &str)) -> PathBuf {
    let name = format!("{role}@{customer}");
    let made = site.json(["token", "create", &name, "--role", role, "--customer", customer]);
    let home = site.dir().join(&name);
    let server = format!("https://127.0.0.1:{}", ports.api);
    let mut login = site.command();
    login
        .env("RACKWRIGHT_CONFIG", &home)
        .args(["login", "--server", &server]);
    login.args(["--ca-sha256", text(&made, "ca_sha256"), "--token", text(&made, "token")]);
    let output = login.output().expect("the CLI can be started");
    assert!(output.status.success(), "{:?}", texts(&output));
    home
}
