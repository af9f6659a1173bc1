//! Clusters that live for months: taken up again after a restart, changed, released; and nodes out of service.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{NamedPlacement, Planner, Refused};
use crate::hall::Unfit;
use crate::model::{CustomerId, NodeId, Site};
use crate::placement::{self, Change, ClusterId, Placement, Standing, TakeError, UnitId, amend};
use crate::power::Reservation;

/// Why a plan does not hold what was reserved before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unrestored {
    /// No cluster can be placed in the site at all.
    #[error(transparent)]
    Site(#[from] Unfit),
    /// The site no longer bears these clusters.
    #[error("{}", faults.iter().map(|(id, why)| format!("cluster {}: {why}", id.0)).collect::<Vec<_>>().join("; "))]
    Clusters {
        /// What is in the way of each.
        faults: Vec<(ClusterId, String)>,
    },
}

/// One node in the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// The node that left.
    pub bad: NodeId,
    /// The node that has its part now.
    pub by: NodeId,
    /// It was a spare of the cluster, which has one less now; [`Planner::add_spares`] finds another.
    pub was_spare: bool,
    /// The cluster afterwards.
    pub placement: Placement,
}

/// A cluster after it grew or shrank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Nodes that joined.
    pub joined: Vec<NodeId>,
    /// Nodes that left.
    pub left: Vec<NodeId>,
    /// The cluster afterwards.
    pub placement: Placement,
}

impl<'a> Planner<'a> {
    /// The plan of a site in which these clusters are. Nodes that are out of service are held out afterwards.
    ///
    /// # Errors
    /// Everything that is in the way, by cluster: each promise is checked as if it were given anew.
    pub fn restore(site: &'a Site, live: &[Placement]) -> Result<Self, Unrestored> {
        let mut planner = Self::new(site)?;
        let adopted = live.iter().map(|one| (one.request.cluster, planner.adopt(one)));
        let faults: Vec<_> = adopted
            .filter_map(|(id, done)| done.err().map(|why| (id, why.to_string())))
            .collect();
        if faults.is_empty() {
            Ok(planner)
        } else {
            Err(Unrestored::Clusters { faults })
        }
    }

    /// The same from names, as they are stored: also for another version of the site.
    ///
    /// # Errors
    /// As [`Planner::restore`], and names that the site does not have.
    pub fn restore_named(site: &'a Site, live: &[NamedPlacement]) -> Result<Self, Unrestored> {
        let mut planner = Self::new(site)?;
        let mut faults = Vec::new();
        for named in live {
            let adopted = match planner.resolve(named) {
                Ok(placement) => planner.adopt(&placement).map_err(|refused| refused.to_string()),
                Err(unresolved) => Err(unresolved.to_string()),
            };
            faults.extend(adopted.err().map(|why| (named.cluster, why)));
        }
        if faults.is_empty() {
            Ok(planner)
        } else {
            Err(Unrestored::Clusters { faults })
        }
    }

    /// Enters a cluster as it was placed before. Whom it wanted to be near or apart from is not looked at again.
    ///
    /// # Errors
    /// What is in the way; nothing has changed then.
    pub fn adopt(&mut self, placement: &Placement) -> Result<(), Refused> {
        let refused = |why| Refused::Change { why };
        let customer = CustomerId(placement.request.customer.0);
        let nodes: Vec<NodeId> = nodes_of(placement).collect();
        let unknown = nodes.iter().any(|node| node.index() >= self.site.nodes.len());
        if unknown || customer.index() >= self.site.customers.len() {
            return Err(refused(vec![
                "it names a node or a customer that is not there".to_owned(),
            ]));
        }
        let wanted: Vec<_> = nodes
            .iter()
            .map(|&node| Reservation::full(self.site, node, customer))
            .collect();
        if let Err(refusals) = self.ledger.reserve(self.site, &wanted) {
            return Err(refused(refusals.iter().map(|one| one.words(self.site)).collect()));
        }
        self.hall.adopt(placement).map_err(|error| {
            for &node in &nodes {
                self.ledger.release(self.site, node);
            }
            refused(vec![self.words(&error)])
        })
    }

    /// What keeps a placement from being taken, with names.
    fn words(&self, error: &TakeError) -> String {
        let node_name = |node: &placement::NodeId| &self.site.node(NodeId::from(*node)).name;
        match error {
            TakeError::Node(node) => format!("node {} is not free", node_name(node)),
            TakeError::NotAdmitted(node) => {
                format!("node {} is not one that the cluster may have", node_name(node))
            }
            other => other.to_string(),
        }
    }

    /// Gives back all that a cluster has. None: there is no such cluster.
    pub fn release(&mut self, cluster: ClusterId) -> Option<Placement> {
        let placement = self.hall.free(cluster)?;
        self.unreserve(&placement);
        Some(placement)
    }

    /// Takes a node out of service: no cluster gets it from now on. One that has it keeps it. False: no such node.
    pub fn hold_out(&mut self, node: NodeId) -> bool {
        let known = self.hall.hold_out(placement::NodeId::from(node));
        if known {
            self.held_out.insert(node);
        }
        known
    }

    /// Takes a node into service again. False: it was not held out.
    pub fn give_back(&mut self, node: NodeId) -> bool {
        self.held_out.remove(&node) && self.hall.restore(placement::NodeId::from(node))
    }

    /// The nodes that are out of service.
    pub fn held_out(&self) -> impl Iterator<Item = NodeId> {
        self.held_out.iter().copied()
    }

    /// What a node is to placement. None: there is no such node.
    #[must_use]
    pub fn standing(&self, node: NodeId) -> Option<Standing> {
        self.hall.standing(placement::NodeId::from(node))
    }

    /// Puts another node in the place of a bad one; all others of the cluster stay. A spare steps in where there is one
    /// that is in service; else a free node: in the same unit if others of the cluster are there, in another of its units, or
    /// in a new one with the links that it takes. The bad node is free afterwards: hold it out.
    ///
    /// # Errors
    /// What is in the way; nothing has changed then.
    pub fn replace(&mut self, cluster: ClusterId, bad: NodeId, avoid: &[NodeId]) -> Result<Swap, Refused> {
        let before = self.placement(cluster);
        let is_spare = before.is_some_and(|p| p.spares.contains(&bad.into()));
        let fit = |spare: &NodeId| !avoid.contains(spare) && !self.held_out.contains(spare);
        let spares = before.into_iter().flat_map(|p| &p.spares).map(|&n| NodeId::from(n));
        let same_unit = |spare: &NodeId| self.unit_of(*spare) != self.unit_of(bad);
        let spare = spares.filter(fit).min_by_key(same_unit).filter(|_| !is_spare);
        let mut change = Change {
            leaving: vec![bad.into()],
            ..Change::default()
        };
        match spare {
            Some(spare) => change.promoted = vec![spare.into()],
            None => {
                change.nodes = u32::from(!is_spare);
                change.spares = u32::from(is_spare);
                change.avoid = avoid.iter().map(|&node| node.into()).collect();
                change.first = self.unit_of(bad);
            }
        }
        let changed = self.change(cluster, &change)?;
        Ok(Swap {
            bad,
            by: spare.or(changed.joined.first().copied()).unwrap_or(bad),
            was_spare: spare.is_some(),
            placement: changed.placement,
        })
    }

    /// Adds so many nodes in use; the present ones stay.
    ///
    /// # Errors
    /// What is in the way, and how much growth would fit; nothing has changed then.
    pub fn grow(&mut self, cluster: ClusterId, by: u32) -> Result<Changed, Refused> {
        let nodes = by;
        self.change(
            cluster,
            &Change {
                nodes,
                ..Change::default()
            },
        )
    }

    /// Adds so many spares; the present nodes stay.
    ///
    /// # Errors
    /// As [`Planner::grow`].
    pub fn add_spares(&mut self, cluster: ClusterId, by: u32) -> Result<Changed, Refused> {
        let spares = by;
        self.change(
            cluster,
            &Change {
                spares,
                ..Change::default()
            },
        )
    }

    /// Frees these nodes and spares of a cluster, and the links that the others do not need.
    ///
    /// # Errors
    /// They are not of the cluster, or no node in use would be left; nothing has changed then.
    pub fn shrink(&mut self, cluster: ClusterId, nodes: &[NodeId]) -> Result<Changed, Refused> {
        let leaving = nodes.iter().map(|&node| node.into()).collect();
        self.change(
            cluster,
            &Change {
                leaving,
                ..Change::default()
            },
        )
    }

    /// So many of a cluster's nodes whose leaving breaks up least: those of the units in which it has fewest, the last by name
    /// first. All that are in use, if there are fewer.
    #[must_use]
    pub fn leavers(&self, cluster: ClusterId, nodes: usize) -> Vec<NodeId> {
        let in_use = || {
            self.placement(cluster)
                .into_iter()
                .flat_map(|p| &p.nodes)
                .map(|&node| NodeId::from(node))
        };
        let mut of_unit = BTreeMap::new();
        for node in in_use() {
            *of_unit.entry(self.unit_of(node)).or_insert(0_usize) += 1;
        }
        let mut found: Vec<NodeId> = in_use().collect();
        found.sort_by_key(|node| {
            let unit = self.unit_of(*node);
            (of_unit.get(&unit).copied(), unit, Reverse(*node))
        });
        found.truncate(nodes);
        found
    }

    /// The unit of each node, by name: nodes of one unit share their leaves.
    pub fn units(&self) -> impl Iterator<Item = (&str, u32)> {
        let known = self.site.nodes.iter().zip(&self.hall.spec().nodes);
        known.map(|(node, placed)| (&*node.name, placed.unit.0))
    }

    fn unit_of(&self, node: NodeId) -> Option<UnitId> {
        self.hall.spec().nodes.get(node.index()).map(|known| known.unit)
    }

    fn change(&mut self, cluster: ClusterId, change: &Change) -> Result<Changed, Refused> {
        let before: BTreeSet<NodeId> = self.placement(cluster).into_iter().flat_map(nodes_of).collect();
        // Who leaves is off the ledger while others are looked for. It comes back if none are found: nothing else has
        // changed then.
        let leaving: BTreeSet<NodeId> = change.leaving.iter().map(|&node| node.into()).collect();
        let left: Vec<NodeId> = leaving.intersection(&before).copied().collect();
        let released = left.iter().filter_map(|&node| self.ledger.release(self.site, node));
        let released: Vec<Reservation> = released.collect();
        let found = self.agree(&before, &mut |hall| amend(hall, cluster, change));
        let found = found.and_then(|placement| match self.hall.exchange(&placement) {
            Ok(()) => Ok(placement),
            Err(error) => {
                for node in nodes_of(&placement).filter(|node| !before.contains(node)) {
                    self.ledger.release(self.site, node);
                }
                let why = vec![self.words(&error)];
                Err(Refused::Change { why })
            }
        });
        match found {
            Ok(placement) => {
                let after: BTreeSet<NodeId> = nodes_of(&placement).collect();
                let joined = after.difference(&before).copied().collect();
                Ok(Changed {
                    joined,
                    left,
                    placement,
                })
            }
            Err(mut refused) => {
                let again = self.ledger.reserve(self.site, &released);
                if let (Err(refusals), Refused::Change { why }) = (again, &mut refused) {
                    why.extend(refusals.iter().map(|one| one.words(self.site)));
                }
                Err(refused)
            }
        }
    }
}

/// Nodes in use and spares.
fn nodes_of(placement: &Placement) -> impl Iterator<Item = NodeId> + '_ {
    let nodes = placement.nodes.iter().chain(&placement.spares);
    nodes.map(|&node| NodeId::from(node))
}
