//! The clusters of a site: planned, changed during their life, and released.
//!
//! Placement finds nodes and links. The ledger then reserves their watts at every ancestor, on every phase and outlet,
//! and for the loss of all feeds of one letter. A cluster enters the plan only if both agree, otherwise no part of it
//! does.
//!
//! | module | purpose |
//! |---|---|
//! | `reconcile` | finds nodes that both accept: the next search omits nodes that the ledger refuses |
//! | `broken` | links out of order, and the clusters that use them |
//! | `live` | growth, shrinking, swaps, nodes out of service, and earlier reservations |
//! | `named` | a placement by the names of nodes and switches, which outlive a version of the site file |

mod broken;
mod live;
mod named;
mod reconcile;

use std::collections::BTreeSet;

pub use live::{Changed, RestoreError, Swap};
pub use named::{NamedCores, NamedPlacement, NamedUplinks, RackAffinity, Unresolved};

use crate::hall::{self, Switches, UnsupportedFabric, site_node};
use rackwright_placement::{ClusterId, Hall, Placement, Request};
use rackwright_site::model::{NodeId, Site};
use rackwright_site::power::Ledger;

/// The present plan of a site.
#[derive(Debug)]
pub struct Planner<'a> {
    site: &'a Site,
    hall: Hall,
    ledger: Ledger,
    switches: Switches,
    /// Nodes that are out of service.
    excluded: BTreeSet<NodeId>,
}

/// Why a cluster cannot be planned or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No suitable nodes and links exist.
    #[error(transparent)]
    Placement(#[from] Box<rackwright_placement::Refusal>),
    /// Nodes were found, but their power or cooling does not suffice.
    #[error("{}; {}", why.join("; "), fitting(*nearest))]
    Budgets {
        /// The reasons, one sentence each.
        why: Vec<String>,
        /// Number of nodes that would fit.
        nearest: Option<u32>,
    },
    /// Nodes were found for a change, but their power or cooling does not suffice.
    #[error("{}", why.join("; "))]
    Change {
        /// The reasons, one sentence each.
        why: Vec<String>,
    },
}

fn fitting(nearest: Option<u32>) -> String {
    nearest.map_or_else(
        || "no smaller number of nodes fits".to_owned(),
        |nodes| format!("what fits: {nodes} nodes"),
    )
}

impl<'a> Planner<'a> {
    /// Creates an empty plan.
    ///
    /// # Errors
    /// The site's fabric is not a uniform fat-tree.
    pub fn new(site: &'a Site) -> Result<Self, UnsupportedFabric> {
        let (spec, switches) = hall::with_switches(site)?;
        let hall = Hall::new(spec).map_err(|faults| {
            let words: Vec<String> = faults.iter().map(ToString::to_string).collect();
            UnsupportedFabric(words.join("; "))
        })?;
        Ok(Self {
            site,
            hall,
            ledger: Ledger::new(site),
            switches,
            excluded: BTreeSet::new(),
        })
    }

    /// Plans a cluster with the site file's promises to its customer. A refusal leaves the plan unchanged.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn place(&mut self, request: Request) -> Result<Placement, Refused> {
        let placement = match self.find(&request) {
            Ok(placement) => placement,
            Err(Refused::Change { why }) => {
                let nearest = self.most_nodes(&request);
                return Err(Refused::Budgets { why, nearest });
            }
            Err(refused) => return Err(refused),
        };
        if let Err(error) = self.hall.take(&placement) {
            self.unreserve(&placement);
            let (why, nearest) = (vec![error.to_string()], None);
            return Err(Refused::Budgets { why, nearest });
        }
        Ok(placement)
    }

    /// Finds nodes that placement and ledger both accept, and reserves them in the ledger.
    fn find(&mut self, request: &Request) -> Result<Placement, Refused> {
        if request.customer.at() >= self.site.customers.len() {
            let why = vec!["the customer does not exist".to_owned()];
            return Err(Refused::Budgets { why, nearest: None });
        }
        let promised = hall::promised(self.site, request.clone());
        self.reconcile(&BTreeSet::new(), &mut |hall| {
            rackwright_placement::plan(hall, &promised)
        })
    }

    fn unreserve(&mut self, placement: &Placement) {
        for node in placement.nodes.iter().chain(&placement.spares) {
            self.ledger.release(self.site, site_node(*node));
        }
    }

    /// A number of nodes below the requested one that placement and ledger both accept. It is the maximum if every
    /// smaller number fits, too. Found by bisection.
    fn most_nodes(&mut self, request: &Request) -> Option<u32> {
        let (mut fits, mut too_many) = (0, request.nodes);
        while too_many - fits > 1 {
            let nodes = u32::midpoint(fits, too_many);
            let found = self.find(&Request {
                nodes,
                ..request.clone()
            });
            if let Ok(placement) = &found {
                self.unreserve(placement);
            }
            *(if found.is_ok() { &mut fits } else { &mut too_many }) = nodes;
        }
        (fits > 0).then_some(fits)
    }

    /// The nodes and links of a cluster. `None`: there is no such cluster.
    #[must_use]
    pub fn placement(&self, cluster: ClusterId) -> Option<&Placement> {
        self.hall.clusters().get(&cluster)
    }

    /// A placement of this plan, drawn as text.
    #[must_use]
    pub fn draw(&self, placement: &Placement) -> String {
        rackwright_placement::draw(&self.hall, placement)
    }

    /// The hall with all planned clusters.
    #[must_use]
    pub fn hall(&self) -> &Hall {
        &self.hall
    }

    /// The ledger with the reservations of the plan.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}
