//! `rackwright cluster list`

use clap::Args;
use rackwright_api::v1::cluster_service_client::ClusterServiceClient;
use rackwright_api::v1::{Cluster, ClusterState, ListClustersRequest};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Table, Tone};
use rackwright_cli_context::{Cx, pages, units};

use super::{parse_state, short, state_cell, state_name};

/// Clusters of one page.
const PAGE: i32 = 500;

/// `rackwright cluster list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Terms FIELD = VALUE or FIELD != VALUE joined by AND, over state, customer and name
    #[arg(long)]
    filter: Option<String>,
    /// Only clusters in this state
    #[arg(long, value_parser = parse_state)]
    state: Option<ClusterState>,
    /// Only clusters of this customer
    #[arg(long, value_name = "NAME")]
    customer: Option<String>,
}

impl ListArgs {
    /// The API's filter for these options.
    fn filter(&self) -> Result<String, CliError> {
        let state = self.state.map(|state| format!("state = {}", state_name(state as i32)));
        let customer = self.customer.as_ref().map(|customer| {
            // The filter's strings have no escapes.
            if customer.contains(['"', '\\']) {
                let message = format!("{customer:?} is not a valid name of a customer");
                return Err(CliError::usage(message, ""));
            }
            Ok(format!("customer = \"{customer}\""))
        });
        let terms: Vec<String> = [self.filter.clone(), state, customer.transpose()?]
            .into_iter()
            .flatten()
            .collect();
        Ok(terms.join(" AND "))
    }
}

/// Shows clusters.
pub async fn run(cx: &Cx, args: ListArgs) -> Result<(), CliError> {
    let filter = args.filter()?;
    let client = cx.client().await?;
    let clusters = all(&client, &filter).await?;
    let width = cx.ui.width();
    cx.ui.list(&clusters, |paint| table(&clusters).render(paint, width))
}

/// All clusters that match, page by page.
pub async fn all(client: &Client, filter: &str) -> Result<Vec<Cluster>, CliError> {
    pages::all(async |page_token| {
        let request = ListClustersRequest {
            page_size: PAGE,
            page_token,
            filter: filter.to_owned(),
        };
        let page = rpc!(client, ClusterServiceClient.list_clusters, "list clusters", request).await?;
        Ok((page.clusters, page.next_page_token))
    })
    .await
}

fn table(clusters: &[Cluster]) -> Table {
    let now = units::now();
    let mut table = Table::new(&[
        "CLUSTER",
        "STATE",
        "SINCE",
        "CUSTOMER",
        "SKU",
        "NODES",
        "PARTITION",
        "LEASE",
        "WAITS FOR",
    ]);
    for cluster in clusters {
        let spec = cluster.spec.clone().unwrap_or_default();
        let status = cluster.status.clone().unwrap_or_default();
        let since = status
            .state_since
            .as_ref()
            .map(|time| units::age(units::since(time, now)));
        let lease = spec.lease_end.as_ref().map(|end| match -units::since(end, now) {
            left if left >= 0.0 => format!("{} left", units::age(left)),
            _ => "ended".to_owned(),
        });
        let words = if status.reason.is_empty() {
            &status.waiting_for
        } else {
            &status.reason
        };
        table.row([
            short(&cluster.name).into(),
            state_cell(status.state),
            since.unwrap_or_default().into(),
            spec.customer.as_str().into(),
            spec.sku.as_str().into(),
            nodes_cell(cluster),
            partition_cell(cluster),
            lease.unwrap_or_default().into(),
            words.into(),
        ]);
    }
    table
}

/// Nodes that were handed over, out of all; empty if the cluster has no nodes left.
fn nodes_cell(cluster: &Cluster) -> Cell {
    let spec = cluster.spec.clone().unwrap_or_default();
    let all = u64::from(spec.nodes) + u64::from(spec.spares);
    let status = cluster.status.clone().unwrap_or_default();
    if status.state == ClusterState::Released as i32 {
        return "".into();
    }
    let ready = u64::from(status.ready_nodes);
    match ready >= all {
        true => Cell::toned(format!("{ready}/{all}"), Tone::Good),
        false => format!("{ready}/{all}").into(),
    }
}

fn partition_cell(cluster: &Cluster) -> Cell {
    let partition = cluster.status.as_ref().and_then(|status| status.partition.as_ref());
    match partition.filter(|partition| !partition.key.is_empty()) {
        None => "".into(),
        Some(partition) if partition.fault.is_empty() && partition.proven_time.is_some() => {
            Cell::toned(format!("{} proven", partition.key), Tone::Good)
        }
        Some(partition) => Cell::toned(format!("{} not proven", partition.key), Tone::Busy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_become_filters() {
        let args = |filter: Option<&str>, state, customer: Option<&str>| ListArgs {
            filter: filter.map(str::to_owned),
            state,
            customer: customer.map(str::to_owned),
        };
        let all = args(Some("name != b"), Some(ClusterState::Ready), Some("acme corp"));
        assert_eq!(
            all.filter().unwrap(),
            "name != b AND state = ready AND customer = \"acme corp\""
        );
        assert_eq!(args(None, None, None).filter().unwrap(), "");
        assert!(args(None, None, Some("a\" AND state = ready")).filter().is_err());
    }
}
