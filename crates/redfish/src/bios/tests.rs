use serde_json::json;

use super::*;

fn text(value: &str) -> BiosValue {
    BiosValue::Text(value.to_owned())
}

fn state(current: &[(&str, BiosValue)], pending: &[(&str, BiosValue)]) -> BiosState {
    let map = |all: &[(&str, BiosValue)]| all.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
    BiosState {
        path: "/b".into(),
        settings_path: "/b/s".into(),
        current: map(current),
        pending: map(pending),
        registry: None,
        apply_times: Vec::new(),
        can_reset: false,
        can_change_password: false,
    }
}

fn wanted(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}

fn lock() -> [BiosLock; 1] {
    [BiosLock {
        attribute: "Lock".into(),
        unlocked: "Open".into(),
    }]
}

#[test]
fn only_the_difference_is_written_in_the_kind_that_the_attribute_has() {
    let state = state(
        &[
            ("A", text("x")),
            ("B", BiosValue::Number(1)),
            ("C", BiosValue::Flag(true)),
            ("D", text("old")),
        ],
        &[("D", text("new"))],
    );
    let request = wanted(&[("A", "x"), ("B", "2"), ("C", "false"), ("D", "new")]);
    let change = plan(&state, &BiosRules::new(), &[], &request).unwrap();
    let sent = body(&change.written, &["OnReset".to_owned()]);
    assert_eq!(
        sent,
        json!({"Attributes": {"B": 2, "C": false}, "@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"}})
    );
    // The pending value would undo the requested one, which is in force.
    let undo = plan(&state, &BiosRules::new(), &[], &wanted(&[("D", "old")])).unwrap();
    assert_eq!(undo.written, [("D".to_owned(), text("old"))].into());
}

#[test]
fn every_fault_of_a_request_is_reported_at_once() {
    let state = state(&[("Speed", BiosValue::Number(1)), ("Fixed", text("v"))], &[]);
    let rule = AttributeRule {
        kind: crate::views::AttributeKind::String,
        read_only: true,
        words: Vec::new(),
        names: Vec::new(),
        least: None,
        most: None,
        shortest: None,
        longest: None,
        display_name: None,
    };
    let rules = [("Fixed".to_owned(), rule)].into();
    let request = wanted(&[("speed", "2"), ("Speed", "fast"), ("Fixed", "w"), ("None", "1")]);
    let faults = plan(&state, &rules, &[], &request).unwrap_err();
    assert_eq!(faults.len(), 4, "{faults:?}");
    assert!(faults.iter().any(|f| f.contains("did you mean Speed")), "{faults:?}");
    assert!(faults.iter().any(|f| f.contains("cannot be changed")), "{faults:?}");
    // A read-only attribute with the requested value is not a fault.
    assert!(
        plan(&state, &rules, &[], &wanted(&[("Fixed", "v")]))
            .unwrap()
            .written
            .is_empty()
    );
}

#[test]
fn a_setting_by_display_name_is_written_in_the_bmcs_form_and_then_matches() {
    let names = [("1", "On"), ("0", "Off")].map(|(value, shown)| (value.to_owned(), shown.to_owned()));
    let rule = AttributeRule {
        kind: crate::views::AttributeKind::Enumeration,
        read_only: false,
        words: ["1", "0", "On", "Off"].map(str::to_owned).to_vec(),
        names: names.to_vec(),
        least: None,
        most: None,
        shortest: None,
        longest: None,
        display_name: None,
    };
    let rules: BiosRules = [("E".to_owned(), rule)].into();
    for (seen, request, sent) in [
        ("1", "Off", "0"),
        ("On", "0", "Off"),
        ("On", "Off", "Off"),
        ("1", "0", "0"),
    ] {
        let request = wanted(&[("E", request)]);
        let before = state(&[("E", text(seen))], &[]);
        let change = plan(&before, &rules, &[], &request).unwrap();
        assert_eq!(
            change.written,
            [("E".to_owned(), text(sent))].into(),
            "{seen}: {request:?}"
        );
        let after = state(&[("E", text(sent))], &[]);
        let again = plan(&after, &rules, &[], &request).unwrap();
        assert!(again.written.is_empty(), "{seen}: {again:?}");
    }
}

#[test]
fn a_lock_is_opened_first_and_closed_last() {
    let request = wanted(&[("A", "new"), ("Lock", "Closed")]);
    let closed = state(&[("A", text("old")), ("Lock", text("Closed"))], &[]);
    let first = plan(&closed, &BiosRules::new(), &lock(), &request).unwrap();
    assert_eq!(first.written, [("Lock".to_owned(), text("Open"))].into());
    assert_eq!(first.held_back, ["A"]);
    let open = state(&[("A", text("old")), ("Lock", text("Open"))], &[]);
    let second = plan(&open, &BiosRules::new(), &lock(), &request).unwrap();
    assert_eq!(second.written, [("A".to_owned(), text("new"))].into());
    assert_eq!(second.held_back, ["Lock"]);
    let done = state(&[("A", text("new")), ("Lock", text("Open"))], &[]);
    let third = plan(&done, &BiosRules::new(), &lock(), &request).unwrap();
    assert_eq!(third.written, [("Lock".to_owned(), text("Closed"))].into());
}

#[test]
fn registries_are_found_by_name_family_or_as_the_only_one() {
    let files: Vec<String> = [
        "/r/Base.v1_2_0",
        "/r/BiosAttributeRegistry.v1_0_0",
        "/r/NetworkAttributesRegistry_NIC.1",
    ]
    .map(str::to_owned)
    .to_vec();
    for name in [
        Some("BiosAttributeRegistry.v1_0_0"),
        Some("BiosAttributeRegistry.v1_0_3"),
        Some("BiosAttributeRegistryP89.v1_0_0"),
        None,
    ] {
        assert_eq!(
            registry_file(&files, name).as_deref(),
            Some("/r/BiosAttributeRegistry.v1_0_0"),
            "{name:?}"
        );
    }
    assert_eq!(registry_file(&files[..1], Some("BiosAttributeRegistry")), None);
}
