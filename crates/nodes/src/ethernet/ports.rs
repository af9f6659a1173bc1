//! The ports of one node: finds them in the site file, moves them to a network, and reads them back.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_ground::clock;
use rackwright_ground::config::ethernet::Managed;
use rackwright_ground::core::Core;
use rackwright_lifecycle::{Network, NodeId};
use rackwright_ports::{Access, SwitchConfig, Version, report};
use rackwright_site::model::Site;
use rackwright_store::{NodeRecord, StoreError};

use crate::ethernet::Switches;

/// Ports by switch.
pub type Ports = BTreeMap<String, BTreeSet<String>>;

/// Why the ports of a node are not in the wanted network.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A sentence for an operator: the switch, the port and what to do.
    #[error("{0}")]
    Explained(String),
}

/// The ports of a node in the site file.
///
/// # Errors
/// A sentence that names what the site file lacks.
pub fn of_node(site: Option<&Site>, node: &NodeId) -> Result<Ports, String> {
    let site =
        site.ok_or("no site file is applied, so the switch ports of the node are unknown: `rackwright site apply`")?;
    let id = site
        .node_named(node.as_str())
        .ok_or_else(|| format!("the site file has no node {node}, so its switch ports are unknown"))?;
    let mut ports = Ports::new();
    for port in &site.node(id).ethernet {
        let of_switch = ports.entry(port.switch.to_string()).or_default();
        of_switch.insert(port.port.to_string());
    }
    if ports.is_empty() {
        return Err(format!(
            "the site file names no switch port of {node}: add `ethernet` to the node"
        ));
    }
    Ok(ports)
}

/// Moves all ports of a node to a network, and reads them back. A failure at one switch does not stop the others.
///
/// # Errors
/// A port is not in the network, or its network is unknown.
pub async fn move_to(
    core: &Core,
    managed: Managed<'_>,
    record: &NodeRecord,
    network: Network,
) -> Result<(), MoveError> {
    let site = core.sites.current(&core.store).await;
    let site = site.map_err(|error| MoveError::Explained(error.to_string()))?;
    let ports = of_node(site.as_ref().map(|(_, site)| &**site), &record.id).map_err(MoveError::Explained)?;
    let (vlan, version) = store_wanted_network(core, managed, record, network).await?;
    let access = managed.access(network, vlan);
    let mut faults = Vec::new();
    for (switch, ports) in &ports {
        if let Err(fault) = on_switch(core, switch, ports, access, version).await {
            faults.push(fault);
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(MoveError::Explained(faults.join("; "))),
    }
}

async fn on_switch(
    core: &Core,
    name: &str,
    ports: &BTreeSet<String>,
    access: Access,
    version: Version,
) -> Result<(), String> {
    let switch = core.feature::<Switches>().0.get(name);
    let switch =
        switch.ok_or_else(|| format!("switch {name} is not in the settings: add it to `ethernet.switches`"))?;
    let config = SwitchConfig {
        version,
        ports: ports.iter().map(|port| (port.clone(), access)).collect(),
    };
    let _turn = switch.room.acquire().await.map_err(|error| error.to_string())?;
    let names = ports.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let applied = switch.driver.apply(&config).await;
    let applied = applied.map_err(|error| format!("{} (ports {names})", report(&error)))?;
    let (changed, operational) = (applied.changed, applied.operational);
    tracing::info!(switch = name, ports = names, %access, changed, operational, "switch ports proven");
    Ok(())
}

/// The owner of the VLAN for a claimed node's ports: its cluster, else its customer, else the node alone.
fn owner(record: &NodeRecord) -> Option<String> {
    let claim = record.node.claim.as_ref()?;
    Some(match (&claim.cluster, claim.customer.as_str()) {
        (Some(cluster_claim), customer) => format!("cluster {} of {customer}", cluster_claim.cluster),
        (None, "") => format!("node {}", record.id),
        (None, customer) => format!("customer {customer}"),
    })
}

/// Stores the wanted network, with a VLAN for the node's owner. Returns the VLAN and the version of the wish.
async fn store_wanted_network(
    core: &Core,
    managed: Managed<'_>,
    record: &NodeRecord,
    network: Network,
) -> Result<(u16, Version), MoveError> {
    let now = clock::now();
    let mut tx = core.store.write().await?;
    let vlan = match managed.vlan_of(network) {
        Some(vlan) => vlan,
        None => {
            let owner = owner(record).ok_or_else(|| MoveError::Explained("the node has no owner".into()))?;
            let (first, last) = managed.customers();
            let given = tx.vlan_of(&owner, (first, last), now).await?;
            given.ok_or_else(|| {
                MoveError::Explained(format!(
                    "no VLAN of ethernet.customers ({first}-{last}) is free for {owner}: widen the range; a VLAN is free \
                     again only after every switch was read without that VLAN"
                ))
            })?
        }
    };
    let step = tx.request_network(&record.id, network, vlan, now).await?;
    core.commit(tx).await?;
    let generation = record.node.generation;
    Ok((vlan, Version { generation, step }))
}

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;
    use rackwright_lifecycle::State;
    use rackwright_lifecycle::node::ClusterClaim;

    use super::*;

    #[test]
    fn a_cluster_has_a_network_of_its_own_and_a_customers_other_nodes_share_one() {
        let mut record = testing::node("n1", State::Validating, Some("b3-1"));
        assert_eq!(owner(&record).unwrap(), "node n1");
        let claim = record.node.claim.as_mut().unwrap();
        claim.customer = "acme".into();
        assert_eq!(owner(&record).unwrap(), "customer acme");
        let claim = record.node.claim.as_mut().unwrap();
        claim.cluster = Some(ClusterClaim {
            cluster: "c1".into(),
            let_go: None,
            build: 0,
        });
        assert_eq!(owner(&record).unwrap(), "cluster c1 of acme");
        record.node.claim = None;
        assert_eq!(owner(&record), None);
    }

    #[test]
    fn a_node_without_known_ports_is_refused_with_advice() {
        assert!(
            of_node(None, &"n1".into())
                .unwrap_err()
                .contains("rackwright site apply")
        );
        let site = Site::default();
        assert!(of_node(Some(&site), &"n1".into()).unwrap_err().contains("no node n1"));
    }
}
