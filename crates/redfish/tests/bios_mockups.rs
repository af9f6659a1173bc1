//! BIOS settings and Secure Boot as recorded BMCs report them, compared with the recordings themselves.
//!
//! The recordings are those of `mockups.rs`.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

#[allow(dead_code)]
mod recorded_service;
#[path = "scripted/server.rs"]
#[allow(dead_code)]
mod server;

use rackwright_redfish::{AttributeKind, RedfishError};
use rackwright_redfish_mockup::key;
use recorded_service::RecordedBmc;
use serde_json::Value;

/// Counts of a recording that were made without the client.
struct Expected {
    recording: &'static str,
    system: Option<&'static str>,
    /// The resource to which changes are written.
    settings: &'static str,
    /// The numbers of attributes in force, of rules in the registry, and of read-only rules.
    counts: [usize; 3],
    mode: &'static str,
    /// Certificates in the databases; none: the BMC lists no databases.
    certificates: Option<usize>,
}

async fn check(expected: &Expected) {
    let name = expected.recording;
    let recorded_bmc = RecordedBmc::open(name, expected.system).await;
    let (tree, server, client) = (&recorded_bmc.tree, &recorded_bmc.server, &recorded_bmc.client);
    let state = client.bios().await.unwrap().unwrap();
    assert_eq!(state.settings_path, expected.settings, "{name}");
    // Every attribute must be read with the recorded value.
    let recorded = tree[&key(&state.path)]["Attributes"].as_object().unwrap();
    for (attribute, value) in recorded {
        let seen = state.current.get(attribute).map(ToString::to_string);
        let wanted = match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        assert_eq!(seen.as_deref(), Some(wanted.as_str()), "{name}: {attribute}");
    }
    let rules = client.bios_rules(&state).await.unwrap().unwrap_or_default();
    let fixed = rules.values().filter(|rule| rule.read_only).count();
    println!(
        "{name}: {} attributes, {} rules, {fixed} read-only, {} wait, {} requests",
        state.current.len(),
        rules.len(),
        state.pending.len(),
        server.requests().len()
    );
    assert_eq!([state.current.len(), rules.len(), fixed], expected.counts, "{name}");
    // Nearly every value in force must fit its own rule: the types are read correctly.
    let known = state.current.iter().filter_map(|(attribute, value)| {
        let rule = rules.get(attribute)?;
        (rule.kind != AttributeKind::Password && !rule.read_only).then(|| {
            rule.fit(&value.to_string())
                .map_err(|fault| format!("{attribute} = {value}: {fault}"))
        })
    });
    let (good, bad): (Vec<_>, Vec<_>) = known.partition(Result::is_ok);
    println!(
        "{name}: {} fit their rule, {} do not: {:?}",
        good.len(),
        bad.len(),
        bad.iter().take(3).collect::<Vec<_>>()
    );
    assert!(bad.len() * 20 <= good.len() + bad.len(), "{name}: {bad:?}");
    let settings = [("NoSuchAttribute".to_owned(), "x".to_owned())].into();
    let refused = client.set_bios(&state, &settings).await.unwrap_err();
    assert!(
        matches!(refused, RedfishError::UnfitSettings { .. }),
        "{name}: {refused}"
    );
    let secure = client.secure_boot().await.unwrap().unwrap();
    assert_eq!((secure.enabled, secure.in_force), (Some(false), Some(false)), "{name}");
    assert_eq!(secure.mode.as_deref(), Some(expected.mode), "{name}");
    let certificates = client.secure_boot_certificates().await.unwrap();
    println!(
        "{name}: resets {:?}, certificates {:?}",
        secure.resets,
        certificates.as_ref().map(Vec::len)
    );
    assert_eq!(certificates.map(|all| all.len()), expected.certificates, "{name}");
    assert!(
        server.requests().iter().all(|request| request.method != "PATCH"),
        "{name}: it was only read"
    );
    recorded_bmc.close(|_, _| false).await;
}

#[tokio::test]
async fn recorded_settings() {
    let all = [
        (
            "dell",
            None,
            "/redfish/v1/Systems/System.Embedded.1/Bios/Settings",
            [455, 682, 328],
            "DeployedMode",
            Some(6),
        ),
        (
            "hpe",
            None,
            "/redfish/v1/systems/1/bios/settings/",
            [277, 402, 24],
            "UserMode",
            None,
        ),
        (
            "lenovo",
            None,
            "/redfish/v1/Systems/1/Bios/Pending",
            [348, 348, 61],
            "UserMode",
            None,
        ),
        (
            "supermicro",
            None,
            "/redfish/v1/Systems/1/Bios/SD",
            [379, 495, 0],
            "SetupMode",
            Some(0),
        ),
        (
            "gigabyte",
            None,
            "/redfish/v1/Systems/Self/Bios/SD",
            [550, 549, 2],
            "SetupMode",
            None,
        ),
        (
            "nvidia_viking",
            Some("DGX"),
            "/redfish/v1/Systems/DGX/Bios/SD",
            [223, 223, 0],
            "UserMode",
            Some(10),
        ),
    ];
    for (recording, system, settings, counts, mode, certificates) in all {
        let expected = Expected {
            recording,
            system,
            settings,
            counts,
            mode,
            certificates,
        };
        check(&expected).await;
    }
}
