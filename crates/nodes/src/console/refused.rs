//! Logins that SSH servers of BMCs refused. They are held back for a while, regardless of the client, so that the BMC
//! does not lock the account. The process keeps refusals apart from lines, because a line is dropped when its demand
//! ends.

use std::collections::HashMap;
use std::time::Duration;

use rackwright_lifecycle::NodeId;
use rackwright_store::{NodeRecord, Spec};
use tokio::time::Instant;

/// A refused login is held back for this long.
const HOLD: Duration = Duration::from_secs(300);
/// Most refusals that are kept; the oldest is dropped first.
const REFUSALS_MAX: usize = 4096;

/// Refusals by node id.
#[derive(Default)]
pub struct Refusals(HashMap<NodeId, Refusal>);

struct Refusal {
    at: Instant,
    tried: TriedLogin,
    why: String,
}

/// The fields that an operator changes so that the login is tried at once.
#[derive(PartialEq, Eq)]
struct TriedLogin {
    address: String,
    username: String,
    password: Vec<u8>,
}

impl TriedLogin {
    fn of(spec: &Spec) -> Self {
        Self {
            address: spec.bmc_address.clone(),
            username: spec.bmc_username.clone(),
            password: spec.bmc_password.clone(),
        }
    }
}

impl Refusals {
    /// Stores a refusal from now, with the message to report.
    pub fn keep(&mut self, record: &NodeRecord, why: String) {
        self.0.retain(|_, refusal| refusal.at.elapsed() < HOLD);
        if self.0.len() >= REFUSALS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, refusal)| refusal.at);
            if let Some(oldest) = oldest.map(|(node, _)| node.clone()) {
                self.0.remove(&oldest);
            }
        }
        let (at, tried) = (Instant::now(), TriedLogin::of(&record.spec));
        self.0.insert(record.id.clone(), Refusal { at, tried, why });
    }

    /// The message of a refusal that still holds for this login; `None` if the login may be sent.
    #[must_use]
    pub fn find(&self, record: &NodeRecord) -> Option<String> {
        let known = self.0.get(&record.id)?;
        let holds = known.at.elapsed() < HOLD && known.tried == TriedLogin::of(&record.spec);
        holds.then(|| known.why.clone())
    }
}
