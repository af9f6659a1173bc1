//! Adapters that are replaced under clusters, and the site files that confirm them.

use std::collections::BTreeSet;

use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_infiniband::Guid;
use rackwright_lifecycle::NodeId;
use rackwright_lifecycle::cluster::{State, Wait};
use rackwright_store::Scope;

use super::{
    FABRIC, build, check, cluster, fabric, hall, names, prove, site, site_with_other_ports, spec, step, store_fabric,
};
use crate::test_calls::{apply_site, create_cluster};

const NODES: usize = 32;
/// Position of the replaced adapter in the SKU.
const AT: usize = 3;

/// The site's name of the replaced adapter, its rail, and the port GUID that the present site has for it.
async fn port(core: &Core, node: &str) -> (String, u8, Guid) {
    let (_, site) = core.sites.current(&core.store).await.unwrap().unwrap();
    let id = site.node_named(node).unwrap();
    let guid = site.node(id).port_guids[AT].and_then(Guid::new).unwrap();
    let hca = &site.sku_of(id).hcas[AT];
    (hca.name.to_string(), hca.rail, guid)
}

/// All ports with a cluster's key, as wanted.
async fn members(core: &Core) -> BTreeSet<Guid> {
    fabric(core).await.partitions().by_port().into_keys().collect()
}

/// The wanted partitions are in place, and this port is missing.
async fn read_without(core: &Core, absent: Guid) {
    let mut fabric = fabric(core).await;
    fabric.record_proof(fabric.state.wanted, [absent].into(), None, clock::now());
    store_fabric(core, &fabric).await;
}

#[tokio::test]
async fn the_site_confirms_a_replaced_adapter_and_its_cluster_is_degraded_until_the_port_has_the_key() {
    let core = hall(NODES, FABRIC).await;
    build(&core, "alpha", "acme", 1).await;
    let node = names(&core, "alpha").await.first().unwrap().clone();
    let (hca, rail, former) = port(&core, &node).await;
    let before = members(&core).await;
    let version = cluster(&core, "alpha").await.partitions_version;

    // Another version of the site with the same ports changes nothing.
    let same = format!("{}# as before\n", site(NODES));
    apply_site(&core, "same", &same).await.unwrap();
    assert_eq!(step(&core, "alpha").await, State::Ready);
    assert_eq!(cluster(&core, "alpha").await.partitions_version, version);

    apply_site(&core, "other", &site_with_other_ports(NODES, &hca))
        .await
        .unwrap();
    let (_, _, new) = port(&core, &node).await;
    assert_ne!(new, former);
    assert_eq!(step(&core, "alpha").await, State::Degraded);
    let record = cluster(&core, "alpha").await;
    let reason = format!(
        "{node}: port {new} of {hca} (rail {rail}) is new in the site file and does not have the cluster's key yet; port \
         {former} leaves the partition"
    );
    assert_eq!((record.reason, record.wait), (reason.clone(), Wait::Partition));
    let after = members(&core).await;
    assert_eq!(after.difference(&before).collect::<Vec<_>>(), [&new]);
    assert_eq!(before.difference(&after).collect::<Vec<_>>(), [&former]);
    let events = core.store.events(&Scope::Site, 0, "clusters/alpha", 100).await.unwrap();
    let changes = events.iter().filter(|event| event.kind == "cluster.ports");
    let messages: Vec<&str> = changes.map(|event| event.message.as_str()).collect();
    assert_eq!(
        messages,
        [format!("the partition of alpha gets the ports of the site: {reason}")]
    );

    prove(&core).await;
    assert_eq!(step(&core, "alpha").await, State::Ready);
    let record = cluster(&core, "alpha").await;
    assert!(record.cluster.wanted.new_ports.is_empty(), "{record:?}");
    assert_eq!(members(&core).await, after);
}

#[tokio::test]
async fn a_new_port_that_is_not_in_the_fabric_keeps_its_cluster_degraded() {
    let core = hall(NODES, FABRIC).await;
    build(&core, "alpha", "acme", 1).await;
    let node = names(&core, "alpha").await.first().unwrap().clone();
    let (hca, _, _) = port(&core, &node).await;
    apply_site(&core, "other", &site_with_other_ports(NODES, &hca))
        .await
        .unwrap();
    let (_, _, new) = port(&core, &node).await;
    assert_eq!(step(&core, "alpha").await, State::Degraded);
    for _ in 0..2 {
        read_without(&core, new).await;
        assert_eq!(step(&core, "alpha").await, State::Degraded);
        let fault =
            format!("{hca}: port {new} of the site file is not in the fabric, so it does not have the cluster's key");
        let node = NodeId::stored(node.as_str());
        assert_eq!(cluster(&core, "alpha").await.wait, Wait::LinkFault { node, fault });
    }
    prove(&core).await;
    assert_eq!(step(&core, "alpha").await, State::Ready);
    assert!(cluster(&core, "alpha").await.cluster.wanted.new_ports.is_empty());
}

#[tokio::test]
async fn a_site_without_a_port_of_a_cluster_is_refused() {
    let core = hall(NODES, FABRIC).await;
    build(&core, "alpha", "acme", 1).await;
    let node = names(&core, "alpha").await.first().unwrap().clone();
    let (hca, _, _) = port(&core, &node).await;
    let start = format!("{hca}: 0x");
    let lines: Vec<String> = site(NODES).lines().map(str::to_owned).collect();
    let without: Vec<String> = lines
        .iter()
        .filter(|line| !line.trim().starts_with(&start))
        .cloned()
        .collect();
    assert!(without.len() < lines.len());
    let refused = apply_site(&core, "without", &without.join("\n")).await;
    let refused = refused.unwrap_err().to_string();
    let why = format!("cluster alpha: the site file lacks port GUIDs of 1 node, {node} is the first");
    assert!(refused.contains(&why), "{refused}");
}

#[tokio::test]
async fn a_cluster_that_is_being_built_gets_the_ports_of_the_newest_site() {
    let core = hall(NODES, FABRIC).await;
    create_cluster(&core, "1", "alpha", spec("acme", 2)).await.unwrap();
    step(&core, "alpha").await;
    for node in names(&core, "alpha").await {
        check(&core, &node).await;
    }
    prove(&core).await;
    let node = names(&core, "alpha").await.first().unwrap().clone();
    let (hca, _, former) = port(&core, &node).await;
    apply_site(&core, "other", &site_with_other_ports(NODES, &hca))
        .await
        .unwrap();
    assert_eq!(
        step(&core, "alpha").await,
        State::Building,
        "the new ports are not proven"
    );
    assert_eq!(cluster(&core, "alpha").await.wait, Wait::Partition);
    let (_, _, new) = port(&core, &node).await;
    let members = members(&core).await;
    assert!(members.contains(&new) && !members.contains(&former), "{members:?}");
    prove(&core).await;
    assert_eq!(step(&core, "alpha").await, State::Validating);
}
