//! The lab: real QEMU machines, each behind a BMC of its own that speaks Redfish over HTTPS, on a bridge inside a
//! private network namespace.
//!
//! * [`lab`] enters the namespace, starts the machines and gives tests their handles and fault switches.
//! * [`bmc`] is the Redfish service. It shares no models with the Redfish client that is tested against it.
//!
//! Nothing here listens outside the namespace, and nothing outlives it: see [`lab::enter`].

pub mod bmc;
pub mod lab;
