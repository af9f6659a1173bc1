//! Serial consoles of machines.
//!
//! [`handshake`] opens a console over a BMC's SSH server with a pinned host key. Any other way to a serial port becomes a
//! [`Line`] as well. [`ConsoleServer`] admits OpenSSH clients on the other side. [`record`] stores the output in files of
//! bounded size. This crate does not depend on nodes, members or the database.

// A test may read clocks and files and wait for the processes it started.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod dial;
pub mod record;
mod server;

pub use dial::{DialError, SshHandshake, SshTarget, handshake};
pub use server::{
    Authorizer, ConsoleChannels, ConsoleOutput, ConsoleServer, Entry, LoginProof, ServerLimits, fingerprint, public_key,
};

use tokio::io::{AsyncRead, AsyncWrite};

/// Both directions of a serial port.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// An open serial port, by any transport. Dropping the line closes the transport.
pub type Line = Box<dyn Duplex>;
