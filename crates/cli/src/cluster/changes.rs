//! Changes of a cluster between two readings, as lines. No I/O.

use std::collections::{HashMap, HashSet};

use prost_types::Timestamp;
use rackwright_api::v1::{Cluster, ClusterMember, ClusterPartition, ClusterStatus, ClusterTransition};
use rackwright_cli_context::error::plural;
use rackwright_cli_context::names::listed;
use rackwright_cli_context::output::clean;
use rackwright_cli_context::{names, units};

use super::show::open_words;
use super::{short, state_name};

/// One line: the time, if it is known, and the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub time: Option<Timestamp>,
    pub words: String,
}

impl Change {
    fn now(words: String) -> Self {
        Self { time: None, words }
    }

    /// `2026-01-02T03:04:05Z  alpha  is building`; `now`, in seconds since the epoch, replaces an unknown time.
    pub fn line(&self, name: &str, now: f64) -> String {
        let time = self
            .time
            .as_ref()
            .map_or_else(|| units::stamp_seconds(now), units::stamp);
        clean(&format!("{time}  {name}  {}", self.words))
    }
}

/// The state at the first reading.
pub fn first(cluster: &Cluster) -> Vec<Change> {
    let status = cluster.status.clone().unwrap_or_default();
    let mut changes = vec![Change {
        time: status.state_since,
        words: format!("is {}{}", state_name(status.state), because(&status.reason)),
    }];
    changes.extend(waits(&ClusterStatus::default(), &status));
    changes
}

/// The differences at a later reading, in chronological order as far as it is known.
pub fn between(before: &Cluster, after: &Cluster) -> Vec<Change> {
    if before.metadata.as_ref().map(|m| &m.uid) != after.metadata.as_ref().map(|m| &m.uid) {
        let mut changes = vec![Change::now(format!("{} was created again", short(&after.name)))];
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
    changes.extend(waits(&before, &after));
    changes
}

fn because(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    }
}

/// New edges of the history, the oldest first.
fn transitions(before: &ClusterStatus, after: &ClusterStatus) -> Vec<Change> {
    let known = before.history.first();
    let new = after.history.iter().take_while(|step| Some(*step) != known);
    let line = |step: &ClusterTransition| {
        let spent = step.time_in_former_state.as_ref().map(units::proto_seconds);
        let after = spent.map(|spent| format!(" after {}", units::duration(spent)));
        let (from, to) = (state_name(step.from_state), state_name(step.to_state));
        Change {
            time: step.time,
            words: format!("{from} -> {to}{}{}", after.unwrap_or_default(), because(&step.reason)),
        }
    };
    let mut lines: Vec<Change> = new.map(line).collect();
    lines.reverse();
    lines
}

/// Nodes with a changed standing; nodes with the same new standing share a line.
fn members(before: &[ClusterMember], after: &[ClusterMember]) -> Vec<Change> {
    let former: HashMap<&str, &ClusterMember> = before.iter().map(|member| (&*member.node, member)).collect();
    let present: HashSet<&str> = after.iter().map(|member| &*member.node).collect();
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    let mut put = |words: String, node: &str| {
        let node = names::short("nodes", node).to_owned();
        match groups.iter_mut().find(|(known, _)| *known == words) {
            Some((_, nodes)) => nodes.push(node),
            None => groups.push((words, vec![node])),
        }
    };
    for member in after {
        let words = format!("{}{}", member.standing, because(&member.reason));
        match former.get(&*member.node) {
            None => put(format!("new: {words}"), &member.node),
            Some(was) if (&was.standing, &was.reason) != (&member.standing, &member.reason) => put(words, &member.node),
            Some(_) => {}
        }
    }
    for was in before.iter().filter(|was| !present.contains(&*was.node)) {
        put("no longer in the cluster".to_owned(), &was.node);
    }
    groups
        .into_iter()
        .map(|(words, nodes)| Change::now(format!("{} {words}", listed(&nodes))))
        .collect()
}

/// A partition that became proven, or is no longer proven.
fn partition(before: Option<&ClusterPartition>, after: Option<&ClusterPartition>) -> Option<Change> {
    let is_proven = |partition: &ClusterPartition| partition.fault.is_empty() && partition.proven_time.is_some();
    let after = after.filter(|partition| !partition.key.is_empty())?;
    let former = before.map_or("", open_words);
    match (before.is_some_and(is_proven), is_proven(after)) {
        (false, true) => Some(Change {
            time: after.proven_time,
            words: format!(
                "partition {} is proven on {}",
                after.key,
                plural(after.ports as usize, "port")
            ),
        }),
        (true, true) => None,
        (false, false) if former == open_words(after) => None,
        (_, false) => Some(Change::now(format!(
            "partition {} is not proven{}",
            after.key,
            because(open_words(after))
        ))),
    }
}

fn waits(before: &ClusterStatus, after: &ClusterStatus) -> Option<Change> {
    let is_new = after.waiting_for != before.waiting_for && !after.waiting_for.is_empty();
    is_new.then(|| Change::now(format!("waits for {}", after.waiting_for)))
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

    fn words(changes: &[Change]) -> Vec<&str> {
        changes.iter().map(|change| change.words.as_str()).collect()
    }

    #[test]
    fn edges_nodes_partition_and_waits_are_told_once() {
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
            words(&between(&before, &after)),
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
        assert_eq!(words(&first(&before)), ["is building", "waits for 3 of 3 nodes"]);
    }

    #[test]
    fn another_cluster_of_that_name_is_told_as_one() {
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
            words(&between(&named("1"), &named("2"))),
            ["alpha was created again", "is reserved"]
        );
    }

    #[test]
    fn a_partition_that_is_lost_is_told_with_each_new_fault() {
        let with = |proven: bool, fault: &str| ClusterPartition {
            key: "0x0012".into(),
            proven_time: proven.then(Timestamp::default),
            fault: fault.into(),
            ..ClusterPartition::default()
        };
        let told =
            |before: &ClusterPartition, after: &ClusterPartition| partition(Some(before), Some(after)).map(|c| c.words);
        assert_eq!(
            told(&with(true, ""), &with(false, "cut")).as_deref(),
            Some("partition 0x0012 is not proven: cut")
        );
        assert_eq!(told(&with(false, "cut"), &with(false, "cut")), None);
        assert!(told(&with(false, "cut"), &with(false, "worse")).is_some());
    }
}
