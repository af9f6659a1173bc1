//! Explains the network state of a node.

use rackwright_ground::core::Core;
use rackwright_lifecycle::{Reading, Timestamp};
use rackwright_store::{NodeRecord, StoreError};

use super::ports;

/// The state as a sentence, and the time of the reading.
pub async fn of_node(core: &Core, record: &NodeRecord) -> Result<(String, Option<Timestamp>), StoreError> {
    if core.config.ethernet.by_hand {
        return Ok((
            "separated by hand: the switch ports are neither set nor read".to_owned(),
            None,
        ));
    }
    if core.config.ethernet.managed().is_none() {
        return Ok(("unknown: the settings name no switches".to_owned(), None));
    }
    let site = super::applied_site(core).await?;
    let ports = match site.and_then(|site| ports::of_node(site.as_deref(), &record.id)) {
        Ok(ports) => ports,
        Err(fault) => return Ok((format!("not proven: {fault}"), None)),
    };
    let named = ports
        .iter()
        .flat_map(|(switch, ports)| ports.iter().map(move |port| format!("{switch}/{port}")));
    let named = named.collect::<Vec<_>>().join(", ");
    let row = core.store.node_network(&record.id).await?;
    let wanted = row.map_or_else(String::new, |row| {
        format!("{}, VLAN {}", row.network.as_str(), row.vlan)
    });
    Ok(match &record.readings.network {
        Reading::Known { at, .. } => (format!("{wanted}: {named} proven"), Some(*at)),
        Reading::Unknown { since } => (format!("not proven: {named}; wanted: {wanted}"), Some(*since)),
        Reading::Never => (format!("never read: {named}"), None),
    })
}
