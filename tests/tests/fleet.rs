//! Simulated machines with the agent's real code, and a real `rackwrightd` that inspects, images and erases them: BMCs,
//! DHCP, boot HTTP, gRPC and the image store all use sockets.

#![allow(clippy::disallowed_methods)] // a test may read clocks, and wait for what it started

#[path = "fleet/accounts.rs"]
mod accounts;
#[path = "fleet/bmc_log.rs"]
mod bmc_log;
#[path = "fleet/console.rs"]
mod console;
#[path = "fleet/facility.rs"]
mod facility;
#[path = "fleet/faults.rs"]
mod faults;
#[path = "fleet/firmware.rs"]
mod firmware;
#[path = "fleet/firmware_faults.rs"]
mod firmware_faults;
#[path = "fleet/ipmi.rs"]
mod ipmi;
#[path = "fleet/secrets.rs"]
mod secrets;
#[path = "fleet/settings.rs"]
mod settings;

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rackwright_lifecycle::{Effect, NodeId, Timestamp, seconds};
use rackwright_sim::fleet::{BootSource, Fleet, FleetConfig, Format, Phase, Script, SystemUp, Systems};
use rackwright_sim::install_crypto;
use rackwright_store::Store;
use rackwright_tests::plane::{Plane, TEST_LIMIT};
use rackwright_tests::ports::free_port;
use rackwright_tests::site::{POLL, Site, program, texts};
use serde_json::Value;

const MACHINES: usize = 20;

/// The installed systems that started, and those that ended.
#[derive(Default)]
struct Seen {
    up: Mutex<Vec<SystemUp>>,
    down: Mutex<Vec<usize>>,
}

impl Systems for Seen {
    fn up(&self, system: &SystemUp) {
        self.up.lock().expect("no thread panicked").push(system.clone());
    }

    fn down(&self, node: usize) {
        self.down.lock().expect("no thread panicked").push(node);
    }
}

fn names(of: &Value, list: &str, field: &str) -> Vec<String> {
    let rows = of[list].as_array().expect("a list").iter();
    rows.map(|row| row[field].as_str().expect("a text").to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_is_inspected_by_the_agents_own_code() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let config = FleetConfig {
        nodes: MACHINES,
        ..FleetConfig::default()
    };
    let fleet = plane.machines(config, Arc::new(Seen::default())).await;
    let mut addresses = BTreeSet::new();
    for index in 0..MACHINES {
        let node = fleet.node(index);
        let view = node.wait_for(|view| view.phase == Phase::Off).await;
        assert_eq!(view.boots, 1, "{} was inspected by one boot", node.name());
        addresses.insert(node.address().expect("DHCP gave it one"));
        let inventory = plane.site.json(["node", "inventory", &node.name()]);
        assert_eq!(inventory["dmi"]["uuid"], node.uuid(), "{inventory}");
        assert_eq!(
            names(&inventory, "drives", "serial_number"),
            [node.drives().all()[0].serial()]
        );
        assert_eq!(names(&inventory, "nics", "mac"), [node.mac()]);
    }
    assert_eq!(addresses.len(), MACHINES, "each has an address of its own");
    // Stopped first: the control plane logs out of each BMC.
    plane.site.stop().await;
    fleet.stop().await;
}

/// Waits until the node's events with these prefixes of their kinds are the expected ones.
async fn until_reported(site: &Site, id: &str, words: &[&str], expected: &[&str]) {
    let deadline = Instant::now() + TEST_LIMIT;
    loop {
        let target = format!("nodes/{id}");
        let events = site.cli(["events", "--target", &target, "-o", "json"]);
        let kinds: Vec<String> = serde_json::Deserializer::from_str(&events)
            .into_iter::<Value>()
            .filter_map(|event| Some(event.expect("events are JSON")["kind"].as_str()?.to_owned()))
            .filter(|kind| words.iter().any(|word| kind.starts_with(word)))
            .collect();
        if kinds == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{kinds:?}, not {expected:?}\n{events}");
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_machines_at_rest_are_seen_by_polls_and_by_event_streams() {
    install_crypto();
    for streams in [0, 10] {
        let dir = tempfile::tempdir().expect("a folder");
        let pace = format!("power_watch: {{interval_s: 2, recheck_s: 1, streams: {streams}}}\n");
        let plane = Plane::start_with(dir.path(), "pxe", &pace).await;
        let fleet = plane.machines(FleetConfig::default(), Arc::new(Seen::default())).await;
        let (site, node) = (&plane.site, fleet.node(0));
        let id = node.name();
        // Events of the inspection.
        let mut kinds = vec!["power.off", "power.on", "power.off"];
        until_reported(site, &id, &["power."], &kinds).await;
        assert!(node.press_button());
        kinds.push("power.on");
        until_reported(site, &id, &["power."], &kinds).await;
        node.power_cut();
        kinds.push("power.off");
        until_reported(site, &id, &["power."], &kinds).await;
        assert_eq!(site.state(&id), "available", "no state moves");
        plane.site.stop().await;
        fleet.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_and_the_return_of_a_bmc_are_one_event_each() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start_with(dir.path(), "pxe", "power_watch: {interval_s: 1, recheck_s: 1}\n").await;
    let faults = "faults:\n- {fault: bmc-down, from_s: 40, until_s: 52}\n";
    let faults = Script::parse("faults", faults, 1).expect("a script");
    let config = FleetConfig {
        faults,
        ..FleetConfig::default()
    };
    let fleet = plane.machines(config, Arc::new(Seen::default())).await;
    until_reported(&plane.site, &fleet.node(0).name(), &["bmc."], &["bmc.lost", "bmc.back"]).await;
    plane.site.stop().await;
    fleet.stop().await;
}

/// A file in place of a disk image: no machine starts it.
fn image(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("disk.raw");
    let content: Vec<u8> = (0..8_u32 << 18)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    std::fs::write(&path, content).expect("the image can be written");
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_is_imaged_and_erased_by_the_agents_own_code() {
    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA9Nf8gnELrYx6K/bPXBRt0Q3kQb6ujVbhL6rVQIzJgo customer";
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let seen = Arc::new(Seen::default());
    let fleet = plane.machines(FleetConfig::default(), Arc::clone(&seen) as _).await;
    let (site, node) = (&plane.site, fleet.node(0));
    let id = node.name();
    let file = image(dir.path()).display().to_string();
    site.cli(["image", "add", "disk", "--file", &file]);
    site.cli([
        "node",
        "deploy",
        &id,
        "--image",
        "disk",
        "--hostname",
        "web-1",
        "--ssh-key",
        KEY,
    ]);
    site.until(&id, &["rebooting"], TEST_LIMIT).await;
    node.wait_for(|view| view.phase == Phase::Up(BootSource::Disk)).await;

    let installed = node.installed().expect("an image was written");
    let claim = &site.json(["node", "get", &id])["status"];
    assert!(claim.to_string().contains(&installed.image_digest), "{claim}");
    assert_eq!((installed.hostname.as_str(), installed.image_bytes), ("web-1", 8 << 20));
    assert_eq!(installed.generation, 1);
    assert!(installed.authorized_keys.iter().any(|key| key == KEY));
    assert!(installed.ssh_host_public_key.starts_with("ssh-ed25519 "));
    let up = seen.up.lock().expect("no thread panicked").clone();
    assert_eq!(up.len(), 1);
    assert_eq!((up[0].boot, up[0].address), (node.view().boots, node.address()));
    assert_eq!(up[0].installed.hostname, "web-1");

    site.cli(["node", "release", "--yes", &id]);
    site.until(&id, &["available"], TEST_LIMIT).await;
    assert!(node.installed().is_none(), "the system is gone");
    assert_eq!(*seen.down.lock().expect("no thread panicked"), [0]);
    let certificates = site.json(["node", "certificates", &id]);
    assert!(
        certificates.to_string().contains(node.drives().all()[0].serial()),
        "{certificates}"
    );
    // Stopped first: the control plane logs out of each BMC.
    plane.site.stop().await;
    fleet.stop().await;
}

/// The spans in which each machine of a circuit counted as booting, from its power-on.
async fn switched_on(store: &Store, nodes: &[String]) -> Vec<(String, Timestamp, Timestamp)> {
    let mut spans = Vec::new();
    for node in nodes {
        let tries = store
            .tries_of(&NodeId::stored(node.as_str()), Effect::PowerOn)
            .await
            .expect("it can be read");
        let ended = tries
            .into_iter()
            .filter_map(|row| Some((row.attempt.started_at, row.attempt.ended_at?)));
        spans.extend(ended.map(|(from, to)| (node.clone(), from, to.plus(seconds(SETTLE_S)))));
    }
    spans.sort_by_key(|(_, from, _)| *from);
    spans
}

/// Seconds for which a machine counts after its power-on.
const SETTLE_S: i64 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circuit_switches_on_no_more_than_it_bears_and_customers_take_turns() {
    const AT_ONCE: usize = 2;
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let ssh = free_port();
    let limits =
        format!("limits: {{power_on: {{per_circuit: {AT_ONCE}, settle_s: {SETTLE_S}}}, image: {{at_once: 3}}}}\n");
    let plane = Plane::start_with(dir.path(), "pxe", &format!("ssh_port: {ssh}\n{limits}")).await;
    let config = FleetConfig {
        nodes: 12,
        boot_server: Some(plane.dhcp),
        ssh_listen: Some(SocketAddrV4::new([0, 0, 0, 0].into(), ssh)),
        ..FleetConfig::default()
    };
    let fleet = Fleet::start(config).await.expect("the fleet starts");
    plane.enrol(&fleet, |index| format!("c{}", index % 2)).await;
    let (site, names) = (&plane.site, (0..12).map(|n| fleet.node(n).name()).collect::<Vec<_>>());
    let file = image(dir.path()).display().to_string();
    site.cli(["image", "add", "disk", "--file", &file]);
    let deploy = |customer: &str, nodes: &[String]| {
        let verb = ["node", "deploy", "--image", "disk", "--customer", customer].map(str::to_owned);
        site.cli(verb.iter().chain(nodes));
    };
    let (many, few) = names.split_at(10);
    deploy("many", many);
    deploy("few", few);
    for id in &names {
        site.until(id, &["active"], TEST_LIMIT).await;
    }
    let claim = &site.json(["node", "get", &few[0]])["status"]["claim"];
    assert_eq!(claim["customer"], "few", "{claim}");

    let store = Store::open(&dir.path().join("data/rackwright.db"))
        .await
        .expect("it opens");
    for circuit in 0..2 {
        let on_it: Vec<String> = names.iter().skip(circuit).step_by(2).cloned().collect();
        let spans = switched_on(&store, &on_it).await;
        assert_eq!(
            spans.len(),
            3 * on_it.len(),
            "to be inspected, imaged and started: {spans:?}"
        );
        for (node, from, _) in &spans {
            // A machine that is powered off and on again while it counts has one place for both.
            let at_once = spans.iter().filter(|(_, begin, end)| begin <= from && from < end);
            let at_once: BTreeSet<_> = at_once.map(|(node, ..)| node).collect();
            assert!(at_once.len() <= AT_ONCE, "at the same time as {node}: {at_once:?}");
        }
        // Each machine's second power-on is for its image. The few nodes were requested last, but are not served last.
        let second = |node: &String| {
            spans
                .iter()
                .filter(|(of, ..)| of == node)
                .nth(1)
                .map(|(_, from, _)| *from)
        };
        let latest = on_it.iter().max_by_key(|node| second(node)).expect("there are some");
        assert!(!few.contains(latest), "{latest} was served last: {spans:?}");
    }
    store.close().await;
    // Stopped first: the control plane logs out of each BMC.
    plane.site.stop().await;
    fleet.stop().await;
}

/// The lines of JSON that `rackwright-bench fleet` prints for five machines.
fn benchmark(arguments: &[&str]) -> Vec<Value> {
    let output = std::process::Command::new(program("rackwright-bench"))
        .args(["fleet", "--nodes", "5", "--patience", "2m"])
        .args(arguments)
        .output()
        .expect("the benchmark can be started");
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{out}{err}");
    out.lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

fn phases(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["phase"].as_str()).collect()
}

#[test]
fn the_benchmark_takes_machines_through_their_whole_life_and_counts_them() {
    let lines = benchmark(&["--phases", "enrol,inspect,list,deploy,restart,release"]);
    assert_eq!(
        phases(&lines),
        [
            "enrol", "inspect", "list", "validate", "deploy", "restart", "release", "total"
        ]
    );
    for line in &lines {
        assert_eq!((&line["nodes"], &line["right"]), (&5.into(), &5.into()), "{line}");
    }
    let total = &lines[lines.len() - 1];
    assert!(total["control_cpu_s"].as_f64() > Some(0.0), "{total}");
    assert!(total["database_bytes"].as_u64() > Some(100_000), "{total}");
}

#[test]
fn the_benchmark_runs_machines_independently_and_compares_some_with_a_run_alone() {
    let lines = benchmark(&["--phases", "life", "--alone", "2", "--parallel", "1"]);
    assert_eq!(phases(&lines), ["life", "total", "alone"]);
    for line in &lines[..2] {
        assert_eq!((&line["nodes"], &line["right"]), (&5.into(), &5.into()), "{line}");
    }
    let alone = &lines[2];
    assert_eq!(alone["machines"], 2, "{alone}");
    let stages = alone["phases"].as_array().expect("stages");
    let seconds = |of: &str, key: &str| {
        let stage = stages.iter().find(|stage| stage["phase"] == of);
        stage
            .and_then(|stage| stage[key].as_f64())
            .unwrap_or_else(|| panic!("{of}: {alone}"))
    };
    for key in ["alone_s", "among_all_s"] {
        let longest = ["inspect", "deploy", "release"].map(|stage| seconds(stage, key));
        assert!(longest.iter().all(|&s| s > 0.0 && s < seconds("life", key)), "{alone}");
    }
}
