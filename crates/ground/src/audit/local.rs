//! Records of commands that run on the control plane's own host.

use rackwright_identity::{AuditRecord, KeyFiles};
use rackwright_store::{Store, StoreError};

use super::{Audit, local_record};
use crate::config::Config;
use crate::local_user::LocalUser;
use crate::share::replica_name;

/// Why a command cannot be recorded. The command is then not executed.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The head file cannot be read or written.
    #[error("the head of the audit cannot be read or written, so the command is not executed")]
    Head(#[from] std::io::Error),
    /// The database failed.
    #[error("the audit record cannot be stored, so the command is not executed")]
    Store(#[from] StoreError),
}

/// Stores the record of a command before it is executed.
///
/// # Errors
/// [`LocalError`].
pub async fn record(
    config: &Config,
    keys: &KeyFiles,
    store: &Store,
    user: &LocalUser,
    (method, target, message): (&str, &str, &str),
) -> Result<(), LocalError> {
    let replica = replica_name(&config.data_dir);
    let audit = Audit::open(&config.data_dir, &config.site, &replica, keys)?;
    let record: AuditRecord = local_record(Some(user), method, target, message);
    audit.add_and_commit(store, keys, record).await?;
    audit.write_head_file(&keys.signer)?;
    Ok(())
}
