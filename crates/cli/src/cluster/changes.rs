//! The changes of a cluster between two readings, one line for each change. No I/O.

use std::collections::{HashMap, HashSet};

use prost_types::Timestamp;
use rackwright_api::v1::{Cluster, ClusterMember, ClusterPartition, ClusterStatus, ClusterTransition};
use rackwright_cli_context::error::plural;
use rackwright_cli_context::names::listed;
use rackwright_cli_context::output::clean;
use rackwright_cli_context::{names, units};

use super::show::open_reason;
use super::{short, state_name};

/// A change of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// When the cluster changed, if this is known.
    pub time: Option<Timestamp>,
    /// The change in words for people, without the cluster's name.
    pub text: String,
}

impl Change {
    /// A change between two readings, at an unknown time.
    fn undated(text: String) -> Self {
        Self { time: None, text }
    }

    /// The line for the cluster with this name: `2026-01-02T03:04:05Z  alpha  is building`. `now`, in seconds since the
    /// epoch, replaces an unknown time.
    pub fn line(&self, name: &str, now: f64) -> String {
        let time = self
            .time
            .as_ref()
            .map_or_else(|| units::stamp_seconds(now), units::stamp);
        clean(&format!("{time}  {name}  {}", self.text))
    }
}

/// The cluster's state at the first reading, and what the cluster waits for.
pub fn first(cluster: &Cluster) -> Vec<Change> {
    let status = cluster.status.clone().unwrap_or_default();
    let mut changes = vec![Change {
        time: status.state_since,
        text: format!("is {}{}", state_name(status.state), because(&status.reason)),
    }];
    changes.extend(new_wait(&ClusterStatus::default(), &status));
    changes
}

/// The differences at a later reading, in chronological order as far as it is known.
pub fn between(before: &Cluster, after: &Cluster) -> Vec<Change> {
    if uid(before) != uid(after) {
        let mut changes = vec![Change::undated(format!("{} was created again", short(&after.name)))];
        changes.extend(first(after));
        return changes;
    }
    let (before, after) = (
        before.status.clone().unwrap_or_default(),
        after.status.clone().unwrap_or_default(),
    );
    let mut changes = transitions(&before, &after);
    changes.extend(members(&before.members, &after.members));
    changes.extend(partition(before.partition.as_ref(), after.partition.as_ref()));
    changes.extend(new_wait(&before, &after));
    changes
}

fn uid(cluster: &Cluster) -> Option<&str> {
    cluster.metadata.as_ref().map(|metadata| metadata.uid.as_str())
}

/// `: REASON`; empty without a reason.
fn because(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    }
}

/// The new transitions of the history, the oldest first. The history itself has the newest first.
fn transitions(before: &ClusterStatus, after: &ClusterStatus) -> Vec<Change> {
    let newest_known = before.history.first();
    let new = after.history.iter().take_while(|step| Some(*step) != newest_known);
    let change = |step: &ClusterTransition| {
        let spent = step.time_in_former_state.as_ref().map(units::proto_seconds);
        let spent = spent.map(|seconds| format!(" after {}", units::duration(seconds)));
        let (from, to) = (state_name(step.from_state), state_name(step.to_state));
        Change {
            time: step.time,
            text: format!("{from} -> {to}{}{}", spent.unwrap_or_default(), because(&step.reason)),
        }
    };
    let mut changes: Vec<Change> = new.map(change).collect();
    changes.reverse();
    changes
}

/// New nodes, nodes with a changed standing or reason, and nodes that left. Nodes with the same change share a line.
fn members(before: &[ClusterMember], after: &[ClusterMember]) -> Vec<Change> {
    let former: HashMap<&str, &ClusterMember> = before.iter().map(|member| (&*member.node, member)).collect();
    let present: HashSet<&str> = after.iter().map(|member| &*member.node).collect();
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    let mut add = |text: String, node: &str| {
        let node = names::short("nodes", node).to_owned();
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, nodes)) => nodes.push(node),
            None => groups.push((text, vec![node])),
        }
    };
    for member in after {
        let text = format!("{}{}", member.standing, because(&member.reason));
        match former.get(&*member.node) {
            None => add(format!("new: {text}"), &member.node),
            Some(was) if (&was.standing, &was.reason) != (&member.standing, &member.reason) => add(text, &member.node),
            Some(_) => {}
        }
    }
    for was in before.iter().filter(|was| !present.contains(&*was.node)) {
        add("no longer in the cluster".to_owned(), &was.node);
    }
    groups
        .into_iter()
        .map(|(text, nodes)| Change::undated(format!("{} {text}", listed(&nodes))))
        .collect()
}

/// A partition that became proven, that is no longer proven, or that is not proven for a new reason.
fn partition(before: Option<&ClusterPartition>, after: Option<&ClusterPartition>) -> Option<Change> {
    let is_proven = |partition: &ClusterPartition| partition.fault.is_empty() && partition.proven_time.is_some();
    let after = after.filter(|partition| !partition.key.is_empty())?;
    let was_proven = before.is_some_and(is_proven);
    if is_proven(after) {
        let ports = plural(after.ports as usize, "port");
        return (!was_proven).then(|| Change {
            time: after.proven_time,
            text: format!("partition {} is proven on {ports}", after.key),
        });
    }
    let (former_reason, reason) = (before.map_or("", open_reason), open_reason(after));
    if !was_proven && former_reason == reason {
        return None;
    }
    let text = format!("partition {} is not proven{}", after.key, because(reason));
    Some(Change::undated(text))
}

/// What a cluster waits for, if it did not wait for the same before.
fn new_wait(before: &ClusterStatus, after: &ClusterStatus) -> Option<Change> {
    let is_new = after.waiting_for != before.waiting_for && !after.waiting_for.is_empty();
    is_new.then(|| Change::undated(format!("waits for {}", after.waiting_for)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackwright_api::v1::{ClusterState, Metadata};

    fn step(from: ClusterState, to: ClusterState, seconds: i64) -> ClusterTransition {
        ClusterTransition {
            from_state: from as i32,
            to_state: to as i32,
            time: Some(Timestamp { seconds, nanos: 0 }),
            time_in_former_state: Some(prost_types::Duration { seconds: 61, nanos: 0 }),
            ..ClusterTransition::default()
        }
    }

    fn member(node: &str, standing: &str, reason: &str) -> ClusterMember {
        ClusterMember {
            node: format!("nodes/{node}"),
            standing: standing.into(),
            reason: reason.into(),
            ..ClusterMember::default()
        }
    }

    fn cluster(status: ClusterStatus) -> Cluster {
        Cluster {
            name: "clusters/alpha".into(),
            status: Some(status),
            ..Cluster::default()
        }
    }

    fn texts(changes: &[Change]) -> Vec<&str> {
        changes.iter().map(|change| change.text.as_str()).collect()
    }

    #[test]
    fn edges_nodes_partition_and_waits_are_printed_once() {
        let before = cluster(ClusterStatus {
            state: ClusterState::Building as i32,
            history: vec![step(ClusterState::Reserved, ClusterState::Building, 10)],
            members: vec![
                member("a", "coming", ""),
                member("b", "coming", ""),
                member("c", "coming", ""),
            ],
            partition: Some(ClusterPartition {
                key: "0x0012".into(),
                ..ClusterPartition::default()
            }),
            waiting_for: "3 of 3 nodes".into(),
            ..ClusterStatus::default()
        });
        let after = cluster(ClusterStatus {
            state: ClusterState::Ready as i32,
            history: vec![
                step(ClusterState::Validating, ClusterState::Ready, 140),
                step(ClusterState::Building, ClusterState::Validating, 80),
                step(ClusterState::Reserved, ClusterState::Building, 10),
            ],
            members: vec![
                member("a", "handed-over", ""),
                member("b", "handed-over", ""),
                member("d", "lost", "failed"),
            ],
            partition: Some(ClusterPartition {
                key: "0x0012".into(),
                ports: 8,
                proven_time: Some(Timestamp { seconds: 100, nanos: 0 }),
                ..ClusterPartition::default()
            }),
            ..ClusterStatus::default()
        });
        assert_eq!(
            texts(&between(&before, &after)),
            [
                "building -> validating after 1m 01s",
                "validating -> ready after 1m 01s",
                "a, b handed-over",
                "d new: lost: failed",
                "c no longer in the cluster",
                "partition 0x0012 is proven on 8 ports",
            ]
        );
        assert!(between(&after, &after).is_empty());
        assert_eq!(texts(&first(&before)), ["is building", "waits for 3 of 3 nodes"]);
    }

    #[test]
    fn another_cluster_of_the_same_name_is_printed_as_another() {
        let named = |uid: &str| Cluster {
            metadata: Some(Metadata {
                uid: uid.into(),
                ..Metadata::default()
            }),
            ..cluster(ClusterStatus {
                state: ClusterState::Reserved as i32,
                ..ClusterStatus::default()
            })
        };
        assert_eq!(
            texts(&between(&named("1"), &named("2"))),
            ["alpha was created again", "is reserved"]
        );
    }

    #[test]
    fn a_lost_partition_is_printed_with_each_new_fault() {
        let with = |proven: bool, fault: &str| ClusterPartition {
            key: "0x0012".into(),
            proven_time: proven.then(Timestamp::default),
            fault: fault.into(),
            ..ClusterPartition::default()
        };
        let change_text =
            |before: &ClusterPartition, after: &ClusterPartition| partition(Some(before), Some(after)).map(|c| c.text);
        assert_eq!(
            change_text(&with(true, ""), &with(false, "cut")).as_deref(),
            Some("partition 0x0012 is not proven: cut")
        );
        assert_eq!(change_text(&with(false, "cut"), &with(false, "cut")), None);
        assert!(change_text(&with(false, "cut"), &with(false, "worse")).is_some());
    }
}
