//! Systems that were written to machines' drives, and the notifications when they start and end.
//!
//! A simulated drive stores no bytes, so the data for simulating an installed system is kept beside it: the content of
//! the seed partition that the agent wrote.

use secrecy::SecretString;
use std::net::IpAddr;
use std::sync::Arc;

/// An installation by the agent on a drive. It survives boots and power cuts; an erase ends it.
#[derive(Debug, Clone, Default)]
pub struct Installed {
    /// Digest of the image that was written: `b3-` and 64 hex digits.
    pub image_digest: String,
    /// The image's size in bytes.
    pub image_bytes: u64,
    /// The claim generation in the seed's marker.
    pub generation: u64,
    /// Serial number of its drive.
    pub drive_serial: String,
    /// The seed's host name.
    pub hostname: String,
    /// The seed's instance id, new for each installation.
    pub instance_id: String,
    /// The SSH host key, an OpenSSH private key; empty if the seed has none.
    pub ssh_host_private_key: SecretString,
    /// The public half, as a line.
    pub ssh_host_public_key: String,
    /// Public key lines that may log in as root.
    pub authorized_keys: Vec<String>,
    /// The seed's `user-data` as it is on the seed partition.
    pub user_data: String,
    /// The marker file (`rackwright/image`) as it is on the seed partition.
    pub marker: String,
}

/// A running installed system.
#[derive(Debug, Clone)]
pub struct SystemUp {
    /// The machine's index.
    pub node: usize,
    /// Counts the machine's boots from 1.
    pub boot: u32,
    /// The kernel's boot id, new for each boot.
    pub boot_id: String,
    /// The machine's address on the host network; `None` if machines have none.
    pub address: Option<IpAddr>,
    /// The installation as it was when the boot began.
    pub installed: Arc<Installed>,
}

/// A simulation of the systems that run on machines. Called synchronously, in the order of a machine's events: each method
/// must return at once.
pub trait Systems: Send + Sync {
    /// A machine has booted from its drive.
    fn up(&self, _system: &SystemUp) {}

    /// The system has ended: the machine lost power, was reset, or shuts down.
    fn down(&self, _node: usize) {}
}
