//! Long-lived clusters: restored after a restart, changed, released; and nodes out of service.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{NamedPlacement, Planner, Refused};
use crate::hall::{UnsupportedFabric, hall_node, site_node};
use rackwright_placement::{Change, ClusterId, NodeStatus, Placement, TakeError, UnitId, amend};
use rackwright_site::model::{CustomerId, NodeId, Site};
use rackwright_site::power::Reservation;

/// Why a plan cannot hold the earlier reservations.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The site's fabric does not allow placement.
    #[error(transparent)]
    Site(#[from] UnsupportedFabric),
    /// The site can no longer hold these clusters.
    #[error("{}", faults.iter().map(|(id, why)| format!("cluster {}: {why}", id.0)).collect::<Vec<_>>().join("; "))]
    Clusters {
        /// The reason for each cluster.
        faults: Vec<(ClusterId, String)>,
    },
}

/// The replacement of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// The node that left.
    pub bad: NodeId,
    /// The node that takes its place.
    pub by: NodeId,
    /// The replacement was a spare of the cluster, which now has one less. [`Planner::add_spares`] finds another.
    pub was_spare: bool,
    /// The cluster after the replacement.
    pub placement: Placement,
}

/// A cluster after it grew or shrank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Nodes that joined.
    pub joined: Vec<NodeId>,
    /// Nodes that left.
    pub left: Vec<NodeId>,
    /// The cluster after the change.
    pub placement: Placement,
}

impl<'a> Planner<'a> {
    /// The plan of a site with these clusters. The caller then calls [`Planner::exclude`] for nodes out of service.
    ///
    /// # Errors
    /// All reasons, by cluster: each promise is checked as for a new cluster.
    pub fn restore(site: &'a Site, live: &[Placement]) -> Result<Self, RestoreError> {
        let mut planner = Self::new(site)?;
        let adopted = live.iter().map(|one| (one.request.cluster, planner.adopt(one)));
        let faults: Vec<_> = adopted
            .filter_map(|(id, done)| done.err().map(|why| (id, why.to_string())))
            .collect();
        if faults.is_empty() {
            Ok(planner)
        } else {
            Err(RestoreError::Clusters { faults })
        }
    }

    /// Like [`Planner::restore`], from stored names. This also works for another version of the site.
    ///
    /// # Errors
    /// Those of [`Planner::restore`], and names that the site does not have.
    pub fn restore_named(site: &'a Site, live: &[NamedPlacement]) -> Result<Self, RestoreError> {
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
            Err(RestoreError::Clusters { faults })
        }
    }

    /// Enters a cluster at its earlier placement. Wishes for or against sharing racks with other clusters are not
    /// checked again.
    ///
    /// # Errors
    /// The reason. The plan is then unchanged.
    pub fn adopt(&mut self, placement: &Placement) -> Result<(), Refused> {
        let refused = |why| Refused::Change { why, proven: true };
        let customer = CustomerId(placement.request.customer.0);
        let nodes: Vec<NodeId> = nodes_of(placement).collect();
        let unknown = nodes.iter().any(|node| node.index() >= self.site.nodes.len());
        if unknown || customer.index() >= self.site.customers.len() {
            return Err(refused(vec![
                "it names a node or a customer that does not exist".to_owned(),
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

    /// The reason why a placement cannot be taken, with names.
    fn words(&self, error: &TakeError) -> String {
        let node_name = |node: &rackwright_placement::NodeId| &self.site.node(site_node(*node)).name;
        match error {
            TakeError::Node(node) => format!("node {} is not free", node_name(node)),
            TakeError::NotAdmitted(node) => {
                format!("node {} is not allowed for the cluster", node_name(node))
            }
            other => other.to_string(),
        }
    }

    /// Releases everything that a cluster has. `None`: there is no such cluster.
    pub fn release(&mut self, cluster: ClusterId) -> Option<Placement> {
        let placement = self.hall.free(cluster)?;
        self.unreserve(&placement);
        Some(placement)
    }

    /// Takes a node out of service: no cluster gets it from now on, but its present cluster keeps it. Returns false if
    /// there is no such node.
    pub fn exclude(&mut self, node: NodeId) -> bool {
        let known = self.hall.exclude(hall_node(node));
        if known {
            self.excluded.insert(node);
        }
        known
    }

    /// Puts a node back into service. Returns false if it was in service.
    pub fn restore_node(&mut self, node: NodeId) -> bool {
        self.excluded.remove(&node) && self.hall.restore(hall_node(node))
    }

    /// The nodes that are out of service.
    pub fn excluded(&self) -> impl Iterator<Item = NodeId> {
        self.excluded.iter().copied()
    }

    /// The state of a node for placement. `None`: there is no such node.
    #[must_use]
    pub fn node_status(&self, node: NodeId) -> Option<NodeStatus> {
        self.hall.node_status(hall_node(node))
    }

    /// Replaces a bad node of a cluster. All other nodes stay. The replacement is a spare in service, otherwise a free
    /// node: in the same unit if other nodes of the cluster are there, in another of its units, or in a new unit with
    /// the required links. The bad node becomes free, so the caller must hold it out.
    ///
    /// # Errors
    /// The reason. The plan is then unchanged.
    pub fn replace(&mut self, cluster: ClusterId, bad: NodeId, avoid: &[NodeId]) -> Result<Swap, Refused> {
        let before = self.placement(cluster);
        let is_spare = before.is_some_and(|p| p.spares.contains(&hall_node(bad)));
        let fit = |spare: &NodeId| !avoid.contains(spare) && !self.excluded.contains(spare);
        let spares = before.into_iter().flat_map(|p| &p.spares).map(|&n| site_node(n));
        let same_unit = |spare: &NodeId| self.unit_of(*spare) != self.unit_of(bad);
        let spare = spares.filter(fit).min_by_key(same_unit).filter(|_| !is_spare);
        let mut change = Change {
            leaving: vec![hall_node(bad)],
            ..Change::default()
        };
        match spare {
            Some(spare) => change.promoted = vec![hall_node(spare)],
            None => {
                change.nodes = u32::from(!is_spare);
                change.spares = u32::from(is_spare);
                change.avoid = avoid.iter().map(|&node| hall_node(node)).collect();
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

    /// Adds `by` nodes in use. The present nodes stay.
    ///
    /// # Errors
    /// The reason, and the possible growth. The plan is then unchanged.
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

    /// Adds `by` spares. The present nodes stay.
    ///
    /// # Errors
    /// Those of [`Planner::grow`].
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

    /// Frees these nodes and spares of a cluster, and the links that the remaining nodes do not need.
    ///
    /// # Errors
    /// The nodes are not in the cluster, or no node in use would be left. The plan is then unchanged.
    pub fn shrink(&mut self, cluster: ClusterId, nodes: &[NodeId]) -> Result<Changed, Refused> {
        let leaving = nodes.iter().map(|&node| hall_node(node)).collect();
        self.change(
            cluster,
            &Change {
                leaving,
                ..Change::default()
            },
        )
    }

    /// Picks this many nodes for leaving, with the least fragmentation: from the units with the fewest nodes of the
    /// cluster, last names first. Returns all nodes in use if there are fewer.
    #[must_use]
    pub fn release_candidates(&self, cluster: ClusterId, nodes: usize) -> Vec<NodeId> {
        let in_use = || {
            self.placement(cluster)
                .into_iter()
                .flat_map(|p| &p.nodes)
                .map(|&node| site_node(node))
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

    /// The unit of each node that clusters can get, by name. The nodes of a unit share their leaves.
    pub fn units(&self) -> impl Iterator<Item = (&str, u32)> {
        let known = self.site.nodes.iter().zip(&self.hall.spec().nodes);
        known.filter_map(|(node, placed)| Some((&*node.name, placed.unit?.0)))
    }

    pub(super) fn unit_of(&self, node: NodeId) -> Option<UnitId> {
        self.hall.spec().nodes.get(node.index())?.unit
    }

    fn change(&mut self, cluster: ClusterId, change: &Change) -> Result<Changed, Refused> {
        let before: BTreeSet<NodeId> = self.placement(cluster).into_iter().flat_map(nodes_of).collect();
        // The leaving nodes are off the ledger during the search. If the search fails, they are reserved again and
        // nothing else has changed.
        let leaving: BTreeSet<NodeId> = change.leaving.iter().map(|&node| site_node(node)).collect();
        let left: Vec<NodeId> = leaving.intersection(&before).copied().collect();
        let released = left.iter().filter_map(|&node| self.ledger.release(self.site, node));
        let released: Vec<Reservation> = released.collect();
        let found = self.reconcile(&before, &mut |hall| amend(hall, cluster, change));
        let found = found
            .map_err(Refused::from)
            .and_then(|placement| match self.hall.exchange(&placement) {
                Ok(()) => Ok(placement),
                Err(error) => {
                    for node in nodes_of(&placement).filter(|node| !before.contains(node)) {
                        self.ledger.release(self.site, node);
                    }
                    let why = vec![self.words(&error)];
                    Err(Refused::Change { why, proven: false })
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
                if let (Err(refusals), Refused::Change { why, .. }) = (again, &mut refused) {
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
    nodes.map(|&node| site_node(node))
}
