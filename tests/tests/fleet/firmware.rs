//! Firmware updates of simulated machines by a real control plane, which is killed during an update.

use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rackwright_sim::fleet::{Fleet, FleetConfig, UpdateSettings};
use rackwright_sim::install_crypto;
use rackwright_tests::ports::free_port;
use rackwright_tests::site::{POLL, texts};

use super::{Plane, Seen, TEST_LIMIT, image};

pub(super) const MULTIPART: UpdateSettings = UpdateSettings {
    multipart: true,
    push: false,
    simple: false,
    lasts: Duration::from_secs(4),
    restarts: Duration::from_secs(3),
    refuses: 0,
    ac_cycle: false,
};

/// A firmware file of the simulator: its component, its version, and the reason of its failure if it is to fail.
pub(super) fn file(dir: &Path, component: &str, version: &str, fails: &str) -> String {
    let path = dir.join(format!("{component}-{version}.bin"));
    let padding = "x".repeat(300_000);
    std::fs::write(
        &path,
        format!("RWFW {component} {version} {fails}").trim_end().to_owned() + "\n" + &padding,
    )
    .expect("the file can be written");
    path.display().to_string()
}

/// Adds files, and makes a site require them for the SKU of the simulated machines.
pub(super) fn set_wanted(plane: &Plane, wanted: &[(&str, &str, &str)]) {
    set_wanted_with(plane, wanted, "");
}

/// Like `set_wanted`, with further fields of each.
pub(super) fn set_wanted_with(plane: &Plane, wanted: &[(&str, &str, &str)], further: &str) {
    let dir = plane.site.dir().to_owned();
    let mut firmware = String::new();
    for (component, version, fails) in wanted {
        let path = file(&dir, component, version, fails);
        cli(
            plane,
            ["firmware", "add", &path, "--component", component, "--version", version],
        );
        firmware.push_str(&format!(
            "  - {{component: {component}, version: \"{version}\"{further}}}\n"
        ));
    }
    let site = dir.join("firmware-site");
    std::fs::create_dir_all(&site).expect("a folder");
    let text = format!(
        "site: {{name: hall}}\nskus:\n- name: default\n  power: {{max_watts: 1000}}\n  \
         psus: {{count: 2, watts: 1000, needed: 1}}\n  height_units: 2\n  firmware:\n{firmware}"
    );
    std::fs::write(site.join("site.yaml"), text).expect("the file can be written");
    cli(plane, ["site", "apply", &site.display().to_string(), "--yes"]);
}

/// Runs the CLI while the machines continue.
pub(super) fn cli<const N: usize>(plane: &Plane, arguments: [&str; N]) -> String {
    tokio::task::block_in_place(|| plane.site.cli(arguments))
}

pub(super) fn versions(fleet: &Fleet, index: usize) -> Vec<String> {
    let (_, all) = fleet.firmware(index);
    all.into_iter()
        .map(|(part, version)| format!("{part} {version}"))
        .collect()
}

pub(super) async fn fleet_with(plane: &Plane, nodes: usize, settings: UpdateSettings) -> Fleet {
    let config = FleetConfig {
        nodes,
        updates: Some(settings),
        ..FleetConfig::default()
    };
    plane.machines(config, Arc::new(Seen::default())).await
}

pub(super) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TEST_LIMIT, "{what} did not come");
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_is_killed_during_an_update_resumes_it_and_begins_nothing_twice() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start(dir.path()).await;
    let fleet = fleet_with(&plane, 1, MULTIPART).await;
    let id = fleet.node(0).name();
    set_wanted(&plane, &[("NIC", "3.0", ""), ("BIOS", "2.0", ""), ("BMC", "2.0", "")]);
    let report = cli(&plane, ["firmware", "report"]);
    assert!(report.contains("0 of 1 nodes"), "{report}");
    cli(&plane, ["node", "firmware", "update", &id]);
    until("the BMC's own update", || fleet.firmware(0).0 == 1).await;
    // The update is sent and runs on the BMC; then our process is killed.
    plane.site.kill().await;
    plane.site.restart().await;
    until("the last update", || {
        let mut all = versions(&fleet, 0);
        all.sort();
        all == ["BIOS 2.0", "BMC 2.0", "NIC 3.0"]
    })
    .await;
    let (begun, _) = fleet.firmware(0);
    assert_eq!(begun, 3, "each piece once");
    until("the end of the operation", || {
        cli(&plane, ["operation", "list"]).contains("done")
    })
    .await;
    let shown = cli(&plane, ["node", "firmware", &id]);
    assert_eq!(shown.matches("up-to-date").count(), 3, "{shown}");
    let report = cli(&plane, ["firmware", "report"]);
    assert!(report.contains("1 of 1 nodes"), "{report}");
    plane.site.stop().await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bmc_fetches_the_file_by_itself_and_a_failure_has_the_tasks_message() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let simple = UpdateSettings {
        multipart: false,
        simple: true,
        lasts: Duration::from_secs(1),
        ..MULTIPART
    };
    let fleet = fleet_with(&plane, 1, simple).await;
    let id = fleet.node(0).name();
    set_wanted(&plane, &[("NIC", "3.0", "")]);
    cli(&plane, ["node", "firmware", "update", &id, "--wait"]);
    assert_eq!(versions(&fleet, 0), ["BMC 1.0", "BIOS 1.0", "NIC 3.0"]);
    set_wanted(&plane, &[("NIC", "4.0", "the flash is worn out")]);
    let refused = tokio::task::block_in_place(|| plane.site.try_cli(["node", "firmware", "update", &id, "--wait"]));
    let (_, error) = texts(&refused);
    assert!(!refused.status.success());
    assert!(error.contains("the flash is worn out"), "{error}");
    assert_eq!(versions(&fleet, 0)[2], "NIC 3.0");
    let shown = cli(&plane, ["node", "firmware", &id]);
    assert!(shown.contains("update"), "{shown}");
    plane.site.stop().await;
    fleet.stop().await;
}

/// One machine that boots, with installed systems that answer by SSH at this port.
async fn machine_with_systems(plane: &Plane, ssh: u16) -> Fleet {
    let config = FleetConfig {
        boot_server: Some(plane.dhcp),
        tftp_port: plane.tftp_port,
        ssh_listen: Some(SocketAddrV4::new([0, 0, 0, 0].into(), ssh)),
        updates: Some(UpdateSettings {
            lasts: Duration::from_secs(1),
            ..MULTIPART
        }),
        ..FleetConfig::default()
    };
    let fleet = Fleet::start(config).await.expect("the fleet starts");
    plane.enrol(&fleet, |_| "lab".to_owned()).await;
    let file = image(plane.site.dir()).display().to_string();
    cli(plane, ["image", "add", "disk", "--file", &file]);
    fleet
}

/// Hands the machine to a customer.
async fn hand_over(plane: &Plane, id: &str) {
    cli(plane, ["node", "deploy", "--image", "disk", "--customer", "acme", id]);
    plane.site.until(id, &["active"], TEST_LIMIT).await;
}

/// A day of the week other than yesterday, today and tomorrow.
fn another_day() -> &'static str {
    const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let days = now.expect("it is after 1970").as_secs() / 86_400;
    // 1970 began on a Thursday.
    let index = usize::try_from((days + 3 + 3) % 7).unwrap_or(0);
    DAYS[index]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claimed_machine_is_updated_within_its_window_and_not_before() {
    const WAITS: &str = "its maintenance window for firmware";
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let ssh = free_port();
    let plane = Plane::start_with(dir.path(), "pxe", &format!("ssh_port: {ssh}\n")).await;
    let fleet = machine_with_systems(&plane, ssh).await;
    let id = fleet.node(0).name();
    let target = format!("nodes/{id}");
    hand_over(&plane, &id).await;
    set_wanted(&plane, &[("NIC", "3.0", "")]);
    cli(&plane, ["node", "firmware", "update", &id]);
    // What the node waits for, and the time of the next check.
    let waits = || {
        let node = tokio::task::block_in_place(|| plane.site.json(["node", "get", &id]));
        let text = |field: &str| node["status"][field].as_str().unwrap_or_default().to_owned();
        (text("waiting_for") == WAITS).then(|| text("waiting_until"))
    };
    until("a word of the window", || waits().is_some()).await;
    let before = waits();
    // A closed window does not count: the check has run, and the node still waits.
    let span = format!("{} 02:00 1h", another_day());
    cli(&plane, ["firmware", "window", &target, "--weekly", &span]);
    until("the wait for it", || waits().is_some_and(|until| Some(until) != before)).await;
    assert_eq!(fleet.firmware(0).0, 0, "nothing was begun");

    let shown = cli(&plane, ["firmware", "window", &target, "--now-for", "1h"]);
    assert!(!shown.contains("never"), "{shown}");
    until("the update", || versions(&fleet, 0)[2] == "NIC 3.0").await;
    let done = || {
        let list = cli(&plane, ["operation", "list"]);
        list.lines()
            .any(|line| line.contains("firmware") && line.contains("done"))
    };
    until("the end of the operation", done).await;
    assert_eq!(plane.site.state(&id), "active");
    plane.site.stop().await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_window_of_a_node_ends_with_the_claim_and_is_not_that_of_the_next_node_of_its_name() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let ssh = free_port();
    let plane = Plane::start_with(dir.path(), "pxe", &format!("ssh_port: {ssh}\n")).await;
    let fleet = machine_with_systems(&plane, ssh).await;
    let id = fleet.node(0).name();
    let target = format!("nodes/{id}");
    let is_never = || cli(&plane, ["firmware", "window", &target]).contains("never");
    for life in 1..=2 {
        hand_over(&plane, &id).await;
        // Generations of claims begin anew: this claim has the same number as the former node's.
        assert!(is_never(), "life {life}");
        cli(&plane, ["firmware", "window", &target, "--now-for", "1h"]);
        assert!(!is_never(), "life {life}");
        cli(&plane, ["node", "release", "--yes", &id]);
        plane.site.until(&id, &["available"], TEST_LIMIT).await;
        assert!(is_never(), "life {life}: no customer has it");
        let refused =
            tokio::task::block_in_place(|| plane.site.try_cli(["firmware", "window", &target, "--now-for", "1h"]));
        assert!(
            texts(&refused).1.contains("the node has no claim"),
            "{:?}",
            texts(&refused)
        );
        cli(&plane, ["node", "delete", &id, "--yes"]);
        plane.enrol(&fleet, |_| "lab".to_owned()).await;
    }
    plane.site.stop().await;
    fleet.stop().await;
}
