//! Networks of nodes' switch ports, and VLANs.

use rackwright_lifecycle::{Network, State};
use rackwright_store::NodeNetwork;

use super::support::{Lab, at, node_in};

const RANGE: (u16, u16) = (100, 101);

#[tokio::test]
async fn every_owner_has_a_vlan_and_every_request_a_step() {
    let lab = Lab::new().await.with(&[node_in("n1", State::Available)]).await;
    let store = &lab.store;
    assert_eq!(store.node_network(&"n1".into()).await.unwrap(), None);
    let mut tx = store.write().await.unwrap();
    assert_eq!(tx.vlan_of("customer acme", RANGE, at(1)).await.unwrap(), Some(100));
    assert_eq!(tx.vlan_of("cluster c1", RANGE, at(1)).await.unwrap(), Some(101));
    assert_eq!(tx.vlan_of("customer acme", RANGE, at(2)).await.unwrap(), Some(100));
    assert_eq!(tx.vlan_of("cluster c2", RANGE, at(2)).await.unwrap(), None);
    assert_eq!(
        tx.request_network(&"n1".into(), Network::Customer, 100, at(3))
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        tx.request_network(&"n1".into(), Network::Quarantine, 20, at(4))
            .await
            .unwrap(),
        2
    );
    tx.commit().await.unwrap();
    let requested = NodeNetwork {
        node: "n1".into(),
        network: Network::Quarantine,
        vlan: 20,
        step: 2,
    };
    assert_eq!(store.node_networks().await.unwrap(), std::slice::from_ref(&requested));
    assert_eq!(store.node_network(&"n1".into()).await.unwrap(), Some(requested));
    let vlans = store.vlans().await.unwrap();
    let vlans: Vec<_> = vlans
        .iter()
        .map(|row| (row.vlan, row.owner.as_str(), row.changed_at))
        .collect();
    assert_eq!(vlans, [(100, "customer acme", at(4)), (101, "cluster c1", at(1))]);
}

#[tokio::test]
async fn a_vlan_is_free_only_after_a_reading_without_requests() {
    let lab = Lab::new().await.with(&[node_in("n1", State::Available)]).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.vlan_of("customer acme", RANGE, at(1)).await.unwrap();
    tx.request_network(&"n1".into(), Network::Customer, 100, at(2))
        .await
        .unwrap();
    assert!(!tx.free_vlan(100, at(9)).await.unwrap(), "a port is requested in it");
    tx.request_network(&"n1".into(), Network::Quarantine, 20, at(10))
        .await
        .unwrap();
    assert!(
        !tx.free_vlan(100, at(9)).await.unwrap(),
        "the port may have been in it then"
    );
    assert!(!tx.free_vlan(100, at(10)).await.unwrap());
    assert!(tx.free_vlan(100, at(11)).await.unwrap());
    assert_eq!(tx.vlan_of("cluster c2", RANGE, at(12)).await.unwrap(), Some(100));
    tx.commit().await.unwrap();
}
