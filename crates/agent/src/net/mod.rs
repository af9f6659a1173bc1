//! The boot network: one NIC with one address. Also LLDP on all NICs, to find the switches that they are cabled to.

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
        /// Description of the wanted NIC.
        wanted: String,
        /// Time spent waiting.
        waited: Duration,
        /// Names and addresses of the existing NICs.
        present: String,
    },
    /// No DHCP server answered.
    #[error("no DHCP answer on {nic} ({mac}) within {waited:?}")]
    NoLease {
        /// Name of the interface.
        nic: String,
        /// Ethernet address of the interface.
        mac: Mac,
        /// Time spent waiting.
        waited: Duration,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The failed action.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl NetError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
