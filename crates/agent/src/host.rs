//! The host of an agent: its properties, and the few parts of it that the agent changes and stores. On a real machine these
//! are the kernel's file systems. In the simulator they are values, because thousands of agents share one computer and must
//! not touch it.

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

const LEDGER_FILE: &str = "ledger";

/// How a machine appears on its network to the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Address of the machine.
    pub address: Option<IpAddr>,
    /// MAC address of the NIC with that address.
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

    /// The host as seen by `server`, an `https://` URL. `mac` is the address from the boot plan, if any.
    fn presence(&self, server: &str, mac: Option<Mac>) -> Presence;

    /// Source address of connections; `None` leaves the choice to the kernel.
    fn source_address(&self) -> Option<IpAddr>;

    /// Sets the clock to a Unix time.
    ///
    /// # Errors
    /// The kernel's error.
    fn set_clock(&self, unix_s: i64) -> io::Result<()>;

    /// Reports that the boot has reached a stage.
    fn mark(&self, stage: &str);

    /// The ledger of this boot.
    ///
    /// # Errors
    /// [`LedgerError`]
    fn ledger(&self) -> Result<Ledger, LedgerError>;

    /// The private key (PEM) of an earlier agent of this boot, which may have registered it. A boot registers one key.
    fn stored_key(&self) -> Option<SecretString> {
        None
    }

    /// Stores the key for later agents of this boot, before its registration.
    ///
    /// # Errors
    /// [`IdentityError::Io`]
    fn store_key(&self, _key_pem: &SecretString) -> Result<(), IdentityError> {
        Ok(())
    }

    /// The identity stored by an earlier agent of this boot.
    fn stored_identity(&self) -> Option<Identity>;

    /// Stores the identity for later agents of this boot.
    ///
    /// # Errors
    /// [`IdentityError::Io`]
    fn store_identity(&self, identity: &Identity) -> Result<(), IdentityError>;

    /// The attester of the machine, once the kernel's drivers have found their devices; `None` without a TPM 2.0.
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

    /// Starts to listen for LLDP on the Ethernet cards. Sends the results until the receiver is dropped. Returns at once.
    fn watch_neighbours(&self, _sender: watch::Sender<NeighbourReport>) {}

    /// Looks once for the boot secret on a medium in the BMC's virtual drive. May take seconds.
    ///
    /// # Errors
    /// The medium was not found; the text is for the operator.
    fn boot_secret(&self) -> Result<BootSecret, String>;

    /// The boot variables; `None` on machines that did not boot by UEFI.
    fn efivars(&self) -> Option<EfiVars>;
}

/// The host of this process, through the file systems of its kernel.
#[derive(Clone, Debug)]
pub struct KernelHost(pub SysRoot);

impl Host for KernelHost {
    fn boot_id(&self) -> String {
        self.0.boot_id()
    }

    fn uptime_s(&self) -> f64 {
        self.0.uptime_s()
    }

    fn system_uuid(&self) -> String {
        inventory::system_uuid(&self.0)
    }

    fn inventory(&self, drives: &dyn Drives) -> Inventory {
        inventory::read(&self.0, drives)
    }

    fn presence(&self, server: &str, mac: Option<Mac>) -> Presence {
        let peer = server.trim_start_matches("https://").trim_end_matches('/').parse().ok();
        let address = peer.and_then(interfaces::address_towards);
        Presence {
            address,
            mac: mac.or_else(|| address.and_then(interfaces::mac_with)),
        }
    }

    fn source_address(&self) -> Option<IpAddr> {
        None
    }

    fn set_clock(&self, unix_s: i64) -> io::Result<()> {
        let clock = nix::time::ClockId::CLOCK_REALTIME;
        let time = nix::sys::time::TimeSpec::new(unix_s, 0);
        Ok(nix::time::clock_settime(clock, time)?)
    }

    fn mark(&self, stage: &str) {
        console::mark(&self.0, stage);
    }

    fn ledger(&self) -> Result<Ledger, LedgerError> {
        let path = self.0.state.join(LEDGER_FILE);
        match identity::make_state_folder(&self.0.state) {
            Ok(()) => Ledger::open(&path),
            Err(source) => Err(LedgerError::Io { path, source }),
        }
    }

    fn stored_key(&self) -> Option<SecretString> {
        identity::load_key(&self.0.state)
    }

    fn store_key(&self, key_pem: &SecretString) -> Result<(), IdentityError> {
        identity::save_key(&self.0.state, key_pem)
    }

    fn stored_identity(&self) -> Option<Identity> {
        Identity::load(&self.0.state)
    }

    fn store_identity(&self, identity: &Identity) -> Result<(), IdentityError> {
        identity.save(&self.0.state)
    }

    fn attester(&self) -> Result<Option<Arc<dyn Attester>>, String> {
        KernelTpm::open(&self.0)
    }

    fn clear_tpm(&self) -> Result<bool, String> {
        tpm::clear(&self.0)
    }

    fn watch_neighbours(&self, sender: watch::Sender<NeighbourReport>) {
        neighbours::listen(&self.0, sender);
    }

    fn boot_secret(&self) -> Result<BootSecret, String> {
        medium::find_secret(&self.0)
    }

    fn efivars(&self) -> Option<EfiVars> {
        self.0.is_uefi().then(|| EfiVars::new(self.0.efivars()))
    }
}
