//! Serial consoles of machines.
//!
//! [`meet`] opens one over a BMC's SSH server, whose host key is pinned; whatever else leads to a serial port becomes a
//! [`Line`] in the same way. [`Door`] lets OpenSSH clients in from the other side. [`record`] keeps what was printed, in files
//! that are bounded. Nothing here knows nodes, members or the database.

// A test may read clocks and files, and wait for what it started.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod dial;
mod door;
pub mod record;

pub use dial::{DialError, Met, Way, meet};
pub use door::{Badge, Desk, Door, DoorLimits, Entry, Guest, Said, fingerprint, public_key};

use tokio::io::{AsyncRead, AsyncWrite};

/// Both directions of a serial port.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A serial port that is open, by whatever way. Dropping it closes the way.
pub type Line = Box<dyn Duplex>;
