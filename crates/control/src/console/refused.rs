//! Logins that SSH servers of BMCs refused: they are not sent again soon, whoever comes to the console, lest the account be
//! locked. A line forgets that as soon as nobody wants it.

use std::collections::HashMap;
use std::time::Duration;

use rackwright_store::{NodeRecord, Spec};
use tokio::time::Instant;

/// The same login is not sent again for so long.
const HOLD: Duration = Duration::from_secs(300);
/// Refusals that are known at once; of more the oldest is forgotten.
const KNOWN: usize = 4096;

/// By the nodes' ids.
#[derive(Default)]
pub struct Refusals(HashMap<String, Refusal>);

struct Refusal {
    at: Instant,
    tried: Tried,
    why: String,
}

/// What an operator changes to have the login tried at once.
#[derive(PartialEq, Eq)]
struct Tried {
    address: String,
    username: String,
    password: Vec<u8>,
}

impl Tried {
    fn of(spec: &Spec) -> Self {
        Self {
            address: spec.bmc_address.clone(),
            username: spec.bmc_username.clone(),
            password: spec.bmc_password.clone(),
        }
    }
}

impl Refusals {
    /// It was refused just now, and how that was told.
    pub fn keep(&mut self, record: &NodeRecord, why: String) {
        self.0.retain(|_, refusal| refusal.at.elapsed() < HOLD);
        if self.0.len() >= KNOWN {
            let oldest = self.0.iter().min_by_key(|(_, refusal)| refusal.at);
            if let Some(oldest) = oldest.map(|(node, _)| node.clone()) {
                self.0.remove(&oldest);
            }
        }
        let (at, tried) = (Instant::now(), Tried::of(&record.spec));
        self.0.insert(record.id.clone(), Refusal { at, tried, why });
    }

    /// How it was told that what would be sent now was refused; none: it may be sent.
    #[must_use]
    pub fn find(&self, record: &NodeRecord) -> Option<String> {
        let known = self.0.get(&record.id)?;
        let holds = known.at.elapsed() < HOLD && known.tried == Tried::of(&record.spec);
        holds.then(|| known.why.clone())
    }
}
