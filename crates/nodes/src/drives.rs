//! Which drives of a machine may hold its users' data, how drives are distinguished, and the source of each record.

use std::collections::BTreeSet;

use rackwright_api::v1::{Drive, Inventory};
use rackwright_ground::core::Core;
use rackwright_ground::stored;
use rackwright_ground::text::{NAME_MAX, SENTENCE_MAX, cut};
use rackwright_lifecycle::drives::{Difference, DriveList, KnownDrive, ReportedDrive, Source, judge, unnamed_missing};
use rackwright_lifecycle::{EventKind, NodeId, Timestamp};
use rackwright_redfish::DriveInfo;
use rackwright_store::{EventRow, NodeRecord, StoreError, WriteTx};

/// Most drives and namespaces of one machine.
pub const DRIVES_MAX: usize = 512;
/// The failure code when drives differ from the record.
pub const DIFFER: &str = "drives-differ";
/// Approximate length of the differences in one message, in bytes.
const WORDS_MAX: usize = 320;

/// The agent's last report of a node's inventory; empty before the first.
pub async fn of_node(core: &Core, node: &NodeId) -> Result<Inventory, StoreError> {
    let bytes = core.store.inventory(node).await?;
    Ok(stored::inventory(node.as_str(), bytes.as_deref())?.unwrap_or_default())
}

/// A name that stays with the drive in any slot: serial number and WWN, because NVMe namespaces share the serial number. A
/// drive without either is named by its place.
#[must_use]
pub fn key(drive: &Drive) -> String {
    match (drive.serial_number.as_str(), drive.wwn.as_str()) {
        ("", "") if drive.stable_id.is_empty() => drive.name.clone(),
        ("", "") => drive.stable_id.clone(),
        (serial, "") => serial.to_owned(),
        ("", wwn) => wwn.to_owned(),
        (serial, wwn) => format!("{serial} ({wwn})"),
    }
}

/// A drive or namespace as the agent describes it.
#[must_use]
pub fn known(drive: &Drive) -> KnownDrive {
    let short = |text: &str| cut(text, NAME_MAX);
    KnownDrive {
        name: short(&drive.name),
        serial: short(&drive.serial_number),
        model: short(&drive.model),
        size_bytes: Some(drive.size_bytes),
        wwn: short(&drive.wwn),
        protocol: short(&drive.transport),
        key: key(drive),
    }
}

/// A drive as the BMC describes it.
#[must_use]
pub fn known_to_bmc(drive: &DriveInfo) -> KnownDrive {
    let short = |text: &Option<String>| cut(text.as_deref().unwrap_or_default(), NAME_MAX);
    KnownDrive {
        name: cut(&drive.id, NAME_MAX),
        serial: short(&drive.serial),
        model: short(&drive.model),
        size_bytes: drive.capacity_bytes.filter(|bytes| *bytes > 0),
        protocol: short(&drive.protocol),
        ..KnownDrive::default()
    }
}

/// The recorded drives of a node. A node that was inspected before drives were recorded has its inventory of that time.
pub async fn recorded(core: &Core, record: &NodeRecord) -> Result<Vec<DriveList>, StoreError> {
    let mut lists = core.store.drive_lists(&record.id).await?;
    if lists.iter().any(|list| list.source.is_exact()) {
        return Ok(lists);
    }
    if let Some(bytes) = core.store.expected_inventory(&record.id).await? {
        let inventory: Inventory = stored::message("inventory", record.id.as_str(), &bytes)?;
        lists.push(DriveList {
            source: Source::Inspection,
            at: record.node.evidence.clean_at.unwrap_or_default(),
            by: String::new(),
            drives: inventory.drives.iter().map(known).collect(),
        });
    }
    Ok(lists)
}

/// The differences in words, and the remedy.
#[must_use]
pub fn refusal(node: &NodeId, differences: &[Difference]) -> String {
    let (mut words, mut count) = (String::new(), 0);
    for difference in differences {
        let next = cut(&difference.to_string(), WORDS_MAX);
        if count > 0 && words.len() + next.len() > WORDS_MAX {
            break;
        }
        if count > 0 {
            words.push_str("; ");
        }
        words.push_str(&next);
        count += 1;
    }
    if let more @ 1.. = differences.len() - count {
        words.push_str(&format!("; and {more} more"));
    }
    let is_behind =
        |difference: &Difference| matches!(difference, Difference::Missing { source, .. } if source.is_bmc());
    let hint = if differences.iter().any(is_behind) {
        "A drive that only the BMC lists may be behind a RAID controller that shows volumes, or behind VMD: set the \
         controller to pass drives through."
    } else {
        ""
    };
    format!(
        "the drives differ from the record: {words}.{hint} Put the recorded drives back and readmit the node. If the new \
         drives are correct, run `rackwright node readmit {node} --accept-drives`; missing recorded drives stay unerased"
    )
}

/// The event that reports the differences.
#[must_use]
pub fn differ_event(node: &NodeId, differences: &[Difference], now: Timestamp) -> EventRow {
    let words: Vec<String> = differences.iter().map(ToString::to_string).collect();
    EventRow {
        at: now,
        kind: EventKind::DrivesDiffer,
        target: format!("nodes/{node}"),
        message: cut(&words.join("; "), SENTENCE_MAX),
        attributes: [("differences".to_owned(), differences.len().to_string())].into(),
        ..EventRow::default()
    }
}

/// Called when a node's inspection is accepted: its list replaces the former lists of agents and operators. An event
/// reports the changes since the former list.
pub async fn inspected(tx: &mut WriteTx, node: &NodeId, now: Timestamp) -> Result<(), StoreError> {
    let lists = tx.drive_lists(node).await?;
    let Some(seen) = lists.iter().find(|list| list.source == Source::Reported) else {
        return Ok(());
    };
    let before: Vec<DriveList> = lists.iter().filter(|list| list.source.is_exact()).cloned().collect();
    let drives: Vec<ReportedDrive> = seen.drives.iter().map(ReportedDrive::from).collect();
    if !before.is_empty() {
        let differences = judge(&before, &drives).differences;
        if !differences.is_empty() {
            let event = differ_event(node, &differences, now);
            tx.add_event(&EventRow {
                kind: EventKind::DrivesChanged,
                ..event
            })
            .await?;
        }
    }
    let list = DriveList {
        source: Source::Inspection,
        ..seen.clone()
    };
    tx.put_drive_list(node, &list).await?;
    for source in [Source::Reported, Source::Operator, Source::BmcReclaiming] {
        tx.delete_drive_list(node, source).await?;
    }
    Ok(())
}

/// An operator accepts the drives of the agent's last report: they replace the record, and the BMC's differing entries no
/// longer count. Missing recorded drives are no longer expected. Returns false if no report differed.
pub async fn accept(tx: &mut WriteTx, record: &mut NodeRecord, by: &str, now: Timestamp) -> Result<bool, StoreError> {
    let node = record.id.clone();
    let lists = tx.drive_lists(&node).await?;
    let Some(reported) = lists.iter().find(|list| list.source == Source::Reported) else {
        return Ok(false);
    };
    let list = |source, drives| DriveList {
        source,
        at: now,
        by: by.to_owned(),
        drives,
    };
    let operator = list(Source::Operator, reported.drives.clone());
    let drives: Vec<ReportedDrive> = reported.drives.iter().map(ReportedDrive::from).collect();
    let differs = |entry: &&KnownDrive| {
        let lists = [operator.clone(), list(Source::Bmc, vec![(*entry).clone()])];
        !judge(&lists, &drives).differences.is_empty()
    };
    let of_bmc = lists.iter().filter(|list| list.source.is_bmc());
    let accepted = of_bmc.flat_map(|of_bmc| {
        let named = of_bmc.drives.iter().filter(|entry| !entry.serial.trim().is_empty());
        let named = named.filter(differs).cloned();
        named.chain(unnamed_missing(of_bmc, &drives)).collect::<Vec<_>>()
    });
    let accepted: Vec<KnownDrive> = accepted.collect();
    let keys: BTreeSet<&String> = reported.drives.iter().map(|drive| &drive.key).collect();
    record.node.evidence.drives.retain(|drive| keys.contains(drive));
    tx.put_drive_list(&node, &operator).await?;
    tx.put_drive_list(&node, &list(Source::Accepted, accepted)).await?;
    for source in [Source::Inspection, Source::Reported] {
        tx.delete_drive_list(&node, source).await?;
    }
    let names: Vec<String> = drives
        .iter()
        .map(|d| format!("{} ({}, {} bytes)", d.name, d.serial, d.size_bytes))
        .collect();
    tx.add_event(&EventRow {
        at: now,
        kind: EventKind::DrivesAccepted,
        target: format!("nodes/{node}"),
        message: cut(&format!("{by} accepted the drives {}", names.join(", ")), SENTENCE_MAX),
        attributes: [("by".to_owned(), by.to_owned())].into(),
        ..EventRow::default()
    })
    .await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;
    use rackwright_lifecycle::State;

    use super::*;

    #[tokio::test]
    async fn unreadable_inventory_is_an_error() {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", State::Reclaiming, None)).await;
        assert_eq!(
            of_node(&core, &"n1".into()).await.unwrap(),
            Inventory::default(),
            "none was ever reported"
        );
        let mut tx = core.store.write().await.unwrap();
        tx.save_inventory(&"n1".into(), b"no message").await.unwrap();
        tx.expect_inventory(&"n1".into()).await.unwrap();
        tx.commit().await.unwrap();
        let record = core
            .store
            .node(&rackwright_store::Scope::Site, &"n1".into())
            .await
            .unwrap();
        let errors = [
            of_node(&core, &"n1".into()).await.map(drop).unwrap_err(),
            recorded(&core, &record).await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert!(
                matches!(error, StoreError::Corrupt { what: "inventory", .. }),
                "{error}"
            );
            assert!(error.to_string().contains("n1"), "{error}");
        }
    }

    #[test]
    fn drives_are_identified_by_stable_properties() {
        let drive = |serial: &str, wwn: &str, stable: &str| Drive {
            name: "sda".into(),
            serial_number: serial.into(),
            wwn: wwn.into(),
            stable_id: stable.into(),
            ..Drive::default()
        };
        assert_eq!(key(&drive("S1", "", "by-path/1")), "S1");
        assert_ne!(key(&drive("S1", "eui.1", "")), key(&drive("S1", "eui.2", "")));
        assert_eq!(key(&drive("", "", "by-path/1")), "by-path/1");
        assert_eq!(key(&drive("", "", "")), "sda");
    }
}
