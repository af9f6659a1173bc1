//! Names and passwords that machines come with: which of them fit a BMC, and trying them.

use rackwright_identity::{SealError, Sealer};
use rackwright_store::{Store, StoreError};
use secrecy::SecretString;

use super::door::{Door, Inside, Knock, ServiceRootFacts};

/// What a sealed factory password is bound to.
#[must_use]
pub fn factory_password_purpose(id: &str) -> String {
    format!("factory-credential:{id}")
}

/// One that may be good.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its row.
    pub id: String,
    /// The account's name.
    pub username: String,
    sealed: Vec<u8>,
}

impl Candidate {
    /// The password.
    ///
    /// # Errors
    /// It was sealed under a key that is not here.
    pub fn password(&self, sealer: &Sealer) -> Result<SecretString, SealError> {
        sealer.open(&self.sealed, &factory_password_purpose(&self.id))
    }
}

/// The factory credentials that fit what a BMC says of itself, in the order in which they are tried.
///
/// # Errors
/// The database failed.
pub async fn candidates(store: &Store, identity: &ServiceRootFacts) -> Result<Vec<Candidate>, StoreError> {
    let fits = |pattern: &str| {
        [&identity.vendor, &identity.product]
            .into_iter()
            .any(|name| rackwright_redfish::quirks::fits(pattern, name))
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

/// What came of trying candidates.
pub enum Tried {
    /// This one is good; who is logged in leaves.
    Found(Candidate, Box<dyn Inside>),
    /// The BMC refused these, and the rest was not tried, so that nothing is locked; those are for later.
    Refused {
        /// By id.
        refused: Vec<String>,
        /// How many are left.
        left: usize,
    },
    /// Something else than a refusal.
    Knock(Knock),
}

/// Tries candidates one after the other, at most `budget` of them: the caller waits before the next ones, or the account
/// may be locked. Without knowing better, 2 within 10 minutes are safe (see `tries`).
pub async fn try_candidates(door: &dyn Door, sealer: &Sealer, candidates: &[Candidate], budget: usize) -> Tried {
    let mut refused = Vec::new();
    for candidate in candidates.iter().take(budget) {
        let password = match candidate.password(sealer) {
            Ok(password) => password,
            Err(error) => return Tried::Knock(Knock::Unreached(error.to_string())),
        };
        match door.enter(&candidate.username, &password).await {
            Ok(inside) => return Tried::Found(candidate.clone(), inside),
            Err(Knock::Refused(_)) => refused.push(candidate.id.clone()),
            Err(knock) => return Tried::Knock(knock),
        }
    }
    let left = candidates.len().saturating_sub(refused.len());
    Tried::Refused { refused, left }
}
