//! The smallest list of requests from UFM's present partitions to the wanted ones.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_infiniband::{Guid, Membership, PKey, Partition};
use serde_json::{Value, json};

use super::views::UfmPartition;

/// Most GUIDs in one path: UFM's web server accepts paths of 8 KB.
const MAX_IN_PATH: usize = 200;
/// Most GUIDs in one body.
const MAX_IN_BODY: usize = 2_000;

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Edit {
    /// Remove members. Sent before additions, so that no port is in two partitions meanwhile.
    Remove { key: PKey, guids: Vec<Guid> },
    /// Create a partition without members.
    Create { body: Value },
    /// Add members of one kind.
    Add { body: Value },
}

impl Edit {
    /// The unfulfilled request, for errors.
    pub(super) fn unfulfilled(&self) -> String {
        match self {
            Self::Remove { key, guids } => format!("{} ports are still in {key}", guids.len()),
            Self::Create { body } => format!("partition {} is missing", body["pkey"]),
            Self::Add { body } => {
                let ports = body["guids"].as_array().map_or(0, Vec::len);
                format!("{ports} ports are not in {} or have the wrong membership", body["pkey"])
            }
        }
    }
}

/// The requests, removals first.
pub(super) fn edits(held: &BTreeMap<PKey, UfmPartition>, wanted: &BTreeMap<PKey, Partition>) -> Vec<Edit> {
    let (mut removals, mut additions) = (Vec::new(), Vec::new());
    let keys: BTreeSet<PKey> = held.keys().chain(wanted.keys()).copied().collect();
    for key in keys {
        let (has, should) = (held.get(&key), wanted.get(&key));
        let is_right = |port: &Guid, should: &Partition| {
            let member = has.and_then(|has| has.members.get(port));
            member.is_some_and(|member| {
                should.members.get(port) == Some(&member.membership) && member.first == should.first
            })
        };
        let gone = has.into_iter().flat_map(|has| has.members.keys());
        let gone: Vec<Guid> = gone
            .filter(|port| !should.is_some_and(|should| is_right(port, should)))
            .copied()
            .collect();
        for guids in gone.chunks(MAX_IN_PATH) {
            let guids = guids.to_vec();
            removals.push(Edit::Remove { key, guids });
        }
        let Some(should) = should else { continue };
        if has.is_none() {
            let body = json!({"pkey": key.to_string(), "index0": should.first, "ip_over_ib": true});
            additions.push(Edit::Create { body });
        }
        for membership in [Membership::Full, Membership::Limited] {
            let new: Vec<String> = should
                .members
                .iter()
                .filter(|(port, is)| **is == membership && !is_right(port, should))
                .map(|(port, _)| bare(*port))
                .collect();
            for guids in new.chunks(MAX_IN_BODY) {
                let body = json!({
                    "pkey": key.to_string(),
                    "guids": guids,
                    "index0": should.first,
                    "ip_over_ib": true,
                    "membership": membership.word(),
                });
                additions.push(Edit::Add { body });
            }
        }
    }
    removals.into_iter().chain(additions).collect()
}

/// The form of GUIDs in UFM: without `0x`.
fn bare(guid: Guid) -> String {
    format!("{:016x}", guid.get())
}

/// GUIDs for a path.
pub(super) fn csv(guids: &[Guid]) -> String {
    guids.iter().map(|guid| bare(*guid)).collect::<Vec<_>>().join(",")
}
