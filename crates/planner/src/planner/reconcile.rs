//! Finds nodes that placement and ledger both accept.
//!
//! Placement knows only the watts of whole domains. The ledger also knows outlets, phases, the air heat of racks, the
//! flow of loops, and feed letters. After a refusal by the ledger, the next search omits the refused nodes and other
//! nodes that would fail for the same cause. The number of searches is bounded.

use std::collections::BTreeSet;

use super::{Planner, Refused};
use crate::hall::{hall_node, site_node};
use rackwright_placement::{Hall, Placement};
use rackwright_site::model::{CustomerId, DomainId, LoopId, NodeId, RackId, RoomId, SkuId};
use rackwright_site::power::{Refusal, Reservation, Zone, survival, zone_of};

/// Maximum number of searches for one request.
const ROUNDS: u32 = 16;
/// Maximum number of other nodes that one round tries on the ledger.
const MAX_TRIED: usize = 2_000;

/// A search of the hall. It leaves the hall unchanged.
pub(super) type Ask<'f> = &'f mut dyn FnMut(&mut Hall) -> Result<Placement, rackwright_placement::Refusal>;

/// The causes of refusals.
#[derive(Default)]
struct Causes {
    /// PSUs or outlets of single nodes do not suffice, whatever else is reserved.
    own: bool,
    domains: BTreeSet<DomainId>,
    racks: BTreeSet<RackId>,
    rooms: BTreeSet<RoomId>,
    loops: BTreeSet<LoopId>,
}

impl Planner<'_> {
    /// Repeats the search until the ledger accepts the result or nothing is found. The nodes of the result outside
    /// `reserved` are then reserved in the ledger.
    pub(super) fn reconcile(&mut self, reserved: &BTreeSet<NodeId>, ask: Ask<'_>) -> Result<Placement, Refused> {
        let mut aside = Vec::new();
        let found = self.rounds(reserved, ask, &mut aside);
        for node in aside {
            self.hall.restore(node);
        }
        found
    }

    fn rounds(
        &mut self,
        reserved: &BTreeSet<NodeId>,
        ask: Ask<'_>,
        aside: &mut Vec<rackwright_placement::NodeId>,
    ) -> Result<Placement, Refused> {
        let mut first: Option<Vec<String>> = None;
        for _ in 0..ROUNDS {
            let placement = match (ask(&mut self.hall), &first) {
                (Ok(placement), _) => placement,
                (Err(refusal), None) => return Err(Refused::Placement(Box::new(refusal))),
                (Err(_), Some(_)) => break,
            };
            let wanted = self.reservations(&placement, reserved);
            let Err(refusals) = self.ledger.reserve(self.site, &wanted) else {
                return Ok(placement);
            };
            let words = || refusals.iter().map(|one| one.words(self.site)).collect();
            first.get_or_insert_with(words);
            if refusals.iter().any(|one| matches!(one, Refusal::Contract { .. })) {
                // Other nodes draw the same watts.
                break;
            }
            let rejected_nodes = self.rejected_nodes(&wanted, &refusals);
            if rejected_nodes.is_empty() {
                break;
            }
            for node in rejected_nodes.into_iter().map(hall_node) {
                self.hall.exclude(node);
                aside.push(node);
            }
        }
        let why = first.unwrap_or_default();
        Err(Refused::Change { why })
    }

    fn reservations(&self, placement: &Placement, reserved: &BTreeSet<NodeId>) -> Vec<Reservation> {
        let customer = CustomerId(placement.request.customer.0);
        let nodes = placement.nodes.iter().chain(&placement.spares);
        let nodes = nodes
            .map(|&node| site_node(node))
            .filter(|node| !reserved.contains(node));
        nodes.map(|node| Reservation::full(self.site, node, customer)).collect()
    }

    /// The nodes that the ledger refuses next to the others, and the nodes that it would refuse for the same cause.
    fn rejected_nodes(&mut self, wanted: &[Reservation], refusals: &[Refusal]) -> Vec<NodeId> {
        let Some(&Reservation { node, customer, .. }) = wanted.first() else {
            return Vec::new();
        };
        let (mut causes, mut out, mut taken) = (Causes::default(), Vec::new(), Vec::new());
        refusals.iter().for_each(|one| causes.add(one));
        for one in wanted {
            match self.ledger.reserve(self.site, std::slice::from_ref(one)) {
                Ok(()) => taken.push(one.node),
                Err(refusals) => {
                    out.push(one.node);
                    refusals.iter().for_each(|one| causes.add(one));
                }
            }
        }
        let others = self.others(&causes, self.site.node(node).sku);
        let mut tries = MAX_TRIED;
        for node in others {
            if self.ledger.reservation(node).is_some() {
                continue;
            }
            let one = Reservation::full(self.site, node, customer);
            let alone = survival(self.site, node, one.watts, one.redundancy);
            if alone.is_err() {
                out.push(node);
            } else if tries > 0 && causes.concern(self, node) {
                tries -= 1;
                if !self.ledger.refusals(self.site, &[one]).is_empty() {
                    out.push(node);
                }
            }
        }
        for node in taken {
            self.ledger.release(self.site, node);
        }
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Free nodes of a SKU that the causes affect.
    fn others(&self, causes: &Causes, sku: SkuId) -> Vec<NodeId> {
        let free = |node: &NodeId| self.hall.is_free(hall_node(*node));
        let of_sku = self.site.node_ids().filter(|node| self.site.node(*node).sku == sku);
        let concerned = |node: &NodeId| causes.own || causes.concern(self, *node);
        of_sku.filter(free).filter(concerned).collect()
    }
}

impl Causes {
    fn add(&mut self, refusal: &Refusal) {
        match *refusal {
            Refusal::Power { domain, .. } | Refusal::Phase { domain, .. } | Refusal::CircuitTaken { domain, .. } => {
                self.domains.insert(domain);
            }
            Refusal::RackHeat { rack, .. } => _ = self.racks.insert(rack),
            Refusal::RoomHeat { room, .. } => _ = self.rooms.insert(room),
            Refusal::LoopHeat { cooling_loop, .. } | Refusal::LoopFlow { cooling_loop, .. } => {
                self.loops.insert(cooling_loop);
            }
            Refusal::CoolingTaken { zone, .. } => match zone {
                Zone::Loop(id) => _ = self.loops.insert(id),
                Zone::RearDoor(id) => _ = self.racks.insert(id),
                Zone::Room(id) => _ = self.rooms.insert(id),
            },
            Refusal::TooFewPsus { .. }
            | Refusal::NoSparePsu { .. }
            | Refusal::PsusTooWeak { .. }
            | Refusal::Outlet { .. } => self.own = true,
            Refusal::Reserved { .. } | Refusal::Contract { .. } => {}
        }
    }

    /// Whether a node depends on one of the domains, or gives its heat to one of the racks, rooms and loops.
    fn concern(&self, planner: &Planner, node: NodeId) -> bool {
        let site = planner.site;
        let rack_id = site.node(node).rack;
        let rack = site.rack(rack_id);
        let in_loop = rack.cooling_loop.is_some_and(|id| self.loops.contains(&id));
        let heats = self.racks.contains(&rack_id) || in_loop || {
            self.rooms.contains(&rack.room) && !matches!(zone_of(site, node), Zone::Loop(_))
        };
        let mut plugs = site.node(node).psus.iter().flatten();
        let draws =
            |plug: &rackwright_site::model::Plug| site.ancestors(plug.pdu).any(|domain| self.domains.contains(&domain));
        heats || (!self.domains.is_empty() && plugs.any(draws))
    }
}
