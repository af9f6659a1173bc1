//! The lives of nodes and of clusters as values and pure functions.
//!
//! `chart` holds the states and the edges that join them. `decide` takes a node, the facts about its machine and the time,
//! and returns one move, one effect or one wait. This crate has no clock, socket, database or randomness: callers pass such
//! inputs as arguments.

pub mod account;
pub mod bmc_state;
pub mod chart;
pub mod cluster;
pub mod decide;
pub mod drives;
pub mod effect;
pub mod event;
pub mod facts;
pub mod ids;
pub mod limits;
pub mod line;
mod names;
pub mod node;
pub mod operation;
pub mod outcome;
pub mod policy;
pub mod time;
pub mod usage;
pub mod window;

pub use account::{Account, AccountRules, account_outcome};
pub use chart::{Edge, State};
pub use decide::{
    CONTESTED as BOOT_CONTESTED, DIFFERS as SETTINGS_DIFFER, Decision, PowerLoss, Wait, decide, expected_boot,
    forced_outcome, is_interrupted, power_loss,
};
pub use effect::{BootTarget, Effect, EffectClass, Network};
pub use event::{EventKind, Severity};
pub use facts::{Agent, Attempt, Bmc, BmcPolicy, BootFacts, Facts, FirmwareFacts, Outcome, Power, Reading};
pub use ids::{ClusterId, CustomerId, ImageId, InvalidId, NodeId, OperationId};
pub use limits::{Kind, Limits, Need, Resource, Scope};
pub use line::QueueHead;
pub use node::{Claim, ClusterClaim, Doubt, DoubtCause, Evidence, Node, PowerGoal, PowerRequest, Wanted};
pub use operation::OperationKind;
pub use policy::Policy;
pub use time::{Timestamp, minutes, seconds};
pub use window::{MaintenanceWindow, Span, Weekly};
