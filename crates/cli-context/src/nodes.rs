//! Nodes as the control plane has them: one, or all that match.

use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::{GetNodeRequest, ListNodesRequest, Node};

use crate::client::{Client, rpc};
use crate::error::CliError;
use crate::{names, pages};

/// Nodes of one page: with its inventory, a node is some ten kilobytes.
const PAGE: i32 = 200;

/// Reads one node.
pub async fn get(client: &Client, id: &str) -> Result<Node, CliError> {
    let request = GetNodeRequest {
        name: names::full("nodes", id),
        read_mask: None,
    };
    rpc!(
        client,
        NodeServiceClient.get_node,
        format!("read node {}", names::short("nodes", id)),
        request
    )
    .await
}

/// All nodes that match, page by page.
pub async fn all(client: &Client, filter: &str) -> Result<Vec<Node>, CliError> {
    pages::all(async |page_token| {
        let request = ListNodesRequest {
            page_size: PAGE,
            page_token,
            filter: filter.to_owned(),
            ..ListNodesRequest::default()
        };
        let page = rpc!(client, NodeServiceClient.list_nodes, "list nodes", request).await?;
        Ok((page.nodes, page.next_page_token))
    })
    .await
}
