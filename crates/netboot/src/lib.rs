//! Network boot: everything between a machine's firmware and the agent's kernel.
//!
//! ```text
//!  firmware ──DHCP──▶ dhcp   address (or, as proxyDHCP, none) and the name of a first stage
//!           ──TFTP──▶ tftp   iPXE, or shim and grub: the first stage, and all of a Secure Boot start
//!           ──HTTP──▶ http   one script per node against a one-time token, then kernel and ramdisk
//!           ◀──RA────  ra    router advertisements, so that iPXE does not wait 16 s for IPv6
//! ```
//!
//! Pure functions interpret packets and decide on answers ([`dhcp::Request::parse`], [`dhcp::decide`], [`dhcp::reply`]);
//! the socket loops around them only receive and send. This crate knows no nodes and no database: all knowledge comes from
//! [`BootDirectory`], and all observations go back to it as [`StageReport`].
//!
//! Invariants:
//! - No packet, request or file name from the network can make this crate panic, block or grow without bound.
//! - A boot plan is handed out only once, for a token that was issued for exactly this MAC address.
//! - Only files that the configuration, a redeemed plan or the directory names are ever opened.

mod arp;
pub mod config;
pub mod connections;
pub mod counters;
pub mod dhcp;
pub mod directory;
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod lingering;
pub mod pool;
pub mod tftp;
pub mod tokens;

mod grub;
mod leases;
mod mac;
mod ra;
mod random;
mod report_limiter;
mod service;
mod sessions;
mod socket;

pub use config::{BootLoader, ConfigFaults, DhcpMode, NetbootConfig, Pool, Settings, Subnet, first_stages_in};
pub use counters::Counters;
pub use directory::{
    Binding, BootDirectory, BootFile, BootIntent, BootPlan, Client, DirectoryError, Lookup, OneTimeToken, Refusal,
    Stage, StageDropped, StageReport,
};
pub use mac::{Mac, MacError};
pub use service::{Addresses, BindError, Netboot};
