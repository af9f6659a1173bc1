//! Rackwright's own Redfish client against the fleet: what the control plane will do with thousands of them.
#![allow(clippy::unwrap_used)]

use rackwright_redfish::{
    BmcClient, BmcTarget, BootTarget, ErrorKind, Persistence, PowerChange, PowerGoal, PowerState, RedfishError,
    Settings,
};
use rackwright_sim::fleet::{BootSource, Fleet, FleetConfig, Phase, Profile, Script, SimNode};
use rackwright_sim::lab;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

async fn fleet(profile: Profile, nodes: usize, faults: &str) -> Fleet {
    lab::install_crypto();
    let config = FleetConfig {
        nodes,
        profile,
        speed: 100_000.0,
        faults: Script::parse("faults.yaml", &format!("faults: [{faults}]"), nodes).unwrap(),
        ..FleetConfig::default()
    };
    Fleet::start(config).await.unwrap()
}

async fn connect(node: &SimNode) -> Result<BmcClient, RedfishError> {
    let target = BmcTarget {
        address: node.url(),
        username: node.user().to_owned(),
        password: node.password().into(),
        certificate_sha256: Some(node.fingerprint().unwrap().unwrap().parse().unwrap()),
        system: None,
    };
    BmcClient::connect(target, Settings::default()).await
}

/// From off through a boot for once and a power cycle to off.
async fn drive(node: &SimNode) {
    node.set_installed(true);
    let client = connect(node).await.unwrap();
    let identity = client.identity().await.unwrap();
    assert_eq!(identity.uuid, Some(node.uuid()));
    assert_eq!(client.power().await.unwrap(), PowerState::Off);
    let set = client.set_boot(BootTarget::Pxe, Persistence::Once, None).await.unwrap();
    assert!(set.changed && set.deviations.is_empty(), "{set:?}");
    let change = client.set_power(PowerGoal::On).await.unwrap();
    let reset_type = "On".to_owned();
    assert_eq!(change, PowerChange::Accepted { reset_type });
    client.wait_power(PowerGoal::On, PATIENCE).await.unwrap();
    assert_eq!(client.boot().await.unwrap().enabled.as_deref(), Some("Disabled"));
    client.power_cycle(PATIENCE).await.unwrap();
    let disk = node.wait_for(|view| view.phase == Phase::Up(BootSource::Disk));
    tokio::time::timeout(PATIENCE, disk).await.unwrap();
    client.set_power(PowerGoal::Off).await.unwrap();
    client.wait_power(PowerGoal::Off, PATIENCE).await.unwrap();
    client.close().await.unwrap();
}

#[tokio::test]
async fn drives_machines_of_each_profile() {
    for profile in [Profile::Instant, Profile::Vm, Profile::DgxH100] {
        let fleet = fleet(profile, 1, "").await;
        drive(&fleet.node(0)).await;
    }
}

#[tokio::test]
async fn reads_what_the_machine_consists_of() {
    let fleet = fleet(Profile::DgxH100, 1, "").await;
    let client = connect(&fleet.node(0)).await.unwrap();
    let inventory = client.inventory().await.unwrap();
    assert_eq!((inventory.nics.len(), inventory.drives.len()), (3, 10), "{inventory:?}");
    assert!(inventory.gaps.is_empty(), "{:?}", inventory.gaps);
    client.close().await.unwrap();
}

#[tokio::test]
async fn gets_through_a_bmc_that_is_busy_and_out_of_sessions() {
    let faults =
        "{fault: bmc-unavailable, retry_after_s: 1, at: 2, method: GET}, {fault: bmc-sessions-exhausted, at: 1}";
    let fleet = fleet(Profile::Instant, 1, faults).await;
    drive(&fleet.node(0)).await;
}

#[tokio::test]
async fn says_that_a_bmc_is_down_and_that_trying_again_may_help() {
    let fleet = fleet(Profile::Instant, 1, "{fault: bmc-down}").await;
    let failure = match connect(&fleet.node(0)).await {
        Ok(client) => client.system().await.map(drop).unwrap_err(),
        Err(failure) => failure,
    };
    assert_eq!(failure.kind(), ErrorKind::Retryable, "{failure}");
}

#[tokio::test]
async fn many_machines_at_once() {
    let fleet = fleet(Profile::Vm, 100, "").await;
    let mut running = tokio::task::JoinSet::new();
    for index in 0..fleet.nodes() {
        let node = fleet.node(index);
        running.spawn(async move { drive(&node).await });
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    assert_eq!(fleet.totals().boots, 200);
}

#[tokio::test]
async fn a_stream_tells_when_the_power_has_changed_and_only_four_are_open_at_once() {
    let fleet = fleet(Profile::Instant, 1, "").await;
    let node = fleet.node(0);
    let client = connect(&node).await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(client.event_stream(None).await.unwrap().unwrap());
    }
    let full = client.event_stream(None).await.unwrap_err();
    assert_eq!(full.status(), Some(503), "{full}");
    for change in [SimNode::press_button as fn(&SimNode) -> bool, |node| {
        node.power_cut();
        true
    }] {
        assert!(change(&node));
        for stream in &mut streams {
            let told = tokio::time::timeout(PATIENCE, stream.next_change()).await.unwrap();
            assert!(told.unwrap());
        }
    }
    // Whoever goes makes room.
    drop(streams);
    let again = async {
        while client.event_stream(None).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
    client.close().await.unwrap();
}
