//! The pure functions of finding machines in a management network: addresses of ranges, parsing of lists and answers,
//! and the assignment of the BMCs found to machines.

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
