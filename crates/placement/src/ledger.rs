//! The use of every budget, and trials on top of it that do not change it.

use std::collections::HashMap;

use super::profile::{Profile, Rise, Tight};
use super::request::{Constraint, Request};
use super::spec::{CoolingId, CustomerId, DomainId, HallSpec};
use super::view::Spread;

mod rows;

pub(super) use rows::Row;

/// The use of all budgets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ledger {
    pub domains: Vec<DomainUse>,
    pub heat: Vec<HeatUse>,
    /// The customers on each domain, for circuits only.
    pub circuits: Vec<Tenants>,
    /// The customers with heat on each cooling unit.
    pub cooling: Vec<Tenants>,
    /// Load of each customer, in watts.
    pub customers: HashMap<CustomerId, u64>,
    /// Number of circuits and cooling units dedicated to one customer.
    pub dedicated: u32,
}

/// The use of a power domain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct DomainUse {
    pub capacity: u64,
    pub used: u64,
    /// Additional load after the loss of a feed, by feed.
    pub rises: Vec<(u32, u64)>,
    /// The greatest value in `rises`.
    pub worst: u64,
    /// Number of nodes on the domain that are promised to survive the loss of a feed.
    pub promised: u32,
}

/// The use of a cooling unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct HeatUse {
    pub capacity: u64,
    pub used: u64,
}

/// The users of a circuit or cooling unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Tenants {
    list: Vec<Tenant>,
    /// The customers in `list`.
    users: Customers,
    /// The customers in `list` that require the circuit or cooling unit for themselves alone.
    owners: Customers,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Tenant {
    customer: CustomerId,
    nodes: u32,
    /// Number of nodes in clusters that require it for their customer alone.
    alone: u32,
}

/// A set of customers, as far as [`Tenants::repels`] needs it. A decision asks every circuit of the hall, so the answer does
/// not follow a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Customers {
    #[default]
    None,
    One(CustomerId),
    Several,
}

impl Customers {
    fn of(customers: impl Iterator<Item = CustomerId>) -> Self {
        customers.fold(Self::None, |known, customer| match known {
            Self::None => Self::One(customer),
            Self::One(_) | Self::Several => Self::Several,
        })
    }

    /// Whether another customer than this one is in the set.
    fn has_other(self, customer: CustomerId) -> bool {
        match self {
            Self::None => false,
            Self::One(only) => only != customer,
            Self::Several => true,
        }
    }
}

impl Tenants {
    /// Whether a node of `customer` must not use it, because another customer uses it and one of them requires it
    /// alone.
    pub fn repels(&self, customer: CustomerId, alone: bool) -> bool {
        let others = if alone { self.users } else { self.owners };
        others.has_other(customer)
    }

    fn is_alone(&self) -> bool {
        self.owners != Customers::None
    }

    fn add(&mut self, customer: CustomerId, nodes: u32, alone: bool) {
        let alone = if alone { nodes } else { 0 };
        match self.list.iter_mut().find(|t| t.customer == customer) {
            Some(tenant) => {
                tenant.nodes += nodes;
                tenant.alone += alone;
            }
            None => self.list.push(Tenant { customer, nodes, alone }),
        }
        self.settle();
    }

    fn remove(&mut self, customer: CustomerId, nodes: u32, alone: bool) {
        let alone = if alone { nodes } else { 0 };
        if let Some(tenant) = self.list.iter_mut().find(|t| t.customer == customer) {
            tenant.nodes = tenant.nodes.saturating_sub(nodes);
            tenant.alone = tenant.alone.saturating_sub(alone);
        }
        self.list.retain(|t| t.nodes > 0);
        self.settle();
    }

    fn settle(&mut self) {
        self.users = Customers::of(self.list.iter().map(|t| t.customer));
        let owners = self.list.iter().filter(|t| t.alone > 0);
        self.owners = Customers::of(owners.map(|t| t.customer));
    }
}

impl DomainUse {
    fn rise(&self, feed: u32) -> u64 {
        self.rises
            .binary_search_by_key(&feed, |r| r.0)
            .map_or(0, |at| self.rises[at].1)
    }

    fn change_rise(&mut self, feed: u32, change: impl Fn(u64) -> u64) {
        match self.rises.binary_search_by_key(&feed, |r| r.0) {
            Ok(at) => self.rises[at].1 = change(self.rises[at].1),
            Err(at) => self.rises.insert(at, (feed, change(0))),
        }
    }

    fn settle(&mut self) {
        self.rises.retain(|r| r.1 > 0);
        self.worst = self.rises.iter().map(|r| r.1).max().unwrap_or(0);
    }
}

impl Ledger {
    pub fn new(spec: &HallSpec) -> Self {
        let domain = |d: &super::spec::DomainSpec| DomainUse {
            capacity: d.capacity_w,
            used: d.other_w,
            ..DomainUse::default()
        };
        let heat = |c: &super::spec::CoolingSpec| HeatUse {
            capacity: c.capacity_w,
            used: c.other_w,
        };
        Self {
            domains: spec.domains.iter().map(domain).collect(),
            heat: spec.cooling.iter().map(heat).collect(),
            circuits: vec![Tenants::default(); spec.domains.len()],
            cooling: vec![Tenants::default(); spec.cooling.len()],
            ..Self::default()
        }
    }

    /// Adds `nodes` nodes of a cluster.
    pub fn add(&mut self, request: &Request, profile: &Profile, nodes: u32, watts: u64) {
        self.change(profile, |before, each| before + each * u64::from(nodes));
        self.promise(request, profile, |before| before + nodes);
        let (customer, before) = (request.customer, self.dedicated_among(profile));
        for &circuit in &profile.circuits {
            self.circuits[circuit as usize].add(customer, nodes, request.own_circuits);
        }
        for &(unit, _) in &profile.heat {
            self.cooling[unit as usize].add(customer, nodes, request.own_cooling);
        }
        *self.customers.entry(customer).or_default() += watts * u64::from(nodes);
        self.dedicated = self.dedicated + self.dedicated_among(profile) - before;
    }

    /// Removes `nodes` nodes of a cluster.
    pub fn remove(&mut self, request: &Request, profile: &Profile, nodes: u32, watts: u64) {
        self.change(profile, |before, each| before.saturating_sub(each * u64::from(nodes)));
        self.promise(request, profile, |before| before.saturating_sub(nodes));
        let (customer, before) = (request.customer, self.dedicated_among(profile));
        for &circuit in &profile.circuits {
            self.circuits[circuit as usize].remove(customer, nodes, request.own_circuits);
        }
        for &(unit, _) in &profile.heat {
            self.cooling[unit as usize].remove(customer, nodes, request.own_cooling);
        }
        let drawn = self.customers.entry(customer).or_default();
        *drawn = drawn.saturating_sub(watts * u64::from(nodes));
        if *drawn == 0 {
            self.customers.remove(&customer);
        }
        self.dedicated = self.dedicated + self.dedicated_among(profile) - before;
    }

    fn promise(&mut self, request: &Request, profile: &Profile, with: impl Fn(u32) -> u32) {
        if request.survives_feed_loss {
            for &(at, _) in &profile.loads {
                let domain = &mut self.domains[at as usize];
                domain.promised = with(domain.promised);
            }
        }
    }

    fn dedicated_among(&self, profile: &Profile) -> u32 {
        let circuits = profile.circuits.iter().map(|&c| &self.circuits[c as usize]);
        let cooling = profile.heat.iter().map(|&(c, _)| &self.cooling[c as usize]);
        circuits.chain(cooling).map(|t| u32::from(t.is_alone())).sum()
    }

    fn change(&mut self, profile: &Profile, with: impl Fn(u64, u64) -> u64) {
        for &(at, watts) in &profile.loads {
            let domain = &mut self.domains[at as usize];
            domain.used = with(domain.used, watts);
        }
        for rise in &profile.rises {
            let domain = &mut self.domains[rise.domain as usize];
            domain.change_rise(rise.feed, |before| with(before, rise.watts));
            domain.settle();
        }
        for &(at, watts) in &profile.heat {
            let unit = &mut self.heat[at as usize];
            unit.used = with(unit.used, watts);
        }
    }
}

/// The load that a trial adds to a domain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extra {
    pub domain: u32,
    pub watts: u64,
    /// Index of its first rise in the list of rises.
    first: u32,
}

/// The load that a trial adds to a domain after the loss of a feed.
#[derive(Debug, Clone, Copy)]
struct ExtraRise {
    feed: u32,
    watts: u64,
    next: u32,
}

/// The parts of a profile that a trial uses: loads on domains, rises, heat.
type Parts<'p> = (&'p [(u32, u64)], &'p [Rise], &'p [(u32, u64)]);

fn tight_parts(profile: &Profile) -> Parts<'_> {
    let Tight { loads, rises, heat } = &profile.tight;
    (loads, rises, heat)
}

fn all_parts(profile: &Profile) -> Parts<'_> {
    (&profile.loads, &profile.rises, &profile.heat)
}

/// Marks the end of a list.
const NONE: u32 = u32::MAX;

/// Nodes of a request, tried on top of a ledger.
pub(super) struct Trial<'a> {
    ledger: &'a Ledger,
    promised: bool,
    parts: for<'p> fn(&'p Profile) -> Parts<'p>,
    /// For each domain, its index in `extras` plus one. 0: no entry. Empty before the first addition.
    slots: Vec<u32>,
    extras: Vec<Extra>,
    rises: Vec<ExtraRise>,
    /// The heat added to each cooling unit. Empty before the first addition.
    heat: Vec<u64>,
    labels: HashMap<u32, u32>,
    spread: &'a Spread<'a>,
}

/// The number of nodes that fit, and the budget that excludes the next one.
pub(super) struct Room {
    pub nodes: u32,
    pub limit: Option<Limit>,
}

/// A budget without room for another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Limit {
    pub what: Constraint,
    pub left: u64,
    pub each: u64,
}

impl Room {
    /// Applies a budget with `left` watts, of which every node takes `each`.
    fn narrow(&mut self, left: u64, each: u64, what: impl FnOnce() -> Constraint) {
        let nodes = left
            .checked_div(each)
            .map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX));
        if nodes < self.nodes {
            self.nodes = nodes;
            let what = what();
            self.limit = Some(Limit { what, left, each });
        }
    }
}

impl<'a> Trial<'a> {
    /// A trial that computes the room left. It ignores budgets that cannot run short.
    pub fn new(ledger: &'a Ledger, promised: bool, spread: &'a Spread<'a>) -> Self {
        Self {
            ledger,
            promised,
            parts: tight_parts,
            slots: Vec::new(),
            extras: Vec::new(),
            rises: Vec::new(),
            heat: Vec::new(),
            labels: HashMap::new(),
            spread,
        }
    }

    /// A trial that sums up the loads on all budgets.
    pub fn sum(ledger: &'a Ledger, unbounded: &'a Spread<'a>) -> Self {
        Self {
            parts: all_parts,
            ..Self::new(ledger, false, unbounded)
        }
    }

    fn extra(&self, domain: u32) -> Option<&Extra> {
        match self.slots.get(domain as usize) {
            None | Some(0) => None,
            Some(&slot) => self.extras.get(slot as usize - 1),
        }
    }

    /// The load added to a domain after the loss of each feed.
    fn rises_of(&self, extra: Option<&Extra>) -> impl Iterator<Item = (u32, u64)> {
        let mut at = extra.map_or(NONE, |e| e.first);
        std::iter::from_fn(move || {
            let rise = self.rises.get(at as usize)?;
            at = rise.next;
            Some((rise.feed, rise.watts))
        })
    }

    /// The load added to each domain, without and with the worst loss of a feed.
    pub fn loads(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        self.extras.iter().map(|extra| {
            let worst = self.rises_of(Some(extra)).map(|r| r.1).max().unwrap_or(0);
            (extra.domain, extra.watts, extra.watts + worst)
        })
    }

    /// The heat added to a cooling unit.
    pub fn heat_of(&self, unit: u32) -> u64 {
        self.heat.get(unit as usize).copied().unwrap_or(0)
    }

    /// The heat added to each cooling unit that gets some.
    pub fn heat(&self) -> impl Iterator<Item = (u32, u64)> {
        let units = (0..).zip(self.heat.iter().copied());
        units.filter(|(_, watts)| *watts > 0)
    }

    /// The number of further nodes of this profile that every budget allows.
    pub fn room(&self, profile: &Profile) -> Room {
        let mut room = Room {
            nodes: u32::MAX,
            limit: None,
        };
        for &(at, watts) in &profile.tight.loads {
            self.narrow_domain(&mut room, profile, at, watts);
        }
        for &(at, watts) in &profile.tight.heat {
            let unit = &self.ledger.heat[at as usize];
            let used = unit.used + self.heat_of(at);
            room.narrow(unit.capacity.saturating_sub(used), watts, || {
                Constraint::Cooling(CoolingId(at))
            });
        }
        if !self.spread.is_empty() {
            for label in &profile.labels {
                if let Some(most) = self.spread.most(*label) {
                    let here = self.labels.get(label).copied().unwrap_or(0);
                    room.narrow(u64::from(most.saturating_sub(here)), 1, || Constraint::Spread);
                }
            }
        }
        room
    }

    /// The number of further nodes that a domain allows. A node takes `watts`, and the loads in `risen` after the loss
    /// of a feed.
    pub fn domain_room(&self, at: u32, watts: u64, risen: impl Iterator<Item = (u32, u64)>) -> u32 {
        let domain = &self.ledger.domains[at as usize];
        let extra = self.extra(at);
        let used = domain.used + extra.map_or(0, |e| e.watts);
        let nodes = |used: u64, each: u64| {
            let nodes = domain.capacity.saturating_sub(used).checked_div(each);
            nodes.map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX))
        };
        let mut room = nodes(used, watts);
        if self.promised || domain.promised > 0 {
            for (feed, load) in risen {
                let more = self.rises_of(extra).find(|r| r.0 == feed).map_or(0, |r| r.1);
                room = room.min(nodes(used + domain.rise(feed) + more, load));
            }
        }
        room
    }

    /// The number of further nodes that a cooling unit allows.
    pub fn cooling_room(&self, at: u32, watts: u64) -> u32 {
        let unit = &self.ledger.heat[at as usize];
        let used = unit.used + self.heat_of(at);
        let nodes = unit.capacity.saturating_sub(used).checked_div(watts);
        nodes.map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// The number of further nodes that may have a label. `None`: no limit.
    pub fn label_room(&self, label: u32) -> Option<u32> {
        let most = self.spread.most(label)?;
        Some(most.saturating_sub(self.labels.get(&label).copied().unwrap_or(0)))
    }

    fn narrow_domain(&self, room: &mut Room, profile: &Profile, at: u32, watts: u64) {
        let domain = &self.ledger.domains[at as usize];
        let extra = self.extra(at);
        let used = domain.used + extra.map_or(0, |e| e.watts);
        let power = || Constraint::Power(DomainId(at));
        let loss = || Constraint::FeedLoss(DomainId(at));
        room.narrow(domain.capacity.saturating_sub(used), watts, power);
        if !self.promised && domain.promised == 0 {
            return;
        }
        let risen = |feed: u32, more: u64| domain.rise(feed) + more;
        let worst = self.rises_of(extra).map(|(feed, more)| risen(feed, more)).max();
        let worst = worst.unwrap_or(0).max(domain.worst);
        room.narrow(domain.capacity.saturating_sub(used + worst), watts, loss);
        for rise in profile.tight.rises.iter().filter(|r| r.domain == at) {
            let more = self.rises_of(extra).find(|r| r.0 == rise.feed).map_or(0, |r| r.1);
            let load = used + risen(rise.feed, more);
            room.narrow(domain.capacity.saturating_sub(load), watts + rise.watts, loss);
        }
    }

    fn entry(&mut self, domain: u32) -> &mut Extra {
        if self.slots.is_empty() {
            self.slots = vec![0; self.ledger.domains.len()];
        }
        let slot = &mut self.slots[domain as usize];
        if *slot == 0 {
            let (watts, first) = (0, NONE);
            self.extras.push(Extra { domain, watts, first });
            *slot = self.extras.len() as u32;
        }
        &mut self.extras[*slot as usize - 1]
    }

    fn rise_entry(&mut self, domain: u32, feed: u32) -> &mut u64 {
        let first = self.entry(domain).first;
        let mut at = first;
        while let Some(rise) = self.rises.get(at as usize).filter(|rise| rise.feed != feed) {
            at = rise.next;
        }
        if at == NONE {
            at = self.rises.len() as u32;
            let (watts, next) = (0, first);
            self.rises.push(ExtraRise { feed, watts, next });
            self.entry(domain).first = at;
        }
        &mut self.rises[at as usize].watts
    }

    /// Adds `nodes` nodes.
    pub fn add(&mut self, profile: &Profile, nodes: u32) {
        let (loads, rises, heat) = (self.parts)(profile);
        let count = u64::from(nodes);
        for &(at, watts) in loads {
            self.entry(at).watts += watts * count;
        }
        for rise in rises {
            *self.rise_entry(rise.domain, rise.feed) += rise.watts * count;
        }
        for &(at, watts) in heat {
            if self.heat.is_empty() {
                self.heat = vec![0; self.ledger.heat.len()];
            }
            self.heat[at as usize] += watts * count;
        }
        if !self.spread.is_empty() {
            for &label in profile.labels.iter().filter(|l| self.spread.most(**l).is_some()) {
                *self.labels.entry(label).or_default() += nodes;
            }
        }
    }
}
