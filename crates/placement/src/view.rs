//! A hall from the view of one request: the admitted nodes, and the maximum number from each unit.

use std::collections::{BTreeMap, BTreeSet};

use super::hall::{Group, Hall, Traits};
use super::ledger::{Tenants, Trial};
use super::links::Mask;
use super::profile::Profile;
use super::request::{Constraint, Placement, Request};
use super::spec::{CustomerId, LabelKind};

/// The constraints of a request on single nodes.
#[derive(Clone)]
pub(super) struct Filter {
    sku: u32,
    customer: CustomerId,
    own_circuits: bool,
    own_cooling: bool,
    survives: bool,
    all_rails: bool,
    within: Vec<u32>,
    avoid: BTreeSet<u32>,
    /// A node must have a label of each of these sets.
    near: Vec<BTreeSet<u32>>,
    /// Whether a circuit may be another customer's alone, or must be this customer's alone.
    asks_circuits: bool,
    /// Whether some cooling unit of the hall repels this customer.
    asks_cooling: bool,
    /// Whether labels decide.
    asks_labels: bool,
}

impl Filter {
    pub fn new(hall: &Hall, request: &Request) -> Self {
        let of = |(cluster, kind): &(_, LabelKind)| {
            let placement = hall.clusters.get(cluster);
            placement.map_or_else(BTreeSet::new, |p| labels_of(hall, p, *kind))
        };
        let affinity = &request.affinity;
        let mut avoid: BTreeSet<u32> = affinity.avoid.iter().map(|l| l.0).collect();
        avoid.extend(affinity.apart.iter().flat_map(of));
        let ledger = &hall.ledger;
        let repels = |tenants: &Tenants| tenants.repels(request.customer, request.own_cooling);
        let within: Vec<u32> = affinity.within.iter().map(|l| l.0).collect();
        let near: Vec<BTreeSet<u32>> = affinity.near.iter().map(of).collect();
        Self {
            asks_labels: !(within.is_empty() && avoid.is_empty() && near.is_empty()),
            asks_circuits: request.own_circuits || ledger.dedicated > 0,
            asks_cooling: ledger.cooling.iter().any(repels),
            sku: request.sku.0,
            customer: request.customer,
            own_circuits: request.own_circuits,
            own_cooling: request.own_cooling,
            survives: request.survives_feed_loss,
            all_rails: request.needs_all_rails(),
            within,
            avoid,
            near,
        }
    }

    /// The same for a cluster that has its nodes already: a node that lost a rail since then stays.
    pub fn of_present(hall: &Hall, request: &Request) -> Self {
        Self {
            all_rails: false,
            ..Self::new(hall, request)
        }
    }

    /// Whether a node with this profile is admitted. A decision asks this about each profile of the hall, mostly about nodes
    /// that only their traits and circuits decide about.
    fn takes(&self, hall: &Hall, profile: u32) -> bool {
        let traits = hall.traits[profile as usize];
        if traits.sku != self.sku || self.survives && !traits.survives || self.all_rails && traits.impaired {
            return false;
        }
        if self.asks_cooling || self.asks_labels {
            return self.admits(hall, profile).is_ok();
        }
        let repels = |circuit: &u32| hall.ledger.circuits[*circuit as usize].repels(self.customer, self.own_circuits);
        !self.asks_circuits || !hall.circuits_of(traits).iter().any(repels)
    }

    /// Why a node with this profile is not admitted.
    ///
    /// # Errors
    /// The first constraint in the way.
    pub fn admits(&self, hall: &Hall, profile: u32) -> Result<(), Constraint> {
        let traits = hall.traits[profile as usize];
        if traits.sku != self.sku {
            return Err(Constraint::Nodes);
        }
        if self.asks_labels && !self.is_placed(&hall.profiles[profile as usize].labels) {
            return Err(Constraint::Affinity);
        }
        let repels = |tenants: &Tenants, alone| tenants.repels(self.customer, alone);
        let circuit = |&c: &u32| repels(&hall.ledger.circuits[c as usize], self.own_circuits);
        if self.asks_circuits && hall.circuits_of(traits).iter().any(circuit) {
            return Err(Constraint::Dedication);
        }
        let cooling = |&(c, _): &(u32, u64)| repels(&hall.ledger.cooling[c as usize], self.own_cooling);
        if self.asks_cooling && hall.profiles[profile as usize].heat.iter().any(cooling) {
            return Err(Constraint::Dedication);
        }
        if self.survives && !traits.survives {
            return Err(Constraint::Supplies);
        }
        if self.all_rails && traits.impaired {
            return Err(Constraint::Rails);
        }
        Ok(())
    }

    /// Whether a node with these labels, in order, is where the cluster may be.
    fn is_placed(&self, labels: &[u32]) -> bool {
        let has = |label: &u32| labels.binary_search(label).is_ok();
        self.within.iter().all(has)
            && !labels.iter().any(|label| self.avoid.contains(label))
            && self.near.iter().all(|set| set.iter().any(has))
    }
}

/// The maximum number of nodes under each label of some kinds.
#[derive(Debug, Clone, Default)]
pub(super) struct Spread<'a> {
    /// The kind of each label of the hall.
    kinds: &'a [LabelKind],
    limits: Vec<(LabelKind, u32)>,
}

impl<'a> Spread<'a> {
    pub fn of(hall: &'a Hall, request: &Request) -> Self {
        Self {
            kinds: &hall.label_kinds,
            limits: request.affinity.spread.clone(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Whether the traits of a profile know each kind with a limit.
    fn is_of_known_kinds(&self) -> bool {
        self.limits.iter().all(|(kind, _)| kind.0 < Traits::KINDS)
    }

    /// The maximum number of nodes of a profile with these traits, if no other node has its labels.
    fn most_of(&self, traits: Traits) -> u32 {
        let limits = self.limits.iter().filter(|(kind, _)| traits.has(*kind));
        limits.map(|limit| limit.1).min().unwrap_or(u32::MAX)
    }

    /// The maximum number of nodes under a label. `None`: no limit.
    pub fn most(&self, label: u32) -> Option<u32> {
        let kind = self.kinds.get(label as usize)?;
        let limits = self.limits.iter().filter(|limit| limit.0 == *kind);
        limits.map(|limit| limit.1).min()
    }
}

/// The labels of this kind on a cluster's nodes.
pub(super) fn labels_of(hall: &Hall, placement: &Placement, kind: LabelKind) -> BTreeSet<u32> {
    let mut labels = BTreeSet::new();
    for share in &placement.units {
        for group in &hall.units[share.unit.at()].groups {
            if group.hosts & share.hosts != 0 {
                let carried = &hall.profiles[group.profile as usize].labels;
                labels.extend(carried.iter().filter(|&&l| hall.label_kinds[l as usize] == kind));
            }
        }
    }
    labels
}

impl Hall {
    /// The load that the customer's contract still allows, in watts.
    pub(super) fn contract_left(&self, request: &Request) -> u64 {
        let drawn = self.ledger.customers.get(&request.customer).copied().unwrap_or(0);
        let bound = self.spec.contracts.get(&request.customer).copied().unwrap_or(u64::MAX);
        bound.saturating_sub(drawn)
    }
}

/// A hall from the view of one request.
#[derive(Clone)]
pub(super) struct View<'a> {
    pub hall: &'a Hall,
    pub request: &'a Request,
    /// Number of nodes, including spares.
    pub size: u32,
    filter: Filter,
    /// For each unit, the free hosts that the request may have. `None`: all free hosts of the SKU.
    admitted: Option<Vec<Mask>>,
    pub spread: Spread<'a>,
    /// Hosts that the cluster keeps, by unit. Empty for a new cluster.
    kept: BTreeMap<u32, Mask>,
    /// Free hosts that the cluster must not get, by unit.
    excluded_hosts: BTreeMap<u32, Mask>,
    /// Upper bound on the number of nodes from each unit. Fewer may fit.
    pub caps: Vec<u32>,
    /// Upper bound for each pod.
    pub pod_caps: Vec<u32>,
}

/// The remaining search effort, and the progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Effort {
    /// Remaining steps.
    pub steps: u64,
    /// Whether the search was cut short.
    pub cut: bool,
    /// Maximum number of nodes reached by an attempt.
    pub reached: u32,
}

impl Effort {
    /// An effort with this many steps.
    pub fn new(steps: u64) -> Self {
        Self {
            steps,
            cut: false,
            reached: 0,
        }
    }

    /// Uses up the steps of work that is done in any case.
    pub fn spend(&mut self, things: usize) {
        self.steps = self.steps.saturating_sub(1 + things as u64 / 8);
    }

    /// Uses up a step that examines this many objects. `None`: no steps are left.
    pub fn step(&mut self, things: usize) -> Option<()> {
        match self.steps.checked_sub(1 + things as u64 / 8) {
            Some(left) => {
                self.steps = left;
                Some(())
            }
            None => {
                self.cut = true;
                None
            }
        }
    }
}

impl<'a> View<'a> {
    pub fn new(hall: &'a Hall, request: &'a Request) -> Self {
        let mut view = Self {
            hall,
            request,
            size: request.size(),
            filter: Filter::new(hall, request),
            admitted: None,
            spread: Spread::of(hall, request),
            kept: BTreeMap::new(),
            excluded_hosts: BTreeMap::new(),
            caps: Vec::new(),
            pod_caps: Vec::new(),
        };
        let all_whole = !hall.has_impaired || !request.needs_all_rails();
        let any = request.affinity.takes_any_node() && hall.ledger.dedicated == 0 && all_whole;
        if any && !request.own_circuits && !request.own_cooling && !request.survives_feed_loss {
            view.caps.clone_from(&hall.free_in_unit[request.sku.at()]);
            view.pod_caps.clone_from(&hall.free_in_pod[request.sku.at()]);
        } else {
            let admitted: Vec<_> = (0..hall.units.len()).map(|u| view.admit(u as u32)).collect();
            view.caps = admitted.iter().map(|hosts| hosts.count_ones()).collect();
            view.admitted = Some(admitted);
            view.sum_pods();
        }
        view
    }

    /// The view for a cluster that keeps hosts and is out of the hall temporarily. It gets no hosts in `excluded_hosts`, and
    /// none with a label in `avoided_labels`, by which other clusters keep apart from it.
    pub fn keeping(
        hall: &'a Hall,
        request: &'a Request,
        kept: BTreeMap<u32, Mask>,
        excluded_hosts: BTreeMap<u32, Mask>,
        avoided_labels: &BTreeSet<u32>,
    ) -> Self {
        let mut filter = Filter::new(hall, request);
        filter.avoid.extend(avoided_labels);
        filter.asks_labels |= !avoided_labels.is_empty();
        let mut view = Self {
            hall,
            request,
            size: request.size(),
            filter,
            admitted: None,
            spread: Spread::of(hall, request),
            kept,
            excluded_hosts,
            caps: Vec::new(),
            pod_caps: Vec::new(),
        };
        let open = |unit: u32| view.admit(unit) & view.open(unit);
        let admitted: Vec<Mask> = (0..hall.units.len() as u32).map(open).collect();
        let kept = |unit: usize| view.kept_in(unit as u32).count_ones();
        view.caps = admitted
            .iter()
            .enumerate()
            .map(|(u, m)| m.count_ones() + kept(u))
            .collect();
        view.admitted = Some(admitted);
        view.sum_pods();
        view
    }

    /// Hosts of a unit that the cluster keeps.
    pub fn kept_in(&self, unit: u32) -> Mask {
        self.kept.get(&unit).copied().unwrap_or(0)
    }

    /// Free hosts of a unit that the cluster does not have and that are not barred, regardless of other constraints.
    pub fn open(&self, unit: u32) -> Mask {
        let excluded_hosts = self.excluded_hosts.get(&unit).copied().unwrap_or(0);
        self.hall.units[unit as usize].free & !excluded_hosts & !self.kept_in(unit)
    }

    /// Whether the request may have every free node of its SKU.
    pub fn admits_all_free(&self) -> bool {
        self.admitted.is_none() && self.kept.is_empty()
    }

    /// Whether any budget can run short for this request.
    pub fn is_tight(&self) -> bool {
        self.hall.tight || !self.spread.is_empty()
    }

    /// Upper bound on the number of nodes for the request, regardless of links.
    pub fn cap(&self) -> u32 {
        self.pod_caps.iter().sum()
    }

    /// The same for nodes of one fabric.
    pub fn cap_of_fabric(&self) -> u32 {
        let of = |pods: &std::ops::Range<u32>| -> u32 { pods.clone().map(|pod| self.pod_caps[pod as usize]).sum() };
        let fabrics = self.hall.fabrics.iter();
        fabrics.map(|fabric| of(&fabric.pods)).max().unwrap_or(0)
    }

    /// Number of kept hosts.
    pub fn kept_nodes(&self) -> u32 {
        self.kept.values().map(|hosts| hosts.count_ones()).sum()
    }

    /// The free hosts of a unit that the request may have.
    fn admit(&self, unit: u32) -> Mask {
        let unit = &self.hall.units[unit as usize];
        if unit.free == 0 {
            return 0;
        }
        let groups = unit.groups.iter().filter(|g| g.hosts & unit.free != 0);
        groups
            .filter(|g| self.filter.takes(self.hall, g.profile))
            .fold(0, |mask, g| mask | g.hosts & unit.free)
    }

    fn sum_pods(&mut self) {
        let pods = self.hall.pods.iter();
        let sum = |units: std::ops::Range<u32>| units.map(|u| self.caps[u as usize]).sum();
        self.pod_caps = pods.map(|p| sum(p.units.clone())).collect();
    }

    /// Lowers every unit's bound to the nodes that fit the budgets, each unit considered alone.
    pub fn tighten(&mut self) {
        let units: Vec<u32> = (0..self.caps.len() as u32)
            .filter(|&u| self.caps[u as usize] > 0)
            .collect();
        self.tighten_some(&units);
    }

    /// The same for some units. Returns false if no bound changed.
    pub fn tighten_some(&mut self, units: &[u32]) -> bool {
        // Where no budget can run short, only the labels count, and the traits suffice for a new cluster.
        let by_traits = !self.hall.tight && self.kept.is_empty() && self.spread.is_of_known_kinds();
        let rooms: Vec<u32> = if by_traits {
            let room = |(at, hosts): (u32, Mask)| {
                let most = self.spread.most_of(self.hall.traits[at as usize]);
                most.min(hosts.count_ones())
            };
            units
                .iter()
                .map(|&u| self.hosts_by_profile(u).map(room).sum())
                .collect()
        } else {
            let trial = self.trial();
            let room = |(profile, hosts): (&Profile, Mask)| trial.room(profile).nodes.min(hosts.count_ones());
            let kept = |u: u32| self.kept_in(u).count_ones();
            let all = |&u: &u32| kept(u) + self.groups(u).map(room).sum::<u32>();
            units.iter().map(all).collect()
        };
        let mut any = false;
        for (&unit, room) in units.iter().zip(rooms) {
            any |= room < self.caps[unit as usize];
            self.lower(unit, room);
        }
        any
    }

    /// Lowers the upper bound of a unit.
    fn lower(&mut self, unit: u32, cap: u32) {
        let before = self.caps[unit as usize];
        if cap < before {
            self.caps[unit as usize] = cap;
            self.pod_caps[self.hall.units[unit as usize].pod as usize] -= before - cap;
        }
    }

    /// A trial on the hall's ledger that includes the kept hosts.
    pub fn trial(&self) -> Trial<'_> {
        let mut trial = Trial::new(&self.hall.ledger, self.request.survives_feed_loss, &self.spread);
        for (&unit, &hosts) in &self.kept {
            for group in &self.hall.units[unit as usize].groups {
                let here = (group.hosts & hosts).count_ones();
                if here > 0 {
                    trial.add(&self.hall.profiles[group.profile as usize], here);
                }
            }
        }
        trial
    }

    /// Admitted free nodes of a unit, by profile.
    pub fn groups(&self, unit: u32) -> impl Iterator<Item = (&'a Profile, Mask)> + use<'a> {
        let hall = self.hall;
        let groups = self.hosts_by_profile(unit);
        groups.map(|(profile, hosts)| (&hall.profiles[profile as usize], hosts))
    }

    /// The same with the number of each profile.
    fn hosts_by_profile(&self, unit: u32) -> impl Iterator<Item = (u32, Mask)> + use<'a> {
        let (hall, at, sku) = (self.hall, unit as usize, self.request.sku.0);
        let unit = &hall.units[at];
        let hosts = self.admitted.as_ref().map_or(unit.free, |a| a[at]);
        let some = move |g: &Group| (g.profile, g.hosts & hosts);
        let groups = unit.groups.iter().map(some);
        groups.filter(move |(profile, hosts)| *hosts != 0 && hall.traits[*profile as usize].sku == sku)
    }

    /// The reason why a node with this profile is not admitted.
    pub fn refuses(&self, profile: u32) -> Option<Constraint> {
        self.filter.admits(self.hall, profile).err()
    }
}
