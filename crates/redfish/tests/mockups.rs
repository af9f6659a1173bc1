//! The client against recorded services of real BMCs.
//!
//! The recordings are small ones in this repository. `RACKWRIGHT_MOCKUPS=DIR` takes the whole recordings from `DIR`, which
//! has a folder for each machine with `redfish/v1/.../index.json` (or `.../index.json`), as the BMC answered. Expected
//! values are the same for both, except the number of log entries.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod recorded_accounts;
mod recorded_service;
mod recorded_state;
mod recount;
#[path = "scripted/server.rs"]
#[allow(dead_code)]
mod server;
mod support_page;

use std::collections::{BTreeMap, BTreeSet};

use rackwright_redfish::{BootTarget, Persistence, PowerGoal};
use rackwright_redfish_mockup::{Resources, key};
use rackwright_redfish_record::{RecordLimits, Recording};
use recorded_service::recordings::NAMES;
use recorded_service::{RecordedBmc, connect, recordings, reduce, serve};
use serde_json::Value;

/// Expected values of a machine's recording, counted without this client.
struct Expected {
    recording: &'static str,
    /// The name on the support page.
    machine: &'static str,
    model: &'static str,
    serial: &'static str,
    profile: &'static str,
    processors: usize,
    memory: usize,
    drives: usize,
    macs: usize,
    /// Network adapters, firmware entries, power supplies, fans, sensors.
    compared: [usize; 5],
    boot_written_to: &'static str,
}

async fn check(expected: &Expected) {
    let name = expected.recording;
    let recorded = RecordedBmc::open(name, None).await;
    let (server, client) = (&recorded.server, &recorded.client);
    let identity = client.identity().await.unwrap();
    println!("{name}: {identity:?}");
    assert_eq!(identity.model.as_deref(), Some(expected.model), "{name}");
    assert_eq!(identity.serial.as_deref(), Some(expected.serial), "{name}");
    assert!(identity.uuid.is_some(), "{name}");
    assert!(identity.profiles.iter().any(|one| one == expected.profile), "{name}");
    let found = client.inventory().await.unwrap();
    for gap in &found.gaps {
        println!("{name}: gap {} {}", gap.path, gap.why);
    }
    let compared = recount::check(name, &recorded.tree, &found);
    assert_eq!(compared, expected.compared, "{name}");
    let counts = [
        found.processors.len(),
        found.memory.len(),
        found.drives.len(),
        client.macs().await.unwrap().len(),
    ];
    println!("{name}: {counts:?} in {} requests", server.requests().len());
    assert_eq!(
        counts,
        [expected.processors, expected.memory, expected.drives, expected.macs],
        "{name}"
    );
    let firmware = client.firmware().await.unwrap();
    let listed = |path: &str| path.to_lowercase().contains("/firmwareinventory/");
    let listed = found.firmware.iter().filter(|one| listed(&one.path)).count();
    assert_eq!(firmware.entries.len(), listed, "{name}: {:?}", firmware.gaps);
    assert!(firmware.entries.iter().all(|entry| !entry.id.is_empty()), "{name}");
    assert!(!firmware.offer.is_empty(), "{name}");
    println!(
        "{name}: {} pieces of firmware, {:?}",
        firmware.entries.len(),
        firmware.offer
    );
    let types = client.reset_types().await.unwrap().unwrap();
    assert!(types.iter().any(|one| one == "ForceOff"), "{name}: {types:?}");
    client.set_power(PowerGoal::Off).await.unwrap();
    let outcome = client.set_boot(BootTarget::Pxe, Persistence::Once, None).await.unwrap();
    assert_eq!(outcome.written_to, expected.boot_written_to, "{name}");
    let report = client.probe().await.unwrap();
    assert_eq!(report.missing_for_deploy, [""; 0], "{name}");
    support_page::check(expected.machine, &report);
    let drives = client.virtual_media().await.unwrap();
    println!(
        "{name}: {} virtual drives, {types:?}, {:?}",
        drives.len(),
        outcome.deviations
    );
    assert!(server.most_at_once() <= 2, "{name}");
    recorded.close(recount::compares).await;
}

/// Records the service anew and scrubs it: it offers the same, and contains none of the identity.
async fn record_anew(name: &'static str) {
    let RecordedBmc {
        tree, server, client, ..
    } = RecordedBmc::open(name, None).await;
    let (report, machine) = (client.probe().await.unwrap(), client.machine().await.unwrap());
    let recording = Recording::of(&client, &RecordLimits::default(), |_, _| {})
        .await
        .unwrap();
    client.close().await.unwrap();
    drop(server);
    assert_eq!(recording.cut, None, "{name}");
    let mut secrets: Vec<String> = machine.macs.iter().map(ToString::to_string).collect();
    secrets.extend(secrets.clone().iter().map(|mac| mac.replace(':', "")));
    secrets.extend(machine.identity.serial);
    secrets.extend(machine.identity.uuid);
    let secret_in = |path: &str, body: &Value| {
        let text = format!("{path} {body}").to_lowercase();
        secrets.iter().find(|secret| text.contains(&secret.to_lowercase()))
    };
    let revealing = recording
        .resources
        .iter()
        .filter(|(path, body)| secret_in(path, body).is_some());
    let revealing: BTreeSet<String> = revealing.map(|(path, _)| key(path)).collect();
    println!(
        "{name}: {} resources recorded, {} reveal the machine",
        recording.resources.len(),
        revealing.len()
    );
    assert!(revealing.len() >= 10, "{name}: {revealing:?}");
    let scrubbed = recording.scrubbed(&[], "admin").resources;
    for (path, body) in &scrubbed {
        assert_eq!(secret_in(path, body), None, "{name}: {path}: {body:#}");
    }
    let served = serve(scrubbed.into_iter().map(|(path, body)| (key(&path), body)).collect()).await;
    let again = connect(&served, None).await;
    assert_eq!(again.probe().await.unwrap(), report, "{name}");
    again.close().await.unwrap();
    if reduce::is_wanted() {
        reduce::add(name, &tree, revealing);
    }
}

fn expectations() -> [Expected; NAMES.len()] {
    let make = |recording,
                machine,
                model,
                serial,
                profile,
                [processors, memory, drives, macs]: [usize; 4],
                compared,
                boot_written_to| Expected {
        recording,
        machine,
        model,
        serial,
        profile,
        processors,
        memory,
        drives,
        macs,
        compared,
        boot_written_to,
    };
    [
        make(
            "dell",
            "Dell PowerEdge R750 (recorded)",
            "PowerEdge R750",
            "F54P1G3",
            "dell-idrac",
            [3, 16, 3, 7],
            [4, 29, 2, 6, 33],
            "/redfish/v1/Systems/System.Embedded.1",
        ),
        make(
            "hpe",
            "HPE DL385 Gen10 Plus v2 (recorded)",
            "ProLiant DL385 Gen10 Plus v2",
            "MXQ302099S",
            "hpe-ilo",
            [2, 16, 18, 9],
            [3, 48, 2, 6, 0],
            "/redfish/v1/Systems/1",
        ),
        make(
            "lenovo",
            "Lenovo SR670 V2 (recorded)",
            "ThinkSystem SR670 V2",
            "J105958B",
            "lenovo-xcc",
            [10, 16, 4, 5],
            [2, 43, 4, 10, 236],
            "/redfish/v1/Systems/1",
        ),
        make(
            "supermicro",
            "Supermicro SYS-821GE-TNHR (recorded)",
            "SYS-821GE-TNHR",
            "S889914X3710910",
            "supermicro",
            [2, 32, 8, 12],
            [10, 106, 8, 6, 1],
            "/redfish/v1/Systems/1",
        ),
        make(
            "gigabyte",
            "Gigabyte H262 (recorded)",
            "H262-Z63-00",
            "GJG9NF512A000302",
            "ami-megarac",
            [2, 16, 1, 2],
            [0, 3, 2, 0, 2],
            "/redfish/v1/Systems/Self",
        ),
        make(
            "nvidia_viking",
            "NVIDIA DGX H100 (recorded)",
            "DGXH100",
            "1662923610124",
            "nvidia-dgx-h100",
            [11, 40, 15, 5],
            [12, 78, 6, 36, 503],
            "/redfish/v1/Systems/DGX/SD",
        ),
    ]
}

/// Also a resource that was added by hand is reduced: it contains no secret.
#[test]
fn small_recordings_are_reduced() {
    for name in NAMES {
        let small = rackwright_redfish_mockup::read(&recordings::small(name)).unwrap();
        for (path, body) in &small {
            assert_eq!(reduce::reduced(path, body), *body, "{name}: {path}");
        }
    }
}

#[tokio::test]
async fn recorded_services() {
    for expected in expectations() {
        check(&expected).await;
        record_anew(expected.recording).await;
    }
}

/// Power and temperature in a machine's recording, taken from the recording by hand.
struct Measured {
    recording: &'static str,
    system: Option<&'static str>,
    watts: Option<f64>,
    temperatures: usize,
    hottest: (&'static str, f64, Option<f64>),
    supplies: usize,
    /// Entries of the logs, in the whole and in the small recording, which keeps at most 16 entries of a log.
    entries: [usize; 2],
}

fn measured() -> [Measured; NAMES.len()] {
    let make = |recording, system, watts, temperatures, hottest, supplies, entries| Measured {
        recording,
        system,
        watts,
        temperatures,
        hottest,
        supplies,
        entries,
    };
    [
        make(
            "dell",
            None,
            Some(614.0),
            5,
            ("CPU2 Temp", 39.0, Some(99.0)),
            2,
            [10, 10],
        ),
        make(
            "hpe",
            None,
            Some(531.0),
            47,
            ("38-PCI 5-I/O module", 88.0, Some(105.0)),
            2,
            [20, 20],
        ),
        // EnvironmentMetrics reports 700, the older PowerControl 708.
        make("lenovo", None, Some(700.0), 14, ("CPU 2 Temp", 30.0, None), 4, [18, 18]),
        make(
            "supermicro",
            None,
            Some(2161.0),
            36,
            ("AOC_NIC12 Temp", 63.0, Some(100.0)),
            8,
            [591, 32],
        ),
        // One node of four: its meter is disabled and reads 100.
        make("gigabyte", None, None, 17, ("CPU0_DTS", 60.0, None), 0, [40, 40]),
        // No meter: six supplies with excerpts that only link the sensors.
        make(
            "nvidia_viking",
            Some("DGX"),
            Some(1989.0),
            107,
            ("TLIMIT_GB_SXM1", 60.0, None),
            6,
            [459, 157],
        ),
    ]
}

#[tokio::test]
async fn recorded_readings() {
    for expected in measured() {
        let name = expected.recording;
        let recorded = RecordedBmc::open(name, expected.system).await;
        let (server, client) = (&recorded.server, &recorded.client);
        let before = server.requests().len();
        let read = client.node_readings().await.unwrap();
        let requests = server.requests().len() - before;
        let hottest = read
            .temperatures
            .iter()
            .max_by(|a, b| a.celsius.total_cmp(&b.celsius))
            .unwrap();
        println!(
            "{name}: {:?} W, {} temperatures, hottest {hottest:?}, {} supplies, gaps {:?}, {requests} requests",
            read.watts,
            read.temperatures.len(),
            read.supplies.len(),
            read.gaps
        );
        assert_eq!(read.watts, expected.watts, "{name}");
        assert_eq!(read.temperatures.len(), expected.temperatures, "{name}");
        let (sensor, celsius, limit) = expected.hottest;
        assert_eq!(
            (hottest.name.as_str(), hottest.celsius, hottest.upper_critical),
            (sensor, celsius, limit),
            "{name}"
        );
        assert_eq!(read.supplies.len(), expected.supplies, "{name}");
        assert!(
            requests <= 32,
            "{name}: {requests} requests are too many for a look every few minutes"
        );
        let hot = read
            .temperatures
            .iter()
            .find(|one| one.upper_critical.is_some_and(|limit| one.celsius >= limit));
        assert_eq!(hot, None, "{name}: a healthy machine reads as too hot");
        recorded.close(|_, _| false).await;
    }
}

/// Entries in the recording itself, by the lower-case path of their log: inline entries, and links to recorded ones.
fn recorded_entries(tree: &Resources) -> BTreeMap<String, usize> {
    let is_there = |member: &Value| {
        let link = key(member["@odata.id"].as_str().unwrap_or_default());
        member.as_object().is_some_and(|fields| fields.len() > 1) || tree.contains_key(&link)
    };
    let logs = tree.iter().filter_map(|(path, body)| {
        let log = path.strip_suffix("/entries").filter(|log| {
            let is_of_a_place = ["systems", "managers", "chassis"]
                .iter()
                .any(|place| log.starts_with(&format!("/redfish/v1/{place}/")));
            is_of_a_place && log.contains("/logservices/")
        })?;
        let members = body["Members"].as_array()?;
        Some((log.to_owned(), members.iter().filter(|one| is_there(one)).count()))
    });
    logs.collect()
}

#[tokio::test]
async fn recorded_event_logs() {
    for expected in measured() {
        let name = expected.recording;
        let bmc = RecordedBmc::open(name, expected.system).await;
        let (client, recorded) = (&bmc.client, recorded_entries(&bmc.tree));
        let found = client.event_log(100_000).await.unwrap();
        let read: BTreeMap<String, usize> = found.logs.iter().map(|log| (key(&log.path), log.read)).collect();
        let clearable = found.logs.iter().filter(|log| log.can_clear).count();
        println!(
            "{name}: {} entries in {} logs, {clearable} can be cleared, newest {:?}, gaps {:?}",
            found.entries.len(),
            found.logs.len(),
            found.entries.first(),
            found.gaps
        );
        for (log, count) in &recorded {
            assert_eq!(read.get(log), Some(count), "{name}: {log}");
        }
        let count: usize = recorded.values().sum();
        assert_eq!(found.entries.len(), count, "{name}: nothing is lost");
        assert_eq!(
            count,
            expected.entries[usize::from(recordings::whole().is_none())],
            "{name}"
        );
        assert!(
            found.entries.is_sorted_by(|a, b| a.created_s >= b.created_s),
            "{name}: the newest first"
        );
        if !found.entries.is_empty() {
            assert!(found.entries.iter().any(|one| one.created_s.is_some()), "{name}");
        }
        let newest = client.event_log(3).await.unwrap().entries;
        assert_eq!(newest, found.entries[..newest.len()], "{name}");
        bmc.close(|path, _| recorded.contains_key(path.trim_end_matches("/entries")))
            .await;
    }
}

#[tokio::test]
async fn recorded_accounts() {
    recorded_accounts::check().await;
}

#[tokio::test]
async fn recorded_bmc_state() {
    for expected in measured() {
        let name = expected.recording;
        let recorded = RecordedBmc::open(name, expected.system).await;
        let (server, client) = (&recorded.server, &recorded.client);
        recorded_state::check(name, client).await;
        println!("{name}: {} requests", server.requests().len());
        recorded.close(|_, _| false).await;
    }
}
