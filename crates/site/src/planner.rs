//! Clusters planned one after another in a site where nothing is taken yet.
//!
//! Placement finds nodes and links; the ledger then reserves their watts at every ancestor, on every phase and outlet,
//! and after the loss of all feeds of one letter. A cluster is in the plan when both agree, and else nothing of it is.

use crate::hall::{self, Unfit};
use crate::model::{CustomerId, NodeId, Site};
use crate::placement::{self, Hall, Placement, Request};
use crate::power::{Ledger, Reservation};

/// What has been planned so far.
#[derive(Debug)]
pub struct Planner<'a> {
    site: &'a Site,
    hall: Hall,
    ledger: Ledger,
}

/// Why a cluster is not in the plan.
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
        let spec = hall::hall(site)?;
        let hall = Hall::new(spec).map_err(|faults| {
            let words: Vec<String> = faults.iter().map(ToString::to_string).collect();
            Unfit(words.join("; "))
        })?;
        let ledger = Ledger::new(site);
        Ok(Self { site, hall, ledger })
    }

    /// Plans a cluster, with what the site file promises its customer, or nothing.
    ///
    /// # Errors
    /// What is in the way.
    pub fn place(&mut self, request: Request) -> Result<Placement, Refused> {
        let (placement, wanted) = self.find(&request)?;
        let reserved = self.ledger.reserve(self.site, &wanted);
        if let Err(refusals) = reserved {
            return Err(Refused::Budgets {
                why: refusals.iter().map(|one| one.words(self.site)).collect(),
                nearest: self.most_nodes(&request),
            });
        }
        if let Err(error) = self.hall.take(&placement) {
            for one in &wanted {
                self.ledger.release(self.site, one.node);
            }
            let (why, nearest) = (vec![error.to_string()], None);
            return Err(Refused::Budgets { why, nearest });
        }
        Ok(placement)
    }

    fn find(&self, request: &Request) -> Result<(Placement, Vec<Reservation>), Refused> {
        let customer = CustomerId(request.customer.0);
        let promised = hall::promised(self.site, request.clone());
        let placement = placement::plan(&self.hall, &promised).map_err(Box::new)?;
        let nodes = placement.nodes.iter().chain(&placement.spares);
        let wanted = nodes.map(|node| Reservation::full(self.site, NodeId(node.0), customer));
        let wanted = wanted.collect();
        Ok((placement, wanted))
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
            let good = found.is_ok_and(|(_, wanted)| self.ledger.refusals(self.site, &wanted).is_empty());
            *(if good { &mut fits } else { &mut too_many }) = nodes;
        }
        (fits > 0).then_some(fits)
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
