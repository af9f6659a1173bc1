//! The host of an agent: the machine that the agent reads, and the few things that it changes or stores there. On a real
//! machine the host is the kernel with its file systems. In the simulator the host is values in memory, because thousands of
//! agents share one computer and must not touch it.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rackwright_api::v1::Inventory;
use secrecy::SecretString;
use tokio::sync::watch;

use crate::cmdline::Mac;
use crate::console;
use crate::drives::Drives;
use crate::efi::vars::EfiVars;
use crate::identity::{self, Identity, IdentityError};
use crate::inventory;
use crate::ledger::{Ledger, LedgerError};
use crate::medium::{self, BootSecret};
use crate::net::interfaces;
use crate::net::neighbours::{self, NeighbourReport};
use crate::root::SysRoot;
use crate::tpm::{self, Attester, KernelTpm};

/// File of the ledger in the agent's state folder.
const LEDGER_FILE: &str = "ledger";

/// How a machine appears on its network to the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Address from which the machine reaches the control plane; `None` if it is unknown.
    pub address: Option<IpAddr>,
    /// MAC address of the machine's boot NIC, else of the NIC with `address`; `None` if it is unknown.
    pub mac: Option<Mac>,
}

/// A real or simulated host.
pub trait Host: Send + Sync {
    /// Random id of the boot; empty if unknown.
    fn boot_id(&self) -> String;

    /// Seconds since the start of the kernel.
    fn uptime_s(&self) -> f64;

    /// SMBIOS UUID in lower case; empty if unknown.
    fn system_uuid(&self) -> String;

    /// The inventory of the host and its drives.
    fn inventory(&self, drives: &dyn Drives) -> Inventory;

    /// The host as `server` sees it. `server` is a URL `https://ADDRESS:PORT`. `boot_mac` is the MAC address in the boot
    /// plan, if the plan has one.
    fn presence(&self, server: &str, boot_mac: Option<Mac>) -> Presence;

    /// Source address of connections to the control plane; `None` leaves the choice to the kernel.
    fn source_address(&self) -> Option<IpAddr>;

    /// Memory in bytes that programs can still take; `None` if it is unknown.
    fn available_memory(&self) -> Option<u64> {
        None
    }

    /// Sets the clock to a Unix time, in seconds.
    ///
    /// # Errors
    /// The kernel's error.
    fn set_clock(&self, unix_s: i64) -> io::Result<()>;

    /// Prints on the console that the boot has reached `stage`, such as "ready".
    fn mark(&self, stage: &str);

    /// The ledger of this boot's jobs.
    ///
    /// # Errors
    /// [`LedgerError`]
    fn ledger(&self) -> Result<Ledger, LedgerError>;

    /// The private key (PEM) that an earlier agent of this boot stored; the control plane may know the key already. All
    /// agents of one boot register the same key.
    fn stored_key(&self) -> Option<SecretString> {
        None
    }

    /// Stores the private key (PEM) for later agents of this boot. The agent calls it before it registers the key.
    ///
    /// # Errors
    /// [`IdentityError::Io`]
    fn store_key(&self, _key_pem: &SecretString) -> Result<(), IdentityError> {
        Ok(())
    }

    /// The identity that an earlier agent of this boot stored.
    fn stored_identity(&self) -> Option<Identity>;

    /// Stores the identity for later agents of this boot.
    ///
    /// # Errors
    /// [`IdentityError::Io`]
    fn store_identity(&self, identity: &Identity) -> Result<(), IdentityError>;

    /// The attester of the machine; `None` without a TPM 2.0. Before the call, the kernel's drivers must have found their
    /// devices.
    ///
    /// # Errors
    /// The reason why an existing TPM cannot be used.
    fn attester(&self) -> Result<Option<Arc<dyn Attester>>, String> {
        Ok(None)
    }

    /// Removes all objects of installed systems from the TPM. Returns false without a TPM 2.0.
    ///
    /// # Errors
    /// The reason why an existing TPM was not cleared.
    fn clear_tpm(&self) -> Result<bool, String>;

    /// Starts to listen for LLDP on the Ethernet cards and returns at once. The results go to `sender` until its receiver is
    /// dropped.
    fn watch_neighbours(&self, _sender: watch::Sender<NeighbourReport>) {}

    /// Searches once for the boot secret on the medium in the BMC's virtual drive. The search may take seconds.
    ///
    /// # Errors
    /// Why the secret was not found; the text is for the operator.
    fn boot_secret(&self) -> Result<BootSecret, String>;

    /// The UEFI boot variables; `None` if the machine did not boot by UEFI.
    fn efivars(&self) -> Option<EfiVars>;
}

/// The host of this process, through the file systems of its kernel.
#[derive(Clone, Debug)]
pub struct KernelHost {
    /// The roots of the kernel's file systems.
    pub root: SysRoot,
}

impl Host for KernelHost {
    fn boot_id(&self) -> String {
        self.root.boot_id()
    }

    fn uptime_s(&self) -> f64 {
        self.root.uptime_s()
    }

    fn system_uuid(&self) -> String {
        inventory::system_uuid(&self.root)
    }

    fn inventory(&self, drives: &dyn Drives) -> Inventory {
        inventory::read(&self.root, drives)
    }

    fn presence(&self, server: &str, boot_mac: Option<Mac>) -> Presence {
        let peer = server.trim_start_matches("https://").trim_end_matches('/').parse().ok();
        let address = peer.and_then(interfaces::address_towards);
        Presence {
            address,
            mac: boot_mac.or_else(|| address.and_then(interfaces::mac_with)),
        }
    }

    fn source_address(&self) -> Option<IpAddr> {
        None
    }

    fn available_memory(&self) -> Option<u64> {
        inventory::cpu::available_memory(&self.root)
    }

    fn set_clock(&self, unix_s: i64) -> io::Result<()> {
        let clock = nix::time::ClockId::CLOCK_REALTIME;
        let time = nix::sys::time::TimeSpec::new(unix_s, 0);
        Ok(nix::time::clock_settime(clock, time)?)
    }

    fn mark(&self, stage: &str) {
        console::mark(&self.root, stage);
    }

    fn ledger(&self) -> Result<Ledger, LedgerError> {
        let path = self.root.state.join(LEDGER_FILE);
        if let Err(source) = identity::make_state_folder(&self.root.state) {
            return Err(LedgerError::Io { path, source });
        }
        Ledger::open(&path)
    }

    fn stored_key(&self) -> Option<SecretString> {
        identity::load_key(&self.root.state)
    }

    fn store_key(&self, key_pem: &SecretString) -> Result<(), IdentityError> {
        identity::save_key(&self.root.state, key_pem)
    }

    fn stored_identity(&self) -> Option<Identity> {
        Identity::load(&self.root.state)
    }

    fn store_identity(&self, identity: &Identity) -> Result<(), IdentityError> {
        identity.save(&self.root.state)
    }

    fn attester(&self) -> Result<Option<Arc<dyn Attester>>, String> {
        KernelTpm::open(&self.root)
    }

    fn clear_tpm(&self) -> Result<bool, String> {
        tpm::clear(&self.root)
    }

    fn watch_neighbours(&self, sender: watch::Sender<NeighbourReport>) {
        neighbours::listen(&self.root, sender);
    }

    fn boot_secret(&self) -> Result<BootSecret, String> {
        medium::find_secret(&self.root)
    }

    fn efivars(&self) -> Option<EfiVars> {
        self.root.is_uefi().then(|| EfiVars::new(self.root.efivars()))
    }
}
