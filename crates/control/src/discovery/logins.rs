//! The logins that are tried at a BMC, and their order.

use rackwright_redfish::ServiceFacts;
use secrecy::SecretString;

use std::sync::Arc;

use super::wanted::Secrets;
use crate::core::Core;
use crate::credentials::{ServiceRootFacts, candidates};

/// A login to try.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// User name.
    pub username: String,
    /// Password.
    pub password: SecretString,
}

/// A source of logins. The logins are tried in order, and only the first few: BMCs lock accounts.
#[async_trait::async_trait]
pub trait Logins: Send + Sync {
    /// The logins for a BMC with these `facts`. `named` is the login that the address table names for it, or empty.
    async fn candidates(&self, facts: &ServiceFacts, named: &str) -> Vec<Candidate>;
}

/// The logins from the request.
pub struct Given(pub Secrets);

#[async_trait::async_trait]
impl Logins for Given {
    async fn candidates(&self, _: &ServiceFacts, named: &str) -> Vec<Candidate> {
        let meant = self.0.logins.iter().filter(|login| login.name == named);
        meant
            .map(|login| Candidate {
                username: login.username.clone(),
                password: login.secret(),
            })
            .collect()
    }
}

/// The logins from the request, then factory logins.
pub struct WithFactory {
    core: Arc<Core>,
    given: Given,
}

impl WithFactory {
    /// Factory logins are tried after `given`.
    pub fn new(core: Arc<Core>, given: Secrets) -> Self {
        Self {
            core,
            given: Given(given),
        }
    }

    async fn factory(&self, facts: &ServiceFacts) -> Result<Vec<Candidate>, String> {
        let identity = ServiceRootFacts {
            vendor: facts.vendor.clone().unwrap_or_default(),
            product: facts.product.clone().unwrap_or_default(),
        };
        let fitting = candidates(&self.core.store, &identity).await;
        let fitting = fitting.map_err(|error| error.to_string())?;
        let open = |one: crate::credentials::Candidate| {
            let password = one
                .password(&self.core.keys.sealer)
                .map_err(|error| error.to_string())?;
            Ok(Candidate {
                username: one.username,
                password,
            })
        };
        fitting.into_iter().map(open).collect()
    }
}

#[async_trait::async_trait]
impl Logins for WithFactory {
    async fn candidates(&self, facts: &ServiceFacts, named: &str) -> Vec<Candidate> {
        let mut all = self.given.candidates(facts, named).await;
        if named.is_empty() {
            match self.factory(facts).await {
                Ok(factory) => all.extend(factory),
                Err(error) => tracing::warn!(%error, "the factory credentials cannot be read; none is tried"),
            }
        }
        all
    }
}
