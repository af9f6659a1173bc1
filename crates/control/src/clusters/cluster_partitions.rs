//! The partition of a cluster as its steps and requests see it: the fabric's own row and the rows of the cluster's keys.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_ground::hall::HallError;
use rackwright_infiniband::Guid;
use rackwright_lifecycle::cluster::Partition as Fact;
use rackwright_lifecycle::{ClusterId, Timestamp};
use rackwright_store::{ClusterRecord, FabricRow, PartitionRow, PartitionRows, Scope, Store};

use super::partitions::{guids, loaded, unreadable};

/// The partitions of some clusters, and the fabric as a whole at the same moment.
#[derive(Debug)]
pub struct ClusterPartitions {
    fabric: FabricRow,
    /// By the cluster's uid.
    keys: BTreeMap<String, Vec<PartitionRow>>,
}

/// The partition of one cluster.
#[derive(Debug, Clone, Copy)]
pub struct ClusterPartition<'a> {
    fabric: &'a FabricRow,
    keys: &'a [PartitionRow],
}

impl ClusterPartitions {
    /// The partition of the cluster with this uid.
    ///
    /// # Errors
    /// The database failed, or the stored state of this partition does not parse.
    pub async fn of_cluster(store: &Store, uid: &str) -> Result<Self, HallError> {
        Self::of_rows(loaded(store.partitions_of(uid).await)?)
    }

    /// The partitions of the clusters with ids from `first` to `last`.
    ///
    /// # Errors
    /// The database failed, or the stored state of these partitions does not parse.
    pub async fn of_clusters(
        store: &Store,
        scope: &Scope,
        first: &ClusterId,
        last: &ClusterId,
    ) -> Result<Self, HallError> {
        Self::of_rows(loaded(store.partitions_of_clusters(scope, first, last).await)?)
    }

    pub(super) fn of_rows(rows: Option<PartitionRows>) -> Result<Self, HallError> {
        // Read only for clusters that have got a partition.
        let rows = rows.ok_or_else(|| unreadable("the row of the fabric is missing"))?;
        let mut keys: BTreeMap<String, Vec<PartitionRow>> = BTreeMap::new();
        for key in rows.keys {
            keys.entry(key.owner.clone()).or_default().push(key);
        }
        Ok(Self {
            fabric: rows.fabric,
            keys,
        })
    }

    /// The partition of the cluster with this uid.
    pub fn of(&self, uid: &str) -> ClusterPartition<'_> {
        ClusterPartition {
            fabric: &self.fabric,
            keys: self.keys.get(uid).map(Vec::as_slice).unwrap_or_default(),
        }
    }
}

impl<'a> ClusterPartition<'a> {
    fn held(&self) -> Option<&'a PartitionRow> {
        self.keys.iter().find(|key| key.released_at.is_none())
    }

    /// The name of the partition at the fabric manager; empty: the cluster has no key.
    pub fn name(&self) -> &'a str {
        self.held().map_or("", |key| key.name.as_str())
    }

    /// Number of ports in the partition.
    pub fn ports(&self) -> usize {
        self.held().map_or(0, |key| key.members)
    }

    /// The time of the last reading of the fabric.
    pub fn proven_at(&self) -> Option<Timestamp> {
        self.fabric.proven_at
    }

    /// The ports of the partition that the last reading did not find.
    pub fn absent_ports(&self) -> &'a [String] {
        self.held().map(|key| key.absent.as_slice()).unwrap_or_default()
    }

    /// The state of the partition.
    pub fn fact(&self, cluster: &ClusterRecord) -> Fact {
        self.fact_excusing(cluster, &BTreeSet::new())
    }

    /// The same without a wait for the ports in `excused`: their nodes are in use, and get the key when they return.
    pub fn fact_excusing(&self, cluster: &ClusterRecord, excused: &BTreeSet<Guid>) -> Fact {
        if cluster.partition.is_none() {
            return Fact::None;
        }
        let Some(key) = self.held() else {
            return self.draining();
        };
        if !self.fabric.fault.is_empty() {
            return Fact::Faulty(self.fabric.fault.clone());
        }
        if self.fabric.applied < cluster.partitions_version {
            return Fact::Pending;
        }
        let absent = match guids(key.key, &key.absent) {
            Ok(absent) => absent,
            Err(error) => return Fact::Faulty(error.to_string()),
        };
        let missing: Vec<String> = absent.difference(excused).map(ToString::to_string).collect();
        match missing.first() {
            None => Fact::Proven,
            Some(first) => Fact::Faulty(format!(
                "{} of the cluster's {} ports are not in the fabric, {first} is the first",
                missing.len(),
                key.members
            )),
        }
    }

    fn draining(&self) -> Fact {
        let left = self.keys.first().map_or(0, |key| key.ports.saturating_sub(key.cut_off));
        match left {
            // The key of cut-off ports stays reserved, so the cluster does not wait for their return.
            0 => Fact::Gone,
            _ if !self.fabric.fault.is_empty() => Fact::Faulty(self.fabric.fault.clone()),
            ports => Fact::Draining(ports),
        }
    }
}
