//! Serial consoles of machines.
//!
//! [`meet`] opens a console over a BMC's SSH server with a pinned host key. Any other way to a serial port becomes a
//! [`Line`] as well. [`Door`] admits OpenSSH clients on the other side. [`record`] stores the output in files of
//! bounded size. This crate does not depend on nodes, members or the database.

// A test may read clocks and files and wait for the processes it started.
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

/// An open serial port, by any transport. Dropping the line closes the transport.
pub type Line = Box<dyn Duplex>;
