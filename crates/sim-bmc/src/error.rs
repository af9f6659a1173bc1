//! Errors of simulated BMCs.

use std::io;
use std::net::SocketAddr;

/// Why a BMC could not start.
#[derive(Debug, thiserror::Error)]
pub enum BmcError {
    /// A BMC's TLS certificate could not be made.
    #[error("BMC {machine}: could not make its TLS certificate: {detail}")]
    Tls { machine: String, detail: String },

    /// A BMC could not listen on its address.
    #[error("BMC {machine}: could not listen on {address}: {source}")]
    Listen {
        machine: String,
        address: SocketAddr,
        source: io::Error,
    },
}
