//! UEFI variables beside boot options: the record of the inspection, and what an erase reports about newer ones.

use rackwright_api::v1;
use rackwright_ground::bmc_state::Uefi;
use rackwright_ground::core::Core;
use rackwright_ground::stored;
use rackwright_ground::text::{SENTENCE_MAX, cut};
use rackwright_lifecycle::{EventKind, NodeId, Timestamp};
use rackwright_store::{EventRow, NodeRecord, StoreError};

/// Most variables that one text names.
const NAMED_MAX: usize = 8;

/// The variables at the last accepted inspection. `None`: there is no record, or the site leaves UEFI as it is.
///
/// # Errors
/// The database failed. `Corrupt`: the inventory does not decode.
pub(super) async fn recorded(core: &Core, record: &NodeRecord) -> Result<Option<v1::UefiVariables>, StoreError> {
    if core.config.bmc_state.uefi != Uefi::Restore {
        return Ok(None);
    }
    let bytes = core.store.expected_inventory(&record.id).await?;
    let inventory = stored::inventory(record.id.as_str(), bytes.as_deref())?;
    Ok(inventory.and_then(|inventory| inventory.uefi_variables))
}

/// The lines of an erase certificate.
pub(super) fn lines(new: &v1::NewUefiVariables) -> Vec<String> {
    let mut lines = vec![match new.removed.len() {
        0 => "UEFI variables: none of a former system found".to_owned(),
        removed => format!("UEFI variables: {removed} of a former system removed"),
    }];
    if !new.left.is_empty() {
        let left = format!("UEFI variables that are new and were not removed: {}", named(&new.left));
        lines.push(cut(&left, SENTENCE_MAX));
    }
    lines
}

/// The event about new variables, if there are any.
pub(super) fn event(node: &NodeId, new: &v1::NewUefiVariables, now: Timestamp) -> Option<EventRow> {
    let mut words = Vec::new();
    if !new.removed.is_empty() {
        let (count, names) = (new.removed.len(), named(&new.removed));
        words.push(format!(
            "{count} UEFI variables of the former system were removed: {names}"
        ));
    }
    if !new.left.is_empty() {
        let (count, names) = (new.left.len(), named(&new.left));
        words.push(format!(
            "{count} UEFI variables are new since the inspection and were not removed, because the firmware may have added \
             them: {names}"
        ));
    }
    (!words.is_empty()).then(|| EventRow {
        at: now,
        kind: EventKind::SecurityUefiVariables,
        target: format!("nodes/{node}"),
        message: cut(&words.join("; "), 2 * SENTENCE_MAX),
        ..EventRow::default()
    })
}

/// The first names, and the number of the others.
fn named(names: &[String]) -> String {
    let mut words: Vec<String> = names.iter().take(NAMED_MAX).map(|name| cut(name, 80)).collect();
    if names.len() > NAMED_MAX {
        words.push(format!("and {} more", names.len() - NAMED_MAX));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(removed: &[&str], left: &[&str]) -> v1::NewUefiVariables {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        v1::NewUefiVariables {
            removed: owned(removed),
            left: owned(left),
        }
    }

    #[test]
    fn new_variables_are_named_up_to_a_limit() {
        let none = new(&[], &[]);
        assert_eq!(lines(&none), ["UEFI variables: none of a former system found"]);
        assert_eq!(event(&"n1".into(), &none, Timestamp(1)), None);

        let names: Vec<String> = (0..10).map(|number| format!("v{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let both = new(&["note"], &names);
        assert_eq!(
            lines(&both),
            [
                "UEFI variables: 1 of a former system removed",
                "UEFI variables that are new and were not removed: v0, v1, v2, v3, v4, v5, v6, v7, and 2 more",
            ]
        );
        let message = event(&"n1".into(), &both, Timestamp(1)).unwrap().message;
        assert!(
            message.starts_with("1 UEFI variables of the former system were removed: note; 10 UEFI"),
            "{message}"
        );
        let long = "x".repeat(5000);
        let long = event(&"n1".into(), &new(&[&long], &[]), Timestamp(1)).unwrap().message;
        assert!(long.len() < 200, "{long}");
    }
}
