//! `rackwright node settings` with a server, and `rackwright bmc bios` without one.

use prost_types::Timestamp;
use rackwright_api::v1::*;

use crate::fake::Fake;
use crate::fake_bmc::{FakeBmc, PASSWORD};
use crate::program::Program;

fn setting(name: &str, wanted: &str, current: Option<&str>, standing: SettingStanding) -> NodeSetting {
    NodeSetting {
        name: name.into(),
        wanted: wanted.into(),
        current: current.map(str::to_owned),
        pending: (standing == SettingStanding::Pending).then(|| wanted.to_owned()),
        standing: standing.into(),
    }
}

fn time(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanos: 0 })
}

fn drifted(name: &str) -> NodeSettings {
    use SettingStanding::{AsWanted, Differs, Missing, Pending, Unspecified};
    NodeSettings {
        name: format!("nodes/{name}"),
        sku: "skus/dgx-h100".into(),
        settings: vec![
            setting("bios/NumaNodes", "NPS4", Some("NPS1"), Differs),
            setting("bios/QuietBoot", "false", Some("false"), AsWanted),
            setting("bios/Sriov", "Enabled", Some("Disabled"), Pending),
            setting("bios/Turbo", "true", None, Unspecified),
            setting("secure-boot", "enabled", None, Missing),
        ],
        read_time: time(1_790_812_800),
        verify_time: time(1_790_726_400),
        drift_time: time(1_790_812_800),
    }
}

#[test]
fn settings_are_shown_listed_and_applied() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    let run = |args: &[&str]| program.run(args);
    let unread = run(&["node", "settings", "drift"]);
    assert_eq!(
        unread.stdout, "unknown: firmware settings were read from no node\n",
        "{unread:?}"
    );
    let plain = NodeSettings {
        name: "nodes/gpu-003".into(),
        sku: "skus/cpu".into(),
        ..NodeSettings::default()
    };
    let stranger = NodeSettings {
        name: "nodes/gpu-004".into(),
        ..NodeSettings::default()
    };
    let read = |mut settings: NodeSettings| {
        settings.drift_time = None;
        settings
    };
    for (nodes, words) in [
        (
            vec![read(drifted("gpu-001"))],
            "settings are as wanted on every node (1 node)\n",
        ),
        (
            vec![read(drifted("gpu-001")), plain.clone()],
            "settings are as wanted on 1 of 2 nodes; the settings of the other nodes were not read\n",
        ),
    ] {
        fake.state().settings = nodes;
        assert_eq!(run(&["node", "settings", "drift"]).stdout, words);
    }
    fake.state().settings = vec![drifted("gpu-001"), drifted("gpu-002"), plain, stranger];
    let shown = run(&["node", "settings", "gpu-001"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    for words in [
        "dgx-h100",
        "verified after a start",
        "differs since",
        "differs",
        "as wanted",
        "waits for a start",
        "not read yet",
        "not offered",
        "NPS4",
    ] {
        assert!(shown.stdout.contains(words), "{words}: {shown:?}");
    }
    let plain = run(&["node", "settings", "gpu-003"]);
    assert!(
        plain.stdout.contains("SKU cpu wants no firmware settings for gpu-003"),
        "{plain:?}"
    );
    let stranger = run(&["node", "settings", "gpu-004"]);
    assert!(stranger.stdout.contains("the site has no node gpu-004"), "{stranger:?}");
    assert_eq!(run(&["node", "settings", "gpu-005"]).code, 3);
    // Both pages of the list.
    let names = run(&["node", "settings", "drift", "-o", "name"]);
    assert_eq!(names.stdout, "nodes/gpu-001\nnodes/gpu-002\n", "{names:?}");
    for wrong in [&["node", "settings"][..], &["node", "settings", "apply"]] {
        assert_eq!(run(wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn unreadable_settings_of_a_bmc_are_reported() {
    let (bmc, program) = (FakeBmc::start(), Program::new());
    program.file("password", format!("{PASSWORD}\n"));
    let access = [
        "--user",
        "root",
        "--password-file",
        "password",
        "--certificate-sha256",
        &bmc.pin,
    ];
    let shown = program.run(&[&["bmc", "bios", &bmc.url][..], &access[..]].concat());
    assert_eq!(shown.code, 6, "{shown:?}");
    assert!(
        shown.stderr.contains("/redfish/v1/Systems/1/SecureBoot") && shown.stderr.contains("HTTP 500"),
        "{shown:?}"
    );
}
