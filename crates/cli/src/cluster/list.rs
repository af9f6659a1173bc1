//! `rackwright cluster list`

use std::sync::Arc;

use clap::Args;
use rackwright_api::v1::cluster_service_client::ClusterServiceClient;
use rackwright_api::v1::{Cluster, ClusterState, ListClustersRequest};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tonic::Code;

use super::{get, parse_state, short, state_cell, state_name};
use crate::args::Cx;
use crate::client::{Client, rpc};
use crate::error::CliError;
use crate::output::table::Cell;
use crate::output::{Format, Table, Tone};
use crate::units;

/// Clusters of one page.
const PAGE: i32 = 500;

/// Clusters whose nodes are counted: a list does not hold them, each is asked for by itself.
const MOST_COUNTED: usize = 200;

/// Of them asked for at once.
const AT_ONCE: usize = 8;

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
    /// As the API's filter.
    fn filter(&self) -> Result<String, CliError> {
        let state = self.state.map(|state| format!("state = {}", state_name(state as i32)));
        let customer = self.customer.as_ref().map(|customer| {
            // The filter's strings know no escapes.
            if customer.contains(['"', '\\']) {
                let message = format!("{customer:?} is no customer's name");
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
    let mut clusters = all(&client, &filter).await?;
    if cx.ui.format() == Format::Table {
        count(&client, &mut clusters).await?;
        if clusters.len() > MOST_COUNTED {
            cx.ui.note(&format!(
                "note: nodes and partitions are shown of the first {MOST_COUNTED} clusters; --customer, --state or --filter narrow the list"
            ));
        }
    }
    let width = cx.ui.width();
    cx.ui.list(&clusters, |paint| table(&clusters).render(paint, width))
}

/// All clusters that match, page by page.
async fn all(client: &Client, filter: &str) -> Result<Vec<Cluster>, CliError> {
    let mut clusters = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListClustersRequest {
            page_size: PAGE,
            page_token,
            filter: filter.to_owned(),
        };
        let page = rpc!(client, ClusterServiceClient.list_clusters, "list clusters", request).await?;
        clusters.extend(page.clusters);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(clusters);
        }
    }
}

/// Puts members and partition in the place of what the list has of the first clusters.
async fn count(client: &Arc<Client>, clusters: &mut [Cluster]) -> Result<(), CliError> {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for (place, cluster) in clusters.iter().enumerate().take(MOST_COUNTED) {
        let (client, permits, name) = (client.clone(), permits.clone(), cluster.name.clone());
        tasks.spawn(async move {
            let _permit = permits.acquire().await;
            (place, get(&client, &name).await)
        });
    }
    while let Some(joined) = tasks.join_next().await {
        match joined {
            Ok((place, Ok(cluster))) => clusters[place] = cluster,
            // Forgotten since it was listed.
            Ok((_, Err(error))) if error.code() == Some(Code::NotFound) => {}
            Ok((_, Err(error))) => return Err(error),
            Err(e) => return Err(CliError::BadAnswer(format!("reading clusters broke off: {e}"))),
        }
    }
    Ok(())
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

/// Nodes that were handed over, of all; `?` where they were not counted, nothing where none is left.
fn nodes_cell(cluster: &Cluster) -> Cell {
    let spec = cluster.spec.clone().unwrap_or_default();
    let all = u64::from(spec.nodes) + u64::from(spec.spares);
    let members = cluster.status.as_ref().map_or(&[][..], |status| &status.members);
    let state = cluster.status.as_ref().map_or(0, |status| status.state);
    if members.is_empty() && state == ClusterState::Released as i32 {
        return "".into();
    }
    if members.is_empty() {
        return format!("?/{all}").into();
    }
    let ready = members.iter().filter(|member| member.standing == "handed-over").count() as u64;
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
