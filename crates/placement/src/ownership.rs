//! Takes and frees placements as a whole, with independent checks.

use std::collections::BTreeSet;

use super::hall::{Hall, Unit};
use super::ledger::Trial;
use super::links::{Mask, bits, low};
use super::request::{Constraint, Placement, SpineShare, UnitShare};
use super::rule::Breach;
use super::spec::{ClusterId, NodeId, PodId};
use super::view::{Filter, Spread};

/// Why a placement cannot be taken. The hall is then unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// A cluster with this id exists already.
    #[error("cluster {} exists already", .0.0)]
    Known(ClusterId),
    /// There is no such cluster.
    #[error("there is no cluster {}", .0.0)]
    Unknown(ClusterId),
    /// The placement contradicts its request, or refers to missing objects.
    #[error("the placement contradicts itself: {0}")]
    Malformed(&'static str),
    /// A node is not free.
    #[error("node {} is not free", .0.0)]
    Node(NodeId),
    /// A node does not satisfy the request.
    #[error("node {} is not allowed for the request", .0.0)]
    NotAdmitted(NodeId),
    /// An uplink of a unit is not free.
    #[error("an uplink of unit {0} is not free")]
    Uplink(u32),
    /// A link above a spine is not free.
    #[error("a link above spine {spine} of pod {pod} is not free")]
    CoreLink { pod: u32, spine: u32 },
    /// The links do not keep the rule, so the cluster could need links of others.
    #[error(transparent)]
    Shape(#[from] Breach),
    /// A budget would be exceeded.
    #[error("a budget would be exceeded: {0:?}")]
    Budget(Constraint),
}

/// A cluster taken out of the hall temporarily.
pub(super) struct SetAside {
    pub placement: Placement,
    committed: bool,
}

impl Hall {
    /// Takes a whole placement or nothing. The cluster is held until it is committed or freed.
    ///
    /// # Errors
    /// The fault. Everything is checked again, because the plan may be based on an older state of the hall.
    pub fn take(&mut self, placement: &Placement) -> Result<(), TakeError> {
        self.check(placement, &Filter::new(self, &placement.request))?;
        self.enter(placement);
        Ok(())
    }

    /// Replaces the placement of a cluster, or changes nothing. A committed cluster stays committed. Its earlier nodes
    /// may meanwhile be held out.
    ///
    /// # Errors
    /// Those of [`Hall::take`]; [`TakeError::Unknown`] if there is no such cluster.
    pub fn exchange(&mut self, placement: &Placement) -> Result<(), TakeError> {
        let cluster = placement.request.cluster;
        let set_aside = self.set_aside(cluster).ok_or(TakeError::Unknown(cluster))?;
        let checked = self.check_exchange(placement, &set_aside.placement);
        let done = checked.is_ok();
        self.put_back(set_aside, if done { Some(placement) } else { None });
        checked
    }

    /// Like [`Hall::take`], for an earlier placement that is entered again. Wishes about other clusters are not
    /// checked, because those clusters may be gone or may follow later. The cluster keeps nodes that lost a rail.
    ///
    /// # Errors
    /// Those of [`Hall::take`].
    pub fn adopt(&mut self, placement: &Placement) -> Result<(), TakeError> {
        if self.clusters.contains_key(&placement.request.cluster) {
            return Err(TakeError::Known(placement.request.cluster));
        }
        let mut alone = placement.clone();
        alone.request.affinity.near.clear();
        alone.request.affinity.apart.clear();
        self.check(&alone, &Filter::of_present(self, &alone.request))?;
        self.enter(placement);
        Ok(())
    }

    /// Takes a cluster out during the search for another placement.
    pub(super) fn set_aside(&mut self, cluster: ClusterId) -> Option<SetAside> {
        let committed = self.is_committed(cluster);
        let placement = self.free(cluster)?;
        Some(SetAside { placement, committed })
    }

    /// Puts the cluster back, or the other placement in its place.
    pub(super) fn put_back(&mut self, set_aside: SetAside, instead: Option<&Placement>) {
        let cluster = set_aside.placement.request.cluster;
        self.enter(instead.unwrap_or(&set_aside.placement));
        if set_aside.committed {
            self.commit(cluster);
        }
    }

    /// Enters a placement that is checked or was in the hall before.
    fn enter(&mut self, placement: &Placement) {
        let request = &placement.request;
        let watts = self.spec.skus[request.sku.at()].watts;
        for share in &placement.units {
            let at = share.unit.at();
            for (profile, nodes) in self.groups_of(share) {
                self.ledger.add(request, &self.profiles[profile], nodes, watts);
            }
            let unit = &mut self.units[at];
            unit.free &= !share.hosts;
            unit.taken |= share.hosts;
            unit.links &= !share.links;
            self.settle(at);
        }
        for share in &placement.cores {
            self.pods[share.pod.at()].up[share.spine as usize] &= !share.links;
        }
        self.clusters.insert(request.cluster, placement.clone());
    }

    /// Frees everything that a cluster has and returns its placement. `None`: there is no such cluster.
    pub fn free(&mut self, cluster: ClusterId) -> Option<Placement> {
        let placement = self.forget(cluster)?;
        let request = &placement.request;
        let watts = self.spec.skus[request.sku.at()].watts;
        for share in &placement.units {
            let at = share.unit.at();
            for (profile, nodes) in self.groups_of(share) {
                self.ledger.remove(request, &self.profiles[profile], nodes, watts);
            }
            let unit = &mut self.units[at];
            unit.taken &= !share.hosts;
            unit.free |= share.hosts & !unit.excluded;
            unit.links |= share.links & !unit.broken;
            self.settle(at);
        }
        for share in &placement.cores {
            let (pod, spine) = (&mut self.pods[share.pod.at()], share.spine as usize);
            pod.up[spine] |= share.links & !pod.broken[spine];
        }
        Some(placement)
    }

    /// Profile and number of the nodes in a share.
    fn groups_of(&self, share: &UnitShare) -> Vec<(usize, u32)> {
        let groups = self.units[share.unit.at()].groups.iter();
        let here = groups.map(|g| (g.profile as usize, (g.hosts & share.hosts).count_ones()));
        here.filter(|g| g.1 > 0).collect()
    }

    /// Updates a unit's counts.
    fn settle(&mut self, at: usize) {
        let wirings = self.wirings(PodId(self.units[at].pod));
        let unit = &mut self.units[at];
        unit.counted = wirings.spines.counted(unit.links);
        self.recount(at);
    }

    fn check(&self, placement: &Placement, filter: &Filter) -> Result<(), TakeError> {
        let request = &placement.request;
        if self.clusters.contains_key(&request.cluster) {
            return Err(TakeError::Known(request.cluster));
        }
        self.check_nodes(placement, |node, unit, bit, profile| {
            if unit.free & bit == 0 {
                return Err(TakeError::Node(node));
            }
            let admitted = filter.admits(self, profile).is_ok();
            admitted.then_some(()).ok_or(TakeError::NotAdmitted(node))
        })?;
        self.check_rest(placement)
    }

    /// The same for a cluster taken out of the hall: its earlier nodes are allowed.
    fn check_exchange(&self, placement: &Placement, before: &Placement) -> Result<(), TakeError> {
        let had: BTreeSet<NodeId> = before.nodes.iter().chain(&before.spares).copied().collect();
        let filter = Filter::new(self, &placement.request);
        self.check_nodes(placement, |node, unit, bit, profile| {
            let free = unit.taken & bit == 0 && (unit.excluded & bit == 0 || had.contains(&node));
            if !free {
                return Err(TakeError::Node(node));
            }
            let admitted = had.contains(&node) || filter.admits(self, profile).is_ok();
            admitted.then_some(()).ok_or(TakeError::NotAdmitted(node))
        })?;
        let own = before.units.iter();
        self.check_links_of(placement, |share| {
            let own = own.clone().find(|u| u.unit == share.unit).map_or(0, |u| u.links);
            self.units[share.unit.at()].links | own
        })?;
        self.check_cores_of(placement, &before.cores)?;
        self.check_rule(placement)?;
        self.check_budgets(placement)
    }

    fn check_rest(&self, placement: &Placement) -> Result<(), TakeError> {
        self.check_links_of(placement, |share| self.units[share.unit.at()].links)?;
        self.check_cores_of(placement, &[])?;
        self.check_rule(placement)?;
        self.check_budgets(placement)
    }

    /// Checks the nodes, each with its unit, its bit in the unit and its profile.
    fn check_nodes(
        &self,
        placement: &Placement,
        may: impl Fn(NodeId, &Unit, Mask, u32) -> Result<(), TakeError>,
    ) -> Result<(), TakeError> {
        let request = &placement.request;
        let malformed = |why| Err(TakeError::Malformed(why));
        if request.size() == 0 || request.sku.at() >= self.spec.skus.len() {
            return malformed("it requests no nodes, or an unknown SKU");
        }
        if placement.nodes.len() != request.nodes as usize || placement.spares.len() != request.spares as usize {
            return malformed("its number of nodes differs from the request");
        }
        let mut of_units = Vec::new();
        for share in &placement.units {
            let Some(unit) = self.units.get(share.unit.at()).filter(|u| u.pod == share.pod.0) else {
                return malformed("it names a unit that does not exist");
            };
            if share.hosts == 0 || share.hosts & !low(unit.nodes.len() as u32) != 0 {
                return malformed("it names hosts that do not exist, or no host of a unit");
            }
            of_units.extend(bits(share.hosts).map(|place| NodeId(unit.nodes[place as usize])));
        }
        let mut named: Vec<_> = placement.nodes.iter().chain(&placement.spares).copied().collect();
        named.sort_unstable();
        of_units.sort_unstable();
        if named != of_units || named.windows(2).any(|w| w[0] == w[1]) {
            return malformed("its nodes differ from the hosts of its units, or a node is listed twice");
        }
        for node in named {
            let Some((unit, place)) = self.place_of(node) else {
                return malformed("it names a node that does not exist");
            };
            let unit = &self.units[unit as usize];
            let bit: Mask = 1 << place;
            let group = unit.groups.iter().find(|g| g.hosts & bit != 0);
            let group = group.ok_or(TakeError::NotAdmitted(node))?;
            may(node, unit, bit, group.profile)?;
        }
        Ok(())
    }

    fn check_links_of(&self, placement: &Placement, free: impl Fn(&UnitShare) -> Mask) -> Result<(), TakeError> {
        for share in &placement.units {
            if share.links & !free(share) != 0 {
                return Err(TakeError::Uplink(share.unit.0));
            }
        }
        Ok(())
    }

    /// Checks the links above the spines: they are free, or the cluster had them before.
    fn check_cores_of(&self, placement: &Placement, before: &[SpineShare]) -> Result<(), TakeError> {
        let mut seen = BTreeSet::new();
        for share in &placement.cores {
            let (pod, spine) = (share.pod.0, share.spine);
            let own = before.iter().find(|had| had.pod == share.pod && had.spine == spine);
            let own = own.map_or(0, |had| had.links);
            let up = self.pods.get(pod as usize).and_then(|p| p.up.get(spine as usize));
            let free = up.is_some_and(|&up| share.links & !(up | own) == 0);
            if !free || !seen.insert((pod, spine)) {
                return Err(TakeError::CoreLink { pod, spine });
            }
        }
        Ok(())
    }

    fn check_budgets(&self, placement: &Placement) -> Result<(), TakeError> {
        let request = &placement.request;
        if self.contract_left(request) < u64::from(request.size()) * self.spec.skus[request.sku.at()].watts {
            return Err(TakeError::Budget(Constraint::Contract));
        }
        let spread = Spread::of(self, request);
        let mut trial = Trial::new(&self.ledger, request.survives_feed_loss, &spread);
        for share in &placement.units {
            for (profile, nodes) in self.groups_of(share) {
                let profile = &self.profiles[profile];
                let room = trial.room(profile);
                if room.nodes < nodes {
                    let what = room.limit.map_or(Constraint::Budgets, |l| l.what);
                    return Err(TakeError::Budget(what));
                }
                trial.add(profile, nodes);
            }
        }
        Ok(())
    }
}
