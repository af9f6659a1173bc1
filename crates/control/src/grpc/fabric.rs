//! Faults of the fabric as messages.

use rackwright_api::v1;

use super::convert;
use crate::api_error::ApiError;
use crate::clusters::faults::Open;
use crate::clusters::partitions::Fabric;

/// The open faults in the stored state of a fabric; none if no state is stored.
///
/// # Errors
/// The stored state is unreadable.
pub fn faults(text: &str) -> Result<v1::ListFabricFaultsResponse, ApiError> {
    if text.is_empty() {
        return Ok(v1::ListFabricFaultsResponse::default());
    }
    let watch = Fabric::parse(text)
        .map_err(|e| ApiError::Internal(e.to_string()))?
        .watch;
    Ok(v1::ListFabricFaultsResponse {
        faults: watch.open.iter().map(|(id, open)| fault(id, open)).collect(),
        more: u32::try_from(watch.more).unwrap_or(u32::MAX),
        check_time: watch.checked_at.and_then(convert::time),
        problem: watch.problem,
    })
}

fn fault(id: &str, open: &Open) -> v1::FabricFault {
    let fault = &open.fault;
    let ends = |[a, b]: &[String; 2]| v1::FabricCableEnds {
        a: a.clone(),
        b: b.clone(),
    };
    let cluster = |id: &String| format!("clusters/{id}");
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
