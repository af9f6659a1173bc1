//! Finding machines in a management network, as far as that is a matter of values: which addresses a range means, what
//! lists and answers of others say, and which of the BMCs that were found are which machine.

mod identity;
mod judge;
mod leases;
mod name;
mod ranges;
mod ssdp;
mod targets;

pub use identity::{plausible_mac, plausible_serial, plausible_uuid};
pub use judge::{Judgement, KnownNode, Seen, judge};
pub use leases::{Lease, LeaseFault, parse_leases};
pub use name::{NameSource, node_name};
pub use ranges::{RangeFault, Ranges};
pub use ssdp::{SSDP_PORT, SsdpAnswer, parse_answer, search};
pub use targets::{TARGETS_MAX, TableFault, TargetRow, parse_targets};

#[cfg(test)]
mod tests;
