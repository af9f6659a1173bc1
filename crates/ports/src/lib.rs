//! Ports of Ethernet switches: sets their access VLANs and reads them back.
//!
//! A [`Wishes`] document says which network each port of a switch belongs to. A [`PortDriver`] brings a document to the
//! switch in one transaction and reads every port of the document back. [`difference`] decides what has to change. The
//! answers of a switch are hostile input: they are bounded in size and time, and checked field by field.

mod driver;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod model;
mod ovs;
mod wire;

pub use driver::{Applied, PortDriver};
pub use error::{PortsError, report};
pub use model::{Access, Change, PortState, SwitchReading, Version, Vlan, Wishes, difference};
pub use ovs::{OpenVSwitch, OvsSettings};
pub use wire::{Address, AddressError};
