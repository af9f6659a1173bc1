//! Which replica watches a node: rendezvous hashing over the living replicas. All replicas reach the same result without
//! messages. When a replica ends, only its nodes move to other replicas.

use std::path::Path;

use rackwright_lifecycle::{Timestamp, seconds};

/// FNV-1a's offset and prime for 64 bits (draft-eastlake-fnv).
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// A replica without a sign of life for this many seconds is dead. The clocks of replicas must differ by much less.
pub const DEAD_S: i64 = 60;

/// Hash of a sequence of words: the same in every process, and evenly spread.
pub fn stable_hash<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = OFFSET;
    for word in words {
        // A byte that no text contains ends each word.
        for byte in word.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
    // FNV's high bits hardly depend on the last bytes, so the hash gets SplitMix64's final mix (Steele, Lea, Flood 2014).
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The other living replicas, and the name of this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    own: String,
    others: Vec<String>,
}

impl Share {
    /// The share of the replica `own` among the living replicas. `own` counts as alive, even if `alive` lacks it.
    pub fn new(own: &str, alive: impl IntoIterator<Item = String>) -> Self {
        Self {
            own: own.to_owned(),
            others: alive.into_iter().filter(|id| id != own).collect(),
        }
    }

    /// Whether this name is in this replica's share: the id of a node, the name of a device, or that of a watch of which the
    /// site has one.
    pub fn has(&self, name: &str) -> bool {
        let weight = |replica: &str| stable_hash([replica.as_bytes(), name.as_bytes()]);
        let own = (weight(&self.own), self.own.as_str());
        self.others.iter().all(|other| (weight(other), other.as_str()) < own)
    }
}

/// A replica without a sign of life since this time is dead.
pub fn alive_since(now: Timestamp) -> Timestamp {
    now.plus(-seconds(DEAD_S))
}

/// This replica's name: the computer's name, and the data folder, which only one process uses.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "called at the start")]
pub fn replica_name(data_dir: &Path) -> String {
    let computer = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}:{}", computer.trim(), data_dir.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Vec<String> {
        (0..3000).map(|n| format!("rack{}-n{n:04}", n / 40)).collect()
    }

    /// The replicas with the node in their share, if all replicas know of each other.
    fn holders(replicas: &[&str], node: &str) -> Vec<String> {
        let all = || replicas.iter().map(|id| (*id).to_owned());
        replicas
            .iter()
            .filter(|id| Share::new(id, all()).has(node))
            .map(|id| (*id).to_owned())
            .collect()
    }

    #[test]
    fn every_node_is_in_exactly_one_share_and_shares_are_even() {
        let replicas = [
            "a:/var/lib/rackwright",
            "b:/var/lib/rackwright",
            "c:/var/lib/rackwright",
        ];
        let mut counts = [0; 3];
        for node in nodes() {
            let holders = holders(&replicas, &node);
            assert_eq!(holders.len(), 1, "{node}: {holders:?}");
            counts[replicas.iter().position(|id| holders[0] == *id).unwrap()] += 1;
        }
        assert!(counts.iter().all(|n| (900..1100).contains(n)), "{counts:?}");
    }

    #[test]
    fn only_the_nodes_of_a_removed_replica_move() {
        for node in nodes() {
            let (before, after) = (holders(&["a", "b", "c"], &node), holders(&["a", "c"], &node));
            assert!(before == after || before == ["b"], "{node}: {before:?} {after:?}");
        }
    }

    #[test]
    fn a_replica_that_is_not_listed_yet_has_a_share() {
        assert!(Share::new("a", []).has("n1"));
        let share = Share::new("a", ["b".to_owned()]);
        let has = nodes().iter().filter(|node| share.has(node)).count();
        assert!((1300..1700).contains(&has), "{has}");
    }
}
