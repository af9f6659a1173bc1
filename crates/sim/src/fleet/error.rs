//! Errors of a fleet.

use std::io;
use std::net::SocketAddr;

/// Why a fleet could not start.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// An invalid configuration value.
    #[error("{field}: {detail}")]
    Config { field: &'static str, detail: String },

    /// The BMCs' key or a certificate could not be made.
    #[error("the BMCs' TLS certificates cannot be made: {detail}")]
    Tls { detail: String },

    /// The one socket could not listen.
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
}
