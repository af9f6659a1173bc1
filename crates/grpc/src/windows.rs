//! Maintenance windows: the holder of a machine determines when it may be disturbed.

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::intent;
use rackwright_lifecycle::{ClusterId, EventKind, MaintenanceWindow, NodeId};
use rackwright_store::{Scope, WindowRow};

use super::call::MutatingCall;
use super::convert;

fn message(target: String, window: &MaintenanceWindow) -> v1::MaintenanceWindow {
    let weekly = window.weekly.iter().map(|one| v1::WeeklyWindow {
        day: one.day.into(),
        start_minute: one.start_min.into(),
        minutes: one.minutes.into(),
    });
    let once = window.once.iter().map(|one| v1::OnceWindow {
        start_time: convert::time(one.from),
        end_time: convert::time(one.to),
    });
    v1::MaintenanceWindow {
        target,
        weekly: weekly.collect(),
        once: once.collect(),
    }
}

fn no_target(target: &str) -> ApiError {
    ApiError::invalid("target", format!("{target:?} is not nodes/ID or clusters/ID"))
}

/// Sets a window. A node's window is valid for its present claim.
///
/// # Errors
/// The window is invalid, or the target is not the caller's.
pub(super) async fn set(
    core: &Core,
    call: &MutatingCall<'_>,
    window: v1::MaintenanceWindow,
) -> Result<v1::MaintenanceWindow, ApiError> {
    let wanted = intent::maintenance_window(&window)?;
    let mut tx = match call.begin().await? {
        Ok(tx) => tx,
        Err(former) => return Ok(former),
    };
    let scope = call.caller().scope.clone();
    let (mut generation, mut nodes) = (0, Vec::new());
    match window.target.split_once('/') {
        Some(("nodes", id)) => {
            let record = tx.node_of(&scope, &NodeId::named(id)).await?;
            let Some(claim) = &record.node.claim else {
                let hint = "an update of an unclaimed node needs no window";
                return Err(ApiError::precondition(&window.target, "the node has no claim", hint));
            };
            generation = i64::try_from(claim.generation).unwrap_or(i64::MAX);
            nodes.push(record.id);
        }
        Some(("clusters", id)) => {
            let id = &ClusterId::named(id);
            tx.cluster_of(&scope, id).await?;
            nodes = core
                .store
                .nodes_of_cluster(&scope, id)
                .await?
                .into_iter()
                .map(|one| one.id)
                .collect();
        }
        _ => return Err(no_target(&window.target)),
    }
    let row = WindowRow {
        target: window.target.clone(),
        generation,
        changed_at: call.now(),
        body: serde_json::to_string(&wanted).unwrap_or_default(),
    };
    tx.put_maintenance_window(&row).await?;
    let words = format!("{} set the maintenance window", call.caller().name);
    tx.add_event(&call.event(EventKind::MaintenanceWindow, &window.target, words))
        .await?;
    let answer = call.end(tx, message(window.target, &wanted)).await?;
    for node in nodes {
        core.wake(&node).await;
    }
    Ok(answer)
}

/// Reads a window.
///
/// # Errors
/// The target is not the caller's.
pub(super) async fn get(core: &Core, scope: &Scope, target: String) -> Result<v1::MaintenanceWindow, ApiError> {
    let generation = match target.split_once('/') {
        Some(("nodes", id)) => {
            let record = core.store.node(scope, &NodeId::named(id)).await?;
            let generation = record.node.claim.map_or(u64::MAX, |claim| claim.generation);
            i64::try_from(generation).unwrap_or(i64::MAX)
        }
        Some(("clusters", id)) => {
            core.store.cluster(scope, &ClusterId::named(id)).await?;
            0
        }
        _ => return Err(no_target(&target)),
    };
    let row = core.store.maintenance_window(&target).await?;
    let window = row.filter(|row| row.generation == generation);
    let read = window.map(|row| serde_json::from_str(&row.body)).transpose();
    let broken =
        |error: serde_json::Error| ApiError::Internal(format!("the window of {target} cannot be read: {error}"));
    let read: MaintenanceWindow = read.map_err(broken)?.unwrap_or_default();
    Ok(message(target, &read))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rackwright_api::v1::cluster_service_server::ClusterService as _;
    use rackwright_api::v1::firmware_service_server::FirmwareService as _;
    use rackwright_ground::clock;
    use rackwright_ground::testing;
    use rackwright_identity::ClientIdentity;
    use rackwright_lifecycle::cluster::State;
    use rackwright_store::MemberRow;
    use tonic::{Code, Request};

    use super::*;
    use crate::clusters::Clusters;
    use crate::firmware::Firmware;

    fn by_operator<T>(request: T) -> Request<T> {
        let mut request = Request::new(request);
        let olga = ClientIdentity::member("olga", 0).unwrap();
        request.extensions_mut().insert(olga);
        request
    }

    fn mutation(core: &Core) -> Option<v1::Mutation> {
        Some(v1::Mutation {
            idempotency_key: core.new_id(),
            ..v1::Mutation::default()
        })
    }

    /// Number of spans in the cluster's window.
    async fn spans(core: &Core) -> usize {
        let window = get(core, &Scope::Site, "clusters/alpha".into()).await.unwrap();
        window.weekly.len()
    }

    #[tokio::test]
    async fn the_window_of_a_cluster_goes_with_it_and_is_not_that_of_the_next_one() {
        let core = testing::core().await;
        let mut alpha = testing::cluster("alpha");
        let row = MemberRow {
            role: "operator".into(),
            customer: "".into(),
        };
        let mut tx = core.store.write().await.unwrap();
        tx.put_member("olga", &row, 0, clock::now()).await.unwrap();
        tx.insert_cluster(&alpha).await.unwrap();
        tx.commit().await.unwrap();
        let window = v1::MaintenanceWindow {
            target: "clusters/alpha".into(),
            weekly: vec![v1::WeeklyWindow {
                day: 6,
                start_minute: 120,
                minutes: 180,
            }],
            once: Vec::new(),
        };
        let request = v1::SetMaintenanceWindowRequest {
            window: Some(window),
            mutation: mutation(&core),
        };
        let firmware = Firmware(Arc::clone(&core));
        firmware.set_maintenance_window(by_operator(request)).await.unwrap();
        assert_eq!(spans(&core).await, 1);

        let clusters = Clusters(Arc::clone(&core));
        let delete = || {
            by_operator(v1::DeleteClusterRequest {
                name: "clusters/alpha".into(),
                mutation: mutation(&core),
            })
        };
        let refused = clusters.delete_cluster(delete()).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert_eq!(spans(&core).await, 1, "it is there still");
        let mut tx = core.store.write().await.unwrap();
        alpha.cluster.state = State::Released;
        tx.save_cluster(&mut alpha, clock::now()).await.unwrap();
        tx.commit().await.unwrap();
        clusters.delete_cluster(delete()).await.unwrap();
        let mut tx = core.store.write().await.unwrap();
        tx.insert_cluster(&testing::cluster("alpha")).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(spans(&core).await, 0);
    }
}
