//! Changes of a cluster in use: its size, its image, and a retry after a failure.

use rackwright_api::v1;
use rackwright_control::clusters::node_claims;
use rackwright_control::clusters::resize::{self, SizeRequest};
use rackwright_control::clusters::{self, reserve, rollout};
use rackwright_ground::api_error::ApiError;
use rackwright_ground::text::counted;
use rackwright_ground::user_data;
use rackwright_lifecycle::cluster::{Member, Rollout, State};
use rackwright_lifecycle::{ClusterId, EventKind, OperationKind};
use rackwright_store::{ClusterRecord, ClusterSpec, NodeRecord, Scope, WriteTx};

use super::super::call::MutatingCall;
use super::super::nodes::Nodes;
use super::super::{convert, customer_view, doubts, names};
use super::{Clusters, OPERATION_MIN, not_now};

/// Faults of a deployment for a cluster in use: hostname and customer cannot change. Users' public keys, cloud-config and
/// drive are part of the written image; their values are not checked here.
fn deployment_faults(deployment: &v1::Deployment) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    if !deployment.hostname.is_empty() {
        let fault = "must be empty: the hostname of each node of a cluster is its own name";
        faults.push(("deployment.hostname".to_owned(), fault.to_owned()));
    }
    if !deployment.customer.is_empty() {
        let fault = "must be empty: the customer of a cluster does not change";
        faults.push(("deployment.customer".to_owned(), fault.to_owned()));
    }
    faults
}

/// The rollout of a request, with defaults.
fn wanted(rollout: &v1::Rollout) -> Rollout {
    Rollout {
        max_unavailable: rollout.max_unavailable.max(1),
        by_leaf: !rollout.any_leaf,
        max_failures: rollout.max_failures,
        failed: 0,
        again: std::collections::BTreeSet::new(),
        roll_back: rollout.roll_back,
        is_back: false,
        stopped: None,
    }
}

/// Progress of a rollout.
pub(super) fn rollout_status(record: &ClusterRecord, members: &[Member]) -> Option<v1::RolloutStatus> {
    use rackwright_lifecycle::cluster::Standing;
    let rollout = record.cluster.rollout.as_ref()?;
    let stays = |member: &&Member| !record.cluster.wanted.leave.contains(&member.node);
    let has_it = |member: &&Member| stays(member) && member.build == record.cluster.build;
    let count = |members: usize| u32::try_from(members).unwrap_or(u32::MAX);
    let done = members
        .iter()
        .filter(has_it)
        .filter(|m| m.standing == Standing::HandedOver);
    let failed = members.iter().filter(has_it).filter(|m| m.standing.is_out());
    Some(v1::RolloutStatus {
        rollout: Some(v1::Rollout {
            max_unavailable: rollout.max_unavailable,
            any_leaf: !rollout.by_leaf,
            max_failures: rollout.max_failures,
            roll_back: rollout.roll_back,
        }),
        done: count(done.count()),
        of: count(members.iter().filter(stays).count()),
        failed: count(failed.count()).saturating_add(rollout.failed),
        is_back: rollout.is_back,
        stopped: rollout.stopped.clone().unwrap_or_default(),
    })
}

fn size_request(size: Option<&v1::ClusterSize>) -> Result<SizeRequest, ApiError> {
    let size = size.cloned().unwrap_or_default();
    let mut size_request = SizeRequest {
        nodes: size.nodes,
        spares: size.spares,
        ..SizeRequest::default()
    };
    for name in &size.leave {
        size_request.leave.insert(names::node_id("size.leave", name)?);
    }
    if size.nodes.is_none() && size.spares.is_none() && size_request.leave.is_empty() {
        let fault = "set nodes, spares or leave";
        return Err(ApiError::invalid("size.nodes", fault));
    }
    Ok(size_request)
}

/// Refuses a cluster that cannot change its size now.
fn can_resize(record: &ClusterRecord) -> Result<(), ApiError> {
    match record.cluster.state {
        State::Building | State::Validating | State::Ready | State::Degraded | State::Resizing => Ok(()),
        State::Reimaging => {
            let hint = format!("`rackwright cluster watch {}` shows when it is done", record.id);
            Err(not_now(
                record,
                "its nodes cannot be changed while it is reimaged",
                &hint,
            ))
        }
        _ => Err(not_now(
            record,
            "its nodes cannot be changed",
            "only a cluster that is being built or in use can be resized",
        )),
    }
}

/// Refuses a cluster with nodes that cannot get another image now.
fn can_reimage(record: &ClusterRecord) -> Result<(), ApiError> {
    match record.cluster.state {
        State::Ready | State::Degraded | State::Resizing | State::Reimaging => Ok(()),
        State::Reserved | State::Building | State::Validating => {
            let hint = format!("`rackwright cluster watch {}` shows when it is ready", record.id);
            Err(not_now(record, "its first image is not on its nodes yet", &hint))
        }
        _ => Err(not_now(
            record,
            "only a cluster in use can be reimaged",
            "create a new cluster with the other image",
        )),
    }
}

impl Clusters {
    pub(super) async fn plan_resize(
        &self,
        request: &v1::PlanClusterResizeRequest,
    ) -> Result<v1::ClusterResizePlan, ApiError> {
        let id = &names::cluster_id("name", &request.name)?;
        let size_request = size_request(request.size.as_ref())?;
        let record = self.0.store.cluster(&Scope::Site, id).await?;
        can_resize(&record)?;
        let picture = self.0.sites.picture(&self.0.store).await?;
        match resize::plan(picture, &record, &size_request).await {
            Ok(planned) => Ok(v1::ClusterResizePlan {
                fits: true,
                refusal: String::new(),
                join: planned.join.iter().map(ToString::to_string).collect(),
                leave: planned.leave.iter().map(ToString::to_string).collect(),
                picture: planned.picture,
                reserved_watts: planned.watts,
            }),
            Err(reserve::ReserveError::Refused(refusal)) => Ok(v1::ClusterResizePlan {
                refusal,
                ..v1::ClusterResizePlan::default()
            }),
            Err(other) => Err(other.into()),
        }
    }

    pub(crate) async fn resize(
        &self,
        call: &MutatingCall<'_>,
        request: &v1::ResizeClusterRequest,
    ) -> Result<v1::Operation, ApiError> {
        match call.begin::<v1::Operation>().await? {
            Ok(tx) => drop(tx),
            Err(former) => return Ok(former),
        }
        let id = &names::cluster_id("name", &request.name)?;
        let size_request = size_request(request.size.as_ref())?;
        let (mut tx, record, planned) = self.reserve_resize(call, id, &size_request).await?;
        let operation = call.new_operation(OperationKind::ResizeCluster, &request.name, OPERATION_MIN);
        tx.insert_operation(&operation).await?;
        let (name, joining, leaving) = (&call.caller().name, planned.join.len(), planned.leave.len());
        let message = format!(
            "{name} requested {id} with {} and {}: {joining} join, {leaving} leave",
            counted(record.spec.nodes, "node"),
            counted(record.spec.spares, "spare")
        );
        tx.add_event(&call.event(EventKind::Requested, &request.name, message))
            .await?;
        let response = call.end_in(tx, convert::operation(&operation, None)).await?;
        self.wake();
        self.0.running_steps.due.notify_one();
        Ok(response)
    }

    async fn reserve_resize(
        &self,
        call: &MutatingCall<'_>,
        id: &ClusterId,
        size_request: &SizeRequest,
    ) -> Result<(WriteTx, ClusterRecord, resize::ResizePlan), ApiError> {
        for _ in 0..reserve::TRIES {
            let seen = self.0.store.cluster(&call.caller().scope, id).await?;
            call.check_version(&format!("clusters/{id}"), seen.version)?;
            doubts::cluster(&self.0, call, id).await?;
            can_resize(&seen)?;
            if let Some(reserved) = resize::resize(&self.0, seen, size_request, call.now()).await? {
                return Ok(reserved);
            }
        }
        Err(reserve::contended().into())
    }

    pub(crate) async fn reimage(
        &self,
        call: &MutatingCall<'_>,
        request: &v1::ReimageClusterRequest,
    ) -> Result<v1::Operation, ApiError> {
        let id = &names::cluster_id("name", &request.name)?;
        let deployment = request.deployment.clone().unwrap_or_default();
        super::enrolment::none(deployment_faults(&deployment))?;
        // The error counts only after the replay check, because the image of a repeated request may be gone.
        let image = match deployment.image.as_str() {
            "" => Ok(None),
            _ => Nodes(self.0.clone()).resolve_image(&deployment).await.map(Some),
        };
        let rollout = wanted(&request.rollout.unwrap_or_default());
        let member = self.a_member(&call.caller().scope, id).await?;
        let change = |record: &mut ClusterRecord| {
            can_reimage(record)?;
            let mut spec = record.spec.clone();
            if let Some(image) = image? {
                (spec.image_name, spec.image_digest) = (image.name, image.digest);
            }
            overlay(&mut spec, &deployment);
            rollout::begin(record, &spec, rollout);
            self.put_user_data(record, &deployment.user_data)?;
            self.try_on(record, member)
        };
        let operation = self.operation(call, id, OperationKind::ReimageCluster, change).await?;
        Ok(customer_view::operation(&call.caller().scope, operation))
    }

    pub(crate) async fn resume_reimage(
        &self,
        call: &MutatingCall<'_>,
        request: &v1::ResumeClusterReimageRequest,
    ) -> Result<v1::Operation, ApiError> {
        let id = &names::cluster_id("name", &request.name)?;
        let nodes = self.0.store.nodes_of_cluster(&call.caller().scope, id).await?;
        let members = clusters::members(id, &nodes, &rackwright_ground::hall::Units::new());
        let change = |record: &mut ClusterRecord| {
            let stopped = record
                .cluster
                .rollout
                .as_ref()
                .filter(|rollout| rollout.stopped.is_some());
            if stopped.is_none() {
                let hint = format!("`rackwright cluster reimage {}` begins a reimage", record.id);
                return Err(not_now(record, "no reimage of it has stopped", &hint));
            }
            rollout::resume(record, &members, request.rollout.as_ref().map(wanted));
            Ok(())
        };
        let operation = self.operation(call, id, OperationKind::ReimageCluster, change).await?;
        Ok(customer_view::operation(&call.caller().scope, operation))
    }

    pub(crate) async fn roll_back(
        &self,
        call: &MutatingCall<'_>,
        request: &v1::RollBackClusterRequest,
    ) -> Result<v1::Operation, ApiError> {
        let id = &names::cluster_id("name", &request.name)?;
        let scope = &call.caller().scope;
        let image = match self.0.store.cluster(scope, id).await?.former {
            Some(former) => self.has_image(&former.spec).await,
            None => Ok(()),
        };
        let change = |record: &mut ClusterRecord| {
            can_reimage(record)?;
            let last = record.cluster.rollout.clone();
            if last.as_ref().is_some_and(|rollout| rollout.is_back) {
                return Err(not_now(record, "it goes back to its former image already", ""));
            }
            let asked_for = request.rollout.as_ref().map(wanted);
            let rollout = Rollout {
                stopped: None,
                failed: 0,
                again: std::collections::BTreeSet::new(),
                ..asked_for.or(last).unwrap_or_else(|| wanted(&v1::Rollout::default()))
            };
            if !rollout::swap_builds(record, rollout) {
                return Err(not_now(record, "it has no former image", ""));
            }
            record.reason.clear();
            image
        };
        let operation = self.operation(call, id, OperationKind::RollBackCluster, change).await?;
        Ok(customer_view::operation(scope, operation))
    }

    pub(crate) async fn retry(&self, call: &MutatingCall<'_>, name: &str) -> Result<v1::Operation, ApiError> {
        let id = &names::cluster_id("name", name)?;
        let change = |record: &mut ClusterRecord| {
            if record.cluster.state != State::Failed {
                let hint = format!(
                    "`rackwright cluster explain {}` shows the reason for the wait",
                    record.id
                );
                return Err(not_now(record, "only a failed cluster can be built again", &hint));
            }
            record.cluster.wanted.retry = true;
            record.swap = None;
            if let Some(test) = &mut record.network {
                test.faults.clear();
            }
            Ok(())
        };
        self.operation(call, id, OperationKind::RetryCluster, change).await
    }

    /// Any node of a cluster.
    async fn a_member(&self, scope: &Scope, id: &ClusterId) -> Result<Option<NodeRecord>, ApiError> {
        Ok(self.0.store.nodes_of_cluster(scope, id).await?.into_iter().next())
    }

    /// Applies the change to a copy of one node, so that faults are reported now.
    fn try_on(&self, record: &ClusterRecord, member: Option<NodeRecord>) -> Result<(), ApiError> {
        let Some(mut node) = member else { return Ok(()) };
        let deployment = reserve::deployment(&self.0, record)?;
        node.node.state = rackwright_lifecycle::State::Active;
        node_claims::rewrite(&self.0, &mut node, &deployment, &record.spec.image_digest, 0)
            .map(drop)
            .map_err(|fault| ApiError::invalid("deployment", fault))
    }

    /// Seals user data for the new build. Without new user data, the former build's data stays.
    fn put_user_data(&self, record: &mut ClusterRecord, text: &str) -> Result<(), ApiError> {
        let place = (&record.id, record.uid.as_str(), record.cluster.build);
        let sealed = user_data::seal_for_cluster(&self.0.keys.sealer, text, place);
        if let Some(sealed) = sealed.map_err(|error| ApiError::unsealed("deployment.user_data", &error))? {
            record.spec.user_data = Some(sealed);
            record.spec.plain_user_data.clear();
        }
        Ok(())
    }

    /// Refuses an image that is no longer stored.
    async fn has_image(&self, spec: &ClusterSpec) -> Result<(), ApiError> {
        let deployment = v1::Deployment {
            image: format!("{}/versions/{}", spec.image_name, spec.image_digest),
            ..v1::Deployment::default()
        };
        Nodes(self.0.clone()).resolve_image(&deployment).await.map(drop)
    }
}

/// Copies the given fields of a deployment over the spec. User data is sealed later, when the number of the build is
/// known.
fn overlay(spec: &mut ClusterSpec, deployment: &v1::Deployment) {
    if !deployment.ssh_authorized_keys.is_empty() {
        spec.ssh_authorized_keys.clone_from(&deployment.ssh_authorized_keys);
    }
    if !deployment.root_drive.is_empty() {
        spec.root_drive.clone_from(&deployment.root_drive);
    }
    spec.verify_whole_disk |= deployment.verify_whole_disk;
}
