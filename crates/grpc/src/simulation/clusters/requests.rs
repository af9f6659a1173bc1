//! Requests about clusters, through the same functions as the API's calls.

use std::sync::Arc;

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_lifecycle::{ClusterId, Timestamp};
use rackwright_store::Scope;

use super::super::Run;
use super::super::world::PlannedEvent;
use crate::test_calls::{
    NodeRequest, create_cluster, release_cluster, replace_cluster_node, resize_cluster, retry_cluster,
};

/// The image of all clusters.
const IMAGE: &str = "images/some";

/// A request.
#[derive(Debug, Clone)]
pub struct PlannedRequest {
    pub cluster: String,
    pub kind: RequestKind,
    /// Its idempotency key.
    pub key: String,
}

#[derive(Debug, Clone)]
pub enum RequestKind {
    Create {
        customer: &'static str,
        nodes: u32,
        spares: u32,
    },
    Resize {
        nodes: Option<u32>,
        spares: Option<u32>,
    },
    /// Give back a node; none: one that is chosen when the request is made.
    Leave(Option<String>),
    /// Replace a node.
    Replace(Option<String>),
    /// An operator's request about one node, by which the cluster loses it.
    Lose(NodeRequest),
    Release,
    Retry,
}

impl PlannedRequest {
    /// The name of its call.
    pub fn target(&self) -> String {
        format!("clusters/{}", self.cluster)
    }
}

impl Run {
    /// Makes a request at a replica.
    pub(super) async fn make_request(&mut self, key: (Timestamp, u64), number: usize) {
        let Some(mut planned) = self.play().requests.remove(&key) else {
            return;
        };
        let chosen = self.node_of(&planned.cluster).await;
        match (&mut planned.kind, chosen) {
            (RequestKind::Leave(node) | RequestKind::Replace(node), chosen) if node.is_none() => match chosen {
                // A repeated request names the same node.
                Some(chosen) => *node = Some(chosen),
                None => return,
            },
            (RequestKind::Lose(request), chosen) => {
                if let Some(id) = chosen {
                    let (request, key) = (*request, planned.key.clone());
                    self.fake
                        .world()
                        .at(clock::now(), &id, PlannedEvent::Request { request, key });
                }
                return;
            }
            _ => {}
        }
        self.note(format!("replica {number}: {planned:?}"));
        self.figures.requests += 1;
        let target = planned.target();
        self.play().open.insert((number, target.clone()), planned.clone());
        let process = &mut self.processes[number];
        let (core, fake) = (process.core.clone(), process.fake.clone());
        process.call(&target, async move {
            if let Err(ApiError::Internal(why)) = make(&core, &planned).await {
                fake.world().wrong.push(format!("{planned:?}: {why}"));
            }
        });
    }

    /// A node of a cluster, by chance.
    async fn node_of(&self, cluster: &str) -> Option<String> {
        let nodes = self
            .store
            .nodes_of_cluster(&Scope::Site, &ClusterId::stored(cluster))
            .await;
        let mut nodes = nodes.expect("nodes can be read");
        if nodes.is_empty() {
            return None;
        }
        let at = self.fake.chance.below(nodes.len());
        Some(nodes.swap_remove(at).id.to_string())
    }
}

async fn resize(core: &Arc<Core>, planned: &PlannedRequest, size: v1::ClusterSize) -> Result<v1::Operation, ApiError> {
    let request = v1::ResizeClusterRequest {
        name: planned.target(),
        size: Some(size),
        mutation: None,
    };
    resize_cluster(core, &planned.key, request).await
}

async fn make(core: &Arc<Core>, planned: &PlannedRequest) -> Result<(), ApiError> {
    let (id, key) = (planned.cluster.as_str(), planned.key.as_str());
    let answer = match &planned.kind {
        RequestKind::Create {
            customer,
            nodes,
            spares,
        } => {
            let spec = v1::ClusterSpec {
                customer: (*customer).to_owned(),
                sku: "dgx-h100".into(),
                nodes: *nodes,
                spares: *spares,
                deployment: Some(v1::Deployment {
                    image: IMAGE.into(),
                    ..v1::Deployment::default()
                }),
                ..v1::ClusterSpec::default()
            };
            create_cluster(core, key, id, spec).await
        }
        RequestKind::Resize { nodes, spares } => {
            let (nodes, spares) = (*nodes, *spares);
            let size = v1::ClusterSize {
                nodes,
                spares,
                ..v1::ClusterSize::default()
            };
            resize(core, planned, size).await
        }
        RequestKind::Leave(node) => {
            let leave = node.iter().map(|node| format!("nodes/{node}")).collect();
            let size = v1::ClusterSize {
                leave,
                ..v1::ClusterSize::default()
            };
            resize(core, planned, size).await
        }
        RequestKind::Replace(node) => replace_cluster_node(core, key, id, node.as_deref().unwrap_or_default()).await,
        RequestKind::Release => release_cluster(core, key, id).await,
        RequestKind::Retry => retry_cluster(core, key, id).await,
        RequestKind::Lose(_) => return Ok(()),
    };
    answer.map(drop)
}
