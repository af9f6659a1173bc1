//! A fleet of simulated machines, as clients of their BMCs see it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Client, LONG, RESET, SESSIONS, SYSTEM, assert_error};
use rackwright_sim::fleet::{
    Boot, BootSource, Fleet, FleetConfig, NodeView, Payload, Phase, PowerState, Profile, SimNode,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Fast enough for minutes to pass at once.
const FAST: f64 = 100_000.0;

async fn fleet(config: FleetConfig) -> Fleet {
    Fleet::start(config).await.unwrap()
}

async fn one(profile: Profile, speed: f64) -> (Fleet, SimNode, Client) {
    let config = FleetConfig {
        profile,
        speed,
        ..FleetConfig::default()
    };
    let fleet = fleet(config).await;
    let node = fleet.node(0);
    let client = Client::of_fleet(&node);
    (fleet, node, client)
}

async fn wait(node: &SimNode, what: &str, wanted: impl FnMut(&NodeView) -> bool) -> NodeView {
    let waited = tokio::time::timeout(LONG, node.wait_for(wanted)).await;
    waited.unwrap_or_else(|_| panic!("{what} did not happen: {:?}", node.view()))
}

#[tokio::test]
async fn each_machine_has_a_bmc_of_its_own() {
    let config = FleetConfig {
        nodes: 300,
        ..FleetConfig::default()
    };
    let fleet = fleet(config).await;
    let mut seen = HashSet::new();
    for index in [0, 1, 255, 299] {
        let node = fleet.node(index);
        // The client trusts only this machine's certificate, and only for this machine's address.
        let client = Client::of_fleet(&node);
        let system = client.get(SYSTEM).await;
        assert_eq!(system["UUID"], node.uuid());
        assert_eq!(system["SerialNumber"], node.serial());
        assert_eq!(system["Name"], node.name());
        let nic = client.get("/redfish/v1/Systems/1/EthernetInterfaces/NIC0").await;
        assert_eq!(nic["MACAddress"], node.mac());
        for own in [
            node.uuid(),
            node.serial(),
            node.mac(),
            node.url(),
            node.password(),
            node.fingerprint().unwrap().unwrap(),
        ] {
            assert!(seen.insert(own));
        }
        let other = fleet.node(2).password();
        let stranger = client
            .anonymous(Method::GET, SYSTEM)
            .basic_auth("admin", Some(other))
            .send()
            .await
            .unwrap();
        assert_error(stranger, StatusCode::UNAUTHORIZED, "NoValidSession").await;
    }
    let (first, second) = (Client::of_fleet(&fleet.node(0)), Client::of_fleet(&fleet.node(1)));
    first.reset("On").await;
    first.post(SESSIONS, first.login()).await;
    assert_eq!(second.get(SYSTEM).await["PowerState"], "Off");
    assert_eq!(second.get(SESSIONS).await["Members@odata.count"], 0);
}

#[tokio::test]
async fn unused_addresses_are_not_answered() {
    let (fleet, node, _) = one(Profile::Instant, 1.0).await;
    for address in ["127.64.0.2", "127.64.0.0", "127.0.0.1"] {
        let mut stream = TcpStream::connect((address, fleet.port())).await.unwrap();
        let read = tokio::time::timeout(LONG, stream.read(&mut [0; 16])).await.unwrap();
        assert!(matches!(read, Ok(0) | Err(_)), "{address}");
    }
    Client::of_fleet(&node).get(SYSTEM).await;
}

#[tokio::test]
async fn every_link_leads_somewhere() {
    for (profile, documents) in [(Profile::Instant, 25), (Profile::DgxH100, 80)] {
        let (_fleet, _, client) = one(profile, FAST).await;
        let found = client.crawl().await;
        assert!(found.len() >= documents, "{found:?}");
        assert!(found.contains("/redfish/v1/TaskService/Tasks"));
    }
}

#[tokio::test]
async fn an_override_for_once_holds_for_one_boot() {
    let (fleet, node, client) = one(Profile::Instant, 1.0).await;
    node.set_installed(true);
    client.boot("Pxe", "Once").await;
    assert_eq!(client.boot_now().await, ("Pxe".into(), "Once".into()));
    client.reset("On").await;
    assert_eq!(node.view().phase, Phase::Up(BootSource::Network));
    assert_eq!(client.boot_now().await, ("None".into(), "Disabled".into()));
    client.reset("ForceRestart").await;
    assert_eq!(node.view().phase, Phase::Up(BootSource::Disk));

    client.boot("UefiHttp", "Continuous").await;
    for _ in 0..2 {
        client.reset("PowerCycle").await;
        assert_eq!(node.view().phase, Phase::Up(BootSource::Http));
    }
    client.reset("GracefulShutdown").await;
    assert_eq!(client.get(SYSTEM).await["PowerState"], "Off");
    let again = client.post(RESET, json!({"ResetType": "ForceOff"})).await;
    assert_error(again, StatusCode::CONFLICT, "ActionParameterValueConflict").await;
    assert_eq!(fleet.totals().boots, 4);
}

#[tokio::test]
async fn power_changes_show_while_they_last() {
    // Slow motion: a tenth of a second takes five seconds.
    let (_fleet, node, client) = one(Profile::Vm, 0.02).await;
    client.reset("On").await;
    assert_eq!(client.get(SYSTEM).await["PowerState"], "PoweringOn");
    let again = client.post(RESET, json!({"ResetType": "On"})).await;
    assert_error(again, StatusCode::CONFLICT, "ActionParameterValueConflict").await;
    client.reset("ForceOff").await;
    assert_eq!(client.get(SYSTEM).await["PowerState"], "PoweringOff");
    assert_eq!(node.view().boots, 0);

    let (_fleet, node, client) = one(Profile::Vm, FAST).await;
    client.reset("On").await;
    wait(&node, "power", |view| view.power == PowerState::On).await;
    assert_eq!(client.get(SYSTEM).await["PowerState"], "On");
    client.reset("ForceOff").await;
    wait(&node, "off", |view| view.power == PowerState::Off).await;
}

#[tokio::test]
async fn a_slow_reset_is_a_task() {
    let (_fleet, node, client) = one(Profile::DgxH100, 1000.0).await;
    let accepted = client.post(RESET, json!({"ResetType": "On"})).await;
    assert_eq!(accepted.status(), StatusCode::ACCEPTED);
    assert!(accepted.headers().contains_key("retry-after"));
    let monitor = accepted.headers()["location"].to_str().unwrap().to_owned();
    let task: Value = accepted.json().await.unwrap();
    assert_eq!(task["@odata.type"], "#Task.v1_7_1.Task");
    let path = task["@odata.id"].as_str().unwrap().to_owned();

    wait(&node, "power", |view| view.power == PowerState::On).await;
    assert_eq!(
        client.request(Method::GET, &monitor).send().await.unwrap().status(),
        StatusCode::NO_CONTENT
    );
    let task = client.get(&path).await;
    assert_eq!(
        (&task["TaskState"], &task["PercentComplete"]),
        (&json!("Completed"), &json!(100))
    );
    assert!(task["EndTime"].is_string() && task.get("TaskMonitor").is_none());
    assert_eq!(
        client.get("/redfish/v1/TaskService/Tasks").await["Members@odata.count"],
        1
    );
    let forgotten = client.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(forgotten.status(), StatusCode::NO_CONTENT);
    let gone = client.request(Method::GET, &path).send().await.unwrap();
    assert_error(gone, StatusCode::NOT_FOUND, "ResourceMissingAtURI").await;
    // This server has no PowerCycle.
    let cycle = client.post(RESET, json!({"ResetType": "PowerCycle"})).await;
    assert_error(cycle, StatusCode::BAD_REQUEST, "ActionParameterValueNotInList").await;
}

#[tokio::test]
async fn a_stale_etag_changes_nothing() {
    let (_fleet, _, client) = one(Profile::Instant, 1.0).await;
    let read = client.request(Method::GET, SYSTEM).send().await.unwrap();
    let etag = read.headers()["etag"].clone();
    client.boot("Cd", "Once").await;
    let boot = json!({"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}});
    let stale = client
        .request(Method::PATCH, SYSTEM)
        .header("If-Match", etag)
        .json(&boot);
    assert_error(
        stale.send().await.unwrap(),
        StatusCode::PRECONDITION_FAILED,
        "PreconditionFailed",
    )
    .await;
    assert_eq!(client.boot_now().await, ("Cd".into(), "Once".into()));
}

#[tokio::test]
async fn plain_http_is_an_option() {
    let config = FleetConfig {
        tls: false,
        ..FleetConfig::default()
    };
    let fleet = fleet(config).await;
    let node = fleet.node(0);
    assert!(node.url().starts_with("http://") && node.fingerprint().unwrap().is_none());
    assert_eq!(Client::of_fleet(&node).get(SYSTEM).await["UUID"], node.uuid());
}

/// A payload that forwards all boots.
struct BootRecorder(mpsc::UnboundedSender<Boot>);

impl Payload for BootRecorder {
    fn boots(&self, boot: &Boot) {
        self.0.send(*boot).unwrap();
    }
}

#[tokio::test]
async fn a_booted_system_is_reported_and_can_reset_its_machine() {
    let (sender, mut boots) = mpsc::unbounded_channel();
    let config = FleetConfig {
        nodes: 2,
        profile: Profile::Vm,
        speed: FAST,
        ..FleetConfig::default()
    };
    let fleet = Fleet::with_payload(config, Arc::new(BootRecorder(sender)))
        .await
        .unwrap();
    let node = fleet.node(1);
    let client = Client::of_fleet(&node);
    client.boot("Pxe", "Once").await;
    client.reset("On").await;
    let mut next = async || tokio::time::timeout(LONG, boots.recv()).await.unwrap().unwrap();
    let boot = |number, source| Boot {
        node: 1,
        number,
        source,
    };
    assert_eq!(next().await, boot(1, BootSource::Network));
    wait(&node, "the boot", |view| view.phase == Phase::Up(BootSource::Network)).await;
    node.set_installed(true);
    assert!(node.restart());
    assert_eq!(next().await, boot(2, BootSource::Disk));
    node.power_cut();
    assert!(!node.restart(), "nothing runs without power");
    wait(&node, "off", |view| view.power == PowerState::Off).await;
}

#[tokio::test]
async fn the_same_seed_makes_the_same_fleet() {
    let make = async |seed| {
        let config = FleetConfig {
            seed,
            ..FleetConfig::default()
        };
        let fleet = fleet(config).await;
        let node = fleet.node(0);
        (node.uuid(), node.password(), node.serial(), node.mac())
    };
    assert_eq!(make(5).await, make(5).await);
    assert_ne!(make(5).await.0, make(6).await.0);
    assert_ne!(make(5).await.1, make(6).await.1);
}

#[tokio::test]
async fn stopping_ends_all_connections() {
    let (fleet, _, client) = one(Profile::Instant, 1.0).await;
    client.get(SYSTEM).await;
    let port = fleet.port();
    fleet.stop().await;
    let error = client.request(Method::GET, SYSTEM).send().await.unwrap_err();
    assert!(!error.is_timeout(), "{error:?}");
    assert!(TcpStream::connect(("127.64.0.1", port)).await.is_err());
}
