//! Who may be at which console.

use rackwright_api::v1::Role;
use rackwright_lifecycle::State;
use rackwright_serial::record::{Head, Holder};
use rackwright_store::{NodeRecord, Scope};

use crate::api_error::ApiError;
use crate::core::Core;
use crate::rights::{Caller, of_member};

/// Whose output a node's console is now: a customer's while their system runs on it and we do nothing with it.
#[must_use]
pub fn holder(record: &NodeRecord) -> Holder {
    match record.node.state {
        State::Active | State::Maintenance => claimant(record),
        _ => Holder::default(),
    }
}

/// Whose output is kept: that of whoever the node was handed over to and who has not given it back.
#[must_use]
pub fn claimant(record: &NodeRecord) -> Holder {
    let is_given_back = record.node.state == State::Reclaiming;
    let claim = record
        .node
        .claim
        .as_ref()
        .filter(|claim| !is_given_back && !claim.release_requested && claim.handed_over.is_some());
    claim.map_or_else(Holder::default, |claim| Holder {
        held: true,
        customer: claim.customer.clone(),
        generation: claim.generation,
    })
}

/// What somebody may do at a console.
#[derive(Debug, Clone)]
pub struct Pass {
    /// Who.
    pub caller: Caller,
    /// The node as it was when that was looked up.
    pub record: NodeRecord,
}

impl Pass {
    /// Lets a member to a node's console, to look or, with `types`, to type. What is another's does not exist.
    ///
    /// # Errors
    /// No such node, not theirs at the moment, or a role that only looks.
    pub async fn new(core: &Core, caller: Caller, node: &str, types: bool) -> Result<Self, ApiError> {
        if caller.role == Role::Auditor {
            let message = format!("{:?} is an auditor, to whom no console is open", caller.name);
            return Err(ApiError::Forbidden(message));
        }
        let record = core.store.node(&caller.scope, node).await?;
        if types && caller.role == Role::Viewer {
            let message = format!(
                "{:?} is a viewer, who looks and does not type: attach read-only",
                caller.name
            );
            return Err(ApiError::Forbidden(message));
        }
        if record.node.doubt.is_some() {
            return Err(ApiError::precondition(
                format!("nodes/{node}"),
                format!("node {node} may have changed hands without the site's record of it: its console is closed"),
                "an operator settles that with `rackwright node believe` or `rackwright node readmit`",
            ));
        }
        if caller.scope != Scope::Site && !holder(&record).held {
            return Err(ApiError::precondition(
                format!("nodes/{node}"),
                format!("node {node} is not handed over: its console is the site's until then"),
                "wait until the node is active",
            ));
        }
        Ok(Self { caller, record })
    }

    /// Whether that holds still: role, whose the node is, and for members of customers under the same claim.
    ///
    /// # Errors
    /// Why not, as a sentence.
    pub async fn recheck(&self, core: &Core, types: bool) -> Result<(), String> {
        let now = async {
            let caller = of_member(core, &self.caller.name, self.caller.epoch).await?;
            Self::new(core, caller, &self.record.id, types).await
        };
        match now.await {
            // Whoever is at a console stays there while the database is away; nothing changes hands without it.
            Err(ApiError::Store(error)) if error.is_retryable() => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(now) if now.record.uid != self.record.uid => Err("the node was enrolled anew".into()),
            Ok(now) if self.caller.scope == Scope::Site || holder(&now.record) == holder(&self.record) => Ok(()),
            Ok(_) => Err("the node has changed hands".into()),
        }
    }

    /// Whether they may read a part of a recording.
    #[must_use]
    pub fn may_read(&self, head: &Head) -> bool {
        match &self.caller.scope {
            Scope::Site => true,
            Scope::Customer(_) => {
                let present = holder(&self.record);
                present.held && head.holder == present
            }
        }
    }
}
