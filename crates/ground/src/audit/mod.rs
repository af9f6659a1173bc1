//! The audit: caller, source address, target and outcome of each call.
//!
//! A record of a call that changes something is stored in the transaction of the change: both are stored or neither is.
//! Other records have a transaction of their own, before the call is answered. All records of all replicas are one
//! chain (`rackwright_identity::AuditEntry`). A writer locks the chain's head as the last lock before the commit.
//!
//! The data folder holds a signed copy of the newest head (`head.rs`). A database that ends before that head, or has
//! another record at its position, has lost records. The next record reports the loss.

pub mod budget;
pub mod call;
pub mod export;
mod fields;
pub mod head;
pub mod local;
mod otlp;
pub mod request;
pub mod verify;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rackwright_identity::{AUDIT_RECORD_MAX, AuditEntry, AuditHead, AuditRecord, CertificateSigner, KeyFiles};
use rackwright_lifecycle::{EventKind, Timestamp};
use rackwright_store::{AuditRow, EventRow, Store, StoreError, WriteTx};
use tokio::sync::Notify;

use crate::clock;
use crate::core::Core;
use crate::local_user::LocalUser;
use crate::text::cut;
use budget::Budget;
use call::Call;
use head::HeadFile;

/// The method of a record that reports lost records.
pub const GAP: &str = "local/gap";
/// Pause between two writes of the head file, while records are added.
const HEAD_PAUSE: Duration = Duration::from_secs(1);
/// Longest text of a field; the request has a limit of its own.
const TEXT_MAX: usize = 600;

/// The audit of one process.
#[derive(Debug)]
pub struct Audit {
    site: String,
    replica: String,
    genesis: AuditHead,
    file: HeadFile,
    known: Mutex<KnownHead>,
    /// Bounds records of refused calls.
    pub budget: Budget,
    added: Notify,
}

/// The newest head that this process has seen committed.
#[derive(Debug, Clone, Copy, Default)]
struct KnownHead {
    head: Option<AuditHead>,
    /// Number of gaps that this process has found. After a gap, the head with the lower position is the newer head.
    gaps: u64,
}

/// A record that is part of a change which is not committed yet.
#[derive(Debug)]
#[must_use]
pub struct PendingRecord {
    head: AuditHead,
    gaps: u64,
}

impl Audit {
    /// Opens the audit of a data folder.
    ///
    /// # Errors
    /// The head file cannot be read.
    pub fn open(data_dir: &Path, site: &str, replica: &str, keys: &KeyFiles) -> std::io::Result<Self> {
        let file = HeadFile::new(data_dir);
        let head = file.read(&keys.signer)?;
        Ok(Self {
            site: site.to_owned(),
            replica: replica.to_owned(),
            genesis: AuditHead::genesis(&keys.authority.site_id()),
            file,
            known: Mutex::new(KnownHead { head, gaps: 0 }),
            budget: Budget::default(),
            added: Notify::new(),
        })
    }

    fn known(&self) -> MutexGuard<'_, KnownHead> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest head that this process knows.
    #[must_use]
    pub fn newest(&self) -> Option<AuditHead> {
        self.known().head
    }

    /// Adds a record to a change. The caller does this as the last write before the commit, and calls [`Audit::stored`]
    /// after it.
    pub async fn add(
        &self,
        tx: &mut WriteTx,
        signer: &CertificateSigner,
        record: AuditRecord,
    ) -> Result<PendingRecord, StoreError> {
        let (position, hash) = tx.audit_head().await?;
        let position = u64::try_from(position).unwrap_or(0);
        let mut head = match position {
            0 => self.genesis,
            // A malformed hash counts as a hash that no record follows.
            _ => AuditHead::from_hex(position, &hash).unwrap_or(AuditHead {
                position,
                hash: [0; 32],
            }),
        };
        let known = *self.known();
        let mut gaps = known.gaps;
        if let Some(known) = known.head
            && !contains_head(tx, &known, &head).await?
        {
            gaps += 1;
            head = self.link(tx, signer, head, self.gap(&known, &head)).await?;
            tx.add_event(&gap_event(&known)).await?;
        }
        let head = self.link(tx, signer, head, record).await?;
        Ok(PendingRecord { head, gaps })
    }

    async fn link(
        &self,
        tx: &mut WriteTx,
        signer: &CertificateSigner,
        head: AuditHead,
        record: AuditRecord,
    ) -> Result<AuditHead, StoreError> {
        let mut record = self.complete_record(record);
        let (entry, head) = AuditEntry::link(&head, &mut record, signer);
        tx.add_audit(&row(&entry, &record)).await?;
        Ok(head)
    }

    /// Fills in the fields that all records have, and cuts long texts from callers.
    fn complete_record(&self, mut record: AuditRecord) -> AuditRecord {
        record.site.clone_from(&self.site);
        record.replica.clone_from(&self.replica);
        record.calls = record.calls.max(1);
        if record.time_us == 0 {
            record.time_us = clock::now().0;
        }
        for text in [
            &mut record.caller,
            &mut record.customer,
            &mut record.client,
            &mut record.method,
            &mut record.target,
            &mut record.message,
            &mut record.operation,
        ] {
            *text = cut(text, TEXT_MAX);
        }
        if record.request.len() > AUDIT_RECORD_MAX / 4 {
            record.request = "{}".into();
        }
        record
    }

    fn gap(&self, known: &AuditHead, found: &AuditHead) -> AuditRecord {
        AuditRecord {
            caller: "local/rackwrightd".into(),
            method: GAP.into(),
            request: serde_json::json!({
                "known_position": known.position,
                "known_hash": known.hash_hex(),
                "found_position": found.position,
            })
            .to_string(),
            target: "site".into(),
            outcome: "DATA_LOSS".into(),
            message: match known.position > found.position {
                true => format!(
                    "records {} to {} were lost: the database ended at record {}, and record {} was known here",
                    found.position + 1,
                    known.position,
                    found.position,
                    known.position
                ),
                false => format!(
                    "the record at position {} differs from the record that was known here",
                    known.position
                ),
            },
            ..AuditRecord::default()
        }
    }

    /// Notes that the change of this record was committed.
    pub fn stored(&self, added: &PendingRecord) {
        let mut known = self.known();
        let is_newer = known.head.is_none_or(|head| head.position < added.head.position);
        if added.gaps > known.gaps || (added.gaps == known.gaps && is_newer) {
            *known = KnownHead {
                head: Some(added.head),
                gaps: added.gaps,
            };
        }
        drop(known);
        self.added.notify_one();
    }

    /// Writes the newest head to its file. If a command on this host has written a newer head, this process takes that
    /// head instead.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn write_head_file(&self, signer: &CertificateSigner) -> std::io::Result<()> {
        let Some(head) = self.newest() else {
            return Ok(());
        };
        let kept = self.file.read(signer)?;
        let mut known = self.known();
        if let Some(kept) = kept.filter(|kept| kept.position > head.position)
            && known.gaps == 0
        {
            known.head = Some(kept);
            return Ok(());
        }
        drop(known);
        self.file.write(&head, signer)
    }

    /// Adds a record in a transaction of its own, for commands that run without the daemon.
    pub async fn add_and_commit(&self, store: &Store, keys: &KeyFiles, record: AuditRecord) -> Result<(), StoreError> {
        let mut tx = store.write().await?;
        let added = self.add(&mut tx, &keys.signer, record).await?;
        tx.commit().await?;
        self.stored(&added);
        Ok(())
    }
}

/// Whether the chain that ends at `found` contains the known head.
async fn contains_head(tx: &mut WriteTx, known: &AuditHead, found: &AuditHead) -> Result<bool, StoreError> {
    if known.position == found.position {
        return Ok(known.hash == found.hash);
    }
    if known.position > found.position {
        return Ok(false);
    }
    let position = i64::try_from(known.position).unwrap_or(i64::MAX);
    Ok(tx.audit_hash(position).await? == Some(known.hash_hex()))
}

fn gap_event(known: &AuditHead) -> EventRow {
    EventRow {
        at: clock::now(),
        kind: EventKind::SecurityAuditGap,
        target: "site".into(),
        message: format!(
            "audit records were lost or replaced: record {} differs from the record that was known here; `rackwrightd \
             audit verify` gives the details",
            known.position
        ),
        ..EventRow::default()
    }
}

fn row(entry: &AuditEntry, record: &AuditRecord) -> AuditRow {
    AuditRow {
        position: i64::try_from(entry.position).unwrap_or(i64::MAX),
        at: Timestamp(record.time_us),
        caller: record.caller.clone(),
        customer: record.customer.clone(),
        method: record.method.clone(),
        target: record.target.clone(),
        outcome: record.outcome.clone(),
        record: entry.record.clone(),
        hash: entry.hash.clone(),
        key: entry.key.clone(),
        signature: entry.signature.clone(),
    }
}

/// The chain entry of a database row.
#[must_use]
pub fn entry_of(row: &AuditRow) -> AuditEntry {
    AuditEntry {
        position: u64::try_from(row.position).unwrap_or(0),
        record: row.record.clone(),
        hash: row.hash.clone(),
        key: row.key.clone(),
        signature: row.signature.clone(),
    }
}

impl Core {
    /// Stores a record in a transaction of its own.
    pub async fn audit(&self, record: AuditRecord) -> Result<(), StoreError> {
        let mut tx = self.store.write().await?;
        let added = self.audit.add(&mut tx, &self.keys.signer, record).await?;
        tx.commit().await?;
        self.audit.stored(&added);
        // A gap adds an event.
        self.commits.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Stores the record of this task's call before the call goes on: for actions that cannot be undone if the record
    /// fails. Outside of a recorded call it does nothing.
    pub async fn audit_now(&self) -> Result<(), StoreError> {
        let Some(call) = Call::current().filter(|call| call.is_due()) else {
            return Ok(());
        };
        self.audit(call.record("OK", "")).await?;
        call.mark_written();
        Ok(())
    }

    /// Adds the record of this task's call to a change.
    pub(crate) async fn audit_with(&self, tx: &mut WriteTx) -> Result<Option<(PendingRecord, Arc<Call>)>, StoreError> {
        let Some(call) = Call::current().filter(|call| call.is_due()) else {
            return Ok(None);
        };
        let record = call.record("OK", "");
        let added = self.audit.add(tx, &self.keys.signer, record).await?;
        Ok(Some((added, call)))
    }
}

/// A record of an action by the control plane or by a person on its host.
#[must_use]
pub fn local_record(user: Option<&LocalUser>, method: &str, target: &str, message: &str) -> AuditRecord {
    AuditRecord {
        caller: match user {
            Some(user) if !user.name.is_empty() => format!("local/{}", user.name),
            Some(user) => format!("local/uid-{}", user.uid),
            None => "local/rackwrightd".into(),
        },
        request: user.map_or_else(String::new, |user| {
            serde_json::json!({ "uid": user.uid, "login_uid": user.login_uid }).to_string()
        }),
        client: "rackwrightd".into(),
        method: format!("local/{method}"),
        target: target.into(),
        outcome: "OK".into(),
        message: message.into(),
        ..AuditRecord::default()
    }
}

/// Writes the head file and stores summaries of refused calls, until the core stops.
pub async fn run(core: Arc<Core>) {
    let mut failed = false;
    loop {
        let is_end = tokio::select! {
            () = core.stop.cancelled() => true,
            () = core.audit.added.notified() => false,
            () = tokio::time::sleep(budget::ROUND) => false,
        };
        if is_end {
            return;
        }
        summarise(&core, false).await;
        let kept = write_head_file(&core).await;
        if let Err(error) = &kept
            && !failed
        {
            tracing::error!(%error, "the head of the audit cannot be written to its file");
        }
        failed = kept.is_err();
        tokio::select! {
            () = core.stop.cancelled() => {}
            () = tokio::time::sleep(HEAD_PAUSE) => {}
        }
    }
}

/// Runs [`Audit::write_head_file`], which blocks on the disk, outside the async threads.
async fn write_head_file(core: &Arc<Core>) -> std::io::Result<()> {
    let of = core.clone();
    let kept = tokio::task::spawn_blocking(move || of.audit.write_head_file(&of.keys.signer)).await;
    kept.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

async fn summarise(core: &Core, is_end: bool) {
    for record in core.audit.budget.summaries(is_end) {
        if let Err(error) = core.audit(record).await {
            tracing::warn!(%error, "a summary of refused calls could not be recorded in the audit");
        }
    }
}

/// Records the start of the process.
pub async fn begin(core: &Core, message: &str) -> Result<(), StoreError> {
    core.audit(local_record(None, "start", "site", message)).await
}

/// Records the stop of the process: stores the remaining summaries and the newest head.
pub async fn end(core: &Arc<Core>) {
    summarise(core, true).await;
    let stored = core.audit(local_record(None, "stop", "site", "")).await;
    if let Err(error) = stored {
        tracing::warn!(%error, "the end of this process could not be recorded in the audit");
    }
    if let Err(error) = write_head_file(core).await {
        tracing::error!(%error, "the head of the audit cannot be written to its file");
    }
}

#[cfg(test)]
mod tests;
