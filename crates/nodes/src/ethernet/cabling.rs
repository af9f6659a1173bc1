//! Whether the cards of a node are cabled to the switch ports in the site file, according to the LLDP frames that the
//! agent receives.
//!
//! Any host at the other end of a cable can send any frame. A frame is evidence of the cabling and moves no port. A
//! difference is shown, adds one event, and holds the node if the site's settings require it.

use std::collections::BTreeSet;

use prost::Message as _;
use rackwright_api::v1;
use rackwright_ground::agents::AdmittedAgent;
use rackwright_ground::clock;
use rackwright_ground::config::ethernet::{Cabling, Settings};
use rackwright_ground::core::Core;
use rackwright_ground::stored;
use rackwright_ground::text::{NAME_MAX, cut};
use rackwright_lifecycle::{Agent, EventKind, NodeId, Reading, State, Timestamp};
use rackwright_site::model::{EthernetPort, Site};
use rackwright_store::{EventRow, NodeNeighbours, NodeRecord, StoreError};

use super::applied_site;

/// Most cards kept of a machine.
const CARDS_MAX: usize = 64;

/// The cabling of one card of the site file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Finding {
    /// The card heard the port of the site file.
    Matches(EthernetPort),
    /// The card heard another port.
    Differs {
        /// The port of the site file.
        port: EthernetPort,
        /// The port that the card heard, `SWITCH/PORT`.
        heard: String,
        /// The card's name on the machine as a phrase, if the site file uses another name; else empty.
        card: String,
        /// Node and card of the port that was heard, according to the site file.
        owner: Option<(NodeId, String)>,
    },
    /// The card heard no port.
    NoNeighbour(EthernetPort),
}

impl Finding {
    fn nic(&self) -> &str {
        match self {
            Self::Matches(port) | Self::NoNeighbour(port) | Self::Differs { port, .. } => &port.nic,
        }
    }

    /// The difference as a sentence, if there is one. The same difference gives the same text.
    fn difference(&self) -> Option<String> {
        let Self::Differs {
            port,
            heard,
            card,
            owner,
        } = self
        else {
            return None;
        };
        let EthernetPort { nic, switch, port } = port;
        let owner = owner.as_ref().map_or_else(
            || "a port of no node in the site file".to_owned(),
            |(node, nic)| format!("the port of {node}, {nic}"),
        );
        Some(format!(
            "{nic}{card} is cabled to {heard}, {owner}; the site file says {switch}/{port}"
        ))
    }
}

/// Whether the neighbour is this switch. A switch that sends a fully qualified name also matches by its first part.
fn is_switch(settings: &Settings, switch: &str, neighbour: &v1::Neighbour) -> bool {
    let known = settings.lldp_name(switch);
    let received = &neighbour.system_name;
    let first = received.split('.').next().unwrap_or_default();
    [received, first, &neighbour.chassis_id]
        .iter()
        .any(|name| name.eq_ignore_ascii_case(known))
}

/// Whether the neighbour is this port of this switch.
fn is_port(settings: &Settings, port: &EthernetPort, neighbour: &v1::Neighbour) -> bool {
    let names = [&neighbour.port_id, &neighbour.port_description];
    is_switch(settings, &port.switch, neighbour) && names.iter().any(|name| name.eq_ignore_ascii_case(&port.port))
}

/// Whether the card of the site file heard the neighbour: the site file names a card by its name on the machine or by
/// its MAC address.
fn is_card(nic: &str, neighbour: &v1::Neighbour) -> bool {
    neighbour.nic == nic || neighbour.mac.eq_ignore_ascii_case(nic)
}

/// The node and port of the site file that match the neighbour.
fn owner<'a>(site: &'a Site, settings: &Settings, neighbour: &v1::Neighbour) -> Option<(&'a str, &'a EthernetPort)> {
    let nodes = site.nodes.iter();
    let mut ports = nodes.flat_map(|node| node.ethernet.iter().map(|port| (&*node.name, port)));
    ports.find(|(_, port)| is_port(settings, port, neighbour))
}

/// A neighbour as text: switch and port by the site file's names, otherwise by the names that it sent.
fn named(neighbour: &v1::Neighbour, known: Option<&EthernetPort>) -> String {
    if let Some(EthernetPort { switch, port, .. }) = known {
        return format!("{switch}/{port}");
    }
    let switch = [&neighbour.system_name, &neighbour.chassis_id];
    let switch = switch.into_iter().find(|name| !name.is_empty());
    format!("{}/{}", switch.map_or("?", String::as_str), neighbour.port_id)
}

/// Compares a node's ports in the site file with the neighbours of its cards.
fn compare(site: &Site, settings: &Settings, ports: &[EthernetPort], heard: &[v1::Neighbour]) -> Vec<Finding> {
    let elsewhere = |port: &EthernetPort, neighbour: &v1::Neighbour, card: String| {
        let known = owner(site, settings, neighbour);
        Finding::Differs {
            port: port.clone(),
            heard: named(neighbour, known.map(|(_, port)| port)),
            card,
            owner: known.map(|(node, port)| (NodeId::stored(node), port.nic.to_string())),
        }
    };
    let by_name = |port: &EthernetPort| heard.iter().find(|neighbour| is_card(&port.nic, neighbour));
    // Neighbours of cards that the site file does not name: it may use other names than the machine.
    let nameless = heard.iter().filter(|n| !ports.iter().any(|port| is_card(&port.nic, n)));
    let mut nameless: Vec<&v1::Neighbour> = nameless.collect();
    let mut findings = Vec::with_capacity(ports.len());
    let mut unmatched = Vec::new();
    for port in ports {
        if let Some(neighbour) = by_name(port) {
            findings.push(match is_port(settings, port, neighbour) {
                true => Finding::Matches(port.clone()),
                false => elsewhere(port, neighbour, String::new()),
            });
        } else if let Some(place) = nameless.iter().position(|n| is_port(settings, port, n)) {
            nameless.remove(place);
            findings.push(Finding::Matches(port.clone()));
        } else {
            unmatched.push(port);
        }
    }
    for port in unmatched {
        // A card in a network outside the site file is no evidence. The card has to be on a switch of this node, or on
        // a port of another node.
        let place = nameless.iter().position(|neighbour| {
            let is_own_switch = ports.iter().any(|port| is_switch(settings, &port.switch, neighbour));
            is_own_switch || owner(site, settings, neighbour).is_some()
        });
        findings.push(match place {
            Some(place) => {
                let neighbour = nameless.remove(place);
                elsewhere(port, neighbour, format!(" (card {}, {})", neighbour.nic, neighbour.mac))
            }
            None => Finding::NoNeighbour(port.clone()),
        });
    }
    findings
}

fn ports<'a>(site: &'a Site, node: &NodeId) -> &'a [EthernetPort] {
    site.node_named(node.as_str()).map_or(&[], |id| &site.node(id).ethernet)
}

fn neighbours(row: &NodeNeighbours) -> Result<Vec<v1::Neighbour>, StoreError> {
    let all: v1::Neighbours = stored::message("neighbours of node", row.node.as_str(), &row.body)?;
    Ok(all.neighbours)
}

/// Neighbours with texts and counts limited, as an agent is not trusted.
fn bounded(received: v1::Neighbours) -> v1::Neighbours {
    let bounded = |neighbour: v1::Neighbour| v1::Neighbour {
        nic: cut(&neighbour.nic, NAME_MAX),
        mac: cut(&neighbour.mac, NAME_MAX),
        chassis_id: cut(&neighbour.chassis_id, NAME_MAX),
        port_id: cut(&neighbour.port_id, NAME_MAX),
        port_description: cut(&neighbour.port_description, NAME_MAX),
        system_name: cut(&neighbour.system_name, NAME_MAX),
    };
    let kept = received.neighbours.into_iter().take(CARDS_MAX).map(bounded);
    v1::Neighbours {
        neighbours: kept.collect(),
    }
}

/// A note that two cables are exchanged, if the other node heard this node's port; otherwise empty.
async fn exchanged(core: &Core, site: &Site, finding: &Finding) -> Result<String, StoreError> {
    let Finding::Differs {
        port,
        owner: Some((node, nic)),
        ..
    } = finding
    else {
        return Ok(String::new());
    };
    let row = core.store.node_neighbours(node).await?;
    let settings = &core.config.ethernet;
    let other_neighbours = row.as_ref().map(neighbours).transpose()?.unwrap_or_default();
    let findings = compare(site, settings, ports(site, node), &other_neighbours);
    let own_port = format!("{}/{}", port.switch, port.port);
    let is_exchanged = findings.iter().any(|finding| match finding {
        Finding::Differs { port, heard, .. } => *port.nic == **nic && *heard == own_port,
        _ => false,
    });
    Ok(match is_exchanged {
        true => format!("; the two cables are exchanged: {node}, {nic} is cabled to {own_port}"),
        false => String::new(),
    })
}

/// Stores the neighbours that an agent reports for the cards of its machine.
pub(crate) async fn heard(
    core: &Core,
    admitted_agent: &AdmittedAgent,
    received: v1::Neighbours,
) -> Result<(), StoreError> {
    let node = &admitted_agent.node;
    let received = bounded(received);
    let mut findings = Vec::new();
    let site = applied_site(core).await?;
    if let Ok(Some(site)) = &site {
        for finding in compare(site, &core.config.ethernet, ports(site, node), &received.neighbours) {
            let more = exchanged(core, site, &finding).await?;
            findings.push((finding, more));
        }
    }
    let now = clock::now();
    let mut tx = core.store.write().await?;
    if tx.node(node).await?.hold.session != admitted_agent.number {
        // The report came on a connection that has ended.
        return Ok(());
    }
    let before = tx.node_neighbours(node).await?;
    let reported = before.as_ref().map_or("", |row| row.reported.as_str());
    let (reported, events) = match &site {
        Ok(_) => changed_findings(reported, &findings),
        // The reported differences are compared again with the next frames.
        Err(_) => (reported.to_owned(), Vec::new()),
    };
    let row = NodeNeighbours {
        node: node.clone(),
        boot_id: admitted_agent.boot_id.clone(),
        heard_at: now,
        body: received.encode_to_vec(),
        reported,
    };
    let is_same = |before: &NodeNeighbours| {
        before.boot_id == row.boot_id && before.body == row.body && before.reported == row.reported
    };
    if before.as_ref().is_some_and(is_same) {
        return Ok(());
    }
    for (kind, message) in events {
        let event = EventRow {
            at: now,
            kind,
            target: format!("nodes/{node}"),
            message,
            ..EventRow::default()
        };
        tx.add_event(&event).await?;
    }
    tx.save_neighbours(&row).await?;
    core.commit(tx).await?;
    // The node may wait for a cable.
    core.wake(node).await;
    Ok(())
}

/// The new events, and all differences reported so far, one per line. A card without neighbours keeps its line, so each
/// difference adds one event regardless of boots in between.
fn changed_findings(before: &str, findings: &[(Finding, String)]) -> (String, Vec<(EventKind, String)>) {
    let before: BTreeSet<&str> = before.lines().collect();
    let (mut reported, mut events) = (Vec::new(), Vec::new());
    for (finding, more) in findings {
        let card = format!("{} ", finding.nic());
        let of_card = |line: &&&str| line.starts_with(&card);
        match finding {
            Finding::NoNeighbour(_) => reported.extend(before.iter().filter(of_card).map(|line| (*line).to_owned())),
            Finding::Matches(EthernetPort { nic, switch, port }) => {
                if before.iter().any(|line| of_card(&line)) {
                    let message = format!("{nic} is cabled to {switch}/{port} now, as the site file says");
                    events.push((EventKind::EthernetCablingRight, message));
                }
            }
            Finding::Differs { .. } => {
                let Some(difference) = finding.difference() else {
                    continue;
                };
                if !before.contains(difference.as_str()) {
                    let message = format!("{difference}{more}. Move the cable, or correct the site file");
                    events.push((EventKind::EthernetCabling, message));
                }
                reported.push(difference);
            }
        }
    }
    (reported.join("\n"), events)
}

/// Why a node must not be imaged, if the settings hold nodes with wrong cables. A site that cannot be read holds the node
/// too. Only frames of the current boot count: a cable that was moved meanwhile is only heard in the next boot.
pub async fn holds(core: &Core, record: &NodeRecord, agent: &Reading<Agent>) -> Result<Option<String>, StoreError> {
    let Reading::Known {
        value: Agent::Present { boot_id, .. },
        ..
    } = agent
    else {
        return Ok(None);
    };
    if core.config.ethernet.cabling != Cabling::Hold || record.node.state != State::Imaging {
        return Ok(None);
    }
    let site = match applied_site(core).await? {
        Ok(Some(site)) => site,
        Ok(None) => return Ok(None),
        Err(why) => return Ok(Some(format!("the cables cannot be compared with the site: {why}"))),
    };
    let row = core.store.node_neighbours(&record.id).await?;
    let Some(row) = row.filter(|row| row.boot_id == *boot_id) else {
        return Ok(None);
    };
    let found = compare(
        &site,
        &core.config.ethernet,
        ports(&site, &record.id),
        &neighbours(&row)?,
    );
    let differences: Vec<String> = found.iter().filter_map(Finding::difference).collect();
    Ok((!differences.is_empty()).then(|| differences.join("; ")))
}

/// The cabling of a node as a sentence, and the time of the report.
pub async fn explain(core: &Core, record: &NodeRecord) -> Result<(String, Option<Timestamp>), StoreError> {
    let site = match applied_site(core).await? {
        Ok(Some(site)) => site,
        Ok(None) => return Ok(("not compared: no site file is applied".to_owned(), None)),
        Err(why) => return Ok((format!("not compared: {why}"), None)),
    };
    let (site, ports) = (&*site, ports(&site, &record.id));
    if ports.is_empty() {
        return Ok((
            "not compared: the site file names no switch port of the node".to_owned(),
            None,
        ));
    }
    let Some(row) = core.store.node_neighbours(&record.id).await? else {
        return Ok(("no LLDP frame was ever received".to_owned(), None));
    };
    let mut words = Vec::with_capacity(ports.len());
    for finding in compare(site, &core.config.ethernet, ports, &neighbours(&row)?) {
        words.push(match &finding {
            Finding::Matches(EthernetPort { nic, switch, port }) => format!("{nic} is cabled to {switch}/{port}"),
            Finding::NoNeighbour(EthernetPort { nic, switch, port }) => {
                format!("{nic} received no LLDP frame ({switch}/{port})")
            }
            Finding::Differs { .. } => {
                finding.difference().unwrap_or_default() + &exchanged(core, site, &finding).await?
            }
        });
    }
    Ok((words.join("; "), Some(row.heard_at)))
}

/// Sets the switch port that each card of an inventory heard last.
pub async fn name_neighbours(core: &Core, node: &NodeId, nics: &mut [v1::Nic]) -> Result<(), StoreError> {
    let row = core.store.node_neighbours(node).await?;
    let heard = row.as_ref().map(neighbours).transpose()?.unwrap_or_default();
    // Without a site, and with one that cannot be read, a port has the name that it sent.
    let site = match heard.is_empty() {
        true => None,
        false => applied_site(core).await?.ok().flatten(),
    };
    for nic in nics {
        let neighbour = heard.iter().find(|neighbour| neighbour.mac == nic.mac);
        nic.neighbour = neighbour.map_or_else(String::new, |neighbour| {
            let site = site.as_deref();
            let known = site.and_then(|site| owner(site, &core.config.ethernet, neighbour));
            named(neighbour, known.map(|(_, port)| port))
        });
    }
    Ok(())
}

#[cfg(test)]
#[path = "cabling_tests.rs"]
mod tests;
