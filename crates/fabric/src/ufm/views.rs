//! The parts of UFM's answers that are used; all other fields are ignored.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_infiniband::{Guid, Membership, PKey, Partition};
use serde_json::Value;

use super::client::UfmError;

/// A member of a partition, as UFM has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) membership: Membership,
    pub(super) first: bool,
}

/// A partition, as UFM has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct UfmPartition {
    pub(super) name: String,
    pub(super) members: BTreeMap<Guid, Member>,
}

impl UfmPartition {
    /// The partition that would recreate this state.
    pub(super) fn partition(&self, key: PKey) -> Partition {
        Partition {
            name: self.name.clone(),
            key,
            first: self.members.values().any(|member| member.first),
            members: self
                .members
                .iter()
                .map(|(port, member)| (*port, member.membership))
                .collect(),
        }
    }
}

/// Parses `{"0x0010": {"partition": "name", "guids": [{"guid": "..", "membership": "full", "index0": true}]}}`. Unparsable
/// keys are ignored as foreign; an unparsable member is an error, because it would be overlooked.
pub(super) fn partitions(answer: &Value) -> Result<BTreeMap<PKey, UfmPartition>, UfmError> {
    let object = answer
        .as_object()
        .ok_or_else(|| UfmError::Answer("the partitions are not an object".to_owned()))?;
    let mut all = BTreeMap::new();
    for (text, partition) in object {
        let digits = text.trim_start_matches("0x");
        let Some(key) = u16::from_str_radix(digits, 16)
            .ok()
            .and_then(|key| PKey::new(key & 0x7fff))
        else {
            continue;
        };
        let mut held = UfmPartition {
            name: partition
                .get("partition")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            members: BTreeMap::new(),
        };
        for entry in partition.get("guids").and_then(Value::as_array).into_iter().flatten() {
            let (guid, member) =
                member(entry).ok_or_else(|| UfmError::Answer(format!("invalid member of {text}: {}", short(entry))))?;
            held.members.insert(guid, member);
        }
        all.insert(key, held);
    }
    Ok(all)
}

fn member(entry: &Value) -> Option<(Guid, Member)> {
    let guid = entry.get("guid").unwrap_or(entry).as_str()?.parse().ok()?;
    let membership = match entry.get("membership").and_then(Value::as_str) {
        Some(word) if word.eq_ignore_ascii_case("limited") => Membership::Limited,
        Some(word) if word.eq_ignore_ascii_case("full") => Membership::Full,
        None => Membership::Full,
        Some(_) => return None,
    };
    let first = match entry.get("index0") {
        Some(Value::Bool(first)) => *first,
        Some(Value::String(word)) => word.eq_ignore_ascii_case("true"),
        _ => false,
    };
    Some((guid, Member { membership, first }))
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(100).collect()
}

/// Parses `[{"guid": "0x0002c903000e0b72", ...}]`: port GUIDs; entries without a GUID are ignored as foreign.
pub(super) fn ports(answer: &Value) -> Result<BTreeSet<Guid>, UfmError> {
    let list = answer
        .as_array()
        .ok_or_else(|| UfmError::Answer("the ports are not a list".to_owned()))?;
    let guid = |port: &Value| {
        let text = ["guid", "port_guid"]
            .iter()
            .find_map(|field| port.get(field)?.as_str())?;
        text.parse().ok()
    };
    Ok(list.iter().filter_map(guid).collect())
}
