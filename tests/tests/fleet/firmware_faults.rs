//! Faults of firmware updates, and the reactions to them: versions that do not run, BMCs that restart, alarms, operators
//! who cancel.

use std::sync::atomic::{AtomicUsize, Ordering};

use rackwright_sim::facility::{Cdu, Equipment};
use rackwright_sim::fleet::{SimNode, UpdateSettings};

use super::facility::{apply, pace, site_file, until_alarms};
use super::firmware::{MULTIPART, cli, file, fleet_with, set_wanted, set_wanted_with, until, versions};
use super::*;

const QUICK: UpdateSettings = UpdateSettings {
    lasts: Duration::from_secs(1),
    ..MULTIPART
};

/// Updates a node; returns the failure's message, or none.
fn update(plane: &Plane, id: &str) -> Option<String> {
    let output = tokio::task::block_in_place(|| plane.site.try_cli(["node", "firmware", "update", id, "--wait"]));
    let (_, error) = texts(&output);
    (!output.status.success()).then_some(error)
}

fn events(plane: &Plane, id: &str) -> String {
    let target = format!("nodes/{id}");
    cli(plane, ["events", "--target", &target, "-o", "json"])
}

fn is_on(node: &SimNode) -> bool {
    format!("{:?}", node.view().power) == "On"
}

async fn switched_on(node: &SimNode) {
    assert!(node.press_button(), "it was off");
    let on = node.wait_for(|view| format!("{:?}", view.power) == "On");
    tokio::time::timeout(TEST_LIMIT, on).await.expect("it comes on");
}

async fn end(plane: Plane, fleet: Fleet) {
    // Stopped first: the control plane logs out of each BMC.
    plane.site.stop().await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_needs_an_ac_cycle_gets_it_where_the_bmc_supports_one() {
    install_crypto();
    for ac_cycle in [true, false] {
        let dir = tempfile::tempdir().expect("a folder");
        let plane = Plane::start(dir.path()).await;
        let fleet = fleet_with(&plane, 1, UpdateSettings { ac_cycle, ..QUICK }).await;
        let (node, id) = (fleet.node(0), fleet.node(0).name());
        set_wanted_with(&plane, &[("NIC", "3.0", "after-ac-cycle")], ", activation: ac_cycle");
        switched_on(&node).await;
        let boots = node.view().boots;
        let failed = update(&plane, &id);
        assert!(is_on(&node), "as it was found: {failed:?}");
        if ac_cycle {
            assert_eq!(failed, None);
            assert_eq!(versions(&fleet, 0)[2], "NIC 3.0");
            assert_eq!((fleet.ac_cycles(0), node.view().boots), (1, boots + 1));
            let reported = events(&plane, &id);
            assert!(reported.contains("AC cycle by Chassis.Reset for NIC 3.0"), "{reported}");
        } else {
            let error = failed.expect("there is no way");
            assert!(error.contains("switch the machine's outlets off and on"), "{error}");
            assert_eq!(versions(&fleet, 0)[2], "NIC 1.0");
            assert_eq!(node.view().boots, boots, "it was not switched off for nothing");
        }
        end(plane, fleet).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_was_switched_off_without_need_runs_again() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let faults = "faults:\n- {fault: bmc-wrong, answer: internal-error, method: POST, \
                  path: /redfish/v1/Chassis/1/Actions/Chassis.Reset}\n";
    let settings = UpdateSettings {
        ac_cycle: true,
        ..QUICK
    };
    let config = FleetConfig {
        updates: Some(settings),
        faults: Script::parse("faults", faults, 1).expect("a script"),
        ..FleetConfig::default()
    };
    let fleet = plane.machines(config, Arc::new(Seen::default())).await;
    let (node, id) = (fleet.node(0), fleet.node(0).name());
    set_wanted_with(&plane, &[("NIC", "3.0", "after-ac-cycle")], ", activation: ac_cycle");
    switched_on(&node).await;
    let boots = node.view().boots;
    let error = update(&plane, &id).expect("the action fails");
    assert!(error.contains("500"), "{error}");
    assert_eq!((fleet.ac_cycles(0), fleet.firmware(0).0), (0, 1), "sent once");
    assert!(node.view().boots > boots, "it was off in between");
    assert!(is_on(&node), "and runs again");
    end(plane, fleet).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bmc_that_reports_completion_and_keeps_its_version_fails_the_update() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let fleet = fleet_with(&plane, 1, QUICK).await;
    let (node, id) = (fleet.node(0), fleet.node(0).name());
    set_wanted(&plane, &[("NIC", "3.0", "unchanged")]);
    let error = update(&plane, &id).expect("the version is not there");
    assert!(
        error.contains("accepted version 3.0 but reports another version"),
        "{error}"
    );
    assert_eq!(fleet.firmware(0).0, 1);
    let off = node.wait_for(|view| view.phase == Phase::Off);
    tokio::time::timeout(TEST_LIMIT, off)
        .await
        .expect("it is off again, as it was found");
    let report = cli(&plane, ["firmware", "report"]);
    assert!(report.contains("0 of 1 nodes"), "{report}");
    end(plane, fleet).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_starting_bmc_that_refuses_valid_logins_is_awaited() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let fleet = fleet_with(&plane, 1, UpdateSettings { refuses: 1, ..QUICK }).await;
    let id = fleet.node(0).name();
    set_wanted(&plane, &[("BMC", "2.0", "")]);
    assert_eq!(update(&plane, &id), None);
    assert_eq!((fleet.firmware(0).0, versions(&fleet, 0)[0].as_str()), (1, "BMC 2.0"));
    let reported = events(&plane, &id);
    assert!(reported.contains("bmc-starting"), "{reported}");
    assert!(
        !reported.contains("security.bmc-"),
        "no word about its account: {reported}"
    );
    end(plane, fleet).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_begun_while_an_alarm_holds_the_machine() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start_with(dir.path(), "pxe", &pace(dir.path())).await;
    let fleet = fleet_with(&plane, 1, QUICK).await;
    let id = fleet.node(0).name();
    let cdu = Equipment::cdu(Cdu::default()).await.expect("a cooling unit");
    let text = site_file(&fleet, 100_000, 1000, "", &format!(", bmc: '{}'", cdu.url()));
    let wanted = ", firmware: [{component: NIC, version: '3.0'}]}]";
    apply(
        &plane.site,
        &text.replacen("}]\nnodes:", &format!("{wanted}\nnodes:"), 1),
    );
    let path = file(dir.path(), "NIC", "3.0", "");
    cli(
        &plane,
        ["firmware", "add", &path, "--component", "NIC", "--version", "3.0"],
    );
    cdu.change_cdu(|cdu| cdu.is_leaking = true);
    until_alarms(&plane.site, &["alarms/leak cdu/cdu-1"]).await;
    let error = update(&plane, &id).expect("it is held");
    assert!(error.contains("before an alarm clears"), "{error}");
    assert_eq!(fleet.firmware(0).0, 0);
    assert_eq!(fleet.node(0).view().phase, Phase::Off);
    cdu.change_cdu(|cdu| cdu.is_leaking = false);
    until_alarms(&plane.site, &[]).await;
    assert_eq!(update(&plane, &id), None);
    assert_eq!(versions(&fleet, 0)[2], "NIC 3.0");
    end(plane, fleet).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_updates_are_bounded() {
    const AT_ONCE: usize = 8;
    const NODES: usize = 11;
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let settings = UpdateSettings {
        lasts: Duration::from_secs(15),
        ..MULTIPART
    };
    let fleet = Arc::new(fleet_with(&plane, NODES, settings).await);
    set_wanted(&plane, &[("NIC", "3.0", "")]);
    let most = Arc::new(AtomicUsize::new(0));
    let watch = {
        let (fleet, most) = (fleet.clone(), most.clone());
        tokio::spawn(async move {
            loop {
                let busy = (0..NODES).filter(|index| fleet.is_updating(*index)).count();
                most.fetch_max(busy, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    };
    for index in 0..NODES {
        cli(&plane, ["node", "firmware", "update", &fleet.node(index).name()]);
    }
    until("all updates", || {
        (0..NODES).all(|index| versions(&fleet, index)[2] == "NIC 3.0")
    })
    .await;
    watch.abort();
    let _ = watch.await;
    let most = most.load(Ordering::Relaxed);
    assert!((2..=AT_ONCE).contains(&most), "{most} at once");
    plane.site.stop().await;
    Arc::into_inner(fleet)
        .expect("the fleet has no other owner")
        .stop()
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_update_ends_after_the_current_component() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let settings = UpdateSettings {
        lasts: Duration::from_secs(20),
        ..MULTIPART
    };
    let fleet = fleet_with(&plane, 1, settings).await;
    let id = fleet.node(0).name();
    set_wanted(&plane, &[("NIC", "3.0", ""), ("BMC", "2.0", "")]);
    let operations = || -> Vec<Value> {
        let all = tokio::task::block_in_place(|| plane.site.json(["operation", "list"]));
        let rows = all.as_array().expect("a list").iter();
        rows.filter(|row| row["kind"] == "firmware").cloned().collect()
    };
    cli(&plane, ["node", "firmware", "update", &id]);
    until("the first piece", || fleet.firmware(0).0 == 1).await;
    let name = operations()[0]["name"].as_str().expect("a text").to_owned();
    let name = name.trim_start_matches("operations/");
    cli(&plane, ["operation", "cancel", name]);
    until("its end", || operations()[0]["done"] == true).await;
    let ended = operations()[0]["error"].to_string();
    assert!(ended.contains("cancelled; not begun: NIC 3.0"), "{ended}");
    assert_eq!(versions(&fleet, 0), ["BMC 2.0", "BIOS 1.0", "NIC 1.0"]);
    assert_eq!(fleet.firmware(0).0, 1);
    assert_eq!(update(&plane, &id), None, "it may be requested again");
    assert_eq!(versions(&fleet, 0)[2], "NIC 3.0");
    end(plane, fleet).await;
}
