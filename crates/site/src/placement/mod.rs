//! Where a cluster fits: all or nothing, and no link of another cluster in its way.
//!
//! A [`Hall`] is what there is and what is taken. [`plan`] finds a [`Placement`] for a [`Request`], or says in a
//! [`Refusal`] what is in the way, by how much, and what would fit. [`Hall::take`] and [`Hall::free`] change the hall by
//! whole clusters, and `take` checks everything again. Nothing here sees a clock or randomness: the same hall and the same
//! request give the same placement.
//!
//! | module | what it knows |
//! |---|---|
//! | `rule` | when links are a cluster's own: the shape, on two and three levels |
//! | `profile`, `ledger` | power at every ancestor, after each loss of a feed, heat, who is alone on what |
//! | `view` | which nodes a request may have |
//! | `propose`, `exact` | which units: good guesses, and every way there is, fewest units first |
//! | `fill`, `bound`, `shape` | from units to nodes and links, within every budget |
//! | `decide`, `refuse` | the answer |
//! | `amend` | nodes that join or leave a cluster while the rest stays |
//! | `ownership` | taking and giving back |

mod amend;
mod bound;
mod decide;
mod exact;
mod fill;
mod hall;
mod ledger;
mod links;
mod ownership;
mod picture;
mod profile;
mod propose;
mod refuse;
mod request;
mod rule;
mod shape;
mod spec;
mod view;

pub use amend::{Change, amend};
pub use decide::{SMALL, SMALL_STEPS, STEPS, find, plan, plan_within};
pub use hall::{Hall, Standing};
pub use links::{Mask, Wiring, bits, low, lowest};
pub use ownership::TakeError;
pub use picture::draw;
pub use request::{
    Affinity, Bandwidth, Constraint, Nearest, Placement, PowerShare, Refusal, Request, SpineShare, UnitShare,
};
pub use rule::{Breach, Wirings, check};
pub use spec::{
    ClusterId, CoolingId, CoolingSpec, CustomerId, DomainId, DomainSpec, HallFault, HallSpec, LabelId, LabelKind,
    LabelSpec, MOST, NodeId, NodeSpec, PodId, PodSpec, SkuId, SkuSpec, Tree, UnitId,
};
