//! Shared code of the tests: a plain Redfish client of the fleet's BMCs.
#![allow(dead_code, unused_imports)] // each test binary uses its part

#[path = "../../../sim-bmc/tests/redfish_client/mod.rs"]
mod redfish_client;

use rackwright_sim::fleet::SimNode;
pub use redfish_client::{Client, LONG, RESET, SESSIONS, SYSTEM, assert_error};

impl Client {
    /// A client of the BMC of a fleet's machine. It trusts only this BMC's certificate.
    pub fn of_fleet(node: &SimNode) -> Self {
        rackwright_sim::install_crypto();
        let certificate = node.certificate().unwrap();
        let certificate = certificate.map(|der| reqwest::Certificate::from_der(&der).unwrap());
        Self::at(node.url(), node.user(), &node.password(), certificate)
    }
}
