//! The result of an effect, stored in one transaction by the runner.

use std::collections::BTreeSet;
use std::time::SystemTime;

use rackwright_ground::intent::known_macs;
use rackwright_identity::{ChainLink, EraseRecord, payload_hash};
use rackwright_lifecycle::bmc_state::uefi::Baseline;
use rackwright_lifecycle::drives::DriveList;
use rackwright_lifecycle::{NodeId, Outcome, Timestamp};
use rackwright_store::{
    BmcStateRow, EventRow, Identity, NodeRecord, Proof, Readings, SettingsRead, StoreError, WriteTx,
};

use crate::credentials::AccountOutcome;

type Change = Box<dyn Fn(&mut Readings, Timestamp) + Send + Sync>;

/// The result of an effect, stored in one transaction.
pub struct EffectResult {
    /// The outcome of the attempt.
    pub outcome: Outcome,
    /// Observed readings.
    pub readings: Option<Change>,
    /// Facts learned about the machine.
    pub learned: Option<LearnedFact>,
    /// Proofs to store: kind, id, message.
    pub proofs: Vec<(Proof, String, Vec<u8>)>,
    /// Erases to certify in the same transaction.
    pub erases: Vec<Erase>,
    /// Events in addition to those of outcome and readings.
    pub events: Vec<EventRow>,
}

/// Facts about a machine beside its readings.
#[derive(Debug)]
pub enum LearnedFact {
    /// The identity that its BMC reports.
    Machine {
        /// UUID, serial number, vendor, model and MAC addresses.
        identity: Identity,
        /// The fingerprint of the BMC's certificate, to pin if none was given.
        certificate: Option<String>,
    },
    /// The outcome for the BMC account.
    Account(AccountOutcome),
    /// Missing drives, and the recorded lists without them. The failure is reported once; the drives are no longer
    /// expected.
    Gone(BTreeSet<String>, Vec<DriveList>),
    /// Lists of its drives. Each replaces the former list of its source.
    Drives(Vec<DriveList>),
    /// The addresses of the BMC's job that applies written settings; empty: the BMC made no job.
    SettingsJob(Vec<String>),
    /// Foreign entries on its BMC with their outcome, and the new baseline of boot options and Secure Boot.
    BmcState(BmcStateRow, Option<Box<Baseline>>),
    /// The state of firmware settings, as read after a start.
    Settings(SettingsRead),
}

impl LearnedFact {
    /// Stores it in the change that ends the effect.
    ///
    /// # Errors
    /// The database failed, or a MAC address belongs to another node.
    pub async fn store(&self, tx: &mut WriteTx, record: &mut NodeRecord, now: Timestamp) -> Result<(), StoreError> {
        let mut next = record.clone();
        match self {
            Self::Machine { identity, certificate } => {
                next.identity.clone_from(identity);
                if !identity.macs.is_empty() {
                    // An operator may have given an address since the BMC was read.
                    next.identity.macs = known_macs(&identity.macs, &record.spec.boot_macs, &[]);
                }
                tx.put_macs(&record.id, &next.identity.macs).await?;
                if let Some(written_at) = tx.take_unerased(&next.identity.macs).await? {
                    let before = next.node.evidence.written_at;
                    next.node.evidence.written_at = before.max(Some(written_at));
                }
                if let (true, Some(seen)) = (next.spec.bmc_certificate.is_empty(), certificate) {
                    next.spec.bmc_certificate.clone_from(seen);
                }
            }
            Self::Settings(seen) => {
                tx.put_node_settings(&record.id, seen, now).await?;
            }
            Self::SettingsJob(places) => next.spec.settings_job.clone_from(places),
            Self::Account(outcome) => outcome.apply(&mut next.spec, now),
            Self::BmcState(state, baseline) => {
                tx.put_bmc_state(&record.id, state).await?;
                if let Some(baseline) = baseline {
                    tx.put_uefi_baseline(&record.id, baseline).await?;
                }
            }
            Self::Gone(drives, lists) => {
                next.node.evidence.drives.retain(|d| !drives.contains(d));
                put_lists(tx, &record.id, lists).await?;
            }
            Self::Drives(lists) => put_lists(tx, &record.id, lists).await?,
        }
        if next != *record {
            tx.save_node(&mut next, now).await?;
            *record = next;
        }
        Ok(())
    }
}

async fn put_lists(tx: &mut WriteTx, node: &NodeId, lists: &[DriveList]) -> Result<(), StoreError> {
    for list in lists {
        tx.put_drive_list(node, list).await?;
    }
    Ok(())
}

impl EffectResult {
    /// Performed and verified.
    #[must_use]
    pub fn succeeded() -> Self {
        Self::with_outcome(Outcome::Succeeded)
    }

    /// Ended with that outcome, without readings.
    #[must_use]
    pub fn with_outcome(outcome: Outcome) -> Self {
        Self {
            outcome,
            readings: None,
            learned: None,
            proofs: Vec::new(),
            erases: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Failed; another attempt may succeed.
    #[must_use]
    pub fn failed_for_now(code: &str, message: impl Into<String>) -> Self {
        Self::with_outcome(Outcome::Failed {
            code: code.to_owned(),
            message: message.into(),
            retryable: true,
        })
    }

    /// Failed; another attempt fails in the same way.
    #[must_use]
    pub fn failed_for_good(code: &str, message: impl Into<String>) -> Self {
        Self::with_outcome(Outcome::Failed {
            code: code.to_owned(),
            message: message.into(),
            retryable: false,
        })
    }

    /// A needed row could not be read. If the database is unavailable, that does not count as a try of the machine.
    #[must_use]
    pub fn unread(error: &StoreError) -> Self {
        if error.is_retryable() {
            tracing::warn!(%error, "interrupted: the database does not answer");
            return Self::with_outcome(Outcome::Interrupted);
        }
        Self::failed_for_now("store", error.to_string())
    }

    /// Adds observed readings.
    #[must_use]
    pub fn seen(mut self, change: impl Fn(&mut Readings, Timestamp) + Send + Sync + 'static) -> Self {
        self.readings = Some(Box::new(change));
        self
    }
}

/// An erase of one drive to certify.
#[derive(Debug)]
pub struct Erase {
    /// The certificate's id.
    pub id: String,
    /// The content of the certificate, without its place in the chain.
    pub record: EraseRecord,
    /// The [`v1::EraseMethod`].
    pub method: i32,
    /// SHA-256 of the machine's quote; empty: no TPM identified the machine.
    pub attestation: String,
}

impl Erase {
    /// The content with its place in the chain.
    pub(crate) fn linked(&self, number: u64, previous: &str, issue_time: SystemTime) -> EraseRecord {
        EraseRecord {
            link: Some(ChainLink {
                number,
                previous: previous.to_owned(),
                issue_time,
                attestation: self.attestation.clone(),
            }),
            ..self.record.clone()
        }
    }

    /// The content with the longest possible place in the chain.
    pub(crate) fn largest(&self) -> EraseRecord {
        self.linked(u64::MAX, &payload_hash(b""), SystemTime::UNIX_EPOCH)
    }
}
