//! A recent reading only decides what is sent.

use std::time::Duration;

use rackwright_redfish::{BmcClient, BootTarget, Environment as _, Persistence, PowerChange, PowerGoal, PowerState};
use serde_json::json;

use crate::bmc::{Bmc, RESET, SYSTEM};

const LONG: Duration = Duration::from_secs(5);

/// The requests to the system since the last call, in order.
fn since(bmc: &Bmc, seen: &mut usize) -> Vec<&'static str> {
    let requests = bmc.server.requests();
    let new = &requests[std::mem::replace(seen, requests.len())..];
    let kind = |request: &crate::server::Request| match () {
        () if request.is("GET", SYSTEM) => Some("read"),
        () if request.is("PATCH", SYSTEM) => Some("boot"),
        () if request.is("POST", RESET) => Some("reset"),
        () => None,
    };
    new.iter().filter_map(kind).collect()
}

async fn boot_from_network(client: &BmcClient) {
    let set = client.set_boot(BootTarget::Pxe, Persistence::Once, None).await;
    assert!(set.unwrap().changed);
    let switched = client.set_power(PowerGoal::On).await.unwrap();
    assert!(matches!(switched, PowerChange::Accepted { .. }));
    client.wait_power(PowerGoal::On, LONG).await.unwrap();
}

#[tokio::test]
async fn a_switch_on_reuses_a_recent_read() {
    let bmc = Bmc::plain().await;
    let client = bmc.connect().await;
    client.profile().await.unwrap();
    assert_eq!(client.power().await.unwrap(), PowerState::Off);
    let mut seen = 0;
    since(&bmc, &mut seen);
    boot_from_network(&client).await;
    assert_eq!(since(&bmc, &mut seen), ["boot", "read", "reset", "read"]);
}

#[tokio::test]
async fn after_a_second_a_resource_is_read_again() {
    let bmc = Bmc::plain().await;
    let client = bmc.connect().await;
    client.profile().await.unwrap();
    let mut seen = 0;
    since(&bmc, &mut seen);
    bmc.environment.sleep(Duration::from_millis(1001)).await;
    boot_from_network(&client).await;
    assert_eq!(since(&bmc, &mut seen), ["read", "boot", "read", "reset", "read"]);
}

#[tokio::test]
async fn a_recent_read_skips_no_write() {
    let bmc = Bmc::plain().await;
    let client = bmc.connect().await;
    let set = async || client.set_boot(BootTarget::Pxe, Persistence::Once, None).await.unwrap();
    assert!(set().await.changed);
    // A boot uses up the override without a request of the client: only a new reading could show that nothing need be sent.
    bmc.set(SYSTEM, "/Boot/BootSourceOverrideEnabled", json!("Disabled"));
    assert!(set().await.changed);
    assert!(!set().await.changed, "that it holds was read now");
    // The same for power: the machine is switched off after the client saw it on.
    bmc.set(SYSTEM, "/PowerState", json!("On"));
    assert_eq!(client.power().await.unwrap(), PowerState::On);
    bmc.set(SYSTEM, "/PowerState", json!("Off"));
    let switched = client.set_power(PowerGoal::On).await.unwrap();
    assert!(matches!(switched, PowerChange::Accepted { .. }));
}
