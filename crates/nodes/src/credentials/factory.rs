//! Factory names and passwords of machines: the selection for a BMC, and the tries.

use rackwright_ground::keys::purposes::factory_password_purpose;
use rackwright_identity::{SealError, Sealer};
use rackwright_pattern::fits_any_case;
use rackwright_store::{Store, StoreError};
use secrecy::SecretString;

use super::bmc_access::{AccountError, BmcAccess, BmcSession, ServiceRootFacts};

/// A factory credential that may work.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The id of its row.
    pub id: String,
    /// The account's name.
    pub username: String,
    sealed: Vec<u8>,
}

impl Candidate {
    /// Opens the password.
    ///
    /// # Errors
    /// It was sealed under a key that is missing here.
    pub fn password(&self, sealer: &Sealer) -> Result<SecretString, SealError> {
        sealer.open(&self.sealed, &factory_password_purpose(&self.id))
    }
}

/// The factory credentials that fit a BMC's public data, in the order of the tries.
pub async fn candidates(store: &Store, identity: &ServiceRootFacts) -> Result<Vec<Candidate>, StoreError> {
    let fits = |pattern: &str| {
        [&identity.vendor, &identity.product]
            .into_iter()
            .any(|name| fits_any_case(pattern, name))
    };
    let all = store.factory_credentials().await?;
    let fitting = all.into_iter().filter(|one| fits(&one.pattern));
    Ok(fitting
        .map(|one| Candidate {
            id: one.id,
            username: one.username,
            sealed: one.password,
        })
        .collect())
}

/// The result of the tries.
pub enum TryOutcome {
    /// This credential works. The caller ends the session.
    Found(Candidate, Box<dyn BmcSession>),
    /// The BMC refused these credentials. The others were not tried, so that no account is locked; they remain for later.
    Refused {
        /// Their ids.
        refused: Vec<String>,
        /// Number of untried credentials.
        left: usize,
    },
    /// A failure other than a refusal.
    AccountError(AccountError),
}

/// Tries up to `budget` candidates one after the other. The caller waits before the next ones, or the account may be
/// locked. Without a known policy, 2 within 10 minutes are safe (see `tries`).
pub async fn try_candidates(
    bmc_access: &dyn BmcAccess,
    sealer: &Sealer,
    candidates: &[Candidate],
    budget: usize,
) -> TryOutcome {
    let mut refused = Vec::new();
    for candidate in candidates.iter().take(budget) {
        let password = match candidate.password(sealer) {
            Ok(password) => password,
            Err(error) => return TryOutcome::AccountError(AccountError::Unreached(error.to_string())),
        };
        match bmc_access.enter(&candidate.username, &password).await {
            Ok(session) => return TryOutcome::Found(candidate.clone(), session),
            Err(AccountError::Refused(_)) => refused.push(candidate.id.clone()),
            Err(account_error) => return TryOutcome::AccountError(account_error),
        }
    }
    let left = candidates.len().saturating_sub(refused.len());
    TryOutcome::Refused { refused, left }
}
