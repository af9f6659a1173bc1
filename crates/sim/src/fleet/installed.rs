//! Systems that were written to machines' drives, and what is told about them when they come up.
//!
//! A simulated drive keeps no bytes, so what an installed system needs to be simulated is kept beside it: what the agent
//! put on the seed partition.

use secrecy::SecretString;
use std::net::IpAddr;
use std::sync::Arc;

/// What the agent installed on a drive. It lies on the drive: it survives boots and power cuts, and an erase ends it.
#[derive(Debug, Clone, Default)]
pub struct Installed {
    /// Digest of the image that was written: `b3-` and 64 hex digits.
    pub image_digest: String,
    /// The image's size in bytes.
    pub image_bytes: u64,
    /// The claim generation that the seed's marker carries.
    pub generation: u64,
    /// Serial number of the drive that it is on.
    pub drive_serial: String,
    /// The seed's host name.
    pub hostname: String,
    /// The seed's instance id, new for each installation.
    pub instance_id: String,
    /// The SSH host key, an OpenSSH private key; empty if the seed has none.
    pub ssh_host_private_key: SecretString,
    /// The public half, as a line.
    pub ssh_host_public_key: String,
    /// Who may log in as root: public key lines.
    pub authorized_keys: Vec<String>,
    /// The seed's `user-data` as it is on the seed partition.
    pub user_data: String,
    /// The marker file (`rackwright/image`) as it is on the seed partition.
    pub marker: String,
}

/// An installed system that runs.
#[derive(Debug, Clone)]
pub struct SystemUp {
    /// The machine's index.
    pub node: usize,
    /// Counts the machine's boots from 1.
    pub boot: u32,
    /// The kernel's boot id, new for each boot.
    pub boot_id: String,
    /// The address that the machine has on the host network; `None` where machines have none.
    pub address: Option<IpAddr>,
    /// What was installed, as it was when the boot began.
    pub installed: Arc<Installed>,
}

/// What simulates the systems that run on machines. Both are called in the middle of things: they must return at once.
pub trait Systems: Send + Sync {
    /// A machine has booted from its drive.
    fn up(&self, _system: &SystemUp) {}

    /// What ran on the machine runs no longer: it lost power or was reset. Also told of machines on which no installed
    /// system ran.
    fn down(&self, _node: usize) {}
}
