//! BMCs without usable Redfish: power, boot device, identity, event log and serial console over IPMI 2.0 (RMCP+).
//!
//! [`Ipmi`] runs `ipmitool`, one at a time for each BMC. What a BMC accepted counts for nothing until it reads back.
//!
//! Things that hold everywhere:
//! - The password is in the child's environment, never on a command line, in an error or in a log line.
//! - Each run is bounded in time and in what it may print, and ends with whoever waits for it.
//! - After a refused login the same name and password are not sent again for a while ([`Manners`]): BMCs lock accounts.

mod address;
mod boot;
mod client;
mod error;
mod facts;
mod manners;
mod power;
mod sol;
mod tool;

pub use address::{Firmware, IpmiAddress, Privilege};
pub use boot::{BootDevice, BootFlags, BootOutcome, Persistence};
pub use client::{Account, Ipmi};
pub use error::{ErrorKind, IpmiError};
pub use facts::{Controller, Fru, SelEntry};
pub use manners::Manners;
pub use power::{Power, PowerAction};
pub use sol::SerialConsole;
pub use tool::PROGRAM;
