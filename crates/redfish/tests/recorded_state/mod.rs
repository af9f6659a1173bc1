//! The state of recorded BMCs, part by part, compared with counts that were made without this client.

use rackwright_redfish::{BmcClient, Shown, StateListed, StatePart, StateScope, UefiState};

/// The names of a part's open items; none if there is no such part.
type Names = Option<&'static [&'static str]>;

/// Recording; accounts; subscriptions; media; host interfaces; KCS.
type Recorded = (&'static str, Names, Names, Names, Names, Names);

const RECORDED: [Recorded; 6] = [
    // Its only subscription has the BMC itself as destination. Local configuration is open.
    (
        "dell",
        Some(&["root", "tests_admin"]),
        Some(&[]),
        Some(&[]),
        Some(&[]),
        Some(&["LocalSecurity.1.LocalConfig"]),
    ),
    (
        "gigabyte",
        Some(&["admin", "root"]),
        Some(&[
            "http://10.94.100.1/",
            "http://10.94.100.71/",
            "http://10.94.100.71/x3000c0s13b2",
        ]),
        Some(&[]),
        Some(&["self"]),
        None,
    ),
    (
        "hpe",
        Some(&["root", "tests_admin"]),
        Some(&[]),
        Some(&[]),
        Some(&[]),
        None,
    ),
    ("lenovo", Some(&["root"]), Some(&[]), Some(&[]), Some(&[]), Some(&[])),
    (
        "nvidia_viking",
        Some(&["S6AmJsX9uejbhS2r", "admin", "tests_admin"]),
        Some(&[]),
        Some(&[]),
        Some(&["Self"]),
        None,
    ),
    (
        "supermicro",
        Some(&["root", "tests_admin"]),
        Some(&[]),
        Some(&[]),
        Some(&["1"]),
        Some(&["Privilege"]),
    ),
];

/// Recording; number of boot options, all in the order; Secure Boot mode; entries of its databases without `dbx`, and of
/// `dbx`.
type Firmware = (&'static str, usize, &'static str, Option<(usize, Option<u64>)>);

const FIRMWARE: [Firmware; 6] = [
    // Its certificates are described but not shown.
    ("dell", 5, "DeployedMode", Some((6, Some(78)))),
    ("gigabyte", 7, "SetupMode", None),
    ("hpe", 30, "UserMode", None),
    ("lenovo", 2, "UserMode", None),
    // A key for timestamps in addition to PK, KEK and two in db.
    ("nvidia_viking", 21, "UserMode", Some((5, Some(267)))),
    // The list of databases exists and is empty.
    ("supermicro", 12, "SetupMode", Some((0, None))),
];

fn check_firmware(name: &str, seen: &UefiState) {
    let (_, options, mode, keys) = FIRMWARE.iter().find(|row| row.0 == name).unwrap();
    let (Shown::Known(found), Shown::Known(order), Shown::Known(secure)) =
        (&seen.options, &seen.order, &seen.secure_boot)
    else {
        panic!("{name}: {seen:?}");
    };
    assert_eq!((found.len(), order.len()), (*options, *options), "{name}");
    let is_option = |reference: &String| found.iter().any(|option| option.reference == *reference);
    assert!(order.iter().all(is_option), "{name}: {found:?} {order:?}");
    assert!(found.iter().all(|option| !option.name.is_empty()), "{name}: {found:?}");
    assert_eq!(
        (secure.enabled, secure.mode.as_deref()),
        (Some(false), Some(*mode)),
        "{name}"
    );
    let counted = match &seen.keys {
        Shown::Known(keys) => Some((keys.entries.len(), keys.revoked)),
        Shown::NotOffered => None,
        Shown::Unread(why) => panic!("{name}: {why}"),
    };
    assert_eq!(counted, *keys, "{name}");
    if let Shown::Known(keys) = &seen.keys {
        let mut identities: Vec<&str> = keys.entries.iter().map(|key| key.identity.as_str()).collect();
        identities.sort_unstable();
        identities.dedup();
        assert!(
            identities.len() == keys.entries.len() && !identities.contains(&""),
            "{name}: {identities:?}"
        );
    }
}

/// Reads one recording and compares every part with its content.
pub async fn check(name: &str, client: &BmcClient) {
    let scope = StateScope {
        own: "root",
        in_band: true,
        uefi: true,
    };
    let state = client.bmc_state(scope).await.unwrap();
    for (part, listed) in &state.parts {
        println!("{name}: {part:?} {listed:?}");
    }
    check_firmware(name, state.uefi.as_ref().unwrap());
    let (_, accounts, subscriptions, media, host, kcs) = RECORDED.iter().find(|row| row.0 == name).unwrap();
    for (part, expected) in [
        (StatePart::Accounts, accounts),
        (StatePart::Subscriptions, subscriptions),
        (StatePart::Media, media),
        (StatePart::HostInterfaces, host),
        (StatePart::Kcs, kcs),
    ] {
        let listed = state
            .parts
            .iter()
            .find(|(one, _)| *one == part)
            .map(|(_, listed)| listed);
        match (listed, expected) {
            (Some(StateListed::Whole(items)), Some(names)) => {
                let open = items.iter().filter(|item| item.is_open);
                let mut open: Vec<&str> = open.map(|item| item.name.as_str()).collect();
                open.sort_unstable();
                assert_eq!(open, *names, "{name}: {part:?}");
            }
            (Some(StateListed::NotOffered), None) => {}
            other => panic!("{name}: {part:?}: {other:?}"),
        }
    }
}
