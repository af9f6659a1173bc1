//! A simulated BMC is recorded and the recording is served: the client sees the same machine, and no text reveals its
//! identity.
#![allow(clippy::unwrap_used)]

#[path = "../../redfish/tests/support_page/mod.rs"]
mod support_page;

use rackwright_redfish::capabilities::{Capability, Report};
use rackwright_redfish::{BmcClient, BmcTarget, BootTarget, Persistence, RedfishError, Settings};
use rackwright_redfish_record::{RecordLimits, Recording};
use rackwright_sim::fleet::{Fleet, FleetConfig, Profile, SimNode};
use rackwright_sim::mockup::{Mockup, MockupError, Tree};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

async fn fleet(profile: Profile) -> Fleet {
    rackwright_sim::install_crypto();
    let config = FleetConfig {
        nodes: 1,
        speed: 100_000.0,
        profile,
        ..FleetConfig::default()
    };
    Fleet::start(config).await.unwrap()
}

async fn connect(address: &str, pin: &str, user: &str, password: &str) -> BmcClient {
    let target = BmcTarget {
        address: address.to_owned(),
        username: user.to_owned(),
        password: password.into(),
        certificate_sha256: Some(pin.parse().unwrap()),
        system: None,
    };
    BmcClient::connect(target, Settings::default()).await.unwrap()
}

async fn client_of(node: &SimNode) -> BmcClient {
    let pin = node.fingerprint().unwrap().unwrap();
    connect(&node.url(), &pin, node.user(), &node.password()).await
}

fn write(folder: &Path, recording: &Recording) {
    for (path, body) in recording.folders() {
        std::fs::create_dir_all(folder.join(path)).unwrap();
        std::fs::write(folder.join(path).join("index.json"), body.to_string()).unwrap();
    }
}

async fn serve(folder: &Path) -> Mockup {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Mockup::start(Tree::read(folder).unwrap(), address, true).await.unwrap()
}

/// Every text by which a document could reveal its origin.
fn identifying(value: &Value, name: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| identifying(value, name, found)),
        Value::Array(list) => list.iter().for_each(|value| identifying(value, name, found)),
        Value::String(text) => {
            let parts = [
                "Serial", "UUID", "MAC", "HostName", "Address", "AssetTag", "UserName", "Durable",
            ];
            if parts.iter().any(|part| name.contains(part)) && text.len() >= 6 {
                found.push(text.to_lowercase());
            }
        }
        _ => {}
    }
}

async fn round_trip(profile: Profile, machine: &str) {
    let fleet = fleet(profile).await;
    let node = fleet.node(0);
    let client = client_of(&node).await;
    let before: Report = client.probe().await.unwrap();
    assert!(before.missing_for_deploy.is_empty(), "{before:#?}");
    support_page::check(machine, &before);
    let inventory = client.inventory().await.unwrap();
    let raw = Recording::of(&client, &RecordLimits::default(), |_, _| {})
        .await
        .unwrap();
    client.close().await.unwrap();
    assert_eq!((&raw.cut, raw.gaps.len()), (&None, 0), "{:?}", raw.gaps);

    let mut secrets = vec![node.password().to_lowercase(), node.uuid().to_lowercase()];
    raw.resources
        .values()
        .for_each(|body| identifying(body, "", &mut secrets));
    assert!(secrets.len() > 5, "{secrets:?}");
    let scrubbed = raw.scrubbed(&[node.password(), "127.64.0.1".to_owned()], "");
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &scrubbed);
    for (path, body) in &scrubbed.resources {
        let text = format!("{path} {body}").to_lowercase();
        for secret in &secrets {
            assert!(!text.contains(secret.as_str()), "{secret} is in {path}: {body:#}");
        }
    }

    let mockup = serve(folder.path()).await;
    let recorded = connect(mockup.url(), mockup.fingerprint().unwrap(), "any", "any").await;
    let after = recorded.probe().await.unwrap();
    assert_eq!(after, before);
    let found = recorded.inventory().await.unwrap();
    let counts = |inventory: &rackwright_redfish::BmcInventory| {
        [
            inventory.processors.len(),
            inventory.memory.len(),
            inventory.nics.len(),
            inventory.drives.len(),
            inventory.nics.iter().map(|nic| nic.macs.len()).sum(),
        ]
    };
    assert_eq!(counts(&found), counts(&inventory));
    let refused = recorded.set_boot(BootTarget::Pxe, Persistence::Once, None).await;
    assert_eq!(refused.unwrap_err().status(), Some(405));
    recorded.close().await.unwrap();
}

#[tokio::test]
async fn a_recording_of_a_small_machine_shows_the_same() {
    round_trip(Profile::Vm, "rackwright-sim, vm").await;
}

#[tokio::test]
async fn a_recording_of_a_gpu_server_shows_the_same() {
    round_trip(Profile::DgxH100, "rackwright-sim, dgx-h100").await;
}

#[tokio::test]
async fn a_walk_ends_at_its_bounds_and_reports_that() {
    let fleet = fleet(Profile::DgxH100).await;
    let client = client_of(&fleet.node(0)).await;
    for (limits, words) in [
        (
            RecordLimits {
                resources: 5,
                ..RecordLimits::default()
            },
            "5 resources",
        ),
        (
            RecordLimits {
                bytes: 4000,
                ..RecordLimits::default()
            },
            "4000 bytes",
        ),
        (
            RecordLimits {
                time: std::time::Duration::ZERO,
                ..RecordLimits::default()
            },
            "0 s",
        ),
    ] {
        let recording = Recording::of(&client, &limits, |_, _| {}).await.unwrap();
        assert!(
            recording.cut.as_ref().is_some_and(|cut| cut.contains(words)),
            "{:?}",
            recording.cut
        );
        assert!(recording.resources.len() <= 20, "{}", recording.resources.len());
    }
    let shallow = RecordLimits {
        depth: 1,
        ..RecordLimits::default()
    };
    let recording = Recording::of(&client, &shallow, |_, _| {}).await.unwrap();
    assert!(!recording.gaps.is_empty() && recording.cut.is_none());
    client.close().await.unwrap();
}

#[tokio::test]
async fn other_folders_are_not_served() {
    rackwright_sim::install_crypto();
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Tree::read(folder.path()), Err(MockupError::Recording(_))));
    std::fs::create_dir_all(folder.path().join("redfish/v1/Systems")).unwrap();
    std::fs::write(folder.path().join("redfish/v1/index.json"), "{}").unwrap();
    std::fs::write(folder.path().join("redfish/v1/Systems/index.json"), "no json").unwrap();
    let mockup = serve(folder.path()).await;
    let client = connect(mockup.url(), mockup.fingerprint().unwrap(), "any", "any").await;
    let missing = client.get("/redfish/v1/Systems").await.unwrap_err();
    assert!(matches!(missing, RedfishError::Status { status: 404, .. }), "{missing}");
    let report = client.probe().await.unwrap();
    assert!(!report.passes(Capability::PowerOn) && !report.missing_for_deploy.is_empty());
}

#[tokio::test]
async fn the_program_serves_a_recording_and_prints_its_address() {
    use tokio::io::AsyncReadExt as _;
    rackwright_sim::install_crypto();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("redfish/v1")).unwrap();
    std::fs::write(
        folder.path().join("redfish/v1/index.json"),
        r#"{"RedfishVersion": "1.15.0"}"#,
    )
    .unwrap();
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_rackwright-sim"))
        .arg("--mockup")
        .arg(folder.path())
        .args(["--listen", "127.0.0.1:0"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut line = String::new();
    child.stdout.take().unwrap().read_to_string(&mut line).await.unwrap();
    let (url, pin) = line.trim().split_once(' ').unwrap();
    let client = connect(url, pin, "any", "any").await;
    assert_eq!(
        client.service_root().await.unwrap().redfish_version().as_deref(),
        Some("1.15.0")
    );
    drop(child.stdin.take());
    assert!(child.wait().await.unwrap().success());
}
