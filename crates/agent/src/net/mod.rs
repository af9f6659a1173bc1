//! The boot network: one NIC, one address. And what all NICs hear of the switches that they are cabled to.

pub mod dhcp;
pub mod interfaces;
pub mod lldp;
pub mod neighbours;
pub mod netlink;
pub mod nic;

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::cmdline::Mac;

/// Why there is no network.
#[derive(Debug, Error)]
pub enum NetError {
    /// The NIC did not appear.
    #[error(
        "no network interface {wanted} within {waited:?}; present: {present}; its driver may be missing from the ramdisk"
    )]
    NoNic {
        /// The address looked for.
        wanted: String,
        /// How long.
        waited: Duration,
        /// Names and addresses of those that are there.
        present: String,
    },
    /// No server answered.
    #[error("no DHCP answer on {nic} ({mac}) within {waited:?}")]
    NoLease {
        /// The interface.
        nic: String,
        /// Its address.
        mac: Mac,
        /// How long.
        waited: Duration,
    },
    /// The kernel refused.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl NetError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
