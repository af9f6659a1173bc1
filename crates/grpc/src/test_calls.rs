//! For tests: the calls that need no certificate, and an operator's calls without a connection, through the same steps as
//! every mutating call.

use std::sync::Arc;

use prost::Message;
use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::intent;
use rackwright_lifecycle::{ClusterId, NodeId, OperationKind};
use rackwright_store::{NodeRecord, Scope, SiteFile, Term};

use super::call::{MutatingCall, SideChanges};
use super::caller::Caller;
use super::clusters::Clusters;
use super::nodes::Nodes;
use super::operations::Operations;

/// Calls that need no certificate; they check no role.
pub const OPEN: &[&str] = &[
    "AgentService/Register",
    "AuthService/BeginDeviceLogin",
    "AuthService/FinishDeviceLogin",
    "AuthService/RedeemToken",
    "ControlService/ProveDatabase",
    "SessionService/OpenSession",
];

/// A wish for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeRequest {
    Deploy,
    Reimage,
    Release,
    Hold,
    Resume,
    Quarantine,
    Readmit,
    Retry,
    PowerOff,
    PowerCycle,
    /// Cancels the last open operation on the node.
    Cancel,
}

impl NodeRequest {
    pub const ALL: [Self; 11] = [
        Self::Deploy,
        Self::Reimage,
        Self::Release,
        Self::Hold,
        Self::Resume,
        Self::Quarantine,
        Self::Readmit,
        Self::Retry,
        Self::PowerOff,
        Self::PowerCycle,
        Self::Cancel,
    ];
}

fn operator() -> Caller {
    Caller {
        name: "operator".into(),
        role: v1::Role::Operator,
        scope: Scope::Site,
        epoch: 0,
    }
}

fn mutation(key: &str) -> Option<v1::Mutation> {
    Some(v1::Mutation {
        idempotency_key: key.to_owned(),
        ..v1::Mutation::default()
    })
}

/// Applies a site that consists of one file.
pub async fn apply_site(core: &Arc<Core>, key: &str, text: &str) -> Result<v1::Site, ApiError> {
    let files = vec![SiteFile {
        name: "site.yaml".into(),
        text: text.to_owned(),
    }];
    let request = super::sites::digested(mutation(key), &files);
    let caller = operator();
    let call = MutatingCall::new(core, &caller, "ApplySite", request.mutation.as_ref(), &request)?;
    super::sites::Sites(core.clone())
        .apply(&call, &caller.name, files)
        .await
}

pub async fn create_cluster(
    core: &Arc<Core>,
    key: &str,
    id: &str,
    spec: v1::ClusterSpec,
) -> Result<v1::Operation, ApiError> {
    let request = v1::CreateClusterRequest {
        cluster_id: id.to_owned(),
        spec: Some(spec),
        mutation: mutation(key),
        ..v1::CreateClusterRequest::default()
    };
    let caller = operator();
    let call = MutatingCall::new(core, &caller, "CreateCluster", request.mutation.as_ref(), &request)?;
    Clusters(core.clone()).create(&call, &request, &caller.name).await
}

/// Requests the replacement of a node of a cluster.
pub async fn replace_cluster_node(
    core: &Arc<Core>,
    key: &str,
    id: &str,
    node: &str,
) -> Result<v1::Operation, ApiError> {
    let request = v1::ReplaceClusterNodeRequest {
        name: format!("clusters/{id}"),
        node: format!("nodes/{node}"),
        reason: "it is slow".into(),
        mutation: mutation(key),
    };
    let caller = operator();
    let call = MutatingCall::new(core, &caller, "ReplaceClusterNode", request.mutation.as_ref(), &request)?;
    Clusters(core.clone()).replace(&call, &request).await
}

/// Requests another size of a cluster.
pub async fn resize_cluster(
    core: &Arc<Core>,
    key: &str,
    request: v1::ResizeClusterRequest,
) -> Result<v1::Operation, ApiError> {
    let request = v1::ResizeClusterRequest {
        mutation: mutation(key),
        ..request
    };
    let caller = operator();
    let call = MutatingCall::new(core, &caller, "ResizeCluster", request.mutation.as_ref(), &request)?;
    Clusters(core.clone()).resize(&call, &request).await
}

/// Requests another image for the nodes of a cluster.
pub async fn reimage_cluster(
    core: &Arc<Core>,
    key: &str,
    request: v1::ReimageClusterRequest,
) -> Result<v1::Operation, ApiError> {
    let request = v1::ReimageClusterRequest {
        mutation: mutation(key),
        ..request
    };
    let caller = operator();
    let call = MutatingCall::new(core, &caller, "ReimageCluster", request.mutation.as_ref(), &request)?;
    Clusters(core.clone()).reimage(&call, &request).await
}

/// Resumes a reimage that stopped.
pub async fn resume_cluster_reimage(core: &Arc<Core>, key: &str, id: &str) -> Result<v1::Operation, ApiError> {
    let request = v1::ResumeClusterReimageRequest {
        name: format!("clusters/{id}"),
        mutation: mutation(key),
        ..v1::ResumeClusterReimageRequest::default()
    };
    let caller = operator();
    let call = MutatingCall::new(
        core,
        &caller,
        "ResumeClusterReimage",
        request.mutation.as_ref(),
        &request,
    )?;
    Clusters(core.clone()).resume_reimage(&call, &request).await
}

/// Requests the former image.
pub async fn roll_back_cluster(core: &Arc<Core>, key: &str, id: &str) -> Result<v1::Operation, ApiError> {
    let request = v1::RollBackClusterRequest {
        name: format!("clusters/{id}"),
        mutation: mutation(key),
        ..v1::RollBackClusterRequest::default()
    };
    let caller = operator();
    let call = MutatingCall::new(core, &caller, "RollBackCluster", request.mutation.as_ref(), &request)?;
    Clusters(core.clone()).roll_back(&call, &request).await
}

/// Retries the build of a cluster that failed.
pub async fn retry_cluster(core: &Arc<Core>, key: &str, id: &str) -> Result<v1::Operation, ApiError> {
    let request = v1::RetryClusterRequest {
        name: format!("clusters/{id}"),
        mutation: mutation(key),
    };
    let caller = operator();
    let call = MutatingCall::new(core, &caller, "RetryCluster", request.mutation.as_ref(), &request)?;
    Clusters(core.clone()).retry(&call, &request.name).await
}

pub async fn release_cluster(core: &Arc<Core>, key: &str, id: &str) -> Result<v1::Operation, ApiError> {
    let request = v1::ReleaseClusterRequest {
        name: format!("clusters/{id}"),
        mutation: mutation(key),
    };
    let caller = operator();
    let call = MutatingCall::new(core, &caller, "ReleaseCluster", request.mutation.as_ref(), &request)?;
    Clusters(core.clone()).release(&call, &ClusterId::stored(id)).await
}

/// Deploys a node.
pub async fn deploy_with(
    core: &Arc<Core>,
    key: &str,
    id: &str,
    deployment: v1::Deployment,
) -> Result<v1::Operation, ApiError> {
    let request = v1::DeployNodeRequest {
        name: format!("nodes/{id}"),
        deployment: Some(deployment.clone()),
        mutation: mutation(key),
    };
    let caller = operator();
    let call = MutatingCall::new(core, &caller, "DeployNode", request.mutation.as_ref(), &request)?;
    Nodes(core.clone()).deploy(&call, &NodeId::stored(id), deployment).await
}

/// Reimages a node.
pub async fn reimage_with(
    core: &Arc<Core>,
    key: &str,
    id: &str,
    deployment: v1::Deployment,
) -> Result<v1::Operation, ApiError> {
    let request = v1::DeployNodeRequest {
        name: format!("nodes/{id}"),
        deployment: Some(deployment.clone()),
        mutation: mutation(key),
    };
    let caller = operator();
    let call = MutatingCall::new(core, &caller, "ReimageNode", request.mutation.as_ref(), &request)?;
    let nodes = Nodes(core.clone());
    nodes
        .claim(
            &call,
            &NodeId::stored(id),
            OperationKind::Reimage,
            deployment,
            intent::reimage,
        )
        .await
}

/// Requests the wish with an idempotency key. A refusal is a normal answer.
pub async fn wish(core: &Arc<Core>, key: &str, id: &str, wish: NodeRequest, image: &str) -> Result<(), ApiError> {
    let caller = Caller {
        name: "operator".into(),
        role: v1::Role::Operator,
        scope: Scope::Site,
        epoch: 0,
    };
    let mutation = v1::Mutation {
        idempotency_key: key.to_owned(),
        ..v1::Mutation::default()
    };
    let request = v1::GetNodeRequest {
        name: format!("nodes/{id}/{wish:?}/{image}"),
        ..v1::GetNodeRequest::default()
    };
    let call = call(core, &caller, &mutation, &request)?;
    let deployment = v1::Deployment {
        image: image.to_owned(),
        ..v1::Deployment::default()
    };
    let now = call.now();
    let nodes = Nodes(core.clone());
    let simple = |change: Change| move |record: &mut NodeRecord| change(record).map(|()| SideChanges::default());
    match wish {
        NodeRequest::Deploy => nodes.deploy(&call, &NodeId::stored(id), deployment).await.map(drop),
        NodeRequest::Reimage => {
            let change = intent::reimage;
            nodes
                .claim(&call, &NodeId::stored(id), OperationKind::Reimage, deployment, change)
                .await
                .map(drop)
        }
        NodeRequest::Release => call
            .node_operation(&NodeId::stored(id), OperationKind::Release, simple(intent::release))
            .await
            .map(drop),
        NodeRequest::Resume => call
            .node_operation(
                &NodeId::stored(id),
                OperationKind::Resume,
                simple(|record| intent::resume(record, true)),
            )
            .await
            .map(drop),
        NodeRequest::Readmit => call
            .node_operation(
                &NodeId::stored(id),
                OperationKind::Readmit,
                simple(|record| intent::readmit(record, true)),
            )
            .await
            .map(drop),
        NodeRequest::Retry => call
            .node_operation(&NodeId::stored(id), OperationKind::Retry, simple(intent::retry))
            .await
            .map(drop),
        NodeRequest::Hold => call
            .node_change(&NodeId::stored(id), "hold", |r| intent::hold(r, "a look at it"))
            .await
            .map(drop),
        NodeRequest::Quarantine => {
            let change = |r: &mut NodeRecord| intent::quarantine(r, "a doubt");
            call.node_change(&NodeId::stored(id), "quarantine", change)
                .await
                .map(drop)
        }
        NodeRequest::PowerOff | NodeRequest::PowerCycle => {
            let action = if wish == NodeRequest::PowerOff {
                v1::PowerAction::Off
            } else {
                v1::PowerAction::Cycle
            };
            let change = |r: &mut NodeRecord| intent::power(r, action, now).map(|()| SideChanges::default());
            call.node_operation(&NodeId::stored(id), OperationKind::Power, change)
                .await
                .map(drop)
        }
        NodeRequest::Cancel => {
            let filter = vec![Term::is("target", format!("nodes/{id}")), Term::is("done", "false")];
            let open = core.store.operations(&Scope::Site, &filter, "", 1).await?;
            match open.first() {
                Some(newest) => Operations(core.clone()).cancel(&call, &newest.id).await.map(drop),
                None => Ok(()),
            }
        }
    }
}

type Change = fn(&mut NodeRecord) -> Result<(), ApiError>;

fn call<'a>(
    core: &'a Core,
    caller: &'a Caller,
    mutation: &v1::Mutation,
    request: &impl Message,
) -> Result<MutatingCall<'a>, ApiError> {
    MutatingCall::new(core, caller, "Wish", Some(mutation), request)
}
