//! Nodes with a rail that is missing or exchanged: no non-blocking cluster of several nodes gets them.

use super::layout::Layout;
use super::wiring::{Attachment, Unit};
use rackwright_site::model::{NodeId, Port, Site, SwitchId};

/// A node in use with a rail that is missing or exchanged.
pub(super) struct Impaired {
    pub node: NodeId,
    pub unit: Unit,
    pub missing: Option<Missing>,
    /// HCAs at the leaf of another rail, in the order of the SKU.
    pub exchanged: Vec<Exchanged>,
}

/// Leaves of the unit without a cable to the node.
pub(super) struct Missing {
    /// The first of these leaves.
    pub leaf: SwitchId,
    /// Number of leaves of the unit with a cable to the node.
    pub has: usize,
    /// Number of leaves that the node needs.
    pub all: usize,
}

/// An HCA at the leaf of another rail.
pub(super) struct Exchanged {
    /// Index of the HCA in the SKU.
    pub hca: usize,
    pub leaf: SwitchId,
    /// The rail of the leaf.
    pub rail: u8,
}

/// The impaired nodes, in order. Nodes that no cluster gets are skipped.
pub(super) fn impaired(site: &Site, layout: &Layout) -> Vec<Impaired> {
    let mut cables: Vec<Vec<(usize, SwitchId)>> = vec![Vec::new(); site.nodes.len()];
    for cable in &site.cables {
        if let (Port::Hca { node, hca }, Port::Switch { switch, .. })
        | (Port::Switch { switch, .. }, Port::Hca { node, hca }) = (cable.a, cable.b)
        {
            cables[node.index()].push((usize::from(hca), switch));
        }
    }
    let of_node = |node: NodeId| {
        let Attachment::Unit(unit) = layout.wiring.attachments[node.index()] else {
            return None;
        };
        layout.unit_of(site, node).ok()?;
        let leaves = &layout.wiring.leaves[&unit];
        let cables = &cables[node.index()];
        let missing = missing(site, node, leaves, cables);
        let exchanged = exchanged(site, node, leaves, cables);
        let found = missing.is_some() || !exchanged.is_empty();
        found.then_some(Impaired {
            node,
            unit,
            missing,
            exchanged,
        })
    };
    site.node_ids().filter_map(of_node).collect()
}

fn missing(site: &Site, node: NodeId, leaves: &[SwitchId], cables: &[(usize, SwitchId)]) -> Option<Missing> {
    let is_cabled = |leaf: SwitchId| cables.iter().any(|(_, other)| *other == leaf);
    let mut lacking = leaves.iter().filter(|leaf| !is_cabled(**leaf));
    let leaf = *lacking.next()?;
    let has = leaves.len() - 1 - lacking.count();
    // A node with fewer HCAs than the unit has leaves needs no more cables than HCAs. HCAs for storage do not count.
    let all = leaves.len().min(site.compute_ports(node).count());
    (has < all).then_some(Missing { leaf, has, all })
}

/// Leaves of other units and fabrics, such as storage, have rails of their own.
fn exchanged(site: &Site, node: NodeId, leaves: &[SwitchId], cables: &[(usize, SwitchId)]) -> Vec<Exchanged> {
    let hcas = &site.sku_of(node).hcas;
    let of_cable = |&(hca, leaf): &(usize, SwitchId)| {
        let rail = site.switch(leaf).rail.filter(|_| leaves.contains(&leaf))?;
        let own = hcas.get(hca)?.rail;
        (own != rail).then_some(Exchanged { hca, leaf, rail })
    };
    let mut exchanged: Vec<Exchanged> = cables.iter().filter_map(of_cable).collect();
    exchanged.sort_by_key(|one| one.hca);
    exchanged
}
