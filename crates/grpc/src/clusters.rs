//! `ClusterService`: changes of clusters, and their state.

mod changes;
mod messages;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::cluster_service_server::ClusterService;
use rackwright_control::clusters;
use rackwright_control::clusters::cluster_partitions::ClusterPartitions;
use rackwright_control::clusters::reserve::{self, ReserveError};
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::hall::{self, HallError};
use rackwright_ground::text::counted;
use rackwright_ground::user_data;
use rackwright_lifecycle::cluster::{Edge, Standing, State};
use rackwright_lifecycle::{ClusterId, CustomerId, EventKind, NodeId, OperationKind, Timestamp};
use rackwright_store::{ClusterRecord, ClusterSpec, Scope};
use tonic::{Code, Request, Response, Status};

use self::messages::{message, partition, replacement, transition};
use super::call::MutatingCall;
use super::names::Pages;
use super::nodes::Nodes;
use super::{caller, convert, customer_view, doubts, enrolment, names};

/// Fields that a filter over clusters may use.
const FILTER_FIELDS: &[&str] = &["state", "customer", "name"];
/// Most edges in a cluster's history.
const HISTORY: i64 = 100;
/// Longest reason, in characters.
const REASON_MAX: usize = 500;
/// A build may take long. The cluster's own deadline ends it sooner, unless an operator retries it.
const OPERATION_MIN: i64 = 7 * 24 * 60;

/// Implements `ClusterService`.
#[derive(Debug, Clone)]
pub struct Clusters(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;

/// Checks the parts of a spec that do not depend on the site. Returns every fault.
fn spec_faults(spec: &v1::ClusterSpec) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    let mut need = |field: &str, value: &str| {
        if value.is_empty() {
            faults.push((format!("spec.{field}"), "is required".to_owned()));
        }
    };
    need("customer", &spec.customer);
    need("sku", &spec.sku);
    if let Some(deployment) = &spec.deployment {
        if !deployment.hostname.is_empty() {
            let fault = "must be empty: the hostname of each node of a cluster is its own name";
            faults.push(("spec.deployment.hostname".into(), fault.into()));
        }
        if !deployment.customer.is_empty() && deployment.customer != spec.customer {
            let fault = "must be empty or equal to spec.customer";
            faults.push(("spec.deployment.customer".into(), fault.into()));
        }
    }
    faults
}

impl Clusters {
    /// The reservation for a request, with its image resolved if `with_image`.
    async fn reserve_request(
        &self,
        id: &str,
        spec: &v1::ClusterSpec,
        with_image: bool,
    ) -> Result<reserve::Asked, ApiError> {
        let id = names::chosen("cluster_id", ClusterId::parse(id))?;
        enrolment::none(spec_faults(spec))?;
        let deployment = spec.deployment.clone().unwrap_or_default();
        let image = if with_image {
            if deployment.image.is_empty() {
                return Err(ApiError::invalid("spec.deployment.image", "is required"));
            }
            Nodes(self.0.clone()).resolve_image(&deployment).await?
        } else {
            rackwright_ground::intent::Image {
                name: String::new(),
                digest: String::new(),
            }
        };
        let bandwidth = match spec.bandwidth.as_str() {
            "" => "non-blocking".to_owned(),
            words => words.to_owned(),
        };
        let uid = self.0.new_id();
        let user_data = user_data::seal_for_cluster(&self.0.keys.sealer, &deployment.user_data, (&id, &uid, 1));
        let user_data = user_data.map_err(|error| ApiError::unsealed("spec.deployment.user_data", &error))?;
        Ok(reserve::Asked {
            id,
            uid,
            customer: CustomerId::named(&spec.customer),
            spec: ClusterSpec {
                sku: spec.sku.clone(),
                nodes: spec.nodes,
                spares: spec.spares,
                bandwidth,
                image_name: image.name,
                image_digest: image.digest,
                ssh_authorized_keys: deployment.ssh_authorized_keys,
                user_data,
                plain_user_data: String::new(),
                root_drive: deployment.root_drive,
                verify_whole_disk: deployment.verify_whole_disk,
            },
        })
    }

    async fn read(&self, scope: &Scope, record: &ClusterRecord) -> Result<v1::Cluster, ApiError> {
        let store = &self.0.store;
        let nodes = store.nodes_of_cluster(scope, &record.id).await?;
        let spares = match hall::placement_of(record) {
            Ok(placement) => placement.spares,
            Err(_) => Vec::new(),
        };
        let mut standings = clusters::members(&record.id, &nodes, &hall::Units::new());
        let mut own = None;
        if record.partition.is_some() {
            let partitions = ClusterPartitions::of_cluster(store, &record.uid).await;
            own = partition(partitions.map_err(unreadable)?.of(&record.uid), record);
            clusters::impaired(&mut standings, &nodes, &store.impaired_nodes_of(&record.id).await?);
        }
        let member = |(node, member): (&rackwright_store::NodeRecord, &rackwright_lifecycle::cluster::Member)| {
            let reason = match &member.standing {
                Standing::Lost(loss) => loss.to_string(),
                _ => member
                    .impaired
                    .as_ref()
                    .map_or_else(String::new, |link| link.why.clone()),
            };
            v1::ClusterMember {
                node: format!("nodes/{}", node.id),
                spare: spares.iter().any(|spare| node.id == **spare),
                state: convert::state(node.node.state).into(),
                standing: member.standing.as_str().to_owned(),
                reason,
                address: node.address.clone(),
            }
        };
        let mut message = message(record);
        let status = message.status.get_or_insert_default();
        status.members = nodes.iter().zip(&standings).map(member).collect();
        status.rollout = changes::rollout_status(record, &standings);
        let leaving = record.cluster.wanted.leave.iter();
        status.leaving = leaving.map(|node| format!("nodes/{node}")).collect();
        status.history = store
            .cluster_history(&record.id, HISTORY)
            .await?
            .iter()
            .map(transition)
            .collect();
        status.replaced = record.replaced.iter().map(replacement).collect();
        status.partition = own;
        let in_use = standings.iter().filter(|one| one.standing == Standing::HandedOver);
        status.ready_nodes = u32::try_from(in_use.count()).unwrap_or(u32::MAX);
        Ok(customer_view::cluster(scope, message))
    }

    /// A page of clusters, without the parts from single nodes.
    async fn rows(&self, scope: &Scope, records: &[ClusterRecord]) -> Result<Vec<v1::Cluster>, ApiError> {
        let store = &self.0.store;
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return Ok(Vec::new());
        };
        let counts = store.count_cluster_nodes(scope, &first.id, &last.id).await?;
        let partitions = match records.iter().any(|record| record.partition.is_some()) {
            true => {
                let partitions = ClusterPartitions::of_clusters(store, scope, &first.id, &last.id).await;
                Some(partitions.map_err(unreadable)?)
            }
            false => None,
        };
        let row = |record: &ClusterRecord| {
            let mut message = message(record);
            let status = message.status.get_or_insert_default();
            status.ready_nodes = counts.get(&record.id).map_or(0, |count| count.active);
            let stored = partitions.as_ref().map(|partitions| partitions.of(&record.uid));
            status.partition = stored.and_then(|stored| partition(stored, record));
            customer_view::cluster(scope, message)
        };
        Ok(records.iter().map(row).collect())
    }

    pub(super) async fn create(
        &self,
        call: &MutatingCall<'_>,
        request: &v1::CreateClusterRequest,
        caller: &str,
    ) -> Result<v1::Operation, ApiError> {
        match call.begin::<v1::Operation>().await? {
            Ok(tx) => drop(tx),
            Err(former) => return Ok(former),
        }
        let labels: HashMap<String, String> = request.labels.clone();
        enrolment::none(enrolment::label_faults(&labels))?;
        let spec = request.spec.clone().unwrap_or_default();
        let wanted = self.reserve_request(&request.cluster_id, &spec, true).await?;
        let lease_end = lease(spec.lease_end.as_ref(), call.now(), "spec.lease_end")?;
        let labels: BTreeMap<String, String> = labels.into_iter().collect();
        let (mut tx, record) = reserve::create(&self.0, &wanted, lease_end, labels, call.now()).await?;
        let operation = call.new_operation(
            OperationKind::CreateCluster,
            &format!("clusters/{}", record.id),
            OPERATION_MIN,
        );
        tx.insert_operation(&operation).await?;
        let (nodes, customer) = (counted(record.spec.nodes, "node"), &record.customer);
        let message = format!(
            "{caller} requested {}: {nodes} of {} for {customer}",
            record.id, record.spec.sku
        );
        tx.add_event(&call.event(EventKind::Requested, &operation.target, message))
            .await?;
        let response = call.end_in(tx, convert::operation(&operation, None)).await?;
        self.wake();
        self.0.running_steps.due.notify_one();
        Ok(response)
    }

    pub(super) async fn replace(
        &self,
        call: &MutatingCall<'_>,
        request: &v1::ReplaceClusterNodeRequest,
    ) -> Result<v1::Operation, ApiError> {
        let id = &names::cluster_id("name", &request.name)?;
        let node = &names::node_id("node", &request.node)?;
        let change = |record: &mut ClusterRecord| replace(record, node, &request.reason);
        self.operation(call, id, OperationKind::ReplaceNode, change).await
    }

    pub(super) async fn release(&self, call: &MutatingCall<'_>, id: &ClusterId) -> Result<v1::Operation, ApiError> {
        self.operation(call, id, OperationKind::ReleaseCluster, release).await
    }

    fn wake(&self) {
        self.0.clusters_due.notify_one();
        self.0.feature::<clusters::Clusters>().partitions.notify_one();
    }

    /// Changes the intent of a cluster. Returns the operation that follows it.
    async fn operation(
        &self,
        call: &MutatingCall<'_>,
        id: &ClusterId,
        kind: OperationKind,
        change: impl FnOnce(&mut ClusterRecord) -> Result<(), ApiError>,
    ) -> Result<v1::Operation, ApiError> {
        let mut tx = match call.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(former),
        };
        let mut record = tx.cluster_of(&call.caller().scope, id).await?;
        call.check_version(&format!("clusters/{id}"), record.version)?;
        doubts::cluster(&self.0, call, id).await?;
        change(&mut record)?;
        tx.save_cluster(&mut record, call.now()).await?;
        let operation = call.new_operation(kind, &format!("clusters/{id}"), OPERATION_MIN);
        tx.insert_operation(&operation).await?;
        let message = format!("{kind} of {id} was requested");
        tx.add_event(&call.event(EventKind::Requested, &operation.target, message))
            .await?;
        let response = call.end(tx, convert::operation(&operation, None)).await?;
        self.wake();
        Ok(response)
    }
}

/// The error of a partition that cannot be read.
fn unreadable(error: HallError) -> ApiError {
    match error {
        HallError::Broken(why) => ApiError::Internal(why),
        other => other.into(),
    }
}

/// The end of a lease, which must be in the future.
fn lease(end: Option<&prost_types::Timestamp>, now: Timestamp, field: &str) -> Result<Option<Timestamp>, ApiError> {
    let end = end.map(|end| convert::timestamp(Some(end)));
    match end {
        Some(end) if end <= now => Err(ApiError::invalid(field, "must be in the future")),
        end => Ok(end),
    }
}

fn not_now(record: &ClusterRecord, what: &str, hint: &str) -> ApiError {
    let message = format!("{} is {}: {what}", record.id, record.cluster.state);
    ApiError::precondition(format!("clusters/{}", record.id), message, hint)
}

/// Requests the release of a cluster.
fn release(record: &mut ClusterRecord) -> Result<(), ApiError> {
    if Edge::Released.target(record.cluster.state).is_none() {
        let hint = format!("`rackwright cluster get {}` shows its progress", record.id);
        return Err(not_now(record, "the cluster is released or being released", &hint));
    }
    record.cluster.wanted.release = true;
    Ok(())
}

/// Requests the replacement of a node of a cluster.
fn replace(record: &mut ClusterRecord, node: &NodeId, reason: &str) -> Result<(), ApiError> {
    let placement = hall::placement_of(record)?;
    if !placement
        .nodes
        .iter()
        .chain(&placement.spares)
        .any(|one| *node == **one)
    {
        return Err(ApiError::invalid(
            "node",
            format!("{node} is not a node of {}", record.id),
        ));
    }
    if Edge::Released.target(record.cluster.state).is_none() || record.cluster.state == State::Failed {
        return Err(not_now(
            record,
            "its nodes cannot be replaced",
            "the cluster is released or being released, or its build failed",
        ));
    }
    let reason = match reason.trim() {
        "" => "requested by an operator",
        reason if reason.chars().count() > REASON_MAX => {
            return Err(ApiError::invalid(
                "reason",
                format!("must have at most {REASON_MAX} characters"),
            ));
        }
        reason => reason,
    };
    record.cluster.wanted.replace.insert(node.to_owned(), reason.to_owned());
    record.swap = None;
    Ok(())
}

#[tonic::async_trait]
impl ClusterService for Clusters {
    async fn plan_cluster(&self, request: Request<v1::PlanClusterRequest>) -> Answer<v1::ClusterPlan> {
        caller::member(&self.0, &request).await?;
        let request = request.into_inner();
        let id = if request.cluster_id.is_empty() {
            "planned"
        } else {
            &request.cluster_id
        };
        let wanted = self
            .reserve_request(id, &request.spec.clone().unwrap_or_default(), false)
            .await?;
        let picture = self.0.sites.picture(&self.0.store).await.map_err(ApiError::from)?;
        let plan = match reserve::plan(picture, &wanted).await {
            Ok(planned) => v1::ClusterPlan {
                fits: true,
                refusal: String::new(),
                nodes: planned.placement.nodes,
                spares: planned.placement.spares,
                picture: planned.picture,
                reserved_watts: planned.watts,
            },
            Err(ReserveError::Refused(refusal)) => v1::ClusterPlan {
                refusal,
                ..v1::ClusterPlan::default()
            },
            Err(other) => return Err(ApiError::from(other).into()),
        };
        Ok(Response::new(plan))
    }

    async fn create_cluster(&self, request: Request<v1::CreateClusterRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let mut plain = request.clone();
        let labels = std::mem::take(&mut plain.labels);
        let mutation = request.mutation.as_ref();
        let call = MutatingCall::with_maps(&self.0, &caller, "CreateCluster", mutation, &plain, &[labels])?;
        Ok(Response::new(self.create(&call, &request, &caller.name).await?))
    }

    async fn get_cluster(&self, request: Request<v1::GetClusterRequest>) -> Answer<v1::Cluster> {
        let scope = caller::tenant(&self.0, &request).await?.scope;
        let id = &names::cluster_id("name", &request.get_ref().name)?;
        let record = self.0.store.cluster(&scope, id).await.map_err(ApiError::from)?;
        Ok(Response::new(self.read(&scope, &record).await?))
    }

    async fn list_clusters(&self, request: Request<v1::ListClustersRequest>) -> Answer<v1::ListClustersResponse> {
        let scope = caller::tenant(&self.0, &request).await?.scope;
        let request = request.into_inner();
        let mut filter = names::parse_filter_of(&request.filter, FILTER_FIELDS, |field, value| match field {
            "state" => names::check_known(
                value,
                &State::ALL.iter().map(|s| s.as_str()).collect::<Vec<_>>(),
                "state",
            ),
            _ => Ok(()),
        })?;
        for term in filter.iter_mut().flatten().filter(|term| term.field == "name") {
            if let Some(id) = term.value.strip_prefix("clusters/") {
                term.value = id.to_owned();
            }
        }
        let limit = names::page_size(request.page_size)?;
        let pages = Pages {
            list: "ListClusters",
            narrowed: &request.filter,
            limit,
        };
        let after = pages.after(&request.page_token)?;
        let records = self
            .0
            .store
            .clusters(&scope, &filter, after, limit)
            .await
            .map_err(ApiError::from)?;
        Ok(Response::new(v1::ListClustersResponse {
            clusters: self.rows(&scope, &records).await?,
            next_page_token: pages.token(records.len(), records.last().map(|r| r.id.to_string())),
        }))
    }

    async fn replace_cluster_node(&self, request: Request<v1::ReplaceClusterNodeRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(
            &self.0,
            &caller,
            "ReplaceClusterNode",
            request.mutation.as_ref(),
            &request,
        )?;
        Ok(Response::new(self.replace(&call, &request).await?))
    }

    async fn plan_cluster_resize(
        &self,
        request: Request<v1::PlanClusterResizeRequest>,
    ) -> Answer<v1::ClusterResizePlan> {
        caller::member(&self.0, &request).await?;
        Ok(Response::new(self.plan_resize(request.get_ref()).await?))
    }

    async fn resize_cluster(&self, request: Request<v1::ResizeClusterRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "ResizeCluster", request.mutation.as_ref(), &request)?;
        Ok(Response::new(self.resize(&call, &request).await?))
    }

    async fn reimage_cluster(&self, request: Request<v1::ReimageClusterRequest>) -> Answer<v1::Operation> {
        let caller = caller::user(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "ReimageCluster", request.mutation.as_ref(), &request)?;
        Ok(Response::new(self.reimage(&call, &request).await?))
    }

    async fn resume_cluster_reimage(&self, request: Request<v1::ResumeClusterReimageRequest>) -> Answer<v1::Operation> {
        let caller = caller::user(&self.0, &request).await?;
        let request = request.into_inner();
        let mutation = request.mutation.as_ref();
        let call = MutatingCall::new(&self.0, &caller, "ResumeClusterReimage", mutation, &request)?;
        Ok(Response::new(self.resume_reimage(&call, &request).await?))
    }

    async fn roll_back_cluster(&self, request: Request<v1::RollBackClusterRequest>) -> Answer<v1::Operation> {
        let caller = caller::user(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "RollBackCluster", request.mutation.as_ref(), &request)?;
        Ok(Response::new(self.roll_back(&call, &request).await?))
    }

    async fn retry_cluster(&self, request: Request<v1::RetryClusterRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "RetryCluster", request.mutation.as_ref(), &request)?;
        Ok(Response::new(self.retry(&call, &request.name).await?))
    }

    async fn set_cluster_lease(&self, request: Request<v1::SetClusterLeaseRequest>) -> Answer<v1::Cluster> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "SetClusterLease", request.mutation.as_ref(), &request)?;
        let id = &names::cluster_id("name", &request.name)?;
        let mut tx = match call.begin::<v1::Cluster>().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        let mut record = tx.cluster(id).await.map_err(ApiError::from)?;
        call.check_version(&request.name, record.version)?;
        if Edge::Released.target(record.cluster.state).is_none() {
            return Err(not_now(&record, "its lease cannot be changed any more", "create a new cluster").into());
        }
        record.cluster.lease_end = lease(request.lease_end.as_ref(), call.now(), "lease_end")?;
        record.cluster.notices = 0;
        tx.save_cluster(&mut record, call.now()).await.map_err(ApiError::from)?;
        let text = format!("{} set the lease of {id}", caller.name);
        tx.add_event(&call.event(EventKind::ClusterLease, &request.name, text))
            .await
            .map_err(ApiError::from)?;
        let response = call.end(tx, message(&record)).await?;
        self.wake();
        Ok(Response::new(response))
    }

    async fn release_cluster(&self, request: Request<v1::ReleaseClusterRequest>) -> Answer<v1::Operation> {
        let caller = caller::admin(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "ReleaseCluster", request.mutation.as_ref(), &request)?;
        let id = &names::cluster_id("name", &request.name)?;
        Ok(Response::new(self.release(&call, id).await?))
    }

    async fn delete_cluster(&self, request: Request<v1::DeleteClusterRequest>) -> Answer<()> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "DeleteCluster", request.mutation.as_ref(), &request)?;
        let id = &names::cluster_id("name", &request.name)?;
        let mut tx = match call.begin::<()>().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        let record = tx.cluster(id).await.map_err(ApiError::from)?;
        call.check_version(&request.name, record.version)?;
        if record.cluster.state != State::Released {
            let hint = format!("`rackwright cluster release {id}` releases it");
            return Err(not_now(&record, "only a released cluster can be forgotten", &hint).into());
        }
        for operation in tx.open_operations(&request.name).await.map_err(ApiError::from)? {
            let message = format!("{} forgot the cluster", caller.name);
            let ended = tx.end_operation(&operation.id, Code::Aborted as i32, &message, call.now());
            ended.await.map_err(ApiError::from)?;
        }
        tx.delete_cluster(&record).await.map_err(ApiError::from)?;
        let event = call.event(
            EventKind::Deleted,
            &request.name,
            format!("{} forgot {id}", caller.name),
        );
        tx.add_event(&event).await.map_err(ApiError::from)?;
        call.end(tx, ()).await?;
        Ok(Response::new(()))
    }

    async fn get_handover_pack(&self, request: Request<v1::GetHandoverPackRequest>) -> Answer<v1::HandoverPack> {
        let scope = caller::tenant(&self.0, &request).await?.scope;
        let id = &names::cluster_id("name", &request.get_ref().name)?;
        let record = self.0.store.cluster(&scope, id).await.map_err(ApiError::from)?;
        if record.cluster.state == State::Released {
            return Err(not_now(&record, "a released cluster has no hand-over pack", "").into());
        }
        let nodes = self.0.store.nodes_of_cluster(&scope, id).await;
        let made = clusters::pack::make(&self.0, &record, &nodes.map_err(ApiError::from)?).await;
        let made = made.map_err(|e| customer_view::refusal(&scope, e.into()))?;
        let file = |file: rackwright_planner::handover::PackFile| v1::HandoverFile {
            name: file.name,
            text: file.text,
        };
        Ok(Response::new(v1::HandoverPack {
            files: made.into_iter().map(file).collect(),
        }))
    }

    async fn get_capacity(&self, request: Request<v1::GetCapacityRequest>) -> Answer<v1::Capacity> {
        let caller = caller::tenant(&self.0, &request).await?;
        let requested = request.into_inner().customer;
        let customer = match (caller.scope.customer(), requested.as_str()) {
            (None, "") => return Err(ApiError::invalid("customer", "is required").into()),
            (None, named) => CustomerId::named(named),
            (Some(own), "") => own.clone(),
            (Some(own), named) if *own == named => own.clone(),
            // Customers must not learn whether the site has another customer of this name.
            (Some(_), _) => return Err(ApiError::invalid("customer", "must be empty or your own customer").into()),
        };
        let shown = |error: ApiError| customer_view::refusal(&caller.scope, error);
        // One at a time, because each computation occupies a processor for as long as several plans.
        let _turn = self.0.feature::<clusters::Clusters>().capacity.lock().await;
        let picture = self.0.sites.picture(&self.0.store).await;
        let picture = picture.map_err(|e| shown(e.into()))?;
        let time = convert::time(clock::now());
        let skus = clusters::capacity::capacity(picture, &customer).await;
        Ok(Response::new(v1::Capacity {
            customer: customer.to_string(),
            skus: skus.map_err(|e| shown(e.into()))?,
            time,
        }))
    }
}
