//! The host of an agent on a simulated machine: values in place of a kernel.

use super::life::Life;
use super::{mac, seconds_since};
use crate::fleet::forgery::SimAttester;
use crate::fleet::inventory::inventory;
use nix::sys::memfd::{MFdFlags, memfd_create};
use rackwright_agent::cmdline::Mac;
use rackwright_agent::drives::Drives;
use rackwright_agent::efi::vars::EfiVars;
use rackwright_agent::host::{Host, Presence};
use rackwright_agent::identity::{Identity, IdentityError};
use rackwright_agent::jobs::power::{Power, PowerAction};
use rackwright_agent::ledger::{Ledger, LedgerError};
use rackwright_agent::medium::BootSecret;
use rackwright_agent::net::neighbours::NeighbourReport;
use rackwright_agent::tpm::Attester;
use rackwright_api::v1::Inventory;
use rackwright_tpm::medium::secret;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::watch;

/// The host during one boot.
pub(super) struct SimHost {
    life: Arc<Life>,
    /// State for the next agent of this boot; only if the fault script can make an agent crash.
    kept: Option<Kept>,
}

/// State that outlives an agent.
#[derive(Default)]
struct Kept {
    identity: Mutex<Option<Identity>>,
    /// A file in memory, like the ramdisk's files.
    ledger: OnceLock<OwnedFd>,
}

impl SimHost {
    pub(super) fn new(life: Arc<Life>) -> Self {
        let restarts = life.node.shared.config.faults.has_agent_restarts(life.node.index());
        Self {
            life,
            kept: restarts.then(Kept::default),
        }
    }
}

impl Kept {
    fn ledger(&self) -> Result<Ledger, LedgerError> {
        let file = match self.ledger.get() {
            Some(file) => file,
            None => {
                let made = memfd_create(c"rackwright-sim ledger", MFdFlags::MFD_CLOEXEC);
                let made = made.map_err(|errno| LedgerError::Io {
                    path: PathBuf::from("memfd"),
                    source: errno.into(),
                })?;
                self.ledger.get_or_init(|| made)
            }
        };
        Ledger::open(&PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
    }
}

impl Host for SimHost {
    fn boot_id(&self) -> String {
        self.life.node.shared.boot_id(self.life.node.index(), self.life.number)
    }

    fn uptime_s(&self) -> f64 {
        self.life.note_uptime();
        seconds_since(self.life.node.shared.clock, self.life.since_ms)
    }

    fn system_uuid(&self) -> String {
        self.life.node.shared.uuid(self.life.node.index())
    }

    fn inventory(&self, drives: &dyn Drives) -> Inventory {
        self.life.node.forgery.inventory(inventory(&self.life.node, drives))
    }

    fn presence(&self, _server: &str, named: Option<Mac>) -> Presence {
        Presence {
            address: Some(self.life.node.forgery.address(self.life.address).into()),
            mac: Some(named.unwrap_or_else(|| mac(&self.life.node))),
        }
    }

    fn source_address(&self) -> Option<IpAddr> {
        Some(self.life.address.into())
    }

    /// The simulated machines use this computer's clock, which they must not set.
    fn set_clock(&self, _unix_s: i64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn mark(&self, stage: &str) {
        let uptime_s = seconds_since(self.life.node.shared.clock, self.life.since_ms);
        tracing::debug!(uptime_s, "MARK {stage}");
        if stage == "ready" {
            self.life.note_stream();
        }
    }

    fn ledger(&self) -> Result<Ledger, LedgerError> {
        match &self.kept {
            Some(kept) => kept.ledger(),
            None => Ok(Ledger::in_memory()),
        }
    }

    fn stored_identity(&self) -> Option<Identity> {
        let kept = self.kept.as_ref()?;
        kept.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store_identity(&self, identity: &Identity) -> Result<(), IdentityError> {
        if let Some(kept) = &self.kept {
            *kept.identity.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity.clone());
        }
        Ok(())
    }

    fn attester(&self) -> Result<Option<Arc<dyn Attester>>, String> {
        let attester = |tpm| Arc::new(SimAttester(Arc::clone(&self.life), tpm)) as Arc<dyn Attester>;
        Ok(self.life.node.tpm().map(attester))
    }

    fn clear_tpm(&self) -> Result<bool, String> {
        self.life.node.clear_tpm()
    }

    fn watch_neighbours(&self, reports: watch::Sender<NeighbourReport>) {
        self.life.node.cabling.subscribe(reports);
    }

    fn boot_secret(&self) -> Result<BootSecret, String> {
        let sector = self.life.node.sector();
        let found = secret(&sector).ok_or("the virtual drive does not hold the medium")?;
        Ok(BootSecret::new(Box::new(found)))
    }

    fn efivars(&self) -> Option<EfiVars> {
        self.life.node.efivars()
    }
}

/// The power switch of a machine, for the software of one boot.
pub(super) struct SimPower(pub(super) Arc<Life>);

impl Power for SimPower {
    fn perform(&self, action: PowerAction) -> io::Result<()> {
        let Life { node, number, .. } = &*self.0;
        let acted = match action {
            PowerAction::Reset => node.restart_of(*number),
            PowerAction::PowerOff => node.switch_off_of(*number),
        };
        if acted {
            Ok(())
        } else {
            Err(io::Error::other("this boot of the machine has ended"))
        }
    }
}
