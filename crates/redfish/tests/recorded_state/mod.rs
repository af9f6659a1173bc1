//! What is on recorded BMCs, part by part, as counted in the recordings by other means than this client's.

use rackwright_redfish::{BmcClient, StateListed, StatePart, StateScope};

/// What a part holds: names of what is open, or that there is no such part.
type Names = Option<&'static [&'static str]>;

/// Recording; accounts; subscriptions; media; host interfaces; KCS.
type Recorded = (&'static str, Names, Names, Names, Names, Names);

const RECORDED: [Recorded; 6] = [
    // Its one subscription leads to the BMC itself. Local configuration is open.
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

/// Reads one recording and holds every part against what stands in it.
pub async fn check(name: &str, client: &BmcClient) {
    let scope = StateScope {
        own: "root",
        in_band: true,
    };
    let state = client.bmc_state(scope).await.unwrap();
    for (part, listed) in &state.parts {
        println!("{name}: {part:?} {listed:?}");
    }
    let Some((_, accounts, subscriptions, media, host, kcs)) = RECORDED.iter().find(|row| row.0 == name) else {
        return;
    };
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
