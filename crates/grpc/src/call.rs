//! The common steps of a mutating call: replay, read, check, change, store, answer.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use prost::Message;
use rackwright_api::v1::{Mutation, Operation};
use rackwright_ground::api_error::ApiError;
use rackwright_ground::audit::call;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::intent;
use rackwright_lifecycle::{EventKind, NodeId, OperationId, OperationKind, Timestamp, minutes};
use rackwright_nodes::drives;
use rackwright_store::{DeploymentKeys, EventRow, NodeRecord, OperationRow, RequestKey, Scope, StoreError, WriteTx};
use secrecy::ExposeSecret as _;

use super::caller::Caller;
use super::convert;

/// Purpose for which the key of request digests is derived.
const DIGEST_KEY: &str = "request-digests";

/// One mutating call.
#[derive(Debug)]
pub struct MutatingCall<'a> {
    core: &'a Core,
    caller: &'a Caller,
    key: RequestKey,
    resource_version: String,
    /// Whether the call compared the given version.
    is_compared: AtomicBool,
    now: Timestamp,
}

/// Changes that a call makes in addition to the node.
#[derive(Debug, Default)]
pub struct SideChanges {
    /// Keys of a new deployment: generation, number of the deployment, keys.
    pub keys: Option<(u64, u32, DeploymentKeys)>,
    /// Whether the last reported drives become the recorded drives.
    pub accepts_drives: bool,
    /// The TPM to enrol; an empty one removes the enrolled TPM.
    pub accepts_tpm: Option<String>,
}

impl<'a> MutatingCall<'a> {
    /// Checks the envelope. The digest of `request` makes sure that the key is not used again for another request.
    ///
    /// # Errors
    /// The idempotency key is missing or malformed.
    pub fn new(
        core: &'a Core,
        caller: &'a Caller,
        method: &str,
        mutation: Option<&Mutation>,
        request: &impl Message,
    ) -> Result<Self, ApiError> {
        Self::with_maps(core, caller, method, mutation, request, &[])
    }

    /// Like `new`, for a request with its maps taken out. Maps have no order, so equal maps may encode differently;
    /// they are digested in sorted order.
    ///
    /// # Errors
    /// As `new`.
    pub fn with_maps(
        core: &'a Core,
        caller: &'a Caller,
        method: &str,
        mutation: Option<&Mutation>,
        request: &impl Message,
        maps: &[HashMap<String, String>],
    ) -> Result<Self, ApiError> {
        let mutation = mutation.cloned().unwrap_or_default();
        let key = mutation.idempotency_key;
        intent::check_key(&key)?;
        // Keyed: a request may contain a password, and the database alone must not allow guesses against the digest.
        let mut digest = blake3::Hasher::new_keyed(core.keys.sealer.derive(DIGEST_KEY).expose_secret());
        digest.update(&request.encode_to_vec());
        for map in maps {
            let sorted: BTreeMap<&String, &String> = map.iter().collect();
            digest.update(format!("{sorted:?}").as_bytes());
        }
        let digest = digest.finalize().to_hex().to_string();
        Ok(Self {
            core,
            caller,
            key: RequestKey {
                actor: caller.actor(),
                key,
                method: method.to_owned(),
                digest,
            },
            resource_version: mutation.resource_version,
            is_compared: AtomicBool::new(false),
            now: clock::now(),
        })
    }

    /// The member that calls.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        self.caller
    }

    /// Time of the call.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Begins the change. Returns the former answer if the same request was made before.
    ///
    /// # Errors
    /// The key was used for another request.
    pub async fn begin<R: Message + Default>(&self) -> Result<Result<WriteTx, R>, ApiError> {
        let mut tx = self.core.store.write().await?;
        match tx.replay(&self.key).await? {
            Some(bytes) => {
                let response = R::decode(bytes.as_slice())
                    .map_err(|e| ApiError::Internal(format!("a stored answer cannot be read: {e}")))?;
                Ok(Err(response))
            }
            None => Ok(Ok(tx)),
        }
    }

    /// Begins a change with a secret in its answer. Such an answer is not stored, so a repeat is refused.
    ///
    /// # Errors
    /// The key was used before, or the request names a version: what has a secret in its answer has none.
    pub async fn begin_once(&self) -> Result<WriteTx, ApiError> {
        self.check_compared()?;
        let mut tx = self.core.store.write().await?;
        if tx.replay(&self.key).await?.is_none() {
            return Ok(tx);
        }
        let (key, method) = (self.key.key.clone(), self.key.method.clone());
        Err(StoreError::KeyReused { key, method }.into())
    }

    /// Like `end`, for a transaction that was not begun by `begin`. If the same request was faster elsewhere, its
    /// answer is returned.
    ///
    /// # Errors
    /// As `begin` and `end`.
    pub async fn end_in<R: Message + Default>(&self, mut tx: WriteTx, response: R) -> Result<R, ApiError> {
        if let Some(bytes) = tx.replay(&self.key).await? {
            return R::decode(bytes.as_slice())
                .map_err(|e| ApiError::Internal(format!("a stored answer cannot be read: {e}")));
        }
        self.end(tx, response).await
    }

    /// Stores the answer and commits the change.
    ///
    /// # Errors
    /// The request names a version that this call did not compare, or the database failed.
    pub async fn end<R: Message>(&self, mut tx: WriteTx, response: R) -> Result<R, ApiError> {
        self.check_compared()?;
        tx.remember(&self.key, &response.encode_to_vec(), self.now).await?;
        self.core.commit(tx).await?;
        Ok(response)
    }

    /// Refuses a call with a version that it did not compare.
    fn check_compared(&self) -> Result<(), ApiError> {
        if self.resource_version.is_empty() || self.is_compared.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(ApiError::invalid(
            "mutation.resource_version",
            "this call changes no resource with a version; leave the version (If-Match) out",
        ))
    }

    /// Refuses the call if it names a version other than the present one.
    ///
    /// # Errors
    /// `Stale` for another version.
    pub fn check_version(&self, subject: &str, version: i64) -> Result<(), ApiError> {
        self.is_compared.store(true, Ordering::Relaxed);
        if self.resource_version.is_empty() || self.resource_version == version.to_string() {
            return Ok(());
        }
        Err(ApiError::Stale {
            subject: subject.to_owned(),
            found: version.to_string(),
            given: self.resource_version.clone(),
        })
    }

    /// Refuses changes that a doubted node does not allow. Customers do not see the reason of the doubt.
    fn check_not_doubted(&self, record: &NodeRecord, kind: &str) -> Result<(), ApiError> {
        let answer = intent::check_not_doubted(record, kind);
        match self.caller.scope {
            Scope::Site => answer,
            Scope::Customer(_) => answer.map_err(|_| {
                let message = format!("the site's operators must check {} first", record.id);
                ApiError::precondition(format!("nodes/{}", record.id), message, "ask the site's operators")
            }),
        }
    }

    /// A new operation row of this call.
    #[must_use]
    pub fn new_operation(&self, kind: OperationKind, target: &str, deadline_min: i64) -> OperationRow {
        let id = OperationId::stored(self.core.new_id());
        call::note_operation(&id);
        OperationRow {
            id,
            version: 1,
            kind,
            target: target.to_owned(),
            requested_by: self.caller.name.clone(),
            created_at: self.now,
            deadline: self.now.plus(minutes(deadline_min)),
            ..OperationRow::default()
        }
    }

    /// An event about the caller's action, for actions without an edge.
    #[must_use]
    pub fn event(&self, kind: EventKind, target: &str, message: String) -> EventRow {
        EventRow {
            at: self.now,
            kind,
            target: target.to_owned(),
            message,
            attributes: [("by".to_owned(), self.caller.name.clone())].into(),
            ..EventRow::default()
        }
    }

    /// Changes the intent of a node. Returns the operation that follows it.
    ///
    /// # Errors
    /// The errors of `change`, or another call changed the node at the same time.
    pub async fn node_operation(
        &self,
        id: &NodeId,
        kind: OperationKind,
        change: impl FnOnce(&mut NodeRecord) -> Result<SideChanges, ApiError>,
    ) -> Result<Operation, ApiError> {
        let mut tx = match self.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(former),
        };
        let mut record = tx.node_of(&self.caller.scope, id).await?;
        self.check_version(&format!("nodes/{id}"), record.version)?;
        self.check_not_doubted(&record, kind.as_str())?;
        let side_changes = change(&mut record)?;
        if kind == OperationKind::Deploy {
            // Read in the same change: an update begins in a change that reads the node, too.
            intent::check_no_begun_update(&record, tx.firmware_update(id).await?.is_some())?;
        }
        if side_changes.accepts_drives && !drives::accept(&mut tx, &mut record, &self.caller.name, self.now).await? {
            return Err(ApiError::precondition(
                format!("nodes/{id}"),
                "no report of its drives differed from the record, so there is nothing to accept",
                "readmit it without accepting drives (the CLI: without --accept-drives)",
            ));
        }
        if let Some(ek) = side_changes.accepts_tpm {
            let by = &self.caller.name;
            let what = if ek.is_empty() { "no TPM" } else { &ek };
            let message = format!("{by} accepted {what} for {id}, in place of {:?}", record.spec.tpm_ek);
            tx.add_event(&self.event(EventKind::SecurityTpmAccepted, &format!("nodes/{id}"), message))
                .await?;
            record.spec.tpm_ek = ek;
        }
        tx.save_node(&mut record, self.now).await?;
        if let Some((generation, deployment, keys)) = side_changes.keys {
            tx.put_deployment_keys(id, generation, deployment, &keys).await?;
        }
        // Long on purpose: each state has a deadline of its own that ends the operation sooner.
        let operation = self.new_operation(kind, &format!("nodes/{id}"), 7 * 24 * 60);
        tx.insert_operation(&operation).await?;
        let message = format!("{} requested {kind} of {id}", self.caller.name);
        tx.add_event(&self.event(EventKind::Requested, &operation.target, message))
            .await?;
        let response = self.end(tx, convert::operation(&operation, None)).await?;
        self.core.notify_due(id);
        Ok(response)
    }

    /// Changes the intent of a node. Returns the node.
    ///
    /// # Errors
    /// The errors of `change`, or another call changed the node at the same time.
    pub async fn node_change(
        &self,
        id: &NodeId,
        kind: &str,
        change: impl FnOnce(&mut NodeRecord) -> Result<(), ApiError>,
    ) -> Result<rackwright_api::v1::Node, ApiError> {
        let mut tx = match self.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(former),
        };
        let mut record = tx.node_of(&self.caller.scope, id).await?;
        self.check_version(&format!("nodes/{id}"), record.version)?;
        self.check_not_doubted(&record, kind)?;
        let (labels, macs) = (record.labels.clone(), record.identity.macs.clone());
        change(&mut record)?;
        if record.identity.macs != macs {
            put_macs(&mut tx, &mut record, &macs).await?;
        }
        tx.save_node(&mut record, self.now).await?;
        if record.labels != labels {
            tx.put_labels(&record).await?;
        }
        let message = format!("{} requested {kind} of {id}", self.caller.name);
        tx.add_event(&self.event(EventKind::Requested, &format!("nodes/{id}"), message))
            .await?;
        let node = convert::node(self.core, &record, None, self.now);
        let response = self.end(tx, node).await?;
        self.core.notify_due(id);
        Ok(response)
    }
}

/// Stores the changed MAC addresses of a node, and ends the boot tokens of the removed ones. If a node with one of them was
/// deleted while it held data, this node holds the data.
///
/// # Errors
/// Another node has one of them, or a free node would hold data.
async fn put_macs(tx: &mut WriteTx, record: &mut NodeRecord, former: &[String]) -> Result<(), ApiError> {
    tx.put_macs(&record.id, &record.identity.macs).await?;
    for gone in former.iter().filter(|mac| !record.identity.macs.contains(mac)) {
        tx.revoke_tokens("boot", gone).await?;
        tx.revoke_tokens("agent", gone).await?;
    }
    if let Some(written_at) = tx.take_unerased(&record.identity.macs).await? {
        if intent::is_free(record) {
            let what = "a node with one of these MAC addresses was deleted while it held data";
            let hint = format!(
                "`rackwright node hold {0}`, then set the address, then `rackwright node readmit {0}`, which erases it",
                record.id
            );
            return Err(intent::refused(record, what, &hint));
        }
        let before = record.node.evidence.written_at;
        record.node.evidence.written_at = before.max(Some(written_at));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;
    use rackwright_lifecycle::State;

    use super::*;

    const CARD: &str = "94:6d:ae:57:0d:d6";

    /// Gives the node `n1` a MAC address, as the request number `key`.
    async fn give(core: &Core, key: &str, given: &[&str]) -> Result<NodeRecord, ApiError> {
        let caller = Caller {
            name: "ann".into(),
            role: rackwright_api::v1::Role::Operator,
            scope: Scope::Site,
            epoch: 0,
        };
        let mutation = Mutation {
            idempotency_key: key.into(),
            ..Mutation::default()
        };
        let request = rackwright_api::v1::UpdateNodeRequest::default();
        let call = MutatingCall::new(core, &caller, "UpdateNode", Some(&mutation), &request)?;
        let given = given.iter().map(|mac| (*mac).to_owned()).collect();
        call.node_change(&"n1".into(), "change", |record| intent::boot_macs(record, given))
            .await?;
        Ok(core.store.node(&Scope::Site, &"n1".into()).await?)
    }

    async fn with_node_of_mac(state: State) -> testing::TestCore {
        let core = testing::core().await;
        let mut record = testing::node("n1", state, None);
        record.identity.macs = vec!["02:00:00:00:00:01".into()];
        testing::add(&core, &record).await;
        let other = testing::node("n2", State::Available, None);
        testing::add(&core, &other).await;
        let mut tx = core.store.write().await.unwrap();
        tx.put_macs(&"n1".into(), &record.identity.macs).await.unwrap();
        tx.put_macs(&"n2".into(), &["02:00:00:00:00:02".to_owned()])
            .await
            .unwrap();
        tx.commit().await.unwrap();
        core
    }

    #[tokio::test]
    async fn a_given_mac_address_counts_at_once_and_is_no_other_nodes() {
        let core = with_node_of_mac(State::Available).await;
        let record = give(&core, "1", &[CARD]).await.unwrap();
        assert_eq!(record.identity.macs, ["02:00:00:00:00:01", CARD]);
        assert_eq!(core.store.node_of_mac(CARD).await.unwrap(), Some("n1".into()));
        let taken = give(&core, "2", &["02:00:00:00:00:02"]).await.unwrap_err();
        assert!(taken.to_string().contains("n2"), "{taken}");
        let unchanged = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
        assert_eq!(unchanged, record);
        let record = give(&core, "3", &[]).await.unwrap();
        assert_eq!(record.identity.macs, ["02:00:00:00:00:01"]);
        assert_eq!(core.store.node_of_mac(CARD).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_given_mac_address_of_a_machine_with_data_makes_no_free_node_dirty() {
        for (state, is_taken) in [(State::Available, false), (State::Maintenance, true)] {
            let core = with_node_of_mac(state).await;
            let mut former = testing::node("former", State::Quarantined, None);
            former.identity.macs = vec![CARD.to_owned()];
            former.node.evidence.written_at = Some(Timestamp(5));
            testing::add(&core, &former).await;
            let mut tx = core.store.write().await.unwrap();
            let former = tx.node(&"former".into()).await.unwrap();
            tx.delete_node(&former).await.unwrap();
            tx.commit().await.unwrap();
            match give(&core, "1", &[CARD]).await {
                Ok(record) => assert_eq!((record.node.evidence.written_at, is_taken), (Some(Timestamp(5)), true)),
                Err(refused) => {
                    assert!(!is_taken && refused.to_string().contains("held data"), "{refused}");
                    let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
                    assert!(record.node.evidence.is_untouched() && record.spec.boot_macs.is_empty());
                }
            }
        }
    }

    #[tokio::test]
    async fn a_request_digest_reveals_nothing_without_the_key() {
        let (one, other) = (testing::core().await, testing::core().await);
        let caller = Caller {
            name: "ann".into(),
            role: rackwright_api::v1::Role::Operator,
            scope: rackwright_store::Scope::Site,
            epoch: 0,
        };
        let request = rackwright_api::v1::EnrollNodeRequest {
            node_id: "hunter2".into(),
            ..Default::default()
        };
        let mutation = Mutation {
            idempotency_key: "k".into(),
            ..Mutation::default()
        };
        let digest = |core: &Core| {
            let call = MutatingCall::new(core, &caller, "EnrollNode", Some(&mutation), &request);
            call.unwrap().key.digest
        };
        assert_eq!(digest(&one), digest(&one), "the same request is known again");
        assert_ne!(digest(&one), digest(&other), "another site has another key");
        let guess = blake3::hash(&request.encode_to_vec()).to_hex().to_string();
        assert_ne!(digest(&one), guess);
    }
}
