//! BMCs without usable Redfish: power, boot device, identity, event log and serial console over IPMI 2.0 (RMCP+).
//!
//! [`Ipmi`] runs `ipmitool`, one process at a time for each BMC. A change counts only once it reads back.
//!
//! Rules of the whole crate:
//! - The password is in the child's environment, never on a command line, in an error or in a log line.
//! - Each run is bounded in time and output, and ends when its caller stops waiting.
//! - After a refused login the same name and password are not sent again for a while ([`RequestLimiter`]): BMCs lock
//!   accounts.

mod address;
mod boot;
mod client;
mod error;
mod facts;
mod limiter;
mod power;
mod sol;
mod tool;

pub use address::{Firmware, IpmiAddress, Privilege};
pub use boot::{BootDevice, BootFlags, BootOutcome, Persistence};
pub use client::{Account, Ipmi};
pub use error::{ErrorKind, IpmiError};
pub use facts::{Controller, Fru, SelEntry};
pub use limiter::RequestLimiter;
pub use power::{Power, PowerAction};
pub use sol::SerialConsole;
pub use tool::PROGRAM;
