//! The host an agent runs on: what it is, and the few things about it that the agent changes and keeps. The kernel's
//! file systems on a real machine; values in the simulator, where thousands of agents share one computer and none may
//! touch it.

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
use crate::net::neighbours::{self, Heard};
use crate::root::SysRoot;
use crate::tpm::{self, Attester, KernelTpm};

const LEDGER_FILE: &str = "ledger";

/// How a machine appears on its network, towards the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// The address that it uses.
    pub address: Option<IpAddr>,
    /// The MAC address of the NIC that has it.
    pub mac: Option<Mac>,
}

/// A host.
pub trait Host: Send + Sync {
    /// What differs from boot to boot; empty where not known.
    fn boot_id(&self) -> String;

    /// Seconds since the kernel started.
    fn uptime_s(&self) -> f64;

    /// SMBIOS UUID in lower case; empty where not known.
    fn system_uuid(&self) -> String;

    /// Everything that the host and its drives consist of.
    fn inventory(&self, drives: &dyn Drives) -> Inventory;

    /// The host as `server`, an `https://` URL, sees it; `mac` where the boot plan named it.
    fn presence(&self, server: &str, mac: Option<Mac>) -> Presence;

    /// The address that connections are to come from; `None` leaves it to the kernel.
    fn source_address(&self) -> Option<IpAddr>;

    /// Sets the clock to a Unix time.
    ///
    /// # Errors
    /// What the kernel says.
    fn set_clock(&self, unix_s: i64) -> io::Result<()>;

    /// Shows that a stage of the boot was reached.
    fn mark(&self, stage: &str);

    /// The ledger of this boot.
    ///
    /// # Errors
    /// [`LedgerError`]
    fn ledger(&self) -> Result<Ledger, LedgerError>;

    /// The key that an earlier agent of this boot made, PEM: it may have registered it. A boot registers one key.
    fn kept_key(&self) -> Option<SecretString> {
        None
    }

    /// Keeps the key for the next agent of this boot, before it is registered.
    ///
    /// # Errors
    /// [`IdentityError::Io`]
    fn keep_key(&self, _key_pem: &SecretString) -> Result<(), IdentityError> {
        Ok(())
    }

    /// The identity that an earlier agent of this boot kept.
    fn kept_identity(&self) -> Option<Identity>;

    /// Keeps the identity for the next agent of this boot.
    ///
    /// # Errors
    /// [`IdentityError::Io`]
    fn keep_identity(&self, identity: &Identity) -> Result<(), IdentityError>;

    /// What proves which machine this is, once the kernel's drivers have found their devices; none: there is no TPM 2.0.
    ///
    /// # Errors
    /// There is one, and it cannot be used: why.
    fn attester(&self) -> Result<Option<Arc<dyn Attester>>, String> {
        Ok(None)
    }

    /// Removes from the TPM what systems have put into it; false: there is no TPM 2.0.
    ///
    /// # Errors
    /// There is one, and it was not cleared: why.
    fn clear_tpm(&self) -> Result<bool, String>;

    /// Starts to listen for LLDP on the Ethernet cards, and sends what they hear until the receiver is dropped. Returns at once.
    fn hear_neighbours(&self, _told: watch::Sender<Heard>) {}

    /// Looks once for the secret that the machine's BMC brings, on a medium in its virtual drive. It may take seconds.
    ///
    /// # Errors
    /// There is no such medium: for an operator.
    fn boot_secret(&self) -> Result<BootSecret, String>;

    /// The boot variables; `None` on machines that did not boot by UEFI.
    fn efivars(&self) -> Option<EfiVars>;
}

/// The host that this process runs on, by the file systems of its kernel.
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

    fn kept_key(&self) -> Option<SecretString> {
        identity::load_key(&self.0.state)
    }

    fn keep_key(&self, key_pem: &SecretString) -> Result<(), IdentityError> {
        identity::save_key(&self.0.state, key_pem)
    }

    fn kept_identity(&self) -> Option<Identity> {
        Identity::load(&self.0.state)
    }

    fn keep_identity(&self, identity: &Identity) -> Result<(), IdentityError> {
        identity.save(&self.0.state)
    }

    fn attester(&self) -> Result<Option<Arc<dyn Attester>>, String> {
        KernelTpm::open(&self.0)
    }

    fn clear_tpm(&self) -> Result<bool, String> {
        tpm::clear(&self.0)
    }

    fn hear_neighbours(&self, told: watch::Sender<Heard>) {
        neighbours::hear(&self.0, told);
    }

    fn boot_secret(&self) -> Result<BootSecret, String> {
        medium::look(&self.0)
    }

    fn efivars(&self) -> Option<EfiVars> {
        self.0.is_uefi().then(|| EfiVars::new(self.0.efivars()))
    }
}
