//! Requests about clusters, through the same functions as the API's calls.

use std::sync::Arc;

use rackwright_api::v1;
use rackwright_lifecycle::{ClusterId, Timestamp};
use rackwright_store::Scope;

use super::super::Run;
use super::super::world::PlannedEvent;
use crate::api_error::ApiError;
use crate::clock;
use crate::core::Core;
use crate::grpc::test_calls::{
    NodeRequest, create_cluster, release_cluster, replace_cluster_node, resize_cluster, retry_cluster,
};

/// The image of all clusters.
const IMAGE: &str = "images/some";

/// A request.
#[derive(Debug, Clone)]
pub struct Ask {
    pub cluster: String,
    pub what: What,
    /// Its idempotency key.
    pub key: String,
}

/// What a request asks for.
#[derive(Debug, Clone)]
pub enum What {
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

impl Ask {
    /// The name of its call.
    pub fn target(&self) -> String {
        format!("clusters/{}", self.cluster)
    }
}

impl Run {
    /// Makes a request at a replica.
    pub(super) async fn ask(&mut self, key: (Timestamp, u64), number: usize) {
        let Some(mut ask) = self.play().asks.remove(&key) else {
            return;
        };
        let chosen = self.node_of(&ask.cluster).await;
        match (&mut ask.what, chosen) {
            (What::Leave(node) | What::Replace(node), chosen) if node.is_none() => match chosen {
                // A repeated request names the same node.
                Some(chosen) => *node = Some(chosen),
                None => return,
            },
            (What::Lose(wish), chosen) => {
                if let Some(id) = chosen {
                    let (wish, key) = (*wish, ask.key.clone());
                    self.fake.world().at(clock::now(), &id, PlannedEvent::Ask { wish, key });
                }
                return;
            }
            _ => {}
        }
        self.note(format!("replica {number}: {ask:?}"));
        self.figures.wishes += 1;
        let target = ask.target();
        self.play().open.insert((number, target.clone()), ask.clone());
        let process = &mut self.processes[number];
        let (core, fake) = (process.core.clone(), process.fake.clone());
        process.call(&target, async move {
            if let Err(ApiError::Internal(why)) = make(&core, &ask).await {
                fake.world().wrong.push(format!("{ask:?}: {why}"));
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

async fn resize(core: &Arc<Core>, ask: &Ask, size: v1::ClusterSize) -> Result<v1::Operation, ApiError> {
    let request = v1::ResizeClusterRequest {
        name: ask.target(),
        size: Some(size),
        mutation: None,
    };
    resize_cluster(core, &ask.key, request).await
}

async fn make(core: &Arc<Core>, ask: &Ask) -> Result<(), ApiError> {
    let (id, key) = (ask.cluster.as_str(), ask.key.as_str());
    let answer = match &ask.what {
        What::Create {
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
        What::Resize { nodes, spares } => {
            let (nodes, spares) = (*nodes, *spares);
            let size = v1::ClusterSize {
                nodes,
                spares,
                ..v1::ClusterSize::default()
            };
            resize(core, ask, size).await
        }
        What::Leave(node) => {
            let leave = node.iter().map(|node| format!("nodes/{node}")).collect();
            let size = v1::ClusterSize {
                leave,
                ..v1::ClusterSize::default()
            };
            resize(core, ask, size).await
        }
        What::Replace(node) => replace_cluster_node(core, key, id, node.as_deref().unwrap_or_default()).await,
        What::Release => release_cluster(core, key, id).await,
        What::Retry => retry_cluster(core, key, id).await,
        What::Lose(_) => return Ok(()),
    };
    answer.map(drop)
}
