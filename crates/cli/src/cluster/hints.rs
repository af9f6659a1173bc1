//! Possible actions for a cluster, from its known state. No I/O.

use rackwright_api::v1::{Cluster, ClusterMember, ClusterState, NodeState};
use rackwright_cli_context::error::plural;
use rackwright_cli_context::{names, units};

use super::short;

/// A lease that ends within this time, in seconds, is mentioned.
const LEASE_SOON_S: f64 = 7.0 * 86400.0;

/// Number of nodes with a separate hint.
const NODES: usize = 3;

/// Sentences, the most urgent first. `now` is in seconds since the epoch.
pub fn hints(cluster: &Cluster, now: f64) -> Vec<String> {
    let name = short(&cluster.name);
    let status = cluster.status.clone().unwrap_or_default();
    let state = ClusterState::try_from(status.state).unwrap_or_default();
    let mut hints = Vec::new();
    let is_building = matches!(
        state,
        ClusterState::Reserved | ClusterState::Building | ClusterState::Validating
    );
    if is_building
        || matches!(
            state,
            ClusterState::Degraded | ClusterState::Resizing | ClusterState::Reimaging
        )
    {
        let stuck = status.members.iter().filter(|member| is_stuck(member));
        for node in stuck
            .clone()
            .take(NODES)
            .map(|member| names::short("nodes", &member.node))
        {
            hints.push(format!(
                "`rackwright node explain {node}` shows why {node} is lost; `rackwright node retry {node}` tries again, \
                 `rackwright cluster replace {name} {node} --reason TEXT` takes another node"
            ));
        }
        let more = stuck.count().saturating_sub(NODES);
        if more > 0 {
            let more = plural(more, "node");
            hints.push(format!(
                "also lost: {more}; `rackwright cluster get {name}` lists all lost nodes"
            ));
        }
    }
    if let Some(fault) = status.partition.as_ref().map(|partition| &partition.fault)
        && !fault.is_empty()
        && state != ClusterState::Released
    {
        hints.push(
            "the partition is not proven: `rackwright events` shows the messages of the fabric manager, `rackwright fabric \
             check` compares the cabling with the plan"
                .to_owned(),
        );
    }
    hints.extend(of_wait(name, &status.waiting_kind));
    hints.extend(of_state(cluster, state));
    let end = cluster.spec.as_ref().and_then(|spec| spec.lease_end.as_ref());
    if let Some(left) = end.map(|end| -units::since(end, now))
        && left < LEASE_SOON_S
        && !matches!(state, ClusterState::Releasing | ClusterState::Released)
    {
        let left = units::duration(left);
        hints.push(format!(
            "the cluster is released automatically in {left}: `rackwright cluster lease {name} --until TIME` changes the \
             end, --none removes it"
        ));
    }
    hints
}

/// The hint for what the cluster waits for. `kind` is `ClusterStatus.waiting_kind`; new servers may have other words.
fn of_wait(name: &str, kind: &str) -> Option<String> {
    match kind {
        "replacement" => Some(
            "no other node keeps every promise now: release or repair nodes; the search is repeated every minute".to_owned(),
        ),
        "network-fault" => Some(format!(
            "the network tests between the nodes run again every ten minutes: repair the links that they name, or replace a \
             node with `rackwright cluster replace {name} NODE --reason TEXT`"
        )),
        "link-fault" => Some(format!(
            "`rackwright fabric faults` names both ends of the cable to repair; \
             `rackwright cluster replace {name} NODE --reason TEXT` takes the node out"
        )),
        "doubt" => Some(
            "nothing is done to the cluster while one of its nodes is doubted: `rackwright node explain NODE` says why and \
             what to do"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The hint for the cluster's state itself.
fn of_state(cluster: &Cluster, state: ClusterState) -> Option<String> {
    let name = short(&cluster.name);
    let status = cluster.status.clone().unwrap_or_default();
    match state {
        ClusterState::Reserved | ClusterState::Building | ClusterState::Validating => Some(format!(
            "`rackwright cluster watch {name}` shows the changes until the hand-over"
        )),
        ClusterState::Ready => Some(format!(
            "`rackwright cluster pack {name} DIR` writes the files for the customer's team"
        )),
        ClusterState::Degraded => Some(format!(
            "a lost node is replaced automatically as soon as a suitable node is free; `rackwright cluster watch {name}` \
             shows the replacement"
        )),
        ClusterState::Releasing => {
            let mut held = status.members.iter().filter(|member| is_delayed(member));
            match held.next().map(|member| names::short("nodes", &member.node)) {
                Some(node) => Some(format!(
                    "{node} is not erased: `rackwright node explain {node}` shows the reason"
                )),
                None => Some(format!(
                    "`rackwright cluster watch {name}` shows when all nodes are erased and free"
                )),
            }
        }
        ClusterState::Released => Some(format!("`rackwright cluster delete {name}` deletes its record")),
        ClusterState::Resizing => Some(format!(
            "`rackwright cluster watch {name}` shows the nodes that join and leave"
        )),
        ClusterState::Reimaging if status.rollout.is_some_and(|rollout| !rollout.stopped.is_empty()) => Some(format!(
            "`rackwright cluster resume {name}` retries the failed nodes and continues, `cluster rollback {name}` writes \
             the former image, `cluster reimage {name} --image IMAGE` writes another image"
        )),
        ClusterState::Reimaging => Some(format!(
            "`rackwright cluster watch {name}` shows the progress; `rackwright cluster rollback {name}` writes the former \
             image"
        )),
        ClusterState::Failed => Some(format!(
            "the cluster keeps its reservations: `rackwright cluster retry {name}` builds the cluster again, `cluster \
             release {name}` frees the reservations"
        )),
        ClusterState::Unspecified => None,
    }
}

/// Whether the node does not recover by itself.
fn is_stuck(member: &ClusterMember) -> bool {
    member.standing == "lost"
}

/// Whether the node's erase does not continue by itself.
fn is_delayed(member: &ClusterMember) -> bool {
    let state = NodeState::try_from(member.state);
    matches!(
        state,
        Ok(NodeState::Failed | NodeState::Quarantined | NodeState::Maintenance)
    ) && member.standing != "freed"
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackwright_api::v1::{ClusterPartition, ClusterSpec, ClusterStatus};

    fn cluster(state: ClusterState, members: &[(&str, &str, NodeState)]) -> Cluster {
        let member = |(node, standing, state): &(&str, &str, NodeState)| ClusterMember {
            node: format!("nodes/{node}"),
            standing: (*standing).into(),
            state: *state as i32,
            ..ClusterMember::default()
        };
        Cluster {
            name: "clusters/alpha".into(),
            spec: Some(ClusterSpec::default()),
            status: Some(ClusterStatus {
                state: state as i32,
                members: members.iter().map(member).collect(),
                ..ClusterStatus::default()
            }),
            ..Cluster::default()
        }
    }

    #[test]
    fn every_state_has_its_word() {
        let table = [
            (ClusterState::Reserved, "cluster watch alpha"),
            (ClusterState::Building, "cluster watch alpha"),
            (ClusterState::Validating, "cluster watch alpha"),
            (ClusterState::Ready, "cluster pack alpha DIR"),
            (ClusterState::Degraded, "replaced automatically"),
            (ClusterState::Releasing, "erased and free"),
            (ClusterState::Released, "cluster delete alpha"),
            (ClusterState::Failed, "cluster retry alpha"),
            (ClusterState::Resizing, "cluster watch alpha"),
            (ClusterState::Reimaging, "cluster rollback alpha"),
        ];
        for (state, word) in table {
            let hints = hints(&cluster(state, &[]), 0.0);
            assert!(hints.len() == 1 && hints[0].contains(word), "{state:?}: {hints:?}");
        }
        assert!(hints(&Cluster::default(), 0.0).is_empty());
    }

    #[test]
    fn lost_nodes_come_first_and_the_list_is_bounded() {
        let lost: Vec<_> = ["a", "b", "c", "d", "e"]
            .map(|node| (node, "lost", NodeState::Failed))
            .into();
        let many = hints(&cluster(ClusterState::Degraded, &lost), 0.0);
        assert!(
            many[0].contains("node explain a") && many[2].contains("replace alpha c"),
            "{many:?}"
        );
        assert!(many[3].starts_with("also lost: 2 nodes"), "{many:?}");
        let held = [
            ("a", "freed", NodeState::Quarantined),
            ("b", "leaving", NodeState::Failed),
        ];
        assert_eq!(
            hints(&cluster(ClusterState::Releasing, &held), 0.0),
            ["b is not erased: `rackwright node explain b` shows the reason"]
        );
    }

    #[test]
    fn a_wait_has_the_hint_of_its_kind_for_any_text() {
        let with = |kind: &str| {
            let mut cluster = cluster(ClusterState::Building, &[]);
            let status = cluster.status.get_or_insert_default();
            status.waiting_kind = kind.into();
            status.waiting_for = "the network between its nodes: a text".into();
            hints(&cluster, 0.0)
        };
        for (kind, words) in [
            ("replacement", "release or repair nodes"),
            ("network-fault", "run again every ten minutes"),
            ("link-fault", "fabric faults"),
            ("doubt", "node explain NODE"),
        ] {
            let hints = with(kind);
            assert!(hints.len() == 2 && hints[0].contains(words), "{kind}: {hints:?}");
        }
        for kind in ["", "nodes", "network-test", "moon"] {
            assert_eq!(with(kind).len(), 1, "{kind}");
        }
    }

    #[test]
    fn a_partition_that_is_being_set_up_is_no_fault() {
        let mut cluster = cluster(ClusterState::Building, &[]);
        cluster.status.get_or_insert_default().partition = Some(ClusterPartition {
            key: "0x0012".into(),
            progress: "it is being set up".into(),
            ..ClusterPartition::default()
        });
        let hints = hints(&cluster, 0.0);
        assert!(
            hints.len() == 1 && hints[0].contains("cluster watch alpha"),
            "{hints:?}"
        );
    }

    #[test]
    fn partitions_and_leases_have_a_word() {
        let mut cluster = cluster(ClusterState::Ready, &[]);
        cluster.status.get_or_insert_default().partition = Some(ClusterPartition {
            key: "0x0012".into(),
            fault: "3 ports lack it".into(),
            ..ClusterPartition::default()
        });
        cluster.spec.get_or_insert_default().lease_end = Some(prost_types::Timestamp {
            seconds: 90_000,
            nanos: 0,
        });
        let hints = hints(&cluster, 3600.0);
        assert!(hints[0].starts_with("the partition is not proven"), "{hints:?}");
        assert!(
            hints[2].starts_with("the cluster is released automatically in 1d 00h"),
            "{hints:?}"
        );
    }
}
