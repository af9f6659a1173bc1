//! Faults of the fabric as messages.

use rackwright_api::v1;
use rackwright_lifecycle::ClusterId;
use rackwright_store::Store;

use super::convert;
use crate::api_error::ApiError;
use crate::clusters::faults::{Open, open_fault};

/// The open faults of the fabric; none if no comparison was made.
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
    Ok(v1::ListFabricFaultsResponse {
        faults,
        more: u32::try_from(last.more_faults).unwrap_or(u32::MAX),
        check_time: last.checked_at.and_then(convert::time),
        problem: last.problem,
    })
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
