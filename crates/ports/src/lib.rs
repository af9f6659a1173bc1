//! Ports of Ethernet switches: sets their access VLANs and reads them back.
//!
//! A [`SwitchConfig`] document assigns a network to each port of a switch. A [`PortDriver`] applies a document to the switch
//! in one transaction and reads every port of the document back. [`difference`] computes the required changes. A
//! switch's answers are hostile input: their size and time are bounded, and every field is checked.

mod driver;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod model;
mod netconf;
mod ovs;
mod tls;
mod wire;

pub use driver::{Applied, PortDriver};
pub use error::{PortsError, report};
pub use model::{Access, Change, PortState, SwitchConfig, SwitchReading, Version, Vlan, difference};
pub use netconf::{HostKey, HostKeyError, Login, Netconf, NetconfSettings, SshAddress, SshAddressError, SshSettings};
pub use ovs::{OpenVSwitch, OvsSettings};
pub use tls::{Fingerprint, FingerprintError, OwnCertificate, TlsSettings};
pub use wire::{Address, AddressError};
