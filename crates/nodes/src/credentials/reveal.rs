//! `rackwrightd bmc-password`: shows the login of a node's BMC on the control plane's own host.
//!
//! No API call returns a password. The holder of a control plane's keys and database can open sealed passwords anyway. This
//! command does that, also while the daemon is down, and stores an event first.

use rackwright_ground::audit::local::{self, LocalError};
use rackwright_ground::bmc::bmc_password_purpose;
use rackwright_ground::clock;
use rackwright_ground::config::Config;
use rackwright_ground::local_user::LocalUser;
use rackwright_identity::{KeyFiles, Sealer, SystemRng};
use rackwright_lifecycle::{EventKind, NodeId};
use rackwright_store::{BackupError, EventRow, Scope, Store, StoreError};
use secrecy::{ExposeSecret as _, SecretString};

/// Why a password is not shown.
#[derive(Debug, thiserror::Error)]
pub enum RevealError {
    /// The database failed.
    #[error("the database does not answer, so the password cannot be read and its display cannot be recorded")]
    Store(#[from] StoreError),
    /// This host has no keys of a control plane.
    #[error("{} is not a folder: run this command on a host that has the keys of the control plane", .0.display())]
    NoKeys(std::path::PathBuf),
    /// The database cannot be read.
    #[error(transparent)]
    Unread(#[from] BackupError),
    /// The database is missing or empty.
    #[error(
        "the database {0} contains no site, so it has no passwords, and nothing was changed: name the right --config"
    )]
    NoSite(String),
    /// The audit failed.
    #[error(transparent)]
    Audit(#[from] LocalError),
    /// The keys cannot be read.
    #[error(transparent)]
    Keys(#[from] rackwright_identity::KeyFileError),
    /// The password cannot be opened.
    #[error(transparent)]
    Seal(#[from] rackwright_identity::SealError),
    /// The operator gave no reason.
    #[error("--reason TEXT is required, 1 to 1000 characters; it is stored in the event of this command")]
    NoReason,
    /// No password is known.
    #[error("no password is known for the BMC of {0} yet")]
    Unknown(String),
}

/// The login of a BMC.
#[derive(Debug)]
pub struct Revealed {
    /// The BMC's address.
    pub address: String,
    /// The account.
    pub username: String,
    /// The last password that worked.
    pub password: SecretString,
    /// Account and password of an unfinished change. One of the two passwords works.
    pub pending: Option<(String, SecretString)>,
}

impl Revealed {
    /// Lines for an operator's terminal, with the passwords.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut text = format!(
            "address:  {}\nusername: {}\npassword: {}\n",
            self.address,
            self.username,
            self.password.expose_secret()
        );
        if let Some((username, password)) = &self.pending {
            text.push_str(&format!(
                "a password change has not ended; if the BMC refuses the above:\nusername: {username}\npassword: {}\n",
                password.expose_secret()
            ));
        }
        text
    }
}

/// Opens the login of a node's BMC after an event about it was stored.
///
/// # Errors
/// [`RevealError`]. Without the event, nothing is shown.
pub async fn reveal(config: &Config, node: &NodeId, reason: &str) -> Result<Revealed, RevealError> {
    let reason = reason.trim();
    if reason.is_empty() || reason.chars().count() > 1000 || reason.chars().any(char::is_control) {
        return Err(RevealError::NoReason);
    }
    let folder = config.data_dir.join("keys");
    if !folder.is_dir() {
        return Err(RevealError::NoKeys(folder));
    }
    // Read before the database is opened, which would make its file and tables.
    if config.database.authority().await?.is_none() {
        return Err(RevealError::NoSite(config.database.to_string()));
    }
    let rng = std::sync::Arc::new(SystemRng);
    let keys = KeyFiles::load_or_create(&config.data_dir, "", clock::system_time(clock::now()), rng)?;
    let store = Store::open(config.database.clone()).await?;
    let what = ("bmc-password", &*format!("nodes/{node}"), reason);
    local::record(config, &keys, &store, &LocalUser::present(), what).await?;
    reveal_from(&store, &keys.sealer, node, reason).await
}

/// The same from an open database.
///
/// # Errors
/// As [`reveal`].
pub async fn reveal_from(store: &Store, sealer: &Sealer, node: &NodeId, reason: &str) -> Result<Revealed, RevealError> {
    let spec = store.node(&Scope::Site, node).await?.spec;
    if rackwright_ground::bmc::is_unknown(&spec) {
        return Err(RevealError::Unknown(node.to_string()));
    }
    let purpose = bmc_password_purpose(node);
    let pending = spec.account.pending.as_ref();
    let pending =
        pending.map(|one| Ok::<_, RevealError>((one.username.clone(), sealer.open(&one.password, &purpose)?)));
    let revealed = Revealed {
        password: sealer.open(&spec.bmc_password, &purpose)?,
        address: spec.bmc_address,
        username: spec.bmc_username,
        pending: pending.transpose()?,
    };
    let mut tx = store.write().await?;
    tx.add_event(&EventRow {
        at: clock::now(),
        kind: EventKind::SecurityBmcPasswordShown,
        target: format!("nodes/{node}"),
        message: format!("the BMC password of {node} was shown on the control plane's host: {reason}"),
        ..EventRow::default()
    })
    .await?;
    tx.commit().await?;
    Ok(revealed)
}
