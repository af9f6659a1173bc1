//! The logins that are tried at a BMC, and their order.

use rackwright_ground::core::Core;
use rackwright_nodes::credentials::{ServiceRootFacts, candidates};
use rackwright_redfish::ServiceFacts;
use secrecy::SecretString;

use std::sync::Arc;

use super::spec::Secrets;

/// A login to try.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub username: String,
    pub password: SecretString,
}

/// A source of logins. The logins are tried in order, and only the first few: BMCs lock accounts.
#[async_trait::async_trait]
pub trait Logins: Send + Sync {
    /// The logins for a BMC with these `facts`. `login_name` is the login that the address table names for it, or empty.
    async fn candidates(&self, facts: &ServiceFacts, login_name: &str) -> Vec<Candidate>;
}

/// The logins from the request.
pub struct GivenLogins(pub Secrets);

#[async_trait::async_trait]
impl Logins for GivenLogins {
    async fn candidates(&self, _: &ServiceFacts, login_name: &str) -> Vec<Candidate> {
        let meant = self.0.logins.iter().filter(|login| login.name == login_name);
        meant
            .map(|login| Candidate {
                username: login.username.clone(),
                password: login.secret(),
            })
            .collect()
    }
}

/// The logins from the request, then factory logins.
pub struct FactoryLogins {
    core: Arc<Core>,
    given: GivenLogins,
}

impl FactoryLogins {
    /// Factory logins are tried after `given`.
    pub fn new(core: Arc<Core>, given: Secrets) -> Self {
        Self {
            core,
            given: GivenLogins(given),
        }
    }

    async fn factory(&self, facts: &ServiceFacts) -> Result<Vec<Candidate>, String> {
        let identity = ServiceRootFacts {
            vendor: facts.vendor.clone().unwrap_or_default(),
            product: facts.product.clone().unwrap_or_default(),
        };
        let fitting = candidates(&self.core.store, &identity).await;
        let fitting = fitting.map_err(|error| error.to_string())?;
        let open = |one: rackwright_nodes::credentials::Candidate| {
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
impl Logins for FactoryLogins {
    async fn candidates(&self, facts: &ServiceFacts, login_name: &str) -> Vec<Candidate> {
        let mut all = self.given.candidates(facts, login_name).await;
        if login_name.is_empty() {
            match self.factory(facts).await {
                Ok(factory) => all.extend(factory),
                Err(error) => tracing::warn!(%error, "the factory credentials cannot be read; none is tried"),
            }
        }
        all
    }
}
