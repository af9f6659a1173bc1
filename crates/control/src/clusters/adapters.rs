//! Replaced adapters that need no site file from an operator: agent, BMC and fabric agree about the new port.
//!
//! With `fabric.adapters.confirm: agreement`, each comparison of the fabric with the site examines the adapters in the
//! places of planned ones, of nodes in clusters. Where all sources agree, a version of the site with the new port follows.
//! From there on all is as after `site apply`: the cluster is degraded until the port was read with its key.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rackwright_api::v1::Inventory;
use rackwright_ground::audit::local_record;
use rackwright_ground::bmc::BmcError;
use rackwright_ground::clock;
use rackwright_ground::config::fabric::Adapters;
use rackwright_ground::core::Core;
use rackwright_ground::hall::{self, HallError, confirmed, confirmed::ConfirmedAdapter};
use rackwright_ground::stored;
use rackwright_ground::text::counted;
use rackwright_infiniband::Guid;
use rackwright_lifecycle::{EventKind, NodeId, Reading, Timestamp, seconds};
use rackwright_planner::watch::ReplacedPort;
use rackwright_site::model::Site;
use rackwright_store::{EventRow, NodeRecord, Scope, SiteRow, StoreError};

use super::Clusters;
use super::faults::FabricComparison;
use super::reserve::ReserveError;

/// Most ports that one comparison examines. Each takes two reads of the database.
const EXAMINED_MAX: usize = 256;
/// Most BMCs that are read at once.
const BMCS_MAX: usize = 8;
/// Longest reading of a BMC's adapters.
const BMC_LIMIT: Duration = Duration::from_secs(60);
/// Time until the adapters of a BMC are read again, in seconds.
const BMC_AGAIN_S: i64 = 900;
/// The name in the site's versions.
const BY: &str = "rackwrightd";

/// The port GUIDs that a BMC lists.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BmcPorts {
    /// The BMC could not be read, with the reason.
    Unread(String),
    /// All listed port GUIDs. Empty: the BMC lists none.
    Listed(BTreeSet<Guid>),
}

/// What is known of a port in the place of a planned one.
#[derive(Debug, Clone, Copy)]
struct Evidence<'a> {
    former: Guid,
    port: Guid,
    /// The fabric has the port at the leaf port that the site has for the former one.
    is_in_place: bool,
    /// The site or the fabric has the same port in another place.
    is_elsewhere: bool,
    /// The accepted inventory of the last inspection.
    accepted: Option<&'a Inventory>,
    /// The agent's inventory from the last boot of the agent.
    reported: Option<&'a Inventory>,
}

/// Why a new port is not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Disagreement {
    #[error("port {0} is in the site or in the fabric a second time")]
    Elsewhere(Guid),
    #[error("the fabric does not have port {0} at the leaf port of the former one")]
    Place(Guid),
    #[error("no inspection has accepted the former port {0}, so its PCI slot is unknown")]
    NoSlot(Guid),
    #[error("the agent has not reported since its last boot; it reports when the node is imaged or inspected")]
    NoReport,
    #[error("the agent still reports the former port {0}")]
    Former(Guid),
    #[error("the agent's last report is without port {0}; the agent reports when the node is imaged or inspected")]
    NotReported(Guid),
    #[error("the agent reports port {port} at PCI address {slot}, but the former port was at {former}")]
    Slot { port: Guid, slot: String, former: String },
    #[error("the adapters of the BMC could not be read: {0}")]
    BmcUnread(String),
    #[error("the adapters of the BMC are not read yet")]
    BmcWaits,
    #[error("the BMC lists no port GUIDs, which is no agreement")]
    BmcSilent,
    #[error("the BMC still lists the former port {0}")]
    BmcFormer(Guid),
    #[error("the BMC does not list port {0}")]
    BmcOther(Guid),
}

/// Whether site, fabric and agent agree.
fn agent_and_fabric(evidence: &Evidence<'_>) -> Result<(), Disagreement> {
    let (former, port) = (evidence.former, evidence.port);
    if evidence.is_elsewhere {
        return Err(Disagreement::Elsewhere(port));
    }
    if !evidence.is_in_place {
        return Err(Disagreement::Place(port));
    }
    let accepted = evidence.accepted.and_then(|accepted| slot(accepted, former));
    let accepted = accepted.ok_or(Disagreement::NoSlot(former))?;
    let reported = evidence.reported.ok_or(Disagreement::NoReport)?;
    if ports_of(reported).any(|(known, _)| known == former) {
        return Err(Disagreement::Former(former));
    }
    let slot = slot(reported, port).ok_or(Disagreement::NotReported(port))?;
    if slot != accepted {
        let (slot, former) = (slot.to_owned(), accepted.to_owned());
        return Err(Disagreement::Slot { port, slot, former });
    }
    Ok(())
}

/// Whether the BMC agrees. A BMC without port GUIDs agrees with nothing.
fn bmc(former: Guid, port: Guid, ports: &BmcPorts) -> Result<(), Disagreement> {
    match ports {
        BmcPorts::Unread(why) => Err(Disagreement::BmcUnread(why.clone())),
        BmcPorts::Listed(ports) if ports.is_empty() => Err(Disagreement::BmcSilent),
        BmcPorts::Listed(ports) if ports.contains(&former) => Err(Disagreement::BmcFormer(former)),
        BmcPorts::Listed(ports) if !ports.contains(&port) => Err(Disagreement::BmcOther(port)),
        BmcPorts::Listed(_) => Ok(()),
    }
}

/// The ports of an inventory, with the PCI addresses of their adapters.
fn ports_of(inventory: &Inventory) -> impl Iterator<Item = (Guid, &str)> {
    let ports = inventory.hcas.iter().flat_map(|hca| {
        let guids = hca.ports.iter().filter_map(|port| port.port_guid.parse::<Guid>().ok());
        guids.map(move |guid| (guid, hca.pci_address.as_str()))
    });
    ports.filter(|(_, slot)| !slot.is_empty())
}

/// The PCI address of the adapter with a port.
fn slot(inventory: &Inventory, port: Guid) -> Option<&str> {
    let mut ports = ports_of(inventory);
    ports.find(|(known, _)| *known == port).map(|(_, slot)| slot)
}

/// By node: when the reading of its BMC began, and what the BMC listed. `None`: it is being read.
type Readings = HashMap<NodeId, (Timestamp, Option<BmcPorts>)>;

/// Recent readings of BMCs. They run in parallel with the comparisons.
#[derive(Debug, Default)]
pub(super) struct Listings(Mutex<Readings>);

/// The state of the reading of a BMC's ports.
enum Listing {
    /// They were read.
    Known(BmcPorts),
    /// They have to be read now.
    Due,
    /// They are being read, or other BMCs are read first.
    Waits,
}

impl Listings {
    /// The caller begins the reading that is due.
    fn look(&self, node: &NodeId, now: Timestamp) -> Listing {
        let mut readings = self.lock();
        readings.retain(|_, (at, _)| now.since(*at) < seconds(BMC_AGAIN_S));
        match readings.get(node) {
            Some((_, Some(ports))) => Listing::Known(ports.clone()),
            Some((_, None)) => Listing::Waits,
            None if readings.values().filter(|(_, ports)| ports.is_none()).count() >= BMCS_MAX => Listing::Waits,
            None => {
                readings.insert(node.clone(), (now, None));
                Listing::Due
            }
        }
    }

    fn put(&self, node: &NodeId, ports: BmcPorts, now: Timestamp) {
        self.lock().insert(node.clone(), (now, Some(ports)));
    }

    fn lock(&self) -> MutexGuard<'_, Readings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Confirms the replaced adapters of a comparison that agent, BMC and fabric agree about, with a new version of the site.
/// The text of each other fault gets the first disagreement.
///
/// # Errors
/// The database failed, or stored data do not parse.
pub(super) async fn confirm(
    core: &Arc<Core>,
    settings: &Adapters,
    (version, site): (i64, &Site),
    found: &mut FabricComparison,
) -> Result<(), ReserveError> {
    if !settings.by_agreement() {
        return Ok(());
    }
    let now = clock::now();
    let elsewhere = elsewhere(site, found);
    let (mut examined, mut confirmed) = (0, Vec::new());
    for fault in found.faults.values_mut() {
        let clusters = &found.clusters;
        let mut why = None;
        let ours = fault
            .replaced
            .iter()
            .filter(|one| clusters.contains_key(one.node.as_str()));
        for one in ours.take(EXAMINED_MAX - examined) {
            examined += 1;
            match examine(core, one, elsewhere.contains(&one.port)).await? {
                Ok(()) => confirmed.push(adapter(one, now)),
                Err(disagreement) => why = why.or(Some(disagreement)),
            }
        }
        if let Some(why) = why {
            fault.text.push_str(&format!("; not confirmed by agreement: {why}"));
        }
    }
    if confirmed.is_empty() {
        return Ok(());
    }
    match store(core, version, &confirmed, now).await {
        // Another version of the site was applied meanwhile: it is compared at once.
        Err(ReserveError::Store(StoreError::Conflict { .. })) => Ok(()),
        done => done,
    }
}

fn adapter(one: &ReplacedPort, at: Timestamp) -> ConfirmedAdapter {
    ConfirmedAdapter {
        node: one.node.clone(),
        hca: one.hca.clone(),
        former: one.former,
        port: one.port,
        at,
    }
}

/// New ports that the site has for another adapter or switch, or that are in two places of the fabric.
fn elsewhere(site: &Site, found: &FabricComparison) -> BTreeSet<Guid> {
    let nodes = site.nodes.iter().flat_map(|node| node.port_guids.iter().flatten());
    let switches = site.switches.iter().filter_map(|switch| switch.guid.as_ref());
    let known: BTreeSet<Guid> = nodes.chain(switches).filter_map(|guid| Guid::new(*guid)).collect();
    let mut places: BTreeMap<Guid, usize> = BTreeMap::new();
    for one in found.faults.values().flat_map(|fault| &fault.replaced) {
        *places.entry(one.port).or_default() += 1;
    }
    let is_elsewhere =
        |(port, places): &(Guid, usize)| *places > 1 || known.contains(port) || found.twice.contains(port);
    places.into_iter().filter(is_elsewhere).map(|(port, _)| port).collect()
}

/// The agreement about one port. The BMC is read if all others agree, and counts at a later comparison.
async fn examine(
    core: &Arc<Core>,
    one: &ReplacedPort,
    is_elsewhere: bool,
) -> Result<Result<(), Disagreement>, ReserveError> {
    let node = NodeId::stored(one.node.as_str());
    let record = core.store.node(&Scope::Site, &node).await?;
    let accepted = core.store.expected_inventory(&node).await?;
    let reported = match is_of_last_boot(&record) {
        true => core.store.inventory(&node).await?,
        false => None,
    };
    let accepted = stored::inventory(&one.node, accepted.as_deref())?;
    let reported = stored::inventory(&one.node, reported.as_deref())?;
    let evidence = Evidence {
        former: one.former,
        port: one.port,
        is_in_place: one.is_in_place,
        is_elsewhere,
        accepted: accepted.as_ref(),
        reported: reported.as_ref(),
    };
    if let Err(disagreement) = agent_and_fabric(&evidence) {
        return Ok(Err(disagreement));
    }
    match core.feature::<Clusters>().listings.look(&node, clock::now()) {
        Listing::Known(ports) => return Ok(bmc(one.former, one.port, &ports)),
        Listing::Waits => {}
        Listing::Due => {
            let reader = core.clone();
            core.spawn(async move {
                let ports = bmc_ports(&reader, &record).await;
                reader
                    .feature::<Clusters>()
                    .listings
                    .put(&record.id, ports, clock::now());
            });
        }
    }
    Ok(Err(Disagreement::BmcWaits))
}

/// Whether the stored inventory is from the last boot of the agent. Only an admitted agent's report is stored.
fn is_of_last_boot(record: &NodeRecord) -> bool {
    match (&record.readings.inventory, &record.readings.boot) {
        (Reading::Known { at, .. }, Some((_, booted_at))) => at >= booted_at,
        _ => false,
    }
}

async fn bmc_ports(core: &Core, record: &NodeRecord) -> BmcPorts {
    let description = |error: BmcError| BmcPorts::Unread(error.description(&record.spec.bmc_address));
    let read = async {
        let client = core.bmcs.client(record, &core.keys.sealer).await.map_err(description)?;
        match client.adapters().await {
            Ok((adapters, gaps)) => {
                for gap in gaps.iter().take(3) {
                    let (path, why) = (&gap.path, &gap.why);
                    tracing::info!(node = %record.id, path, why, "adapters of the BMC could not be read");
                }
                let ports = adapters.iter().flat_map(|adapter| &adapter.port_guids);
                Ok(BmcPorts::Listed(ports.filter_map(|port| port.parse().ok()).collect()))
            }
            Err(error) => {
                drop(client);
                core.bmcs.forget(&record.id).await;
                Err(description(BmcError::Redfish(error)))
            }
        }
    };
    match tokio::time::timeout(BMC_LIMIT, read).await {
        Ok(Ok(ports) | Err(ports)) => ports,
        Err(_) => BmcPorts::Unread(format!("it did not answer within {} s", BMC_LIMIT.as_secs())),
    }
}

/// Adds a version of the site with these adapters, if `version` is the newest.
async fn store(core: &Core, version: i64, confirmed: &[ConfirmedAdapter], now: Timestamp) -> Result<(), ReserveError> {
    let Some(former) = core.store.site().await?.filter(|row| row.version == version) else {
        return Ok(());
    };
    let files = confirmed::with(&former.files, confirmed);
    let files = files.map_err(|e| HallError::Broken(format!("the confirmed adapters cannot be written: {e}")))?;
    let row = SiteRow {
        version: version + 1,
        uid: former.uid,
        digest: hall::digest(&files),
        files,
        applied_by: BY.to_owned(),
        applied_at: now,
    };
    let mut tx = core.store.write().await?;
    let mut hall = tx.hall().await?;
    tx.insert_site(&row).await?;
    tx.save_hall(&mut hall).await?;
    let mut messages = Vec::new();
    for one in confirmed {
        let message = format!(
            "node {}: port {} of {} is confirmed in place of {}: agent, BMC and fabric agree",
            one.node, one.port, one.hca, one.former
        );
        tx.add_event(&event(one, message.clone(), now)).await?;
        messages.push(message);
    }
    let message = format!(
        "version {} of the site has {}: {}",
        row.version,
        counted(confirmed.len(), "confirmed adapter"),
        messages.join("; ")
    );
    let record = local_record(None, "confirm-adapters", "site", &message);
    let added = core.audit.add(&mut tx, &core.keys.signer, record).await?;
    core.commit(tx).await?;
    core.audit.stored(&added);
    core.store.wake_clusters(now).await?;
    core.clusters_due.notify_one();
    Ok(())
}

fn event(one: &ConfirmedAdapter, message: String, at: Timestamp) -> EventRow {
    let attributes = [
        ("node", one.node.clone()),
        ("hca", one.hca.clone()),
        ("former", one.former.to_string()),
        ("port", one.port.to_string()),
    ];
    EventRow {
        at,
        kind: EventKind::FabricAdapterConfirmed,
        target: "fabric".to_owned(),
        message,
        attributes: attributes.map(|(name, value)| (name.to_owned(), value)).into(),
        ..EventRow::default()
    }
}

#[cfg(test)]
#[path = "adapters_tests.rs"]
mod tests;
