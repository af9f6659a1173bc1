//! Power and cooling as simulated PDUs, cooling units and machines report them, and the operations that they hold back.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rackwright_sim::facility::{Cdu, Equipment, PASSWORD, Pdu, USER};
use rackwright_sim::fleet::{Phase, Profile};

use super::*;

/// Settings with which everything is read every second.
pub(super) fn pace(dir: &Path) -> String {
    let password = dir.join("facility-password");
    std::fs::write(&password, format!("{PASSWORD}\n")).expect("the file can be written");
    format!(
        "facility: {{node_interval_s: 1, equipment_interval_s: 1, fresh_s: 30, username: {USER}, password_file: {}}}\n",
        password.display()
    )
}

/// The machines of a fleet in one rack, on one circuit of `circuit_watts`, with a PDU and a loop.
pub(super) fn site_file(fleet: &Fleet, circuit_watts: u32, boot_peak_watts: u32, pdu: &str, cdu: &str) -> String {
    let count = fleet.nodes();
    let mut text = format!(
        "site: {{name: lab}}\nrooms: [{{name: hall}}]\nracks: [{{name: r1, room: hall, liquid: true}}]\n\
         outlet_layouts: [{{name: o, outlets: [{{name: '[1-{count}]', phase: all}}]}}]\n\
         power:\n- {{name: u, kind: utility, feed: A, watts: 900 kW}}\n\
         - {{name: c, kind: circuit, parent: u, watts: {circuit_watts}}}\n\
         - {{name: p, kind: rack-pdu, parent: c, rack: r1, volts: 415, amps: 400, phases: 3, outlets: o{pdu}}}\n\
         cooling_units: [{{name: cdu-1, kind: cdu, room: hall, watts: 900 kW, supply_max_celsius: 40{cdu}}}]\n\
         cooling_loops: [{{name: l1, units: cdu-1, racks: r1}}]\n\
         skus: [{{name: k, power: {{max_watts: 1000, boot_peak_watts: {boot_peak_watts}}}, \
         psus: {{count: 1, watts: 3000, needed: 1}}, height_units: 1, liquid_share: 0.9}}]\nnodes:\n"
    );
    for index in 0..count {
        let (name, unit) = (fleet.node(index).name(), index + 1);
        let _ = writeln!(
            text,
            "- {{name: {name}, sku: k, rack: r1, unit: {unit}, psus: [p/{unit}]}}"
        );
    }
    text
}

pub(super) fn apply(site: &Site, text: &str) {
    let file = site.dir().join("site.yaml");
    std::fs::write(&file, text).expect("the file can be written");
    let done = tokio::task::block_in_place(|| {
        site.try_cli(["site".as_ref(), "apply".as_ref(), file.as_os_str(), "--yes".as_ref()])
    });
    assert!(done.status.success(), "{:?}", texts(&done));
}

async fn until(what: &str, mut is_so: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + TEST_LIMIT;
    loop {
        let Err(why) = tokio::task::block_in_place(&mut is_so) else {
            return;
        };
        assert!(Instant::now() < deadline, "{what}: {why}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The open alarms, by name.
fn alarms(site: &Site) -> Vec<String> {
    let alarms = site.json(["power", "alarms"]);
    let rows = alarms.as_array().expect("a list").iter();
    rows.map(|row| row["name"].as_str().expect("a text").to_owned())
        .collect()
}

pub(super) async fn until_alarms(site: &Site, wanted: &[&str]) {
    until("the alarms", || {
        let found = alarms(site);
        if found == wanted {
            Ok(())
        } else {
            Err(format!("{found:?}, not {wanted:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leak_holds_machines_back_until_it_is_dry_and_a_tripped_breaker_its_branch() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start_with(dir.path(), "pxe", &pace(dir.path())).await;
    let config = FleetConfig {
        nodes: 4,
        ..FleetConfig::default()
    };
    let fleet = plane.machines(config, Arc::new(Seen::default())).await;
    let cdu = Equipment::cdu(Cdu::default()).await.expect("a cooling unit");
    let pdu = Pdu {
        outlets: 4,
        ..Pdu::default()
    };
    let pdu = Equipment::pdu(pdu).await.expect("a PDU");
    let site = &plane.site;
    let bmc = |one: &Equipment| format!(", bmc: '{}'", one.url());
    apply(site, &site_file(&fleet, 100_000, 1000, &bmc(&pdu), &bmc(&cdu)));
    until_alarms(site, &[]).await;
    // Values of machines, PDU and file appear in one answer.
    let first = fleet.node(0).name();
    until("the readings", || {
        let explained = site.json(["power", "explain", &first]);
        let steps = explained["steps"].as_array().cloned().unwrap_or_default();
        let measured = steps
            .iter()
            .map(|step| step["measured_watts"].as_f64())
            .collect::<Vec<_>>();
        let is_so = measured == vec![Some(1000.0); 3] && explained["measured_watts"].as_f64() == Some(10.0);
        if is_so { Ok(()) } else { Err(explained.to_string()) }
    })
    .await;

    cdu.change_cdu(|cdu| cdu.is_leaking = true);
    until_alarms(site, &["alarms/leak cdu/cdu-1"]).await;
    site.cli(["node", "power", &first, "on"]);
    until("the node waits", || {
        let explained = site.json(["node", "explain", &first]).to_string();
        if explained.contains("an alarm to clear: a leak at cdu/cdu-1: Tray") {
            Ok(())
        } else {
            Err(explained)
        }
    })
    .await;
    assert_eq!(fleet.node(0).view().phase, Phase::Off);
    let events = site.cli(["events", "--target", "cdu/cdu-1", "-o", "json"]);
    assert_eq!(events.matches("facility.leak").count(), 1, "{events}");
    assert!(events.contains(&first), "{events}");
    // A detector that no longer reports does not count as dry.
    cdu.change_cdu(|cdu| (cdu.is_leak_unknown, cdu.is_leaking) = (true, false));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(alarms(site), ["alarms/leak cdu/cdu-1"]);
    assert_eq!(fleet.node(0).view().phase, Phase::Off);

    cdu.change_cdu(|cdu| cdu.is_leak_unknown = false);
    let node = fleet.node(0);
    let dry = tokio::time::timeout(TEST_LIMIT, node.wait_for(|view| view.phase != Phase::Off));
    dry.await.expect("it is switched on once the alarm has cleared");
    until_alarms(site, &[]).await;

    pdu.change_pdu(|pdu| pdu.is_tripped = true);
    until_alarms(site, &["alarms/breaker rack-pdu/p"]).await;
    let alarms = site.json(["power", "alarms"]);
    let held: Vec<String> = (2..4)
        .map(|index| format!("nodes/{}", fleet.node(index).name()))
        .collect();
    assert_eq!(alarms[0]["nodes"], serde_json::json!(held), "{alarms}");
    cdu.change_cdu(|cdu| cdu.supply_celsius = 45.0);
    pdu.change_pdu(|pdu| pdu.is_tripped = false);
    until_alarms(site, &["alarms/supply-temperature cdu/cdu-1"]).await;
    plane.site.stop().await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_machines_boot_at_once_than_their_circuit_bears_and_all_come_up() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let further = "limits: {power_on: {settle_s: 2}}\n";
    let plane = Plane::start_with(dir.path(), "pxe", further).await;
    let config = FleetConfig {
        nodes: 8,
        profile: Profile::Vm,
        speed: 10.0,
        ..FleetConfig::default()
    };
    let fleet = plane.machines(config, Arc::new(Seen::default())).await;
    let site = &plane.site;
    // Eight maxima of 1 kW, and 2 kW more for each booting machine: two fit.
    apply(site, &site_file(&fleet, 12_000, 3000, "", ""));
    let most = Arc::new(AtomicUsize::new(0));
    let watch = {
        let (nodes, most) = ((0..8).map(|index| fleet.node(index)).collect::<Vec<_>>(), most.clone());
        tokio::spawn(async move {
            loop {
                let starting = |node: &&rackwright_sim::fleet::SimNode| {
                    matches!(node.view().phase, Phase::PoweringOn | Phase::Post)
                };
                most.fetch_max(nodes.iter().filter(starting).count(), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    };
    for index in 0..8 {
        site.cli(["node", "power", &fleet.node(index).name(), "on"]);
    }
    for index in 0..8 {
        let up = fleet.node(index);
        let up = tokio::time::timeout(
            TEST_LIMIT,
            up.wait_for(|view| matches!(view.phase, Phase::Booting(_) | Phase::Up(_))),
        );
        up.await.unwrap_or_else(|_| panic!("machine {index} does not come up"));
    }
    watch.abort();
    let most = most.load(Ordering::Relaxed);
    assert!((1..=2).contains(&most), "{most} booted at once");
    plane.site.stop().await;
    fleet.stop().await;
}
