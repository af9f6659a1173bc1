//! The installed systems of a fleet with the control plane's own SSH code: its seed, its probe, its judge and its
//! hand-over.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Client, LONG, RESET};
use rackwright_api::v1::{Check, Inventory, Verdict};
use rackwright_identity::{SshKeyPair, SystemRng};
use rackwright_sim::fleet::{BootSource, Fleet, FleetConfig, Installed, Phase, Profile, Script, SimNode};
use rackwright_validate::{
    CarriedProgram, Expected, HandOver, ImagePatterns, LaneTarget, MeasureRequest, Profile as Demands, RunLimits,
    SeedScrub, SeedSpec, Session, SshError, SshTarget, TrafficError, TrafficSetup, Transport, hand_over, judge,
    keep_traffic, measure, passed, probe, seed, serve_traffic, stop_traffic, wait_reachable,
};
use secrecy::ExposeSecret as _;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const DIGEST: &str = "b3-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const GENERATION: u64 = 7;
/// Fast enough for minutes to pass at once.
const FAST: f64 = 100_000.0;
const LIMITS: RunLimits = RunLimits {
    timeout: LONG,
    output_max_bytes: 1 << 20,
};

async fn fleet(nodes: usize, profile: Profile, faults: &str) -> Fleet {
    let config = FleetConfig {
        nodes,
        profile,
        speed: if profile == Profile::Instant { 1.0 } else { FAST },
        ssh_listen: Some("0.0.0.0:0".parse().unwrap()),
        faults: Script::parse("faults.yaml", &format!("faults: [{faults}]"), nodes).unwrap(),
        ..FleetConfig::default()
    };
    Fleet::start(config).await.unwrap()
}

fn key(comment: &str) -> SshKeyPair {
    SshKeyPair::generate(&SystemRng, comment).unwrap()
}

/// A deployment with the control plane's data about it.
struct Deployed {
    host: SshKeyPair,
    provisioning: SshKeyPair,
    customer: SshKeyPair,
    target: SshTarget,
}

/// Writes a system to a machine's drive, with a seed as the control plane makes it.
fn deploy(fleet: &Fleet, node: &SimNode) -> Deployed {
    let (host, provisioning, customer) = (key("host"), key("provisioning"), key("customer"));
    let own = provisioning.fingerprint().chars().filter(char::is_ascii_alphanumeric);
    let spec = SeedSpec {
        instance_id: own.collect(),
        hostname: node.name(),
        provisioning_public_key: provisioning.public_line().to_owned(),
        customer_keys: vec![customer.public_line().to_owned()],
        host_private_key: host.private_key().clone(),
        host_public_key: host.public_line().to_owned(),
        macs: vec![node.mac()],
        image_digest: DIGEST.to_owned(),
        generation: GENERATION,
        user_data: None,
    };
    node.install(read(&seed(&spec).unwrap(), node));
    let index: u32 = node.name().trim_start_matches("sim-").parse().unwrap();
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 128, 0, 2)) + index);
    node.set_address(address);
    let target = SshTarget {
        address: address.into(),
        port: fleet.ssh_port().unwrap(),
        user: "root".to_owned(),
        host_key: host.public_line().to_owned(),
        private_key: provisioning.private_key().clone(),
    };
    Deployed {
        host,
        provisioning,
        customer,
        target,
    }
}

/// The values that an image without cloud-init reads from its seed.
fn read(files: &BTreeMap<String, Vec<u8>>, node: &SimNode) -> Installed {
    let text = |path: &str| String::from_utf8(files[path].clone()).unwrap();
    let line = |path: &str| text(path).trim().to_owned();
    Installed {
        image_digest: DIGEST.to_owned(),
        generation: GENERATION,
        drive_serial: node.drives().all()[0].serial().to_owned(),
        hostname: line("rackwright/hostname"),
        instance_id: line("rackwright/instance-id"),
        ssh_host_private_key: text("rackwright/ssh_host_ed25519_key").into(),
        ssh_host_public_key: line("rackwright/ssh_host_ed25519_key.pub"),
        authorized_keys: text("rackwright/authorized_keys").lines().map(str::to_owned).collect(),
        user_data: text("user-data"),
        marker: text("rackwright/image"),
        ..Installed::default()
    }
}

async fn switch_on(node: &SimNode) {
    let accepted = Client::of_fleet(node).post(RESET, json!({"ResetType": "On"})).await;
    assert!(accepted.status().is_success(), "{accepted:?}");
}

async fn up(node: &SimNode) {
    let up = node.wait_for(|view| view.phase == Phase::Up(BootSource::Disk));
    tokio::time::timeout(LONG, up).await.expect("the machine comes up");
}

async fn log_in(target: &SshTarget) -> Session {
    let reached = wait_reachable(target, Instant::now() + LONG, &CancellationToken::new()).await;
    reached.unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

/// The whole report on a machine that was booted into the agent before.
async fn checks(node: &SimNode, target: &SshTarget, inventory: Inventory) -> Vec<Check> {
    let demands = Demands::embedded_default().unwrap();
    let session = log_in(target).await;
    let found = probe(&session, (&demands).into()).await.unwrap();
    session.close().await;
    assert_eq!(found.readings.boot_id, node.boot_id(node.view().boots));
    let pattern_of = |pattern: &str| Some(pattern.to_owned());
    let expected = Expected {
        inventory,
        former_boot_id: Some(node.boot_id(node.view().boots - 1)),
        image_digest: DIGEST.to_owned(),
        claim_generation: GENERATION,
        hostname: node.name(),
        image_patterns: ImagePatterns {
            os_id: pattern_of("debian"),
            os_version_id: pattern_of("12"),
            kernel: pattern_of("6.1.*"),
        },
    };
    judge(&demands, &expected, &found.readings, &found.clock)
}

fn failing(checks: &[Check]) -> Vec<&str> {
    let failing = checks.iter().filter(|check| check.verdict() != Verdict::Pass);
    failing.map(|check| check.id.as_str()).collect()
}

async fn refused(target: &SshTarget) {
    match Session::connect(target).await {
        Err(SshError::AuthRefused { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_kind_of_machine_passes_validation_and_is_handed_over() {
    for profile in [Profile::Instant, Profile::Vm, Profile::DgxH100] {
        let fleet = fleet(2, profile, "").await;
        let node = fleet.node(1);
        let deployed = deploy(&fleet, &node);
        switch_on(&node).await;
        let checks = checks(&node, &deployed.target, node.inventory()).await;
        assert!(
            passed(&checks) && failing(&checks).is_empty(),
            "{profile:?}: {checks:#?}"
        );
        let done = hand_over(&deployed.target, &[]).await.unwrap();
        assert_eq!(done.seed, SeedScrub::Clean);
        assert!(done.removed_from.contains(&"seed:meta-data".to_owned()), "{done:?}");
        refused(&deployed.target).await;
        let again = hand_over(&deployed.target, &[]).await.unwrap();
        let nothing = HandOver {
            removed_from: Vec::new(),
            seed: SeedScrub::NotChecked,
        };
        assert_eq!(again, nothing);
    }
}

#[tokio::test]
async fn a_key_that_was_taken_off_stays_off_until_the_next_installation() {
    let fleet = fleet(1, Profile::Instant, "").await;
    let node = fleet.node(0);
    let first = deploy(&fleet, &node);
    let customers = SshTarget {
        private_key: first.customer.private_key().clone(),
        ..first.target.clone()
    };
    switch_on(&node).await;
    hand_over(&first.target, &[]).await.unwrap();
    log_in(&customers).await.close().await;
    Client::of_fleet(&node).reset("ForceRestart").await;
    refused(&first.target).await;
    log_in(&customers).await.close().await;

    let second = deploy(&fleet, &node);
    refused(&first.target).await;
    Client::of_fleet(&node).reset("ForceRestart").await;
    log_in(&second.target).await.close().await;
    match Session::connect(&first.target).await {
        Err(SshError::HostKeyMismatch { presented, .. }) => assert_eq!(presented, second.host.fingerprint()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn other_keys_and_other_commands_are_refused() {
    let fleet = fleet(2, Profile::Instant, "").await;
    let (node, other) = (fleet.node(0), fleet.node(1));
    let (deployed, others) = (deploy(&fleet, &node), deploy(&fleet, &other));
    switch_on(&node).await;
    switch_on(&other).await;
    for stranger in [&key("stranger"), &others.provisioning, &deployed.host] {
        refused(&SshTarget {
            private_key: stranger.private_key().clone(),
            ..deployed.target.clone()
        })
        .await;
    }
    refused(&SshTarget {
        user: "admin".to_owned(),
        ..deployed.target.clone()
    })
    .await;
    let mistaken = SshTarget {
        address: others.target.address,
        ..deployed.target.clone()
    };
    let mismatch = Session::connect(&mistaken).await;
    assert!(
        matches!(mismatch, Err(SshError::HostKeyMismatch { .. })),
        "{mismatch:?}"
    );

    let session = log_in(&deployed.target).await;
    let unknown = session.run("rm -rf /\n", LIMITS).await.unwrap();
    assert_eq!(unknown.status, 127);
    assert!(unknown.stdout.is_empty() && unknown.stderr_tail().contains("runs only"));
    let endless = session.run(&"#\n".repeat(200_000), LIMITS).await;
    assert!(matches!(endless, Err(SshError::NoStatus { .. })), "{endless:?}");
    // The refused scripts have no effect on later ones.
    assert_eq!(
        session
            .run("date +clock=%s.%N </dev/null\n", LIMITS)
            .await
            .unwrap()
            .status,
        0
    );
}

/// The other tests use russh on both sides; this client is OpenSSH's.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_openssh_is_served_too() {
    let fleet = fleet(1, Profile::Instant, "").await;
    let node = fleet.node(0);
    let deployed = deploy(&fleet, &node);
    switch_on(&node).await;
    let folder = tempfile::tempdir().unwrap();
    let (key, known) = (folder.path().join("key"), folder.path().join("known_hosts"));
    std::fs::write(&key, deployed.provisioning.private_key().expose_secret()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let SshTarget { address, port, .. } = deployed.target;
    std::fs::write(&known, format!("[{address}]:{port} {}\n", deployed.host.public_line())).unwrap();
    let ssh = |command: &str, script: &str| {
        std::fs::write(folder.path().join("script"), script).unwrap();
        let output = std::process::Command::new("ssh")
            .args([
                "-F",
                "none",
                "-o",
                "IdentitiesOnly=yes",
                "-o",
                "StrictHostKeyChecking=yes",
                "-i",
            ])
            .arg(&key)
            .arg("-o")
            .arg(format!("UserKnownHostsFile={}", known.display()))
            .args(["-p", &port.to_string(), &format!("root@{address}")])
            .args((!command.is_empty()).then_some(command))
            .stdin(std::fs::File::open(folder.path().join("script")).unwrap())
            .output();
        let output = output.expect("the client of OpenSSH is missing: `make deps` installs it");
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (status, time) = ssh("sh -s", "date +clock=%s.%N </dev/null\n");
    assert!(status == Some(0) && time.starts_with("clock="), "{status:?}: {time}");
    assert_eq!(ssh("sh -s", "reboot\n"), (Some(127), String::new()));
    for refused in ["uptime", ""] {
        assert_eq!(ssh(refused, ""), (Some(255), String::new()), "{refused:?}");
    }
}

#[tokio::test]
async fn a_machine_that_is_off_boots_or_runs_something_else_is_silent_and_then_hangs_up() {
    let fleet = fleet(3, Profile::DgxH100, "{fault: post-hang, nodes: [1]}").await;
    let deployed: Vec<Deployed> = (0..3).map(|index| deploy(&fleet, &fleet.node(index))).collect();
    // This machine boots from the network although its drive holds a system.
    Client::of_fleet(&fleet.node(2)).boot("Pxe", "Once").await;
    for index in [1, 2] {
        switch_on(&fleet.node(index)).await;
    }
    let elsewhere = fleet.node(2);
    let network = elsewhere.wait_for(|view| view.phase == Phase::Up(BootSource::Network));
    tokio::time::timeout(LONG, network).await.unwrap();
    for deployed in &deployed {
        let error = Session::connect(&deployed.target).await.unwrap_err();
        assert!(
            matches!(error, SshError::Connect { .. } | SshError::Protocol { .. }) && error.is_retryable(),
            "{error:?}"
        );
    }
    let absent = SshTarget {
        address: "127.128.0.9".parse().unwrap(),
        ..deployed[0].target.clone()
    };
    assert!(Session::connect(&absent).await.unwrap_err().is_retryable());
}

#[tokio::test]
async fn a_waiting_client_is_served_when_the_system_comes_up_and_cut_off_when_it_goes_down() {
    let fleet = fleet(1, Profile::Instant, "").await;
    let node = fleet.node(0);
    let target = deploy(&fleet, &node).target;
    let waiting = tokio::spawn(async move { log_in(&target).await });
    switch_on(&node).await;
    let session = waiting.await.unwrap();
    assert_eq!(
        session
            .run("date +clock=%s.%N </dev/null\n", LIMITS)
            .await
            .unwrap()
            .status,
        0
    );
    node.power_cut();
    let error = session.run("date +clock=%s.%N </dev/null\n", LIMITS).await.unwrap_err();
    assert!(!matches!(error, SshError::Timeout { .. }), "{error:?}");
}

#[tokio::test]
async fn each_fault_of_a_machine_fails_its_own_check() {
    let whole = fleet(1, Profile::DgxH100, "").await.node(0).inventory();
    for (fault, ids, words) in [
        ("host-degraded", &["systemd-state"][..], "simulated.service"),
        ("slow-disk, mb_per_s: 4", &["disk-read-rate"], "too slowly"),
        ("wrong-inventory, missing: cpu", &["cpu-count"], "threads are missing"),
        (
            "wrong-inventory, missing: dimm",
            &["memory"],
            "the memory modules differ",
        ),
        (
            "wrong-inventory, missing: gpu",
            &["pci-devices"],
            "missing: 1× 10de:2330",
        ),
        (
            "wrong-inventory, missing: nic",
            &["nics", "pci-devices"],
            "missing: 02:02:57:00:00:00",
        ),
        (
            "wrong-inventory, missing: drive",
            &["drives", "pci-devices"],
            "missing: nvme9n1 (SIM000000D09",
        ),
    ] {
        let fleet = fleet(1, Profile::DgxH100, &format!("{{fault: {fault}}}")).await;
        let node = fleet.node(0);
        let deployed = deploy(&fleet, &node);
        switch_on(&node).await;
        let checks = checks(&node, &deployed.target, whole.clone()).await;
        assert_eq!(failing(&checks), ids, "{fault}: {checks:#?}");
        let first = checks.iter().find(|check| check.id == ids[0]).unwrap();
        assert!(first.detail.contains(words), "{fault}: {first:?}");
    }
}

#[tokio::test]
async fn a_system_that_never_comes_up_may_come_up_at_the_next_boot() {
    let fleet = fleet(1, Profile::Vm, "{fault: host-never-up, at: 1}").await;
    let node = fleet.node(0);
    let deployed = deploy(&fleet, &node);
    switch_on(&node).await;
    up(&node).await;
    let (soon, never) = (Instant::now() + Duration::from_millis(600), CancellationToken::new());
    let waited = wait_reachable(&deployed.target, soon, &never).await;
    assert!(matches!(waited, Err(SshError::NotReachable { .. })), "{waited:?}");
    assert!(node.restart());
    let checks = checks(&node, &deployed.target, node.inventory()).await;
    assert!(passed(&checks), "{checks:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_machines_are_validated_and_handed_over_at_once() {
    const NODES: usize = 200;
    let fleet = fleet(NODES, Profile::Instant, "").await;
    let mut tasks = JoinSet::new();
    for index in 0..NODES {
        let node = fleet.node(index);
        let deployed = deploy(&fleet, &node);
        tasks.spawn(async move {
            switch_on(&node).await;
            let checks = checks(&node, &deployed.target, node.inventory()).await;
            assert!(passed(&checks), "{}: {checks:#?}", node.name());
            hand_over(&deployed.target, &[]).await.unwrap();
        });
    }
    assert_eq!(tasks.join_all().await.len(), NODES);
}

#[tokio::test]
async fn the_network_between_machines_is_as_fast_as_the_slower_of_two_adapters() {
    let faults = "{fault: slow-cable, adapter: 2, gbit_per_s: 40, nodes: [1]}, {fault: slow-nic, gbit_per_s: 7, nodes: [2]}, \
                  {fault: slow-cable, adapter: 3, gbit_per_s: 0, nodes: [1]}";
    let fleet = fleet(3, Profile::DgxH100, faults).await;
    let program = CarriedProgram {
        bytes: b"program".as_slice().into(),
        sha256: "0d7a2b2ff2b8d6c9ff2eb9d1fd0a7d5cf4a7ed8ed3b6a5c7a9ccf6bd1b9b8a00".into(),
    };
    let setup = TrafficSetup {
        id: "test".into(),
        token: "00112233445566778899aabbccddeeff".into(),
        deadline_s: 60,
        port: 0,
    };
    let (mut targets, mut sessions) = (Vec::new(), Vec::new());
    for index in 0..3 {
        let node = fleet.node(index);
        let target = deploy(&fleet, &node).target;
        switch_on(&node).await;
        sessions.push(log_in(&target).await);
        targets.push(target);
    }
    let error = serve_traffic(&sessions[0], &program, &setup).await.unwrap_err();
    assert!(
        matches!(error, TrafficError::Program { .. }),
        "the digest is another: {error}"
    );
    let digest = ring::digest::digest(&ring::digest::SHA256, &program.bytes);
    let program = CarriedProgram {
        sha256: digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
        ..program
    };
    let mut served = Vec::new();
    for session in &sessions {
        served.push(serve_traffic(session, &program, &setup).await.unwrap());
    }
    assert_eq!(served[0].lanes.len(), 8);
    for (to, lane, least, most) in [
        (1, "mlx5_0", 110.0, 120.0),
        (1, "mlx5_4", 38.0, 40.0),
        (2, "mlx5_4", 6.5, 7.0),
        (1, "-", 90.0, 94.0),
        (2, "-", 6.5, 7.0),
    ] {
        let order = MeasureRequest {
            ms: 1000,
            streams: 1,
            one_way: false,
            tcp: lane == "mlx5_4",
            lanes: vec![LaneTarget {
                lane: lane.to_owned(),
                peer: None,
                address: targets[to].address,
                port: served[to].port,
            }],
        };
        let measured = measure(&sessions[0], &served[0], &setup, &order)
            .await
            .unwrap()
            .remove(0);
        let by_rdma = measured.transport == Transport::Rdma;
        assert_eq!(by_rdma, lane == "mlx5_0", "{lane}");
        for rate in [measured.sent.unwrap(), measured.received.unwrap()] {
            let found = rate.gbit_per_s;
            assert!((least..=most).contains(&found), "{lane} to {to}: {found}");
        }
    }
    // No traffic passes, or no machine has the address.
    for (lane, address) in [("mlx5_5", targets[1].address), ("-", "127.128.0.99".parse().unwrap())] {
        let order = MeasureRequest {
            ms: 10,
            streams: 1,
            one_way: true,
            tcp: false,
            lanes: vec![LaneTarget {
                lane: lane.to_owned(),
                peer: None,
                address,
                port: 1,
            }],
        };
        let measured = measure(&sessions[0], &served[0], &setup, &order)
            .await
            .unwrap()
            .remove(0);
        assert!(measured.error.unwrap().contains("timed out"));
    }
    keep_traffic(&sessions[0], &served[0]).await.unwrap();
    stop_traffic(&sessions[0], &served[0]).await.unwrap();
    assert!(keep_traffic(&sessions[0], &served[0]).await.is_err());
}
