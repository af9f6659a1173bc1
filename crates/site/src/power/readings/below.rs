//! Lookup of the nodes and domains below others.

use crate::model::{CoolingKind, CoolingUnitId, DomainId, NodeId, Plug, Site};
use crate::power::{Zone, zone_of};

/// The nodes below every domain and cooling unit. Computed once per site.
#[derive(Debug, Clone)]
pub struct Below {
    /// By domain: nodes plugged directly into it, with the outlet's index.
    plugged: Vec<Vec<(NodeId, u16)>>,
    /// By domain: its children.
    children: Vec<Vec<DomainId>>,
    /// By node: its cooling zone.
    zones: Vec<Zone>,
}

impl Below {
    /// Computes the lookup for a site.
    #[must_use]
    pub fn new(site: &Site) -> Self {
        let mut plugged = vec![Vec::new(); site.domains.len()];
        for node in site.node_ids() {
            for Plug { pdu, outlet } in site.node(node).psus.iter().flatten() {
                plugged[pdu.index()].push((node, *outlet));
            }
        }
        let mut children = vec![Vec::new(); site.domains.len()];
        for id in site.domain_ids() {
            if let Some(parent) = site.domain(id).parent {
                children[parent.index()].push(id);
            }
        }
        Self {
            plugged,
            children,
            zones: site.node_ids().map(|node| zone_of(site, node)).collect(),
        }
    }

    /// The domains that a domain feeds directly.
    #[must_use]
    pub fn children(&self, domain: DomainId) -> &[DomainId] {
        &self.children[domain.index()]
    }

    /// The nodes plugged into a PDU with the index of the outlet, one entry for each PSU.
    #[must_use]
    pub fn plugged(&self, pdu: DomainId) -> &[(NodeId, u16)] {
        &self.plugged[pdu.index()]
    }

    /// The nodes with a PSU below a domain, in order without duplicates.
    #[must_use]
    pub fn nodes(&self, domain: DomainId) -> Vec<NodeId> {
        let (mut open, mut nodes) = (vec![domain], Vec::new());
        while let Some(next) = open.pop() {
            nodes.extend(self.plugged(next).iter().map(|(node, _)| *node));
            open.extend(self.children(next));
        }
        once(nodes)
    }

    /// The nodes with a PSU at one of these outlets of a PDU.
    #[must_use]
    pub fn at_outlets(&self, site: &Site, pdu: DomainId, names: &[String]) -> Vec<NodeId> {
        let is_named = |outlet: u16| {
            let outlet = site.outlet(Plug { pdu, outlet });
            outlet.is_some_and(|outlet| names.iter().any(|name| **name == *outlet.name))
        };
        let plugged = self.plugged(pdu).iter().filter(|(_, outlet)| is_named(*outlet));
        once(plugged.map(|(node, _)| *node).collect())
    }

    /// The nodes that a cooling unit cools, alone or together with others.
    #[must_use]
    pub fn cooled_by(&self, site: &Site, unit: CoolingUnitId) -> Vec<NodeId> {
        let unit = site.cooling_unit(unit);
        let zone = match (unit.kind, unit.rack, unit.cooling_loop) {
            (CoolingKind::RearDoor, Some(rack), _) => Zone::RearDoor(rack),
            (CoolingKind::Cdu, _, Some(id)) => Zone::Loop(id),
            // A CDU without a loop cools no nodes.
            (CoolingKind::Cdu, _, None) => return Vec::new(),
            _ => Zone::Room(unit.room),
        };
        let of_zone = site.node_ids().filter(|node| self.zones[node.index()] == zone);
        of_zone.collect()
    }
}

fn once(mut nodes: Vec<NodeId>) -> Vec<NodeId> {
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
