//! The client against recorded services of real BMCs.
//!
//! Only with `RACKWRIGHT_MOCKUPS=DIR`, a folder with one folder for each recording, which holds
//! `…/redfish/v1/…/index.json` (or `…/index.json`) as the BMC answered. The recordings are not part of this
//! project, so without the variable nothing is tested.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod recorded_accounts;
mod recorded_state;
mod recount;
#[path = "scripted/server.rs"]
#[allow(dead_code)]
mod server;
mod support_page;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rackwright_redfish::{BmcClient, BmcTarget, BootTarget, Persistence, PowerGoal, Settings};
use rackwright_redfish_record::{RecordLimits, Recording};
use serde_json::Value;
use server::{Answer, Request, Server};

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
    boot_written_to: &'static str,
}

type Tree = BTreeMap<String, Value>;

/// Reads a recording. Paths are stored in lower case because links and files differ in letter case.
fn read_tree(root: &Path) -> Tree {
    let base = if root.join("redfish/v1").is_dir() {
        root.join("redfish/v1")
    } else {
        root.to_owned()
    };
    let mut tree = Tree::new();
    let mut folders = vec![base.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name == "index.json") {
                let relative = folder.strip_prefix(&base).unwrap().to_str().unwrap().to_owned();
                // A recorded file that is not JSON is left out and answers 404.
                if let Ok(value) = serde_json::from_slice(&std::fs::read(&path).unwrap()) {
                    tree.insert(key(&format!("/redfish/v1/{relative}")), value);
                }
            }
        }
    }
    assert!(tree.len() > 100, "{} holds no recording", root.display());
    tree
}

fn key(path: &str) -> String {
    path.trim_end_matches('/').to_lowercase()
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

async fn serve(tree: Tree) -> Server {
    let tree = std::sync::Mutex::new(tree);
    let handler = move |request: &Request| {
        let mut tree = tree.lock().unwrap();
        let path = key(&request.path);
        match request.method.as_str() {
            "GET" => tree
                .get(&path)
                .map_or_else(|| Answer::status(404), |body| Answer::json(200, body)),
            "POST" if path.ends_with("/sessions") => Answer::status(201)
                .with("X-Auth-Token", "t")
                .with("Location", &format!("{}/1", request.path)),
            "POST" => Answer::status(204),
            "DELETE" => Answer::status(204),
            "PATCH" => match tree.get_mut(&path) {
                Some(body) => {
                    merge(body, &request.body);
                    Answer::status(204)
                }
                None => Answer::status(404),
            },
            _ => Answer::status(405),
        }
    };
    Server::start(None, Duration::ZERO, Arc::new(handler)).await
}

async fn check(folder: &Path, expected: &Expected) {
    let name = expected.recording;
    let tree = read_tree(&folder.join(name));
    let server = serve(tree.clone()).await;
    let target = BmcTarget {
        address: server.url(),
        username: "admin".to_owned(),
        password: "password".into(),
        certificate_sha256: None,
        system: None,
    };
    let client = BmcClient::connect(target, Settings::default()).await.unwrap();
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
    recount::check(name, &tree, &found);
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
    client.close().await.unwrap();
    assert!(server.most_at_once() <= 2, "{name}");
}

/// Records the service anew and scrubs it: it offers the same, and contains none of the identity.
async fn record_anew(folder: &Path, name: &str) {
    let connect = async |server: &Server| {
        let target = BmcTarget {
            address: server.url(),
            username: "admin".to_owned(),
            password: "password".into(),
            certificate_sha256: None,
            system: None,
        };
        BmcClient::connect(target, Settings::default()).await.unwrap()
    };
    let server = serve(read_tree(&folder.join(name))).await;
    let client = connect(&server).await;
    let (report, machine) = (client.probe().await.unwrap(), client.machine().await.unwrap());
    let recording = Recording::of(&client, &RecordLimits::default(), |_, _| {})
        .await
        .unwrap();
    client.close().await.unwrap();
    assert_eq!(recording.cut, None, "{name}");
    let scrubbed = recording.scrubbed(&[], "admin").resources;
    let mut secrets: Vec<String> = machine.macs.iter().map(ToString::to_string).collect();
    secrets.extend(secrets.clone().iter().map(|mac| mac.replace(':', "")));
    secrets.extend(machine.identity.serial);
    secrets.extend(machine.identity.uuid);
    for (path, body) in &scrubbed {
        let text = format!("{path} {body}").to_lowercase();
        let left = secrets.iter().find(|secret| text.contains(&secret.to_lowercase()));
        assert_eq!(left, None, "{name}: {path}: {body:#}");
    }
    println!("{name}: {} resources recorded anew", scrubbed.len());
    let served = serve(scrubbed.into_iter().map(|(path, body)| (key(&path), body)).collect()).await;
    let again = connect(&served).await;
    assert_eq!(again.probe().await.unwrap(), report, "{name}");
    again.close().await.unwrap();
}

fn recordings() -> Vec<Expected> {
    let make = |recording,
                machine,
                model,
                serial,
                profile,
                [processors, memory, drives, macs]: [usize; 4],
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
        boot_written_to,
    };
    vec![
        make(
            "dell",
            "Dell PowerEdge R750 (recorded)",
            "PowerEdge R750",
            "F54P1G3",
            "dell-idrac",
            [3, 16, 3, 7],
            "/redfish/v1/Systems/System.Embedded.1",
        ),
        make(
            "hpe",
            "HPE DL385 Gen10 Plus v2 (recorded)",
            "ProLiant DL385 Gen10 Plus v2",
            "MXQ302099S",
            "hpe-ilo",
            [2, 16, 18, 9],
            "/redfish/v1/Systems/1",
        ),
        make(
            "lenovo",
            "Lenovo SR670 V2 (recorded)",
            "ThinkSystem SR670 V2",
            "J105958B",
            "lenovo-xcc",
            [10, 16, 4, 5],
            "/redfish/v1/Systems/1",
        ),
        make(
            "supermicro",
            "Supermicro SYS-821GE-TNHR (recorded)",
            "SYS-821GE-TNHR",
            "S889914X3710910",
            "supermicro",
            [2, 32, 8, 12],
            "/redfish/v1/Systems/1",
        ),
        make(
            "gigabyte",
            "Gigabyte H262 (recorded)",
            "H262-Z63-00",
            "GJG9NF512A000302",
            "ami-megarac",
            [2, 16, 1, 2],
            "/redfish/v1/Systems/Self",
        ),
        make(
            "nvidia_viking",
            "NVIDIA DGX H100 (recorded)",
            "DGXH100",
            "1662923610124",
            "nvidia-dgx-h100",
            [11, 40, 15, 5],
            "/redfish/v1/Systems/DGX/SD",
        ),
    ]
}

#[tokio::test]
async fn recorded_services() {
    let Some(folder) = std::env::var_os("RACKWRIGHT_MOCKUPS").map(PathBuf::from) else {
        println!("SKIPPED recorded services: RACKWRIGHT_MOCKUPS is not set");
        return;
    };
    for expected in recordings() {
        check(&folder, &expected).await;
        record_anew(&folder, expected.recording).await;
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
}

fn measured() -> [Measured; 6] {
    let make = |recording, system, watts, temperatures, hottest, supplies| Measured {
        recording,
        system,
        watts,
        temperatures,
        hottest,
        supplies,
    };
    [
        make("dell", None, Some(614.0), 5, ("CPU2 Temp", 39.0, Some(99.0)), 2),
        make(
            "hpe",
            None,
            Some(531.0),
            47,
            ("38-PCI 5-I/O module", 88.0, Some(105.0)),
            2,
        ),
        // EnvironmentMetrics reports 700, the older PowerControl 708.
        make("lenovo", None, Some(700.0), 14, ("CPU 2 Temp", 30.0, None), 4),
        make(
            "supermicro",
            None,
            Some(2161.0),
            36,
            ("AOC_NIC12 Temp", 63.0, Some(100.0)),
            8,
        ),
        // One node of four: its meter is disabled and reads 100.
        make("gigabyte", None, None, 17, ("CPU0_DTS", 60.0, None), 0),
        // No meter: six supplies with excerpts that only link the sensors.
        make(
            "nvidia_viking",
            Some("DGX"),
            Some(1989.0),
            107,
            ("TLIMIT_GB_SXM1", 60.0, None),
            6,
        ),
    ]
}

#[tokio::test]
async fn recorded_readings() {
    let Some(folder) = std::env::var_os("RACKWRIGHT_MOCKUPS").map(PathBuf::from) else {
        println!("SKIPPED recorded readings: RACKWRIGHT_MOCKUPS is not set");
        return;
    };
    for expected in measured() {
        let name = expected.recording;
        let server = serve(read_tree(&folder.join(name))).await;
        let target = BmcTarget {
            address: server.url(),
            username: "admin".to_owned(),
            password: "password".into(),
            certificate_sha256: None,
            system: expected.system.map(str::to_owned),
        };
        let client = BmcClient::connect(target, Settings::default()).await.unwrap();
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
        assert_eq!(hot, None, "{name}: a machine that ran well is said to be too hot");
    }
}

/// Entries in the recording itself, by the lower-case path of their log: inline entries, and links to recorded ones.
fn recorded_entries(tree: &Tree) -> BTreeMap<String, usize> {
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
    let Some(folder) = std::env::var_os("RACKWRIGHT_MOCKUPS").map(PathBuf::from) else {
        println!("SKIPPED recorded event logs: RACKWRIGHT_MOCKUPS is not set");
        return;
    };
    for expected in measured() {
        let name = expected.recording;
        let tree = read_tree(&folder.join(name));
        let recorded = recorded_entries(&tree);
        let server = serve(tree).await;
        let target = BmcTarget {
            address: server.url(),
            username: "admin".to_owned(),
            password: "password".into(),
            certificate_sha256: None,
            system: expected.system.map(str::to_owned),
        };
        let client = BmcClient::connect(target, Settings::default()).await.unwrap();
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
        assert_eq!(
            found.entries.len(),
            recorded.values().sum::<usize>(),
            "{name}: nothing is lost"
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
    }
}
#[tokio::test]
async fn recorded_accounts() {
    if std::env::var_os("RACKWRIGHT_MOCKUPS").is_none() {
        println!("SKIPPED recorded accounts: RACKWRIGHT_MOCKUPS is not set");
        return;
    }
    let kept = std::sync::Mutex::new(Vec::new());
    recorded_accounts::check(async |recording| {
        let server = serve(read_tree(&recording)).await;
        let target = BmcTarget {
            address: server.url(),
            username: "admin".to_owned(),
            password: "password".into(),
            certificate_sha256: None,
            system: None,
        };
        let client = BmcClient::connect(target, Settings::default()).await.unwrap();
        kept.lock().unwrap().push(server);
        client
    })
    .await;
}

#[tokio::test]
async fn recorded_bmc_state() {
    let Some(folder) = std::env::var_os("RACKWRIGHT_MOCKUPS").map(PathBuf::from) else {
        println!("SKIPPED recorded states of BMCs: RACKWRIGHT_MOCKUPS is not set");
        return;
    };
    for expected in measured() {
        let name = expected.recording;
        let server = serve(read_tree(&folder.join(name))).await;
        let target = BmcTarget {
            address: server.url(),
            username: "admin".to_owned(),
            password: "password".into(),
            certificate_sha256: None,
            system: expected.system.map(str::to_owned),
        };
        let client = BmcClient::connect(target, Settings::default()).await.unwrap();
        recorded_state::check(name, &client).await;
        println!("{name}: {} requests", server.requests().len());
    }
}
