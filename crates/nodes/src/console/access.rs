//! Access to consoles: who may attach to which node.

use rackwright_api::v1::Role;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::rights::{Caller, limited, of_member};
use rackwright_lifecycle::{NodeId, State};
use rackwright_serial::record::{Head, Holder};
use rackwright_store::{NodeRecord, Scope};

/// The current owner of a node's console output: the customer while the node is active or in maintenance, otherwise the
/// site.
#[must_use]
pub fn holder(record: &NodeRecord) -> Holder {
    match record.node.state {
        State::Active | State::Maintenance => claimant(record),
        _ => Holder::default(),
    }
}

/// The owner of the recordings that are kept: the customer that has the node after the hand-over, until the release is
/// requested or the node is reclaimed.
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
        customer: claim.customer.to_string(),
        generation: claim.generation,
    })
}

/// Permission of a caller at one console.
#[derive(Debug, Clone)]
pub struct ConsoleAccess {
    /// The member.
    pub caller: Caller,
    /// The node at the time of the check.
    pub record: NodeRecord,
    /// The role of the API key with which the member calls; none: another login.
    key_role: Option<Role>,
}

impl ConsoleAccess {
    /// Checks whether a member may look at a node's console or, with `types`, type. Nodes of other customers are not
    /// found.
    ///
    /// # Errors
    /// The node does not exist for the caller, is not handed over or is in doubt, or the caller's role may not do this.
    pub async fn new(core: &Core, caller: Caller, node: &NodeId, types: bool) -> Result<Self, ApiError> {
        if caller.role == Role::Auditor {
            let message = format!("{:?} is an auditor; auditors have no access to consoles", caller.name);
            return Err(ApiError::Forbidden(message));
        }
        let record = core.store.node(&caller.scope, node).await?;
        if types && caller.role == Role::Viewer {
            let message = format!("{:?} is a viewer; viewers may not type: attach read-only", caller.name);
            return Err(ApiError::Forbidden(message));
        }
        if record.node.doubt.is_some() {
            return Err(ApiError::precondition(
                format!("nodes/{node}"),
                format!("node {node} may have another owner than its record says: its console is closed"),
                "an operator resolves the doubt with `rackwright node believe` or `rackwright node readmit`",
            ));
        }
        if caller.scope != Scope::Site && !holder(&record).held {
            return Err(ApiError::precondition(
                format!("nodes/{node}"),
                format!("node {node} is not handed over yet: until then only members of the site may use its console"),
                "wait until the node is active",
            ));
        }
        Ok(Self {
            caller,
            record,
            key_role: None,
        })
    }

    /// The permission, limited by the role of an API key at each later check too. The caller of `new` has this role already.
    #[must_use]
    pub fn of_key(self, key_role: Option<Role>) -> Self {
        Self { key_role, ..self }
    }

    /// Checks the permission again: role, owner of the node, and for members of customers the claim.
    ///
    /// # Errors
    /// The reason why the permission ended, as a sentence.
    pub async fn recheck(&self, core: &Core, types: bool) -> Result<(), String> {
        let now = async {
            let caller = of_member(core, &self.caller.name, self.caller.epoch).await?;
            let caller = match self.key_role {
                Some(role) => limited(caller, role)?,
                None => caller,
            };
            Self::new(core, caller, &self.record.id, types).await
        };
        match now.await {
            // A session stays while the database is unavailable: no node changes hands without the database.
            Err(ApiError::Store(error)) if error.is_retryable() => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(now) if now.record.uid != self.record.uid => Err("the node was enrolled again".into()),
            Ok(now) if self.caller.scope == Scope::Site || holder(&now.record) == holder(&self.record) => Ok(()),
            Ok(_) => Err("the owner of the node has changed".into()),
        }
    }

    /// Whether the caller may read a part of a recording. Customers read the output of their current claim only.
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
