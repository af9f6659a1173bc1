//! Placements by name, for storage. Ids are list indices that change with the site file. Names stay.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Planner;
use crate::hall::{self, RACK, hall_node};
use rackwright_placement::{
    self, Affinity, Bandwidth, ClusterId, LabelId, Mask, Placement, PodId, Request, SpineShare, UnitId, Wiring, bits,
};
use rackwright_site::model::{CustomerId, SwitchId};

/// The nodes and links of a cluster, by name. The promises to the customer are not stored: the site file has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedPlacement {
    pub cluster: ClusterId,
    /// The customer of the cluster.
    pub customer: String,
    /// The SKU of the nodes.
    pub sku: String,
    /// Bandwidth between its nodes.
    pub bandwidth: Bandwidth,
    /// The wishes about racks.
    #[serde(default)]
    pub racks: RackAffinity,
    /// The nodes in use.
    pub nodes: Vec<String>,
    #[serde(default)]
    pub spares: Vec<String>,
    /// The uplinks, by unit. Empty for a cluster within one unit.
    #[serde(default)]
    pub uplinks: Vec<NamedUplinks>,
    /// The links above the spines. Empty for a cluster within one pod.
    #[serde(default)]
    pub cores: Vec<NamedCores>,
}

/// The wishes about racks in a request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RackAffinity {
    /// All nodes are in each of these racks: one rack, or no restriction.
    pub within: Vec<String>,
    /// No node is in any of these racks.
    pub avoid: Vec<String>,
    /// Every node shares a rack with each of these clusters.
    pub near: Vec<ClusterId>,
    /// No node shares a rack with any of these clusters.
    pub apart: Vec<ClusterId>,
    /// Maximum number of nodes in a rack.
    pub most: Vec<u32>,
}

/// A cluster's uplinks from one unit, the same on every rail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedUplinks {
    /// The leaves of the unit, by rail.
    pub leaves: Vec<String>,
    /// The spines of the first rail at the other end: `spine-3`, and `spine-3#2` for the second of several cables.
    pub cables: Vec<String>,
}

/// A cluster's links above one spine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCores {
    /// The spine of the first rail.
    pub spine: String,
    /// The cores at the other end, written as in [`NamedUplinks::cables`].
    pub cables: Vec<String>,
}

/// The parts of a named placement that the site does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", faults.join("; "))]
pub struct Unresolved {
    /// The faults, one sentence each.
    pub faults: Vec<String>,
}

impl Planner<'_> {
    /// A placement of this plan, by name.
    #[must_use]
    pub fn named(&self, placement: &Placement) -> NamedPlacement {
        let (site, request) = (self.site, &placement.request);
        let names = |nodes: &[rackwright_placement::NodeId]| {
            let name = |&node: &rackwright_placement::NodeId| site.nodes.get(node.at()).map(|n| n.name.to_string());
            nodes.iter().filter_map(name).collect()
        };
        let uplinks = placement.units.iter().filter(|share| share.links != 0).map(|share| {
            let leaves = self.switches.leaves.get(share.unit.at()).map_or(&[][..], Vec::as_slice);
            let spines = self.switches.spines.get(share.pod.at()).map_or(&[][..], Vec::as_slice);
            NamedUplinks {
                leaves: leaves.iter().map(|&leaf| self.switch_name(leaf)).collect(),
                cables: self.cables(self.hall.wirings(share.pod).spines, share.links, spines),
            }
        });
        let cores = placement.cores.iter().filter_map(|share| {
            let (pod, place) = (share.pod.at(), share.spine as usize);
            let spine = (*self.switches.spines.get(pod)?.get(place)?)?;
            let cores = self.switches.cores.get(pod)?.get(place)?;
            Some(NamedCores {
                spine: self.switch_name(spine),
                cables: self.cables(self.hall.wirings(share.pod).cores, share.links, cores),
            })
        });
        NamedPlacement {
            cluster: request.cluster,
            customer: name_at(&site.customers, request.customer.at(), |c| &c.name),
            sku: name_at(&site.skus, request.sku.at(), |s| &s.name),
            bandwidth: request.bandwidth,
            racks: self.rack_affinity(&request.affinity),
            nodes: names(&placement.nodes),
            spares: names(&placement.spares),
            uplinks: uplinks.collect(),
            cores: cores.collect(),
        }
    }

    fn rack_affinity(&self, affinity: &Affinity) -> RackAffinity {
        let racks = |labels: &[LabelId]| {
            let racks = labels.iter().filter_map(|&label| hall::rack_of_label(self.site, label));
            racks.map(|rack| rack.name.to_string()).collect()
        };
        RackAffinity {
            within: racks(&affinity.within),
            avoid: racks(&affinity.avoid),
            near: affinity.near.iter().map(|(cluster, _)| *cluster).collect(),
            apart: affinity.apart.iter().map(|(cluster, _)| *cluster).collect(),
            most: affinity.spread.iter().map(|(_, most)| *most).collect(),
        }
    }

    fn switch_name(&self, switch: SwitchId) -> String {
        self.site.switch(switch).name.to_string()
    }

    fn cables(&self, wiring: Wiring, links: Mask, peers: &[Option<SwitchId>]) -> Vec<String> {
        let cable = |bit: u32| {
            let peer = (*peers.get((bit % wiring.peers.max(1)) as usize)?)?;
            let name = &self.site.switch(peer).name;
            Some(match bit / wiring.peers.max(1) {
                0 => name.to_string(),
                more => format!("{name}#{}", more + 1),
            })
        };
        bits(links).filter_map(cable).collect()
    }

    /// Resolves a named placement in this site, with the site's present promises to the customer. [`Planner::adopt`]
    /// checks whether everything is free and every promise holds.
    ///
    /// # Errors
    /// Every node, switch, link, rack, SKU and customer that is missing in the site or is elsewhere.
    pub fn resolve(&self, named: &NamedPlacement) -> Result<Placement, Unresolved> {
        let mut faults = Vec::new();
        let customer = self.site.customer_named(&named.customer);
        if customer.is_none() {
            faults.push(format!("customer {} is not in the site", named.customer));
        }
        let sku = self.site.skus.iter().position(|sku| *sku.name == *named.sku);
        if sku.is_none() {
            faults.push(format!("SKU {} is not in the site", named.sku));
        }
        let nodes = self.nodes_named(&named.nodes, sku, &mut faults);
        let spares = self.nodes_named(&named.spares, sku, &mut faults);
        let uplinks = self.uplinks_named(named, &nodes, &spares, &mut faults);
        let cores = self.cores_named(named, &mut faults);
        let affinity = self.affinity(&named.racks, &mut faults);
        let composed = customer
            .zip(sku)
            .filter(|_| faults.is_empty())
            .and_then(|(customer, sku)| {
                let request = self.request(named, customer, sku, affinity);
                self.hall.compose(request, &nodes, &spares, &uplinks, cores)
            });
        composed.ok_or(Unresolved { faults })
    }

    fn request(&self, named: &NamedPlacement, customer: CustomerId, sku: usize, affinity: Affinity) -> Request {
        let count = |names: &[String]| u32::try_from(names.len()).unwrap_or(u32::MAX);
        let request = Request {
            spares: count(&named.spares),
            bandwidth: named.bandwidth,
            affinity,
            ..Request::plain(
                named.cluster,
                rackwright_placement::CustomerId(customer.0),
                rackwright_placement::SkuId(count_of(sku)),
                count(&named.nodes),
            )
        };
        hall::promised(self.site, request)
    }

    fn nodes_named(
        &self,
        names: &[String],
        sku: Option<usize>,
        faults: &mut Vec<String>,
    ) -> Vec<rackwright_placement::NodeId> {
        let mut nodes = Vec::with_capacity(names.len());
        let mut left_out = Vec::new();
        for name in names {
            match self.site.node_named(name) {
                None => faults.push(format!("node {name} is not in the site")),
                Some(id) => {
                    let known = self.site.sku_of(id);
                    if sku.is_some_and(|sku| self.site.node(id).sku.index() != sku) {
                        faults.push(format!("node {name} now has SKU {}", known.name));
                    }
                    if self.unit_of(id).is_none() {
                        left_out.push(id);
                    }
                    nodes.push(hall_node(id));
                }
            }
        }
        faults.extend(hall::left_out(self.site, &left_out));
        nodes
    }

    fn uplinks_named(
        &self,
        named: &NamedPlacement,
        nodes: &[rackwright_placement::NodeId],
        spares: &[rackwright_placement::NodeId],
        faults: &mut Vec<String>,
    ) -> BTreeMap<UnitId, Mask> {
        let mut uplinks = BTreeMap::new();
        let spec = self.hall.spec();
        for one in &named.uplinks {
            let Some(unit) = self.unit_of_leaves(&one.leaves, faults) else {
                continue;
            };
            let mut all = nodes.iter().chain(spares);
            let first = one.leaves.first().map_or("", String::as_str);
            if !all.any(|node| spec.nodes[node.at()].unit == Some(UnitId(count_of(unit)))) {
                faults.push(format!("no node of the cluster is cabled to {first} any more"));
                continue;
            }
            let pod = self.pod_of(unit);
            let peers = self.switches.spines.get(pod).map_or(&[][..], Vec::as_slice);
            let wiring = self.hall.wirings(PodId(count_of(pod))).spines;
            let mask = self.links_named(first, &one.cables, wiring, peers, faults);
            *uplinks.entry(UnitId(count_of(unit))).or_default() |= mask;
        }
        uplinks
    }

    fn unit_of_leaves(&self, leaves: &[String], faults: &mut Vec<String>) -> Option<usize> {
        let mut unit = None;
        for name in leaves {
            let Some(leaf) = self.site.switch_named(name) else {
                faults.push(format!("switch {name} is not in the site"));
                continue;
            };
            match (self.switches.unit_of_leaf(leaf), unit) {
                (None, _) => faults.push(format!("switch {name} is not a leaf of a scalable unit with nodes")),
                (Some(here), Some(there)) if here != there => {
                    faults.push(format!(
                        "switch {name} belongs to another scalable unit than {}",
                        leaves[0]
                    ));
                }
                (here, _) => unit = here,
            }
        }
        if leaves.is_empty() {
            faults.push("the leaf of the uplinks is missing".to_owned());
        }
        unit
    }

    fn pod_of(&self, unit: usize) -> usize {
        let mut before = 0;
        let pods = &self.hall.spec().pods;
        let pod = pods.iter().position(|pod| {
            before += pod.units.len();
            unit < before
        });
        pod.unwrap_or(pods.len())
    }

    fn cores_named(&self, named: &NamedPlacement, faults: &mut Vec<String>) -> Vec<SpineShare> {
        let mut cores = Vec::with_capacity(named.cores.len());
        for one in &named.cores {
            let Some(spine) = self.site.switch_named(&one.spine) else {
                faults.push(format!("switch {} is not in the site", one.spine));
                continue;
            };
            let Some((pod, place)) = self.switches.place_of_spine(spine) else {
                faults.push(format!("switch {} is not a spine of the first rail", one.spine));
                continue;
            };
            let peers = self.switches.cores[pod][place].as_slice();
            let pod = PodId(count_of(pod));
            cores.push(SpineShare {
                pod,
                spine: count_of(place),
                links: self.links_named(&one.spine, &one.cables, self.hall.wirings(pod).cores, peers, faults),
            });
        }
        cores.sort_by_key(|share| (share.pod, share.spine));
        cores
    }

    /// The links from a switch to `cables`, as bits.
    fn links_named(
        &self,
        from: &str,
        cables: &[String],
        wiring: Wiring,
        peers: &[Option<SwitchId>],
        faults: &mut Vec<String>,
    ) -> Mask {
        let mut links = 0;
        for cable in cables {
            let (name, number) = cable.split_once('#').unwrap_or((cable, "1"));
            let number = number.parse().ok().filter(|&n: &u32| n > 0 && n <= wiring.parallel);
            let Some(switch) = self.site.switch_named(name) else {
                faults.push(format!("switch {name} is not in the site"));
                continue;
            };
            match (peers.iter().position(|&peer| peer == Some(switch)), number) {
                (Some(place), Some(number)) => links |= 1 << ((number - 1) * wiring.peers + count_of(place)),
                _ => faults.push(format!("{from} has no cable to {cable}")),
            }
        }
        links
    }

    fn affinity(&self, rack_affinity: &RackAffinity, faults: &mut Vec<String>) -> Affinity {
        let mut labels = |names: &[String]| {
            let mut labels = Vec::with_capacity(names.len());
            for name in names {
                match self.site.racks.iter().position(|rack| *rack.name == **name) {
                    Some(rack) => labels.push(LabelId(count_of(rack))),
                    None => faults.push(format!("rack {name} is not in the site")),
                }
            }
            labels
        };
        let of_racks = |clusters: &[ClusterId]| clusters.iter().map(|&cluster| (cluster, RACK)).collect();
        Affinity {
            within: labels(&rack_affinity.within),
            avoid: labels(&rack_affinity.avoid),
            near: of_racks(&rack_affinity.near),
            apart: of_racks(&rack_affinity.apart),
            spread: rack_affinity.most.iter().map(|&most| (RACK, most)).collect(),
        }
    }
}

fn count_of(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// The name of an object. Empty if there is no such object.
fn name_at<T>(things: &[T], at: usize, name: impl Fn(&T) -> &str) -> String {
    things.get(at).map_or_else(String::new, |thing| name(thing).to_owned())
}
