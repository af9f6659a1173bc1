//! Detects a database that is older than its machines.
//!
//! The database has an age that only grows. Each daemon keeps the highest age that it has seen in a file beside its keys,
//! written after the commit. A database below that age was restored from a backup, or replaced: later changes are lost, and
//! a machine that it calls free may hold a customer's data. So every node is doubted until an operator settles the doubt.
//!
//! Sessions and API keys end: those that had ended since the backup would be valid again.
//!
//! A backup of the whole data folder also restores the file, so this check does not notice it: `serve --restored` declares
//! it. A single node is also doubted when its machine knows a newer claim generation than its record.

#![expect(clippy::disallowed_methods, reason = "called at the start")]

use std::io::Write as _;
use std::path::{Path, PathBuf};

use rackwright_identity::RngError;
use rackwright_lifecycle::{Doubt, DoubtCause, EventKind, NodeId};
use rackwright_store::{DatabaseAge, EventRow, NodeRecord, StoreError, WriteTx};

use crate::clock;
use crate::core::Core;

/// Name of the file in the data folder.
const FILE: &str = "database-age";
/// A restored database continues above every age of the lost one.
const AGE_JUMP: i64 = 1_000_000;

/// Why the age of the database is unknown.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// The file cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The file does not hold an age.
    #[error(
        "{} does not contain the age of the database: if the database is the newest copy, remove the file; if the \
         database comes from a backup, remove the file and start with `rackwrightd serve --restored`",
        .0.display()
    )]
    Damaged(PathBuf),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There are no random numbers.
    #[error(transparent)]
    Random(#[from] RngError),
}

fn read(path: &Path) -> Result<Option<DatabaseAge>, AgeError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            let path = path.to_owned();
            return Err(AgeError::File { path, source });
        }
    };
    let read = text.trim().split_once(' ').and_then(|(id, age)| {
        Some(DatabaseAge {
            id: id.to_owned(),
            age: age.parse().ok()?,
        })
    });
    read.map(Some).ok_or_else(|| AgeError::Damaged(path.to_owned()))
}

/// Replaces the file atomically: a failure leaves the former one.
fn write(path: &Path, seen: &DatabaseAge) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new)?;
    file.write_all(format!("{} {}\n", seen.id, seen.age).as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::File::open(folder)?.sync_all()
}

/// Makes the next start treat the database as restored: its age is below the age in the file.
///
/// # Errors
/// The file failed.
pub fn expect_newer(data_dir: &Path, id: &str, age: i64) -> std::io::Result<()> {
    let path = data_dir.join(FILE);
    let seen = read(&path).ok().flatten().filter(|seen| seen.id == id);
    let age = seen.map_or(age, |seen| seen.age.max(age)).saturating_add(1);
    let id = id.to_owned();
    write(&path, &DatabaseAge { id, age })
}

/// Why the database is not the last one seen. `None`: it is.
fn reason(seen: Option<&DatabaseAge>, found: &DatabaseAge, is_declared: bool) -> Option<&'static str> {
    match seen {
        _ if is_declared => Some("an operator started the control plane with --restored"),
        Some(seen) if seen.id != found.id => {
            Some("the database is not the database that this control plane used before")
        }
        Some(seen) if seen.age > found.age => Some("the database is older than at the last run of this control plane"),
        _ => None,
    }
}

/// Compares the age of the database with the highest age that this daemon has seen, and advances it. Doubts every node if
/// the database is older, or if an operator declares it restored.
///
/// # Errors
/// The file or the database failed.
pub async fn advance(core: &Core, is_declared: bool) -> Result<(), AgeError> {
    let path = core.config.data_dir.join(FILE);
    let seen = read(&path)?;
    let mut random = [0; 16];
    core.rng.fill(&mut random)?;
    let mut tx = core.store.write().await?;
    let found = tx
        .database_age(&format!("{:032x}", u128::from_be_bytes(random)))
        .await?;
    let mut age = found.age.saturating_add(1);
    let reason = reason(seen.as_ref(), &found, is_declared);
    if let Some(reason) = reason {
        age = seen.map_or(age, |seen| seen.age.max(age)).saturating_add(AGE_JUMP);
        doubt_all(&mut tx, reason).await?;
        tx.end_all_sessions().await?;
    }
    tx.put_database_age(age).await?;
    core.commit(tx).await?;
    if let Some(reason) = reason {
        tracing::error!(
            reason,
            "the database was restored: every node is doubted until an operator resolves the doubt"
        );
        core.running_steps.due.notify_one();
    }
    write(&path, &DatabaseAge { id: found.id, age }).map_err(|source| AgeError::File { path, source })
}

async fn doubt_all(tx: &mut WriteTx, reason: &str) -> Result<(), StoreError> {
    let now = clock::now();
    let doubt = Doubt {
        cause: DoubtCause::Restored,
        since: now,
        why: format!("{reason}, so a customer may have this machine although its record does not say so"),
        generation: 0,
    };
    let doubted = tx.doubt_all(&doubt).await?;
    tx.add_event(&EventRow {
        at: now,
        kind: EventKind::SecurityDatabaseRestored,
        target: "site".into(),
        message: format!(
            "{reason}: {} doubted; `rackwright node believe` and `node readmit` resolve the doubt",
            match doubted {
                1 => "1 node is".to_owned(),
                _ => format!("{doubted} nodes are"),
            }
        ),
        ..EventRow::default()
    })
    .await
}

/// Doubts a node if its machine has shown a newer claim generation than its record. Returns whether it has.
///
/// # Errors
/// The database failed, or a concurrent change won.
pub async fn compare_generation(tx: &mut WriteTx, record: &mut NodeRecord, shown: u64) -> Result<bool, StoreError> {
    let known = record.node.generation;
    if shown <= known {
        return Ok(false);
    }
    let now = clock::now();
    match &mut record.node.doubt {
        Some(doubt) if doubt.generation >= shown => return Ok(true),
        Some(doubt) => doubt.generation = shown,
        None => {
            let why = format!(
                "the machine has claim generation {shown} and the record only {known}: the machine was claimed since \
                 then, or it holds data of another site"
            );
            tx.add_event(&EventRow {
                at: now,
                kind: EventKind::SecurityNodeDoubted,
                target: format!("nodes/{}", record.id),
                message: why.clone(),
                ..EventRow::default()
            })
            .await?;
            record.node.doubt = Some(Doubt {
                cause: DoubtCause::Generation,
                since: now,
                why,
                generation: shown,
            });
        }
    }
    tx.save_node(record, now).await?;
    Ok(true)
}

/// The same in a change of its own, for a valid certificate that is newer than the record.
pub async fn doubt_by_certificate(core: &Core, node: &NodeId, generation: u64) -> Result<(), StoreError> {
    let mut tx = core.store.write().await?;
    let mut record = tx.node(node).await?;
    if compare_generation(&mut tx, &mut record, generation).await? {
        core.commit(tx).await?;
        core.notify_due(node);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
