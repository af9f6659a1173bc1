//! Clusters as messages of the API.

use rackwright_api::v1;
use rackwright_control::clusters::cluster_partitions::ClusterPartition;
use rackwright_control::clusters::network;
use rackwright_lifecycle::cluster::{Partition, State, WaitKind};
use rackwright_store::{ClusterHistoryRow, ClusterRecord, Replaced};

use super::super::convert;

fn state(state: State) -> v1::ClusterState {
    match state {
        State::Reserved => v1::ClusterState::Reserved,
        State::Building => v1::ClusterState::Building,
        State::Validating => v1::ClusterState::Validating,
        State::Ready => v1::ClusterState::Ready,
        State::Degraded => v1::ClusterState::Degraded,
        State::Releasing => v1::ClusterState::Releasing,
        State::Released => v1::ClusterState::Released,
        State::Failed => v1::ClusterState::Failed,
        State::Resizing => v1::ClusterState::Resizing,
        State::Reimaging => v1::ClusterState::Reimaging,
    }
}

fn spec(record: &ClusterRecord) -> v1::ClusterSpec {
    let spec = &record.spec;
    v1::ClusterSpec {
        customer: record.customer.to_string(),
        sku: spec.sku.clone(),
        nodes: spec.nodes,
        spares: spec.spares,
        bandwidth: spec.bandwidth.clone(),
        deployment: Some(v1::Deployment {
            image: format!("{}/versions/{}", spec.image_name, spec.image_digest),
            hostname: String::new(),
            ssh_authorized_keys: spec.ssh_authorized_keys.clone(),
            user_data: String::new(),
            root_drive: spec.root_drive.clone(),
            verify_whole_disk: spec.verify_whole_disk,
            customer: record.customer.to_string(),
            has_user_data: spec.user_data.is_some() || !spec.plain_user_data.is_empty(),
        }),
        lease_end: record.cluster.lease_end.and_then(convert::time),
    }
}

pub(super) fn transition(row: &ClusterHistoryRow) -> v1::ClusterTransition {
    v1::ClusterTransition {
        edge: row.edge.clone(),
        from_state: state(row.from).into(),
        to_state: state(row.to).into(),
        time: convert::time(row.at),
        reason: row.reason.clone(),
        time_in_former_state: prost_types::Duration::try_from(std::time::Duration::from_micros(
            u64::try_from(row.spent_us).unwrap_or(0),
        ))
        .ok(),
    }
}

/// A cluster without the parts from other tables.
pub(super) fn message(record: &ClusterRecord) -> v1::Cluster {
    let status = v1::ClusterStatus {
        state: state(record.cluster.state).into(),
        state_since: convert::time(record.cluster.since),
        waiting_for: record.wait.to_string(),
        waiting_kind: match record.wait.kind() {
            WaitKind::Rest => String::new(),
            kind => kind.to_string(),
        },
        reason: record.reason.clone(),
        reserved_watts: record.reserved_watts,
        network: network::words(record),
        ..v1::ClusterStatus::default()
    };
    v1::Cluster {
        name: format!("clusters/{}", record.id),
        spec: Some(spec(record)),
        status: Some(status),
        metadata: Some(v1::Metadata {
            uid: record.uid.clone(),
            resource_version: record.version.to_string(),
            create_time: convert::time(record.created_at),
            update_time: convert::time(record.updated_at),
            labels: record.labels.clone().into_iter().collect(),
        }),
    }
}

pub(super) fn replacement(replaced: &Replaced) -> v1::ClusterReplacement {
    v1::ClusterReplacement {
        node: format!("nodes/{}", replaced.node),
        by: format!("nodes/{}", replaced.by),
        time: convert::time(replaced.at),
        reason: replaced.why.clone(),
    }
}

pub(super) fn partition(stored: ClusterPartition<'_>, record: &ClusterRecord) -> Option<v1::ClusterPartition> {
    let key = record.partition?;
    let mut partition = v1::ClusterPartition {
        key: format!("{key:#06x}"),
        ports: u32::try_from(stored.ports()).unwrap_or(u32::MAX),
        ..v1::ClusterPartition::default()
    };
    match stored.fact(record) {
        Partition::Proven => partition.proven_time = stored.proven_at().and_then(convert::time),
        Partition::Faulty(fault) => partition.fault = fault,
        Partition::Pending => "the partition is being set up".clone_into(&mut partition.progress),
        Partition::Draining(1) => {
            "1 port is not yet read back without the partition key".clone_into(&mut partition.progress)
        }
        Partition::Draining(ports) => {
            partition.progress = format!("{ports} ports are not yet read back without the partition key")
        }
        Partition::Gone | Partition::None => {
            "no port holds the partition key any more".clone_into(&mut partition.progress)
        }
    }
    Some(partition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_wait_is_described_in_the_api_and_in_the_handbook() {
        let api = include_str!("../../../../proto/rackwright/v1/clusters.proto");
        let handbook = include_str!("../../../../docs/clusters.md");
        for kind in WaitKind::ALL.iter().filter(|kind| **kind != WaitKind::Rest) {
            let line = api.lines().find(|line| line.contains(&format!("  // \"{kind}\": ")));
            let line = line.unwrap_or_else(|| panic!("{kind} is not in the API"));
            assert_eq!(line.ends_with(". For customers."), kind.is_for_customers(), "{line}");
            assert!(handbook.contains(&format!("\n| `{kind}` | ")), "{kind}");
        }
    }
}
