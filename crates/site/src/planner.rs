//! The clusters of a site: planned, changed while they live, released.
//!
//! Placement finds nodes and links; the ledger then reserves their watts at every ancestor, on every phase and outlet,
//! and after the loss of all feeds of one letter. A cluster is in the plan when both agree, and else nothing of it is.
//!
//! | module | what it knows |
//! |---|---|
//! | `agree` | nodes that both take: what the ledger refuses is left out of the next search |
//! | `broken` | links out of order, and who counts on them |
//! | `live` | growth, shrinking, swaps, nodes out of service, and what was reserved before |
//! | `named` | a placement by the names of nodes and switches, which outlive a version of the site file |

mod agree;
mod broken;
mod live;
mod named;

use std::collections::BTreeSet;

pub use live::{Changed, Swap, Unrestored};
pub use named::{NamedCores, NamedPlacement, NamedUplinks, RackWishes, Unresolved};

use crate::hall::{self, Switches, Unfit};
use crate::model::{NodeId, Site};
use crate::placement::{self, ClusterId, Hall, Placement, Request};
use crate::power::Ledger;

/// What has been planned so far.
#[derive(Debug)]
pub struct Planner<'a> {
    site: &'a Site,
    hall: Hall,
    ledger: Ledger,
    switches: Switches,
    /// Nodes that are out of service.
    held_out: BTreeSet<NodeId>,
}

/// Why a cluster is not in the plan, or not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There are no such nodes and links.
    #[error(transparent)]
    Placement(#[from] Box<placement::Refusal>),
    /// Nodes were found, but their power or cooling does not bear it.
    #[error("{}; {}", why.join("; "), fitting(*nearest))]
    Budgets {
        /// One sentence each.
        why: Vec<String>,
        /// So many nodes fit.
        nearest: Option<u32>,
    },
    /// Nodes were found for a change, but their power or cooling does not bear it.
    #[error("{}", why.join("; "))]
    Change {
        /// One sentence each.
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
    /// Nothing is planned yet.
    ///
    /// # Errors
    /// The site's fabric is no uniform fat-tree.
    pub fn new(site: &'a Site) -> Result<Self, Unfit> {
        let (spec, switches) = hall::with_switches(site)?;
        let hall = Hall::new(spec).map_err(|faults| {
            let words: Vec<String> = faults.iter().map(ToString::to_string).collect();
            Unfit(words.join("; "))
        })?;
        Ok(Self {
            site,
            hall,
            ledger: Ledger::new(site),
            switches,
            held_out: BTreeSet::new(),
        })
    }

    /// Plans a cluster, with what the site file promises its customer, or nothing.
    ///
    /// # Errors
    /// What is in the way.
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

    /// Nodes for a request that placement and ledger agree on. They are reserved in the ledger.
    fn find(&mut self, request: &Request) -> Result<Placement, Refused> {
        if request.customer.at() >= self.site.customers.len() {
            let why = vec!["there is no such customer".to_owned()];
            return Err(Refused::Budgets { why, nearest: None });
        }
        let promised = hall::promised(self.site, request.clone());
        self.agree(&BTreeSet::new(), &mut |hall| placement::plan(hall, &promised))
    }

    fn unreserve(&mut self, placement: &Placement) {
        for node in placement.nodes.iter().chain(&placement.spares) {
            self.ledger.release(self.site, NodeId::from(*node));
        }
    }

    /// A number of nodes below that of the request for which placement and ledger agree: the most, if what fits for a
    /// number fits for all below. Looked for by halving.
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

    /// What a cluster has. None: there is no such cluster.
    #[must_use]
    pub fn placement(&self, cluster: ClusterId) -> Option<&Placement> {
        self.hall.clusters().get(&cluster)
    }

    /// A placement of this plan as text.
    #[must_use]
    pub fn draw(&self, placement: &Placement) -> String {
        placement::draw(&self.hall, placement)
    }

    /// The hall with all that was planned.
    #[must_use]
    pub fn hall(&self) -> &Hall {
        &self.hall
    }

    /// What was reserved for it.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}
