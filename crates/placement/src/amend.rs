//! Changes of an existing cluster: nodes leave or join, and all others stay in place.
//!
//! [`amend`] takes the cluster out of the hall, searches a shape that contains the kept hosts, and puts the cluster back
//! unchanged. [`Hall::exchange`] then makes the change. The cluster keeps its links if possible. Otherwise the whole
//! cluster gets other links. Other links cost nothing until another cluster needs them; a node that moves loses its work.

use std::collections::{BTreeMap, BTreeSet};

use super::hall::Hall;
use super::links::{Mask, bits};
use super::refuse;
use super::request::{Constraint, Nearest, Placement, Refusal, Request, SpineShare, UnitShare};
use super::rule;
use super::shape;
use super::spec::{ClusterId, NodeId, PodId, UnitId};
use super::view::{Effort, View};

mod narrow;
mod seek;

use narrow::Links;

/// Maximum number of search steps for a change.
const STEPS_MAX: u64 = 200_000;
/// Maximum number of searches for a smaller growth that fits.
const SMALLER_TRIES: u32 = 4;

/// A change of a cluster's nodes. All nodes not named here stay, in use or as spares.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Nodes that leave the cluster.
    pub leaving: Vec<NodeId>,
    /// Spares that become nodes in use.
    pub promoted: Vec<NodeId>,
    /// Number of nodes in use that join.
    pub nodes: u32,
    /// Number of spares that join.
    pub spares: u32,
    /// Nodes that must not join, in addition to those that leave.
    pub avoid: BTreeSet<NodeId>,
    /// The unit that is searched first for joining nodes. It counts only if nodes of the cluster stay in this unit.
    pub first: Option<UnitId>,
}

/// The placement of a cluster after a change. The hall is unchanged. Pass the result to [`Hall::exchange`].
///
/// # Errors
/// The change does not fit. The refusal names the constraint, and the largest growth that was found to fit.
pub fn amend(hall: &mut Hall, cluster: ClusterId, change: &Change) -> Result<Placement, Refusal> {
    let before = hall.clusters.get(&cluster).ok_or_else(|| {
        let why = format!("there is no cluster {}", cluster.0);
        refuse::bare_refusal(Constraint::Cluster(cluster), why)
    })?;
    let wanted = AmendRequest::of(hall, before, change)?;
    let Some(set_aside) = hall.set_aside(cluster) else {
        let why = format!("there is no cluster {}", cluster.0);
        return Err(refuse::bare_refusal(Constraint::Cluster(cluster), why));
    };
    let found = wanted.find(hall, &set_aside.placement).map_err(|mut refusal| {
        refusal.nearest = wanted.smaller(hall, &set_aside.placement).into_iter().collect();
        refusal
    });
    hall.put_back(set_aside, None);
    found.map(|found| wanted.with_roles(hall, found))
}

/// The goal of a search.
struct AmendRequest {
    request: Request,
    /// Hosts that stay, by unit.
    kept: BTreeMap<u32, Mask>,
    /// Kept nodes that are spares after the change.
    kept_spares: BTreeSet<NodeId>,
    /// Hosts that must not join, by unit.
    excluded_hosts: BTreeMap<u32, Mask>,
    /// Labels that no joining host may have: other clusters keep apart from this cluster by these labels.
    avoided_labels: BTreeSet<u32>,
    first: Option<u32>,
    /// Number of nodes and spares that join.
    joining: (u32, u32),
}

impl AmendRequest {
    fn of(hall: &Hall, before: &Placement, change: &Change) -> Result<Self, Refusal> {
        let cluster = before.request.cluster;
        let leaving: BTreeSet<NodeId> = change.leaving.iter().copied().collect();
        let promoted: BTreeSet<NodeId> = change.promoted.iter().copied().collect();
        let own: BTreeSet<NodeId> = before.nodes.iter().chain(&before.spares).copied().collect();
        let spares: BTreeSet<NodeId> = before.spares.iter().copied().collect();
        let not_in_cluster = leaving.iter().find(|n| !own.contains(n));
        if let Some(node) = not_in_cluster.or_else(|| promoted.iter().find(|n| !spares.contains(n))) {
            let name = hall.spec.nodes.get(node.at()).map_or("?", |n| n.name.as_str());
            let why = format!(
                "node {name} is not part of cluster {}, or is not a spare of the cluster",
                cluster.0
            );
            return Err(refuse::bare_refusal(Constraint::Cluster(cluster), why));
        }
        let joining = change.nodes.saturating_add(change.spares);
        if joining as usize > hall.spec.nodes.len() {
            let why = format!(
                "{joining} more nodes are requested, but the site has only {}",
                hall.spec.nodes.len()
            );
            return Err(refuse::bare_refusal(Constraint::Nodes, why));
        }
        let kept: BTreeSet<NodeId> = own.difference(&leaving).copied().collect();
        let kept_spares: BTreeSet<NodeId> = spares.intersection(&kept).copied().collect();
        let kept_spares: BTreeSet<NodeId> = kept_spares.difference(&promoted).copied().collect();
        let mut request = before.request.clone();
        request.nodes = ((kept.len() - kept_spares.len()) as u32).saturating_add(change.nodes);
        request.spares = (kept_spares.len() as u32).saturating_add(change.spares);
        if request.nodes == 0 {
            let why = "no node in use would remain; release the whole cluster instead".to_owned();
            return Err(refuse::bare_refusal(Constraint::Empty, why));
        }
        if before.request.size() == 1
            && request.needs_all_rails()
            && let Some(node) = kept.iter().find(|node| hall.spec.nodes[node.at()].impaired)
        {
            let why = format!(
                "node {} lacks a rail or has exchanged rails, so its non-blocking cluster cannot have more nodes; \
                 repair the cables of the node, or replace the node first",
                hall.spec.nodes[node.at()].name
            );
            return Err(refuse::bare_refusal(Constraint::Rails, why));
        }
        // A cluster that no longer exists constrains nothing.
        let affinity = &mut request.affinity;
        affinity.near.retain(|(other, _)| hall.clusters.contains_key(other));
        affinity.apart.retain(|(other, _)| hall.clusters.contains_key(other));
        Ok(Self {
            kept: by_unit(hall, &kept),
            kept_spares,
            excluded_hosts: by_unit(hall, leaving.iter().chain(&change.avoid)),
            avoided_labels: avoided_labels(hall, cluster),
            first: change
                .first
                .map(|unit| unit.0)
                .filter(|&u| (u as usize) < hall.units.len()),
            joining: (change.nodes, change.spares),
            request,
        })
    }

    /// The cheapest placement that keeps the remaining nodes. Tries the cluster's own links first.
    fn find(&self, hall: &mut Hall, before: &Placement) -> Result<Placement, Refusal> {
        let watts = hall.spec.skus[self.request.sku.at()].watts * u64::from(self.request.size());
        if self.joining != (0, 0) && hall.contract_left(&self.request) < watts {
            return Err(refuse::explain_change(&self.view(hall), Effort::new(0)));
        }
        let mut effort = Effort::new(STEPS_MAX);
        let mut found: Option<(usize, Placement)> = None;
        for links in Links::of(hall, before) {
            let bound = found.as_ref().map_or(usize::MAX, |f| f.0);
            let narrowed = narrow::narrow(hall, before, links);
            let view = self.view(hall);
            found = seek::seek(&view, &mut effort, self.first, bound).or(found);
            narrow::widen(hall, narrowed);
            // No new unit is needed: no placement is cheaper.
            if found.as_ref().is_some_and(|f| f.0 == 0) {
                break;
            }
        }
        if let Some((_, placement)) = found {
            return Ok(placement);
        }
        if self.joining == (0, 0) {
            return Ok(self.unchanged(hall, before));
        }
        let view = self.view(hall);
        Err(refuse::explain_change(&view, effort))
    }

    fn view<'a>(&'a self, hall: &'a Hall) -> View<'a> {
        View::keeping(
            hall,
            &self.request,
            self.kept.clone(),
            self.excluded_hosts.clone(),
            &self.avoided_labels,
        )
    }

    /// The kept hosts on their present links. A shape that keeps the rule of links keeps it with fewer nodes too.
    fn unchanged(&self, hall: &Hall, before: &Placement) -> Placement {
        let kept_hosts = |share: &UnitShare| self.kept.get(&share.unit.0).copied();
        let is_one_unit = self.kept.len() < 2;
        let units: Vec<UnitShare> = before
            .units
            .iter()
            .filter_map(|share| {
                let links = if is_one_unit { 0 } else { share.links };
                kept_hosts(share).map(|hosts| UnitShare { hosts, links, ..*share })
            })
            .collect();
        let pods: BTreeSet<PodId> = units.iter().map(|u| u.pod).collect();
        let mut cores = before.cores.clone();
        cores.retain(|share| pods.len() > 1 && pods.contains(&share.pod));
        shape::assemble(hall, self.request.clone(), units, cores)
    }

    /// Chooses the spares: the kept spares, and of the joining nodes the last in the order of hosts.
    fn with_roles(&self, hall: &Hall, mut placement: Placement) -> Placement {
        let mut all = std::mem::take(&mut placement.nodes);
        all.append(&mut placement.spares);
        all.sort_unstable_by_key(|&node| hall.place_of(node));
        let mut spares = self.kept_spares.clone();
        let joined = all.iter().rev().filter(|&&node| {
            let place = hall.place_of(node);
            place.is_some_and(|(unit, place)| self.kept.get(&unit).copied().unwrap_or(0) & (1 << place) == 0)
        });
        spares.extend(joined.take(self.joining.1 as usize));
        (placement.spares, placement.nodes) = all.into_iter().partition(|node| spares.contains(node));
        placement
    }

    /// A smaller growth that fits. A bisection of a few searches finds a large one.
    fn smaller(&self, hall: &mut Hall, before: &Placement) -> Option<Nearest> {
        let (nodes, spares) = self.joining;
        let (mut fits, mut too_many) = (0, nodes + spares);
        let mut nearest = None;
        for _ in 0..SMALLER_TRIES {
            let next = u32::midpoint(fits, too_many);
            if next == fits {
                break;
            }
            let mut request = self.request.clone();
            let joining = (next.saturating_sub(spares), spares.min(next));
            request.nodes = request.nodes - nodes + joining.0;
            request.spares = request.spares - spares + joining.1;
            let change = format!("{next} of {} more nodes", nodes + spares);
            let smaller = Self {
                request: request.clone(),
                kept: self.kept.clone(),
                kept_spares: self.kept_spares.clone(),
                excluded_hosts: self.excluded_hosts.clone(),
                avoided_labels: self.avoided_labels.clone(),
                first: self.first,
                joining,
            };
            if request.nodes > 0 && smaller.find(hall, before).is_ok() {
                fits = next;
                nearest = Some(Nearest { request, change });
            } else {
                too_many = next;
            }
        }
        nearest
    }
}

fn by_unit<'a>(hall: &Hall, nodes: impl IntoIterator<Item = &'a NodeId>) -> BTreeMap<u32, Mask> {
    let mut hosts: BTreeMap<u32, Mask> = BTreeMap::new();
    for (unit, place) in nodes.into_iter().filter_map(|&node| hall.place_of(node)) {
        *hosts.entry(unit).or_default() |= 1 << place;
    }
    hosts
}

/// Labels of the hosts of other clusters, by which these clusters keep apart from `cluster`.
fn avoided_labels(hall: &Hall, cluster: ClusterId) -> BTreeSet<u32> {
    let mut labels = BTreeSet::new();
    for other in hall.clusters.values() {
        for (_, kind) in other.request.affinity.apart.iter().filter(|(from, _)| *from == cluster) {
            labels.extend(super::view::labels_of(hall, other, *kind));
        }
    }
    labels
}

impl Hall {
    /// A placement from its parts, with the resulting loads. `None`: a node does not exist. [`Hall::take`] makes all
    /// other checks.
    #[must_use]
    pub fn compose(
        &self,
        request: Request,
        nodes: &[NodeId],
        spares: &[NodeId],
        uplinks: &BTreeMap<UnitId, Mask>,
        cores: Vec<SpineShare>,
    ) -> Option<Placement> {
        let all = || nodes.iter().chain(spares);
        if all().any(|&node| self.place_of(node).is_none()) {
            return None;
        }
        let share = |(unit, hosts): (u32, Mask)| UnitShare {
            unit: UnitId(unit),
            pod: PodId(self.units[unit as usize].pod),
            hosts,
            links: uplinks.get(&UnitId(unit)).copied().unwrap_or(0),
        };
        let units = by_unit(self, all()).into_iter().map(share).collect();
        let mut placement = shape::assemble(self, request, units, cores);
        let in_order = |nodes: &[NodeId]| {
            let mut nodes = nodes.to_vec();
            nodes.sort_unstable_by_key(|&node| self.place_of(node));
            nodes
        };
        placement.nodes = in_order(nodes);
        placement.spares = in_order(spares);
        Some(placement)
    }

    /// Checks the links of a placement against the rule of links ([`rule`]). Links that other clusters use count as free.
    ///
    /// # Errors
    /// The first breach of the rule.
    pub fn check_rule(&self, placement: &Placement) -> Result<(), rule::Breach> {
        let fabric = |share: &UnitShare| self.pods.get(share.pod.at()).map(|pod| pod.fabric);
        let first = placement.units.first();
        if placement
            .units
            .iter()
            .any(|share| Some(fabric(share)) != first.map(fabric))
        {
            return Err(rule::Breach::Fabrics);
        }
        rule::check(
            self.wirings(first.map_or(PodId(0), |share| share.pod)),
            placement.request.bandwidth,
            &placement.units,
            &placement.cores,
        )
    }

    /// The nodes of a unit's share, ordered by host index.
    #[must_use]
    pub fn nodes_of(&self, share: &UnitShare) -> Vec<NodeId> {
        let unit = self.units.get(share.unit.at());
        let node = |place: u32| unit.and_then(|u| u.nodes.get(place as usize)).copied().map(NodeId);
        bits(share.hosts).filter_map(node).collect()
    }
}
