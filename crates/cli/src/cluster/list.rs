//! `rackwright cluster list`

use std::sync::LazyLock;

use clap::Args;
use rackwright_api::v1::cluster_service_client::ClusterServiceClient;
use rackwright_api::v1::{Cluster, ClusterSpec, ClusterState, ClusterStatus, ListClustersRequest};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Column, SortArgs, Tone, columns};
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
    #[command(flatten)]
    sorting: SortArgs,
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
    let sorting = args.sorting.sorting(COLUMNS)?;
    let filter = args.filter()?;
    let client = cx.client().await?;
    let mut clusters = all(&client, &filter).await?;
    let (now, width, is_wide) = (units::now(), cx.ui.width(), cx.ui.is_wide());
    if let Some(sorting) = sorting {
        sorting.sort(&mut clusters, now);
    }
    cx.ui.list(&clusters, |paint| {
        columns::table(COLUMNS, &clusters, is_wide, now).render(paint, width)
    })
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

const COLUMNS: &[Column<Cluster>] = &[
    Column::<Cluster>::new("CLUSTER", |cluster, _| short(&cluster.name).into()),
    Column::<Cluster>::new("STATE", |cluster, _| state_cell(status(cluster).state)),
    Column::<Cluster>::new("SINCE", since).ordered(|cluster| status(cluster).state_since.as_ref().map(units::seconds)),
    Column::<Cluster>::new("CUSTOMER", |cluster, _| (&spec(cluster).customer).into()),
    Column::<Cluster>::new("SKU", |cluster, _| (&spec(cluster).sku).into()),
    Column::<Cluster>::new("NODES", |cluster, _| nodes_cell(cluster)).ordered(|cluster| {
        let spec = spec(cluster);
        Some(f64::from(spec.nodes) + f64::from(spec.spares))
    }),
    Column::<Cluster>::new("PARTITION", |cluster, _| partition_cell(cluster)),
    Column::<Cluster>::new("LEASE", lease).ordered(|cluster| spec(cluster).lease_end.as_ref().map(units::seconds)),
    Column::<Cluster>::new("WAITS FOR", waits_for),
];

fn spec(cluster: &Cluster) -> &ClusterSpec {
    static NONE: LazyLock<ClusterSpec> = LazyLock::new(ClusterSpec::default);
    cluster.spec.as_ref().unwrap_or(&NONE)
}

fn status(cluster: &Cluster) -> &ClusterStatus {
    static NONE: LazyLock<ClusterStatus> = LazyLock::new(ClusterStatus::default);
    cluster.status.as_ref().unwrap_or(&NONE)
}

fn since(cluster: &Cluster, now: f64) -> Cell {
    let since = status(cluster).state_since.as_ref();
    let age = since.map(|time| units::age(units::since(time, now)));
    age.unwrap_or_default().into()
}

fn lease(cluster: &Cluster, now: f64) -> Cell {
    let end = spec(cluster).lease_end.as_ref();
    let lease = end.map(|end| match -units::since(end, now) {
        left if left >= 0.0 => format!("{} left", units::age(left)),
        _ => "ended".to_owned(),
    });
    lease.unwrap_or_default().into()
}

fn waits_for(cluster: &Cluster, _now: f64) -> Cell {
    let status = status(cluster);
    match status.reason.is_empty() {
        true => (&status.waiting_for).into(),
        false => (&status.reason).into(),
    }
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

/// The partition key and whether it is proven; empty if the cluster has no partition left.
fn partition_cell(cluster: &Cluster) -> Cell {
    let status = status(cluster);
    if status.state == ClusterState::Released as i32 {
        return "".into();
    }
    let partition = status.partition.as_ref();
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
    use rackwright_api::v1::ClusterPartition;

    use super::*;

    #[test]
    fn a_released_cluster_has_no_partition_left() {
        let cell = |state: ClusterState| {
            let partition = ClusterPartition {
                key: "0x0002".into(),
                ..ClusterPartition::default()
            };
            let status = ClusterStatus {
                state: state as i32,
                partition: Some(partition),
                ..ClusterStatus::default()
            };
            let cluster = Cluster {
                status: Some(status),
                ..Cluster::default()
            };
            format!("{:?}", partition_cell(&cluster))
        };
        assert!(cell(ClusterState::Ready).contains("0x0002 not proven"));
        assert!(!cell(ClusterState::Released).contains("0x0002"));
    }

    #[test]
    fn selections_become_filters() {
        let args = |filter: Option<&str>, state, customer: Option<&str>| ListArgs {
            filter: filter.map(str::to_owned),
            state,
            customer: customer.map(str::to_owned),
            sorting: SortArgs::default(),
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
