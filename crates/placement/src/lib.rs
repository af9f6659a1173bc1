//! Placement of clusters: a cluster is placed as a whole or not at all, and never needs links of another cluster.
//!
//! A [`Hall`] holds equipment and reservations. [`plan`] finds a [`Placement`] for a [`Request`], or returns a
//! [`Refusal`] with the constraint, the shortfall, and requests that would fit. [`Hall::take`] and [`Hall::free`] add
//! and remove whole clusters, and `take` repeats all checks. This module uses neither a clock nor randomness: the same
//! hall and request give the same placement.
//!
//! | module | purpose |
//! |---|---|
//! | `rule` | when links belong to a cluster alone: the shape, on two and three levels |
//! | `profile`, `ledger` | power at every ancestor, after each loss of a feed, heat, and dedicated equipment |
//! | `view` | the nodes that a request may have |
//! | `propose`, `exact` | the choice of units: good guesses, and the complete search, fewest units first |
//! | `fill`, `bound`, `shape` | from units to nodes and links, within every budget |
//! | `pack`, `simplex` | the most nodes within budgets that racks share, and a proof that there are no more |
//! | `decide`, `refuse` | the result |
//! | `amend` | nodes that join or leave a cluster while the rest stays |
//! | `ownership` | taking and freeing |

mod amend;
mod bound;
mod decide;
mod exact;
mod fill;
mod hall;
mod ledger;
mod links;
mod ownership;
mod pack;
mod picture;
mod profile;
mod propose;
mod refuse;
mod request;
mod rule;
mod shape;
mod simplex;
mod spec;
mod view;

pub use amend::{Change, amend};
pub use decide::{SMALL, SMALL_STEPS, STEPS, find, plan, plan_within};
pub use hall::{Hall, NodeStatus};
pub use links::{Mask, Wiring, bits, low, lowest};
pub use ownership::TakeError;
pub use picture::draw;
pub use request::{
    Affinity, Bandwidth, Constraint, Nearest, Placement, PowerShare, Refusal, Request, SpineShare, UnitShare,
};
pub use rule::{Breach, Wirings, check};
pub use spec::{
    ClusterId, CoolingId, CoolingSpec, CustomerId, DomainId, DomainSpec, FabricSpec, HallFault, HallSpec, LabelId,
    LabelKind, LabelSpec, MOST, NodeId, NodeSpec, PodId, PodSpec, SkuId, SkuSpec, Tree, UnitId,
};
