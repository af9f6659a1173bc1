//! Reads every switch periodically. A port outside its proven network adds an event, and the node moves the port back.
//! A VLAN becomes free when its owner has no port left and a later reading of all switches finds the VLAN on no port.
//!
//! One replica does this, chosen by rendezvous hashing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rackwright_ground::clock;
use rackwright_ground::config::ethernet::Managed;
use rackwright_ground::core::Core;
use rackwright_ground::polling::{self, Poller, Readings};
use rackwright_ground::share::Share;
use rackwright_ground::share::alive_since;
use rackwright_lifecycle::{EventKind, Reading, Timestamp};
use rackwright_ports::{Access, PortState, SwitchReading, Vlan, report};
use rackwright_site::model::Site;
use rackwright_store::{EventRow, NodeNetwork, StoreError};
use tokio::task::JoinError;
use tokio::time::Instant;

use super::{applied_site, ports};
use crate::ethernet::Switches;

/// The key that decides which replica watches.
const WATCH: &str = "switch ports";
/// Switches that are read in parallel.
const AT_ONCE: usize = 32;
/// Pause between two checks of what is due.
const TICK: Duration = Duration::from_millis(200);

/// Runs until the core stops, if the control plane sets ports.
pub async fn run(core: Arc<Core>) {
    if core.config.ethernet.managed().is_none() {
        return core.stop.cancelled().await;
    }
    let stop = core.stop.clone();
    polling::run(&stop, TICK, &mut Watch::new(core)).await;
}

/// The watch of one process.
struct Watch {
    core: Arc<Core>,
    /// Switches with a failed last reading.
    silent: BTreeSet<String>,
    /// The switches of the present scan that are still to be read.
    left: Vec<String>,
    /// The present scan.
    scan: Option<SwitchScan>,
    next_scan_at: Instant,
}

/// One reading of all switches. Switches that did not answer are missing.
struct SwitchScan {
    begun: Timestamp,
    readings: BTreeMap<String, SwitchReading>,
    /// Number of switches that are still being read.
    waiting: usize,
    /// Every switch answered, and its reading shows its behaviour.
    is_whole: bool,
}

impl Watch {
    fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            silent: BTreeSet::new(),
            left: Vec::new(),
            scan: None,
            next_scan_at: Instant::now(),
        }
    }

    /// Begins a scan when the next one is due and belongs to this replica.
    async fn begin_scan(&mut self) -> Result<(), StoreError> {
        let Some(managed) = self.core.config.ethernet.managed() else {
            return Ok(());
        };
        if Instant::now() < self.next_scan_at {
            return Ok(());
        }
        self.next_scan_at = Instant::now() + Duration::from_secs(managed.proof_s().into());
        let core = &self.core;
        let alive = core.store.replicas(alive_since(clock::now())).await?;
        let share = Share::new(&core.replica, alive.into_iter().map(|replica| replica.id));
        // After a restore the ports may belong to customers that are unknown to this database.
        if !share.has(WATCH) || core.store.is_restored().await? {
            return Ok(());
        }
        self.left = core.feature::<Switches>().0.keys().cloned().collect();
        self.scan = (!self.left.is_empty()).then(|| SwitchScan {
            begun: clock::now(),
            readings: BTreeMap::new(),
            waiting: self.left.len(),
            is_whole: true,
        });
        Ok(())
    }

    /// Reports the first failure of a switch, and its first reading afterwards.
    async fn note_answer(&mut self, name: &str, answer: Result<(), String>) {
        let target = format!("switches/{name}");
        match answer {
            Ok(()) if self.silent.remove(name) => {
                let message = format!("switch {name} can be read again");
                self.core.event(EventKind::EthernetReadAgain, &target, &message).await;
            }
            Err(why) if self.silent.insert(name.to_owned()) => {
                let message = format!("the ports of switch {name} are unknown: {why}");
                self.core.event(EventKind::EthernetUnread, &target, &message).await;
            }
            _ => {}
        }
    }
}

impl Poller for Watch {
    type Key = String;
    type Outcome = Result<SwitchReading, String>;
    type Event = ();

    async fn tick(&mut self, readings: &mut Readings<String, Self::Outcome>) {
        if self.scan.is_none()
            && let Err(error) = self.begin_scan().await
        {
            tracing::warn!(%error, "the switch ports could not be compared with their proven networks");
        }
        while readings.len() < AT_ONCE
            && let Some(name) = self.left.pop()
        {
            let core = self.core.clone();
            readings.begin(name.clone(), async move {
                match core.feature::<Switches>().0.get(&name) {
                    Some(switch) => switch.driver.read().await.map_err(|error| report(&error)),
                    None => Err(format!("switch {name} is no longer configured")),
                }
            });
        }
    }

    async fn ended(&mut self, name: String, outcome: Result<Self::Outcome, JoinError>) {
        let answer = outcome.unwrap_or_else(|error| Err(format!("the reading panicked: {error}")));
        self.note_answer(&name, answer.as_ref().map(|_| ()).map_err(Clone::clone))
            .await;
        let Some(scan) = &mut self.scan else { return };
        scan.waiting -= 1;
        scan.is_whole &= answer.as_ref().is_ok_and(|reading| reading.in_effect);
        if let Ok(reading) = answer {
            scan.readings.insert(name, reading);
        }
        if scan.waiting > 0 {
            return;
        }
        let (scan, managed) = (self.scan.take(), self.core.config.ethernet.managed());
        if let (Some(scan), Some(managed)) = (scan, managed)
            && let Err(error) = compare_with_site(&self.core, managed, &scan).await
        {
            tracing::warn!(%error, "the switch ports could not be compared with their proven networks");
        }
    }
}

/// Notices moved ports, and frees VLANs. Without a readable site nothing is compared: a VLAN at a trunk port would look
/// unused.
async fn compare_with_site(core: &Core, managed: Managed<'_>, scan: &SwitchScan) -> Result<(), StoreError> {
    let site = match applied_site(core).await? {
        Ok(site) => site,
        Err(why) => {
            tracing::warn!(
                why,
                "the site cannot be read, so the switch ports of its nodes are unknown"
            );
            return Ok(());
        }
    };
    let mut known = BTreeSet::new();
    for row in core.store.node_networks().await? {
        let Ok(ports) = ports::of_node(site.as_deref(), &row.node) else {
            continue;
        };
        let access = managed.access(row.network, row.vlan);
        if let Some(words) = moved_ports(&ports, access, &scan.readings) {
            handle_moved_ports(core, &row, &words, scan.begun).await?;
        }
        known.extend(
            ports
                .into_iter()
                .flat_map(|(switch, ports)| ports.into_iter().map(move |port| (switch.clone(), port))),
        );
    }
    if scan.is_whole {
        free_vlans(core, scan, &all_ports(site.as_deref(), known)).await?;
    }
    Ok(())
}

/// Ports of nodes, by switch and name: the ports of the site file and of `known`.
fn all_ports(site: Option<&Site>, mut known: BTreeSet<(String, String)>) -> BTreeSet<(String, String)> {
    let nodes = site.into_iter().flat_map(|site| &site.nodes);
    let ports = nodes.flat_map(|node| &node.ethernet);
    known.extend(ports.map(|port| (port.switch.to_string(), port.port.to_string())));
    known
}

/// The ports with another reading, as a sentence. Ports of switches without a reading do not count.
fn moved_ports(ports: &ports::Ports, access: Access, readings: &BTreeMap<String, SwitchReading>) -> Option<String> {
    let mut words = Vec::new();
    for (switch, ports) in ports {
        let Some(reading) = readings.get(switch) else { continue };
        for port in ports {
            match reading.ports.get(port) {
                Some(state) if state.is(access) => {}
                Some(PortState { vlan, isolated, .. }) => {
                    let isolated = if *isolated { ", isolated" } else { "" };
                    words.push(format!(
                        "switch {switch}, port {port}: the port is in {vlan}{isolated}, and {access} was proven"
                    ));
                }
                None => words.push(format!("switch {switch} has no port {port} any more")),
            }
        }
    }
    (!words.is_empty()).then(|| words.join("; "))
}

/// Handles ports that left their network: the node's network becomes unknown, and the node moves the ports back.
async fn handle_moved_ports(core: &Core, row: &NodeNetwork, words: &str, begun: Timestamp) -> Result<(), StoreError> {
    let now = clock::now();
    let mut tx = core.store.write().await?;
    let record = match tx.node(&row.node).await {
        Ok(record) => record,
        Err(StoreError::NotFound { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    // If the node is being moved or was moved since, the move reads the ports itself.
    let is_proven =
        matches!(&record.readings.network, Reading::Known { value, at } if *value == row.network && *at < begun);
    if !is_proven {
        return Ok(());
    }
    let mut readings = record.readings.clone();
    readings.network = Reading::Unknown { since: now };
    let event = EventRow {
        at: now,
        kind: EventKind::SecurityPortMoved,
        target: format!("nodes/{}", row.node),
        message: format!("{words}; the node's ports are moved back"),
        ..EventRow::default()
    };
    tx.add_event(&event).await?;
    tx.save_readings(&row.node, &readings, now).await?;
    core.commit(tx).await?;
    core.notify_due(&row.node);
    Ok(())
}

/// Frees VLANs that no node is wished into and that no machine's port may carry. Trunks between switches do not count:
/// they lead to ports.
async fn free_vlans(core: &Core, scan: &SwitchScan, nodes: &BTreeSet<(String, String)>) -> Result<(), StoreError> {
    for row in core.store.vlans().await? {
        if is_used(scan, nodes, row.vlan) {
            continue;
        }
        let mut tx = core.store.write().await?;
        if tx.free_vlan(row.vlan, scan.begun).await? {
            core.commit(tx).await?;
            tracing::info!(
                vlan = row.vlan,
                owner = row.owner,
                "the VLAN is on no port any more and free again"
            );
        }
    }
    Ok(())
}

/// Whether a port that leads to a machine may carry the VLAN.
fn is_used(scan: &SwitchScan, nodes: &BTreeSet<(String, String)>, vlan: u16) -> bool {
    for (switch, reading) in &scan.readings {
        for (port, state) in &reading.ports {
            let is_machine = matches!(state.vlan, Vlan::Access(_)) || nodes.contains(&(switch.clone(), port.clone()));
            if is_machine && state.may_carry(vlan) {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;
    use rackwright_lifecycle::{Network, State};

    use super::*;

    const SETTINGS: &str = "ethernet: {provisioning: 10, quarantine: 20, customers: 100-100, \
                            switches: {leaf-1: {ovsdb: \"unix:/nowhere\"}}}\n";

    fn port(vlan: Vlan) -> PortState {
        PortState {
            vlan,
            isolated: false,
            version: None,
        }
    }

    fn seen(begun: Timestamp, vlan: Vlan) -> SwitchScan {
        let reading = SwitchReading {
            ports: [
                ("p1".to_owned(), port(vlan)),
                ("uplink".to_owned(), port(Vlan::Trunk([].into()))),
            ]
            .into(),
            in_effect: true,
        };
        SwitchScan {
            begun,
            readings: [("leaf-1".to_owned(), reading)].into(),
            waiting: 0,
            is_whole: true,
        }
    }

    #[tokio::test]
    async fn a_misplaced_port_is_reported_once_and_not_while_it_is_moved() {
        let core = testing::core_with(SETTINGS).await;
        let mut record = testing::node("n1", State::Available, None);
        record.readings.network = Reading::Known {
            value: Network::Provisioning,
            at: Timestamp(50),
        };
        testing::add(&core, &record).await;
        let row = NodeNetwork {
            node: "n1".into(),
            network: Network::Provisioning,
            vlan: 10,
            step: 1,
        };
        let network = async || {
            let scope = rackwright_store::Scope::Site;
            core.store.node(&scope, &"n1".into()).await.unwrap().readings.network
        };
        // The node was moved after this reading began.
        handle_moved_ports(&core, &row, "read in VLAN 7", Timestamp(50))
            .await
            .unwrap();
        assert!(matches!(network().await, Reading::Known { .. }));
        handle_moved_ports(&core, &row, "read in VLAN 7", Timestamp(51))
            .await
            .unwrap();
        assert!(matches!(network().await, Reading::Unknown { .. }));
        handle_moved_ports(&core, &row, "read in VLAN 7", Timestamp(99))
            .await
            .unwrap();
        assert!(matches!(network().await, Reading::Unknown { .. }));
    }

    #[tokio::test]
    async fn a_scan_ends_although_the_reading_of_a_switch_panicked() {
        async fn panics() -> Result<SwitchReading, String> {
            panic!("an unexpected table")
        }
        let core = testing::core_with(SETTINGS).await;
        let mut watch = Watch::new((*core).clone());
        watch.begin_scan().await.unwrap();
        assert!(watch.scan.is_some());
        watch.ended("leaf-1".into(), tokio::spawn(panics()).await).await;
        assert!(watch.scan.is_none(), "no further scan would begin");
        let scope = rackwright_store::Scope::Site;
        let events = core.store.events(&scope, 0, "switches/leaf-1", 9).await.unwrap();
        let messages: Vec<&str> = events.iter().map(|event| event.message.as_str()).collect();
        let [message] = messages[..] else {
            panic!("{messages:?}")
        };
        assert!(message.contains("the reading panicked"), "{message}");
    }

    #[tokio::test]
    async fn a_vlan_is_free_when_no_machine_port_carries_it() {
        let core = testing::core_with(SETTINGS).await;
        let mut tx = core.store.write().await.unwrap();
        tx.vlan_of("customer acme", (100, 100), Timestamp(5)).await.unwrap();
        tx.commit().await.unwrap();
        let nodes = [("leaf-1".to_owned(), "p1".to_owned())].into();
        // A machine's port that was made a trunk by hand may carry any VLAN. A trunk between switches leads to ports.
        for held in [Vlan::Access(100), Vlan::Trunk([].into()), Vlan::Other("odd".into())] {
            free_vlans(&core, &seen(Timestamp(9), held), &nodes).await.unwrap();
            assert_eq!(core.store.vlans().await.unwrap().len(), 1);
        }
        free_vlans(&core, &seen(Timestamp(9), Vlan::Access(20)), &nodes)
            .await
            .unwrap();
        assert!(core.store.vlans().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn an_unreadable_site_frees_no_vlan() {
        let core = testing::core_with(SETTINGS).await;
        let managed = core.config.ethernet.managed().unwrap();
        let mut tx = core.store.write().await.unwrap();
        tx.vlan_of("customer acme", (100, 100), Timestamp(5)).await.unwrap();
        tx.commit().await.unwrap();
        // Only the site tells that the trunk leads to a machine.
        let scan = seen(Timestamp(9), Vlan::Trunk([].into()));
        testing::damage_site(&core).await;
        compare_with_site(&core, managed, &scan).await.unwrap();
        assert_eq!(core.store.vlans().await.unwrap().len(), 1);
    }

    #[test]
    fn ports_are_compared_with_their_last_proof_and_unread_switches_are_ignored() {
        let ports: ports::Ports = [
            ("leaf-1".to_owned(), ["p1".to_owned()].into()),
            ("leaf-2".to_owned(), ["p1".to_owned()].into()),
        ]
        .into();
        let access = Access {
            vlan: 101,
            isolated: false,
        };
        let found = |vlan| moved_ports(&ports, access, &seen(Timestamp(1), Vlan::Access(vlan)).readings);
        assert_eq!(found(101), None);
        assert_eq!(
            found(100).unwrap(),
            "switch leaf-1, port p1: the port is in VLAN 100, and VLAN 101 was proven"
        );
    }
}
