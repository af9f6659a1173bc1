//! Finds nodes that placement and ledger both accept.
//!
//! Placement knows only the watts of whole domains. The ledger also knows outlets, phases, the air heat of racks, the
//! flow of loops, and feed letters. After a refusal by the ledger, the next search omits the refused nodes and other
//! nodes that would fail for the same cause. Of the nodes that do not fit together, those that draw most from the scarce
//! domains are refused. The number of searches is bounded, so a refusal is proven only if every omitted node would fail
//! alone, too.

use std::collections::BTreeSet;

use super::scarce::Scarce;
use super::{Planner, Refused};
use crate::hall::{hall_node, site_node};
use rackwright_placement::{Hall, Placement};
use rackwright_site::model::{CustomerId, DomainId, LoopId, NodeId, RackId, RoomId, SkuId};
use rackwright_site::power::{Refusal, Reservation, Zone, survival, zone_of};

/// Maximum number of searches for one request.
const ROUNDS: u32 = 16;
/// Maximum number of orders in which one round offers the nodes of a result to the ledger.
const ORDERS: usize = 4;
/// Maximum number of searches among compatible nodes.
const COMPATIBLE_ROUNDS: u32 = 3;
/// Maximum number of free nodes for an upper bound.
const MAX_BOUNDED: usize = 20_000;
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

/// Why no nodes were found.
pub(super) enum Unfit {
    /// Placement finds none.
    Placement(Box<rackwright_placement::Refusal>),
    /// The ledger refuses those that were found.
    Ledger {
        /// The reasons, one sentence each.
        why: Vec<String>,
        /// No other choice of nodes can help.
        proven: bool,
        /// An upper bound on the number of nodes that can join.
        at_most: Option<u32>,
    },
}

impl From<Unfit> for Refused {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Placement(refusal) => Self::Placement(refusal),
            Unfit::Ledger { why, proven, .. } => Self::Change { why, proven },
        }
    }
}

/// What the searches for one request have shown.
#[derive(Default)]
struct Seen {
    /// The reasons of the first refusal by the ledger.
    why: Vec<String>,
    /// All refusals by the ledger.
    refusals: Vec<Refusal>,
    /// A node of the last result.
    example: Option<Reservation>,
    /// A node was omitted that the ledger would accept alone.
    doubtful: bool,
    /// No other choice of nodes can help.
    proven: bool,
    /// An upper bound on the number of nodes that can join.
    at_most: Option<u32>,
    /// Nodes that are omitted.
    aside: Vec<NodeId>,
}

impl Planner<'_> {
    /// Repeats the search until the ledger accepts the result or nothing is found. The nodes of the result outside
    /// `reserved` are then reserved in the ledger.
    pub(super) fn reconcile(&mut self, reserved: &BTreeSet<NodeId>, ask: Ask<'_>) -> Result<Placement, Unfit> {
        let mut seen = Seen::default();
        let mut found = self.rounds(reserved, ask, &mut seen);
        self.restore_aside(&mut seen);
        if matches!(found, Err(Unfit::Ledger { proven: false, .. })) {
            let again = self.among_compatible(reserved, ask, &mut seen);
            self.restore_aside(&mut seen);
            found = again.map_or(found, Ok);
        }
        found
    }

    fn omit(&mut self, nodes: Vec<NodeId>, seen: &mut Seen) {
        for node in nodes {
            self.hall.exclude(hall_node(node));
            seen.aside.push(node);
        }
    }

    fn restore_aside(&mut self, seen: &mut Seen) {
        for node in std::mem::take(&mut seen.aside) {
            self.hall.restore(hall_node(node));
        }
    }

    /// Omits the nodes of each result that the ledger refuses.
    fn rounds(&mut self, reserved: &BTreeSet<NodeId>, ask: Ask<'_>, seen: &mut Seen) -> Result<Placement, Unfit> {
        for _ in 0..ROUNDS {
            let placement = match ask(&mut self.hall) {
                Ok(placement) => placement,
                Err(refusal) if seen.refusals.is_empty() => return Err(Unfit::Placement(Box::new(refusal))),
                Err(refusal) => {
                    seen.proven = refusal.proven && !seen.doubtful;
                    break;
                }
            };
            let wanted = self.reservations(&placement, reserved);
            let Err(refusals) = self.ledger.reserve(self.site, &wanted) else {
                return Ok(placement);
            };
            seen.example = wanted.first().copied();
            if seen.refusals.is_empty() {
                seen.why = refusals.iter().map(|one| one.words(self.site)).collect();
            }
            seen.refusals.extend_from_slice(&refusals);
            if refusals.iter().any(|one| matches!(one, Refusal::Contract { .. })) {
                // Other nodes draw the same watts.
                seen.proven = true;
                break;
            }
            if seen.aside.is_empty() {
                // No node is omitted yet, so the bound holds for every choice of nodes.
                seen.at_most = self.at_most(&refusals, &wanted);
                if seen.at_most.is_some_and(|most| (most as usize) < wanted.len()) {
                    seen.proven = true;
                    break;
                }
            }
            let rejected_nodes = self.rejected_nodes(&wanted, &refusals);
            if rejected_nodes.is_empty() {
                break;
            }
            seen.doubtful = seen.doubtful || !self.fail_alone(&wanted, &rejected_nodes);
            self.omit(rejected_nodes, seen);
        }
        Err(Unfit::Ledger {
            why: seen.why.clone(),
            proven: seen.proven,
            at_most: seen.at_most,
        })
    }

    /// An upper bound on the number of nodes that can join, from the limits of power in the way. `None`: the hall has
    /// too many free nodes to look at all.
    fn at_most(&self, refusals: &[Refusal], wanted: &[Reservation]) -> Option<u32> {
        let mut scarce = Scarce::default();
        for refusal in refusals {
            scarce.add(self.site, refusal);
        }
        let Reservation { node, customer, .. } = *wanted.first()?;
        let sku = self.site.node(node).sku;
        let free = self.site.node_ids().filter(|node| self.site.node(*node).sku == sku);
        let free = free.filter(|node| self.hall.is_free(hall_node(*node)));
        let free: Vec<Reservation> = free
            .map(|node| Reservation::full(self.site, node, customer))
            .take(MAX_BOUNDED + 1)
            .collect();
        let some = free.len() <= MAX_BOUNDED;
        some.then(|| scarce.at_most(self.site, self.ledger.loads(), &free) as u32)
    }

    /// Searches among nodes that the ledger accepts together. Of all free nodes that the refusals concern, those that
    /// draw most from the scarce domains are omitted. `None`: nothing was found, or the nodes are too many.
    fn among_compatible(&mut self, reserved: &BTreeSet<NodeId>, ask: Ask<'_>, seen: &mut Seen) -> Option<Placement> {
        let Reservation { node, customer, .. } = seen.example?;
        for _ in 0..COMPATIBLE_ROUNDS {
            let mut causes = Causes::default();
            seen.refusals.iter().for_each(|one| causes.add(one));
            let others = self.others(&causes, self.site.node(node).sku);
            if others.len() > MAX_TRIED {
                return None;
            }
            let wanted: Vec<Reservation> = others
                .iter()
                .map(|&node| Reservation::full(self.site, node, customer))
                .collect();
            let (out, taken, _) = self.cheapest_first(&wanted, &seen.refusals);
            for node in taken {
                self.ledger.release(self.site, node);
            }
            self.omit(out, seen);
            let placement = ask(&mut self.hall).ok()?;
            let wanted = self.reservations(&placement, reserved);
            let Err(refusals) = self.ledger.reserve(self.site, &wanted) else {
                return Some(placement);
            };
            seen.refusals.extend(refusals);
        }
        None
    }

    /// Whether the ledger refuses each of these nodes also without the others of the request.
    fn fail_alone(&mut self, wanted: &[Reservation], nodes: &[NodeId]) -> bool {
        let Some(&Reservation { customer, .. }) = wanted.first() else {
            return false;
        };
        nodes.iter().all(|&node| {
            let one = Reservation::full(self.site, node, customer);
            !self.ledger.refusals(self.site, &[one]).is_empty()
        })
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
        let (mut out, taken, found) = self.cheapest_first(wanted, refusals);
        let mut causes = Causes::default();
        refusals.iter().chain(&found).for_each(|one| causes.add(one));
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

    /// Reserves as many of the nodes as fit together. Returns the refused nodes, the reserved ones, and the refusals.
    /// Tries several orders: first those that draw least from the domains of the refusals, then also from the domains
    /// that turn out to be short. The ledger holds the result with the fewest refused nodes.
    fn cheapest_first(
        &mut self,
        wanted: &[Reservation],
        refusals: &[Refusal],
    ) -> (Vec<NodeId>, Vec<NodeId>, Vec<Refusal>) {
        let mut scarce = Scarce::default();
        for refusal in refusals {
            scarce.add(self.site, refusal);
        }
        let mut best: Option<(Vec<Reservation>, usize)> = None;
        for last in (0..ORDERS).rev().map(|left| left == 0) {
            let mut order: Vec<(f64, Reservation)> =
                wanted.iter().map(|one| (scarce.cost(self.site, one), *one)).collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0));
            let order: Vec<Reservation> = order.into_iter().map(|(_, one)| one).collect();
            let tried = self.reserve_singly(&order);
            let mut new = false;
            for refusal in &tried.2 {
                new |= scarce.add(self.site, refusal);
            }
            let out = tried.0.len();
            let better = best.as_ref().is_none_or(|best| out < best.1);
            if better && (last || !new) {
                return tried;
            }
            for node in tried.1 {
                self.ledger.release(self.site, node);
            }
            if better {
                best = Some((order, out));
            }
            if !new {
                break;
            }
        }
        let order = best.map_or_else(|| wanted.to_vec(), |best| best.0);
        self.reserve_singly(&order)
    }

    /// Reserves each node that fits next to those before. Returns the refused nodes, the reserved ones, and the refusals.
    fn reserve_singly(&mut self, order: &[Reservation]) -> (Vec<NodeId>, Vec<NodeId>, Vec<Refusal>) {
        let (mut out, mut taken, mut found) = (Vec::new(), Vec::new(), Vec::new());
        for one in order {
            match self.ledger.reserve(self.site, std::slice::from_ref(one)) {
                Ok(()) => taken.push(one.node),
                Err(refusals) => {
                    out.push(one.node);
                    found.extend(refusals);
                }
            }
        }
        (out, taken, found)
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
