//! The clusters of a site: planned, changed during their life, and released.
//!
//! Placement finds nodes and links. The ledger then reserves their watts at every ancestor, on every phase and outlet,
//! and for the loss of all feeds of one letter. A cluster enters the plan only if both agree, otherwise no part of it
//! does.
//!
//! | module | purpose |
//! |---|---|
//! | `reconcile` | finds nodes that both accept: the next search omits nodes that the ledger refuses |
//! | `scarce` | what nodes draw from the power domains that are short |
//! | `broken` | broken links, and the clusters that use them |
//! | `live` | growth, shrinking, swaps, nodes out of service, and earlier reservations |
//! | `named` | a placement by the names of nodes and switches, which outlive a version of the site file |

mod broken;
mod live;
mod named;
mod reconcile;
mod scarce;

use std::collections::BTreeSet;

pub use live::{Changed, RestoreError, Swap};
pub use named::{NamedCores, NamedPlacement, NamedUplinks, RackAffinity, Unresolved};

use self::reconcile::Unfit;
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
    #[error("{}{}; {}", why.join("; "), doubt(*proven), fitting(*nearest))]
    Budgets {
        /// The reasons, one sentence each.
        why: Vec<String>,
        /// Number of nodes that would fit.
        nearest: Option<u32>,
        /// Whether the refusal is proven. False: not every choice of nodes was tried, so other nodes may fit.
        proven: bool,
    },
    /// Nodes were found for a change, but their power or cooling does not suffice.
    #[error("{}{}", why.join("; "), doubt(*proven))]
    Change {
        /// The reasons, one sentence each.
        why: Vec<String>,
        /// Whether the refusal is proven. False: not every choice of nodes was tried, so other nodes may fit.
        proven: bool,
    },
}

fn doubt(proven: bool) -> &'static str {
    if proven { "" } else { "; the search was cut short" }
}

fn fitting(nearest: Option<u32>) -> String {
    nearest.map_or_else(
        || "no smaller number of nodes fits".to_owned(),
        |nodes| format!("what fits: {nodes} nodes"),
    )
}

impl<'a> Planner<'a> {
    /// Creates an empty plan. Parts of the fabric that do not fit into a uniform fat-tree are left out, see
    /// [`hall::irregularities`].
    ///
    /// # Errors
    /// The hall is larger than placement can describe.
    pub fn new(site: &'a Site) -> Result<Self, UnsupportedFabric> {
        let ledger = Ledger::new(site);
        let (spec, switches) = hall::with_switches(site, &ledger);
        let hall = Hall::new(spec).map_err(|faults| {
            let words: Vec<String> = faults.iter().map(ToString::to_string).collect();
            UnsupportedFabric(words.join("; "))
        })?;
        Ok(Self {
            site,
            hall,
            ledger,
            switches,
            excluded: BTreeSet::new(),
        })
    }

    /// Plans a cluster with the site file's promises to its customer. A refusal leaves the plan unchanged.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn place(&mut self, request: Request) -> Result<Placement, Refused> {
        if request.customer.at() >= self.site.customers.len() {
            return Err(Refused::Budgets {
                why: vec!["the customer does not exist".to_owned()],
                nearest: None,
                proven: true,
            });
        }
        let placement = match self.find(&request) {
            Ok(placement) => placement,
            Err(Unfit::Ledger { why, proven, at_most }) => {
                let nearest = self.most_nodes(&request, at_most);
                return Err(Refused::Budgets { why, nearest, proven });
            }
            Err(unfit) => return Err(unfit.into()),
        };
        if let Err(error) = self.hall.take(&placement) {
            self.unreserve(&placement);
            return Err(Refused::Budgets {
                why: vec![error.to_string()],
                nearest: None,
                proven: false,
            });
        }
        Ok(placement)
    }

    /// Finds nodes that placement and ledger both accept, and reserves them in the ledger.
    fn find(&mut self, request: &Request) -> Result<Placement, Unfit> {
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
    /// smaller number fits, too. Found by bisection, after `at_most`, an upper bound on nodes and spares.
    fn most_nodes(&mut self, request: &Request, at_most: Option<u32>) -> Option<u32> {
        let bound = at_most.map_or(u32::MAX, |most| most.saturating_sub(request.spares));
        let (mut fits, mut too_many) = (0, request.nodes.min(bound.saturating_add(1)));
        let mut nodes = too_many.saturating_sub(1);
        while too_many - fits > 1 {
            let found = self.find(&Request {
                nodes,
                ..request.clone()
            });
            if let Ok(placement) = &found {
                self.unreserve(placement);
            }
            *(if found.is_ok() { &mut fits } else { &mut too_many }) = nodes;
            nodes = u32::midpoint(fits, too_many);
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
