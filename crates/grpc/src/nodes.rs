//! `NodeService`: stores intent for nodes, and reads their state.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::node_service_server::NodeService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::bmc;
use rackwright_ground::bmc::bmc_password_purpose;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::deployment_keys::new_keys;
use rackwright_ground::intent;
use rackwright_ground::stored;
use rackwright_lifecycle::{
    CustomerId, EventKind, Evidence, Node, NodeId, OperationKind, State, Timestamp, Wait, Wanted,
};
use rackwright_nodes::ethernet::cabling;
use rackwright_store::{
    AgentConnection, BmcAccount, Identity, NodeRecord, PendingPassword, Proof, Readings, Scope, Spec, StoreError,
};
use secrecy::SecretString;
use tokio_stream::Stream;
use tonic::{Code, Request, Response, Status};

use super::call::{MutatingCall, SideChanges};
use super::names::Pages;
use super::{caller, convert, customer_view, doubts, enrolment, erase_chain, explain, fleet, names, watch};

/// Most nodes enrolled with one call.
const BATCH_MAX: usize = 1000;

/// Implements `NodeService`.
#[derive(Debug, Clone)]
pub struct Nodes(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;

impl Nodes {
    async fn read(&self, record: &NodeRecord) -> Result<v1::Node, ApiError> {
        let mut inventory =
            stored::inventory(record.id.as_str(), self.0.store.inventory(&record.id).await?.as_deref())?;
        if let Some(inventory) = &mut inventory {
            cabling::name_neighbours(&self.0, &record.id, &mut inventory.nics).await?;
        }
        Ok(convert::node(&self.0, record, inventory, clock::now()))
    }

    /// Refuses to delete a node that is a cluster's: also a lost one without a claim, which the cluster still replaces.
    async fn check_no_cluster(&self, record: &NodeRecord) -> Result<(), ApiError> {
        match self.0.store.cluster_of_node(&record.id).await? {
            Some(cluster) => Err(intent::leaves_cluster(record, &cluster)),
            None => Ok(()),
        }
    }

    fn sealed(&self, id: &NodeId, password: &str) -> Result<Vec<u8>, ApiError> {
        let secret = SecretString::from(password.to_owned());
        let purpose = bmc_password_purpose(id);
        self.0
            .keys
            .sealer
            .seal(&secret, &purpose)
            .map_err(|e| ApiError::Internal(e.to_string()))
    }

    pub(super) fn new_record(&self, request: &v1::EnrollNodeRequest, now: Timestamp) -> Result<NodeRecord, ApiError> {
        let id = names::chosen("node_id", NodeId::parse(&request.node_id))?;
        let spec = request.spec.clone().unwrap_or_default();
        let bmc = spec.bmc.unwrap_or_default();
        // Without a password, the factory list provides one.
        let sealed = match bmc.password.as_str() {
            "" => Vec::new(),
            password => self.sealed(&id, password)?,
        };
        let spec = Spec {
            bmc_password: sealed,
            bmc_address: bmc.address,
            bmc_username: bmc.username,
            bmc_certificate: bmc.certificate_sha256.to_ascii_lowercase(),
            bmc_system: bmc.system,
            sku: enrolment::sku(&spec.sku),
            boot_macs: enrolment::boot_macs(&spec.boot_macs)?,
            account: BmcAccount::default(),
            settings_job: Vec::new(),
            tpm_ek: request.tpm_ek.to_ascii_lowercase(),
        };
        let node = Node {
            state: State::Discovered,
            since: now,
            generation: 0,
            claim: None,
            wanted: Wanted::default(),
            evidence: Evidence::default(),
            doubt: None,
        };
        Ok(NodeRecord {
            id,
            uid: self.0.new_id(),
            version: 1,
            node,
            spec,
            labels: request.labels.clone().into_iter().collect(),
            identity: Identity::default(),
            reason: String::new(),
            readings: Readings::default(),
            hold: AgentConnection::default(),
            address: String::new(),
            address_witness: String::new(),
            wait: Wait::Rest,
            wait_until: Timestamp::default(),
            due_at: now,
            created_at: now,
            updated_at: now,
        })
    }

    pub(super) async fn resolve_image(&self, deployment: &v1::Deployment) -> Result<intent::Image, ApiError> {
        let field = "deployment.image";
        let (image, digest) = match deployment.image.split_once("/versions/") {
            Some((image, digest)) => (image, Some(digest)),
            None => (deployment.image.as_str(), None),
        };
        let id = names::image_id(field, image)?;
        let versions = self.0.store.image_versions(&id).await?;
        let version = versions.iter().find(|v| digest.is_none_or(|d| v.digest == d));
        let version = version.ok_or_else(|| ApiError::NotFound {
            kind: "image",
            name: deployment.image.clone(),
        })?;
        Ok(intent::Image {
            name: format!("images/{id}"),
            digest: version.digest.clone(),
        })
    }

    /// Claims a free node. A node that leaves a cluster may still be in the cluster's partition. It is free only after
    /// its removal from the partition is proven, and until then it counts as a node of the cluster.
    pub(super) async fn deploy(
        &self,
        call: &MutatingCall<'_>,
        id: &NodeId,
        deployment: v1::Deployment,
    ) -> Result<v1::Operation, ApiError> {
        // If a cluster claims the node after this read, the deployment is refused for the claim.
        let cluster = self.0.store.cluster_of_node(id).await?;
        let change = |record: &mut NodeRecord, deployment: &v1::Deployment, image: intent::Image| match &cluster {
            Some(cluster) => Err(intent::leaves_cluster(record, cluster)),
            None => intent::deploy(record, deployment, image),
        };
        self.claim(call, id, OperationKind::Deploy, deployment, change).await
    }

    pub(super) async fn claim(
        &self,
        call: &MutatingCall<'_>,
        id: &NodeId,
        kind: OperationKind,
        deployment: v1::Deployment,
        change: impl FnOnce(&mut NodeRecord, &v1::Deployment, intent::Image) -> Result<(u64, u32), ApiError>,
    ) -> Result<v1::Operation, ApiError> {
        // Errors count only after the replay check: image and customer of a repeated request may be gone.
        let image = self.resolve_image(&deployment).await;
        let customer = CustomerId::named(&deployment.customer);
        let customer = self.0.sites.check_customer(&self.0.store, &customer).await;
        call.node_operation(id, kind, |record| {
            let image = image?;
            let reason = std::mem::take(&mut record.reason);
            if call.caller().scope == Scope::Site {
                // A refusal contains the reason, which may mention others, so only the site may see it.
                record.reason.clone_from(&reason);
            }
            let (generation, number) = change(record, &deployment, image)?;
            // Checked afterwards: a reimage for another customer has a refusal of its own.
            customer?.map_err(|fault| ApiError::invalid("deployment.customer", fault))?;
            record.reason = reason;
            let keys = new_keys(&self.0, id, (generation, number), &deployment.user_data)?;
            if let Some(claim) = &record.node.claim {
                rackwright_nodes::perform::seed_files(&self.0, record, claim, &keys)
                    .map_err(|fault| ApiError::invalid("deployment", fault))?;
            }
            Ok(SideChanges {
                keys: Some((generation, number, keys)),
                ..SideChanges::default()
            })
        })
        .await
    }

    async fn proofs<M: prost::Message + Default>(
        &self,
        scope: &Scope,
        kind: Proof,
        parent: &str,
        size: i32,
        token: &str,
    ) -> Result<(Vec<M>, String), ApiError> {
        let id = &names::node_id("parent", parent)?;
        let limit = names::page_size(size)?;
        let list = match kind {
            Proof::Report => "ListReports",
            Proof::EraseCertificate => "ListEraseCertificates",
        };
        let pages = Pages {
            list,
            narrowed: parent,
            limit,
        };
        let before = pages.after(token)?.parse().unwrap_or(i64::MAX);
        if *scope != Scope::Site {
            // The site keeps proofs of deleted nodes too; customers must not see these.
            self.0.store.node(scope, id).await?;
        }
        let rows = self.0.store.proofs(scope, kind, id, before, limit).await?;
        let next = pages.token(rows.len(), rows.last().map(|(position, _)| position.to_string()));
        let messages = rows
            .iter()
            .map(|(_, body)| M::decode(body.as_slice()).map_err(|e| ApiError::Internal(e.to_string())))
            .collect::<Result<_, _>>()?;
        Ok((messages, next))
    }
}

/// A request and its labels, which have no order.
fn without_labels(request: &v1::EnrollNodeRequest) -> (v1::EnrollNodeRequest, HashMap<String, String>) {
    let mut rest = request.clone();
    let labels = std::mem::take(&mut rest.labels);
    (rest, labels)
}

#[tonic::async_trait]
impl NodeService for Nodes {
    type WatchNodesStream = Pin<Box<dyn Stream<Item = Result<v1::WatchNodesResponse, Status>> + Send>>;

    async fn enroll_node(&self, request: Request<v1::EnrollNodeRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let (plain, labels) = without_labels(&request);
        let mutation = request.mutation.as_ref();
        let call = MutatingCall::with_maps(&self.0, &caller, "EnrollNode", mutation, &plain, &[labels])?;
        enrolment::none(enrolment::faults(&request))?;
        let record = self.new_record(&request, call.now())?;
        let mut tx = match call.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        tx.insert_node(&record).await.map_err(ApiError::from)?;
        let operation = call.new_operation(OperationKind::Enroll, &format!("nodes/{}", record.id), 7 * 24 * 60);
        tx.insert_operation(&operation).await.map_err(ApiError::from)?;
        let event = call.event(
            EventKind::Requested,
            &operation.target,
            format!("{} enrolled {}", caller.name, record.id),
        );
        tx.add_event(&event).await.map_err(ApiError::from)?;
        let response = call.end(tx, convert::operation(&operation, None)).await?;
        self.0.running_steps.due.notify_one();
        Ok(Response::new(response))
    }

    async fn batch_enroll_nodes(
        &self,
        request: Request<v1::BatchEnrollNodesRequest>,
    ) -> Answer<v1::BatchEnrollNodesResponse> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let (requests, labels): (_, Vec<_>) = request.requests.iter().map(without_labels).unzip();
        let plain = v1::BatchEnrollNodesRequest {
            requests,
            mutation: request.mutation.clone(),
        };
        let mutation = request.mutation.as_ref();
        let call = MutatingCall::with_maps(&self.0, &caller, "BatchEnrollNodes", mutation, &plain, &labels)?;
        if request.requests.is_empty() || request.requests.len() > BATCH_MAX {
            return Err(ApiError::invalid("requests", format!("must have 1 to {BATCH_MAX} entries")).into());
        }
        enrolment::none(enrolment::batch_faults(&request))?;
        let records = request.requests.iter().map(|one| self.new_record(one, call.now()));
        let records: Vec<NodeRecord> = records.collect::<Result<_, _>>()?;
        let mut tx = match call.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        let (mut operations, mut taken) = (Vec::new(), Vec::new());
        for (i, record) in records.iter().enumerate() {
            match tx.insert_node(record).await {
                Err(StoreError::Exists { id, .. }) => {
                    taken.push((format!("requests[{i}].node_id"), format!("node {id:?} exists already")));
                    continue;
                }
                other => other.map_err(ApiError::from)?,
            }
            let operation = call.new_operation(OperationKind::Enroll, &format!("nodes/{}", record.id), 7 * 24 * 60);
            tx.insert_operation(&operation).await.map_err(ApiError::from)?;
            let event = call.event(
                EventKind::Requested,
                &operation.target,
                format!("{} enrolled {}", caller.name, record.id),
            );
            tx.add_event(&event).await.map_err(ApiError::from)?;
            operations.push(convert::operation(&operation, None));
        }
        if !taken.is_empty() {
            return Err(ApiError::Taken(taken).into());
        }
        let response = call.end(tx, v1::BatchEnrollNodesResponse { operations }).await?;
        self.0.running_steps.due.notify_one();
        Ok(Response::new(response))
    }

    async fn get_node(&self, request: Request<v1::GetNodeRequest>) -> Answer<v1::Node> {
        let scope = caller::tenant(&self.0, &request).await?.scope;
        let request = request.into_inner();
        let id = &names::node_id("name", &request.name)?;
        let record = self.0.store.node(&scope, id).await.map_err(ApiError::from)?;
        let node = self.read(&record).await?;
        Ok(Response::new(customer_view::masked(
            &scope,
            node,
            request.read_mask.as_ref(),
        )?))
    }

    async fn list_nodes(&self, request: Request<v1::ListNodesRequest>) -> Answer<v1::ListNodesResponse> {
        let scope = caller::tenant(&self.0, &request).await?.scope;
        let request = request.into_inner();
        let filter = names::parse_filter(&request.filter, customer_view::node_filter(&scope))?;
        names::mask_node(v1::Node::default(), request.read_mask.as_ref())?;
        let order = fleet::order(&scope, &request.order_by)?;
        let limit = names::page_size(request.page_size)?;
        let narrowed = match request.order_by.is_empty() {
            true => request.filter.clone(),
            false => format!("{}\n{}", request.filter, request.order_by),
        };
        let pages = Pages {
            list: "ListNodes",
            narrowed: &narrowed,
            limit,
        };
        let after = fleet::place(order, pages.after(&request.page_token)?)?;
        let store = &self.0.store;
        let records = store
            .nodes_in_order(&scope, &filter, order, after.as_ref(), limit)
            .await;
        let records = records.map_err(ApiError::from)?;
        let last = records.last().map(|record| order.place(record).to_string());
        let next_page_token = pages.token(records.len(), last);
        let now = clock::now();
        let nodes = records
            .iter()
            .map(|r| customer_view::masked(&scope, convert::node(&self.0, r, None, now), request.read_mask.as_ref()))
            .collect::<Result<_, _>>()?;
        Ok(Response::new(v1::ListNodesResponse { nodes, next_page_token }))
    }

    async fn summarize_fleet(&self, request: Request<v1::SummarizeFleetRequest>) -> Answer<v1::FleetSummary> {
        let scope = caller::tenant(&self.0, &request).await?.scope;
        let filter = names::parse_filter(&request.into_inner().filter, customer_view::node_filter(&scope))?;
        let counts = self
            .0
            .store
            .count_nodes(&scope, &filter)
            .await
            .map_err(ApiError::from)?;
        Ok(Response::new(fleet::summary(&scope, &counts)))
    }

    async fn update_node(&self, request: Request<v1::UpdateNodeRequest>) -> Answer<v1::Node> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let mut plain = request.clone();
        let metadata = plain.node.as_mut().and_then(|n| n.metadata.as_mut());
        let labels = metadata.map(|m| std::mem::take(&mut m.labels)).unwrap_or_default();
        let (mutation, maps) = (request.mutation.as_ref(), [labels.clone()]);
        let call = MutatingCall::with_maps(&self.0, &caller, "UpdateNode", mutation, &plain, &maps)?;
        let node = request.node.clone().unwrap_or_default();
        let id = &names::node_id("node.name", &node.name)?;
        let spec = node.spec.clone().unwrap_or_default();
        let bmc = spec.bmc.clone().unwrap_or_default();
        let paths = names::update_paths(&node, request.update_mask.as_ref())?;
        let response = call
            .node_change(id, "change", |record| {
                for path in &paths {
                    match path.as_str() {
                        "metadata.labels" => {
                            enrolment::none(enrolment::label_faults(&labels))?;
                            record.labels = labels.clone().into_iter().collect();
                        }
                        "spec.sku" => {
                            enrolment::none(enrolment::sku_faults(&spec.sku))?;
                            record.spec.sku = enrolment::sku(&spec.sku);
                        }
                        "spec.boot_macs" => intent::boot_macs(record, enrolment::boot_macs(&spec.boot_macs)?)?,
                        "spec.bmc.address" => record.spec.bmc_address.clone_from(&bmc.address),
                        "spec.bmc.username" => {
                            if record.spec.bmc_username != bmc.username {
                                record.spec.account = account_after_new_login(&record.spec.account);
                            }
                            record.spec.bmc_username.clone_from(&bmc.username);
                        }
                        "spec.bmc.password" => {
                            enrolment::none(enrolment::password_faults(&bmc.password))?;
                            record.spec.bmc_password = self.sealed(id, &bmc.password)?;
                            record.spec.account = account_after_new_login(&record.spec.account);
                        }
                        "spec.bmc.certificate_sha256" => {
                            record.spec.bmc_certificate = bmc.certificate_sha256.to_ascii_lowercase();
                        }
                        "spec.bmc.system" => record.spec.bmc_system.clone_from(&bmc.system),
                        other => return Err(ApiError::invalid("update_mask", format!("{other:?} cannot be changed"))),
                    }
                }
                if paths.iter().any(|path| path.starts_with("spec.bmc.")) {
                    let is_given = paths.iter().any(|path| path == "spec.bmc.password");
                    over_ipmi(record, is_given.then_some(bmc.password.as_str()))?;
                }
                enrolment::none(enrolment::bmc_faults(&v1::Bmc {
                    address: record.spec.bmc_address.clone(),
                    username: record.spec.bmc_username.clone(),
                    password: String::new(),
                    certificate_sha256: record.spec.bmc_certificate.clone(),
                    system: record.spec.bmc_system.clone(),
                }))
            })
            .await?;
        // A changed label needs no new login.
        if paths.iter().any(|path| path.starts_with("spec.bmc.")) {
            self.0.bmcs.forget(id).await;
        }
        Ok(Response::new(response))
    }

    async fn delete_node(&self, request: Request<v1::DeleteNodeRequest>) -> Answer<()> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "DeleteNode", request.mutation.as_ref(), &request)?;
        let id = &names::node_id("name", &request.name)?;
        let mut tx = match call.begin::<()>().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        let record = tx.node(id).await.map_err(ApiError::from)?;
        call.check_version(&request.name, record.version)?;
        intent::check_not_doubted(&record, "delete")?;
        intent::delete(&record)?;
        self.check_no_cluster(&record).await?;
        for operation in tx.open_operations(&request.name).await.map_err(ApiError::from)? {
            let (code, message) = (Code::Aborted as i32, format!("{} deleted the node", caller.name));
            let ended = tx.end_operation(&operation.id, code, &message, call.now()).await;
            ended.map_err(ApiError::from)?;
        }
        tx.forget_permits(id, call.now()).await.map_err(ApiError::from)?;
        tx.delete_node(&record).await.map_err(ApiError::from)?;
        let event = call.event(
            EventKind::Deleted,
            &request.name,
            format!("{} deleted {id}", caller.name),
        );
        tx.add_event(&event).await.map_err(ApiError::from)?;
        call.end(tx, ()).await?;
        if let Some(session) = self.0.agents.session(id) {
            session.end.cancel();
        }
        self.0.bmcs.forget(id).await;
        Ok(Response::new(()))
    }

    async fn watch_nodes(&self, request: Request<v1::WatchNodesRequest>) -> Answer<Self::WatchNodesStream> {
        let scope = caller::tenant(&self.0, &request).await?.scope;
        let filter = names::parse_filter(&request.into_inner().filter, customer_view::node_filter(&scope))?;
        Ok(Response::new(Box::pin(watch::nodes(self.0.clone(), scope, filter))))
    }

    async fn set_node_power(&self, request: Request<v1::SetNodePowerRequest>) -> Answer<v1::Operation> {
        let caller = caller::user(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "SetNodePower", request.mutation.as_ref(), &request)?;
        let id = &names::node_id("name", &request.name)?;
        let (action, now) = (request.action(), call.now());
        let change = |record: &mut NodeRecord| {
            if caller.scope.customer().is_some() {
                intent::check_power_of_customer(record, action)?;
            }
            intent::power(record, action, now).map(|()| SideChanges::default())
        };
        let operation = call.node_operation(id, OperationKind::Power, change).await?;
        Ok(Response::new(customer_view::operation(&caller.scope, operation)))
    }

    async fn deploy_node(&self, request: Request<v1::DeployNodeRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "DeployNode", request.mutation.as_ref(), &request)?;
        let id = &names::node_id("name", &request.name)?;
        let deployment = request.deployment.clone().unwrap_or_default();
        Ok(Response::new(self.deploy(&call, id, deployment).await?))
    }

    async fn reimage_node(&self, request: Request<v1::ReimageNodeRequest>) -> Answer<v1::Operation> {
        let caller = caller::user(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "ReimageNode", request.mutation.as_ref(), &request)?;
        let id = &names::node_id("name", &request.name)?;
        let deployment = request.deployment.clone().unwrap_or_default();
        customer_view::check_deployment(&caller.scope, &deployment)?;
        let operation = self
            .claim(&call, id, OperationKind::Reimage, deployment, intent::reimage)
            .await?;
        Ok(Response::new(customer_view::operation(&caller.scope, operation)))
    }

    async fn release_node(&self, request: Request<v1::ReleaseNodeRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "ReleaseNode", request.mutation.as_ref(), &request)?;
        let id = &names::node_id("name", &request.name)?;
        let change = |record: &mut NodeRecord| intent::release(record).map(|()| SideChanges::default());
        Ok(Response::new(
            call.node_operation(id, OperationKind::Release, change).await?,
        ))
    }

    async fn hold_node(&self, request: Request<v1::HoldNodeRequest>) -> Answer<v1::Node> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "HoldNode", request.mutation.as_ref(), &request)?;
        let id = &names::node_id("name", &request.name)?;
        Ok(Response::new(
            call.node_change(id, "hold", |r| intent::hold(r, &request.reason))
                .await?,
        ))
    }

    async fn resume_node(&self, request: Request<v1::ResumeNodeRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "ResumeNode", request.mutation.as_ref(), &request)?;
        let id = &names::node_id("name", &request.name)?;
        let confirmed = request.confirm_erase;
        let change = |record: &mut NodeRecord| intent::resume(record, confirmed).map(|()| SideChanges::default());
        Ok(Response::new(
            call.node_operation(id, OperationKind::Resume, change).await?,
        ))
    }

    async fn quarantine_node(&self, request: Request<v1::QuarantineNodeRequest>) -> Answer<v1::Node> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "QuarantineNode", request.mutation.as_ref(), &request)?;
        let id = &names::node_id("name", &request.name)?;
        Ok(Response::new(
            call.node_change(id, "quarantine", |r| intent::quarantine(r, &request.reason))
                .await?,
        ))
    }

    async fn readmit_node(&self, request: Request<v1::ReadmitNodeRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "ReadmitNode", request.mutation.as_ref(), &request)?;
        let id = &names::node_id("name", &request.name)?;
        let (confirmed, accepts_drives) = (request.confirm_erase, request.accept_drives);
        let accepts_tpm = enrolment::accepted_tpm(&request.accept_tpm)?;
        let side_changes = SideChanges {
            accepts_drives,
            accepts_tpm,
            ..SideChanges::default()
        };
        let change = |record: &mut NodeRecord| intent::readmit(record, confirmed).map(|()| side_changes);
        Ok(Response::new(
            call.node_operation(id, OperationKind::Readmit, change).await?,
        ))
    }

    async fn retry_node(&self, request: Request<v1::RetryNodeRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "RetryNode", request.mutation.as_ref(), &request)?;
        let id = &names::node_id("name", &request.name)?;
        let change = |record: &mut NodeRecord| intent::retry(record).map(|()| SideChanges::default());
        Ok(Response::new(
            call.node_operation(id, OperationKind::Retry, change).await?,
        ))
    }

    async fn believe_node(&self, request: Request<v1::BelieveNodeRequest>) -> Answer<v1::Node> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "BelieveNode", request.mutation.as_ref(), &request)?;
        let id = &names::node_id("name", &request.name)?;
        Ok(Response::new(
            doubts::believe(&self.0, &call, id, &request.reason).await?,
        ))
    }

    async fn explain_node(&self, request: Request<v1::ExplainNodeRequest>) -> Answer<v1::Explanation> {
        caller::member(&self.0, &request).await?;
        let id = &names::node_id("name", &request.get_ref().name)?;
        Ok(Response::new(explain::explain(&self.0, id).await?))
    }

    async fn list_reports(&self, request: Request<v1::ListReportsRequest>) -> Answer<v1::ListReportsResponse> {
        let scope = caller::tenant(&self.0, &request).await?.scope;
        let r = request.into_inner();
        let (reports, next_page_token) = self
            .proofs(&scope, Proof::Report, &r.parent, r.page_size, &r.page_token)
            .await?;
        Ok(Response::new(v1::ListReportsResponse {
            reports,
            next_page_token,
        }))
    }

    async fn list_erase_certificates(
        &self,
        request: Request<v1::ListEraseCertificatesRequest>,
    ) -> Answer<v1::ListEraseCertificatesResponse> {
        caller::member(&self.0, &request).await?;
        let r = request.into_inner();
        let kind = Proof::EraseCertificate;
        let (erase_certificates, next_page_token) = self
            .proofs(&Scope::Site, kind, &r.parent, r.page_size, &r.page_token)
            .await?;
        Ok(Response::new(v1::ListEraseCertificatesResponse {
            erase_certificates,
            next_page_token,
            signing_keys: erase_chain::signing_keys(&self.0),
        }))
    }

    async fn list_erase_chain(
        &self,
        request: Request<v1::ListEraseChainRequest>,
    ) -> Answer<v1::ListEraseChainResponse> {
        caller::member(&self.0, &request).await?;
        Ok(Response::new(erase_chain::list(&self.0, request.get_ref()).await?))
    }
}

/// Checks a node with a BMC that is now reached over IPMI. Over IPMI there is no way to find out which of two passwords is
/// valid.
fn over_ipmi(record: &mut NodeRecord, given: Option<&str>) -> Result<(), ApiError> {
    if !bmc::is_ipmi(&record.spec) {
        return Ok(());
    }
    if let Some(password) = given {
        enrolment::none(enrolment::ipmi_password_faults(&record.spec.bmc_address, password))?;
        record.spec.account.pending = None;
    }
    if record.spec.account.pending.is_none() {
        return Ok(());
    }
    Err(ApiError::precondition(
        format!("nodes/{}", record.id),
        "the password of its BMC is being changed, and over IPMI Rackwright cannot test the old and the new password",
        "wait until the change has ended, or set the valid password with --password-file",
    ))
}

/// The account state that stays when an operator gives a new name or password. Former refusals do not count any more. A
/// password change in progress continues, because the BMC may have applied it. Login tries still count, because the BMC
/// counts them.
fn account_after_new_login(account: &BmcAccount) -> BmcAccount {
    let pending = account.pending.as_ref().map(|pending| PendingPassword {
        refused_new: 0,
        refused_old: 0,
        ..pending.clone()
    });
    BmcAccount {
        pending,
        tries: account.tries.clone(),
        lockout: account.lockout,
        asked_at: account.asked_at,
        ..BmcAccount::default()
    }
}

#[cfg(test)]
mod tests;
