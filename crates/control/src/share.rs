//! Whose node is it to watch? Each replica's that lives, by rendezvous hashing: all come to the same answer without
//! asking each other, and when one goes, only its nodes go to others.

use std::path::Path;

use rackwright_lifecycle::{Timestamp, seconds};

/// FNV-1a's offset and prime for 64 bits (draft-eastlake-fnv).
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// Without a sign of life for so long, a replica is dead. Clocks of replicas have to agree to much less than that.
pub(crate) const DEAD_S: i64 = 60;

/// A number for words in that order: the same in every process, and evenly spread.
pub(crate) fn number_of<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = OFFSET;
    for word in words {
        // What no text holds ends each word.
        for byte in word.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
    // FNV's high bits hardly depend on the last bytes: mixed as SplitMix64 ends (Steele, Lea, Flood 2014).
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The replicas that live, and which of them is this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    own: String,
    others: Vec<String>,
}

impl Share {
    /// This replica's, among those that live; it counts as one of them, whatever they say.
    pub(crate) fn new(own: &str, alive: impl IntoIterator<Item = String>) -> Self {
        Self {
            own: own.to_owned(),
            others: alive.into_iter().filter(|id| id != own).collect(),
        }
    }

    /// Is the node this replica's?
    pub(crate) fn has(&self, node: &str) -> bool {
        let weight = |replica: &str| number_of([replica.as_bytes(), node.as_bytes()]);
        let own = (weight(&self.own), self.own.as_str());
        self.others.iter().all(|other| (weight(other), other.as_str()) < own)
    }
}

/// A replica that was not heard of since then is dead.
pub(crate) fn alive_since(now: Timestamp) -> Timestamp {
    now.plus(-seconds(DEAD_S))
}

/// This replica's name: the computer's, and the data folder, which is one process's alone.
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

    /// Who has a node, of replicas that all know of each other.
    fn holders(replicas: &[&str], node: &str) -> Vec<String> {
        let all = || replicas.iter().map(|id| (*id).to_owned());
        replicas
            .iter()
            .filter(|id| Share::new(id, all()).has(node))
            .map(|id| (*id).to_owned())
            .collect()
    }

    #[test]
    fn every_node_is_in_exactly_one_share_and_shares_are_alike() {
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
    fn only_the_nodes_of_a_replica_that_goes_move() {
        for node in nodes() {
            let (before, after) = (holders(&["a", "b", "c"], &node), holders(&["a", "c"], &node));
            assert!(before == after || before == ["b"], "{node}: {before:?} {after:?}");
        }
    }

    #[test]
    fn a_replica_that_is_not_listed_yet_has_a_share_all_the_same() {
        assert!(Share::new("a", []).has("n1"));
        let share = Share::new("a", ["b".to_owned()]);
        let has = nodes().iter().filter(|node| share.has(node)).count();
        assert!((1300..1700).contains(&has), "{has}");
    }
}
