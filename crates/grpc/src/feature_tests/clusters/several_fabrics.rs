//! Clusters of a site with named fabrics, and settings that have managers for some of them.

use std::collections::BTreeSet;

use rackwright_ground::clock;
use rackwright_ground::testing::TestCore;
use rackwright_infiniband::Guid;
use rackwright_lifecycle::cluster::{State, Wait};

use super::{check, cluster, fabric, hall, names, site, spec, step, store_fabric};
use crate::test_calls::{apply_site, create_cluster};

const NODES: usize = 32;

/// Settings with a manager for this fabric.
fn manager_of(fabric: &str) -> String {
    format!(
        "fabric: {{managers: {{{fabric}: {{opensm: {{partitions: /nowhere/p, log: /nowhere/l, pid_file: /nowhere/pid}}}}}}}}\n"
    )
}

/// The site file with all switches in this fabric.
fn site_in(fabric: &str) -> String {
    let (plain, speed) = (site(NODES), "\n  speed: NDR\n");
    assert!(plain.contains(speed), "{plain}");
    let switches = plain.replace(speed, &format!("{speed}  fabric: {fabric}\n"));
    format!("{switches}---\nfabrics: [{{name: {fabric}}}]\n")
}

/// A hall with a site in fabric east, and a manager of this fabric.
async fn hall_of_east(managed: &str) -> TestCore {
    let core = hall(NODES, &manager_of(managed)).await;
    apply_site(&core, "east", &site_in("east")).await.unwrap();
    core
}

#[tokio::test]
async fn a_cluster_in_a_fabric_without_a_manager_is_refused_before_anything_is_reserved() {
    let core = hall_of_east("west").await;
    let refused = create_cluster(&core, "1", "alpha", spec("bolt", 4)).await.unwrap_err();
    let why = format!(
        "{NODES} nodes of dgx-h100 cannot be used: compute fabric east has no manager: add `fabric.managers.east` to the \
         settings of rackwrightd"
    );
    assert!(refused.to_string().contains(&why), "{refused}");
    assert_eq!(core.store.free_nodes().await.unwrap().len(), NODES);
    assert!(core.store.fabric().await.unwrap().is_none(), "no key was given");

    let core = hall_of_east("east").await;
    create_cluster(&core, "1", "alpha", spec("bolt", 4)).await.unwrap();
    assert_eq!(names(&core, "alpha").await.len(), 4);
}

#[tokio::test]
async fn the_wait_of_a_cluster_without_a_fabric_manager_names_the_missing_setting() {
    let core = hall_of_east("east").await;
    create_cluster(&core, "1", "alpha", spec("bolt", 4)).await.unwrap();
    step(&core, "alpha").await;
    for node in names(&core, "alpha").await {
        check(&core, &node).await;
    }
    apply_site(&core, "west", &site_in("west")).await.unwrap();
    let (_, site) = core.sites.current(&core.store).await.unwrap().unwrap();
    let mut ports = BTreeSet::new();
    for node in names(&core, "alpha").await {
        let id = site.node_named(&node).unwrap();
        ports.extend(
            site.node(id)
                .port_guids
                .iter()
                .flatten()
                .filter_map(|guid| Guid::new(*guid)),
        );
    }
    let mut fabric = fabric(&core).await;
    fabric.record_proof(fabric.state.wanted, ports, None, clock::now());
    store_fabric(&core, &fabric).await;
    assert_eq!(step(&core, "alpha").await, State::Building);
    let wait = cluster(&core, "alpha").await.wait;
    let why = "; compute fabric west has no manager: add `fabric.managers.west` to the settings of rackwrightd";
    let is_named = matches!(&wait, Wait::PartitionFault { fault } if fault.ends_with(why));
    assert!(is_named, "{wait:?}");
}
