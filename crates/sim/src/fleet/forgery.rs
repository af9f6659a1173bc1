//! A machine with a lying agent: the reports that tests set in place of the truth.

use super::ramdisk::Life;
use super::tpm::SimTpm;
use rackwright_agent::clock;
use rackwright_agent::drives::Drives;
use rackwright_agent::erase::{DriveEraser, EraseFailure, Eraser};
use rackwright_agent::jobs::control::JobControl;
use rackwright_agent::tpm::Attester;
use rackwright_api::v1::{
    Attestation, Challenge, DriveErase, EraseDrives, EraseDrivesResult, EraseMethod, Inventory, TpmKeys,
};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

type Change<T> = Arc<dyn Fn(&mut T) + Send + Sync>;

/// The lies of one machine; none at first.
#[derive(Default)]
pub(super) struct Forgery(Mutex<Option<Box<Forgeries>>>);

#[derive(Default, Clone)]
struct Forgeries {
    address: Option<Ipv4Addr>,
    inventory: Option<Change<Inventory>>,
    erased: Option<Change<EraseDrivesResult>>,
    attestation: Option<Change<Attestation>>,
}

impl Forgery {
    fn forgeries(&self) -> Forgeries {
        let forgeries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        forgeries.as_deref().cloned().unwrap_or_default()
    }

    fn change(&self, change: impl FnOnce(&mut Forgeries)) {
        let mut forgeries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(forgeries.get_or_insert_default());
    }

    pub(super) fn set_address(&self, address: Ipv4Addr) {
        self.change(|forgeries| forgeries.address = Some(address));
    }

    pub(super) fn set_inventory(&self, change: impl Fn(&mut Inventory) + Send + Sync + 'static) {
        self.change(|forgeries| forgeries.inventory = Some(Arc::new(change)));
    }

    pub(super) fn set_erased(&self, change: impl Fn(&mut EraseDrivesResult) + Send + Sync + 'static) {
        self.change(|forgeries| forgeries.erased = Some(Arc::new(change)));
    }

    pub(super) fn set_attestation(&self, change: impl Fn(&mut Attestation) + Send + Sync + 'static) {
        self.change(|forgeries| forgeries.attestation = Some(Arc::new(change)));
    }

    pub(super) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The address that the agent claims.
    pub(super) fn address(&self, own: Ipv4Addr) -> Ipv4Addr {
        self.forgeries().address.unwrap_or(own)
    }

    /// The inventory that the agent sends.
    pub(super) fn inventory(&self, mut honest: Inventory) -> Inventory {
        if let Some(change) = self.forgeries().inventory {
            change(&mut honest);
        }
        honest
    }
}

/// The machine's TPM, used by an agent that may lie.
pub(super) struct SimAttester(pub(super) Arc<Life>, pub(super) SimTpm);

impl Attester for SimAttester {
    fn keys(&self) -> TpmKeys {
        self.1.keys()
    }

    fn answer(&self, challenge: &Challenge, key_sha256: &str) -> Attestation {
        let mut answer = self.1.answer(challenge, key_sha256);
        if let Some(change) = self.0.node.forgery.forgeries().attestation {
            change(&mut answer);
        }
        answer
    }
}

/// Erases. If the machine's agent lies, nothing is erased, and the lie changes a report of a crypto erase of every drive.
pub(super) struct SimEraser(pub(super) Arc<Life>);

impl Eraser for SimEraser {
    fn erase(
        &self,
        drives: &dyn Drives,
        job: &EraseDrives,
        control: &JobControl,
    ) -> Result<EraseDrivesResult, EraseFailure> {
        let Some(change) = self.0.node.forgery.forgeries().erased else {
            return DriveEraser.erase(drives, job, control);
        };
        let now = Some(clock::timestamp());
        // Not more samples than an honest agent of this fleet: the control plane compares their bytes with the elapsed
        // time, and a lie takes no time.
        let samples = self.0.node.shared.config.erase_samples;
        let claimed = drives.list().into_iter().map(|facts| DriveErase {
            drive_name: facts.drive.name,
            model: facts.drive.model,
            serial_number: facts.drive.serial_number,
            size_bytes: facts.drive.size_bytes,
            method: EraseMethod::NvmeSanitizeCrypto.into(),
            samples: samples.into(),
            sample_bytes: 4096,
            start_time: now,
            end_time: now,
            ..DriveErase::default()
        });
        let mut report = EraseDrivesResult {
            drives: claimed.collect(),
            excluded: drives.excluded(),
            ..EraseDrivesResult::default()
        };
        change(&mut report);
        Ok(report)
    }
}
