//! The site as pictures need it: racks with their machines, switches, and bundles of cables.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::hall::HallError;
use rackwright_site::model::{Cable, DomainKind, Port, RackId, RoomId, Site, SwitchId};

use super::fabric;
use super::names::{self, Pages};

/// Labels of a bundle's cables in an answer.
const LABELS_MAX: usize = 64;

/// A page of racks, switches or bundles.
///
/// # Errors
/// There is no site, the request names an unknown parent or no kind, or the database failed.
pub async fn page(core: &Arc<Core>, request: &v1::GetTopologyRequest) -> Result<v1::GetTopologyResponse, ApiError> {
    let (version, site) = core.sites.current(&core.store).await?.ok_or(HallError::NoSite)?;
    let faults = fabric::faults(&core.store).await?.faults;
    let faulty: HashSet<String> = faults.into_iter().flat_map(|fault| fault.cables).collect();
    let request = request.clone();
    let made = tokio::task::spawn_blocking(move || {
        Topology {
            site: &site,
            faulty: &faulty,
        }
        .page(&request)
    });
    let made = made.await.map_err(|e| ApiError::Internal(e.to_string()))?;
    Ok(v1::GetTopologyResponse {
        resource_version: version.to_string(),
        ..made?
    })
}

/// A site, and the labels of its cables with an open fault.
struct Topology<'a> {
    site: &'a Site,
    faulty: &'a HashSet<String>,
}

/// An end of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Switch(SwitchId),
    Node(rackwright_site::model::NodeId),
}

impl From<Port> for End {
    fn from(port: Port) -> Self {
        match port {
            Port::Switch { switch, .. } => Self::Switch(switch),
            Port::Hca { node, .. } => Self::Node(node),
        }
    }
}

/// Rows of one page, the token of the next, and the number of all rows.
struct Rows<T> {
    rows: Vec<T>,
    next: String,
    total: u32,
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl Topology<'_> {
    fn page(&self, request: &v1::GetTopologyRequest) -> Result<v1::GetTopologyResponse, ApiError> {
        let narrowed = format!("{} {}", request.kind, request.parent);
        let pages = Pages {
            list: "GetTopology",
            narrowed: &narrowed,
            limit: names::page_size(request.page_size)?,
        };
        let after = pages.after(&request.page_token)?;
        let mut response = v1::GetTopologyResponse::default();
        (response.next_page_token, response.total) = match request.kind() {
            v1::TopologyKind::Racks => {
                let made = cut(self.racks(&request.parent)?, after, &pages);
                let machines = self.machines();
                response.racks = made.rows.iter().map(|id| self.rack(*id, &machines)).collect();
                (made.next, made.total)
            }
            v1::TopologyKind::Switches => {
                let made = cut(self.switches(&request.parent)?, after, &pages);
                let cables = self.cables_by_switch();
                response.switches = made.rows.iter().map(|id| self.switch(*id, &cables)).collect();
                (made.next, made.total)
            }
            v1::TopologyKind::Bundles => {
                let made = cut(self.bundles(&request.parent)?, after, &pages);
                response.bundles = made.rows;
                (made.next, made.total)
            }
            v1::TopologyKind::Unspecified => {
                return Err(ApiError::invalid("kind", "must be racks, switches or bundles"));
            }
        };
        Ok(response)
    }

    /// The room with this name and all rooms in it; all rooms for an empty name.
    fn rooms(&self, name: &str) -> Result<BTreeSet<RoomId>, ApiError> {
        let is_in = |mut id: RoomId| loop {
            let room = self.site.room(id);
            if *room.name == *name {
                return true;
            }
            match room.parent {
                Some(parent) => id = parent,
                None => return false,
            }
        };
        let rooms: BTreeSet<RoomId> = self
            .site
            .room_ids()
            .filter(|id| name.is_empty() || is_in(*id))
            .collect();
        match rooms.is_empty() && !name.is_empty() {
            true => Err(unknown("room", name)),
            false => Ok(rooms),
        }
    }

    fn racks(&self, room: &str) -> Result<BTreeMap<String, RackId>, ApiError> {
        let rooms = self.rooms(room)?;
        let ids = self
            .site
            .rack_ids()
            .filter(|id| rooms.contains(&self.site.rack(*id).room));
        Ok(ids.map(|id| (self.site.rack(id).name.to_string(), id)).collect())
    }

    /// Machines and switches by rack, from the bottom.
    fn machines(&self) -> BTreeMap<RackId, Vec<v1::TopologyMachine>> {
        let mut machines: BTreeMap<RackId, Vec<v1::TopologyMachine>> = BTreeMap::new();
        for node in &self.site.nodes {
            let sku = self.site.sku(node.sku);
            machines.entry(node.rack).or_default().push(v1::TopologyMachine {
                name: format!("nodes/{}", node.name),
                kind: sku.name.to_string(),
                unit: node.unit.into(),
                height_units: sku.height_units.into(),
            });
        }
        for switch in &self.site.switches {
            let Some(rack) = switch.rack else { continue };
            machines.entry(rack).or_default().push(v1::TopologyMachine {
                name: switch.name.to_string(),
                kind: switch.role.name().into(),
                unit: switch.unit.into(),
                height_units: switch.height_units.into(),
            });
        }
        for rack in machines.values_mut() {
            rack.sort_by(|a, b| (a.unit, &a.name).cmp(&(b.unit, &b.name)));
        }
        machines
    }

    fn rack(&self, id: RackId, machines: &BTreeMap<RackId, Vec<v1::TopologyMachine>>) -> v1::TopologyRack {
        let rack = self.site.rack(id);
        let is_pdu = |kind| matches!(kind, DomainKind::RackPdu | DomainKind::PowerShelf);
        let domains = self.site.domains.iter();
        let pdus = domains.filter(|domain| domain.rack == Some(id) && is_pdu(domain.kind));
        let feed = |id: rackwright_site::model::FeedId| self.site.feeds[id.index()].to_string();
        v1::TopologyRack {
            name: rack.name.to_string(),
            room: self.site.room(rack.room).name.to_string(),
            units: rack.units.into(),
            cooling_loop: rack
                .cooling_loop
                .map_or_else(String::new, |id| self.site.cooling_loop(id).name.to_string()),
            machines: machines.get(&id).cloned().unwrap_or_default(),
            pdus: pdus
                .map(|pdu| v1::TopologyPdu {
                    name: pdu.name.to_string(),
                    feed: pdu.feed.map_or_else(String::new, feed),
                })
                .collect(),
        }
    }

    fn switches(&self, fabric: &str) -> Result<BTreeMap<String, SwitchId>, ApiError> {
        let wanted = match fabric {
            "" => None,
            name => {
                let found = self.site.fabric_ids().find(|id| *self.site.fabric(*id).name == *name);
                Some(found.ok_or_else(|| unknown("fabric", name))?)
            }
        };
        let is_shown = |id: &SwitchId| wanted.is_none() || self.site.switch(*id).fabric == wanted;
        let ids = self.site.switch_ids().filter(is_shown);
        Ok(ids.map(|id| (self.site.switch(id).name.to_string(), id)).collect())
    }

    fn cables_by_switch(&self) -> BTreeMap<SwitchId, Vec<&Cable>> {
        let mut cables: BTreeMap<SwitchId, Vec<&Cable>> = BTreeMap::new();
        for cable in &self.site.cables {
            for end in [cable.a, cable.b] {
                if let Port::Switch { switch, .. } = end {
                    cables.entry(switch).or_default().push(cable);
                }
            }
        }
        cables
    }

    fn switch(&self, id: SwitchId, cables: &BTreeMap<SwitchId, Vec<&Cable>>) -> v1::TopologySwitch {
        let switch = self.site.switch(id);
        let cables = cables.get(&id).map_or(&[][..], Vec::as_slice);
        let leads_to_node = |cable: &&&Cable| [cable.a, cable.b].iter().any(|end| matches!(end, Port::Hca { .. }));
        let down = cables.iter().filter(leads_to_node).count();
        let faulty = cables.iter().filter(|cable| self.faulty.contains(&*cable.label));
        v1::TopologySwitch {
            name: switch.name.to_string(),
            fabric: switch
                .fabric
                .map_or_else(String::new, |id| self.site.fabric(id).name.to_string()),
            level: switch.role.name().into(),
            pod: switch.pod.unwrap_or_default().into(),
            scalable_unit: switch.scalable_unit.unwrap_or_default().into(),
            rail: switch.rail.map(u32::from),
            rack: switch
                .rack
                .map_or_else(String::new, |id| self.site.rack(id).name.to_string()),
            ports: switch.ports.into(),
            speed: switch.speed.name().into(),
            down_cables: number(down),
            up_cables: number(cables.len() - down),
            faulty_cables: number(faulty.count()),
        }
    }

    fn end_name(&self, end: End) -> String {
        match end {
            End::Switch(id) => self.site.switch(id).name.to_string(),
            End::Node(id) => format!("nodes/{}", self.site.node(id).name),
        }
    }

    /// Bundles by the names of their ends. With a switch: all of the switch, which is then their first end.
    fn bundles(&self, of: &str) -> Result<BTreeMap<String, v1::TopologyBundle>, ApiError> {
        let of = match of {
            "" => None,
            name => Some(self.site.switch_named(name).ok_or_else(|| unknown("switch", name))?),
        };
        let mut bundles: BTreeMap<(SwitchId, End), Vec<&Cable>> = BTreeMap::new();
        for cable in &self.site.cables {
            let (a, b) = (End::from(cable.a), End::from(cable.b));
            let ends = match (of, a, b) {
                (None, End::Switch(a), End::Switch(b)) => (a.min(b), End::Switch(a.max(b))),
                (Some(of), End::Switch(a), b) if a == of => (a, b),
                (Some(of), a, End::Switch(b)) if b == of => (b, a),
                _ => continue,
            };
            bundles.entry(ends).or_default().push(cable);
        }
        let bundle = |((a, b), cables): ((SwitchId, End), Vec<&Cable>)| {
            let (a, b) = (self.end_name(End::Switch(a)), self.end_name(b));
            let labels = cables.iter().map(|cable| cable.label.to_string());
            let faulty = cables.iter().filter(|cable| self.faulty.contains(&*cable.label));
            let bundle = v1::TopologyBundle {
                cables: number(cables.len()),
                faulty_cables: number(faulty.count()),
                labels: labels.take(if of.is_some() { LABELS_MAX } else { 0 }).collect(),
                a,
                b,
            };
            (format!("{} {}", bundle.a, bundle.b), bundle)
        };
        Ok(bundles.into_iter().map(bundle).collect())
    }
}

fn unknown(kind: &'static str, name: &str) -> ApiError {
    ApiError::NotFound {
        kind,
        name: name.to_owned(),
    }
}

/// The rows of a page: those after the key `after`.
fn cut<T>(all: BTreeMap<String, T>, after: &str, pages: &Pages<'_>) -> Rows<T> {
    let total = number(all.len());
    let limit = usize::try_from(pages.limit).unwrap_or(usize::MAX);
    let rest = all
        .into_iter()
        .filter(|(key, _)| after.is_empty() || key.as_str() > after);
    let (mut last, mut rows) = (None, Vec::new());
    for (key, row) in rest.take(limit) {
        rows.push(row);
        last = Some(key);
    }
    Rows {
        next: pages.token(rows.len(), last),
        rows,
        total,
    }
}

#[cfg(test)]
mod tests;
