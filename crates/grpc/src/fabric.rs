//! Faults of the fabric, and breaches of the isolation of clusters, as messages.

use rackwright_api::v1;
use rackwright_control::clusters::breach::Breach;
use rackwright_control::clusters::faults::{Open, open_fault};
use rackwright_ground::api_error::ApiError;
use rackwright_lifecycle::ClusterId;
use rackwright_store::Store;

use super::convert;

/// Breaches in an answer.
const MAX_BREACHES: i64 = 50;

/// The open faults of the fabric, none if no comparison was made, and the newest breaches.
///
/// # Errors
/// The database failed, or a stored fault does not parse.
pub async fn faults(store: &Store) -> Result<v1::ListFabricFaultsResponse, ApiError> {
    let last = store.fabric_comparison().await?.unwrap_or_default();
    let mut faults = Vec::new();
    for (id, body) in store.fabric_faults().await? {
        let open = open_fault(&id, &body).map_err(|e| ApiError::Internal(e.to_string()))?;
        faults.push(fault(&id, &open));
    }
    let mut breaches = Vec::new();
    for row in store.fabric_breaches(MAX_BREACHES).await? {
        let stored = Breach::of_row(row).map_err(|e| ApiError::Internal(e.to_string()))?;
        breaches.push(breach(&stored));
    }
    let check = store.fabric_check().await?.unwrap_or_default();
    Ok(v1::ListFabricFaultsResponse {
        faults,
        breaches,
        isolation_check_time: check.checked_at.and_then(convert::time),
        isolation_problem: check.problem,
        more: u32::try_from(last.more_faults).unwrap_or(u32::MAX),
        check_time: last.checked_at.and_then(convert::time),
        problem: last.problem,
    })
}

fn breach(breach: &Breach) -> v1::FabricBreach {
    let (row, concerned) = (&breach.row, &breach.concerned);
    let named = concerned.clusters.values();
    let mut clusters: Vec<String> = named.map(|cluster| format!("clusters/{}", cluster.id)).collect();
    clusters.sort();
    v1::FabricBreach {
        id: row.id.clone(),
        kind: row.kind.clone(),
        text: concerned.text.clone(),
        ports: concerned.ports,
        first_ports: concerned.named.iter().map(ToString::to_string).collect(),
        clusters,
        good_time: row.good_at.and_then(convert::time),
        since: convert::time(row.since),
        seen_time: convert::time(row.seen),
        end_time: row.ended_at.and_then(convert::time),
    }
}

fn fault(id: &str, open: &Open) -> v1::FabricFault {
    let fault = &open.fault;
    let ends = |[a, b]: &[String; 2]| v1::FabricCableEnds {
        a: a.clone(),
        b: b.clone(),
    };
    let cluster = |id: &ClusterId| format!("clusters/{id}");
    v1::FabricFault {
        id: id.to_owned(),
        kind: fault.kind.as_str().to_owned(),
        fault: fault.what.clone(),
        cables: fault.cables.clone(),
        ends: fault.ends.iter().map(ends).collect(),
        nodes: fault.nodes.iter().map(|node| format!("nodes/{node}")).collect(),
        clusters: open.clusters.iter().map(cluster).collect(),
        counting_clusters: open.counting.iter().map(cluster).collect(),
        text: fault.text.clone(),
        since: convert::time(open.since),
    }
}
