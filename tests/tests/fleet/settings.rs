//! A SKU's settings on simulated firmware: written, proven after a start, changed without the control plane, corrected.

use rackwright_redfish::{BmcClient, BmcTarget, Settings};
use rackwright_sim::fleet::SimNode;

use super::*;

/// The faults of the machines: none; the first start loses the pending settings; every start does.
const FAULTS: &str = "faults:\n  - {fault: settings-ignored, nodes: [1], at: 1, times: 1}\n  \
                      - {fault: settings-ignored, nodes: [2]}\n";

const WANTED: &str = "bios: {Sriov: Enabled, NumaPerSocket: 2, QuietBoot: false}, secure_boot: enabled";

/// Machines 0 to 2 of a SKU with `settings`, and one machine of a SKU without.
fn site_file(fleet: &Fleet, settings: &str) -> String {
    let sku = |name: &str, further: &str| {
        format!(
            "- {{name: {name}, power: {{max_watts: 1000}}, psus: {{count: 1, watts: 3000, needed: 1}}, height_units: 1{further}}}\n"
        )
    };
    let mut text = format!(
        "site: {{name: lab}}\nrooms: [{{name: hall}}]\nracks: [{{name: r1, room: hall}}]\nskus:\n{}{}nodes:\n",
        sku("wants", &format!(", {settings}")),
        sku("plain", "")
    );
    for index in 0..fleet.nodes() {
        let (name, unit) = (fleet.node(index).name(), index + 1);
        let sku = if index < 3 { "wants" } else { "plain" };
        text.push_str(&format!("- {{name: {name}, sku: {sku}, rack: r1, unit: {unit}}}\n"));
    }
    text
}

fn apply(site: &Site, text: &str) {
    let file = site.dir().join("site.yaml");
    std::fs::write(&file, text).expect("the file can be written");
    let done = tokio::task::block_in_place(|| {
        site.try_cli(["site".as_ref(), "apply".as_ref(), file.as_os_str(), "--yes".as_ref()])
    });
    assert!(done.status.success(), "{:?}", texts(&done));
}

async fn client_of(node: &SimNode) -> BmcClient {
    let pin = node.fingerprint().expect("a certificate").expect("over TLS");
    let target = BmcTarget {
        address: node.url(),
        username: node.user().to_owned(),
        password: node.password().into(),
        certificate_sha256: Some(pin.parse().expect("a fingerprint")),
        system: None,
    };
    BmcClient::connect(target, Settings::default())
        .await
        .expect("the BMC answers")
}

/// Root on the machine changes a setting and restarts it.
async fn change_by_hand(node: &SimNode) {
    let client = client_of(node).await;
    let bios = client.bios().await.expect("it can be read").expect("it is there");
    assert_eq!(bios.current["Sriov"].to_string(), "Enabled");
    let settings = [("Sriov".to_owned(), "Disabled".to_owned())].into();
    client.set_bios(&bios, &settings).await.expect("it is taken");
    assert!(node.press_button(), "it was off");
    client.close().await.expect("the session ends");
    node.wait_for(|view| matches!(view.phase, Phase::Booting(_) | Phase::Up(_)))
        .await;
}

fn standings(site: &Site, id: &str) -> Vec<(String, String)> {
    let shown = site.json(["node", "settings", id]);
    let rows = shown["settings"].as_array().expect("a list").iter();
    rows.map(|row| {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        (text("name"), text("standing").replace("SETTING_STANDING_", ""))
    })
    .collect()
}

async fn until_drift(site: &Site, wanted: &[&str]) {
    let deadline = Instant::now() + TEST_LIMIT;
    loop {
        let drift = tokio::task::block_in_place(|| site.json(["node", "settings", "drift"]));
        let rows = drift.as_array().expect("a list").iter();
        let found: Vec<&str> = rows.map(|row| row["name"].as_str().expect("a text")).collect();
        if found == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{drift:#}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_applied_before_a_machine_is_available_and_drift_is_reported_and_corrected() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start_with(dir.path(), "pxe", "settings_watch: {interval_s: 2}\n").await;
    let config = FleetConfig {
        nodes: 4,
        faults: Script::parse("faults.yaml", FAULTS, 4).unwrap_or_else(|error| panic!("{error}")),
        boot_server: Some(plane.dhcp),
        tftp_port: plane.tftp_port,
        ..FleetConfig::default()
    };
    let fleet = Fleet::with_systems(config, Arc::new(Seen::default()))
        .await
        .expect("the fleet starts");
    let site = &plane.site;
    apply(site, &site_file(&fleet, WANTED));
    let names: Vec<String> = (0..4).map(|index| fleet.node(index).name()).collect();
    enrolled(&plane, &fleet, &names).await;
    proven(site, &fleet, &names);
    let failed = format!("nodes/{}", names[2]);
    until_drift(site, &[&failed]).await;

    change_by_hand(&fleet.node(0)).await;
    let drifted = format!("nodes/{}", names[0]);
    until_drift(site, &[&drifted, &failed]).await;
    let events = site.cli(["events", "--target", &drifted, "-o", "json"]);
    assert!(events.contains("node.settings-drift"), "{events}");
    assert!(
        events.contains("bios/Sriov must be") && events.contains("node.settings-verified"),
        "{events}"
    );
    assert_eq!(
        client_of(&fleet.node(0))
            .await
            .bios()
            .await
            .expect("it reads")
            .expect("it is there")
            .pending
            .len(),
        0
    );

    let done = tokio::task::block_in_place(|| site.cli(["node", "settings", "apply", &names[0], "--wait"]));
    assert!(done.contains(&names[0]), "{done}");
    assert_eq!(site.state(&names[0]), "available");
    until_drift(site, &[&failed]).await;
    let refused = tokio::task::block_in_place(|| site.try_cli(["node", "settings", "apply", &names[3]]));
    let (_, words) = texts(&refused);
    assert!(
        !refused.status.success() && words.contains("has no wanted firmware settings"),
        "{words}"
    );

    // Impossible settings are refused with their names, and none of them is written.
    let certificate = format!(
        "secure_boot: {{keys: [{{database: db, sha256: '{}'}}]}}",
        "ab".repeat(32)
    );
    for (settings, fault) in [
        (
            "bios: {Sriov: Sometimes, QuietBoot: true}".to_owned(),
            "Sriov = \"Sometimes\": it takes one of Enabled, Disabled",
        ),
        (
            format!("bios: {{QuietBoot: true}}, {certificate}"),
            "the certificate is missing on the machine, and the site does not give it as PEM",
        ),
    ] {
        apply(site, &site_file(&fleet, &settings));
        let refused = tokio::task::block_in_place(|| site.try_cli(["node", "settings", "apply", &names[1], "--wait"]));
        let (_, words) = texts(&refused);
        assert!(!refused.status.success(), "{words}");
        let reason = site.reason(&names[1]);
        assert!(reason.contains(fault), "{reason}");
        let client = client_of(&fleet.node(1)).await;
        let bios = client.bios().await.expect("it reads").expect("it is there");
        assert_eq!(
            (bios.current["QuietBoot"].to_string().as_str(), bios.pending.len()),
            ("false", 0)
        );
        client.close().await.expect("the session ends");
    }
    plane.site.stop().await;
    fleet.stop().await;
}

/// The number of starts and the report of each machine.
fn proven(site: &Site, fleet: &Fleet, names: &[String]) {
    // One start where the settings stay, one more for each loss, none for the machine without settings.
    let boots: Vec<u32> = (0..4).map(|index| fleet.node(index).view().boots).collect();
    assert_eq!(boots, [1, 2, 3, 1]);
    let reason = site.reason(&names[2]);
    let sentence = "did not persist in 3 starts: bios/NumaPerSocket must be \"2\" and is \"1\"";
    assert!(reason.contains(sentence), "{reason}");
    for (index, name) in names.iter().enumerate().take(2) {
        let shown = site.json(["node", "settings", name]);
        assert!(
            shown["verify_time"].is_string() && shown["drift_time"].is_null(),
            "{index}: {shown:#}"
        );
        assert!(
            standings(site, name)
                .iter()
                .all(|(_, standing)| standing == "AS_WANTED"),
            "{shown:#}"
        );
    }
    assert_eq!(standings(site, &names[0]).len(), 4);
    let explained = site.cli(["node", "explain", &names[0]]);
    assert!(explained.contains("firmware settings"), "{explained}");
    // The other machine has no required settings, and no request was sent to it.
    assert!(
        site.cli(["node", "settings", &names[3]])
            .contains("wants no firmware settings")
    );
    assert!(!site.cli(["node", "explain", &names[3]]).contains("firmware settings"));
}

/// Enrols all, and waits until each reaches the state that its faults cause.
async fn enrolled(plane: &Plane, fleet: &Fleet, names: &[String]) {
    let file = plane.site.dir().join("nodes.yaml");
    let mut text = Vec::new();
    fleet
        .describe(Format::Yaml, None, &mut text)
        .expect("the fleet can be described");
    std::fs::write(&file, text).expect("the file can be written");
    tokio::task::block_in_place(|| plane.site.cli(["apply".as_ref(), "-f".as_ref(), file.as_os_str()]));
    for (index, name) in names.iter().enumerate() {
        let wanted = if index == 2 { "failed" } else { "available" };
        let state = plane.site.until(name, &["available", "failed"], TEST_LIMIT).await;
        assert_eq!(state, wanted, "{name}: {}", plane.site.reason(name));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bmcs_settings_job_is_awaited_and_a_failed_one_has_its_reason() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let config = FleetConfig {
        nodes: 3,
        faults: Script::parse("faults.yaml", FAULTS, 3).unwrap_or_else(|error| panic!("{error}")),
        boot_server: Some(plane.dhcp),
        tftp_port: plane.tftp_port,
        // Longer than a start into the agent: an immediate reading does not show the value in force yet.
        settings_jobs: Some(Duration::from_secs(8)),
        ..FleetConfig::default()
    };
    let fleet = Fleet::with_systems(config, Arc::new(Seen::default()))
        .await
        .expect("the fleet starts");
    let site = &plane.site;
    apply(site, &site_file(&fleet, WANTED));
    let names: Vec<String> = (0..3).map(|index| fleet.node(index).name()).collect();
    enrolled(&plane, &fleet, &names).await;
    let boots: Vec<u32> = (0..3).map(|index| fleet.node(index).view().boots).collect();
    assert_eq!(boots, [1, 2, 3]);
    let reason = site.reason(&names[2]);
    let sentence = "did not persist in 3 starts: the BMC's job for the firmware settings ended as Exception: \
                    The settings do not go with the memory that is fitted.";
    assert!(reason.contains(sentence), "{reason}");
    plane.site.stop().await;
    fleet.stop().await;
}
