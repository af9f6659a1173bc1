//! Reservations: all or nothing, and never above capacity.

use serde::Serialize;

use super::heat::{HeatLoads, Zone, zone_of};
use super::load::{MilliWatts, milliwatts, watts};
use super::loads::{Loads, exceeds, sum, touched};
use super::refusal::Refusal;
use super::survival::survival;
use crate::model::{CoolingKind, CustomerId, DomainId, NodeId, Redundancy, Site};

/// A node reserved for a customer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reservation {
    pub node: NodeId,
    pub customer: CustomerId,
    /// Reserved watts, usually the maximum of the SKU.
    pub watts: f64,
    /// The promise to the customer.
    pub redundancy: Redundancy,
}

impl Reservation {
    /// A node at its SKU's maximum and with its customer's redundancy class.
    #[must_use]
    pub fn full(site: &Site, node: NodeId, customer: CustomerId) -> Self {
        Self {
            node,
            customer,
            watts: site.sku_of(node).power.max_watts,
            redundancy: site.customer(customer).redundancy,
        }
    }
}

/// The customers on a circuit or cooling zone, with the number of their nodes on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Users(Vec<(CustomerId, u32)>);

impl Users {
    fn change(&mut self, customer: CustomerId, sign: i32) {
        match self.0.iter_mut().find(|(user, _)| *user == customer) {
            Some((_, count)) => *count = count.saturating_add_signed(sign),
            None => self.0.push((customer, sign.max(0).unsigned_abs())),
        }
        self.0.retain(|(_, count)| *count > 0);
    }

    /// Another user who must be alone, or any other user if this customer must be alone.
    fn conflict(&self, customer: CustomerId, alone: impl Fn(CustomerId) -> bool) -> Option<CustomerId> {
        let mut others = self.0.iter().map(|(user, _)| *user).filter(|user| *user != customer);
        others.find(|other| alone(customer) || alone(*other))
    }
}

/// The reservations of a site. Must be used only with the site that it was created for.
#[derive(Debug, Clone)]
pub struct Ledger {
    loads: Loads,
    heat: HeatLoads,
    reserved: Vec<Option<Reservation>>,
    /// By customer, in milliwatts.
    contracts: Vec<MilliWatts>,
    circuit_users: Vec<Users>,
    circuit_owner: Vec<Option<CustomerId>>,
    loop_users: Vec<Users>,
    door_users: Vec<Users>,
    room_users: Vec<Users>,
    zone_owner: Vec<(Zone, CustomerId)>,
}

impl Ledger {
    /// Creates a ledger without reservations.
    #[must_use]
    pub fn new(site: &Site) -> Self {
        let mut circuit_owner: Vec<Option<CustomerId>> = vec![None; site.domains.len()];
        for customer in site.customer_ids() {
            for circuit in &site.customer(customer).circuits {
                circuit_owner[circuit.index()] = Some(customer);
            }
        }
        for id in 0..site.domains.len() {
            let above = site.domains[id].parent.and_then(|parent| circuit_owner[parent.index()]);
            circuit_owner[id] = circuit_owner[id].or(above);
        }
        let mut zone_owner = Vec::new();
        for customer in site.customer_ids() {
            for unit in &site.customer(customer).cooling_units {
                let unit = site.cooling_unit(*unit);
                let zone = match (unit.kind, unit.rack, unit.cooling_loop) {
                    (CoolingKind::RearDoor, Some(rack), _) => Zone::RearDoor(rack),
                    (CoolingKind::Cdu, _, Some(id)) => Zone::Loop(id),
                    _ => Zone::Room(unit.room),
                };
                zone_owner.push((zone, customer));
            }
        }
        Self {
            loads: Loads::new(site),
            heat: HeatLoads::new(site),
            reserved: vec![None; site.nodes.len()],
            contracts: vec![0; site.customers.len()],
            circuit_users: vec![Users::default(); site.domains.len()],
            circuit_owner,
            loop_users: vec![Users::default(); site.loops.len()],
            door_users: vec![Users::default(); site.racks.len()],
            room_users: vec![Users::default(); site.rooms.len()],
            zone_owner,
        }
    }

    /// The load of each domain if all reservations are fully used.
    #[must_use]
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// The heat if all reservations are fully used.
    #[must_use]
    pub fn heat(&self) -> &HeatLoads {
        &self.heat
    }

    /// The reservation of a node. `None`: the node is not reserved.
    #[must_use]
    pub fn reservation(&self, node: NodeId) -> Option<&Reservation> {
        self.reserved.get(node.index())?.as_ref()
    }

    /// All reservations, by node.
    pub fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.reserved.iter().flatten()
    }

    /// The customers with dedicated circuits or cooling that include a node, used or not. No other customer may have the
    /// node.
    #[must_use]
    pub fn owners(&self, site: &Site, node: NodeId) -> Vec<CustomerId> {
        let circuits = circuits(site, node);
        let of_circuits = circuits.iter().filter_map(|domain| self.circuit_owner[domain.index()]);
        let zone = zone_of(site, node);
        let of_zone = self.zone_owner.iter().filter(|(owned, _)| *owned == zone);
        let mut owners: Vec<_> = of_circuits.chain(of_zone.map(|(_, owner)| *owner)).collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// The customer's reserved watts.
    #[must_use]
    pub fn reserved_watts(&self, customer: CustomerId) -> f64 {
        watts(self.contracts[customer.index()])
    }

    /// Reserves all nodes or none.
    ///
    /// # Errors
    /// All reasons, without duplicates. Then nothing is reserved.
    pub fn reserve(&mut self, site: &Site, wanted: &[Reservation]) -> Result<(), Vec<Refusal>> {
        let refusals = self.check_alone(site, wanted);
        if !refusals.is_empty() {
            return Err(refusals);
        }
        wanted.iter().for_each(|one| self.put(site, one));
        let refusals = self.check_together(site, wanted);
        if refusals.is_empty() {
            return Ok(());
        }
        wanted.iter().for_each(|one| self.take(site, one));
        Err(refusals)
    }

    /// The reasons that would refuse a reservation. The ledger is unchanged.
    #[must_use]
    pub fn refusals(&mut self, site: &Site, wanted: &[Reservation]) -> Vec<Refusal> {
        match self.reserve(site, wanted) {
            Ok(()) => {
                wanted.iter().for_each(|one| self.take(site, one));
                Vec::new()
            }
            Err(refusals) => refusals,
        }
    }

    /// Releases a node. `None`: the node was not reserved.
    pub fn release(&mut self, site: &Site, node: NodeId) -> Option<Reservation> {
        let reservation = self.reserved.get(node.index()).copied().flatten()?;
        self.take(site, &reservation);
        Some(reservation)
    }

    fn put(&mut self, site: &Site, one: &Reservation) {
        self.loads.add(site, one.node, one.watts, one.redundancy);
        self.heat.add(site, one.node, one.watts);
        self.reserved[one.node.index()] = Some(*one);
        self.contracts[one.customer.index()] += milliwatts(one.watts);
        self.count(site, one, 1);
    }

    fn take(&mut self, site: &Site, one: &Reservation) {
        self.loads.remove(site, one.node, one.watts, one.redundancy);
        self.heat.remove(site, one.node, one.watts);
        self.reserved[one.node.index()] = None;
        self.contracts[one.customer.index()] -= milliwatts(one.watts);
        self.count(site, one, -1);
    }

    fn count(&mut self, site: &Site, one: &Reservation, sign: i32) {
        for domain in circuits(site, one.node) {
            self.circuit_users[domain.index()].change(one.customer, sign);
        }
        self.zone_users(zone_of(site, one.node)).change(one.customer, sign);
    }

    fn zone_users(&mut self, zone: Zone) -> &mut Users {
        match zone {
            Zone::Loop(id) => &mut self.loop_users[id.index()],
            Zone::RearDoor(id) => &mut self.door_users[id.index()],
            Zone::Room(id) => &mut self.room_users[id.index()],
        }
    }

    /// Reasons that do not depend on other reservations.
    fn check_alone(&self, site: &Site, wanted: &[Reservation]) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut nodes: Vec<NodeId> = wanted.iter().map(|one| one.node).collect();
        nodes.sort_unstable();
        let twice = nodes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        refusals.extend(twice.map(|node| Refusal::Reserved { node }));
        for one in wanted {
            if self.reservation(one.node).is_some() {
                refusals.push(Refusal::Reserved { node: one.node });
            } else if let Err(refusal) = survival(site, one.node, one.watts, one.redundancy) {
                refusals.push(refusal);
            }
        }
        refusals
    }

    /// Reasons that appear once all nodes are in the ledger.
    fn check_together(&mut self, site: &Site, wanted: &[Reservation]) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut domains: Vec<DomainId> = wanted.iter().flat_map(|one| touched(site, one.node)).collect();
        domains.sort_unstable();
        domains.dedup();
        refusals.extend(
            domains
                .iter()
                .filter_map(|domain| self.loads.check(site, *domain).err()),
        );
        for one in wanted {
            self.check_sharing(site, one, &mut refusals);
            for refusal in self.heat.check(site, one.node) {
                push_once(&mut refusals, refusal);
            }
            let contracted = site.customer(one.customer).contracted_watts;
            let watts = self.reserved_watts(one.customer);
            if let Some(contracted_watts) = contracted.filter(|contracted| exceeds(watts, *contracted)) {
                push_once(
                    &mut refusals,
                    Refusal::Contract {
                        customer: one.customer,
                        watts,
                        contracted_watts,
                    },
                );
            }
        }
        refusals
    }

    fn check_sharing(&mut self, site: &Site, one: &Reservation, refusals: &mut Vec<Refusal>) {
        let mut taken = Vec::new();
        for domain in circuits(site, one.node) {
            let owner = self.circuit_owner[domain.index()].filter(|owner| *owner != one.customer);
            let users = &self.circuit_users[domain.index()];
            let other = users.conflict(one.customer, |customer| site.customer(customer).dedicated_circuits);
            let Some(by) = owner.or(other) else { continue };
            // Domains below a shared circuit are shared as well, so they are not reported.
            if !site.domain(domain).parent.is_some_and(|above| taken.contains(&above)) {
                push_once(refusals, Refusal::CircuitTaken { domain, by });
            }
            taken.push(domain);
        }
        let zone = zone_of(site, one.node);
        let owner = self
            .zone_owner
            .iter()
            .find(|(owned, owner)| *owned == zone && *owner != one.customer);
        let owner = owner.map(|(_, owner)| *owner);
        let alone = |customer: CustomerId| site.customer(customer).dedicated_cooling;
        let other = self.zone_users(zone).conflict(one.customer, alone);
        if let Some(by) = owner.or(other) {
            push_once(refusals, Refusal::CoolingTaken { zone, by });
        }
    }

    /// The sum of all reservations, in watts.
    #[must_use]
    pub fn total_watts(&self) -> f64 {
        watts(sum(self.reservations().map(|one| one.watts)))
    }
}

/// The domains above a node that can be dedicated to a customer, top down.
fn circuits(site: &Site, node: NodeId) -> Vec<DomainId> {
    let mut domains = touched(site, node);
    domains.retain(|domain| site.domain(*domain).kind.is_dedicable());
    domains.sort_unstable();
    domains
}

fn push_once(refusals: &mut Vec<Refusal>, refusal: Refusal) {
    if !refusals.contains(&refusal) {
        refusals.push(refusal);
    }
}
