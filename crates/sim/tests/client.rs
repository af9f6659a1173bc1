//! Rackwright's own Redfish client against the fleet: the control plane's operations on thousands of machines.
#![allow(clippy::unwrap_used)]

use rackwright_redfish::{
    BmcClient, BmcTarget, BootTarget, ErrorKind, KeysReset, Persistence, PowerChange, PowerGoal, PowerState,
    RedfishError, Settings,
};
use rackwright_sim::fleet::{BootSource, Fleet, FleetConfig, Phase, Profile, Script, SimNode};
use std::time::Duration;

const WAIT_LIMIT: Duration = Duration::from_secs(120);

async fn fleet(profile: Profile, nodes: usize, faults: &str) -> Fleet {
    rackwright_sim::install_crypto();
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

/// From off through a one-time boot and a power cycle to off.
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
    client.wait_power(PowerGoal::On, WAIT_LIMIT).await.unwrap();
    assert_eq!(client.boot().await.unwrap().enabled.as_deref(), Some("Disabled"));
    client.power_cycle(WAIT_LIMIT).await.unwrap();
    let disk = node.wait_for(|view| view.phase == Phase::Up(BootSource::Disk));
    tokio::time::timeout(WAIT_LIMIT, disk).await.unwrap();
    client.set_power(PowerGoal::Off).await.unwrap();
    client.wait_power(PowerGoal::Off, WAIT_LIMIT).await.unwrap();
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
async fn reads_the_inventory_of_the_machine() {
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
async fn reports_a_bmc_that_is_down_as_a_temporary_error() {
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
async fn a_stream_reports_power_changes_and_only_four_are_open_at_once() {
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
            let event = tokio::time::timeout(WAIT_LIMIT, stream.next_change()).await.unwrap();
            assert!(event.unwrap());
        }
    }
    // A dropped stream makes room.
    drop(streams);
    let again = async {
        while client.event_stream(None).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_LIMIT, again).await.unwrap();
    client.close().await.unwrap();
}

/// Powers the machine off and on, and waits until the firmware has handed over.
async fn start(node: &SimNode, client: &BmcClient) {
    client.set_power(PowerGoal::Off).await.unwrap();
    client.wait_power(PowerGoal::Off, WAIT_LIMIT).await.unwrap();
    client.set_power(PowerGoal::On).await.unwrap();
    let up = node.wait_for(|view| matches!(view.phase, Phase::Booting(_) | Phase::Up(_)));
    tokio::time::timeout(WAIT_LIMIT, up).await.unwrap();
}

#[tokio::test]
async fn settings_wait_for_a_start_and_faults_keep_them_from_it() {
    let faults = "{fault: settings-ignored, at: 1, times: 1}, {fault: settings-busy, at: 2, times: 1}";
    let fleet = fleet(Profile::Vm, 1, faults).await;
    let node = fleet.node(0);
    let client = connect(&node).await.unwrap();
    let bios = async || client.bios().await.unwrap().unwrap();
    let sriov = async || bios().await.current["Sriov"].to_string();
    let settings: std::collections::BTreeMap<String, String> =
        [("Sriov", "Enabled"), ("NumaPerSocket", "2"), ("QuietBoot", "false")]
            .map(|(n, v)| (n.into(), v.into()))
            .into();
    let change = client.set_bios(&bios().await, &settings).await.unwrap();
    assert_eq!(change.written.len(), 3);
    assert_eq!((sriov().await.as_str(), bios().await.pending.len()), ("Disabled", 3));
    start(&node, &client).await;
    assert_eq!(
        (sriov().await.as_str(), bios().await.pending.len()),
        ("Disabled", 0),
        "the first start loses them"
    );
    let busy = client.set_bios(&bios().await, &settings).await.unwrap_err();
    assert_eq!(busy.status(), Some(409), "{busy}");
    assert!(busy.to_string().contains("waits for the next start"), "{busy}");
    client.set_bios(&bios().await, &settings).await.unwrap();
    start(&node, &client).await;
    let now = bios().await;
    assert!(
        settings
            .iter()
            .all(|(name, value)| now.current[name].to_string() == *value),
        "{now:?}"
    );
    client.reset_bios().await.unwrap();
    start(&node, &client).await;
    assert_eq!(sriov().await, "Disabled");
    let unfit = [("BootMode".to_owned(), "Legacy".to_owned())].into();
    let refused = client.set_bios(&bios().await, &unfit).await.unwrap_err();
    assert!(refused.to_string().contains("cannot be changed"), "{refused}");

    let secure = async || client.secure_boot().await.unwrap().unwrap();
    assert!(client.set_secure_boot(true).await.unwrap());
    assert_eq!(
        (secure().await.enabled, secure().await.in_force),
        (Some(true), Some(false))
    );
    start(&node, &client).await;
    assert_eq!(secure().await.in_force, Some(true));
    let before = client.secure_boot_certificates().await.unwrap().unwrap().len();
    let pem = rcgen::generate_simple_self_signed(vec!["db".to_owned()])
        .unwrap()
        .cert
        .pem();
    client.enrol_secure_boot_certificate("db", &pem).await.unwrap();
    let after = client.secure_boot_certificates().await.unwrap().unwrap();
    assert_eq!(after.len(), before + 1);
    assert!(
        after
            .iter()
            .any(|one| one.sha256 == rackwright_redfish::pem_fingerprint(&pem))
    );
    client
        .reset_secure_boot_keys(KeysReset::DeletePlatformKey)
        .await
        .unwrap();
    start(&node, &client).await;
    let bare = secure().await;
    assert_eq!(
        (bare.in_force, bare.mode.as_deref()),
        (Some(false), Some("SetupMode")),
        "no key to check by"
    );
    client.close().await.unwrap();
}
