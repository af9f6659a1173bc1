//! Invariants of clusters after every commit and at the end.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_ground::hall::placement_of;
use rackwright_infiniband::{Guid, PKey};
use rackwright_lifecycle::State as NodeState;
use rackwright_lifecycle::cluster::State;
use rackwright_store::{ClusterRecord, NodeRecord, Period, Scope, Store};

use super::super::Figures;
use super::super::checks::records;
use super::super::performer::Fake;
use super::super::world::World;
use super::clusters;
use super::traffic::Verdict;

/// Follows the clusters through a run.
#[derive(Debug, Default)]
pub struct ClusterChecks {
    /// The ports of each node of the site.
    pub ports: BTreeMap<String, BTreeSet<Guid>>,
    /// Claims that a cluster has let go: node and generation.
    let_go: BTreeSet<(String, u64)>,
    /// Clusters that were once in use, and those that are released.
    used: BTreeSet<String>,
    released: BTreeSet<String>,
}

/// A cluster and its nodes by the rows.
struct Members {
    record: ClusterRecord,
    nodes: BTreeSet<String>,
}

/// Whether the cluster still serves its customer, or is on the way to that.
fn is_served(record: &ClusterRecord) -> bool {
    !matches!(record.cluster.state, State::Releasing | State::Released)
}

impl ClusterChecks {
    /// Checks after a commit.
    pub(in super::super) async fn look(&mut self, store: &Store, fake: &Fake, figures: &mut Figures) -> Vec<String> {
        let all = clusters(store).await;
        if all.is_empty() {
            return Vec::new();
        }
        let mut wrong = self.released(&all, &fake.world());
        let mut live = Vec::new();
        for record in all {
            if record.cluster.state == State::Ready && self.used.insert(record.uid.clone()) {
                figures.clusters += 1;
            }
            if record.cluster.state != State::Released {
                let nodes = store.nodes_of_cluster(&Scope::Site, &record.id).await;
                let nodes = nodes
                    .expect("nodes can be read")
                    .into_iter()
                    .map(|node| node.id.to_string());
                let nodes = nodes.collect();
                live.push(Members { record, nodes });
            }
        }
        let nodes = records(store).await;
        wrong.extend(one_cluster_each(&live, &nodes));
        wrong.extend(own_keys(&live));
        wrong.extend(self.tested(&nodes, &fake.world()));
        wrong.extend(self.isolated(&live, &nodes, &fake.world()));
        wrong
    }

    /// A cluster is released only when no port has its key.
    fn released(&mut self, all: &[ClusterRecord], world: &World) -> Vec<String> {
        let mut wrong = Vec::new();
        for record in all.iter().filter(|record| record.cluster.state == State::Released) {
            if !self.released.insert(record.uid.clone()) {
                continue;
            }
            let holders = record
                .partition
                .and_then(PKey::new)
                .map(|key| world.fabric.holders(key));
            if let Some(holders) = holders.filter(|holders| !holders.is_empty()) {
                let id = &record.id;
                wrong.push(format!("{id} is released, and ports have its key: {holders:?}"));
            }
        }
        wrong
    }

    /// A node is let go only after a network test of its present claim that it passed.
    fn tested(&mut self, nodes: &[NodeRecord], world: &World) -> Vec<String> {
        let mut wrong = Vec::new();
        for record in nodes {
            let Some(claim) = &record.node.claim else { continue };
            let Some(cluster_claim) = &claim.cluster else { continue };
            let id = &record.id;
            if cluster_claim.let_go.is_none() {
                if record.node.state == NodeState::Active {
                    wrong.push(format!(
                        "{id} is in use, and {} has not let it go",
                        cluster_claim.cluster
                    ));
                }
                continue;
            }
            if !self.let_go.insert((id.to_string(), claim.generation)) {
                continue;
            }
            let tested = format!("{}.{}", claim.generation, claim.deployment);
            let verdict = world.verdicts.last.get(&(id.to_string(), tested.clone()));
            if verdict != Some(&Verdict::Passed) {
                let cluster = &cluster_claim.cluster;
                wrong.push(format!(
                    "{cluster} lets {id} go, and the verdict on {tested} is {verdict:?}"
                ));
            }
        }
        wrong
    }

    /// The ports of a node in use have the key of its cluster, and no other one.
    fn isolated(&self, live: &[Members], nodes: &[NodeRecord], world: &World) -> Vec<String> {
        let mut wrong = Vec::new();
        for record in nodes.iter().filter(|record| record.node.state == NodeState::Active) {
            let Some(claim) = record.node.claim.as_ref().filter(|claim| !claim.release_requested) else {
                continue;
            };
            let Some(cluster_claim) = &claim.cluster else { continue };
            let of = live.iter().find(|members| members.record.id == cluster_claim.cluster);
            let Some(of) = of.filter(|of| is_served(&of.record)) else {
                continue;
            };
            if of.record.cluster.wanted.leave.contains(&record.id) {
                continue;
            }
            let key: BTreeSet<PKey> = of.record.partition.and_then(PKey::new).into_iter().collect();
            for port in self.ports.get(record.id.as_str()).into_iter().flatten() {
                let found = world.fabric.keys(*port);
                if found != key {
                    let (id, cluster) = (&record.id, &cluster_claim.cluster);
                    wrong.push(format!(
                        "{id} is in use by {cluster} ({key:?}), and {port} has {found:?}"
                    ));
                }
            }
        }
        wrong
    }
}

/// No node is in two clusters, whether by placement or by claim.
fn one_cluster_each(live: &[Members], nodes: &[NodeRecord]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for Members { record, .. } in live {
        let placement = placement_of(record).expect("placements can be read");
        for node in placement.nodes.into_iter().chain(placement.spares) {
            if let Some(other) = owners.insert(node.clone(), record.id.as_str()) {
                wrong.push(format!("{node} is reserved for {other} and for {}", record.id));
            }
        }
    }
    for Members { record, nodes } in live {
        for node in nodes {
            if owners.get(node) != Some(&record.id.as_str()) {
                let owner = owners.get(node);
                wrong.push(format!("{node} is a node of {}, and reserved for {owner:?}", record.id));
            }
        }
    }
    for record in nodes {
        let claim = record.node.claim.as_ref().filter(|claim| !claim.release_requested);
        let Some(cluster_claim) = claim.and_then(|claim| claim.cluster.as_ref()) else {
            continue;
        };
        let of = live.iter().find(|members| members.record.id == cluster_claim.cluster);
        if of.is_none_or(|of| !of.nodes.contains(record.id.as_str())) {
            let (id, state, cluster) = (&record.id, record.node.state, &cluster_claim.cluster);
            wrong.push(format!(
                "{id} ({state}) is claimed for {cluster}, which does not have the node"
            ));
        }
    }
    wrong
}

/// No two clusters have the same partition key.
fn own_keys(live: &[Members]) -> Vec<String> {
    let mut owners: BTreeMap<u16, &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for Members { record, .. } in live {
        let Some(key) = record.partition else {
            wrong.push(format!("{} has no partition key", record.id));
            continue;
        };
        if let Some(other) = owners.insert(key, record.id.as_str()) {
            wrong.push(format!("{other} and {} have the key {key}", record.id));
        }
    }
    wrong
}

/// Uses of one node do not overlap.
async fn overlaps(store: &Store) -> Vec<String> {
    let period = Period {
        from_s: 0,
        to_s: i64::MAX,
        customer: None,
        cluster: None,
    };
    let rows = store.usage(&Scope::Site, &period, 0, i64::MAX).await;
    let mut ends: BTreeMap<String, i64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in rows.expect("use can be read") {
        let end = row.to_s.unwrap_or(i64::MAX);
        let former = ends.insert(row.node.to_string(), end);
        if former.is_some_and(|former| former > row.from_s) {
            wrong.push(format!(
                "a use of {} begins before the former one ended: {row:?}",
                row.node
            ));
        }
    }
    wrong
}

/// The checks of the end. Also returns the number of replaced nodes.
pub async fn last_checks(store: &Store, fake: &Fake) -> (Vec<String>, u64) {
    let mut wrong = overlaps(store).await;
    let members = fake.world().fabric.members();
    if !members.is_empty() {
        wrong.push(format!("no cluster is left, and ports have keys: {members:?}"));
    }
    let fabric = store.fabric().await.expect("the fabric's state can be read");
    let is_draining = store.has_draining_keys().await.expect("the keys can be read");
    if is_draining || fabric.as_ref().is_some_and(|fabric| !fabric.fault.is_empty()) {
        let keys = store.fabric_keys().await;
        wrong.push(format!("the fabric does not come to rest: {fabric:?}, {keys:?}"));
    }
    let mut replaced = 0;
    for record in clusters(store).await {
        if record.cluster.state != State::Released {
            wrong.push(format!("{} ended as {}", record.id, record.cluster.state));
        }
        replaced += record.replaced.len() as u64;
    }
    (wrong, replaced)
}
