//! Ports that the site has for a cluster's nodes, and the ports of the cluster's partition.
//!
//! The site file confirms a replaced adapter. When a version of the site has another port GUID for a node of a cluster, the
//! partition gets the new port and loses the former one. Each step compares them, unless this process has already compared
//! this version of the partition with this version of the site.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rackwright_ground::core::Core;
use rackwright_ground::hall::{self, HallError};
use rackwright_ground::text::counted;
use rackwright_infiniband::Guid;
use rackwright_lifecycle::cluster::{Impaired, Member, NewPort, Standing, State};
use rackwright_lifecycle::{EventKind, NodeId, Timestamp};
use rackwright_planner::planner::NamedPlacement;
use rackwright_site::model::{Hca, Site};
use rackwright_store::{ClusterRecord, StoreError};

use super::partitions::{self, guids, loaded};
use super::reserve::{self, ReserveError, event};
use crate::clusters::Clusters;

/// Versions of the site and of the partitions.
type Versions = (i64, u64);

/// By the cluster's uid, the versions that agree.
#[derive(Debug, Default)]
pub(super) struct Compared(Mutex<HashMap<String, Versions>>);

impl Compared {
    fn has(&self, uid: &str, versions: Versions) -> bool {
        self.lock().get(uid) == Some(&versions)
    }

    fn put(&self, uid: &str, versions: Versions) {
        self.lock().insert(uid.to_owned(), versions);
    }

    fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Versions>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change of a partition's ports.
#[derive(Debug, PartialEq)]
struct PortChange {
    /// All ports of the partition after the change.
    ports: BTreeSet<Guid>,
    /// For people.
    change_text: String,
}

/// The ports of a node in the site, apart from ports that lead to a storage fabric.
fn ports_of<'a>(site: &'a Site, node: &str) -> Vec<(Guid, &'a Hca)> {
    let Some(id) = site.node_named(node) else {
        return Vec::new();
    };
    let ports = site.compute_ports(id);
    ports.filter_map(|(hca, guid)| Some((Guid::new(guid?)?, hca))).collect()
}

/// All nodes of a cluster, with its spares.
fn nodes_of(placement: &NamedPlacement) -> Vec<&String> {
    placement.nodes.iter().chain(&placement.spares).collect()
}

/// The change of a partition with the ports `present` that the site requires for these nodes. `None`: the site has the same
/// ports. A node in `leave` gets no port.
///
/// # Errors
/// A sentence with the nodes that lack a GUID in the site.
fn port_change(
    site: &Site,
    nodes: &[&String],
    leave: &BTreeSet<NodeId>,
    present: &BTreeSet<Guid>,
) -> Result<Option<PortChange>, String> {
    let (leaving, staying): (Vec<&String>, Vec<&String>) =
        nodes.iter().copied().partition(|node| leave.contains(node.as_str()));
    let mut ports = partitions::ports(site, staying.into_iter())?;
    for node in leaving {
        let of_node = ports_of(site, node).into_iter().map(|(port, _)| port);
        ports.extend(of_node.filter(|port| present.contains(port)));
    }
    if ports == *present {
        return Ok(None);
    }
    let mut new = Vec::new();
    for node in nodes {
        let of_node = ports_of(site, node).into_iter();
        let is_new = |(port, _): &(Guid, &Hca)| ports.contains(port) && !present.contains(port);
        new.extend(of_node.filter(is_new).map(|(port, hca)| (node.as_str(), port, hca)));
    }
    let former: Vec<Guid> = present.difference(&ports).copied().collect();
    let change_text = change_text(&new, &former);
    Ok(Some(PortChange { ports, change_text }))
}

/// The new and the former ports, the first of each by name.
fn change_text(new: &[(&str, Guid, &Hca)], former: &[Guid]) -> String {
    let leaves = match former {
        [] => String::new(),
        [port] => format!("port {port} leaves the partition"),
        [port, more @ ..] => format!("port {port} and {} leave the partition", counted(more.len(), "other")),
    };
    let [(node, port, hca), more @ ..] = new else {
        return format!("the site file has fewer ports: {leaves}");
    };
    let others = match more.len() {
        0 => String::new(),
        1 => ", nor does 1 other port".to_owned(),
        more => format!(", nor do {more} other ports"),
    };
    let and = if leaves.is_empty() { "" } else { "; " };
    let place = format!("{node}: port {port} of {} (rail {})", hca.name, hca.rail);
    format!("{place} is new in the site file and does not have the cluster's key yet{others}{and}{leaves}")
}

/// The change of the cluster's partition that the site requires, in words. `None`: there is none.
pub(super) async fn other_ports(core: &Core, record: &ClusterRecord) -> Result<Option<String>, ReserveError> {
    let is_over = matches!(record.cluster.state, State::Releasing | State::Released);
    if is_over || record.partition.is_none() || core.config.fabric.is_none() {
        core.feature::<Clusters>().compared.forget(&record.uid);
        return Ok(None);
    }
    let versions = (core.store.site_version().await?, record.partitions_version);
    if core.feature::<Clusters>().compared.has(&record.uid, versions) {
        return Ok(None);
    }
    match compare(core, record).await {
        Ok(change) => Ok(change),
        // The partition stays as it is.
        Err(HallError::Broken(why)) => {
            tracing::warn!(why, "the cluster's ports could not be compared with the site");
            Ok(None)
        }
        Err(other) => Err(other.into()),
    }
}

async fn compare(core: &Core, record: &ClusterRecord) -> Result<Option<String>, HallError> {
    let Some((version, site)) = core.sites.current(&core.store).await? else {
        return Ok(None);
    };
    let Some((key, members)) = loaded(core.store.partition_members(&record.uid).await)? else {
        return Ok(None);
    };
    let present = guids(key, &members)?;
    let placement = hall::placement_of(record)?;
    match port_change(&site, &nodes_of(&placement), &record.cluster.wanted.leave, &present) {
        Ok(Some(change)) => return Ok(Some(change.change_text)),
        Ok(None) => {}
        Err(why) => tracing::warn!(why, "the cluster keeps its ports"),
    }
    let versions = (version, record.partitions_version);
    core.feature::<Clusters>().compared.put(&record.uid, versions);
    Ok(None)
}

/// Makes the ports of the site the ports of the cluster's partition.
///
/// # Errors
/// The database failed, or a concurrent change won.
pub(super) async fn take(core: &Core, mut record: ClusterRecord, now: Timestamp) -> Result<(), ReserveError> {
    let site = core.sites.current(&core.store).await?;
    let (version, site) = site.ok_or(HallError::NoSite)?;
    let placement = hall::placement_of(&record)?;
    let mut tx = core.store.write().await?;
    tx.hall().await?;
    // The application of another version waits for the locked hall.
    if core.store.site_version().await? != version {
        let (kind, id) = ("site", String::new());
        return Err(StoreError::Conflict { kind, id }.into());
    }
    let Some(fabric) = reserve::fabric_of(core, &mut tx, &record.uid).await? else {
        return Ok(());
    };
    let Some(present) = fabric.ports_of(&record.uid) else {
        return Ok(());
    };
    let change = port_change(&site, &nodes_of(&placement), &record.cluster.wanted.leave, present);
    let Some(PortChange { ports, change_text }) = change.map_err(ReserveError::Refused)? else {
        return Ok(());
    };
    reserve::hold_ports(fabric, &mut tx, &site, &mut record, ports).await?;
    tx.save_cluster(&mut record, now).await?;
    let message = format!(
        "the partition of {} gets the ports of the site: {change_text}",
        record.id
    );
    tx.add_event(&event(&record.id, EventKind::ClusterPorts, message, now))
        .await?;
    core.commit(tx).await?;
    core.feature::<Clusters>().partitions.notify_one();
    Ok(())
}

/// Notes the ports that a change from the ports `present` gives to nodes that the cluster already has, and forgets ports
/// that leave.
///
/// # Errors
/// The stored placement does not parse.
pub(super) fn note_new(
    record: &mut ClusterRecord,
    site: &Site,
    present: Option<&BTreeSet<Guid>>,
    ports: &BTreeSet<Guid>,
) -> Result<(), HallError> {
    // The first ports of a cluster are no change.
    let Some(present) = present else { return Ok(()) };
    let placement = hall::placement_of(record)?;
    let mut noted = BTreeMap::new();
    for node in nodes_of(&placement) {
        for (guid, hca) in ports_of(site, node) {
            let port = guid.to_string();
            let is_new = !present.contains(&guid) || record.cluster.wanted.new_ports.contains_key(&port);
            if is_new && ports.contains(&guid) {
                let (node, hca) = (node.clone(), hca.name.to_string());
                noted.insert(port, NewPort { node, hca });
            }
        }
    }
    record.cluster.wanted.new_ports = noted;
    Ok(())
}

/// The new ports that the last reading did not find. Enters them at nodes in use: without them the cluster is not in order.
pub(super) fn mark_unread(record: &ClusterRecord, absent: &[String], members: &mut [Member]) -> BTreeSet<String> {
    let mut unread = BTreeSet::new();
    let new_ports = record.cluster.wanted.new_ports.iter();
    for (port, place) in new_ports.filter(|(port, _)| absent.contains(port)) {
        unread.insert(port.clone());
        let is_it = |member: &&mut Member| member.node == place.node && member.standing == Standing::HandedOver;
        if let Some(member) = members.iter_mut().find(is_it)
            && member.impaired.is_none()
        {
            let why = format!(
                "{}: port {port} of the site file is not in the fabric, so it does not have the cluster's key",
                place.hca
            );
            let (since, seen) = (record.cluster.since, record.cluster.since);
            member.impaired = Some(Impaired { since, seen, why });
        }
    }
    unread
}

#[cfg(test)]
mod tests {
    use rackwright_site::generate::{ReferenceSku, Request, site_file};
    use rackwright_store::SiteFile;

    use super::*;

    fn site() -> Site {
        let text = site_file(&Request::new(ReferenceSku::DgxH100, 32)).unwrap();
        let name = "site.yaml".to_owned();
        hall::read(&[SiteFile { name, text }]).site.unwrap()
    }

    /// The change for the first two nodes of the site, and the GUIDs of their ports in it.
    fn change(site: &Site, leave: &[usize], present: &BTreeSet<Guid>) -> Result<Option<PortChange>, String> {
        let names: Vec<String> = site.nodes.iter().take(2).map(|node| node.name.to_string()).collect();
        let leave = leave.iter().map(|at| NodeId::stored(names[*at].as_str())).collect();
        port_change(site, &names.iter().collect::<Vec<_>>(), &leave, present)
    }

    fn of(site: &Site, at: usize) -> BTreeSet<Guid> {
        let ports = ports_of(site, &site.nodes[at].name).into_iter();
        ports.map(|(port, _)| port).collect()
    }

    #[test]
    fn a_partition_changes_only_where_the_site_has_another_port() {
        let before = site();
        let present = &of(&before, 0) | &of(&before, 1);
        assert_eq!((present.len(), change(&before, &[], &present)), (16, Ok(None)));

        let mut after = site();
        let former = Guid::new(after.nodes[1].port_guids[3].unwrap()).unwrap();
        let new = Guid::new(0xabc1).unwrap();
        after.nodes[1].port_guids[3] = Some(new.get());
        let changed = change(&after, &[], &present).unwrap().unwrap();
        assert_eq!(changed.ports, &of(&after, 0) | &of(&after, 1));
        let (name, hca) = (
            &after.nodes[1].name,
            &after.sku_of(after.node_named(&after.nodes[1].name).unwrap()).hcas[3],
        );
        let change_text = format!(
            "{name}: port {new} of {} (rail {}) is new in the site file and does not have the cluster's key yet; port \
             {former} leaves the partition",
            hca.name, hca.rail
        );
        assert_eq!(changed.change_text, change_text);

        after.nodes[1].port_guids[4] = Some(0xabc2);
        after.nodes[1].port_guids[5] = Some(0xabc3);
        let change_text = change(&after, &[], &present).unwrap().unwrap().change_text;
        assert!(
            change_text.contains("key yet, nor do 2 other ports; port "),
            "{change_text}"
        );
        assert!(
            change_text.ends_with(" and 2 others leave the partition"),
            "{change_text}"
        );
    }

    #[test]
    fn a_node_that_leaves_gets_no_port_and_keeps_the_ports_that_it_has() {
        let mut site = site();
        let present = &of(&site, 0) | &of(&site, 1);
        assert_eq!(change(&site, &[1], &present), Ok(None));
        // Its ports are out of the partition already.
        assert_eq!(change(&site, &[1], &of(&site, 0)), Ok(None));
        let former = of(&site, 1);
        site.nodes[1].port_guids[3] = Some(0xabc1);
        let changed = change(&site, &[1], &present).unwrap().unwrap();
        assert_eq!(changed.ports.len(), 15);
        assert!(former.difference(&changed.ports).count() == 1, "{changed:?}");
        assert!(
            changed.change_text.starts_with("the site file has fewer ports: port "),
            "{changed:?}"
        );
    }

    #[test]
    fn a_site_without_a_guid_changes_no_partition() {
        let mut site = site();
        let present = &of(&site, 0) | &of(&site, 1);
        site.nodes[1].port_guids[3] = None;
        let why = change(&site, &[], &present).unwrap_err();
        assert!(why.starts_with("the site file lacks port GUIDs of 1 node, "), "{why}");
    }

    #[test]
    fn a_new_port_that_is_absent_impairs_its_node_once_the_customer_has_it() {
        let mut record = rackwright_ground::testing::cluster("a");
        let port = |node: &str| NewPort {
            node: NodeId::stored(node).to_string(),
            hca: "mlx5_3".into(),
        };
        record.cluster.wanted.new_ports = [
            ("0x1".to_owned(), port("n1")),
            ("0x2".to_owned(), port("n2")),
            ("0x3".to_owned(), port("n3")),
        ]
        .into();
        let member = |node: &str, standing: Standing| Member {
            node: NodeId::stored(node),
            standing,
            build: 1,
            is_new: false,
            is_writable: false,
            is_failed: false,
            leaf: 0,
            impaired: None,
        };
        let mut members = vec![
            member("n1", Standing::HandedOver),
            member("n2", Standing::HandedOver),
            member("n3", Standing::Coming),
        ];
        let absent = ["0x2", "0x3", "0x4"].map(str::to_owned);
        let unread = mark_unread(&record, &absent, &mut members);
        assert_eq!(unread, ["0x2", "0x3"].map(str::to_owned).into());
        let impaired: Vec<bool> = members.iter().map(|member| member.impaired.is_some()).collect();
        assert_eq!(impaired, [false, true, false]);
        let why = &members[1].impaired.as_ref().unwrap().why;
        assert!(
            why.starts_with("mlx5_3: port 0x2 of the site file is not in the fabric"),
            "{why}"
        );
        // A fault that the comparison with the site found has the better words.
        members[1].impaired.as_mut().unwrap().why = "another adapter is in its place".into();
        mark_unread(&record, &absent, &mut members);
        let why = &members[1].impaired.as_ref().unwrap().why;
        assert_eq!(why, "another adapter is in its place");
    }
}
